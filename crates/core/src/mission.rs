//! A mission: one goal on one repository, and what is in flight for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::approval::{Action, Assessment, Need, Subject};
use crate::escalation::FailureRate;
use crate::event::{Chore, PauseReason};
use crate::few::{FewMap, FewSet};
use crate::ids::{Actor, Commit, Fence, MissionId, TaskId};
use crate::merge::{LanePlan, MergeQueue};
use crate::plan::convoy::Convoys;
use crate::plan::estimate::Estimate;
use crate::plan::gaps::Gaps;
use crate::policy::Policy;
use crate::rollback::{Landings, WaveId};
use crate::task::Task;
use crate::time::Timestamp;

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
    /// The tasks by the names that people type.
    pub(crate) names: BTreeMap<String, TaskId>,
    pub gaps: Gaps,
    /// The tasks of one user story, kept with one developer as far as that costs no time.
    pub convoys: Convoys,
    pub estimate: Option<Box<Estimate>>,
    pub stage: MissionStage,
    pub paused: Option<PauseReason>,
    /// Why the last delivery was refused.
    pub refused: Option<String>,
    pub counts: Counts,
    /// Chores that are wanted but not in flight.
    pub(crate) chores: FewSet<Chore>,
    /// How much is in flight.
    pub(crate) live: u32,
    pub(crate) merging: Merging,
    /// Failed chores in a row.
    pub(crate) chore_failures: u32,
    /// Attempts in a row that their host could not perform.
    pub(crate) abandoned: u32,
    /// Of the tasks that ended since it began or was last resumed.
    pub failure_rate: FailureRate,
    /// Of what was merged.
    pub(crate) riskiest: Option<Box<Assessment>>,
    /// Tasks that are ready but for a person's word.
    pub(crate) to_ask: BTreeSet<TaskId>,
    /// What the state's sets of missions say of it.
    pub(crate) listed: Wants,
    /// By the names that the plan gives them.
    pub(crate) waves: BTreeMap<String, Wave>,
}

/// What a mission wants to be done next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wants {
    pub chores: bool,
    pub ready: bool,
    pub merges: bool,
    pub asks: bool,
}

/// Tasks that stand or fall together (GIT-16).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Wave {
    /// In the order of the plan.
    pub members: Vec<TaskId>,
    /// The task that gave up: one of them, or one that they need.
    pub broken_by: Option<TaskId>,
    pub stays: Option<Stays>,
}

/// What of a broken wave has landed is not taken back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Stays {
    /// It was tried and called off; a person has to hear of it.
    CalledOff { reason: String },
    /// A person knows, or wants it so.
    Known,
}

impl Wave {
    /// Named after its first task, which no other wave has.
    pub(crate) fn id(&self) -> Option<WaveId> {
        self.members.first().map(|first| WaveId(first.0))
    }

    /// What people are asked about when all of it is to be taken back.
    pub(crate) fn subject(&self) -> Option<Subject> {
        self.members.first().map(|first| Subject::Rollback(*first))
    }
}

/// What is on its way to the branch, and back.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Merging {
    /// None until the branch is there.
    pub queue: Option<MergeQueue>,
    pub landings: Landings,
    /// What is being taken back, by the task that was asked for: all that falls with it.
    pub rollbacks: BTreeMap<TaskId, Vec<TaskId>>,
    /// The lanes that should be formed next.
    pub planned: Vec<LanePlan>,
    /// The tasks in lanes when somebody last looked, in order.
    pub aboard: Vec<TaskId>,
    /// The chores of the queue that are in flight.
    pub running: FewMap<Fence, Chore>,
    /// In flight, but no longer what the queue wants.
    pub stale: BTreeSet<Fence>,
    /// Chores of the queue that failed and wait a moment.
    pub parked: BTreeSet<Chore>,
    /// What the last failure of a chore said.
    #[serde(default)]
    pub trouble: Option<(Chore, String)>,
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
    /// Waiting for an agent.
    pub ready: u32,
    pub completed: u32,
    pub dead: u32,
    pub blocked: u32,
    pub asking: u32,
    pub rolled_back: u32,
    /// Waiting for approvals.
    pub gated: u32,
    /// Waiting for a moment to come: backoffs of tasks and of chores.
    pub parked: u32,
}

/// As what a task is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    Ready,
    Completed,
    Dead,
    Blocked,
    Asking,
    RolledBack,
    Gated,
    Parked,
}

impl Counts {
    pub(crate) fn enter(&mut self, counted: Option<Counted>) {
        if let Some(count) = counted.map(|counted| self.of(counted)) {
            *count += 1;
        }
    }

    pub(crate) fn leave(&mut self, counted: Option<Counted>) {
        if let Some(count) = counted.map(|counted| self.of(counted)) {
            *count = count.saturating_sub(1);
        }
    }

    fn of(&mut self, counted: Counted) -> &mut u32 {
        match counted {
            Counted::Ready => &mut self.ready,
            Counted::Completed => &mut self.completed,
            Counted::Dead => &mut self.dead,
            Counted::Blocked => &mut self.blocked,
            Counted::Asking => &mut self.asking,
            Counted::RolledBack => &mut self.rolled_back,
            Counted::Gated => &mut self.gated,
            Counted::Parked => &mut self.parked,
        }
    }
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

    /// Whether with these counts nothing is left to do but to deliver.
    pub(crate) fn is_complete(&self, counts: &Counts) -> bool {
        counts.completed > 0 && counts.completed + counts.rolled_back == self.total()
    }

    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self.stage, MissionStage::Cancelled { .. })
    }

    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.stage, MissionStage::Cancelled { .. } | MissionStage::Delivered { .. })
    }

    pub(crate) fn wants(&self) -> Wants {
        let open = self.paused.is_none() && !self.has_ended();
        let Merging { stale, planned, .. } = &self.merging;
        Wants {
            chores: open && !self.chores.is_empty(),
            ready: open && self.counts.ready > 0,
            merges: !stale.is_empty() || (open && !planned.is_empty()),
            asks: open && !self.to_ask.is_empty(),
        }
    }

    /// What landed on its branch; also why something of it cannot be taken back.
    #[must_use]
    pub fn landings(&self) -> &Landings {
        &self.merging.landings
    }

    /// The wave that a task is part of.
    pub(crate) fn wave_of(&self, task: &Task) -> Option<&Wave> {
        // Most missions have none, and that is known without a look at the plan.
        if self.waves.is_empty() {
            return None;
        }
        self.waves.get(task.plan.wave.as_ref()?)
    }

    /// Whether what this task landed is being taken back.
    pub(crate) fn is_rolling_back(&self, task: TaskId) -> bool {
        self.merging.rollbacks.values().any(|tasks| tasks.contains(&task))
    }

    /// The merge queue, once the branch is there.
    #[must_use]
    pub fn merge_queue(&self) -> Option<&MergeQueue> {
        self.merging.queue.as_ref()
    }

    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.live
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
            MissionStage::Open if self.is_idle() && self.counts.gated > 0 => {
                MissionStatus::AwaitingApproval
            }
            MissionStage::Open
                if self.is_idle() && self.counts.dead + self.counts.rolled_back > 0 =>
            {
                MissionStatus::Failed
            }
            MissionStage::Open => MissionStatus::Running,
        }
    }

    #[must_use]
    pub fn proposed(&self) -> Option<&Commit> {
        match &self.stage {
            MissionStage::Proposed { commit } => Some(commit),
            _ => None,
        }
    }

    /// How many people have to approve the delivery, by the riskiest of what was merged.
    pub(crate) fn delivery_people(&self) -> u32 {
        let rules = self.policy.approvals.as_ref();
        match rules.zip(self.riskiest.as_deref()).map(|(r, a)| r.need(Action::Deliver, a)) {
            Some(Need::Approval { people }) => people,
            Some(Need::Nothing | Need::Notice) | None => 1,
        }
    }

    pub(crate) fn note_risk(&mut self, of: Option<Box<Assessment>>) {
        let known = self.riskiest.as_ref().map(|assessed| assessed.risk);
        if of.as_ref().map(|assessed| assessed.risk) > known {
            self.riskiest = of;
        }
    }

    /// Neither in flight, nor waiting for an agent, a chore or a moment.
    fn is_idle(&self) -> bool {
        self.live == 0
            && self.chores.is_empty()
            && self.counts.parked == 0
            && self.counts.ready == 0
    }
}
