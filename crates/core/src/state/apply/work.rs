//! Agents at work: leases, costs, outcomes, questions, retries.

use crate::approval::Subject;
use crate::checklist::Checklist;
use crate::effect::Effect;
use crate::event::{Chore, Event, Interruption, Restart};
use crate::ids::{Actor, Fence, TaskId};
use crate::ledger::{Drawn, Purpose};
use crate::money::Usd;
use crate::report::ResumeData;
use crate::state::{Billed, Lease, Live, State};
use crate::task::Stage;
use crate::time::Timestamp;

impl State {
    /// The arms of `apply` about agents at work; it names each of them, so none is forgotten.
    pub(in crate::state) fn apply_to_work(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::LeaseGranted { .. } => self.grant(event, at),
            Event::LeaseRenewed { fence, expires_at } => {
                if let Some(Live::Attempt(lease)) = self.live.get_mut(fence) {
                    self.attempt_timers.remove(&lease.timer(*fence));
                    lease.expires_at = *expires_at;
                    self.agents.heard(lease.agent, self.at);
                    self.attempt_timers.insert(lease.timer(*fence));
                    self.schedule.locks.extended(lease.task, *expires_at);
                    self.schedule.launches.ended(*fence);
                }
            }
            Event::AttemptIdle { fence, silent_ms, .. } => {
                let since = Timestamp(at.0.saturating_sub(*silent_ms));
                self.note_silence(*fence, Some(since));
            }
            Event::AttemptHeard { fence, .. } => self.note_silence(*fence, None),
            Event::AttemptFinished { task, fence, change, touched } => {
                self.attempted(*task);
                self.answered(*fence);
                self.end_attempt(*fence, Billed::AtItsEnd, at);
                self.with_task(*task, |t| {
                    t.touch(touched);
                    t.told = 0;
                });
                let gating = Stage::Gating { change: change.clone() };
                self.move_to(*task, gating);
                self.want_for(*task, Chore::Gate(*task));
            }
            Event::AttemptFailed { task, fence, failure } => {
                self.attempted(*task);
                // Reports come before the deadline; at the deadline it is the clock that ends it.
                let is_over = self.lease(*fence).is_some_and(|lease| at >= lease.deadline);
                let billed = if is_over { Billed::Later } else { Billed::AtItsEnd };
                self.broke(*fence, failure.kind);
                self.end_attempt(*fence, billed, at);
                self.with_checklist(*task, Checklist::failed);
                self.fail(*task, failure);
            }
            Event::AttemptInterrupted { task, fence, cause } => {
                self.interrupt(*task, *fence, *cause, at);
            }
            Event::CheckpointRaised { task, fence, question, change } => {
                self.attempted(*task);
                self.answered(*fence);
                self.end_attempt(*fence, Billed::AtItsEnd, at);
                self.with_task(*task, |t| t.leave_off_at(change.as_ref()));
                let now = self.at;
                self.with_task(*task, |t| t.asked_at = Some(now));
                self.move_to(*task, Stage::Asking { question: question.clone() });
            }
            Event::CheckpointAnswered { task, resume_id, input, by } => {
                let by_rule = *by == Actor::configuration();
                let asked = self.task(*task).and_then(|t| Some((t.mission, t.asked_at?)));
                if let Some((mission, at)) = asked.filter(|_| !by_rule) {
                    self.note_attention(mission, at);
                }
                self.with_task(*task, |t| {
                    t.told = if by_rule { t.told + 1 } else { 0 };
                    t.resume = Some(Box::new(ResumeData {
                        checkpoint_id: resume_id.clone(),
                        user_input: input.clone(),
                    }));
                    t.started = false;
                    t.retrying = false;
                });
                self.move_to(*task, Stage::Ready);
            }
            Event::ChangeRejected { task, failure } => {
                self.discard(*task);
                self.fail(*task, failure);
            }
            Event::RetryScheduled { task, at, from } => {
                self.with_task(*task, |t| {
                    t.repeat();
                    t.retries += 1;
                    if *from == Restart::Flow {
                        t.begin_anew();
                    }
                });
                if *from == Restart::Flow {
                    self.discard(*task);
                }
                self.move_to(*task, Stage::Backoff { until: *at });
            }
            Event::BackoffEnded { task } => self.move_to(*task, Stage::Ready),
            _ => {}
        }
    }

    fn interrupt(&mut self, task: TaskId, fence: Fence, cause: Interruption, at: Timestamp) {
        let mut billed = Billed::Later;
        match cause {
            Interruption::HostRestarted | Interruption::LeaseExpired => self.lose(task, cause),
            Interruption::ProviderParked => {
                billed = Billed::AtItsEnd;
                self.forget_losses(task);
            }
            Interruption::GaveWay { to } => {
                self.with_task(task, |t| t.gave_way += 1);
                self.schedule.queue.promised(to);
            }
            Interruption::Stopped
            | Interruption::MissionPaused
            | Interruption::Overridden
            | Interruption::WaveFell { .. }
            | Interruption::NeedTakenBack { .. } => {}
        }
        self.end_attempt(fence, billed, at);
        self.with_checklist(task, Checklist::interrupted);
        self.move_to(task, Stage::Ready);
    }

    pub(in crate::state) fn with_checklist(
        &mut self,
        id: TaskId,
        change: impl FnOnce(&mut Checklist),
    ) {
        self.with_task(id, |task| {
            if let Some(list) = &mut task.checklist {
                change(list);
            }
        });
    }

    /// The change of its phase is thrown away, and all that was done in it.
    pub(in crate::state) fn discard(&mut self, id: TaskId) {
        let Some(phase) = self.task(id).map(|task| task.phase) else { return };
        self.with_task(id, |task| {
            task.unfinished = None;
            task.operations.discarded(phase);
        });
        self.with_checklist(id, |list| list.discarded(phase));
    }

    pub(in crate::state) fn grant(&mut self, event: &Event, at: Timestamp) {
        let Event::LeaseGranted {
            task,
            fence,
            agent,
            phase,
            base,
            reserved,
            granted_at,
            expires_at,
            deadline,
            reservation,
            pick: _,
            because: _,
            route,
        } = event
        else {
            return;
        };
        let Some(owner) = self.task(*task) else { return };
        let mission = owner.mission;
        let purpose = reservation.as_ref().map_or(Purpose::Work, |drawn| drawn.purpose);
        let account = self.account(owner, *agent, purpose);
        // Work that was interrupted by a question goes on; its phase began where it began.
        let began = owner.phase_base.clone().filter(|_| owner.unfinished.is_some());
        let since = began.unwrap_or_else(|| base.clone());
        self.move_to(*task, Stage::Working { fence: *fence });
        self.with_task(*task, |t| {
            t.started = true;
            t.attempts += 1;
            t.started_at.get_or_insert(*granted_at);
            t.phase_base = Some(since.clone());
            t.tier = route.as_ref().map(|route| route.tier);
            t.lineage = route.as_ref().map(|route| route.lineage.clone());
        });
        self.with_checklist(*task, |list| list.begun(*granted_at));
        let billed = if reservation.is_some() { Billed::Later } else { Billed::AtItsEnd };
        let unknown = Drawn { pool: None, purpose, estimate: Usd::ZERO };
        let drawn = reservation.as_ref().unwrap_or(&unknown);
        let id = self.ledger.attempt_reserved(account.clone(), *reserved, drawn, at);
        self.enter(route.as_deref(), *fence);
        self.take_seat(*agent, *task, *fence);
        self.begin_running(*task, *fence, *agent);
        self.note_hand(*task, *agent);
        self.schedule.bound.remove(task);
        self.close_gate(Subject::Start(*task));
        let lease = Lease {
            task: *task,
            mission,
            agent: *agent,
            base: base.clone(),
            reserved: *reserved,
            reservation: Some(id),
            account,
            route: route.clone(),
            billed,
            granted_at: *granted_at,
            expires_at: *expires_at,
            deadline: *deadline,
            idle_since: None,
        };
        self.attempt_timers.insert(lease.timer(*fence));
        let effect = Effect::RunAttempt {
            task: *task,
            agent: *agent,
            phase: *phase,
            base: base.clone(),
            since,
            route: route.clone(),
        };
        self.begin_live(*fence, mission, Live::Attempt(lease), effect);
    }

    /// An attempt came to an end of its own: its host is able.
    fn attempted(&mut self, task: TaskId) {
        self.forget_losses(task);
        let mission = self.task(task).and_then(|task| self.mission(task.mission));
        if mission.is_some_and(|mission| mission.abandoned > 0) {
            self.with_mission_of(task, |m| m.abandoned = 0);
        }
    }
}
