//! The registry of agents: who is there, what each is doing, and who is about to leave.
//!
//! Four permanent agents are there as long as there is a team; the team that a person configured
//! stays until a person changes it; extra agents come and go with the load. What an agent does is
//! recorded, never guessed.
//!
//! Invariant: an agent that is busy has a task, and only an agent that is online has one.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::few::FewSet;
use crate::ids::{AgentId, Fence, Role, TaskId};
use crate::money::Usd;
use crate::time::Timestamp;

mod hardware;
mod heartbeat;
mod presets;

pub use hardware::{Disk, Fit, Hardware, Profile, Shortfall, TeamRules};
pub use heartbeat::{HeartbeatPolicy, InvalidHeartbeat, WorkKind};
pub use presets::TeamPreset;

/// The roles that start with the system (WRK-03). They are woken by events and cost nothing idle.
pub const PERMANENT_ROLES: [Role; 4] =
    [Role::Orchestrator, Role::Router, Role::Merger, Role::Librarian];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    #[default]
    Idle,
    Busy {
        task: TaskId,
        fence: Fence,
    },
}

/// What the registry shows; follows from the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    Active,
    Idle,
    Offline,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permanence {
    /// Part of the system or of the team as a person configured it: never scaled down.
    #[default]
    Permanent,
    /// Added because of the load, or by hand on top of the team.
    Extra,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    pub permanence: Permanence,
    pub online: bool,
    /// It takes no new work and leaves when its task ends.
    pub draining: bool,
    pub activity: Activity,
    /// When its host last reported that it is alive, as far as the journal says.
    pub last_heartbeat: Option<Timestamp>,
    /// When its activity began.
    pub since: Timestamp,
    pub spent: Usd,
}

impl Agent {
    #[must_use]
    pub fn presence(&self) -> Presence {
        match (self.online, self.activity) {
            (false, _) => Presence::Offline,
            (true, Activity::Idle) => Presence::Idle,
            (true, Activity::Busy { .. }) => Presence::Active,
        }
    }

    #[must_use]
    pub fn current_task(&self) -> Option<TaskId> {
        match self.activity {
            Activity::Idle => None,
            Activity::Busy { task, .. } => Some(task),
        }
    }

    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        match self.activity {
            Activity::Idle => None,
            Activity::Busy { fence, .. } => Some(fence),
        }
    }

    #[must_use]
    pub fn takes_work(&self) -> bool {
        self.online && !self.draining && self.activity == Activity::Idle
    }

    /// Whether it counts as a member of its role from now on.
    #[must_use]
    pub fn stays(&self) -> bool {
        self.online && !self.draining
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Registry {
    agents: BTreeMap<AgentId, Agent>,
    /// The team as a person configured it.
    size: BTreeMap<Role, u32>,
    /// How many attempts may run at the same time, whatever the number of agents.
    workers_max: u32,
    /// Seats that take work.
    idle: BTreeMap<Role, FewSet<u32>>,
    busy: u32,
}

impl Registry {
    #[must_use]
    pub fn get(&self, agent: AgentId) -> Option<&Agent> {
        self.agents.get(&agent)
    }

    /// Everybody who was ever there.
    pub fn all(&self) -> impl Iterator<Item = (AgentId, &Agent)> {
        self.agents.iter().map(|(id, agent)| (*id, agent))
    }

    /// Who is there to work on tasks: the permanent agents of the system only while they do.
    pub fn team(&self) -> impl Iterator<Item = (AgentId, &Agent)> {
        let of_system = |id: AgentId| id.seat == 1 && PERMANENT_ROLES.contains(&id.role);
        let configured = |id: AgentId| self.size.get(&id.role).is_some_and(|n| id.seat <= *n);
        self.all().filter(move |(id, agent)| {
            agent.online && (!of_system(*id) || configured(*id) || agent.fence().is_some())
        })
    }

    /// The agents of a role; never more than its seats.
    pub fn of(&self, role: Role) -> impl Iterator<Item = (AgentId, &Agent)> + Clone {
        let seats = AgentId { role, seat: 0 }..=AgentId { role, seat: u32::MAX };
        self.agents.range(seats).map(|(id, agent)| (*id, agent))
    }

    #[must_use]
    pub fn is_configured(&self, size: &BTreeMap<Role, u32>, workers_max: u32) -> bool {
        let extra = |agent: &Agent| agent.permanence == Permanence::Extra && agent.stays();
        let just_so = self.size == *size && self.workers_max == workers_max;
        just_so && !self.agents.values().any(extra)
    }

    #[must_use]
    pub fn workers_max(&self) -> u32 {
        self.workers_max
    }

    #[must_use]
    pub fn busy(&self) -> u32 {
        self.busy
    }

    /// Roles with seats that take work, and those seats.
    pub fn idle(&self) -> impl Iterator<Item = (Role, &FewSet<u32>)> {
        let some = self.idle.iter().filter(|(_, seats)| !seats.is_empty());
        some.map(|(&role, seats)| (role, seats))
    }

    #[must_use]
    pub fn idle_of(&self, role: Role) -> Option<&FewSet<u32>> {
        self.idle.get(&role)
    }

    /// Fact: a person configured the team. Whoever is not of it leaves, after the task at hand.
    pub fn configured(&mut self, size: &BTreeMap<Role, u32>, workers_max: u32, at: Timestamp) {
        self.size.clone_from(size);
        self.workers_max = workers_max;
        let of_system = PERMANENT_ROLES.map(|role| AgentId { role, seat: 1 });
        let of_team = |(&role, &n): (&Role, &u32)| (1..=n).map(move |seat| AgentId { role, seat });
        let wanted: BTreeSet<AgentId> =
            of_system.into_iter().chain(size.iter().flat_map(of_team)).collect();
        let leaving: Vec<AgentId> =
            self.agents.keys().filter(|id| !wanted.contains(id)).copied().collect();
        for agent in leaving {
            self.retired(agent, at);
        }
        for agent in wanted {
            self.joined(agent, Permanence::Permanent, at);
        }
    }

    /// Fact: the agent is online. One that is there already stays, whatever it is doing.
    pub fn joined(&mut self, agent: AgentId, permanence: Permanence, at: Timestamp) {
        self.change(agent, |known| {
            if !known.online {
                known.since = at;
            }
            known.permanence = permanence;
            known.online = true;
            known.draining = false;
        });
    }

    /// Fact: the agent works on a task.
    pub fn took(&mut self, agent: AgentId, task: TaskId, fence: Fence, at: Timestamp) {
        self.change(agent, |known| {
            known.online = true;
            known.activity = Activity::Busy { task, fence };
            known.last_heartbeat = Some(at);
            known.since = at;
        });
    }

    /// Fact: the agent has nothing to do any more. One that drains is offline with that.
    pub fn finished(&mut self, agent: AgentId, at: Timestamp) {
        self.change(agent, |known| {
            known.activity = Activity::Idle;
            known.since = at;
            known.online &= !known.draining;
            known.draining = false;
        });
    }

    /// Fact: the agent was heard.
    pub fn heard(&mut self, agent: AgentId, at: Timestamp) {
        self.change(agent, |known| known.last_heartbeat = Some(at));
    }

    /// Fact: the agent is to leave. Idle, it leaves at once; at work, it finishes first (WRK-26).
    pub fn retired(&mut self, agent: AgentId, at: Timestamp) {
        self.change(agent, |known| match known.activity {
            Activity::Idle if known.online => {
                known.online = false;
                known.since = at;
            }
            Activity::Idle => {}
            Activity::Busy { .. } => known.draining = true,
        });
    }

    /// Fact: the agent's work has cost this much.
    pub fn charged(&mut self, agent: AgentId, usd: Usd) {
        self.change(agent, |known| known.spent += usd);
    }

    /// Every change passes here, so the indexes are right afterwards.
    fn change(&mut self, id: AgentId, change: impl FnOnce(&mut Agent)) {
        let agent = self.agents.entry(id).or_default();
        let was_busy = agent.fence().is_some();
        change(agent);
        let is_busy = agent.fence().is_some();
        self.busy = self.busy + u32::from(is_busy) - u32::from(was_busy);
        let seats = self.idle.entry(id.role).or_default();
        if agent.takes_work() {
            seats.insert(id.seat);
        } else {
            seats.remove(&id.seat);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MINUTE_MS;

    const DEV: AgentId = AgentId { role: Role::Developer, seat: 2 };

    fn at(minutes: u64) -> Timestamp {
        Timestamp(minutes * MINUTE_MS)
    }

    fn developers(seats: u32) -> Registry {
        let mut registry = Registry::default();
        registry.configured(&BTreeMap::from([(Role::Developer, seats)]), 2, at(0));
        registry
    }

    fn idle(registry: &Registry) -> Vec<u32> {
        registry.idle_of(Role::Developer).into_iter().flatten().copied().collect()
    }

    /// WRK-03.
    #[test]
    fn four_permanent_agents_are_there_with_the_team() {
        let registry = developers(2);
        let of_system = |id: AgentId| PERMANENT_ROLES.contains(&id.role);
        let system: Vec<&Agent> =
            registry.all().filter(|(id, _)| of_system(*id)).map(|(_, agent)| agent).collect();
        assert!(system.iter().all(|agent| agent.permanence == Permanence::Permanent));
        assert_eq!((system.len(), registry.team().count()), (4, 2));
    }

    #[test]
    fn presence_follows_what_the_agent_does() {
        let mut registry = developers(2);
        let shown = |registry: &Registry| {
            let agent = registry.get(DEV).unwrap();
            (agent.presence(), agent.current_task().map(|task| task.0), registry.busy())
        };
        assert_eq!(shown(&registry), (Presence::Idle, None, 0));
        registry.took(DEV, TaskId(7), Fence(1), at(1));
        assert_eq!(shown(&registry), (Presence::Active, Some(7), 1));
        assert_eq!(idle(&registry), [1]);
        registry.finished(DEV, at(3));
        assert_eq!(shown(&registry), (Presence::Idle, None, 0));
        registry.retired(DEV, at(4));
        assert_eq!(shown(&registry), (Presence::Offline, None, 0));
        assert_eq!(idle(&registry), [1]);
    }

    /// WRK-26: nobody loses a task because a queue ran empty or the team shrank.
    #[test]
    fn an_agent_that_leaves_finishes_its_task_first() {
        let mut registry = developers(2);
        registry.took(DEV, TaskId(7), Fence(1), at(1));
        registry.configured(&BTreeMap::from([(Role::Developer, 1)]), 2, at(2));
        let agent = registry.get(DEV).unwrap();
        assert_eq!((agent.presence(), agent.stays()), (Presence::Active, false));
        registry.finished(DEV, at(3));
        assert_eq!(registry.get(DEV).map(Agent::presence), Some(Presence::Offline));
        registry.joined(DEV, Permanence::Extra, at(4));
        assert_eq!(idle(&registry), [1, 2]);
    }

    #[test]
    fn a_configured_team_sends_extra_agents_away() {
        let size = BTreeMap::from([(Role::Developer, 1)]);
        let mut registry = developers(1);
        registry.joined(DEV, Permanence::Extra, at(1));
        assert!(!registry.is_configured(&size, 2));
        registry.configured(&size, 2, at(2));
        assert!(registry.is_configured(&size, 2));
        assert_eq!(idle(&registry), [1]);
    }
}
