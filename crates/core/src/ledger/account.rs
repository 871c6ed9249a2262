//! For whom money is spent: accounts, reservations, charges.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::pools::Pool;
use crate::ids::{AgentId, MissionId, TaskId};
use crate::money::Usd;
use crate::plan::Priority;
use crate::time::Timestamp;

/// Counted by the ledger, never given twice.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ReservationId(pub u64);

impl fmt::Display for ReservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

/// Whose work it is. Planning and councils belong to a mission without being a task of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub mission: MissionId,
    pub task: Option<TaskId>,
    pub agent: Option<AgentId>,
    pub crew: Crew,
    pub purpose: Purpose,
    pub priority: Priority,
}

/// Whether the agent belongs to the team as configured, or was added because of the load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Crew {
    #[default]
    Standing,
    Extra,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Work that is tried for the first time.
    Work,
    /// Work that failed before.
    Retry,
    Council,
}

/// What one reservation stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A whole attempt of an agent, out of which its calls and its sub-agents are paid.
    Attempt,
    /// One call of a model: never more than the cap of a call, and nothing is paid out of it.
    Call,
}

/// Asks for money before anything is spent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub account: Account,
    pub unit: Unit,
    /// The most that it can cost.
    pub usd: Usd,
    /// What it will probably cost. Retries are admitted by it (RET-08): by their worst case, two
    /// would be too many for any mission.
    pub estimate: Usd,
    /// The most tokens that it can use.
    pub tokens: u64,
}

/// Asks for a part of what is reserved already: a call of an attempt, or a sub-agent. Everything
/// but the agent is inherited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRequest {
    pub parent: ReservationId,
    pub agent: Option<AgentId>,
    pub unit: Unit,
    pub usd: Usd,
    pub tokens: u64,
}

/// Money that nobody else can spend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    pub id: ReservationId,
    /// The reservation that it is a part of.
    pub parent: Option<ReservationId>,
    pub account: Account,
    pub unit: Unit,
    pub usd: Usd,
    pub estimate: Usd,
    pub tokens: u64,
    pub pool: Option<Pool>,
    pub session: u32,
    /// Decides the day, the week and the month: what is charged to a reservation counts for the
    /// day on which it was made, so that midnight cannot push a day past its cap. A part counts
    /// with its whole.
    pub at: Timestamp,
}

/// What of a reservation the journal has to say: the rest follows from the lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drawn {
    /// None where the day is spent as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Pool>,
    pub purpose: Purpose,
    pub estimate: Usd,
}

/// Money that was spent, between two moments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// None, or one that is released already, for a bill that nobody foresaw.
    pub reservation: Option<ReservationId>,
    /// Who is charged if there is no such reservation.
    pub account: Account,
    pub usd: Usd,
    pub tokens: u64,
    pub began_at: Timestamp,
    pub at: Timestamp,
}

/// What a charge did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlement {
    /// As much as was reserved for it.
    pub covered: Usd,
    /// What was spent beyond. More than zero is an overspend: a fact to record and to report.
    pub excess: Usd,
}
