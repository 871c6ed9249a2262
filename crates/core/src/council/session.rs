//! A session: the votes of one council, sealed until it closes (SEC-03).
//!
//! Invariant: while it is open, no query, not even its debug output, shows what anybody voted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::ballot::{Choice, InvalidVote, Vote};
use super::convene::Convocation;
use super::strategy::{Strategy, Verdict};
use crate::ids::Commit;
use crate::money::Usd;
use crate::routing::ModelName;
use crate::time::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CouncilId(pub u32);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "question", rename_all = "snake_case")]
pub enum Question {
    /// How can this be solved?
    Problem,
    /// May this commit land?
    Review { commit: Commit },
    /// Looks like a review, but a defect was planted in this file; it decides nothing.
    Drill {
        planted: String,
        /// Where Kapelle called it; who calls one by hand plants by hand.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within: Option<Box<Planted>>,
    },
}

/// A planted defect, and the change that it is shown in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planted {
    pub commit: Commit,
    pub text: String,
}

impl Question {
    /// As it looks to members, and to whoever could tell them: a drill is a review. `change` is what
    /// would be reviewed, where nobody said.
    #[must_use]
    pub fn disguised(&self, change: &Commit) -> Question {
        match self {
            Question::Drill { within, .. } => {
                let commit = within.as_ref().map_or(change, |planted| &planted.commit).clone();
                Question::Review { commit }
            }
            Question::Problem | Question::Review { .. } => self.clone(),
        }
    }

    fn fits(&self, choice: &Choice) -> bool {
        match (self, choice) {
            (Question::Problem, Choice::Solution(_)) => true,
            (
                Question::Review { .. } | Question::Drill { .. },
                Choice::Approve | Choice::Reject,
            ) => true,
            (Question::Problem, Choice::Approve | Choice::Reject)
            | (Question::Review { .. } | Question::Drill { .. }, Choice::Solution(_)) => false,
        }
    }
}

/// Why a vote was not counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "dropped", rename_all = "snake_case")]
pub enum Dropped {
    Late,
    Invalid { fault: InvalidVote },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VoteRefused {
    #[error("{0} was not asked")]
    NotAsked(ModelName),
    #[error("{0} has voted already")]
    Twice(ModelName),
    #[error("the vote of {by} came {late_ms} ms late")]
    Late { by: ModelName, late_ms: u64 },
    #[error("the vote of {by} does not count: {fault}")]
    Invalid { by: ModelName, fault: InvalidVote },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the votes are sealed: {voted} of {asked} have voted")]
pub struct Sealed {
    pub voted: usize,
    pub asked: usize,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    pub id: CouncilId,
    pub convocation: Convocation,
    pub convened_at: Timestamp,
    votes: BTreeMap<ModelName, Vote>,
    dropped: BTreeMap<ModelName, Dropped>,
    /// What members and judge say that it has cost.
    told: Usd,
    pub(super) stage: SessionStage,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum SessionStage {
    Voting,
    /// The votes are open; what the judge and the checks say is waited for until then, if at all.
    Closed {
        judged_by: Option<Timestamp>,
    },
    /// Its winner is being tried.
    Decided {
        verdict: Verdict,
    },
}

impl Session {
    pub(super) fn new(id: CouncilId, convocation: Convocation, at: Timestamp) -> Session {
        Session {
            id,
            convocation,
            convened_at: at,
            votes: BTreeMap::new(),
            dropped: BTreeMap::new(),
            told: Usd::ZERO,
            stage: SessionStage::Voting,
        }
    }

    /// The votes, once nobody can be swayed by them any more.
    pub fn votes(&self) -> Result<Vec<&Vote>, Sealed> {
        match self.stage {
            SessionStage::Voting => Err(self.sealed()),
            SessionStage::Closed { .. } | SessionStage::Decided { .. } => {
                Ok(self.votes.values().collect())
            }
        }
    }

    /// Who has been heard, without what they said.
    pub fn heard(&self) -> impl Iterator<Item = &ModelName> {
        self.votes.keys().chain(self.dropped.keys())
    }

    /// Whether this vote counts if it arrives now.
    pub fn accepts(&self, vote: &Vote, now: Timestamp) -> Result<(), VoteRefused> {
        let by = vote.by.clone();
        if !self.convocation.panel.iter().any(|member| member.model == by) {
            return Err(VoteRefused::NotAsked(by));
        }
        if self.heard().any(|model| *model == by) {
            return Err(VoteRefused::Twice(by));
        }
        let deadline = self.convocation.deadline;
        if self.stage != SessionStage::Voting || now >= deadline {
            return Err(VoteRefused::Late { by, late_ms: now.ms_since(deadline) });
        }
        let fits = self.convocation.question.fits(&vote.choice);
        let fault = if fits { vote.validate() } else { Err(InvalidVote::OtherQuestion) };
        fault.map_err(|fault| VoteRefused::Invalid { by, fault })
    }

    /// Whether the council sits: it votes, or waits for its judge.
    #[must_use]
    pub fn is_sitting(&self) -> bool {
        !matches!(self.stage, SessionStage::Decided { .. })
    }

    #[must_use]
    pub fn verdict(&self) -> Option<&Verdict> {
        match &self.stage {
            SessionStage::Decided { verdict } => Some(verdict),
            SessionStage::Voting | SessionStage::Closed { .. } => None,
        }
    }

    /// Until when a judge is waited for.
    #[must_use]
    pub fn judged_by(&self) -> Option<Timestamp> {
        match self.stage {
            SessionStage::Closed { judged_by } => judged_by,
            SessionStage::Voting | SessionStage::Decided { .. } => None,
        }
    }

    /// Until when something is waited for.
    pub(super) fn awaited_until(&self) -> Option<Timestamp> {
        match self.stage {
            SessionStage::Voting if self.all_heard() => None,
            SessionStage::Voting => Some(self.convocation.deadline),
            SessionStage::Closed { judged_by } => judged_by,
            SessionStage::Decided { .. } => None,
        }
    }

    /// Whether an answer depends on more than the votes.
    #[must_use]
    pub fn needs_findings(&self) -> bool {
        match (&self.convocation.question, self.convocation.rules.strategy) {
            (Question::Drill { .. }, _) => false,
            (_, Strategy::BestReasoning) | (Question::Problem, Strategy::TestWinner) => true,
            (_, Strategy::Majority | Strategy::Weighted | Strategy::ConsensusBuild)
            | (Question::Review { .. }, Strategy::TestWinner) => false,
        }
    }

    /// What it has cost with this last bill. Whoever did not say what its answer cost, or did not
    /// answer, has cost its share of what was reserved: what is not known is never taken for less
    /// than it can be.
    #[must_use]
    pub fn cost(&self, last: Usd) -> Usd {
        let is_late = |model: &ModelName| self.dropped.get(model) == Some(&Dropped::Late);
        let panel = &self.convocation.panel;
        let silent = panel.iter().filter(|member| {
            !self.votes.contains_key(&member.model) && !self.dropped.contains_key(&member.model)
                || is_late(&member.model)
        });
        let reserved = self.convocation.reserved.as_micros();
        let share = reserved.div_ceil(panel.len().max(1) as u64);
        self.told + last + Usd::micros(share * silent.count() as u64)
    }

    fn all_heard(&self) -> bool {
        self.heard().count() >= self.convocation.panel.len()
    }

    /// Those that were asked and never answered.
    pub(super) fn silent(&self) -> Vec<ModelName> {
        let heard: BTreeSet<&ModelName> = self.heard().collect();
        let panel = self.convocation.panel.iter().map(|member| &member.model);
        panel.filter(|model| !heard.contains(model)).cloned().collect()
    }

    pub(super) fn cast(&mut self, vote: Vote, spent: Usd) {
        let asked = self.convocation.panel.iter().any(|member| member.model == vote.by);
        let open = self.stage == SessionStage::Voting;
        if asked && open && !self.heard().any(|model| *model == vote.by) {
            self.told += spent;
            self.votes.insert(vote.by.clone(), vote);
        }
    }

    pub(super) fn drop_vote(&mut self, model: ModelName, why: Dropped, spent: Usd) {
        if !self.votes.contains_key(&model) {
            self.told += spent;
            self.dropped.insert(model, why);
        }
    }

    fn sealed(&self) -> Sealed {
        Sealed { voted: self.heard().count(), asked: self.convocation.panel.len() }
    }
}

/// By hand, so that a log line does not break the seal.
impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Session");
        shown.field("id", &self.id).field("stage", &self.stage);
        match self.stage {
            // Its question could be a drill.
            SessionStage::Voting => shown.field("panel", &self.convocation.panel),
            SessionStage::Closed { .. } | SessionStage::Decided { .. } => {
                shown.field("convocation", &self.convocation)
            }
        };
        shown.field("dropped", &self.dropped);
        match self.votes() {
            Ok(votes) => shown.field("votes", &votes),
            Err(sealed) => shown.field("votes", &sealed.to_string()),
        };
        shown.finish()
    }
}
