//! Waves: tasks that stand or fall together (GIT-16).
//!
//! When one of them gives up, the others stop, and what of them has landed is taken back as one
//! rollback, with the word that the level of autonomy asks for (HUM-09). What cannot be taken back
//! as a whole stays as a whole, and a person is asked.
//!
//! Invariant: nothing takes back one task of a wave and leaves another.

use std::collections::{BTreeMap, BTreeSet};

use super::State;
use super::approvals::{assess, needed};
use super::rollback::AtWork;
use crate::approval::{Action, Gate, Need};
use crate::event::{Event, Interruption, PauseReason};
use crate::ids::{Actor, TaskId};
use crate::limits;
use crate::mission::{Mission, MissionStage, Stays, Wave};
use crate::rollback::{Confirmation, Revert, RollbackRefused};
use crate::task::{Stage, Task};
use crate::time::Timestamp;

impl State {
    /// What has to happen to a wave of which a task gave up.
    pub(super) fn next_wave(&self, now: Timestamp) -> Option<Vec<Event>> {
        let mut fallen = self.broken_waves.iter().filter_map(|(id, name)| {
            let mission = self.mission(*id)?;
            let wave = mission.waves.get(name)?;
            let by = self.task(wave.broken_by?)?;
            let events = self.fall(mission, (name, wave), by, now);
            (!events.is_empty()).then_some(events)
        });
        fallen.next()
    }

    fn fall(
        &self,
        mission: &Mission,
        (name, wave): (&str, &Wave),
        by: &Task,
        now: Timestamp,
    ) -> Vec<Event> {
        let stopped = self.stop_mates(wave, by.id);
        if !stopped.is_empty() {
            return stopped;
        }
        let ask = |because: String| {
            // One that is paused already is looked at; this is told when it goes on.
            if mission.paused.is_some() {
                return Vec::new();
            }
            let (wave, task) = (name.to_owned(), by.name().to_owned());
            let reason = PauseReason::Wave { wave, task, because };
            self.pause_for(mission, reason, Actor::kapelle(), None)
        };
        match &wave.stays {
            Some(Stays::Known) => Vec::new(),
            Some(Stays::CalledOff { reason }) => ask(reason.clone()),
            None => match self.take_back_wave(mission, wave, by, now) {
                Ok(events) => events,
                Err(refused) => ask(self.told_refusal(&refused)),
            },
        }
    }

    /// Ends the work on all of a wave that has neither landed nor ended, and what waits for it. A
    /// candidate that is checked may be on the branch before anybody can say stop: it lands, and is
    /// taken back then.
    fn stop_mates(&self, wave: &Wave, on: TaskId) -> Vec<Event> {
        let goes_on = |task: &&Task| {
            !task.stage.is_final() && !matches!(task.stage, Stage::Merging { checked: true, .. })
        };
        let mut events = Vec::new();
        let mut blocked = BTreeSet::new();
        for mate in wave.members.iter().filter_map(|id| self.task(*id)).filter(goes_on) {
            events.extend(self.withdraw(mate, Interruption::WaveFell { with: on }));
            let waits = |id: &TaskId| self.task(*id).is_some_and(|t| t.stage == Stage::Waiting);
            for task in [mate.id].into_iter().chain(self.need(mate).into_iter().filter(waits)) {
                if blocked.insert(task) {
                    events.push(Event::TaskBlocked { task, on });
                }
            }
        }
        events
    }

    fn take_back_wave(
        &self,
        mission: &Mission,
        wave: &Wave,
        by: &Task,
        now: Timestamp,
    ) -> Result<Vec<Event>, RollbackRefused> {
        let landed = wave.members.iter().filter_map(|id| self.task(*id));
        let landed: Vec<&Task> = landed.filter(|task| task.merged.is_some()).collect();
        let going = landed.iter().any(|task| mission.is_rolling_back(task.id));
        let delivering = matches!(mission.stage, MissionStage::Approved { .. });
        let (Some(first), Some(tip), false) = (landed.first(), &mission.tip, going || delivering)
        else {
            return Ok(Vec::new());
        };
        let reverts = self.whole_wave(mission, first, wave)?;
        let rules = mission.policy.approvals.as_ref();
        let riskiest = rules.and_then(|rules| {
            let assessed = landed.iter().map(|task| assess(rules, task, &[]));
            Some((rules, assessed.max_by_key(|assessed| assessed.risk)?))
        });
        let need = riskiest
            .as_ref()
            .map_or(Need::Nothing, |(rules, assessed)| rules.need(Action::Rollback, assessed));
        let Some(subject) = wave.subject() else { return Ok(Vec::new()) };
        let gate = Gate {
            subject,
            mission: mission.id,
            commit: tip.clone(),
            author: Actor::kapelle(),
            people: 0,
            assessed: riskiest.map(|(_, assessed)| assessed),
            opened_at: now,
        };
        let mut events = Vec::new();
        match need {
            Need::Approval { .. } if self.approvals.is_granted(subject) => {}
            Need::Approval { .. } if self.approvals.gate(subject).is_some() => return Ok(events),
            Need::Approval { .. } => return Ok(needed(need, gate).into_iter().collect()),
            Need::Notice | Need::Nothing => events.extend(needed(need, gate)),
        }
        let reason = format!("it stands or falls with task {}, which gave up", by.name());
        let root = reverts.first().map_or(first.id, |revert| revert.task);
        let kapelle = Actor::kapelle();
        let reverts = (&reverts[..], AtWork::Refuses);
        events.extend(self.start_rollback(mission, root, reverts, (&reason, &kapelle))?);
        Ok(events)
    }

    /// The reversal of all that a wave has landed, and of nothing else; `asked` names it.
    pub(super) fn whole_wave(
        &self,
        mission: &Mission,
        asked: &Task,
        wave: &Wave,
    ) -> Result<Vec<Revert>, RollbackRefused> {
        self.has_ended(asked, wave, &BTreeSet::new())?;
        let id = wave.id().ok_or(RollbackRefused::NotLanded(asked.id))?;
        let cascade = mission.merging.landings.wave(id)?;
        let beyond = cascade.reverts.iter().filter(|r| !wave.members.contains(&r.task)).count();
        match cascade.confirmation {
            Confirmation::AgreedBefore => Ok(cascade.reverts),
            Confirmation::Needed => {
                let task = asked.name().to_owned();
                Err(RollbackRefused::BeyondWave { task, count: beyond })
            }
        }
    }

    /// What is still at work on a wave would land after the rest was taken back; not what is
    /// `stopped` with it.
    pub(super) fn has_ended(
        &self,
        asked: &Task,
        wave: &Wave,
        stopped: &BTreeSet<TaskId>,
    ) -> Result<(), RollbackRefused> {
        let mut mates = wave.members.iter().filter_map(|id| self.task(*id));
        let landing = |task: &Task| matches!(task.stage, Stage::Merging { checked: true, .. });
        let broken = wave.broken_by.is_some();
        // What lands of a wave that fell goes with the next rollback.
        let is_out = |task: &Task| {
            task.stage.is_final() || stopped.contains(&task.id) || (broken && landing(task))
        };
        match mates.find(|task| !is_out(task)) {
            None => Ok(()),
            Some(mate) => {
                let (task, mate) = (asked.name().to_owned(), mate.name().to_owned());
                Err(RollbackRefused::WaveInWork { task, mate })
            }
        }
    }

    /// The wave of a task that has landed.
    pub(super) fn landed_wave<'a>(
        &'a self,
        mission: &'a Mission,
        id: TaskId,
    ) -> Option<(&'a Task, &'a Wave)> {
        mission.merging.landings.landing(id)?;
        let task = self.task(id)?;
        Some((task, mission.wave_of(task)?))
    }

    /// A refusal that also names the tasks in the way.
    fn told_refusal(&self, refused: &RollbackRefused) -> String {
        let advice = refused.advice();
        let RollbackRefused::FilesModified { by, .. } = refused else {
            return format!("{refused}. {advice}");
        };
        let names: Vec<&str> = by.iter().filter_map(|id| Some(self.task(*id)?.name())).collect();
        let told = format!("{refused} ({}). {advice}", names.join(", "));
        limits::head(&told, limits::REASON_CHARS_MAX).to_owned()
    }

    /// Whose end holds a task of a broken wave back, if nobody brings that one back. Waves fall with
    /// what gave up, not with what was taken back.
    pub(super) fn wave_grave(
        &self,
        task: &Task,
        held: &BTreeMap<TaskId, Option<TaskId>>,
    ) -> Option<TaskId> {
        let by = self.mission(task.mission)?.wave_of(task)?.broken_by?;
        let grave = held.get(&by).map_or(Some(by), |grave| *grave);
        grave.filter(|id| self.task(*id).is_some_and(|task| task.stage == Stage::DeadLetter))
    }

    /// What was stopped with the waves that these broke, and what waits for that.
    pub(super) fn fell_with(&self, held: &BTreeMap<TaskId, Option<TaskId>>) -> BTreeSet<TaskId> {
        let missions: BTreeSet<_> =
            held.keys().filter_map(|id| Some(self.task(*id)?.mission)).collect();
        let waves = missions.into_iter().filter_map(|id| self.mission(id));
        let waves = waves.flat_map(|mission| mission.waves.values());
        let broken = waves.filter(|wave| wave.broken_by.is_some_and(|by| held.contains_key(&by)));
        let members = broken.flat_map(|wave| &wave.members).filter_map(|id| self.task(*id));
        members.flat_map(|task| [task.id].into_iter().chain(self.need(task))).collect()
    }

    /// A task that comes back, and all that fell with it and was taken back, in the plan's order.
    pub(super) fn rises_with<'a>(
        &'a self,
        task: &'a Task,
        mission: &'a Mission,
    ) -> Result<Vec<&'a Task>, RollbackRefused> {
        let own = mission.wave_of(task).into_iter();
        let broken = mission.waves.values().filter(|wave| wave.broken_by == Some(task.id));
        let mates = own.chain(broken).flat_map(|wave| &wave.members);
        let mates = mates.filter_map(|id| self.task(*id)).collect::<Vec<_>>();
        if let Some(going) = mates.iter().find(|mate| mission.is_rolling_back(mate.id)) {
            return Err(RollbackRefused::UnderWay { task: going.name().to_owned() });
        }
        let mut rising: Vec<&Task> = mates
            .into_iter()
            .filter(|mate| mate.stage == Stage::RolledBack)
            .chain([task])
            .collect();
        rising.sort_by_key(|task| task.id);
        rising.dedup_by_key(|task| task.id);
        Ok(rising)
    }
}
