//! The audit: is the history the one that was written?
//!
//! The chain shows every changed, inserted or missing record. What it cannot show by itself is a
//! history cut at its end; the watermark of the projections betrays most such cuts, and the head's
//! hash, noted elsewhere, all of them.

use std::path::Path;

use kapelle_core::{Seq, Timestamp};

use crate::error::Error;
use crate::journal::{Epoch, Hash, Head, chain};
use crate::{connection, projections, sqlite};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    pub records: u64,
    /// Stands for the whole history: the same hash means the same records.
    pub head: Head,
}

/// The first record that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record {seq} {why}")]
pub struct Broken {
    pub seq: Seq,
    pub why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    #[error("is missing")]
    Missing,
    #[error("was changed: it carries the hash {stored}, but its content gives {computed}")]
    Changed { stored: Hash, computed: Hash },
    #[error("has a hash of {bytes} bytes")]
    MalformedHash { bytes: usize },
    #[error("was written in epoch {epoch}, which was over")]
    EpochOver { epoch: Epoch },
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum AuditError {
    #[error(transparent)]
    Broken(#[from] Broken),
    /// The audit could not be made, which says nothing about the history.
    #[error(transparent)]
    Store(#[from] Error),
}

impl From<rusqlite::Error> for AuditError {
    fn from(error: rusqlite::Error) -> AuditError {
        AuditError::Store(error.into())
    }
}

/// Recomputes the whole chain of the store in the file `path`, which is only read.
pub fn verify(path: &Path) -> Result<Verified, AuditError> {
    let mut conn = connection::open_read_only(path)?;
    // One transaction sees one moment, whoever writes meanwhile.
    let tx = conn.transaction()?;
    let current = sqlite::epoch(&tx)?;
    let (mut head, mut last_epoch) = (Head::EMPTY, Epoch(0));
    let mut statement =
        tx.prepare("SELECT seq, at, epoch, body, hash FROM journal ORDER BY seq")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let seq = Seq(head.seq.0 + 1);
        let broken = |why| Err(Broken { seq, why });
        // Numbers are taken bit by bit: a negative one is a tampered record, not a failed audit.
        let number = |column| row.get(column).map(i64::cast_unsigned);
        if number(0)? != seq.0 {
            broken(Why::Missing)?;
        }
        let (at, epoch) = (Timestamp(number(1)?), Epoch(number(2)?));
        let body = row.get_ref(3)?.as_str().map_err(rusqlite::Error::from)?;
        let stored = row.get_ref(4)?.as_blob().map_err(rusqlite::Error::from)?;
        let Ok(stored) = stored.try_into().map(Hash) else {
            broken(Why::MalformedHash { bytes: stored.len() })?;
            break;
        };
        let computed = chain(head.hash, seq, at, epoch, body);
        if stored != computed {
            broken(Why::Changed { stored, computed })?;
        }
        if epoch < last_epoch || epoch > current {
            broken(Why::EpochOver { epoch })?;
        }
        (head, last_epoch) = (Head { seq, hash: stored }, epoch);
    }
    if projections::watermark(&tx)? > head.seq {
        Err(Broken { seq: Seq(head.seq.0 + 1), why: Why::Missing })?;
    }
    Ok(Verified { records: head.seq.0, head })
}
