//! `kapelle.toml`: what a project says about itself. All of it is optional.
//!
//! The file is outside data: errors name the line, unknown keys are errors, and nothing in it can
//! lift a limit of the engine.

mod commands;

use std::collections::BTreeMap;
use std::path::Path;

use kapelle_core::Usd;
use kapelle_core::agents::HeartbeatPolicy;
use kapelle_core::branch::BranchTemplate;
use kapelle_core::failure::RetryPolicy;
use kapelle_core::flow::Phase;
use kapelle_core::gates::Thresholds;
use kapelle_core::ids::Role;
use kapelle_core::outcome::{Percent, Severity};
use kapelle_core::policy::{Budget, Check, Parser, Policy, Reading};
use kapelle_core::price::Prices;
use kapelle_core::time::SECOND_MS;
use kapelle_gateway::prices;
use kapelle_store::Durability;
use kapelle_workspace::commands::ThresholdRules;
use kapelle_workspace::egress::AllowList;
use kapelle_workspace::secrets;
use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

pub use commands::CommandConfig;

pub const FILE_NAME: &str = "kapelle.toml";

/// A configuration is written by hand; a larger file is something else.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub flow: Flow,
    /// Commands that must pass on every change, by name.
    pub checks: BTreeMap<String, CheckConfig>,
    /// How long commands may be silent and may run: by kind (`test`, `install`, `git_network`,
    /// `build`, `lint`, `edit`, `other`), or by how a command begins, such as `"npm run e2e"`.
    pub commands: BTreeMap<String, CommandConfig>,
    /// Who does the work, by role.
    pub roles: BTreeMap<Role, RoleConfig>,
    pub team: TeamConfig,
    pub budget: BudgetConfig,
    pub retry: RetryConfig,
    pub sandbox: SandboxConfig,
    pub secrets: SecretsConfig,
    pub delivery: DeliveryConfig,
    pub store: StoreConfig,
    /// Answers to questions that agents are known to ask, by `resume_id`.
    pub answers: BTreeMap<String, String>,
    /// Prices of models, in US dollars per million tokens.
    pub prices: BTreeMap<String, PriceConfig>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Flow {
    /// The phases of every task, in order. Default: `["green"]`.
    pub phases: Option<Vec<Phase>>,
    /// Patterns of the files that count as tests, such as `tests/**`.
    pub tests: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckConfig {
    /// Run by `sh -c` at the root of a clean checkout.
    pub command: String,
    /// Default: 600.
    pub timeout_seconds: Option<u64>,
    /// What the check writes besides its exit code. Default: `exit_code`, nothing.
    #[serde(default)]
    pub parser: Parser,
    /// The file that the check writes, or a pattern of several, such as
    /// `**/target/surefire-reports/*.xml`. Without it, what the command prints is read.
    pub report: Option<String>,
    /// A report of the coverage that the same check writes: lcov or Cobertura.
    pub coverage: Option<String>,
    /// The least coverage of lines, in percent.
    pub coverage_min: Option<f64>,
    /// The least share of mutants that the tests notice, in percent.
    pub mutation_min: Option<f64>,
    /// The largest cyclomatic complexity that a function may have.
    pub complexity_max: Option<u32>,
    /// Findings of this severity and worse are refused.
    pub refuse_from: Option<Severity>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RoleConfig {
    /// The agent: any program that follows the command-agent contract.
    pub command: Vec<String>,
    /// Instead of a command: a scenario file for the scripted agent.
    pub scripted: Option<String>,
    /// How many of them. Default: 2 developers, 1 of any other role.
    pub seats: Option<u32>,
    /// How long one attempt may take. Default: 600, planners and researchers 300.
    pub timeout_seconds: Option<u64>,
    /// Further places that this agent may read.
    pub readable: Vec<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TeamConfig {
    /// How many agents may be at work at the same time. Default: 3.
    pub workers_max: Option<u32>,
    /// How agents are run. Default: `direct`.
    pub runner: Runner,
}

/// How agents are run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Runner {
    /// As plain processes.
    #[default]
    Direct,
    /// In sessions of tmux that `kapelle attach` shows.
    Tmux,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetConfig {
    /// What a mission may cost. Default: 75.
    #[schemars(with = "Option<f64>")]
    pub mission_usd: Option<Spanned<f64>>,
    /// What is reserved for one attempt before it starts. Default: 2.
    #[schemars(with = "Option<f64>")]
    pub attempt_usd: Option<Spanned<f64>>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetryConfig {
    /// The first wait before a retry; it doubles from there. Default: 1000.
    pub backoff_base_ms: Option<u64>,
    /// No wait is longer. Default: 60000.
    pub backoff_max_ms: Option<u64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxConfig {
    /// Places outside of the system's own (`/usr`, …) that agents and checks may read, such as a
    /// toolchain in your home. `~/` is your home.
    pub readable: Vec<String>,
    /// Folders that come first in `PATH`; they are readable too.
    pub path: Vec<String>,
    /// Names of variables of your environment that agents and checks may see. Never name a key.
    pub env: Vec<String>,
    /// What the box is made of. Default: `auto`.
    pub backend: SandboxBackend,
    /// The image of containers, with the tools that agents and checks need. It is never pulled.
    pub image: Option<String>,
    /// Hosts that agents and checks may reach: `host`, `*.host`, `host:port`. Default: none.
    pub egress: Vec<String>,
    /// How much one box may use. Default: 8192.
    pub memory_mib: Option<u64>,
    /// How many processes one box may have. Default: 4096.
    pub processes: Option<u64>,
    /// How much one box may write to its tree. Default: 32768.
    pub disk_mib: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxBackend {
    /// Namespaces if they work here, else Landlock and a filter on system calls.
    #[default]
    Auto,
    /// Namespaces or nothing.
    Bubblewrap,
    /// Landlock and a filter on system calls, also where namespaces work.
    Landlock,
    /// Containers of podman, from `image`.
    Podman,
    /// Containers of docker, from `image`.
    Docker,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SecretsConfig {
    /// Patterns of files that are not looked into, such as `tests/keys/**`.
    pub allow_paths: Vec<String>,
    /// Texts that look like a secret and are none.
    pub allow: Vec<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeliveryConfig {
    /// The branch that missions are delivered to. Default: the one that is checked out.
    pub target: Option<String>,
    /// The branch on which a mission gathers its work, such as `feature/{mission}-{goal}`. Default:
    /// `kapelle/{mission}`.
    pub branch: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// `sqlite`, a file in the state folder, or `postgres://user@host/database`. Default: `sqlite`.
    /// The variable `KAPELLE_STORE_URL` wins over it; put an address with a password there.
    pub url: Option<String>,
    /// The project's name in a database: a-z, 0-9 and _. Default: that of the repository's folder.
    pub project: Option<String>,
    /// What an acknowledged change survives. Default: `full`.
    pub durability: Option<DurabilityConfig>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DurabilityConfig {
    /// `kill -9` and power loss.
    Full,
    /// `kill -9`; after power loss the last moments may be missing. Faster, with a warning.
    Normal,
}

impl StoreConfig {
    #[must_use]
    pub fn durability(&self) -> Durability {
        match self.durability {
            None | Some(DurabilityConfig::Full) => Durability::Full,
            Some(DurabilityConfig::Normal) => Durability::Normal,
        }
    }
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceConfig {
    pub input: f64,
    pub output: f64,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {source}")]
    File { path: String, source: std::io::Error },
    #[error("{FILE_NAME} has {bytes} bytes, more than {FILE_BYTES_MAX}")]
    TooLarge { bytes: u64 },
    #[error("{FILE_NAME} is not valid: {0}")]
    Malformed(String),
    #[error("{FILE_NAME} line {line}: {what}")]
    Value { line: usize, what: String },
    #[error("{FILE_NAME}: {0}")]
    Wrong(String),
}

impl Config {
    /// The project's configuration; the defaults if it has no file.
    pub fn load(root: &Path) -> Result<Config, Error> {
        let path = root.join(FILE_NAME);
        let file = |source| Error::File { path: path.display().to_string(), source };
        match std::fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Config::default()),
            Err(error) => Err(file(error)),
            Ok(found) if found.len() > FILE_BYTES_MAX => {
                Err(Error::TooLarge { bytes: found.len() })
            }
            Ok(_) => Config::parse(&std::fs::read_to_string(&path).map_err(file)?),
        }
    }

    pub fn parse(text: &str) -> Result<Config, Error> {
        let config: Config = toml::from_str(text).map_err(|e| Error::Malformed(e.to_string()))?;
        config.check(text)?;
        Ok(config)
    }

    fn check(&self, text: &str) -> Result<(), Error> {
        for amount in [&self.budget.mission_usd, &self.budget.attempt_usd].into_iter().flatten() {
            if Usd::from_f64(*amount.get_ref()).is_none() {
                let what = format!("{} is not an amount of money", amount.get_ref());
                return Err(Error::Value { line: line_of(text, amount.span().start), what });
            }
        }
        for (name, check) in &self.checks {
            for percent in [check.coverage_min, check.mutation_min].into_iter().flatten() {
                if Percent::from_f64(percent).is_none() {
                    let what = format!("[checks.{name}]: {percent} is not between 0 and 100");
                    return Err(Error::Wrong(what));
                }
            }
        }
        commands::check(&self.commands).map_err(Error::Wrong)?;
        for (role, config) in &self.roles {
            if config.command.is_empty() == config.scripted.is_none() {
                let what = format!("[roles.{role}] needs either `command` or `scripted`");
                return Err(Error::Wrong(what));
            }
            if config.seats == Some(0) || config.timeout_seconds == Some(0) {
                let what = format!("[roles.{role}]: seats and timeout_seconds must be at least 1");
                return Err(Error::Wrong(what));
            }
        }
        self.prices()?;
        let hosts = self.sandbox.egress.iter().map(String::as_str);
        AllowList::new(hosts).map_err(|e| Error::Wrong(format!("[sandbox] egress: {e}")))?;
        if [self.sandbox.memory_mib, self.sandbox.processes, self.sandbox.disk_mib]
            .contains(&Some(0))
        {
            let what = "[sandbox]: memory_mib, processes and disk_mib must be at least 1";
            return Err(Error::Wrong(what.into()));
        }
        self.policy().validate().map_err(|invalid| Error::Wrong(invalid.to_string()))
    }

    /// How long commands may be silent and may run.
    #[must_use]
    pub fn rules(&self) -> ThresholdRules {
        commands::rules(&self.commands)
    }

    /// The rules that a mission opened now would have.
    #[must_use]
    pub fn policy(&self) -> Policy {
        let default = Policy::default();
        let checks = self.checks.iter().map(|(name, check)| Check {
            name: name.clone(),
            command: check.command.clone(),
            timeout_ms: check.timeout_seconds.unwrap_or(600).saturating_mul(SECOND_MS),
            reading: check.reading(),
        });
        let timeouts = self.roles.iter().filter_map(|(role, config)| {
            Some((*role, config.timeout_seconds?.saturating_mul(SECOND_MS)))
        });
        let usd = |amount: &Option<Spanned<f64>>, otherwise| {
            amount.as_ref().and_then(|usd| Usd::from_f64(*usd.get_ref())).unwrap_or(otherwise)
        };
        let mission_usd_max = usd(&self.budget.mission_usd, default.budget.mission_usd_max);
        // A small mission's attempts are small too, unless somebody said otherwise.
        let attempt = default.budget.attempt_usd_max.min(mission_usd_max);
        Policy {
            flow: self.flow.phases.clone().unwrap_or(default.flow),
            tests: self.flow.tests.clone(),
            checks: checks.collect(),
            attempt_timeout_ms: timeouts.collect(),
            heartbeat: Some(HeartbeatPolicy::default()),
            retry: RetryPolicy {
                backoff_base_ms: self.retry.backoff_base_ms.unwrap_or(SECOND_MS),
                backoff_max_ms: self.retry.backoff_max_ms.unwrap_or(60 * SECOND_MS),
            },
            budget: Budget {
                mission_usd_max,
                attempt_usd_max: usd(&self.budget.attempt_usd, attempt),
            },
            answers: self.answers.clone(),
            branch: self.delivery.branch.clone().map(BranchTemplate),
            ..default
        }
    }

    /// What may be in a change although it looks like a secret.
    #[must_use]
    pub fn secret_rules(&self) -> secrets::Rules {
        let SecretsConfig { allow_paths, allow } = &self.secrets;
        secrets::Rules { allow_paths: allow_paths.clone(), allow: allow.clone() }
    }

    pub fn prices(&self) -> Result<Prices, Error> {
        let wrong = |e: prices::InvalidTable| Error::Wrong(e.to_string());
        let mut table = prices::shipped().map_err(wrong)?;
        for (model, price) in &self.prices {
            let price = prices::price(model, price.input, price.output).map_err(wrong)?;
            table.models.insert(model.clone(), price);
        }
        Ok(table)
    }

    /// Seats for every role that has an agent.
    #[must_use]
    pub fn seats(&self) -> BTreeMap<Role, u32> {
        let default = |role| if role == Role::Developer { 2 } else { 1 };
        let seats = |(role, config): (&Role, &RoleConfig)| {
            (*role, config.seats.unwrap_or_else(|| default(*role)))
        };
        self.roles.iter().map(seats).collect()
    }

    #[must_use]
    pub fn workers_max(&self) -> u32 {
        self.team.workers_max.unwrap_or(3)
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

impl CheckConfig {
    fn reading(&self) -> Reading {
        let percent = |percent: Option<f64>| percent.and_then(Percent::from_f64);
        Reading {
            parser: self.parser,
            report: self.report.clone(),
            coverage: self.coverage.clone(),
            thresholds: Thresholds {
                coverage_min: percent(self.coverage_min),
                mutation_min: percent(self.mutation_min),
                complexity_max: self.complexity_max,
                refuse_from: self.refuse_from,
                ..Thresholds::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_enough() {
        let config = Config::parse("").unwrap();
        let heartbeat = Some(HeartbeatPolicy::default());
        assert_eq!(config.policy(), Policy { heartbeat, ..Policy::default() });
        assert_eq!(config.workers_max(), 3);
    }

    #[test]
    fn errors_point_at_the_line() {
        let wrong = |text: &str| Config::parse(text).unwrap_err().to_string();
        assert!(wrong("[flow]\nphase = []").contains("line 2"));
        assert!(wrong("[flow]\nphases = [\"rad\"]").contains("line 2"));
        let money = wrong("[budget]\n\nmission_usd = -3.0");
        assert_eq!(money, "kapelle.toml line 3: -3 is not an amount of money");
        assert!(wrong("[roles.developer]\nseats = 1").contains("`command` or `scripted`"));
        assert!(wrong("[flow]\nphases = [\"red\"]").contains("there are no checks"));
        assert!(wrong("[roles.tester]\ncommand = [\"a\"]\nseats = 0").contains("at least 1"));
        assert!(wrong("[checks.t]\ncommand = \"a\"\nparser = \"junit\"").contains("`report`"));
        let outside = "[checks.t]\ncommand = \"a\"\nparser = \"junit\"\nreport = \"../a.xml\"";
        assert!(wrong(outside).contains("below the top of the tree"));
        let percent = "[checks.t]\ncommand = \"a\"\ncoverage_min = 180";
        assert!(wrong(percent).contains("[checks.t]: 180 is not between 0 and 100"));
        assert!(wrong("[checks.t]\ncommand = \"a\"\nparser = \"junitt\"").contains("`junit`"));
        assert!(wrong("[store]\ndurability = \"off\"").contains("line 2"));
        assert!(wrong("[roles.cook]\ncommand = [\"a\"]").contains("unknown variant"));
    }

    #[test]
    fn what_is_said_reaches_the_rules() {
        let config = Config::parse(
            "[flow]\nphases = [\"red\", \"green\"]\ntests = [\"tests/**\"]\n\
             [checks.test]\ncommand = \"make test\"\ntimeout_seconds = 5\nparser = \"junit\"\n\
             report = \"out/*.xml\"\ncoverage = \"cov.lcov\"\ncoverage_min = 80.5\n\
             [secrets]\nallow_paths = [\"tests/keys/**\"]\n\
             [roles.tester]\ncommand = [\"a\"]\ntimeout_seconds = 7\n\
             [budget]\nmission_usd = 1.0\n",
        )
        .unwrap();
        let policy = config.policy();
        assert_eq!(policy.flow, [Phase::Red, Phase::Green]);
        assert_eq!(policy.checks[0].timeout_ms, 5_000);
        let reading = &policy.checks[0].reading;
        assert_eq!((reading.parser, reading.report.as_deref()), (Parser::Junit, Some("out/*.xml")));
        assert_eq!(reading.coverage.as_deref(), Some("cov.lcov"));
        assert_eq!(reading.thresholds.coverage_min, Some(Percent(8_050)));
        assert_eq!(config.secret_rules().allow_paths, ["tests/keys/**"]);
        assert_eq!(policy.attempt_timeout_ms(Role::Tester), 7_000);
        assert_eq!(policy.budget.attempt_usd_max, Usd::cents(100));
        assert_eq!(config.seats(), BTreeMap::from([(Role::Tester, 1)]));
    }
}
