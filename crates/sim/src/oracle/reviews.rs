//! Invariants of reviews: a change is not merged while its reviewers think, nor when they said no,
//! unless a person said yes.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_core::approval::Subject;
use kapelle_core::council::{CouncilId, Question, Verdict as Ruling};
use kapelle_core::event::Restart;
use kapelle_core::{Commit, Event, TaskId};

use super::{Verdict, ensure};

#[derive(Debug, Default)]
pub(super) struct Reviews {
    /// What the last attempt at a task left, or its phases.
    current: BTreeMap<TaskId, Commit>,
    sitting: BTreeMap<CouncilId, (TaskId, Commit)>,
    /// Changes that their reviewers did not let pass.
    stopped: BTreeSet<TaskId>,
    /// Changes that a person wants to be merged.
    wanted: BTreeSet<TaskId>,
}

impl Reviews {
    pub(super) fn observe(&mut self, event: &Event) -> Verdict {
        match event {
            Event::AttemptFinished { task, change, .. }
            | Event::PhaseAccepted { task, change, .. } => {
                let before = self.current.insert(*task, change.clone());
                // What was said about another change is not said about this one.
                if before.as_ref() != Some(change) {
                    self.renew(*task);
                }
            }
            Event::ChangeRebased { task, change, .. } => {
                self.renew(*task);
                self.current.insert(*task, change.clone());
            }
            Event::RetryScheduled { task, from: Restart::Flow, .. }
            | Event::TaskRequeued { task, .. } => {
                self.renew(*task);
                self.current.remove(task);
            }
            Event::TaskMerged { task, .. } => {
                self.renew(*task);
                self.current.remove(task);
            }
            Event::Overridden { order, .. } => self.renew(order.task),
            Event::CouncilConvened { council, task, convocation, .. } => {
                if let Question::Review { commit } = &convocation.question {
                    self.sitting.insert(*council, (*task, commit.clone()));
                }
            }
            Event::CouncilDecided { council, verdict: Ruling::Accepted { .. }, .. } => {
                self.sitting.remove(council);
            }
            Event::CouncilDecided { council, .. } | Event::CouncilAbandoned { council, .. } => {
                let reviewed = self.sitting.remove(council);
                let current = reviewed.filter(|(task, of)| self.current.get(task) == Some(of));
                self.stopped.extend(current.map(|(task, _)| task));
            }
            Event::ApprovalRejected { subject: Subject::Merge(task), commit, .. }
                if self.current.get(task) == Some(commit) =>
            {
                self.wanted.remove(task);
                self.stopped.insert(*task);
            }
            Event::ApprovalGiven { subject: Subject::Merge(task), .. } => {
                self.stopped.remove(task);
                self.wanted.insert(*task);
            }
            Event::LaneFormed { members, .. } => {
                return members.iter().try_for_each(|task| self.judge(*task));
            }
            _ => {}
        }
        Ok(())
    }

    fn renew(&mut self, task: TaskId) {
        self.stopped.remove(&task);
        self.wanted.remove(&task);
    }

    fn judge(&self, task: TaskId) -> Verdict {
        let under = |of: &(TaskId, Commit)| of.0 == task && self.current.get(&task) == Some(&of.1);
        let open = self.sitting.values().any(under) && !self.wanted.contains(&task);
        ensure(!open, || format!("{task:?} is merged while its reviewers think"))?;
        let stopped = self.stopped.contains(&task) && !self.wanted.contains(&task);
        ensure(!stopped, || format!("{task:?} is merged although its reviewers did not agree"))
    }
}
