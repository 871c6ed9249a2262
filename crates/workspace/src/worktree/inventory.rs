//! What lies in a tree: how much of it, and which directories are repositories of their own.
//!
//! Git treats a directory with a `.git` in it as a foreign repository and would record a pointer
//! instead of its files. The inventory finds these places so that no file is overlooked.

use std::fs::{self, Permissions};
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
            } else if entry.file_name() == ".git" {
                if !relative.as_os_str().is_empty() {
                    found.nested.push(relative.clone());
                }
            } else if kind.is_dir() {
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
    Ok(found)
}

/// Leaves nothing but files in the git directory of an agent, of which git is asked next: a link
/// may lead to what the agent could not see, or to a pipe at which git would wait for ever.
pub(super) async fn leave_files_only(top: PathBuf) -> Result<()> {
    aside(move || {
        let mut entries = 0;
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
                } else if !kind.is_file() {
                    fs::remove_file(entry.path()).map_err(file)?;
                }
            }
        }
        Ok(())
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
