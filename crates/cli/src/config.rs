//! `kapelle.toml`: what a project says about itself. All of it is optional.
//!
//! The file is outside data: errors name the line, unknown keys are errors, and nothing in it can
//! lift a limit of the engine.

use std::collections::BTreeMap;
use std::path::Path;

use kapelle_core::Usd;
use kapelle_core::failure::RetryPolicy;
use kapelle_core::flow::Phase;
use kapelle_core::ids::Role;
use kapelle_core::policy::{Budget, Check, Policy};
use kapelle_core::time::SECOND_MS;
use kapelle_gateway::Prices;
use kapelle_store::Durability;
use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

pub const FILE_NAME: &str = "kapelle.toml";

/// A configuration is written by hand; a larger file is something else.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub flow: Flow,
    /// Commands that must pass on every change, by name.
    pub checks: BTreeMap<String, CheckConfig>,
    /// Who does the work, by role.
    pub roles: BTreeMap<Role, RoleConfig>,
    pub team: TeamConfig,
    pub budget: BudgetConfig,
    pub retry: RetryConfig,
    pub sandbox: SandboxConfig,
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
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeliveryConfig {
    /// The branch that missions are delivered to. Default: the one that is checked out.
    pub target: Option<String>,
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
        self.policy().validate().map_err(|invalid| Error::Wrong(invalid.to_string()))
    }

    /// The rules that a mission opened now would have.
    #[must_use]
    pub fn policy(&self) -> Policy {
        let default = Policy::default();
        let checks = self.checks.iter().map(|(name, check)| Check {
            name: name.clone(),
            command: check.command.clone(),
            timeout_ms: check.timeout_seconds.unwrap_or(600).saturating_mul(SECOND_MS),
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
            retry: RetryPolicy {
                backoff_base_ms: self.retry.backoff_base_ms.unwrap_or(SECOND_MS),
                backoff_max_ms: self.retry.backoff_max_ms.unwrap_or(60 * SECOND_MS),
            },
            budget: Budget {
                mission_usd_max,
                attempt_usd_max: usd(&self.budget.attempt_usd, attempt),
            },
            answers: self.answers.clone(),
            ..default
        }
    }

    pub fn prices(&self) -> Result<Prices, Error> {
        let wrong = |e: kapelle_gateway::prices::InvalidPrices| Error::Wrong(e.to_string());
        let mut prices = Prices::shipped().map_err(wrong)?;
        for (model, price) in &self.prices {
            prices.set(model, price.input, price.output).map_err(wrong)?;
        }
        Ok(prices)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_enough() {
        let config = Config::parse("").unwrap();
        assert_eq!(config.policy(), Policy::default());
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
        assert!(wrong("[store]\ndurability = \"off\"").contains("line 2"));
        assert!(wrong("[roles.cook]\ncommand = [\"a\"]").contains("unknown variant"));
    }

    #[test]
    fn what_is_said_reaches_the_rules() {
        let config = Config::parse(
            "[flow]\nphases = [\"red\", \"green\"]\ntests = [\"tests/**\"]\n\
             [checks.test]\ncommand = \"make test\"\ntimeout_seconds = 5\n\
             [roles.tester]\ncommand = [\"a\"]\ntimeout_seconds = 7\n\
             [budget]\nmission_usd = 1.0\n",
        )
        .unwrap();
        let policy = config.policy();
        assert_eq!(policy.flow, [Phase::Red, Phase::Green]);
        assert_eq!(policy.checks[0].timeout_ms, 5_000);
        assert_eq!(policy.attempt_timeout_ms(Role::Tester), 7_000);
        assert_eq!(policy.budget.attempt_usd_max, Usd::cents(100));
        assert_eq!(config.seats(), BTreeMap::from([(Role::Tester, 1)]));
    }
}
