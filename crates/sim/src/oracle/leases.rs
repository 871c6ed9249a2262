//! Invariants of what is in flight: fences, leases, seats and how long they may last.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_core::event::{Chore, Interruption};
use kapelle_core::failure::FailureKind;
use kapelle_core::{AgentId, Command, Event, Fence, MissionId, Record, TaskId, Timestamp};

use super::{Facts, Verdict, ensure};

/// An agent that prints nothing for longer than this is spoken of.
const IDLE_MS: u64 = 300_000;

#[derive(Debug, Default)]
pub(super) struct Leases {
    attempts: BTreeMap<Fence, Held>,
    chores: BTreeMap<Fence, (MissionId, Chore)>,
    last_fence: Fence,
}

#[derive(Debug)]
struct Held {
    task: TaskId,
    mission: MissionId,
    agent: AgentId,
    granted_at: Timestamp,
    /// When its host last said that it is alive.
    heard_at: Option<Timestamp>,
    ttl_ms: u64,
    timeout_ms: u64,
    /// People were told that it prints nothing.
    idle: bool,
}

impl Held {
    fn silent_until(&self) -> Timestamp {
        self.heard_at.unwrap_or(self.granted_at).plus_ms(self.ttl_ms)
    }
}

impl Leases {
    pub(super) fn is_live(&self, fence: Fence) -> bool {
        self.attempts.contains_key(&fence) || self.chores.contains_key(&fence)
    }

    pub(super) fn attempts(&self) -> impl Iterator<Item = Fence> {
        self.attempts.keys().copied()
    }

    pub(super) fn fences(&self) -> impl Iterator<Item = Fence> {
        self.attempts.keys().chain(self.chores.keys()).copied()
    }

    pub(super) fn of_mission(&self, id: MissionId) -> impl Iterator<Item = Fence> {
        let attempts = self.attempts.iter().filter(move |(_, held)| held.mission == id);
        let chores = self.chores.iter().filter(move |(_, (mission, _))| *mission == id);
        attempts.map(|(fence, _)| *fence).chain(chores.map(|(fence, _)| *fence))
    }

    /// Those that have something in flight.
    pub(super) fn missions(&self) -> BTreeSet<MissionId> {
        let attempts = self.attempts.values().map(|held| held.mission);
        attempts.chain(self.chores.values().map(|(mission, _)| *mission)).collect()
    }

    pub(super) fn count(&self) -> usize {
        self.attempts.len()
    }

    pub(super) fn task(&self, fence: Fence) -> Option<TaskId> {
        self.attempts.get(&fence).map(|held| held.task)
    }

    pub(super) fn is_at_work(&self, agent: AgentId) -> bool {
        self.attempts.values().any(|held| held.agent == agent)
    }

    pub(super) fn observe(&mut self, record: &Record, facts: &Facts) -> Verdict {
        match &record.event {
            Event::LeaseGranted { .. } => self.grant(record, facts),
            Event::ChoreStarted { mission, fence, chore } => {
                self.give(*fence)?;
                let twin = self.chores.values().find(|live| **live == (*mission, *chore));
                ensure(twin.is_none(), || format!("{chore:?} is in flight twice"))?;
                self.chores.insert(*fence, (*mission, *chore));
                Ok(())
            }
            Event::LeaseRenewed { fence, .. } => ensure(self.attempts.contains_key(fence), || {
                format!("an event about fence {fence}, which is no live lease")
            }),
            Event::AttemptIdle { fence, silent_ms, .. } => {
                let Some(held) = self.attempts.get_mut(fence) else {
                    return Err(format!("fence {fence} is silent, which is no live lease"));
                };
                let told = std::mem::replace(&mut held.idle, true);
                let since = record.at.ms_since(held.granted_at);
                ensure(!told && (IDLE_MS..=since).contains(silent_ms), || {
                    format!("attempt {fence} is called silent for {silent_ms} of {since} ms")
                })
            }
            Event::AttemptHeard { fence, .. } => {
                let idle = self.attempts.get_mut(fence).map(|held| std::mem::take(&mut held.idle));
                ensure(idle == Some(true), || format!("attempt {fence} was not called silent"))
            }
            Event::CheckNoted { fence, .. } => ensure(self.chores.contains_key(fence), || {
                format!("a check of fence {fence} is spoken of, which runs none")
            }),
            Event::AttemptFinished { fence, task, .. }
            | Event::AttemptAbandoned { fence, task, .. }
            | Event::CheckpointRaised { fence, task, .. } => self.end(*fence, *task).map(|_| ()),
            Event::AttemptFailed { fence, task, failure } => {
                let held = self.end(*fence, *task)?;
                let ran_ms = record.at.ms_since(held.granted_at);
                let early = failure.message.starts_with("the attempt did not end")
                    && failure.kind == FailureKind::Timeout
                    && ran_ms < held.timeout_ms;
                ensure(!early, || format!("attempt {fence} was timed out after {ran_ms} ms"))
            }
            Event::AttemptInterrupted { fence, task, cause } => {
                let held = self.end(*fence, *task)?;
                // A heartbeat counts only once the lease is half over, so half is sure.
                let safe_until = match held.heard_at {
                    Some(heard) => heard.plus_ms(held.ttl_ms / 2),
                    None => held.silent_until(),
                };
                let early = *cause == Interruption::LeaseExpired && record.at < safe_until;
                ensure(!early, || format!("lease {fence} expired although its host reported"))
            }
            Event::ChoreFailed { fence, .. }
            | Event::ChoreWithdrawn { fence }
            | Event::BranchPrepared { fence, .. }
            | Event::ChecksFinished { fence, .. }
            | Event::LaneBuilt { fence, .. }
            | Event::LaneTested { fence, .. }
            | Event::LaneLanded { fence, .. }
            | Event::ChangeConflicted { fence, .. }
            | Event::ChangeRebased { fence, .. }
            | Event::TargetMoved { fence, .. }
            | Event::BaselineMeasured { fence, .. }
            | Event::RevertBuilt { fence, .. }
            | Event::DeliveryRefused { fence, .. } => self.end_chore(*fence),
            Event::MissionDelivered { fence, mission, .. } => {
                self.end_chore(*fence)?;
                self.end_mission(*mission);
                Ok(())
            }
            Event::MissionCancelled { mission, .. } => {
                self.end_mission(*mission);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn grant(&mut self, record: &Record, facts: &Facts) -> Verdict {
        let Event::LeaseGranted { task, fence, agent, phase, .. } = &record.event else {
            return Ok(());
        };
        self.give(*fence)?;
        for (other, held) in &self.attempts {
            ensure(held.task != *task, || format!("{task:?} has the leases {other} and {fence}"))?;
            ensure(held.agent != *agent, || format!("{agent} has the leases {other} and {fence}"))?;
        }
        let mission = facts.task(*task)?.mission;
        let policy = &facts.mission(mission)?.policy;
        let held = Held {
            task: *task,
            mission,
            agent: *agent,
            granted_at: record.at,
            heard_at: None,
            ttl_ms: policy.silence_ms(facts.task(*task)?.kind, *phase),
            timeout_ms: policy.time_ms(agent.role, facts.task(*task)?.kind, *phase),
            idle: false,
        };
        self.attempts.insert(*fence, held);
        Ok(())
    }

    fn give(&mut self, fence: Fence) -> Verdict {
        ensure(fence > self.last_fence, || format!("fence {fence} was given before"))?;
        self.last_fence = fence;
        Ok(())
    }

    fn end(&mut self, fence: Fence, task: TaskId) -> Result<Held, String> {
        match self.attempts.remove(&fence) {
            Some(held) if held.task == task => Ok(held),
            _ => Err(format!("fence {fence} ends an attempt on {task:?} that does not exist")),
        }
    }

    fn end_chore(&mut self, fence: Fence) -> Verdict {
        let ended = self.chores.remove(&fence);
        ensure(ended.is_some(), || format!("fence {fence} ends a chore that is not in flight"))
    }

    fn end_mission(&mut self, id: MissionId) {
        self.attempts.retain(|_, held| held.mission != id);
        self.chores.retain(|_, (mission, _)| *mission != id);
    }

    /// After a batch: nobody holds a lease longer than silence or time allow.
    pub(super) fn close(&self, now: Timestamp) -> Verdict {
        for (fence, held) in &self.attempts {
            ensure(now < held.silent_until(), || format!("lease {fence} outlived its silence"))?;
            let deadline = held.granted_at.plus_ms(held.timeout_ms);
            ensure(now < deadline, || format!("attempt {fence} outlived its time"))?;
        }
        Ok(())
    }

    /// The heartbeats of a batch count for what is still alive after it.
    pub(super) fn hear(&mut self, inputs: &[Command], now: Timestamp) {
        for command in inputs {
            let Command::Heartbeat { fences } = command else { continue };
            for fence in fences {
                if let Some(held) = self.attempts.get_mut(fence) {
                    held.heard_at = Some(now);
                }
            }
        }
    }
}
