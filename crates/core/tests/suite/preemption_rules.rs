//! Preemption (QUE-14, C-07): an attempt makes room for a more urgent task when something that it
//! did is finished and kept, and goes on from there.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_core::event::Interruption;
use kapelle_core::plan::{PlannedTask, Priority};
use kapelle_core::policy::Policy;
use kapelle_core::queue::{Preemption, QueuePolicy};
use kapelle_core::settings::Settings;
use kapelle_core::{Command, Effect, Event, Fence, Role, TaskId};
use proptest::prelude::*;

use crate::fixture::{M1, World, ann, commit, open, task};

const MINUTE: u64 = 60_000;

fn piece(id: &str, priority: Priority, operations: u32) -> PlannedTask {
    PlannedTask { priority, file_operation_count: operations, ..task(id, &[]) }
}

/// One developer, and these tasks.
fn world(preemption: Preemption, tasks: Vec<PlannedTask>) -> World {
    let mut world = World::empty();
    let seats = BTreeMap::from([(Role::Developer, 1)]);
    world.must(Command::ConfigureTeam { seats, workers_max: 1 });
    let queue = QueuePolicy { preemption, ..QueuePolicy::default() };
    let settings = Box::new(Settings { queue, ..Settings::default() });
    world.must(Command::ChangeSettings { settings, by: ann() });
    // Nobody is silent or slow here.
    let attempt_timeout_ms = BTreeMap::from([(Role::Developer, 600 * MINUTE)]);
    let policy = Policy { attempt_timeout_ms, lease_ttl_ms: 600 * MINUTE, ..Policy::default() };
    world.must(open(tasks, policy));
    world.chores();
    world
}

fn urgent(world: &mut World, name: &str) {
    let task = world.task(name).id;
    world.must(Command::SetPriority { task, priority: Priority::Critical, by: ann() });
}

/// The attempt at this task finishes its next operation, in a minute; the fence of whoever works
/// then may be another.
fn operation(world: &mut World, name: &str) -> Vec<Event> {
    world.wait(MINUTE);
    let (fence, task) = (world.fence_of(name), world.task(name));
    let index = task.operations.next().unwrap();
    let change = commit(1_000 * u64::from(task.id.0) + u64::from(index));
    world.must(Command::CompleteOperation { fence, index, change })
}

fn interrupted(events: &[Event]) -> Option<(TaskId, Interruption)> {
    events.iter().find_map(|event| match event {
        Event::AttemptInterrupted { task, cause, .. } => Some((*task, *cause)),
        _ => None,
    })
}

fn worker(world: &World) -> String {
    world.working().into_iter().next().unwrap()
}

/// The seat changes hands in one turn, and what was interrupted goes on where it stopped.
#[test]
fn an_attempt_makes_room_at_its_next_finished_operation_and_loses_none() {
    let long = piece("long", Priority::Medium, 4);
    let mut world = world(Preemption::Critical, vec![long, piece("other", Priority::Low, 1)]);
    operation(&mut world, "long");
    urgent(&mut world, "other");
    assert_eq!(worker(&world), "long", "nothing is cut off");
    let events = operation(&mut world, "long");
    let to = world.task("other").id;
    assert_eq!(interrupted(&events), Some((world.task("long").id, Interruption::GaveWay { to })));
    assert_eq!(worker(&world), "other");
    assert_eq!(world.task("long").retries, 0, "making room costs the task nothing");
    world.succeed("other");
    assert_eq!(world.task("long").operations.next(), Some(2));
    let fence = world.fence_of("long");
    let Some(Effect::RunAttempt { base, .. }) = world.running.get(&fence) else { panic!() };
    assert_eq!(*base, commit(1_001), "it goes on with the tree that has all it finished");
}

/// C-07: ordering is always on, preemption is for CRITICAL tasks, and can be switched off.
#[test]
fn only_critical_tasks_preempt_and_none_where_it_is_off() {
    for (preemption, priority) in [
        (Preemption::Off, Priority::Critical),
        (Preemption::Critical, Priority::High),
        (Preemption::Critical, Priority::Medium),
    ] {
        let long = piece("long", Priority::High, 5);
        let mut world = world(preemption, vec![long, piece("other", Priority::Low, 1)]);
        operation(&mut world, "long");
        let task = world.task("other").id;
        world.must(Command::SetPriority { task, priority, by: ann() });
        for _ in 0..3 {
            assert_eq!(interrupted(&operation(&mut world, "long")), None, "{preemption:?}");
        }
        assert_eq!(worker(&world), "long");
    }
}

/// Two tasks must not chase each other out of one seat.
#[test]
fn an_attempt_that_has_just_begun_or_gave_way_often_goes_on() {
    let long = piece("long", Priority::Medium, 12);
    let others = ["a", "b", "c"].map(|name| piece(name, Priority::Low, 1));
    let mut world = world(Preemption::Critical, [vec![long], others.to_vec()].concat());
    for round in ["a", "b"] {
        urgent(&mut world, round);
        assert_eq!(interrupted(&operation(&mut world, "long")), None, "it has only just begun");
        assert!(interrupted(&operation(&mut world, "long")).is_some());
        world.succeed(round);
    }
    urgent(&mut world, "c");
    for _ in 0..4 {
        assert_eq!(interrupted(&operation(&mut world, "long")), None, "twice is enough");
    }
    assert_eq!(world.task("long").gave_way, 2);
}

/// Whoever could not start anyway does not get anybody's seat.
#[test]
fn nobody_makes_room_for_what_cannot_start() {
    let long = piece("long", Priority::Medium, 6);
    let mut world = world(Preemption::Critical, vec![long, piece("other", Priority::Low, 1)]);
    operation(&mut world, "long");
    urgent(&mut world, "other");
    world.must(Command::PauseMission { mission: M1, reason: "lunch".into(), by: ann() });
    world.must(Command::ResumeMission { mission: M1, by: ann() });
    assert_eq!(worker(&world), "other", "ordering alone is enough where nobody works");
}

/// A world of one seat in which every attempt finishes an operation a minute and people change
/// their minds; the minute at which all is merged.
fn work_off(world: &mut World, changes: &[(u64, String)]) -> u64 {
    let mut kept: BTreeSet<(TaskId, u32)> = BTreeSet::new();
    let mut seen: BTreeSet<Fence> = BTreeSet::new();
    for minute in 0..2_000 {
        let ended = |name: &String| world.task(name).merged.is_some();
        let due: Vec<String> = changes
            .iter()
            .filter(|(at, _)| *at == minute)
            .map(|(_, name)| name.clone())
            .filter(|name| !ended(name))
            .collect();
        due.iter().for_each(|name| urgent(world, name));
        let Some(name) = world.working().into_iter().next() else { return minute };
        let task = world.task(&name);
        let Some(index) = task.operations.next() else {
            world.succeed(&name);
            continue;
        };
        let (id, fence) = (task.id, world.fence_of(&name));
        if seen.insert(fence)
            && let Some(Effect::RunAttempt { base, .. }) = world.running.get(&fence)
            && index > 0
        {
            let last = commit(1_000 * u64::from(id.0) + u64::from(index) - 1);
            assert_eq!(*base, last, "{name} went on without what it had finished");
        }
        operation(world, &name);
        assert!(kept.insert((id, index)), "{name} did operation {index} twice");
    }
    panic!("the work never ended: {:?}", world.working());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    /// However urgent what becomes, no operation is done twice, no task is interrupted more often
    /// than allowed, and the seat is never idle while something waits.
    #[test]
    fn preemption_loses_no_step_and_no_time(
        tasks in prop::collection::vec((0..3u8, 1..12u32, 0..60u64, any::<bool>()), 1..10),
        all in any::<bool>(),
    ) {
        let priorities = [Priority::Low, Priority::Medium, Priority::High];
        let named = |n: usize| format!("t{n}");
        let pieces = tasks.iter().enumerate()
            .map(|(n, (p, operations, _, _))| piece(&named(n), priorities[usize::from(*p)], *operations));
        let policy = if all { Preemption::All } else { Preemption::Critical };
        let mut world = world(policy, pieces.collect());
        let changes: Vec<(u64, String)> = tasks.iter().enumerate()
            .filter(|(_, (_, _, _, changes))| *changes)
            .map(|(n, (_, _, at, _))| (*at, named(n)))
            .collect();
        let ended = work_off(&mut world, &changes);
        let work: u64 = tasks.iter().map(|(_, operations, _, _)| u64::from(*operations) + 1).sum();
        prop_assert_eq!(ended, work, "the seat stood idle, or something was done again");
        for n in 0..tasks.len() {
            let task = world.task(&named(n));
            prop_assert!(task.gave_way <= QueuePolicy::default().preempted_max);
            prop_assert!(task.merged.is_some());
        }
    }
}
