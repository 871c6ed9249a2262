//! Removing a directory, whatever an agent did to its permissions.
//!
//! Invariant: symbolic links are removed, never followed.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{Error, Result, aside, inventory};

/// Removes whatever is at `path`. For scrap: what is worth keeping is kept before.
pub async fn remove_scrap(path: &Path) -> Result<()> {
    remove(path.into()).await
}

pub(super) async fn remove(path: PathBuf) -> Result<()> {
    aside(move || delete(&path)).await
}

fn delete(path: &Path) -> Result<()> {
    let once = || match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match once() {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            // Read-only directories, as some package caches make them: the walk opens them.
            inventory::walk(path)?;
            once().map_err(|source| Error::File { path: path.into(), source })
        }
        Err(source) => Err(Error::File { path: path.into(), source }),
    }
}
