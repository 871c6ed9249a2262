//! Index files of our own, outside of any tree: what lies in a tree, or in git's record of it, is not
//! believed.
//!
//! Invariant: an index is gone when it is no longer used; one that a crash left, at the next start.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::git::Git;
use crate::repository::{Error, Repository, Result};

/// Below the shared git directory.
const PLACE: &str = "kapelle";

/// No call of git takes as long. An index that nobody wrote to in this time belongs to nobody.
const ABANDONED_AFTER: Duration = Duration::from_secs(3_600);

pub(crate) struct Index(PathBuf);

impl Index {
    pub fn new(repo: &Repository) -> Result<Index> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let dir = repo.git_dir().join(PLACE);
        std::fs::create_dir_all(&dir)
            .map_err(|source| Error::File { path: dir.clone(), source })?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let index = Index(dir.join(format!("index-{}-{number}", std::process::id())));
        // A process with our number may have crashed here before, and its git with it.
        index.remove();
        Ok(index)
    }

    /// The repository with this tree of files and this index.
    pub fn git(&self, repo: &Repository, tree: &Path) -> Git {
        repo.git().with_tree(tree, &self.0)
    }

    fn remove(&self) {
        let lock = self.0.with_extension("lock");
        for path in [&self.0, &lock] {
            let _usually_absent = std::fs::remove_file(path);
        }
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Removes what a crash left.
pub(crate) fn remove_abandoned(git_dir: &Path) {
    let entries = std::fs::read_dir(git_dir.join(PLACE)).into_iter().flatten().flatten();
    for entry in entries {
        let modified = entry.metadata().and_then(|known| known.modified());
        let age = modified.ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age >= ABANDONED_AFTER) {
            // Nobody minds it; the next start tries again.
            let _stays = std::fs::remove_file(entry.path());
        }
    }
}
