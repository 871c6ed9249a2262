//! Why the tables do not go on, when not even that can be written into them: a file beside them.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use super::connection::beside;
use crate::error::Error;
use crate::location::tables_path;

/// A sentence; the file is outside data.
const BYTES_MAX: u64 = 4096;

fn place(path: &Path) -> PathBuf {
    beside(&tables_path(path), "-complaint")
}

pub(super) fn note(path: &Path, why: &str) -> Result<(), Error> {
    let place = place(path);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let file = options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(&place);
    file.and_then(|mut file| file.write_all(why.as_bytes())).map_err(Error::io(&place))
}

/// None if there is none, or none that can be read.
pub(super) fn read(path: &Path) -> Option<String> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(place(path)).ok()?;
    let mut why = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut why).ok()?;
    Some(String::from_utf8_lossy(&why).into_owned()).filter(|why| !why.is_empty())
}

pub(super) fn forget(path: &Path) -> Result<(), Error> {
    let place = place(path);
    match std::fs::remove_file(&place) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io(&place)(error)),
        _ => Ok(()),
    }
}
