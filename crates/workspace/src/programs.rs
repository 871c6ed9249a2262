//! Where programs are looked for.
//!
//! Invariant: never in a relative place. It would lead into whatever repository a program is started
//! in, and what lies there is not the user's `git` or `bwrap`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A program by its name, for whoever starts it. One that is not there keeps its name, and starting
/// it says so.
///
/// A process that is started by its whole path need not begin as a copy of ours, which takes the
/// longer the more memory we have.
#[must_use]
pub fn named(program: &str) -> OsString {
    find(program).map_or_else(|| program.into(), OsString::from)
}

pub(crate) fn find(program: &str) -> Option<PathBuf> {
    folders().map(|folder| folder.join(program)).find(|candidate| is_executable(candidate))
}

/// `PATH`, as far as it is to be believed.
pub(crate) fn search_path() -> OsString {
    // Only a folder with a colon in it could not be joined, and none is: they were split there.
    std::env::join_paths(folders()).unwrap_or_default()
}

fn folders() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.into_iter().filter(|folder| folder.is_absolute())
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
