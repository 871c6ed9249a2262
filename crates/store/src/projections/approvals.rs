//! What waits for people's word. Most questions end without an event of their own: the task moves
//! on, its mission ends, there is more to do before a delivery. The state knows, so it is asked.

use std::collections::BTreeMap;

use kapelle_core::approval::{Gate, Subject};
use kapelle_core::{Actor, Commit, Event, MissionId, Record, Seq, State, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Changes, Fold};
use crate::tables::{Of, people};
use crate::value::Value;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Approvals {
    /// What people have not answered: exactly what waits in the state.
    waiting: BTreeMap<Subject, Asked>,
    /// Deliveries that people approved, and that the target has not taken yet.
    delivering: BTreeMap<MissionId, Asked>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Asked {
    seq: Seq,
    gate: Gate,
    approved_by: Vec<Actor>,
    approved_at: Option<Timestamp>,
}

/// How a question stands.
#[derive(Debug, Clone, Copy)]
struct Standing<'a> {
    status: &'static str,
    /// None: whoever approved last.
    by: Option<&'a Actor>,
    reason: Option<&'a str>,
    ended_at: Option<Timestamp>,
}

fn open(status: &'static str) -> Standing<'static> {
    Standing { status, by: None, reason: None, ended_at: None }
}

fn ended(status: &'static str, at: Timestamp) -> Standing<'static> {
    Standing { ended_at: Some(at), ..open(status) }
}

impl Fold {
    /// The arms of `tell` about what people are asked to approve, and what they say.
    pub(super) fn tell_of_approvals(&mut self, record: &Record, changes: &mut Changes) {
        let at = record.at;
        match &record.event {
            Event::ApprovalAsked { gate } => self.approvals.ask(record.seq, gate, at, changes),
            Event::ApprovalGiven { subject, commit, by } => {
                self.approvals.approve(*subject, commit, by, at, changes);
            }
            Event::ApprovalRejected { subject, reason, by, .. } => {
                self.approvals.reject(*subject, reason, by, at, changes);
            }
            Event::DeliveryApproved { mission, by, .. } => {
                self.approvals.approve_delivery(*mission, by, at, changes);
            }
            Event::DeliveryRefused { mission, reason, .. } => {
                let refused = Standing { reason: Some(reason), ..ended("refused", at) };
                self.approvals.end_delivery(*mission, refused, changes);
            }
            _ => {}
        }
    }

    /// What the state asks or no longer asks since the record. The state is the one after it.
    pub(super) fn settle_approvals(&mut self, record: &Record, changes: &mut Changes) {
        // A delivery is asked about with its proposal, and again when the target refused it.
        if let Event::DeliveryProposed { mission, .. } | Event::DeliveryRefused { mission, .. } =
            &record.event
            && let Some(gate) = self.state.approvals().gate(Subject::Delivery(*mission))
        {
            self.approvals.ask(record.seq, gate, record.at, changes);
        }
        self.approvals.settle(&self.state, record, changes);
    }
}

impl Approvals {
    /// One about a new commit takes the place of the old one, with all that was said.
    fn ask(&mut self, seq: Seq, gate: &Gate, at: Timestamp, changes: &mut Changes) {
        let (approved_by, approved_at) = (Vec::new(), None);
        let asked = Asked { seq, gate: gate.clone(), approved_by, approved_at };
        asked.write(open("waiting"), changes);
        if let Some(old) = self.waiting.insert(gate.subject, asked) {
            old.write(ended("gone", at), changes);
        }
    }

    fn approve(
        &mut self,
        subject: Subject,
        commit: &Commit,
        by: &Actor,
        at: Timestamp,
        changes: &mut Changes,
    ) {
        let Some(asked) = self.waiting.get_mut(&subject) else { return };
        if asked.gate.commit != *commit || asked.approved_by.contains(by) {
            return;
        }
        asked.approved_by.push(by.clone());
        if asked.approved_by.len() < asked.gate.people.max(1) as usize {
            return asked.write(open("waiting"), changes);
        }
        asked.approved_at = Some(at);
        asked.write(ended("approved", at), changes);
        self.waiting.remove(&subject);
    }

    fn reject(
        &mut self,
        subject: Subject,
        reason: &str,
        by: &Actor,
        at: Timestamp,
        changes: &mut Changes,
    ) {
        if let Some(asked) = self.waiting.remove(&subject) {
            let (by, reason) = (Some(by), Some(reason));
            asked.write(Standing { by, reason, ..ended("rejected", at) }, changes);
        }
    }

    /// The last word that a delivery needs. What becomes of it then is for the target to say.
    fn approve_delivery(
        &mut self,
        mission: MissionId,
        by: &Actor,
        at: Timestamp,
        changes: &mut Changes,
    ) {
        let Some(mut asked) = self.waiting.remove(&Subject::Delivery(mission)) else { return };
        asked.approved_by.push(by.clone());
        asked.approved_at = Some(at);
        asked.write(open("approved"), changes);
        self.delivering.insert(mission, asked);
    }

    fn end_delivery(&mut self, mission: MissionId, how: Standing<'_>, changes: &mut Changes) {
        if let Some(asked) = self.delivering.remove(&mission) {
            asked.write(how, changes);
        }
    }

    pub(super) fn delivered(&mut self, mission: MissionId, at: Timestamp, changes: &mut Changes) {
        self.end_delivery(mission, ended("delivered", at), changes);
    }

    /// What still waits for people ends with the mission by itself (`settle`).
    pub(super) fn cancelled(&mut self, mission: MissionId, at: Timestamp, changes: &mut Changes) {
        self.end_delivery(mission, ended("gone", at), changes);
    }

    fn settle(&mut self, state: &State, record: &Record, changes: &mut Changes) {
        if self.waiting.len() == state.approvals().waiting_count() {
            return;
        }
        let standing = match &record.event {
            Event::Overridden { order, .. } => {
                let (by, reason) = (Some(&order.by), Some(&*order.reason));
                Standing { by, reason, ..ended("passed", record.at) }
            }
            _ => ended("gone", record.at),
        };
        let is_over = |subject: &Subject, _: &mut Asked| !state.approvals().is_open(*subject);
        for (_, asked) in self.waiting.extract_if(.., is_over) {
            asked.write(standing, changes);
        }
    }
}

impl Asked {
    fn write(&self, standing: Standing<'_>, changes: &mut Changes) {
        let Gate { subject, mission, commit, people, assessed, opened_at, .. } = &self.gate;
        let by = standing.by.or(self.approved_by.last());
        let row = [
            self.seq.0.into(),
            mission.to_string().into(),
            task_of(*subject).map(|task| task.0).into(),
            Value::name(people::subject(subject)),
            commit.as_str().into(),
            assessed.as_ref().map(|assessed| Value::name(people::risk(&assessed.risk))).into(),
            (*people).max(1).into(),
            (self.approved_by.len() as u64).into(),
            Value::name(standing.status),
            by.map(|by| &by.0).into(),
            standing.reason.into(),
            (*opened_at).into(),
            self.approved_at.into(),
            standing.ended_at.into(),
        ];
        changes.put(Of::Approvals, row);
    }
}

fn task_of(subject: Subject) -> Option<TaskId> {
    match subject {
        Subject::Plan(_) | Subject::Delivery(_) => None,
        Subject::Start(task)
        | Subject::Merge(task)
        | Subject::External(task)
        | Subject::Rollback(task) => Some(task),
    }
}
