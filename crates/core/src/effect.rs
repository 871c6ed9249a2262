//! Effects: what the engine wants to be in flight.
//!
//! Effects are levels, not edges: the conductor starts what is due but not running and stops what
//! is running but not due. Performing one twice must be harmless.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::flow::Phase;
use crate::ids::{AgentId, Commit, Fence, MissionId, TaskId};
use crate::policy::Policy;

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
    },
    /// Run every check of the policy on exactly this commit.
    RunChecks {
        task: TaskId,
        commit: Commit,
        policy: Arc<Policy>,
    },
    BuildCandidate {
        task: TaskId,
        onto: Commit,
        change: Commit,
    },
    AdvanceBranch {
        task: TaskId,
        branch: String,
        from: Commit,
        to: Commit,
    },
    Deliver {
        mission: MissionId,
        target: String,
        commit: Commit,
    },
}

/// What should be in flight, by fence, and which entries changed since somebody last looked.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Due {
    effects: BTreeMap<Fence, Effect>,
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

    pub(crate) fn take_changed(&mut self) -> Vec<Fence> {
        std::mem::take(&mut self.changed)
    }
}
