//! Checks: a command that must pass, on exactly one commit.
//!
//! Invariant: a check sees the files of its commit and nothing that was left lying about; it
//! runs behind the same walls as an agent, because it runs what agents wrote.

pub mod parse;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kapelle_core::Commit;

use crate::process::{self, Exit, Lease, Spec};
use crate::repository::Repository;
use crate::sandbox::{self, Confinement};
use crate::worktree::{self, Worktree};

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
    let exit = ended?;
    Ok(CheckRun {
        passed: exit.code == Some(0) && !exit.timed_out,
        tail: exit.tail.clone(),
        duration: exit.duration,
        exit,
    })
}

async fn run_in(worktree: &Worktree, private: &Path, check: &Check) -> Result<Exit, Error> {
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
    };
    let mut running = process::spawn(check.confinement.confine(spec, &walls)?).await?;
    Ok(running.wait().await?)
}
