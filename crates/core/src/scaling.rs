//! Elastic scaling: one agent more when a queue stays long, one less when it stays empty.
//!
//! Only what lasts counts: a queue must be above its threshold for two minutes, or empty for five,
//! and two minutes pass between two actions, so that a burst does not spawn and retire agents in
//! turn. What lasts is known from the moments at which a queue crossed its threshold; nobody has
//! to look at it in between.
//!
//! Invariant: the agents of a role stay between its minimum and its maximum, and the permanent
//! ones stay at all.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::Role;
use crate::limits;
use crate::money::Usd;
use crate::time::{MINUTE_MS, SECOND_MS};

mod scaler;
mod steps;

pub use scaler::{Scale, Scaler, Stepped};
pub use steps::{InvalidSteps, Step, StepAction, StepPolicy};

/// How the number of agents follows the queues. A person can always change it by hand, within the
/// limits of `by_role`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScalingRules {
    pub mode: ScalingMode,
    pub by_role: ScalingPolicy,
    pub by_steps: StepPolicy,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScalingMode {
    /// The team is as a person configured it.
    #[default]
    Off,
    ByRole,
    BySteps,
}

impl ScalingRules {
    pub fn validate(&self) -> Result<(), InvalidScaling> {
        self.by_role.validate()?;
        Ok(self.by_steps.validate()?)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RoleScaling {
    pub min: u32,
    pub max: u32,
    /// More waiting tasks than this are too many.
    pub scale_up_threshold: u32,
    /// No more waiting tasks than this are too few.
    #[serde(default)]
    pub scale_down_threshold: u32,
    #[serde(default = "up_after")]
    pub scale_up_after_seconds: u64,
    #[serde(default = "down_after")]
    pub scale_down_after_seconds: u64,
    #[serde(default = "cooldown")]
    pub cooldown_seconds: u64,
}

fn up_after() -> u64 {
    120
}

fn down_after() -> u64 {
    300
}

fn cooldown() -> u64 {
    120
}

impl RoleScaling {
    fn above(scale_up_threshold: u32) -> RoleScaling {
        RoleScaling {
            min: 1,
            max: 3,
            scale_up_threshold,
            scale_down_threshold: 0,
            scale_up_after_seconds: up_after(),
            scale_down_after_seconds: down_after(),
            cooldown_seconds: cooldown(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScalingPolicy {
    /// Roles that are not named keep the seats they have.
    pub roles: BTreeMap<Role, RoleScaling>,
    /// How soon a refused scale-up is considered again.
    pub sample_ms: u64,
    /// No more agents at or above this part of a provider's rate limit.
    pub rate_limit_permille_max: u32,
    /// What extra agents may cost in a day.
    pub daily_usd_max: Usd,
    /// A warning at this part of it; extra agents stop at all of it (C-38).
    pub warn_permille: u32,
}

impl Default for ScalingPolicy {
    fn default() -> ScalingPolicy {
        ScalingPolicy {
            roles: BTreeMap::from([
                (Role::Tester, RoleScaling::above(5)),
                (Role::Developer, RoleScaling::above(3)),
            ]),
            sample_ms: 30 * SECOND_MS,
            rate_limit_permille_max: 800,
            daily_usd_max: Usd::cents(500),
            warn_permille: 800,
        }
    }
}

/// A day; a window longer than that never ends.
const WINDOW_SECONDS_MAX: u64 = 24 * 60 * 60;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub enum InvalidScaling {
    #[error("{role}: min {min} is more than max {max}")]
    MinOverMax { role: Role, min: u32, max: u32 },
    #[error("{role}: a role needs at least one agent")]
    NoAgents { role: Role },
    #[error("{role}: {max} agents are more than {}", limits::SEATS_PER_ROLE_MAX)]
    TooMany { role: Role, max: u32 },
    /// Else one and the same depth would ask for more and for fewer agents.
    #[error("{role}: the threshold for fewer agents must be below the one for more")]
    Thresholds { role: Role },
    #[error("scaling: {field} must be between {min} and {max}")]
    Range { field: &'static str, min: u64, max: u64 },
    #[error(transparent)]
    Steps(#[from] InvalidSteps),
}

impl ScalingPolicy {
    pub fn validate(&self) -> Result<(), InvalidScaling> {
        for (&role, rule) in &self.roles {
            let RoleScaling { min, max, .. } = *rule;
            if min == 0 {
                return Err(InvalidScaling::NoAgents { role });
            }
            if min > max {
                return Err(InvalidScaling::MinOverMax { role, min, max });
            }
            if max > limits::SEATS_PER_ROLE_MAX {
                return Err(InvalidScaling::TooMany { role, max });
            }
            if rule.scale_down_threshold >= rule.scale_up_threshold {
                return Err(InvalidScaling::Thresholds { role });
            }
        }
        for rule in self.roles.values() {
            let windows = [
                ("scaleUpAfterSeconds", rule.scale_up_after_seconds),
                ("scaleDownAfterSeconds", rule.scale_down_after_seconds),
                ("cooldownSeconds", rule.cooldown_seconds),
            ];
            for (field, found) in windows {
                if found > WINDOW_SECONDS_MAX {
                    return Err(InvalidScaling::Range { field, min: 0, max: WINDOW_SECONDS_MAX });
                }
            }
        }
        let ranges = [
            ("sample_ms", self.sample_ms, SECOND_MS, 60 * MINUTE_MS),
            ("rate_limit_permille_max", u64::from(self.rate_limit_permille_max), 1, 1_000),
            ("warn_permille", u64::from(self.warn_permille), 1, 1_000),
        ];
        for (field, found, min, max) in ranges {
            if !(min..=max).contains(&found) {
                return Err(InvalidScaling::Range { field, min, max });
            }
        }
        Ok(())
    }
}

/// What the outside adds to a decision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// How much of the tightest rate limit is in use.
    pub rate_limit_permille: u32,
    /// What extra agents have cost today.
    pub spent_today: Usd,
}

/// Why the number of agents changes; it goes into the journal and the activity log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ScaleReason {
    QueueLong {
        threshold: u32,
        for_ms: u64,
    },
    QueueEmpty {
        for_ms: u64,
    },
    /// The step policy asks for this many at this depth.
    Step {
        depth: u32,
        agents: u32,
    },
    Person {
        text: String,
    },
}

impl fmt::Display for ScaleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScaleReason::QueueLong { threshold, for_ms } => {
                write!(f, "queue > {threshold} for {}", minutes(*for_ms))
            }
            ScaleReason::QueueEmpty { for_ms } => write!(f, "queue empty for {}", minutes(*for_ms)),
            ScaleReason::Step { depth, agents } => {
                write!(f, "{depth} waiting ask for {agents} agents")
            }
            ScaleReason::Person { text } => f.write_str(text),
        }
    }
}

fn minutes(ms: u64) -> String {
    match ms {
        MINUTE_MS => "1 minute".to_owned(),
        ms if ms.is_multiple_of(MINUTE_MS) => format!("{} minutes", ms / MINUTE_MS),
        ms => format!("{} seconds", ms / SECOND_MS),
    }
}

/// Why nothing is done although the queue or a person asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ScaleRefusal {
    #[error("API rate limit at {}%", permille / 10)]
    RateLimit { permille: u32 },
    #[error("Daily budget: {spent} / {cap} (scaling paused until budget resets or increased)")]
    Budget { spent: Usd, cap: Usd },
    #[error("{role} has all of its {max} agents")]
    AtMax { role: Role, max: u32 },
    #[error("{role} keeps at least {min}")]
    AtMin { role: Role, min: u32 },
    #[error("only the configured {role}s are left; to have fewer, change the team")]
    OnlyPermanent { role: Role },
    #[error("{role} is not scaled")]
    NotScaled { role: Role },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManualScale {
    Up { reason: String },
    Down { reason: String },
}

impl ManualScale {
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            ManualScale::Up { reason } | ManualScale::Down { reason } => reason,
        }
    }
}

impl Pressure {
    fn refuses(self, policy: &ScalingPolicy) -> Option<ScaleRefusal> {
        if self.rate_limit_permille >= policy.rate_limit_permille_max {
            return Some(ScaleRefusal::RateLimit { permille: self.rate_limit_permille });
        }
        let (spent, cap) = (self.spent_today, policy.daily_usd_max);
        (spent >= cap).then_some(ScaleRefusal::Budget { spent, cap })
    }

    /// Whether the day's scaling money is nearly gone.
    #[must_use]
    pub fn warns(self, policy: &ScalingPolicy) -> bool {
        let spent = u128::from(self.spent_today.as_micros()) * 1_000;
        spent >= u128::from(policy.daily_usd_max.as_micros()) * u128::from(policy.warn_permille)
    }
}
