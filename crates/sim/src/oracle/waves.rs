//! Invariants of waves: what was declared to stand or fall together does, whoever gives up.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_core::approval::{OverrideAction, Subject};
use kapelle_core::event::PauseReason;
use kapelle_core::task::Stage;
use kapelle_core::{Event, MissionId, State, TaskId};

use super::{Facts, Verdict, ensure};

type Wave = (MissionId, String);

#[derive(Debug, Default)]
pub(super) struct Waves {
    dead: BTreeSet<TaskId>,
    /// Those that fell, and with whom.
    broken: BTreeMap<Wave, TaskId>,
    /// What of these landed stays: it could not be taken back, or people want it so.
    stays: BTreeSet<Wave>,
    /// People are asked whether it is taken back.
    asked: BTreeSet<Wave>,
    rolling: BTreeMap<TaskId, Vec<TaskId>>,
    /// Tasks that must not go on.
    stopped: BTreeSet<TaskId>,
}

impl Waves {
    /// Whether a task must be blocked for its wave.
    pub(super) fn stops(&self, task: TaskId) -> bool {
        self.stopped.contains(&task)
    }

    pub(super) fn observe(&mut self, event: &Event, facts: &Facts) -> Verdict {
        match event {
            Event::TaskDeadLettered { task, .. } => {
                self.dead.insert(*task);
                self.fall(*task, *task, facts)
            }
            Event::TaskBlocked { task, on } if self.dead.contains(on) => {
                self.fall(*task, *on, facts)
            }
            Event::TaskRequeued { task, .. } => self.rise(*task),
            Event::Overridden { order, .. } if order.action == OverrideAction::ForceComplete => {
                self.rise(order.task)
            }
            Event::LeaseGranted { task, .. } => {
                let broken = wave_of(*task, facts)?.is_some_and(|w| self.broken.contains_key(&w));
                ensure(!broken, || format!("{task:?} starts although its wave fell"))
            }
            Event::RollbackStarted { task, tasks, .. } => {
                self.judge_whole(tasks, facts)?;
                self.asked.retain(|wave| !touches(wave, tasks, facts));
                self.rolling.insert(*task, tasks.clone());
                Ok(())
            }
            Event::RollbackFailed { task, .. } => {
                let tasks = self.rolling.remove(task).unwrap_or_default();
                let broken = self.broken.keys().filter(|wave| touches(wave, &tasks, facts));
                self.stays.extend(broken.cloned().collect::<Vec<_>>());
                Ok(())
            }
            Event::TaskRolledBack { task, .. } => {
                self.rolling.values_mut().for_each(|tasks| tasks.retain(|one| one != task));
                self.rolling.retain(|_, tasks| !tasks.is_empty());
                Ok(())
            }
            Event::MissionPaused { mission, reason: PauseReason::Wave { wave, .. }, .. } => {
                self.stays.insert((*mission, wave.clone()));
                Ok(())
            }
            Event::ApprovalAsked { gate } => {
                if let Subject::Rollback(first) = gate.subject {
                    self.asked.extend(wave_of(first, facts)?);
                }
                Ok(())
            }
            Event::ApprovalRejected { subject: Subject::Rollback(first), .. } => {
                self.stays.extend(wave_of(*first, facts)?);
                Ok(())
            }
            Event::MissionCancelled { mission, .. } | Event::MissionDelivered { mission, .. } => {
                self.broken.retain(|(of, _), _| of != mission);
                let of = |task: &TaskId| facts.task(*task).is_ok_and(|t| t.mission == *mission);
                self.rolling.retain(|root, _| !of(root));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn fall(&mut self, task: TaskId, by: TaskId, facts: &Facts) -> Verdict {
        if let Some(wave) = wave_of(task, facts)? {
            self.broken.entry(wave).or_insert(by);
        }
        Ok(())
    }

    fn rise(&mut self, task: TaskId) -> Verdict {
        self.dead.remove(&task);
        let risen: Vec<Wave> =
            self.broken.iter().filter(|(_, by)| **by == task).map(|(w, _)| w.clone()).collect();
        for wave in risen {
            self.broken.remove(&wave);
            self.stays.remove(&wave);
            self.asked.remove(&wave);
        }
        Ok(())
    }

    /// All that a wave has on the branch goes, or nothing of it.
    fn judge_whole(&self, tasks: &[TaskId], facts: &Facts) -> Verdict {
        let going = |id: &TaskId| {
            tasks.contains(id) || self.rolling.values().flatten().any(|one| one == id)
        };
        for task in tasks {
            let Some(wave) = wave_of(*task, facts)? else { continue };
            let left = members(&wave, facts).find(|id| is_landed(*id, facts) && !going(id));
            ensure(left.is_none(), || format!("{task:?} is taken back, and {left:?} stays"))?;
        }
        Ok(())
    }

    /// After a batch: what fell is stopped, and what of it landed is on its way back.
    pub(super) fn close(&mut self, facts: &Facts, shadow: &State) -> Verdict {
        self.stopped.clear();
        for wave in self.broken.keys() {
            let mission = facts.mission(wave.0)?;
            let rolls = |id: TaskId| self.rolling.values().flatten().any(|one| *one == id);
            let landed = members(wave, facts).find(|id| is_landed(*id, facts));
            let going = members(wave, facts).any(rolls);
            let waits = mission.paused || self.stays.contains(wave) || self.asked.contains(wave);
            ensure(landed.is_none() || going || waits, || {
                format!("{landed:?} stays, although the wave {} fell", wave.1)
            })?;
            let about_to_land = |id: &TaskId| {
                let stage = shadow.task(*id).map(|task| &task.stage);
                matches!(stage, Some(Stage::Merging { checked: true, .. }))
            };
            self.stopped.extend(members(wave, facts).filter(|id| !about_to_land(id)));
        }
        Ok(())
    }
}

fn wave_of(task: TaskId, facts: &Facts) -> Result<Option<Wave>, String> {
    let task = facts.task(task)?;
    Ok(task.wave.clone().map(|wave| (task.mission, wave)))
}

fn members<'a>(wave: &'a Wave, facts: &'a Facts) -> impl Iterator<Item = TaskId> + 'a {
    let of = move |task: &super::facts::TaskFacts| {
        task.mission == wave.0 && task.wave.as_deref() == Some(wave.1.as_str())
    };
    facts.tasks().filter(move |(_, task)| of(task)).map(|(id, _)| id)
}

fn is_landed(task: TaskId, facts: &Facts) -> bool {
    facts.task(task).is_ok_and(|task| task.merged.is_some() && !task.by_hand)
}

fn touches(wave: &Wave, tasks: &[TaskId], facts: &Facts) -> bool {
    members(wave, facts).any(|id| tasks.contains(&id))
}
