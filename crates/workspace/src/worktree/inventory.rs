//! What lies in a tree: how much of it, and which directories are repositories of their own.
//!
//! Git treats a directory with a `.git` in it as a foreign repository and would record a pointer
//! instead of its files. The inventory finds these places so that no file is overlooked.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{Error, Result, aside};

/// A tree with more entries than this is no work of an agent but a runaway program.
const ENTRIES_MAX: usize = 2_000_000;

/// The owner may list, enter and change the directory.
pub(super) const OWNER_ALL: u32 = 0o700;

/// The owner may read the file.
const OWNER_READ: u32 = 0o400;

#[derive(Debug, Default)]
pub(super) struct Inventory {
    /// Bytes of all files, those in a `.git` aside.
    pub bytes: u64,
    /// Bytes of the largest of them.
    pub largest: u64,
    /// Directories below the top that hold a `.git`, relative to the top, parents first.
    pub nested: Vec<PathBuf>,
    /// What has a name that git does not take, relative to the top, parents first.
    pub refused: Vec<PathBuf>,
}

/// Walks the tree. Symbolic links are not followed. Directories that the owner cannot list and
/// files that the owner cannot read are opened up on the way, or they could not be kept. Pipes,
/// sockets and devices are removed: they hold nothing that could be kept, and git, which reads some
/// files for itself, would wait at a pipe for ever.
pub(super) async fn take(top: PathBuf) -> Result<Inventory> {
    aside(move || walk(&top)).await
}

pub(super) fn walk(top: &Path) -> Result<Inventory> {
    let mut found = Inventory::default();
    let mut entries = 0;
    let mut open = vec![PathBuf::new()];
    while let Some(relative) = open.pop() {
        let dir = top.join(&relative);
        let file = |source| Error::File { path: dir.clone(), source };
        allow(&dir, &fs::symlink_metadata(&dir).map_err(file)?, OWNER_ALL)?;
        for entry in fs::read_dir(&dir).map_err(file)? {
            let entry = entry.map_err(file)?;
            entries += 1;
            if entries > ENTRIES_MAX {
                return Err(Error::TooMany { dir: top.into(), limit: ENTRIES_MAX });
            }
            let kind = entry.file_type().map_err(file)?;
            if !(kind.is_dir() || kind.is_file() || kind.is_symlink()) {
                fs::remove_file(entry.path()).map_err(file)?;
                continue;
            }
            if entry.file_name() == ".git" {
                if relative.as_os_str().is_empty() {
                    continue;
                }
                if kind.is_symlink() || leads_to_a_repository(&entry.path(), kind.is_dir()) {
                    found.nested.push(relative.clone());
                    continue;
                }
            }
            if is_refused(&entry.file_name(), kind.is_symlink()) {
                found.refused.push(relative.join(entry.file_name()));
            }
            if kind.is_dir() {
                open.push(relative.join(entry.file_name()));
            } else if kind.is_file() {
                let known = entry.metadata().map_err(file)?;
                allow(&entry.path(), &known, OWNER_READ)?;
                found.bytes = found.bytes.saturating_add(known.len());
                found.largest = found.largest.max(known.len());
            }
        }
    }
    found.nested.sort();
    found.refused.sort();
    Ok(found)
}

/// Whether a `.git` is what git takes it for. Whatever else has the name is only somebody's file.
fn leads_to_a_repository(path: &Path, is_dir: bool) -> bool {
    if is_dir {
        return is_git_dir(path);
    }
    const START: &[u8] = b"gitdir:";
    let mut start = [0; START.len()];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == START
}

/// Whether there is, or was, a history in it. A `HEAD` that is gone takes no commit along.
pub(super) fn is_git_dir(path: &Path) -> bool {
    let has = |name: &str| path.join(name).symlink_metadata().is_ok();
    path.join("objects").is_dir() && (has("HEAD") || has("refs") || has("packed-refs"))
}

/// Whether git takes no such name, because on some file system it means `.git`. A link may not be
/// called like the list of submodules either.
fn is_refused(name: &OsStr, is_link: bool) -> bool {
    let name = name.to_string_lossy().to_ascii_lowercase();
    name.split('\\').any(|part| {
        let plain = part.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']);
        [".git", "git~1"].contains(&plain)
            || is_link && [".gitmodules", "gitmod~1"].contains(&plain)
    })
}

/// Gives what has a name that git does not take another one, by which it can still be known.
pub(super) async fn rename(top: PathBuf, refused: Vec<PathBuf>) -> Result<()> {
    aside(move || {
        // What is inside comes first: afterwards it is elsewhere.
        for place in refused.iter().rev() {
            let from = top.join(place);
            let name = from.file_name().unwrap_or_default().to_string_lossy().replace('\\', "_");
            let mut to = from.with_file_name(format!("refused-{name}"));
            let mut number = 1;
            while to.symlink_metadata().is_ok() {
                number += 1;
                to = from.with_file_name(format!("refused-{number}-{name}"));
            }
            fs::rename(&from, to).map_err(|source| Error::File { path: from, source })?;
        }
        Ok(())
    })
    .await
}

/// Leaves nothing but files in the git directory of an agent, of which git is asked next: a link
/// may lead to what the agent could not see, or to a pipe at which git would wait for ever. Gives
/// the bytes of the files.
pub(super) async fn leave_files_only(top: PathBuf) -> Result<u64> {
    aside(move || {
        let (mut entries, mut bytes) = (0, 0u64);
        let mut open = vec![top.clone()];
        while let Some(dir) = open.pop() {
            let file = |source| Error::File { path: dir.clone(), source };
            allow(&dir, &fs::symlink_metadata(&dir).map_err(file)?, OWNER_ALL)?;
            for entry in fs::read_dir(&dir).map_err(file)? {
                let entry = entry.map_err(file)?;
                entries += 1;
                if entries > ENTRIES_MAX {
                    return Err(Error::TooMany { dir: top, limit: ENTRIES_MAX });
                }
                let kind = entry.file_type().map_err(file)?;
                if kind.is_dir() {
                    open.push(entry.path());
                } else if kind.is_file() {
                    bytes = bytes.saturating_add(entry.metadata().map_err(file)?.len());
                } else {
                    fs::remove_file(entry.path()).map_err(file)?;
                }
            }
        }
        Ok(bytes)
    })
    .await
}

/// Gives the owner the permissions that are missing.
pub(super) fn allow(path: &Path, known: &fs::Metadata, wanted: u32) -> Result<()> {
    let mode = known.permissions().mode();
    if mode & wanted == wanted {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode | wanted))
        .map_err(|source| Error::File { path: path.into(), source })
}
