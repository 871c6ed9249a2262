//! What agents ask people.

use std::collections::BTreeMap;

use kapelle_core::report::Question;
use kapelle_core::{Actor, Fence, MissionId, Seq, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use super::Changes;
use crate::tables::Of;

/// Questions that wait for an answer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Open {
    questions: BTreeMap<Seq, Asked>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Asked {
    mission: MissionId,
    task: TaskId,
    fence: Fence,
    question: Question,
    at: Timestamp,
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

    /// The task goes on without an answer.
    pub(super) fn withdraw(&mut self, task: TaskId, at: Timestamp, changes: &mut Changes) {
        self.drop_those(|asked| asked.task == task, at, changes);
    }

    pub(super) fn cancel(&mut self, mission: MissionId, at: Timestamp, changes: &mut Changes) {
        self.drop_those(|asked| asked.mission == mission, at, changes);
    }

    fn drop_those(&mut self, ends: impl Fn(&Asked) -> bool, at: Timestamp, changes: &mut Changes) {
        for (seq, asked) in take(&mut self.questions, ends) {
            asked.write(seq, "cancelled", None, Some(at), changes);
        }
    }
}

fn take(open: &mut BTreeMap<Seq, Asked>, ends: impl Fn(&Asked) -> bool) -> BTreeMap<Seq, Asked> {
    open.extract_if(.., |_, asked| ends(asked)).collect()
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
