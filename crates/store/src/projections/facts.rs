//! Rows that tell what happened: attempts, costs, checks and questions, as the events have it. Exhaustive, so that a new event has to say whether it has something to tell.

use std::collections::BTreeMap;

use kapelle_core::command::CheckResult;
use kapelle_core::event::Chore;
use kapelle_core::report::Usage;
use kapelle_core::state::Live;
use kapelle_core::{
    AgentId, Commit, Event, Fence, MissionId, Record, Role, TaskId, Timestamp, Usd,
};

use super::attempts::Ending;
use super::{Changes, Fold};
use crate::tables::Of;

impl Fold {
    /// Writes what the record adds to the past. The state is the one before it.
    pub(super) fn tell(&mut self, record: &Record, changes: &mut Changes) {
        match &record.event {
            Event::TeamChanged { seats, .. } => self.seats(seats),
            Event::AgentAdded { agent, .. } => {
                self.agents.add(*agent);
            }
            Event::LeaseGranted { .. }
            | Event::LeaseRenewed { .. }
            | Event::CostCharged { .. }
            | Event::SubAgentClosed { .. }
            | Event::AttemptFinished { .. }
            | Event::AttemptFailed { .. }
            | Event::AttemptInterrupted { .. }
            | Event::AttemptAbandoned { .. } => self.tell_of_attempts(record, changes),
            Event::OperationCompleted { task, fence, index, change } => {
                let Some(mission) = self.mission_of(*task) else { return };
                let row = [
                    fence.0.into(),
                    (*index).into(),
                    mission.to_string().into(),
                    task.0.into(),
                    change.as_str().into(),
                    record.at.into(),
                ];
                changes.put(Of::FileOperations, row);
            }
            Event::ChecksFinished { .. } | Event::LaneTested { .. } => {
                self.tell_of_checks(record, changes)
            }
            Event::CheckpointRaised { .. }
            | Event::CheckpointAnswered { .. }
            | Event::ChangeConflicted { .. }
            | Event::MissionDelivered { .. }
            | Event::MissionCancelled { .. } => self.tell_of_people(record, changes),
            Event::ApprovalAsked { .. }
            | Event::ApprovalGiven { .. }
            | Event::ApprovalRejected { .. }
            | Event::DeliveryApproved { .. }
            | Event::DeliveryRefused { .. } => self.tell_of_approvals(record, changes),
            Event::OverrideProposed { .. }
            | Event::OverrideLapsed { .. }
            | Event::Overridden { .. } => self.tell_of_orders(record, changes),
            Event::CouncilConvened { .. }
            | Event::VoteCast { .. }
            | Event::VoteDropped { .. }
            | Event::CouncilClosed { .. }
            | Event::CouncilDecided { .. }
            | Event::CouncilResolved { .. }
            | Event::CouncilAbandoned { .. } => self.tell_of_councils(record, changes),
            Event::FilesLocked { .. }
            | Event::BreakerMoved { .. }
            | Event::ProviderParked { .. }
            | Event::ProviderBack { .. } => {
                self.tell_of_hindrances(record, changes);
            }
            Event::AgentRetired { .. }
            | Event::ScaleRefused { .. }
            | Event::QueueBackedUp { .. }
            | Event::RateUseReported { .. }
            | Event::SettingsChanged { .. }
            | Event::SubAgentOpened { .. }
            | Event::SessionStarted
            | Event::CapRaised { .. }
            | Event::SpendingWarned { .. }
            | Event::BurnAlerted { .. }
            | Event::SpendingPaused { .. }
            | Event::SpendingStopped
            | Event::SpendingResumed { .. }
            | Event::ReservationReleased { .. }
            // Nothing of its own: whatever frees a file, the state is asked what is free now.
            | Event::LocksExpired { .. }
            | Event::RollbackStarted { .. }
            | Event::DeliveryProposed { .. }
            | Event::PrioritySet { .. }
            | Event::FailuresWarned { .. }
            | Event::PlanWarned { .. }
            | Event::PlanBatched { .. }
            | Event::MissionEstimated { .. }
            | Event::ChecklistMade { .. }
            | Event::StepCompleted { .. }
            | Event::TaskReported { .. }
            | Event::AttemptIdle { .. }
            | Event::AttemptHeard { .. }
            | Event::CheckNoted { .. }
            | Event::TroubleMet { .. }
            | Event::SolutionRecalled { .. }
            | Event::TaskUnblocked { .. }
            | Event::TaskRequeued { .. }
            | Event::PersonNotified { .. }
            | Event::PersonAssigned { .. }
            | Event::WentAhead { .. }
            | Event::LaneFormed { .. }
            | Event::LaneBuilt { .. }
            | Event::LanePassed { .. }
            | Event::LaneLanded { .. }
            | Event::ChangeRebased { .. }
            | Event::TargetMoved { .. }
            | Event::BaselineMeasured { .. }
            | Event::RollbackFailed { .. }
            | Event::RevertBuilt { .. }
            | Event::TaskRolledBack { .. }
            | Event::MissionOpened { .. }
            | Event::PlanAccepted { .. }
            | Event::MissionPaused { .. }
            | Event::MissionResumed { .. }
            | Event::ChangeRejected { .. }
            | Event::RetryScheduled { .. }
            | Event::BackoffEnded { .. }
            | Event::TaskDeadLettered { .. }
            | Event::TaskBlocked { .. }
            | Event::ChoreStarted { .. }
            | Event::ChoreFailed { .. }
            | Event::ChoreDue { .. }
            | Event::ChoreWithdrawn { .. }
            | Event::BranchPrepared { .. }
            | Event::TestQuarantined { .. }
            | Event::TestReleased { .. }
            | Event::PhaseAccepted { .. }
            | Event::CandidateBuilt { .. }
            | Event::CandidateRejected { .. }
            | Event::CandidatePassed { .. }
            | Event::TaskMerged { .. }
            | Event::BranchMoved { .. } => {}
        }
    }

    /// The arms of `tell` about attempts.
    fn tell_of_attempts(&mut self, record: &Record, changes: &mut Changes) {
        let at = record.at;
        match &record.event {
            Event::LeaseGranted { task, agent, .. } => {
                self.agents.add(*agent);
                let Some(mission) = self.mission_of(*task) else { return };
                self.attempts.begin(mission, &record.event, changes);
            }
            Event::LeaseRenewed { fence, expires_at } => {
                self.attempts.renew(*fence, *expires_at, changes);
                self.extend_locks(*fence, *expires_at, changes);
            }
            Event::CostCharged { task, fence, usd, usage } => {
                self.attempts.charge(*fence, *usd, changes);
                self.cost(record, (*task, *fence), *usd, usage, changes);
            }
            Event::SubAgentClosed { task, fence, spent, usage, .. } => {
                self.attempts.charge(*fence, *spent, changes);
                self.cost(record, (*task, *fence), *spent, usage, changes);
            }
            Event::AttemptFinished { fence, change, .. } => {
                let done = Ending { change: Some(change), ..ended("finished", at) };
                self.attempts.end(*fence, done, changes);
            }
            Event::AttemptFailed { fence, failure, .. } => {
                let failed = Ending { failure: Some(failure), ..ended("failed", at) };
                self.attempts.end(*fence, failed, changes);
            }
            Event::AttemptInterrupted { fence, cause, .. } => {
                let cut = Ending { interruption: Some(*cause), ..ended("interrupted", at) };
                self.attempts.end(*fence, cut, changes);
            }
            Event::AttemptAbandoned { fence, failure, .. } => {
                let cut = Ending { failure: Some(failure), ..ended("interrupted", at) };
                self.attempts.end(*fence, cut, changes);
            }
            _ => {}
        }
    }

    /// The arms of `tell` about checks.
    fn tell_of_checks(&mut self, record: &Record, changes: &mut Changes) {
        match &record.event {
            Event::ChecksFinished { task, fence, commit, results } => {
                // Of journals from before there were lanes.
                let kind = match self.state.live(*fence) {
                    Some(Live::Chore { chore: Chore::LaneTest(_), .. }) => "candidate",
                    _ => "gate",
                };
                self.checks(record, (*task, kind), commit, results, changes);
            }
            Event::LaneTested { lane, mission, candidate, results, .. } => {
                let queue = self.state.mission(*mission).and_then(|m| m.merge_queue());
                let first = queue.and_then(|queue| queue.members(*lane).first().copied());
                if let Some(task) = first {
                    self.checks(record, (task, "candidate"), candidate, results, changes);
                }
            }
            _ => {}
        }
    }

    /// The arms of `tell` about what people are asked.
    fn tell_of_people(&mut self, record: &Record, changes: &mut Changes) {
        let at = record.at;
        let place = (record.seq, at);
        match &record.event {
            Event::CheckpointRaised { task, fence, question, change } => {
                let asked = Ending { change: change.as_ref(), ..ended("asked", at) };
                self.attempts.end(*fence, asked, changes);
                let Some(mission) = self.mission_of(*task) else { return };
                self.people.ask(place, (mission, *task, *fence), question, changes);
            }
            Event::CheckpointAnswered { task, input, by, .. } => {
                self.people.answer(*task, (input, by), at, changes);
            }
            Event::ChangeConflicted { task, question: Some(question), .. } => {
                let Some(mission) = self.mission_of(*task) else { return };
                // The queue asks about what the last attempt left.
                let Some(fence) = self.attempts.last_of(*task) else { return };
                self.people.ask(place, (mission, *task, fence), question, changes);
            }
            Event::MissionDelivered { mission, .. } => {
                self.approvals.delivered(*mission, at, changes);
                self.end_mission(*mission, at, changes);
            }
            Event::MissionCancelled { mission, .. } => {
                self.attempts.cancel(*mission, at, changes);
                self.people.cancel(*mission, at, changes);
                self.approvals.cancelled(*mission, at, changes);
                self.end_mission(*mission, at, changes);
            }
            _ => {}
        }
    }

    fn end_mission(&mut self, mission: MissionId, at: Timestamp, changes: &mut Changes) {
        self.overrides.mission_ended(mission, at, changes);
        self.forget_breaker(mission, at, changes);
    }

    pub(super) fn mission_of(&self, task: TaskId) -> Option<MissionId> {
        self.state.task(task).map(|task| task.mission)
    }

    /// A seat that comes and goes within one batch has been there all the same.
    fn seats(&mut self, seats: &BTreeMap<Role, u32>) {
        for (&role, &count) in seats {
            for seat in 1..=count {
                self.agents.add(AgentId { role, seat });
            }
        }
    }

    fn cost(
        &mut self,
        record: &Record,
        (task, fence): (TaskId, Fence),
        usd: Usd,
        usage: &[Usage],
        changes: &mut Changes,
    ) {
        let agent = self.state.payer(fence);
        let (Some(mission), Some(agent)) = (self.mission_of(task), agent) else { return };
        let total = self.agents.add(agent);
        *total = total.saturating_add(usd.as_micros());
        let row = [
            record.seq.0.into(),
            mission.to_string().into(),
            task.0.into(),
            fence.0.into(),
            agent.to_string().into(),
            usd.as_micros().into(),
            record.at.into(),
        ];
        changes.put(Of::Costs, row);
        for (position, used) in (0_u32..).zip(usage) {
            let row = [
                record.seq.0.into(),
                position.into(),
                (&used.model).into(),
                used.input_tokens.into(),
                used.output_tokens.into(),
            ];
            changes.put(Of::ModelUsage, row);
        }
    }

    fn checks(
        &self,
        record: &Record,
        (task, kind): (TaskId, &'static str),
        commit: &Commit,
        results: &[CheckResult],
        changes: &mut Changes,
    ) {
        let Some(mission) = self.mission_of(task) else { return };
        for (position, result) in (0_u32..).zip(results) {
            let row = [
                record.seq.0.into(),
                position.into(),
                mission.to_string().into(),
                task.0.into(),
                kind.into(),
                commit.as_str().into(),
                (&result.name).into(),
                result.passed.into(),
                (&result.output).into(),
                result.duration_ms.into(),
                record.at.into(),
            ];
            changes.put(Of::Checks, row);
        }
    }
}

fn ended(status: &'static str, at: Timestamp) -> Ending<'static> {
    Ending { status, at: Some(at), ..Ending::default() }
}
