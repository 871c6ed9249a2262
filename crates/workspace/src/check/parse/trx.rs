//! Visual Studio test results: `<UnitTestResult testName outcome duration>`.

use kapelle_core::outcome::{Ended, Outcome};

use super::xml::{self, Attributes, Visit};
use super::{Unreadable, add_time, text, with_tests};

pub fn parse(bytes: &[u8]) -> Result<Outcome, Unreadable> {
    let mut report = Report::default();
    xml::read(bytes, &["TestRun"], "a TRX report", &mut report)?;
    with_tests(report.outcome, "test result")
}

#[derive(Default)]
struct Report {
    outcome: Outcome,
    result: Option<(String, Ended, Option<u64>)>,
    /// A trouble of the run itself, not of a test.
    trouble: bool,
    message: String,
    telling: bool,
}

impl Visit for Report {
    fn open(&mut self, name: &str, attributes: &Attributes<'_>) {
        match name {
            "UnitTestResult" => {
                let test = attributes.get("testName").unwrap_or_default();
                let ended = match attributes.get("outcome").as_deref() {
                    Some("Passed" | "PassedButRunAborted" | "Warning") => Ended::Passed,
                    Some("NotExecuted" | "NotRunnable" | "Inconclusive" | "Pending") => {
                        Ended::Skipped
                    }
                    // Failed, Error, Timeout, Aborted, Disconnected, and what is to come.
                    _ => Ended::Failed,
                };
                let duration = attributes.get("duration").as_deref().and_then(clock_ms);
                self.result = Some((test, ended, duration));
                self.message.clear();
            }
            "RunInfo" => {
                self.trouble = attributes.get("outcome").as_deref() == Some("Error");
                self.message.clear();
            }
            "Message" if self.result.is_some() => self.telling = true,
            "Text" if self.trouble => self.telling = true,
            _ => {}
        }
    }

    fn text(&mut self, piece: &str) {
        if self.telling {
            text::append(&mut self.message, piece);
        }
    }

    fn close(&mut self, name: &str) {
        match name {
            "Message" | "Text" => self.telling = false,
            "UnitTestResult" => {
                if let Some((test, ended, duration)) = self.result.take() {
                    add_time(&mut self.outcome, duration);
                    self.outcome.record(&test, ended, duration, &self.message);
                }
            }
            "RunInfo" if self.trouble => {
                self.trouble = false;
                self.outcome.break_off("test run", &self.message);
            }
            _ => {}
        }
    }
}

/// `00:00:01.2345678` in milliseconds.
fn clock_ms(clock: &str) -> Option<u64> {
    let mut parts = clock.trim().splitn(3, ':');
    let hours: u32 = parts.next()?.parse().ok()?;
    let minutes: u32 = parts.next()?.parse().ok()?;
    let seconds: f64 = parts.next()?.parse().ok()?;
    let whole = text::millis(seconds)?;
    Some(whole.saturating_add((u64::from(hours) * 60 + u64::from(minutes)) * 60_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_clocks() {
        assert_eq!(clock_ms("00:01:01.2345678"), Some(61_235));
        assert_eq!((clock_ms("1.5"), clock_ms("a:b:c"), clock_ms("-1:00:00")), (None, None, None));
    }
}
