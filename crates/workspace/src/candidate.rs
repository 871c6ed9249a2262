//! Candidates: the exact commit that the queue tests and lands.
//!
//! Built from git's objects alone, without a checkout, so a candidate costs milliseconds and
//! touches no file of the user.
//!
//! Invariant: the same inputs give the same commit. After a crash the candidate is built again,
//! and checks that passed on it still count.

use kapelle_core::Commit;

use crate::commit;
use crate::git::{self, args};
use crate::repository::{self, Repository, zero_separated};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Repository(#[from] repository::Error),
    #[error(transparent)]
    Git(#[from] git::Error),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Candidate {
    Built(Commit),
    /// Both sides changed these paths in ways that git cannot put together.
    Conflict {
        paths: Vec<String>,
    },
    /// The target contains the change already; there is nothing to land.
    AlreadyThere,
}

/// Puts `change` on top of `onto`.
pub async fn build(
    repo: &Repository,
    onto: &Commit,
    change: &Commit,
    message: &str,
    trailers: &[(&str, &str)],
) -> Result<Candidate, Error> {
    if repo.is_ancestor(change, onto).await? {
        return Ok(Candidate::AlreadyThere);
    }
    if repo.is_ancestor(onto, change).await? {
        return Ok(Candidate::Built(change.clone()));
    }
    let asked = args![
        "merge-tree",
        "--write-tree",
        "-z",
        "--name-only",
        "--no-messages",
        onto.as_str(),
        change.as_str()
    ];
    let merged = repo.git().run_accepting(&[0, 1], asked).await?;
    let mut answer = zero_separated(&merged.stdout).into_iter();
    let tree = answer.next().unwrap_or_default();
    if merged.code == 1 {
        return Ok(Candidate::Conflict { paths: answer.collect() });
    }
    // The date of the change, not of today: this is what makes the commit reproducible.
    let seconds = repo.git().text(args!["show", "-s", "--format=%ct", change.as_str()]).await?;
    let date = format!("@{seconds} +0000");
    let git = repo.git().clone().set("GIT_AUTHOR_DATE", &date).set("GIT_COMMITTER_DATE", &date);
    let built = commit::write(&git, tree.trim(), &[onto, change], message, trailers).await?;
    Ok(Candidate::Built(built))
}
