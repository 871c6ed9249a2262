//! The fold: what each event does to the state. Total: history is never refused.
//!
//! The arms live beside what they are about: `missions`, `work`, `chores`; what keeps the indexes
//! right, whoever changes something, is in `index`.

use super::State;
use crate::event::Event;
use crate::time::Timestamp;

mod agents;
mod approvals;
mod chores;
mod council;
mod failure;
mod index;
mod merge;
mod missions;
mod money;
mod planning;
mod providers;
mod queue;
mod waves;
mod work;

pub(super) use money::tokens_of;

impl State {
    pub fn apply(&mut self, event: &Event, at: Timestamp) {
        self.at = at;
        match event {
            Event::MissionOpened { .. }
            | Event::PlanAccepted { .. }
            | Event::MissionPaused { .. }
            | Event::MissionResumed { .. }
            | Event::MissionCancelled { .. }
            | Event::DeliveryProposed { .. }
            | Event::DeliveryApproved { .. }
            | Event::DeliveryRefused { .. }
            | Event::MissionDelivered { .. } => self.apply_to_missions(event),
            Event::PlanWarned { .. }
            | Event::PlanBatched { .. }
            | Event::MissionEstimated { .. }
            | Event::OperationCompleted { .. }
            | Event::ChecklistMade { .. }
            | Event::StepCompleted { .. }
            | Event::TaskReported { .. } => self.apply_to_plans(event),
            Event::TeamChanged { .. }
            | Event::AgentAdded { .. }
            | Event::AgentRetired { .. }
            | Event::ScaleRefused { .. }
            | Event::QueueBackedUp { .. }
            | Event::RateUseReported { .. } => self.apply_to_agents(event),
            Event::SettingsChanged { settings, .. } => self.change_rules(settings),
            Event::FilesLocked { lock } => self.lock(lock),
            Event::LocksExpired { task } => self.unlock(*task),
            Event::PrioritySet { task, priority, .. } => self.set_priority(*task, *priority),
            Event::LeaseGranted { .. }
            | Event::LeaseRenewed { .. }
            | Event::AttemptIdle { .. }
            | Event::AttemptHeard { .. }
            | Event::AttemptFinished { .. }
            | Event::AttemptFailed { .. }
            | Event::AttemptInterrupted { .. }
            | Event::CheckpointRaised { .. }
            | Event::CheckpointAnswered { .. }
            | Event::ChangeRejected { .. }
            | Event::RetryScheduled { .. }
            | Event::BackoffEnded { .. } => self.apply_to_work(event, at),
            Event::TroubleMet { .. }
            | Event::AttemptAbandoned { .. }
            | Event::TaskDeadLettered { .. }
            | Event::TaskBlocked { .. }
            | Event::TaskUnblocked { .. }
            | Event::TaskRequeued { .. }
            | Event::PersonNotified { .. } => self.apply_to_failures(event),
            Event::CouncilConvened { .. }
            | Event::VoteCast { .. }
            | Event::VoteDropped { .. }
            | Event::CouncilClosed { .. }
            | Event::CouncilDecided { .. }
            | Event::CouncilResolved { .. }
            | Event::CouncilAbandoned { .. }
            | Event::SolutionRecalled { .. } => self.apply_to_councils(event, at),
            Event::CostCharged { .. }
            | Event::SubAgentOpened { .. }
            | Event::SubAgentClosed { .. }
            | Event::SessionStarted
            | Event::CapRaised { .. }
            | Event::SpendingWarned { .. }
            | Event::BurnAlerted { .. }
            | Event::SpendingPaused { .. }
            | Event::SpendingStopped
            | Event::SpendingResumed { .. }
            | Event::ReservationReleased { .. } => self.apply_to_money(event, at),
            Event::TestQuarantined { test, .. } => self.tests.quarantined(test),
            Event::TestReleased { test, .. } => self.tests.released(test),
            Event::ProviderParked { provider, until } => self.permits.parked(provider, *until),
            Event::ProviderBack { provider, .. } => self.permits.unparked(provider),
            Event::BreakerMoved { key, to, .. } => self.move_breaker(key, *to),
            Event::PersonAssigned { .. }
            | Event::WentAhead { .. }
            | Event::ApprovalAsked { .. }
            | Event::ApprovalGiven { .. }
            | Event::ApprovalRejected { .. }
            | Event::OverrideProposed { .. }
            | Event::OverrideLapsed { .. }
            | Event::Overridden { .. } => self.apply_to_approvals(event),
            // Only for people.
            Event::CheckNoted { .. } | Event::FailuresWarned { .. } => {}
            Event::ChoreStarted { .. }
            | Event::ChoreFailed { .. }
            | Event::ChoreDue { .. }
            | Event::ChoreWithdrawn { .. }
            | Event::BranchPrepared { .. }
            | Event::ChecksFinished { .. }
            | Event::PhaseAccepted { .. }
            | Event::CandidateBuilt { .. }
            | Event::CandidateRejected { .. }
            | Event::CandidatePassed { .. }
            | Event::TaskMerged { .. }
            | Event::BranchMoved { .. } => self.apply_to_chores(event),
            Event::LaneFormed { .. }
            | Event::LaneBuilt { .. }
            | Event::LaneTested { .. }
            | Event::LanePassed { .. }
            | Event::LaneLanded { .. }
            | Event::ChangeConflicted { .. }
            | Event::ChangeRebased { .. }
            | Event::TargetMoved { .. }
            | Event::BaselineMeasured { .. }
            | Event::RollbackStarted { .. }
            | Event::RevertBuilt { .. }
            | Event::RollbackFailed { .. }
            | Event::TaskRolledBack { .. } => self.apply_to_merge(event),
        }
        self.watch_queues();
    }
}
