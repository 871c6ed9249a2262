//! Chains: how long the longest way from a task to the end of its plan is, and how much work is
//! still to be started.
//!
//! Both come from estimates, and wrong estimates cost only time. The chain behind a task does not
//! change while it waits, because nothing behind it can start before it.

use std::collections::BTreeMap;

use super::policy::QueuePolicy;
use crate::by_task::ByTask;
use crate::ids::TaskId;

/// How the open work compares with the agents who do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlook {
    /// Estimated minutes of all work that is not started, ready or not.
    pub open_minutes: u64,
    pub agents: u32,
}

impl Outlook {
    /// For one agent, or where nothing is known: only the score counts.
    pub const NONE: Outlook = Outlook { open_minutes: 0, agents: 1 };

    /// Whether a chain would still run when everyone else is out of work.
    #[must_use]
    pub fn is_urgent(self, chain_minutes: u32, policy: &QueuePolicy) -> bool {
        let share = self.open_minutes.saturating_mul(u64::from(policy.urgent_permille));
        u64::from(chain_minutes).saturating_mul(1_000 * u64::from(self.agents)) > share
    }
}

/// The chains and the open work of one plan.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Chains {
    minutes: ByTask<Work>,
    open_minutes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
struct Work {
    own: u32,
    chain: u32,
    open: bool,
}

impl Chains {
    /// Adds the tasks of a plan: id, estimated minutes, what it needs; each after all it needs.
    /// One pass over tasks and dependencies.
    pub fn planned(&mut self, tasks: &[(TaskId, u32, Vec<TaskId>)]) {
        let mut behind: BTreeMap<TaskId, u32> = BTreeMap::new();
        for (task, minutes, needs) in tasks.iter().rev() {
            let chain = minutes.saturating_add(behind.get(task).copied().unwrap_or(0));
            for need in needs {
                let longest = behind.entry(*need).or_default();
                *longest = chain.max(*longest);
            }
            self.minutes.insert(*task, Work { own: *minutes, chain, open: true });
            self.open_minutes += u64::from(*minutes);
        }
    }

    #[must_use]
    pub fn chain_minutes(&self, task: TaskId) -> u32 {
        self.minutes.get(task).map_or(0, |work| work.chain)
    }

    #[must_use]
    pub fn outlook(&self, agents: u32) -> Outlook {
        Outlook { open_minutes: self.open_minutes, agents }
    }

    /// Fact: an agent took the task, or it will never be done.
    pub fn closed(&mut self, task: TaskId) {
        self.set_open(task, false);
    }

    /// Fact: the task is to be done again.
    pub fn reopened(&mut self, task: TaskId) {
        self.set_open(task, true);
    }

    fn set_open(&mut self, task: TaskId, open: bool) {
        let Some(work) = self.minutes.get_mut(task).filter(|work| work.open != open) else {
            return;
        };
        work.open = open;
        let own = u64::from(work.own);
        self.open_minutes =
            if open { self.open_minutes + own } else { self.open_minutes.saturating_sub(own) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_the_longest_way_to_the_end() {
        let t = TaskId;
        let mut chains = Chains::default();
        chains.planned(&[
            (t(1), 10, vec![]),
            (t(2), 5, vec![t(1)]),
            (t(3), 30, vec![t(1)]),
            (t(4), 1, vec![t(2), t(3)]),
        ]);
        let lengths = [1, 2, 3, 4].map(|n| chains.chain_minutes(t(n)));
        assert_eq!(lengths, [41, 6, 31, 1]);
        assert_eq!(chains.outlook(2).open_minutes, 46);
        chains.closed(t(3));
        chains.closed(t(3));
        assert_eq!(chains.outlook(2).open_minutes, 16);
        chains.reopened(t(3));
        assert_eq!(chains.outlook(2).open_minutes, 46);
    }
}
