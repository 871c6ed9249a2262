//! What people ordered, and what became of it.

use std::collections::BTreeMap;

use kapelle_core::approval::{Order, OverrideAction};
use kapelle_core::task::Stage;
use kapelle_core::{Actor, Event, MissionId, Record, Seq, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Changes, Fold};
use crate::tables::{Of, people};
use crate::value::Value;

/// Orders that wait for a second person: at most one a task.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Overrides(BTreeMap<TaskId, Ordered>);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Ordered {
    seq: Seq,
    mission: MissionId,
    order: Order,
    at: Timestamp,
    expires_at: Option<Timestamp>,
}

impl Fold {
    /// The arms of `tell` about orders.
    pub(super) fn tell_of_orders(&mut self, record: &Record, changes: &mut Changes) {
        let at = record.at;
        let ordered = |mission, order: &Order, expires_at| {
            let (seq, order) = (record.seq, order.clone());
            Ordered { seq, mission, order, at, expires_at }
        };
        match &record.event {
            Event::OverrideProposed { order, expires_at } => {
                let Some(mission) = self.mission_of(order.task) else { return };
                self.overrides.lapse(order.task, at, changes);
                let ordered = ordered(mission, order, Some(*expires_at));
                ordered.write("waiting", None, None, changes);
                self.overrides.0.insert(order.task, ordered);
            }
            Event::OverrideLapsed { task } => self.overrides.lapse(*task, at, changes),
            Event::Overridden { order, seconded_by } => {
                let Some(mission) = self.mission_of(order.task) else { return };
                let new = ordered(mission, order, None);
                self.overrides.carry_out(new, seconded_by.as_ref(), changes);
            }
            _ => {}
        }
    }

    /// A task that was sent elsewhere does not wait for an answer any more. The state is the one
    /// after the record.
    pub(super) fn settle_orders(&mut self, record: &Record, changes: &mut Changes) {
        let Event::Overridden { order, .. } = &record.event else { return };
        let stage = self.state.task(order.task).map(|task| &task.stage);
        if !matches!(stage, Some(Stage::Asking { .. })) {
            self.people.withdraw(order.task, record.at, changes);
        }
    }
}

impl Overrides {
    fn lapse(&mut self, task: TaskId, at: Timestamp, changes: &mut Changes) {
        if let Some(ordered) = self.0.remove(&task) {
            ordered.write("lapsed", None, Some(at), changes);
        }
    }

    /// Either the order that waited, or another, which leaves nothing to wait for.
    fn carry_out(&mut self, new: Ordered, second: Option<&Actor>, changes: &mut Changes) {
        let (task, at) = (new.order.task, new.at);
        let is_same = |waiting: &Ordered| waiting.order == new.order;
        let done = match self.0.remove(&task) {
            Some(waiting) if is_same(&waiting) => waiting,
            Some(other) => {
                other.write("lapsed", None, Some(at), changes);
                new
            }
            None => new,
        };
        done.write("done", second, Some(at), changes);
    }

    /// Nobody has to second anything about this mission any more.
    pub(super) fn mission_ended(
        &mut self,
        mission: MissionId,
        at: Timestamp,
        changes: &mut Changes,
    ) {
        for (_, ordered) in self.0.extract_if(.., |_, ordered| ordered.mission == mission) {
            ordered.write("lapsed", None, Some(at), changes);
        }
    }
}

impl Ordered {
    fn write(
        &self,
        status: &'static str,
        second: Option<&Actor>,
        ended_at: Option<Timestamp>,
        changes: &mut Changes,
    ) {
        let (step, moved) = match &self.order.action {
            OverrideAction::SkipStep { step } | OverrideAction::Reset { step } => {
                (Some(*step), None)
            }
            OverrideAction::ForceComplete => (None, None),
            OverrideAction::Reassign { from, to } => (None, Some((from, to))),
        };
        let row = [
            self.seq.0.into(),
            self.mission.to_string().into(),
            self.order.task.0.into(),
            Value::name(people::action(&self.order.action)),
            step.map(|step| Value::name(step.name())).into(),
            moved.map(|(from, _)| from.to_string()).into(),
            moved.map(|(_, to)| to.to_string()).into(),
            (&self.order.reason).into(),
            (&self.order.by.0).into(),
            second.map(|by| &by.0).into(),
            Value::name(status),
            self.at.into(),
            self.expires_at.into(),
            ended_at.into(),
        ];
        changes.put(Of::Overrides, row);
    }
}
