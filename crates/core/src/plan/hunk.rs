//! Unified-diff hunks: what an edit looks like when it points at lines instead of repeating them.
//!
//! Models count badly, so the numbers in a header only say where to look first: the context and
//! removed lines must really be there, and the edit stays within the lines that it named.
//!
//! Invariant: what is applied has matched the file line by line, at one place only.

use crate::limits;

/// One `@@` section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// The index of the first old line, from 0, as the header says; None for a bare `@@`.
    at: Option<usize>,
    lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    kind: LineKind,
    text: String,
    /// False after `\ No newline at end of file`.
    newline: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineKind {
    Kept,
    Removed,
    Added,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    #[error("the diff has no hunk: it must begin with @@")]
    NoHunk,
    #[error("line {line} of the diff starts with none of ' ', '-', '+'")]
    BadLine { line: usize },
    #[error("line {line} of the diff is not a hunk header such as @@ -3,2 +3,4 @@")]
    BadHeader { line: usize },
    #[error("the lines {first}-{last} are not a range: it starts at 1 and does not run backwards")]
    BadRange { first: u32, last: u32 },
    #[error("the lines {first}-{last} are not in the file, which has {lines}")]
    OutOfFile { first: u32, last: u32, lines: usize },
    #[error("hunk {hunk} does not say what to add or remove at which place")]
    NoPlace { hunk: usize },
    #[error("hunk {hunk} does not match the lines {first}-{last} of the file")]
    NotThere { hunk: usize, first: u32, last: u32 },
    #[error("hunk {hunk} matches several places in the lines {first}-{last}")]
    Ambiguous { hunk: usize, first: u32, last: u32 },
    #[error("hunk {hunk} overlaps the one before it")]
    Overlap { hunk: usize },
}

/// Reads the hunks of a diff. File headers before the first `@@` are skipped.
pub fn parse(diff: &str) -> Result<Vec<Hunk>, Misfit> {
    let mut hunks: Vec<Hunk> = Vec::new();
    for (index, text) in diff.split_inclusive('\n').enumerate() {
        let line = index + 1;
        let text = text.strip_suffix('\n').unwrap_or(text);
        if text.starts_with("@@") {
            hunks.push(header(text).ok_or(Misfit::BadHeader { line })?);
            continue;
        }
        let Some(hunk) = hunks.last_mut() else {
            if text.starts_with("--- ") || text.starts_with("+++ ") || text.is_empty() {
                continue;
            }
            return Err(Misfit::NoHunk);
        };
        if text.starts_with('\\') {
            let last = hunk.lines.last_mut().ok_or(Misfit::BadLine { line })?;
            last.newline = false;
            continue;
        }
        let kind = match text.as_bytes().first() {
            // Editors strip the blank of an empty context line.
            Some(b' ') | None => LineKind::Kept,
            Some(b'-') => LineKind::Removed,
            Some(b'+') => LineKind::Added,
            Some(_) => return Err(Misfit::BadLine { line }),
        };
        let text = text.get(1..).unwrap_or("").to_owned();
        hunk.lines.push(Line { kind, text, newline: true });
    }
    if hunks.is_empty() { Err(Misfit::NoHunk) } else { Ok(hunks) }
}

/// `@@ -12,3 +12,4 @@ anything`, or `@@` without numbers.
fn header(text: &str) -> Option<Hunk> {
    let inner = text.strip_prefix("@@")?;
    let Some(old) = inner.trim_start().strip_prefix('-') else {
        let bare = inner.trim().trim_end_matches("@@").trim();
        return bare.is_empty().then_some(Hunk { at: None, lines: Vec::new() });
    };
    let old = old.split(' ').next()?;
    let (start, count) = old.split_once(',').unwrap_or((old, "1"));
    let start: usize = start.parse().ok()?;
    let count: usize = count.parse().ok()?;
    // `-12,0` stands between the lines 12 and 13; else the first line is number `start`.
    let at = if count == 0 { start } else { start.saturating_sub(1) };
    Some(Hunk { at: Some(at), lines: Vec::new() })
}

/// Applies a diff to a file, within the lines `first..=last` (from 1) of it.
pub fn apply(content: &str, [first, last]: [u32; 2], diff: &str) -> Result<String, Misfit> {
    let hunks = parse(diff)?;
    let file: Vec<&str> = content.split_inclusive('\n').collect();
    if first == 0 || first > last {
        return Err(Misfit::BadRange { first, last });
    }
    if last as usize > file.len().max(1) {
        return Err(Misfit::OutOfFile { first, last, lines: file.len() });
    }
    let range = (first as usize - 1, (last as usize).min(file.len()));
    let mut out = Text::default();
    let mut copied = 0;
    for (index, hunk) in hunks.iter().enumerate() {
        let at = place(&file, hunk, range).map_err(|lost| lost.named(index + 1, first, last))?;
        if at < copied {
            return Err(Misfit::Overlap { hunk: index + 1 });
        }
        file[copied..at].iter().for_each(|line| out.push(line));
        copied = at;
        for line in &hunk.lines {
            match line.kind {
                LineKind::Kept => out.push(file[copied]),
                LineKind::Removed => {}
                LineKind::Added => out.push_line(line),
            }
            copied += usize::from(line.kind != LineKind::Added);
        }
    }
    file[copied..].iter().for_each(|line| out.push(line));
    Ok(out.0)
}

/// Text that grows by whole lines: what follows a line without an end does not run into it.
#[derive(Default)]
struct Text(String);

impl Text {
    fn push(&mut self, line: &str) {
        if !self.0.is_empty() && !self.0.ends_with('\n') {
            self.0.push('\n');
        }
        self.0.push_str(line);
    }

    fn push_line(&mut self, line: &Line) {
        self.push(&line.text);
        // An empty line without an end is nothing at all.
        if line.newline {
            self.0.push('\n');
        }
    }
}

enum Lost {
    NoPlace,
    NotThere,
    Ambiguous,
}

impl Lost {
    fn named(self, hunk: usize, first: u32, last: u32) -> Misfit {
        match self {
            Lost::NoPlace => Misfit::NoPlace { hunk },
            Lost::NotThere => Misfit::NotThere { hunk, first, last },
            Lost::Ambiguous => Misfit::Ambiguous { hunk, first, last },
        }
    }
}

/// The index of the line before which the hunk begins.
fn place(file: &[&str], hunk: &Hunk, (from, to): (usize, usize)) -> Result<usize, Lost> {
    let old: Vec<&Line> = hunk.lines.iter().filter(|line| line.kind != LineKind::Added).collect();
    let inside = |at: usize| at >= from && at + old.len() <= to;
    let fits = |at: usize| {
        inside(at) && old.iter().zip(&file[at..]).all(|(line, found)| line.text == bare(found))
    };
    match hunk.at {
        _ if hunk.lines.is_empty() => return Err(Lost::NoPlace),
        Some(at) if fits(at) => return Ok(at),
        None if old.is_empty() => return Err(Lost::NoPlace),
        Some(_) if old.is_empty() => return Err(Lost::NotThere),
        Some(_) | None => {}
    }
    if to - from > limits::HUNK_SEARCH_LINES_MAX {
        return Err(Lost::NotThere);
    }
    let mut places = (from..to).filter(|at| fits(*at));
    match (places.next(), places.next()) {
        (Some(at), None) => Ok(at),
        (Some(_), Some(_)) => Err(Lost::Ambiguous),
        (None, _) => Err(Lost::NotThere),
    }
}

fn bare(line: &str) -> &str {
    line.strip_suffix('\n').unwrap_or(line)
}

/// The one hunk that leads from one text to the other, and the lines of `before` that it is in.
#[must_use]
pub fn between(before: &str, after: &str) -> ([u32; 2], String) {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let new: Vec<&str> = after.split_inclusive('\n').collect();
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (&old[same..], &new[same..]);
    let tail = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let removed = &old_rest[..old_rest.len() - tail];
    let added = &new_rest[..new_rest.len() - tail];
    let start = |count: usize| if count == 0 { same } else { same + 1 };
    let mut diff = format!(
        "@@ -{},{} +{},{} @@\n",
        start(removed.len()),
        removed.len(),
        start(added.len()),
        added.len()
    );
    for (sign, lines) in [('-', removed), ('+', added)] {
        for line in lines {
            diff.push(sign);
            diff.push_str(line);
            if !line.ends_with('\n') {
                diff.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    let first = (same + 1).min(old.len()).max(1);
    let last = (same + removed.len()).max(first);
    ([first as u32, last as u32], diff)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "one\ntwo\nthree\nfour\nfive\n";

    fn edit(range: [u32; 2], diff: &str) -> Result<String, String> {
        apply(FILE, range, diff).map_err(|misfit| misfit.to_string())
    }

    #[test]
    fn lines_are_replaced_where_the_header_says() {
        let diff = "@@ -2,2 +2,2 @@\n two\n-three\n+THREE\n+3\n";
        assert_eq!(edit([2, 3], diff).unwrap(), "one\ntwo\nTHREE\n3\nfour\nfive\n");
    }

    /// The sources' own example has no context and a count that is wrong.
    #[test]
    fn an_addition_without_context_goes_before_the_line_of_the_header() {
        let diff = "@@ -4,5 +4,8 @@\n+    validate_path(file_path)\n";
        let expected = "one\ntwo\nthree\n    validate_path(file_path)\nfour\nfive\n";
        assert_eq!(edit([4, 5], diff).unwrap(), expected);
        let behind = "@@ -5,0 +6,1 @@\n+six\n";
        assert_eq!(edit([5, 5], behind).unwrap(), "one\ntwo\nthree\nfour\nfive\nsix\n");
    }

    /// Models count lines badly; the lines themselves say where the edit belongs.
    #[test]
    fn a_hunk_that_is_off_by_a_few_is_found_within_its_range() {
        let diff = "@@ -1,1 +1,1 @@\n-four\n+FOUR\n";
        assert_eq!(edit([2, 5], diff).unwrap(), "one\ntwo\nthree\nFOUR\nfive\n");
        assert_eq!(edit([2, 5], "@@\n-four\n+FOUR").unwrap(), "one\ntwo\nthree\nFOUR\nfive\n");
        let outside = edit([1, 2], diff).unwrap_err();
        assert_eq!(outside, "hunk 1 does not match the lines 1-2 of the file");
    }

    /// The planner said which lines it would touch; others may be somebody else's by now.
    #[test]
    fn an_edit_stays_within_its_lines_even_where_it_would_fit() {
        let removal = edit([1, 3], "@@ -4 +4 @@\n-four\n").unwrap_err();
        assert_eq!(removal, "hunk 1 does not match the lines 1-3 of the file");
        let addition = edit([1, 3], "@@ -5,0 +6 @@\n+six\n").unwrap_err();
        assert_eq!(addition, "hunk 1 does not match the lines 1-3 of the file");
    }

    #[test]
    fn several_hunks_apply_to_the_original_lines() {
        let diff = "--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n-one\n+1\n+1.5\n@@ -5 +6 @@\n-five\n+5\n";
        assert_eq!(edit([1, 5], diff).unwrap(), "1\n1.5\ntwo\nthree\nfour\n5\n");
        let twice = "@@ -2 +2 @@\n-two\n+2\n@@ -1 +1 @@\n-one\n+1\n";
        assert_eq!(edit([1, 5], twice).unwrap_err(), "hunk 2 overlaps the one before it");
    }

    #[test]
    fn the_missing_newline_at_the_end_is_kept_or_given_as_the_diff_says() {
        let end = |content, diff| apply(content, [1, 1], diff).unwrap();
        assert_eq!(end("a", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n"), "b\n");
        assert_eq!(end("a\n", "@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n"), "b");
        assert_eq!(end("a", "@@ -1 +1,2 @@\n a\n+b\n"), "a\nb\n");
        assert_eq!(end("", "@@ -0,0 +1 @@\n+b\n"), "b\n");
        assert_eq!(end("a\r\n", "@@ -1 +1 @@\n-a\r\n+b\r\n"), "b\r\n");
    }

    /// Each way in which a diff cannot be applied says which one it is: the author is a program.
    #[test]
    fn what_cannot_be_applied_is_refused() {
        let refusals = [
            ([1, 5], "+one", "the diff has no hunk: it must begin with @@"),
            ([1, 5], "", "the diff has no hunk: it must begin with @@"),
            ([1, 5], "@@ -1 +1 @@\n*one\n", "line 2 of the diff starts with none of ' ', '-', '+'"),
            (
                [1, 5],
                "@@ x @@\n",
                "line 1 of the diff is not a hunk header such as @@ -3,2 +3,4 @@",
            ),
            (
                [0, 5],
                "@@\n-one\n",
                "the lines 0-5 are not a range: it starts at 1 and does not run backwards",
            ),
            (
                [3, 2],
                "@@\n-one\n",
                "the lines 3-2 are not a range: it starts at 1 and does not run backwards",
            ),
            ([1, 6], "@@\n-one\n", "the lines 1-6 are not in the file, which has 5"),
            ([1, 5], "@@\n+six\n", "hunk 1 does not say what to add or remove at which place"),
            ([1, 5], "@@ -1 +1 @@\n", "hunk 1 does not say what to add or remove at which place"),
            ([1, 5], "@@\n-six\n", "hunk 1 does not match the lines 1-5 of the file"),
        ];
        for (range, diff, expected) in refusals {
            assert_eq!(edit(range, diff).unwrap_err(), expected, "{diff:?}");
        }
        let twins = apply("a\na\n", [1, 2], "@@\n-a\n").unwrap_err();
        assert_eq!(twins, Misfit::Ambiguous { hunk: 1, first: 1, last: 2 });
    }
}
