//! Finding and reading the reports that a check wrote.
//!
//! The tree belongs to whoever wrote the change: links are not followed, sizes and numbers are
//! bounded, and a report that was there before the check ran is not one.

use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use kapelle_core::glob;
use kapelle_core::outcome::Outcome;
use kapelle_core::policy::{Parser, Reading};
use nix::fcntl::OFlag;

use crate::process::LOG_BYTES_MAX;
use crate::worktree::aside;

use super::parse::{self, REPORT_BYTES_MAX, Unreadable};

/// A build with many modules writes a report for each class of tests.
const REPORTS_MAX: usize = 5_000;

/// All reports of one check together.
const TOTAL_BYTES_MAX: usize = 64 << 20;

/// Files and folders that are looked at in search of reports.
const ENTRIES_MAX: usize = 500_000;

#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("the check wrote no report {pattern}")]
    Missing { pattern: String },
    #[error(
        "{path} is part of the commit; a report has to be written by the check, so take it out \
         and have git ignore it"
    )]
    Committed { path: String },
    #[error("the report {path} cannot be used: {why}")]
    Unreadable { path: String, why: Unreadable },
    #[error("the output cannot be used as a report: {why}")]
    Output { why: Unreadable },
    #[error("the output was cut in the middle; have the check write its report to a file")]
    Cut,
    #[error("more than {limit} {what} match {pattern}")]
    TooMany { pattern: String, what: &'static str, limit: usize },
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
}

/// A report that is there although nothing ran yet.
pub(super) async fn find_early(tree: &Path, reading: &Reading) -> Option<Trouble> {
    let patterns: Vec<String> = reading.report.iter().chain(&reading.coverage).cloned().collect();
    let tree = tree.to_owned();
    aside(move || {
        for pattern in patterns {
            match find(&tree, &pattern) {
                Ok(found) => {
                    if let Some(path) = found.into_iter().next() {
                        return Some(Trouble::Committed { path });
                    }
                }
                Err(trouble) => return Some(trouble),
            }
        }
        None
    })
    .await
}

/// What the reports of a check say, joined; without a report, what its output says.
pub(super) async fn read(tree: &Path, log: &Path, reading: &Reading) -> Result<Outcome, Trouble> {
    let (tree, log, reading) = (tree.to_owned(), log.to_owned(), reading.clone());
    aside(move || {
        let mut outcome = match &reading.report {
            Some(pattern) => read_all(&tree, pattern, |bytes| parse::parse(reading.parser, bytes))?,
            None => read_output(&log, reading.parser)?,
        };
        if let Some(pattern) = &reading.coverage {
            outcome.join(read_all(&tree, pattern, parse::coverage)?);
        }
        Ok(outcome)
    })
    .await
}

fn read_output(log: &Path, parser: Parser) -> Result<Outcome, Trouble> {
    if parser == Parser::ExitCode {
        return Ok(Outcome::default());
    }
    let bytes = open(log).map_err(|source| Trouble::File { path: log.to_owned(), source })?;
    // A cut log is longer than the largest that is not, by the note that says so.
    if bytes.len() > LOG_BYTES_MAX {
        return Err(Trouble::Cut);
    }
    parse::parse(parser, &bytes).map_err(|why| Trouble::Output { why })
}

fn read_all(
    tree: &Path,
    pattern: &str,
    parse: impl Fn(&[u8]) -> Result<Outcome, Unreadable>,
) -> Result<Outcome, Trouble> {
    let mut joined: Option<Outcome> = None;
    let mut total = 0_usize;
    for path in find(tree, pattern)? {
        let place = tree.join(&path);
        let bytes = open(&place).map_err(|source| Trouble::File { path: place, source })?;
        total = total.saturating_add(bytes.len());
        if total > TOTAL_BYTES_MAX {
            let (pattern, limit) = (pattern.to_owned(), TOTAL_BYTES_MAX);
            return Err(Trouble::TooMany { pattern, what: "bytes in files that", limit });
        }
        let outcome = parse(&bytes).map_err(|why| Trouble::Unreadable { path, why })?;
        match &mut joined {
            Some(joined) => joined.join(outcome),
            None => joined = Some(outcome),
        }
    }
    joined.ok_or_else(|| Trouble::Missing { pattern: pattern.to_owned() })
}

/// The plain files that match a pattern, sorted.
fn find(tree: &Path, pattern: &str) -> Result<Vec<String>, Trouble> {
    let fixed: Vec<&str> =
        pattern.split('/').take_while(|part| !part.contains(['*', '?'])).collect();
    if fixed.len() == pattern.split('/').count() {
        let is_there = is_plain(tree, &fixed).is_some_and(|known| !known.is_dir());
        return Ok(if is_there { vec![pattern.to_owned()] } else { Vec::new() });
    }
    let top = fixed.join("/");
    if !fixed.is_empty() && is_plain(tree, &fixed).is_none_or(|known| !known.is_dir()) {
        return Ok(Vec::new());
    }
    let (mut found, mut entries, mut folders) = (Vec::new(), 0_usize, vec![top]);
    let too_many = |what, limit| Trouble::TooMany { pattern: pattern.to_owned(), what, limit };
    while let Some(folder) = folders.pop() {
        // A folder that cannot be read holds no report that could be.
        let Ok(listed) = std::fs::read_dir(tree.join(&folder)) else { continue };
        for entry in listed.flatten() {
            entries += 1;
            if entries > ENTRIES_MAX {
                return Err(too_many(
                    "files had to be looked at before it was known which",
                    ENTRIES_MAX,
                ));
            }
            let (Ok(kind), Some(name)) =
                (entry.file_type(), entry.file_name().to_str().map(str::to_owned))
            else {
                continue;
            };
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if kind.is_dir() && name != ".git" {
                folders.push(path);
            } else if kind.is_file() && glob::matches(pattern, &path) {
                found.push(path);
            }
        }
        if found.len() > REPORTS_MAX {
            return Err(too_many("files", REPORTS_MAX));
        }
    }
    found.sort();
    Ok(found)
}

/// What lies at a path that has no link in it.
fn is_plain(tree: &Path, parts: &[&str]) -> Option<std::fs::Metadata> {
    let mut place = tree.to_owned();
    let mut known = None;
    for part in parts {
        place.push(part);
        let found = place.symlink_metadata().ok()?;
        if found.is_symlink() {
            return None;
        }
        known = Some(found);
    }
    known
}

fn open(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut options = std::fs::OpenOptions::new();
    // Not blocking: the check may have left a pipe where its report should be.
    options.read(true).custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits());
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a plain file"));
    }
    let mut bytes = Vec::new();
    // One more than the limit, so that the parser sees that it is too large.
    file.take(REPORT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
