//! The writer: two threads with a connection each.
//!
//! One appends (`desk`): what waits together is committed together, and each is answered after
//! that commit, in the order in which they came. Whoever waits for its answer anyway, and comes
//! alone, appends by itself with the same connection. The other thread follows (`behind`): tables,
//! search and snapshots, which no append waits for.
//!
//! Invariant: what was answered with a head is durable. Whatever happens to the projections never
//! changes the answer to an append.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use kapelle_core::{Record, Seq};

use crate::backend::{Backend, Request};
use crate::blobs::{self, Garbage};
use crate::error::Error;
use crate::follow::{Follower, Wake};
use crate::journal::{Epoch, Hash, Head};
use crate::location::Location;
use crate::lock::Holder;
use crate::lost;
use crate::open::{open, open_read_only};
use crate::search::Document;

mod behind;
mod desk;
mod pending;

use behind::Behind;
use desk::{Desk, Queue};
use pending::Pending;

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
    /// Nothing more will be asked for from outside.
    End,
}

impl Message {
    /// Nobody will see to it.
    fn refuse(self) {
        match self {
            Message::Append { done, .. } => done(Err(Error::WriterGone)),
            Message::Flush { done } => done(Err(Error::WriterGone)),
            Message::Work(work) => work(Err(Error::WriterGone)),
            Message::End => {}
        }
    }
}

type Work = Box<dyn FnOnce(Result<&mut dyn Backend, Error>) + Send>;

/// A handle on the writing threads. Dropping it does what was asked for, folds the rest and waits
/// for the threads.
pub struct Writer {
    /// None once the threads were told to end.
    queue: Option<Queue>,
    appending: Option<JoinHandle<()>>,
    following: Option<JoinHandle<Result<(), Error>>>,
    location: Location,
    epoch: Epoch,
    opened_at: Head,
    pending: Arc<Pending>,
    wake: Arc<Wake>,
}

impl Writer {
    /// Opens the store and claims a new epoch in it: from now on, whoever wrote before is refused.
    /// For a file, take the leadership first; a database refuses if another holder is alive.
    pub fn open(location: impl Into<Location>) -> Result<Writer, Error> {
        let location = location.into();
        lost::refuse(&location)?;
        let mut store = open(&location)?;
        let epoch = store.lead(&Holder::here())?;
        let opened_at = store.head();
        let wake = Arc::new(Wake::default());
        wake.tell(opened_at.seq);
        let pending = Arc::new(Pending::new(opened_at));
        let (queue, clerk) = Desk::open(store, Arc::clone(&pending), Arc::clone(&wake));
        let behind = Behind::new((open(&location)?, epoch), &pending, queue.clone())?;
        let following = spawn("kapelle-tables", || behind.run())?;
        let appending = spawn("kapelle-store", || clerk.run())?;
        Ok(Writer {
            queue: Some(queue),
            appending: Some(appending),
            following: Some(following),
            location,
            epoch,
            opened_at,
            pending,
            wake,
        })
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

    /// Appends, and returns when that is durable or refused: after everything that was asked for
    /// before, and together with what is asked for at the same time. It blocks its thread, which an
    /// asynchronous runtime has few of; and an answer that called it would wait for itself.
    pub fn append_and_wait(
        &self,
        epoch: Epoch,
        expected: Seq,
        records: Vec<Record>,
    ) -> Result<Head, Error> {
        let request = Request { epoch, expected, records: Cow::Owned(records) };
        let queue = self.queue.as_ref().ok_or(Error::WriterGone)?;
        queue.append_and_wait(request)
    }

    /// Folds everything that was appended so far, then calls `done` with how far the tables reach,
    /// on the thread that folds.
    pub fn flush(&self, done: impl FnOnce(Result<Seq, Error>) + Send + 'static) {
        self.send(Message::Flush { done: Box::new(done) });
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

    /// Calls `tell` as soon as the database knows that another has claimed the store: whoever has
    /// nothing to append would not notice. It is called on a thread of the store, at most once, and
    /// never for a file, whose lock keeps the others away.
    pub fn when_deposed(&self, tell: impl FnOnce(Error) + Send + 'static) {
        self.work(
            |store| {
                store.when_deposed(Box::new(tell));
                Ok(())
            },
            // A writer that is gone leads nothing.
            |_asked| {},
        );
    }

    /// Lets others know where this process answers, where the store can tell them.
    pub fn publish(&self, url: &str, done: impl FnOnce(Result<(), Error>) + Send + 'static) {
        let url = url.to_owned();
        let epoch = self.epoch;
        self.work(move |store| store.publish(epoch, &url), done);
    }

    /// Keeps a content by its hash, for an owner such as `attempt 12`.
    pub fn keep_blob(
        &self,
        body: Vec<u8>,
        owner: &str,
        done: impl FnOnce(Result<Hash, Error>) + Send + 'static,
    ) {
        let (epoch, owner) = (self.epoch, owner.to_owned());
        self.work(move |store| blobs::put(store, epoch, &body, owner), done);
    }

    /// The owner needs none of its blobs any more.
    pub fn release_blobs(
        &self,
        owner: &str,
        done: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let (epoch, owner) = (self.epoch, owner.to_owned());
        self.work(move |store| store.release_blobs(epoch, &owner), done);
    }

    /// Removes the blobs that nobody owns and no record mentions, and tells how many. The journal
    /// is looked through beside, so that nobody waits for that.
    pub fn collect_garbage(&self, done: impl FnOnce(Result<u64, Error>) + Send + 'static) {
        let Some(queue) = self.queue.clone() else { return done(Err(Error::WriterGone)) };
        let (location, epoch) = (self.location.clone(), self.epoch);
        let looking = spawn("kapelle-garbage", move || {
            let found = open_read_only(&location).and_then(|store| Garbage::found_in(&*store));
            let remove = move |store: Result<&mut dyn Backend, Error>| {
                done(found.and_then(|garbage| garbage.remove(store?, epoch)));
            };
            queue.send(Message::Work(Box::new(remove)));
        });
        // On a machine that has no thread left, the answer goes with the question.
        drop(looking);
    }

    /// Makes a log or a memory searchable, in place of an earlier one of the same source. If that
    /// fails, it is also noted for people.
    pub fn index(&self, found: Document, done: impl FnOnce(Result<(), Error>) + Send + 'static) {
        let (epoch, pending) = (self.epoch, Arc::clone(&self.pending));
        let name = format!("the {} of {}", found.kind.name(), found.source);
        self.work(
            move |store| store.index(epoch, &[found], None),
            move |kept| {
                if let Err(why) = &kept {
                    pending.unsearchable(format!("{name}: {why}"));
                }
                done(kept);
            },
        );
    }

    fn work<T>(
        &self,
        work: impl FnOnce(&mut dyn Backend) -> Result<T, Error> + Send + 'static,
        done: impl FnOnce(Result<T, Error>) + Send + 'static,
    ) {
        self.send(Message::Work(Box::new(move |store| done(store.and_then(work)))));
    }

    fn send(&self, message: Message) {
        match &self.queue {
            Some(queue) => queue.send(message),
            None => message.refuse(),
        }
    }

    fn end(&mut self) -> Result<(), Error> {
        self.send(Message::End);
        self.queue = None;
        let (appending, following) = (self.appending.take(), self.following.take());
        let (Some(appending), Some(following)) = (appending, following) else { return Ok(()) };
        // The last handle may go with an answer, on one of the threads; it cannot await itself.
        let here = thread::current().id();
        if [appending.thread().id(), following.thread().id()].contains(&here) {
            return Ok(());
        }
        let appended = appending.join();
        let folded = following.join().unwrap_or(Err(Error::WriterGone));
        appended.map_err(|_| Error::WriterGone).and(folded)
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

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    let thread = thread::Builder::new().name(name.into()).spawn(work);
    thread.map_err(|why| Error::Database { what: why.to_string() })
}
