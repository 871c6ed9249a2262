//! How the result of a check is read, and what is asked of it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::InvalidPolicy;
use crate::gates::Thresholds;
use crate::limits;

/// What a check writes besides its exit code.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Parser {
    /// Nothing: 0 is a pass, anything else a failure.
    #[default]
    ExitCode,
    /// JUnit XML, as most test runners write it.
    Junit,
    /// The Test Anything Protocol.
    Tap,
    /// What `cargo test` prints.
    Cargo,
    /// JSON lines of libtest and of `cargo nextest`.
    Nextest,
    /// What `pytest` prints; names all tests with `-v` or `-rA`.
    Pytest,
    /// `jest --json`, also written by vitest.
    Jest,
    /// `go test -json`.
    Go,
    /// Visual Studio's test results, `dotnet test --logger trx`.
    Trx,
    /// Coverage as lcov writes it.
    Lcov,
    /// Coverage as Cobertura writes it.
    Cobertura,
    /// Mutation testing: Stryker's JSON, or `outcomes.json` of cargo-mutants.
    Mutation,
    /// Findings of scanners, SARIF 2.1.
    Sarif,
    /// Complexity of functions, `lizard --csv`.
    Lizard,
}

impl Parser {
    pub const ALL: [Parser; 14] = [
        Parser::ExitCode,
        Parser::Junit,
        Parser::Tap,
        Parser::Cargo,
        Parser::Nextest,
        Parser::Pytest,
        Parser::Jest,
        Parser::Go,
        Parser::Trx,
        Parser::Lcov,
        Parser::Cobertura,
        Parser::Mutation,
        Parser::Sarif,
        Parser::Lizard,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Parser::ExitCode => "exit_code",
            Parser::Junit => "junit",
            Parser::Tap => "tap",
            Parser::Cargo => "cargo",
            Parser::Nextest => "nextest",
            Parser::Pytest => "pytest",
            Parser::Jest => "jest",
            Parser::Go => "go",
            Parser::Trx => "trx",
            Parser::Lcov => "lcov",
            Parser::Cobertura => "cobertura",
            Parser::Mutation => "mutation",
            Parser::Sarif => "sarif",
            Parser::Lizard => "lizard",
        }
    }

    /// Whether it can be read from what the command prints, in between other lines.
    #[must_use]
    pub fn reads_output(self) -> bool {
        match self {
            Parser::ExitCode
            | Parser::Tap
            | Parser::Cargo
            | Parser::Nextest
            | Parser::Pytest
            | Parser::Jest
            | Parser::Go
            | Parser::Lizard => true,
            Parser::Junit
            | Parser::Trx
            | Parser::Lcov
            | Parser::Cobertura
            | Parser::Mutation
            | Parser::Sarif => false,
        }
    }
}

impl fmt::Display for Parser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    #[serde(default)]
    pub parser: Parser,
    /// The file that the check writes, or a pattern of several. Without it the output is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
    /// A second report, with the coverage: lcov or Cobertura.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<String>,
    #[serde(default, skip_serializing_if = "Thresholds::is_empty")]
    pub thresholds: Thresholds,
}

impl Reading {
    /// Whether only the exit code counts.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self == Reading::default()
    }

    pub(super) fn validate(&self, check: &str) -> Result<(), InvalidPolicy> {
        for path in self.report.iter().chain(&self.coverage) {
            if !is_inside(path) {
                let (name, path) = (check.to_owned(), path.clone());
                return Err(InvalidPolicy::ReportOutside { name, path });
            }
        }
        if self.report.is_none() && !self.parser.reads_output() {
            let (name, parser) = (check.to_owned(), self.parser);
            return Err(InvalidPolicy::NoReport { name, parser });
        }
        Ok(())
    }
}

/// Below the root of the tree, and in no folder of git's.
fn is_inside(path: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && ![".", "..", ".git"].contains(&part);
    path.split('/').all(plain) && path.chars().count() <= limits::PATH_CHARS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_configuration_are_the_names() {
        for parser in Parser::ALL {
            let word = serde_json::to_string(&parser).unwrap();
            assert_eq!(word, format!("\"{parser}\""));
        }
    }

    #[test]
    fn a_report_lies_in_the_tree() {
        let with = |path: &str| {
            let reading = Reading { report: Some(path.into()), ..Reading::default() };
            reading.validate("test")
        };
        assert_eq!(with("target/nextest/**/junit.xml"), Ok(()));
        for path in ["/etc/passwd", "../a", "a/../b", ".git/config", "", "a//b"] {
            let (name, path) = ("test".to_owned(), path.to_owned());
            assert_eq!(with(&path), Err(InvalidPolicy::ReportOutside { name, path }));
        }
    }

    #[test]
    fn a_file_format_needs_a_file() {
        let reading = Reading { parser: Parser::Junit, ..Reading::default() };
        let missing = InvalidPolicy::NoReport { name: "test".into(), parser: Parser::Junit };
        assert_eq!(reading.validate("test"), Err(missing));
        let printed = Reading { parser: Parser::Go, ..Reading::default() };
        assert_eq!(printed.validate("test"), Ok(()));
    }
}
