//! The gates of the phases: red fails for its stated reason, green passes with the very same
//! tests (TDD-03, SEC-09).

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::objection::Objection;
use crate::limits;
use crate::outcome::{Ended, Outcome, TestCase};

/// Why the tests of a red phase are expected to fail.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum RedReason {
    /// Whatever is new fails.
    #[default]
    NewTests,
    /// These tests fail, by name, and what they say contains this text if there is one.
    Tests {
        names: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        saying: Option<String>,
    },
    /// What they test is not there yet, so that it does not compile or load. The message names it.
    Missing { name: String },
}

/// What a red phase showed, to hold the green one to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// These have to pass in the end.
    pub failing: BTreeSet<String>,
    /// These have to be there in the end.
    pub ran: BTreeSet<String>,
    /// Every test was named: one without a name later is one that hides.
    #[serde(default)]
    pub all_named: bool,
    /// The tests that there were before, if those of the phase could not be built yet: one more has
    /// to be there in the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unbuilt: Option<BTreeSet<String>>,
}

impl Evidence {
    /// What an outcome shows, with that of the same check before the change, if it was run there.
    #[must_use]
    pub fn of(now: &Outcome, before: Option<&Outcome>) -> Evidence {
        let ran = now.tests.iter().filter(|(_, test)| test.ended != Ended::Skipped);
        let known = |before: &Outcome| before.tests.keys().cloned().collect();
        let is_known = before.is_none_or(|before| before.unnamed == 0);
        let unbuilt = (!now.broken.is_empty() && is_known).then(|| before.map(known));
        Evidence {
            failing: now.failures().map(|(name, _)| name.to_owned()).collect(),
            ran: ran.map(|(name, _)| name.clone()).collect(),
            all_named: now.unnamed == 0,
            unbuilt: unbuilt.map(Option::unwrap_or_default),
        }
    }
}

/// Whether the tests fail as they should. `base` is the same check before the change, if it was
/// run there; `excused` are tests that fail there, or are in quarantine.
pub fn red(
    reason: &RedReason,
    base: Option<&Outcome>,
    now: &Outcome,
    excused: &BTreeSet<String>,
) -> Vec<Objection> {
    let mut objections: Vec<Objection> = broke(base, now, excused);
    match reason {
        RedReason::Missing { name } => objections.extend(other_than_missing(name, now)),
        RedReason::NewTests => {
            objections.extend(unexpected_breakage(now));
            objections.extend(nothing_new(base, now, excused));
        }
        RedReason::Tests { names, saying } => {
            objections.extend(unexpected_breakage(now));
            let (old, new): (Vec<&String>, _) = names.iter().partition(|it| excused.contains(*it));
            objections
                .extend(old.into_iter().cloned().map(|test| Objection::FailedBefore { test }));
            let wrong = new.into_iter().filter_map(|it| not_failing(it, saying.as_deref(), now));
            objections.extend(wrong);
            objections.extend(nothing_new(base, now, excused));
        }
    }
    objections
}

/// Whether everything passes, and everything that failed in red is among it. A test that is
/// skipped or gone has not passed, whatever the tests' own files look like: settings of the test
/// runner can do both.
#[must_use]
pub fn green(red: &Evidence, now: &Outcome, excused: &BTreeSet<String>) -> Vec<Objection> {
    let mut objections = failing(now, excused);
    // Of many tests only the first are named. Beside that, whoever had a name has one.
    let is_cut = now.tests.len() >= limits::OUTCOME_TESTS_KEPT_MAX;
    let tells_all = now.unnamed == 0 || (red.all_named && !is_cut);
    for test in &red.failing {
        match now.ended(test) {
            Some(Ended::Passed | Ended::Flaky | Ended::Failed) => {}
            Some(Ended::Skipped) => {
                let ended = word(Ended::Skipped);
                objections.push(Objection::NotPassing { test: test.clone(), ended });
            }
            None if tells_all => {
                objections.push(Objection::NotPassing { test: test.clone(), ended: "is gone" });
            }
            None => {}
        }
    }
    if tells_all {
        let gone = red.ran.difference(&red.failing).filter(|test| now.ended(test).is_none());
        objections.extend(gone.map(|test| Objection::Vanished { test: test.clone() }));
    }
    if let Some(known) = red.unbuilt.as_ref().filter(|_| now.unnamed == 0) {
        let passed = |test: &TestCase| matches!(test.ended, Ended::Passed | Ended::Flaky);
        if !now.tests.iter().any(|(name, test)| passed(test) && !known.contains(name)) {
            objections.push(Objection::NoNewTestPasses);
        }
    }
    objections
}

/// Everything that fails and is not excused.
pub(super) fn failing(now: &Outcome, excused: &BTreeSet<String>) -> Vec<Objection> {
    let mut objections: Vec<Objection> = now
        .broken
        .iter()
        .map(|broken| Objection::Broken {
            place: broken.place.clone(),
            message: broken.message.clone(),
        })
        .collect();
    let mut named = 0_u32;
    for (test, case) in now.failures() {
        named += 1;
        if !excused.contains(test) {
            let (test, message) = (test.to_owned(), case.message.clone());
            objections.push(Objection::Fails { test, message });
        }
    }
    // Two tests of one name are one entry and two in the count.
    let count = now.counts.failed.saturating_sub(named);
    if count > 0 && now.unnamed > 0 {
        objections.push(Objection::FailUnnamed { count });
    }
    objections
}

/// Tests that the change broke: they passed before.
fn broke(base: Option<&Outcome>, now: &Outcome, excused: &BTreeSet<String>) -> Vec<Objection> {
    let Some(base) = base else { return Vec::new() };
    let passed_before = |test: &str| matches!(base.ended(test), Some(Ended::Passed | Ended::Flaky));
    let broken = now.failures().filter(|(test, _)| passed_before(test) && !excused.contains(*test));
    broken
        .map(|(test, case)| Objection::Broke {
            test: test.to_owned(),
            message: case.message.clone(),
        })
        .collect()
}

fn unexpected_breakage(now: &Outcome) -> impl Iterator<Item = Objection> {
    now.broken.iter().map(|broken| Objection::DoesNotBuild {
        place: broken.place.clone(),
        message: broken.message.clone(),
    })
}

fn nothing_new(
    base: Option<&Outcome>,
    now: &Outcome,
    excused: &BTreeSet<String>,
) -> Option<Objection> {
    let mut failures = now.failures().filter(|(test, _)| !excused.contains(*test)).peekable();
    if failures.peek().is_none() && now.broken.is_empty() {
        return Some(Objection::NothingFails);
    }
    let is_new = |test: &str| base.is_none_or(|base| base.ended(test).is_none());
    let shows = failures.any(|(test, _)| is_new(test)) || !now.broken.is_empty();
    (!shows).then_some(Objection::NoNewTest)
}

fn not_failing(name: &str, saying: Option<&str>, now: &Outcome) -> Option<Objection> {
    let test = name.to_owned();
    match now.tests.get(name) {
        None => Some(Objection::DidNotRun { test }),
        Some(case) if case.ended != Ended::Failed => {
            Some(Objection::DoesNotFail { test, ended: word(case.ended) })
        }
        Some(case) if saying.is_some_and(|saying| !case.message.contains(saying)) => {
            Some(Objection::OtherMessage { test, message: case.message.clone() })
        }
        Some(_) => None,
    }
}

fn other_than_missing(name: &str, now: &Outcome) -> Option<Objection> {
    let mentions = name.to_owned();
    if now.broken.is_empty() {
        let found = "everything could be built and loaded";
        return Some(Objection::OtherReason { mentions, found });
    }
    // An empty name would be found in every message.
    let named = !name.is_empty() && now.broken.iter().all(|broken| broken.message.contains(name));
    let found = "the messages of what cannot be built or loaded do not name it";
    (!named).then_some(Objection::OtherReason { mentions, found })
}

fn word(ended: Ended) -> &'static str {
    match ended {
        Ended::Passed => "passed",
        Ended::Flaky => "passed when it was tried again",
        Ended::Skipped => "is skipped",
        Ended::Failed => "failed",
    }
}
