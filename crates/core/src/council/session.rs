//! A session: the votes of one council, sealed until it closes (SEC-03).
//!
//! Invariant: while it is open, no query, not even its debug output, shows what anybody voted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::ballot::{Choice, InvalidVote, Vote};
use super::convene::Convocation;
use super::member::Model;
use super::strategy::Verdict;
use crate::ids::Commit;
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
    Drill { planted: String },
}

impl Question {
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
    NotAsked(Model),
    #[error("{0} has voted already")]
    Twice(Model),
    #[error("the vote of {by} came {late_ms} ms late")]
    Late { by: Model, late_ms: u64 },
    #[error("the vote of {by} does not count: {fault}")]
    Invalid { by: Model, fault: InvalidVote },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the votes are sealed: {voted} of {asked} have voted")]
pub struct Sealed {
    pub voted: usize,
    pub asked: usize,
}

#[derive(Clone, PartialEq)]
pub struct Session {
    pub id: CouncilId,
    pub convocation: Convocation,
    pub convened_at: Timestamp,
    votes: BTreeMap<Model, Vote>,
    dropped: BTreeMap<Model, Dropped>,
    pub(super) stage: SessionStage,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum SessionStage {
    Voting,
    Closed,
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
            stage: SessionStage::Voting,
        }
    }

    /// The votes, once nobody can be swayed by them any more.
    pub fn votes(&self) -> Result<Vec<&Vote>, Sealed> {
        match self.stage {
            SessionStage::Voting => Err(self.sealed()),
            SessionStage::Closed | SessionStage::Decided { .. } => {
                Ok(self.votes.values().collect())
            }
        }
    }

    /// Who has been heard, without what they said.
    pub fn heard(&self) -> impl Iterator<Item = &Model> {
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

    /// Whether the votes may be opened now.
    pub fn may_close(&self, now: Timestamp) -> Result<(), Sealed> {
        let all = self.heard().count() >= self.convocation.panel.len();
        if all || now >= self.convocation.deadline { Ok(()) } else { Err(self.sealed()) }
    }

    /// Those that were asked and never answered.
    pub(super) fn silent(&self) -> Vec<Model> {
        let heard: BTreeSet<&Model> = self.heard().collect();
        let panel = self.convocation.panel.iter().map(|member| &member.model);
        panel.filter(|model| !heard.contains(model)).cloned().collect()
    }

    pub(super) fn cast(&mut self, vote: Vote) {
        let asked = self.convocation.panel.iter().any(|member| member.model == vote.by);
        let open = self.stage == SessionStage::Voting;
        if asked && open && !self.heard().any(|model| *model == vote.by) {
            self.votes.insert(vote.by.clone(), vote);
        }
    }

    pub(super) fn drop_vote(&mut self, model: Model, why: Dropped) {
        if !self.votes.contains_key(&model) {
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
        shown.field("convocation", &self.convocation).field("dropped", &self.dropped);
        match self.votes() {
            Ok(votes) => shown.field("votes", &votes),
            Err(sealed) => shown.field("votes", &sealed.to_string()),
        };
        shown.finish()
    }
}
