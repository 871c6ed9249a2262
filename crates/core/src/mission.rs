//! A mission: one goal on one repository, and what is in flight for it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event::{Chore, PauseReason};
use crate::ids::{Actor, Commit, Fence, MissionId, Role, TaskId};
use crate::money::Usd;
use crate::policy::Policy;
use crate::time::Timestamp;

/// Best score first, then the oldest.
pub(crate) type ReadyKey = (Reverse<i64>, TaskId);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mission {
    pub id: MissionId,
    pub goal: String,
    pub target: String,
    pub base: Commit,
    pub branch: String,
    pub policy: Arc<Policy>,
    pub opened_by: Actor,
    pub opened_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// The branch as we left it; None until it is there.
    pub tip: Option<Commit>,
    /// In the order of the plan; plans for gaps add to it.
    pub tasks: Vec<TaskId>,
    pub stage: MissionStage,
    pub paused: Option<PauseReason>,
    /// Why the last delivery was refused.
    pub refused: Option<String>,
    pub counts: Counts,
    pub spent: Usd,
    pub reserved: Usd,
    pub(crate) ready: BTreeMap<Role, BTreeSet<ReadyKey>>,
    /// Chores that are wanted but not in flight.
    pub(crate) chores: BTreeSet<Chore>,
    pub(crate) live: BTreeSet<Fence>,
    pub(crate) merge_queue: VecDeque<TaskId>,
    /// One candidate at a time: two candidates on one tip would each be tested against a branch
    /// that neither will meet.
    pub(crate) merging: Option<TaskId>,
    /// Failed chores in a row.
    pub(crate) chore_failures: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MissionStage {
    Open,
    Proposed { commit: Commit },
    Approved { commit: Commit, by: Actor },
    Delivered { commit: Commit },
    Cancelled { reason: String },
}

/// How many tasks are where a person would look for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub completed: u32,
    pub dead: u32,
    pub blocked: u32,
    pub asking: u32,
    /// Waiting for a moment to come: backoffs of tasks and of chores.
    pub parked: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissionStatus {
    Running,
    Paused,
    AwaitingAnswer,
    AwaitingApproval,
    Delivering,
    Delivered,
    Failed,
    Cancelled,
}

impl MissionStatus {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MissionStatus::Running => "running",
            MissionStatus::Paused => "paused",
            MissionStatus::AwaitingAnswer => "awaiting_answer",
            MissionStatus::AwaitingApproval => "awaiting_approval",
            MissionStatus::Delivering => "delivering",
            MissionStatus::Delivered => "delivered",
            MissionStatus::Failed => "failed",
            MissionStatus::Cancelled => "cancelled",
        }
    }

    /// Nothing more happens until a person does something, if at all.
    #[must_use]
    pub fn is_settled(self) -> bool {
        !matches!(self, MissionStatus::Running | MissionStatus::Delivering)
    }
}

impl fmt::Display for MissionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Mission {
    #[must_use]
    pub fn total(&self) -> u32 {
        self.tasks.len() as u32
    }

    pub fn task_ids(&self) -> impl Iterator<Item = TaskId> + use<'_> {
        self.tasks.iter().copied()
    }

    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self.stage, MissionStage::Cancelled { .. })
    }

    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.stage, MissionStage::Cancelled { .. } | MissionStage::Delivered { .. })
    }

    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.live.len()
    }

    #[must_use]
    pub fn status(&self) -> MissionStatus {
        match self.stage {
            MissionStage::Delivered { .. } => MissionStatus::Delivered,
            MissionStage::Cancelled { .. } => MissionStatus::Cancelled,
            _ if self.paused.is_some() => MissionStatus::Paused,
            MissionStage::Proposed { .. } => MissionStatus::AwaitingApproval,
            MissionStage::Approved { .. } => MissionStatus::Delivering,
            MissionStage::Open if self.is_idle() && self.counts.asking > 0 => {
                MissionStatus::AwaitingAnswer
            }
            MissionStage::Open if self.is_idle() && self.counts.dead > 0 => MissionStatus::Failed,
            MissionStage::Open => MissionStatus::Running,
        }
    }

    /// Neither in flight, nor waiting for an agent, a chore or a moment.
    fn is_idle(&self) -> bool {
        self.live.is_empty()
            && self.chores.is_empty()
            && self.counts.parked == 0
            && self.ready.values().all(BTreeSet::is_empty)
    }

    /// Whether one more attempt can be reserved.
    pub(crate) fn affords_attempt(&self) -> bool {
        let budget = &self.policy.budget;
        self.spent + self.reserved + budget.attempt_usd_max <= budget.mission_usd_max
    }
}
