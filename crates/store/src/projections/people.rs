//! What people are asked: questions of agents, and deliveries that want an approval.

use std::collections::BTreeMap;

use kapelle_core::report::Question;
use kapelle_core::{Actor, Commit, Fence, MissionId, Seq, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use super::Changes;
use crate::tables::Of;

/// What waits for a person, or for the target branch after a person approved.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Open {
    questions: BTreeMap<Seq, Asked>,
    approvals: BTreeMap<Seq, Proposed>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Asked {
    mission: MissionId,
    task: TaskId,
    fence: Fence,
    question: Question,
    at: Timestamp,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Proposed {
    mission: MissionId,
    commit: Commit,
    at: Timestamp,
    approved: Option<(Actor, Timestamp)>,
}

impl Open {
    pub(super) fn ask(
        &mut self,
        (seq, at): (Seq, Timestamp),
        (mission, task, fence): (MissionId, TaskId, Fence),
        question: &Question,
        changes: &mut Changes,
    ) {
        let asked = Asked { mission, task, fence, question: question.clone(), at };
        asked.write(seq, "open", None, None, changes);
        self.questions.insert(seq, asked);
    }

    pub(super) fn answer(
        &mut self,
        task: TaskId,
        (input, by): (&str, &Actor),
        at: Timestamp,
        changes: &mut Changes,
    ) {
        for (seq, asked) in take(&mut self.questions, |asked| asked.task == task) {
            asked.write(seq, "answered", Some((input, by)), Some(at), changes);
        }
    }

    pub(super) fn propose(
        &mut self,
        (seq, at): (Seq, Timestamp),
        mission: MissionId,
        commit: &Commit,
        changes: &mut Changes,
    ) {
        let proposed = Proposed { mission, commit: commit.clone(), at, approved: None };
        proposed.write(seq, "pending", None, None, changes);
        self.approvals.insert(seq, proposed);
    }

    pub(super) fn approve(
        &mut self,
        mission: MissionId,
        by: &Actor,
        at: Timestamp,
        changes: &mut Changes,
    ) {
        let waiting =
            |proposed: &&mut Proposed| proposed.mission == mission && proposed.approved.is_none();
        let seqs = self.approvals.iter_mut();
        for (seq, proposed) in seqs.filter_map(|(seq, p)| Some((seq, Some(p).filter(waiting)?))) {
            proposed.approved = Some((by.clone(), at));
            proposed.write(*seq, "approved", None, None, changes);
        }
    }

    /// What was approved was delivered, or refused by the target.
    pub(super) fn deliver(
        &mut self,
        mission: MissionId,
        refused: Option<&str>,
        at: Timestamp,
        changes: &mut Changes,
    ) {
        let status = if refused.is_some() { "refused" } else { "delivered" };
        let approved = |p: &Proposed| p.mission == mission && p.approved.is_some();
        for (seq, proposed) in take(&mut self.approvals, approved) {
            proposed.write(seq, status, refused, Some(at), changes);
        }
    }

    /// What was proposed no longer stands.
    pub(super) fn recall(&mut self, mission: MissionId, at: Timestamp, changes: &mut Changes) {
        let pending = |p: &Proposed| p.mission == mission && p.approved.is_none();
        for (seq, proposed) in take(&mut self.approvals, pending) {
            proposed.write(seq, "cancelled", None, Some(at), changes);
        }
    }

    pub(super) fn cancel(&mut self, mission: MissionId, at: Timestamp, changes: &mut Changes) {
        for (seq, asked) in take(&mut self.questions, |asked| asked.mission == mission) {
            asked.write(seq, "cancelled", None, Some(at), changes);
        }
        for (seq, proposed) in take(&mut self.approvals, |p| p.mission == mission) {
            proposed.write(seq, "cancelled", None, Some(at), changes);
        }
    }
}

fn take<T>(open: &mut BTreeMap<Seq, T>, ends: impl Fn(&T) -> bool) -> BTreeMap<Seq, T> {
    open.extract_if(.., |_, row| ends(row)).collect()
}

impl Asked {
    fn write(
        &self,
        seq: Seq,
        status: &str,
        answer: Option<(&str, &Actor)>,
        ended_at: Option<Timestamp>,
        changes: &mut Changes,
    ) {
        let row = [
            seq.0.into(),
            self.mission.to_string().into(),
            self.task.0.into(),
            self.fence.0.into(),
            (&self.question.resume_id).into(),
            (&self.question.message).into(),
            serde_json::json!(self.question.options).to_string().into(),
            status.into(),
            answer.map(|(input, _)| input).into(),
            answer.map(|(_, by)| &by.0).into(),
            self.at.into(),
            ended_at.into(),
        ];
        changes.put(Of::Checkpoints, row);
    }
}

impl Proposed {
    fn write(
        &self,
        seq: Seq,
        status: &str,
        refused: Option<&str>,
        ended_at: Option<Timestamp>,
        changes: &mut Changes,
    ) {
        let approved = self.approved.as_ref();
        let row = [
            seq.0.into(),
            self.mission.to_string().into(),
            self.commit.as_str().into(),
            status.into(),
            approved.map(|(by, _)| &by.0).into(),
            refused.into(),
            self.at.into(),
            approved.map(|(_, at)| *at).into(),
            ended_at.into(),
        ];
        changes.put(Of::Approvals, row);
    }
}
