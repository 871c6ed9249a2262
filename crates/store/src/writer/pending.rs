//! What the thread that appends tells the one that follows. Telling never waits for the other.

use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kapelle_core::{Record, Seq};

use super::Done;
use crate::error::Error;
use crate::journal::Head;

/// More than this is not carried over in memory, but read from the journal again.
const RECORDS_MAX: usize = 50_000;

pub(super) struct Pending {
    news: Mutex<News>,
    more: Condvar,
}

pub(super) struct News {
    /// Where the journal ends.
    pub head: Head,
    /// The last records before the head, without a gap among them.
    records: Vec<Vec<Record>>,
    count: usize,
    /// Since when there is something that was not taken.
    pub since: Option<Instant>,
    flushes: Vec<Done<Seq>>,
    ending: bool,
}

/// Why the one that follows should do something.
pub(super) enum Call {
    /// Somebody waits for the tables.
    Flush(Vec<Done<Seq>>),
    /// The moment has come that was waited for.
    Due,
    End,
}

impl Pending {
    pub(super) fn new(head: Head) -> Pending {
        let news = News {
            head,
            records: Vec::new(),
            count: 0,
            since: None,
            flushes: Vec::new(),
            ending: false,
        };
        Pending { news: Mutex::new(news), more: Condvar::new() }
    }

    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The records are those up to the new head.
    pub(super) fn appended(&self, head: Head, records: Vec<Vec<Record>>) {
        let mut news = self.news();
        news.head = head;
        news.count += records.iter().map(Vec::len).sum::<usize>();
        news.records.extend(records);
        if news.count > RECORDS_MAX {
            (news.count, news.records) = (0, Vec::new());
        }
        // Whoever follows sleeps until there is something, and then for a time of its own.
        if news.since.is_none() {
            news.since = Some(Instant::now());
            self.more.notify_one();
        }
    }

    pub(super) fn flush(&self, done: Done<Seq>) {
        self.news().flushes.push(done);
        self.more.notify_one();
    }

    pub(super) fn end(&self) {
        self.news().ending = true;
        self.more.notify_one();
    }

    pub(super) fn head(&self) -> Head {
        self.news().head
    }

    /// Sleeps until somebody asks for something, or until the moment that `due` gives; it is asked
    /// again whenever something new was told. None: as long as it takes.
    pub(super) fn wait(&self, due: impl Fn(&News) -> Option<Instant>) -> Call {
        let mut news = self.news();
        loop {
            if !news.flushes.is_empty() {
                return Call::Flush(mem::take(&mut news.flushes));
            }
            if news.ending {
                return Call::End;
            }
            let left = due(&news).map(|moment| moment.saturating_duration_since(Instant::now()));
            news = match left {
                Some(Duration::ZERO) => return Call::Due,
                Some(left) => {
                    let waited = self.more.wait_timeout(news, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.more.wait(news).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    pub(super) fn is_due(&self, due: impl Fn(&News) -> Option<Instant>) -> bool {
        due(&self.news()).is_some_and(|moment| moment <= Instant::now())
    }

    /// The records that are at hand, and where the journal ends.
    pub(super) fn take(&self) -> (Vec<Record>, Head) {
        let mut news = self.news();
        (news.count, news.since) = (0, None);
        let (records, head) = (mem::take(&mut news.records), news.head);
        drop(news);
        (records.into_iter().flatten().collect(), head)
    }
}

/// For flushes that nobody can answer any more.
impl Drop for News {
    fn drop(&mut self) {
        for done in self.flushes.drain(..) {
            done(Err(Error::WriterGone));
        }
    }
}
