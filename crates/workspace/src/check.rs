//! Checks: a command that must pass, on exactly one commit.
//!
//! Invariants: a check sees the files of its commit and nothing that was left lying about; it
//! runs behind the same walls as an agent, because it runs what agents wrote, and is supervised
//! like every other command ([`crate::commands`]); a report counts only if the check itself wrote
//! it.

mod mocks;
pub mod parse;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use kapelle_core::gates::{self, Objection};
use kapelle_core::outcome::Outcome;
use kapelle_core::policy::Reading;
use kapelle_core::{Commit, limits};

use crate::commands::{
    CommandResult, Commands, Destructive, Ended, Order, Thresholds, destructive,
};
use crate::process::{self, Hold, Lease, Spec};
use crate::repository::{self, Repository};
use crate::sandbox::{self, Confinement};
use crate::worktree::{self, Worktree};
pub use mocks::mocks;
use report::Trouble;

/// What of the reasons is told beside the end of the output; both have to fit into one failure.
const REASONS_CHARS_MAX: usize = 1_200;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Repository(#[from] repository::Error),
    #[error("worktree of the check: {0}")]
    Worktree(#[from] worktree::Error),
    #[error("sandbox of the check: {0}")]
    Sandbox(#[from] sandbox::Error),
    #[error("process of the check: {0}")]
    Process(#[from] process::Error),
    #[error("the check is not run: {0}")]
    Destructive(#[from] Destructive),
}

/// What to run, and how.
#[derive(Debug, Clone)]
pub struct Check {
    /// Run by `sh -c` at the top of the tree.
    pub command: String,
    /// When it is ended, and when it is only spoken of.
    pub rules: Thresholds,
    /// Who hears of it while it runs.
    pub commands: Commands,
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
    /// How the command ended.
    pub result: CommandResult,
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
        match (self.result.output.trim_end(), reasons) {
            (_, "") => self.result.output.clone(),
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
    if let (Confinement::Unsandboxed, Some(found)) =
        (&check.confinement, destructive(&check.command))
    {
        return Err(found.into());
    }
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
        hold: Hold::default(),
    };
    let (id, subtask) = (check.lease.fence.0, check.lease.to_string());
    let spec = check.confinement.confine(spec, &walls)?;
    let order = Order { id, subtask, spec, rules: check.rules.clone() };
    let ended = check.commands.run_to_end(order).await?;
    let read = match (check.reading.is_plain(), forged) {
        (true, _) => None,
        (false, Some(trouble)) => Some(Err(trouble)),
        (false, None) => Some(report::read(worktree.dir(), &check.log, &check.reading).await),
    };
    Ok(judged(&check.reading, ended, read))
}

/// Puts together what the process and its report say. A pass needs the word of both.
fn judged(reading: &Reading, ended: Ended, read: Option<Result<Outcome, Trouble>>) -> CheckRun {
    let how = how(&ended);
    let result = ended.result;
    let (outcome, mut reasons) = match read {
        None => (None, String::new()),
        Some(Ok(mut outcome)) => {
            if !result.success && outcome.is_clean() && asks_for_tests(reading) {
                outcome.break_off("the command", &format!("{how}\n{}", result.output));
            }
            let objections = objections(reading, &outcome);
            (Some(outcome), gates::explain(&objections))
        }
        Some(Err(trouble)) if result.success => {
            let mut outcome = Outcome::default();
            outcome.break_off("the report", &trouble.to_string());
            (Some(outcome), trouble.to_string())
        }
        Some(Err(trouble)) => {
            let mut outcome = Outcome::default();
            outcome.break_off("the command", &result.output);
            (Some(outcome), format!("{how}; {trouble}"))
        }
    };
    if result.error.is_some() && reasons.is_empty() {
        reasons = how;
    }
    let passed = result.success && reasons.is_empty();
    CheckRun { passed, result, outcome, reasons }
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

fn how(ended: &Ended) -> String {
    let signal = ended.exit.as_ref().and_then(|exit| exit.signal);
    match (ended.result.cut_short(), ended.result.code, signal) {
        (Some(failure), _, _) => format!("the command has no answer: {}", failure.message),
        (None, Some(code), _) => format!("the command ended with exit code {code}"),
        (None, None, Some(signal)) => format!("the command was ended by signal {signal}"),
        (None, None, None) => "the command ended without an exit code".into(),
    }
}
