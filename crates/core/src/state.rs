//! State: the fold of the journal, with the indexes that keep every command cheap.
//!
//! Invariant: everything here is a function of the events applied so far. `decide` only reads,
//! `apply` only folds, and what should be in flight (`due`), who waits for an agent and when time
//! matters next are kept up to date by `apply`, never found by a scan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::effect::Due;
use crate::event::Chore;
use crate::ids::{AgentId, Commit, Fence, MissionId, RequestId, TaskId};
use crate::mission::Mission;
use crate::money::Usd;
use crate::settings::Settings;
use crate::task::Task;
use crate::team::Team;
use crate::time::Timestamp;

mod apply;
mod chores;
mod clock;
mod decide;
mod people;
mod schedule;
mod work;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    missions: Vec<Mission>,
    tasks: Vec<Task>,
    requests: BTreeMap<RequestId, MissionId>,
    team: Team,
    live: BTreeMap<Fence, Live>,
    /// Missions that want a chore to be started.
    with_chores: BTreeSet<MissionId>,
    /// Missions with tasks that wait for an agent.
    with_ready: BTreeSet<MissionId>,
    timers: BTreeSet<(Timestamp, Timer)>,
    due: Due,
    fences_given: u64,
    settings: Arc<Settings>,
}

/// What a fence stands for while it is current.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Live {
    Attempt(Lease),
    Chore { mission: MissionId, chore: Chore },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    pub task: TaskId,
    pub mission: MissionId,
    pub agent: AgentId,
    pub base: Commit,
    pub reserved: Usd,
    pub granted_at: Timestamp,
    pub expires_at: Timestamp,
    pub deadline: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Timer {
    Lease(Fence),
    Deadline(Fence),
    Backoff(TaskId),
    Chore(MissionId, Chore),
}

impl State {
    /// What should be in flight.
    #[must_use]
    pub fn due(&self) -> &Due {
        &self.due
    }

    /// The next moment at which time alone changes something.
    #[must_use]
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    #[must_use]
    pub fn mission(&self, id: MissionId) -> Option<&Mission> {
        self.missions.get((id.0 as usize).checked_sub(1)?)
    }

    /// The mission that this request would open; None if it already did.
    #[must_use]
    pub fn next_mission(&self, request: &RequestId) -> Option<MissionId> {
        let taken = self.requests.contains_key(request);
        (!taken).then(|| MissionId(self.missions.len() as u32 + 1))
    }

    pub fn missions(&self) -> impl DoubleEndedIterator<Item = &Mission> {
        self.missions.iter()
    }

    #[must_use]
    pub fn task(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get((id.0 as usize).checked_sub(1)?)
    }

    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.iter()
    }

    pub fn tasks_of(&self, mission: &Mission) -> impl Iterator<Item = &Task> {
        mission.tasks.iter().filter_map(|id| self.task(*id))
    }

    #[must_use]
    pub fn task_named(&self, mission: MissionId, name: &str) -> Option<&Task> {
        self.tasks_of(self.mission(mission)?).find(|task| task.name() == name)
    }

    #[must_use]
    pub fn team(&self) -> &Team {
        &self.team
    }

    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    #[must_use]
    pub fn live(&self, fence: Fence) -> Option<&Live> {
        self.live.get(&fence)
    }

    #[must_use]
    pub fn lease(&self, fence: Fence) -> Option<&Lease> {
        match self.live.get(&fence)? {
            Live::Attempt(lease) => Some(lease),
            Live::Chore { .. } => None,
        }
    }

    pub fn leases(&self) -> impl Iterator<Item = (Fence, &Lease)> {
        self.live.iter().filter_map(|(fence, live)| match live {
            Live::Attempt(lease) => Some((*fence, lease)),
            Live::Chore { .. } => None,
        })
    }

    /// The fence that the next thing set in motion would carry.
    pub(crate) fn next_fence(&self) -> Fence {
        Fence(self.fences_given + 1)
    }

    pub(crate) fn mark_all_effects_changed(&mut self) {
        self.due.mark_all_changed();
    }

    pub(crate) fn take_changed_effects(&mut self) -> Vec<Fence> {
        self.due.take_changed()
    }
}
