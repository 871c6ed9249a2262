//! What the engine makes of the tests, criteria and mocks that checks report.

use kapelle_core::command::CheckResult;
use kapelle_core::completion::{CompletionReport, MissionReport};
use kapelle_core::flaky::{FlakyPolicy, InvalidFlaky};
use kapelle_core::gates::{Judged, Mock};
use kapelle_core::outcome::{Ended, Outcome};
use kapelle_core::plan::PlannedTask;
use kapelle_core::policy::Policy;
use kapelle_core::settings::{InvalidSettings, Settings};
use kapelle_core::status::Status;
use kapelle_core::{Command, Effect, Event, Refusal};

use crate::fixture::{M1, World, ann, checked, done, open, task, test_first};

use Ended::{Failed, Flaky, Passed};

/// The check of the fixture with the ends of its tests; it fails if one of them does.
fn ran(tests: &[(&str, Ended)]) -> Vec<CheckResult> {
    let mut outcome = Outcome::default();
    for (test, ended) in tests {
        outcome.record(test, *ended, None, "");
    }
    let passed = tests.iter().all(|(_, ended)| *ended != Failed);
    let outcome = Some(Box::new(outcome));
    vec![CheckResult { name: "test".into(), passed, outcome, ..CheckResult::default() }]
}

/// A world with as many tasks as there are runs to come.
fn world(count: u32, flaky: FlakyPolicy) -> World {
    let mut world = World::empty();
    let settings = Box::new(Settings { flaky, ..Settings::default() });
    world.must(Command::ChangeSettings { settings, by: ann() });
    let tasks = (1..=count).map(|number| task(&number.to_string(), &[])).collect();
    world.must(open(tasks, checked()));
    world.chores();
    world
}

/// The task leaves a change of its own, and its gate finds this.
fn gate(world: &mut World, name: &str, tests: &[(&str, Ended)]) -> Vec<Event> {
    let change = 100 + name.parse::<u64>().unwrap();
    world.finish(name, done(change, &[name]));
    let fence = world.fence_of(name);
    let events = world.must(Command::FinishChecks { fence, results: ran(tests) });
    world.chores();
    events
}

fn put_away(events: &[Event]) -> Vec<&str> {
    let names = events.iter().filter_map(|event| match event {
        Event::TestQuarantined { test, .. } => Some(test.as_str()),
        _ => None,
    });
    names.collect()
}

const TWICE: FlakyPolicy = FlakyPolicy { contradictions_min: 2, passes_to_release: 3 };

/// TDD-12: once may be the machine, twice is the test. From then on its failures are told, and
/// those of others count as ever.
#[test]
fn a_test_that_does_both_on_one_commit_is_put_away_and_blames_nobody() {
    let mut world = world(4, TWICE);
    assert!(put_away(&gate(&mut world, "1", &[("adds", Flaky)])).is_empty());
    let events = gate(&mut world, "2", &[("adds", Flaky), ("removes", Passed)]);
    assert_eq!(put_away(&events), ["test: adds"]);
    let events = gate(&mut world, "3", &[("adds", Failed), ("removes", Passed)]);
    assert!(events.iter().any(|event| matches!(event, Event::PhaseAccepted { .. })), "{events:?}");
    let events = gate(&mut world, "4", &[("adds", Failed), ("removes", Failed)]);
    let rejected = events.iter().find_map(|event| match event {
        Event::ChangeRejected { failure, .. } => Some(failure.message.clone()),
        _ => None,
    });
    assert_eq!(rejected.as_deref(), Some("check test failed in removes:\n"), "only that one");
}

/// A test that fails on many commits is broken, not flaky.
#[test]
fn a_test_that_fails_on_every_commit_is_not_put_away() {
    let mut world = world(3, FlakyPolicy { contradictions_min: 1, ..TWICE });
    for name in ["1", "2", "3"] {
        assert!(put_away(&gate(&mut world, name, &[("adds", Failed)])).is_empty());
    }
    assert!(world.state().test_history().quarantine().is_empty());
}

/// It failed in a lane and passed there when the lane was tested again: that is the same commit.
#[test]
fn two_runs_of_one_candidate_that_differ_are_a_contradiction() {
    let mut world = world(2, FlakyPolicy { contradictions_min: 1, ..TWICE });
    gate(&mut world, "1", &[("adds", Passed)]);
    world.finish("2", done(102, &["2"]));
    let fence = world.fence_of("2");
    world.must(Command::FinishChecks { fence, results: ran(&[("adds", Passed)]) });
    world.build("2", 900);
    let fence = world.fence_of("2");
    world.must(Command::FinishChecks { fence, results: ran(&[("adds", Failed)]) });
    let fence = world.fence_of("2");
    let events = world.must(Command::FinishChecks { fence, results: ran(&[("adds", Passed)]) });
    assert_eq!(put_away(&events), ["test: adds"]);
    assert!(world.task("2").flaky.contains("test: adds"));
}

/// After enough passes in a row it is believed again, and its past forgotten.
#[test]
fn a_test_that_passes_long_enough_counts_again() {
    let mut world = world(5, TWICE);
    gate(&mut world, "1", &[("adds", Flaky)]);
    gate(&mut world, "2", &[("adds", Flaky)]);
    for name in ["3", "4"] {
        gate(&mut world, name, &[("adds", Passed)]);
        assert!(world.state().test_history().quarantine().contains("test: adds"));
    }
    let events = gate(&mut world, "5", &[("adds", Passed)]);
    let released = Event::TestReleased { test: "test: adds".into(), passes: 3 };
    assert!(events.contains(&released), "{events:?}");
    assert!(world.state().test_history().quarantine().is_empty());
}

/// TDD-12, TSK-12: whoever reads the report learns which tests cannot be trusted.
#[test]
fn flaky_tests_are_told_in_the_completion_report() {
    let mut world = world(2, TWICE);
    gate(&mut world, "1", &[("adds", Flaky), ("removes", Passed)]);
    gate(&mut world, "2", &[("adds", Flaky)]);
    let mission = world.state().mission(M1).unwrap();
    let report = CompletionReport::of(world.task("1"), mission).unwrap();
    assert_eq!(report.flaky_tests, ["test: adds"]);
    let all = MissionReport::of(world.state(), mission);
    assert_eq!(all.quarantined_tests, ["test: adds"]);
}

/// TDD-07, TDD-13: what a machine can judge is judged at the last gate, and stored.
#[test]
fn criteria_of_a_task_are_judged_at_its_last_gate() {
    let mut planned = task("1", &[]);
    let wanted = ["test: adds", "check: test", "It reads well"];
    planned.validation_criteria.criteria = wanted.iter().map(ToString::to_string).collect();
    let mut world = World::with(vec![planned], checked());
    world.chores();
    let events = gate(&mut world, "1", &[("removes", Passed)]);
    let rejected = events.iter().find_map(|event| match event {
        Event::ChangeRejected { failure, .. } => Some(failure.message.clone()),
        _ => None,
    });
    assert_eq!(rejected.as_deref(), Some("the criterion is not met: test: adds"));
    world.wait(60_000);
    gate(&mut world, "1", &[("adds", Passed)]);
    assert_eq!(world.status("1"), Status::Completed);
    let report = CompletionReport::of(world.task("1"), world.state().mission(M1).unwrap()).unwrap();
    let judged: Vec<Judged> = report.criteria.iter().map(|(_, judged)| *judged).collect();
    assert_eq!(judged, [Judged::Met, Judged::Met, Judged::Open]);
}

/// SEC-09: tests that replace what they test pass whatever the code does.
#[test]
fn a_change_whose_tests_mock_their_unit_is_rejected() {
    let mut world = World::with(vec![task("1", &[])], checked());
    world.chores();
    world.finish("1", done(101, &["src/a.ts"]));
    let fence = world.fence_of("1");
    let mut results = ran(&[("adds", Passed)]);
    let mock = Mock { path: "tests/a.ts".into(), line: 4, unit: "src/a.ts".into() };
    results[0].mocks = vec![mock];
    let events = world.must(Command::FinishChecks { fence, results });
    let rejected = events.iter().any(|event| {
        matches!(event, Event::ChangeRejected { failure, .. }
            if failure.message.contains("tests/a.ts line 4 replaces src/a.ts"))
    });
    assert!(rejected, "{events:?}");
}

/// TDD-13: a criterion that is a command is run like a check, where the task has no phase left, and
/// has to exit with 0; also where the mission itself checks nothing.
#[test]
fn commands_among_the_criteria_are_run_at_the_last_gate() {
    for (policy, own) in [(test_first(), vec!["test"]), (Policy::default(), Vec::new())] {
        let mut planned = task("1", &[]);
        planned.validation_criteria.criteria = vec!["$ make lint".into(), "It reads well".into()];
        planned.validation_criteria.security_checks = vec!["$ make audit".into()];
        let mut world = World::with(vec![planned], policy);
        world.chores();
        if !own.is_empty() {
            world.finish("1", done(101, &["tests/a"]));
            assert_eq!(checks_of(&world), own, "red is not the end of it");
            world.chores();
        }
        world.finish("1", done(102, &["src/a"]));
        let names: Vec<&str> = own.iter().copied().chain(["make lint", "make audit"]).collect();
        assert_eq!(checks_of(&world), names);
        let result = |passed: bool| {
            let results = names.iter().map(move |name| CheckResult {
                name: name.to_string(),
                passed: passed || *name != "make audit",
                ..CheckResult::default()
            });
            results.collect::<Vec<_>>()
        };
        let fence = world.fence_of("1");
        world.must(Command::FinishChecks { fence, results: result(false) });
        let told = &world.task("1").last_failure.as_ref().unwrap().message;
        assert_eq!(told.trim(), "check make audit failed:");
        world.wait(60_000);
        world.finish("1", done(103, &["src/a"]));
        let (fence, mut untold) = (world.fence_of("1"), result(true));
        untold.pop();
        world.must(Command::FinishChecks { fence, results: untold });
        assert_eq!(world.task("1").accepted_by_phase.len(), own.len(), "silence is no answer");
        world.wait(60_000);
        let fence = world.fence_of("1");
        world.must(Command::FinishChecks { fence, results: result(true) });
        world.chores();
        assert_eq!(world.status("1"), Status::Completed);
        let done = &world.task("1").done.criteria;
        let judged: Vec<Judged> = done.iter().map(|(_, judged)| *judged).collect();
        assert_eq!(judged, [Judged::Met, Judged::Open, Judged::Met]);
    }
}

fn checks_of(world: &World) -> Vec<&str> {
    match &world.running[&world.fence_of("1")] {
        Effect::RunChecks { checks, .. } => checks.iter().map(|check| &*check.name).collect(),
        other => panic!("{other:?}"),
    }
}

/// SEC-09: who has the files is told where to look for mocks, and of what.
#[test]
fn the_gate_says_which_files_are_tests_and_of_what() {
    let planned = PlannedTask { files: vec!["src/a.ts".into()], ..task("1", &[]) };
    let mut world = World::with(vec![planned], test_first());
    world.chores();
    let tested = |world: &World| match &world.running[&world.fence_of("1")] {
        Effect::RunChecks { tested, .. } => (tested.tests.clone(), tested.units.clone()),
        other => panic!("{other:?}"),
    };
    world.finish("1", done(101, &["tests/a.ts"]));
    assert_eq!(tested(&world), (vec!["tests/a.ts".into()], vec!["src/a.ts".into()]));
    world.chores();
    world.finish("1", done(102, &["src/a.ts", "src/b.ts"]));
    let units = vec!["src/a.ts".into(), "src/b.ts".into()];
    assert_eq!(tested(&world), (vec!["tests/a.ts".into()], units));
}

/// A test could neither be put away nor come back by such rules.
#[test]
fn rules_of_flaky_tests_that_cannot_work_are_refused() {
    let with = |contradictions_min, passes_to_release| {
        let flaky = FlakyPolicy { contradictions_min, passes_to_release };
        let settings = Box::new(Settings { flaky, ..Settings::default() });
        World::empty().send(Command::ChangeSettings { settings, by: ann() })
    };
    let refused = |field| {
        let invalid = InvalidFlaky { field, max: 20 };
        Err(Refusal::InvalidSettings(InvalidSettings::Flaky(invalid)))
    };
    assert_eq!(with(0, 1), refused("contradictions_min"));
    assert_eq!(with(1, 21), refused("passes_to_release"));
    assert!(with(1, 20).is_ok());
}
