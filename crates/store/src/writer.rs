//! The writer: one thread with one connection, behind a queue.
//!
//! Appends that wait together are committed together, and each is answered after that commit, in
//! the order in which they came. Between appends the thread folds the projections.
//!
//! Invariant: what was answered with a head is durable. Whatever happens to the projections never
//! changes the answer to an append.

use std::borrow::Cow;
use std::fmt;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kapelle_core::{Record, Seq};

use crate::backend::{Backend, Request};
use crate::error::Error;
use crate::follow::{Follower, Wake};
use crate::journal::{Epoch, Hash, Head};
use crate::location::Location;
use crate::lock::Holder;
use crate::open::open;
use crate::projections::Fold;
use crate::search::{self, Document};
use crate::{blobs, snapshot};

/// What people are promised: their tables are at most this far behind.
const LAG_MAX: Duration = Duration::from_millis(100);

/// A queue that is empty for this long is idle. Folding at once would put its commit between an
/// answer and the append that follows from it.
const LULL: Duration = Duration::from_millis(5);

/// An append waits for at most one such batch.
const FOLD_RECORDS_MAX: usize = 1_000;

/// Bounds the memory of one commit; a queue this long is already as fast as it gets.
const GROUP_APPENDS_MAX: usize = 256;

/// An append waits for at most one such batch.
const SEARCH_RECORDS_MAX: usize = 500;

/// The search waits for a lull. Under load it gets one batch in so long, which costs less than a
/// hundredth of the time.
const SEARCH_UNDER_LOAD: Duration = Duration::from_secs(1);

/// Whoever closes does not wait longer than this for the search; the next start goes on with it.
const SEARCH_AT_END: Duration = Duration::from_secs(2);

/// A snapshot is worth its while after so many records; a start folds fewer than this anyway.
const SNAPSHOT_RECORDS: u64 = 50_000;

/// At the end there is time, and the next start will be glad of it.
const SNAPSHOT_RECORDS_AT_END: u64 = 1_000;

/// After a failure the fold begins from the start of the journal, so it is not tried at once.
const FOLD_RETRY: Duration = Duration::from_secs(5);

type Done<T> = Box<dyn FnOnce(Result<T, Error>) + Send>;

enum Message {
    Append {
        request: Request<'static>,
        done: Done<Head>,
    },
    Flush {
        done: Done<Seq>,
    },
    /// Something with blobs or the search; called with an error if the writer is gone.
    Work(Work),
}

type Work = Box<dyn FnOnce(Result<&mut dyn Backend, Error>) + Send>;

/// A handle on the writing thread. Dropping it does what was asked for, folds the rest and waits
/// for the thread.
pub struct Writer {
    /// None once the thread was told to end.
    queue: Option<Sender<Message>>,
    thread: Option<JoinHandle<Result<(), Error>>>,
    epoch: Epoch,
    opened_at: Head,
    folding: Arc<Mutex<Option<Error>>>,
    wake: Arc<Wake>,
}

impl Writer {
    /// Opens the store and claims a new epoch in it: from now on, whoever wrote before is refused.
    /// For a file, take the leadership first; a database refuses if another holder is alive.
    pub fn open(location: impl Into<Location>) -> Result<Writer, Error> {
        let mut store = open(&location.into())?;
        let epoch = store.lead(&Holder::here())?;
        let opened_at = store.head();
        let (queue, inbox) = mpsc::channel();
        let folding = Arc::new(Mutex::new(None));
        let wake = Arc::new(Wake::default());
        wake.tell(opened_at.seq);
        // With nothing to catch up with, the fold is left alone until there is: a start has enough
        // to do, and would have to share the machine with it.
        let written = store.watermark()?;
        let behind = (written < opened_at.seq).then(Instant::now);
        let unsearchable = (store.searchable()? < opened_at.seq).then(Instant::now);
        let desk = Desk {
            store,
            inbox,
            fold: None,
            written,
            behind_since: behind,
            fold_after: None,
            unsearchable_since: unsearchable,
            snapshots: Snapshots::default(),
            folding: Arc::clone(&folding),
            wake: Arc::clone(&wake),
        };
        let thread = thread::Builder::new().name("kapelle-store".into()).spawn(|| desk.run());
        let thread = thread.map_err(|why| Error::Database { what: why.to_string() })?;
        Ok(Writer { queue: Some(queue), thread: Some(thread), epoch, opened_at, folding, wake })
    }

    /// The epoch that this writer claimed.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Where the journal stood when it was opened.
    #[must_use]
    pub fn opened_at(&self) -> Head {
        self.opened_at
    }

    /// Asks for an append and returns at once. `done` is called on the writer's thread, after the
    /// commit is durable or when it is refused; it should only pass the answer on.
    pub fn append(
        &self,
        epoch: Epoch,
        expected: Seq,
        records: Vec<Record>,
        done: impl FnOnce(Result<Head, Error>) + Send + 'static,
    ) {
        let request = Request { epoch, expected, records: Cow::Owned(records) };
        self.send(Message::Append { request, done: Box::new(done) });
    }

    /// Folds everything that was appended so far, then calls `done` with how far the tables reach.
    pub fn flush(&self, done: impl FnOnce(Result<Seq, Error>) + Send + 'static) {
        self.send(Message::Flush { done: Box::new(done) });
    }

    /// Why the tables for people are not up to date, if they cannot be.
    #[must_use]
    pub fn last_projection_error(&self) -> Option<Error> {
        self.folding.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Does what was asked for, folds the rest and ends.
    pub fn close(mut self) -> Result<(), Error> {
        self.end()
    }

    /// Sleeps until the journal has grown, without a look at the disk.
    #[must_use]
    pub fn follow(&self, after: Seq) -> Follower {
        Follower::of_writer(Arc::clone(&self.wake), after)
    }

    /// Lets others know where this process answers, where the store can tell them.
    pub fn publish(&self, url: &str, done: impl FnOnce(Result<(), Error>) + Send + 'static) {
        let url = url.to_owned();
        self.work(move |store| store.publish(&url), done);
    }

    /// Keeps a content by its hash, for an owner such as `attempt 12`.
    pub fn keep_blob(
        &self,
        body: Vec<u8>,
        owner: &str,
        done: impl FnOnce(Result<Hash, Error>) + Send + 'static,
    ) {
        let owner = owner.to_owned();
        self.work(move |store| blobs::put(store, &body, &owner), done);
    }

    /// The owner needs none of its blobs any more.
    pub fn release_blobs(
        &self,
        owner: &str,
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let owner = owner.to_owned();
        self.work(move |store| store.release_blobs(&owner), done);
    }

    /// Removes the blobs that nobody owns and no record mentions, and tells how many.
    pub fn collect_garbage(&self, done: impl FnOnce(Result<u64, Error>) + Send + 'static) {
        self.work(|store| blobs::collect_garbage(store), done);
    }

    /// Makes a log or a memory searchable, in place of an earlier one of the same source.
    pub fn index(&self, found: Document, done: impl FnOnce(Result<(), Error>) + Send + 'static) {
        self.work(move |store| store.index(&[found], None), done);
    }

    fn work<T>(
        &self,
        work: impl FnOnce(&mut dyn Backend) -> Result<T, Error> + Send + 'static,
        done: impl FnOnce(Result<T, Error>) + Send + 'static,
    ) {
        self.send(Message::Work(Box::new(move |store| done(store.and_then(work)))));
    }

    fn send(&self, message: Message) {
        let unsent = match &self.queue {
            Some(queue) => queue.send(message).map_err(|unsent| unsent.0),
            None => Err(message),
        };
        match unsent {
            Ok(()) => {}
            Err(Message::Append { done, .. }) => done(Err(Error::WriterGone)),
            Err(Message::Flush { done }) => done(Err(Error::WriterGone)),
            Err(Message::Work(work)) => work(Err(Error::WriterGone)),
        }
    }

    fn end(&mut self) -> Result<(), Error> {
        self.queue = None;
        match self.thread.take() {
            // The last handle may go with an answer, on the thread itself; it cannot await itself.
            Some(thread) if thread.thread().id() != thread::current().id() => {
                thread.join().unwrap_or(Err(Error::WriterGone))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // What could not be folded is caught up with at the next start.
        let _ = self.end();
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// What the thread works with.
struct Desk {
    store: Box<dyn Backend>,
    inbox: Receiver<Message>,
    /// None: to be taken up from a snapshot, or from the start of the journal.
    fold: Option<Fold>,
    /// How far the tables were written when there was no fold.
    written: Seq,
    /// Since when there is something to fold.
    behind_since: Option<Instant>,
    /// Folding failed; it is not tried again before this.
    fold_after: Option<Instant>,
    /// When the search was extended last, if there is something that it does not know yet.
    unsearchable_since: Option<Instant>,
    snapshots: Snapshots,
    folding: Arc<Mutex<Option<Error>>>,
    wake: Arc<Wake>,
}

/// Where the last snapshot was, and the one that is being made beside.
#[derive(Default)]
struct Snapshots {
    last: Seq,
    under_way: Option<(Seq, JoinHandle<Option<Vec<u8>>>)>,
}

impl Desk {
    fn run(mut self) -> Result<(), Error> {
        loop {
            let idle = match self.wait() {
                Ok(message) => {
                    self.serve(message);
                    false
                }
                Err(RecvTimeoutError::Timeout) => true,
                Err(RecvTimeoutError::Disconnected) => return self.finish(),
            };
            if self.fold_is_due(idle) {
                // Reported where it is kept; appends go on.
                let _ = self.fold();
            } else if self.search_is_due(idle) {
                // The search is a help and no promise: what fails is tried again with the next batch.
                let _ = self.extend_search();
            } else if idle {
                self.take_snapshot();
            }
        }
    }

    /// The next message, or a time-out when there is something to do.
    fn wait(&self) -> Result<Message, RecvTimeoutError> {
        let patience = match (self.behind_since, self.fold_after) {
            (Some(_), Some(moment)) => moment.saturating_duration_since(Instant::now()),
            (Some(since), None) => LULL.min(LAG_MAX.saturating_sub(since.elapsed())),
            (None, _) if self.unsearchable_since.is_some() && self.fold.is_some() => LULL,
            (None, _) if self.snapshots.under_way.is_some() => LAG_MAX,
            (None, _) => return self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        self.inbox.recv_timeout(patience)
    }

    /// Overdue folds take turns with appends, so neither starves the other.
    fn fold_is_due(&self, idle: bool) -> bool {
        let Some(since) = self.behind_since else { return false };
        match self.fold_after {
            Some(moment) => Instant::now() >= moment,
            None => idle || since.elapsed() >= LAG_MAX,
        }
    }

    fn search_is_due(&self, idle: bool) -> bool {
        let Some(since) = self.unsearchable_since else { return false };
        self.fold.is_some() && (idle || since.elapsed() >= SEARCH_UNDER_LOAD)
    }

    /// Serves the message together with the appends that already wait behind it.
    fn serve(&mut self, first: Message) {
        let (mut group, mut waiting) = (Vec::new(), Vec::new());
        let mut next = Ok(first);
        loop {
            match next {
                Ok(Message::Append { request, done }) => {
                    group.push(request);
                    waiting.push(done);
                }
                Ok(Message::Flush { done }) => {
                    self.append(&group, waiting);
                    let folded = self.fold_all();
                    return done(folded.map(|()| self.folded()));
                }
                Ok(Message::Work(work)) => {
                    self.append(&group, waiting);
                    return work(Ok(&mut *self.store));
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
            if group.len() == GROUP_APPENDS_MAX {
                break;
            }
            next = self.inbox.try_recv();
        }
        self.append(&group, waiting);
    }

    fn append(&mut self, group: &[Request<'_>], waiting: Vec<Done<Head>>) {
        if group.is_empty() {
            return;
        }
        let outcomes = self.store.append_group(group);
        let head = self.store.head().seq;
        if head > self.folded() {
            self.behind_since.get_or_insert_with(Instant::now);
            self.unsearchable_since.get_or_insert_with(Instant::now);
            self.wake.tell(head);
        }
        for (done, outcome) in waiting.into_iter().zip(outcomes) {
            done(outcome);
        }
    }

    fn folded(&self) -> Seq {
        self.fold.as_ref().map_or(self.written, Fold::seq)
    }

    /// Does everything that was left for later.
    fn finish(mut self) -> Result<(), Error> {
        self.fold_all()?;
        self.search_on()?;
        if self.folded().0 >= self.snapshots.last.0 + SNAPSHOT_RECORDS_AT_END {
            let (head, fold) = (self.store.head(), self.fold.as_ref());
            if let Some(body) = fold.and_then(|fold| snapshot::encode(fold, head)) {
                // A cache: the next start is slower without it, and nothing else.
                let _ = self.store.keep_snapshot(&body);
            }
        }
        Ok(())
    }

    fn fold_all(&mut self) -> Result<(), Error> {
        while self.behind_since.is_some() {
            self.fold()?;
        }
        Ok(())
    }

    /// Folds one batch.
    fn fold(&mut self) -> Result<(), Error> {
        let folded = self.fold_batch();
        match &folded {
            Ok(complete) => {
                self.fold_after = None;
                if *complete {
                    self.behind_since = None;
                }
            }
            Err(_) => {
                // Its state may be ahead of the tables.
                (self.fold, self.written) = (None, Seq(0));
                self.fold_after = Some(Instant::now() + FOLD_RETRY);
            }
        }
        let mut told = self.folding.lock().unwrap_or_else(PoisonError::into_inner);
        *told = folded.as_ref().err().cloned();
        folded.map(|_| ())
    }

    fn fold_batch(&mut self) -> Result<bool, Error> {
        let mut fold = match self.fold.take() {
            Some(fold) => fold,
            None => self.first_fold()?,
        };
        let complete = fold.advance(&mut *self.store, FOLD_RECORDS_MAX)?;
        self.fold = Some(fold);
        Ok(complete)
    }

    /// From the snapshot, unless the tables are behind it and have to be written from before.
    fn first_fold(&mut self) -> Result<Fold, Error> {
        let watermark = self.store.watermark()?;
        let fold = snapshot::load(&*self.store).unwrap_or_default();
        self.snapshots.last = fold.seq();
        Ok(if fold.seq() <= watermark { fold } else { Fold::default() })
    }

    fn search_on(&mut self) -> Result<(), Error> {
        let until = Instant::now() + SEARCH_AT_END;
        while self.unsearchable_since.is_some() && self.fold.is_some() && Instant::now() < until {
            self.extend_search()?;
        }
        Ok(())
    }

    /// Makes one batch of records searchable, as far as they are folded.
    fn extend_search(&mut self) -> Result<(), Error> {
        let Some(fold) = &self.fold else { return Ok(()) };
        let after = self.store.searchable()?;
        let rows = self.store.rows(after, SEARCH_RECORDS_MAX)?;
        let mut documents = Vec::new();
        let mut mark = after;
        for row in rows.iter().filter(|row| row.seq.cast_unsigned() <= fold.seq().0) {
            let record = row.record()?;
            mark = record.seq;
            documents.extend(search::documents(fold.state(), &record, row.event_type()));
        }
        if mark > after {
            self.store.index(&documents, Some(mark))?;
        }
        let complete = mark >= fold.seq() && self.behind_since.is_none();
        self.unsearchable_since = (!complete).then(Instant::now);
        Ok(())
    }

    /// Begins a snapshot beside, when enough has happened, and keeps it when it is made.
    fn take_snapshot(&mut self) {
        match self.snapshots.under_way.take() {
            Some((seq, making)) if making.is_finished() => {
                let body = making.join().ok().flatten();
                let kept = body.map(|body| self.store.keep_snapshot(&body));
                // One that could not be kept is not tried again at once.
                let _ = kept;
                self.snapshots.last = seq;
            }
            Some(making) => self.snapshots.under_way = Some(making),
            None => self.begin_snapshot(),
        }
    }

    fn begin_snapshot(&mut self) {
        let Some(fold) = &self.fold else { return };
        let head = self.store.head();
        let enough = fold.seq().0 >= self.snapshots.last.0 + SNAPSHOT_RECORDS;
        if !enough || head.seq != fold.seq() {
            return;
        }
        let fold = fold.clone();
        let making = thread::Builder::new().name("kapelle-snapshot".into());
        let making = making.spawn(move || snapshot::encode(&fold, head));
        self.snapshots.under_way = making.ok().map(|making| (head.seq, making));
    }
}
