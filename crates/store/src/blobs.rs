//! Blobs: transcripts, logs and diffs, kept once by the hash of their content.
//!
//! Invariant: a blob that somebody owns, or that a record of the journal mentions, is never
//! removed; the foreign key of the owners stands behind that.

use std::collections::BTreeSet;

use kapelle_core::Seq;
use sha2::{Digest, Sha256};

use crate::backend::Backend;
use crate::error::Error;
use crate::journal::{Epoch, Hash};

/// Larger contents are cut by whoever makes them; a database is no file server.
pub const BLOB_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How many records are looked through at a time.
const PAGE: usize = 10_000;

/// The hash under which a content is kept.
#[must_use]
pub fn blob_hash(body: &[u8]) -> Hash {
    Hash(Sha256::digest(body).into())
}

pub(crate) fn put(
    backend: &mut dyn Backend,
    epoch: Epoch,
    body: &[u8],
    owner: String,
) -> Result<Hash, Error> {
    if body.len() > BLOB_BYTES_MAX {
        return Err(Error::TooLarge { what: "blob", bytes: body.len(), max: BLOB_BYTES_MAX });
    }
    let hash = blob_hash(body);
    backend.put_blob(epoch, &hash.to_string(), body, &[owner])?;
    Ok(hash)
}

/// The content, if it is there and still what its hash says.
pub(crate) fn get(backend: &dyn Backend, hash: Hash) -> Result<Option<Vec<u8>>, Error> {
    let Some(body) = backend.blob(&hash.to_string())? else { return Ok(None) };
    let found = blob_hash(&body);
    if found != hash {
        return Err(Error::Damaged { what: format!("blob {hash}: its content gives {found}") });
    }
    Ok(Some(body))
}

/// Blobs that nobody owns and that no record mentions, of those up to some record.
pub(crate) struct Garbage {
    hashes: BTreeSet<String>,
    looked_to: Seq,
}

impl Garbage {
    /// Looks through the whole journal, which takes long, and holds up nobody.
    pub(crate) fn found_in(backend: &dyn Backend) -> Result<Garbage, Error> {
        let hashes = backend.ownerless_blobs()?.into_iter().collect();
        let mut garbage = Garbage { hashes, looked_to: Seq(0) };
        garbage.look_on(backend)?;
        Ok(garbage)
    }

    /// Keeps what a later record mentions.
    fn look_on(&mut self, backend: &dyn Backend) -> Result<(), Error> {
        while !self.hashes.is_empty() {
            let page = backend.rows(self.looked_to, PAGE)?;
            let Some(last) = page.last() else { break };
            self.looked_to = Seq(last.seq.cast_unsigned());
            for mentioned in page.iter().flat_map(|row| hashes_in(&row.body)) {
                self.hashes.remove(mentioned);
            }
        }
        Ok(())
    }

    /// Removes what is still unneeded, and tells how many. For whoever appends: between its look at
    /// the last records and the removal, nobody can mention one.
    pub(crate) fn remove(mut self, backend: &mut dyn Backend, epoch: Epoch) -> Result<u64, Error> {
        self.look_on(backend)?;
        let hashes: Vec<String> = self.hashes.into_iter().collect();
        if hashes.is_empty() { Ok(0) } else { backend.remove_blobs(epoch, &hashes) }
    }
}

/// Whatever looks like a hash; to keep too much is safe.
fn hashes_in(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_hexdigit()).filter(|word| word.len() == 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Row;
    use crate::sqlite::Sqlite;

    /// Between the long look at the journal and the removal, appends go on.
    #[test]
    fn what_is_mentioned_meanwhile_is_no_garbage() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Sqlite::open(&dir.path().join("db")).unwrap();
        let epoch = Epoch(0);
        for body in [b"one", b"two"] {
            store.put_blob(epoch, &blob_hash(body).to_string(), body, &[]).unwrap();
        }
        let garbage = Garbage::found_in(&store).unwrap();
        assert_eq!(garbage.hashes.len(), 2);
        let body = format!("{{\"see\":\"{}\"}}", blob_hash(b"two"));
        store.adopt(Seq(0), &[Row { seq: 1, at: 1, epoch: 0, body, hash: vec![7; 32] }]).unwrap();
        assert_eq!(garbage.remove(&mut store, epoch).unwrap(), 1);
        assert_eq!(get(&store, blob_hash(b"two")).unwrap().as_deref(), Some(b"two".as_slice()));
    }
}
