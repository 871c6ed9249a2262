//! The snapshot of a SQLite store: a file beside it. In the database it would go through the
//! write-ahead log and hold up the appends.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

use super::connection::beside;
use crate::error::Error;
use crate::snapshot::SNAPSHOT_BYTES_MAX;

pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    read_start(path, usize::MAX)
}

/// At most so many bytes of it.
pub(super) fn read_start(path: &Path, bytes: usize) -> Result<Option<Vec<u8>>, Error> {
    let place = beside(path, "-snapshot");
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags.bits()).open(&place) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(&place)(error)),
    };
    let found = file.metadata().map_err(Error::io(&place))?;
    if !found.is_file() || found.len() > SNAPSHOT_BYTES_MAX {
        return Ok(None);
    }
    let wanted = found.len().min(bytes as u64);
    let mut body = Vec::with_capacity(usize::try_from(wanted).unwrap_or(0));
    file.take(wanted).read_to_end(&mut body).map_err(Error::io(&place))?;
    Ok(Some(body))
}

/// Whole or not at all: written beside its place and renamed into it.
pub(super) fn write(path: &Path, body: &[u8]) -> Result<(), Error> {
    let (place, half) = (beside(path, "-snapshot"), beside(path, "-snapshot.half"));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.custom_flags(OFlag::O_NOFOLLOW.bits());
    let mut file: File = options.open(&half).map_err(Error::io(&half))?;
    file.write_all(body).and_then(|()| file.sync_all()).map_err(Error::io(&half))?;
    std::fs::rename(&half, &place).map_err(Error::io(&place))
}
