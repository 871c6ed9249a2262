//! How much a mission writes, and what of it is written at once (TSK-10, TSK-14, GIT-12, GIT-17).

use crate::fixture::{M1, World, check, checked, commit, done, task};
use kapelle_core::command::Spending;
use kapelle_core::mission::MissionStatus;
use kapelle_core::plan::PlannedTask;
use kapelle_core::status::Status;
use kapelle_core::{Command, Event, Refusal};

/// As the sources count for eighteen tasks: 133 for the plan and 11 for each task.
const EVENTS_MAX: usize = 133 + 11 * 18;

/// TSK-14: the journal of a mission is all that it writes on the way of its work; the tables are
/// folded behind it. Reports of agents that are merely alive write nothing.
#[test]
fn a_mission_of_eighteen_tasks_writes_no_more_than_was_agreed() {
    let names: Vec<String> = (1..=18).map(|number| number.to_string()).collect();
    let tasks = names.iter().map(|name| task(name, &[])).collect();
    let mut world = World::with(tasks, checked());
    world.chores();
    let mut change = 100;
    while let Some(name) = world.working().first().cloned() {
        let written = world.journal.len();
        world.online();
        assert_eq!(world.journal.len(), written, "a heartbeat in time says nothing new");
        change += 1;
        world.finish(&name, done(change, &[&format!("src/{name}")]));
        world.chores();
    }
    assert_eq!(world.state().mission(M1).unwrap().status(), MissionStatus::AwaitingApproval);
    let written = world.journal.len();
    assert!(written <= EVENTS_MAX, "{written} events, more than {EVENTS_MAX}");
}

/// TSK-10: updates are decided one after the other, each on what the one before it left, and are
/// written together or not at all. Nobody can hold a lock on the state, so nobody waits for one.
#[test]
fn an_update_meets_what_the_update_before_it_left() {
    let mut world = World::with(vec![task("1", &[])], checked());
    world.chores();
    let fence = world.fence_of("1");
    let finish = |change| Command::FinishAttempt {
        fence,
        outcome: done(change, &["a"]),
        spent: Spending::default(),
    };
    let events = world.together(vec![finish(7), finish(8)]);
    let finished = |event: &&Event| matches!(event, Event::AttemptFinished { .. });
    assert_eq!(events.iter().filter(finished).count(), 1);
    let stale = Refusal::StaleFence { presented: fence };
    assert_eq!(world.refused, [stale]);
}

/// TSK-10: whoever crashed while it had a task or a file keeps it no longer than its lease.
#[test]
fn a_crashed_holder_blocks_nobody_for_longer_than_its_lease() {
    let files = |id: &str| PlannedTask { files: vec!["a".into()], ..task(id, &[]) };
    let mut world = World::with(vec![files("1"), files("2")], checked());
    world.chores();
    let policy = &world.state().mission(M1).unwrap().policy;
    let ttl = policy.lease_ttl_ms;
    let before = world.fence_of("1");
    world.wait(ttl);
    assert_ne!(world.fence_of("1"), before, "somebody else has it");
}

/// GIT-12: the moment in which the last checked change lands is the one in which people are asked.
#[test]
fn a_delivery_is_proposed_with_the_last_change_that_passes() {
    let mut world = World::with(vec![task("1", &[])], checked());
    world.chores();
    world.finish("1", done(7, &["a"]));
    let proposed = Event::DeliveryProposed { mission: M1, commit: commit(7) };
    assert!(!world.journal.iter().any(|record| record.event == proposed));
    world.chores();
    let last: Vec<&Event> =
        world.journal.iter().rev().take(3).map(|record| &record.event).collect();
    assert!(last.contains(&&proposed), "{last:?}");
    assert_eq!(world.state().mission(M1).unwrap().status(), MissionStatus::AwaitingApproval);
}

/// GIT-17: when the checks of a task fail for good, what landed of its wave goes by itself.
#[test]
fn a_failed_validation_takes_back_what_landed_of_its_wave() {
    let in_wave = |id: &str| PlannedTask { wave: Some("login".into()), ..task(id, &[]) };
    let mut world = World::with(vec![in_wave("1"), in_wave("2")], checked());
    world.chores();
    world.finish("1", done(101, &["a"]));
    world.chores();
    assert_eq!(world.status("1"), Status::Completed);
    let mut change = 200;
    while world.status("2") != Status::DeadLetter {
        change += 1;
        world.finish("2", done(change, &["b"]));
        let fence = world.fence_of("2");
        world.must(Command::FinishChecks { fence, results: check(false) });
        world.wait(60_000);
    }
    world.chores();
    assert_eq!(world.status("1"), Status::RolledBack);
}
