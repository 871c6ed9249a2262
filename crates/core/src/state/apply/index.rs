//! The indexes that `apply` keeps: who is ready, what is live, what is wanted.

use crate::approval::Subject;
use crate::effect::Effect;
use crate::escalation::Cause;
use crate::event::Chore;
use crate::ids::{Fence, MissionId, TaskId};
use crate::mission::Mission;
use crate::state::{Live, State, Timer};
use crate::task::{Stage, Task};

impl State {
    /// Tasks without open dependencies become ready once the branch is there to start from.
    pub(in crate::state) fn release_unblocked(&mut self, mission: MissionId) {
        let ids: Vec<TaskId> = self.mission(mission).map_or(Vec::new(), |m| m.task_ids().collect());
        for id in ids {
            self.release_if_free(id);
        }
    }

    pub(in crate::state) fn release_dependents(&mut self, done: TaskId) {
        let dependents = self.task(done).map(|t| t.dependents.clone()).unwrap_or_default();
        for id in dependents {
            self.with_task(id, |task| task.waits_for = task.waits_for.saturating_sub(1));
            self.release_if_free(id);
        }
    }

    pub(in crate::state) fn release_if_free(&mut self, id: TaskId) {
        if self.task(id).is_some_and(|t| t.waits_for == 0 && t.stage == Stage::Waiting) {
            self.wait_or_go(id);
        }
    }

    /// A task that may go on: at once, if nothing that it needs is missing.
    pub(in crate::state) fn wait_or_go(&mut self, id: TaskId) {
        let Some(task) = self.task(id) else { return };
        let there = self.mission(task.mission).is_some_and(|m| m.tip.is_some());
        let planned = !self.approvals.is_waiting(Subject::Plan(task.mission));
        let free = task.waits_for == 0 && there && planned;
        if free {
            self.move_to(id, Stage::Ready);
        } else if task.stage != Stage::Waiting {
            self.move_to(id, Stage::Waiting);
        }
    }

    /// Leaves the indexes of the old stage, enters those of the new one.
    pub(in crate::state) fn move_to(&mut self, id: TaskId, stage: Stage) {
        let index = (id.0 as usize).wrapping_sub(1);
        let Some(task) = self.tasks.get_mut(index) else { return };
        let (mission, counted) = (task.mission, stage.counted());
        let until = stage.until();
        let (is_merging, is_final) = (State::is_merging(&stage), stage.is_final());
        let old = std::mem::replace(&mut task.stage, stage);
        if old.counted() != counted {
            self.with_mission(mission, |m| {
                m.counts.leave(old.counted());
                m.counts.enter(counted);
            });
        }
        self.scaling_stale = true;
        if let Some(until) = old.until() {
            self.timers.remove(&(until, Timer::Backoff(id)));
        }
        if let Some(until) = until {
            self.timers.insert((until, Timer::Backoff(id)));
        }
        self.note_asking(id, &old);
        self.leave_gate(&old);
        self.leave_council(&old);
        self.reschedule(id, &old);
        self.note_question(id);
        if State::is_merging(&old) && !is_merging {
            self.with_change(id, |queue| queue.withdrawn(id));
        }
        if is_final {
            self.pass_turn(id);
            self.close_story(id);
            self.settle_wave(id);
        } else {
            self.watch_wave(id);
        }
    }

    pub(in crate::state) fn begin_live(
        &mut self,
        fence: Fence,
        mission: MissionId,
        live: Live,
        effect: Effect,
    ) {
        self.fences_given = self.fences_given.max(fence.0);
        let of_queue = match &live {
            Live::Chore { chore, .. } => Some(*chore).filter(|chore| chore.is_of_queue()),
            Live::Attempt(_) => None,
        };
        let is_new = self.live.insert(fence, live).is_none();
        // What is in flight says nothing about what is wanted.
        if let Some(mission) = self.mission_mut(mission) {
            mission.live += u32::from(is_new);
            if let Some(chore) = of_queue {
                mission.merging.running.insert(fence, chore);
            }
        }
        self.due.insert(fence, effect);
    }

    pub(in crate::state) fn end_live(&mut self, fence: Fence) -> Option<Live> {
        let live = self.live.remove(&fence)?;
        self.due.remove(fence);
        match &live {
            Live::Chore { mission, .. } => self.with_mission(*mission, |m| {
                m.live = m.live.saturating_sub(1);
                m.merging.running.remove(&fence);
                m.merging.stale.remove(&fence);
            }),
            Live::Attempt(lease) => {
                if let Some(mission) = self.mission_mut(lease.mission) {
                    mission.live = mission.live.saturating_sub(1);
                }
                self.attempt_timers.remove(&lease.timer(fence));
                self.release_seat(lease.agent);
                self.schedule.runners.ended(lease.agent.role);
                self.schedule.launches.ended(fence);
                self.leave(lease.route.as_deref(), fence);
                if lease.idle_since.is_some() {
                    self.settle_notice(Some(Cause::of_silence(lease.mission)), Some(lease.task));
                }
            }
        }
        Some(live)
    }

    pub(in crate::state) fn want(&mut self, mission: MissionId, chore: Chore) {
        self.with_mission(mission, |m| {
            m.chores.insert(chore);
        });
    }

    pub(in crate::state) fn want_for(&mut self, task: TaskId, chore: Chore) {
        self.with_mission_of(task, |m| {
            m.chores.insert(chore);
        });
    }

    pub(in crate::state) fn unwant(&mut self, task: TaskId, chore: Chore) {
        self.with_mission_of(task, |m| {
            m.chores.remove(&chore);
        });
    }

    pub(in crate::state) fn with_task(&mut self, id: TaskId, change: impl FnOnce(&mut Task)) {
        let index = (id.0 as usize).wrapping_sub(1);
        if let Some(task) = self.tasks.get_mut(index) {
            change(task);
        }
    }

    pub(in crate::state) fn with_mission_of(
        &mut self,
        task: TaskId,
        change: impl FnOnce(&mut Mission),
    ) {
        if let Some(id) = self.task(task).map(|t| t.mission) {
            self.with_mission(id, change);
        }
    }

    /// For what no set of missions speaks of; everything that one does speak of passes
    /// `with_mission`.
    fn mission_mut(&mut self, id: MissionId) -> Option<&mut Mission> {
        self.missions.get_mut((id.0 as usize).wrapping_sub(1))
    }

    /// Every change of what a mission wants passes here, so the sets of missions that want something
    /// are right afterwards.
    pub(in crate::state) fn with_mission(
        &mut self,
        id: MissionId,
        change: impl FnOnce(&mut Mission),
    ) {
        let index = (id.0 as usize).wrapping_sub(1);
        let Some(mission) = self.missions.get_mut(index) else { return };
        change(mission);
        self.scaling_stale = true;
        let (was, is) = (mission.listed, mission.wants());
        // Nearly every change leaves all of them as they were.
        if was == is {
            return;
        }
        mission.listed = is;
        let sets = [
            (&mut self.with_chores, was.chores, is.chores),
            (&mut self.with_ready, was.ready, is.ready),
            (&mut self.with_merges, was.merges, is.merges),
            (&mut self.with_asks, was.asks, is.asks),
        ];
        for (set, was, is) in sets {
            match (was, is) {
                (false, true) => _ = set.insert(id),
                (true, false) => _ = set.remove(&id),
                (false, false) | (true, true) => {}
            }
        }
    }
}
