//! Why money is not given, and when it is getting short.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::account::ReservationId;
use super::pools::Throttle;
use super::purses::Scope;
use crate::ids::MissionId;
use crate::money::Usd;
use crate::price::UnknownPrice;
use crate::time::Timestamp;

/// A cap, by the name that a person knows it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    Call,
    Task,
    Agent,
    Mission,
    Session,
    Day,
    Week,
    Month,
    Project,
    Retries,
    CouncilDay,
    CouncilWeek,
    ScalingDay,
    Pool,
}

impl Limit {
    #[must_use]
    pub fn of(scope: Scope) -> Limit {
        match scope {
            Scope::Project => Limit::Project,
            Scope::Session(_) => Limit::Session,
            Scope::Mission(_) => Limit::Mission,
            Scope::Retries(_) => Limit::Retries,
            Scope::Task(..) => Limit::Task,
            Scope::Agent(..) => Limit::Agent,
            Scope::Day(_) => Limit::Day,
            Scope::Week(_) => Limit::Week,
            Scope::Month(_) => Limit::Month,
            Scope::Pool(..) => Limit::Pool,
            Scope::CouncilDay(_) => Limit::CouncilDay,
            Scope::CouncilWeek(_) => Limit::CouncilWeek,
            Scope::ScalingDay(_) => Limit::ScalingDay,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Call => "the budget of a call",
            Limit::Task => "the budget of the task",
            Limit::Agent => "the agent's budget in this mission",
            Limit::Mission => "the mission's budget",
            Limit::Session => "the session's budget",
            Limit::Day => "the day's budget",
            Limit::Week => "the week's budget",
            Limit::Month => "the month's budget",
            Limit::Project => "the project's budget",
            Limit::Retries => "the mission's retry budget",
            Limit::CouncilDay => "the day's council budget",
            Limit::CouncilWeek => "the week's council budget",
            Limit::ScalingDay => "the day's scaling budget",
            Limit::Pool => "the pool of the day's budget",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "refusal", rename_all = "snake_case")]
pub enum Refusal {
    #[error("{limit} is {cap}: {spent} spent and {reserved} reserved leave no {asked}")]
    OverLimit {
        limit: Limit,
        cap: Usd,
        spent: Usd,
        reserved: Usd,
        asked: Usd,
        /// When the limit begins anew by itself.
        resets_at: Option<Timestamp>,
    },
    #[error("no pool of the day has {asked} for this work: {throttle}")]
    PoolsEmpty { asked: Usd, throttle: Throttle, resets_at: Timestamp },
    #[error("Token budget exceeded: {used} used and {reserved} reserved of {cap} leave no {asked}")]
    TokenBudget {
        of: TokenLimit,
        cap: u64,
        used: u64,
        reserved: u64,
        asked: u64,
        resets_at: Option<Timestamp>,
    },
    #[error("spending was stopped by the watchdog and waits to be resumed")]
    Halted { since: Timestamp },
    #[error(transparent)]
    UnknownPrice(#[from] UnknownPrice),
    #[error("there is no open reservation {parent} to take a part of")]
    NoParent { parent: ReservationId },
    #[error("a call cannot be divided")]
    CallDivided { parent: ReservationId },
    #[error("agents may start agents {max} deep, no deeper")]
    TooDeep { max: u32 },
    #[error("{left} are left of the reservation, less than {asked}")]
    OverParent { parent: ReservationId, left: Usd, asked: Usd },
    #[error("{left} tokens are left of the reservation, fewer than {asked}")]
    TokensOverParent { parent: ReservationId, left: u64, asked: u64 },
    #[error("{open} reservations are open, as many as there can be")]
    TooManyOpen { open: usize },
    #[error("the clock shows a day whose books are closed")]
    DayClosed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenLimit {
    Week,
    Mission(MissionId),
}

/// What helps against a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// It fits again at this moment, if nothing else changes.
    WaitUntil(Timestamp),
    /// The next step of escalation: the task goes to somebody who can do it otherwise.
    Escalate,
    /// A person has to raise a cap, resume, or configure a price.
    Person,
    /// It may fit as soon as something else ends.
    WaitForRelease,
}

impl Refusal {
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            Refusal::OverLimit { limit: Limit::Retries, .. } | Refusal::TooDeep { .. } => {
                Remedy::Escalate
            }
            // Without what others hold it would fit: they may not need it all.
            Refusal::OverLimit { cap, spent, asked, reserved, .. }
                if *reserved > Usd::ZERO && *spent + *asked <= *cap =>
            {
                Remedy::WaitForRelease
            }
            Refusal::OverLimit { resets_at, cap, asked, .. } => match resets_at {
                Some(at) if asked <= cap => Remedy::WaitUntil(*at),
                _ => Remedy::Person,
            },
            Refusal::PoolsEmpty { resets_at, .. } => Remedy::WaitUntil(*resets_at),
            Refusal::TokenBudget { resets_at, cap, asked, .. } => match resets_at {
                Some(at) if asked <= cap => Remedy::WaitUntil(*at),
                _ => Remedy::Person,
            },
            Refusal::Halted { .. } | Refusal::UnknownPrice(_) | Refusal::DayClosed => {
                Remedy::Person
            }
            Refusal::NoParent { .. }
            | Refusal::CallDivided { .. }
            | Refusal::OverParent { .. }
            | Refusal::TokensOverParent { .. } => Remedy::Escalate,
            Refusal::TooManyOpen { .. } => Remedy::WaitForRelease,
        }
    }
}

/// A cap is nearly used up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    pub limit: Limit,
    pub spent: Usd,
    /// For a session, the amount at which it warns.
    pub cap: Usd,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Warning { limit, spent, cap } = self;
        write!(f, "{spent} spent of {cap}, {limit}")
    }
}
