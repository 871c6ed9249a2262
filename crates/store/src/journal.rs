//! The journal: the one truth, append-only, chained by hashes. This is the contract that every
//! engine of storage keeps.
//!
//! Invariant: records are numbered without gaps from 1, and the hash of each covers everything
//! before it, so that the head's hash stands for the whole history, however it was batched.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use kapelle_core::{Event, Record, Seq, Timestamp};
use sha2::{Digest, Sha256};

use crate::error::Error;

pub trait Journal: Send {
    /// Makes the caller the only one whose appends are taken, from now on.
    fn claim_epoch(&mut self) -> Result<Epoch, Error>;

    /// The last record, as of the last look.
    fn head(&self) -> Head;

    /// Appends all of `records` after `expected`, durably, or none of them.
    fn append(&mut self, epoch: Epoch, expected: Seq, records: &[Record]) -> Result<Head, Error>;

    /// At most `limit` records that come after `after`, in order.
    fn read(&self, after: Seq, limit: usize) -> Result<Vec<Record>, Error>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub seq: Seq,
    pub hash: Hash,
}

impl Head {
    /// The head of a journal without records.
    pub const EMPTY: Head = Head { seq: Seq(0), hash: Hash([0; 32]) };
}

/// A term of leadership. Each is claimed once; 0 stands before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hash(pub [u8; 32]);

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({self})")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("64 hexadecimal digits expected")]
pub struct ParseHashError;

impl FromStr for Hash {
    type Err = ParseHashError;

    fn from_str(text: &str) -> Result<Hash, ParseHashError> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(ParseHashError);
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(ParseHashError);
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Ok(Hash(hash))
    }
}

/// A record in the form in which it is kept.
#[derive(Debug)]
pub(crate) struct Link {
    pub seq: Seq,
    pub at: Timestamp,
    /// The exact JSON text of the event; the hash is over this text, not over its meaning.
    pub body: String,
    pub hash: Hash,
}

/// The hash of a record that follows a history with the hash `previous`.
pub(crate) fn chain(previous: Hash, seq: Seq, at: Timestamp, epoch: Epoch, body: &[u8]) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update(previous.0);
    for number in [seq.0, at.0, epoch.0, body.len() as u64] {
        hasher.update(number.to_be_bytes());
    }
    hasher.update(body);
    Hash(hasher.finalize().into())
}

/// The event that a body tells. What is kept may be no text any more; then its number is told.
pub(crate) fn event(seq: Seq, body: &[u8]) -> Result<Event, Error> {
    serde_json::from_slice(body)
        .map_err(|source| Error::Unreadable { seq, source: Arc::new(source) })
}

/// Refuses a record that is not the next one. Whoever decides from a history must not pass over a
/// hole in it.
pub(crate) fn refuse_hole(after: Seq, found: Seq) -> Result<(), Error> {
    let next = Seq(after.0 + 1);
    if found == next { Ok(()) } else { Err(Error::Missing { seq: next }) }
}

/// What an append would add, or why it is refused. The rule of every implementation.
pub(crate) fn admit(
    (head, current): (Head, Epoch),
    epoch: Epoch,
    expected: Seq,
    records: &[Record],
) -> Result<Vec<Link>, Error> {
    if epoch != current {
        return Err(Error::StaleEpoch { presented: epoch, current });
    }
    if expected != head.seq {
        return Err(Error::Conflict { expected, actual: head.seq });
    }
    let (mut after, mut hash) = (head.seq, head.hash);
    let mut links = Vec::with_capacity(records.len());
    for &Record { seq, at, ref event } in records {
        if seq.0 != after.0 + 1 {
            return Err(Error::Gap { after, found: seq });
        }
        for (what, value) in [("record number", seq.0), ("time", at.0), ("epoch", epoch.0)] {
            if i64::try_from(value).is_err() {
                return Err(Error::OutOfRange { what, value: value.to_string() });
            }
        }
        let body = serde_json::to_string(event)
            .map_err(|source| Error::Unwritable { seq, source: Arc::new(source) })?;
        hash = chain(hash, seq, at, epoch, body.as_bytes());
        after = seq;
        links.push(Link { seq, at, body, hash });
    }
    Ok(links)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_read_back_as_they_were_written() {
        let hash = Hash(std::array::from_fn(|i| (i * 7) as u8));
        assert_eq!(hash.to_string().parse(), Ok(hash));
        for wrong in ["", &"g".repeat(64), &"0".repeat(63), &"é".repeat(32), &"+0".repeat(32)] {
            assert_eq!(wrong.parse::<Hash>(), Err(ParseHashError), "{wrong:?}");
        }
    }

    /// The recipe is for ever: a journal that was written must verify with every later version.
    #[test]
    fn the_chain_is_the_agreed_one() {
        let hash = chain(Hash([0; 32]), Seq(1), Timestamp(2), Epoch(3), b"{}");
        let expected = "3638f5d230717546385663096b625ab3904ab8f18d8caad07319065695f81e6b";
        assert_eq!(hash.to_string(), expected);
    }
}
