//! Which rows an event changes. Exhaustive, so that a new event has to say it too.

use kapelle_core::approval::Subject;
use kapelle_core::locks::LockGrant;
use kapelle_core::state::Live;
use kapelle_core::{Event, Fence, MissionId, State, TaskId};

use super::{Team, Touched};

impl Touched {
    /// Called with the state before and after the event: what it ends is known only before, what
    /// it begins only after.
    pub(super) fn note(&mut self, state: &State, event: &Event) {
        match event {
            // The status of a task says whether its mission is paused or cancelled, and a branch
            // that is there frees its tasks.
            Event::MissionOpened { mission, .. }
            | Event::PlanAccepted { mission, .. }
            | Event::PlanBatched { mission, .. }
            | Event::MissionEstimated { mission, .. }
            | Event::RollbackStarted { mission, .. }
            | Event::MissionPaused { mission, .. }
            | Event::MissionResumed { mission, .. }
            | Event::MissionCancelled { mission, .. }
            | Event::MissionDelivered { mission, .. }
            | Event::BranchPrepared { mission, .. } => {
                self.whole_mission(state, *mission);
                self.team = Team::Changed;
            }
            Event::TeamChanged { .. } | Event::AgentAdded { .. } | Event::AgentRetired { .. } => {
                self.team = Team::Changed;
            }
            Event::ScaleRefused { .. }
            | Event::QueueBackedUp { .. }
            | Event::RateUseReported { .. }
            | Event::FailuresWarned { .. }
            | Event::PlanWarned { .. }
            | Event::CheckNoted { .. }
            | Event::SessionStarted
            | Event::CapRaised { .. }
            | Event::SpendingWarned { .. }
            | Event::BurnAlerted { .. }
            | Event::SpendingPaused { .. }
            | Event::SpendingStopped
            | Event::SpendingResumed { .. }
            | Event::PersonNotified { .. }
            | Event::PersonAssigned { .. }
            | Event::WentAhead { .. }
            | Event::OverrideProposed { .. }
            | Event::OverrideLapsed { .. }
            | Event::ProviderParked { .. }
            | Event::ProviderBack { .. }
            | Event::TestQuarantined { .. }
            | Event::TestReleased { .. }
            | Event::BreakerMoved { .. } => {}
            // By which rules tasks are scored.
            Event::SettingsChanged { .. } => self.tasks.extend(state.tasks().map(|task| task.id)),
            Event::ApprovalAsked { gate } => self.subject(state, gate.subject),
            Event::ApprovalGiven { subject, .. } | Event::ApprovalRejected { subject, .. } => {
                self.subject(state, *subject);
            }
            Event::Overridden { order, .. } => {
                self.task(state, order.task);
                let dependents = state.task(order.task).map(|task| task.dependents.iter());
                self.tasks.extend(dependents.into_iter().flatten());
                self.team = Team::Changed;
            }
            Event::LeaseGranted { task, fence, .. }
            | Event::CostCharged { task, fence, .. }
            | Event::SubAgentOpened { task, fence, .. }
            | Event::SubAgentClosed { task, fence, .. }
            | Event::AttemptFinished { task, fence, .. }
            | Event::AttemptFailed { task, fence, .. }
            | Event::AttemptInterrupted { task, fence, .. }
            | Event::ReservationReleased { task, fence, .. }
            | Event::AttemptAbandoned { task, fence, .. }
            | Event::CheckpointRaised { task, fence, .. } => self.attempt(state, *task, *fence),
            Event::OperationCompleted { task, .. }
            | Event::ChecklistMade { task, .. }
            | Event::StepCompleted { task, .. }
            | Event::TaskReported { task, .. }
            | Event::AttemptIdle { task, .. }
            | Event::AttemptHeard { task, .. }
            | Event::FilesLocked { lock: LockGrant { task, .. } }
            | Event::LocksExpired { task }
            | Event::PrioritySet { task, .. }
            | Event::TroubleMet { task, .. }
            | Event::CouncilConvened { task, .. }
            | Event::VoteCast { task, .. }
            | Event::VoteDropped { task, .. }
            | Event::CouncilClosed { task, .. }
            | Event::CouncilDecided { task, .. }
            | Event::CouncilResolved { task, .. }
            | Event::CouncilAbandoned { task, .. }
            | Event::SolutionRecalled { task, .. }
            | Event::TaskUnblocked { task }
            | Event::TaskRequeued { task, .. }
            | Event::ChangeConflicted { task, .. }
            | Event::ChangeRebased { task, .. }
            | Event::RevertBuilt { task, .. }
            | Event::CheckpointAnswered { task, .. }
            | Event::ChangeRejected { task, .. }
            | Event::RetryScheduled { task, .. }
            | Event::BackoffEnded { task }
            | Event::TaskDeadLettered { task, .. }
            | Event::TaskBlocked { task, .. }
            | Event::ChecksFinished { task, .. }
            | Event::PhaseAccepted { task, .. }
            | Event::CandidateBuilt { task, .. }
            | Event::CandidateRejected { task, .. }
            | Event::CandidatePassed { task, .. }
            | Event::BranchMoved { task, .. } => self.task(state, *task),
            Event::LaneFormed { mission, .. }
            | Event::LaneBuilt { mission, .. }
            | Event::LaneTested { mission, .. }
            | Event::LanePassed { mission, .. }
            | Event::LaneLanded { mission, .. }
            | Event::TargetMoved { mission, .. }
            | Event::BaselineMeasured { mission, .. } => self.aboard(state, *mission),
            Event::RollbackFailed { task, .. } | Event::TaskRolledBack { task, .. } => {
                if let Some(task) = state.task(*task) {
                    self.whole_mission(state, task.mission);
                }
            }
            Event::TaskMerged { task, .. } => self.merged(state, *task),
            Event::LeaseRenewed { fence, .. }
            | Event::ChoreFailed { fence, .. }
            | Event::ChoreWithdrawn { fence } => self.fence(state, *fence),
            Event::ChoreStarted { mission, .. }
            | Event::ChoreDue { mission, .. }
            | Event::DeliveryProposed { mission, .. }
            | Event::DeliveryApproved { mission, .. }
            | Event::DeliveryRefused { mission, .. } => {
                self.missions.insert(*mission);
            }
        }
    }

    fn whole_mission(&mut self, state: &State, id: MissionId) {
        self.missions.insert(id);
        self.tasks.extend(state.mission(id).into_iter().flat_map(|mission| mission.task_ids()));
    }

    /// What moves in a lane moves all who are aboard, and those behind it.
    fn aboard(&mut self, state: &State, id: MissionId) {
        self.missions.insert(id);
        let queue = state.mission(id).and_then(|mission| mission.merge_queue());
        self.tasks.extend(queue.into_iter().flat_map(|q| q.aboard().map(|(task, ..)| task)));
    }

    fn task(&mut self, state: &State, id: TaskId) {
        self.tasks.insert(id);
        self.missions.extend(state.task(id).map(|task| task.mission));
    }

    fn subject(&mut self, state: &State, subject: Subject) {
        match subject {
            Subject::Plan(mission) | Subject::Delivery(mission) => {
                self.whole_mission(state, mission);
            }
            Subject::Start(task)
            | Subject::Merge(task)
            | Subject::External(task)
            | Subject::Rollback(task) => self.task(state, task),
        }
    }

    fn attempt(&mut self, state: &State, id: TaskId, fence: Fence) {
        self.task(state, id);
        self.agents.extend(state.payer(fence));
    }

    /// What needed it may go on.
    fn merged(&mut self, state: &State, id: TaskId) {
        self.task(state, id);
        let dependents = state.task(id).map(|task| task.dependents.iter());
        self.tasks.extend(dependents.into_iter().flatten());
    }

    fn fence(&mut self, state: &State, fence: Fence) {
        self.missions.extend(state.live(fence).map(|live| match live {
            Live::Attempt(lease) => lease.mission,
            Live::Chore { mission, .. } => *mission,
        }));
    }
}
