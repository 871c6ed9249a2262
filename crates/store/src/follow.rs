//! Waiting for more: whoever reads along sleeps until there is something, and polls nothing.
//!
//! In the process of the writer, the writer wakes us. In another one, PostgreSQL sends word, and a
//! SQLite file is watched by the kernel. Word may come late or twice, so a wake-up only means:
//! look again.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use kapelle_core::Seq;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use crate::error::Error;
use crate::location::{Location, Place};
use crate::postgres::Listener;

/// Sleeps until the journal may have grown.
#[derive(Debug)]
pub struct Follower {
    how: How,
}

#[derive(Debug)]
enum How {
    Writer(Arc<Wake>, Seq),
    File(Inotify),
    Server(Box<Listener>),
}

/// Where the journal of a writer in this process stands.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    head: Mutex<Seq>,
    grown: Condvar,
}

impl Wake {
    pub(crate) fn tell(&self, head: Seq) {
        *self.head.lock().unwrap_or_else(PoisonError::into_inner) = head;
        self.grown.notify_all();
    }
}

impl Follower {
    /// Follows a store that another process writes.
    pub fn open(location: impl Into<Location>) -> Result<Follower, Error> {
        let how = match &location.into().place {
            Place::Sqlite(path) => How::File(watch(path)?),
            Place::Postgres(server) => How::Server(Box::new(Listener::start(server)?)),
        };
        Ok(Follower { how })
    }

    pub(crate) fn of_writer(wake: Arc<Wake>, after: Seq) -> Follower {
        Follower { how: How::Writer(wake, after) }
    }

    /// Sleeps until there may be more records; false if there was nothing for so long.
    pub fn wait(&mut self, patience: Duration) -> Result<bool, Error> {
        match &mut self.how {
            How::Server(listener) => listener.wait(patience),
            How::File(events) => changed(events, patience),
            How::Writer(wake, seen) => {
                let head = wake.head.lock().unwrap_or_else(PoisonError::into_inner);
                let nothing_new = |head: &mut Seq| *head <= *seen;
                let waited = wake.grown.wait_timeout_while(head, patience, nothing_new);
                let (head, waited) = waited.unwrap_or_else(PoisonError::into_inner);
                *seen = *head;
                Ok(!waited.timed_out())
            }
        }
    }
}

fn watch(path: &Path) -> Result<Inotify, Error> {
    let flags = InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC;
    let events = Inotify::init(flags).map_err(|errno| Error::io(path)(errno.into()))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // The log beside the file comes and goes, so its folder is watched.
    let folder = folder.unwrap_or(Path::new("."));
    let wanted = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_ATTRIB;
    events.add_watch(folder, wanted).map_err(|errno| Error::io(folder)(errno.into()))?;
    Ok(events)
}

fn changed(events: &Inotify, patience: Duration) -> Result<bool, Error> {
    let failed = |errno: Errno| Error::Database { what: errno.to_string() };
    let patience = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    let ready = {
        let mut fds = [PollFd::new(std::os::fd::AsFd::as_fd(events), PollFlags::POLLIN)];
        match poll(&mut fds, patience) {
            // A signal: looked at once too often is better than not at all.
            Err(Errno::EINTR) => return Ok(true),
            ready => ready.map_err(failed)?,
        }
    };
    if ready == 0 {
        return Ok(false);
    }
    // What they say in detail is for the reader to find out.
    while events.read_events().is_ok_and(|some| !some.is_empty()) {}
    Ok(true)
}
