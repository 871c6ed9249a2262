//! What whoever appends tells the thread that follows. Telling never waits for the other.

use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kapelle_core::{Record, Seq};

use super::Done;
use crate::error::Error;
use crate::journal::Head;

/// More than this is not carried over in memory, but read from the journal again. What came first
/// is kept, because it is folded first.
const RECORDS_MAX: usize = 50_000;

pub(super) struct Pending {
    news: Mutex<News>,
    more: Condvar,
}

pub(super) struct News {
    /// Where the journal ends.
    pub head: Head,
    /// Records that were not taken, without a gap among them, and the last of them.
    records: Vec<Vec<Record>>,
    kept_to: Seq,
    count: usize,
    /// Since when there is something that was not taken.
    pub since: Option<Instant>,
    flushes: Vec<Done<Seq>>,
    /// What could not be made searchable; the first of it.
    unsearchable: Option<String>,
    ending: bool,
}

/// Why the one that follows should do something.
pub(super) enum Call {
    /// Something could not be made searchable, which is noted with the tables.
    Unsearchable(String),
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
            kept_to: head.seq,
            count: 0,
            since: None,
            flushes: Vec::new(),
            unsearchable: None,
            ending: false,
        };
        Pending { news: Mutex::new(news), more: Condvar::new() }
    }

    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The records are those up to the new head.
    pub(super) fn appended(&self, head: Head, records: Vec<Vec<Record>>) {
        let count = records.iter().map(Vec::len).sum::<usize>();
        let mut news = self.news();
        // An append whose answer was lost may be in the journal: then there is a gap before this one.
        let first = records.iter().flatten().next().map(|record| record.seq);
        let next = Seq(news.kept_to.0 + 1);
        let follow = news.records.is_empty() || first == Some(next);
        if follow && news.count + count <= RECORDS_MAX {
            (news.kept_to, news.count) = (head.seq, news.count + count);
            news.records.extend(records);
        }
        news.head = head;
        // Whoever follows sleeps until there is something, and then for a time of its own.
        let is_first = news.since.is_none();
        news.since.get_or_insert_with(Instant::now);
        // Whoever is woken looks at once, and would have to wait, and we to wake it again.
        drop(news);
        if is_first {
            self.more.notify_one();
        }
    }

    pub(super) fn flush(&self, done: Done<Seq>) {
        self.news().flushes.push(done);
        self.more.notify_one();
    }

    pub(super) fn unsearchable(&self, why: String) {
        self.news().unsearchable.get_or_insert(why);
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
            if let Some(why) = news.unsearchable.take() {
                return Call::Unsearchable(why);
            }
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

    /// The records after `seq`, as far as they are at hand, and where the journal ends. Those that
    /// come later stay until the ones before them were read.
    pub(super) fn take(&self, seq: Seq) -> (Vec<Record>, Head) {
        let mut news = self.news();
        let (first, head) = (news.records.iter().flatten().next(), news.head);
        let follow = first.is_some_and(|first| first.seq.0 <= seq.0 + 1);
        news.since = None;
        if !follow {
            return (Vec::new(), head);
        }
        news.count = 0;
        let records = mem::take(&mut news.records);
        drop(news);
        (records.into_iter().flatten().filter(|record| record.seq > seq).collect(), head)
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

#[cfg(test)]
mod tests {
    use kapelle_core::{Event, Timestamp};

    use super::*;
    use crate::journal::Hash;

    const GROUP: usize = 10_000;

    fn append(pending: &Pending) {
        let before = pending.head().seq.0;
        let record = |seq| Record { seq, at: Timestamp(1), event: Event::SessionStarted };
        let records: Vec<Record> = (1..=GROUP as u64).map(|n| record(Seq(before + n))).collect();
        let head = Head { seq: Seq(before + GROUP as u64), hash: Hash([0; 32]) };
        pending.appended(head, vec![records]);
    }

    fn taken(pending: &Pending, after: u64) -> Option<(u64, u64)> {
        let (records, _) = pending.take(Seq(after));
        Some((records.first()?.seq.0, records.last()?.seq.0))
    }

    /// Whoever falls behind goes on with what is in memory, and not from the disk with everything.
    #[test]
    fn what_came_first_is_kept_for_whoever_is_behind() {
        let pending = Pending::new(Head::EMPTY);
        (0..7).for_each(|_| append(&pending));
        assert_eq!(taken(&pending, 0), Some((1, 50_000)));
        append(&pending);
        assert_eq!(taken(&pending, 50_000), None, "20,000 in between are only in the journal");
        assert_eq!(pending.head().seq, Seq(80_000));
        assert_eq!(taken(&pending, 75_000), Some((75_001, 80_000)));
        append(&pending);
        assert_eq!(taken(&pending, 80_000), Some((80_001, 90_000)));
    }

    /// An append whose answer was lost may be in the journal, and was never given to us.
    #[test]
    fn what_comes_after_a_gap_is_not_taken_for_what_follows() {
        let pending = Pending::new(Head::EMPTY);
        append(&pending);
        let seq = Seq(GROUP as u64 + 6);
        let record = Record { seq, at: Timestamp(1), event: Event::SessionStarted };
        pending.appended(Head { seq, hash: Hash([0; 32]) }, vec![vec![record]]);
        assert_eq!(taken(&pending, 0), Some((1, 10_000)));
        assert_eq!(taken(&pending, 10_000), None, "the journal has it");
        assert_eq!(pending.head().seq, seq);
    }

    /// The same when somebody else's append was refused, and only the new end was seen.
    #[test]
    fn an_end_that_was_only_seen_leaves_a_gap_too() {
        let pending = Pending::new(Head::EMPTY);
        append(&pending);
        let seen = Head { seq: Seq(GROUP as u64 + 5), hash: Hash([0; 32]) };
        pending.appended(seen, Vec::new());
        append(&pending);
        assert_eq!(taken(&pending, 0), Some((1, 10_000)));
        assert_eq!(taken(&pending, 10_000), None, "the journal has it");
    }
}
