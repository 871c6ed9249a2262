//! Gates and overrides: what waits for people, and what their word changes.

use std::sync::Arc;

use crate::approval::{
    Approval, ApprovalPolicy, Gate, GateStanding, Order, OverrideAction, Subject,
};
use crate::escalation::Cause;
use crate::event::{Chore, Event};
use crate::failure::{Failure, FailureKind};
use crate::flow::{Expectation, Phase};
use crate::ids::{Actor, Commit, MissionId, TaskId};
use crate::mission::MissionStage;
use crate::queue::Ticket;
use crate::state::schedule::Schedule;
use crate::state::{State, Timer};
use crate::task::Stage;

impl State {
    /// The arms of `apply` about people; it names each of them, so none is forgotten.
    pub(in crate::state) fn apply_to_approvals(&mut self, event: &Event) {
        match event {
            Event::PersonAssigned { person, role, .. } => self.people.assigned(person, *role),
            Event::WentAhead { subject, mission, .. } => {
                self.raise_notice(Some(Cause::of_deed(*mission, *subject)), None);
            }
            Event::ApprovalAsked { gate } => self.open_gate((**gate).clone()),
            Event::ApprovalGiven { subject, commit, by } => {
                self.approve_gate_by(*subject, commit, by)
            }
            Event::ApprovalRejected { subject, reason, by, .. } => {
                self.reject_gate_by(*subject, reason, by);
            }
            Event::OverrideProposed { order, expires_at } => {
                self.forget_order(order.task);
                self.timers.insert((*expires_at, Timer::Override(order.task)));
                self.overrides.proposed((**order).clone(), *expires_at);
            }
            Event::OverrideLapsed { task } => self.forget_order(*task),
            Event::Overridden { order, .. } => self.override_task(order),
            _ => {}
        }
    }

    fn open_gate(&mut self, gate: Gate) {
        let (subject, cause) = (gate.subject, Cause::of_gate(gate.mission, gate.subject));
        self.close_gate(subject);
        if let Subject::Plan(mission) = subject {
            self.with_mission(mission, |m| m.counts.gated += 1);
        }
        let ruled = self.mission(gate.mission).is_some_and(|m| m.policy.approvals.is_some());
        self.approvals.opened(gate);
        // A mission without rules about people has always waited for its delivery in silence.
        let told = ruled || !matches!(subject, Subject::Delivery(_));
        self.raise_notice(Some(cause).filter(|_| told), None);
        match subject {
            Subject::Start(task) => self.move_to(task, Stage::Approval { subject }),
            // A change that was written anew in the queue leaves it; one that is still before its
            // last check waits when it has passed.
            Subject::Merge(task)
                if self.task(task).is_some_and(|t| {
                    State::is_merging(&t.stage) || matches!(t.stage, Stage::Review { .. })
                }) =>
            {
                self.move_to(task, Stage::Approval { subject });
            }
            _ => {}
        }
    }

    /// Keeps the tasks that a person has to be asked about.
    pub(in crate::state) fn note_question(&mut self, id: TaskId) {
        let Some(task) = self.task(id) else { return };
        let Some(mission) = self.mission(task.mission) else { return };
        if mission.policy.approvals.is_none() {
            return;
        }
        let asks = self.needs_word((task, mission));
        self.with_mission_of(id, |m| {
            if asks {
                m.to_ask.insert(id);
            } else {
                m.to_ask.remove(&id);
            }
        });
    }

    /// A task that waits for people no longer does: what was not granted is asked anew one day, and a
    /// no is kept until then, for whoever speaks too late.
    pub(in crate::state) fn leave_gate(&mut self, old: &Stage) {
        if let Stage::Approval { subject } = old
            && !self.approvals.is_granted(*subject)
            && !self.approvals.is_rejected(*subject)
        {
            self.close_gate(*subject);
        }
    }

    /// There is more to do before anything can be delivered.
    pub(in crate::state) fn withdraw_proposal(&mut self, id: MissionId) {
        self.close_gate(Subject::Delivery(id));
        self.with_mission(id, |m| {
            if let MissionStage::Proposed { .. } = m.stage {
                m.stage = MissionStage::Open;
            }
        });
    }

    /// The question is not asked any more, whatever was said.
    pub(in crate::state) fn close_gate(&mut self, subject: Subject) {
        let Some(gate) = self.approvals.gate(subject) else { return };
        let cause = Cause::of_gate(gate.mission, subject);
        if self.approvals.is_open(subject) {
            self.settle_notice(Some(cause), None);
        }
        self.approvals.closed(subject);
    }

    fn approve_gate_by(&mut self, subject: Subject, commit: &Commit, by: &Actor) {
        let Some(gate) = self.approvals.gate(subject) else { return };
        let cause = Cause::of_gate(gate.mission, subject);
        self.note_decision(subject);
        let approval = Approval { by: by.clone(), commit: commit.clone(), at: self.at };
        self.approvals.approved(subject, approval);
        if !self.approvals.is_granted(subject) {
            return;
        }
        self.settle_notice(Some(cause), None);
        match subject {
            Subject::Plan(mission) => {
                self.with_mission(mission, |m| m.counts.gated = m.counts.gated.saturating_sub(1));
                self.release_unblocked(mission);
            }
            Subject::Start(task) => self.wait_or_go(task),
            Subject::Merge(task) => {
                self.approvals.closed(subject);
                self.with_task(task, |t| t.disputed = None);
                // Whoever reviews the change may still be at it.
                self.queue_or_wait(task);
            }
            Subject::External(_) | Subject::Rollback(_) | Subject::Delivery(_) => {}
        }
    }

    fn reject_gate_by(&mut self, subject: Subject, reason: &str, by: &Actor) {
        self.note_decision(subject);
        let cause = self.approvals.gate(subject).map(|gate| Cause::of_gate(gate.mission, subject));
        self.approvals.rejected(subject, by.clone(), reason);
        self.settle_notice(cause, None);
        if let Subject::Rollback(first) = subject {
            self.keep_wave(first);
        }
        if let Subject::Merge(task) = subject {
            self.approvals.closed(subject);
            let message = format!("rejected by {by}: {reason}");
            let failure = Failure::new(FailureKind::ValidationFailed, &message);
            self.with_task(task, |t| t.last_failure = Some(Box::new(failure)));
            self.send_back(task);
        }
    }

    /// The change of the last phase is not good enough: the phase is done again, on top of it and
    /// with what is said against it.
    pub(in crate::state) fn send_back(&mut self, id: TaskId) {
        // Whoever is asked to do it again does the phase that was skipped, too.
        let phase = self.phase_of(id);
        self.with_task(id, |t| {
            t.skipped.retain(|skipped| Some(*skipped) != phase);
            (t.started, t.retrying) = (false, false);
        });
        self.move_to(id, Stage::Ready);
    }

    /// HUM-11: how long people were busy with it, and how long it waited for them.
    fn note_decision(&mut self, subject: Subject) {
        let Some(gate) = self.approvals.gate(subject) else { return };
        let (mission, asked) = (gate.mission, gate.opened_at);
        self.note_attention(mission, asked);
    }

    pub(in crate::state) fn note_attention(&mut self, id: MissionId, asked: crate::Timestamp) {
        let Some(mission) = self.mission(id) else { return };
        let policy = mission.policy.clone();
        let plain = ApprovalPolicy::default();
        let rules = policy.approvals.as_ref().unwrap_or(&plain);
        self.human_time.decided(rules, id, asked, None, self.at);
    }

    /// What a delivery has to pass; the protected branch is no level's and no order's to lift.
    pub(in crate::state) fn open_delivery(&mut self, id: MissionId, commit: &Commit) {
        let Some(mission) = self.mission(id) else { return };
        let gate = Gate {
            subject: Subject::Delivery(id),
            mission: id,
            commit: commit.clone(),
            author: Actor::kapelle(),
            people: mission.delivery_people(),
            assessed: None,
            opened_at: self.at,
        };
        self.open_gate(gate);
    }

    pub(in crate::state) fn delivery_approved(&mut self, id: MissionId) {
        self.note_decision(Subject::Delivery(id));
        self.close_gate(Subject::Delivery(id));
    }

    /// Nobody has to say anything about this mission any more.
    pub(in crate::state) fn forget_people_of(&mut self, id: MissionId) {
        self.approvals.mission_ended(id);
        let ordered: Vec<TaskId> = self.overrides.tasks().collect();
        for task in ordered {
            if self.task(task).is_some_and(|t| t.mission == id) {
                self.forget_order(task);
            }
        }
    }

    fn forget_order(&mut self, task: TaskId) {
        if let Some(pending) = self.overrides.pending(task) {
            self.timers.remove(&(pending.expires_at, Timer::Override(task)));
            self.overrides.settled(task);
        }
    }

    fn override_task(&mut self, order: &Order) {
        let id = order.task;
        self.forget_order(id);
        match &order.action {
            OverrideAction::SkipStep { step } => self.skip(id, *step),
            OverrideAction::ForceComplete => {
                self.forget_losses(id);
                self.drop_check(id);
                if self.task(id).is_some_and(|t| t.stage == Stage::DeadLetter) {
                    self.settle_notice(self.cause_of(id), Some(id));
                }
                self.close_gate(Subject::Start(id));
                self.close_gate(Subject::Merge(id));
                let at = self.at;
                self.with_task(id, |t| t.ended_at = Some(at));
                self.with_mission_of(id, |m| m.failure_rate.succeeded());
                self.mend_waves(id);
                self.move_to(id, Stage::Done);
                self.release_dependents(id);
            }
            OverrideAction::Reset { step } => {
                self.forget_losses(id);
                self.drop_check(id);
                let place = self.place_of(id, *step).unwrap_or(0);
                let mission = self.task(id).and_then(|task| self.mission(task.mission));
                let flow = mission.map(|m| m.policy.flow.iter().take(place));
                let shows = |phase: &Phase| phase.expects() == Expectation::SomeCheckFails;
                let is_shown = flow.is_some_and(|mut before| before.any(shows));
                self.with_task(id, |t| {
                    t.phase = place;
                    t.accepted_by_phase.retain(|(phase, _)| *phase < place);
                    t.accepted = t.accepted_by_phase.last().map(|(_, commit)| commit.clone());
                    // What a phase that stays has shown is not for this one to change.
                    if !is_shown {
                        t.frozen = Arc::default();
                    }
                    t.skipped.remove(step);
                });
                self.restart(id);
            }
            OverrideAction::Reassign { to, .. } => {
                self.schedule.bound.insert(id, *to);
            }
        }
    }

    /// An order went through a gate.
    fn pass_gate(&mut self, subject: Subject) {
        let Some(gate) = self.approvals.gate(subject) else { return };
        let cause = Cause::of_gate(gate.mission, subject);
        if self.approvals.is_open(subject) {
            self.settle_notice(Some(cause), None);
        }
        self.approvals.passed(subject);
    }

    /// The check of a change that nobody waits for any more, running, wanted or put off.
    pub(in crate::state) fn drop_check(&mut self, id: TaskId) {
        let chore = Chore::Gate(id);
        self.unwant(id, chore);
        let Some(mission) = self.task(id).map(|task| task.mission) else { return };
        let timer = Timer::Chore(mission, chore);
        if let Some(due) = self.timers.iter().find(|(_, t)| *t == timer).copied() {
            self.timers.remove(&due);
            self.with_mission(mission, |m| m.counts.parked = m.counts.parked.saturating_sub(1));
        }
    }

    fn skip(&mut self, id: TaskId, step: Phase) {
        self.forget_losses(id);
        self.with_task(id, |t| {
            t.skipped.insert(step);
        });
        let Some(task) = self.task(id) else { return };
        let Some(mission) = self.mission(task.mission) else { return };
        let begun = !matches!(task.stage, Stage::Waiting | Stage::Blocked { .. });
        let (current, next) = (task.phase(&mission.policy), task.next_phase(&mission.policy));
        let gated = matches!(task.stage, Stage::Approval { .. });
        if gated {
            self.pass_gate(Subject::Start(id));
        }
        match next {
            _ if current != Some(step) => {
                if gated {
                    self.restart(id);
                }
            }
            Some(next) => {
                self.drop_check(id);
                self.with_task(id, |t| t.phase = next);
                match begun {
                    true => self.restart(id),
                    false => self.forget_attempt(id),
                }
            }
            None => {
                self.drop_check(id);
                self.forget_attempt(id);
                self.close_gate(Subject::Merge(id));
                self.queue_or_wait(id);
            }
        }
    }

    /// What was begun in the phase is not gone on with.
    fn forget_attempt(&mut self, id: TaskId) {
        self.discard(id);
        self.with_task(id, |t| {
            t.resume = None;
            (t.started, t.retrying) = (false, false);
        });
    }

    /// The task waits for an agent, as if it had not begun its phase.
    fn restart(&mut self, id: TaskId) {
        self.forget_attempt(id);
        let entered = self.schedule.queue.ticket(id).map(|ticket| ticket.entered_at);
        self.move_to(id, Stage::Ready);
        // It waited before: that counts on, whoever it waits for now.
        let Schedule { queue, locks, .. } = &mut self.schedule;
        if let Some(entered_at) = entered
            && let Some(ticket) = queue.left(id)
        {
            queue.entered(Ticket { entered_at, ..ticket }, locks);
        }
    }

    /// Into the merge queue, or before the people and reviewers who have to be asked first.
    pub(in crate::state) fn queue_or_wait(&mut self, id: TaskId) {
        let subject = Subject::Merge(id);
        if self.approvals.is_open(subject) {
            self.move_to(id, Stage::Approval { subject });
        } else if let Some(council) = self.is_under_review(id) {
            self.move_to(id, Stage::Review { council });
        } else {
            self.enter_merge_queue(id);
        }
    }

    fn phase_of(&self, id: TaskId) -> Option<Phase> {
        let task = self.task(id)?;
        task.phase(&self.mission(task.mission)?.policy)
    }

    fn place_of(&self, id: TaskId, step: Phase) -> Option<usize> {
        let mission = self.mission(self.task(id)?.mission)?;
        mission.policy.flow.iter().position(|phase| *phase == step)
    }

    /// How a gate stands, for whoever is asked why something waits.
    #[must_use]
    pub fn gate_standing(&self, subject: Subject) -> Option<(&Gate, GateStanding)> {
        let gate = self.approvals.gate(subject)?;
        Some((gate, self.approvals.standing(subject, &gate.commit)))
    }
}
