//! Why a gate stays shut, in words that the next attempt can act on.

use serde::Serialize;

use crate::limits;
use crate::outcome::{Percent, Severity};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "objection", rename_all = "snake_case")]
pub enum Objection {
    #[error("all tests passed, but the new tests have to fail before the work is done")]
    NothingFails,
    #[error("no test is new: only tests that were there before fail")]
    NoNewTest,
    #[error("the test {test} failed before the change already; a new one has to fail")]
    FailedBefore { test: String },
    #[error("the test {test} should fail, but it did not run")]
    DidNotRun { test: String },
    #[error("the test {test} should fail, but it {ended}")]
    DoesNotFail { test: String, ended: &'static str },
    #[error("the test {test} passed before and fails now: {message}")]
    Broke { test: String, message: String },
    #[error("{place} cannot be built or loaded, which is not the stated reason to fail: {message}")]
    DoesNotBuild { place: String, message: String },
    #[error("the stated reason is that something named {mentions} is missing, but {found}")]
    OtherReason { mentions: String, found: &'static str },
    #[error("the test {test} fails for another reason than the stated one: {message}")]
    OtherMessage { test: String, message: String },

    #[error("the test {test} fails: {message}")]
    Fails { test: String, message: String },
    #[error("{count} tests fail")]
    FailUnnamed { count: u32 },
    #[error("{place} cannot be built or loaded: {message}")]
    Broken { place: String, message: String },
    #[error("the test {test} failed when it was written and {ended} now; it has to pass")]
    NotPassing { test: String, ended: &'static str },
    #[error("no new test has run and passed, though new tests could not be built before")]
    NoNewTestPasses,
    #[error("the test {test} ran before and is gone")]
    Vanished { test: String },
    #[error("{path} line {line} replaces {unit}, the very thing that it should test, by a mock")]
    MocksItsUnit { path: String, line: u32, unit: String },

    #[error("no coverage was measured; at least {min} is asked for")]
    NoCoverage { min: Percent },
    #[error("{found} of the lines are covered, less than {min}")]
    CoverageBelow { found: Percent, min: Percent },
    #[error("coverage fell from {before} to {found}, by more than {drop_max}")]
    CoverageFell { before: Percent, found: Percent, drop_max: Percent },
    #[error("no mutants were tried; a score of at least {min} is asked for")]
    NoMutants { min: Percent },
    #[error("the tests notice {found} of the mutants, less than {min}")]
    MutationBelow { found: Percent, min: Percent },
    #[error("complexity was not measured; at most {max} is asked for")]
    NoComplexity { max: u32 },
    #[error("{function} ({file} line {line}) has a complexity of {found}, more than {max}")]
    TooComplex { function: String, file: String, line: u32, found: u32, max: u32 },
    #[error("no scanner reported; findings from {severity} on are to be refused")]
    NoScan { severity: Severity },
    #[error("{severity}: {rule} in {file} line {line}: {message}")]
    Insecure { severity: Severity, rule: String, file: String, line: u32, message: String },
    #[error("{count} findings are {severity} or worse")]
    InsecureUnnamed { severity: Severity, count: u32 },

    #[error("the criterion is not met: {criterion}")]
    NotMet { criterion: String },
}

/// The objections as one text, bounded; nothing if there are none.
#[must_use]
pub fn explain(objections: &[Objection]) -> String {
    let shown = objections.iter().take(limits::OBJECTIONS_MAX);
    let mut lines: Vec<String> = shown.map(ToString::to_string).collect();
    let rest = objections.len().saturating_sub(limits::OBJECTIONS_MAX);
    if rest > 0 {
        lines.push(format!("and {rest} more"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_cut_and_says_so() {
        let objections = vec![Objection::NothingFails; limits::OBJECTIONS_MAX + 3];
        let text = explain(&objections);
        assert_eq!(text.lines().count(), limits::OBJECTIONS_MAX + 1);
        assert!(text.ends_with("and 3 more"));
        assert_eq!(explain(&[]), "");
    }
}
