//! Rewriting: the commits of a change on another base, and landed changes taken back.
//!
//! Like candidates, both are built from git's objects alone and are reproducible: the same inputs
//! give the same commits, so that doing it again after a crash changes nothing.

use kapelle_core::Commit;

use crate::candidate::{Error, Merged, merge_trees};
use crate::commit;
use crate::git::args;
use crate::repository::Repository;

/// A change of more commits than this is not the work of one task.
const COMMITS_MAX: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rewrite {
    /// `touched` are the paths that differ from what it was put upon.
    Written { commit: Commit, touched: Vec<String> },
    /// Git cannot put these paths together.
    Conflict { paths: Vec<String> },
}

/// What a task made of the branch, to be taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reversal {
    /// The branch before it …
    pub before: Commit,
    /// … and with it.
    pub after: Commit,
    pub message: String,
}

/// Puts the commits of `change` that `onto` does not have on top of it, one by one.
pub async fn rebase(repo: &Repository, change: &Commit, onto: &Commit) -> Result<Rewrite, Error> {
    let range = format!("{onto}..{change}");
    let asked = args!["rev-list", "--reverse", "--topo-order", "--no-merges", range];
    let listed = repo.git().text(asked).await?;
    let commits: Vec<&str> = listed.split_whitespace().collect();
    if commits.len() > COMMITS_MAX {
        return Err(Error::TooManyCommits { count: commits.len(), limit: COMMITS_MAX });
    }
    let mut at = onto.clone();
    for name in commits {
        let picked = repo.resolve(name).await?;
        let parent = repo.resolve(&format!("{name}^")).await?;
        let tree = match merge_trees(repo, Some(&parent), &at, &picked).await? {
            Merged::Tree(tree) => tree,
            Merged::Conflict { paths } => return Ok(Rewrite::Conflict { paths }),
        };
        // What is there already needs no commit.
        if tree != repo.tree_of(&at).await? {
            let message = repo.git().text(args!["show", "-s", "--format=%B", name]).await?;
            at = commit::write(
                &commit::dated(repo.git(), &picked).await?,
                &tree,
                &[&at],
                &message,
                &[],
            )
            .await?;
        }
    }
    written(repo, onto, at).await
}

/// Takes back what each of these made of the branch, in this order, each by a commit of its own.
pub async fn revert(
    repo: &Repository,
    onto: &Commit,
    reversals: &[Reversal],
) -> Result<Rewrite, Error> {
    let mut at = onto.clone();
    for Reversal { before, after, message } in reversals {
        let tree = match merge_trees(repo, Some(after), &at, before).await? {
            Merged::Tree(tree) => tree,
            Merged::Conflict { paths } => return Ok(Rewrite::Conflict { paths }),
        };
        at = commit::write(&commit::dated(repo.git(), &at).await?, &tree, &[&at], message, &[])
            .await?;
    }
    written(repo, onto, at).await
}

async fn written(repo: &Repository, onto: &Commit, commit: Commit) -> Result<Rewrite, Error> {
    let touched = repo.changed_paths(onto, &commit).await?;
    Ok(Rewrite::Written { commit, touched })
}
