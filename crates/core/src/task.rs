//! A task: one piece of a mission, from its plan to its merge.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::approval::Subject;
use crate::checklist::Checklist;
use crate::council::CouncilId;
use crate::escalation::Hardship;
use crate::failure::{Failure, FailureKind};
use crate::flow::Phase;
use crate::gates::{Done, Evidence, RedReason, Reviews};
use crate::ids::{Actor, AgentId, Commit, Fence, MissionId, Role, TaskId};
use crate::ledger::Purpose;
use crate::mission::{Counted, Mission};
use crate::money::Usd;
use crate::plan::operation::Operations;
use crate::plan::{PlannedTask, Priority};
use crate::policy::Policy;
use crate::queue::Standing;
use crate::report::{Question, ResumeData, Verification};
use crate::routing::{Failed, Lineage, Tier};
use crate::status::Status;
use crate::time::Timestamp;

/// Laid out by hand. A command comes to a task that was left alone for long, and what it waits for is
/// memory: what the life of every task reads and writes comes first, what only some tasks have comes
/// last, and of what is large and rare there is a pointer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[repr(C, align(64))]
pub struct Task {
    pub id: TaskId,
    pub mission: MissionId,
    /// Dependencies that are not merged yet.
    pub waits_for: u32,
    pub attempts: u32,
    /// Index into the mission's flow.
    pub phase: usize,
    pub plan: Arc<PlannedTask>,
    /// What the plan expects it to touch.
    pub files: Arc<[Arc<str>]>,
    /// Attempts at it in a row that were lost with their host.
    #[serde(default)]
    pub lost: u32,
    /// Questions in a row that the configuration answered.
    #[serde(default)]
    pub told: u32,
    /// The plan's, until a person sets another.
    pub priority: Priority,
    /// An attempt was made since it was last pending.
    pub started: bool,
    /// A failure is being worked off; until the change reaches the merge queue.
    pub retrying: bool,
    /// One of its agents said that git alone cannot take its work back (GIT-20).
    #[serde(default)]
    pub irreversible: bool,
    /// Whether it had all that a merge needs when it was blocked.
    #[serde(default)]
    pub was_queued: bool,
    /// Of the model that made the latest attempt.
    pub tier: Option<Tier>,
    /// The best model that failed at it, where a better one might not have. A task is as hard
    /// after a question or in its next phase as before; only a person who brings it back to life
    /// may have made it easier.
    #[serde(default)]
    pub outgrown: Option<Failed>,
    pub stage: Stage,
    pub dependencies: Vec<TaskId>,
    pub dependents: Vec<TaskId>,
    /// Unfinished work of an attempt that stopped to ask.
    pub unfinished: Option<Box<Commit>>,
    /// Up to this phase its work is done once more, because it failed: attempts at these phases
    /// are paid as retries (RET-08). Unlike `retrying` it is no word for people: a question or
    /// an order does not make failed work new, and a phase that was never tried is no retry.
    #[serde(default)]
    pub failed_up_to: Option<usize>,
    pub hardship: Option<Box<Hardship>>,
    pub checklist: Option<Box<Checklist>>,
    /// The files that its attempts changed since it last began, in order.
    pub touched: Arc<Vec<String>>,
    /// Why its host could not make the last attempt, if it was that. The task is not to blame, so
    /// neither its agents nor its story hear of it.
    #[serde(default)]
    pub host_failure: Option<Box<str>>,
    /// Who last worked on it, one of each role; the latest comes last.
    pub agents: Vec<AgentId>,
    /// What each accepted phase left.
    pub accepted_by_phase: Vec<(usize, Commit)>,
    pub started_at: Option<Timestamp>,
    /// Those of them that were tests when a phase showed that they fail: later ones leave them.
    #[serde(default)]
    pub frozen: Arc<BTreeSet<String>>,
    pub resume: Option<Box<ResumeData>>,
    /// Its change, if reviewers did not agree to it: if it is to be merged as it is, a person is
    /// asked.
    #[serde(default)]
    pub disputed: Option<Box<Commit>>,
    /// The commit on which all checks passed at the last gate.
    pub checked: Option<Box<Commit>>,
    pub lineage: Option<Lineage>,
    /// Who comes before it in its batch, and after it.
    pub(crate) before_in_batch: Option<TaskId>,
    pub(crate) next_in_batch: Option<TaskId>,
    /// What the accepted phases left.
    pub accepted: Option<Commit>,
    /// Where the current phase began.
    pub phase_base: Option<Commit>,
    pub merged: Option<Commit>,
    pub ended_at: Option<Timestamp>,
    /// What the last red phase showed, by check: the next green one is held to it.
    pub evidence: BTreeMap<String, Evidence>,
    pub spent: Usd,
    /// What was reserved for attempts that ended and whose bills are awaited.
    #[serde(default)]
    pub unbilled: Usd,
    /// How far the prepared operations are done; `unfinished` is the tree that has them.
    pub operations: Operations,
    /// Phases that a person skipped.
    pub skipped: BTreeSet<Phase>,
    /// How often it was decided to try again after a failure.
    pub retries: u32,
    /// How often an attempt at it made room for a more urgent task.
    #[serde(default)]
    pub gave_way: u32,
    pub last_failure: Option<Box<Failure>>,
    pub failures: BTreeMap<FailureKind, u32>,
    /// When it last asked a person something.
    pub asked_at: Option<Timestamp>,
    /// What an agent last said about its work.
    pub said: Option<Box<Said>>,
    /// By whose word it is or was taken back after it landed; until it is put back to work.
    #[serde(default)]
    pub taken_back: Option<Box<TakenBack>>,
    /// Tests that passed and failed on one commit of it.
    #[serde(default)]
    pub flaky: BTreeSet<String>,
    /// What became of its criteria at the last gate (TDD-13).
    #[serde(default)]
    pub done: Done,
    /// By councils, before it is merged (TDD-11).
    #[serde(default)]
    pub reviews: Reviews,
}

/// What every task has is worth the trouble of keeping it small; a project may have a million.
const _: () = assert!(size_of::<Task>() <= 13 * 64);

/// Who wanted something that landed to go, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TakenBack {
    pub by: Actor,
    pub reason: String,
}

/// The words of an agent: intent, not authority.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Said {
    pub message: String,
    pub verification_result: Option<Verification>,
    pub red: Option<RedReason>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Stage {
    /// For its dependencies.
    Waiting,
    /// For an agent.
    Ready,
    Working {
        fence: Fence,
    },
    /// The change of a phase is before its checks.
    Gating {
        change: Commit,
    },
    /// For its turn in the merge queue.
    Queued,
    Merging {
        candidate: Option<Commit>,
        checked: bool,
    },
    /// Between a failure and what follows from it, within one commit.
    Failed {
        kind: FailureKind,
    },
    Backoff {
        until: Timestamp,
    },
    /// A council thinks about it.
    Deliberating {
        council: CouncilId,
    },
    /// A council looks at its change before it is merged.
    Review {
        council: CouncilId,
    },
    Asking {
        question: Question,
    },
    /// For people who have to approve.
    Approval {
        subject: Subject,
    },
    /// A task that it needs will never come.
    Blocked {
        on: TaskId,
    },
    Done,
    /// It was merged, and taken back.
    RolledBack,
    DeadLetter,
}

impl Stage {
    /// As what its mission counts the task.
    pub(crate) fn counted(&self) -> Option<Counted> {
        match self {
            Stage::Ready => Some(Counted::Ready),
            Stage::Backoff { .. } | Stage::Deliberating { .. } | Stage::Review { .. } => {
                Some(Counted::Parked)
            }
            Stage::Asking { .. } => Some(Counted::Asking),
            Stage::Approval { .. } => Some(Counted::Gated),
            Stage::Blocked { .. } => Some(Counted::Blocked),
            Stage::Done => Some(Counted::Completed),
            Stage::RolledBack => Some(Counted::RolledBack),
            Stage::DeadLetter => Some(Counted::Dead),
            Stage::Waiting
            | Stage::Working { .. }
            | Stage::Gating { .. }
            | Stage::Queued
            | Stage::Merging { .. }
            | Stage::Failed { .. } => None,
        }
    }

    /// The moment that it waits for.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        match self {
            Stage::Backoff { until } => Some(*until),
            _ => None,
        }
    }

    /// Nothing more happens to the task by itself.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Stage::Done | Stage::RolledBack | Stage::DeadLetter | Stage::Blocked { .. })
    }
}

impl Task {
    #[must_use]
    pub fn name(&self) -> &str {
        &self.plan.id
    }

    #[must_use]
    pub fn phase(&self, policy: &Policy) -> Option<Phase> {
        policy.flow.get(self.phase).copied()
    }

    /// The phase after the current one, if there is one; None before the merge queue.
    #[must_use]
    pub fn next_phase(&self, policy: &Policy) -> Option<usize> {
        let later = policy.flow.iter().enumerate().skip(self.phase + 1);
        let mut left = later.filter(|(_, phase)| !self.skipped.contains(phase));
        left.next().map(|(index, _)| index)
    }

    /// Why the next attempt is paid for.
    #[must_use]
    pub fn purpose(&self) -> Purpose {
        match self.failed_up_to {
            Some(last) if self.phase <= last => Purpose::Retry,
            Some(_) | None => Purpose::Work,
        }
    }

    /// The work of the present phase is to be done once more.
    pub(crate) fn repeat(&mut self) {
        self.retrying = true;
        self.failed_up_to = self.failed_up_to.max(Some(self.phase));
    }

    /// What an attempt has cost so far, on average, rounded up. A bill that is awaited may be all
    /// that was reserved: what is not known is not taken for nothing.
    #[must_use]
    pub fn mean_cost(&self) -> Usd {
        let known = (self.spent + self.unbilled).as_micros();
        Usd::micros(known.div_ceil(u64::from(self.attempts.max(1))))
    }

    /// Whether reviewers did not agree to this change of it.
    pub(crate) fn is_disputed(&self, change: Option<&Commit>) -> bool {
        change.is_some() && self.disputed.as_deref() == change
    }

    /// What the phases left is not built upon.
    pub(crate) fn begin_anew(&mut self) {
        self.phase = 0;
        self.accepted = None;
        self.accepted_by_phase.clear();
        self.skipped.clear();
        self.unfinished = None;
        self.touched = Arc::default();
        self.frozen = Arc::default();
        self.irreversible = false;
        self.evidence.clear();
        self.disputed = None;
        self.told = 0;
    }

    /// What an attempt left when it stopped to ask or finished a step, if it left something.
    pub(crate) fn leave_off_at(&mut self, change: Option<&Commit>) {
        if let Some(change) = change {
            self.unfinished = Some(Box::new(change.clone()));
        }
    }

    pub(crate) fn touch(&mut self, files: &Arc<Vec<String>>) {
        // Most tasks have one attempt, and git names files in order: then the list is its own.
        if self.touched.is_empty() && files.is_sorted_by(|one, next| one < next) {
            self.touched = Arc::clone(files);
            return;
        }
        let touched = Arc::make_mut(&mut self.touched);
        touched.reserve_exact(files.len());
        touched.extend(files.iter().cloned());
        touched.sort_unstable();
        touched.dedup();
    }

    /// What its score is made of; `minutes` for a plan that does not say.
    pub(crate) fn standing(&self, minutes: u32) -> Standing {
        let count = |list: &[TaskId]| u32::try_from(list.len()).unwrap_or(u32::MAX);
        Standing {
            priority: self.priority,
            dependencies: count(&self.dependencies),
            dependents: count(&self.dependents),
            minutes: self.plan.estimated_duration_minutes.unwrap_or(minutes),
        }
    }

    /// Who of a role last worked on it.
    #[must_use]
    pub fn agent_of(&self, role: Role) -> Option<AgentId> {
        self.agents.iter().find(|agent| agent.role == role).copied()
    }

    #[must_use]
    pub fn last_agent(&self) -> Option<AgentId> {
        self.agents.last().copied()
    }

    #[must_use]
    pub fn failed_times(&self) -> u32 {
        self.failures.values().sum()
    }

    /// Derived, never stored: the stage says it all.
    #[must_use]
    pub fn status(&self, mission: &Mission) -> Status {
        match &self.stage {
            Stage::Done => Status::Completed,
            Stage::RolledBack => Status::RolledBack,
            Stage::DeadLetter => Status::DeadLetter,
            _ if mission.is_cancelled() => Status::Cancelled,
            Stage::Asking { .. } | Stage::Blocked { .. } => Status::Blocked,
            Stage::Approval { subject: Subject::Start(_) } => Status::Blocked,
            Stage::Failed { kind: FailureKind::Timeout | FailureKind::Hang } => Status::TimedOut,
            Stage::Failed { .. } => Status::Failed,
            _ if mission.paused.is_some() => Status::Paused,
            Stage::Queued | Stage::Merging { checked: false, .. } => Status::Testing,
            Stage::Merging { checked: true, .. }
            | Stage::Approval { .. }
            | Stage::Review { .. } => Status::ReadyForReview,
            Stage::Waiting
            | Stage::Ready
            | Stage::Working { .. }
            | Stage::Gating { .. }
            | Stage::Deliberating { .. }
            | Stage::Backoff { .. } => {
                if self.retrying {
                    Status::Retrying
                } else if self.started {
                    Status::InProgress
                } else {
                    Status::Pending
                }
            }
        }
    }
}
