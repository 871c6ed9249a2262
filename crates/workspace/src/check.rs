//! Checks: a command that must pass, on exactly one commit.
//!
//! Invariants: a check sees the files of its commit and nothing that was left lying about; it
//! runs behind the same walls as an agent, because it runs what agents wrote; a report counts
//! only if the check itself wrote it.

mod files;
pub mod parse;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kapelle_core::gates::{self, Objection};
use kapelle_core::outcome::Outcome;
use kapelle_core::policy::Reading;
use kapelle_core::{Commit, limits};

use crate::process::{self, Exit, Hold, Lease, Spec};
use crate::repository::Repository;
use crate::sandbox::{self, Confinement};
use crate::worktree::{self, Worktree};
pub use files::test_files;
use report::Trouble;

/// What of the reasons is told beside the end of the output; both have to fit into one failure.
const REASONS_CHARS_MAX: usize = 1_200;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("worktree of the check: {0}")]
    Worktree(#[from] worktree::Error),
    #[error("sandbox of the check: {0}")]
    Sandbox(#[from] sandbox::Error),
    #[error("process of the check: {0}")]
    Process(#[from] process::Error),
}

/// What to run, and how.
#[derive(Debug, Clone)]
pub struct Check {
    /// Run by `sh -c` at the top of the tree.
    pub command: String,
    pub timeout: Duration,
    /// How its result is read, and what is asked of it.
    pub reading: Reading,
    pub env: BTreeMap<String, OsString>,
    /// Programs outside of `/usr` that the command needs.
    pub readable: Vec<PathBuf>,
    pub confinement: Confinement,
    pub lease: Lease,
    pub log: PathBuf,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckRun {
    pub passed: bool,
    pub exit: Exit,
    pub tail: String,
    pub duration: Duration,
    /// What its report says, where it has one.
    pub outcome: Option<Outcome>,
    /// Why it did not pass, as far as the report says more than the exit code.
    pub reasons: String,
}

impl CheckRun {
    /// The end of the output, and behind it the reasons: people and agents read the end first.
    #[must_use]
    pub fn story(&self) -> String {
        let reasons = limits::head(&self.reasons, REASONS_CHARS_MAX);
        match (self.tail.trim_end(), reasons) {
            (_, "") => self.tail.clone(),
            ("", reasons) => reasons.to_owned(),
            (tail, reasons) => {
                let room = limits::FAILURE_CHARS_MAX.saturating_sub(reasons.chars().count() + 2);
                format!("{}\n\n{reasons}", limits::tail(tail, room))
            }
        }
    }
}

/// Runs a check on a commit, in a clean worktree below `dir` that is gone afterwards.
///
/// If the caller gives up waiting, the process is killed; the worktree is then found by
/// [`Worktree::leftovers`], or replaced when the same `dir` is used again.
pub async fn run(
    repo: &Repository,
    dir: &Path,
    commit: &Commit,
    check: &Check,
) -> Result<CheckRun, Error> {
    let worktree = Worktree::prepare(repo, &dir.join("tree"), commit).await?;
    let ended = run_in(&worktree, &dir.join("git"), check).await;
    worktree.discard().await?;
    worktree::remove_private(&dir.join("git")).await?;
    ended
}

async fn run_in(worktree: &Worktree, private: &Path, check: &Check) -> Result<CheckRun, Error> {
    let forged = report::find_early(worktree.dir(), &check.reading).await;
    let mut walls = worktree.walls(private).await?;
    walls.readable.extend(check.readable.iter().cloned());
    let spec = Spec {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), check.command.clone().into()],
        dir: worktree.dir().into(),
        env: check.env.clone(),
        lease: check.lease.clone(),
        log: check.log.clone(),
        timeout: Some(check.timeout),
        hold: Hold::default(),
    };
    let mut running = process::spawn(check.confinement.confine(spec, &walls)?).await?;
    let exit = running.wait().await?;
    let read = match (check.reading.is_plain(), forged) {
        (true, _) => None,
        (false, Some(trouble)) => Some(Err(trouble)),
        (false, None) => Some(report::read(worktree.dir(), &check.log, &check.reading).await),
    };
    Ok(judged(&check.reading, exit, read))
}

/// Puts together what the process and its report say. A pass needs the word of both.
fn judged(reading: &Reading, exit: Exit, read: Option<Result<Outcome, Trouble>>) -> CheckRun {
    let ended_well = exit.code == Some(0) && !exit.timed_out;
    let (outcome, reasons) = match read {
        None => (None, String::new()),
        Some(Ok(mut outcome)) => {
            if !ended_well && outcome.is_clean() && asks_for_tests(reading) {
                outcome.break_off("the command", &format!("{}\n{}", how(&exit), exit.tail));
            }
            let objections = objections(reading, &outcome);
            (Some(outcome), gates::explain(&objections))
        }
        Some(Err(trouble)) if ended_well => (None, trouble.to_string()),
        Some(Err(trouble)) => {
            let mut outcome = Outcome::default();
            outcome.break_off("the command", &exit.tail);
            (Some(outcome), format!("{}; {trouble}", how(&exit)))
        }
    };
    let passed = ended_well && reasons.is_empty();
    let (tail, duration) = (exit.tail.clone(), exit.duration);
    CheckRun { passed, tail, duration, outcome, reasons, exit }
}

fn objections(reading: &Reading, outcome: &Outcome) -> Vec<Objection> {
    gates::quality(&reading.thresholds, None, outcome, &BTreeSet::new())
}

fn asks_for_tests(reading: &Reading) -> bool {
    use kapelle_core::policy::Parser;
    match reading.parser {
        Parser::Junit
        | Parser::Tap
        | Parser::Cargo
        | Parser::Nextest
        | Parser::Pytest
        | Parser::Jest
        | Parser::Go
        | Parser::Trx => true,
        Parser::ExitCode
        | Parser::Lcov
        | Parser::Cobertura
        | Parser::Mutation
        | Parser::Sarif
        | Parser::Lizard => false,
    }
}

fn how(exit: &Exit) -> String {
    match (exit.timed_out, exit.code, exit.signal) {
        (true, _, _) => "the command did not end in time".into(),
        (false, Some(code), _) => format!("the command ended with exit code {code}"),
        (false, None, Some(signal)) => format!("the command was ended by signal {signal}"),
        (false, None, None) => "the command ended without an exit code".into(),
    }
}
