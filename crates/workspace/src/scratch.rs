//! Index files of our own, outside of any tree: what lies in a tree, or in git's record of it, is not
//! believed.
//!
//! Invariant: an index is gone when it is no longer used; one that a crash left, at the next start.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::git::Git;
use crate::repository::{Error, Repository, Result};

/// Below the shared git directory.
const PLACE: &str = "kapelle";

/// No call of git takes as long. An index that nobody wrote to in this time belongs to nobody.
const ABANDONED_AFTER: Duration = Duration::from_secs(3_600);

/// What the names of index files begin with.
const INDEX: &str = "index";

pub(crate) struct Index(PathBuf);

impl Index {
    pub fn new(repo: &Repository) -> Result<Index> {
        let index = Index(new_path(repo.git_dir(), INDEX)?);
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

/// A path that no other process has, for a file of this kind.
pub(crate) fn new_path(git_dir: &Path, kind: &str) -> Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let dir = git_dir.join(PLACE);
    std::fs::create_dir_all(&dir).map_err(|source| Error::File { path: dir.clone(), source })?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Ok(dir.join(format!("{kind}-{}-{number}", std::process::id())))
}

/// The files of this kind that there are, of whatever process.
pub(crate) fn paths(git_dir: &Path, kind: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(git_dir.join(PLACE)).into_iter().flatten().flatten();
    let ours = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let name = name.strip_suffix(".lock").unwrap_or(name);
        let numbers =
            name.strip_prefix(kind).and_then(|rest| rest.strip_prefix('-')?.split_once('-'));
        let is_number = |text: &str| text.parse::<u64>().is_ok();
        numbers.is_some_and(|(process, number)| is_number(process) && is_number(number))
    };
    entries.map(|entry| entry.path()).filter(ours).collect()
}

/// Removes the index files that a crash left.
pub(crate) fn remove_abandoned(git_dir: &Path) {
    for path in paths(git_dir, INDEX) {
        let modified = path.symlink_metadata().and_then(|known| known.modified());
        let age = modified.ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age >= ABANDONED_AFTER) {
            // Nobody minds it; the next start tries again.
            let _stays = std::fs::remove_file(path);
        }
    }
}
