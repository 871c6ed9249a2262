//! The phases of a task and what each of them is allowed and expected to do.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::glob;
use crate::ids::Role;

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Red,
    Green,
    Refactor,
    IntegrationRed,
    IntegrationGreen,
    Verify,
    Complete,
}

/// What the checks must say for the phase to be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expectation {
    /// New tests that pass before the work is done test nothing.
    SomeCheckFails,
    AllChecksPass,
}

/// Which files an agent may change in a phase. The one who writes the tests does not write the
/// code that they judge, and the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hands {
    TestsOnly,
    AllButTests,
    Anything,
}

impl Phase {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Phase::Red => "red",
            Phase::Green => "green",
            Phase::Refactor => "refactor",
            Phase::IntegrationRed => "integration_red",
            Phase::IntegrationGreen => "integration_green",
            Phase::Verify => "verify",
            Phase::Complete => "complete",
        }
    }

    #[must_use]
    pub fn role(self) -> Role {
        match self {
            Phase::Red | Phase::IntegrationRed | Phase::Verify => Role::Tester,
            Phase::Green | Phase::Refactor | Phase::IntegrationGreen => Role::Developer,
            Phase::Complete => Role::Merger,
        }
    }

    #[must_use]
    pub fn expects(self) -> Expectation {
        match self {
            Phase::Red | Phase::IntegrationRed => Expectation::SomeCheckFails,
            Phase::Green
            | Phase::Refactor
            | Phase::IntegrationGreen
            | Phase::Verify
            | Phase::Complete => Expectation::AllChecksPass,
        }
    }

    fn hands(self) -> Hands {
        match self {
            Phase::Red | Phase::IntegrationRed | Phase::Verify => Hands::TestsOnly,
            Phase::Green | Phase::Refactor | Phase::IntegrationGreen => Hands::AllButTests,
            Phase::Complete => Hands::Anything,
        }
    }

    /// Whether the work may be as good as it is: there is not always something to tidy up.
    #[must_use]
    pub fn may_change_nothing(self) -> bool {
        match self {
            Phase::Refactor | Phase::Verify | Phase::Complete => true,
            Phase::Red | Phase::Green | Phase::IntegrationRed | Phase::IntegrationGreen => false,
        }
    }

    /// The paths that this phase had no business touching. Without test patterns there is no
    /// line to cross. Tests that an earlier phase of the task has shown to fail are `frozen`.
    #[must_use]
    pub fn trespasses<'a>(
        self,
        touched: &'a [String],
        tests: &[String],
        frozen: &BTreeSet<String>,
    ) -> Vec<&'a str> {
        if tests.is_empty() {
            return Vec::new();
        }
        let is_test = |path: &str| tests.iter().any(|pattern| glob::matches(pattern, path));
        let wrong = |path: &&String| match self.hands() {
            Hands::TestsOnly => !is_test(path) || frozen.contains(*path),
            Hands::AllButTests => is_test(path) || decides_on_bytes(path),
            Hands::Anything => false,
        };
        touched.iter().filter(wrong).map(String::as_str).collect()
    }
}

/// Attributes say with which bytes git writes a file: with others, a test is another test.
fn decides_on_bytes(path: &str) -> bool {
    path.rsplit('/').next() == Some(".gitattributes")
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trespasses(phase: Phase, touched: &[&str]) -> Vec<String> {
        let touched: Vec<String> = touched.iter().map(ToString::to_string).collect();
        let tests = ["tests/**".to_owned()];
        let frozen = ["tests/shown.rs".to_owned()].into();
        phase.trespasses(&touched, &tests, &frozen).into_iter().map(str::to_owned).collect()
    }

    /// Peers let the developer weaken the tests until they are green.
    #[test]
    fn tests_are_frozen_once_they_are_red() {
        assert_eq!(trespasses(Phase::Green, &["src/a.rs", "tests/a.rs"]), ["tests/a.rs"]);
        assert_eq!(trespasses(Phase::Refactor, &["tests/b/c.rs"]), ["tests/b/c.rs"]);
        assert_eq!(trespasses(Phase::Red, &["src/a.rs", "tests/a.rs"]), ["src/a.rs"]);
        for phase in [Phase::IntegrationRed, Phase::Verify] {
            let touched = ["src/a.rs", "tests/new.rs", "tests/shown.rs"];
            assert_eq!(trespasses(phase, &touched), ["src/a.rs", "tests/shown.rs"]);
        }
        assert_eq!(trespasses(Phase::Complete, &["src/a.rs"]), Vec::<String>::new());
    }

    /// With `eol=crlf` on the tests, a failing script passed without a byte of it changed in git.
    #[test]
    fn how_tests_are_written_out_is_frozen_with_them() {
        for path in [".gitattributes", "src/.gitattributes"] {
            assert_eq!(trespasses(Phase::Green, &[path]), [path]);
        }
        assert_eq!(trespasses(Phase::Green, &["src/x.gitattributes"]), Vec::<String>::new());
    }

    #[test]
    fn without_test_patterns_there_is_no_line_to_cross() {
        let touched = ["tests/a.rs".to_owned()];
        assert_eq!(Phase::Green.trespasses(&touched, &[], &BTreeSet::new()), Vec::<&str>::new());
    }
}
