//! The queues as the engine uses them: who gets an agent next, and which agent.

use std::collections::BTreeMap;

use kapelle_core::agents::{Disk, Hardware, Profile, TeamRules};
use kapelle_core::command::Spending;
use kapelle_core::failure::FailureKind;
use kapelle_core::flow::Phase;
use kapelle_core::ledger::{self, Caps};
use kapelle_core::plan::{PlannedTask, Priority, TaskKind};
use kapelle_core::policy::{Budget, Policy};
use kapelle_core::price::{InvalidPrices, Price};
use kapelle_core::queue::{
    Because, Bound, Concurrency, Contention, Domains, Pick, QueuePolicy, Strategy, Territories,
};
use kapelle_core::rate::{Provider, Throughput};
use kapelle_core::routing::{self, Catalogue, Lineage, Model, Tier};
use kapelle_core::scaling::{InvalidScaling, InvalidSteps};
use kapelle_core::settings::{InvalidSettings, Settings};
use kapelle_core::status::Status;
use kapelle_core::{Actor, AgentId, Command, Event, Refusal, RequestId, Role, TaskId, Usd};

use crate::fixture::{M1, World, ann, done, failed, open, task};

const MINUTE: u64 = 60_000;

fn dev(seat: u32) -> AgentId {
    AgentId { role: Role::Developer, seat }
}

fn change(settings: Settings) -> Command {
    Command::ChangeSettings { settings: Box::new(settings), by: ann() }
}

fn queued(policy: QueuePolicy) -> Settings {
    Settings { queue: policy, ..Settings::default() }
}

/// A world with so many developers, these rules and this plan, its branch prepared.
fn world(developers: u32, settings: Settings, tasks: Vec<PlannedTask>) -> World {
    let mut world = World::empty();
    let seats = BTreeMap::from([(Role::Developer, developers)]);
    world.must(Command::ConfigureTeam { seats, workers_max: developers, by: ann() });
    world.must(change(settings));
    world.must(open(tasks, Policy::default()));
    world.chores();
    world
}

fn minutes(id: &str, needs: &[&str], priority: Priority, minutes: u32) -> PlannedTask {
    let estimated_duration_minutes = Some(minutes);
    PlannedTask { priority, estimated_duration_minutes, ..task(id, needs) }
}

fn touching(id: &str, files: &[&str]) -> PlannedTask {
    PlannedTask { files: files.iter().map(ToString::to_string).collect(), ..task(id, &[]) }
}

/// Lets every attempt succeed, one after the other; the names in the order of their starts.
fn order(world: &mut World) -> Vec<String> {
    let mut order: Vec<String> = Vec::new();
    while let Some(name) = world.working().into_iter().next() {
        order.push(name.clone());
        world.succeed(&name);
    }
    order
}

fn grants(world: &World) -> Vec<(TaskId, AgentId, Pick, Because)> {
    let granted = |event: &Event| match event {
        Event::LeaseGranted { task, agent, pick, because, .. } => {
            Some((*task, *agent, pick.unwrap(), because.clone().unwrap()))
        }
        _ => None,
    };
    world.journal.iter().filter_map(|record| granted(&record.event)).collect()
}

/// QUE-11, QUE-12: the worked examples, through the engine. C's penalty for a locked file comes
/// with the locks; without it C stands at 85.
#[test]
fn the_worked_examples_run_in_the_order_of_their_scores() {
    let tasks = || {
        vec![
            minutes("B0", &[], Priority::Low, 30),
            minutes("B1", &["B0"], Priority::Low, 30),
            minutes("B", &["B0", "B1"], Priority::High, 30),
            minutes("C", &[], Priority::Medium, 5),
            minutes("D", &[], Priority::High, 15),
            minutes("D1", &["D"], Priority::Low, 30),
            minutes("D2", &["D"], Priority::Low, 30),
            minutes("D3", &["D"], Priority::Low, 30),
            minutes("A", &[], Priority::Critical, 10),
        ]
    };
    let score = |world: &World, name: &str| world.state().score(world.task(name)).to_string();
    let mut plain = world(1, Settings::default(), tasks());
    let scores = ["A", "B", "C", "D"].map(|name| score(&plain, name));
    assert_eq!(scores, ["140", "40", "85", "135"]);
    let order = order(&mut plain);
    let place = |name: &str| order.iter().position(|n| n == name).unwrap();
    assert!(place("A") < place("D") && place("D") < place("C") && place("C") < place("B"));
    let tenth = QueuePolicy { duration_divisor: 10, ..QueuePolicy::default() };
    let divided = world(1, queued(tenth), tasks());
    let scores = ["A", "B", "D"].map(|name| score(&divided, name));
    assert_eq!(scores, ["149", "67", "148.5"]);
}

/// QUE-24: what waits gains a point a minute, so a newcomer needs more than a better score.
#[test]
fn a_task_that_waits_overtakes_better_newcomers_in_the_end() {
    let tasks = vec![
        minutes("first", &[], Priority::Critical, 0),
        minutes("second", &[], Priority::Critical, 0),
        minutes("old", &[], Priority::Low, 0),
        minutes("new", &["first"], Priority::High, 0),
    ];
    // High has 70, low without dependencies has 60: ten minutes make up for the difference.
    for (waited, expected) in [(9 * MINUTE, "new"), (11 * MINUTE, "old")] {
        let forgiving = Policy {
            lease_ttl_ms: 1_000 * MINUTE,
            attempt_timeout_ms: BTreeMap::from([(Role::Developer, 1_000 * MINUTE)]),
            ..Policy::default()
        };
        let mut world = World::empty();
        let seats = BTreeMap::from([(Role::Developer, 1)]);
        world.must(Command::ConfigureTeam { seats, workers_max: 1, by: ann() });
        world.must(open(tasks.clone(), forgiving));
        world.chores();
        world.wait(waited);
        world.succeed("first");
        let next = world.state().waiting_for(Role::Developer)[0];
        assert_eq!(next, world.task(expected).id, "after {waited} ms");
    }
}

/// The default order: a chain that outlasts all other work goes before a better score, and the
/// journal says so.
#[test]
fn the_longest_chain_goes_first_unless_the_plain_order_is_asked_for() {
    let mut tasks = vec![
        minutes("short", &[], Priority::High, 5),
        minutes("small", &[], Priority::High, 5),
        minutes("c1", &[], Priority::Medium, 60),
    ];
    for n in 2..=6 {
        tasks.push(minutes(&format!("c{n}"), &[&format!("c{}", n - 1)], Priority::Medium, 60));
    }
    let first = |strategy| {
        let policy = QueuePolicy { strategy, ..QueuePolicy::default() };
        let world = world(2, queued(policy), tasks.clone());
        let (task, _, pick, _) = grants(&world)[0].clone();
        (world.state().task(task).unwrap().name().to_owned(), pick)
    };
    let chain = Pick::LongestChain { chain_minutes: 360 };
    assert_eq!(first(Strategy::CriticalPath), ("c1".to_owned(), chain));
    assert_eq!(first(Strategy::Scored), ("short".to_owned(), Pick::BestRank));
    assert_eq!(first(Strategy::PriorityFifo), ("short".to_owned(), Pick::BestRank));
}

/// One at a time and in the order of the plan; the next one starts when the last is merged, not
/// when its agent has left.
#[test]
fn the_serial_mode_does_one_task_after_the_other() {
    let policy = QueuePolicy { strategy: Strategy::Serial, ..QueuePolicy::default() };
    let tasks = vec![
        minutes("a", &[], Priority::Low, 30),
        minutes("b", &[], Priority::Critical, 1),
        minutes("c", &[], Priority::High, 1),
    ];
    let mut world = world(3, queued(policy), tasks);
    assert_eq!(world.working(), ["a".to_owned()].into());
    let bound = world.state().concurrency();
    assert_eq!((bound.limit, bound.bound), (1, Bound::Serial));
    world.finish("a", done(7, &["src/a"]));
    assert_eq!(world.working(), [].into(), "a is not merged yet");
    world.chores();
    assert_eq!(order(&mut world), ["b", "c"]);
}

/// QUE-15 in its order: who worked on the file, who knows the domain, who has had the least.
#[test]
fn a_task_goes_to_who_knows_its_files_then_its_domain_then_to_the_least_loaded() {
    let domains = Domains::new(BTreeMap::from([(dev(3), ["backend".to_owned()].into())]));
    let settings = Settings { domains, ..Settings::default() };
    let tasks = vec![
        touching("a", &["web/a.ts"]),
        touching("b", &["backend/b.rs"]),
        touching("c", &["docs/c.md"]),
        PlannedTask { dependencies: vec!["a".into()], ..touching("a2", &["web/a.ts"]) },
    ];
    let mut world = world(3, settings, tasks);
    for name in ["c", "b", "a"] {
        world.succeed(name);
    }
    let chosen: Vec<_> =
        grants(&world).into_iter().map(|(_, agent, _, why)| (agent, why)).collect();
    let least = Because::LeastLoaded { received: 0 };
    assert_eq!(
        chosen,
        [
            (dev(1), least.clone()),
            (dev(3), Because::Domain { domain: "backend".into() }),
            (dev(2), least),
            (dev(1), Because::FileContext { path: "web/a.ts".into() }),
        ]
    );
}

/// QUE-16: nobody is left out, whatever the order in which they finish.
#[test]
fn equal_tasks_are_spread_evenly_over_the_team() {
    let tasks = (0..100).map(|n| task(&format!("t{n}"), &[])).collect();
    let mut world =
        world(12, queued(QueuePolicy { launch_batch: 12, ..QueuePolicy::default() }), tasks);
    loop {
        let wave: Vec<String> = world.working().into_iter().collect();
        if wave.is_empty() {
            break;
        }
        wave.iter().for_each(|name| world.succeed(name));
    }
    let mut received: BTreeMap<AgentId, u32> = BTreeMap::new();
    for (_, agent, _, _) in grants(&world) {
        *received.entry(agent).or_default() += 1;
    }
    assert_eq!(received.len(), 12);
    assert!(received.values().all(|count| (8..=9).contains(count)), "{received:?}");
}

/// QUE-13: a person's word changes the order, and the time already waited still counts.
#[test]
fn a_person_sets_the_priority_of_a_task() {
    let tasks = vec![task("a", &[]), task("b", &[]), task("c", &[])];
    let mut world = world(1, Settings::default(), tasks);
    let (b, c) = (world.task("b").id, world.task("c").id);
    let set = |task, priority| Command::SetPriority { task, priority, by: ann() };
    let events = world.must(set(c, Priority::Critical));
    assert_eq!(events, [Event::PrioritySet { task: c, priority: Priority::Critical, by: ann() }]);
    assert_eq!(world.must(set(c, Priority::Critical)), [], "it is so already");
    assert_eq!(world.state().waiting_for(Role::Developer), [c, b]);
    assert_eq!(order(&mut world), ["a", "c", "b"]);
}

#[test]
fn the_priority_of_what_has_ended_cannot_be_set() {
    let mut world = world(1, Settings::default(), vec![task("a", &[]), task("b", &[])]);
    let (a, b) = (world.task("a").id, world.task("b").id);
    let set = |task, by: &str| Command::SetPriority {
        task,
        priority: Priority::High,
        by: Actor(by.to_owned()),
    };
    let missing = Refusal::Missing { what: "the name of who decides" };
    assert_eq!(world.send(set(a, " ")), Err(missing));
    assert_eq!(world.send(set(TaskId(99), "ann")), Err(Refusal::UnknownTask(TaskId(99))));
    world.succeed("a");
    let ended = Refusal::TaskEnded { task: "a".into(), status: Status::Completed };
    assert_eq!(world.send(set(a, "ann")), Err(ended));
    world.must(Command::CancelMission { mission: M1, reason: "enough".into(), by: ann() });
    assert!(matches!(world.send(set(b, "ann")), Err(Refusal::MissionEnded { .. })));
}

/// A pause holds a mission's tasks back without losing their places; another mission goes on.
#[test]
fn what_waits_in_a_paused_mission_keeps_its_place() {
    let mut world = world(1, Settings::default(), vec![task("a", &[]), task("b", &[])]);
    world.must(Command::PauseMission { mission: M1, reason: "lunch".into(), by: ann() });
    assert_eq!(world.working(), [].into());
    assert_eq!(world.state().waiting_for(Role::Developer).len(), 2);
    world.must(Command::ResumeMission { mission: M1, by: ann() });
    assert_eq!(order(&mut world), ["a", "b"]);
}

/// Changed rules hold from now on, for what waits already too.
#[test]
fn new_rules_reorder_what_waits() {
    let tasks = vec![
        minutes("run", &[], Priority::Critical, 1),
        minutes("low", &[], Priority::Low, 1),
        minutes("high", &[], Priority::High, 1),
    ];
    let mut world = world(1, Settings::default(), tasks);
    let (low, high) = (world.task("low").id, world.task("high").id);
    assert_eq!(world.state().waiting_for(Role::Developer), [high, low]);
    world
        .must(change(queued(QueuePolicy { strategy: Strategy::Serial, ..QueuePolicy::default() })));
    assert_eq!(world.state().waiting_for(Role::Developer), [low, high]);
}

#[test]
fn rules_that_cannot_work_are_refused() {
    let mut world = World::empty();
    let mut refused = |settings: Settings| match world.send(change(settings)) {
        Err(Refusal::InvalidSettings(invalid)) => invalid,
        other => panic!("{other:?}"),
    };
    let starving = QueuePolicy { ageing_ms_per_point: 0, ..QueuePolicy::default() };
    assert!(matches!(refused(queued(starving)), InvalidSettings::Queue(_)));
    let mut brief = Settings::default();
    brief.locks.ttl_ms = 1;
    assert!(matches!(refused(brief), InvalidSettings::Locks(_)));
    let nowhere: Territories = serde_json::from_str(r#"{"developer-1": [" "]}"#).unwrap();
    let lost = Settings { territories: nowhere, ..Settings::default() };
    assert!(matches!(refused(lost), InvalidSettings::Territories(_)));
    let all = (0..51).map(|n| format!("d{n}")).collect();
    let wise = Settings { domains: Domains::new([(dev(1), all)].into()), ..Settings::default() };
    assert!(matches!(refused(wise), InvalidSettings::Domains(_)));
    let mut boundless = Settings::default();
    (boundless.money.caps, boundless.money.pools) = (Caps::NONE, None);
    let unlimited = InvalidSettings::Money(ledger::InvalidPolicy::Unlimited);
    assert_eq!(refused(boundless), unlimited);
    let price = Price { input: Usd::cents(1), output: Usd::cents(1) };
    let mut nameless = Settings::default();
    nameless.prices.models = [(String::new(), price)].into();
    let bad_name = |wrong| matches!(wrong, InvalidSettings::Prices(InvalidPrices::BadName { .. }));
    assert!(bad_name(refused(nameless)));
    let mut stairless = Settings::default();
    stairless.scaling.by_steps.steps.clear();
    let empty = InvalidScaling::Steps(InvalidSteps::Empty);
    assert_eq!(refused(stairless), InvalidSettings::Scaling(empty));
}

/// A journal from before the queue had rules says nothing of picks; it still folds.
#[test]
fn a_grant_without_its_reason_is_read() {
    let old = r#"{"type":"lease_granted","task":1,"fence":2,"agent":"developer-1","phase":"green",
        "base":"0000000000000000000000000000000000000001","reserved":0,"granted_at":1,
        "expires_at":2,"deadline":3}"#;
    let event: Event = serde_json::from_str(old).unwrap();
    let Event::LeaseGranted { pick, because, .. } = event else { panic!("{event:?}") };
    assert_eq!((pick, because), (None, None));
}

fn holding() -> Settings {
    queued(QueuePolicy { contention: Contention::Hold, ..QueuePolicy::default() })
}

fn why_of(world: &World, name: &str) -> String {
    kapelle_core::why(world.state(), world.task(name)).unwrap_or_default()
}

/// GIT-07, GIT-08: who starts has its files to itself, and they are free again when it is merged.
#[test]
fn a_task_locks_its_files_until_it_is_merged() {
    let mut world = world(2, holding(), vec![touching("a", &["x", "y"]), touching("b", &["y"])]);
    assert_eq!(world.working(), ["a".to_owned()].into());
    let a = world.task("a").id;
    let locked = world.journal.iter().find_map(|record| match &record.event {
        Event::FilesLocked { lock } => Some(lock.clone()),
        _ => None,
    });
    let lock = locked.unwrap();
    assert_eq!((lock.task, lock.paths), (a, vec!["x".into(), "y".into()]));
    assert_eq!(lock.expires_at, lock.locked_at.plus_ms(300_000));
    let why = "waits for y, which a has locked (for another 300 s at most)";
    assert_eq!(why_of(&world, "b"), why);
    world.finish("a", done(7, &["x"]));
    assert_eq!(world.working(), [].into(), "its change is not merged yet");
    world.chores();
    assert_eq!(world.working(), ["b".to_owned()].into());
}

/// C-10: with a worktree each, a locked file costs forty points and no more.
#[test]
fn a_locked_file_costs_forty_points_where_everyone_has_a_tree() {
    let tasks = vec![
        minutes("a", &[], Priority::Critical, 10),
        minutes("c", &[], Priority::Medium, 5),
        minutes("b", &[], Priority::Medium, 30),
    ];
    let tasks = tasks.into_iter().map(|task| PlannedTask { files: vec!["x".into()], ..task });
    let tasks: Vec<PlannedTask> = tasks.collect();
    let mut world = world(1, Settings::default(), tasks);
    let score = world.state().score(world.task("c"));
    assert_eq!(score.to_string(), "45", "C of the worked examples");
    assert_eq!(order(&mut world), ["a", "c", "b"]);
}

/// GIT-08: a dead holder must not keep a file for ever; a live one keeps it while it is heard of.
#[test]
fn locks_expire_unless_their_holder_is_heard_of() {
    let mut world = world(2, holding(), vec![touching("a", &["x"]), touching("b", &["x"])]);
    let (a, fence) = (world.task("a").id, world.fence_of("a"));
    world.wait(200_000);
    world.must(Command::Heartbeat { fences: vec![fence] });
    world.wait(200_000);
    assert_eq!(world.working(), ["a".to_owned()].into(), "its lock was renewed with its lease");
    let events = world.wait(300_000);
    assert!(events.contains(&Event::LocksExpired { task: a }), "{events:?}");
    assert_eq!(world.working().len(), 1, "one of them has the file");
}

/// A task that has a change to show, or waits for people's word, would meet its own work again if
/// others took its files meanwhile: the time that nobody works on it does not count.
#[test]
fn what_is_in_hand_keeps_its_files_however_long_it_takes() {
    let tasks = || vec![touching("a", &["src/a"]), touching("b", &["src/a"])];
    let hour = 60 * MINUTE;
    let kept = "waits for src/a, which a keeps until it is merged or gives up";
    // At its gate, and in the merge queue.
    let mut world = opened(tasks(), crate::fixture::checked());
    world.finish("a", done(7, &["src/a"]));
    assert!(!told_of_expiry(&world.wait(hour)) && world.working().is_empty());
    assert_eq!(why_of(&world, "b"), kept);
    let fence = world.fence_of("a");
    world.must(Command::FinishChecks { fence, results: crate::fixture::check(true) });
    assert!(!told_of_expiry(&world.wait(hour)) && world.working().is_empty());
    world.chores();
    assert_eq!(world.working(), ["b".to_owned()].into(), "merged, and free again");
    // While it asks, and when it goes on from what it had.
    let mut world = opened(tasks(), Policy::default());
    world.finish("a", crate::fixture::asked("q"));
    assert!(!told_of_expiry(&world.wait(hour)) && world.working().is_empty());
    let (task, input) = (world.task("a").id, "yes".to_owned());
    world.must(Command::AnswerCheckpoint { task, resume_id: "q".into(), input, by: ann() });
    assert_eq!(world.working(), ["a".to_owned()].into());
    // Between its phases.
    let mut world = opened(tasks(), crate::fixture::test_first());
    let seats = BTreeMap::from([(Role::Tester, 1)]);
    world.must(Command::ConfigureTeam { seats, workers_max: 1, by: ann() });
    world.succeed("a");
    assert!(!told_of_expiry(&world.wait(hour)) && world.working().is_empty());
    let seats = BTreeMap::from([(Role::Tester, 1), (Role::Developer, 1)]);
    world.must(Command::ConfigureTeam { seats, workers_max: 2, by: ann() });
    let _ = world.send(Command::ResumeMission { mission: M1, by: ann() });
    assert_eq!(world.working(), ["a".to_owned()].into());
}

fn opened(tasks: Vec<PlannedTask>, policy: Policy) -> World {
    let mut world = World::empty();
    world.must(change(holding()));
    world.must(open(tasks, policy));
    world.chores();
    world
}

fn told_of_expiry(events: &[Event]) -> bool {
    events.iter().any(|event| matches!(event, Event::LocksExpired { .. }))
}

/// QUE-26, WRK-13: only who has all its files in their territory is given a task.
#[test]
fn a_task_goes_only_to_who_may_work_on_its_files() {
    let territories = Territories::new(BTreeMap::from([
        (dev(1), vec!["web/".to_owned()]),
        (dev(2), vec!["backend/".to_owned()]),
    ]));
    let settings = Settings { territories: territories.unwrap(), ..Settings::default() };
    let tasks =
        vec![touching("back", &["backend/a.rs"]), touching("both", &["web/a", "backend/a"])];
    let mut world = world(2, settings, tasks);
    assert_eq!(grants(&world)[0].1, dev(2));
    assert_eq!(world.working(), ["back".to_owned()].into());
    let why = "waits: its files lie outside of the territory of every developer";
    assert_eq!(why_of(&world, "both"), why);
    // WRK-14: and what it writes elsewhere is not taken.
    let events = world.finish("back", done(7, &["backend/a.rs", "web/a"]));
    let Event::AttemptFailed { failure, .. } = &events[0] else { panic!("{events:?}") };
    let said = "developer-2 may not change web/a: it is outside of its territory (backend/)";
    assert_eq!(failure.message, said);
}

/// C-02: the bound that holds everyone back is named.
#[test]
fn a_task_that_waits_for_room_says_what_bounds_it() {
    let mut world = World::empty();
    let seats = BTreeMap::from([(Role::Developer, 3)]);
    world.must(Command::ConfigureTeam { seats, workers_max: 1, by: ann() });
    world.must(open(vec![task("a", &[]), task("b", &[])], Policy::default()));
    world.chores();
    assert_eq!(world.working(), ["a".to_owned()].into(), "two seats are free, no worker is");
    let why = "waits for its turn: 1 at the same time, bound by the number of workers";
    assert_eq!(why_of(&world, "b"), why);
    world.succeed("a");
    assert_eq!(world.working(), ["b".to_owned()].into());
}

/// C-02: of workers, the machine, the providers and the money that is left, the least binds and is
/// named, and no more run than it says.
#[test]
fn the_least_of_all_bounds_is_named() {
    let tasks = || vec![task("a", &[]), task("b", &[]), task("c", &[])];
    let bound = |world: &World| {
        let Concurrency { limit, bound } = world.state().concurrency();
        (limit, bound, world.working().len())
    };
    let wide = world(3, Settings::default(), tasks());
    assert_eq!(bound(&wide), (3, Bound::Workers, 3));
    let machine = Some(Hardware { ram_mb: 8_192, cores: 2, disk: Some(Disk::Ssd) });
    let team = TeamRules { profile: Some(Profile::Recommended), machine };
    let small = world(3, Settings { team, ..Settings::default() }, tasks());
    assert_eq!(bound(&small), (2, Bound::Resources, 2));
    let slow = world(3, one_at_a_time(), tasks());
    assert_eq!(bound(&slow), (1, Bound::ProviderLimit, 1));
    let mut poor = World::empty();
    let (mission_usd_max, attempt_usd_max) = (Usd::cents(300), Usd::cents(200));
    let budget = Budget { mission_usd_max, attempt_usd_max };
    poor.must(open(tasks(), Policy { budget, ..Policy::default() }));
    poor.chores();
    let one = "1 at the same time, bound by the budget that is left";
    assert_eq!((poor.working().len(), poor.state().concurrency().to_string()), (1, one.into()));
}

/// One provider with one model, which takes one agent at a time.
fn one_at_a_time() -> Settings {
    let mut settings = Settings::default();
    let model = |tier: Tier| Model {
        name: format!("a-{tier}").into(),
        provider: Provider::new("a"),
        lineage: Lineage("a".into()),
        tier,
        strengths: [].into(),
        enabled: true,
    };
    let models: Vec<Model> = Tier::ALL.map(model).to_vec();
    let price = Price { input: Usd::cents(1), output: Usd::cents(1) };
    settings.prices.models = models.iter().map(|m| (m.name.to_string(), price)).collect();
    let (shards, models) = ([].into(), Catalogue(models));
    settings.routing = Some(routing::Policy { models, shards, ..routing::Policy::default() });
    settings.rate.others = Throughput { requests_per_min: 1, tokens_per_min: 1 };
    settings
}

/// QUE-19, C-32: agents are started six at a time; one that is heard of makes room for the next.
#[test]
fn agents_are_started_a_few_at_a_time() {
    let tasks = (0..9).map(|n| task(&format!("t{n}"), &[])).collect();
    let mut world = world(9, Settings::default(), tasks);
    assert_eq!(world.working().len(), 6);
    assert_eq!(
        why_of(&world, "t8"),
        "waits: 6 agents are starting; more follow when they are online"
    );
    let first = world.fence_of("t0");
    world.must(Command::Heartbeat { fences: vec![first] });
    assert_eq!(world.working().len(), 7);
    world.finish("t1", done(7, &["src/a"]));
    assert_eq!(world.working().len(), 7, "one has ended, one more has started");
    world.online();
    assert_eq!(world.working().len(), 8, "all that is left");
}

/// The second mission of a test, with what it may cost.
fn open_second(tasks: Vec<PlannedTask>, budget: Budget) -> Command {
    let Command::OpenMission { goal, target, base, plan, by, .. } = open(tasks, Policy::default())
    else {
        unreachable!("it opens a mission")
    };
    let (request, policy) =
        (RequestId("r2".into()), Box::new(Policy { budget, ..Policy::default() }));
    Command::OpenMission { request, goal, target, base, plan, policy, by }
}

/// A mission that has no money left may have any number of urgent tasks: they are in nobody's way.
#[test]
fn a_mission_that_cannot_pay_starves_no_other() {
    let crowd = (0..70).map(|n| minutes(&format!("a{n}"), &[], Priority::High, 5)).collect();
    let budget =
        |usd| Budget { mission_usd_max: Usd::cents(usd), attempt_usd_max: Usd::cents(200) };
    let mut world = World::empty();
    world.must(open(crowd, Policy { budget: budget(300), ..Policy::default() }));
    world.must(open_second(vec![minutes("b0", &[], Priority::Low, 5)], budget(2_000)));
    world.chores();
    assert_eq!(world.working(), ["a0".to_owned(), "b0".to_owned()].into());
    let why = "waits: the mission's budget is $3.00: $0.00 spent and $2.00 reserved leave no $2.00";
    assert_eq!(why_of(&world, "a69"), why);
}

/// What holds back one of them holds back all that are alike, so any number of them is in nobody's
/// way.
#[test]
fn whoever_can_start_does_so_behind_any_number_that_cannot() {
    let slow = |n| PlannedTask {
        kind: TaskKind::Refactor,
        ..minutes(&format!("r{n}"), &[], Priority::High, 5)
    };
    let mut tasks: Vec<PlannedTask> = (0..200).map(slow).collect();
    tasks.push(minutes("low", &[], Priority::Low, 5));
    let settings = Settings { rate: Settings::default().rate, ..one_at_a_time() };
    let mut world = world(2, settings, tasks);
    assert_eq!(world.working(), ["low".to_owned(), "r0".to_owned()].into());
    let why = "waits: a premium model is at work already, and those work one after the other";
    assert_eq!(why_of(&world, "r1"), why);
    world.succeed("low");
    world.succeed("r0");
    assert_eq!(world.working(), ["r1".to_owned()].into(), "one premium model at a time");
}

/// The same for tasks that have spent what one of them may cost: each of them, not all together.
#[test]
fn tasks_that_have_spent_their_money_are_in_nobodys_way() {
    let mut settings = Settings::default();
    settings.money.caps.task_usd_max = Some(Usd::cents(250));
    let first = |n| minutes(&format!("a{n:02}"), &[], Priority::High, 5);
    let mut tasks: Vec<PlannedTask> = (0..70).map(first).collect();
    tasks.push(minutes("low", &[], Priority::Low, 5));
    let flow = vec![Phase::Green, Phase::Refactor];
    let budget = Budget { mission_usd_max: Usd::cents(7_000), attempt_usd_max: Usd::cents(200) };
    let mut world = World::empty();
    settings.money.watchdog.minute_usd_max = Usd::cents(100_000);
    world.must(Command::ChangeSettings { settings: Box::new(settings), by: ann() });
    world.must(open(tasks, Policy { flow, budget, ..Policy::default() }));
    world.chores();
    for n in 0..70 {
        let name = format!("a{n:02}");
        let (fence, outcome) = (world.fence_of(&name), done(100 + n, &["src/s.sh"]));
        let spent = Spending { usd: Usd::cents(51), ..Spending::default() };
        world.must(Command::FinishAttempt { fence, outcome, spent });
        world.chores();
    }
    assert_eq!(world.working(), ["low".to_owned()].into());
    let why = why_of(&world, "a00");
    assert!(why.starts_with("waits: the budget of the task is $2.50"), "{why}");
}

/// Retries are weighed by what each of them has cost, so they are looked at one by one, and not
/// without end. Who stands behind too many says so.
#[test]
fn a_retry_too_far_behind_says_that_those_before_it_cannot_start() {
    let mut settings = Settings::default();
    let (retries, plenty) = (Some(Usd::cents(100)), Some(Usd::cents(100_000)));
    settings.money.caps = Caps { retries_usd_max: retries, project_usd_max: plenty, ..Caps::NONE };
    settings.money.pools = None;
    settings.money.watchdog.minute_usd_max = Usd::cents(100_000);
    let dear = |n| minutes(&format!("a{n:02}"), &[], Priority::High, 5);
    let mut tasks: Vec<PlannedTask> = (0..65).map(dear).collect();
    tasks.extend(["low", "slow"].map(|name| minutes(name, &[], Priority::Low, 5)));
    let budget = Budget { mission_usd_max: Usd::cents(20_000), attempt_usd_max: Usd::cents(200) };
    let mut world = World::empty();
    world.must(Command::ChangeSettings { settings: Box::new(settings), by: ann() });
    world.must(open(tasks, Policy { budget, ..Policy::default() }));
    world.chores();
    let names = (0..65).map(|n| (format!("a{n:02}"), 110)).chain([("low".to_owned(), 10)]);
    for (name, cents) in names {
        let (fence, outcome) = (world.fence_of(&name), failed(FailureKind::ValidationFailed));
        let spent = Spending { usd: Usd::cents(cents), ..Spending::default() };
        world.must(Command::FinishAttempt { fence, outcome, spent });
    }
    world.wait(60_000);
    assert_eq!(world.working(), ["slow".to_owned()].into());
    assert_eq!(why_of(&world, "low"), "waits for its turn: 64 tasks before it cannot start");
}
