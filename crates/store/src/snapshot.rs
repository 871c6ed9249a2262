//! Snapshots: the fold at some moment, so that a start need not begin at the first record.
//!
//! Invariant: a snapshot is a cache. Whatever is not exactly what this version would have written
//! about this very journal is ignored, and the journal is folded instead.

use kapelle_core::{Seq, State};
use sha2::{Digest, Sha256};

use crate::backend::Backend;
use crate::journal::{Hash, Head};
use crate::projections::Fold;

/// More than this is not worth a cache; a state of a million tasks stays below it.
pub(crate) const SNAPSHOT_BYTES_MAX: u64 = 1 << 30;

/// Raised when a state means something else, though it looks the same.
const MEANING: u32 = 10;

const MAGIC: &[u8; 8] = b"KAPSNAP1";

/// Magic, fingerprint, head, checksum of the rest.
const HEADER_BYTES: usize = 8 + 32 + 8 + 32 + 32;

/// Which versions of the program write and read the same states: the version, and how an empty
/// fold looks, which shows fields that came and went meanwhile.
fn fingerprint() -> Result<[u8; 32], rmp_serde::encode::Error> {
    let empty = rmp_serde::to_vec_named(&Fold::default())?;
    let mut hasher = Sha256::new();
    hasher.update(env!("CARGO_PKG_VERSION"));
    hasher.update(MEANING.to_be_bytes());
    hasher.update(crate::tables::VERSION.to_be_bytes());
    hasher.update(empty);
    Ok(hasher.finalize().into())
}

/// The snapshot of a fold that stands at `head`; None if it cannot be written.
pub(crate) fn encode(fold: &Fold, head: Head) -> Option<Vec<u8>> {
    let body = rmp_serde::to_vec_named(fold).ok()?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&fingerprint().ok()?);
    bytes.extend_from_slice(&head.seq.0.to_be_bytes());
    bytes.extend_from_slice(&head.hash.0);
    bytes.extend_from_slice(&Sha256::digest(&body));
    bytes.extend_from_slice(&body);
    (bytes.len() as u64 <= SNAPSHOT_BYTES_MAX).then_some(bytes)
}

/// What a snapshot says, if it is one of ours and whole.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Fold, Head)> {
    let (magic, rest) = bytes.split_at_checked(8)?;
    let (version, rest) = rest.split_at_checked(32)?;
    let (seq, rest) = rest.split_first_chunk()?;
    let (hash, rest) = rest.split_first_chunk()?;
    let (checksum, body) = rest.split_at_checked(32)?;
    let ours = magic == MAGIC && version == fingerprint().ok()?;
    if !ours || checksum != Sha256::digest(body).as_slice() {
        return None;
    }
    let fold: Fold = rmp_serde::from_slice(body).ok()?;
    let head = Head { seq: Seq(u64::from_be_bytes(*seq)), hash: Hash(*hash) };
    (fold.seq() == head.seq).then_some((fold, head))
}

/// The fold of the last snapshot, if it can be read and is of this journal.
pub(crate) fn load(backend: &dyn Backend) -> Option<Fold> {
    let bytes = backend.snapshot().ok().flatten()?;
    let (fold, head) = decode(&bytes)?;
    (head_at(backend, head.seq)? == head).then_some(fold)
}

/// Which record the last snapshot says it is at, without a look at the rest of it.
pub(crate) fn told_seq(backend: &dyn Backend) -> Option<Seq> {
    let start = backend.snapshot_start(HEADER_BYTES).ok().flatten()?;
    let (magic, rest) = start.split_at_checked(8)?;
    let (_, rest) = rest.split_at_checked(32)?;
    let (seq, _) = rest.split_first_chunk()?;
    (magic == MAGIC).then(|| Seq(u64::from_be_bytes(*seq)))
}

/// Where the last snapshot is, of whichever journal, if it is whole.
pub(crate) fn head(backend: &dyn Backend) -> Option<Head> {
    decode(&backend.snapshot().ok().flatten()?).map(|(_, head)| head)
}

/// The head of the journal when this record was the last one.
pub(crate) fn head_at(backend: &dyn Backend, seq: Seq) -> Option<Head> {
    let rows = backend.rows(Seq(seq.0.checked_sub(1)?), 1).ok()?;
    let row = rows.first().filter(|row| row.seq.cast_unsigned() == seq.0)?;
    Some(Head { seq, hash: Hash(row.hash.as_slice().try_into().ok()?) })
}

/// The state at the end of the last snapshot, and where that is.
pub(crate) fn state(backend: &dyn Backend) -> (State, Seq) {
    let fold = load(backend).unwrap_or_default();
    let seq = fold.seq();
    (fold.into_state(), seq)
}
