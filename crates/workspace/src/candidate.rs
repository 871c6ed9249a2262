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
    #[error("{count} commits are more than the {limit} of one change")]
    TooManyCommits { count: usize, limit: usize },
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
    // Nearly always both answers are needed, and neither waits for the other. The longer begins first.
    let (merged, relation) =
        tokio::join!(merged(repo.git(), onto, change), relation(repo.git(), onto, change));
    let seconds = match relation? {
        Relation::Contained => return Ok(Candidate::AlreadyThere),
        Relation::OnTop => return Ok(Candidate::Built(change.clone())),
        Relation::Diverged { seconds } => seconds,
    };
    let tree = match merged? {
        Merged::Tree(tree) => tree,
        Merged::Conflict { paths } => return Ok(Candidate::Conflict { paths }),
    };
    let git = commit::at(repo.git(), &seconds);
    let built = commit::write(&git, &tree, &[onto, change], message, trailers).await?;
    Ok(Candidate::Built(built))
}

/// How a change stands to what it is to be put upon.
enum Relation {
    Contained,
    OnTop,
    /// With the date of the change, in seconds.
    Diverged {
        seconds: String,
    },
}

/// One call tells both directions and the date: what either side has and the other has not.
async fn relation(git: &Git, onto: &Commit, change: &Commit) -> Result<Relation, Error> {
    let range = format!("{onto}...{change}");
    let listed = git.text(args!["rev-list", "--left-right", "--timestamp", range]).await?;
    let of_change = listed.lines().find_map(|line| {
        let (seconds, name) = line.split_once(" >")?;
        (name == change.as_str()).then(|| seconds.to_owned())
    });
    let Some(seconds) = of_change else { return Ok(Relation::Contained) };
    match listed.lines().any(|line| line.contains(" <")) {
        true => Ok(Relation::Diverged { seconds }),
        false => Ok(Relation::OnTop),
    }
}

/// What git makes of two commits.
pub(crate) enum Merged {
    /// The name of the tree that holds both.
    Tree(String),
    Conflict {
        paths: Vec<String>,
    },
}

/// What `ours` becomes with what `theirs` changed since `base`, or since their common ancestor.
pub(crate) async fn merge_trees(
    repo: &Repository,
    base: Option<&Commit>,
    ours: &Commit,
    theirs: &Commit,
) -> Result<Merged, Error> {
    let Some(base) = base else { return merged(repo.git(), ours, theirs).await };
    // Git 2.40 could be told the base; older ones find it in a history that has nothing else.
    let git = commit::dated(repo.git(), theirs).await?;
    let (our_tree, their_tree) = (repo.tree_of(ours).await?, repo.tree_of(theirs).await?);
    let ours_on_base = commit::write(&git, &our_tree, &[base], "side", &[]).await?;
    let theirs_on_base = commit::write(&git, &their_tree, &[base], "side", &[]).await?;
    // The same on both sides would have itself in common.
    if ours_on_base == theirs_on_base {
        return Ok(Merged::Tree(our_tree));
    }
    merged(repo.git(), &ours_on_base, &theirs_on_base).await
}

async fn merged(git: &Git, ours: &Commit, theirs: &Commit) -> Result<Merged, Error> {
    let mut asked = args!["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages"];
    asked.extend(args![ours.as_str(), theirs.as_str()]);
    let output = git.run_accepting(&[0, 1], asked).await?;
    let mut answer = zero_separated(&output.stdout).into_iter();
    let tree = answer.next().unwrap_or_default().trim().to_owned();
    Ok(match output.code {
        1 => Merged::Conflict { paths: answer.collect() },
        _ => Merged::Tree(tree),
    })
}
