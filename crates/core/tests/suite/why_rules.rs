//! `why`, sentence by sentence: those that no rule about something else asks for.

use crate::fixture::{M1, World, ann, asked, checked, done, failed, open, task};
use kapelle_core::command::AttemptOutcome;
use kapelle_core::failure::{Failure, FailureKind};
use kapelle_core::policy::Policy;
use kapelle_core::{Command, why};

fn why_of(world: &World, name: &str) -> String {
    why(world.state(), world.task(name)).unwrap_or_default()
}

fn world(policy: Policy) -> World {
    let mut world = World::with(vec![task("1", &[])], policy);
    world.chores();
    world
}

#[test]
fn a_task_of_a_cancelled_mission_says_who_needs_it_no_more() {
    let mut world = world(checked());
    world.must(Command::CancelMission { mission: M1, reason: "enough".into(), by: ann() });
    assert_eq!(why_of(&world, "1"), "m1 was cancelled: enough");
}

#[test]
fn a_task_before_its_missions_branch_waits_for_it() {
    let world = World::with(vec![task("1", &[])], checked());
    assert_eq!(why_of(&world, "1"), "waits for the mission's branch");
}

#[test]
fn a_task_that_asks_says_what() {
    let mut world = world(checked());
    world.finish("1", asked("q1"));
    assert_eq!(why_of(&world, "1"), "asks a person: which one?");
}

#[test]
fn a_task_at_work_needs_no_reason() {
    let world = world(checked());
    assert_eq!(why(world.state(), world.task("1")), None);
}

/// The wait itself, and the reason for it where one was given.
#[test]
fn a_task_between_two_tries_says_what_went_wrong() {
    let mut world = world(checked());
    world.finish("1", failed(FailureKind::Network));
    let until = "1970-01-01 00:16:41 UTC";
    let said = format!("is tried again at {until}: it broke");
    assert_eq!(why_of(&world, "1"), said);
    let mut world = self::world(checked());
    let failure = Failure::new(FailureKind::Network, "");
    world.finish("1", AttemptOutcome::Failed(failure));
    assert_eq!(why_of(&world, "1"), format!("is tried again at {until}"));
}

/// What its host could not do is not what it failed at before.
#[test]
fn a_task_that_its_host_could_not_run_tells_of_the_host() {
    let mut world = world(checked());
    world.finish("1", failed(FailureKind::Network));
    world.wait(60_000);
    let failure = Failure::new(FailureKind::AgentError, "no space left on device");
    world.finish("1", AttemptOutcome::Abandoned(failure));
    let why = why_of(&world, "1");
    assert!(why.starts_with("is tried again at 1970-01-01 00:17:"), "{why}");
    assert!(why.ends_with(": its host could not run it: no space left on device"), "{why}");
    // And the next failure is its own again.
    world.wait(60_000);
    world.finish("1", failed(FailureKind::Network));
    assert!(why_of(&world, "1").ends_with(": it broke"), "{}", why_of(&world, "1"));
}

/// Checks and merges that could not be made wait, too: nothing is running.
#[test]
fn a_chore_that_failed_says_when_it_is_tried_again() {
    let mut world = world(checked());
    world.finish("1", done(7, &["a"]));
    let fail = |world: &mut World| {
        let failure = Failure::new(FailureKind::AgentError, "git is not there");
        world.must(Command::FailChore { fence: world.fence_of("1"), failure });
    };
    fail(&mut world);
    let why = why_of(&world, "1");
    assert!(why.starts_with("its checks could not be run, and are tried again at 1970-"), "{why}");
    assert!(why.ends_with(": git is not there"), "{why}");
    world.wait(60_000);
    assert_eq!(why_of(&world, "1"), "its checks are running");
    let fence = world.fence_of("1");
    world.must(Command::FinishChecks { fence, results: crate::fixture::check(true) });
    fail(&mut world);
    let why = why_of(&world, "1");
    assert!(why.starts_with("could not be merged, and is tried again at 1970-"), "{why}");
    assert!(why.ends_with(": git is not there"), "{why}");
    world.wait(60_000);
    assert_eq!(why_of(&world, "1"), "is being merged");
}

#[test]
fn a_change_before_its_checks_and_in_the_queue_says_where_it_stands() {
    let mut world = world(checked());
    world.finish("1", done(7, &["a"]));
    assert_eq!(why_of(&world, "1"), "its checks are running");
    let fence = world.fence_of("1");
    let results = crate::fixture::check(true);
    world.must(Command::FinishChecks { fence, results });
    assert_eq!(why_of(&world, "1"), "is being merged");
}

/// Others than the first of a team wait for a seat; money and locks have their own sentences.
#[test]
fn a_task_that_needs_only_an_agent_says_which() {
    let tasks = ["1", "2", "3"].map(|name| task(name, &[])).to_vec();
    let mut world = World::empty();
    world.must(open(tasks, checked()));
    world.chores();
    assert_eq!(why_of(&world, "3"), "waits for a free developer");
}

#[test]
fn a_paused_mission_is_the_reason_for_all_of_it() {
    let mut world = world(checked());
    world.must(Command::PauseMission { mission: M1, reason: "lunch".into(), by: ann() });
    assert_eq!(why_of(&world, "1"), "m1 is paused: lunch");
}
