//! The audit: is the history the one that was written?
//!
//! The chain shows every changed, inserted or missing record. What it cannot show by itself is a
//! history cut at its end; tables and snapshots betray most such cuts (`lost`), and the head's hash,
//! noted elsewhere, all of them.

use kapelle_core::{Seq, Timestamp};

use crate::backend::{Backend, Row};
use crate::error::Error;
use crate::journal::{Epoch, Hash, Head, chain};
use crate::location::Location;
use crate::lost::Witnesses;
use crate::reader::Reader;

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

/// How many records are held in memory at a time.
const PAGE: usize = 10_000;

/// Recomputes the whole chain of the store at `location`, which is only read.
pub fn verify(location: impl Into<Location>) -> Result<Verified, AuditError> {
    Reader::open(location)?.verify()
}

/// Whoever writes meanwhile only adds, so what is read page by page is one history. What
/// tells of its end comes first and the epoch last, because all of them only grow.
pub(crate) fn verify_backend(backend: &dyn Backend) -> Result<Verified, AuditError> {
    // Tables that cannot be read betray nothing, and the history can be looked at all the same.
    let witnesses = Witnesses::hear(backend);
    let (mut head, mut last_epoch) = (Head::EMPTY, Epoch(0));
    loop {
        let page = backend.rows(head.seq, PAGE)?;
        for row in &page {
            (head, last_epoch) = check(row, head, last_epoch)?;
        }
        if page.len() < PAGE {
            break;
        }
    }
    let (_, current) = backend.look()?;
    if last_epoch > current {
        Err(first_of_epoch(backend, current)?)?;
    }
    if witnesses.against(backend, head)?.is_some() {
        Err(Broken { seq: Seq(head.seq.0 + 1), why: Why::Missing })?;
    }
    Ok(Verified { records: head.seq.0, head })
}

/// Checks the record that should follow `head`.
pub(crate) fn check(row: &Row, head: Head, last_epoch: Epoch) -> Result<(Head, Epoch), Broken> {
    let seq = Seq(head.seq.0 + 1);
    let broken = |why| Broken { seq, why };
    // Numbers are taken bit by bit: a negative one is a tampered record, not a failed audit.
    if row.seq.cast_unsigned() != seq.0 {
        return Err(broken(Why::Missing));
    }
    let (at, epoch) = (Timestamp(row.at.cast_unsigned()), Epoch(row.epoch.cast_unsigned()));
    let Ok(stored) = row.hash.as_slice().try_into().map(Hash) else {
        return Err(broken(Why::MalformedHash { bytes: row.hash.len() }));
    };
    let computed = chain(head.hash, seq, at, epoch, &row.body);
    if stored != computed {
        return Err(broken(Why::Changed { stored, computed }));
    }
    if epoch < last_epoch {
        return Err(broken(Why::EpochOver { epoch }));
    }
    Ok((Head { seq, hash: stored }, epoch))
}

/// The first record of an epoch that the store never had.
fn first_of_epoch(backend: &dyn Backend, current: Epoch) -> Result<Broken, Error> {
    let mut after = Seq(0);
    loop {
        let page = backend.rows(after, PAGE)?;
        let later = |row: &&Row| row.epoch.cast_unsigned() > current.0;
        if let Some(row) = page.iter().find(later) {
            let why = Why::EpochOver { epoch: Epoch(row.epoch.cast_unsigned()) };
            return Ok(Broken { seq: Seq(row.seq.cast_unsigned()), why });
        }
        let Some(last) = page.last() else {
            return Ok(Broken { seq: after, why: Why::EpochOver { epoch: current } });
        };
        after = Seq(last.seq.cast_unsigned());
    }
}
