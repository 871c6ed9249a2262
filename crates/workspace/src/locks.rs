//! Locks that a crash of Kapelle left in the repository (GIT-23).
//!
//! Git makes a lock by making a file, and whoever dies with it leaves it for everybody to stumble
//! over. Freed are only locks that can be nobody else's: those of Kapelle's own references, and those
//! that were noted before they were taken, of a person's branches and of a checkout that a delivery
//! was bringing forward. A person may hold any other for as long as an editor is open.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::repository::{Error, Repository, Result};
use crate::scratch;
use crate::worktree::aside;

/// Where Kapelle's own references are.
const OWN: [&str; 3] = ["refs/kapelle", "refs/heads/kapelle", "refs/heads/subtask"];

/// What the names of notes begin with.
const NOTE: &str = "lock";

/// A note names a handful of locks.
const NOTE_BYTES_MAX: u64 = 64 << 10;

/// Git holds the lock of a reference for milliseconds. A git that outlived its Kapelle has this long.
const SETTLED: Duration = Duration::from_secs(5);

/// From its note to its lock git takes moments, on any machine.
const TAKING_TAKES: Duration = Duration::from_secs(30);

/// References that are looked at; a repository with more has other troubles.
const ENTRIES_MAX: usize = 100_000;

/// A word about locks that git is about to take for us. It goes with git's end; whoever is killed
/// before leaves it.
#[derive(Debug)]
pub(crate) struct Noted(PathBuf);

impl Drop for Noted {
    fn drop(&mut self) {
        // One that stays speaks of locks that are gone, or are made much later.
        let _stays = std::fs::remove_file(&self.0);
    }
}

impl Repository {
    /// Frees the locks that an earlier run left, and says which. To be called before anything is
    /// started: our own git must not be at work.
    pub async fn free_stale_locks(&self) -> Result<Vec<PathBuf>> {
        let git_dir = self.git_dir().to_owned();
        let look = move || {
            scratch::remove_abandoned(&git_dir);
            let notes = scratch::paths(&git_dir, NOTE);
            let noted = notes.iter().flat_map(|note| noted(&git_dir, note));
            let found: Vec<PathBuf> = own_locks(&git_dir).into_iter().chain(noted).collect();
            (found, notes)
        };
        let (found, notes) = aside(look).await;
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
        for note in notes {
            remove(&note)?;
        }
        Ok(freed)
    }

    /// Notes that these locks are about to be taken. Those that somebody has already are not ours.
    pub(crate) fn note_locks(&self, locks: &[PathBuf]) -> Result<Noted> {
        let path = scratch::new_path(self.git_dir(), NOTE)?;
        let mut lines = Vec::new();
        for lock in locks.iter().filter(|lock| !lock.exists()) {
            lines.extend_from_slice(lock.as_os_str().as_bytes());
            lines.push(b'\n');
        }
        let noted = Noted(path);
        match std::fs::write(&noted.0, lines) {
            Ok(()) => Ok(noted),
            Err(source) => Err(Error::File { path: noted.0.clone(), source }),
        }
    }

    /// The lock of a reference.
    pub(crate) fn lock_of(&self, reference: &str) -> PathBuf {
        self.git_dir().join(format!("{reference}.lock"))
    }

    /// What git takes to remove any reference.
    pub(crate) fn lock_of_all(&self) -> PathBuf {
        self.lock_of("packed-refs")
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

/// The locks that git was about to take when it was cut short. One that was there before the note,
/// or was made much later, is a person's.
fn noted(git_dir: &Path, note: &Path) -> Vec<PathBuf> {
    let mut text = Vec::new();
    let read =
        std::fs::File::open(note).and_then(|file| file.take(NOTE_BYTES_MAX).read_to_end(&mut text));
    if read.is_err() {
        return Vec::new();
    }
    let locks =
        text.split(|byte| *byte == b'\n').map(|line| PathBuf::from(OsStr::from_bytes(line)));
    let made = |path: &Path| path.symlink_metadata().and_then(|known| known.modified()).ok();
    let taken_after_it = |lock: &PathBuf| {
        let after =
            made(lock).zip(made(note)).and_then(|(lock, note)| lock.duration_since(note).ok());
        after.is_some_and(|after| after <= TAKING_TAKES)
    };
    locks.filter(|lock| is_lock_of(git_dir, lock)).filter(taken_after_it).collect()
}

/// Whether it is a lock that is ever noted: of a branch, of all references, of an index or a HEAD.
fn is_lock_of(git_dir: &Path, lock: &Path) -> bool {
    let Ok(inside) = lock.strip_prefix(git_dir) else { return false };
    let plain = inside.components().all(|part| matches!(part, Component::Normal(_)));
    let is_lock = lock.extension().is_some_and(|end| end == "lock");
    let name = lock.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let known = ["index.lock", "HEAD.lock", "packed-refs.lock"].contains(&name);
    plain && is_lock && (known || inside.starts_with("refs/heads"))
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
