//! File locks: which task may write which file, and until when.
//!
//! A task takes all of its files at once or none of them, so nobody holds a file while waiting for
//! another and no circle of waiting can form. A lock ends with its task, or when it expires: a
//! dead holder must not keep a file for ever. A task that has something to show for it keeps its
//! files while nobody works on it, and then no time ends them.
//!
//! Invariant: a path has at most one holder, every lock is listed under exactly its holder, and
//! those expire whose holder does not keep them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::failure::FailureKind;
use crate::ids::TaskId;
use crate::limits;
use crate::time::{SECOND_MS, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LockPolicy {
    pub ttl_ms: u64,
}

impl Default for LockPolicy {
    fn default() -> LockPolicy {
        LockPolicy { ttl_ms: 300 * SECOND_MS }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error(
    "a file lock of {ttl_ms} ms would expire before its holder could renew it; at least {min_ms}"
)]
pub struct InvalidLockPolicy {
    pub ttl_ms: u64,
    pub min_ms: u64,
}

impl LockPolicy {
    pub fn validate(&self) -> Result<(), InvalidLockPolicy> {
        const TTL_MS_MIN: u64 = 10 * SECOND_MS;
        if self.ttl_ms < TTL_MS_MIN {
            return Err(InvalidLockPolicy { ttl_ms: self.ttl_ms, min_ms: TTL_MS_MIN });
        }
        Ok(())
    }
}

/// The files that a task gets, all of them or none. It goes into the journal as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockGrant {
    pub task: TaskId,
    /// Sorted, each once.
    pub paths: Vec<Arc<str>>,
    pub locked_at: Timestamp,
    pub expires_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub enum LockRefusal {
    /// GIT-08: the task comes back later; nothing was taken.
    #[error("{path} is locked by task number {} for another {} s", holder.0, remaining_ms.div_ceil(SECOND_MS))]
    RetryLater { path: Arc<str>, holder: TaskId, remaining_ms: u64 },
    #[error("{count} files are more than one task may lock ({})", limits::TASK_FILES_MAX)]
    TooManyFiles { count: usize },
}

impl LockRefusal {
    /// The failure that the retry table knows.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        match self {
            LockRefusal::RetryLater { .. } => FailureKind::FileLocked,
            LockRefusal::TooManyFiles { .. } => FailureKind::ValidationFailed,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    pub holder: TaskId,
    pub locked_at: Timestamp,
    pub expires_at: Timestamp,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LockTable {
    locks: BTreeMap<Arc<str>, Lock>,
    by_holder: BTreeMap<TaskId, BTreeSet<Arc<str>>>,
    expiries: BTreeSet<(Timestamp, Arc<str>)>,
    /// Holders whose locks no time ends.
    #[serde(default)]
    kept: BTreeSet<TaskId>,
}

impl LockTable {
    /// What the task would get now. A lock past its expiry is as good as free, unless it is kept.
    pub fn acquire(
        &self,
        policy: &LockPolicy,
        task: TaskId,
        paths: &[Arc<str>],
        now: Timestamp,
    ) -> Result<LockGrant, LockRefusal> {
        let wanted: BTreeSet<&Arc<str>> = paths.iter().collect();
        if wanted.len() > limits::TASK_FILES_MAX {
            return Err(LockRefusal::TooManyFiles { count: wanted.len() });
        }
        for path in &wanted {
            if let Some(lock) = self.holder_other_than(task, path, now) {
                return Err(LockRefusal::RetryLater {
                    path: Arc::clone(path),
                    holder: lock.holder,
                    remaining_ms: lock.expires_at.ms_since(now),
                });
            }
        }
        let paths = wanted.into_iter().map(Arc::clone).collect();
        Ok(LockGrant { task, paths, locked_at: now, expires_at: now.plus_ms(policy.ttl_ms) })
    }

    fn holder_other_than(&self, task: TaskId, path: &str, now: Timestamp) -> Option<&Lock> {
        let holds = |lock: &&Lock| now < lock.expires_at || self.kept.contains(&lock.holder);
        self.locks.get(path).filter(|lock| lock.holder != task).filter(holds)
    }

    /// Whether no time ends the locks of the task.
    #[must_use]
    pub fn is_kept(&self, task: TaskId) -> bool {
        self.kept.contains(&task)
    }

    /// Whether the task has all of these files to itself.
    #[must_use]
    pub fn has_all(&self, task: TaskId, paths: &[Arc<str>]) -> bool {
        let own = self.by_holder.get(&task);
        own.is_some_and(|own| paths.iter().all(|path| own.contains(path)))
    }

    /// Who has the file, by the record; it may have expired without anyone having said so.
    #[must_use]
    pub fn lock(&self, path: &str) -> Option<&Lock> {
        self.locks.get(path)
    }

    /// Whether someone other than `task` has the file.
    #[must_use]
    pub fn is_locked_for(&self, task: TaskId, path: &str) -> bool {
        self.locks.get(path).is_some_and(|lock| lock.holder != task)
    }

    pub fn held_by(&self, task: TaskId) -> impl Iterator<Item = &Arc<str>> {
        self.by_holder.get(&task).into_iter().flatten()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Lock)> {
        self.locks.iter()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// The next moment at which a lock expires.
    #[must_use]
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.expiries.first().map(|(at, _)| *at)
    }

    /// A lock that is to be declared expired, if one is; ask again after `expired`.
    #[must_use]
    pub fn next_expired(&self, now: Timestamp) -> Option<(&Arc<str>, TaskId)> {
        let (_, path) = self.expiries.first().filter(|(at, _)| *at <= now)?;
        Some((path, self.locks.get(path)?.holder))
    }

    /// Fact: the task has these files until then. Also a renewal.
    pub fn locked(&mut self, grant: &LockGrant) {
        for path in &grant.paths {
            self.free(path);
            let LockGrant { task: holder, locked_at, expires_at, .. } = *grant;
            self.locks.insert(Arc::clone(path), Lock { holder, locked_at, expires_at });
            self.by_holder.entry(holder).or_default().insert(Arc::clone(path));
            self.expiries.insert((expires_at, Arc::clone(path)));
        }
        self.left_to_time(grant.task);
    }

    /// Fact: the task stands where nobody is heard of, and keeps what it has until it goes on or
    /// ends.
    pub fn kept(&mut self, task: TaskId) {
        let LockTable { locks, by_holder, expiries, kept } = self;
        let Some(paths) = by_holder.get(&task) else { return };
        for path in paths {
            if let Some(lock) = locks.get(path) {
                expiries.remove(&(lock.expires_at, Arc::clone(path)));
            }
        }
        kept.insert(task);
    }

    /// Fact: the task keeps its files no longer; they expire when they would have.
    pub fn left_to_time(&mut self, task: TaskId) {
        let LockTable { locks, by_holder, expiries, kept } = self;
        if !kept.remove(&task) {
            return;
        }
        for path in by_holder.get(&task).into_iter().flatten() {
            if let Some(lock) = locks.get(path) {
                expiries.insert((lock.expires_at, Arc::clone(path)));
            }
        }
    }

    /// Fact: whoever works on the task was heard of; its locks last at least as long as its lease.
    pub fn extended(&mut self, task: TaskId, until: Timestamp) {
        self.left_to_time(task);
        let LockTable { locks, by_holder, expiries, kept: _ } = self;
        for path in by_holder.get(&task).into_iter().flatten() {
            let Some(lock) = locks.get_mut(path).filter(|lock| lock.expires_at < until) else {
                continue;
            };
            expiries.remove(&(lock.expires_at, Arc::clone(path)));
            lock.expires_at = until;
            expiries.insert((until, Arc::clone(path)));
        }
    }

    /// Fact: the task ended, in whichever way, and has no file any more. Returns what became free.
    pub fn released(&mut self, task: TaskId) -> Vec<Arc<str>> {
        let paths: Vec<Arc<str>> = self.held_by(task).cloned().collect();
        for path in &paths {
            self.free(path);
        }
        paths
    }

    /// Fact: nobody renewed the lock in time.
    pub fn expired(&mut self, path: &str) {
        self.free(path);
    }

    fn free(&mut self, path: &str) {
        let Some((path, lock)) = self.locks.remove_entry(path) else { return };
        if let Some(held) = self.by_holder.get_mut(&lock.holder) {
            held.remove(&path);
            if held.is_empty() {
                self.by_holder.remove(&lock.holder);
                self.kept.remove(&lock.holder);
            }
        }
        self.expiries.remove(&(lock.expires_at, path));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: TaskId = TaskId(1);
    const B: TaskId = TaskId(2);

    fn paths(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp(seconds * SECOND_MS)
    }

    fn take(table: &mut LockTable, task: TaskId, names: &[&str], now: Timestamp) {
        let grant = table.acquire(&LockPolicy::default(), task, &paths(names), now).unwrap();
        table.locked(&grant);
    }

    fn refused(table: &LockTable, task: TaskId, names: &[&str], now: Timestamp) -> LockRefusal {
        table.acquire(&LockPolicy::default(), task, &paths(names), now).unwrap_err()
    }

    /// Who waits wants to know for whom, and the retry table wants to know why.
    #[test]
    fn a_locked_file_is_refused_with_its_holder() {
        let mut table = LockTable::default();
        take(&mut table, A, &["b.rs"], at(0));
        let refusal = refused(&table, B, &["c.rs", "b.rs"], at(100));
        let expected =
            LockRefusal::RetryLater { path: "b.rs".into(), holder: A, remaining_ms: 200_000 };
        assert_eq!(refusal, expected);
        assert_eq!(refusal.kind(), FailureKind::FileLocked);
        assert_eq!(refusal.to_string(), "b.rs is locked by task number 1 for another 200 s");
        assert_eq!(table.len(), 1, "a refused task must not keep the files that were free");
    }

    #[test]
    fn a_lock_lives_for_three_hundred_seconds() {
        let mut table = LockTable::default();
        take(&mut table, A, &["a.rs"], at(0));
        assert_eq!(table.wake_at(), Some(at(300)));
        refused(&table, B, &["a.rs"], Timestamp(299_999));
        assert_eq!(table.next_expired(Timestamp(299_999)), None);
        assert_eq!(table.next_expired(at(300)), Some((&"a.rs".into(), A)));
        take(&mut table, B, &["a.rs"], at(300));
        assert_eq!(table.lock("a.rs").map(|lock| lock.holder), Some(B));
        assert_eq!(table.held_by(A).count(), 0, "the late holder must not free B's lock");
        assert_eq!(table.released(A), Vec::<Arc<str>>::new());
        assert!(table.is_locked_for(A, "a.rs"));
    }

    #[test]
    fn a_holder_renews_its_own_lock() {
        let mut table = LockTable::default();
        take(&mut table, A, &["a.rs"], at(0));
        take(&mut table, A, &["a.rs", "b.rs"], at(200));
        assert_eq!(table.wake_at(), Some(at(500)));
        assert!(!table.is_locked_for(A, "a.rs"));
        refused(&table, B, &["a.rs"], at(400));
    }

    #[test]
    fn the_end_of_a_task_frees_all_of_its_files() {
        let mut table = LockTable::default();
        take(&mut table, A, &["b.rs", "a.rs", "b.rs"], at(0));
        assert_eq!(table.released(A), paths(&["a.rs", "b.rs"]));
        assert_eq!(table, LockTable::default());
    }

    /// Whoever has something to show for its files loses them to no clock, and to nobody else.
    #[test]
    fn what_is_kept_does_not_expire_until_it_is_left_to_time() {
        let mut table = LockTable::default();
        take(&mut table, A, &["a.rs", "b.rs"], at(0));
        assert!(table.has_all(A, &paths(&["a.rs", "b.rs"])));
        assert!(!table.has_all(A, &paths(&["a.rs", "c.rs"])));
        table.kept(A);
        assert_eq!((table.wake_at(), table.is_kept(A)), (None, true));
        assert_eq!(table.next_expired(at(1_000)), None);
        refused(&table, B, &["a.rs"], at(1_000));
        table.left_to_time(A);
        assert_eq!(table.next_expired(at(300)), Some((&"a.rs".into(), A)));
        table.kept(A);
        take(&mut table, A, &["a.rs"], at(1_000));
        assert!(!table.is_kept(A), "it works again, and is to be heard of");
        assert_eq!(table.wake_at(), Some(at(300)), "of the file that it did not take again");
        table.kept(A);
        table.released(A);
        assert_eq!(table, LockTable::default());
        table.kept(B);
        assert!(!table.is_kept(B), "who has nothing keeps nothing");
    }

    #[test]
    fn an_expiry_frees_one_file() {
        let mut table = LockTable::default();
        take(&mut table, A, &["a.rs", "b.rs"], at(0));
        table.expired("a.rs");
        assert_eq!(table.held_by(A).cloned().collect::<Vec<_>>(), paths(&["b.rs"]));
        table.expired("nobody.rs");
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn nobody_locks_the_whole_repository() {
        let many: Vec<Arc<str>> =
            (0..=limits::TASK_FILES_MAX).map(|n| n.to_string().into()).collect();
        let refusal = LockTable::default().acquire(&LockPolicy::default(), A, &many, at(0));
        assert_eq!(refusal, Err(LockRefusal::TooManyFiles { count: many.len() }));
        assert_eq!(refusal.unwrap_err().kind(), FailureKind::ValidationFailed);
    }

    #[test]
    fn a_lock_too_short_to_renew_is_no_policy() {
        assert_eq!(LockPolicy::default().validate(), Ok(()));
        let refused = InvalidLockPolicy { ttl_ms: 9_999, min_ms: 10_000 };
        assert_eq!(LockPolicy { ttl_ms: 9_999 }.validate(), Err(refused));
    }

    #[derive(Debug, Clone)]
    enum Move {
        Acquire(u32, Vec<u8>),
        Release(u32),
        Keep(u32),
        LeaveToTime(u32),
        Pass(u64),
        Sweep,
    }

    fn moves() -> impl Strategy<Value = Vec<Move>> {
        let one = prop_oneof![
            4 => (0..6u32, prop::collection::vec(0..8u8, 1..4)).prop_map(|(t, p)| Move::Acquire(t, p)),
            2 => (0..6u32).prop_map(Move::Release),
            1 => (0..6u32).prop_map(Move::Keep),
            1 => (0..6u32).prop_map(Move::LeaveToTime),
            1 => (1..200u64).prop_map(Move::Pass),
            1 => Just(Move::Sweep),
        ];
        prop::collection::vec(one, 0..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]

        /// Whatever the interleaving: one holder a file, all or nothing, and what one model of
        /// plain owners says is what the table says.
        #[test]
        fn a_file_has_one_holder_and_tasks_get_all_or_nothing(moves in moves()) {
            let policy = LockPolicy::default();
            let mut table = LockTable::default();
            let mut model: BTreeMap<String, (TaskId, Timestamp)> = BTreeMap::new();
            let mut kept: BTreeSet<TaskId> = BTreeSet::new();
            let mut now = at(1);
            for step in moves {
                match step {
                    Move::Acquire(task, wanted) => {
                        let names: Vec<Arc<str>> =
                            wanted.iter().map(|n| n.to_string().into()).collect();
                        let task = TaskId(task);
                        let free = wanted.iter().all(|n| {
                            model.get(&n.to_string()).is_none_or(|(t, until)| {
                                *t == task || (*until <= now && !kept.contains(t))
                            })
                        });
                        let answer = table.acquire(&policy, task, &names, now);
                        prop_assert_eq!(answer.is_ok(), free);
                        if let Ok(grant) = answer {
                            prop_assert!(grant.paths.is_sorted());
                            table.locked(&grant);
                            for name in &names {
                                model.insert(name.to_string(), (task, grant.expires_at));
                            }
                            kept.remove(&task);
                        }
                    }
                    Move::Release(task) => {
                        table.released(TaskId(task));
                        model.retain(|_, (holder, _)| *holder != TaskId(task));
                    }
                    Move::Keep(task) => {
                        table.kept(TaskId(task));
                        kept.insert(TaskId(task));
                    }
                    Move::LeaveToTime(task) => {
                        table.left_to_time(TaskId(task));
                        kept.remove(&TaskId(task));
                    }
                    Move::Pass(seconds) => now = now.plus_ms(seconds * SECOND_MS),
                    Move::Sweep => {
                        while let Some((path, _)) = table.next_expired(now) {
                            let path = Arc::clone(path);
                            table.expired(&path);
                        }
                        model.retain(|_, (t, until)| *until > now || kept.contains(t));
                    }
                }
                kept.retain(|task| model.values().any(|(holder, _)| holder == task));
                let held: BTreeMap<String, (TaskId, Timestamp)> = table.locks.iter()
                    .map(|(path, lock)| (path.to_string(), (lock.holder, lock.expires_at))).collect();
                prop_assert_eq!(&held, &model);
                let listed: usize = table.by_holder.values().map(BTreeSet::len).sum();
                prop_assert_eq!(listed, held.len());
                let timed = held.values().filter(|(holder, _)| !kept.contains(holder)).count();
                prop_assert_eq!(table.expiries.len(), timed);
                prop_assert_eq!(&table.kept, &kept);
            }
        }
    }
}
