//! What an engine of storage does beside keeping the journal: the contract behind the writer, the
//! readers and the tools. PostgreSQL and SQLite keep it; memory keeps only the journal's.

use std::borrow::Cow;

use kapelle_core::{Record, Seq, Timestamp};

use crate::error::Error;
use crate::journal::{Epoch, Hash, Head, Journal, Link, admit, event};
use crate::lock::Holder;
use crate::projections::Changes;
use crate::search::{Document, Query};
use crate::tables::Table;
use crate::value::Value;

/// One append of a group.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub epoch: Epoch,
    pub expected: Seq,
    pub records: Cow<'a, [Record]>,
}

/// A record as it is kept, before anybody believed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub seq: i64,
    pub at: i64,
    pub epoch: i64,
    /// The text of the event, if nothing has happened to it.
    pub body: Vec<u8>,
    pub hash: Vec<u8>,
}

impl Row {
    pub(crate) fn record(&self) -> Result<Record, Error> {
        let seq = Seq(self.seq.cast_unsigned());
        let event = event(seq, &self.body)?;
        Ok(Record { seq, at: Timestamp(self.at.cast_unsigned()), event })
    }

    /// The tag that every event begins with.
    pub(crate) fn event_type(&self) -> &str {
        let tag = self.body.split(|byte| *byte == b'"').nth(3).unwrap_or_default();
        str::from_utf8(tag).unwrap_or_default()
    }
}

/// What the tables say of themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    /// The last record that they tell of.
    pub seq: Seq,
    /// Its hash, as text; empty before the first record.
    pub hash: String,
    /// Which form they have.
    pub version: i64,
}

/// Documents that are told by nothing else.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub documents: Vec<Document>,
    /// Whether these are all of them.
    pub whole: bool,
}

/// Is told of something once.
pub(crate) type Tell = Box<dyn FnOnce(Error) + Send>;

/// What is written together.
pub(crate) type Writes<'a> = dyn FnMut(&mut dyn Backend) -> Result<(), Error> + 'a;

/// Whoever writes says under which epoch it claimed the store; if that is over, nothing is written
/// and the answer is `StaleEpoch`. Snapshots alone do not: they are believed only as far as they
/// fit the journal.
pub(crate) trait Backend: Journal {
    /// Claims an epoch for the holder, unless another holder is there and alive. Where the engine
    /// has no lock of its own, the file lock decides who is alone.
    fn lead(&mut self, _holder: &Holder) -> Result<Epoch, Error> {
        self.claim_epoch()
    }

    /// Tells as soon as another has claimed what this one leads. Nobody is told where a file lock
    /// keeps the others away.
    fn when_deposed(&self, _tell: Tell) {}

    /// Lets others know where the holder answers.
    fn publish(&mut self, _epoch: Epoch, _url: &str) -> Result<(), Error> {
        Ok(())
    }

    /// Who leads the project now, where the engine knows; a file lock tells its own.
    fn leader(&self) -> Result<Option<Holder>, Error> {
        Ok(None)
    }

    /// Carries out several appends with one commit. Each is admitted or refused by itself; if the
    /// commit fails, all of them have failed.
    fn append_group(&mut self, group: &[Request<'_>]) -> Vec<Result<Head, Error>>;

    /// Runs several writes as one: all of them are there afterwards, or none, whatever happens.
    fn all_or_nothing(&mut self, work: &mut Writes<'_>) -> Result<(), Error>;

    /// Writes a history as it was, with its epochs and hashes, into an empty journal. The store's
    /// epoch becomes that of the last record, if that is later.
    fn adopt(&mut self, after: Seq, rows: &[Row]) -> Result<(), Error>;

    /// Tells this store from every other one, copies aside.
    fn store_id(&self) -> Result<String, Error>;
    fn look(&self) -> Result<(Head, Epoch), Error>;
    fn rows(&self, after: Seq, limit: usize) -> Result<Vec<Row>, Error>;

    /// Whether a record with this hash is in the journal, wherever. Looks through all of it.
    fn has_record(&self, hash: Hash) -> Result<bool, Error>;

    /// What the tables say of themselves, if they say something.
    fn told(&self) -> Result<Option<Told>, Error>;
    /// Tables, views and the watermark, as far as they are not there.
    fn missing_tables(&self) -> Result<Vec<&'static str>, Error>;
    /// How far the tables for people reach.
    fn watermark(&self) -> Result<Seq, Error>;
    /// Writes rows and watermark in one transaction, and nothing if the store's epoch is another or
    /// the tables do not reach exactly to the start of the span: then somebody else folds them, and whoever is
    /// late must not take them back.
    fn write_rows(
        &mut self,
        epoch: Epoch,
        changes: &Changes,
        span: (Seq, Seq),
    ) -> Result<(), Error>;
    /// Wakes those who follow the journal from another process. Rows that are written wake them, too.
    fn announce(&self, head: Seq) -> Result<(), Error>;
    /// Notes beside the tables why they do not go on, for those who look at them. The next rows
    /// that are written end it.
    fn complain(&mut self, epoch: Epoch, why: &str) -> Result<(), Error>;
    fn complaint(&self) -> Result<Option<String>, Error>;
    /// Empty tables, whatever was there before.
    fn create_tables_anew(&mut self) -> Result<(), Error>;
    fn table(&self, table: &Table) -> Result<Vec<Vec<Value>>, Error>;

    /// How far the search reaches into the journal.
    fn searchable(&self) -> Result<Seq, Error>;
    /// Makes documents searchable, in place of those of the same kind and source. With a `mark` they
    /// are from the journal, which is searchable up to there then, and nothing waits for the disk;
    /// without one they are in no other place, and as durable as a record.
    fn index(
        &mut self,
        epoch: Epoch,
        documents: &[Document],
        mark: Option<Seq>,
    ) -> Result<(), Error>;
    fn search(&self, query: &Query) -> Result<Vec<Document>, Error>;
    /// Documents that no record of the journal tells, and that would be lost without a copy.
    fn kept_documents(&self) -> Result<Kept, Error>;
    /// Why the search cannot be used, if the engine finds that it cannot. Looks through all of it.
    fn trouble_with_search(&self) -> Result<Option<String>, Error> {
        Ok(None)
    }
    /// Notes beside the tables that something could not be made searchable, until somebody ends it:
    /// tables that are made anew say it, too. The first such note stays: it is where to begin.
    fn complain_of_search(&mut self, epoch: Epoch, why: &str) -> Result<(), Error>;
    fn end_search_complaint(&mut self, epoch: Epoch) -> Result<(), Error>;
    fn search_complaint(&self) -> Result<Option<String>, Error>;
    /// A search that knows nothing but these documents, whatever was there before.
    fn create_search_anew(&mut self, epoch: Epoch, kept: &[Document]) -> Result<(), Error>;

    /// Keeps a content under its hash for its owners, beside those that it has.
    fn put_blob(
        &mut self,
        epoch: Epoch,
        hash: &str,
        body: &[u8],
        owners: &[String],
    ) -> Result<(), Error>;
    fn blob(&self, hash: &str) -> Result<Option<Vec<u8>>, Error>;
    fn release_blobs(&mut self, epoch: Epoch, owner: &str) -> Result<(), Error>;
    /// Hashes that no owner refers to.
    fn ownerless_blobs(&self) -> Result<Vec<String>, Error>;
    /// Removes those of the blobs that still have no owner. Returns how many.
    fn remove_blobs(&mut self, epoch: Epoch, hashes: &[String]) -> Result<u64, Error>;
    fn blobs(&self) -> Result<Vec<(String, Vec<String>)>, Error>;

    /// The last snapshot, if there is one. Its content is a cache, and outside data.
    fn snapshot(&self) -> Result<Option<Vec<u8>>, Error>;
    /// Its first bytes, without a look at the rest.
    fn snapshot_start(&self, bytes: usize) -> Result<Option<Vec<u8>>, Error>;
    fn keep_snapshot(&mut self, body: &[u8]) -> Result<(), Error>;
}

/// What a group of appends adds.
pub(crate) struct Admitted {
    pub head: Head,
    pub links: Vec<Link>,
    pub outcomes: Vec<Result<Head, Error>>,
}

/// The rule of every implementation for a group that meets this journal.
pub(crate) fn admit_group((head, epoch): (Head, Epoch), group: &[Request<'_>]) -> Admitted {
    let mut admitted = Admitted { head, links: Vec::new(), outcomes: Vec::new() };
    for request in group {
        let outcome =
            admit((admitted.head, epoch), request.epoch, request.expected, &request.records);
        admitted.outcomes.push(outcome.map(|links| {
            if let Some(last) = links.last() {
                admitted.head = Head { seq: last.seq, hash: last.hash };
            }
            admitted.links.extend(links);
            admitted.head
        }));
    }
    admitted
}
