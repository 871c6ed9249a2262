//! `jest --json`; vitest writes the same with `--reporter=json`.

use kapelle_core::outcome::{Ended, Outcome};
use serde::Deserialize;

use super::{Unreadable, add_time, text, with_tests};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    test_results: Vec<Suite>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Suite {
    #[serde(default)]
    name: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    assertion_results: Vec<Assertion>,
    #[serde(default)]
    start_time: Option<f64>,
    #[serde(default)]
    end_time: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Assertion {
    #[serde(default)]
    full_name: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    duration: Option<f64>,
    #[serde(default)]
    failure_messages: Option<Vec<String>>,
    #[serde(default)]
    retry_reasons: Option<Vec<String>>,
}

pub fn parse(bytes: &[u8]) -> Result<Outcome, Unreadable> {
    let report: Report = text::document(bytes, "a report of jest")?;
    let mut outcome = Outcome::default();
    for suite in &report.test_results {
        let spent = suite.end_time.zip(suite.start_time);
        let ms = spent.and_then(|(end, start)| text::millis((end - start) / 1_000.0));
        add_time(&mut outcome, ms);
        if suite.assertion_results.is_empty() && suite.status == "failed" {
            outcome.break_off(&suite.name, &text::plain(&suite.message));
        }
        for test in &suite.assertion_results {
            test.record(&mut outcome);
        }
    }
    with_tests(outcome, "test of jest")
}

impl Assertion {
    fn record(&self, outcome: &mut Outcome) {
        let was_tried_again = self.retry_reasons.as_ref().is_some_and(|all| !all.is_empty());
        let ended = match self.status.as_str() {
            "passed" if was_tried_again => Ended::Flaky,
            "passed" => Ended::Passed,
            "pending" | "skipped" | "todo" | "disabled" => Ended::Skipped,
            // `failed`, and what is to come.
            _ => Ended::Failed,
        };
        let told = self.failure_messages.iter().chain(&self.retry_reasons).flatten();
        let message = told.map(|message| text::plain(message)).next().unwrap_or_default();
        let duration_ms = self.duration.and_then(|ms| text::millis(ms / 1_000.0));
        outcome.record(&self.full_name, ended, duration_ms, &message);
    }
}
