//! Taking back what landed: who may be taken back, and what falls with it.
//!
//! The reversal is a change like any other: it goes through the merge queue, is tested there, and
//! lands only if what stays still passes without what went (GIT-18).

use std::collections::BTreeSet;

use super::State;
use super::decide::Decision;
use super::people::{person, said};
use crate::approval::Subject;
use crate::event::{Event, Interruption};
use crate::ids::{Actor, TaskId};
use crate::limits;
use crate::mission::{Mission, MissionStage};
use crate::refusal::Refusal;
use crate::rollback::{Revert, RollbackRefused};
use crate::task::{Stage, Task};
use crate::time::Timestamp;

/// What becomes of dependents that are at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtWork {
    /// Nobody said that they may be stopped.
    Refuses,
    /// A person confirmed that all that hangs on it falls (QUE-10).
    Stops,
}

impl State {
    pub(super) fn rollback(&self, id: TaskId, reason: &str, by: &Actor) -> Decision {
        let mission = self.reversible_mission(id, reason, by)?;
        let landings = &mission.merging.landings;
        let reverts = match self.landed_wave(mission, id) {
            Some((task, wave)) => self.whole_wave(mission, task, wave)?,
            None => vec![landings.rollback(id)?],
        };
        Ok(self.start_rollback(mission, id, (&reverts, AtWork::Refuses), (reason, by))?)
    }

    pub(super) fn confirm_rollback(
        &self,
        id: TaskId,
        seen: &[TaskId],
        reason: &str,
        by: &Actor,
    ) -> Decision {
        // More than the task itself falls: at no level is that for Kapelle to decide (GIT-15).
        person(by)?;
        let mission = self.reversible_mission(id, reason, by)?;
        let cascade = mission.merging.landings.confirmed(id, seen)?;
        let falls = |on: TaskId| self.dependents_of(on).into_iter().map(|task| task.id);
        let stopped: BTreeSet<TaskId> =
            cascade.reverts.iter().flat_map(|revert| falls(revert.task)).collect();
        for revert in &cascade.reverts {
            if let Some((task, wave)) = self.landed_wave(mission, revert.task) {
                self.has_ended(task, wave, &stopped)?;
            }
        }
        Ok(self.start_rollback(mission, id, (&cascade.reverts, AtWork::Stops), (reason, by))?)
    }

    fn reversible_mission(
        &self,
        id: TaskId,
        reason: &str,
        by: &Actor,
    ) -> Result<&Mission, Refusal> {
        let (_, mission) = self.task_or_refuse(id)?;
        self.open_mission_or_refuse(mission.id)?;
        said("the reason", reason, limits::REASON_CHARS_MAX)?;
        self.directs(by)?;
        match mission.stage {
            MissionStage::Approved { .. } => Err(Refusal::Delivering { mission: mission.id }),
            _ => Ok(mission),
        }
    }

    pub(super) fn start_rollback(
        &self,
        mission: &Mission,
        task: TaskId,
        (reverts, at_work): (&[Revert], AtWork),
        (reason, by): (&str, &Actor),
    ) -> Result<Vec<Event>, RollbackRefused> {
        let tasks: Vec<TaskId> = reverts.iter().map(|revert| revert.task).collect();
        let mut under_way = mission.merging.rollbacks.values().flatten();
        if let Some(twice) = under_way.find(|one| tasks.contains(one)) {
            let task = self.task(*twice).map_or("?", Task::name).to_owned();
            return Err(RollbackRefused::UnderWay { task });
        }
        let blocked = self.block_dependents(&tasks, at_work)?;
        let (mission, reason, by) = (mission.id, reason.to_owned(), by.clone());
        let mut events = vec![Event::RollbackStarted { mission, task, tasks, reason, by }];
        events.extend(blocked);
        Ok(events)
    }

    /// What needs these tasks and has not begun must not begin; what has begun is stopped, or stops
    /// the rollback. What it left so far is set aside once its need is really gone (`take_back`).
    fn block_dependents(
        &self,
        tasks: &[TaskId],
        at_work: AtWork,
    ) -> Result<Vec<Event>, RollbackRefused> {
        let mut events = Vec::new();
        for &on in tasks {
            let needing = self.dependents_of(on);
            let open: Vec<&Task> = needing.into_iter().filter(|t| !tasks.contains(&t.id)).collect();
            self.may_stop(on, &open, at_work)?;
            for dependent in open {
                let is_blocked = events.iter().any(|event| blocks(event, dependent.id));
                if is_blocked || !(has_begun(dependent) || is_before_work(dependent)) {
                    continue;
                }
                let cause = Interruption::NeedTakenBack { need: on };
                events.extend(self.withdraw(dependent, cause));
                events.push(Event::TaskBlocked { task: dependent.id, on });
            }
        }
        Ok(events)
    }

    /// Whether those of `open` that are at work may be stopped for a rollback of `on`.
    fn may_stop(&self, on: TaskId, open: &[&Task], at_work: AtWork) -> Result<(), RollbackRefused> {
        let task = || self.task(on).map_or("?", Task::name).to_owned();
        let count = open.iter().filter(|task| has_begun(task)).count();
        match at_work {
            AtWork::Refuses if count > 0 => Err(RollbackRefused::InWork { task: task(), count }),
            AtWork::Refuses => Ok(()),
            // Its candidate may be on the branch before anybody can say stop.
            AtWork::Stops => match open.iter().find(|task| has_landed_or_will(task)) {
                None => Ok(()),
                Some(dependent) => {
                    let dependent = dependent.name().to_owned();
                    Err(RollbackRefused::Landing { task: task(), dependent })
                }
            },
        }
    }

    /// All that need a task, directly or not.
    fn dependents_of(&self, id: TaskId) -> Vec<&Task> {
        let mut seen = BTreeSet::from([id]);
        let mut open = self.task(id).map(|task| task.dependents.clone()).unwrap_or_default();
        let mut found = Vec::new();
        while let Some(next) = open.pop() {
            let Some(dependent) = self.task(next).filter(|_| seen.insert(next)) else { continue };
            if is_by_hand(dependent) {
                continue;
            }
            open.extend(&dependent.dependents);
            found.push(dependent);
        }
        found
    }

    /// The rollback is off: everything stays as it is, and what it held up goes on.
    pub(super) fn rollback_failed(
        &self,
        mission: &Mission,
        task: TaskId,
        message: &str,
        now: Timestamp,
    ) -> Vec<Event> {
        let reason = limits::tail(message, limits::REASON_CHARS_MAX).to_owned();
        let mut events = vec![Event::RollbackFailed { task, reason }];
        let tasks = mission.merging.rollbacks.get(&task).map_or(&[][..], Vec::as_slice);
        events.extend(self.unblock(tasks.iter().map(|task| (*task, None)).collect(), now));
        let last = mission.merging.rollbacks.len() == 1;
        if let (true, true, Some(tip)) = (last, mission.is_complete(&mission.counts), &mission.tip)
        {
            events.push(Event::DeliveryProposed { mission: mission.id, commit: tip.clone() });
        }
        events
    }
}

/// A person called it done: nothing of it stands on anything, and nothing stands on it.
fn is_by_hand(task: &Task) -> bool {
    task.stage == Stage::Done && task.merged.is_none()
}

fn is_before_work(task: &Task) -> bool {
    let start = Subject::Start(task.id);
    matches!(task.stage, Stage::Waiting | Stage::Ready)
        || matches!(task.stage, Stage::Approval { subject } if subject == start)
}

fn has_landed_or_will(task: &Task) -> bool {
    match task.stage {
        Stage::Merging { checked, .. } => checked,
        Stage::Done => !is_by_hand(task),
        _ => false,
    }
}

/// Whether there is work on it that stands on what it needs.
fn has_begun(task: &Task) -> bool {
    match task.stage {
        Stage::Waiting | Stage::Ready => task.accepted.is_some() || task.unfinished.is_some(),
        Stage::Blocked { .. } | Stage::RolledBack | Stage::DeadLetter => false,
        Stage::Working { .. }
        | Stage::Gating { .. }
        | Stage::Queued
        | Stage::Merging { .. }
        | Stage::Failed { .. }
        | Stage::Backoff { .. }
        | Stage::Deliberating { .. }
        | Stage::Review { .. }
        | Stage::Asking { .. } => true,
        Stage::Approval { subject: Subject::Start(_) } => false,
        Stage::Approval { .. } => true,
        Stage::Done => !is_by_hand(task),
    }
}

fn blocks(event: &Event, id: TaskId) -> bool {
    matches!(event, Event::TaskBlocked { task, .. } if *task == id)
}
