//! Which rows an event changes. Exhaustive, so that a new event has to say it too.

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
            | Event::MissionPaused { mission, .. }
            | Event::MissionResumed { mission, .. }
            | Event::MissionCancelled { mission, .. }
            | Event::MissionDelivered { mission, .. }
            | Event::BranchPrepared { mission, .. } => {
                self.whole_mission(state, *mission);
                self.team = Team::Changed;
            }
            Event::TeamChanged { .. } => self.team = Team::Changed,
            Event::SettingsChanged { .. } => {}
            Event::LeaseGranted { task, fence, .. }
            | Event::CostCharged { task, fence, .. }
            | Event::AttemptFinished { task, fence, .. }
            | Event::AttemptFailed { task, fence, .. }
            | Event::AttemptInterrupted { task, fence, .. }
            | Event::CheckpointRaised { task, fence, .. } => {
                self.task(state, *task);
                self.agents.extend(state.lease(*fence).map(|lease| lease.agent));
            }
            Event::CheckpointAnswered { task, .. }
            | Event::ChangeRejected { task, .. }
            | Event::RetryScheduled { task, .. }
            | Event::BackoffEnded { task }
            | Event::TaskDeadLettered { task }
            | Event::TaskBlocked { task, .. }
            | Event::ChecksFinished { task, .. }
            | Event::PhaseAccepted { task, .. }
            | Event::CandidateBuilt { task, .. }
            | Event::CandidateRejected { task, .. }
            | Event::CandidatePassed { task, .. }
            | Event::BranchMoved { task, .. } => self.task(state, *task),
            Event::TaskMerged { task, .. } => {
                self.task(state, *task);
                let dependents = state.task(*task).map(|task| task.dependents.iter());
                self.tasks.extend(dependents.into_iter().flatten());
            }
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

    fn task(&mut self, state: &State, id: TaskId) {
        self.tasks.insert(id);
        self.missions.extend(state.task(id).map(|task| task.mission));
    }

    fn fence(&mut self, state: &State, fence: Fence) {
        self.missions.extend(state.live(fence).map(|live| match live {
            Live::Attempt(lease) => lease.mission,
            Live::Chore { mission, .. } => *mission,
        }));
    }
}
