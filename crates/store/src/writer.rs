//! The writer: one thread with one connection, behind a queue.
//!
//! Appends that wait together are committed together, and each is answered after that commit, in
//! the order in which they came. Between appends the thread folds the projections.
//!
//! Invariant: what was answered with a head is durable. Whatever happens to the projections never
//! changes the answer to an append.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kapelle_core::{Record, Seq};

use crate::error::Error;
use crate::journal::{Epoch, Head, Journal};
use crate::projections::Projector;
use crate::sqlite::{Request, Sqlite};

/// What people are promised: their tables are at most this far behind.
const LAG_MAX: Duration = Duration::from_millis(100);

/// A queue that is empty for this long is idle. Folding at once would put its commit between an
/// answer and the append that follows from it.
const LULL: Duration = Duration::from_millis(5);

/// An append waits for at most one such batch.
const FOLD_RECORDS_MAX: usize = 1_000;

/// Bounds the memory of one commit; a queue this long is already as fast as it gets.
const GROUP_APPENDS_MAX: usize = 256;

/// After a failure the fold begins from the start of the journal, so it is not tried at once.
const FOLD_RETRY: Duration = Duration::from_secs(5);

type Done<T> = Box<dyn FnOnce(Result<T, Error>) + Send>;

enum Message {
    Append { request: Request<'static>, done: Done<Head> },
    Flush { done: Done<Seq> },
}

/// A handle on the writing thread. Dropping it does what was asked for, folds the rest and waits
/// for the thread.
pub struct Writer {
    /// None once the thread was told to end.
    queue: Option<Sender<Message>>,
    thread: Option<JoinHandle<Result<(), Error>>>,
    epoch: Epoch,
    opened_at: Head,
    folding: Arc<Mutex<Option<Error>>>,
}

impl Writer {
    /// Opens the store in the file `path` and claims a new epoch in it: from now on, whoever wrote
    /// before is refused. Take the leadership first.
    pub fn open(path: &Path) -> Result<Writer, Error> {
        let mut store = Sqlite::open(path)?;
        let epoch = store.claim_epoch()?;
        let opened_at = store.head();
        let (queue, inbox) = mpsc::channel();
        let folding = Arc::new(Mutex::new(None));
        let desk = Desk {
            store,
            inbox,
            projector: Projector::default(),
            behind_since: Some(Instant::now()),
            fold_after: None,
            folding: Arc::clone(&folding),
        };
        let thread = thread::Builder::new().name("kapelle-store".into()).spawn(|| desk.run());
        let thread = Some(thread.map_err(Error::io(path))?);
        Ok(Writer { queue: Some(queue), thread, epoch, opened_at, folding })
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

    fn send(&self, message: Message) {
        let unsent = match &self.queue {
            Some(queue) => queue.send(message).map_err(|unsent| unsent.0),
            None => Err(message),
        };
        match unsent {
            Ok(()) => {}
            Err(Message::Append { done, .. }) => done(Err(Error::WriterGone)),
            Err(Message::Flush { done }) => done(Err(Error::WriterGone)),
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
    store: Sqlite,
    inbox: Receiver<Message>,
    projector: Projector,
    /// Since when there is something to fold.
    behind_since: Option<Instant>,
    /// Folding failed; it is not tried again before this.
    fold_after: Option<Instant>,
    folding: Arc<Mutex<Option<Error>>>,
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
                Err(RecvTimeoutError::Disconnected) => return self.fold_all(),
            };
            if self.fold_is_due(idle) {
                // Reported where it is kept; appends go on.
                let _ = self.fold();
            }
        }
    }

    /// The next message, or a time-out when the projections should be folded.
    fn wait(&self) -> Result<Message, RecvTimeoutError> {
        let Some(since) = self.behind_since else {
            return self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected);
        };
        let patience = match self.fold_after {
            Some(moment) => moment.saturating_duration_since(Instant::now()),
            None => LULL.min(LAG_MAX.saturating_sub(since.elapsed())),
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
                    return done(folded.map(|()| self.projector.seq()));
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
        if self.store.head().seq > self.projector.seq() {
            self.behind_since.get_or_insert_with(Instant::now);
        }
        for (done, outcome) in waiting.into_iter().zip(outcomes) {
            done(outcome);
        }
    }

    fn fold_all(&mut self) -> Result<(), Error> {
        while self.behind_since.is_some() {
            self.fold()?;
        }
        Ok(())
    }

    /// Folds one batch.
    fn fold(&mut self) -> Result<(), Error> {
        let folded = self.projector.fold(self.store.conn_mut(), FOLD_RECORDS_MAX);
        match &folded {
            Ok(complete) => {
                self.fold_after = None;
                if *complete {
                    self.behind_since = None;
                }
            }
            Err(_) => {
                // Its state may be ahead of the tables.
                self.projector = Projector::default();
                self.fold_after = Some(Instant::now() + FOLD_RETRY);
            }
        }
        let mut told = self.folding.lock().unwrap_or_else(PoisonError::into_inner);
        *told = folded.as_ref().err().cloned();
        folded.map(|_| ())
    }
}
