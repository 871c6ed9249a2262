//! Waves: who is part of which, which of them broke, and when that is over.

use std::sync::Arc;

use crate::ids::{MissionId, TaskId};
use crate::mission::{MissionStage, Stays};
use crate::plan::PlannedTask;
use crate::state::State;
use crate::task::Stage;

impl State {
    pub(in crate::state) fn plan_waves(
        &mut self,
        mission: MissionId,
        first: TaskId,
        plans: &[Arc<PlannedTask>],
    ) {
        for (plan, number) in plans.iter().zip(first.0..) {
            let Some(name) = &plan.wave else { continue };
            let mut broken = false;
            self.with_mission(mission, |m| {
                let wave = m.waves.entry(name.clone()).or_default();
                wave.members.push(TaskId(number));
                broken = wave.broken_by.is_some();
            });
            if broken {
                self.broken_waves.insert((mission, name.clone()));
            }
        }
    }

    /// `by` gave up, and `task` is it, or needs it: the wave of `task` falls.
    pub(in crate::state) fn break_wave(&mut self, task: TaskId, by: TaskId) {
        let gave_up = self.task(by).is_some_and(|t| t.stage == Stage::DeadLetter);
        let Some(task) = self.task(task).filter(|_| gave_up) else { return };
        let id = task.id;
        let (mission, Some(name)) = (task.mission, task.plan.wave.clone()) else { return };
        self.with_mission(mission, |m| {
            if let Some(wave) = m.waves.get_mut(&name) {
                wave.broken_by.get_or_insert(by);
            }
        });
        self.broken_waves.insert((mission, name));
        self.settle_wave(id);
    }

    /// When all of a broken wave has come to its end, and what of it is on the branch stays there,
    /// there is nothing more to do about it.
    pub(in crate::state) fn settle_wave(&mut self, id: TaskId) {
        let Some(task) = self.task(id) else { return };
        let Some(mission) = self.mission(task.mission) else { return };
        let (Some(wave), Some(name)) = (mission.wave_of(task), &task.plan.wave) else { return };
        let stays = wave.stays == Some(Stays::Known);
        let gone = |id: &TaskId| {
            self.task(*id).is_some_and(|t| t.stage.is_final() && (stays || t.merged.is_none()))
        };
        if wave.broken_by.is_some() && wave.members.iter().all(gone) {
            let key = (mission.id, name.clone());
            self.broken_waves.remove(&key);
        }
    }

    /// A task of a broken wave lives again: it is to be stopped.
    pub(in crate::state) fn watch_wave(&mut self, id: TaskId) {
        let Some(task) = self.task(id) else { return };
        let wave = self.mission(task.mission).and_then(|mission| mission.wave_of(task));
        if let (Some(true), Some(name)) =
            (wave.map(|wave| wave.broken_by.is_some()), &task.plan.wave)
        {
            let key = (task.mission, name.clone());
            self.broken_waves.insert(key);
        }
    }

    /// The task is put back to work, or done by hand: what it broke is whole again.
    pub(in crate::state) fn mend_waves(&mut self, id: TaskId) {
        let Some(mission) = self.task(id).map(|task| task.mission) else { return };
        let mut subjects = Vec::new();
        let mut names = Vec::new();
        self.with_mission(mission, |m| {
            for (name, wave) in &mut m.waves {
                if wave.broken_by == Some(id) {
                    (wave.broken_by, wave.stays) = (None, None);
                    subjects.extend(wave.subject());
                    names.push(name.clone());
                }
            }
        });
        for name in names {
            self.broken_waves.remove(&(mission, name));
        }
        subjects.into_iter().for_each(|subject| self.close_gate(subject));
    }

    /// Nobody is asked any more whether the wave of this task is taken back.
    pub(in crate::state) fn close_wave_gate(&mut self, id: TaskId) {
        let task = self.task(id);
        let wave = task.and_then(|task| self.mission(task.mission)?.wave_of(task));
        if let Some(subject) = wave.and_then(|wave| wave.subject()) {
            self.close_gate(subject);
        }
    }

    /// People want that a wave stays as it is.
    pub(in crate::state) fn keep_wave(&mut self, first: TaskId) {
        self.with_wave_of(first, Stays::Known);
        self.settle_wave(first);
    }

    /// What a broken wave has landed could not be taken back.
    pub(in crate::state) fn call_off_wave(&mut self, root: TaskId, reason: &str) {
        self.with_wave_of(root, Stays::CalledOff { reason: reason.to_owned() });
    }

    /// The mission stands still, and a person knows why.
    pub(in crate::state) fn note_wave_told(&mut self, mission: MissionId, name: &str) {
        let wave = self.mission(mission).and_then(|m| m.waves.get(name));
        if let Some(first) = wave.and_then(|wave| wave.members.first().copied()) {
            self.keep_wave(first);
        }
    }

    fn with_wave_of(&mut self, id: TaskId, stays: Stays) {
        let Some(name) = self.task(id).and_then(|task| task.plan.wave.clone()) else { return };
        self.with_mission_of(id, |m| {
            if let Some(wave) = m.waves.get_mut(&name).filter(|wave| wave.broken_by.is_some()) {
                wave.stays = Some(stays);
            }
        });
    }

    /// What was proposed is not all of it any more.
    pub(in crate::state) fn note_more_work(&mut self, id: TaskId) {
        let Some(mission) = self.task(id).map(|task| task.mission) else { return };
        if self.mission(mission).is_some_and(|m| matches!(m.stage, MissionStage::Proposed { .. })) {
            self.withdraw_proposal(mission);
        }
    }
}
