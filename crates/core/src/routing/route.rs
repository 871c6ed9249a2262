//! The answer of routing, with all of its reasons (RTE-06).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::catalogue::{Lineage, ModelName, Tier};
use super::work::WorkKind;
use crate::calendar::utc;
use crate::failure::FailureKind;
use crate::ids::Role;
use crate::rate::Provider;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    pub model: ModelName,
    pub provider: Provider,
    pub lineage: Lineage,
    pub tier: Tier,
    /// In the order in which they were found; the first says where the tier comes from.
    pub reasons: Vec<Reason>,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.model, self.tier)?;
        for (at, reason) in self.reasons.iter().enumerate() {
            write!(f, "{}{reason}", if at == 0 { ": " } else { "; " })?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    Pinned,
    Kind {
        kind: WorkKind,
        tier: Tier,
    },
    RoleDefault {
        role: Role,
        tier: Tier,
    },
    Critical,
    Long {
        minutes: u32,
    },
    Security,
    /// The attempt before failed on the tier below.
    Waterfall {
        failed: Tier,
        kind: FailureKind,
    },
    /// The work deserves more, but no more is allowed.
    Capped {
        wanted: Tier,
        max: Tier,
    },
    /// Nobody of the wanted tier is enabled and has a key.
    TierVacant {
        wanted: Tier,
    },
    /// This kind of work goes to this provider.
    Shard {
        kind: WorkKind,
    },
    Strength {
        kind: WorkKind,
    },
    /// A preferred model could not take it.
    Fallback {
        from: ModelName,
        because: Unavailable,
    },
}

/// Why a provider cannot take work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Unavailable {
    NoKey,
    BreakerOpen {
        until: Option<Timestamp>,
    },
    Parked {
        until: Timestamp,
    },
    /// Its breaker is half open, and somebody tries it.
    Tried,
    /// As many agents work with it as its rate limit carries.
    Full,
}

impl Unavailable {
    /// When it may be over by itself.
    #[must_use]
    pub fn until(self) -> Option<Timestamp> {
        match self {
            Unavailable::NoKey | Unavailable::Tried | Unavailable::Full => None,
            Unavailable::BreakerOpen { until } => until,
            Unavailable::Parked { until } => Some(until),
        }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unavailable::NoKey => f.write_str("has no key"),
            Unavailable::BreakerOpen { until: Some(until) } => {
                write!(f, "fails: breaker open until {}", utc(*until))
            }
            Unavailable::BreakerOpen { until: None } => {
                f.write_str("fails: breaker open until a person resets it")
            }
            Unavailable::Parked { until } => write!(f, "has a rate limit until {}", utc(*until)),
            Unavailable::Tried => f.write_str("is being tried after it failed"),
            Unavailable::Full => f.write_str("has as many agents as its rate limit carries"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Pinned => f.write_str("it was chosen by name"),
            Reason::Kind { kind, tier } => write!(f, "{kind} work is {tier}"),
            Reason::RoleDefault { role, tier } => write!(f, "a {role} is {tier} by default"),
            Reason::Critical => f.write_str("CRITICAL work is standard or above"),
            Reason::Long { minutes } => {
                write!(f, "work of {minutes} minutes is standard or above")
            }
            Reason::Security => f.write_str("work with security checks is standard or above"),
            Reason::Waterfall { failed, kind } => write!(f, "it failed on {failed} ({kind})"),
            Reason::Capped { wanted, max } => {
                write!(f, "{wanted} was wanted, but {max} is the most that is allowed")
            }
            Reason::TierVacant { wanted } => write!(f, "no {wanted} model is to be had"),
            Reason::Shard { kind } => write!(f, "{kind} work goes to this provider"),
            Reason::Strength { kind } => write!(f, "it is strong in {kind} work"),
            Reason::Fallback { from, because } => write!(f, "{from} {because}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "refusal", rename_all = "snake_case")]
pub enum NoRoute {
    /// Work waits: no attempt is made, so none is counted.
    #[error("no {tier} model can take work now: {}", told(because))]
    AllUnavailable {
        tier: Tier,
        because: Vec<(ModelName, Unavailable)>,
        /// The earliest moment at which one may be back. None if only a person can help.
        retry_at: Option<Timestamp>,
    },
    #[error("no enabled model with a key may do this work")]
    Vacant,
    #[error("there is no enabled model named {name:?}")]
    UnknownModel { name: ModelName },
    #[error("{name} is {tier}, but {max} is the most that is allowed")]
    PinnedOverMax { name: ModelName, tier: Tier, max: Tier },
}

/// `a has no key; b is being tried`.
fn told(because: &[(ModelName, Unavailable)]) -> String {
    let each = because.iter().map(|(model, why)| format!("{model} {why}"));
    each.collect::<Vec<_>>().join("; ")
}
