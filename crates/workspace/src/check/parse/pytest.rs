//! What pytest prints. With `-v` or `-rA` every test is named; without, the failures are, and the
//! last line counts the others.

use std::collections::BTreeMap;

use kapelle_core::limits;
use kapelle_core::outcome::{Ended, Outcome};

use super::{Unreadable, text, with_tests};

/// The words of pytest, and what each means.
const WORDS: [(&str, Ended); 7] = [
    ("PASSED", Ended::Passed),
    ("FAILED", Ended::Failed),
    ("ERROR", Ended::Failed),
    ("SKIPPED", Ended::Skipped),
    ("XFAIL", Ended::Skipped),
    ("XPASS", Ended::Passed),
    ("RERUN", Ended::Flaky),
];

pub fn parse(bytes: &[u8]) -> Result<Outcome, Unreadable> {
    let mut reader = Reader::default();
    for line in text::lines(bytes) {
        reader.line(line.trim_end());
    }
    reader.finish()
}

#[derive(Default)]
struct Reader {
    tests: BTreeMap<String, (Ended, String)>,
    broken: Vec<(String, String)>,
    /// The file that could not be loaded and whose errors are being told.
    telling: Option<String>,
    last: Option<Last>,
}

#[derive(Debug, Default, PartialEq)]
struct Last {
    passed: u32,
    failed: u32,
    skipped: u32,
    duration_ms: Option<u64>,
}

impl Reader {
    fn line(&mut self, line: &str) {
        if let Some(rule) = ruled(line) {
            self.telling = rule.strip_prefix("ERROR collecting ").map(str::to_owned);
            if let Some(file) = &self.telling
                && self.broken.len() < limits::BREAKAGES_MAX
            {
                self.broken.push((file.clone(), String::new()));
            }
            self.last = last(rule).or(self.last.take());
            return;
        }
        if let (Some(_), Some(error)) = (&self.telling, line.strip_prefix("E  ")) {
            self.tell(error.trim());
        }
        if let Some((name, ended, message)) = summary(line).or_else(|| progress(line)) {
            self.note(name, ended, message);
        }
    }

    fn tell(&mut self, error: &str) {
        if let Some((_, message)) = self.broken.last_mut() {
            text::append(message, &format!("{error}\n"));
        }
    }

    /// A test may be told twice, in the course and in the summary, which also says why.
    fn note(&mut self, name: &str, ended: Ended, message: &str) {
        if self.tests.len() >= limits::TESTS_NAMED_MAX && !self.tests.contains_key(name) {
            return;
        }
        let entry = self.tests.entry(name.to_owned()).or_insert((ended, String::new()));
        // A test that is tried again ends as it ends: only a pass makes it flaky.
        entry.0 = match (entry.0, ended) {
            (Ended::Flaky, Ended::Passed) => Ended::Flaky,
            (Ended::Flaky, ended) | (ended, Ended::Flaky) => ended,
            (known, ended) => known.max(ended),
        };
        if entry.1.is_empty() {
            entry.1 = limits::head(message, limits::TEST_MESSAGE_CHARS_MAX).to_owned();
        }
    }

    fn finish(self) -> Result<Outcome, Unreadable> {
        let mut outcome = Outcome::default();
        for (name, (ended, message)) in &self.tests {
            outcome.record(name, *ended, None, message);
        }
        let broken: u32 = self.broken.len().try_into().unwrap_or(u32::MAX);
        for (file, message) in &self.broken {
            outcome.break_off(file, message);
        }
        let Some(last) = self.last else {
            let expected = "last line of pytest, with its counts";
            return Err(Unreadable::Empty { expected });
        };
        outcome.duration_ms = last.duration_ms;
        let counts = outcome.counts;
        outcome.count(Ended::Passed, last.passed.saturating_sub(counts.passed));
        let failed = last.failed.saturating_sub(broken).saturating_sub(counts.failed);
        outcome.count(Ended::Failed, failed);
        outcome.count(Ended::Skipped, last.skipped.saturating_sub(counts.skipped));
        with_tests(outcome, "test of pytest")
    }
}

/// The text of a line that is drawn with `=` or `_` on both sides.
fn ruled(line: &str) -> Option<&str> {
    let mark = line.chars().next().filter(|mark| ['=', '_'].contains(mark))?;
    let text = line.trim_matches(mark).trim();
    (line.ends_with(mark) && !text.is_empty()).then_some(text)
}

/// `FAILED tests/test_a.py::test_b - AssertionError: …`
fn summary(line: &str) -> Option<(&str, Ended, &str)> {
    let (word, rest) = line.split_once(' ')?;
    let ended = meaning(word)?;
    // Skipped tests are told by place, not by name: `SKIPPED [1] tests/test_a.py:8: slow`.
    let (place, name) = rest.split_once("::").filter(|(place, _)| !place.contains(' '))?;
    // The reason comes behind the first dash that is not part of a parameter.
    let from = name.rfind(']').filter(|at| !name[..*at].contains(" - ")).unwrap_or(0);
    let cut = name[from..].find(" - ").map(|at| from + at);
    let message = cut.map_or("", |at| &name[at + 3..]);
    let end = place.len() + 2 + cut.unwrap_or(name.len());
    Some((rest[..end].trim(), ended, message))
}

/// `tests/test_a.py::test_b PASSED [ 11%]`, and with xdist `[gw0] [ 11%] PASSED tests/…::test_b`.
fn progress(line: &str) -> Option<(&str, Ended, &str)> {
    if let Some(rest) = line.strip_prefix("[gw") {
        let (_, told) = rest.split_once("%] ")?;
        let (word, name) = told.split_once(' ')?;
        return name.contains("::").then_some((name.trim(), meaning(word)?, ""));
    }
    let file = line.find("::").filter(|at| !line[..*at].contains(' '))?;
    let told = |(word, ended): &(&str, Ended)| {
        let at = line.rfind(&format!(" {word}"))?;
        let behind = &line[at + 1 + word.len()..];
        (at > file && (behind.is_empty() || behind.starts_with(' '))).then_some((at, *ended))
    };
    let (at, ended) = WORDS.iter().filter_map(told).max_by_key(|(at, _)| *at)?;
    Some((line[..at].trim(), ended, ""))
}

fn meaning(word: &str) -> Option<Ended> {
    WORDS.iter().find(|(known, _)| *known == word).map(|(_, ended)| *ended)
}

/// `2 failed, 4 passed, 1 skipped, 1 xfailed, 1 error in 0.08s`
fn last(rule: &str) -> Option<Last> {
    let (counts, time) = rule.rsplit_once(" in ")?;
    let seconds = time.split('s').next()?.trim().parse().ok()?;
    let mut last = Last { duration_ms: text::millis(seconds), ..Last::default() };
    let mut known = false;
    for part in counts.split(", ") {
        let Some((number, word)) = part.split_once(' ') else { continue };
        let Ok(number) = number.trim().parse::<u32>() else { continue };
        let count = match word {
            "passed" | "xpassed" => &mut last.passed,
            "failed" | "error" | "errors" => &mut last.failed,
            "skipped" | "xfailed" => &mut last.skipped,
            _ => continue,
        };
        *count = count.saturating_add(number);
        known = true;
    }
    (known || counts == "no tests ran").then_some(last)
}
