//! Effects: what the engine wants to be in flight.
//!
//! Effects are levels, not edges: the conductor starts what is due but not running and stops what
//! is running but not due. Performing one twice must be harmless.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::few::FewMap;
use crate::flow::Phase;
use crate::gates::Tested;
use crate::ids::{AgentId, Commit, Fence, MissionId, TaskId};
use crate::merge::{LaneId, Work};
use crate::plan::PlannedTask;
use crate::policy::{Check, Policy};
use crate::rollback::Revert;
use crate::routing::Route;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    PrepareBranch {
        mission: MissionId,
        branch: String,
        base: Commit,
    },
    RunAttempt {
        task: TaskId,
        agent: AgentId,
        phase: Phase,
        /// What the worktree starts from.
        base: Commit,
        /// Where the phase began: the change of the attempt is counted from here.
        since: Commit,
        /// Which model is to do it, where models are configured.
        route: Option<Box<Route>>,
    },
    /// Run the checks on exactly this commit.
    RunChecks {
        task: TaskId,
        commit: Commit,
        /// The branch: what fails is run also where the change left it, so that nobody is blamed
        /// for a test that was broken before. None where that would change nothing.
        tip: Option<Commit>,
        /// How often a check that fails is run again before it is believed.
        retries: u32,
        /// Those of the mission, and what the task itself is to be held to.
        checks: Vec<Check>,
        /// Which of its files are tests, and of what.
        tested: Tested,
    },
    /// Put the changes on top of `onto`, one after the other, each as a merge of its own.
    BuildLane {
        mission: MissionId,
        lane: LaneId,
        onto: Commit,
        changes: Arc<[Merge]>,
    },
    TestLane {
        mission: MissionId,
        lane: LaneId,
        candidate: Commit,
        policy: Arc<Policy>,
    },
    /// Compare and swap: only if the branch still stands at `from`.
    LandLane {
        mission: MissionId,
        lane: LaneId,
        branch: String,
        from: Commit,
        to: Commit,
    },
    /// Put the commits of a change on top of `onto`, one by one.
    RebaseChange {
        task: TaskId,
        change: Commit,
        onto: Commit,
    },
    /// Run every check on the mission's branch itself.
    MeasureBaseline {
        mission: MissionId,
        commit: Commit,
        policy: Arc<Policy>,
    },
    /// Reverse these on top of `onto`, in this order, each by a commit of its own.
    BuildRevert {
        task: TaskId,
        onto: Commit,
        reverts: Vec<Revert>,
    },
    Deliver {
        mission: MissionId,
        target: String,
        commit: Commit,
    },
}

/// A change on its way into a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merge {
    pub task: TaskId,
    pub change: Commit,
    pub plan: Arc<PlannedTask>,
}

impl Merge {
    /// What is said of it in the history of the branch.
    #[must_use]
    pub fn message(&self) -> String {
        format!("merge {} {}", self.plan.id, self.plan.title)
    }
}

impl Effect {
    /// Whether this is what the merge queue wants done, to the letter.
    #[must_use]
    pub(crate) fn performs(&self, work: &Work) -> bool {
        match (self, work) {
            (
                Effect::BuildLane { lane, onto, changes, .. },
                Work::Build { lane: wanted, onto: base, changes: all },
            ) => {
                let ours = changes.iter().map(|merge| (merge.task, &merge.change));
                lane == wanted && onto == base && ours.eq(all.iter().map(|(t, c)| (*t, c)))
            }
            (
                Effect::TestLane { lane, candidate, .. },
                Work::Test { lane: wanted, candidate: built, .. },
            ) => lane == wanted && candidate == built,
            (
                Effect::LandLane { lane, from, to, .. },
                Work::Land { lane: wanted, from: tip, to: next },
            ) => lane == wanted && from == tip && to == next,
            // Rebased onto a branch that has moved since, it is still a better change.
            (
                Effect::RebaseChange { task, change, .. },
                Work::Rebase { task: wanted, change: old, .. },
            ) => task == wanted && change == old,
            (Effect::MeasureBaseline { commit, .. }, Work::Measure { tip }) => commit == tip,
            _ => false,
        }
    }
}

/// What should be in flight, by fence, and which entries changed since somebody last looked.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Due {
    effects: FewMap<Fence, Effect>,
    changed: Vec<Fence>,
}

/// The list of changes is a convenience of the reader, not part of the state.
impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.effects == other.effects
    }
}

impl Due {
    #[must_use]
    pub fn get(&self, fence: Fence) -> Option<&Effect> {
        self.effects.get(&fence)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Fence, &Effect)> {
        self.effects.iter().map(|(fence, effect)| (*fence, effect))
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.effects.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.effects.is_empty()
    }

    pub(crate) fn insert(&mut self, fence: Fence, effect: Effect) {
        self.effects.insert(fence, effect);
        self.changed.push(fence);
    }

    pub(crate) fn remove(&mut self, fence: Fence) {
        if self.effects.remove(&fence).is_some() {
            self.changed.push(fence);
        }
    }

    /// Whoever looks next has seen nothing yet.
    pub(crate) fn mark_all_changed(&mut self) {
        self.changed = self.effects.keys().copied().collect();
    }

    /// How many changes there were since somebody last looked.
    pub(crate) fn changed(&self) -> usize {
        self.changed.len()
    }

    /// Shows every entry that changed since this was last asked, in order; None for what is gone.
    pub(crate) fn show_changed(&mut self, mut show: impl FnMut(Fence, Option<&Effect>)) {
        self.changed.sort_unstable();
        self.changed.dedup();
        for fence in self.changed.drain(..) {
            show(fence, self.effects.get(&fence));
        }
    }
}
