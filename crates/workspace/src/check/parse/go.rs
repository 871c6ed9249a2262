//! `go test -json`: one event a line, output and results.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_core::outcome::{Ended, Outcome};
use serde::Deserialize;

use super::text::{self, Line};
use super::{Unreadable, add_time, with_tests};

/// Tests and packages whose output is collected at the same time.
const COLLECTED_MAX: usize = 10_000;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    action: String,
    #[serde(default)]
    package: String,
    #[serde(default)]
    import_path: String,
    #[serde(default)]
    test: Option<String>,
    #[serde(default)]
    elapsed: Option<f64>,
    #[serde(default)]
    output: Option<String>,
    #[serde(default)]
    failed_build: Option<String>,
}

pub fn parse(bytes: &[u8]) -> Result<Outcome, Unreadable> {
    let mut reader = Reader::default();
    for line in text::json_lines::<Entry>(bytes) {
        match line {
            Line::Object(entry) => reader.entry(&entry),
            // Older versions print errors of the compiler beside the events.
            Line::Other(line) => text::append(&mut reader.beside, &format!("{line}\n")),
        }
    }
    with_tests(reader.outcome, "event of go test")
}

#[derive(Default)]
struct Reader {
    outcome: Outcome,
    beside: String,
    /// What tests, packages and builds printed, until they end.
    printed: BTreeMap<String, String>,
    /// Packages in which a test failed, which is why they fail.
    failing: BTreeSet<String>,
}

impl Reader {
    fn entry(&mut self, entry: &Entry) {
        let key = match &entry.test {
            Some(test) => format!("{}.{test}", entry.package),
            None if entry.package.is_empty() => entry.import_path.clone(),
            None => entry.package.clone(),
        };
        match (entry.action.as_str(), &entry.test) {
            ("output" | "build-output", _) => self.print(key, entry),
            ("build-fail", _) => {
                let printed = self.printed.remove(&key).unwrap_or_default();
                self.outcome.break_off(&key, &printed);
            }
            ("pass" | "fail" | "skip", Some(_)) => self.test(&key, entry),
            ("pass" | "fail" | "skip", None) => self.package(&key, entry),
            _ => {}
        }
    }

    fn print(&mut self, key: String, entry: &Entry) {
        if self.printed.len() < COLLECTED_MAX || self.printed.contains_key(&key) {
            let output = entry.output.as_deref().unwrap_or_default();
            if !is_frame(output) {
                text::append(self.printed.entry(key).or_default(), output);
            }
        }
    }

    fn test(&mut self, name: &str, entry: &Entry) {
        let printed = self.printed.remove(name).unwrap_or_default();
        let ended = match entry.action.as_str() {
            "pass" => Ended::Passed,
            "skip" => Ended::Skipped,
            _ => Ended::Failed,
        };
        let message = if ended == Ended::Failed { printed.as_str() } else { "" };
        if ended == Ended::Failed && self.failing.len() < COLLECTED_MAX {
            self.failing.insert(entry.package.clone());
        }
        self.outcome.record(name, ended, entry.elapsed.and_then(text::millis), message);
    }

    fn package(&mut self, name: &str, entry: &Entry) {
        let printed = self.printed.remove(name).unwrap_or_default();
        add_time(&mut self.outcome, entry.elapsed.and_then(text::millis));
        // Its build or one of its tests has said why; else it broke by itself.
        let explained = entry.failed_build.is_some() || self.failing.contains(name);
        if entry.action == "fail" && !explained {
            let message = if printed.contains("[build failed]") { &self.beside } else { &printed };
            self.outcome.break_off(name, message);
        }
    }
}

/// Lines that frame a test say nothing about it.
fn is_frame(output: &str) -> bool {
    let output = output.trim_start();
    ["=== RUN", "=== PAUSE", "=== CONT", "=== NAME", "--- PASS", "--- FAIL", "--- SKIP"]
        .iter()
        .any(|frame| output.starts_with(frame))
}
