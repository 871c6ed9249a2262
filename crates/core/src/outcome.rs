//! What a check found, whatever tool it ran: one shape for all parsers, and all that gates judge.
//!
//! Reports are outside data: whoever fills an outcome goes through [`Outcome::record`] and its
//! siblings, which bound what is kept.
//!
//! Invariant: `counts` counts every test of the report; `tests` names the first of them, and
//! failures are the last to be left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    #[serde(default)]
    pub counts: Counts,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tests: BTreeMap<String, TestCase>,
    /// Tests that were counted but not named.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unnamed: u32,
    /// What kept tests from running at all: code that does not compile, a file of tests that
    /// cannot be loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<Breakage>,
    /// As the tool counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<Coverage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutants: Option<Mutants>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complexity: Option<Complexity>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub findings: Option<Findings>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub passed: u32,
    pub failed: u32,
    pub skipped: u32,
    /// Of the passed: those that failed first and passed when the tool tried again.
    pub flaky: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestCase {
    pub ended: Ended,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Why it failed, bounded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// How a test ended. Ordered: where two tests have one name, the worse end counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    Skipped,
    Passed,
    /// Failed first, passed when the tool tried it again.
    Flaky,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breakage {
    /// The package, file or suite.
    pub place: String,
    pub message: String,
}

/// Lines and branches that tests ran through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    pub lines_covered: u64,
    pub lines: u64,
    #[serde(default)]
    pub branches_covered: u64,
    #[serde(default)]
    pub branches: u64,
}

/// Deliberate mistakes in the code, and how many of them the tests noticed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mutants {
    /// Noticed by a failing test or by a test that no longer ends.
    pub caught: u64,
    pub missed: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Complexity {
    pub functions: u64,
    /// The most complex ones first.
    pub worst: Vec<Function>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    pub cyclomatic: u32,
    pub name: String,
    pub file: String,
    pub line: u32,
}

/// What a scanner found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    pub counts: BTreeMap<Severity, u32>,
    /// The most severe ones first.
    pub worst: Vec<Finding>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub severity: Severity,
    pub rule: String,
    pub file: String,
    pub line: u32,
    pub message: String,
}

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Low,
    Medium,
    High,
    Critical,
}

impl Severity {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Severity::Low => "low",
            Severity::Medium => "medium",
            Severity::High => "high",
            Severity::Critical => "critical",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A share in hundredths of a percent: whole numbers compare the same everywhere.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct Percent(pub u32);

impl Percent {
    pub const ALL: Percent = Percent(10_000);

    /// None if it is not between 0 and 100.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 10,000")]
    pub fn from_f64(percent: f64) -> Option<Percent> {
        (0.0..=100.0).contains(&percent).then(|| Percent((percent * 100.0).round() as u32))
    }

    /// Of nothing, all is covered. Rounded down: 79.999 % is not 80 %.
    #[must_use]
    pub fn of(part: u64, whole: u64) -> Percent {
        if whole == 0 {
            return Percent::ALL;
        }
        let share = u128::from(part.min(whole)) * 10_000 / u128::from(whole);
        Percent(u32::try_from(share).unwrap_or(Percent::ALL.0))
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02} %", self.0 / 100, self.0 % 100)
    }
}

impl Coverage {
    #[must_use]
    pub fn of_lines(self) -> Percent {
        Percent::of(self.lines_covered, self.lines)
    }
}

impl Mutants {
    #[must_use]
    pub fn score(self) -> Percent {
        Percent::of(self.caught, self.caught.saturating_add(self.missed))
    }
}

impl Outcome {
    /// A test ended.
    pub fn record(&mut self, name: &str, ended: Ended, duration_ms: Option<u64>, message: &str) {
        self.counts.add(ended);
        let name = limits::head(name.trim(), limits::TEST_NAME_CHARS_MAX);
        let message = limits::head(message.trim(), limits::TEST_MESSAGE_CHARS_MAX).to_owned();
        let test = TestCase { ended, duration_ms, message };
        if let Some(known) = self.tests.get_mut(name) {
            if known.ended < ended {
                *known = test;
            }
        } else if self.tests.len() < self.room_for(ended) {
            self.tests.insert(name.to_owned(), test);
        } else {
            self.unnamed = self.unnamed.saturating_add(1);
        }
    }

    /// Tests that are only known by their number.
    pub fn count(&mut self, ended: Ended, times: u32) {
        self.counts.each(ended, |count| count.saturating_add(times));
        self.unnamed = self.unnamed.saturating_add(times);
    }

    /// Failures still find a place when passed tests have used up theirs.
    fn room_for(&self, ended: Ended) -> usize {
        match ended {
            Ended::Failed | Ended::Flaky => limits::TESTS_NAMED_MAX + limits::FAILURES_NAMED_MAX,
            Ended::Passed | Ended::Skipped => limits::TESTS_NAMED_MAX,
        }
    }

    /// Something kept tests from running.
    pub fn break_off(&mut self, place: &str, message: &str) {
        if self.broken.len() < limits::BREAKAGES_MAX {
            self.broken.push(Breakage {
                place: limits::head(place.trim(), limits::TEST_NAME_CHARS_MAX).to_owned(),
                message: limits::head(message.trim(), limits::TEST_MESSAGE_CHARS_MAX).to_owned(),
            });
        }
    }

    /// Joins the outcome of another report of the same check, such as that of another module.
    pub fn join(&mut self, other: Outcome) {
        let mut counts = other.counts;
        for (name, test) in other.tests {
            counts.remove(test.ended);
            self.record(&name, test.ended, test.duration_ms, &test.message);
        }
        self.counts.join(counts);
        self.unnamed = self.unnamed.saturating_add(other.unnamed);
        for breakage in other.broken {
            self.break_off(&breakage.place, &breakage.message);
        }
        self.duration_ms = match (self.duration_ms, other.duration_ms) {
            (Some(ours), Some(theirs)) => Some(ours.saturating_add(theirs)),
            (ours, theirs) => ours.or(theirs),
        };
        self.coverage = joined(self.coverage, other.coverage, Coverage::join);
        self.mutants = joined(self.mutants, other.mutants, Mutants::join);
        self.complexity = joined(self.complexity.take(), other.complexity, Complexity::join);
        self.findings = joined(self.findings.take(), other.findings, Findings::join);
    }

    /// As much of it as a journal keeps: what matters first, then failures, and what they said in
    /// short.
    #[must_use]
    pub fn kept(&self, matters: &BTreeSet<&str>) -> Outcome {
        let short = |text: &str| limits::head(text, limits::OUTCOME_MESSAGE_CHARS_MAX).to_owned();
        let is_bad = |test: &TestCase| matches!(test.ended, Ended::Failed | Ended::Flaky);
        let (first, rest): (Vec<_>, Vec<_>) =
            self.tests.iter().partition(|(name, _)| matters.contains(name.as_str()));
        let first = first.into_iter().take(limits::OUTCOME_FAILURES_KEPT_MAX);
        let (bad, fine): (Vec<_>, Vec<_>) = rest.into_iter().partition(|(_, test)| is_bad(test));
        let bad = bad.into_iter().take(limits::OUTCOME_FAILURES_KEPT_MAX);
        let named = first.chain(bad).chain(fine.into_iter().take(limits::OUTCOME_TESTS_KEPT_MAX));
        let mut kept = Outcome { tests: BTreeMap::new(), broken: Vec::new(), ..self.clone() };
        for (name, test) in named {
            let message = short(&test.message);
            kept.tests.insert(name.clone(), TestCase { message, ..test.clone() });
        }
        let left_out = u32::try_from(self.tests.len() - kept.tests.len()).unwrap_or(u32::MAX);
        kept.unnamed = kept.unnamed.saturating_add(left_out);
        for broken in self.broken.iter().take(limits::OUTCOME_PLACES_KEPT_MAX) {
            kept.break_off(&broken.place, &short(&broken.message));
        }
        if let Some(complexity) = &mut kept.complexity {
            complexity.worst.truncate(limits::OUTCOME_PLACES_KEPT_MAX);
        }
        if let Some(findings) = &mut kept.findings {
            findings.worst.truncate(limits::OUTCOME_PLACES_KEPT_MAX);
        }
        kept
    }

    /// The tests that ended otherwise than in another run, or were not in it.
    pub fn unlike<'a>(&'a self, other: &Outcome) -> impl Iterator<Item = &'a str> {
        let tests = self.tests.iter().map(|(name, test)| (name.as_str(), test.ended));
        tests.filter(|(name, ended)| other.ended(name) != Some(*ended)).map(|(name, _)| name)
    }

    #[must_use]
    pub fn ended(&self, test: &str) -> Option<Ended> {
        self.tests.get(test).map(|case| case.ended)
    }

    pub fn failures(&self) -> impl Iterator<Item = (&str, &TestCase)> {
        let failed = self.tests.iter().filter(|(_, test)| test.ended == Ended::Failed);
        failed.map(|(name, test)| (name.as_str(), test))
    }

    /// Nothing failed and nothing was kept from running.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.counts.failed == 0 && self.broken.is_empty()
    }
}

impl Counts {
    #[must_use]
    pub fn total(self) -> u32 {
        self.passed.saturating_add(self.failed).saturating_add(self.skipped)
    }

    fn add(&mut self, ended: Ended) {
        self.each(ended, |count| count.saturating_add(1));
    }

    fn remove(&mut self, ended: Ended) {
        self.each(ended, |count| count.saturating_sub(1));
    }

    fn each(&mut self, ended: Ended, change: impl Fn(u32) -> u32) {
        match ended {
            Ended::Passed => self.passed = change(self.passed),
            Ended::Failed => self.failed = change(self.failed),
            Ended::Skipped => self.skipped = change(self.skipped),
            Ended::Flaky => {
                self.passed = change(self.passed);
                self.flaky = change(self.flaky);
            }
        }
    }

    fn join(&mut self, other: Counts) {
        self.passed = self.passed.saturating_add(other.passed);
        self.failed = self.failed.saturating_add(other.failed);
        self.skipped = self.skipped.saturating_add(other.skipped);
        self.flaky = self.flaky.saturating_add(other.flaky);
    }
}

impl Coverage {
    fn join(self, other: Coverage) -> Coverage {
        Coverage {
            lines_covered: self.lines_covered.saturating_add(other.lines_covered),
            lines: self.lines.saturating_add(other.lines),
            branches_covered: self.branches_covered.saturating_add(other.branches_covered),
            branches: self.branches.saturating_add(other.branches),
        }
    }
}

impl Mutants {
    fn join(self, other: Mutants) -> Mutants {
        Mutants {
            caught: self.caught.saturating_add(other.caught),
            missed: self.missed.saturating_add(other.missed),
        }
    }
}

impl Complexity {
    pub fn add(&mut self, function: Function) {
        self.functions = self.functions.saturating_add(1);
        self.place(function);
    }

    fn place(&mut self, function: Function) {
        let at = self.worst.partition_point(|known| known.cyclomatic >= function.cyclomatic);
        if at < limits::FUNCTIONS_NAMED_MAX {
            self.worst.insert(at, function);
            self.worst.truncate(limits::FUNCTIONS_NAMED_MAX);
        }
    }

    fn join(mut self, other: Complexity) -> Complexity {
        self.functions = self.functions.saturating_add(other.functions);
        other.worst.into_iter().for_each(|function| self.place(function));
        self
    }
}

impl Findings {
    pub fn add(&mut self, finding: Finding) {
        let count = self.counts.entry(finding.severity).or_default();
        *count = count.saturating_add(1);
        self.place(finding);
    }

    /// How many are at least this severe.
    #[must_use]
    pub fn from(&self, severity: Severity) -> u32 {
        self.counts.range(severity..).fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    fn place(&mut self, finding: Finding) {
        let at = self.worst.partition_point(|known| known.severity >= finding.severity);
        if at < limits::FINDINGS_NAMED_MAX {
            self.worst.insert(at, finding);
            self.worst.truncate(limits::FINDINGS_NAMED_MAX);
        }
    }

    fn join(mut self, other: Findings) -> Findings {
        for (severity, more) in other.counts {
            let count = self.counts.entry(severity).or_default();
            *count = count.saturating_add(more);
        }
        other.worst.into_iter().for_each(|finding| self.place(finding));
        self
    }
}

fn joined<T>(ours: Option<T>, theirs: Option<T>, join: impl Fn(T, T) -> T) -> Option<T> {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => Some(join(ours, theirs)),
        (ours, theirs) => ours.or(theirs),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report of a million passed tests must not hide the one that failed.
    #[test]
    fn failures_are_named_when_there_is_no_room_for_passed_tests() {
        let mut outcome = Outcome::default();
        for number in 0..limits::TESTS_NAMED_MAX + 5 {
            outcome.record(&format!("passes {number}"), Ended::Passed, None, "");
        }
        outcome.record("fails", Ended::Failed, Some(3), " because ");
        assert_eq!(outcome.unnamed, 5);
        assert_eq!(outcome.counts.passed as usize, limits::TESTS_NAMED_MAX + 5);
        let failures: Vec<_> = outcome.failures().collect();
        assert_eq!(failures.len(), 1);
        assert_eq!((failures[0].0, failures[0].1.message.as_str()), ("fails", "because"));
    }

    #[test]
    fn where_two_tests_share_a_name_the_worse_end_counts() {
        let mut outcome = Outcome::default();
        outcome.record("t", Ended::Passed, None, "");
        outcome.record("t", Ended::Failed, None, "no");
        outcome.record("t", Ended::Skipped, None, "");
        assert_eq!(outcome.ended("t"), Some(Ended::Failed));
        assert_eq!(outcome.counts, Counts { passed: 1, failed: 1, skipped: 1, flaky: 0 });
    }

    #[test]
    fn joined_outcomes_count_every_test_once() {
        let mut one = Outcome::default();
        one.record("a", Ended::Passed, None, "");
        one.coverage = Some(Coverage { lines_covered: 1, lines: 2, ..Coverage::default() });
        let mut other = Outcome { duration_ms: Some(7), ..Outcome::default() };
        other.record("a", Ended::Failed, None, "no");
        other.count(Ended::Skipped, 2);
        other.coverage = Some(Coverage { lines_covered: 2, lines: 2, ..Coverage::default() });
        one.join(other);
        assert_eq!(one.counts, Counts { passed: 1, failed: 1, skipped: 2, flaky: 0 });
        assert_eq!((one.unnamed, one.duration_ms), (2, Some(7)));
        assert_eq!(one.coverage.unwrap().of_lines(), Percent(7_500));
    }

    /// The journal is read for years; it keeps what the gates need and what a person asks for.
    #[test]
    fn what_is_kept_names_failures_first_and_counts_the_rest() {
        let mut outcome = Outcome::default();
        for number in 0..1_000 {
            let ended = if number >= 850 { Ended::Failed } else { Ended::Passed };
            outcome.record(&format!("t{number:04}"), ended, None, &"m".repeat(900));
        }
        let kept = outcome.kept(&BTreeSet::new());
        assert_eq!(kept.counts, outcome.counts);
        assert_eq!(kept.failures().count(), limits::OUTCOME_FAILURES_KEPT_MAX);
        assert_eq!(kept.tests.len() + kept.unnamed as usize, 1_000);
        let longest = kept.tests.values().map(|test| test.message.len()).max();
        assert_eq!(longest, Some(limits::OUTCOME_MESSAGE_CHARS_MAX));
        assert_eq!(kept.kept(&BTreeSet::new()), kept, "it is kept as it is");
    }

    #[test]
    fn shares_round_down_and_nothing_is_fully_covered() {
        assert_eq!(Percent::of(79_999, 100_000), Percent(7_999));
        assert_eq!(Percent::of(0, 0), Percent::ALL);
        assert_eq!(Percent::of(u64::MAX, u64::MAX), Percent::ALL);
        assert_eq!(Percent(7_950).to_string(), "79.50 %");
        assert_eq!(Percent::from_f64(80.5), Some(Percent(8_050)));
        assert_eq!((Percent::from_f64(-1.0), Percent::from_f64(f64::NAN)), (None, None));
    }

    #[test]
    fn the_worst_are_kept_and_all_are_counted() {
        let mut complexity = Complexity::default();
        for cyclomatic in 0..200 {
            let name = cyclomatic.to_string();
            complexity.add(Function { cyclomatic, name, file: "f".into(), line: 1 });
        }
        assert_eq!(
            (complexity.functions, complexity.worst.len()),
            (200, limits::FUNCTIONS_NAMED_MAX)
        );
        assert_eq!(complexity.worst[0].cyclomatic, 199);
        let mut findings = Findings::default();
        for severity in [Severity::Low, Severity::Critical, Severity::Medium, Severity::Low] {
            let (rule, file, message) = ("r".into(), "f".into(), String::new());
            findings.add(Finding { severity, rule, file, line: 1, message });
        }
        assert_eq!(findings.from(Severity::Medium), 2);
        assert_eq!(findings.worst[0].severity, Severity::Critical);
    }
}
