//! Agents at work: what follows from the end of an attempt.
//!
//! An agent's word is intent. "Done" is accepted only with a change, within the files of its
//! phase, and then the checks decide.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::approvals::told_of;
use super::decide::Decision;
use super::money::Terms;
use super::schedule::Chosen;
use super::{Lease, Live, State, gate};
use crate::command::{AttemptOutcome, Spending};
use crate::event::{Event, Interruption, PauseReason};
use crate::failure::{Failure, FailureKind};
use crate::flow::Phase;
use crate::ids::{Actor, Commit, Fence, TaskId};
use crate::limits;
use crate::mission::Mission;
use crate::report::Question;
use crate::task::Task;
use crate::time::Timestamp;

impl State {
    pub(super) fn finish_attempt(
        &self,
        fence: Fence,
        outcome: &AttemptOutcome,
        spent: &Spending,
        now: Timestamp,
    ) -> Decision {
        let lease = self.lease_or_refuse(fence)?;
        let (task, mission) = self.task_or_refuse(lease.task)?;
        let unpriced = spent.unpriced.as_ref().map(|model| {
            let message = format!("no price is known for the model {model:?}");
            AttemptOutcome::Failed(Failure::new(FailureKind::Budget, &message))
        });
        let outcome = unpriced.as_ref().unwrap_or(outcome);
        let mut events = match outcome {
            AttemptOutcome::Done { change, touched } => {
                self.judge_change(lease, fence, (change.as_ref(), touched), now)
            }
            AttemptOutcome::Asked { question, change } => {
                self.raise(task, fence, question, change.clone())
            }
            AttemptOutcome::Failed(failure) if failure.kind == FailureKind::RateLimited => {
                self.park_provider(task.id, lease, fence, failure, now)
            }
            AttemptOutcome::Failed(failure) => {
                self.fail_attempt(task.id, fence, failure.bounded(), now)
            }
            AttemptOutcome::Abandoned(failure) => {
                self.abandon((task, mission), fence, failure, now)
            }
        };
        if *spent != Spending::default() {
            let charged = self.charge_for(fence, task.id, self.uncharged(lease), spent, now);
            events.splice(..0, charged);
        }
        self.pay_before_asking(&mut events, fence, now);
        events.extend(self.judge_provider(lease, fence, outcome, now));
        let paused = events.iter().any(|event| matches!(event, Event::MissionPaused { .. }));
        let left = self.uncharged(lease);
        if spent.usd > left && !paused {
            let before = lease.reserved.saturating_sub(left);
            let (reserved, spent) = (lease.reserved, before + spent.usd);
            let reason = PauseReason::Overspent { reserved, spent };
            events.extend(self.pause_for(mission, reason, Actor::kapelle(), Some(fence)));
        }
        Ok(events)
    }

    fn judge_change(
        &self,
        lease: &Lease,
        fence: Fence,
        (change, touched): (Option<&Commit>, &Arc<Vec<String>>),
        now: Timestamp,
    ) -> Vec<Event> {
        let Ok((task, mission)) = self.task_or_refuse(lease.task) else { return Vec::new() };
        let Some(phase) = task.phase(&mission.policy) else { return Vec::new() };
        let invalid = |message: &str| {
            let failure = Failure::new(FailureKind::ValidationFailed, message);
            self.fail_attempt(task.id, fence, failure, now)
        };
        let as_it_is = task.accepted.as_ref().filter(|_| phase.may_change_nothing());
        let Some(change) = change.or(as_it_is) else {
            return invalid("the agent reported success but changed nothing");
        };
        if let Err(trespass) = self.settings.territories.check_writes(lease.agent, touched) {
            return invalid(&trespass.to_string());
        }
        let trespasses = phase.trespasses(touched, &mission.policy.tests, &task.frozen);
        if !trespasses.is_empty() {
            let paths = trespasses.join(", ");
            return invalid(&format!("the phase {phase} may not change these files: {paths}"));
        }
        let touched = told_of(mission, touched);
        let unchecked = !gate::has_checks(task, &mission.policy);
        let asked = unchecked
            .then(|| self.ask_to_merge((task, mission), (change, &touched), now))
            .flatten();
        let (id, finished, accepted) = (task.id, change.clone(), change.clone());
        let mut events = Vec::with_capacity(3);
        events.push(Event::AttemptFinished { task: id, fence, change: finished, touched });
        events.extend(asked);
        if unchecked {
            events.push(Event::PhaseAccepted { task: id, phase, change: accepted });
        }
        events
    }

    fn raise(
        &self,
        task: &Task,
        fence: Fence,
        question: &Question,
        change: Option<Commit>,
    ) -> Vec<Event> {
        let question = question.bounded();
        let mut events = vec![Event::CheckpointRaised {
            task: task.id,
            fence,
            question: question.clone(),
            change,
        }];
        let answers = self.mission(task.mission).map(|mission| &mission.policy.answers);
        let answers = answers.filter(|_| task.told < limits::ANSWERS_BY_RULE_MAX);
        if let Some(input) = answers.and_then(|answers| answers.get(&question.resume_id)) {
            events.push(Event::CheckpointAnswered {
                task: task.id,
                resume_id: question.resume_id.clone(),
                input: input.clone(),
                by: Actor::configuration(),
            });
        }
        events
    }

    /// After a restart of the host nothing that it ran is alive: attempts and chores begin anew,
    /// with fences that no message of the earlier life knows.
    pub(super) fn interrupt_all(&self) -> Vec<Event> {
        let ended = self.end_all(Interruption::HostRestarted);
        ended.chain([Event::SessionStarted]).collect()
    }

    /// A host that stops in order says so while it still can: the next one finds nothing that was
    /// lost, and no task is held to account for the wish of a person.
    pub(super) fn stop_host(&self) -> Vec<Event> {
        self.end_all(Interruption::Stopped).collect()
    }

    fn end_all(&self, cause: Interruption) -> impl Iterator<Item = Event> {
        self.live.iter().map(move |(&fence, live)| match live {
            Live::Attempt(lease) => Event::AttemptInterrupted { task: lease.task, fence, cause },
            Live::Chore { .. } => Event::ChoreWithdrawn { fence },
        })
    }

    /// A heartbeat is worth a record only when the lease is half over, or when it is the first of
    /// an agent and others wait for it to be online (QUE-19).
    pub(super) fn renew(&self, fences: &[Fence], now: Timestamp) -> Vec<Event> {
        let renewal = |fence: &Fence| {
            let lease = self.lease(*fence)?;
            let ttl = self.silence_ms(self.task(lease.task)?, self.mission(lease.mission)?);
            let half_over = self.renewal_at(lease)? <= now;
            let expires_at = now.plus_ms(ttl);
            let worth = half_over || self.awaits_heartbeat(*fence);
            worth.then_some(Event::LeaseRenewed { fence: *fence, expires_at })
        };
        let distinct: BTreeSet<&Fence> = fences.iter().collect();
        distinct.into_iter().filter_map(renewal).collect()
    }

    /// When a lease is half over: from then on a heartbeat renews it.
    #[must_use]
    pub fn renewal_at(&self, lease: &Lease) -> Option<Timestamp> {
        let ttl = self.silence_ms(self.task(lease.task)?, self.mission(lease.mission)?);
        Some(Timestamp(lease.expires_at.0.saturating_sub(ttl / 2)))
    }

    /// Whether others wait for the agent of this attempt to be online.
    #[must_use]
    pub fn awaits_heartbeat(&self, fence: Fence) -> bool {
        let launches = &self.schedule.launches;
        launches.is_starting(fence) && launches.check(&self.settings.queue).is_err()
    }

    /// How long the host of a task may be silent: by the kind of work where the mission says so.
    fn silence_ms(&self, task: &Task, mission: &Mission) -> u64 {
        let phase = task.phase(&mission.policy).unwrap_or(Phase::Green);
        mission.policy.silence_ms(task.plan.kind, phase)
    }

    /// Gives `task` to an agent, on these terms.
    pub(super) fn grant_lease(
        &self,
        id: TaskId,
        terms: Terms,
        Chosen { agent, pick, because }: Chosen,
        now: Timestamp,
    ) -> Option<Event> {
        let (task, mission) = self.task_and_mission(id)?;
        let policy = &mission.policy;
        let phase = task.phase(policy)?;
        let begun = task.unfinished.as_deref().or(task.accepted.as_ref());
        Some(Event::LeaseGranted {
            task: id,
            fence: self.next_fence(),
            agent,
            phase,
            base: begun.or(mission.tip.as_ref())?.clone(),
            reserved: terms.reserved,
            granted_at: now,
            expires_at: now.plus_ms(self.silence_ms(task, mission)),
            deadline: now.plus_ms(policy.time_ms(agent.role, task.plan.kind, phase)),
            reservation: Some(terms.drawn),
            pick: Some(pick),
            because: Some(because),
            route: terms.route,
        })
    }
}
