//! Blobs: transcripts, logs and diffs, kept once by the hash of their content.
//!
//! Invariant: a blob that somebody owns, or that a record of the journal mentions, is never
//! removed; the foreign key of the owners stands behind that.

use std::collections::BTreeSet;

use kapelle_core::Seq;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::backend::{Backend, Row};
use crate::error::Error;
use crate::journal::{Epoch, Hash};

/// Larger contents are cut by whoever makes them; a database is no file server.
pub const BLOB_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A hash as text.
const HASH_DIGITS: usize = 64;

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
            for mentioned in page.iter().flat_map(hashes_in) {
                self.hashes.remove(&mentioned);
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

/// Whatever looks like a hash in the texts of a record; to keep too much is safe. They are read as
/// JSON, because what is written as `\\b` and a hash is not one longer word.
fn hashes_in(row: &Row) -> Vec<String> {
    let mut found = Vec::new();
    match serde_json::from_slice(&row.body) {
        Ok(value) => look_into(&value, &mut found),
        // No record of ours, and all the more reason not to remove anything.
        Err(_) => look_at(&String::from_utf8_lossy(&row.body), &mut found),
    }
    found
}

fn look_into(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => look_at(text, found),
        Value::Array(values) => values.iter().for_each(|value| look_into(value, found)),
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            look_at(name, found);
            look_into(value, found);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A hash may have other digits right before or after it.
fn look_at(text: &str, found: &mut Vec<String>) {
    for word in text.split(|c: char| !c.is_ascii_hexdigit()) {
        let windows = word.as_bytes().windows(HASH_DIGITS);
        found.extend(windows.map(|hash| String::from_utf8_lossy(hash).to_ascii_lowercase()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let body = format!("{{\"see\":\"{}\"}}", blob_hash(b"two")).into_bytes();
        store.adopt(Seq(0), &[Row { seq: 1, at: 1, epoch: 0, body, hash: vec![7; 32] }]).unwrap();
        assert_eq!(garbage.remove(&mut store, epoch).unwrap(), 1);
        assert_eq!(get(&store, blob_hash(b"two")).unwrap().as_deref(), Some(b"two".as_slice()));
    }

    /// JSON writes some characters as letters, which are digits of a hash as well.
    #[test]
    fn a_hash_right_after_an_escape_is_mentioned() {
        let hash = blob_hash(b"a transcript").to_string();
        let coded: String = hash.chars().map(|c| format!("\\u{:04x}", c as u32)).collect();
        for mentioned in [
            format!("\\b{hash}"),
            format!("\\f{hash}\\n"),
            format!("\\u001b{hash}"),
            format!("at:{hash},"),
            coded,
        ] {
            let body = format!("{{\"see\":[{{\"log\":\"{mentioned}\"}}]}}").into_bytes();
            let row = Row { seq: 1, at: 1, epoch: 0, body, hash: vec![7; 32] };
            assert_eq!(hashes_in(&row), [&*hash], "{mentioned}");
        }
    }
}
