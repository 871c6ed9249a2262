//! How others talk to the conductor: send a command, look at the state, follow the journal.

use std::sync::Arc;

use kapelle_core::engine::Accepted;
use kapelle_core::{Command, Record, Refusal, State};
use kapelle_store::search::Document;
use tokio::sync::{broadcast, mpsc, oneshot};

/// How far a follower may fall behind before it has to look at the state anew.
const FOLLOWERS_LAG_MAX: usize = 1_024;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the conductor has stopped")]
    Stopped,
    #[error("the store failed: {0}")]
    Store(#[from] kapelle_store::Error),
}

/// The records of one commit. They are durable.
pub type Committed = Arc<[Record]>;

type Look = Box<dyn FnOnce(&State) + Send>;

pub(crate) enum Message {
    Command(Box<Command>, Ticket),
    Look(Look),
    Publish(String, oneshot::Sender<Result<(), kapelle_store::Error>>),
    Index(Box<Document>),
    /// Somebody else leads the project.
    Deposed(kapelle_store::Error),
    ShutDown,
}

/// Where the answer to a command goes. Hosts do not wait for theirs.
pub(crate) type Ticket = Option<oneshot::Sender<Result<Accepted, Refusal>>>;

#[derive(Debug, Clone)]
pub struct Handle {
    messages: mpsc::UnboundedSender<Message>,
    /// Weak: whoever follows hears of the end of the conductor, however many still have a handle.
    commits: broadcast::WeakSender<Committed>,
}

pub(crate) struct Inbox {
    pub messages: mpsc::UnboundedReceiver<Message>,
    pub commits: broadcast::Sender<Committed>,
}

pub(crate) fn channel() -> (Handle, Inbox) {
    let (messages, receiver) = mpsc::unbounded_channel();
    let (commits, _) = broadcast::channel(FOLLOWERS_LAG_MAX);
    let handle = Handle { messages, commits: commits.downgrade() };
    (handle, Inbox { messages: receiver, commits })
}

impl Handle {
    /// Sends a command and waits until its outcome is durable.
    pub async fn send(&self, command: Command) -> Result<Accepted, Error> {
        let (ticket, answer) = oneshot::channel();
        self.post(Message::Command(Box::new(command), Some(ticket)))?;
        Ok(answer.await.map_err(|_| Error::Stopped)??)
    }

    /// Looks at the state between two turns.
    pub async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&State) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, seen) = oneshot::channel();
        let look = Box::new(move |state: &State| {
            // Whoever asked may have gone away meanwhile.
            let _ = answer.send(look(state));
        });
        self.post(Message::Look(look))?;
        seen.await.map_err(|_| Error::Stopped)
    }

    /// Lets whoever else wants to run the project know where this process answers.
    pub async fn publish(&self, url: &str) -> Result<(), Error> {
        let (done, told) = oneshot::channel();
        self.post(Message::Publish(url.to_owned(), done))?;
        Ok(told.await.map_err(|_| Error::Stopped)??)
    }

    /// Every commit from now on; it is closed when the conductor has ended.
    #[must_use]
    pub fn follow(&self) -> broadcast::Receiver<Committed> {
        match self.commits.upgrade() {
            Some(commits) => commits.subscribe(),
            None => broadcast::channel(1).1,
        }
    }

    /// Asks the conductor to stop what it runs and to end. What was running is taken up again at
    /// the next start.
    pub fn shut_down(&self) {
        // If nobody listens, it has ended already.
        let _ = self.post(Message::ShutDown);
    }

    /// A host's report. Whether it still counts is the engine's decision.
    pub(crate) fn report(&self, command: Command) {
        // Without a conductor there is nobody to report to, and the next one repeats the work.
        let _ = self.post(Message::Command(Box::new(command), None));
    }

    /// Makes what a program printed searchable.
    pub(crate) fn index(&self, found: Document) {
        // Without a conductor it is still in its log.
        let _ = self.post(Message::Index(Box::new(found)));
    }

    pub(crate) fn post(&self, message: Message) -> Result<(), Error> {
        self.messages.send(message).map_err(|_| Error::Stopped)
    }
}
