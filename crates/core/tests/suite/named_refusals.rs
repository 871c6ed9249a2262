//! Refusals by name: each that a person or an agent can meet, as a whole value.

use std::collections::BTreeMap;

use crate::fixture::{World, ann, checked, done, open, task};
use kapelle_core::approval::{Order, OverrideAction, OverrideRefused};
use kapelle_core::gates::{Objection, Thresholds, mocked_units, quality};
use kapelle_core::limits;
use kapelle_core::merge::{InvalidMergePolicy, MergePolicy};
use kapelle_core::outcome::{Complexity, Function, Outcome};
use kapelle_core::plan::draft::merge;
use kapelle_core::plan::sis::Sis;
use kapelle_core::plan::{Flaw, InvalidPlan, Plan, PlanPolicy, PlannedTask, Priority, TaskKind};
use kapelle_core::policy::{InvalidPolicy, Policy};
use kapelle_core::price::Price;
use kapelle_core::queue::{
    Bound, Concurrency, Contention, NoLaunch, QueuePolicy, Strategy, Territories,
};
use kapelle_core::rate::Provider;
use kapelle_core::routing::{self, Catalogue, Lineage, Model, Tier};
use kapelle_core::schema::{self, InvalidDocument};
use kapelle_core::settings::Settings;
use kapelle_core::state::{Held, Hindrance};
use kapelle_core::task::Stage;
use kapelle_core::{AgentId, Command, Refusal, Role, Usd};

fn plan(tasks: Vec<PlannedTask>) -> Plan {
    Plan { goal: None, tasks }
}

fn flaws(tasks: Vec<PlannedTask>) -> Result<(), InvalidPlan> {
    plan(tasks).validate()
}

fn touching(id: &str, file: &str) -> PlannedTask {
    PlannedTask { files: vec![file.into()], ..task(id, &[]) }
}

fn agent(role: Role, seat: u32) -> AgentId {
    AgentId { role, seat }
}

/// A world with these rules and these tasks.
fn ruled(settings: Settings, tasks: Vec<PlannedTask>, policy: Policy) -> World {
    let mut world = World::empty();
    world.must(Command::ChangeSettings { settings: Box::new(settings), by: ann() });
    world.must(open(tasks, policy));
    world.chores();
    world
}

/// The first task that waits for an agent.
fn waiting(world: &World) -> &kapelle_core::task::Task {
    world.state().tasks().find(|task| task.stage == Stage::Ready).unwrap()
}

fn held(world: &World) -> Option<Held> {
    world.state().held_by(waiting(world), Role::Developer)
}

#[test]
fn a_plan_says_what_is_wrong_with_its_goal_and_its_size() {
    let max = limits::GOAL_CHARS_MAX;
    let long = Plan { goal: Some("g".repeat(max + 1)), tasks: vec![task("1", &[])] };
    assert_eq!(long.validate(), Err(InvalidPlan(vec![Flaw::LongGoal { max }])));
    let max = limits::PLAN_TASKS_MAX;
    let many = flaws(vec![task("1", &[]); max + 1]);
    assert_eq!(many, Err(InvalidPlan(vec![Flaw::TooManyTasks { count: max + 1, max }])));
}

#[test]
fn a_plan_says_what_is_wrong_with_a_task() {
    let max = limits::TASK_NAME_CHARS_MAX;
    for id in ["", "a b", "-a", "a..b", "a.", "a.lock", "ä"] {
        let flaw = Flaw::BadId { id: id.to_owned(), max };
        assert_eq!(flaws(vec![task(id, &[])]), Err(InvalidPlan(vec![flaw])), "{id:?}");
    }
    let untitled = PlannedTask { title: " ".into(), ..task("1", &[]) };
    let flaw = Flaw::NoTitle { id: "1".into() };
    assert_eq!(flaws(vec![untitled]), Err(InvalidPlan(vec![flaw])));
    for path in ["/etc/passwd", "../a", "a//b", ".git/config", "./a", ""] {
        let flaw = Flaw::BadPath { id: "1".into(), path: path.into() };
        assert_eq!(flaws(vec![touching("1", path)]), Err(InvalidPlan(vec![flaw])), "{path:?}");
    }
}

#[test]
fn tasks_that_wait_for_each_other_are_a_circle() {
    let tasks = vec![task("1", &["3"]), task("2", &["1"]), task("3", &["2"]), task("4", &["3"])];
    let ids = ["1", "2", "3"].map(str::to_owned).to_vec();
    assert_eq!(flaws(tasks), Err(InvalidPlan(vec![Flaw::Cycle { ids }])));
}

/// A hostile plan does not make a refusal of a gigabyte.
#[test]
fn only_so_many_flaws_are_named_and_the_rest_is_counted() {
    let max = limits::PLAN_FLAWS_MAX;
    let untitled = |n: usize| PlannedTask { title: String::new(), ..task(&n.to_string(), &[]) };
    let Err(InvalidPlan(named)) = flaws((0..max + 7).map(untitled).collect()) else { panic!() };
    assert_eq!((named.len(), named.last()), (max + 1, Some(&Flaw::More { count: 7 })));
}

#[test]
fn a_name_that_two_planners_use_names_both() {
    let text = r#"{"tasks": [{"task_id": "a", "title": "t", "description": "d",
        "priority": "HIGH", "dependencies": [], "file_operations": [{"operation": "delete", "file_path": "a.py"}],
        "validation_criteria": {}, "estimated_duration_minutes": 5}]}"#;
    let sis = || Sis::parse(text).unwrap_or_else(|wrong| panic!("{wrong}"));
    let written = vec![("ada".to_owned(), sis()), ("bob".to_owned(), sis())];
    let refused = merge(None, written, &PlanPolicy::default()).map(|draft| draft.plan);
    let (id, first, second) = ("a".to_owned(), "ada".to_owned(), "bob".to_owned());
    assert_eq!(refused, Err(InvalidPlan(vec![Flaw::PlannedByBoth { id, first, second }])));
}

#[test]
fn a_document_is_measured_before_it_is_read() {
    let parse = |text: &str| schema::parse::<Sis>(text, 10);
    assert_eq!(parse("01234567890"), Err(InvalidDocument::TooLarge { bytes: 11, max: 10 }));
    let message = "EOF while parsing an object at line 1 column 1".to_owned();
    assert_eq!(parse("{"), Err(InvalidDocument::NotJson { message }));
}

#[test]
fn a_merge_queue_without_lanes_is_refused() {
    let with = |lanes_max| {
        let merge = MergePolicy { lanes_max, ..MergePolicy::default() };
        Policy { merge, ..Policy::default() }.validate()
    };
    let what = "lanes_max";
    let why = InvalidMergePolicy::Zero { what };
    assert_eq!(with(0), Err(InvalidPolicy::Merge { why }));
    let max = limits::MERGE_LANES_MAX;
    let why = InvalidMergePolicy::TooMany { what, count: max + 1, max };
    assert_eq!(with(max + 1), Err(InvalidPolicy::Merge { why }));
}

/// The dearest models work one after the other.
#[test]
fn a_task_for_a_tier_that_is_full_waits_for_it() {
    let models: Vec<Model> = ["a", "b"]
        .into_iter()
        .map(|provider| Model {
            name: provider.into(),
            provider: Provider::new(provider),
            lineage: Lineage(provider.into()),
            tier: Tier::Premium,
            strengths: [].into(),
            enabled: true,
        })
        .collect();
    let mut settings = Settings::default();
    let price = Price { input: Usd::cents(1), output: Usd::cents(1) };
    settings.prices.models = models.iter().map(|m| (m.name.to_string(), price)).collect();
    let models = Catalogue(models);
    let shards = BTreeMap::new();
    settings.routing = Some(routing::Policy { models, shards, ..routing::Policy::default() });
    let hard = |id: &str| PlannedTask { kind: TaskKind::Refactor, ..task(id, &[]) };
    let world = ruled(settings, vec![hard("1"), hard("2")], Policy::default());
    assert_eq!(world.working().len(), 1);
    let hindrance = world.state().hindrance(waiting(&world));
    assert_eq!(hindrance, Some(Hindrance::TierFull { tier: Tier::Premium }));
}

#[test]
fn a_task_whose_file_another_has_locked_waits_for_it() {
    let queue = QueuePolicy { contention: Contention::Hold, ..QueuePolicy::default() };
    let settings = Settings { queue, ..Settings::default() };
    let ms_max = settings.locks.ttl_ms;
    let tasks = vec![touching("1", "src/a.rs"), touching("2", "src/a.rs")];
    let world = ruled(settings, tasks, checked());
    let holder = world.task("1").id;
    let locked = Held::Locked { path: "src/a.rs".into(), holder, ms_max: Some(ms_max) };
    assert_eq!(held(&world), Some(locked));
}

#[test]
fn a_task_outside_of_every_territory_waits_for_its_role() {
    let docs = || vec!["docs/".to_owned()];
    let of = [1, 2].map(|seat| (agent(Role::Developer, seat), docs())).into();
    let settings = Settings { territories: Territories::new(of).unwrap(), ..Settings::default() };
    let world = ruled(settings, vec![touching("1", "src/a.rs")], checked());
    assert_eq!(held(&world), Some(Held::Territory { role: Role::Developer }));
}

#[test]
fn a_task_beside_too_many_that_start_waits_for_them() {
    let queue = QueuePolicy { launch_batch: 1, ..QueuePolicy::default() };
    let settings = Settings { queue, ..Settings::default() };
    let world = ruled(settings, vec![task("1", &[]), task("2", &[])], checked());
    assert_eq!(held(&world), Some(Held::Starting(NoLaunch { starting: 1 })));
}

#[test]
fn a_task_beyond_what_may_run_at_once_waits_for_its_turn() {
    let queue = QueuePolicy { strategy: Strategy::Serial, ..QueuePolicy::default() };
    let settings = Settings { queue, ..Settings::default() };
    let world = ruled(settings, vec![task("1", &[]), task("2", &[])], checked());
    let bound = Concurrency { limit: 1, bound: Bound::Serial };
    assert_eq!(held(&world), Some(Held::Capacity(bound)));
}

#[test]
fn a_task_that_lost_its_hosts_works_alone_and_others_wait() {
    let hours = [(Role::Developer, 3_600_000)].into();
    let patient = Policy { attempt_timeout_ms: hours, ..Policy::default() };
    let ttl = patient.lease_ttl_ms;
    let last = PlannedTask { priority: Priority::Low, ..task("3", &[]) };
    let mut world = World::with(vec![task("1", &[]), task("2", &[]), last], patient);
    world.chores();
    for _ in 0..2 {
        world.wait(ttl / 2);
        let heard = world.fence_of("2");
        world.must(Command::Heartbeat { fences: vec![heard] });
        world.wait(ttl / 2);
    }
    let held = |world: &World, name: &str| world.state().held_by(world.task(name), Role::Developer);
    assert_eq!(held(&world, "1"), Some(Held::Alone { lost: 2 }));
    world.finish("2", done(7, &["a"]));
    let suspect = world.task("1").id;
    assert_eq!(held(&world, "3"), Some(Held::Beside { suspect }));
}

/// OVR-04: whoever does another kind of work does not get this one.
#[test]
fn a_task_is_not_moved_to_another_role() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    let (from, to) = (agent(Role::Developer, 1), agent(Role::Tester, 1));
    let action = OverrideAction::Reassign { from, to };
    let (task, reason) = (world.task("1").id, "stuck".into());
    let order = Box::new(Order { task, action, reason, by: ann() });
    let refused = Refusal::Override(OverrideRefused::OtherRole { from, to });
    assert_eq!(world.send(Command::Override { order }), Err(refused));
}

#[test]
fn tests_that_replace_what_they_test_are_objected_to() {
    let units = ["src/pay.ts".to_owned()];
    let text = "import x\njest.mock('../src/pay')\n";
    let found = mocked_units("tests/pay.test.ts", text, &units);
    let objections: Vec<Objection> = found.iter().map(|mock| mock.objection()).collect();
    let (path, line, unit) = ("tests/pay.test.ts".into(), 2, "src/pay.ts".into());
    assert_eq!(objections, [Objection::MocksItsUnit { path, line, unit }]);
}

#[test]
fn a_function_beyond_the_complexity_that_is_asked_for_is_objected_to() {
    let function = |name: &str, cyclomatic| Function {
        cyclomatic,
        name: name.into(),
        file: "src/a.rs".into(),
        line: 7,
    };
    let worst = vec![function("knot", 11), function("fine", 10)];
    let complexity = Some(Complexity { functions: 2, worst });
    let now = Outcome { complexity, ..Outcome::default() };
    let wanted = Thresholds { complexity_max: Some(10), ..Thresholds::default() };
    let (function, file) = ("knot".into(), "src/a.rs".into());
    let objection = Objection::TooComplex { function, file, line: 7, found: 11, max: 10 };
    assert_eq!(quality(&wanted, None, &now, &[].into()), [objection]);
}
