//! Invariants of failure: how often a task is tried again, when it gives up, what falls with it,
//! and who hears of it. Everything is counted anew from the journal.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kapelle_core::approval::{OverrideAction, Subject};
use kapelle_core::breaker::{Breaker, BreakerKey};
use kapelle_core::council::{CouncilId, Summons};
use kapelle_core::escalation::{Cause, DeadLetter, HumanBecause, Matter, NoticePolicy, Trouble};
use kapelle_core::event::{Interruption, PauseReason};
use kapelle_core::failure::{Failure, FailureKind};
use kapelle_core::mission::Mission;
use kapelle_core::policy::Policy;
use kapelle_core::task::{Stage, Task};
use kapelle_core::{Event, Fence, MissionId, Record, Role, State, TaskId, Timestamp};

use super::waves::Waves;
use super::{Facts, Verdict, ensure};
use crate::agents::HOST_TROUBLE;

const HOUR_MS: u64 = 60 * 60 * 1_000;
/// Attempts in a row that a host may abandon before its mission is paused.
const ABANDONED_MAX: u32 = 5;
/// Losses in a row after which a task works alone.
const LOST_ALONE_AFTER: u32 = 2;

#[derive(Debug, Default)]
pub(super) struct Failures {
    tasks: BTreeMap<TaskId, Trial>,
    missions: BTreeMap<MissionId, Tally>,
    dead: BTreeSet<TaskId>,
    /// Tasks that people did not want to start, until they are given up in the same batch.
    turned_down: BTreeSet<TaskId>,
    blocked: BTreeSet<TaskId>,
    /// What is being taken back, by the task that was asked for.
    taken: BTreeMap<TaskId, Vec<TaskId>>,
    taken_back: BTreeSet<TaskId>,
    orchestrators: u32,
    notices: NoticePolicy,
    /// How often each cause was raised and not settled, and whether a person was told.
    causes: BTreeMap<Cause, (u32, bool)>,
    /// Tasks that wait for a person's answer.
    asking: BTreeMap<TaskId, Cause>,
    /// Attempts that have printed nothing for long.
    silent: BTreeMap<Fence, MissionId>,
    told: VecDeque<Timestamp>,
}

/// What a task has been through.
#[derive(Debug, Default)]
struct Trial {
    failures: u32,
    last: Option<(Trouble, Failure)>,
    spent: BTreeMap<Trouble, u32>,
    ruled: bool,
    /// The council that it waits for.
    council: Option<CouncilId>,
    /// A council has said what to try.
    advised: bool,
    /// Hosts that were lost in a row while they worked on it.
    lost: u32,
}

#[derive(Debug, Default)]
struct Tally {
    finished: u32,
    failed: u32,
    abandoned: u32,
    paused: Option<PauseReason>,
    /// Must be paused before the batch ends.
    to_stop: bool,
    /// People must be warned before the batch ends, of so many of so many.
    to_warn: Option<(u32, u32)>,
}

impl Failures {
    pub(super) fn observe(&mut self, record: &Record, facts: &Facts, before: &State) -> Verdict {
        self.note_loss(&record.event);
        match &record.event {
            Event::TeamChanged { seats, .. } => {
                self.orchestrators = seats.get(&Role::Orchestrator).copied().unwrap_or(0);
            }
            Event::SettingsChanged { settings, .. } => self.notices = settings.notices.clone(),
            Event::LeaseGranted { task, .. } => {
                ensure(!self.dead.contains(task) && !self.blocked.contains(task), || {
                    format!("{task:?} starts although it gave up or is blocked")
                })?;
                self.judge_company(*task, before)?;
            }
            Event::AttemptFailed { task, fence, failure } => {
                ensure(failure.message != HOST_TROUBLE, || {
                    format!("attempt {fence} on {task:?} is blamed for its host")
                })?;
                self.tally(facts.task(*task)?.mission).abandoned = 0;
                self.fails(*task, Trouble::Failure(failure.kind), failure);
            }
            Event::ChangeRejected { task, failure } => {
                // Tests that pass before the work is done, or whatever is done, are no failing
                // tests.
                let message = &failure.message;
                let untested =
                    message.starts_with("all tests passed") || message.contains("by a mock");
                let invalid = Trouble::Failure(FailureKind::ValidationFailed);
                let trouble = if untested { invalid } else { Trouble::TestsFail };
                self.fails(*task, trouble, failure);
            }
            Event::RollbackStarted { task, tasks, .. } => {
                self.taken.insert(*task, tasks.clone());
            }
            Event::RollbackFailed { task, .. } => {
                self.taken.remove(task);
            }
            Event::AttemptFinished { task, .. } | Event::CheckpointRaised { task, .. } => {
                self.tally(facts.task(*task)?.mission).abandoned = 0;
            }
            Event::RetryScheduled { task, .. } => self.judge_retry(*task, facts)?,
            Event::AttemptAbandoned { task, retry_at, .. } => {
                let mission = facts.task(*task)?.mission;
                let tally = self.tally(mission);
                tally.abandoned += 1;
                tally.to_stop |= tally.abandoned >= ABANDONED_MAX;
                ensure(retry_at.is_some() != tally.to_stop, || {
                    format!("{task:?} was abandoned {} times: {retry_at:?}", tally.abandoned)
                })?;
            }
            Event::TaskDeadLettered { task, letter } => {
                self.judge_death(*task, letter.as_deref(), record.at, facts)?;
            }
            Event::TaskBlocked { task, .. } => {
                self.blocked.insert(*task);
            }
            Event::TaskUnblocked { task } => {
                self.blocked.remove(task);
                self.trial(*task).lost = 0;
            }
            Event::Overridden { order, .. } if order.action == OverrideAction::ForceComplete => {
                self.blocked.remove(&order.task);
                if self.dead.contains(&order.task) {
                    self.revive(order.task, facts)?;
                }
                self.tally(facts.task(order.task)?.mission).finished += 1;
            }
            Event::ApprovalRejected { subject: Subject::Start(task), .. } => {
                self.turned_down.insert(*task);
            }
            Event::TaskRolledBack { task, .. } => {
                self.taken_back.insert(*task);
                self.taken.values_mut().for_each(|tasks| tasks.retain(|one| one != task));
            }
            Event::TaskRequeued { task, .. } => self.requeue(*task, facts)?,
            Event::TaskMerged { task, .. } => {
                self.tally(facts.task(*task)?.mission).finished += 1;
            }
            Event::CouncilConvened { council, task, because: Summons::Retries(_), .. } => {
                self.trial(*task).council = Some(*council);
            }
            Event::CouncilDecided { council, task, verdict, .. } => {
                let trial = self.trial(*task);
                if trial.council == Some(*council) {
                    (trial.council, trial.advised) = (None, verdict.winner().is_some());
                }
            }
            Event::SolutionRecalled { task, .. } => self.trial(*task).advised = true,
            Event::PersonNotified { causes } => self.judge_notice(causes, record.at)?,
            Event::FailuresWarned { mission, failed, finished } => {
                self.judge_warning(*mission, (*failed, *finished))?;
            }
            _ => self.observe_mission(&record.event, before),
        }
        Ok(())
    }

    fn requeue(&mut self, task: TaskId, facts: &Facts) -> Verdict {
        if self.taken_back.remove(&task) {
            let trial = self.trial(task);
            trial.spent.clear();
            trial.ruled = false;
            return Ok(());
        }
        self.revive(task, facts)
    }

    fn judge_warning(&mut self, mission: MissionId, of: (u32, u32)) -> Verdict {
        let due = self.tally(mission).to_warn.take();
        ensure(due == Some(of), || format!("people are warned of {of:?}, not of {due:?}"))
    }

    fn note_loss(&mut self, event: &Event) {
        match event {
            Event::AttemptInterrupted {
                task,
                cause: Interruption::HostRestarted | Interruption::LeaseExpired,
                ..
            } => {
                let trial = self.trial(*task);
                trial.lost += 1;
                trial.failures += 1;
            }
            // Something came of it, or a person wants it to begin anew.
            Event::AttemptInterrupted { task, cause: Interruption::ProviderParked, .. }
            | Event::AttemptFinished { task, .. }
            | Event::AttemptFailed { task, .. }
            | Event::CheckpointRaised { task, .. }
            | Event::OperationCompleted { task, .. }
            | Event::TaskRequeued { task, .. } => self.trial(*task).lost = 0,
            Event::Overridden { order, .. } => match order.action {
                OverrideAction::ForceComplete
                | OverrideAction::Reset { .. }
                | OverrideAction::SkipStep { .. } => {
                    self.trial(order.task).lost = 0;
                }
                OverrideAction::Reassign { .. } => {}
            },
            _ => {}
        }
    }

    /// Whether the task may be what takes its hosts down.
    pub(super) fn is_suspect(&self, task: TaskId) -> bool {
        self.tasks.get(&task).is_some_and(|trial| trial.lost >= LOST_ALONE_AFTER)
    }

    /// Whether a suspect works, or waits to: then seats are empty for good reason.
    pub(super) fn has_suspect(&self, shadow: &State) -> bool {
        let busy = |task: &&Task| matches!(task.stage, Stage::Working { .. } | Stage::Ready);
        shadow.tasks().filter(busy).any(|task| self.is_suspect(task.id))
    }

    /// A suspect works alone.
    fn judge_company(&self, task: TaskId, before: &State) -> Verdict {
        let mut others = before.leases().map(|(_, lease)| lease.task);
        let beside = match self.is_suspect(task) {
            true => others.next(),
            false => others.find(|other| self.is_suspect(*other)),
        };
        ensure(beside.is_none(), || {
            format!("{task:?} starts beside {beside:?}, and hosts were lost with one of them")
        })
    }

    fn observe_mission(&mut self, event: &Event, before: &State) {
        match event {
            Event::MissionPaused { mission, reason, .. } => {
                let tally = self.tally(*mission);
                tally.to_stop = false;
                tally.paused = Some(reason.clone());
                if !matches!(reason, PauseReason::Person { .. }) {
                    self.raise(Cause::of_pause(*mission, reason));
                }
            }
            Event::MissionResumed { mission, .. } => {
                let tally = self.tally(*mission);
                (tally.finished, tally.failed, tally.abandoned) = (0, 0, 0);
                let paused = tally.paused.take();
                if let Some(reason) = paused.filter(|r| !matches!(r, PauseReason::Person { .. })) {
                    self.settle(&Cause::of_pause(*mission, &reason));
                }
            }
            Event::AttemptIdle { task, fence, .. } => {
                if let Some(task) = before.task(*task)
                    && self.silent.insert(*fence, task.mission).is_none()
                {
                    self.raise(Cause::of_silence(task.mission));
                }
            }
            Event::AttemptHeard { fence, .. } => {
                if let Some(mission) = self.silent.remove(fence) {
                    self.settle(&Cause::of_silence(mission));
                }
            }
            Event::SpendingPaused { alarm, .. } => self.raise(Cause::of_alarm(alarm)),
            Event::SpendingResumed { .. } => {
                self.causes.retain(|cause, _| cause.matter != Matter::Spending);
            }
            Event::BreakerMoved { key: key @ BreakerKey::Provider(_), to, .. } => {
                let cause = Cause::of_breaker(key);
                match (to, self.causes.contains_key(&cause)) {
                    (Breaker::Open { .. }, false) => self.raise(cause),
                    (Breaker::Closed { .. }, true) => self.settle(&cause),
                    _ => {}
                }
            }
            Event::MissionCancelled { mission, .. } | Event::MissionDelivered { mission, .. } => {
                self.causes.retain(|cause, _| cause.mission != Some(*mission));
                self.tally(*mission).to_stop = false;
            }
            _ => {}
        }
    }

    /// After an event: who asks a person something, and who is silent no more because it has ended.
    pub(super) fn look(&mut self, after: &State) {
        let over = |mission: MissionId| after.mission(mission).is_none_or(Mission::has_ended);
        let asking = after.tasks().filter(|task| !over(task.mission));
        let asking = asking.filter_map(|task| match &task.stage {
            Stage::Asking { question } => {
                Some((task.id, Cause::of_question(task.mission, question)))
            }
            _ => None,
        });
        let asking: BTreeMap<TaskId, Cause> = asking.collect();
        let before = std::mem::take(&mut self.asking);
        let stays = |(task, cause): &(&TaskId, &Cause)| asking.get(task) == Some(cause);
        before.iter().filter(|one| !stays(one)).for_each(|(_, cause)| self.settle(cause));
        let known = |(task, cause): &(&TaskId, &Cause)| before.get(task) == Some(cause);
        let news = asking.iter().filter(|one| !known(one));
        news.for_each(|(_, cause)| self.raise(cause.clone()));
        self.asking = asking;
        let ended = |fence: &Fence| after.lease(*fence).is_none();
        let gone: Vec<Fence> = self.silent.keys().copied().filter(ended).collect();
        for mission in gone.iter().filter_map(|fence| self.silent.remove(fence)).collect::<Vec<_>>()
        {
            self.settle(&Cause::of_silence(mission));
        }
    }

    fn fails(&mut self, task: TaskId, trouble: Trouble, failure: &Failure) {
        let trial = self.trial(task);
        trial.failures += 1;
        trial.last = Some((trouble, failure.clone()));
    }

    fn judge_retry(&mut self, task: TaskId, facts: &Facts) -> Verdict {
        let rules = &facts.mission_of(task)?.policy;
        let exhausted = self.exhausted(task, rules);
        let orchestrators = self.orchestrators;
        let trial = self.trial(task);
        let Some((trouble, _)) = trial.last.take() else {
            return Err(format!("{task:?} is tried again, but nothing failed"));
        };
        if std::mem::take(&mut trial.advised) {
            ensure(exhausted, || format!("{task:?} had a council with retries left"))?;
        } else if exhausted {
            let may = orchestrators > 0 && !trial.ruled;
            trial.ruled = true;
            ensure(may, || format!("{task:?} is tried again past its retries for {trouble:?}"))?;
        } else {
            *trial.spent.entry(trouble).or_default() += 1;
        }
        Ok(())
    }

    fn judge_death(
        &mut self,
        task: TaskId,
        letter: Option<&DeadLetter>,
        at: Timestamp,
        facts: &Facts,
    ) -> Verdict {
        let mission = facts.task(task)?.mission;
        let because = letter.map(|letter| &letter.because);
        if self.turned_down.remove(&task) {
            self.dead.insert(task);
            return ensure(matches!(because, Some(HumanBecause::TurnedDown { .. })), || {
                format!("{task:?} was turned down, and its letter says {because:?}")
            });
        }
        let rules = &facts.mission(mission)?.policy;
        let by_loss =
            letter.is_some_and(|letter| matches!(letter.because, HumanBecause::HostLost { .. }));
        let trial = self.trial(task);
        if by_loss {
            let (lost, max) = (std::mem::take(&mut trial.lost), rules.escalation.lost_max);
            ensure(lost >= max, || format!("{task:?} was given up after {lost} of {max} losses"))?;
            let last = letter.and_then(|letter| letter.story.last()).map(|l| l.failure.clone());
            trial.last = last
                .filter(|last| last.kind == FailureKind::Hang)
                .map(|last| (Trouble::HostLost, last));
        } else {
            ensure(self.exhausted(task, rules), || {
                format!("{task:?} was given up with retries left")
            })?;
        }
        let trial = self.trial(task);
        let Some((_, failure)) = trial.last.take() else {
            return Err(format!("{task:?} was given up, but nothing failed"));
        };
        let told = letter.map(|letter| {
            let last = letter.story.last().map(|last| last.failure.clone());
            let all = letter.story.attempts().count() as u32 + letter.story.omitted();
            (last, all, letter.died_at)
        });
        let expected = Some((Some(failure.clone()), trial.failures, at));
        ensure(told == expected, || {
            format!("the dead letter of {task:?} says {told:?}, not {expected:?}")
        })?;
        self.dead.insert(task);
        self.raise(Cause::of(mission, &failure));
        let rate = &rules.failure_rate;
        let paused = facts.mission(mission)?.paused;
        let tally = self.tally(mission);
        let above = |tally: &Tally, permille: u32| {
            tally.finished >= rate.finished_min
                && u64::from(tally.failed) * 1_000 > u64::from(tally.finished) * u64::from(permille)
        };
        let warns = |t: &Tally| above(t, rate.warn_permille) && !above(t, rate.pause_permille);
        let warned = warns(tally);
        tally.finished += 1;
        tally.failed += 1;
        let is_new = warns(tally) && !warned;
        tally.to_warn = is_new.then_some((tally.failed, tally.finished));
        let bad = above(tally, rate.pause_permille);
        // A council may end while its mission is paused already.
        tally.to_stop |= bad && !paused;
        // For the requeue, which settles what the failure raised.
        self.trial(task).last = Some((Trouble::Failure(failure.kind), failure));
        Ok(())
    }

    fn revive(&mut self, task: TaskId, facts: &Facts) -> Verdict {
        ensure(self.dead.remove(&task), || format!("{task:?} was requeued, but it lives"))?;
        let mission = facts.task(task)?.mission;
        if let Some((_, failure)) = self.trial(task).last.take() {
            self.settle(&Cause::of(mission, &failure));
        }
        let trial = self.trial(task);
        trial.spent.clear();
        trial.ruled = false;
        Ok(())
    }

    fn judge_notice(&mut self, causes: &[Cause], at: Timestamp) -> Verdict {
        self.told.retain(|told| at.ms_since(*told) < HOUR_MS);
        let max = self.notices.notices_per_hour_max as usize;
        ensure(self.told.len() < max, || format!("people are told more than {max} times an hour"))?;
        self.told.push_back(at);
        ensure(!causes.is_empty(), || "people are told of nothing".into())?;
        // What waits for approvals is judged with the people.
        let trouble = |c: &&Cause| !matches!(c.matter, Matter::Approval | Matter::WentAhead);
        for cause in causes.iter().filter(trouble) {
            let Some((_, told)) = self.causes.get_mut(cause) else {
                return Err(format!("people are told of what is settled: {cause}"));
            };
            *told = true;
        }
        Ok(())
    }

    /// After a batch: what must have followed from it has.
    pub(super) fn close(&mut self, now: Timestamp, facts: &Facts, waves: &Waves) -> Verdict {
        let forgotten = self.turned_down.first();
        ensure(forgotten.is_none(), || {
            format!("{forgotten:?} was turned down, and waits for an answer for ever")
        })?;
        for (mission, tally) in &mut self.missions {
            ensure(!tally.to_stop, || format!("{mission} goes on although too much of it fails"))?;
            let untold = tally.to_warn.take();
            // Of a mission that is paused people hear anyway.
            ensure(untold.is_none() || facts.mission(*mission)?.paused, || {
                format!("nobody is warned that of {mission} {untold:?} fail")
            })?;
        }
        let recent = self.told.iter().filter(|told| now.ms_since(**told) < HOUR_MS).count();
        if recent < self.notices.notices_per_hour_max as usize {
            let untold = self.causes.iter().find(|(_, (_, told))| !told);
            ensure(untold.is_none(), || format!("nobody is told of {untold:?}"))?;
        }
        for (id, task) in facts.tasks() {
            let mission = facts.mission(task.mission)?;
            let gave_up = self.dead.contains(&id);
            let (lost, max) =
                (self.tasks.get(&id).map_or(0, |t| t.lost), mission.policy.escalation.lost_max);
            let goes_on = !mission.paused && !mission.ended && !self.blocked.contains(&id);
            ensure(lost < max || !goes_on || gave_up, || {
                format!("{id:?} goes on, although it lost {lost} hosts in a row")
            })?;
            if mission.ended || task.merged.is_some() || task.rolled_back || gave_up {
                continue;
            }
            let taken = |need: &TaskId| self.taken.values().flatten().any(|one| one == need);
            let gone = |need: &TaskId| {
                let back = facts.task(*need).is_ok_and(|need| need.rolled_back);
                self.dead.contains(need) || self.blocked.contains(need) || back || taken(need)
            };
            let expected = task.needs.iter().any(gone) || waves.stops(id);
            let blocked = self.blocked.contains(&id);
            ensure(blocked == expected, || {
                format!("{id:?} is blocked: {blocked}; it should be: {expected}")
            })?;
        }
        Ok(())
    }

    fn exhausted(&self, task: TaskId, rules: &Policy) -> bool {
        let Some(trial) = self.tasks.get(&task) else { return false };
        let Some((trouble, _)) = &trial.last else { return false };
        let max = match trouble {
            Trouble::TestsFail => rules.escalation.test_fixes_max,
            Trouble::HostLost => 0,
            Trouble::Failure(kind) => {
                let set = rules.escalation.retries_max.get(kind).copied();
                set.unwrap_or_else(|| kind.retries_max())
            }
        };
        trial.spent.get(trouble).copied().unwrap_or(0) >= max
    }

    fn raise(&mut self, cause: Cause) {
        self.causes.entry(cause).or_default().0 += 1;
    }

    fn settle(&mut self, cause: &Cause) {
        if let Some((count, _)) = self.causes.get_mut(cause) {
            *count -= 1;
            if *count == 0 {
                self.causes.remove(cause);
            }
        }
    }

    fn trial(&mut self, task: TaskId) -> &mut Trial {
        self.tasks.entry(task).or_default()
    }

    fn tally(&mut self, mission: MissionId) -> &mut Tally {
        self.missions.entry(mission).or_default()
    }
}
