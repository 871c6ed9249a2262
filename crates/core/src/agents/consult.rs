//! Consultations: an agent may ask another, which may ask another, and there it ends.

use crate::ids::AgentId;
use crate::limits;

/// Who asked whom so far; the first works on the task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consultation {
    chain: Vec<AgentId>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} may not ask {asked}: {} questions deep is the limit", chain.last().map_or_else(String::new, ToString::to_string), limits::CONSULTATION_DEPTH_MAX)]
pub struct TooDeep {
    pub chain: Vec<AgentId>,
    pub asked: AgentId,
}

impl Consultation {
    #[must_use]
    pub fn begun_by(agent: AgentId) -> Consultation {
        Consultation { chain: vec![agent] }
    }

    #[must_use]
    pub fn depth(&self) -> u32 {
        u32::try_from(self.chain.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// The last one in the chain asks `asked`.
    pub fn ask(&self, asked: AgentId) -> Result<Consultation, TooDeep> {
        if self.depth() >= limits::CONSULTATION_DEPTH_MAX {
            return Err(TooDeep { chain: self.chain.clone(), asked });
        }
        let mut chain = self.chain.clone();
        chain.push(asked);
        Ok(Consultation { chain })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Role;

    /// RUN-16, T-59: A asks B, B asks A, and A asks nobody.
    #[test]
    fn questions_go_two_deep_and_no_further() {
        let [a, b] = [1, 2].map(|seat| AgentId { role: Role::Developer, seat });
        let second = Consultation::begun_by(a).ask(b).and_then(|first| first.ask(a)).unwrap();
        assert_eq!(second.depth(), 2);
        let refused = second.ask(b).unwrap_err().to_string();
        assert_eq!(refused, "developer-1 may not ask developer-2: 2 questions deep is the limit");
    }
}
