//! Preemption (QUE-14, C-07): an attempt makes room for a more urgent task when something that it
//! did is finished and kept, and goes on from there.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_core::command::Spending;
use kapelle_core::event::Interruption;
use kapelle_core::plan::{PlannedTask, Priority, TaskKind};
use kapelle_core::policy::{Budget, Policy};
use kapelle_core::price::Price;
use kapelle_core::queue::{Preemption, QueuePolicy};
use kapelle_core::rate::{Provider, Throughput};
use kapelle_core::routing::{self, Catalogue, Lineage, Model, Tier};
use kapelle_core::settings::Settings;
use kapelle_core::{Command, Effect, Event, Fence, Role, TaskId, Usd, why};
use proptest::prelude::*;

use crate::fixture::{M1, World, ann, asked, commit, open, task};

const MINUTE: u64 = 60_000;

fn piece(id: &str, priority: Priority, operations: u32) -> PlannedTask {
    PlannedTask { priority, file_operation_count: operations, ..task(id, &[]) }
}

/// One developer, and these tasks.
fn world(preemption: Preemption, tasks: Vec<PlannedTask>) -> World {
    let queue = QueuePolicy { preemption, ..QueuePolicy::default() };
    ruled(1, Settings { queue, ..Settings::default() }, Budget::default(), tasks)
}

/// So many developers under these rules, and these tasks.
fn ruled(developers: u32, settings: Settings, budget: Budget, tasks: Vec<PlannedTask>) -> World {
    let mut world = World::empty();
    let seats = BTreeMap::from([(Role::Developer, developers)]);
    world.must(Command::ConfigureTeam { seats, workers_max: developers, by: ann() });
    world.must(Command::ChangeSettings { settings: Box::new(settings), by: ann() });
    // Nobody is silent or slow here.
    let attempt_timeout_ms = BTreeMap::from([(Role::Developer, 600 * MINUTE)]);
    let lease_ttl_ms = 600 * MINUTE;
    let policy = Policy { attempt_timeout_ms, lease_ttl_ms, budget, ..Policy::default() };
    world.must(open(tasks, policy));
    world.chores();
    world
}

/// One provider with a model of every tier, all priced, that takes so many agents at a time.
fn routed(agents: u64) -> Settings {
    let model = |tier: Tier| Model {
        name: format!("a-{tier}").into(),
        provider: Provider::new("a"),
        lineage: Lineage("a".into()),
        tier,
        strengths: [].into(),
        enabled: true,
    };
    let models: Vec<Model> = Tier::ALL.map(model).to_vec();
    let mut settings = Settings::default();
    let price = Price { input: Usd::cents(1), output: Usd::cents(1) };
    settings.prices.models = models.iter().map(|m| (m.name.to_string(), price)).collect();
    let (shards, models) = ([].into(), Catalogue(models));
    settings.routing = Some(routing::Policy { models, shards, ..routing::Policy::default() });
    let demand = settings.rate.demand;
    settings.rate.others = Throughput {
        requests_per_min: agents * u64::from(demand.requests_per_minute),
        tokens_per_min: agents * u64::from(demand.tokens_per_minute),
    };
    assert_eq!(u64::from(settings.rate.agents_max(&Provider::new("a"))), agents);
    settings
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

/// The attempt at this task finishes its next step, in a minute; with its tree, or without.
fn step(world: &mut World, name: &str, change: Option<u64>) -> Vec<Event> {
    let list = world.task(name).checklist.as_ref().unwrap();
    let index = list.first_incomplete().unwrap().index;
    nth_step(world, name, index, change)
}

fn nth_step(world: &mut World, name: &str, index: u32, change: Option<u64>) -> Vec<Event> {
    world.wait(MINUTE);
    let (fence, step) = (world.fence_of(name), format!("step-{index}"));
    let (notes, change) = (String::new(), change.map(commit));
    world.must(Command::CompleteStep { fence, step, notes, change })
}

fn listed(id: &str, priority: Priority, steps: &[&str]) -> PlannedTask {
    let required_actions = steps.iter().map(ToString::to_string).collect();
    PlannedTask { required_actions, ..piece(id, priority, 0) }
}

/// The tree of an earlier step does not have the later one in it: whoever went back to it would lose
/// what counts as done.
#[test]
fn trees_that_overtake_each_other_are_not_gone_back_to() {
    let long = listed("long", Priority::Medium, &["read", "write", "test"]);
    let mut world = world(Preemption::Critical, vec![long, piece("other", Priority::Low, 1)]);
    urgent(&mut world, "other");
    for (index, tree) in [(1, 2_002), (0, 2_001)] {
        let events = nth_step(&mut world, "long", index, Some(tree));
        assert_eq!(interrupted(&events), None);
        assert_eq!(world.task("long").unfinished, None);
    }
    let events = nth_step(&mut world, "long", 2, Some(2_003));
    assert!(interrupted(&events).is_some(), "all before it are done, and in it");
}

/// Operations have trees of their own, and nobody can tell whether one has a step in it.
#[test]
fn a_step_among_operations_keeps_no_tree() {
    let long = PlannedTask {
        required_actions: vec!["read".into(), "write".into()],
        ..piece("long", Priority::Medium, 4)
    };
    let mut world = world(Preemption::Critical, vec![long, piece("other", Priority::Low, 1)]);
    urgent(&mut world, "other");
    assert_eq!(interrupted(&step(&mut world, "long", Some(2_001))), None);
    assert_eq!(world.task("long").unfinished, None);
}

/// C-07, PLN-17: a step is a boundary too, where its tree is kept. Whoever goes on begins with the
/// first step that is not done, on a tree that has all before it.
#[test]
fn an_attempt_makes_room_at_a_finished_step_whose_tree_is_kept() {
    let long = listed("long", Priority::Medium, &["read", "write", "test"]);
    let mut world = world(Preemption::Critical, vec![long, piece("other", Priority::Low, 1)]);
    step(&mut world, "long", None);
    urgent(&mut world, "other");
    let events = step(&mut world, "long", Some(2_002));
    let to = world.task("other").id;
    assert_eq!(interrupted(&events), Some((world.task("long").id, Interruption::GaveWay { to })));
    assert_eq!(worker(&world), "other");
    world.succeed("other");
    let list = world.task("long").checklist.as_ref().unwrap();
    assert_eq!(list.first_incomplete().map(|step| step.index), Some(2));
    let fence = world.fence_of("long");
    let Some(Effect::RunAttempt { base, .. }) = world.running.get(&fence) else { panic!() };
    assert_eq!(*base, commit(2_002), "it goes on with the tree that has both steps");
}

/// What a step left in a tree that nobody keeps would be lost.
#[test]
fn a_step_whose_tree_is_not_kept_makes_no_room() {
    let long = listed("long", Priority::Medium, &["read", "write", "test"]);
    let mut world = world(Preemption::Critical, vec![long, piece("other", Priority::Low, 1)]);
    step(&mut world, "long", None);
    urgent(&mut world, "other");
    assert_eq!(interrupted(&step(&mut world, "long", None)), None);
    assert_eq!(worker(&world), "long");
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

/// Whoever could not start anyway does not get anybody's seat: for the best model there is no
/// price, and without one nothing starts.
#[test]
fn nobody_makes_room_for_what_cannot_start() {
    let mut settings = routed(2);
    let other = PlannedTask { kind: TaskKind::Refactor, ..piece("other", Priority::Critical, 1) };
    let long = piece("long", Priority::Medium, 9);
    let tasks = || vec![long.clone(), other.clone()];
    let mut priced = ruled(1, settings.clone(), Budget::default(), tasks());
    assert_eq!(worker(&priced), "other", "with a price it would have gone first");
    priced.succeed("other");
    settings.prices.models.remove("a-premium");
    let mut world = ruled(1, settings, Budget::default(), tasks());
    for _ in 0..4 {
        assert_eq!(interrupted(&operation(&mut world, "long")), None);
    }
    assert_eq!(worker(&world), "long");
}

/// Where nobody works, order alone is enough.
#[test]
fn the_most_urgent_goes_first_after_a_pause() {
    let long = piece("long", Priority::Medium, 6);
    let mut world = world(Preemption::Critical, vec![long, piece("other", Priority::Low, 1)]);
    operation(&mut world, "long");
    urgent(&mut world, "other");
    world.must(Command::PauseMission { mission: M1, reason: "lunch".into(), by: ann() });
    world.must(Command::ResumeMission { mission: M1, by: ann() });
    assert_eq!(worker(&world), "other");
}

/// A seat is free, and what is missing is what the running attempt holds: the provider takes one
/// agent at a time, or the best models work one after the other.
#[test]
fn a_critical_task_gets_the_provider_or_the_tier_of_who_makes_room() {
    let best = |id, priority, operations| PlannedTask {
        kind: TaskKind::Refactor,
        ..piece(id, priority, operations)
    };
    let long = |id| piece(id, Priority::Medium, 6);
    let one_by_one = "a premium model is at work already, and those work one after the other";
    for (agents, waits, tasks) in [
        (
            1,
            "has as many agents as its rate limit carries",
            vec![long("long"), piece("other", Priority::Low, 1)],
        ),
        (5, one_by_one, vec![best("long", Priority::Medium, 6), best("other", Priority::Low, 1)]),
    ] {
        let mut world = ruled(2, routed(agents), Budget::default(), tasks);
        assert_eq!(worker(&world), "long");
        let told = why(world.state(), world.task("other")).unwrap();
        assert!(told.contains(waits), "{told}");
        operation(&mut world, "long");
        urgent(&mut world, "other");
        assert_eq!(worker(&world), "long", "nothing is cut off");
        let events = operation(&mut world, "long");
        let to = world.task("other").id;
        let gave_way = Some((world.task("long").id, Interruption::GaveWay { to }));
        assert_eq!(interrupted(&events), gave_way, "{agents}");
        assert_eq!(world.working(), ["other".to_owned()].into());
    }
}

/// The money that an attempt has left is free with its bill; the urgent task is promised it.
#[test]
fn a_critical_task_gets_the_money_of_who_makes_room() {
    let (mission_usd_max, attempt_usd_max) = (Usd::cents(199), Usd::cents(100));
    let budget = Budget { mission_usd_max, attempt_usd_max };
    let tasks = vec![piece("long", Priority::Medium, 6), piece("other", Priority::Low, 1)];
    let mut world = ruled(2, Settings::default(), budget, tasks);
    assert_eq!(world.working(), ["long".to_owned()].into(), "there is money for one");
    operation(&mut world, "long");
    urgent(&mut world, "other");
    let fence = world.fence_of("long");
    let events = operation(&mut world, "long");
    let to = world.task("other").id;
    let gave_way = Some((world.task("long").id, Interruption::GaveWay { to }));
    assert_eq!(interrupted(&events), gave_way);
    assert_eq!(world.working(), [].into(), "what it cost is not known yet");
    let spent = Spending { usd: Usd::cents(30), ..Spending::default() };
    world.must(Command::ReportSpending { fence, spent });
    assert_eq!(world.working(), ["other".to_owned()].into());
}

/// An attempt does not make room for what can start beside it: an answer that comes at the same
/// moment as the finished operation frees an urgent task, and a seat is free.
#[test]
fn nobody_makes_room_where_there_is_room() {
    let tasks = vec![piece("long", Priority::Medium, 6), piece("other", Priority::Critical, 1)];
    let mut world = ruled(2, routed(5), Budget::default(), tasks);
    world.finish("other", asked("q1"));
    operation(&mut world, "long");
    world.wait(MINUTE);
    let (fence, task) = (world.fence_of("long"), world.task("other").id);
    let (resume_id, input) = ("q1".into(), "a".into());
    let answer = Command::AnswerCheckpoint { task, resume_id, input, by: ann() };
    let kept = Command::CompleteOperation { fence, index: 1, change: commit(7) };
    let events = world.together(vec![answer, kept]);
    assert_eq!((interrupted(&events), world.refused.as_slice()), (None, &[][..]));
    assert_eq!(world.working().len(), 2);
}

/// QUE-14, `all`: a task that is better by the margin gets the seat, one that is less so does not.
#[test]
fn where_all_may_preempt_the_margin_decides() {
    for (margin, gives_way) in [(60, true), (61, false)] {
        let queue = QueuePolicy {
            preemption: Preemption::All,
            preempt_margin_points: margin,
            ..QueuePolicy::default()
        };
        let tasks = vec![piece("long", Priority::Low, 6), piece("other", Priority::Low, 1)];
        let settings = Settings { queue, ..Settings::default() };
        let mut world = ruled(1, settings, Budget::default(), tasks);
        operation(&mut world, "long");
        let task = world.task("other").id;
        // Sixty points more than LOW.
        world.must(Command::SetPriority { task, priority: Priority::High, by: ann() });
        let events = operation(&mut world, "long");
        assert_eq!(interrupted(&events).is_some(), gives_way, "{margin}");
    }
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
