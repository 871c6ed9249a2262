//! Locks that a crash of Kapelle left in the repository (GIT-23).
//!
//! Git makes a lock by making a file, and whoever dies with it leaves it for everybody to stumble
//! over. Freed are only locks that can be nobody else's: those of Kapelle's own references, and the
//! index of a checkout that a delivery was bringing forward. A person may hold any other for as long
//! as an editor is open.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::repository::{Error, Repository, Result};
use crate::scratch;
use crate::worktree::aside;

/// Where Kapelle's own references are.
const OWN: [&str; 3] = ["refs/kapelle", "refs/heads/kapelle", "refs/heads/subtask"];

/// Says which lock a delivery is about to take.
const DELIVERY_NOTE: &str = "kapelle-delivery";

/// Git holds the lock of a reference for milliseconds. A git that outlived its Kapelle has this long.
const SETTLED: Duration = Duration::from_secs(5);

/// From its note to its lock a delivery takes moments, on any machine.
const DELIVERY_TAKES: Duration = Duration::from_secs(30);

/// References that are looked at; a repository with more has other troubles.
const ENTRIES_MAX: usize = 100_000;

impl Repository {
    /// Frees the locks that an earlier run left, and says which. To be called before anything is
    /// started: our own git must not be at work.
    pub async fn free_stale_locks(&self) -> Result<Vec<PathBuf>> {
        let git_dir = self.git_dir().to_owned();
        let look = move || {
            scratch::remove_abandoned(&git_dir);
            (own_locks(&git_dir), noted(&git_dir))
        };
        let (mut found, note) = aside(look).await;
        found.extend(note);
        let mut freed = Vec::new();
        for lock in found {
            if let Some(age) = age(&lock) {
                tokio::time::sleep(SETTLED.saturating_sub(age)).await;
            }
            if age(&lock).is_some_and(|age| age >= SETTLED) && !is_open(&lock) {
                remove(&lock)?;
                freed.push(lock);
            }
        }
        remove(&self.git_dir().join(DELIVERY_NOTE))?;
        Ok(freed)
    }

    /// Notes that this lock, which nobody has yet, is about to be taken for a delivery.
    pub(crate) fn note_delivery(&self, lock: &Path) -> Result<()> {
        if lock.exists() {
            return Ok(());
        }
        let path = self.git_dir().join(DELIVERY_NOTE);
        std::fs::write(&path, lock.as_os_str().as_encoded_bytes())
            .map_err(|source| Error::File { path, source })
    }

    pub(crate) fn delivery_ended(&self) -> Result<()> {
        remove(&self.git_dir().join(DELIVERY_NOTE))
    }
}

fn own_locks(git_dir: &Path) -> Vec<PathBuf> {
    let mut open: Vec<PathBuf> = OWN.iter().map(|place| git_dir.join(place)).collect();
    let (mut found, mut entries) = (Vec::new(), 0);
    while let Some(dir) = open.pop() {
        // What is not there holds no lock.
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            entries += 1;
            if entries > ENTRIES_MAX {
                return found;
            }
            let (path, kind) = (entry.path(), entry.file_type());
            if kind.as_ref().is_ok_and(std::fs::FileType::is_dir) {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "lock") {
                found.push(path);
            }
        }
    }
    found
}

/// The lock that a delivery was about to take when it was cut short. One that was made much later
/// than the note is a person's.
fn noted(git_dir: &Path) -> Option<PathBuf> {
    let note = git_dir.join(DELIVERY_NOTE);
    let lock = PathBuf::from(std::fs::read_to_string(&note).ok()?);
    let made = |path: &Path| path.symlink_metadata().and_then(|known| known.modified()).ok();
    let after = made(&lock)?.duration_since(made(&note)?).unwrap_or_default();
    let ours = lock.is_absolute() && lock.file_name().is_some_and(|name| name == "index.lock");
    (ours && after <= DELIVERY_TAKES).then_some(lock)
}

/// None if it is not there.
fn age(lock: &Path) -> Option<Duration> {
    let made = lock.symlink_metadata().and_then(|known| known.modified()).ok()?;
    Some(SystemTime::now().duration_since(made).unwrap_or_default())
}

/// Whether a process that we can see has it open.
fn is_open(lock: &Path) -> bool {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut files = processes
        .filter_map(|process| std::fs::read_dir(process.path().join("fd")).ok())
        .flatten()
        .flatten();
    files.any(|file| std::fs::read_link(file.path()).is_ok_and(|open| open == lock))
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::File { path: path.into(), source: error })
        }
        _ => Ok(()),
    }
}
