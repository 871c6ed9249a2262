//! JSON lines of libtest, as nextest prints them with `--message-format libtest-json`.

use kapelle_core::outcome::{Ended, Outcome};
use serde::Deserialize;

use super::cargo::Build;
use super::text::{self, Line};
use super::{Unreadable, add_time, with_tests};

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    event: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    exec_time: Option<f64>,
    #[serde(default)]
    stdout: Option<String>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    reason: Option<String>,
}

pub fn parse(bytes: &[u8]) -> Result<Outcome, Unreadable> {
    let mut outcome = Outcome::default();
    let mut build = Build::default();
    let (mut suites, mut results) = (0_u32, 0_u32);
    for line in text::json_lines::<Entry>(bytes) {
        match line {
            Line::Other(line) => build.line(&line, &mut outcome),
            Line::Object(entry) => match (entry.kind.as_str(), entry.event.as_str()) {
                ("suite", "started") => suites += 1,
                ("suite", _) => {
                    results += 1;
                    add_time(&mut outcome, entry.exec_time.and_then(text::millis));
                }
                ("test", _) => entry.record(&mut outcome),
                _ => {}
            },
        }
    }
    if results < suites {
        outcome.break_off("suite", "its tests were started and never came to an end");
    }
    with_tests(outcome, "result of libtest")
}

impl Entry {
    fn record(&self, outcome: &mut Outcome) {
        let (name, tries) = tried(&self.name);
        let ended = match self.event.as_str() {
            // Nextest reports the last try only, and numbers it.
            "ok" if tries > 1 => Ended::Flaky,
            "ok" => Ended::Passed,
            "failed" | "timeout" => Ended::Failed,
            "ignored" => Ended::Skipped,
            // `started`, and what is to come.
            _ => return,
        };
        let told = [&self.message, &self.stdout, &self.reason].into_iter().flatten();
        let message = told.map(String::as_str).find(|text| !text.trim().is_empty());
        let duration_ms = self.exec_time.and_then(text::millis);
        outcome.record(name, ended, duration_ms, &text::plain(message.unwrap_or_default()));
    }
}

/// The name without the number of the try: `shop::api$adds#2`.
fn tried(name: &str) -> (&str, u32) {
    match name.rsplit_once('#') {
        Some((bare, tries)) => tries.parse().map_or((name, 1), |tries| (bare, tries)),
        None => (name, 1),
    }
}
