//! A task: one piece of a mission, from its plan to its merge.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, FailureKind};
use crate::ids::{Commit, Fence, MissionId, TaskId};
use crate::money::Usd;
use crate::plan::{PlannedTask, Priority};
use crate::policy::Policy;
use crate::report::{Question, ResumeData};
use crate::status::Status;
use crate::time::Timestamp;
use crate::{flow::Phase, mission::Mission};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    pub id: TaskId,
    pub mission: MissionId,
    pub plan: PlannedTask,
    pub dependencies: Vec<TaskId>,
    pub dependents: Vec<TaskId>,
    /// Dependencies that are not merged yet.
    pub waits_for: u32,
    pub score: i64,
    pub stage: Stage,
    /// Index into the mission's flow.
    pub phase: usize,
    /// An attempt was made since it was last pending.
    pub started: bool,
    /// A failure is being worked off; until the change reaches the merge queue.
    pub retrying: bool,
    pub attempts: u32,
    /// How often it was decided to try again after a failure.
    pub retries: u32,
    pub failures: BTreeMap<FailureKind, u32>,
    pub last_failure: Option<Failure>,
    /// What the accepted phases left.
    pub accepted: Option<Commit>,
    /// Unfinished work of an attempt that stopped to ask.
    pub unfinished: Option<Commit>,
    /// Where the current phase began.
    pub phase_base: Option<Commit>,
    pub resume: Option<ResumeData>,
    /// The commit on which all checks passed at the last gate.
    pub checked: Option<Commit>,
    pub merged: Option<Commit>,
    pub spent: Usd,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
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
    Asking {
        question: Question,
    },
    /// A task that it needs will never come.
    Blocked {
        on: TaskId,
    },
    Done,
    DeadLetter,
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

    #[must_use]
    pub fn failed_times(&self) -> u32 {
        self.failures.values().sum()
    }

    /// Derived, never stored: the stage says it all.
    #[must_use]
    pub fn status(&self, mission: &Mission) -> Status {
        match &self.stage {
            Stage::Done => Status::Completed,
            Stage::DeadLetter => Status::DeadLetter,
            _ if mission.is_cancelled() => Status::Cancelled,
            Stage::Asking { .. } | Stage::Blocked { .. } => Status::Blocked,
            Stage::Failed { kind: FailureKind::Timeout | FailureKind::Hang } => Status::TimedOut,
            Stage::Failed { .. } => Status::Failed,
            _ if mission.paused.is_some() => Status::Paused,
            Stage::Queued | Stage::Merging { checked: false, .. } => Status::Testing,
            Stage::Merging { checked: true, .. } => Status::ReadyForReview,
            Stage::Waiting
            | Stage::Ready
            | Stage::Working { .. }
            | Stage::Gating { .. }
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

/// The priority score of QUE-11: higher runs sooner.
#[must_use]
pub fn score(plan: &PlannedTask, dependents: usize) -> i64 {
    /// More than this says "long", and long tasks must not sink below everything.
    const DURATION_PENALTY_MAX: i64 = 30;
    let explicit = match plan.priority {
        Priority::Critical => 100,
        Priority::High => 70,
        Priority::Medium => 40,
        Priority::Low => 10,
    };
    let free = if plan.dependencies.is_empty() { 50 } else { 0 };
    let opens = 10 * i64::try_from(dependents).unwrap_or(i64::MAX / 100);
    let minutes = i64::from(plan.estimated_duration_minutes.unwrap_or(0));
    explicit + free + opens - minutes.min(DURATION_PENALTY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(priority: Priority, dependencies: usize, minutes: u32) -> PlannedTask {
        PlannedTask {
            id: "t".into(),
            title: "t".into(),
            description: String::new(),
            priority,
            dependencies: vec!["d".into(); dependencies],
            files: Vec::new(),
            estimated_duration_minutes: Some(minutes),
            ..PlannedTask::default()
        }
    }

    /// The worked examples that the sources agree on, where no file is locked.
    #[test]
    fn scores_are_the_golden_ones() {
        assert_eq!(score(&plan(Priority::Critical, 0, 10), 0), 140);
        assert_eq!(score(&plan(Priority::High, 2, 30), 0), 40);
        assert_eq!(score(&plan(Priority::High, 0, 15), 3), 135);
    }

    #[test]
    fn a_long_task_loses_at_most_thirty() {
        let hours = score(&plan(Priority::Low, 1, 600), 0);
        assert_eq!(hours, score(&plan(Priority::Low, 1, 30), 0));
    }
}
