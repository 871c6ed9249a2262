//! Preemption: a running attempt gives way to a more urgent task, at its next step boundary.
//!
//! An attempt is never cut off: it gives way when an operation or a step is finished and the tree with
//! it is kept, so no finished step is lost. An attempt that has just begun is left alone, and a task gives way only
//! so often, so that nothing is chased in circles.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::policy::{Preemption, QueuePolicy};
use super::score::Points;
use crate::ids::Role;
use crate::plan::Priority;

/// How urgent a task is to whoever decides between two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Urgency {
    pub priority: Priority,
    /// Without ageing: a task must not be chased out for having waited less.
    pub score: Points,
}

/// An attempt that could give way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Running {
    pub urgency: Urgency,
    pub ran_ms: u64,
    /// How often its task has given way before.
    pub gave_way: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoPreemption {
    #[error("preemption is off")]
    Off,
    #[error("only CRITICAL tasks preempt")]
    NotCritical,
    #[error("what is running is not less urgent")]
    NotLesser,
    #[error("what is running has only just begun")]
    JustBegun,
    #[error("what is running has given way often enough")]
    GaveWayEnough,
}

impl QueuePolicy {
    /// Whether an attempt gives way to a task that waits. Ask only when no seat is free.
    pub fn preempt(&self, waiting: Urgency, running: Running) -> Result<(), NoPreemption> {
        match self.preemption {
            Preemption::Off => return Err(NoPreemption::Off),
            Preemption::Critical if waiting.priority != Priority::Critical => {
                return Err(NoPreemption::NotCritical);
            }
            Preemption::Critical | Preemption::All => {}
        }
        if !self.outranks(waiting, running.urgency) {
            Err(NoPreemption::NotLesser)
        } else if running.ran_ms < self.preempt_after_ms {
            Err(NoPreemption::JustBegun)
        } else if running.gave_way >= self.preempted_max {
            Err(NoPreemption::GaveWayEnough)
        } else {
            Ok(())
        }
    }

    fn outranks(&self, waiting: Urgency, running: Urgency) -> bool {
        let by_priority =
            waiting.priority == Priority::Critical && running.priority < Priority::Critical;
        let margin = Points::whole(i64::from(self.preempt_margin_points)).as_tenths();
        let by_score = waiting.score.as_tenths() - running.score.as_tenths() >= margin
            && waiting.priority >= running.priority;
        by_priority || (self.preemption == Preemption::All && by_score)
    }
}

/// How many attempts are at work, by role.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Runners {
    of: BTreeMap<Role, u32>,
    all: u32,
}

impl Runners {
    #[must_use]
    pub fn len(&self) -> u32 {
        self.all
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all == 0
    }

    #[must_use]
    pub fn of(&self, role: Role) -> u32 {
        self.of.get(&role).copied().unwrap_or(0)
    }

    /// Fact: an attempt began.
    pub fn began(&mut self, role: Role) {
        *self.of.entry(role).or_default() += 1;
        self.all += 1;
    }

    /// Fact: an attempt ended.
    pub fn ended(&mut self, role: Role) {
        if let Some(running) = self.of.get_mut(&role).filter(|running| **running > 0) {
            *running -= 1;
            self.all -= 1;
        }
    }
}
