//! The commit queue: who writes to the repository next.
//!
//! Git has one lock a repository. Waiting commits take it together, every 30 seconds or as soon
//! as five wait, but each stays a commit of its own (C-09): batches share the lock, not the
//! history, so that one task can be taken back without the others.

use std::collections::VecDeque;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::policy::MergePolicy;
use crate::ids::TaskId;
use crate::limits;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitRequest {
    pub task: TaskId,
    pub message: String,
    pub at: Timestamp,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct CommitQueue {
    waiting: VecDeque<CommitRequest>,
}

/// Why the lock is taken now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum Drain {
    Enough { waiting: usize },
    LongEnough { waited_ms: u64 },
}

impl CommitQueue {
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    #[must_use]
    pub fn has_room(&self) -> bool {
        self.waiting.len() < limits::COMMITS_WAITING_MAX as usize
    }

    /// Whether the lock should be taken now.
    #[must_use]
    pub fn due(&self, policy: &MergePolicy, now: Timestamp) -> Option<Drain> {
        let waited_ms = now.ms_since(self.waiting.front()?.at);
        if self.waiting.len() >= policy.drain_waiting as usize {
            return Some(Drain::Enough { waiting: self.waiting.len() });
        }
        (waited_ms >= policy.drain_after_ms).then_some(Drain::LongEnough { waited_ms })
    }

    /// When time alone makes it due.
    #[must_use]
    pub fn wake_at(&self, policy: &MergePolicy) -> Option<Timestamp> {
        self.waiting.front().map(|first| first.at.plus_ms(policy.drain_after_ms))
    }

    /// What is written under one lock: one commit a request, in the order of arrival.
    pub fn waiting(&self) -> impl Iterator<Item = &CommitRequest> {
        self.waiting.iter()
    }

    pub fn requested(&mut self, request: CommitRequest) {
        if self.has_room() && !self.waiting.iter().any(|waiting| waiting.task == request.task) {
            self.waiting.push_back(request);
        }
    }

    /// The first `count` were written, each as its own commit.
    pub fn drained(&mut self, count: usize) {
        self.waiting.drain(..count.min(self.waiting.len()));
    }
}

impl fmt::Display for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Drain::Enough { waiting } => write!(f, "{waiting} commits wait"),
            Drain::LongEnough { waited_ms } => {
                write!(f, "the first commit has waited {} s", waited_ms / 1_000)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(times_ms: &[u64]) -> CommitQueue {
        let mut queue = CommitQueue::default();
        for (task, at) in (1..).zip(times_ms) {
            let message = format!("task {task}");
            queue.requested(CommitRequest { task: TaskId(task), message, at: Timestamp(*at) });
        }
        queue
    }

    /// GIT-05, T-28: both triggers, each at its exact edge.
    #[test]
    fn the_lock_is_taken_after_thirty_seconds_or_at_five() {
        let policy = MergePolicy::default();
        let due = |times: &[u64], now| queue(times).due(&policy, Timestamp(now));
        assert_eq!(due(&[], 99_999), None);
        assert_eq!(due(&[1_000, 2_000], 30_999), None);
        let waited = Some(Drain::LongEnough { waited_ms: 30_000 });
        assert_eq!(due(&[1_000, 2_000], 31_000), waited);
        assert_eq!(due(&[1, 1, 1, 1], 1), None);
        assert_eq!(due(&[1, 1, 1, 1, 1], 1), Some(Drain::Enough { waiting: 5 }));
        assert_eq!(queue(&[1_000]).wake_at(&policy), Some(Timestamp(31_000)));
        assert_eq!(queue(&[]).wake_at(&policy), None);
    }

    /// GIT-06, C-09: a batch that became one commit could not be taken back in parts.
    #[test]
    fn each_task_keeps_a_commit_of_its_own() {
        let mut queue = queue(&[1, 2, 3]);
        let messages: Vec<_> = queue.waiting().map(|request| request.message.as_str()).collect();
        assert_eq!(messages, ["task 1", "task 2", "task 3"]);
        let again = CommitRequest { task: TaskId(2), message: "again".into(), at: Timestamp(4) };
        queue.requested(again);
        queue.drained(2);
        let left: Vec<_> = queue.waiting().map(|request| request.task).collect();
        assert_eq!(left, [TaskId(3)]);
        queue.drained(9);
        assert!(queue.is_empty());
    }

    #[test]
    fn reasons_read_as_sentences() {
        assert_eq!(Drain::Enough { waiting: 5 }.to_string(), "5 commits wait");
        let waited = Drain::LongEnough { waited_ms: 30_000 };
        assert_eq!(waited.to_string(), "the first commit has waited 30 s");
    }
}
