//! A lane: tasks that the same agents may take, by rank and by the chain behind them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::few::FewSet;
use crate::ids::TaskId;

/// Best last, so that the greatest key wins: rank, then the longer chain, then the older task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ByRank {
    rank: i64,
    chain_minutes: u32,
    task: Reverse<TaskId>,
}

/// Longest chain, then rank, then the older task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
    /// By rank and chain. What a plan or a merge makes ready at once is often equal in both, and
    /// is then one group, the older tasks first.
    groups: BTreeMap<(i64, u32), FewSet<TaskId>>,
    /// The same groups, by chain and rank.
    by_chain: BTreeSet<(u32, i64)>,
}

impl Lane {
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(super) fn best(&self) -> Option<ByRank> {
        self.by_rank().next()
    }

    /// All of them, the best first.
    pub(super) fn by_rank(&self) -> impl Iterator<Item = ByRank> {
        self.groups.iter().rev().flat_map(|(&(rank, chain_minutes), tasks)| {
            tasks.iter().map(move |task| ByRank { rank, chain_minutes, task: Reverse(*task) })
        })
    }

    pub(super) fn longest(&self) -> Option<ByChain> {
        let &(chain_minutes, rank) = self.by_chain.last()?;
        let task = Reverse(*self.groups.get(&(rank, chain_minutes))?.first()?);
        Some(ByChain { chain_minutes, rank, task })
    }

    pub(super) fn insert(&mut self, rank: i64, chain_minutes: u32, task: TaskId) {
        let group = self.groups.entry((rank, chain_minutes)).or_default();
        if group.is_empty() {
            self.by_chain.insert((chain_minutes, rank));
        }
        group.insert(task);
    }

    pub(super) fn remove(&mut self, rank: i64, chain_minutes: u32, task: TaskId) {
        let Some(group) = self.groups.get_mut(&(rank, chain_minutes)) else { return };
        group.remove(&task);
        if group.is_empty() {
            self.groups.remove(&(rank, chain_minutes));
            self.by_chain.remove(&(chain_minutes, rank));
        }
    }
}
