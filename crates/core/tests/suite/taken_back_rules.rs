//! Dependents of what is taken back (QUE-10): those that wait are blocked, those at work stopped.

use crate::fixture::{M1, World, ann, check, checked, commit, done, task, test_first};
use kapelle_core::approval::{Order, OverrideAction};
use kapelle_core::command::RewriteOutcome;
use kapelle_core::event::Interruption;
use kapelle_core::flow::Phase;
use kapelle_core::plan::PlannedTask;
use kapelle_core::rollback::RollbackRefused;
use kapelle_core::status::Status;
use kapelle_core::task::Stage;
use kapelle_core::{Command, Effect, Event, Refusal, TaskId, activity, why};

const FIRST: TaskId = TaskId(1);

fn confirm(world: &World, name: &str, tasks: &[&str]) -> Command {
    let tasks = tasks.iter().map(|name| world.task(name).id).collect();
    let task = world.task(name).id;
    Command::ConfirmRollback { task, tasks, reason: "all of it".into(), by: ann() }
}

fn requeue(world: &mut World, name: &str) {
    let (task, reason) = (world.task(name).id, "again".to_owned());
    world.must(Command::RequeueTask { task, reason, by: ann() });
}

/// The reversal does not fit, so the rollback is off.
fn call_off(world: &mut World, name: &str) {
    let fence = world.fence_of(name);
    let outcome = RewriteOutcome::Conflict { paths: vec!["a".into()] };
    world.must(Command::FinishRewrite { fence, outcome });
    assert_eq!(world.status(name), Status::Completed);
}

fn in_wave(id: &str, needs: &[&str]) -> PlannedTask {
    PlannedTask { wave: Some("login".into()), ..task(id, needs) }
}

/// 1 has landed, 2 needs it and is at work, 3 needs 2.
fn chain() -> World {
    let tasks = vec![task("1", &[]), task("2", &["1"]), task("3", &["2"])];
    let mut world = World::with(tasks, checked());
    world.chores();
    world.finish("1", done(101, &["a"]));
    world.chores();
    assert_eq!(world.working(), ["2".to_owned()].into());
    world
}

/// As `chain`, with the first of two phases of 2 accepted.
fn half_done() -> World {
    let tasks = vec![task("1", &[]), task("2", &["1"])];
    let mut world = World::with(tasks, test_first());
    world.chores();
    world.succeed("1");
    world.succeed("1");
    world.succeed("2");
    assert_eq!(world.task("2").phase, 1);
    world
}

/// QUE-10: the agent of a dependent stops, what waits behind it is blocked too, and both come back
/// when the task is done again. Nobody is blamed for it.
#[test]
fn a_confirmed_rollback_stops_the_dependents_at_work_and_they_come_back() {
    let mut world = chain();
    let fence = world.fence_of("2");
    let command = confirm(&world, "1", &["1"]);
    let events = world.must(command);
    let second = world.task("2").id;
    let cause = Interruption::NeedTakenBack { need: FIRST };
    let stopped = Event::AttemptInterrupted { task: second, fence, cause };
    assert!(events.contains(&stopped), "{events:?}");
    for task in [second, world.task("3").id] {
        assert!(events.contains(&Event::TaskBlocked { task, on: FIRST }), "{events:?}");
    }
    assert!(world.working().is_empty());
    world.chores();
    let statuses = ["1", "2", "3"].map(|name| world.status(name));
    assert_eq!(statuses, [Status::RolledBack, Status::Blocked, Status::Blocked]);
    let task = world.task("2");
    assert_eq!((task.retries, task.lost, task.failed_times()), (0, 0, 0));

    requeue(&mut world, "1");
    assert_eq!(world.working(), ["1".to_owned()].into(), "2 waits for it as it did before");
    for (name, change) in [("1", 201), ("2", 202), ("3", 203)] {
        world.finish(name, done(change, &[name]));
        world.chores();
    }
    let statuses = ["1", "2", "3"].map(|name| world.status(name));
    assert_eq!(statuses, [Status::Completed; 3]);
}

/// Nothing failed: whoever asks why hears what became of what it needs, by whose word, and what
/// brings it back.
#[test]
fn a_dependent_of_what_is_taken_back_says_who_took_it_and_what_to_do() {
    let mut world = chain();
    let says = |world: &World, name: &str| why(world.state(), world.task(name)).unwrap();
    let command = confirm(&world, "1", &["1"]);
    let events = world.must(command);
    let goes = "Dependency 1 is being taken back by ann: all of it";
    assert_eq!(["2", "3"].map(|name| says(&world, name)), [goes; 2]);
    let told = events.iter().map(|event| activity::line(world.state(), event));
    assert!(told.flatten().any(|line| line.text == goes), "{events:?}");
    world.chores();
    let gone = "Dependency 1 was taken back by ann: all of it; it comes back when a person \
                requeues 1";
    assert_eq!(["2", "3"].map(|name| says(&world, name)), [gone; 2]);
    let own = "was merged, and taken back again by ann: all of it; a person can requeue it";
    assert_eq!(says(&world, "1"), own);
    requeue(&mut world, "1");
    assert_eq!(says(&world, "2"), "waits for 1 to be merged");
}

/// What the phases of a dependent left stands on what is gone: it begins anew.
#[test]
fn accepted_phases_of_a_dependent_are_set_aside_with_what_they_were_built_on() {
    let mut world = half_done();
    let command = confirm(&world, "1", &["1"]);
    world.must(command);
    assert_eq!(world.task("2").stage, Stage::Blocked { on: FIRST });
    world.chores();
    let task = world.task("2");
    assert_eq!((task.phase, &task.accepted, &task.unfinished), (0, &None, &None));
    assert_eq!(task.waits_for, 1);
}

/// A rollback that is called off takes nothing from anybody.
#[test]
fn a_dependent_goes_on_where_it_was_when_the_rollback_is_called_off() {
    let mut world = half_done();
    let left = world.task("2").accepted.clone();
    let command = confirm(&world, "1", &["1"]);
    world.must(command);
    call_off(&mut world, "1");
    assert_eq!(world.working(), ["2".to_owned()].into());
    let task = world.task("2");
    assert_eq!((task.phase, &task.accepted), (1, &left));
    assert!(left.is_some());
}

/// What waits for its merge is taken out of the queue: nothing lands on what is gone.
#[test]
fn a_dependent_in_the_merge_queue_is_withdrawn() {
    for called_off in [false, true] {
        let mut world = chain();
        world.finish("2", done(102, &["b"]));
        let fence = world.fence_of("2");
        world.must(Command::FinishChecks { fence, results: check(true) });
        assert!(matches!(world.task("2").stage, Stage::Merging { checked: false, .. }));
        let command = confirm(&world, "1", &["1"]);
        world.must(command);
        assert_eq!(world.status("2"), Status::Blocked);
        let queue = world.state().mission(M1).unwrap().merge_queue().unwrap();
        assert_eq!(queue.standing(world.task("2").id), None);
        if called_off {
            call_off(&mut world, "1");
            world.chores();
            assert_eq!(world.task("2").merged, Some(commit(102)), "nobody has to do it again");
            continue;
        }
        world.chores();
        assert_eq!(world.task("2").accepted, None);
        requeue(&mut world, "1");
        world.finish("1", done(201, &["a"]));
        world.chores();
        assert_eq!(world.working(), ["2".to_owned()].into(), "it begins anew");
    }
}

/// Seed 1246: skipping the last step of a dependent sent it to be merged, although what it stands
/// on was being taken back.
#[test]
fn no_step_sends_a_dependent_to_be_merged_while_its_need_goes() {
    let mut world = chain();
    world.finish("2", done(102, &["b"]));
    let fence = world.fence_of("2");
    world.must(Command::FinishChecks { fence, results: check(true) });
    let command = confirm(&world, "1", &["1"]);
    world.must(command);
    let action = OverrideAction::SkipStep { step: Phase::Green };
    let (task, reason) = (world.task("2").id, "it is fine".to_owned());
    let order = Order { task, action, reason, by: ann() };
    let refused = world.send(Command::Override { order: Box::new(order) });
    assert_eq!(refused, Err(Refusal::Blocked { task: "2".into(), on: "1".into() }));
}

/// Seeds 14428, 60842: who was lost too often while it was blocked gave up when it was free again,
/// before anybody had tried.
#[test]
fn losses_before_a_block_do_not_count_after_it() {
    let mut world = chain();
    world.must(Command::HostStarted);
    world.must(Command::HostStarted);
    assert_eq!(world.task("2").lost, 2);
    let command = confirm(&world, "1", &["1"]);
    world.must(command);
    call_off(&mut world, "1");
    assert_eq!((world.task("2").lost, world.status("2")), (0, Status::InProgress));
}

/// The checks of a dependent at its gate are not waited for.
#[test]
fn a_dependent_at_its_gate_is_stopped() {
    let mut world = chain();
    world.finish("2", done(102, &["b"]));
    let fence = world.fence_of("2");
    assert!(matches!(world.running.get(&fence), Some(Effect::RunChecks { .. })));
    let command = confirm(&world, "1", &["1"]);
    world.must(command);
    assert!(!world.running.contains_key(&fence), "{:?}", world.running);
    assert_eq!(world.status("2"), Status::Blocked);
    world.chores();
    assert_eq!(world.status("1"), Status::RolledBack);
}

/// A candidate that is checked may be on the branch before anybody can say stop.
#[test]
fn a_dependent_that_is_about_to_land_holds_the_rollback_up() {
    let mut world = chain();
    world.finish("2", done(102, &["b"]));
    while !matches!(world.task("2").stage, Stage::Merging { checked: true, .. }) {
        let fence = world.fence_of("2");
        match &world.running[&fence] {
            Effect::BuildLane { .. } => drop(world.build("2", 102)),
            _ => drop(world.must(Command::FinishChecks { fence, results: check(true) })),
        }
    }
    let command = confirm(&world, "1", &["1"]);
    let because = RollbackRefused::Landing { task: "1".into(), dependent: "2".into() };
    assert_eq!(world.send(command), Err(Refusal::Rollback { because }));
    world.chores();
    let command = confirm(&world, "1", &["2", "1"]);
    world.must(command);
    world.chores();
    let statuses = ["1", "2", "3"].map(|name| world.status(name));
    assert_eq!(statuses, [Status::RolledBack, Status::RolledBack, Status::Blocked]);
}

/// Mates of a wave that need the task stop with it, and rise with it.
#[test]
fn a_dependent_of_the_same_wave_is_stopped_too() {
    let mut world = World::with(vec![in_wave("1", &[]), in_wave("2", &["1"])], checked());
    world.chores();
    world.finish("1", done(101, &["a"]));
    world.chores();
    assert_eq!(world.working(), ["2".to_owned()].into());
    let command = confirm(&world, "1", &["1"]);
    world.must(command);
    world.chores();
    assert_eq!((world.status("1"), world.status("2")), (Status::RolledBack, Status::Blocked));
    requeue(&mut world, "1");
    for (name, change) in [("1", 201), ("2", 202)] {
        world.finish(name, done(change, &[name]));
        world.chores();
    }
    assert_eq!((world.status("1"), world.status("2")), (Status::Completed, Status::Completed));
}
