//! Kinds of commands, and how long each may be silent and may run.

use std::collections::BTreeMap;
use std::time::Duration;

/// What a command does, as far as its words tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandKind {
    Test,
    Install,
    GitNetwork,
    Build,
    Lint,
    /// Changes one file, and is over at once.
    Edit,
    Other,
}

/// When something is done about a command. Milliseconds from its start or from its last word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thresholds {
    /// Silence that is warned about; nothing for commands that are silent by nature.
    pub silence_ms: Option<u64>,
    /// Silence that is ended.
    pub kill_ms: Option<u64>,
    /// However much it prints.
    pub limit_ms: u64,
    /// When its agent goes on without it; nothing to wait for it in any case.
    pub background_ms: Option<u64>,
    /// Between the kill at the limit and giving up on its end.
    pub grace_ms: u64,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds {
            silence_ms: Some(30_000),
            kill_ms: Some(60_000),
            limit_ms: 300_000,
            background_ms: Some(5_000),
            grace_ms: 10_000,
        }
    }
}

/// What somebody wants otherwise than usual. A silence of zero is none at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThresholdRule {
    pub silence_ms: Option<u64>,
    pub kill_ms: Option<u64>,
    pub limit_ms: Option<u64>,
}

impl ThresholdRule {
    fn over(self, usual: Thresholds) -> Thresholds {
        let or = |own: Option<u64>, usual: Option<u64>| own.or(usual).filter(|ms| *ms > 0);
        Thresholds {
            silence_ms: or(self.silence_ms, usual.silence_ms),
            kill_ms: or(self.kill_ms, usual.kill_ms),
            limit_ms: self.limit_ms.unwrap_or(usual.limit_ms),
            ..usual
        }
    }
}

/// Rules by kind, and for single commands by how they begin. The longest beginning wins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThresholdRules {
    pub by_kind: BTreeMap<CommandKind, ThresholdRule>,
    pub by_beginning: BTreeMap<String, ThresholdRule>,
}

impl ThresholdRules {
    #[must_use]
    pub fn of(&self, words: &[String]) -> Thresholds {
        self.rule(words).over(CommandKind::of(words).thresholds())
    }

    /// For a check: everybody waits for its end, and its own limit is the limit. A suite or a script
    /// may be silent for as long as that (C-19), unless a rule says otherwise.
    #[must_use]
    pub fn of_check(&self, command: &str, limit: Duration) -> Thresholds {
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        let kind = CommandKind::of(&words);
        let may_be_silent = matches!(kind, CommandKind::Test | CommandKind::Other);
        let usual = kind.thresholds();
        let kill_ms = usual.kill_ms.filter(|_| !may_be_silent);
        let rules = self.rule(&words).over(Thresholds { kill_ms, ..usual });
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        Thresholds { limit_ms, background_ms: None, ..rules }
    }

    fn rule(&self, words: &[String]) -> ThresholdRule {
        let command = words.join(" ");
        let own = self.by_beginning.iter().filter(|(start, _)| is_beginning(start, &command));
        let own = own.max_by_key(|(start, _)| start.len()).map(|(_, rule)| rule);
        own.or_else(|| self.by_kind.get(&CommandKind::of(words))).copied().unwrap_or_default()
    }
}

/// At the end of a word: `git pu` is not the beginning of `git push`.
fn is_beginning(start: &str, command: &str) -> bool {
    command.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

impl CommandKind {
    pub const ALL: [CommandKind; 7] = [
        CommandKind::Test,
        CommandKind::Install,
        CommandKind::GitNetwork,
        CommandKind::Build,
        CommandKind::Lint,
        CommandKind::Edit,
        CommandKind::Other,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CommandKind::Test => "test",
            CommandKind::Install => "install",
            CommandKind::GitNetwork => "git_network",
            CommandKind::Build => "build",
            CommandKind::Lint => "lint",
            CommandKind::Edit => "edit",
            CommandKind::Other => "other",
        }
    }

    #[must_use]
    pub fn of(words: &[String]) -> CommandKind {
        let mut words = words.iter().map(String::as_str).skip_while(|word| word.contains('='));
        let program = words.next().unwrap_or_default();
        let program = program.rsplit('/').next().unwrap_or(program);
        let first = words.find(|word| !word.starts_with('-')).unwrap_or_default();
        let second = words.next().unwrap_or_default();
        match (program, first) {
            ("npm" | "pnpm" | "yarn" | "bun", "install" | "ci" | "add" | "i") => {
                CommandKind::Install
            }
            ("yarn", "") | ("pip" | "pip3" | "poetry" | "uv" | "bundle", "install" | "sync") => {
                CommandKind::Install
            }
            ("apt" | "apt-get" | "dnf" | "apk" | "brew", "install") => CommandKind::Install,
            ("cargo", "fetch" | "install") | ("go", "get" | "mod") => CommandKind::Install,
            (
                "npm" | "pnpm" | "yarn" | "bun" | "cargo" | "go" | "dotnet" | "mvn" | "gradle",
                "test",
            ) => CommandKind::Test,
            ("npm" | "pnpm" | "yarn" | "bun", "run") => of_script(second),
            ("npx" | "bunx", tool) => of_tool(tool),
            ("cargo", "nextest") | ("make", "test" | "check") => CommandKind::Test,
            ("git", "push" | "pull" | "fetch" | "clone") => CommandKind::GitNetwork,
            ("cargo", "clippy" | "fmt") => CommandKind::Lint,
            ("cargo" | "go" | "dotnet" | "npm" | "gradle", "build") | ("mvn", "package") => {
                CommandKind::Build
            }
            ("make" | "ninja" | "tsc" | "cmake" | "docker", _) => CommandKind::Build,
            ("sed" | "touch" | "cp" | "mv" | "mkdir" | "tee" | "chmod" | "patch", _) => {
                CommandKind::Edit
            }
            (tool, _) => of_tool(tool),
        }
    }

    /// The defaults (CMD-02…06, CMD-15). Where a kind is silent by nature, silence means nothing.
    #[must_use]
    pub fn thresholds(self) -> Thresholds {
        let default = Thresholds::default();
        match self {
            CommandKind::Test | CommandKind::Lint | CommandKind::Other => default,
            CommandKind::Install | CommandKind::Build => {
                Thresholds { silence_ms: None, kill_ms: None, ..default }
            }
            CommandKind::GitNetwork => Thresholds { limit_ms: 120_000, ..default },
            CommandKind::Edit => Thresholds { background_ms: None, ..default },
        }
    }
}

fn of_script(name: &str) -> CommandKind {
    match name {
        name if name.starts_with("test") => CommandKind::Test,
        name if name.starts_with("lint") => CommandKind::Lint,
        name if name.starts_with("build") => CommandKind::Build,
        _ => CommandKind::Other,
    }
}

fn of_tool(tool: &str) -> CommandKind {
    match tool {
        "jest" | "vitest" | "mocha" | "pytest" | "tox" | "rspec" | "phpunit" => CommandKind::Test,
        "eslint" | "prettier" | "ruff" | "flake8" | "mypy" | "golangci-lint" => CommandKind::Lint,
        _ => CommandKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &str) -> Vec<String> {
        command.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn kinds_are_read_from_the_words() {
        let cases = [
            ("npm test", CommandKind::Test),
            ("CI=1 npm run test:unit", CommandKind::Test),
            ("npx --yes jest src", CommandKind::Test),
            ("/usr/bin/npm ci", CommandKind::Install),
            ("cargo --quiet nextest run", CommandKind::Test),
            ("git push origin main", CommandKind::GitNetwork),
            ("git commit -m x", CommandKind::Other),
            ("sed -i s/a/b/ file", CommandKind::Edit),
            ("eslint .", CommandKind::Lint),
            ("", CommandKind::Other),
        ];
        for (command, kind) in cases {
            assert_eq!(CommandKind::of(&words(command)), kind, "{command}");
        }
    }

    /// C-19: a suite that prints nothing for minutes is not dead, and its limit is its own.
    #[test]
    fn a_check_may_be_silent_until_its_own_limit_unless_a_rule_says_otherwise() {
        let limit = Duration::from_secs(900);
        let rules = ThresholdRules::default();
        let suite = rules.of_check("cargo test", limit);
        assert_eq!(
            (suite.silence_ms, suite.kill_ms, suite.limit_ms),
            (Some(30_000), None, 900_000)
        );
        assert_eq!(suite.background_ms, None);
        assert_eq!(rules.of_check("eslint .", limit).kill_ms, Some(60_000));
        let strict = ThresholdRule { kill_ms: Some(120_000), ..ThresholdRule::default() };
        let rules = ThresholdRules {
            by_kind: BTreeMap::from([(CommandKind::Test, strict)]),
            ..ThresholdRules::default()
        };
        let suite = rules.of_check("cargo test", limit);
        assert_eq!((suite.kill_ms, suite.limit_ms), (Some(120_000), 900_000));
    }

    #[test]
    fn a_rule_for_a_command_goes_before_one_for_its_kind() {
        let limited = |ms| ThresholdRule { limit_ms: Some(ms), ..ThresholdRule::default() };
        let rules = ThresholdRules {
            by_kind: BTreeMap::from([(CommandKind::Test, limited(1))]),
            by_beginning: BTreeMap::from([
                ("npm test".into(), limited(2)),
                ("npm test -- slow".into(), limited(3)),
            ]),
        };
        let limit = |command: &str| rules.of(&words(command)).limit_ms;
        assert_eq!(
            [limit("cargo test"), limit("npm test"), limit("npm test -- slow a")],
            [1, 2, 3]
        );
        assert_eq!(limit("npm tests"), 300_000, "half a word is another word");
        assert_eq!(rules.of(&words("npm ci")).kill_ms, None);
        assert_eq!(rules.of(&words("touch x")).background_ms, None);
    }
}
