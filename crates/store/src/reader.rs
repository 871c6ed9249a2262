//! A look at a store from beside: other processes read while one writes.
//!
//! Invariant: nothing here can write, and nothing here waits for the writer.

use std::fmt;

use kapelle_core::{Engine, Record, Seq, State, Timestamp};

use crate::audit::{AuditError, Verified, verify_backend};
use crate::backend::Backend;
use crate::blobs;
use crate::error::Error;
use crate::fingerprint::{Fingerprint, expected, fingerprints};
use crate::journal::{Hash, Head};
use crate::location::Location;
use crate::lost::Witnesses;
use crate::open::open_read_only;
use crate::search::{Document, Query};
use crate::snapshot;

/// Enough to keep a database busy, little enough to keep in memory.
const PAGE_RECORDS: usize = 1_000;

pub struct Reader {
    pub(crate) backend: Box<dyn Backend>,
}

impl Reader {
    pub fn open(location: impl Into<Location>) -> Result<Reader, Error> {
        Ok(Reader { backend: open_read_only(&location.into())? })
    }

    pub fn head(&self) -> Result<Head, Error> {
        Ok(self.backend.look()?.0)
    }

    pub fn store_id(&self) -> Result<String, Error> {
        self.backend.store_id()
    }

    /// At most `limit` records that come after `after`, in order and without a hole.
    pub fn records(&self, after: Seq, limit: usize) -> Result<Vec<Record>, Error> {
        self.backend.read(after, limit)
    }

    /// Everything that comes after `after`, page by page.
    #[must_use]
    pub fn history(&self, after: Seq) -> History<'_> {
        History { reader: self, after, page: Vec::new().into_iter(), ended: false }
    }

    /// The state of the last snapshot, and the record at which it was; the state before the first
    /// record if there is none. What follows has to be folded.
    pub fn snapshot(&self) -> Result<(State, Seq), Error> {
        Ok(snapshot::state(&*self.backend))
    }

    /// An engine that stands where the journal ends, from the last snapshot on.
    pub fn recover(&self) -> Result<Engine, Error> {
        let (state, at) = self.snapshot()?;
        let rest: Vec<Record> = self.history(at).collect::<Result<_, _>>()?;
        Ok(Engine::resume(state, at, rest))
    }

    /// The state after the last record that the moment covers, and which record that was.
    pub fn state_at(&self, moment: Moment) -> Result<(State, Seq), Error> {
        let (mut state, mut at) = (State::default(), Seq(0));
        for record in self.history(Seq(0)) {
            let record = record?;
            let covered = match moment {
                Moment::Seq(seq) => record.seq <= seq,
                Moment::Time(time) => record.at <= time,
            };
            if !covered {
                break;
            }
            state.apply(&record.event, record.at);
            at = record.seq;
        }
        Ok((state, at))
    }

    /// How far the tables for people reach.
    pub fn watermark(&self) -> Result<Seq, Error> {
        self.backend.watermark()
    }

    /// How many records the tables for people do not tell of yet.
    pub fn records_behind(&self) -> Result<u64, Error> {
        let reached = self.watermark()?;
        Ok(self.head()?.seq.0.saturating_sub(reached.0))
    }

    /// Why the tables for people are not what they should be, if they are not: they cannot be read,
    /// or whoever folds them cannot go on.
    #[must_use]
    pub fn trouble_with_tables(&self) -> Option<String> {
        let told = || {
            let behind = self.watermark()? < self.head()?.seq;
            if behind { self.backend.complaint() } else { Ok(None) }
        };
        told().unwrap_or_else(|unreadable: Error| Some(unreadable.to_string()))
    }

    /// Why the journal is not whole, if something beside it tells of more.
    pub fn lost_end(&self) -> Result<Option<Error>, Error> {
        let witnesses = Witnesses::hear(&*self.backend);
        witnesses.against(&*self.backend, self.head()?)
    }

    /// What stands for the content of each table: equal content has equal fingerprints, on every
    /// engine of storage.
    pub fn tables(&self) -> Result<Vec<Fingerprint>, Error> {
        fingerprints(&*self.backend)
    }

    /// Recomputes the whole chain.
    pub fn verify(&self) -> Result<Verified, AuditError> {
        verify_backend(&*self.backend)
    }

    /// Tables that are not what the journal says, as far as they claim to reach.
    pub fn wrong_tables(&self) -> Result<Vec<&'static str>, Error> {
        let expected = expected(&*self.backend, self.watermark()?)?;
        let found = self.tables()?;
        let differing = expected.iter().zip(&found).filter(|(one, other)| one != other);
        Ok(differing.map(|(one, _)| one.table).collect())
    }

    /// How far the search reaches.
    pub fn searchable(&self) -> Result<Seq, Error> {
        self.backend.searchable()
    }

    /// Why the search cannot be used or does not go on, if that can be found out. Looks through all
    /// of it.
    #[must_use]
    pub fn trouble_with_search(&self) -> Option<String> {
        self.backend.trouble_with_search().unwrap_or_else(|error| Some(error.to_string()))
    }

    /// What could not be made searchable, and why, if somebody has noted that.
    #[must_use]
    pub fn unsearchable(&self) -> Option<String> {
        // Tables that cannot be read are told by themselves.
        self.backend.search_complaint().ok().flatten()
    }

    pub fn search(&self, query: &Query) -> Result<Vec<Document>, Error> {
        self.backend.search(query)
    }

    /// The content with this hash, if it is kept.
    pub fn blob(&self, hash: Hash) -> Result<Option<Vec<u8>>, Error> {
        blobs::get(&*self.backend, hash)
    }
}

/// A moment in the life of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// With this record, and nothing later.
    Seq(Seq),
    /// With everything that was recorded until then.
    Time(Timestamp),
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

/// The records of a journal in order; ends at the first that cannot be read.
#[derive(Debug)]
pub struct History<'a> {
    reader: &'a Reader,
    after: Seq,
    page: std::vec::IntoIter<Record>,
    ended: bool,
}

impl Iterator for History<'_> {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Result<Record, Error>> {
        if self.page.len() == 0 && !self.ended {
            match self.reader.records(self.after, PAGE_RECORDS) {
                Ok(page) => {
                    self.ended = page.len() < PAGE_RECORDS;
                    self.page = page.into_iter();
                }
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        let record = self.page.next()?;
        self.after = record.seq;
        Some(Ok(record))
    }
}
