//! Votes: what a member thinks, and what it shows for it.

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::routing::ModelName;

/// What a vote is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "choice", content = "solution", rename_all = "snake_case")]
pub enum Choice {
    Approve,
    Reject,
    /// A proposed solution, by the name of its content: equal solutions have equal names.
    Solution(String),
}

impl Choice {
    #[must_use]
    pub fn solution(&self) -> Option<&str> {
        match self {
            Choice::Solution(name) => Some(name),
            Choice::Approve | Choice::Reject => None,
        }
    }
}

/// Something that can be looked up. Praise is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "evidence", rename_all = "snake_case")]
pub enum Evidence {
    Lines { path: String, line: u32, says: String },
    Test { name: String, says: String },
    Compiler { says: String },
    Document { source: String, says: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    pub by: ModelName,
    pub choice: Choice,
    pub reasoning: String,
    pub evidence: Vec<Evidence>,
    /// In thousandths, as the model itself states it.
    pub confidence: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum InvalidVote {
    #[error("it shows no evidence")]
    NoEvidence,
    #[error("its evidence names nothing that could be looked up")]
    EmptyEvidence,
    #[error("it has more than {max} pieces of evidence")]
    TooMuchEvidence { max: usize },
    #[error("it gives no reasoning")]
    NoReasoning,
    #[error("it is longer than {max} characters")]
    TooLong { max: usize },
    #[error("its confidence is {confidence}, more than 1000")]
    Confidence { confidence: u32 },
    #[error("it is not an answer to what was asked")]
    OtherQuestion,
    #[error("it names no solution")]
    NoSolution,
}

impl Vote {
    /// Whether it counts at all (CON-04).
    pub fn validate(&self) -> Result<(), InvalidVote> {
        let max = limits::COUNCIL_EVIDENCE_MAX;
        if self.evidence.is_empty() {
            return Err(InvalidVote::NoEvidence);
        }
        if self.evidence.len() > max {
            return Err(InvalidVote::TooMuchEvidence { max });
        }
        if !self.evidence.iter().all(Evidence::names_something) {
            return Err(InvalidVote::EmptyEvidence);
        }
        if self.reasoning.trim().is_empty() {
            return Err(InvalidVote::NoReasoning);
        }
        let max = limits::COUNCIL_VOTE_CHARS_MAX;
        let mut texts = self.evidence.iter().flat_map(Evidence::texts).chain([&*self.reasoning]);
        let solution = match &self.choice {
            Choice::Solution(name) if name.trim().is_empty() => {
                return Err(InvalidVote::NoSolution);
            }
            Choice::Solution(name) => name.as_str(),
            Choice::Approve | Choice::Reject => "",
        };
        let too_long = |text: &str, max| limits::head(text, max).len() < text.len();
        if texts.any(|text| too_long(text, max)) || too_long(solution, limits::TITLE_CHARS_MAX) {
            return Err(InvalidVote::TooLong { max });
        }
        if self.confidence > 1_000 {
            return Err(InvalidVote::Confidence { confidence: self.confidence });
        }
        Ok(())
    }

    /// Whether it points at this file.
    #[must_use]
    pub fn cites(&self, file: &str) -> bool {
        let is_it = |e: &Evidence| matches!(e, Evidence::Lines { path, .. } if path == file);
        self.evidence.iter().any(is_it)
    }
}

impl Evidence {
    fn texts(&self) -> [&str; 2] {
        match self {
            Evidence::Lines { path, says, .. } => [path, says],
            Evidence::Test { name, says } => [name, says],
            Evidence::Compiler { says } => ["compiler", says],
            Evidence::Document { source, says } => [source, says],
        }
    }

    fn names_something(&self) -> bool {
        self.texts().into_iter().all(|text| !text.trim().is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vote() -> Vote {
        Vote {
            by: ModelName("gemini".into()),
            choice: Choice::Approve,
            reasoning: "the bound is checked".into(),
            evidence: vec![Evidence::Lines {
                path: "src/a.rs".into(),
                line: 4,
                says: "len <= MAX".into(),
            }],
            confidence: 800,
        }
    }

    fn fault(change: impl FnOnce(&mut Vote)) -> Result<(), InvalidVote> {
        let mut vote = vote();
        change(&mut vote);
        vote.validate()
    }

    /// CON-04: "looks good" is not a vote.
    #[test]
    fn praise_without_evidence_is_not_a_vote() {
        assert_eq!(fault(|_| {}), Ok(()));
        let looks_good = |v: &mut Vote| {
            v.reasoning = "looks good".into();
            v.evidence.clear();
        };
        assert_eq!(fault(looks_good), Err(InvalidVote::NoEvidence));
        let empty = vec![Evidence::Compiler { says: " ".into() }];
        assert_eq!(fault(|v| v.evidence = empty), Err(InvalidVote::EmptyEvidence));
        assert_eq!(fault(|v| v.reasoning = " ".into()), Err(InvalidVote::NoReasoning));
        let unnamed = |v: &mut Vote| v.choice = Choice::Solution(String::new());
        assert_eq!(fault(unnamed), Err(InvalidVote::NoSolution));
    }

    #[test]
    fn votes_are_bounded() {
        let many = |v: &mut Vote| v.evidence = vec![v.evidence[0].clone(); 21];
        assert_eq!(fault(many), Err(InvalidVote::TooMuchEvidence { max: 20 }));
        let max = limits::COUNCIL_VOTE_CHARS_MAX;
        let long = fault(|v| v.reasoning = "x".repeat(max + 1));
        assert_eq!(long, Err(InvalidVote::TooLong { max }));
        let named = fault(|v| v.choice = Choice::Solution("x".repeat(201)));
        assert_eq!(named, Err(InvalidVote::TooLong { max }));
        let sure = Err(InvalidVote::Confidence { confidence: 1_001 });
        assert_eq!(fault(|v| v.confidence = 1_001), sure);
    }
}
