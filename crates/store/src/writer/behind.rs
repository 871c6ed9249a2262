//! The thread that follows the journal: the tables for people, the search, and snapshots.
//!
//! It reads and folds on a connection of its own, and only the desk writes what is not a table: the
//! search is handed over to it. A crash leaves all of this behind the journal, never ahead of it,
//! and the next start catches up.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kapelle_core::Seq;

use super::desk::Queue;
use super::pending::{Call, News, Pending};
use super::{Done, Message};
use crate::backend::Backend;
use crate::error::Error;
use crate::journal::Epoch;
use crate::projections::Fold;
use crate::search::{self, Document};
use crate::snapshot;

/// A row that changes often is written once in this time. What people are promised, tables that
/// are at most 100 ms behind, leaves the rest of it for the writing.
const COALESCED: Duration = Duration::from_millis(40);

/// Whoever appends comes first: while the journal grows, the fold rests as long as it worked, but
/// not longer than this.
const REST_MAX: Duration = Duration::from_millis(500);

/// A journal that does not grow for this long is idle.
const LULL: Duration = Duration::from_millis(5);

/// What is read back from the journal is folded in batches of this size.
const FOLD_RECORDS_MAX: usize = 10_000;

/// The search waits for a lull. Under load it gets one batch in so long, which costs less than a
/// hundredth of the time.
const SEARCH_UNDER_LOAD: Duration = Duration::from_secs(1);

/// Whoever closes does not wait longer than this for the search; the next start goes on with it.
const SEARCH_AT_END: Duration = Duration::from_secs(2);

/// A snapshot is worth its while after so many records; a start folds fewer than this anyway.
const SNAPSHOT_RECORDS: u64 = 50_000;

/// Without a lull, one is taken after so many: a start after a crash would be glad of it.
const SNAPSHOT_RECORDS_UNDER_LOAD: u64 = 100_000;

/// At the end there is time, and the next start will be glad of it.
const SNAPSHOT_RECORDS_AT_END: u64 = 1_000;

/// How long a snapshot is left alone while it is made.
const SNAPSHOT_LOOK: Duration = Duration::from_millis(100);

/// After a failure the fold begins from the start of the journal, and the search keeps appends
/// waiting, so neither is tried again at once.
const FOLD_RETRY: Duration = Duration::from_secs(5);

pub(super) struct Behind {
    store: Box<dyn Backend>,
    /// The one that the writer claimed.
    epoch: Epoch,
    pending: Arc<Pending>,
    desk: Queue,
    /// None: to be taken up from a snapshot, or from the start of the journal.
    fold: Option<Fold>,
    /// How far the tables reach, as far as we know.
    written: Seq,
    /// There is more to fold, beside what the desk tells.
    more: bool,
    /// Folding failed; it is not tried again before this.
    fold_after: Option<Instant>,
    /// Somebody else leads, and folds.
    deposed: bool,
    /// When the search was extended last, if there is something that it does not know yet.
    unsearchable_since: Option<Instant>,
    /// Extending the search failed; it is not tried again before this.
    search_after: Option<Instant>,
    /// What could not be made searchable, if that could not be noted yet.
    unsearchable: Option<String>,
    snapshots: Snapshots,
    /// When the last piece of work was done.
    rested: Instant,
    /// How long the last fold took.
    took: Duration,
}

/// Where the last snapshot was, and the one that is being made beside.
#[derive(Default)]
struct Snapshots {
    last: Seq,
    under_way: Option<JoinHandle<Option<Vec<u8>>>>,
}

impl Behind {
    pub(super) fn new(
        (store, epoch): (Box<dyn Backend>, Epoch),
        pending: &Arc<Pending>,
        desk: Queue,
    ) -> Result<Behind, Error> {
        // With nothing to catch up with, the fold is left alone until there is: a start has enough
        // to do, and would have to share the machine with it.
        let head = pending.head().seq;
        let (written, known) = match store.watermark() {
            Ok(written) => (written, true),
            // Whoever has locked them is waited for by the fold, and by nobody else.
            Err(Error::Locked { .. }) => (Seq(0), false),
            Err(error) => return Err(error),
        };
        let searchable = match store.searchable() {
            // A search is made anew by a rebuild, and holds up nobody until then.
            Err(Error::Damaged { .. }) => Seq(0),
            searchable => searchable?,
        };
        let unsearchable_since = (searchable < head).then(Instant::now);
        Ok(Behind {
            store,
            epoch,
            pending: Arc::clone(pending),
            desk,
            fold: None,
            written,
            more: !known || written < head || unsearchable_since.is_some(),
            fold_after: None,
            deposed: false,
            unsearchable_since,
            search_after: None,
            unsearchable: None,
            snapshots: Snapshots::default(),
            rested: Instant::now(),
            took: Duration::ZERO,
        })
    }

    pub(super) fn run(mut self) -> Result<(), Error> {
        loop {
            match self.pending.wait(|news| self.due(news)) {
                Call::Unsearchable(why) => self.note_unsearchable(Some(why)),
                Call::Flush(waiting) => self.flush(waiting),
                Call::End => return self.finish(),
                Call::Due => self.work(),
            }
        }
    }

    /// When there is something to do, if there is.
    fn due(&self, news: &News) -> Option<Instant> {
        match self.fold_due(news) {
            Some(moment) => Some(moment),
            None if self.snapshot_waits() => Some(self.rested + LULL),
            None if self.search_waits() => Some(self.search_after.unwrap_or(self.rested + LULL)),
            None if self.snapshots.under_way.is_some() => Some(self.rested + SNAPSHOT_LOOK),
            None => None,
        }
    }

    fn fold_due(&self, news: &News) -> Option<Instant> {
        if self.deposed {
            return None;
        }
        let since = if self.more { self.rested } else { news.since? + COALESCED };
        let rest = match news.since {
            Some(_) => self.took.min(REST_MAX),
            None => Duration::ZERO,
        };
        Some(self.fold_after.unwrap_or(since.max(self.rested + rest)))
    }

    /// The search speaks of what it finds with the words of the state.
    fn search_waits(&self) -> bool {
        self.fold.is_some() && self.unsearchable_since.is_some()
    }

    fn snapshot_waits(&self) -> bool {
        self.snapshots.under_way.is_none() && self.records_since_snapshot() >= SNAPSHOT_RECORDS
    }

    /// It waited for a lull long enough, or is made and has to be kept.
    fn snapshot_is_overdue(&self) -> bool {
        match &self.snapshots.under_way {
            Some(making) => making.is_finished(),
            None => self.records_since_snapshot() >= SNAPSHOT_RECORDS_UNDER_LOAD,
        }
    }

    fn records_since_snapshot(&self) -> u64 {
        let reached = self.fold.as_ref().map_or(0, |fold| fold.seq().0);
        reached.saturating_sub(self.snapshots.last.0)
    }

    fn work(&mut self) {
        if self.pending.is_due(|news| self.fold_due(news)) {
            let begun = Instant::now();
            // What is wrong is noted beside the tables; appends go on.
            let _ = self.fold();
            self.took = begun.elapsed();
            let overdue = |since: Instant| since.elapsed() >= SEARCH_UNDER_LOAD;
            if self.may_search() && self.unsearchable_since.is_some_and(overdue) {
                self.try_search();
            }
            if self.snapshot_is_overdue() {
                self.take_snapshot();
            }
        } else if self.may_search() {
            self.try_search();
        } else {
            self.take_snapshot();
        }
        self.rested = Instant::now();
    }

    fn may_search(&self) -> bool {
        self.search_waits() && self.search_after.is_none_or(|after| Instant::now() >= after)
    }

    /// The search is a help and no promise: what fails is tried again after a while.
    fn try_search(&mut self) {
        let failed = self.extend_search().is_err();
        self.search_after = failed.then(|| Instant::now() + FOLD_RETRY);
    }

    /// Tables that somebody has locked take the note when they are let go.
    fn note_unsearchable(&mut self, why: Option<String>) {
        let Some(why) = self.unsearchable.take().or(why) else { return };
        if self.store.complain_of_search(self.epoch, &why).is_err() {
            self.unsearchable = Some(why);
        }
    }

    fn flush(&mut self, waiting: Vec<Done<Seq>>) {
        let folded = self.fold_all();
        for done in waiting {
            done(folded.clone());
        }
    }

    /// Does everything that was left for later.
    fn finish(mut self) -> Result<(), Error> {
        let folded = self.fold_all();
        self.note_unsearchable(None);
        folded?;
        // What it does not know now, the next start tells it.
        let _ = self.search_on();
        let Some(fold) = &self.fold else { return Ok(()) };
        let enough = self.records_since_snapshot() >= SNAPSHOT_RECORDS_AT_END;
        if enough && let Some(body) = snapshot::encode(fold, self.pending.head()) {
            // A cache: the next start is slower without it, and nothing else.
            let _ = self.store.keep_snapshot(&body);
        }
        Ok(())
    }

    /// Folds up to where the journal ends now, and tells how far the tables reach.
    fn fold_all(&mut self) -> Result<Seq, Error> {
        let head = self.pending.head().seq;
        while self.written < head {
            match self.fold() {
                // The server may have been restarted since this connection was used last.
                Err(Error::Lost { .. }) => self.fold()?,
                folded => folded?,
            }
        }
        Ok(self.written)
    }

    /// Folds one batch.
    fn fold(&mut self) -> Result<(), Error> {
        let folded = self.fold_batch();
        if folded.is_err() {
            // Its state may be ahead of the tables.
            self.fold = None;
            self.more = true;
        }
        self.deposed = matches!(folded, Err(Error::StaleEpoch { .. }));
        self.fold_after = folded.is_err().then(|| Instant::now() + FOLD_RETRY);
        if let Err(why) = &folded {
            // If not even this can be written, people see tables that stand still.
            let _ = self.store.complain(self.epoch, &why.to_string());
            // Rows that are written wake those who follow from elsewhere; now there are none.
            let _ = self.store.announce(self.pending.head().seq);
        } else {
            self.note_unsearchable(None);
        }
        folded
    }

    fn fold_batch(&mut self) -> Result<(), Error> {
        let mut fold = match self.fold.take() {
            Some(fold) => fold,
            None => self.first_fold()?,
        };
        let (mut records, head) = self.pending.take(fold.seq());
        if records.is_empty() {
            records = self.store.read(fold.seq(), FOLD_RECORDS_MAX)?;
        }
        // A server that lost what it acknowledged has a shorter journal than we know: nobody may
        // wait for what never comes.
        if records.is_empty() && fold.seq() < head.seq {
            return Err(Error::Missing { seq: Seq(fold.seq().0 + 1) });
        }
        self.written = fold.take_in(&mut *self.store, self.epoch, &records, self.written)?;
        self.more = fold.seq() < head.seq;
        self.unsearchable_since.get_or_insert_with(Instant::now);
        self.fold = Some(fold);
        Ok(())
    }

    /// From the snapshot, unless the tables are behind it and have to be written from before.
    fn first_fold(&mut self) -> Result<Fold, Error> {
        self.written = self.store.watermark()?;
        let fold = snapshot::load(&*self.store).unwrap_or_default();
        self.snapshots.last = fold.seq();
        Ok(if fold.seq() <= self.written { fold } else { Fold::default() })
    }

    fn search_on(&mut self) -> Result<(), Error> {
        let until = Instant::now() + SEARCH_AT_END;
        // Where the tables were up to date, nothing was folded, and nobody has the words yet.
        let head = self.pending.head().seq;
        let has_words = |fold: &Option<Fold>| fold.as_ref().is_some_and(|fold| fold.seq() >= head);
        while self.unsearchable_since.is_some() && !has_words(&self.fold) && Instant::now() < until
        {
            self.fold()?;
        }
        while self.search_waits() && Instant::now() < until {
            self.extend_search()?;
        }
        Ok(())
    }

    /// Makes one batch of records searchable, as far as they are folded.
    fn extend_search(&mut self) -> Result<(), Error> {
        let Some(fold) = &self.fold else { return Ok(()) };
        let mut complete = true;
        if let Some((documents, reached)) = search::untold(&*self.store, fold)? {
            complete = reached >= fold.seq();
            self.index(documents, reached)?;
        }
        self.unsearchable_since = (!complete).then(Instant::now);
        Ok(())
    }

    /// The documents are in the file of the journal, which only the desk writes.
    fn index(&self, documents: Vec<Document>, mark: Seq) -> Result<(), Error> {
        let (told, heard) = mpsc::channel();
        let epoch = self.epoch;
        let work = move |store: Result<&mut dyn Backend, Error>| {
            // Whoever waits for it is below.
            let _ = told.send(store.and_then(|store| store.index(epoch, &documents, Some(mark))));
        };
        self.desk.send(Message::Work(Box::new(work)));
        heard.recv().unwrap_or(Err(Error::WriterGone))
    }

    /// Begins a snapshot beside, when enough has happened, and keeps it when it is made.
    fn take_snapshot(&mut self) {
        match self.snapshots.under_way.take() {
            Some(making) if making.is_finished() => {
                if let Some(body) = making.join().ok().flatten() {
                    // One that could not be kept is not tried again at once.
                    let _ = self.store.keep_snapshot(&body);
                }
            }
            Some(making) => self.snapshots.under_way = Some(making),
            None => self.begin_snapshot(),
        }
    }

    /// Of what is folded, which the journal may be ahead of.
    fn begin_snapshot(&mut self) {
        let Some(fold) = self.fold.clone() else { return };
        let Some(head) = snapshot::head_at(&*self.store, fold.seq()) else { return };
        self.snapshots.last = head.seq;
        let making = thread::Builder::new().name("kapelle-snapshot".into());
        self.snapshots.under_way = making.spawn(move || snapshot::encode(&fold, head)).ok();
    }
}
