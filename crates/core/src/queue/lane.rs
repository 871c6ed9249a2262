//! A lane: tasks that the same agents may take, by rank and by the chain behind them.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::ids::TaskId;

/// Best last, so that the greatest key wins: rank, then the longer chain, then the older task.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub(super) struct ByRank {
    rank: i64,
    chain_minutes: u32,
    task: Reverse<TaskId>,
}

/// Longest chain, then rank, then the older task.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub(super) struct ByChain {
    pub chain_minutes: u32,
    rank: i64,
    task: Reverse<TaskId>,
}

impl ByRank {
    pub(super) fn task(self) -> TaskId {
        self.task.0
    }
}

impl ByChain {
    pub(super) fn task(self) -> TaskId {
        self.task.0
    }
}

#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct Lane {
    by_rank: BTreeSet<ByRank>,
    by_chain: BTreeSet<ByChain>,
}

impl Lane {
    pub(super) fn is_empty(&self) -> bool {
        self.by_rank.is_empty()
    }

    pub(super) fn best(&self) -> Option<ByRank> {
        self.by_rank.last().copied()
    }

    /// All of them, the best first.
    pub(super) fn by_rank(&self) -> impl Iterator<Item = ByRank> {
        self.by_rank.iter().rev().copied()
    }

    pub(super) fn longest(&self) -> Option<ByChain> {
        self.by_chain.last().copied()
    }

    pub(super) fn insert(&mut self, rank: i64, chain_minutes: u32, task: TaskId) {
        let task = Reverse(task);
        self.by_rank.insert(ByRank { rank, chain_minutes, task });
        self.by_chain.insert(ByChain { chain_minutes, rank, task });
    }

    pub(super) fn remove(&mut self, rank: i64, chain_minutes: u32, task: TaskId) {
        let task = Reverse(task);
        self.by_rank.remove(&ByRank { rank, chain_minutes, task });
        self.by_chain.remove(&ByChain { chain_minutes, rank, task });
    }
}
