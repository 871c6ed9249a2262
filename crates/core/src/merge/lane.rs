//! Lanes: batches on their way to the target, in the order in which they will land.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{Commit, TaskId};

/// A number that is never given twice, so that an answer for a lane that is gone is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LaneId(pub u64);

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Lane {
    pub id: LaneId,
    /// In the order in which they are applied.
    pub members: Vec<TaskId>,
    /// The other half of a batch that failed; its fate hangs on this lane.
    pub behind: Vec<TaskId>,
    pub stage: LaneStage,
    /// What each member left behind it when the candidate was built; the last is the candidate.
    pub steps: Vec<Step>,
}

/// A change of a lane, and the commit that the branch becomes with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub task: TaskId,
    pub commit: Commit,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum LaneStage {
    Building,
    Testing {
        onto: Commit,
        candidate: Commit,
        /// What failed in each earlier run of these same checks.
        failed: Vec<Vec<String>>,
    },
    /// It failed on top of candidates that nobody has judged yet; theirs may be the fault.
    Held {
        onto: Commit,
        candidate: Commit,
        failed: Vec<String>,
    },
    Passed {
        onto: Commit,
        candidate: Commit,
        /// Failures that were there before; the others that used to fail are mended.
        excused: Vec<String>,
    },
}

impl LaneStage {
    pub fn candidate(&self) -> Option<&Commit> {
        match self {
            LaneStage::Building => None,
            LaneStage::Testing { candidate, .. }
            | LaneStage::Held { candidate, .. }
            | LaneStage::Passed { candidate, .. } => Some(candidate),
        }
    }
}

/// What should be in flight for the queue, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    Build(LaneId),
    Test(LaneId),
    Land(LaneId),
    Rebase(TaskId),
    Measure,
}

/// The same, with all that it takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "snake_case")]
pub enum Work {
    Build {
        lane: LaneId,
        onto: Commit,
        changes: Vec<(TaskId, Commit)>,
    },
    /// `run` is 1, or more when a failure may have been a flake.
    Test {
        lane: LaneId,
        candidate: Commit,
        run: u32,
    },
    /// Compare-and-swap: only if the target still stands at `from`.
    Land {
        lane: LaneId,
        from: Commit,
        to: Commit,
    },
    Rebase {
        task: TaskId,
        change: Commit,
        onto: Commit,
    },
    /// What of the checks fails on the target itself, before anybody is blamed for it.
    Measure {
        tip: Commit,
    },
}
