//! Failures: what is remembered of them, who is told, and how a task comes back.

use crate::escalation::{Cause, Hands, Hardship, HumanBecause, Matter, Next, Notify, Trouble};
use crate::event::{Event, Interruption, PauseReason};
use crate::failure::{Failure, FailureKind};
use crate::ids::{Fence, MissionId, TaskId};
use crate::limits;
use crate::routing::Failed;
use crate::state::failure::failed_attempt;
use crate::state::{Billed, Live, State, Timer};
use crate::task::Stage;
use crate::time::Timestamp;

impl State {
    /// The arms of `apply` about failures; it names each of them, so none is forgotten.
    pub(in crate::state) fn apply_to_failures(&mut self, event: &Event) {
        match event {
            Event::TroubleMet { task, trouble, next } => {
                self.doubt_advice(*task, *trouble);
                if *trouble == Trouble::HostLost {
                    self.condemn(*task);
                }
                self.with_hardship(*task, |hardship| {
                    hardship.ladder.taken(*trouble, next);
                    hardship.by = match next {
                        Next::Retry { by, .. } => *by,
                        Next::AskOrchestrator => Hands::Other,
                        // Its answer goes back to whoever asked (CON-17).
                        Next::ConveneCouncil => Hands::Same,
                        Next::AskHuman { .. } => Hands::Anyone,
                    };
                });
            }
            Event::AttemptAbandoned { task, fence, failure, retry_at } => {
                self.end_attempt(*fence, Billed::AtItsEnd, self.at);
                let message = failure.message.as_str().into();
                self.with_task(*task, |t| t.host_failure = Some(message));
                self.with_mission_of(*task, |m| m.abandoned += 1);
                match retry_at {
                    Some(until) => self.move_to(*task, Stage::Backoff { until: *until }),
                    None => self.move_to(*task, Stage::Ready),
                }
            }
            Event::TaskDeadLettered { task, letter } => {
                self.forget_losses(*task);
                self.move_to(*task, Stage::DeadLetter);
                let because = letter.as_ref().map(|letter| &letter.because);
                // Whoever did not want it knows, and nothing failed.
                let unwanted = matches!(because, Some(HumanBecause::TurnedDown { .. }));
                if !unwanted {
                    self.with_mission_of(*task, |m| m.failure_rate.failed());
                }
                if let Some(because) = because {
                    self.with_hardship(*task, |h| h.because = Some(because.clone()));
                    let told = self.cause_of(*task).filter(|_| !unwanted);
                    self.raise_notice(told, Some(*task));
                }
                self.break_wave(*task, *task);
            }
            Event::TaskBlocked { task, on } => {
                if self.task(*task).is_some_and(|t| matches!(t.stage, Stage::Gating { .. })) {
                    self.drop_check(*task);
                }
                self.with_task(*task, |t| t.was_queued = State::is_merging(&t.stage));
                self.move_to(*task, Stage::Blocked { on: *on });
                self.break_wave(*task, *on);
            }
            Event::TaskUnblocked { task } => {
                // It goes on from something else, or after people looked: a new row of losses.
                self.forget_losses(*task);
                if self.task(*task).is_some_and(|t| t.was_queued) {
                    return self.queue_or_wait(*task);
                }
                // One that had begun when it was blocked is pending again, like one that asked.
                self.with_task(*task, |t| (t.started, t.retrying) = (false, false));
                self.wait_or_go(*task);
            }
            Event::TaskRequeued { task, .. } => {
                if self.task(*task).is_some_and(|t| t.stage == Stage::DeadLetter) {
                    self.settle_notice(self.cause_of(*task), Some(*task));
                }
                self.mend_waves(*task);
                self.note_more_work(*task);
                self.forget_losses(*task);
                self.with_task(*task, |t| {
                    t.failures.clear();
                    (t.outgrown, t.failed_up_to) = (None, None);
                    t.begin_anew();
                    t.taken_back = None;
                    (t.started, t.retrying, t.resume) = (false, false, None);
                });
                self.discard(*task);
                self.with_hardship(*task, |hardship| {
                    let story = std::mem::take(&mut hardship.story);
                    *hardship = Hardship { story, ..Hardship::default() };
                });
                self.wait_or_go(*task);
            }
            Event::PersonNotified { causes } => {
                self.notices.told(causes, self.at);
                self.retime_notices();
            }
            _ => {}
        }
    }

    /// The task was lost with its host. Its story tells of it; its retries do not.
    pub(in crate::state) fn lose(&mut self, id: TaskId, cause: Interruption) {
        let message = match cause {
            Interruption::HostRestarted => "its host went down",
            _ => "its host was silent until the lease ran out",
        };
        let failure = Failure::new(FailureKind::Hang, message);
        let told = self.task(id).and_then(|task| {
            Some(failed_attempt(task, self.mission(task.mission)?, &failure, self.at))
        });
        if let Some(told) = told {
            self.with_hardship(id, |hardship| hardship.story.failed(told));
        }
        self.with_task(id, |task| task.lost += 1);
        if self.task(id).is_some_and(|task| task.lost >= limits::LOST_ALONE_AFTER) {
            self.schedule.suspects.insert(id);
        }
    }

    /// An attempt at it came to something: its hosts can carry it.
    pub(in crate::state) fn forget_losses(&mut self, id: TaskId) {
        if self.task(id).is_some_and(|task| task.lost > 0) {
            self.with_task(id, |task| task.lost = 0);
            self.schedule.suspects.remove(&id);
        }
    }

    /// No host is given to the task any more; what was lost last is why.
    fn condemn(&mut self, id: TaskId) {
        let hardship = self.task(id).and_then(|task| task.hardship.as_ref());
        let last = hardship.and_then(|h| h.story.last()).map(|last| Box::new(last.failure.clone()));
        self.move_to(id, Stage::Failed { kind: FailureKind::Hang });
        self.with_task(id, |task| task.last_failure = last.or(task.last_failure.take()));
    }

    pub(in crate::state) fn fail(&mut self, id: TaskId, failure: &Failure) {
        let told = self.task(id).and_then(|task| {
            Some(failed_attempt(task, self.mission(task.mission)?, failure, self.at))
        });
        self.move_to(id, Stage::Failed { kind: failure.kind });
        self.with_task(id, |task| {
            *task.failures.entry(failure.kind).or_default() += 1;
            task.last_failure = Some(Box::new(failure.clone()));
            let failed = task.tier.map(|tier| Failed { tier, kind: failure.kind });
            let failed = failed.filter(|failed| failed.was_the_model());
            // What a better model failed at is not given back to a lesser one (RTE-05).
            task.outgrown = failed.into_iter().chain(task.outgrown).max_by_key(|one| one.tier);
        });
        if let Some(told) = told {
            self.with_hardship(id, |hardship| hardship.story.failed(told));
        }
    }

    fn with_hardship(&mut self, id: TaskId, change: impl FnOnce(&mut Hardship)) {
        self.with_task(id, |task| change(task.hardship.get_or_insert_default()));
    }

    pub(in crate::state) fn cause_of(&self, task: TaskId) -> Option<Cause> {
        let task = self.task(task)?;
        Some(Cause::of(task.mission, task.last_failure.as_deref()?))
    }

    /// A mission that Kapelle itself paused needs a person; one that a person paused has one.
    pub(in crate::state) fn note_pause(&mut self, mission: MissionId, reason: &PauseReason) {
        if !matches!(reason, PauseReason::Person { .. }) {
            self.raise_notice(Some(Cause::of_pause(mission, reason)), None);
        }
    }

    pub(in crate::state) fn note_resume(&mut self, id: MissionId) {
        let reason = self.mission(id).and_then(|m| m.paused.clone());
        if let Some(reason) = reason.filter(|r| !matches!(r, PauseReason::Person { .. })) {
            self.settle_notice(Some(Cause::of_pause(id, &reason)), None);
        }
    }

    /// HUM-06: people hear of a question that waits for them, whoever asks and however it ends.
    pub(in crate::state) fn note_asking(&mut self, id: TaskId, old: &Stage) {
        let Some(task) = self.task(id) else { return };
        let of = |stage: &Stage| match stage {
            Stage::Asking { question } => Some(Cause::of_question(task.mission, question)),
            _ => None,
        };
        let (before, now) = (of(old), of(&task.stage));
        self.settle_notice(before, Some(id));
        self.raise_notice(now, Some(id));
    }

    /// HUM-06: an agent hangs, or is heard again.
    pub(in crate::state) fn note_silence(&mut self, fence: Fence, since: Option<Timestamp>) {
        let Some(lease) = self.lease(fence) else { return };
        let (cause, task) = (Some(Cause::of_silence(lease.mission)), Some(lease.task));
        match (lease.idle_since, since) {
            (None, Some(_)) => self.raise_notice(cause, task),
            (Some(_), None) => self.settle_notice(cause, task),
            (None, None) | (Some(_), Some(_)) => {}
        }
        if let Some(Live::Attempt(lease)) = self.live.get_mut(&fence) {
            lease.idle_since = since;
        }
    }

    /// HUM-06: spending goes on, so nobody need look any more.
    pub(in crate::state) fn settle_alarms(&mut self) {
        let alarms = self.notices.open().map(|(cause, _)| cause);
        let alarms = alarms.filter(|cause| cause.matter == Matter::Spending);
        for alarm in alarms.cloned().collect::<Vec<_>>() {
            self.settle_notice(Some(alarm), None);
        }
    }

    pub(in crate::state) fn raise_notice(&mut self, cause: Option<Cause>, task: Option<TaskId>) {
        if let Some(cause) = cause {
            self.notices.raised(&cause, task, self.at);
            self.retime_notices();
        }
    }

    pub(in crate::state) fn settle_notice(&mut self, cause: Option<Cause>, task: Option<TaskId>) {
        if let Some(cause) = cause {
            self.notices.settled(&cause, task);
            self.retime_notices();
        }
    }

    /// Keeps the timer at the moment at which a person can be told of what is new.
    pub(in crate::state) fn retime_notices(&mut self) {
        if let Some(at) = self.notices_at.take() {
            self.timers.remove(&(at, Timer::Notices));
        }
        self.notices_at = match self.notices.due(&self.settings.notices, self.at) {
            Notify::Now { .. } => Some(self.at),
            Notify::Later { at } => at,
        };
        self.timers.extend(self.notices_at.map(|at| (at, Timer::Notices)));
    }
}
