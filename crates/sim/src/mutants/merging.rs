//! Bugs of the merge queue and of rollbacks.

use kapelle_core::event::{Event, Interruption, Restart};
use kapelle_core::failure::{Failure, FailureKind};
use kapelle_core::merge::{AfterConflict, AfterTests};
use kapelle_core::{TaskId, Timestamp};

use super::Mutant;

pub(super) fn falsify(mutant: Mutant, events: &mut Vec<Event>, now: Timestamp) {
    match mutant {
        Mutant::LandsUntested => {
            let passed = events.iter().find_map(|event| match event {
                Event::LaneBuilt { mission, lane, steps, .. } => {
                    let candidate = steps.last()?.commit.clone();
                    Some(Event::LanePassed { mission: *mission, lane: *lane, candidate })
                }
                _ => None,
            });
            if events.len() == 1 {
                events.extend(passed);
            }
        }
        Mutant::BlamesTheFirst => {
            if let Some(task) = blame_first(events) {
                let failure = Failure::new(FailureKind::ValidationFailed, "guessed");
                let at = now.plus_ms(1_000);
                events.push(Event::ChangeRejected { task, failure });
                events.push(Event::RetryScheduled { task, at, from: Restart::Flow });
            }
        }
        Mutant::ForgetsAPassenger => {
            let merged = |event: &Event| matches!(event, Event::TaskMerged { .. });
            if events.iter().filter(|event| merged(event)).count() > 1 {
                let last = events.iter().rposition(merged);
                last.map(|last| events.remove(last));
            }
        }
        Mutant::RebasesForEver => {
            for event in events {
                if let Event::ChangeConflicted { next, question, .. } = event
                    && *next == AfterConflict::AskPerson
                {
                    (*next, *question) = (AfterConflict::Rebase, None);
                }
            }
        }
        Mutant::ExcusesAnything => {
            for event in events {
                if let Event::BaselineMeasured { results, .. } = event {
                    results.iter_mut().for_each(|result| result.passed = false);
                }
            }
        }
        Mutant::HalfRolledBack => {
            let mut told = 0;
            events.retain(|event| {
                told += u32::from(matches!(event, Event::TaskRolledBack { .. }));
                told < 2 || !matches!(event, Event::TaskRolledBack { .. })
            });
        }
        Mutant::BuildsOnSand
            if events.iter().any(|event| matches!(event, Event::RollbackStarted { .. })) =>
        {
            events.retain(|event| !matches!(event, Event::TaskBlocked { .. }));
        }
        Mutant::StopsNobody => events.retain(|event| {
            let cause = match event {
                Event::AttemptInterrupted { cause, .. } => Some(cause),
                _ => None,
            };
            !matches!(cause, Some(Interruption::NeedTakenBack { .. }))
        }),
        _ => {}
    }
}

/// Turns the halving of a batch into blame on its first; None if there was none.
fn blame_first(events: &mut [Event]) -> Option<TaskId> {
    events.iter_mut().find_map(|event| {
        let Event::LaneTested { verdict, .. } = event else { return None };
        let AfterTests::Halved { suspects, released, failed } = verdict.clone() else {
            return None;
        };
        let culprit = *suspects.first()?;
        *verdict = AfterTests::Blamed { culprit, released, failed };
        Some(culprit)
    })
}

/// The bugs of waves, which fall without anybody asking for it.
pub(super) fn split(mutant: Mutant, events: &mut Vec<Event>) {
    match mutant {
        Mutant::HalfAWave => {
            for event in events {
                if let Event::RollbackStarted { task, tasks, .. } = event {
                    tasks.retain(|one| one == task);
                }
            }
        }
        Mutant::WaveGoesOn => {
            let falls = events.iter().any(|event| matches!(event, Event::TaskBlocked { .. }));
            // What falls with a single task is another matter.
            let alone = events.iter().any(|event| matches!(event, Event::TaskDeadLettered { .. }));
            if falls && !alone {
                events.clear();
            }
        }
        _ => {}
    }
}
