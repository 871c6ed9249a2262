//! What follows from failures: retries, the tiers above them, the dead letter, and its way back.
//!
//! Invariants: what the task is not to blame for costs it no retry. A task that gave up takes
//! what needs it along, in the same commit, and says so to a person.

use std::collections::{BTreeMap, BTreeSet};

use super::State;
use super::decide::Decision;
use super::people::{person, said};
use crate::approval::Right;
use crate::escalation::{
    DeadLetter, FailedAttempt, FailureStory, Hands, HumanBecause, Means, Next, Notify, Trouble,
    Verdict,
};
use crate::event::{Event, PauseReason, Restart};
use crate::failure::{Failure, FailureKind};
use crate::flow::Phase;
use crate::ids::{Actor, AgentId, Fence, Role, TaskId};
use crate::limits;
use crate::machine::MachineUse;
use crate::mission::{Mission, MissionStage};
use crate::refusal::Refusal;
use crate::task::{Stage, Task};
use crate::time::Timestamp;

/// After this many attempts in a row that their host could not perform, the trouble is not
/// passing, and a person should look.
const ABANDONED_MAX: u32 = 5;

/// A failure as it is met.
pub(super) struct Blow<'a> {
    pub task: TaskId,
    /// What has just ended by it.
    pub ended: Fence,
    pub failure: &'a Failure,
    pub trouble: Trouble,
    pub from: Restart,
}

impl State {
    /// A machine that is nearly full does nothing more until a person has made room (WRK-32).
    pub(super) fn report_machine(&self, used: MachineUse) -> Vec<Event> {
        let pressures = used.pressures();
        let stops = |mission: &&Mission| {
            let at_work = mission.in_flight() > 0 || self.with_ready.contains(&mission.id);
            at_work && mission.paused.is_none() && !mission.has_ended()
        };
        let missions = self.missions.iter().filter(|_| !pressures.is_empty()).filter(stops);
        let paused = missions.flat_map(|mission| {
            let reason = PauseReason::Machine { pressures: pressures.clone() };
            self.pause_for(mission, reason, Actor::kapelle(), None)
        });
        paused.collect()
    }

    pub(super) fn fail_attempt(
        &self,
        task: TaskId,
        fence: Fence,
        failure: Failure,
        now: Timestamp,
    ) -> Vec<Event> {
        let blow = Blow {
            task,
            ended: fence,
            failure: &failure,
            trouble: Trouble::Failure(failure.kind),
            from: Restart::Phase,
        };
        let then = self.meet(&blow, now);
        let mut events = vec![Event::AttemptFailed { task, fence, failure }];
        events.extend(then);
        if let Ok((_, mission)) = self.task_or_refuse(task) {
            self.judge_mission(mission, fence, now, &mut events);
        }
        events
    }

    /// What is done about a failure: as the ladder says.
    pub(super) fn meet(&self, blow: &Blow<'_>, now: Timestamp) -> Vec<Event> {
        let Ok((task, mission)) = self.task_or_refuse(blow.task) else { return Vec::new() };
        let (id, trouble) = (blow.task, blow.trouble);
        let ladder = task.hardship.as_ref().map(|hardship| &hardship.ladder);
        let ladder = ladder.cloned().unwrap_or_default();
        let next = ladder.next(&mission.policy.escalation, trouble, self.means(blow));
        let (next, called) = match next {
            Next::ConveneCouncil => self.call_council(blow, &ladder, now),
            next => (next, Vec::new()),
        };
        let mut events = self.refuted(task, trouble);
        events.push(Event::TroubleMet { task: id, trouble, next: next.clone() });
        let retry = |number: u32, from: Restart| {
            let wait = mission.policy.retry.delay_ms(blow.failure.kind, id, number);
            Event::RetryScheduled { task: id, at: now.plus_ms(wait), from }
        };
        match next {
            Next::Retry { retry: number, .. } => events.push(retry(number, blow.from)),
            // Whoever looks from further away looks at the whole.
            Next::AskOrchestrator => events.push(retry(1, Restart::Flow)),
            Next::ConveneCouncil => events.extend(called),
            Next::AskHuman { because } => {
                let hardship = task.hardship.as_deref().cloned().unwrap_or_default();
                let mut story = hardship.story;
                story.failed(failed_attempt(task, mission, blow.failure, now));
                let letter = self.letter(task, because, story, now);
                events.extend(self.bury((task, mission), letter, Some(blow.ended)));
            }
        }
        events
    }

    /// Gives up a task whose hosts were lost once too often. It had the last of them to itself
    /// (`next_suspect`), so nobody else's trouble is counted here.
    pub(super) fn next_lost(&self, now: Timestamp) -> Option<Vec<Event>> {
        let lost = self.schedule.suspects.iter().filter_map(|id| self.task_and_mission(*id));
        let mut lost = lost.filter(|(task, mission)| {
            let waits = task.stage == Stage::Ready && mission.paused.is_none();
            waits && task.lost >= mission.policy.escalation.lost_max && !mission.has_ended()
        });
        let (task, mission) = lost.next()?;
        let because = HumanBecause::HostLost { times: task.lost };
        let story = task.hardship.as_ref().map(|hardship| hardship.story.clone());
        let letter = self.letter(task, because.clone(), story.unwrap_or_default(), now);
        let (trouble, next) = (Trouble::HostLost, Next::AskHuman { because });
        let mut events = vec![Event::TroubleMet { task: task.id, trouble, next }];
        events.extend(self.bury((task, mission), letter, None));
        Some(events)
    }

    fn means(&self, blow: &Blow<'_>) -> Means {
        let council_members = self.council_seats(blow);
        Means { orchestrators: self.seats_of(Role::Orchestrator), council_members }
    }

    pub(super) fn letter(
        &self,
        task: &Task,
        because: HumanBecause,
        story: FailureStory,
        died_at: Timestamp,
    ) -> DeadLetter {
        let counters = task.hardship.as_ref().map(|hardship| hardship.ladder.clone());
        let counters = counters.unwrap_or_default();
        DeadLetter { task: task.id, because, story, counters, died_at }
    }

    /// The task gives up, by this letter; `ended` has just ended by itself.
    pub(super) fn bury(
        &self,
        (task, mission): (&Task, &Mission),
        letter: DeadLetter,
        ended: Option<Fence>,
    ) -> Vec<Event> {
        let mut events =
            vec![Event::TaskDeadLettered { task: task.id, letter: Some(Box::new(letter)) }];
        events.extend(self.fall_of(task));
        let mut rate = mission.failure_rate;
        rate.failed();
        let policy = &mission.policy.failure_rate;
        let before = mission.failure_rate.verdict(policy);
        match rate.verdict(policy) {
            // A council may end while the mission is paused already.
            Verdict::Pause { failed, finished, resume } if mission.paused.is_none() => {
                let reason = PauseReason::FailureRate { failed, finished, resume };
                events.extend(self.pause_for(mission, reason, Actor::kapelle(), ended));
            }
            // Once is enough: it says nothing new with every further failure.
            Verdict::Warn { failed, finished } if !matches!(before, Verdict::Warn { .. }) => {
                events.push(Event::FailuresWarned { mission: mission.id, failed, finished });
            }
            Verdict::Pause { .. } | Verdict::Warn { .. } | Verdict::Fine => {}
        }
        events
    }

    /// Nobody tries a task that people do not want, so it counts as no failure.
    pub(super) fn turn_down(
        &self,
        id: TaskId,
        because: HumanBecause,
        now: Timestamp,
    ) -> Vec<Event> {
        let Some(task) = self.task(id) else { return Vec::new() };
        let story = task.hardship.as_ref().map(|hardship| hardship.story.clone());
        let letter = self.letter(task, because, story.unwrap_or_default(), now);
        let mut events = vec![Event::TaskDeadLettered { task: id, letter: Some(Box::new(letter)) }];
        events.extend(self.fall_of(task));
        events
    }

    /// What needs the task cannot come any more, nor what needs that.
    fn fall_of(&self, task: &Task) -> Vec<Event> {
        let mut events = Vec::new();
        for id in self.need(task) {
            if self.task(id).is_some_and(|dependent| dependent.stage == Stage::Waiting) {
                events.push(Event::TaskBlocked { task: id, on: task.id });
            }
        }
        events
    }

    /// All tasks that need this one, in the order of the plan: what a task needs comes first. What
    /// needs something that is done needs no more, though a person may have done it by hand.
    pub(super) fn need(&self, task: &Task) -> BTreeSet<TaskId> {
        let mut found = BTreeSet::new();
        let mut open = task.dependents.clone();
        while let Some(next) = open.pop() {
            if found.insert(next) {
                let undone = self.task(next).filter(|task| task.stage != Stage::Done);
                open.extend(undone.iter().flat_map(|task| &task.dependents));
            }
        }
        found
    }

    /// The host could not perform an attempt; nothing of it is counted against the task.
    pub(super) fn abandon(
        &self,
        (task, mission): (&Task, &Mission),
        fence: Fence,
        failure: &Failure,
        now: Timestamp,
    ) -> Vec<Event> {
        let failure = failure.bounded();
        let times = mission.abandoned + 1;
        let id = task.id;
        if times < ABANDONED_MAX {
            let wait = mission.policy.retry.delay_ms(FailureKind::AgentError, id, times);
            let retry_at = Some(now.plus_ms(wait.max(1)));
            return vec![Event::AttemptAbandoned { task: id, fence, failure, retry_at }];
        }
        let reason = PauseReason::Environment { message: failure.message.clone() };
        let mut events = vec![Event::AttemptAbandoned { task: id, fence, failure, retry_at: None }];
        events.extend(self.pause_for(mission, reason, Actor::kapelle(), Some(fence)));
        events
    }

    /// A person brings a task back to life, and with it what was blocked by nothing else.
    pub(super) fn requeue(&self, id: TaskId, reason: &str, by: &Actor, now: Timestamp) -> Decision {
        let (task, mission) = self.task_or_refuse(id)?;
        self.open_mission_or_refuse(mission.id)?;
        person(by)?;
        self.may(by, Right::Direct)?;
        said("the reason", reason, limits::REASON_CHARS_MAX)?;
        let gone = matches!(task.stage, Stage::DeadLetter | Stage::RolledBack);
        if !gone && !self.is_turned_down(task) {
            return Err(Refusal::NotDead { task: task.name().to_owned() });
        }
        if let MissionStage::Approved { .. } = mission.stage {
            return Err(Refusal::Delivering { mission: mission.id });
        }
        let mut events = Vec::new();
        let mut held = BTreeMap::new();
        let rising = self.rises_with(task, mission)?;
        let rises = |id: &TaskId| rising.iter().any(|task| task.id == *id);
        for revived in &rising {
            let (task, reason, by) = (revived.id, reason.to_owned(), by.clone());
            events.push(Event::TaskRequeued { task, reason, by });
            // What it needs may have been taken back since it gave up. What fell with it rises with
            // it, and holds nobody back.
            let needs = revived.dependencies.iter();
            let grave = needs.filter_map(|need| self.held_by_need(*need, &held));
            let grave = grave.into_iter().find(|on| !rises(on));
            events.extend(grave.map(|on| Event::TaskBlocked { task, on }));
            held.insert(task, grave);
        }
        events.extend(self.unblock(held, now));
        Ok(events)
    }

    /// Whose end holds back what needs this task, once these are held back by others or by none.
    fn held_by_need(
        &self,
        need: TaskId,
        held: &BTreeMap<TaskId, Option<TaskId>>,
    ) -> Option<TaskId> {
        match held.get(&need) {
            Some(grave) => *grave,
            None => self.task(need).and_then(|need| self.grave(need)),
        }
    }

    /// What was blocked by these, and is blocked by nothing else. `held` says what holds each of
    /// them back from now on, if something does.
    pub(super) fn unblock(
        &self,
        mut held: BTreeMap<TaskId, Option<TaskId>>,
        now: Timestamp,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        // What a task needs is looked at before it.
        let tasks = held.keys().filter_map(|root| self.task(*root));
        let needing = tasks.flat_map(|task| self.need(task)).chain(self.fell_with(&held));
        let needing: BTreeSet<TaskId> = needing.collect();
        for dependent in needing.into_iter().filter_map(|id| self.task(id)) {
            let Stage::Blocked { on } = dependent.stage else { continue };
            let by = |need: &TaskId| self.held_by_need(*need, &held);
            let grave = dependent.dependencies.iter().find_map(by);
            let grave = grave.or_else(|| self.wave_grave(dependent, &held));
            held.insert(dependent.id, grave);
            match grave {
                None => {
                    events.push(Event::TaskUnblocked { task: dependent.id });
                    events.extend(self.ask_about_dispute(dependent, now));
                }
                Some(grave) if grave != on => {
                    events.push(Event::TaskBlocked { task: dependent.id, on: grave });
                }
                Some(_) => {}
            }
        }
        events
    }

    /// A change that goes back to the merge queue, and that reviewers did not agree to meanwhile, is
    /// for a person.
    fn ask_about_dispute(&self, task: &Task, now: Timestamp) -> Vec<Event> {
        let disputed = task.was_queued && task.is_disputed(task.accepted.as_ref());
        match self.mission(task.mission).filter(|_| disputed) {
            Some(mission) => self.ask_about_merge((task, mission), now),
            None => Vec::new(),
        }
    }

    /// Whose end holds back what needs this task, if one does.
    fn grave(&self, task: &Task) -> Option<TaskId> {
        match task.stage {
            Stage::DeadLetter | Stage::RolledBack => Some(task.id),
            Stage::Blocked { on } => Some(on),
            Stage::Done => {
                let mission = self.mission(task.mission)?;
                mission.is_rolling_back(task.id).then_some(task.id)
            }
            _ => None,
        }
    }

    /// What a person is to be told now.
    pub(super) fn notify(&self, now: Timestamp) -> Vec<Event> {
        match self.notices.due(&self.settings.notices, now) {
            Notify::Now { causes } => vec![Event::PersonNotified { causes }],
            Notify::Later { .. } => Vec::new(),
        }
    }
}

/// Those of the free agents that are asked first, if not all are: whoever failed at a task is the
/// last to be asked again.
pub(super) fn asked_first(task: &Task, free: &[AgentId]) -> Option<Vec<AgentId>> {
    task.hardship.as_ref().filter(|hardship| hardship.by == Hands::Other)?;
    let failed = task.last_agent().filter(|agent| free.contains(agent))?;
    Some(free.iter().copied().filter(|agent| *agent != failed).collect())
}

/// The failure with its circumstances, as the dead letter tells it.
pub(super) fn failed_attempt(
    task: &Task,
    mission: &Mission,
    failure: &Failure,
    at: Timestamp,
) -> FailedAttempt {
    FailedAttempt {
        attempt: task.attempts,
        agent: task.last_agent(),
        phase: task.phase(&mission.policy).unwrap_or(Phase::Complete),
        failure: failure.clone(),
        change: match &task.stage {
            Stage::Gating { change } => Some(change.clone()),
            Stage::Merging { .. } => task.accepted.clone(),
            _ => None,
        },
        at,
    }
}
