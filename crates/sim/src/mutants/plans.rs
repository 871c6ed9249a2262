//! Bugs about plans under way.

use kapelle_core::checklist::StepRefusal;
use kapelle_core::event::{Interruption, PauseReason};
use kapelle_core::plan::operation::OperationRefusal;
use kapelle_core::task::Stage;
use kapelle_core::{Actor, Command, Event, Refusal, State, TaskId};

use super::{Decision, Mutant};

/// The decision as a bug about plans falsifies it.
pub(super) fn falsify(
    mutant: Mutant,
    decision: Decision,
    given: &Command,
    state: &State,
) -> Decision {
    match (mutant, given, decision) {
        (Mutant::EndlessGaps, Command::ProposeGaps { mission, plan, .. }, Ok(events))
            if events.iter().any(is_exhaustion) =>
        {
            let first_task = TaskId(state.tasks().count() as u32 + 1);
            let tasks = plan.shared();
            Ok(vec![Event::PlanAccepted { mission: *mission, first_task, tasks, gap: Some(1) }])
        }
        (
            Mutant::SkipsOperations,
            Command::CompleteOperation { fence, index, change },
            Err(Refusal::Operation(OperationRefusal::TooEarly { .. })),
        ) => {
            let task = state.lease(*fence).map_or(TaskId(0), |lease| lease.task);
            let (fence, index, change) = (*fence, *index, change.clone());
            Ok(vec![Event::OperationCompleted { task, fence, index, change }])
        }
        (Mutant::LosesWork, Command::CompleteOperation { fence, .. }, Ok(mut events)) => {
            for event in &mut events {
                if let (Event::OperationCompleted { change, .. }, Some(lease)) =
                    (event, state.lease(*fence))
                {
                    change.clone_from(&lease.base);
                }
            }
            Ok(events)
        }
        (Mutant::MakesRoomForAnyone, Command::CompleteOperation { fence, .. }, Ok(mut events)) => {
            let waiting = state.tasks().find(|task| task.stage == Stage::Ready);
            if let ([Event::OperationCompleted { task, .. }], Some(to)) = (&events[..], waiting) {
                let cause = Interruption::GaveWay { to: to.id };
                events.push(Event::AttemptInterrupted { task: *task, fence: *fence, cause });
            }
            Ok(events)
        }
        (
            Mutant::CountsTwice,
            Command::CompleteStep { fence, .. },
            Err(Refusal::Step(StepRefusal::AlreadyDone { step, .. })),
        ) => {
            let task = state.lease(*fence).map_or(TaskId(0), |lease| lease.task);
            let (by, notes) = (Actor("ada".into()), String::new());
            let progress = "1/1".to_owned();
            let (fence, change) = (*fence, None);
            Ok(vec![Event::StepCompleted { task, fence, step, progress, by, notes, change }])
        }
        (Mutant::NoBatches, _, Ok(mut events)) => {
            events.retain(|event| !matches!(event, Event::PlanBatched { .. }));
            Ok(events)
        }
        (_, _, decision) => decision,
    }
}

fn is_exhaustion(event: &Event) -> bool {
    matches!(event, Event::MissionPaused { reason: PauseReason::Gaps(_), .. })
}
