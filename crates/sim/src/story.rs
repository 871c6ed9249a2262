//! What happened, in lines that a person can read.

use std::collections::VecDeque;

use kapelle_core::activity::{self, Line};
use kapelle_core::{Command, Record, State, Timestamp};

/// How much of a story a failure shows.
const LINES_SHOWN_MAX: usize = 40;
/// A line longer than this is a plan or a policy; nobody reads it whole.
const LINE_CHARS_MAX: usize = 220;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Telling {
    /// Formatting costs more than simulating; sweeps tell nothing and run a failed seed again.
    Nothing,
    TheEnd,
    Everything,
}

#[derive(Debug)]
pub(crate) struct Story {
    telling: Telling,
    lines: VecDeque<String>,
}

impl Story {
    pub(crate) fn new(telling: Telling) -> Story {
        Story { telling, lines: VecDeque::new() }
    }

    pub(crate) fn tell(&mut self, now: Timestamp, line: impl FnOnce() -> String) {
        if self.telling == Telling::Nothing {
            return;
        }
        let line = format!("{:>9.3}s  {}", now.0 as f64 / 1_000.0, line());
        self.lines.push_back(line.chars().take(LINE_CHARS_MAX).collect());
        if self.telling == Telling::TheEnd && self.lines.len() > LINES_SHOWN_MAX {
            self.lines.pop_front();
        }
    }

    /// One turn, in the light of the state after it.
    pub(crate) fn turn(
        &mut self,
        now: Timestamp,
        inputs: &[Command],
        records: &[Record],
        state: &State,
    ) {
        for input in inputs {
            self.tell(now, || format!("> {input:?}"));
        }
        for Record { seq, event, .. } in records {
            self.tell(now, || match activity::line(state, event) {
                Some(line) => format!("  {:>4} {}", seq.0, sentence(&line)),
                // What nobody would want to hear of may still be the cause.
                None => format!("  {:>4} ({event:?})", seq.0),
            });
        }
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.into()
    }
}

/// As `kapelle log` has it: whose, by whom and what. Tasks of two missions may have one name.
fn sentence(Line { actor, text, mission, .. }: &Line) -> String {
    match mission {
        Some(mission) => format!("{mission} {actor}: {text}"),
        None => format!("{actor}: {text}"),
    }
}
