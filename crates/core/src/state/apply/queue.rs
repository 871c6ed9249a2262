//! The queue's part of the fold: who waits, who works, what is behind each task.

use crate::approval::Subject;
use crate::ids::{AgentId, Fence, MissionId, TaskId};
use crate::locks::LockGrant;
use crate::plan::Priority;
use crate::queue::Ticket;
use crate::state::State;
use crate::state::schedule::Schedule;
use crate::task::{Stage, Task};

impl State {
    /// A task moved: its place in the queue follows. The new stage is already its own.
    pub(in crate::state) fn reschedule(&mut self, id: TaskId, old: &Stage) {
        let Some(task) = self.task(id) else { return };
        let (was, is) = (is_in_hand(old), is_in_hand(&task.stage));
        let (ready, open) = (matches!(task.stage, Stage::Ready), is_open(&task.stage));
        // What waits for a person's word keeps its files: nobody should have to say it twice.
        let gated = matches!(task.stage, Stage::Approval { .. } | Stage::Review { .. });
        let ended = !is && !open && !gated;
        let schedule = &mut self.schedule;
        schedule.in_hand = (schedule.in_hand + u32::from(is)).saturating_sub(u32::from(was));
        if open {
            schedule.chains.reopened(id);
        } else {
            schedule.chains.closed(id);
        }
        if matches!(old, Stage::Ready) {
            schedule.queue.left(id);
        }
        if ended {
            self.unlock(id);
        } else {
            self.keep_files(id);
        }
        if ready {
            self.enqueue(id);
        }
    }

    /// Nobody is heard of while a task is looked at, asked about or between its phases; what it has
    /// done would meet its own files again, changed by others. So it keeps them, if it has them
    /// all: who has only some could wait for another that waits for it.
    fn keep_files(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get((id.0 as usize).wrapping_sub(1)) else { return };
        let locks = &mut self.schedule.locks;
        if keeps_files(task) && locks.has_all(id, &task.files) {
            locks.kept(id);
        } else {
            locks.left_to_time(id);
        }
    }

    fn enqueue(&mut self, id: TaskId) {
        let Some(task) = self.task(id) else { return };
        let Some(mission) = self.mission(task.mission).filter(|m| !m.has_ended()) else { return };
        let Some(phase) = task.phase(&mission.policy) else { return };
        let ticket = Ticket {
            task: id,
            mission: task.mission,
            role: phase.role(),
            standing: task.standing(self.settings.queue.default_minutes),
            chain_minutes: self.schedule.chains.chain_minutes(id),
            files: task.files.clone(),
            class: self.class_of(task, phase.role()),
            promised: false,
            entered_at: self.at,
        };
        self.schedule.queue.entered(ticket, &self.schedule.locks);
    }

    /// The tasks of a plan, in its order: each after all it needs.
    pub(in crate::state) fn plan_chains(&mut self, tasks: impl Iterator<Item = TaskId>) {
        let default = self.settings.queue.default_minutes;
        let planned = tasks.filter_map(|id| self.task(id)).map(|task| {
            let minutes = task.plan.estimated_duration_minutes.unwrap_or(default);
            (task.id, minutes, task.dependencies.clone())
        });
        let planned: Vec<(TaskId, u32, Vec<TaskId>)> = planned.collect();
        self.schedule.chains.planned(&planned);
    }

    /// The mission has ended: nothing of it waits, runs or is to be done any more.
    pub(in crate::state) fn clear_queue_of(&mut self, mission: MissionId) {
        let tasks = self.mission(mission).map(|m| m.tasks.clone()).unwrap_or_default();
        for id in tasks {
            if self.task(id).is_some_and(|task| is_in_hand(&task.stage)) {
                self.schedule.in_hand = self.schedule.in_hand.saturating_sub(1);
            }
            self.schedule.queue.left(id);
            self.schedule.chains.closed(id);
            self.schedule.bound.remove(&id);
            self.schedule.suspects.remove(&id);
            self.unlock(id);
        }
    }

    pub(in crate::state) fn begin_running(&mut self, id: TaskId, fence: Fence, agent: AgentId) {
        let Some(task) = self.task(id) else { return };
        let files = task.files.clone();
        self.with_task(id, |task| task.host_failure = None);
        self.schedule.runners.began(agent.role);
        self.schedule.launches.began(fence);
        self.schedule.hands.assigned(&self.settings.queue, agent, &files);
    }

    pub(in crate::state) fn set_priority(&mut self, id: TaskId, priority: Priority) {
        self.with_task(id, |task| task.priority = priority);
        self.restand(id);
        self.note_question(id);
    }

    /// Something that the score or the class is made of has changed.
    pub(in crate::state) fn restand(&mut self, id: TaskId) {
        let Some(role) = self.schedule.queue.ticket(id).map(|ticket| ticket.role) else { return };
        let Some(task) = self.task(id) else { return };
        let standing = task.standing(self.settings.queue.default_minutes);
        let class = self.class_of(task, role);
        self.schedule.queue.restood(id, standing, class);
    }

    pub(in crate::state) fn lock(&mut self, grant: &LockGrant) {
        let Schedule { queue, locks, .. } = &mut self.schedule;
        locks.locked(grant);
        queue.locks_changed(&grant.paths, locks);
    }

    /// The task has no file to itself any more, in whichever way it came to that.
    pub(in crate::state) fn unlock(&mut self, id: TaskId) {
        let Schedule { queue, locks, .. } = &mut self.schedule;
        let freed = locks.released(id);
        queue.locks_changed(&freed, locks);
    }

    pub(in crate::state) fn reconfigure_queue(&mut self) {
        let (policy, territories) = (&self.settings.queue, &self.settings.territories);
        self.schedule.queue.reconfigured(policy.clone(), territories.clone());
        // What decides about a start follows from the rules, too.
        for id in self.schedule.queue.waiting().collect::<Vec<_>>() {
            self.restand(id);
        }
    }
}

/// Between the first agent and the end: for the serial mode, one at a time.
fn is_in_hand(stage: &Stage) -> bool {
    match stage {
        Stage::Working { .. } | Stage::Gating { .. } | Stage::Queued | Stage::Merging { .. } => {
            true
        }
        Stage::Waiting
        | Stage::Ready
        | Stage::Failed { .. }
        | Stage::Backoff { .. }
        | Stage::Deliberating { .. }
        | Stage::Asking { .. }
        | Stage::Review { .. }
        | Stage::Approval { .. }
        | Stage::Blocked { .. }
        | Stage::Done
        | Stage::RolledBack
        | Stage::DeadLetter => false,
    }
}

/// Whether no attempt is made at the task, and something of it is there to be lost.
fn keeps_files(task: &Task) -> bool {
    match &task.stage {
        Stage::Gating { .. }
        | Stage::Queued
        | Stage::Merging { .. }
        | Stage::Asking { .. }
        | Stage::Deliberating { .. }
        | Stage::Review { .. } => true,
        Stage::Waiting
        | Stage::Ready
        | Stage::Failed { .. }
        | Stage::Backoff { .. }
        | Stage::Approval { .. } => task.accepted.is_some() || task.unfinished.is_some(),
        // Whoever works on it is heard of, or is dead.
        Stage::Working { .. }
        | Stage::Blocked { .. }
        | Stage::Done
        | Stage::RolledBack
        | Stage::DeadLetter => false,
    }
}

/// Work that is still to be begun, as far as anyone can tell.
fn is_open(stage: &Stage) -> bool {
    match stage {
        Stage::Waiting
        | Stage::Ready
        | Stage::Failed { .. }
        | Stage::Backoff { .. }
        | Stage::Deliberating { .. }
        | Stage::Asking { .. }
        | Stage::Approval { subject: Subject::Start(_) } => true,
        Stage::Working { .. }
        | Stage::Gating { .. }
        | Stage::Queued
        | Stage::Merging { .. }
        | Stage::Review { .. }
        | Stage::Approval { .. }
        | Stage::Blocked { .. }
        | Stage::Done
        | Stage::RolledBack
        | Stage::DeadLetter => false,
    }
}
