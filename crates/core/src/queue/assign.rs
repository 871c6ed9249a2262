//! Assignment: which idle agent gets a task.
//!
//! One that worked on the same files just now, else one of the same domain, else the one that has
//! had the least to do. Agents that know a file need not read it again.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::domains::Domains;
use super::policy::{QueuePolicy, Strategy};
use super::territory::Territories;
use crate::activity::count;
use crate::ids::AgentId;

/// What the choice goes by.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    pub policy: &'a QueuePolicy,
    pub territories: &'a Territories,
    pub domains: &'a Domains,
}

/// What is to be done, as far as it matters who does it.
#[derive(Debug, Clone, Copy)]
pub struct Work<'a> {
    pub files: &'a [Arc<str>],
    pub domains: &'a [&'a str],
}

/// Why of several agents this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Because {
    /// A person or its session bound the task to the agent.
    OwnQueue,
    /// It did the one before in the batch.
    Batch,
    /// It began the user story.
    Story,
    FileContext {
        path: Arc<str>,
    },
    Domain {
        domain: Arc<str>,
    },
    LeastLoaded {
        received: u32,
    },
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Because::OwnQueue => f.write_str("the task is its own"),
            Because::Batch => f.write_str("it did the one before in the same go"),
            Because::Story => f.write_str("it began the story"),
            Because::FileContext { path } => write!(f, "it has just worked on {path}"),
            Because::Domain { domain } => write!(f, "it knows {domain}"),
            Because::LeastLoaded { received } => {
                write!(f, "it has had the least to do ({})", count(*received, "task"))
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assigned {
    pub agent: AgentId,
    pub because: Because,
}

/// What the agents have done, as far as it tells who should do what next. Who of them is free is
/// for others to say.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Assignments {
    hands: BTreeMap<AgentId, Hand>,
    /// How many of an agent's recent tasks had the file.
    contexts: BTreeMap<(Arc<str>, AgentId), u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Hand {
    received: u32,
    recent: VecDeque<Arc<[Arc<str>]>>,
}

impl Assignments {
    /// Who of the free agents should do the task; None if it lies outside of all territories.
    #[must_use]
    pub fn choose(&self, rules: &Rules<'_>, free: &[AgentId], work: &Work<'_>) -> Option<Assigned> {
        let admits = |agent: &&AgentId| rules.territories.admits(**agent, work.files);
        let by_load = || free.iter().filter(admits).map(|agent| (self.received(*agent), *agent));
        let (received, least) = by_load().min()?;
        let knows = !work.files.is_empty() || !work.domains.is_empty();
        if knows && matches!(rules.policy.strategy, Strategy::CriticalPath | Strategy::Scored) {
            let mut by_load: Vec<(u32, AgentId)> = by_load().collect();
            by_load.sort_unstable();
            if let Some((agent, path)) = self.with_context(&by_load, work.files) {
                return Some(Assigned { agent, because: Because::FileContext { path } });
            }
            for (_, agent) in &by_load {
                if let Some(domain) = rules.domains.shared(*agent, work.domains) {
                    let because = Because::Domain { domain: domain.into() };
                    return Some(Assigned { agent: *agent, because });
                }
            }
        }
        Some(Assigned { agent: least, because: Because::LeastLoaded { received } })
    }

    /// The agent that knows most of the files; of several, the least loaded.
    fn with_context(
        &self,
        by_load: &[(u32, AgentId)],
        files: &[Arc<str>],
    ) -> Option<(AgentId, Arc<str>)> {
        let mut best: Option<(usize, AgentId, &Arc<str>)> = None;
        for (_, agent) in by_load {
            let knows = |path: &&Arc<str>| self.contexts.contains_key(&(Arc::clone(path), *agent));
            let mut known = files.iter().filter(knows);
            let Some(first) = known.next() else { continue };
            let count = 1 + known.count();
            if best.is_none_or(|(most, _, _)| count > most) {
                best = Some((count, *agent, first));
            }
        }
        best.map(|(_, agent, path)| (agent, Arc::clone(path)))
    }

    #[must_use]
    pub fn received(&self, agent: AgentId) -> u32 {
        self.hands.get(&agent).map_or(0, |hand| hand.received)
    }

    /// Fact: the agent was given a task with these files.
    pub fn assigned(&mut self, policy: &QueuePolicy, agent: AgentId, files: &Arc<[Arc<str>]>) {
        let hand = self.hands.entry(agent).or_default();
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

    fn forget(&mut self, path: &Arc<str>, agent: AgentId) {
        let key = (Arc::clone(path), agent);
        if let Some(count) = self.contexts.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.contexts.remove(&key);
            }
        }
    }
}
