//! Whether an override is carried out: reason, right, and for high risk a second person.
//!
//! Invariant: an override passes a gate only with the right to do so, and the gate of the
//! protected branch never.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::gate::Subject;
use super::orders::{Order, OverrideAction, Situation};
use super::people::{People, PeopleRefused, Right};
use super::policy::ApprovalPolicy;
use crate::flow::Phase;
use crate::ids::{Actor, AgentId, TaskId};
use crate::limits;
use crate::plan::Risk;
use crate::status::Status;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum OverrideDecision {
    /// It takes effect now, and everybody is told.
    Effective { order: Order, seconded_by: Option<Actor> },
    /// It is kept until a second person says the same.
    NeedsSecond { order: Order, expires_at: Timestamp },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingOverride {
    pub order: Order,
    pub expires_at: Timestamp,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Overrides {
    pending: BTreeMap<TaskId, PendingOverride>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OverrideRefused {
    #[error("an override needs a reason")]
    NoReason,
    #[error("the reason is longer than {max} characters")]
    ReasonTooLong { max: usize },
    #[error(transparent)]
    People(#[from] PeopleRefused),
    #[error("the task is {0}; there is nothing to override")]
    Ended(Status),
    #[error("the phase {0} is not in the flow of this mission")]
    NoSuchStep(Phase),
    #[error("the phase {0} is behind it already")]
    StepDone(Phase),
    #[error("the phase {0} is still before it")]
    StepAhead(Phase),
    #[error("{} does not have the task", .0)]
    NotWith(AgentId),
    #[error("{to} is not a {} as {from} is", from.role)]
    OtherRole { from: AgentId, to: AgentId },
    #[error("{0} needs an approval; no override passes it")]
    Protected(Subject),
    #[error("{by} ordered this; it takes somebody else")]
    SamePerson { by: Actor },
    #[error("no override of this task waits for a second person")]
    NothingPending,
}

impl Overrides {
    #[must_use]
    pub fn pending(&self, task: TaskId) -> Option<&PendingOverride> {
        self.pending.get(&task)
    }

    pub fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.pending.keys().copied()
    }

    /// What follows from an order on a task in this situation.
    pub fn order(
        &self,
        policy: &ApprovalPolicy,
        people: &People,
        order: &Order,
        situation: &Situation<'_>,
        now: Timestamp,
    ) -> Result<OverrideDecision, OverrideRefused> {
        let reason = order.reason.trim();
        if reason.is_empty() {
            return Err(OverrideRefused::NoReason);
        }
        let max = limits::REASON_CHARS_MAX;
        if limits::head(reason, max).len() < reason.len() {
            return Err(OverrideRefused::ReasonTooLong { max });
        }
        let high = permitted(people, &order.by, &order.action, situation)?;
        possible(&order.action, situation)?;
        let order = order.clone();
        Ok(if high && policy.high_risk_people > 1 {
            let expires_at = now.plus_ms(policy.second_person_ms_max);
            OverrideDecision::NeedsSecond { order, expires_at }
        } else {
            OverrideDecision::Effective { order, seconded_by: None }
        })
    }

    /// A second person says the same. The task may have changed since, so all is asked again.
    pub fn second(
        &self,
        people: &People,
        task: TaskId,
        by: &Actor,
        situation: &Situation<'_>,
        now: Timestamp,
    ) -> Result<OverrideDecision, OverrideRefused> {
        let pending = self.pending.get(&task).filter(|pending| now < pending.expires_at);
        let order = &pending.ok_or(OverrideRefused::NothingPending)?.order;
        if order.by == *by {
            return Err(OverrideRefused::SamePerson { by: by.clone() });
        }
        permitted(people, by, &order.action, situation)?;
        possible(&order.action, situation)?;
        let (order, seconded_by) = (order.clone(), Some(by.clone()));
        Ok(OverrideDecision::Effective { order, seconded_by })
    }

    /// The first person's order waits; a newer one takes its place.
    pub fn proposed(&mut self, order: Order, expires_at: Timestamp) {
        self.pending.insert(order.task, PendingOverride { order, expires_at });
    }

    /// It took effect, was withdrawn, or ran out.
    pub fn settled(&mut self, task: TaskId) {
        self.pending.remove(&task);
    }
}

/// Whether the person may; and whether it is of high risk.
fn permitted(
    people: &People,
    by: &Actor,
    action: &OverrideAction,
    situation: &Situation<'_>,
) -> Result<bool, OverrideRefused> {
    people.require(by, Right::Override)?;
    let passed = situation.gate.filter(|_| action.passes_gates());
    match passed {
        Some(gate @ Subject::Delivery(_)) => return Err(OverrideRefused::Protected(gate)),
        Some(_) => people.require(by, Right::BypassGate)?,
        None => {}
    }
    Ok(passed.is_some() || (situation.risk == Risk::High && action.passes_gates()))
}

/// Whether the task can be brought there from where it is.
fn possible(action: &OverrideAction, situation: &Situation<'_>) -> Result<(), OverrideRefused> {
    // What gave up can still be called done: a person did it by hand.
    let by_hand =
        *action == OverrideAction::ForceComplete && situation.status == Status::DeadLetter;
    if situation.status.is_final() && !by_hand {
        return Err(OverrideRefused::Ended(situation.status));
    }
    let place = |step: Phase| {
        let found = situation.flow.iter().position(|phase| *phase == step);
        found.ok_or(OverrideRefused::NoSuchStep(step))
    };
    match *action {
        OverrideAction::ForceComplete => Ok(()),
        OverrideAction::SkipStep { step } if place(step)? < situation.phase => {
            Err(OverrideRefused::StepDone(step))
        }
        OverrideAction::Reset { step } if place(step)? > situation.phase => {
            Err(OverrideRefused::StepAhead(step))
        }
        OverrideAction::SkipStep { .. } | OverrideAction::Reset { .. } => Ok(()),
        OverrideAction::Reassign { from, .. } if situation.agent != Some(from) => {
            Err(OverrideRefused::NotWith(from))
        }
        OverrideAction::Reassign { from, to } if from.role != to.role => {
            Err(OverrideRefused::OtherRole { from, to })
        }
        OverrideAction::Reassign { .. } => Ok(()),
    }
}
