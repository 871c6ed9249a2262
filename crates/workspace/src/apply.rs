//! Carrying commits from one place to another, without a checkout: rebasing a change, taking one
//! back, and landing several together.
//!
//! Invariant: the same inputs give the same commit, as for candidates.

use std::collections::BTreeMap;

use kapelle_core::Commit;

use crate::candidate::{self, Candidate, Merged};
use crate::commit;
use crate::git::args;
use crate::repository::{Error, Repository, Result};

/// Commits of one change. A task has one for each phase.
const COMMITS_MAX: usize = 1_000;

/// What of a file is shown to the person who has to decide.
const SIDE_BYTES_MAX: usize = 64 << 10;

/// Puts the commits of a change on top of `onto`, one by one, with their messages and trailers.
/// What is there already is left out.
pub async fn rebase(repo: &Repository, change: &Commit, onto: &Commit) -> Result<Candidate> {
    let asked = args!["rev-list", "--reverse", "--topo-order", "--no-merges", change.as_str()];
    let asked = [asked, args![format!("^{onto}")]].concat();
    let listed = repo.git().text(asked).await?;
    let commits: Vec<Commit> = listed.lines().filter_map(|line| line.parse().ok()).collect();
    if commits.len() > COMMITS_MAX {
        return Err(Error::TooManyCommits { count: commits.len(), limit: COMMITS_MAX });
    }
    let mut tip = onto.clone();
    for commit in &commits {
        let parent = parent_of(repo, commit).await?;
        let tree = match three_way(repo, &parent, &tip, commit).await? {
            Merged::Clean(tree) => tree,
            Merged::Conflict(paths) => return Ok(Candidate::Conflict { paths }),
        };
        if tree != repo.tree_of(&tip).await? {
            let message =
                repo.git().text(args!["show", "-s", "--format=%B", commit.as_str()]).await?;
            let git = commit::dated(repo.git(), commit).await?;
            tip = commit::write(&git, &tree, &[&tip], &message, &[]).await?;
        }
    }
    Ok(if tip == *onto { Candidate::AlreadyThere } else { Candidate::Built(tip) })
}

/// One commit on top of `onto` that takes back these commits, which are given newest first. What
/// others changed beside them stays.
pub async fn revert(
    repo: &Repository,
    onto: &Commit,
    commits: &[Commit],
    message: &str,
    trailers: &[(&str, &str)],
) -> Result<Candidate> {
    if commits.len() > COMMITS_MAX {
        return Err(Error::TooManyCommits { count: commits.len(), limit: COMMITS_MAX });
    }
    let mut tip = onto.clone();
    for commit in commits {
        let parent = parent_of(repo, commit).await?;
        match three_way(repo, commit, &tip, &parent).await? {
            Merged::Conflict(paths) => return Ok(Candidate::Conflict { paths }),
            Merged::Clean(tree) => {
                let git = commit::dated(repo.git(), onto).await?;
                tip = commit::write(&git, &tree, &[&tip], message, &[]).await?;
            }
        }
    }
    let tree = repo.tree_of(&tip).await?;
    if tree == repo.tree_of(onto).await? {
        return Ok(Candidate::AlreadyThere);
    }
    let git = commit::dated(repo.git(), onto).await?;
    Ok(Candidate::Built(commit::write(&git, &tree, &[onto], message, trailers).await?))
}

/// A change of a batch.
#[derive(Debug, Clone)]
pub struct Change<'a> {
    pub commit: &'a Commit,
    pub message: &'a str,
    pub trailers: &'a [(&'a str, &'a str)],
}

/// Several changes as one candidate. Each keeps its own merge, so that each can be taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The commit to be checked; nothing if no change could be taken.
    pub built: Option<Commit>,
    pub taken: Vec<Commit>,
    /// Those that do not fit, with the paths in the way. They are no worse for it.
    pub left_out: BTreeMap<Commit, Vec<String>>,
}

/// Puts changes on top of `onto`, in their order.
pub async fn batch(
    repo: &Repository,
    onto: &Commit,
    changes: &[Change<'_>],
) -> Result<Batch, candidate::Error> {
    let mut tip = onto.clone();
    let (mut taken, mut left_out) = (Vec::new(), BTreeMap::new());
    for change in changes {
        match candidate::build(repo, &tip, change.commit, change.message, change.trailers).await? {
            Candidate::Built(built) => {
                tip = built;
                taken.push(change.commit.clone());
            }
            Candidate::AlreadyThere => taken.push(change.commit.clone()),
            Candidate::Conflict { paths } => {
                left_out.insert(change.commit.clone(), paths);
            }
        }
    }
    Ok(Batch { built: (tip != *onto).then_some(tip), taken, left_out })
}

/// The versions of a file that a person has to choose from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sides {
    /// In the target; nothing if it is not there.
    pub ours: Option<String>,
    /// In the change.
    pub theirs: Option<String>,
}

pub async fn sides(repo: &Repository, onto: &Commit, change: &Commit, path: &str) -> Result<Sides> {
    let ours = file_at(repo, onto, path).await?;
    let theirs = file_at(repo, change, path).await?;
    Ok(Sides { ours, theirs })
}

async fn file_at(repo: &Repository, commit: &Commit, path: &str) -> Result<Option<String>> {
    let wanted = format!("{commit}:{path}");
    let output = repo.git().run_accepting(&[0, 128], args!["cat-file", "blob", wanted]).await?;
    let shown = &output.stdout[..output.stdout.len().min(SIDE_BYTES_MAX)];
    Ok((output.code == 0).then(|| String::from_utf8_lossy(shown).into_owned()))
}

async fn parent_of(repo: &Repository, commit: &Commit) -> Result<Commit> {
    repo.resolve(&format!("{commit}^1")).await
}

/// Merges what `ours` and `theirs` made of `base`, whatever their histories are. Both are given a
/// history in which `base` is what they have in common; git finds it there.
async fn three_way(
    repo: &Repository,
    base: &Commit,
    ours: &Commit,
    theirs: &Commit,
) -> Result<Merged> {
    let git = commit::dated(repo.git(), theirs).await?;
    let mut sides = Vec::new();
    for side in [ours, theirs] {
        let tree = repo.tree_of(side).await?;
        sides.push(commit::write(&git, &tree, &[base], "side", &[]).await?);
    }
    // The same on both sides would have itself in common.
    if sides[0] == sides[1] {
        return Ok(Merged::Clean(repo.tree_of(ours).await?));
    }
    Ok(candidate::merged(repo.git(), &sides[0], &sides[1]).await?)
}
