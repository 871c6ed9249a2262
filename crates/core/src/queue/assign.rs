//! Assignment: which idle agent gets a task.
//!
//! One that worked on the same files just now, else one of the same domain, else the one that has
//! had the least to do. Agents that know a file need not read it again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::policy::{QueuePolicy, Strategy};
use super::territory::Territories;
use crate::ids::{AgentId, Role};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum Because {
    FileContext { path: Arc<str> },
    Domain { domain: String },
    LeastLoaded { received: u32 },
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Because::FileContext { path } => write!(f, "it has just worked on {path}"),
            Because::Domain { domain } => write!(f, "it knows {domain}"),
            Because::LeastLoaded { received } => {
                write!(f, "it has had the least to do ({received} tasks)")
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assigned {
    pub agent: AgentId,
    pub because: Because,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoAgent {
    #[error("every {0} is busy")]
    AllBusy(Role),
    #[error("no idle {0} has all files of the task in its territory")]
    OutsideTerritory(Role),
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Assignments {
    hands: BTreeMap<AgentId, Hand>,
    /// By load, so that the first is the least loaded.
    idle: BTreeMap<Role, BTreeSet<(u32, AgentId)>>,
    /// How many of an agent's recent tasks had the file.
    contexts: BTreeMap<(Arc<str>, AgentId), u32>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Hand {
    domains: BTreeSet<String>,
    received: u32,
    idle: bool,
    recent: VecDeque<Arc<[Arc<str>]>>,
}

impl Assignments {
    /// Who of the idle agents should do a task with these files.
    pub fn choose(
        &self,
        policy: &QueuePolicy,
        territories: &Territories,
        role: Role,
        files: &[Arc<str>],
        domains: &[String],
    ) -> Result<Assigned, NoAgent> {
        let Some(idle) = self.idle.get(&role).filter(|idle| !idle.is_empty()) else {
            return Err(NoAgent::AllBusy(role));
        };
        let admitted = |agent: AgentId| territories.admits(agent, files);
        let mut by_load = idle.iter().filter(|(_, agent)| admitted(*agent));
        let Some(&(received, least)) = by_load.next() else {
            return Err(NoAgent::OutsideTerritory(role));
        };
        if matches!(policy.strategy, Strategy::CriticalPath | Strategy::Scored) {
            if let Some((agent, path)) = self.with_context(role, files, admitted) {
                return Ok(Assigned { agent, because: Because::FileContext { path } });
            }
            for (_, agent) in idle.iter().filter(|(_, agent)| admitted(*agent)) {
                let known = self.hands.get(agent).map(|hand| &hand.domains);
                if let Some(domain) = domains.iter().find(|d| known.is_some_and(|k| k.contains(*d)))
                {
                    let because = Because::Domain { domain: domain.clone() };
                    return Ok(Assigned { agent: *agent, because });
                }
            }
        }
        Ok(Assigned { agent: least, because: Because::LeastLoaded { received } })
    }

    /// The idle agent that knows most of the files; of several, the least loaded.
    fn with_context(
        &self,
        role: Role,
        files: &[Arc<str>],
        admitted: impl Fn(AgentId) -> bool,
    ) -> Option<(AgentId, Arc<str>)> {
        let mut known: BTreeMap<AgentId, (u32, Arc<str>)> = BTreeMap::new();
        for path in files {
            let first = (Arc::clone(path), AgentId { role, seat: 0 });
            let last = (Arc::clone(path), AgentId { role, seat: u32::MAX });
            for ((_, agent), _) in self.contexts.range(first..=last) {
                let free = self.hands.get(agent).is_some_and(|hand| hand.idle);
                if free && admitted(*agent) {
                    known.entry(*agent).or_insert_with(|| (0, Arc::clone(path))).0 += 1;
                }
            }
        }
        let load = |agent: &AgentId| self.hands.get(agent).map_or(0, |hand| hand.received);
        let best = known
            .into_iter()
            .min_by_key(|(agent, (files, _))| (std::cmp::Reverse(*files), load(agent), *agent));
        best.map(|(agent, (_, path))| (agent, path))
    }

    /// Idle agents of a role, the least loaded first.
    pub fn idle(&self, role: Role) -> impl Iterator<Item = AgentId> {
        self.idle.get(&role).into_iter().flatten().map(|(_, agent)| *agent)
    }

    #[must_use]
    pub fn received(&self, agent: AgentId) -> u32 {
        self.hands.get(&agent).map_or(0, |hand| hand.received)
    }

    /// Fact: the agent is there and free.
    pub fn joined(&mut self, agent: AgentId, domains: impl IntoIterator<Item = String>) {
        let hand = self.hands.entry(agent).or_default();
        hand.domains = domains.into_iter().collect();
        self.set_idle(agent, true);
    }

    /// Fact: the agent was given a task with these files.
    pub fn assigned(&mut self, policy: &QueuePolicy, agent: AgentId, files: &Arc<[Arc<str>]>) {
        self.set_idle(agent, false);
        let Some(hand) = self.hands.get_mut(&agent) else { return };
        hand.received = hand.received.saturating_add(1);
        hand.recent.push_back(Arc::clone(files));
        let forgotten = match hand.recent.len() > policy.recent_tasks as usize {
            true => hand.recent.pop_front(),
            false => None,
        };
        for path in files.iter() {
            *self.contexts.entry((Arc::clone(path), agent)).or_default() += 1;
        }
        for path in forgotten.iter().flat_map(|files| files.iter()) {
            self.forget(path, agent);
        }
    }

    /// Fact: the agent's attempt ended.
    pub fn freed(&mut self, agent: AgentId) {
        self.set_idle(agent, true);
    }

    /// Fact: the agent takes no more work; it is blocked or drains.
    pub fn withheld(&mut self, agent: AgentId) {
        self.set_idle(agent, false);
    }

    /// Fact: the agent is gone, and what it knew with it.
    pub fn departed(&mut self, agent: AgentId) {
        self.set_idle(agent, false);
        let Some(hand) = self.hands.remove(&agent) else { return };
        for files in hand.recent {
            for path in files.iter() {
                self.forget(path, agent);
            }
        }
    }

    fn forget(&mut self, path: &Arc<str>, agent: AgentId) {
        let key = (Arc::clone(path), agent);
        if let Some(count) = self.contexts.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.contexts.remove(&key);
            }
        }
    }

    fn set_idle(&mut self, agent: AgentId, idle: bool) {
        let Some(hand) = self.hands.get_mut(&agent) else { return };
        hand.idle = idle;
        let of_role = self.idle.entry(agent.role).or_default();
        if idle {
            of_role.insert((hand.received, agent));
        } else {
            of_role.remove(&(hand.received, agent));
        }
    }
}
