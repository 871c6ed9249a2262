//! Launches: agents are started a few at a time, and then pull on their own.
//!
//! Starting an agent costs seconds of a machine's full attention. Only starts that are under way
//! count; an agent that is online makes room for the next start, whatever its work takes (C-32).

use serde::{Deserialize, Serialize};

use super::policy::QueuePolicy;
use crate::few::FewSet;
use crate::ids::Fence;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Launches {
    starting: FewSet<Fence>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{starting} agents are starting; more follow when they are online")]
pub struct NoLaunch {
    pub starting: u32,
}

impl Launches {
    pub fn check(&self, policy: &QueuePolicy) -> Result<(), NoLaunch> {
        let starting = u32::try_from(self.starting.len()).unwrap_or(u32::MAX);
        if starting < policy.launch_batch { Ok(()) } else { Err(NoLaunch { starting }) }
    }

    /// Whether nobody has heard of the attempt's agent yet.
    #[must_use]
    pub fn is_starting(&self, fence: Fence) -> bool {
        self.starting.contains(&fence)
    }

    /// Fact: the attempt's agent is being started.
    pub fn began(&mut self, fence: Fence) {
        self.starting.insert(fence);
    }

    /// Fact: the agent is online, or its attempt ended before it was.
    pub fn ended(&mut self, fence: Fence) {
        self.starting.remove(&fence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// QUE-19, T-26: 18 agents that take 3.2 s each are online after 9.6 s, and nobody waits for
    /// the work of the first ones to end.
    #[test]
    fn eighteen_agents_are_online_after_three_rounds() {
        let policy = QueuePolicy::default();
        let mut launches = Launches::default();
        let mut online_at = Vec::new();
        let mut now_ms = 0;
        let mut under_way: Vec<(u64, Fence)> = Vec::new();
        let mut next = 1;
        while online_at.len() < 18 {
            while next <= 18 && launches.check(&policy).is_ok() {
                launches.began(Fence(next));
                under_way.push((now_ms + 3_200, Fence(next)));
                next += 1;
            }
            assert!(under_way.len() <= 6);
            let (at, fence) = under_way.remove(0);
            now_ms = at;
            launches.ended(fence);
            online_at.push(at);
        }
        assert_eq!(online_at.last(), Some(&9_600));
        assert_eq!(launches, Launches::default());
    }

    #[test]
    fn the_seventh_start_waits() {
        let mut launches = Launches::default();
        for n in 1..=6 {
            launches.began(Fence(n));
        }
        let refused = launches.check(&QueuePolicy::default());
        assert_eq!(refused, Err(NoLaunch { starting: 6 }));
        launches.ended(Fence(3));
        launches.ended(Fence(99));
        assert_eq!(launches.check(&QueuePolicy::default()), Ok(()));
    }
}
