//! Gates over outcomes: what lets a change through, and the exact reason where it does not.

use std::collections::BTreeSet;

use kapelle_core::gates::{Evidence, Objection, RedReason, Thresholds, green, quality, red};
use kapelle_core::limits;
use kapelle_core::outcome::{
    Complexity, Coverage, Ended, Finding, Findings, Function, Mutants, Outcome, Percent, Severity,
};

/// `+a` passed, `-a` failed, `~a` was skipped, `!a` could not be built.
fn outcome(tests: &[&str]) -> Outcome {
    let mut outcome = Outcome::default();
    for test in tests {
        let (how, name) = test.split_at(1);
        match how {
            "+" => outcome.record(name, Ended::Passed, None, ""),
            "-" => outcome.record(name, Ended::Failed, None, &format!("{name} is wrong")),
            "~" => outcome.record(name, Ended::Skipped, None, ""),
            _ => outcome.break_off("pkg", &format!("undefined: {name}")),
        }
    }
    outcome
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

fn tests(names: &[&str], saying: Option<&str>) -> RedReason {
    let names = names.iter().map(ToString::to_string).collect();
    RedReason::Tests { names, saying: saying.map(str::to_owned) }
}

/// What red says about a run after a base in which `old` passed.
fn said(reason: &RedReason, now: &[&str]) -> Vec<Objection> {
    red(reason, Some(&outcome(&["+old", "-sick"])), &outcome(now), &names(&["sick"]))
}

#[test]
fn red_is_accepted_when_its_new_tests_fail() {
    let now = ["+old", "-sick", "-new", "~later"];
    assert_eq!(said(&RedReason::NewTests, &now), []);
    assert_eq!(said(&tests(&["new"], Some("is wrong")), &["+old", "-new"]), []);
    let evidence = Evidence::of(&outcome(&now), None);
    assert_eq!(evidence.failing, names(&["new", "sick"]));
    assert_eq!(evidence.ran, names(&["new", "old", "sick"]));
    assert!(evidence.all_named && evidence.unbuilt.is_none());
}

/// A name is no excuse: what it names has to fail, and not since before the change.
#[test]
fn red_by_names_needs_a_new_failure_too() {
    assert_eq!(said(&tests(&[], None), &["+old", "+new"]), [Objection::NothingFails]);
    let before = Objection::FailedBefore { test: "sick".into() };
    let shown = said(&tests(&["sick"], None), &["+old", "-sick"]);
    assert_eq!(shown, [before, Objection::NothingFails]);
}

#[test]
fn red_without_a_new_failure_shows_nothing() {
    let shown = |now: &[&str]| said(&RedReason::NewTests, now);
    assert_eq!(shown(&["+old", "+new"]), [Objection::NothingFails]);
    assert_eq!(shown(&["+old", "-sick", "+new"]), [Objection::NothingFails], "it was sick before");
    let old = red(&RedReason::NewTests, Some(&outcome(&["-a"])), &outcome(&["-a"]), &names(&[]));
    assert_eq!(old, [Objection::NoNewTest]);
}

/// Breaking what worked is not a way to have a failing test.
#[test]
fn red_may_not_break_what_passed() {
    let broke = Objection::Broke { test: "old".into(), message: "old is wrong".into() };
    assert_eq!(said(&RedReason::NewTests, &["-old", "-new"]), [broke]);
}

#[test]
fn red_fails_by_the_stated_names_and_words() {
    let reason = tests(&["one", "two", "three", "four"], Some("wrong"));
    let mut now = outcome(&["-one", "+two", "~three"]);
    let objections = red(&reason, None, &now, &names(&[]));
    assert_eq!(
        objections,
        [
            Objection::DoesNotFail { test: "two".into(), ended: "passed" },
            Objection::DoesNotFail { test: "three".into(), ended: "is skipped" },
            Objection::DidNotRun { test: "four".into() },
        ]
    );
    now.record("typo", Ended::Failed, None, "NameError");
    let other = Objection::OtherMessage { test: "typo".into(), message: "NameError".into() };
    let reason = tests(&["typo"], Some("wrong"));
    assert_eq!(red(&reason, None, &now, &names(&[])), [other]);
}

/// A typo in a test does not compile either. Only what the tester said would be missing counts.
#[test]
fn a_build_that_breaks_is_red_only_where_that_is_the_reason() {
    let built = |reason: &RedReason, now: &[&str]| red(reason, None, &outcome(now), &names(&[]));
    let unexpected =
        Objection::DoesNotBuild { place: "pkg".into(), message: "undefined: subtract".into() };
    let broken = ["!subtract"];
    assert_eq!(built(&RedReason::NewTests, &broken), [unexpected]);
    let missing = |name: &str| RedReason::Missing { name: name.into() };
    assert_eq!(built(&missing("subtract"), &broken), []);
    let elsewhere = built(&missing("subtract"), &["!subtract", "!typo"]);
    assert!(matches!(elsewhere[..], [Objection::OtherReason { .. }]), "{elsewhere:?}");
    let nothing = built(&missing("subtract"), &["-new"]);
    assert!(matches!(nothing[..], [Objection::OtherReason { .. }]), "{nothing:?}");
    assert_ne!(built(&missing(""), &broken), [], "nothing is not a name");
}

#[test]
fn green_needs_every_red_test_to_pass() {
    let evidence = Evidence::of(&outcome(&["-new", "+old"]), None);
    let said = |now: &[&str]| green(&evidence, &outcome(now), &names(&["sick"]));
    assert_eq!(said(&["+new", "+old", "-sick"]), []);
    let fails = Objection::Fails { test: "new".into(), message: "new is wrong".into() };
    assert_eq!(said(&["-new", "+old"]), [fails]);
    let skipped = Objection::NotPassing { test: "new".into(), ended: "is skipped" };
    assert_eq!(said(&["~new", "+old"]), [skipped], "settings of the runner can skip a test");
    let gone = Objection::NotPassing { test: "new".into(), ended: "is gone" };
    let vanished = Objection::Vanished { test: "old".into() };
    assert_eq!(said(&["+other"]), [gone, vanished], "and can leave tests out");
    let broken = Objection::Broken { place: "pkg".into(), message: "undefined: x".into() };
    assert_eq!(said(&["+new", "+old", "!x"]), [broken]);
}

/// A setting of the test runner can take the names away, and with them the tests.
#[test]
fn green_needs_the_names_that_red_had() {
    let evidence = Evidence::of(&outcome(&["-new", "+old"]), None);
    let mut now = outcome(&[]);
    now.count(Ended::Passed, 1);
    let gone = Objection::NotPassing { test: "new".into(), ended: "is gone" };
    let vanished = Objection::Vanished { test: "old".into() };
    assert_eq!(green(&evidence, &now, &names(&[])), [gone, vanished]);
    let nameless = Evidence { all_named: false, ..evidence };
    assert_eq!(green(&nameless, &now, &names(&[])), [], "there were none to compare");
}

/// Tests that could not be built have no names yet. Some test has to be new in the end.
#[test]
fn green_needs_a_new_test_where_red_could_not_be_built() {
    let evidence = Evidence::of(&outcome(&["!subtract"]), Some(&outcome(&["+old"])));
    let said = |now: &[&str]| green(&evidence, &outcome(now), &names(&[]));
    assert_eq!(said(&["+old"]), [Objection::NoNewTestPasses]);
    assert_eq!(said(&["+old", "~new"]), [Objection::NoNewTestPasses]);
    assert_eq!(said(&["+old", "+new"]), []);
}

#[test]
fn failures_without_a_name_are_failures() {
    let mut now = outcome(&["+new"]);
    now.count(Ended::Failed, 3);
    let unnamed = Objection::FailUnnamed { count: 3 };
    assert_eq!(green(&Evidence::default(), &now, &names(&[])), [unnamed]);
}

fn covered(lines_covered: u64) -> Outcome {
    let coverage = Some(Coverage { lines_covered, lines: 1_000, ..Coverage::default() });
    Outcome { coverage, ..Outcome::default() }
}

#[test]
fn coverage_has_a_floor_and_may_not_fall() {
    let wanted = Thresholds {
        coverage_min: Some(Percent(8_000)),
        coverage_drop_max: Some(Percent(50)),
        ..Thresholds::default()
    };
    let said = |before, now: &Outcome| quality(&wanted, Some(&covered(before)), now, &names(&[]));
    assert_eq!(said(905, &covered(900)), [], "half a percent is allowed");
    let (before, found, drop_max) = (Percent(9_060), Percent(9_000), Percent(50));
    assert_eq!(said(906, &covered(900)), [Objection::CoverageFell { before, found, drop_max }]);
    let (found, min) = (Percent(7_990), Percent(8_000));
    assert_eq!(said(799, &covered(799)), [Objection::CoverageBelow { found, min }]);
    assert_eq!(said(900, &Outcome::default()), [Objection::NoCoverage { min }]);
    let of_nothing = Outcome { coverage: Some(Coverage::default()), ..Outcome::default() };
    assert_eq!(said(900, &of_nothing), [Objection::NoCoverage { min }]);
    let off = quality(&Thresholds::default(), Some(&covered(900)), &covered(1), &names(&[]));
    assert_eq!(off, [], "what is not asked for is not judged");
}

#[test]
fn mutants_must_be_noticed() {
    let min = Percent(7_500);
    let wanted = Thresholds { mutation_min: Some(min), ..Thresholds::default() };
    let said = |mutants| {
        let now = Outcome { mutants, ..Outcome::default() };
        quality(&wanted, None, &now, &names(&[]))
    };
    assert_eq!(said(Some(Mutants { caught: 3, missed: 1 })), []);
    let found = Percent(7_400);
    let below = Objection::MutationBelow { found, min };
    assert_eq!(said(Some(Mutants { caught: 74, missed: 26 })), [below]);
    assert_eq!(said(None), [Objection::NoMutants { min }]);
    assert_eq!(said(Some(Mutants::default())), [Objection::NoMutants { min }], "none is no score");
}

#[test]
fn functions_stay_simple() {
    let wanted = Thresholds { complexity_max: Some(10), ..Thresholds::default() };
    let mut complexity = Complexity::default();
    for (name, cyclomatic) in [("fine", 10), ("tangled", 11)] {
        let (name, file) = (name.to_owned(), "a.py".to_owned());
        complexity.add(Function { cyclomatic, name, file, line: 4 });
    }
    let now = Outcome { complexity: Some(complexity), ..Outcome::default() };
    let said = quality(&wanted, None, &now, &names(&[]));
    assert_eq!(said.len(), 1);
    let expected = "tangled (a.py line 4) has a complexity of 11, more than 10";
    assert_eq!(said[0].to_string(), expected);
    let unmeasured = quality(&wanted, None, &Outcome::default(), &names(&[]));
    assert_eq!(unmeasured, [Objection::NoComplexity { max: 10 }]);
}

#[test]
fn findings_are_refused_from_their_severity_on() {
    let wanted = Thresholds { refuse_from: Some(Severity::High), ..Thresholds::default() };
    let mut findings = Findings::default();
    let mut add = |severity, times: usize| {
        for _ in 0..times {
            let (rule, file, message) = ("B602".into(), "a.py".into(), "shell".into());
            findings.add(Finding { severity, rule, file, line: 4, message });
        }
    };
    add(Severity::Medium, 3);
    add(Severity::Critical, limits::FINDINGS_NAMED_MAX + 2);
    let now = Outcome { findings: Some(findings), ..Outcome::default() };
    let said = quality(&wanted, None, &now, &names(&[]));
    assert_eq!(said.len(), limits::FINDINGS_NAMED_MAX + 1);
    assert_eq!(said[0].to_string(), "critical: B602 in a.py line 4: shell");
    let rest = Objection::InsecureUnnamed { severity: Severity::High, count: 2 };
    assert_eq!(said.last(), Some(&rest));
    let mut just = Findings::default();
    let (rule, file, message) = ("B1".into(), "b.py".into(), "just so".into());
    just.add(Finding { severity: Severity::High, rule, file, line: 1, message });
    let now = Outcome { findings: Some(just), ..Outcome::default() };
    let said = quality(&wanted, None, &now, &names(&[]));
    assert!(matches!(said[..], [Objection::Insecure { line: 1, .. }]), "{said:?}");
    let silent = quality(&wanted, None, &Outcome::default(), &names(&[]));
    assert_eq!(silent, [Objection::NoScan { severity: Severity::High }]);
}
