//! Candidates: the exact commit that the queue tests and lands.
//!
//! Built from git's objects alone, without a checkout, so a candidate costs milliseconds and
//! touches no file of the user.
//!
//! Invariant: the same inputs give the same commit. After a crash the candidate is built again,
//! and checks that passed on it still count.

use kapelle_core::Commit;

use crate::commit;
use crate::git::{self, Git, args};
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
    let tree = match merged(repo.git(), onto, change).await? {
        Merged::Clean(tree) => tree,
        Merged::Conflict(paths) => return Ok(Candidate::Conflict { paths }),
    };
    let git = commit::dated(repo.git(), change).await?;
    let built = commit::write(&git, &tree, &[onto, change], message, trailers).await?;
    Ok(Candidate::Built(built))
}

/// What git makes of two commits.
pub(crate) enum Merged {
    /// The name of the tree that holds both.
    Clean(String),
    Conflict(Vec<String>),
}

pub(crate) async fn merged(
    git: &Git,
    ours: &Commit,
    theirs: &Commit,
) -> Result<Merged, git::Error> {
    let asked = args!["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages"];
    let asked = [asked, args![ours.as_str(), theirs.as_str()]].concat();
    let output = git.run_accepting(&[0, 1], asked).await?;
    let mut answer = zero_separated(&output.stdout).into_iter();
    let tree = answer.next().unwrap_or_default().trim().to_owned();
    Ok(if output.code == 0 { Merged::Clean(tree) } else { Merged::Conflict(answer.collect()) })
}
