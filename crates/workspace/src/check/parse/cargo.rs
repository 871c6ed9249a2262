//! What `cargo test` prints for people: it is stable in practice, and the only form that stable
//! Rust has.

use std::collections::BTreeMap;

use kapelle_core::outcome::{Counts, Ended, Outcome};

use super::{Unreadable, add_time, text, with_tests};

pub fn parse(bytes: &[u8]) -> Result<Outcome, Unreadable> {
    let mut reader = Reader::default();
    for line in text::lines(bytes) {
        reader.line(&line);
    }
    reader.finish()
}

#[derive(Default)]
struct Reader {
    outcome: Outcome,
    build: Build,
    /// Failures of the current target, each with what it printed; recorded with its result.
    ended: Vec<(String, Ended)>,
    messages: BTreeMap<String, String>,
    /// The test whose message is being told.
    telling: Option<String>,
    /// The target whose tests run: named, but without a result yet.
    target: Option<String>,
    announced: String,
    /// The test whose end stands on another line, because it printed something in between.
    open: Option<String>,
}

impl Reader {
    fn line(&mut self, line: &str) {
        self.build.line(line, &mut self.outcome);
        if let Some(target) = announced(line) {
            self.abandon();
            self.announced = target;
        } else if line.starts_with("running ") && line.trim_end().ends_with(['t', 's']) {
            self.abandon();
            self.target = Some(self.announced.clone());
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.close(result);
        } else if let Some(name) = section(line) {
            self.telling = Some(name.to_owned());
        } else if self.telling.is_some() && line != "failures:" {
            self.tell(line);
        } else if let Some(rest) = line.strip_prefix("test ") {
            self.telling = None;
            self.test(rest);
        } else {
            self.telling = None;
            if let Some((name, ended)) = self.open.take().zip(end_of(line)) {
                self.ended.push((name, ended));
            }
        }
    }

    fn test(&mut self, rest: &str) {
        let Some((name, end)) = rest.split_once(" ... ") else { return };
        let name = name.strip_suffix(" - should panic").unwrap_or(name).to_owned();
        match end_of(end) {
            Some(ended) => self.ended.push((name, ended)),
            None => self.open = Some(name),
        }
    }

    fn tell(&mut self, line: &str) {
        if line.starts_with("stack backtrace:") {
            self.telling = None;
            return;
        }
        let Some(name) = &self.telling else { return };
        let message = self.messages.entry(name.clone()).or_default();
        text::append(message, &format!("{line}\n"));
    }

    /// The result of a target: what it counts and did not name is counted too.
    fn close(&mut self, result: &str) {
        self.target = None;
        let before = self.outcome.counts;
        self.record();
        let after = self.outcome.counts;
        let said = said(result);
        let missing = |said: u32, after: u32, before: u32| said.saturating_sub(after - before);
        self.outcome.count(Ended::Passed, missing(said.passed, after.passed, before.passed));
        self.outcome.count(Ended::Failed, missing(said.failed, after.failed, before.failed));
        self.outcome.count(Ended::Skipped, missing(said.skipped, after.skipped, before.skipped));
        let seconds = result.rsplit_once("finished in ").and_then(|(_, time)| {
            time.trim().trim_end_matches('s').parse().ok().and_then(text::millis)
        });
        add_time(&mut self.outcome, seconds);
    }

    fn record(&mut self) {
        for (name, ended) in self.ended.drain(..) {
            let message = self.messages.get(&name).map_or("", String::as_str);
            self.outcome.record(&name, ended, None, message);
        }
        self.messages.clear();
        (self.open, self.telling) = (None, None);
    }

    /// A target that never came to a result crashed or was killed.
    fn abandon(&mut self) {
        if let Some(target) = self.target.take() {
            self.record();
            self.outcome.break_off(&target, "its tests were started and never came to an end");
        }
    }

    fn finish(mut self) -> Result<Outcome, Unreadable> {
        self.abandon();
        with_tests(self.outcome, "result of cargo test")
    }
}

/// Errors of the compiler, from lines that cargo prints.
#[derive(Default)]
pub(super) struct Build {
    errors: String,
}

impl Build {
    pub fn line(&mut self, line: &str, outcome: &mut Outcome) {
        if let Some(rest) = line.strip_prefix("error: could not compile ") {
            let place = rest.split(" due to ").next().unwrap_or(rest);
            outcome.break_off(place, &std::mem::take(&mut self.errors));
            return;
        }
        let starts = line.starts_with("error[") || line.starts_with("error:");
        if starts || (!self.errors.is_empty() && !line.trim().is_empty()) {
            text::append(&mut self.errors, &format!("{line}\n"));
        }
    }
}

/// The target that cargo is about to run.
fn announced(line: &str) -> Option<String> {
    let line = line.trim_start();
    if let Some(rest) = line.strip_prefix("Running ") {
        return Some(rest.split(" (").next().unwrap_or(rest).to_owned());
    }
    line.strip_prefix("Doc-tests ").map(|krate| format!("doc-tests of {krate}"))
}

/// `---- tests::wrong stdout ----`
fn section(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" ----")?.strip_suffix(" stdout")
}

fn end_of(text: &str) -> Option<Ended> {
    let text = text.trim();
    // `ok (0.03s)` with times, `ignored, slow` with a reason.
    let word = text.split([' ', ',']).next().unwrap_or_default();
    match word {
        "ok" => Some(Ended::Passed),
        "FAILED" => Some(Ended::Failed),
        "ignored" => Some(Ended::Skipped),
        "bench:" => Some(Ended::Passed),
        _ => None,
    }
}

/// `FAILED. 1 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.09s`
fn said(result: &str) -> Counts {
    let mut counts = Counts::default();
    let words: Vec<&str> = result.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
    for pair in words.windows(2) {
        let Ok(number) = pair[0].parse::<u32>() else { continue };
        match pair[1] {
            "passed" => counts.passed = number,
            "failed" => counts.failed = number,
            "ignored" => counts.skipped = number,
            _ => {}
        }
    }
    counts
}
