//! The gates of the phases, at work: what the tests of a check say decides (TDD-03, 12, GIT-11).

use kapelle_core::command::{AttemptOutcome, Before, CheckResult};
use kapelle_core::failure::FailureKind;
use kapelle_core::flow::Phase;
use kapelle_core::gates::{Judged, RedReason};
use kapelle_core::merge::AfterTests;
use kapelle_core::outcome::{Coverage, Ended, Outcome, Percent};
use kapelle_core::policy::{Parser, Policy};
use kapelle_core::report::Report;
use kapelle_core::{Command, Effect, Event, activity, limits, why};

use crate::fixture::{M1, World, commit, done, failed, task, test_first};

use Ended::{Failed, Passed, Skipped};

/// Tests first, with a check whose tests are known by name.
fn read() -> Policy {
    let mut policy = test_first();
    policy.checks[0].reading.parser = Parser::Cargo;
    policy
}

fn outcome(tests: &[(&str, Ended)]) -> Outcome {
    let mut outcome = Outcome::default();
    for (name, ended) in tests {
        let message = if *ended == Failed { "left: 1, right: 2" } else { "" };
        outcome.record(name, *ended, None, message);
    }
    outcome
}

fn result(outcome: Outcome) -> CheckResult {
    let passed = outcome.is_clean();
    let (name, output) = ("test".into(), "what it printed".into());
    CheckResult { name, passed, output, outcome: Some(Box::new(outcome)), ..CheckResult::default() }
}

/// The same check on the branch, where it said this.
fn with_before(mut result: CheckResult, before: Outcome) -> CheckResult {
    let passed = before.is_clean();
    result.before = Some(Box::new(Before { passed, outcome: Some(before) }));
    result
}

fn begun(policy: Policy) -> World {
    let mut world = World::with(vec![task("1", &[])], policy);
    world.chores();
    world
}

/// An attempt that touched the right kind of file, and what its checks say.
fn attempt(world: &mut World, change: u64, path: &str, result: CheckResult) -> Vec<Event> {
    world.finish("1", done(change, &[path]));
    judged(world, result)
}

fn judged(world: &mut World, result: CheckResult) -> Vec<Event> {
    let fence = world.fence_of("1");
    world.must(Command::FinishChecks { fence, results: vec![result] })
}

fn red(world: &mut World, result: CheckResult) -> Vec<Event> {
    attempt(world, 5, "tests/a.rs", result)
}

fn green(world: &mut World, result: CheckResult) -> Vec<Event> {
    attempt(world, 6, "src/a.rs", result)
}

fn is_accepted(events: &[Event]) -> bool {
    events.iter().any(|event| matches!(event, Event::PhaseAccepted { .. }))
}

fn told(world: &World) -> &str {
    &world.task("1").last_failure.as_ref().unwrap().message
}

fn says(world: &mut World, reason: RedReason) {
    let report = Report { red: Some(Box::new(reason)), ..Report::default() };
    let fence = world.fence_of("1");
    world.must(Command::ReportTask { fence, report });
}

/// A failing check is not enough: an old test that fails, or a lint, tests nothing new.
#[test]
fn red_is_accepted_only_if_a_new_test_fails() {
    let base = outcome(&[("old", Passed)]);
    let mut world = begun(read());
    let nothing = result(outcome(&[("old", Passed), ("new", Passed)]));
    assert!(!is_accepted(&red(&mut world, nothing)));
    assert!(told(&world).starts_with("all tests passed"), "{}", told(&world));

    let mut world = begun(read());
    let broke = with_before(result(outcome(&[("old", Failed)])), base.clone());
    assert!(!is_accepted(&red(&mut world, broke)));
    assert!(told(&world).contains("the test old passed before and fails now"), "{}", told(&world));

    let mut world = begun(read());
    let mut known = outcome(&[("old", Failed)]);
    let same = with_before(result(known.clone()), known.clone());
    assert!(!is_accepted(&red(&mut world, same)));

    known.record("new", Failed, None, "not yet");
    let new = with_before(result(known), outcome(&[("old", Failed)]));
    let mut world = begun(read());
    assert!(is_accepted(&red(&mut world, new)));
}

/// A check that was ended shows nothing, and what ended it is not blamed on the tests (WRK-32).
#[test]
fn a_check_that_was_cut_short_is_no_answer() {
    for kind in [FailureKind::Timeout, FailureKind::OutOfMemory, FailureKind::DiskFull] {
        let cut = || CheckResult {
            outcome: None,
            passed: false,
            cut_short: Some(kind),
            ..result(outcome(&[]))
        };
        let mut world = begun(test_first());
        assert!(!is_accepted(&red(&mut world, cut())), "{kind:?} is not red");
        assert_eq!(world.task("1").last_failure.as_ref().unwrap().kind, kind);

        let mut world = begun(Policy { flow: vec![Phase::Green], ..read() });
        assert!(!is_accepted(&green(&mut world, cut())));
        let failure = world.task("1").last_failure.clone().unwrap();
        assert_eq!(failure.kind, kind);
        assert!(failure.message.starts_with("check test has no answer"), "{failure:?}");
    }
}

/// What one phase has shown to fail, no later one of the task rewrites (SEC-09).
#[test]
fn tests_that_were_shown_to_fail_are_frozen_for_every_later_phase() {
    let flow = vec![Phase::Red, Phase::Green, Phase::IntegrationRed, Phase::Verify];
    let mut world = begun(Policy { flow, ..read() });
    let failing = |name| result(outcome(&[(name, Failed)]));
    let passing = || result(outcome(&[("unit", Passed)]));
    assert!(is_accepted(&red(&mut world, failing("unit"))));
    assert!(is_accepted(&green(&mut world, passing())));
    let rewritten = world.finish("1", done(7, &["tests/a.rs"]));
    assert!(matches!(rewritten[0], Event::AttemptFailed { .. }), "{rewritten:?}");
    assert!(told(&world).contains("may not change these files: tests/a.rs"), "{}", told(&world));
}

/// There is not always something to tidy up, or to add.
#[test]
fn a_phase_that_has_nothing_to_change_is_accepted_on_what_there_is() {
    for phase in [Phase::Refactor, Phase::Verify] {
        let mut world = begun(Policy { flow: vec![Phase::Green, phase], ..read() });
        let passing = || result(outcome(&[("unit", Passed)]));
        assert!(is_accepted(&green(&mut world, passing())));
        let nothing = AttemptOutcome::Done { change: None, touched: Vec::new().into() };
        world.finish("1", nothing);
        assert_eq!(world.task("1").last_failure, None, "{phase}");
        let events = judged(&mut world, passing());
        let accepted = Event::PhaseAccepted { task: world.task("1").id, phase, change: commit(6) };
        assert!(events.contains(&accepted), "{phase}: {events:?}");
    }
}

/// A test file that does not compile shows nothing, unless what is missing is what it says.
#[test]
fn tests_that_cannot_be_built_need_their_reason_stated() {
    let unbuilt = || {
        let mut outcome = Outcome::default();
        outcome.break_off("tests/a.rs", "cannot find function `add` in this scope");
        result(outcome)
    };
    let mut world = begun(read());
    assert!(!is_accepted(&red(&mut world, unbuilt())));
    assert!(told(&world).contains("cannot find function `add`"), "{}", told(&world));
    assert!(told(&world).contains("\"reason\": \"missing\""), "{}", told(&world));

    for (name, accepted) in [("add", true), ("subtract", false)] {
        let mut world = begun(read());
        says(&mut world, RedReason::Missing { name: name.into() });
        assert_eq!(is_accepted(&red(&mut world, unbuilt())), accepted, "{name}");
    }
}

#[test]
fn named_tests_have_to_fail_with_the_stated_words() {
    let reason = |names: &[&str], saying: Option<&str>| RedReason::Tests {
        names: names.iter().map(ToString::to_string).collect(),
        saying: saying.map(str::to_owned),
    };
    let found = || result(outcome(&[("a", Failed), ("b", Passed)]));
    let cases = [
        (reason(&["a"], None), true),
        (reason(&["a"], Some("right: 2")), true),
        (reason(&["a"], Some("panicked")), false),
        (reason(&["a", "b"], None), false),
        (reason(&["c"], None), false),
    ];
    for (reason, accepted) in cases {
        let mut world = begun(read());
        says(&mut world, reason.clone());
        assert_eq!(is_accepted(&red(&mut world, found())), accepted, "{reason:?}");
    }
}

/// The next attempt hears which tests fail, however much was printed.
#[test]
fn a_failure_names_its_tests() {
    let mut world = begun(read());
    assert!(is_accepted(&red(&mut world, result(outcome(&[("adds", Failed)])))));
    let mut loud = result(outcome(&[("adds", Failed), ("divides", Failed), ("runs", Passed)]));
    loud.output = "x".repeat(10_000);
    assert!(!is_accepted(&green(&mut world, loud)));
    assert!(
        told(&world).starts_with("check test failed in adds, divides:\nxxx"),
        "{}",
        told(&world)
    );
    assert!(told(&world).chars().count() <= limits::FAILURE_CHARS_MAX);
}

#[test]
fn a_task_that_waits_to_be_tried_again_says_what_failed() {
    let mut world = begun(read());
    world.finish("1", failed(FailureKind::Network));
    let why = why::why(world.state(), world.task("1"));
    assert_eq!(why.as_deref(), Some("is tried again at 1970-01-01 00:16:41 UTC: it broke"));
}

/// A change is answerable for what it broke, not for what it found.
#[test]
fn what_failed_before_the_change_is_told_and_not_blamed() {
    let before = || outcome(&[("old", Failed), ("fine", Passed)]);
    let begin = || {
        let mut world = begun(read());
        let shown = outcome(&[("old", Failed), ("fine", Passed), ("new", Failed)]);
        assert!(is_accepted(&red(&mut world, with_before(result(shown), before()))));
        world
    };
    let mut world = begin();
    let now = outcome(&[("old", Failed), ("fine", Passed), ("new", Passed)]);
    let events = green(&mut world, with_before(result(now), before()));
    assert!(is_accepted(&events), "{events:?}");
    let text = kapelle_core::activity::line(world.state(), &events[0]).unwrap().text;
    assert!(text.ends_with("failed before the change already: test"), "{text}");

    let mut world = begin();
    let now = outcome(&[("old", Failed), ("fine", Failed), ("new", Passed)]);
    assert!(!is_accepted(&green(&mut world, with_before(result(now), before()))));
    assert!(told(&world).starts_with("check test failed in fine:"), "{}", told(&world));
}

/// Where no red phase shows what a task is for, the failing test may be what it is for.
#[test]
fn without_a_red_phase_every_test_has_to_pass() {
    let policy = Policy { flow: vec![Phase::Green], ..read() };
    let mut world = begun(policy);
    let failing = || outcome(&[("old", Failed)]);
    assert!(!is_accepted(&green(&mut world, with_before(result(failing()), failing()))));
}

/// Of a check without names nobody knows whether it fails as it did before.
#[test]
fn a_check_without_names_has_to_pass() {
    let plain = |passed_before| {
        let before = Some(Box::new(Before { passed: passed_before, outcome: None }));
        CheckResult { name: "test".into(), before, ..CheckResult::default() }
    };
    for passed_before in [false, true] {
        let mut world = begun(test_first());
        assert!(is_accepted(&red(&mut world, plain(false))));
        assert!(!is_accepted(&green(&mut world, plain(passed_before))));
    }
}

/// Settings of a test runner can skip or lose a test without touching its file.
#[test]
fn a_test_of_red_that_is_skipped_or_gone_has_not_passed() {
    let begin = || {
        let mut world = begun(read());
        let shown = result(outcome(&[("new", Failed), ("other", Passed)]));
        assert!(is_accepted(&red(&mut world, shown)));
        world
    };
    let cases: [(&[(&str, Ended)], &str); 3] = [
        (&[("new", Skipped), ("other", Passed)], "the test new failed when it was written"),
        (&[("other", Passed)], "the test new failed when it was written and is gone now"),
        (&[("new", Passed)], "the test other ran before and is gone"),
    ];
    for (tests, wrong) in cases {
        let mut world = begin();
        assert!(!is_accepted(&green(&mut world, result(outcome(tests)))));
        assert!(told(&world).contains(wrong), "{}", told(&world));
    }
    let whole = outcome(&[("new", Passed), ("other", Passed), ("more", Passed)]);
    assert!(is_accepted(&green(&mut begin(), result(whole))));
}

/// A threshold that is missed is the check's failure, whatever its tests did before.
#[test]
fn a_missed_threshold_is_not_excused_by_a_test_that_failed_before() {
    let mut policy = read();
    policy.checks[0].reading.thresholds.coverage_min = Some(Percent(8_000));
    let mut world = begun(policy);
    assert!(is_accepted(&red(&mut world, result(outcome(&[("new", Failed)])))));
    let mut before = outcome(&[("old", Failed)]);
    before.coverage = Some(Coverage { lines_covered: 9, lines: 10, ..Coverage::default() });
    let now = outcome(&[("old", Failed), ("new", Passed)]);
    assert!(!is_accepted(&green(&mut world, with_before(result(now), before))));
}

/// Nor by having been missed before.
#[test]
fn a_threshold_that_was_missed_before_has_to_be_met() {
    let mut policy = read();
    policy.checks[0].reading.thresholds.coverage_min = Some(Percent(8_000));
    let mut world = begun(policy);
    assert!(is_accepted(&red(&mut world, result(outcome(&[("new", Failed)])))));
    let uncovered = |tests| {
        let mut outcome = outcome(tests);
        let coverage = Coverage { lines_covered: 7, lines: 10, ..Coverage::default() };
        outcome.coverage = Some(coverage);
        CheckResult { passed: false, ..result(outcome) }
    };
    let before = Before { passed: false, outcome: uncovered(&[]).outcome.map(|outcome| *outcome) };
    let now = CheckResult { before: Some(Box::new(before)), ..uncovered(&[("new", Passed)]) };
    assert!(!is_accepted(&green(&mut world, now)));
    assert!(told(&world).contains("70.00 % of the lines are covered"), "{}", told(&world));
}

/// The gate asks its host to look at the branch too, where that can tell something.
#[test]
fn what_fails_is_compared_with_the_branch_where_that_helps() {
    let tip_of = |policy: Policy, path: &str| {
        let mut world = begun(policy);
        world.finish("1", done(5, &[path]));
        let fence = world.fence_of("1");
        match &world.running[&fence] {
            Effect::RunChecks { tip, .. } => tip.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(tip_of(crate::fixture::checked(), "src/a.rs"), None, "there are no names");
    assert_eq!(tip_of(test_first(), "tests/a.rs"), None, "there are no names");
    let green_only = Policy { flow: vec![Phase::Green], ..read() };
    assert_eq!(tip_of(green_only, "src/a.rs"), None, "everything has to pass");
    assert_eq!(tip_of(read(), "tests/a.rs"), Some(commit(1)));
}

/// In the merge queue too a test is flaky or broken by its own name.
#[test]
fn the_queue_tells_tests_apart() {
    let mut policy = crate::fixture::checked();
    policy.checks[0].reading.parser = Parser::Cargo;
    let mut world = begun(policy);
    let fine = result(outcome(&[("a", Passed)]));
    assert!(is_accepted(&green(&mut world, fine.clone())));
    world.build("1", 12);
    let verdict = |events: &[Event]| {
        let found = events.iter().find_map(|event| match event {
            Event::LaneTested { verdict, .. } => Some(verdict.clone()),
            _ => None,
        });
        found.unwrap()
    };
    let failed = judged(&mut world, result(outcome(&[("a", Failed)])));
    let named = vec!["test: a".to_owned()];
    assert_eq!(verdict(&failed), AfterTests::TestAgain { failed: named.clone() });
    let passed = judged(&mut world, fine);
    assert_eq!(verdict(&passed), AfterTests::Passed { flaky: named, excused: Vec::new() });
    let queue = world.state().mission(M1).unwrap().merge_queue().unwrap();
    assert_eq!(queue.flaky().get("test: a"), Some(&1));
}

/// TDD-12: what fails and then passes on the same commit is flaky: it is told by name, and the change
/// goes on. A red phase is to fail, so nothing of it is tried again.
#[test]
fn a_flaky_check_is_run_again_at_the_gate_and_told_by_name() {
    let retries = |world: &World| match &world.running[&world.fence_of("1")] {
        Effect::RunChecks { retries, .. } => *retries,
        other => panic!("{other:?}"),
    };
    let mut world = begun(read());
    world.finish("1", done(5, &["tests/a.rs"]));
    assert_eq!(retries(&world), 0);
    let shown = with_before(result(outcome(&[("new", Failed)])), outcome(&[]));
    judged(&mut world, shown);
    world.finish("1", done(6, &["src/a.rs"]));
    assert_eq!(retries(&world), 1);
    let mut passed = result(outcome(&[("new", Passed), ("shaky", Passed)]));
    let first = outcome(&[("new", Passed), ("shaky", Failed)]);
    passed.earlier = Some(Box::new(Before { passed: false, outcome: Some(first) }));
    let events = judged(&mut world, passed);
    assert!(is_accepted(&events));
    let lines = events.iter().filter_map(|event| activity::line(world.state(), event));
    let lines: Vec<String> = lines.map(|line| line.text).collect();
    assert!(lines.iter().any(|line| line.ends_with("; flaky: test: shaky")), "{lines:?}");
    let remembered = world.state().test_history().flakiness("test: shaky");
    assert!(remembered.is_some_and(|found| found.is_flaky()), "for the day of its quarantine");
}

/// So many tests, the last of them as told.
fn many(count: usize, ended: Ended, last: Ended) -> Outcome {
    let names: Vec<String> = (1..=count).map(|number| format!("t{number:03}")).collect();
    let tests = names.iter().map(|name| (name.as_str(), ended));
    let mut tests: Vec<(&str, Ended)> = tests.collect();
    tests.last_mut().unwrap().1 = last;
    outcome(&tests)
}

/// TDD-03, SEC-09: the journal keeps a part of what a check with many tests says; it is judged by
/// the whole.
#[test]
fn a_check_with_many_tests_is_judged_by_all_of_them() {
    // A test that passed before is broken, and none is new.
    let mut world = begun(read());
    let broken = result(many(350, Passed, Failed));
    let events = red(&mut world, with_before(broken, many(350, Passed, Passed)));
    assert!(events.iter().any(|e| matches!(e, Event::ChangeRejected { .. })), "{events:?}");

    // Many fail anyway: nobody is blamed for them.
    let mut world = begun(read());
    let mut shown = many(120, Failed, Failed);
    shown.record("z_new", Failed, None, "not there yet");
    red(&mut world, with_before(result(shown), many(120, Failed, Failed)));
    let mut mended = many(120, Failed, Failed);
    mended.record("z_new", Passed, None, "");
    let events = green(&mut world, with_before(result(mended), many(120, Failed, Failed)));
    assert!(events.iter().any(|e| matches!(e, Event::PhaseAccepted { .. })), "{events:?}");
}

/// TDD-13: a criterion is met by its test, however many others there are.
#[test]
fn a_named_test_among_many_is_found() {
    let mut named = task("1", &[]);
    named.validation_criteria.criteria = vec!["test: t350".into()];
    let mut world = World::with(vec![named], Policy { flow: vec![Phase::Green], ..read() });
    world.chores();
    let events = green(&mut world, result(many(400, Passed, Passed)));
    assert!(events.iter().any(|e| matches!(e, Event::PhaseAccepted { .. })), "{events:?}");
    let criteria = &world.task("1").done.criteria;
    assert_eq!(criteria[..], [("test: t350".to_owned(), Judged::Met)]);
}
