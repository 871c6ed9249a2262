//! Domains: what agents know well, as the project says.
//!
//! A domain is the name of a kind of work, such as `security`, or of a top folder, such as
//! `frontend`. A task has the domain of its kind and those of its files.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::AgentId;
use crate::limits;
use crate::task::Task;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Domains {
    of: BTreeMap<AgentId, BTreeSet<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{agent} has {count} domains, more than {}", limits::DOMAINS_PER_AGENT_MAX)]
pub struct InvalidDomains {
    pub agent: AgentId,
    pub count: usize,
}

impl Domains {
    #[must_use]
    pub fn new(of: BTreeMap<AgentId, BTreeSet<String>>) -> Domains {
        Domains { of }
    }

    pub fn validate(&self) -> Result<(), InvalidDomains> {
        let many = |known: &BTreeSet<String>| known.len() > limits::DOMAINS_PER_AGENT_MAX;
        match self.of.iter().find(|(_, known)| many(known)) {
            Some((&agent, known)) => Err(InvalidDomains { agent, count: known.len() }),
            None => Ok(()),
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// The first of these domains that the agent knows.
    pub(super) fn shared<'a>(&self, agent: AgentId, domains: &[&'a str]) -> Option<&'a str> {
        let known = self.of.get(&agent)?;
        domains.iter().copied().find(|domain| known.contains(*domain))
    }
}

/// The domains of a task: its kind, and the top folders of its files.
#[must_use]
pub fn domains_of(task: &Task) -> Vec<&str> {
    let folders = task.files.iter().filter_map(|path| Some(path.split_once('/')?.0));
    let folders: BTreeSet<&str> = folders.collect();
    std::iter::once(task.plan.kind.name()).chain(folders).collect()
}
