//! The registry of agents: who is there, what each is doing, and who has fallen silent.
//!
//! Four permanent agents are there as long as the system is; the others come and go. What an agent
//! does is recorded, never guessed: silence alone changes nothing until someone records it.
//!
//! Invariant: an agent that is busy has a task, and only an agent that is online has one.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, Role, TaskId};
use crate::limits;
use crate::time::Timestamp;

mod consult;
mod hardware;
mod heartbeat;
mod presets;

pub use consult::{Consultation, TooDeep};
pub use hardware::{Disk, Fit, Hardware, Profile, Shortfall};
pub use heartbeat::{HeartbeatPolicy, InvalidHeartbeat, Pulse, WorkKind};
pub use presets::TeamPreset;

/// The roles that start with the system (WRK-03). They are woken by events and cost nothing idle.
pub const PERMANENT_ROLES: [Role; 4] =
    [Role::Orchestrator, Role::Router, Role::Merger, Role::Librarian];

/// What a team board shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Activity {
    Idle,
    Busy {
        task: TaskId,
    },
    /// It cannot go on; why, in words.
    Blocked {
        task: Option<TaskId>,
        reason: String,
    },
}

impl Activity {
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Activity::Idle => "idle",
            Activity::Busy { .. } => "busy",
            Activity::Blocked { .. } => "blocked",
        }
    }
}

/// What the registry shows; follows from the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    Active,
    Idle,
    Offline,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permanence {
    /// Never scaled down.
    Permanent,
    Extra,
}

/// Whether a person is at the agent's terminal. Then silence is thinking, not death.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attendance {
    #[default]
    Alone,
    Interactive,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    pub permanence: Permanence,
    pub attendance: Attendance,
    pub online: bool,
    /// It takes no new work and leaves when its task ends.
    pub draining: bool,
    pub activity: Activity,
    pub last_heartbeat: Option<Timestamp>,
    /// When its activity began.
    pub since: Timestamp,
}

impl Agent {
    #[must_use]
    pub fn presence(&self) -> Presence {
        match (self.online, &self.activity) {
            (false, _) => Presence::Offline,
            (true, Activity::Idle) => Presence::Idle,
            (true, Activity::Busy { .. } | Activity::Blocked { .. }) => Presence::Active,
        }
    }

    #[must_use]
    pub fn current_task(&self) -> Option<TaskId> {
        match &self.activity {
            Activity::Idle => None,
            Activity::Busy { task } => Some(*task),
            Activity::Blocked { task, .. } => *task,
        }
    }

    #[must_use]
    pub fn takes_work(&self) -> bool {
        self.online && !self.draining && self.activity == Activity::Idle
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Registry {
    agents: BTreeMap<AgentId, Agent>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentRefusal {
    #[error("there is no agent {0}")]
    Unknown(AgentId),
    #[error("{0} is offline")]
    Offline(AgentId),
    #[error("{agent} is at work on task number {}", task.0)]
    Busy { agent: AgentId, task: TaskId },
    #[error("{0} is blocked: {1}")]
    Blocked(AgentId, String),
    #[error("{0} is permanent and stays")]
    Permanent(AgentId),
    #[error("{0} is leaving and takes no more work")]
    Draining(AgentId),
    #[error("a role has at most {} seats", limits::SEATS_PER_ROLE_MAX)]
    TooManySeats,
}

/// What the start of the system reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Startup {
    pub permanent: u32,
}

impl fmt::Display for Startup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} permanent agents running", self.permanent)
    }
}

impl Registry {
    /// A registry with its permanent agents, online.
    #[must_use]
    pub fn started(at: Timestamp) -> Registry {
        let mut registry = Registry::default();
        for role in PERMANENT_ROLES {
            let agent = AgentId { role, seat: 1 };
            registry.joined(agent, Permanence::Permanent, at);
        }
        registry
    }

    #[must_use]
    pub fn startup(&self) -> Startup {
        let stays = |agent: &&Agent| agent.online && agent.permanence == Permanence::Permanent;
        let count = self.agents.values().filter(stays).count();
        Startup { permanent: u32::try_from(count).unwrap_or(u32::MAX) }
    }

    #[must_use]
    pub fn get(&self, agent: AgentId) -> Option<&Agent> {
        self.agents.get(&agent)
    }

    pub fn all(&self) -> impl Iterator<Item = (AgentId, &Agent)> {
        self.agents.iter().map(|(id, agent)| (*id, agent))
    }

    /// The agents of a role; never more than its seats.
    pub fn of(&self, role: Role) -> impl Iterator<Item = (AgentId, &Agent)> + Clone {
        let seats = AgentId { role, seat: 0 }..=AgentId { role, seat: u32::MAX };
        self.agents.range(seats).map(|(id, agent)| (*id, agent))
    }

    /// Whether the agent may be given a task.
    pub fn check_take(&self, agent: AgentId) -> Result<(), AgentRefusal> {
        let known = self.agents.get(&agent).ok_or(AgentRefusal::Unknown(agent))?;
        match &known.activity {
            _ if !known.online => Err(AgentRefusal::Offline(agent)),
            Activity::Busy { task } => Err(AgentRefusal::Busy { agent, task: *task }),
            Activity::Blocked { reason, .. } => Err(AgentRefusal::Blocked(agent, reason.clone())),
            Activity::Idle if known.draining => Err(AgentRefusal::Draining(agent)),
            Activity::Idle => Ok(()),
        }
    }

    /// Whether the agent may be sent away. One that is at work drains first.
    pub fn check_retire(&self, agent: AgentId) -> Result<(), AgentRefusal> {
        let known = self.agents.get(&agent).ok_or(AgentRefusal::Unknown(agent))?;
        match known.permanence {
            Permanence::Permanent => Err(AgentRefusal::Permanent(agent)),
            Permanence::Extra if !known.online => Err(AgentRefusal::Offline(agent)),
            Permanence::Extra => Ok(()),
        }
    }

    pub fn check_join(&self, agent: AgentId) -> Result<(), AgentRefusal> {
        match agent.seat {
            1..=limits::SEATS_PER_ROLE_MAX => Ok(()),
            _ => Err(AgentRefusal::TooManySeats),
        }
    }

    /// How the agent seems, judged by its silence. A beat of any kind counts, progress included.
    #[must_use]
    pub fn pulse(
        &self,
        policy: &HeartbeatPolicy,
        agent: AgentId,
        kind: WorkKind,
        now: Timestamp,
    ) -> Pulse {
        let Some(known) = self.agents.get(&agent).filter(|a| a.current_task().is_some()) else {
            return Pulse::Alive;
        };
        let heard = known.last_heartbeat.map_or(known.since, |beat| beat.max(known.since));
        policy.pulse(kind, known.attendance, heard, now)
    }

    /// Fact: the agent is online and idle.
    pub fn joined(&mut self, agent: AgentId, permanence: Permanence, at: Timestamp) {
        self.agents.insert(
            agent,
            Agent {
                permanence,
                attendance: Attendance::Alone,
                online: true,
                draining: false,
                activity: Activity::Idle,
                last_heartbeat: None,
                since: at,
            },
        );
    }

    /// Fact: the agent works on a task.
    pub fn took(&mut self, agent: AgentId, task: TaskId, at: Timestamp) {
        self.set(agent, Activity::Busy { task }, at);
    }

    /// Fact: the agent cannot go on, and why; it keeps its task.
    pub fn blocked(&mut self, agent: AgentId, reason: &str, at: Timestamp) {
        let task = self.get(agent).and_then(Agent::current_task);
        let reason = limits::head(reason, limits::REASON_CHARS_MAX).to_owned();
        self.set(agent, Activity::Blocked { task, reason }, at);
    }

    /// Fact: the agent has nothing to do any more. One that drains is offline with that.
    pub fn finished(&mut self, agent: AgentId, at: Timestamp) {
        self.set(agent, Activity::Idle, at);
        if let Some(known) = self.agents.get_mut(&agent).filter(|known| known.draining) {
            known.online = false;
            known.draining = false;
        }
    }

    /// Fact: the agent was heard.
    pub fn heard(&mut self, agent: AgentId, at: Timestamp) {
        if let Some(known) = self.agents.get_mut(&agent) {
            known.last_heartbeat = known.last_heartbeat.max(Some(at));
        }
    }

    /// Fact: a person came to the agent's terminal, or left it.
    pub fn attended(&mut self, agent: AgentId, attendance: Attendance) {
        if let Some(known) = self.agents.get_mut(&agent) {
            known.attendance = attendance;
        }
    }

    /// Fact: the agent is to leave. Idle, it leaves at once; at work, it finishes first (WRK-26).
    pub fn retired(&mut self, agent: AgentId, at: Timestamp) {
        let Some(known) = self.agents.get_mut(&agent) else { return };
        match known.activity {
            Activity::Idle => {
                known.online = false;
                known.since = at;
            }
            Activity::Busy { .. } | Activity::Blocked { .. } => known.draining = true,
        }
    }

    /// Fact: the agent's process or host is gone, and its task with it.
    pub fn lost(&mut self, agent: AgentId, at: Timestamp) {
        self.set(agent, Activity::Idle, at);
        if let Some(known) = self.agents.get_mut(&agent) {
            known.online = false;
            known.draining = false;
        }
    }

    fn set(&mut self, agent: AgentId, activity: Activity, at: Timestamp) {
        if let Some(known) = self.agents.get_mut(&agent) {
            known.activity = activity;
            known.since = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MINUTE_MS;

    const DEV: AgentId = AgentId { role: Role::Developer, seat: 2 };
    const MERGER: AgentId = AgentId { role: Role::Merger, seat: 1 };

    fn at(minutes: u64) -> Timestamp {
        Timestamp(minutes * MINUTE_MS)
    }

    fn registry() -> Registry {
        let mut registry = Registry::started(at(0));
        registry.joined(DEV, Permanence::Extra, at(0));
        registry
    }

    /// WRK-03, and the sentence that start-up prints.
    #[test]
    fn four_permanent_agents_start_with_the_system() {
        let registry = registry();
        assert_eq!(registry.startup().to_string(), "4 permanent agents running");
        assert_eq!(registry.check_retire(MERGER), Err(AgentRefusal::Permanent(MERGER)));
        assert_eq!(registry.check_retire(DEV), Ok(()));
    }

    #[test]
    fn status_and_presence_follow_what_the_agent_does() {
        let mut registry = registry();
        let shown = |registry: &Registry| {
            let agent = registry.get(DEV).unwrap();
            (agent.activity.name(), agent.presence(), agent.current_task().map(|task| task.0))
        };
        assert_eq!(shown(&registry), ("idle", Presence::Idle, None));
        registry.took(DEV, TaskId(7), at(1));
        assert_eq!(shown(&registry), ("busy", Presence::Active, Some(7)));
        registry.blocked(DEV, "rate limit", at(2));
        assert_eq!(shown(&registry), ("blocked", Presence::Active, Some(7)));
        registry.finished(DEV, at(3));
        assert_eq!(shown(&registry), ("idle", Presence::Idle, None));
        registry.lost(DEV, at(4));
        assert_eq!(shown(&registry), ("idle", Presence::Offline, None));
    }

    #[test]
    fn work_goes_only_to_who_can_take_it() {
        let mut registry = registry();
        let nobody = AgentId { role: Role::Judge, seat: 1 };
        assert_eq!(registry.check_take(nobody), Err(AgentRefusal::Unknown(nobody)));
        assert_eq!(registry.check_take(DEV), Ok(()));
        registry.took(DEV, TaskId(7), at(1));
        let busy = AgentRefusal::Busy { agent: DEV, task: TaskId(7) };
        assert_eq!(registry.check_take(DEV), Err(busy));
        registry.blocked(DEV, "rate limit", at(2));
        let blocked = registry.check_take(DEV).unwrap_err().to_string();
        assert_eq!(blocked, "developer-2 is blocked: rate limit");
        registry.lost(DEV, at(3));
        assert_eq!(registry.check_take(DEV), Err(AgentRefusal::Offline(DEV)));
        assert_eq!(registry.check_retire(DEV), Err(AgentRefusal::Offline(DEV)));
        let far = AgentId { role: Role::Developer, seat: 65 };
        assert_eq!(registry.check_join(far), Err(AgentRefusal::TooManySeats));
        assert_eq!(registry.check_join(DEV), Ok(()));
    }

    /// WRK-26: nobody loses a task because a queue ran empty.
    #[test]
    fn an_agent_that_retires_finishes_its_task() {
        let mut registry = registry();
        registry.took(DEV, TaskId(7), at(1));
        registry.retired(DEV, at(2));
        let agent = registry.get(DEV).unwrap();
        assert_eq!((agent.presence(), agent.takes_work()), (Presence::Active, false));
        registry.finished(DEV, at(3));
        assert_eq!(registry.get(DEV).map(Agent::presence), Some(Presence::Offline));
        registry.joined(DEV, Permanence::Extra, at(4));
        assert!(registry.get(DEV).unwrap().takes_work());
        registry.retired(DEV, at(5));
        assert_eq!(registry.get(DEV).map(Agent::presence), Some(Presence::Offline));
    }

    #[test]
    fn a_draining_agent_that_is_idle_takes_nothing() {
        let mut registry = registry();
        registry.agents.get_mut(&DEV).unwrap().draining = true;
        assert_eq!(registry.check_take(DEV), Err(AgentRefusal::Draining(DEV)));
    }

    /// WRK-20: slow is not dead. Each beat starts the window anew, whatever has passed in total.
    #[test]
    fn a_slow_agent_that_is_heard_is_alive() {
        let policy = HeartbeatPolicy::default();
        let mut registry = registry();
        let pulse =
            |registry: &Registry, now| registry.pulse(&policy, DEV, WorkKind::Implementation, now);
        assert_eq!(pulse(&registry, at(500)), Pulse::Alive, "idle agents need not speak");
        registry.heard(DEV, at(100));
        registry.took(DEV, TaskId(7), at(500));
        assert_eq!(pulse(&registry, at(501)), Pulse::Alive);
        for beat in [510, 520, 530, 540] {
            registry.heard(DEV, at(beat));
        }
        assert_eq!(pulse(&registry, at(545)), Pulse::Alive);
        assert!(matches!(pulse(&registry, at(560)), Pulse::Lost { .. }));
        registry.heard(DEV, at(100));
        assert!(matches!(pulse(&registry, at(560)), Pulse::Lost { .. }), "late beats are old");
        registry.attended(DEV, Attendance::Interactive);
        assert_eq!(pulse(&registry, at(560)), Pulse::Alive, "a person is typing");
    }
}
