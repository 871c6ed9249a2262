//! `[commands]`: how long commands may be silent and may run (CMD-15).

use std::collections::BTreeMap;

use kapelle_core::time::SECOND_MS;
use kapelle_workspace::commands::{CommandKind, ThresholdRule, ThresholdRules};
use schemars::JsonSchema;
use serde::Deserialize;

/// What is left out is as usual for the kind of command.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CommandConfig {
    /// Silence that is spoken of. Default: 30; 0 for never.
    pub silence_seconds: Option<u64>,
    /// Silence that ends the command. Default: 60; 0 for never. Installing and building may be silent,
    /// and so may checks that are test suites or scripts.
    pub kill_seconds: Option<u64>,
    /// When it is ended, whatever it prints. Default: 300. A check has its own `timeout_seconds`.
    pub limit_seconds: Option<u64>,
}

pub(super) fn check(commands: &BTreeMap<String, CommandConfig>) -> Result<(), String> {
    let wrong = |(name, config): &(&String, &CommandConfig)| {
        name.trim().is_empty() || config.limit_seconds == Some(0)
    };
    match commands.iter().find(wrong) {
        None => Ok(()),
        Some((name, _)) => Err(format!(
            "[commands.{name:?}] needs a kind or the beginning of a command, and limit_seconds of at \
             least 1"
        )),
    }
}

pub(super) fn rules(commands: &BTreeMap<String, CommandConfig>) -> ThresholdRules {
    let mut rules = ThresholdRules::default();
    for (name, config) in commands {
        match CommandKind::ALL.into_iter().find(|kind| kind.name() == name) {
            Some(kind) => rules.by_kind.insert(kind, config.rule()),
            None => {
                let beginning = name.split_whitespace().collect::<Vec<_>>().join(" ");
                rules.by_beginning.insert(beginning, config.rule())
            }
        };
    }
    rules
}

impl CommandConfig {
    fn rule(&self) -> ThresholdRule {
        let ms = |seconds: Option<u64>| seconds.map(|seconds| seconds.saturating_mul(SECOND_MS));
        ThresholdRule {
            silence_ms: ms(self.silence_seconds),
            kill_ms: ms(self.kill_seconds),
            limit_ms: ms(self.limit_seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::config::Config;

    #[test]
    fn commands_are_ruled_by_kind_and_by_beginning() {
        let text = "[commands.test]\nkill_seconds = 120\n\
                    [commands.\"npm run  e2e\"]\nsilence_seconds = 0\n";
        let rules = Config::parse(text).unwrap().rules();
        let of = |command| rules.of_check(command, Duration::from_secs(9));
        assert_eq!(of("cargo test").kill_ms, Some(120_000));
        assert_eq!(of("npm run e2e -- a").silence_ms, None);
        assert_eq!(of("eslint .").kill_ms, Some(60_000), "as usual");
        let wrong = Config::parse("[commands.lint]\nlimit_seconds = 0\n").unwrap_err().to_string();
        assert!(wrong.contains("[commands.\"lint\"]"), "{wrong}");
    }
}
