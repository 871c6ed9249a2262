//! Attempts and the agents who make them. The state forgets an attempt when it ends; its row has
//! to be written once more then.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_core::event::Interruption;
use kapelle_core::failure::Failure;
use kapelle_core::flow::Phase;
use kapelle_core::limits::BILLS_AWAITED_MAX;
use kapelle_core::{AgentId, Commit, Event, Fence, MissionId, State, TaskId, Timestamp, Usd};
use serde::{Deserialize, Serialize};

use super::Changes;
use crate::tables::Of;
use crate::value::Value;

/// The attempts that run, and those that have ended but may still be billed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Open {
    running: BTreeMap<Fence, Attempt>,
    unbilled: BTreeMap<Fence, Ended>,
    /// Ended by the event at hand: whether a bill is awaited is known once it is applied.
    #[serde(skip)]
    just_ended: Vec<Fence>,
    /// The newest attempt of each task, whether or not it has ended.
    last: BTreeMap<TaskId, Fence>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Attempt {
    mission: MissionId,
    task: TaskId,
    agent: AgentId,
    phase: Phase,
    base: Commit,
    reserved: Usd,
    cost_micros: u64,
    started_at: Timestamp,
    expires_at: Timestamp,
    deadline: Timestamp,
}

/// An attempt with its end, as its row needs it once more.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Ended {
    attempt: Attempt,
    status: String,
    change: Option<Commit>,
    failure: Option<Failure>,
    interruption: Option<Interruption>,
    at: Option<Timestamp>,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ending<'a> {
    pub status: &'a str,
    pub change: Option<&'a Commit>,
    pub failure: Option<&'a Failure>,
    pub interruption: Option<Interruption>,
    pub at: Option<Timestamp>,
}

const RUNNING: Ending<'_> =
    Ending { status: "running", change: None, failure: None, interruption: None, at: None };

impl Open {
    pub(super) fn last_of(&self, task: TaskId) -> Option<Fence> {
        self.last.get(&task).copied()
    }

    pub(super) fn begin(&mut self, mission: MissionId, event: &Event, changes: &mut Changes) {
        let Event::LeaseGranted { task, fence, agent, phase, base, reserved, .. } = event else {
            return;
        };
        let Event::LeaseGranted { granted_at, expires_at, deadline, .. } = event else { return };
        let attempt = Attempt {
            mission,
            task: *task,
            agent: *agent,
            phase: *phase,
            base: base.clone(),
            reserved: *reserved,
            cost_micros: 0,
            started_at: *granted_at,
            expires_at: *expires_at,
            deadline: *deadline,
        };
        write(*fence, &attempt, RUNNING, changes);
        self.last.insert(*task, *fence);
        self.running.insert(*fence, attempt);
    }

    pub(super) fn renew(&mut self, fence: Fence, until: Timestamp, changes: &mut Changes) {
        if let Some(attempt) = self.running.get_mut(&fence) {
            attempt.expires_at = until;
            write(fence, attempt, RUNNING, changes);
        }
    }

    pub(super) fn charge(&mut self, fence: Fence, usd: Usd, changes: &mut Changes) {
        if let Some(attempt) = self.running.get_mut(&fence) {
            attempt.charge(usd);
            write(fence, attempt, RUNNING, changes);
        } else if let Some(mut ended) = self.unbilled.remove(&fence) {
            // A bill is paid once, so none comes after it.
            ended.attempt.charge(usd);
            write(fence, &ended.attempt, ended.ending(), changes);
        }
    }

    pub(super) fn end(&mut self, fence: Fence, ending: Ending<'_>, changes: &mut Changes) {
        if let Some(attempt) = self.running.remove(&fence) {
            write(fence, &attempt, ending, changes);
            self.unbilled.insert(fence, Ended::of(attempt, ending));
            self.just_ended.push(fence);
        }
    }

    /// Lets go of what cannot change any more. The state is the one after the event.
    pub(super) fn settle(&mut self, state: &State) {
        for fence in self.just_ended.drain(..) {
            if state.payer(fence).is_none() {
                self.unbilled.remove(&fence);
            }
        }
        while self.unbilled.len() > BILLS_AWAITED_MAX {
            self.unbilled.pop_first();
        }
    }

    /// A cancelled mission ends everything that was open for it, without an event for each.
    pub(super) fn cancel(&mut self, mission: MissionId, at: Timestamp, changes: &mut Changes) {
        let ending = Ending { status: "cancelled", at: Some(at), ..RUNNING };
        let of_it = self.running.iter().filter(|(_, attempt)| attempt.mission == mission);
        let fences: Vec<Fence> = of_it.map(|(fence, _)| *fence).collect();
        for fence in fences {
            self.end(fence, ending, changes);
        }
    }
}

impl Attempt {
    fn charge(&mut self, usd: Usd) {
        self.cost_micros = self.cost_micros.saturating_add(usd.as_micros());
    }
}

impl Ended {
    fn of(attempt: Attempt, ending: Ending<'_>) -> Ended {
        Ended {
            attempt,
            status: ending.status.to_owned(),
            change: ending.change.cloned(),
            failure: ending.failure.cloned(),
            interruption: ending.interruption,
            at: ending.at,
        }
    }

    fn ending(&self) -> Ending<'_> {
        Ending {
            status: &self.status,
            change: self.change.as_ref(),
            failure: self.failure.as_ref(),
            interruption: self.interruption,
            at: self.at,
        }
    }
}

fn write(fence: Fence, attempt: &Attempt, ending: Ending<'_>, changes: &mut Changes) {
    let interruption = ending.interruption.map(|cause| match cause {
        Interruption::HostRestarted => "host_restarted",
        Interruption::Stopped => "stopped",
        Interruption::LeaseExpired => "lease_expired",
        Interruption::MissionPaused => "mission_paused",
        Interruption::ProviderParked => "provider_parked",
        Interruption::GaveWay { .. } => "gave_way",
        Interruption::Overridden => "overridden",
        Interruption::WaveFell { .. } => "wave_fell",
        Interruption::NeedTakenBack { .. } => "need_taken_back",
    });
    let row = [
        fence.0.into(),
        attempt.mission.to_string().into(),
        attempt.task.0.into(),
        attempt.agent.to_string().into(),
        Value::name(attempt.phase.name()),
        ending.status.into(),
        attempt.base.as_str().into(),
        ending.change.map(Commit::as_str).into(),
        ending.failure.map(|failure| failure.kind.name()).into(),
        ending.failure.map(|failure| &failure.message).into(),
        interruption.into(),
        attempt.reserved.as_micros().into(),
        attempt.cost_micros.into(),
        attempt.started_at.into(),
        attempt.expires_at.into(),
        attempt.deadline.into(),
        ending.at.into(),
    ];
    changes.put(Of::Attempts, row);
}

/// Everybody who ever had a seat, with what it has cost. A seat that is gone has no place in the
/// state.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Agents(BTreeMap<String, (AgentId, u64)>);

impl Agents {
    pub(super) fn add(&mut self, agent: AgentId) -> &mut u64 {
        &mut self.0.entry(agent.to_string()).or_insert((agent, 0)).1
    }

    pub(super) fn write_all(&mut self, state: &State, changes: &mut Changes) {
        for (agent, _) in state.agents().team() {
            self.add(agent);
        }
        for (agent, cost) in self.0.values() {
            write_agent(*agent, *cost, state, changes);
        }
    }

    pub(super) fn write(&mut self, some: &BTreeSet<AgentId>, state: &State, changes: &mut Changes) {
        for agent in some {
            let cost = *self.add(*agent);
            write_agent(*agent, cost, state, changes);
        }
    }
}

fn write_agent(agent: AgentId, cost: u64, state: &State, changes: &mut Changes) {
    let known = state.agents().get(agent);
    let fence = known.and_then(|known| known.fence());
    let status = match (known, fence) {
        (None, _) => "retired",
        (Some(_), None) => "idle",
        (Some(_), Some(_)) => "busy",
    };
    let task = known.and_then(|known| known.current_task()).map(|task| task.0);
    let row = [
        agent.to_string().into(),
        Value::name(agent.role.name()),
        agent.seat.into(),
        Value::name(status),
        fence.map(|fence| fence.0).into(),
        task.into(),
        cost.into(),
    ];
    changes.put(Of::Agents, row);
}
