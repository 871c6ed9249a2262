//! Taking back what landed: who may be taken back, and what falls with it.
//!
//! The reversal is a change like any other: it goes through the merge queue, is tested there, and
//! lands only if what stays still passes without what went (GIT-18).

use std::collections::BTreeSet;

use super::State;
use super::decide::Decision;
use super::people::{person, said};
use crate::approval::Subject;
use crate::event::Event;
use crate::ids::{Actor, TaskId};
use crate::limits;
use crate::mission::{Mission, MissionStage};
use crate::refusal::Refusal;
use crate::rollback::{Revert, RollbackRefused};
use crate::task::{Stage, Task};

impl State {
    pub(super) fn rollback(&self, id: TaskId, reason: &str, by: &Actor) -> Decision {
        let mission = self.reversible_mission(id, reason, by)?;
        let landings = &mission.merging.landings;
        let reverts = match self.landed_wave(mission, id) {
            Some((task, wave)) => self.whole_wave(mission, task, wave)?,
            None => vec![landings.rollback(id)?],
        };
        Ok(self.start_rollback(mission, id, &reverts, (reason, by))?)
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
        for revert in &cascade.reverts {
            if let Some((task, wave)) = self.landed_wave(mission, revert.task) {
                self.has_ended(task, wave)?;
            }
        }
        Ok(self.start_rollback(mission, id, &cascade.reverts, (reason, by))?)
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
        reverts: &[Revert],
        (reason, by): (&str, &Actor),
    ) -> Result<Vec<Event>, RollbackRefused> {
        let tasks: Vec<TaskId> = reverts.iter().map(|revert| revert.task).collect();
        let mut under_way = mission.merging.rollbacks.values().flatten();
        if let Some(twice) = under_way.find(|one| tasks.contains(one)) {
            let task = self.task(*twice).map_or("?", Task::name).to_owned();
            return Err(RollbackRefused::UnderWay { task });
        }
        let blocked = self.block_dependents(&tasks)?;
        let (mission, reason, by) = (mission.id, reason.to_owned(), by.clone());
        let mut events = vec![Event::RollbackStarted { mission, task, tasks, reason, by }];
        events.extend(blocked);
        Ok(events)
    }

    /// What needs these tasks and has not begun must not begin; what has begun stops a rollback.
    fn block_dependents(&self, tasks: &[TaskId]) -> Result<Vec<Event>, RollbackRefused> {
        let mut events = Vec::new();
        for &on in tasks {
            let needing = self.dependents_of(on);
            let open: Vec<&Task> = needing.into_iter().filter(|t| !tasks.contains(&t.id)).collect();
            let count = open.iter().filter(|task| has_begun(task)).count();
            if count > 0 {
                let task = self.task(on).map_or("?", Task::name).to_owned();
                return Err(RollbackRefused::InWork { task, count });
            }
            let waiting = open.iter().filter(|t| is_before_work(t));
            let fresh: Vec<TaskId> = waiting
                .map(|task| task.id)
                .filter(|id| !events.iter().any(|event| blocks(event, *id)))
                .collect();
            events.extend(fresh.into_iter().map(|task| Event::TaskBlocked { task, on }));
        }
        Ok(events)
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
    ) -> Vec<Event> {
        let reason = limits::tail(message, limits::REASON_CHARS_MAX).to_owned();
        let mut events = vec![Event::RollbackFailed { task, reason }];
        let tasks = mission.merging.rollbacks.get(&task).map_or(&[][..], Vec::as_slice);
        events.extend(self.unblock(tasks.iter().map(|task| (*task, None)).collect()));
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
