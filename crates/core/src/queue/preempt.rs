//! Preemption: a running attempt gives way to a more urgent task, at its next step boundary.
//!
//! The attempt is asked, never cut off: it yields when a step is finished and committed, so no
//! finished step is lost. An attempt that has just begun is left alone, and a task is asked only
//! so often, so that nothing is chased in circles.
//!
//! Invariant: at most one attempt is asked to yield for one waiting task.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::policy::{Preemption, QueuePolicy};
use super::score::Points;
use crate::ids::{Fence, Role, TaskId};
use crate::plan::Priority;
use crate::time::Timestamp;

/// An attempt at work, or a task that would like to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runner {
    pub task: TaskId,
    pub role: Role,
    pub priority: Priority,
    /// Without ageing: a task must not be chased out for having waited less.
    pub score: Points,
}

/// The attempt `fence` is to stop at its next step boundary, for `for_task`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Yield {
    pub fence: Fence,
    pub task: TaskId,
    pub for_task: TaskId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoPreemption {
    #[error("preemption is off")]
    Off,
    #[error("only CRITICAL tasks preempt")]
    NotCritical,
    #[error("an attempt was already asked to make room")]
    AlreadyAsked,
    #[error("nothing less urgent is running")]
    NothingLesser,
    #[error("what is running has only just begun")]
    JustBegun,
    #[error("what is running has given way often enough")]
    PreemptedEnough,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Runners {
    running: BTreeMap<Fence, Running>,
    /// The least urgent first.
    by_urgency: BTreeMap<Role, BTreeSet<(Priority, Points, Fence)>>,
    asked_for: BTreeMap<TaskId, Fence>,
    preempted: BTreeMap<TaskId, u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Running {
    runner: Runner,
    began_at: Timestamp,
    yields_to: Option<TaskId>,
}

impl Runners {
    /// How many attempts are at work.
    #[must_use]
    pub fn len(&self) -> u32 {
        u32::try_from(self.running.len()).unwrap_or(u32::MAX)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// How many of them are of this role.
    #[must_use]
    pub fn of(&self, role: Role) -> u32 {
        let of_role = self.by_urgency.get(&role).map_or(0, BTreeSet::len);
        u32::try_from(of_role).unwrap_or(u32::MAX)
    }

    /// Which attempt should give way to `waiting`. Ask only when no seat is free.
    pub fn preempt(
        &self,
        policy: &QueuePolicy,
        waiting: Runner,
        now: Timestamp,
    ) -> Result<Yield, NoPreemption> {
        match policy.preemption {
            Preemption::Off => return Err(NoPreemption::Off),
            Preemption::Critical if waiting.priority != Priority::Critical => {
                return Err(NoPreemption::NotCritical);
            }
            Preemption::Critical | Preemption::All => {}
        }
        if self.asked_for.contains_key(&waiting.task) {
            return Err(NoPreemption::AlreadyAsked);
        }
        let mut obstacle = NoPreemption::NothingLesser;
        // At most as many as there are seats.
        for (_, _, fence) in self.by_urgency.get(&waiting.role).into_iter().flatten() {
            let Some(running) = self.running.get(fence) else { continue };
            if running.yields_to.is_some() || !outranks(policy, waiting, running.runner) {
                continue;
            }
            let task = running.runner.task;
            if now.ms_since(running.began_at) < policy.preempt_after_ms {
                obstacle = NoPreemption::JustBegun;
            } else if self.preempted.get(&task).is_some_and(|n| *n >= policy.preempted_max) {
                obstacle = NoPreemption::PreemptedEnough;
            } else {
                return Ok(Yield { fence: *fence, task, for_task: waiting.task });
            }
        }
        Err(obstacle)
    }

    /// For whom the attempt has to stop now that a step of it is finished.
    #[must_use]
    pub fn yields_to(&self, fence: Fence) -> Option<TaskId> {
        self.running.get(&fence)?.yields_to
    }

    /// When an attempt that is too young to yield no longer is; the next time to look.
    #[must_use]
    pub fn ripe_at(&self, policy: &QueuePolicy, role: Role) -> Option<Timestamp> {
        let of_role = self.by_urgency.get(&role)?;
        let began = of_role.iter().filter_map(|(_, _, fence)| self.running.get(fence));
        began.map(|running| running.began_at.plus_ms(policy.preempt_after_ms)).min()
    }

    /// Fact: an attempt began.
    pub fn began(&mut self, fence: Fence, runner: Runner, at: Timestamp) {
        // Its own wish for room is fulfilled; the one that was asked may go on.
        if let Some(asked) = self.asked_for.remove(&runner.task)
            && let Some(running) = self.running.get_mut(&asked)
        {
            running.yields_to = None;
        }
        let key = (runner.priority, runner.score, fence);
        self.by_urgency.entry(runner.role).or_default().insert(key);
        self.running.insert(fence, Running { runner, began_at: at, yields_to: None });
    }

    /// Fact: the attempt was asked to yield.
    pub fn asked(&mut self, ask: Yield) {
        if let Some(running) = self.running.get_mut(&ask.fence) {
            running.yields_to = Some(ask.for_task);
            self.asked_for.insert(ask.for_task, ask.fence);
        }
    }

    /// Fact: the waiting task no longer waits (cancelled, blocked), so nobody need make room.
    pub fn withdrawn(&mut self, for_task: TaskId) {
        if let Some(fence) = self.asked_for.remove(&for_task)
            && let Some(running) = self.running.get_mut(&fence)
        {
            running.yields_to = None;
        }
    }

    /// Fact: the attempt stopped at a step boundary because it was asked to.
    pub fn yielded(&mut self, fence: Fence) {
        if let Some(running) = self.remove(fence) {
            let count = self.preempted.entry(running.runner.task).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// Fact: the attempt ended for any other reason.
    pub fn ended(&mut self, fence: Fence) {
        self.remove(fence);
    }

    /// Fact: the task is over; it will not run again.
    pub fn settled(&mut self, task: TaskId) {
        self.preempted.remove(&task);
        self.withdrawn(task);
    }

    fn remove(&mut self, fence: Fence) -> Option<Running> {
        let running = self.running.remove(&fence)?;
        let key = (running.runner.priority, running.runner.score, fence);
        if let Some(of_role) = self.by_urgency.get_mut(&running.runner.role) {
            of_role.remove(&key);
        }
        if let Some(for_task) = running.yields_to {
            self.asked_for.remove(&for_task);
        }
        Some(running)
    }
}

fn outranks(policy: &QueuePolicy, waiting: Runner, running: Runner) -> bool {
    let by_priority =
        waiting.priority == Priority::Critical && running.priority < Priority::Critical;
    let margin = Points::whole(i64::from(policy.preempt_margin_points)).as_tenths();
    let by_score = waiting.score.as_tenths() - running.score.as_tenths() >= margin
        && waiting.priority >= running.priority;
    match policy.preemption {
        Preemption::Off => false,
        Preemption::Critical => by_priority,
        Preemption::All => by_priority || by_score,
    }
}
