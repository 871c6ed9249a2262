//! Territories: which paths an agent may work on.
//!
//! An agent gets only tasks whose files all lie in its territory, and a write outside of it is
//! refused whatever the agent was told. An agent without a territory may work anywhere.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::glob;
use crate::ids::{AgentId, Role};
use crate::limits;

/// Path patterns by agent; `backend/src/` stands for all below it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Territories {
    of: BTreeMap<AgentId, Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub enum InvalidTerritory {
    #[error("{agent} has {count} path patterns, more than {}", limits::PATTERNS_MAX)]
    TooManyPatterns { agent: AgentId, count: usize },
    #[error("the territory of {agent} names no path")]
    Empty { agent: AgentId },
    #[error("{role} has {count} territories, more than {}", limits::TERRITORIES_PER_ROLE_MAX)]
    TooManyTerritories { role: Role, count: usize },
}

/// An agent changed what is not its own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{agent} may not change {path}: it is outside of its territory ({})", territory.join(", "))]
pub struct Trespass {
    pub agent: AgentId,
    pub path: String,
    pub territory: Vec<String>,
}

/// Which territories of a role contain all files of a task, one bit each. The first bit stands
/// for agents without a territory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Reach(u32);

impl Reach {
    pub(super) const NONE: Reach = Reach(0);
    pub(super) const ALL: Reach = Reach(u32::MAX);
    const UNBOUND: u32 = 1;

    pub(super) fn includes(self, bit: u32) -> bool {
        self.0 & bit != 0
    }
}

impl Territories {
    pub fn new(of: BTreeMap<AgentId, Vec<String>>) -> Result<Territories, InvalidTerritory> {
        let territories = Territories { of };
        territories.validate()?;
        Ok(territories)
    }

    pub fn validate(&self) -> Result<(), InvalidTerritory> {
        for (&agent, patterns) in &self.of {
            if patterns.len() > limits::PATTERNS_MAX {
                let count = patterns.len();
                return Err(InvalidTerritory::TooManyPatterns { agent, count });
            }
            if patterns.iter().all(|pattern| pattern.trim().is_empty()) {
                return Err(InvalidTerritory::Empty { agent });
            }
        }
        for role in Role::ALL {
            let count = self.distinct(role).len();
            if count > limits::TERRITORIES_PER_ROLE_MAX {
                return Err(InvalidTerritory::TooManyTerritories { role, count });
            }
        }
        Ok(())
    }

    /// Who has a territory, and which.
    pub fn iter(&self) -> impl Iterator<Item = (AgentId, &[String])> {
        self.of.iter().map(|(agent, patterns)| (*agent, &patterns[..]))
    }

    /// Whether the agent may work on all of these files. A task that names none may go anywhere;
    /// its writes are looked at all the same.
    #[must_use]
    pub fn admits<P: AsRef<str>>(&self, agent: AgentId, files: &[P]) -> bool {
        self.of.get(&agent).is_none_or(|patterns| all_within(patterns, files))
    }

    /// The first path that the agent had no business touching (WRK-14).
    pub fn check_writes<P: AsRef<str>>(
        &self,
        agent: AgentId,
        touched: &[P],
    ) -> Result<(), Trespass> {
        let Some(territory) = self.of.get(&agent) else { return Ok(()) };
        match touched.iter().find(|path| !within(territory, path.as_ref())) {
            None => Ok(()),
            Some(path) => Err(Trespass {
                agent,
                path: path.as_ref().to_owned(),
                territory: territory.clone(),
            }),
        }
    }

    /// The distinct territories of a role; agents may share one. Their order is their bit.
    fn distinct(&self, role: Role) -> Vec<&[String]> {
        let seats = AgentId { role, seat: 0 }..=AgentId { role, seat: u32::MAX };
        let mut distinct: Vec<&[String]> = self.of.range(seats).map(|(_, p)| &p[..]).collect();
        distinct.sort_unstable();
        distinct.dedup();
        distinct
    }

    pub(super) fn bit_of(&self, agent: AgentId) -> u32 {
        let Some(own) = self.of.get(&agent) else { return Reach::UNBOUND };
        let place = self.distinct(agent.role).iter().position(|patterns| *patterns == &own[..]);
        place.map_or(0, |index| Reach::UNBOUND << (index + 1))
    }

    pub(super) fn reach<P: AsRef<str>>(&self, role: Role, files: &[P]) -> Reach {
        let mut reach = Reach::UNBOUND;
        for (index, patterns) in self.distinct(role).into_iter().enumerate() {
            if all_within(patterns, files) {
                reach |= Reach::UNBOUND << (index + 1);
            }
        }
        Reach(reach)
    }
}

fn all_within<P: AsRef<str>>(patterns: &[String], files: &[P]) -> bool {
    files.iter().all(|path| within(patterns, path.as_ref()))
}

fn within(patterns: &[String], path: &str) -> bool {
    // Nobody's territory reaches out of the repository, whatever its pattern says.
    if path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return false;
    }
    patterns.iter().any(|pattern| match pattern.strip_suffix('/') {
        Some(folder) => glob::matches(&format!("{folder}/**"), path),
        // A bare name such as `*.spec.ts` is meant in every folder, as in `.gitignore`.
        None if !pattern.contains('/') => glob::matches(&format!("**/{pattern}"), path),
        None => glob::matches(pattern, path),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(role: Role, seat: u32) -> AgentId {
        AgentId { role, seat }
    }

    /// The team of WRK-13.
    fn team() -> Territories {
        let of = [
            (agent(Role::Tester, 1), vec!["frontend/__tests__/", "*.spec.ts"]),
            (agent(Role::Tester, 2), vec!["backend/__tests__/", "*.test.js"]),
            (agent(Role::Developer, 1), vec!["frontend/src/"]),
            (agent(Role::Developer, 2), vec!["backend/src/"]),
        ];
        let owned = of.map(|(id, paths)| (id, paths.into_iter().map(str::to_owned).collect()));
        Territories::new(BTreeMap::from(owned)).unwrap()
    }

    #[test]
    fn an_agent_is_given_only_what_lies_in_its_territory() {
        let team = team();
        let front = agent(Role::Developer, 1);
        assert!(team.admits(front, &["frontend/src/a.ts", "frontend/src/b/c.ts"]));
        assert!(!team.admits(front, &["frontend/src/a.ts", "backend/src/a.rs"]));
        assert!(team.admits(agent(Role::Tester, 1), &["lib/a.spec.ts"]));
        assert!(team.admits(agent(Role::Developer, 3), &["anywhere"]), "no territory, no limit");
        assert!(team.admits(front, &[] as &[&str]));
    }

    /// WRK-14: the prompt may be ignored, the orchestrator is not.
    #[test]
    fn a_write_outside_of_the_territory_is_refused() {
        let team = team();
        let back = agent(Role::Developer, 2);
        assert_eq!(team.check_writes(back, &["backend/src/a.rs"]), Ok(()));
        let trespass = team.check_writes(back, &["backend/src/a.rs", "frontend/src/a.ts"]);
        let said = "developer-2 may not change frontend/src/a.ts: it is outside of its territory (backend/src/)";
        assert_eq!(trespass.unwrap_err().to_string(), said);
        for path in ["backend/src/../../etc/passwd", "/backend/src/a.rs", "backend/srcs/a.rs"] {
            assert!(team.check_writes(back, &[path]).is_err(), "{path}");
        }
    }

    #[test]
    fn territories_that_cannot_be_meant_are_refused() {
        let of = |patterns: Vec<String>| {
            Territories::new(BTreeMap::from([(agent(Role::Tester, 1), patterns)]))
        };
        assert!(matches!(of(vec![" ".into()]), Err(InvalidTerritory::Empty { .. })));
        let many = (0..=limits::PATTERNS_MAX).map(|n| n.to_string()).collect();
        assert!(matches!(of(many), Err(InvalidTerritory::TooManyPatterns { .. })));
        let seats = (1..=40).map(|seat| (agent(Role::Tester, seat), vec![format!("{seat}/")]));
        let crowd = Territories::new(seats.collect());
        assert!(matches!(crowd, Err(InvalidTerritory::TooManyTerritories { count: 40, .. })));
    }

    /// 64 seats with one shared territory need one bit, not 64.
    #[test]
    fn agents_that_share_a_territory_share_its_bit() {
        let seats = (1..=64).map(|seat| (agent(Role::Tester, seat), vec!["a/".to_owned()]));
        let shared = Territories::new(seats.collect()).unwrap();
        assert_eq!(shared.bit_of(agent(Role::Tester, 1)), shared.bit_of(agent(Role::Tester, 64)));
        assert!(
            shared.reach(Role::Tester, &["a/x"]).includes(shared.bit_of(agent(Role::Tester, 9)))
        );
        assert!(
            !shared.reach(Role::Tester, &["b/x"]).includes(shared.bit_of(agent(Role::Tester, 9)))
        );
    }
}
