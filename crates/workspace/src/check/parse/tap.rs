//! The Test Anything Protocol, versions 12 to 14, with subtests by indentation.

use kapelle_core::limits;
use kapelle_core::outcome::{Ended, Outcome};

use super::{Unreadable, text, with_tests};

const INDENT: usize = 4;

/// Deeper subtests are taken for ones of this depth.
const DEPTH_MAX: usize = 20;

pub fn parse(bytes: &[u8]) -> Result<Outcome, Unreadable> {
    let mut reader = Reader { levels: vec![Level::default()], ..Reader::default() };
    for line in text::lines(bytes) {
        reader.line(&line);
    }
    reader.finish()
}

#[derive(Default)]
struct Reader {
    outcome: Outcome,
    /// The tests around the current line, outermost first.
    levels: Vec<Level>,
    /// The last test, whose details may follow.
    last: Option<Point>,
    in_details: bool,
    has_plan: bool,
}

#[derive(Default)]
struct Level {
    subtest: String,
    planned: Option<u64>,
    seen: u64,
    failed: u64,
}

struct Point {
    name: String,
    ended: Ended,
    duration_ms: Option<u64>,
    message: String,
}

impl Reader {
    fn line(&mut self, line: &str) {
        let body = line.trim_start();
        if self.in_details {
            match body {
                "..." => self.in_details = false,
                _ => self.detail(body),
            }
            return;
        }
        let depth = ((line.len() - body.len()) / INDENT).min(DEPTH_MAX);
        if body.starts_with("---") {
            self.in_details = true;
        } else if let Some(reason) = body.strip_prefix("Bail out!") {
            self.settle();
            self.outcome.break_off("Bail out!", reason);
        } else if let Some(name) = body.strip_prefix("# Subtest: ") {
            self.settle();
            self.reach(depth);
            self.levels[depth].subtest = unescaped(name);
        } else if let Some(rest) = after_word(body, "not ok") {
            self.point(depth, rest, false);
        } else if let Some(rest) = after_word(body, "ok") {
            self.point(depth, rest, true);
        } else if let Some(planned) = plan(body) {
            self.settle();
            self.has_plan = true;
            self.reach(depth);
            self.levels[depth].planned = Some(planned);
        }
    }

    /// Goes down to a depth. Going up happens when the parent's own line comes.
    fn reach(&mut self, depth: usize) {
        while self.levels.len() <= depth {
            self.levels.push(Level::default());
        }
    }

    fn point(&mut self, depth: usize, rest: &str, ok: bool) {
        self.settle();
        self.reach(depth);
        let children = self.leave(depth + 1);
        let (name, directive) = described(rest);
        let ended = match (directive, ok) {
            (Directive::Skip | Directive::Todo, _) => Ended::Skipped,
            (Directive::None, true) => Ended::Passed,
            (Directive::None, false) => Ended::Failed,
        };
        let level = &mut self.levels[depth];
        level.seen += 1;
        level.failed += u64::from(ended == Ended::Failed);
        let name = if name.is_empty() { format!("test {}", level.seen) } else { name };
        // The line of a parent repeats what its children said.
        let repeats = match children {
            Some(failed) => ended != Ended::Failed || failed > 0,
            None => false,
        };
        if !repeats {
            let around = self.levels[..depth].iter().map(|level| level.subtest.as_str());
            let mut path: Vec<&str> = around.filter(|name| !name.is_empty()).collect();
            path.push(&name);
            let name = path.join(" > ");
            self.last = Some(Point { name, ended, duration_ms: None, message: String::new() });
        }
    }

    /// Closes the levels from `depth` on; how many failed there, if there were any.
    fn leave(&mut self, depth: usize) -> Option<u64> {
        let left: Vec<Level> = self.levels.drain(depth.min(self.levels.len())..).collect();
        for level in &left {
            self.check_plan(level);
        }
        left.first().filter(|level| level.seen > 0).map(|level| level.failed)
    }

    fn check_plan(&mut self, level: &Level) {
        if let Some(planned) = level.planned.filter(|planned| *planned != level.seen) {
            let message = format!("{planned} tests were planned, {} ran", level.seen);
            self.outcome.break_off("plan", &message);
        }
    }

    fn detail(&mut self, line: &str) {
        let Some(point) = &mut self.last else { return };
        let Some((key, value)) = line.split_once(':') else { return };
        let value = unquoted(value.trim());
        match key {
            "duration_ms" => {
                let ms = value.parse().ok().and_then(|ms: f64| text::millis(ms / 1_000.0));
                point.duration_ms = point.duration_ms.or(ms);
            }
            "error" | "message" if point.message.is_empty() => {
                point.message = limits::head(value, limits::TEST_MESSAGE_CHARS_MAX).to_owned();
            }
            _ => {}
        }
    }

    fn settle(&mut self) {
        if let Some(point) = self.last.take() {
            self.outcome.record(&point.name, point.ended, point.duration_ms, &point.message);
        }
    }

    fn finish(mut self) -> Result<Outcome, Unreadable> {
        self.settle();
        self.leave(0);
        if !self.has_plan && self.outcome.counts.total() > 0 {
            self.outcome.break_off("plan", "there is no plan, so the run may have been cut short");
        }
        // `1..0` is a run that had nothing to do, and says so.
        if self.has_plan && self.outcome.counts.total() == 0 {
            return Ok(self.outcome);
        }
        with_tests(self.outcome, "line of the Test Anything Protocol")
    }
}

enum Directive {
    None,
    Skip,
    Todo,
}

/// The rest of a line behind a word that stands alone.
fn after_word<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    line.strip_prefix(word).filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '-']))
}

/// The description of a test without its number, and its directive.
fn described(rest: &str) -> (String, Directive) {
    let rest = rest.trim_start().trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
    let rest = rest.strip_prefix("- ").unwrap_or(rest);
    let at = rest.char_indices().find(|(at, c)| *c == '#' && !rest[..*at].ends_with('\\'));
    let (name, directive) = match at {
        Some((at, _)) => (&rest[..at], rest[at + 1..].trim_start().to_ascii_lowercase()),
        None => (rest, String::new()),
    };
    let directive = match () {
        () if directive.starts_with("skip") => Directive::Skip,
        () if directive.starts_with("todo") => Directive::Todo,
        () => return (unescaped(rest), Directive::None),
    };
    (unescaped(name), directive)
}

fn unquoted(value: &str) -> &str {
    let inner = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    inner('\'').or_else(|| inner('"')).unwrap_or(value)
}

fn unescaped(name: &str) -> String {
    name.trim().replace("\\#", "#").replace("\\\\", "\\")
}

fn plan(line: &str) -> Option<u64> {
    let count = line.strip_prefix("1..")?;
    count.split_whitespace().next()?.parse().ok()
}
