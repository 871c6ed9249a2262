//! Hosts that are lost while they work: nobody's failure, and nevertheless not for ever.

use crate::fixture::{M1, World, ann, checked, done, failed, open, task, test_first};
use kapelle_core::approval::{Order, OverrideAction};
use kapelle_core::escalation::{EscalationPolicy, HumanBecause, InvalidEscalation, Next, Trouble};
use kapelle_core::event::Interruption;
use kapelle_core::failure::FailureKind;
use kapelle_core::flow::Phase;
use kapelle_core::plan::{PlannedTask, Priority};
use kapelle_core::policy::{InvalidPolicy, Policy};
use kapelle_core::status::Status;
use kapelle_core::{Command, Event, Refusal, Role, why};

fn world(tasks: Vec<PlannedTask>) -> World {
    let mut world = World::with(tasks, Policy::default());
    world.chores();
    world
}

/// Nobody hears of the attempts that run until their leases have run out.
fn silence(world: &mut World) -> Vec<Event> {
    let policy = &world.state().mission(M1).unwrap().policy;
    world.wait(policy.lease_ttl_ms)
}

/// A task that takes its host down would be leased again and again: it costs no retry. After five
/// in a row it gives up, and its letter tells each of them.
#[test]
fn a_task_that_loses_host_after_host_gives_up() {
    let mut world = world(vec![task("1", &[]), task("2", &["1"])]);
    for _ in 0..4 {
        world.restart();
        assert_eq!(world.working(), ["1".to_owned()].into());
    }
    assert_eq!(world.task("1").failures, [].into(), "no try of its own is spent");
    let before = world.now;
    let mut events = silence(&mut world);
    events.retain(|event| !matches!(event, Event::ReservationReleased { .. }));
    let (one, two) = (world.task("1").id, world.task("2").id);
    let because = HumanBecause::HostLost { times: 5 };
    let next = Next::AskHuman { because: because.clone() };
    assert_eq!(events[1], Event::TroubleMet { task: one, trouble: Trouble::HostLost, next });
    let Event::TaskDeadLettered { letter: Some(letter), .. } = &events[2] else {
        panic!("{events:?}")
    };
    assert_eq!((&letter.because, letter.died_at), (&because, world.now));
    let told = letter.story.attempts().map(|attempt| {
        (attempt.attempt, attempt.failure.kind, attempt.failure.message.as_str(), attempt.at)
    });
    let down = |attempt| (attempt, FailureKind::Hang, "its host went down", before);
    let silent = "its host was silent until the lease ran out";
    let last = (5, FailureKind::Hang, silent, world.now);
    assert_eq!(told.collect::<Vec<_>>(), [down(1), down(2), down(3), down(4), last]);
    assert_eq!(events[3], Event::TaskBlocked { task: two, on: one });
    assert_eq!(world.status("1"), Status::DeadLetter);
    let said = "gave up: its host was lost 5 times in a row while it worked; \
                a person can requeue it: its host was silent until the lease ran out";
    assert_eq!(why(world.state(), world.task("1")).unwrap(), said);
    let told = events.iter().any(|event| matches!(event, Event::PersonNotified { .. }));
    assert!(told, "a person hears of it: {events:?}");
}

/// Whoever gets something done was not what took the host down: the count begins anew.
#[test]
fn losses_count_only_in_a_row() {
    let mut world = world(vec![task("1", &[])]);
    for _ in 0..4 {
        world.restart();
    }
    // A retry is weighed by the bills that are awaited; here it is about something else.
    world.wait(60_000);
    world.finish("1", failed(FailureKind::Network));
    world.wait(60_000);
    for _ in 0..4 {
        world.restart();
        assert_eq!(world.working(), ["1".to_owned()].into());
        world.wait(60_000);
    }
    world.restart();
    assert_eq!(world.status("1"), Status::DeadLetter);
    // What the lost attempts may have cost is no longer awaited.
    world.wait(60_000);
    let (task, reason) = (world.task("1").id, "it has more memory now".into());
    world.must(Command::RequeueTask { task, reason, by: ann() });
    assert_eq!(world.working(), ["1".to_owned()].into());
    world.restart();
    assert_eq!(world.working(), ["1".to_owned()].into(), "a new life, a new count");
}

/// A restart hits all who work there. From the second on each works alone, so the one that takes
/// the host down goes alone, and the others are cleared by getting done.
#[test]
fn who_was_lost_in_company_works_alone_before_anybody_is_blamed() {
    let mut world = world(vec![task("1", &[]), task("2", &[]), task("3", &[])]);
    let at_work = |world: &World| world.working().into_iter().collect::<Vec<_>>();
    assert_eq!(at_work(&world), ["1", "2"]);
    world.restart();
    assert_eq!(at_work(&world), ["1", "2"], "once is an accident");
    world.restart();
    assert_eq!(at_work(&world), ["1"]);
    let waits = "waits while 1 works alone: hosts were lost while it worked";
    assert_eq!(why(world.state(), world.task("3")).unwrap(), waits);
    // The first gets done: it was not what took the host down.
    world.finish("1", done(7, &["a"]));
    assert_eq!(at_work(&world), ["2"]);
    for _ in 0..2 {
        world.restart();
        assert_eq!(at_work(&world), ["2"]);
    }
    world.restart();
    assert_eq!(world.status("2"), Status::DeadLetter);
    assert_eq!(at_work(&world), ["3"], "the others go on");
}

/// What works when somebody becomes a suspect is not stopped; the suspect waits for its end, and
/// nobody else starts before it.
#[test]
fn a_suspect_waits_for_those_at_work() {
    let last = PlannedTask { priority: Priority::Low, ..task("3", &[]) };
    let hours = [(Role::Developer, 3_600_000)].into();
    let patient = Policy { attempt_timeout_ms: hours, ..Policy::default() };
    let ttl = patient.lease_ttl_ms;
    let mut world = World::with(vec![task("1", &[]), task("2", &[]), last], patient);
    world.chores();
    for _ in 0..2 {
        world.wait(ttl / 2);
        let heard = world.fence_of("2");
        world.must(Command::Heartbeat { fences: vec![heard] });
        world.wait(ttl / 2);
    }
    assert_eq!(world.working(), ["2".to_owned()].into(), "1 was lost twice");
    let waits = "waits until it can work alone: its host was lost 2 times in a row";
    assert_eq!(why(world.state(), world.task("1")).unwrap(), waits);
    world.finish("2", done(7, &["a"]));
    assert_eq!(world.working(), ["1".to_owned()].into());
    world.finish("1", done(8, &["b"]));
    assert_eq!(world.working(), ["3".to_owned()].into());
}

/// The last loss must be one that the task had to itself.
#[test]
fn a_bound_that_would_blame_in_company_is_refused() {
    let with = |lost_max| {
        let escalation = EscalationPolicy { lost_max, ..EscalationPolicy::default() };
        World::empty().send(open(vec![task("1", &[])], Policy { escalation, ..checked() }))
    };
    let refused = |wrong| Err(Refusal::InvalidPolicy(InvalidPolicy::Escalation { wrong }));
    assert_eq!(with(2), refused(InvalidEscalation::BlamedTooSoon { found: 2, min: 3 }));
    let endless = InvalidEscalation::TooMany { what: "lost_max", found: 101, max: 100 };
    assert_eq!(with(101), refused(endless));
    assert!(with(3).is_ok());
}

/// Seed 14428: a person skipped the step of a task in the moment of its last loss, and it gave up
/// before the next step was tried.
#[test]
fn what_a_person_moves_on_has_a_new_row_of_losses() {
    let mut world = World::with(vec![task("1", &[])], test_first());
    world.chores();
    for _ in 0..4 {
        world.restart();
    }
    assert_eq!(world.task("1").lost, 4);
    let action = OverrideAction::SkipStep { step: Phase::Red };
    let (task, reason) = (world.task("1").id, "the tests are there".to_owned());
    let order = Box::new(Order { task, action, reason, by: ann() });
    world.must(Command::Override { order });
    assert_eq!(world.task("1").lost, 0);
}

/// Whoever stops Kapelle with Ctrl-C every evening has lost no host: nothing counts against the
/// tasks that were at work, however often.
#[test]
fn an_orderly_stop_costs_a_task_nothing() {
    let mut world = world(vec![task("1", &[])]);
    for _ in 0..6 {
        let (task, fence) = (world.task("1").id, world.fence_of("1"));
        let cause = Interruption::Stopped;
        let stopped = world.stop_and_start();
        assert_eq!(stopped, [Event::AttemptInterrupted { task, fence, cause }]);
        // What it may have cost is no longer awaited.
        world.wait(60_000);
        assert_eq!(world.working(), ["1".to_owned()].into());
    }
    assert_eq!((world.task("1").lost, world.task("1").retries), (0, 0));
    assert_eq!(world.task("1").hardship, None, "there is nothing to tell");
}

/// It clears nobody either: a task that took hosts down does so again after a pause.
#[test]
fn an_orderly_stop_does_not_make_losses_undone() {
    let mut world = world(vec![task("1", &[])]);
    for _ in 0..4 {
        world.restart();
    }
    world.stop_and_start();
    assert_eq!(world.task("1").lost, 4);
    world.wait(60_000);
    world.restart();
    assert_eq!(world.status("1"), Status::DeadLetter);
}
