//! Completion reports, of missions that the engine really ran.

use crate::fixture::{M1, World, ann, checked, commit, failed, task};
use kapelle_core::command::Command;
use kapelle_core::completion::{CompletionReport, NotEnded};
use kapelle_core::failure::FailureKind;
use kapelle_core::flow::Phase;
use kapelle_core::report::Report;
use kapelle_core::status::Status;

fn report(world: &World, name: &str) -> Result<CompletionReport, NotEnded> {
    let mission = world.state().mission(M1).expect("the mission is open");
    CompletionReport::of(world.task(name), mission)
}

/// TSK-12: whoever reads one page must learn what was done, what landed and what it cost.
#[test]
fn a_merged_task_is_reported_with_what_the_engine_knows() {
    let mut planned = task("1-1", &[]);
    planned.estimated_duration_minutes = Some(20);
    planned.file_operation_count = 3;
    planned.required_actions = vec!["one".into(), "two".into()];
    let mut world = World::with(vec![planned], checked());
    world.chores();
    world.wait(5_000);
    let fence = world.fence_of("1-1");
    for index in 0..3 {
        world.must(Command::CompleteOperation { fence, index, change: commit(800) });
    }
    let step = "step-0".to_owned();
    world.must(Command::CompleteStep { fence, step, notes: String::new(), change: None });
    let said = Report { message: "x".repeat(5_000), ..Report::default() };
    world.must(Command::ReportTask { fence, report: said });
    world.succeed("1-1");
    let found = report(&world, "1-1").unwrap();
    let merged = world.task("1-1").merged.clone();
    assert!(merged.is_some());
    assert_eq!((found.status, &found.merged), (Status::Completed, &merged));
    assert_eq!((found.attempts, found.phases.as_slice()), (1, [Phase::Green].as_slice()));
    assert_eq!((found.operations_completed, found.progress.as_deref()), (3, Some("1/2")));
    assert_eq!(found.duration_ms, found.ended_at.unwrap().ms_since(found.started_at.unwrap()));
    assert_eq!((found.message.len(), found.estimated_duration_minutes), (2_000, Some(20)));
    let json = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<CompletionReport>(&json).unwrap(), found);
}

/// A task that gave up is finished, too: its report says why.
#[test]
fn a_dead_letter_is_reported_with_its_failures() {
    let mut world = World::with(vec![task("1-1", &[])], checked());
    world.chores();
    while world.status("1-1") != Status::DeadLetter {
        world.finish("1-1", failed(FailureKind::GitConflict));
        world.wait(600_000);
    }
    let found = report(&world, "1-1").unwrap();
    assert_eq!(found.status, Status::DeadLetter);
    assert_eq!(found.failures.get(&FailureKind::GitConflict), Some(&2));
    assert!(found.last_failure.is_some() && found.merged.is_none());
}

#[test]
fn a_cancelled_task_that_never_began_has_no_phases() {
    let mut world = World::with(vec![task("1-1", &[]), task("1-2", &["1-1"])], checked());
    world.chores();
    let cancel = Command::CancelMission { mission: M1, reason: "no".into(), by: ann() };
    world.must(cancel);
    let found = report(&world, "1-2").unwrap();
    assert_eq!((found.status, found.phases, found.attempts), (Status::Cancelled, vec![], 0));
}

#[test]
fn work_that_goes_on_has_no_report() {
    let mut world = World::with(vec![task("1-1", &[])], checked());
    world.chores();
    let refused = report(&world, "1-1").unwrap_err();
    assert_eq!(refused.to_string(), "task 1-1 has not ended: it is in_progress");
}
