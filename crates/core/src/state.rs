//! State: the fold of the journal, with the indexes that keep every command cheap.
//!
//! Invariant: everything here is a function of the events applied so far. `decide` only reads,
//! `apply` only folds, and what should be in flight (`due`), who waits for an agent and when time
//! matters next are kept up to date by `apply`, never found by a scan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agents::Registry;
use crate::approval::{Approvals, HumanTime, Overrides, People};
use crate::breaker::Breakers;
use crate::command::CheckResult;
use crate::effect::{Due, Effect};
use crate::escalation::Notices;
use crate::event::Chore;
use crate::few::{FewMap, FewSet};
use crate::flaky::History;
use crate::ids::{AgentId, Commit, Fence, MissionId, RequestId, Role, TaskId};
use crate::ledger::{Account, Calibration, Ledger, Purse, ReservationId, Scope};
use crate::locks::LockTable;
use crate::mission::Mission;
use crate::money::Usd;
use crate::rate::Permits;
use crate::routing::Route;
use crate::scaling::Scaler;
use crate::settings::Settings;
use crate::task::Task;
use crate::time::Timestamp;

mod apply;
mod approvals;
mod chores;
mod clock;
mod council;
mod decide;
mod failure;
mod gate;
mod idle;
mod merge;
mod money;
mod overrides;
mod people;
mod planning;
mod providers;
mod queues;
mod rollback;
mod scaling;
mod schedule;
mod seats;
mod sub_agents;
mod waves;
mod work;

pub use council::{Advice, Opinion};
pub use idle::IDLE_WARNING_MS;
pub use money::Hindrance;
pub use providers::UNROUTED;
pub use queues::Queues;
pub use schedule::Held;

use council::Councils;
use providers::Traffic;
use schedule::Schedule;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    missions: Vec<Mission>,
    tasks: Vec<Task>,
    requests: BTreeMap<RequestId, MissionId>,
    agents: Registry,
    scaler: Scaler,
    /// When the number of agents of a role is looked at next.
    scale_at: BTreeMap<Role, Timestamp>,
    /// The queues or the agents changed since the scaler last looked.
    scaling_stale: bool,
    live: FewMap<Fence, Live>,
    /// Missions that want a chore to be started.
    with_chores: FewSet<MissionId>,
    /// Missions with tasks that wait for an agent.
    with_ready: FewSet<MissionId>,
    /// Missions whose merge queue wants something withdrawn or a lane formed.
    with_merges: FewSet<MissionId>,
    /// Missions with tasks that a person has to be asked about.
    with_asks: FewSet<MissionId>,
    /// Waves of which a task gave up, as long as something of them may have to go.
    broken_waves: BTreeSet<(MissionId, String)>,
    timers: BTreeSet<(Timestamp, Timer)>,
    /// Those of attempts, the earliest of each: as few as attempts are, and every one sets and
    /// stops its own.
    attempt_timers: FewSet<(Timestamp, Timer)>,
    due: Due,
    fences_given: u64,
    settings: Arc<Settings>,
    schedule: Schedule,
    /// The moment of the record that was folded last.
    at: Timestamp,

    ledger: Ledger,
    /// What estimates were worth.
    calibration: Calibration,
    bills: BTreeMap<Fence, Bill>,
    people: People,
    approvals: Approvals,
    overrides: Overrides,
    human_time: HumanTime,
    notices: Notices,
    /// When a person can be told of what is new.
    notices_at: Option<Timestamp>,
    permits: Permits,
    breakers: Breakers,
    traffic: Traffic,
    councils: Councils,
    /// How tests ended, on which commits.
    tests: History,
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
    reservation: Option<ReservationId>,
    account: Account,
    pub route: Option<Box<Route>>,
    /// When it is, if it does not end by itself. Journals from before there was a ledger know no
    /// late bills.
    billed: Billed,
    pub granted_at: Timestamp,
    pub expires_at: Timestamp,
    pub deadline: Timestamp,
    /// When it last printed something, if it has been silent for so long that people were told.
    #[serde(default)]
    pub idle_since: Option<Timestamp>,
}

impl Lease {
    /// What ends it first, if nobody is heard of: either end ends all of it.
    fn timer(&self, fence: Fence) -> (Timestamp, Timer) {
        (self.expires_at, Timer::Lease(fence)).min((self.deadline, Timer::Deadline(fence)))
    }
}

/// When it is known what an attempt cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Billed {
    AtItsEnd,
    Later,
}

/// An attempt that ended before anybody knew what it cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Bill {
    task: TaskId,
    account: Account,
    reserved: Usd,
    /// None once the money was given back.
    reservation: Option<ReservationId>,
    began_at: Timestamp,
    until: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Timer {
    Lease(Fence),
    Deadline(Fence),
    Backoff(TaskId),
    Chore(MissionId, Chore),
    Scale(Role),
    /// The bill of an ended attempt is no longer awaited.
    Bill(Fence),
    /// The watchdog's grace is over.
    Grace,
    /// A limit that a mission waits for begins anew.
    Renewal(MissionId),
    Notices,
    Override(TaskId),
}

impl State {
    /// The moment of the last thing that happened.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// What should be in flight.
    #[must_use]
    pub fn due(&self) -> &Due {
        &self.due
    }

    /// The next moment at which time alone changes something.
    #[must_use]
    pub fn wake_at(&self) -> Option<Timestamp> {
        let sooner = |one: Option<Timestamp>, other: Option<Timestamp>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let wake_at = self.next_timer().map(|(at, _)| at);
        let wake_at = sooner(wake_at, self.schedule.locks.wake_at());
        let wake_at = sooner(wake_at, self.permits.next_back_at());
        let wake_at = sooner(wake_at, self.breakers.next_at());
        sooner(wake_at, self.councils.chamber.wake_at())
    }

    fn next_timer(&self) -> Option<(Timestamp, Timer)> {
        match (self.timers.first(), self.attempt_timers.first()) {
            (Some(one), Some(other)) => Some(*one.min(other)),
            (one, other) => one.or(other).copied(),
        }
    }

    #[must_use]
    pub fn mission(&self, id: MissionId) -> Option<&Mission> {
        self.missions.get((id.0 as usize).checked_sub(1)?)
    }

    /// What of the checks of a task failed and then passed on the same commit, by name.
    #[must_use]
    pub fn flaky_in(&self, task: TaskId, results: &[CheckResult]) -> BTreeSet<String> {
        let mission = self.task(task).and_then(|task| self.mission(task.mission));
        mission.map(|mission| gate::flaky(&mission.policy, results)).unwrap_or_default()
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
        self.task(*self.mission(mission)?.names.get(name)?)
    }

    #[must_use]
    pub fn agents(&self) -> &Registry {
        &self.agents
    }

    #[must_use]
    pub fn scaler(&self) -> &Scaler {
        &self.scaler
    }

    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    #[must_use]
    pub fn people(&self) -> &People {
        &self.people
    }

    /// What waits for approvals, and what was said.
    #[must_use]
    pub fn approvals(&self) -> &Approvals {
        &self.approvals
    }

    /// Orders that wait for a second person.
    #[must_use]
    pub fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    #[must_use]
    pub fn human_time(&self) -> &HumanTime {
        &self.human_time
    }

    /// What needs a person, and whether one was told.
    #[must_use]
    pub fn notices(&self) -> &Notices {
        &self.notices
    }

    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What a mission has spent, and what is set aside for it.
    #[must_use]
    pub fn purse_of(&self, mission: MissionId) -> Purse {
        self.ledger.purse(Scope::Mission(mission))
    }

    /// What missions were estimated to cost, and what they did cost.
    #[must_use]
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// What is known of tests that pass and fail on one commit.
    #[must_use]
    pub fn test_history(&self) -> &History {
        &self.tests
    }

    /// Who has which file.
    #[must_use]
    pub fn locks(&self) -> &LockTable {
        &self.schedule.locks
    }

    #[must_use]
    pub fn permits(&self) -> &Permits {
        &self.permits
    }

    #[must_use]
    pub fn breakers(&self) -> &Breakers {
        &self.breakers
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

    /// Whose attempt this is or was, as long as what it costs can still come in.
    #[must_use]
    pub fn payer(&self, fence: Fence) -> Option<AgentId> {
        let running = self.lease(fence).map(|lease| lease.agent);
        running.or_else(|| self.bills.get(&fence)?.account.agent)
    }

    pub fn leases(&self) -> impl Iterator<Item = (Fence, &Lease)> {
        self.live.iter().filter_map(|(fence, live)| match live {
            Live::Attempt(lease) => Some((*fence, lease)),
            Live::Chore { .. } => None,
        })
    }

    /// What is in flight for a mission. Whoever asks is about to end it: that is rare.
    fn live_of(&self, mission: MissionId) -> impl Iterator<Item = (Fence, &Live)> {
        let of_it = move |live: &Live| match live {
            Live::Attempt(lease) => lease.mission == mission,
            Live::Chore { mission: of, .. } => *of == mission,
        };
        let live = self.live.iter().filter(move |(_, live)| of_it(live));
        live.map(|(fence, live)| (*fence, live))
    }

    /// The fence that the next thing set in motion would carry.
    pub(crate) fn next_fence(&self) -> Fence {
        Fence(self.fences_given + 1)
    }

    pub(crate) fn mark_all_effects_changed(&mut self) {
        self.due.mark_all_changed();
    }

    /// At most so many are shown next.
    pub(crate) fn changed_effects(&self) -> usize {
        self.due.changed()
    }

    pub(crate) fn show_changed_effects(&mut self, show: impl FnMut(Fence, Option<&Effect>)) {
        self.due.show_changed(show);
    }
}
