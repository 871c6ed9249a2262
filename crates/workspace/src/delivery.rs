//! Delivery: a person's own branch takes what they approved.
//!
//! Invariant: the branch only goes forward. Where it is checked out, git's own fast-forward moves
//! branch, index and files together, or nothing; local changes and ignored files in the way are
//! never overwritten.

use std::path::{Path, PathBuf};

use kapelle_core::Commit;

use crate::git::drivers::{self, Setting};
use crate::git::{self, args};
use crate::repository::{Advance, Repository, Result};

/// What became of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    Delivered,
    /// The branch cannot take it as it stands. Nothing was changed; the reason says what to do.
    Refused {
        reason: String,
    },
}

impl Repository {
    /// Brings `target` forward to `commit`. Doing it again is no error.
    pub async fn deliver(&self, target: &str, commit: &Commit) -> Result<Delivery> {
        let refused = |reason: String| Ok(Delivery::Refused { reason });
        let Some(tip) = self.branch_tip(target).await? else {
            return refused(format!("there is no branch {target}"));
        };
        if self.is_ancestor(commit, &tip).await? {
            return Ok(Delivery::Delivered);
        }
        if !self.is_ancestor(&tip, commit).await? {
            return refused(format!(
                "{target} has gone on to {} since the mission began; merge {} into it by hand, \
                 check it, and approve again",
                tip.short(),
                commit.short(),
            ));
        }
        if let Some(dir) = self.checked_out(target).await? {
            return self.fast_forward(&dir, target, commit).await;
        }
        match self.advance(target, &tip, commit).await? {
            Advance::Advanced => Ok(Delivery::Delivered),
            Advance::Moved { .. } => refused(format!("{target} was moved at the same moment")),
        }
    }

    async fn fast_forward(&self, dir: &Path, target: &str, commit: &Commit) -> Result<Delivery> {
        let git = self.git().within(dir);
        let by_hand = format!(
            "run `git merge --ff-only --no-overwrite-ignore {}` there and approve again",
            commit.short()
        );
        let place = dir.display();
        // Our git runs no filters and knows no sparse checkouts: it would write files that the
        // person's own git would write differently.
        let sparse = args!["config", "--bool", "core.sparseCheckout"];
        let sparse = git.run_accepting(&[0, 1], sparse).await?.stdout.starts_with(b"true");
        let filters = drivers::overrides(&git).await?;
        if sparse || filters.iter().any(Setting::is_of_a_filter) {
            let reason = format!("{target} is checked out in {place} with filters: {by_hand}");
            return Ok(Delivery::Refused { reason });
        }
        let git = git.overriding(filters);
        // Git thinks little of ignored files and would overwrite them.
        let merge = args!["merge", "--ff-only", "--no-autostash", "--no-overwrite-ignore"];
        let merge = [merge, args![commit.as_str()]].concat();
        let locks = args!["rev-parse", "--path-format=absolute", "--git-path", "index.lock"];
        let locks = git.text([locks, args!["--git-path", "HEAD.lock"]].concat()).await?;
        let branch = self.lock_of(&format!("refs/heads/{target}"));
        let locks: Vec<PathBuf> = locks.lines().map(PathBuf::from).chain([branch]).collect();
        let noted = self.note_locks(&locks)?;
        let merged = git.run(merge).await;
        drop(noted);
        match merged {
            Ok(_) => Ok(Delivery::Delivered),
            Err(git::Error::Failed { stderr, .. }) if !stderr.contains(".lock'") => {
                let said = stderr.trim();
                let reason = format!("{target} is checked out in {place}: {said}; {by_hand}");
                Ok(Delivery::Refused { reason })
            }
            Err(other) => Err(other.into()),
        }
    }

    /// Holds on to a commit under a hidden reference, so that git never clears it away. If the name
    /// holds another one, as after a state folder was moved away, this one gets a name like it.
    pub async fn hold(&self, name: &str, commit: &Commit) -> Result<()> {
        let name = self.name_for(format!("refs/kapelle/{name}"), commit.as_str()).await?;
        if self.reference(&name).await?.is_none() {
            let none = "0".repeat(commit.as_str().len());
            self.git().run(args!["update-ref", name, commit.as_str(), none]).await?;
        }
        Ok(())
    }

    /// The first name like this one under which there is nothing, or this very commit: what is kept
    /// is never overwritten.
    pub(crate) async fn name_for(&self, wanted: String, commit: &str) -> Result<String> {
        let (mut name, mut number) = (wanted.clone(), 1);
        while self.reference(&name).await?.is_some_and(|held| held.as_str() != commit) {
            number += 1;
            name = format!("{wanted}-{number}");
        }
        Ok(name)
    }
}
