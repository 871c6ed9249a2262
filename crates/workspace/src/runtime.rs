//! A short place for sockets. The path of a socket has 107 bytes at most, and a project lies as deep
//! as its owner likes.
//!
//! Always the same place for the same project, whatever the environment of those who look for it.
//! It is known by what the file system calls the project's folder, which no other one is called.
//!
//! Invariant: the place is a folder of our user's alone, and no link. Whoever else could write there
//! could listen in our place.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

/// Not by `TMPDIR`, which differs from one terminal to the next, nor in the folder of a login, which
/// goes away with it.
const BASE: &str = "/tmp";

/// What others may do with the folder: nothing.
const OTHERS: u32 = 0o077;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{path} is not a folder of your own; sockets cannot be made there")]
    Foreign { path: PathBuf },
}

/// The folder for the sockets of a project; it is made if there is none.
pub fn sockets(project: &Path) -> Result<PathBuf, Error> {
    sockets_below(Path::new(BASE), project)
}

fn sockets_below(base: &Path, project: &Path) -> Result<PathBuf, Error> {
    let file = |path: &Path, source| Error::File { path: path.into(), source };
    let known = std::fs::metadata(project).map_err(|source| file(project, source))?;
    let place = base.join(format!("kapelle-{:x}-{:x}", known.dev(), known.ino()));
    match DirBuilder::new().mode(0o700).create(&place) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(file(&place, error));
        }
        _ => {}
    }
    let found = place.symlink_metadata().map_err(|source| file(&place, source))?;
    let ours = found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & OTHERS == 0;
    if ours { Ok(place) } else { Err(Error::Foreign { path: place }) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A folder in a place that everybody may write to could have been made by anybody.
    #[test]
    fn the_place_of_sockets_is_ours_alone() {
        let base = tempfile::tempdir().unwrap();
        let project = tempfile::tempdir().unwrap();
        let place = sockets_below(base.path(), project.path()).unwrap();
        assert_eq!(place.metadata().unwrap().mode() & 0o777, 0o700);
        assert_eq!(sockets_below(base.path(), project.path()).unwrap(), place);
        std::fs::set_permissions(&place, PermissionsExt::from_mode(0o755)).unwrap();
        let open = sockets_below(base.path(), project.path());
        assert!(matches!(open, Err(Error::Foreign { .. })), "{open:?}");
        std::fs::remove_dir(&place).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), &place).unwrap();
        let link = sockets_below(base.path(), project.path());
        assert!(matches!(link, Err(Error::Foreign { .. })), "{link:?}");
    }
}
