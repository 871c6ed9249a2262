//! The lines that a tree adds to its base.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use kapelle_core::Commit;

use super::{OVERLAP_BYTES, PIECE_BYTES_MAX};
use crate::git::{self, Git, args};

/// In a change that is too large to be looked at in one go, a file beyond this was made by a
/// program, and is left out.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// What of the change is looked at in one go; git's answers are bounded.
const PART_BYTES_MAX: u64 = 16 << 20;
const PART_FILES_MAX: usize = 200;

/// Paths that are looked at together.
pub type Part = Vec<OsString>;

/// The added and changed files in parts of a bounded size.
pub async fn parts(git: &Git, base: &Commit, tree: &str) -> Result<Vec<Part>, git::Error> {
    // Blobs of the new tree with their sizes, and of them those that differ.
    let sizes = git.run(args!["ls-tree", "-r", "-l", "-z", tree]).await?;
    let asked = args![
        "diff-tree",
        "-r",
        "-z",
        "--name-only",
        "--no-renames",
        "--diff-filter=AMT",
        base.as_str(),
        tree
    ];
    let changed = git.run(asked).await?;
    let entries = sizes.stdout.split(|byte| *byte == 0).filter_map(entry);
    let sizes: std::collections::BTreeMap<&[u8], u64> = entries.collect();
    let (mut parts, mut part, mut bytes) = (Vec::new(), Part::new(), 0);
    for path in changed.stdout.split(|byte| *byte == 0).filter(|path| !path.is_empty()) {
        let size = sizes.get(path).copied().unwrap_or_default();
        if size > FILE_BYTES_MAX {
            continue;
        }
        if bytes + size > PART_BYTES_MAX || part.len() >= PART_FILES_MAX {
            parts.push(std::mem::take(&mut part));
            bytes = 0;
        }
        part.push(OsString::from_vec(path.to_vec()));
        bytes += size;
    }
    parts.push(part);
    parts.retain(|part| !part.is_empty());
    Ok(parts)
}

/// `mode type name size<tab>path`
fn entry(entry: &[u8]) -> Option<(&[u8], u64)> {
    let tab = entry.iter().position(|byte| *byte == b'\t')?;
    let fields = std::str::from_utf8(&entry[..tab]).ok()?;
    Some((&entry[tab + 1..], fields.split_whitespace().last()?.parse().ok()?))
}

/// The difference of some paths, or of all, as text; also of files that their attributes call binary: an agent can write
/// attributes.
pub async fn text(
    git: &Git,
    base: &Commit,
    tree: &str,
    part: &[OsString],
) -> Result<Vec<u8>, git::Error> {
    let mut asked = args![
        "--literal-pathspecs",
        "-c",
        "core.quotePath=false",
        "diff-tree",
        "-r",
        "-p",
        "-U0",
        "--text",
        "--no-renames",
        "--no-ext-diff",
        "--no-textconv",
        "--no-color",
        "--no-indent-heuristic",
        "--diff-filter=AMT",
        "--src-prefix=a/",
        "--dst-prefix=b/",
        base.as_str(),
        tree,
        "--"
    ];
    asked.extend(part.iter().cloned());
    Ok(git.run(asked).await?.stdout)
}

/// Shows every added line of a difference without context: path, number, text. The counts of each hunk say what is content,
/// so that content which looks like a heading is not taken for one.
pub fn each_added(diff: &[u8], mut show: impl FnMut(&str, u64, &str)) {
    let (mut path, mut line) = (String::new(), 0_u64);
    let (mut old_left, mut new_left) = (0_u64, 0_u64);
    for raw in diff.split(|byte| *byte == b'\n') {
        match raw.first() {
            Some(b'-') if old_left > 0 => old_left -= 1,
            Some(b'+') if new_left > 0 => {
                new_left -= 1;
                // Every second byte of what was written as UTF-16 is zero.
                let text: Cow<'_, [u8]> = match raw.contains(&0) {
                    true => raw[1..].iter().copied().filter(|byte| *byte != 0).collect(),
                    false => Cow::Borrowed(&raw[1..]),
                };
                for piece in pieces(&text) {
                    show(&path, line, &String::from_utf8_lossy(piece));
                }
                line += 1;
            }
            _ => {
                let text = String::from_utf8_lossy(raw);
                if let Some(name) = text.strip_prefix("+++ ") {
                    path = name_of(name);
                } else if let Some(hunk) = text.strip_prefix("@@ ") {
                    (old_left, line, new_left) = counts(hunk).unwrap_or_default();
                }
            }
        }
    }
}

fn pieces(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let last = line.len().saturating_sub(OVERLAP_BYTES).max(1);
    let starts = (0..last).step_by(PIECE_BYTES_MAX - OVERLAP_BYTES);
    starts.map(|start| &line[start..line.len().min(start + PIECE_BYTES_MAX)])
}

/// `b/src/a.rs`, and in quotes where the path has characters that a terminal would not like.
fn name_of(name: &str) -> String {
    let name = name.trim_end_matches('\t');
    let name = name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(name);
    name.strip_prefix("b/").unwrap_or(name).to_owned()
}

/// `-a,b +c,d @@`: how many old lines, the first new line, how many new lines.
fn counts(hunk: &str) -> Option<(u64, u64, u64)> {
    let mut words = hunk.split(' ');
    let old = range(words.next()?.strip_prefix('-')?)?;
    let new = range(words.next()?.strip_prefix('+')?)?;
    Some((old.1, new.0, new.1))
}

fn range(text: &str) -> Option<(u64, u64)> {
    match text.split_once(',') {
        Some((first, count)) => Some((first.parse().ok()?, count.parse().ok()?)),
        None => Some((text.parse().ok()?, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A minified file is one line. What is in the middle of it is found, also where it is cut.
    #[test]
    fn all_of_a_long_line_is_looked_at() {
        for at in [PIECE_BYTES_MAX - 3, PIECE_BYTES_MAX + 5, 3 * PIECE_BYTES_MAX, 300_000] {
            let line = [vec![b'a'; at], b"needle".to_vec(), vec![b'b'; 99_000]].concat();
            let diff = [b"+++ b/min.js\n@@ -0,0 +1 @@\n+".to_vec(), line, b"\n".to_vec()].concat();
            let mut seen = 0;
            each_added(&diff, |_, line, text| {
                seen += usize::from(line == 1 && text.contains("needle"))
            });
            assert!(seen >= 1, "at {at}");
        }
        let wide = b"+++ b/wide\n@@ -0,0 +1 @@\n+n\0e\0e\0d\0l\0e\0\n";
        let mut seen = String::new();
        each_added(wide, |_, _, text| seen = text.to_owned());
        assert_eq!(seen, "needle");
        assert_eq!(pieces(b"").count(), 1);
        assert_eq!(pieces(b"short").collect::<Vec<_>>(), [b"short"]);
    }

    /// An added line may look like a heading of a difference.
    #[test]
    fn content_is_not_taken_for_a_heading() {
        let diff = b"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1,2 @@\n--- b/x\n+++ b/fake\n+two\n\
            \\ No newline at end of file\n@@ -5,0 +7 @@\n+seven\ndiff --git a/b b/b\n+++ \"b/t\\tb\"\n@@ -0,0 +1 @@\n+one\n";
        let mut found = Vec::new();
        each_added(diff, |path, line, text| found.push((path.to_owned(), line, text.to_owned())));
        let line = |path: &str, line, text: &str| (path.to_owned(), line, text.to_owned());
        let expected = [
            line("a", 1, "++ b/fake"),
            line("a", 2, "two"),
            line("a", 7, "seven"),
            line("t\\tb", 1, "one"),
        ];
        assert_eq!(found, expected);
    }
}
