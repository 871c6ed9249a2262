//! The oracle: judges from the outside whether what happens may happen.
//!
//! It reads the journal and the world, never the engine's own books, so a bug in those shows up as
//! a disagreement. A verdict that is broken is one sentence for a person.

use std::collections::BTreeSet;

use kapelle_core::approval::Subject;
use kapelle_core::engine::Accepted;
use kapelle_core::event::{Interruption, PauseReason};
use kapelle_core::machine::MachineUse;
use kapelle_core::plan::estimate::CapBy;
use kapelle_core::policy::Policy;
use kapelle_core::status::Status;
use kapelle_core::task::{Stage, Task};
use kapelle_core::{Command, Commit, Event, Fence, MissionId, Record, Refusal, State, Timestamp};

use crate::repository::Repository;

mod agents;
mod council;
mod facts;
mod failure;
mod leases;
mod merge;
mod money;
mod people;
mod plans;
mod providers;
mod queue;
mod reviews;
mod routes;
mod tests_seen;
mod trials;
mod waves;
mod work;

#[cfg(test)]
mod tests;

use agents::Agents;
use council::Councils;
pub(crate) use facts::Facts;
use failure::Failures;
use leases::Leases;
use merge::Merges;
use money::Books;
use people::Voices;
use plans::Plans;
use providers::Providers;
use queue::{Means, Queue};
use reviews::Reviews;
use tests_seen::TestsSeen;
use waves::Waves;
use work::Work;

/// The broken invariant, if one is.
pub(crate) type Verdict = Result<(), String>;

pub(crate) type Reply = Result<Accepted, Refusal>;

/// An invariant that must hold, or the sentence that says it does not.
pub(crate) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(otherwise()) }
}

#[derive(Debug, Default)]
pub(crate) struct Oracle {
    /// A second fold of the journal, one event at a time.
    shadow: State,
    statuses: Vec<Status>,
    pub facts: Facts,
    agents: Agents,
    leases: Leases,
    plans: Plans,
    books: Books,
    queue: Queue,
    providers: Providers,
    work: Work,
    failures: Failures,
    merges: Merges,
    voices: Voices,
    councils: Councils,
    waves: Waves,
    reviews: Reviews,
    tests: TestsSeen,
    events: u64,
}

/// What was true before a batch, to judge its replies by.
#[derive(Debug)]
pub(crate) struct Before {
    stale: Vec<bool>,
    attempts: Vec<Fence>,
    /// Missions that had something in flight.
    busy: BTreeSet<MissionId>,
    next_event: u64,
}

impl Oracle {
    pub(crate) fn before(&self, inputs: &[Command]) -> Before {
        let dead = |command: &Command| command.fence().is_some_and(|f| !self.leases.is_live(f));
        Before {
            stale: inputs.iter().map(dead).collect(),
            attempts: self.leases.attempts().collect(),
            busy: self.leases.missions(),
            next_event: self.events + 1,
        }
    }

    /// Everything that one durable batch says.
    pub(crate) fn observe(
        &mut self,
        inputs: &[Command],
        records: &[Record],
        now: Timestamp,
        repo: &Repository,
    ) -> Verdict {
        let running: Vec<Fence> = self.leases.attempts().collect();
        self.books.hear(inputs);
        for record in records {
            self.events += 1;
            ensure(record.seq.0 == self.events, || {
                format!("record {} stands in place {}", record.seq, self.events)
            })?;
            ensure(record.at == now, || format!("record {} has another time", record.seq))?;
            self.facts.observe(&record.event);
            let (books, providers) = (&self.books, &self.providers);
            let (agents, leases) = (&self.agents, &self.leases);
            let means = Means { books, providers, agents, leases, failures: &self.failures };
            self.queue.observe(record, &self.facts, means, &self.shadow)?;
            self.books.observe(record, &self.facts, &self.shadow)?;
            self.providers.observe(record, &self.facts, &self.shadow)?;
            self.agents.observe(record, &self.leases)?;
            self.plans.observe(&record.event, &self.facts, (&self.leases, &self.work))?;
            self.leases.observe(record, &self.facts)?;
            self.merges.observe(&record.event, &self.facts, &self.work, repo)?;
            self.work.observe(&record.event, &self.facts, repo)?;
            self.failures.observe(record, &self.facts, &self.shadow)?;
            self.voices.observe(record, &self.facts)?;
            self.councils.observe(record, &self.facts)?;
            self.waves.observe(&record.event, &self.facts)?;
            self.reviews.observe(&record.event)?;
            self.tests.observe(&record.event)?;
            self.fold(record)?;
            self.councils.judge_seal(&record.event, &self.shadow)?;
        }
        if let [Command::HostStarted, .., Command::CloseBills] = inputs {
            let failed = records.iter().find(|record| match &record.event {
                Event::AttemptFailed { fence, .. } => running.contains(fence),
                _ => false,
            });
            ensure(failed.is_none(), || format!("an outage counts as a failure: {failed:?}"))?;
        }
        self.agents.close(&self.shadow, inputs, now);
        if let [Command::StopHost] = inputs {
            // Nothing starts or runs out any more: the next conductor sees to it.
            return self.judge_stop(records);
        }
        self.plans.close()?;
        self.tests.close()?;
        self.leases.close(now)?;
        self.leases.hear(inputs, now);
        self.books.close(&self.shadow, now)?;
        self.waves.close(&self.facts, &self.shadow)?;
        self.failures.close(now, &self.facts, &self.waves)?;
        self.councils.close(now, &self.facts, &self.books)?;
        self.merges.close(&self.leases, &self.facts)?;
        self.providers.close(now)?;
        self.queue.close(now)?;
        self.judge_diligence(now)?;
        self.judge_counts()?;
        let idle = |mission| self.leases.of_mission(mission).next().is_none();
        let restless = self.facts.withdrawn().find(|mission| !idle(*mission));
        restless.map_or(Ok(()), |mission| {
            Err(format!("{mission} is paused or has ended, but something is in flight for it"))
        })
    }

    /// A stop in order ends all that runs, and loses nothing of it.
    fn judge_stop(&self, records: &[Record]) -> Verdict {
        let running = self.leases.fences().next();
        ensure(running.is_none(), || format!("{running:?} goes on after the stop"))?;
        let lost = records.iter().find(|record| match &record.event {
            Event::AttemptInterrupted { cause, .. } => *cause != Interruption::Stopped,
            _ => false,
        });
        ensure(lost.is_none(), || format!("a stop in order counts as a loss: {lost:?}"))
    }

    /// Folds one event and looks at what it did to every task.
    fn fold(&mut self, record: &Record) -> Verdict {
        self.shadow.apply(&record.event, record.at);
        self.failures.look(&self.shadow);
        self.queue.note_waiting(&self.shadow, record.at);
        let mut statuses = Vec::with_capacity(self.statuses.len());
        for task in self.shadow.tasks() {
            let Some(mission) = self.shadow.mission(task.mission) else {
                return Err(format!("task {} belongs to no mission", task.name()));
            };
            statuses.push(task.status(mission));
        }
        for (index, (was, is)) in self.statuses.iter().zip(&statuses).enumerate() {
            // A person's order may set a task anywhere.
            let ordered = matches!(record.event, Event::Overridden { .. });
            ensure(was == is || ordered || was.may_become(*is), || {
                format!("task number {} went from {was} to {is}, by {:?}", index + 1, record.event)
            })?;
        }
        self.statuses = statuses;
        Ok(())
    }

    /// Nothing that could start is left waiting.
    fn judge_diligence(&self, now: Timestamp) -> Verdict {
        let crowded =
            self.queue.holds_back(&self.facts, &self.shadow) || self.queue.launches(&self.shadow);
        if crowded || self.failures.has_suspect(&self.shadow) {
            return Ok(());
        }
        for task in self.shadow.tasks().filter(|task| task.stage == Stage::Ready) {
            let mission = self.facts.mission(task.mission)?;
            let stopped = mission.paused || mission.ended;
            let role = task.phase(&mission.policy).map(|phase| phase.role());
            let free = role.into_iter().flat_map(|role| self.agents.free(role, &self.leases));
            let attempt = mission.policy.budget.attempt_usd_max;
            let paid = self.books.affords(task, free, attempt, now);
            let anywhere = role.is_some_and(|role| self.queue.is_anywhere(task.id, role));
            let held = self.queue.holds(task.id) || !anywhere;
            let served = self.providers.are_free(task.mission);
            ensure(stopped || !paid || held || !served, || {
                format!("task {} of {} waits although a seat is free", task.name(), task.mission)
            })?;
        }
        self.judge_candour()
    }

    /// A mission knows how much is in flight for it without looking.
    fn judge_counts(&self) -> Verdict {
        for mission in self.shadow.missions() {
            let (told, live) = (mission.in_flight(), self.leases.of_mission(mission.id).count());
            ensure(told as usize == live, || {
                format!("{} has {live} in flight, and counts {told}", mission.id)
            })?;
        }
        Ok(())
    }

    /// Nothing waits unheard for somebody who is not there.
    fn judge_candour(&self) -> Verdict {
        if !self.agents.are_given(&self.leases) {
            return Ok(());
        }
        for mission in self.shadow.missions() {
            let facts = self.facts.mission(mission.id)?;
            let silent =
                facts.paused || facts.ended || self.leases.of_mission(mission.id).next().is_some();
            let waiting = self.shadow.tasks_of(mission).filter(|task| task.stage == Stage::Ready);
            let mut waiting = waiting.filter(|task| !self.queue.holds(task.id)).peekable();
            if silent || waiting.peek().is_none() {
                continue;
            }
            let may = |task: &Task| {
                let role = task.phase(&facts.policy).map(|phase| phase.role());
                let mut team = role.into_iter().flat_map(|role| self.agents.staying(role));
                team.any(|agent| self.queue.may_do(agent, task.id))
            };
            ensure(waiting.any(may), || {
                format!("nobody may do what waits in {}, and nobody is told", mission.id)
            })?;
        }
        Ok(())
    }

    /// What the answers of a batch must say. `records` are those of the same batch.
    pub(crate) fn judge_replies(
        &self,
        before: &Before,
        inputs: &[Command],
        replies: &[(u64, Reply)],
        records: &[Record],
    ) -> Verdict {
        let mut used = Vec::new();
        for ((command, stale), (_, reply)) in inputs.iter().zip(&before.stale).zip(replies) {
            let Ok(accepted) = reply else { continue };
            ensure(
                accepted.seq.0 + 1 >= before.next_event && accepted.seq.0 <= self.events,
                || format!("a reply speaks of record {}, outside of its batch", accepted.seq),
            )?;
            if let Some(fence) = command.fence() {
                ensure(!stale, || format!("stale fence {fence} was accepted: {command:?}"))?;
                ensure(!used.contains(&fence), || format!("fence {fence} gave two results"))?;
                used.push(fence);
            }
            self.judge_acceptance(command, before, records)?;
        }
        Ok(())
    }

    fn judge_acceptance(&self, command: &Command, before: &Before, records: &[Record]) -> Verdict {
        let recorded = |wanted: &dyn Fn(&Event) -> bool| records.iter().any(|r| wanted(&r.event));
        match command {
            Command::FinishAttempt { fence, spent, .. }
            | Command::ReportSpending { fence, spent }
                if spent.usd > kapelle_core::Usd::ZERO =>
            {
                let charged = recorded(&|event| {
                    matches!(event, Event::CostCharged { fence: f, usd, .. }
                        if f == fence && *usd == spent.usd)
                });
                ensure(charged, || format!("attempt {fence} spent {} for free", spent.usd))
            }
            Command::ApproveDelivery { mission, commit, .. } => {
                let subject = Subject::Delivery(*mission);
                let approved = recorded(&|event| {
                    matches!(event, Event::ApprovalGiven { subject: s, commit: c, .. }
                        if *s == subject && c == commit)
                        || matches!(event, Event::DeliveryApproved { mission: m, commit: c, .. }
                        if m == mission && c == commit)
                });
                ensure(approved, || format!("the approval of {commit} became another one"))
            }
            Command::OpenMission { plan, policy, .. } => {
                let planned = recorded(
                    &|event| matches!(event, Event::PlanAccepted { tasks, .. } if *tasks == plan.shared()),
                );
                let ruled = recorded(
                    &|event| matches!(event, Event::MissionOpened { policy: p, .. } if is_ruled(p, policy)),
                );
                ensure(planned && ruled, || "a mission is not the one that was asked for".into())
            }
            Command::CompleteOperation { fence, index, change } => {
                let other = records.iter().find(|record| match &record.event {
                    Event::OperationCompleted { fence: f, index: i, change: c, .. } => {
                        f == fence && i == index && c != change
                    }
                    _ => false,
                });
                ensure(other.is_none(), || format!("operation {index} is kept as {other:?}"))
            }
            Command::ReportMachine { used } if is_full(used) && before.stale.len() == 1 => {
                let goes_on = |id: &&MissionId| {
                    let stopped = self.facts.mission(**id).is_ok_and(|m| m.paused || m.ended);
                    !stopped && self.leases.of_mission(**id).next().is_some()
                };
                let busy = before.busy.iter().find(goes_on);
                ensure(busy.is_none(), || format!("{busy:?} goes on on a full machine"))
            }
            Command::ReportMachine { used } if !is_full(used) && before.stale.len() == 1 => {
                let paused = recorded(&|event| {
                    matches!(event, Event::MissionPaused { reason, .. }
                        if matches!(reason, PauseReason::Machine { .. }))
                });
                ensure(!paused, || format!("a mission stops on a machine with room: {used:?}"))
            }
            Command::HostStarted => {
                let survivor = before.attempts.iter().find(|fence| self.leases.is_live(**fence));
                ensure(survivor.is_none(), || {
                    format!("attempt {survivor:?} outlived the restart of its host")
                })
            }
            _ => Ok(()),
        }
    }

    /// The fold of the journal, to compare the engine's state with.
    pub(crate) fn shadow(&self) -> &State {
        &self.shadow
    }

    pub(crate) fn live_fences(&self) -> impl Iterator<Item = Fence> {
        self.leases.fences()
    }

    /// An agent did what it must not get away with.
    pub(crate) fn note_sin(&mut self, fence: Fence, sin: &'static str) {
        self.work.note_sin(fence, sin);
    }

    /// Whether our branch may move to this commit.
    pub(crate) fn judge_advance(&self, mission: MissionId, to: &Commit) -> Verdict {
        let checked = self.merges.may_land(to) || !self.facts.has_checks(mission);
        ensure(checked, || format!("unchecked commit {} reaches the branch", to.short()))
    }

    /// Whether the target may move to this commit.
    pub(crate) fn judge_delivery(&self, mission: MissionId, commit: &Commit) -> Verdict {
        ensure(self.facts.is_approved(mission, commit), || {
            format!("the target moves to {}, which nobody approved", commit.short())
        })
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }
}

/// Whether a mission has the rules that were asked for. An estimate may lower its cap.
fn is_ruled(given: &Policy, asked: &Policy) -> bool {
    let capped = asked.cost.as_ref().is_some_and(|cost| cost.cap == CapBy::Estimate);
    let lower = given.budget.mission_usd_max <= asked.budget.mission_usd_max;
    let same = Policy { budget: asked.budget, ..given.clone() } == *asked;
    same && (given.budget == asked.budget || (capped && lower))
}

/// Whether a machine has so little room that work on it has to stop (WRK-32).
fn is_full(used: &MachineUse) -> bool {
    used.memory_percent > 90 || used.disk_percent > 95 || used.inodes_percent > 95
}
