//! The gate of a phase: what its checks have to say for the change to be accepted (TDD-03).
//!
//! A check with a report is judged by its tests. Red: new tests fail, for the stated reason, and
//! nothing else does. Otherwise: what failed before the change already, and tests in quarantine, are
//! told and not blamed, every test that red showed has run and passed, and after the last phase the
//! criteria of the task are met as far as the results say anything about them.

use std::collections::{BTreeMap, BTreeSet};

use crate::command::CheckResult;
use crate::failure::{Failure, FailureKind};
use crate::flow::{Expectation, Phase};
use crate::gates::{
    self, Criterion, Done, Evidence, Mock, Objection, RedReason, Tested, Thresholds,
};
use crate::glob;
use crate::limits;
use crate::outcome::Outcome;
use crate::policy::{Check, Policy, Reading};
use crate::task::Task;

/// Tests that the first line of a failure names; all of them are in the journal.
const NAMED_MAX: usize = 5;

/// How an agent says that its tests cannot be built yet.
const STATE_IT: &str = "if what they test is not there yet, say so in the report, with the name that is \
    missing: \"red\": {\"reason\": \"missing\", \"name\": \"…\"}";

/// A check that failed, and what of it is this change's.
pub(super) struct Blamed<'a> {
    pub result: &'a CheckResult,
    pub names: Vec<String>,
}

/// Whether the results are what the phase of the task has to show. Tests in `quarantine` blame
/// nobody.
pub(super) fn judge(
    task: &Task,
    policy: &Policy,
    quarantine: &BTreeSet<String>,
    results: &[CheckResult],
) -> Result<(), Failure> {
    if let Some((result, kind)) = results.iter().find_map(|it| Some((it, it.cut_short?))) {
        let message = format!("check {} has no answer:\n{}", result.name, result.output.trim());
        return Err(Failure::new(kind, &message));
    }
    let mocks = results.iter().flat_map(|result| &result.mocks).map(Mock::objection);
    refuse(&mocks.collect::<Vec<_>>(), "")?;
    match expects(task, policy) {
        Expectation::SomeCheckFails => red(task, quarantine, results),
        Expectation::AllChecksPass => {
            let blamed = blamed(policy, quarantine, results);
            if !blamed.is_empty() {
                return Err(failed_checks(&blamed));
            }
            refuse(&kept_up(task, quarantine, results), "")?;
            refuse(&done(task, policy, results).objections(), "")
        }
    }
}

/// What the phase of a task is held to: the checks of its mission, and before it is merged also
/// the commands among its own criteria (TDD-13).
pub(super) fn checks(task: &Task, policy: &Policy) -> Vec<Check> {
    let mut checks = policy.checks.clone();
    for command in commands(task, policy) {
        if checks.iter().all(|check| check.name != command) {
            let (name, timeout_ms) = (command.clone(), limits::CRITERION_TIMEOUT_MS);
            checks.push(Check { name, command, timeout_ms, reading: Reading::default() });
        }
    }
    checks
}

/// Whether there is anything to run before the phase counts.
pub(super) fn has_checks(task: &Task, policy: &Policy) -> bool {
    !policy.checks.is_empty() || commands(task, policy).next().is_some()
}

fn commands<'a>(task: &'a Task, policy: &Policy) -> impl Iterator<Item = String> + 'a {
    let last = task.next_phase(policy).is_none();
    criteria(task).filter(move |_| last).filter_map(|text| match Criterion::parse(text) {
        Criterion::Command { command } => Some(command),
        Criterion::Check { .. } | Criterion::Test { .. } | Criterion::Sentence { .. } => None,
    })
}

fn criteria(task: &Task) -> impl Iterator<Item = &String> {
    let criteria = &task.plan.validation_criteria;
    criteria.criteria.iter().chain(&criteria.security_checks)
}

/// The tests that its criteria name.
pub(super) fn named_tests(task: &Task) -> BTreeSet<String> {
    let named = criteria(task).filter_map(|text| match Criterion::parse(text) {
        Criterion::Test { name } => Some(name),
        Criterion::Command { .. } | Criterion::Check { .. } | Criterion::Sentence { .. } => None,
    });
    named.collect()
}

/// The tests that a task has touched so far, and what they are about.
pub(super) fn tested(task: &Task, policy: &Policy) -> Tested {
    let is_test = |path: &&str| policy.tests.iter().any(|pattern| glob::matches(pattern, path));
    let touched = task.touched.iter().map(String::as_str);
    let (tests, code): (Vec<&str>, Vec<&str>) = touched.partition(is_test);
    let planned = task.files.iter().map(|path| &**path).filter(|path| !is_test(path));
    let units: BTreeSet<&str> = code.into_iter().chain(planned).collect();
    let owned = |path: &str| path.to_owned();
    Tested {
        tests: tests.into_iter().map(owned).collect(),
        units: units.into_iter().map(owned).collect(),
    }
}

/// The tests that the phase of a task has shown to fail.
pub(super) fn shown(task: &Task, policy: &Policy) -> Vec<String> {
    match expects(task, policy) {
        Expectation::SomeCheckFails => tested(task, policy).tests,
        Expectation::AllChecksPass => Vec::new(),
    }
}

pub(super) fn expects(task: &Task, policy: &Policy) -> Expectation {
    task.phase(policy).map_or(Expectation::AllChecksPass, Phase::expects)
}

/// What became of the criteria of a task, once there is no phase after this one (TDD-07). All
/// checks that are told have passed, as far as the change is to blame.
pub(super) fn done(task: &Task, policy: &Policy, results: &[CheckResult]) -> Done {
    if task.next_phase(policy).is_some() {
        return Done::default();
    }
    let all: Vec<String> = criteria(task).cloned().collect();
    let checks = results.iter().map(|result| (result.name.clone(), true)).collect();
    let outcomes: Vec<&Outcome> = results.iter().filter_map(|r| r.outcome.as_deref()).collect();
    Done::judge(&all, &checks, &outcomes, &BTreeMap::new())
}

/// What a red phase showed; None for a check that says nothing about its tests.
pub(super) fn evidence(phase: Option<Phase>, result: &CheckResult) -> Option<(String, Evidence)> {
    let is_red = phase.is_some_and(|phase| phase.expects() == Expectation::SomeCheckFails);
    let outcome = result.outcome.as_ref().filter(|_| is_red)?;
    let before = result.before.as_ref().and_then(|before| before.outcome.as_ref());
    Some((result.name.clone(), Evidence::of(outcome, before)))
}

/// Everything that fails, tests by their own name, but for those in quarantine.
pub(super) fn failing(
    policy: &Policy,
    quarantine: &BTreeSet<String>,
    results: &[CheckResult],
) -> BTreeSet<String> {
    let of = |result: &CheckResult| {
        gates::failures(
            &result.name,
            &thresholds(policy, &result.name),
            result.passed,
            result.outcome.as_deref(),
        )
    };
    results.iter().flat_map(of).filter(|name| !quarantine.contains(name)).collect()
}

/// How often a failing check of this task's phase is run again. A red phase is to fail.
pub(super) fn retries(task: &Task, policy: &Policy) -> u32 {
    match task.phase(policy).map(Phase::expects) {
        Some(Expectation::SomeCheckFails) => 0,
        Some(Expectation::AllChecksPass) | None => policy.merge.flake_retries_max,
    }
}

/// What failed and then passed on the same commit, by name (TDD-12).
pub(super) fn flaky(policy: &Policy, results: &[CheckResult]) -> BTreeSet<String> {
    let of = |result: &CheckResult| {
        let wanted = thresholds(policy, &result.name);
        let of = |passed, outcome| gates::failures(&result.name, &wanted, passed, outcome);
        let now = of(result.passed, result.outcome.as_deref());
        let first = result.earlier.as_ref().map(|run| of(run.passed, run.outcome.as_ref()));
        first.unwrap_or_default().into_iter().filter(|name| !now.contains(name)).collect::<Vec<_>>()
    };
    results.iter().flat_map(of).collect()
}

fn thresholds(policy: &Policy, check: &str) -> Thresholds {
    let known = policy.checks.iter().find(|known| known.name == check);
    known.map(|known| known.reading.thresholds).unwrap_or_default()
}

/// Whether tasks show in new tests what they are for. Without that, a test that failed before may be
/// the very one that the task is to mend, and has to pass.
pub(super) fn shows_first(policy: &Policy) -> bool {
    policy.flow.iter().any(|phase| phase.expects() == Expectation::SomeCheckFails)
}

/// What fails with the change, without the tests that failed before it and those in quarantine.
fn blamed<'a>(
    policy: &Policy,
    quarantine: &BTreeSet<String>,
    results: &'a [CheckResult],
) -> Vec<Blamed<'a>> {
    let of = |result: &'a CheckResult| {
        let wanted = thresholds(policy, &result.name);
        let of = |passed, outcome| gates::failures(&result.name, &wanted, passed, outcome);
        let before = result.before.as_ref().filter(|_| shows_first(policy));
        let before = before.map(|before| of(before.passed, before.outcome.as_ref()));
        let before = before.unwrap_or_default();
        let now = of(result.passed, result.outcome.as_deref());
        // Only tests are excused: a threshold has to be met, and of a check without names nobody
        // knows whether it fails as it did before.
        let tests = result.outcome.iter().flat_map(|outcome| outcome.failures());
        let tests: BTreeSet<String> =
            tests.map(|(test, _)| gates::name(&result.name, test)).collect();
        let is_excused = |name: &String| before.contains(name) || quarantine.contains(name);
        let is_new = |name: &String| !(tests.contains(name) && is_excused(name));
        let names: Vec<String> = now.into_iter().filter(is_new).collect();
        (!names.is_empty()).then_some(Blamed { result, names })
    };
    results.iter().filter_map(of).collect()
}

/// A failure for the next attempt: which tests, and the end of what the check printed.
pub(super) fn failed_checks(failed: &[Blamed<'_>]) -> Failure {
    let room = limits::FAILURE_CHARS_MAX / failed.len().max(1);
    let told = |blamed: &Blamed<'_>| {
        let Blamed { result, names } = blamed;
        let own = gates::name(&result.name, "");
        let tests: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix(&own)).collect();
        let shown = tests.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
        let rest = tests.len().saturating_sub(NAMED_MAX);
        let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        let first = match tests.is_empty() {
            true => format!("check {} failed:", result.name),
            false => format!("check {} failed in {shown}{more}:", result.name),
        };
        let room = room.saturating_sub(first.chars().count() + 2);
        format!("{first}\n{}", limits::tail(result.output.trim(), room))
    };
    let message = failed.iter().map(told).collect::<Vec<_>>().join("\n");
    Failure::new(FailureKind::ValidationFailed, &message)
}

/// Tests that red showed and that are skipped or gone now.
fn kept_up(task: &Task, quarantine: &BTreeSet<String>, results: &[CheckResult]) -> Vec<Objection> {
    let of = |result: &CheckResult| {
        let (red, now) = (task.evidence.get(&result.name)?, result.outcome.as_ref()?);
        // What fails has been judged before.
        let failing = now.failures().map(|(name, _)| name.to_owned()).collect();
        let known = |test: &String| !quarantine.contains(&gates::name(&result.name, test));
        let red = Evidence {
            failing: red.failing.iter().filter(|test| known(test)).cloned().collect(),
            ..red.clone()
        };
        Some(gates::green(&red, now, &failing))
    };
    let missing = |o: &Objection| {
        use Objection::{NoNewTestPasses, NotPassing, Vanished};
        matches!(o, NotPassing { .. } | Vanished { .. } | NoNewTestPasses)
    };
    results.iter().filter_map(of).flatten().filter(missing).collect()
}

fn red(task: &Task, quarantine: &BTreeSet<String>, results: &[CheckResult]) -> Result<(), Failure> {
    let Some(now) = joined(results.iter().filter_map(|result| result.outcome.as_deref())) else {
        let fails = results.iter().any(|result| !result.passed);
        return if fails { Ok(()) } else { refuse(&[Objection::NothingFails], "") };
    };
    let failed = results.iter().filter(|result| !result.passed && result.outcome.is_some());
    let before: Option<Vec<&Outcome>> =
        failed.map(|result| result.before.as_ref()?.outcome.as_ref()).collect();
    let before = before.and_then(|all| joined(all.into_iter()));
    let put_away = |result: &CheckResult| {
        let tests = result.outcome.iter().flat_map(|outcome| outcome.tests.keys());
        let named = tests.filter(|test| quarantine.contains(&gates::name(&result.name, test)));
        named.cloned().collect::<Vec<String>>()
    };
    let failed_before = before.iter().flat_map(|before| before.failures());
    let excused: BTreeSet<String> = failed_before
        .map(|(name, _)| name.to_owned())
        .chain(results.iter().flat_map(put_away))
        .collect();
    let stated = task.said.as_ref().and_then(|said| said.red.clone());
    let reason = stated.clone().unwrap_or(RedReason::NewTests);
    let objections = gates::red(&reason, before.as_ref(), &now, &excused);
    let is_unbuilt = objections.iter().any(|o| matches!(o, Objection::DoesNotBuild { .. }));
    refuse(&objections, if is_unbuilt && stated.is_none() { STATE_IT } else { "" })
}

fn joined<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Option<Outcome> {
    outcomes.cloned().reduce(|mut all, one| {
        all.join(one);
        all
    })
}

fn refuse(objections: &[Objection], hint: &str) -> Result<(), Failure> {
    if objections.is_empty() {
        return Ok(());
    }
    let message = format!("{}\n{hint}", gates::explain(objections));
    Err(Failure::new(FailureKind::ValidationFailed, message.trim_end()))
}
