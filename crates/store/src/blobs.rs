//! Blobs: transcripts, logs and diffs, kept once by the hash of their content.
//!
//! Invariant: a blob that somebody owns, or that a record of the journal mentions, is never
//! removed; the foreign key of the owners stands behind that.

use std::collections::BTreeSet;

use kapelle_core::Seq;
use sha2::{Digest, Sha256};

use crate::backend::Backend;
use crate::error::Error;
use crate::journal::Hash;

/// Larger contents are cut by whoever makes them; a database is no file server.
pub const BLOB_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How many records are looked through at a time.
const PAGE: usize = 10_000;

/// The hash under which a content is kept.
#[must_use]
pub fn blob_hash(body: &[u8]) -> Hash {
    Hash(Sha256::digest(body).into())
}

pub(crate) fn put(backend: &mut dyn Backend, body: &[u8], owner: &str) -> Result<Hash, Error> {
    if body.len() > BLOB_BYTES_MAX {
        return Err(Error::TooLarge { what: "blob", bytes: body.len(), max: BLOB_BYTES_MAX });
    }
    let hash = blob_hash(body);
    backend.put_blob(&hash.to_string(), body, owner)?;
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

/// Removes what nobody needs. Returns how many.
pub(crate) fn collect_garbage(backend: &mut dyn Backend) -> Result<u64, Error> {
    let mut unneeded: BTreeSet<String> = backend.ownerless_blobs()?.into_iter().collect();
    let mut after = Seq(0);
    while !unneeded.is_empty() {
        let page = backend.rows(after, PAGE)?;
        let Some(last) = page.last() else { break };
        after = Seq(last.seq.cast_unsigned());
        for row in &page {
            for mentioned in hashes_in(&row.body) {
                unneeded.remove(mentioned);
            }
        }
    }
    let unneeded: Vec<String> = unneeded.into_iter().collect();
    if unneeded.is_empty() { Ok(0) } else { backend.remove_blobs(&unneeded) }
}

/// Whatever looks like a hash; to keep too much is safe.
fn hashes_in(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_hexdigit()).filter(|word| word.len() == 64)
}
