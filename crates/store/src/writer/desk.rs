//! The desk: the connection that leads, and whoever has it.
//!
//! A thread serves what is asked for, in the order in which it comes. Whoever waits for an append in
//! any case commits it on its own thread, if everything that was asked for before is done: to wake
//! another thread, and to be woken by it, would only take time.
//!
//! Invariant: one at a time has the connection, and nobody is passed by somebody who came later.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kapelle_core::Record;

use super::pending::Pending;
use super::{Done, Message};
use crate::backend::{Backend, Request};
use crate::error::Error;
use crate::follow::Wake;
use crate::journal::Head;

/// Bounds the memory of one commit; a queue this long is already as fast as it gets.
const GROUP_APPENDS_MAX: usize = 256;

pub(super) struct Desk {
    /// None once nobody serves any more. Whoever panics with it leaves it poisoned: nobody knows how
    /// it stands, so nobody uses it again.
    store: Mutex<Option<Box<dyn Backend>>>,
    /// What was asked for and is not done.
    unserved: AtomicUsize,
    /// What the thread that follows is told.
    pending: Arc<Pending>,
    wake: Arc<Wake>,
}

/// Where the desk is asked. It is served for as long as there is one of these.
#[derive(Clone)]
pub(super) struct Queue {
    messages: Sender<Message>,
    desk: Arc<Desk>,
}

/// Who serves the desk, on a thread of its own.
pub(super) struct Clerk {
    inbox: Receiver<Message>,
    desk: Arc<Desk>,
}

/// What is done in one go: appends that are committed together, those who wait for them, and what
/// was asked for after them.
#[derive(Default)]
struct Group {
    requests: Vec<Request<'static>>,
    waiting: Vec<Done<Head>>,
    last: Option<Message>,
}

/// By how much the journal has grown.
struct Growth {
    head: Head,
    records: Vec<Vec<Record>>,
}

impl Queue {
    pub(super) fn send(&self, message: Message) {
        // Counted before it can be served.
        self.desk.unserved.fetch_add(1, Ordering::Relaxed);
        if let Err(unsent) = self.messages.send(message) {
            unsent.0.refuse();
        }
    }

    /// Appends on this thread if nobody came before, and otherwise waits for its turn.
    pub(super) fn append_and_wait(&self, request: Request<'static>) -> Result<Head, Error> {
        if let Some(mut store) = self.desk.if_idle()
            && let Some(store) = store.as_deref_mut()
        {
            return self.desk.append_one(store, request);
        }
        let (told, heard) = mpsc::channel();
        let done = move |outcome| {
            // Whoever waits for it is below.
            let _ = told.send(outcome);
        };
        self.send(Message::Append { request, done: Box::new(done) });
        heard.recv().unwrap_or(Err(Error::WriterGone))
    }
}

/// However it ends, nobody must wait for it: neither the thread that follows, nor another leader.
impl Drop for Clerk {
    fn drop(&mut self) {
        drop(self.desk.store.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.desk.pending.end();
    }
}

impl Clerk {
    /// Until nobody can ask any more: the thread that follows asks last, while it finishes.
    pub(super) fn run(self) {
        while let Ok(first) = self.inbox.recv() {
            let Ok(mut store) = self.desk.store.lock() else { return first.refuse() };
            let Some(leading) = store.as_deref_mut() else { return first.refuse() };
            let group = Group::of(first, &self.inbox);
            let count = group.len();
            self.desk.serve(leading, group);
            drop(store);
            // Whoever sees that nothing is left also sees what was done.
            self.desk.unserved.fetch_sub(count, Ordering::Release);
        }
    }
}

impl Desk {
    pub(super) fn open(
        store: Box<dyn Backend>,
        pending: Arc<Pending>,
        wake: Arc<Wake>,
    ) -> (Queue, Clerk) {
        let (store, unserved) = (Mutex::new(Some(store)), AtomicUsize::new(0));
        let desk = Arc::new(Desk { store, unserved, pending, wake });
        let (messages, inbox) = mpsc::channel();
        (Queue { messages, desk: Arc::clone(&desk) }, Clerk { inbox, desk })
    }

    /// The connection, if nobody has it and all that was asked for is done. Looked at in this order:
    /// what a caller asked for itself is counted, so it is never passed.
    fn if_idle(&self) -> Option<MutexGuard<'_, Option<Box<dyn Backend>>>> {
        let store = self.store.try_lock().ok()?;
        (self.unserved.load(Ordering::Acquire) == 0).then_some(store)
    }

    fn serve(&self, store: &mut dyn Backend, Group { requests, waiting, last }: Group) {
        if !requests.is_empty() {
            let (outcomes, growth) = append(store, requests);
            // Who asked comes first, then who looks on.
            for (done, outcome) in waiting.into_iter().zip(outcomes) {
                done(outcome);
            }
            self.tell(growth);
        }
        match last {
            Some(Message::Flush { done }) => self.pending.flush(done),
            Some(Message::Work(work)) => work(Ok(store)),
            Some(Message::End) => self.pending.end(),
            Some(Message::Append { .. }) | None => {}
        }
    }

    fn append_one(
        &self,
        store: &mut dyn Backend,
        request: Request<'static>,
    ) -> Result<Head, Error> {
        let (mut outcomes, growth) = append(store, vec![request]);
        self.tell(growth);
        outcomes.pop().unwrap_or(Err(Error::WriterGone))
    }

    /// While nobody else has the connection, so that it is told in the order of the journal.
    fn tell(&self, growth: Option<Growth>) {
        if let Some(Growth { head, records }) = growth {
            self.wake.tell(head.seq);
            self.pending.appended(head, records);
        }
    }
}

impl Group {
    /// The message, together with the appends that already wait behind it.
    fn of(first: Message, inbox: &Receiver<Message>) -> Group {
        let mut group = Group::default();
        let mut next = Some(first);
        while let Some(message) = next {
            let Message::Append { request, done } = message else {
                group.last = Some(message);
                break;
            };
            group.requests.push(request);
            group.waiting.push(done);
            let is_full = group.requests.len() == GROUP_APPENDS_MAX;
            next = if is_full { None } else { inbox.try_recv().ok() };
        }
        group
    }

    /// How many messages it came of.
    fn len(&self) -> usize {
        self.requests.len() + usize::from(self.last.is_some())
    }
}

/// What became of each, and what there is to tell of all.
fn append(
    store: &mut dyn Backend,
    requests: Vec<Request<'static>>,
) -> (Vec<Result<Head, Error>>, Option<Growth>) {
    let before = store.head().seq;
    let outcomes = store.append_group(&requests);
    let head = store.head();
    let growth = Growth { head, records: appended(requests, &outcomes) };
    (outcomes, (head.seq > before).then_some(growth))
}

/// The records that are in the journal now.
fn appended(requests: Vec<Request<'static>>, outcomes: &[Result<Head, Error>]) -> Vec<Vec<Record>> {
    let taken = requests.into_iter().zip(outcomes).filter(|(_, outcome)| outcome.is_ok());
    taken.map(|(request, _)| Cow::into_owned(request.records)).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::thread;
    use std::time::Duration;

    use kapelle_core::{Event, Seq, Timestamp};

    use super::*;
    use crate::journal::{Epoch, Journal};
    use crate::sqlite::Sqlite;

    /// Longer than any append takes; whoever waits this long was forgotten.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn desk(dir: &Path) -> (Queue, Clerk, Epoch) {
        let mut store = Sqlite::open(&dir.join("db")).unwrap();
        let epoch = store.claim_epoch().unwrap();
        let pending = Arc::new(Pending::new(Head::EMPTY));
        let (queue, clerk) = Desk::open(Box::new(store), pending, Arc::default());
        (queue, clerk, epoch)
    }

    /// The record with this number, after the one before it.
    fn request(epoch: Epoch, seq: u64) -> Request<'static> {
        let record = Record { seq: Seq(seq), at: Timestamp(1), event: Event::SessionStarted };
        Request { epoch, expected: Seq(seq - 1), records: vec![record].into() }
    }

    /// Asks on a thread of its own, where it may wait.
    fn ask(queue: &Queue, request: Request<'static>) -> Receiver<Result<Seq, Error>> {
        let (queue, (told, heard)) = (queue.clone(), mpsc::channel());
        thread::spawn(move || {
            // Whoever has lost patience is gone.
            let _ = told.send(queue.append_and_wait(request).map(|head| head.seq));
        });
        heard
    }

    /// To be woken by somebody who was woken first takes longer than the rest of the work.
    #[test]
    fn whoever_comes_alone_appends_without_the_thread_that_serves() {
        let dir = tempfile::tempdir().unwrap();
        let (queue, clerk, epoch) = desk(dir.path());
        for seq in 1..=2 {
            let answer = ask(&queue, request(epoch, seq)).recv_timeout(PATIENCE);
            assert_eq!(answer.expect("nobody serves").unwrap(), Seq(seq));
        }
        assert_eq!(Sqlite::open(&dir.path().join("db")).unwrap().head().seq, Seq(2));
        assert_eq!(clerk.desk.pending.head().seq, Seq(2), "whoever follows is told");
    }

    /// What was asked for before comes before, also if nobody has begun with it.
    #[test]
    fn an_append_that_is_waited_for_passes_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let (queue, clerk, epoch) = desk(dir.path());
        let (told, found) = mpsc::channel();
        let work = move |store: Result<&mut dyn Backend, Error>| {
            told.send(store.map(|store| store.head().seq)).unwrap();
        };
        queue.send(Message::Work(Box::new(work)));
        let answer = ask(&queue, request(epoch, 1));
        // As soon as both wait.
        while queue.desk.unserved.load(Ordering::Relaxed) < 2 {
            assert!(answer.try_recv().is_err(), "it went first");
            thread::yield_now();
        }
        drop(queue);
        clerk.run();
        assert_eq!(found.recv().unwrap().unwrap(), Seq(0));
        assert_eq!(answer.recv().unwrap().unwrap(), Seq(1));
    }

    /// Nobody knows what became of an append in which somebody panicked, so nothing comes after it;
    /// and nobody waits for what does not come.
    #[test]
    fn a_desk_at_which_a_caller_panicked_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let (queue, clerk, epoch) = desk(dir.path());
        let desk = Arc::clone(&queue.desk);
        let panicked = thread::spawn(move || {
            let _store = desk.if_idle().expect("nobody else is there");
            panic!("in the middle of an append, on purpose");
        });
        assert!(panicked.join().is_err());
        let pending = Arc::clone(&queue.desk.pending);
        let serving = thread::spawn(|| clerk.run());
        for _ in 0..2 {
            let answer = ask(&queue, request(epoch, 1)).recv_timeout(PATIENCE);
            assert!(matches!(answer, Ok(Err(Error::WriterGone))), "{answer:?}");
        }
        serving.join().unwrap();
        let call = pending.wait(|_| None);
        assert!(matches!(call, super::super::pending::Call::End), "whoever follows is told to end");
    }

    #[test]
    fn a_desk_that_nobody_serves_any_more_refuses() {
        let dir = tempfile::tempdir().unwrap();
        let (queue, clerk, epoch) = desk(dir.path());
        drop(clerk);
        let answer = ask(&queue, request(epoch, 1)).recv_timeout(PATIENCE);
        assert!(matches!(answer, Ok(Err(Error::WriterGone))), "{answer:?}");
    }
}
