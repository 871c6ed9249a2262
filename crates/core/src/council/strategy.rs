//! From votes to a verdict, by five strategies (CON-10).
//!
//! Invariant: a choice whose checks failed is out before anything is counted, and nothing is
//! accepted whose checks did not pass (CON-03).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ballot::{Choice, Vote};
use super::judge::{JudgeWeights, Score};
use super::policy::Quorum;
use super::session::Question;
use crate::routing::ModelName;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// What most agree on.
    Majority,
    /// The same, weighed by how often each was right.
    Weighted,
    /// What the judge finds best explained.
    BestReasoning,
    /// What passes most tests.
    TestWinner,
    /// The best parts of several.
    ConsensusBuild,
}

impl Strategy {
    pub const ALL: [Strategy; 5] = [
        Strategy::Majority,
        Strategy::Weighted,
        Strategy::BestReasoning,
        Strategy::TestWinner,
        Strategy::ConsensusBuild,
    ];
}

/// What the checks said about a choice; for a review, about the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "checks", rename_all = "snake_case")]
pub enum CheckStanding {
    NotRun,
    Passed { tests: u32 },
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    pub choice: Choice,
    pub standing: CheckStanding,
}

/// What is known besides the votes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    pub checks: Vec<Checked>,
    /// The judge's, by the model that voted.
    pub scores: BTreeMap<ModelName, Score>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// Chosen, and its checks passed.
    Accepted {
        choice: Choice,
        winner: ModelName,
        by: Strategy,
    },
    /// Chosen; it is applied and checked before it counts (CON-17).
    Proposed {
        choice: Choice,
        winner: ModelName,
        by: Strategy,
    },
    /// To be put together from these, the best first, and then checked.
    Combine {
        from: Vec<ModelName>,
    },
    /// A review that said no, or whose checks did.
    Rejected {
        because: Rejection,
    },
    /// For a person.
    Undecided {
        why: NoVerdict,
    },
    Drill {
        caught: Vec<ModelName>,
        missed: Vec<ModelName>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Rejection {
    ChecksFailed,
    Votes { against: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum NoVerdict {
    TooFewVotes { valid: u32, needed: u32 },
    NoQuorum { agreed: u32, needed: u32 },
    Tie,
    EverythingFailed,
    NotChecked,
    NotJudged,
}

pub(super) struct Bench<'a> {
    pub votes: Vec<&'a Vote>,
    pub question: &'a Question,
    pub quorum: Quorum,
    pub weights: JudgeWeights,
    pub findings: &'a Findings,
    /// How often each was right, in thousandths.
    pub trust: BTreeMap<ModelName, u32>,
}

impl Findings {
    /// The worst that was said about a choice counts.
    fn standing(&self, choice: &Choice) -> CheckStanding {
        let said = self.checks.iter().filter(|checked| checked.choice == *choice);
        said.map(|checked| checked.standing).fold(CheckStanding::NotRun, |so_far, standing| match (
            so_far, standing,
        ) {
            (CheckStanding::Failed, _) | (_, CheckStanding::Failed) => CheckStanding::Failed,
            (standing, CheckStanding::NotRun) => standing,
            (_, passed @ CheckStanding::Passed { .. }) => passed,
        })
    }
}

impl<'a> Bench<'a> {
    pub fn verdict(&self, strategy: Strategy) -> Verdict {
        if let Question::Drill { planted, .. } = self.question {
            return self.drill(planted);
        }
        let (valid, needed) = (count(self.votes.len()), self.quorum.agree);
        let decided = match self.question {
            Question::Review { .. } => self.review(strategy),
            Question::Problem if valid < needed => Err(NoVerdict::TooFewVotes { valid, needed }),
            Question::Problem => self.problem(strategy),
            Question::Drill { .. } => Err(NoVerdict::NotChecked),
        };
        decided.unwrap_or_else(|why| Verdict::Undecided { why })
    }

    /// Caught means: rejected, and pointed at the file with the defect.
    fn drill(&self, planted: &str) -> Verdict {
        let caught = |vote: &Vote| vote.choice == Choice::Reject && vote.cites(planted);
        let (caught, missed): (Vec<&Vote>, Vec<&Vote>) =
            self.votes.iter().partition(|vote| caught(vote));
        let names = |votes: Vec<&Vote>| votes.into_iter().map(|vote| vote.by.clone()).collect();
        Verdict::Drill { caught: names(caught), missed: names(missed) }
    }

    fn review(&self, strategy: Strategy) -> Result<Verdict, NoVerdict> {
        let side = |choice: &Choice| -> Vec<&'a Vote> {
            self.votes.iter().copied().filter(|vote| vote.choice == *choice).collect()
        };
        let (yes, no) = (side(&Choice::Approve), side(&Choice::Reject));
        let (agreed, against, needed) = (count(yes.len()), count(no.len()), self.quorum.agree);
        let standing = self.findings.standing(&Choice::Approve);
        if standing == CheckStanding::Failed {
            return Ok(Verdict::Rejected { because: Rejection::ChecksFailed });
        }
        let valid = agreed + against;
        if valid < needed {
            return Err(NoVerdict::TooFewVotes { valid, needed });
        }
        let (for_it, against_it) = match strategy {
            Strategy::Majority | Strategy::TestWinner => (u64::from(agreed), u64::from(against)),
            Strategy::Weighted => (self.trust(&yes), self.trust(&no)),
            Strategy::BestReasoning => (self.best_reasoning(&yes)?, self.best_reasoning(&no)?),
            // Consensus is what nobody is against.
            Strategy::ConsensusBuild => (u64::from(against == 0), u64::from(against)),
        };
        if against_it > for_it {
            return Ok(Verdict::Rejected { because: Rejection::Votes { against } });
        }
        if against_it == for_it {
            return Err(NoVerdict::Tie);
        }
        if agreed < needed {
            return Err(NoVerdict::NoQuorum { agreed, needed });
        }
        match standing {
            CheckStanding::Passed { .. } => self.won(&Choice::Approve, strategy),
            CheckStanding::NotRun | CheckStanding::Failed => Err(NoVerdict::NotChecked),
        }
    }

    fn problem(&self, strategy: Strategy) -> Result<Verdict, NoVerdict> {
        let mut groups: BTreeMap<&Choice, Vec<&'a Vote>> = BTreeMap::new();
        for vote in &self.votes {
            if self.findings.standing(&vote.choice) != CheckStanding::Failed {
                groups.entry(&vote.choice).or_default().push(vote);
            }
        }
        if groups.is_empty() {
            return Err(NoVerdict::EverythingFailed);
        }
        if strategy == Strategy::ConsensusBuild && groups.len() > 1 {
            return self.combine(groups.into_values().flatten().collect());
        }
        let mut ranked = Vec::new();
        for (choice, votes) in &groups {
            let rank = match strategy {
                Strategy::Majority | Strategy::ConsensusBuild => votes.len() as u64,
                Strategy::Weighted => self.trust(votes),
                Strategy::BestReasoning => self.best_reasoning(votes)?,
                Strategy::TestWinner => match self.findings.standing(choice) {
                    CheckStanding::Passed { tests } => u64::from(tests),
                    CheckStanding::NotRun | CheckStanding::Failed => continue,
                },
            };
            ranked.push(((rank, self.best_total(votes)), *choice, count(votes.len())));
        }
        ranked.sort_by(|a, b| b.cmp(a));
        let &(rank, choice, agreed) = ranked.first().ok_or(NoVerdict::NotChecked)?;
        let needed = self.quorum.agree;
        let by_number = matches!(strategy, Strategy::Majority | Strategy::ConsensusBuild);
        if by_number && agreed < needed {
            return Err(NoVerdict::NoQuorum { agreed, needed });
        }
        if ranked.get(1).is_some_and(|second| second.0 == rank) {
            return Err(NoVerdict::Tie);
        }
        self.won(choice, strategy)
    }

    fn combine(&self, mut votes: Vec<&'a Vote>) -> Result<Verdict, NoVerdict> {
        let (agreed, needed) = (count(votes.len()), self.quorum.agree);
        if agreed < needed {
            return Err(NoVerdict::NoQuorum { agreed, needed });
        }
        votes.sort_by_key(|vote| (std::cmp::Reverse(self.total(vote)), vote.by.clone()));
        Ok(Verdict::Combine { from: votes.into_iter().map(|vote| vote.by.clone()).collect() })
    }

    /// The credit goes to the best of those who chose it.
    fn won(&self, choice: &Choice, by: Strategy) -> Result<Verdict, NoVerdict> {
        let backers = self.votes.iter().filter(|vote| vote.choice == *choice);
        let best = backers.max_by_key(|vote| (self.total(vote), std::cmp::Reverse(&vote.by)));
        let winner = best.ok_or(NoVerdict::NotChecked)?.by.clone();
        let choice = choice.clone();
        Ok(match self.findings.standing(&choice) {
            CheckStanding::Passed { .. } => Verdict::Accepted { choice, winner, by },
            CheckStanding::NotRun => Verdict::Proposed { choice, winner, by },
            CheckStanding::Failed => return Err(NoVerdict::EverythingFailed),
        })
    }

    fn trust(&self, votes: &[&Vote]) -> u64 {
        votes
            .iter()
            .filter_map(|vote| self.trust.get(&vote.by))
            .map(|trust| u64::from(*trust))
            .sum()
    }

    fn total(&self, vote: &Vote) -> u64 {
        self.findings.scores.get(&vote.by).map_or(0, |score| self.weights.total(score))
    }

    fn best_total(&self, votes: &[&Vote]) -> u64 {
        votes.iter().map(|vote| self.total(vote)).max().unwrap_or(0)
    }

    fn best_reasoning(&self, votes: &[&Vote]) -> Result<u64, NoVerdict> {
        let mut best = 0;
        for vote in votes {
            let score = self.findings.scores.get(&vote.by).ok_or(NoVerdict::NotJudged)?;
            best = best.max(u64::from(score.reasoning));
        }
        Ok(best)
    }
}

fn count(votes: usize) -> u32 {
    u32::try_from(votes).unwrap_or(u32::MAX)
}

impl Verdict {
    /// The model that gets the credit.
    #[must_use]
    pub fn winner(&self) -> Option<&ModelName> {
        match self {
            Verdict::Accepted { winner, .. } | Verdict::Proposed { winner, .. } => Some(winner),
            Verdict::Combine { from } => from.first(),
            Verdict::Rejected { .. } | Verdict::Undecided { .. } | Verdict::Drill { .. } => None,
        }
    }

    /// Whether this model's vote was for what won.
    #[must_use]
    pub fn backs(&self, vote: &Vote) -> bool {
        match self {
            Verdict::Accepted { choice, .. } | Verdict::Proposed { choice, .. } => {
                vote.choice == *choice
            }
            Verdict::Combine { from } => from.contains(&vote.by),
            Verdict::Rejected { .. } => vote.choice == Choice::Reject,
            Verdict::Undecided { .. } | Verdict::Drill { .. } => false,
        }
    }
}
