//! The thread that appends. It has the connection that leads, and does nothing that can wait.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

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
    store: Box<dyn Backend>,
    inbox: Receiver<Message>,
    /// What the other thread is told.
    pending: Arc<Pending>,
    wake: Arc<Wake>,
}

/// Appends that are committed together, and those who wait for them.
#[derive(Default)]
struct Group {
    requests: Vec<Request<'static>>,
    waiting: Vec<Done<Head>>,
}

/// However this thread ends, the other one must not wait for it.
impl Drop for Desk {
    fn drop(&mut self) {
        self.pending.end();
    }
}

impl Desk {
    pub(super) fn new(
        store: Box<dyn Backend>,
        inbox: Receiver<Message>,
        pending: Arc<Pending>,
        wake: Arc<Wake>,
    ) -> Desk {
        Desk { store, inbox, pending, wake }
    }

    /// Until nobody can ask any more: the other thread asks last, while it finishes.
    pub(super) fn run(mut self) {
        while let Ok(message) = self.inbox.recv() {
            self.serve(message);
        }
    }

    /// Serves the message together with the appends that already wait behind it.
    fn serve(&mut self, first: Message) {
        let mut group = Group::default();
        let mut next = Ok(first);
        loop {
            match next {
                Ok(Message::Append { request, done }) => {
                    group.requests.push(request);
                    group.waiting.push(done);
                }
                Ok(Message::Flush { done }) => {
                    self.append(group);
                    return self.pending.flush(done);
                }
                Ok(Message::Work(work)) => {
                    self.append(group);
                    return work(Ok(&mut *self.store));
                }
                Ok(Message::End) => {
                    self.append(group);
                    return self.pending.end();
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
            if group.requests.len() == GROUP_APPENDS_MAX {
                break;
            }
            next = self.inbox.try_recv();
        }
        self.append(group);
    }

    fn append(&mut self, Group { requests, waiting }: Group) {
        if requests.is_empty() {
            return;
        }
        let before = self.store.head().seq;
        let outcomes = self.store.append_group(&requests);
        let head = self.store.head();
        let appended = appended(requests, &outcomes);
        // Who asked comes first, then who looks on.
        for (done, outcome) in waiting.into_iter().zip(outcomes) {
            done(outcome);
        }
        if head.seq > before {
            self.wake.tell(head.seq);
            self.pending.appended(head, appended);
        }
    }
}

/// The records that are in the journal now.
fn appended(requests: Vec<Request<'static>>, outcomes: &[Result<Head, Error>]) -> Vec<Vec<Record>> {
    let taken = requests.into_iter().zip(outcomes).filter(|(_, outcome)| outcome.is_ok());
    taken.map(|(request, _)| Cow::into_owned(request.records)).collect()
}
