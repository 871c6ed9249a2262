//! JUnit XML, in the dialects of pytest, Maven, Gradle, nextest, jest-junit and node.
//!
//! There is no standard. Common to all is `<testcase name classname time>` with `<failure>`,
//! `<error>` or `<skipped>` in it; Maven and nextest add `<flakyFailure>` and `<rerunFailure>`.

use kapelle_core::outcome::{Ended, Outcome};

use super::xml::{self, Attributes, Visit};
use super::{Unreadable, add_time, text, with_tests};

/// What pytest says about a file of tests that cannot be loaded.
const NOT_LOADED: &str = "collection failure";

pub fn parse(bytes: &[u8]) -> Result<Outcome, Unreadable> {
    let mut report = Report::default();
    xml::read(bytes, &["testsuites", "testsuite"], "a JUnit report", &mut report)?;
    with_tests(report.outcome, "test case")
}

#[derive(Default)]
struct Report {
    outcome: Outcome,
    case: Option<Case>,
    /// The element of a case whose text is being collected.
    telling: bool,
}

struct Case {
    name: String,
    duration_ms: Option<u64>,
    failed: bool,
    skipped: bool,
    flaky: bool,
    not_loaded: bool,
    message: String,
    detail: String,
}

impl Visit for Report {
    fn open(&mut self, name: &str, attributes: &Attributes<'_>) {
        if name == "testcase" {
            self.case = Some(Case::new(attributes));
            return;
        }
        let Some(case) = &mut self.case else { return };
        match name {
            "failure" | "error" => {
                case.failed = true;
                self.telling = true;
                let message = attributes.get("message").unwrap_or_default();
                case.not_loaded |= name == "error" && message == NOT_LOADED;
                if case.message.is_empty() {
                    case.message = message;
                }
            }
            "skipped" => case.skipped = true,
            "flakyFailure" | "flakyError" => {
                case.flaky = true;
                if case.message.is_empty() {
                    case.message = attributes.get("message").unwrap_or_default();
                }
            }
            _ => {}
        }
    }

    fn text(&mut self, piece: &str) {
        if let (true, Some(case)) = (self.telling, &mut self.case) {
            text::append(&mut case.detail, piece);
        }
    }

    fn close(&mut self, name: &str) {
        match name {
            "failure" | "error" => self.telling = false,
            "testcase" => {
                if let Some(case) = self.case.take() {
                    case.record(&mut self.outcome);
                }
            }
            _ => {}
        }
    }
}

impl Case {
    fn new(attributes: &Attributes<'_>) -> Case {
        let name = attributes.get("name").unwrap_or_default();
        let class = attributes.get("classname").unwrap_or_default();
        let name = match class.trim() {
            "" => name,
            class => format!("{class}.{name}"),
        };
        Case {
            name,
            duration_ms: attributes.number("time").and_then(text::millis),
            failed: false,
            skipped: false,
            flaky: false,
            not_loaded: false,
            message: String::new(),
            detail: String::new(),
        }
    }

    fn record(self, outcome: &mut Outcome) {
        let message = match self.message.trim() {
            "" => self.detail,
            // Where the attribute only says that something failed, the text says what.
            NOT_LOADED => self.detail,
            message => message.to_owned(),
        };
        if self.not_loaded {
            outcome.break_off(&self.name, &message);
            return;
        }
        // Node marks what is still to be done as skipped, and tells its failure too.
        let ended = match () {
            () if self.skipped => Ended::Skipped,
            () if self.failed => Ended::Failed,
            () if self.flaky => Ended::Flaky,
            () => Ended::Passed,
        };
        add_time(outcome, self.duration_ms);
        outcome.record(&self.name, ended, self.duration_ms, &message);
    }
}
