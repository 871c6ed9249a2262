//! The council as a whole: open sessions, purse, history; its queries and its facts.

use std::collections::{BTreeMap, BTreeSet};

use super::ballot::Vote;
use super::brief::ProblemKey;
use super::convene::Convocation;
use super::history::{History, Remembered};
use super::judge::BadScore;
use super::member::Model;
use super::policy::{CouncilPolicy, InvalidCouncil};
use super::purse::Purse;
use super::record::{CouncilRecord, Metrics, Outcome};
use super::session::{CouncilId, Dropped, Question, Sealed, Session, SessionStage, VoteRefused};
use super::strategy::{Bench, Findings, Verdict};
use crate::money::Usd;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq)]
pub struct Council {
    policy: CouncilPolicy,
    sessions: BTreeMap<CouncilId, Session>,
    deadlines: BTreeSet<(Timestamp, CouncilId)>,
    /// Decided councils, and what was recorded of them, until their outcome is known.
    tried: BTreeMap<CouncilId, CouncilRecord>,
    history: History,
    purse: Purse,
    next: u32,
    reviews: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotInSession {
    #[error("there is no open council number {}", .0.0)]
    Unknown(CouncilId),
    #[error(transparent)]
    Vote(#[from] VoteRefused),
    #[error(transparent)]
    Sealed(#[from] Sealed),
    #[error(transparent)]
    Score(#[from] BadScore),
    #[error("council number {} has decided already", .0.0)]
    Decided(CouncilId),
}

impl Council {
    pub fn new(policy: CouncilPolicy) -> Result<Council, InvalidCouncil> {
        policy.validate()?;
        Ok(Council {
            policy,
            sessions: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            tried: BTreeMap::new(),
            history: History::default(),
            purse: Purse::default(),
            next: 1,
            reviews: 0,
        })
    }

    #[must_use]
    pub fn policy(&self) -> &CouncilPolicy {
        &self.policy
    }

    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    #[must_use]
    pub fn purse(&self) -> &Purse {
        &self.purse
    }

    #[must_use]
    pub fn session(&self, id: CouncilId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    #[must_use]
    pub fn open_count(&self) -> usize {
        self.sessions.len()
    }

    #[must_use]
    pub fn metrics(&self, since: Timestamp) -> Metrics {
        self.history.metrics(since, self.policy.human_minutes_per_problem)
    }

    /// Whether a defect should be planted beside the next review (CON-04).
    #[must_use]
    pub fn is_drill_due(&self) -> bool {
        (self.reviews + 1).is_multiple_of(self.policy.lazy.drill_every)
    }

    /// The next moment at which votes that are missing are no longer waited for.
    #[must_use]
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Councils whose deadline has come.
    pub fn overdue(&self, now: Timestamp) -> impl Iterator<Item = CouncilId> {
        self.deadlines.iter().take_while(move |(at, _)| *at <= now).map(|(_, id)| *id)
    }

    /// Whether a vote counts.
    pub fn vote(&self, id: CouncilId, vote: &Vote, now: Timestamp) -> Result<(), NotInSession> {
        Ok(self.open(id)?.accepts(vote, now)?)
    }

    /// Whether the votes may be opened.
    pub fn may_close(&self, id: CouncilId, now: Timestamp) -> Result<(), NotInSession> {
        Ok(self.open(id)?.may_close(now)?)
    }

    /// What the opened votes and the findings say together.
    pub fn verdict(&self, id: CouncilId, findings: &Findings) -> Result<Verdict, NotInSession> {
        let session = self.open(id)?;
        let votes = session.votes()?;
        if matches!(session.stage, SessionStage::Decided { .. }) {
            return Err(NotInSession::Decided(id));
        }
        for score in findings.scores.values() {
            score.validate()?;
        }
        let trusted = |vote: &&Vote| (vote.by.clone(), self.history.trust_permille(&vote.by));
        let bench = Bench {
            trust: votes.iter().map(trusted).collect(),
            votes,
            question: &session.convocation.question,
            quorum: self.policy.quorum,
            weights: self.policy.weights,
            findings,
        };
        Ok(bench.verdict(self.policy.strategy))
    }

    fn open(&self, id: CouncilId) -> Result<&Session, NotInSession> {
        self.sessions.get(&id).ok_or(NotInSession::Unknown(id))
    }

    /// The members are asked. Ids follow from the order of these facts.
    pub fn convened(&mut self, convocation: Convocation, at: Timestamp) -> CouncilId {
        let id = CouncilId(self.next);
        self.next += 1;
        match convocation.question {
            Question::Review { .. } | Question::Drill { .. } => self.reviews += 1,
            Question::Problem => {}
        }
        for member in &convocation.panel {
            self.history.asked(&convocation.problem_type, &member.model);
        }
        self.purse.reserve(id, convocation.reserved);
        self.deadlines.insert((convocation.deadline, id));
        self.sessions.insert(id, Session::new(id, convocation, at));
        id
    }

    pub fn vote_cast(&mut self, id: CouncilId, vote: Vote) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.cast(vote);
        }
    }

    /// A vote that does not count; the member has had its turn.
    pub fn vote_dropped(&mut self, id: CouncilId, model: &Model, why: Dropped) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.stage != SessionStage::Voting || session.heard().any(|heard| heard == model) {
            return;
        }
        match why {
            Dropped::Late => self.history.with(model, |record| record.late += 1),
            Dropped::Invalid { .. } => self.history.with(model, |record| record.invalid += 1),
        }
        session.drop_vote(model.clone(), why);
    }

    /// The votes are opened; who has not voted is late.
    pub fn closed(&mut self, id: CouncilId) {
        let Some(session) = self.sessions.get(&id) else { return };
        self.deadlines.remove(&(session.convocation.deadline, id));
        for model in session.silent() {
            self.vote_dropped(id, &model, Dropped::Late);
        }
        if let Some(session) = self.sessions.get_mut(&id)
            && session.stage == SessionStage::Voting
        {
            session.stage = SessionStage::Closed;
        }
    }

    pub fn decided(&mut self, id: CouncilId, verdict: &Verdict, cost: Usd, at: Timestamp) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.stage != SessionStage::Closed {
            return;
        }
        self.purse.settle(id, cost, at);
        let convocation = &session.convocation;
        if let Some(winner) = verdict.winner() {
            self.history.won(&convocation.problem_type, winner);
        }
        let record = CouncilRecord {
            problem_id: convocation.problem_id.clone(),
            problem_type: convocation.problem_type.clone(),
            models_queried: convocation.panel.iter().map(|member| member.model.clone()).collect(),
            winner: verdict.winner().cloned(),
            winner_reason: verdict.to_string(),
            applied: false,
            outcome: Outcome::Escalated,
            question: convocation.question.clone(),
            cost,
            convened_at: session.convened_at,
            decided_at: at,
        };
        match verdict {
            Verdict::Accepted { .. } | Verdict::Proposed { .. } | Verdict::Combine { .. } => {
                session.stage = SessionStage::Decided { verdict: verdict.clone() };
                self.tried.insert(id, record);
                return;
            }
            Verdict::Rejected { .. } => {
                self.history.record(CouncilRecord { outcome: Outcome::Answered, ..record });
            }
            Verdict::Undecided { .. } => self.history.record(record),
            Verdict::Drill { caught, missed } => {
                self.drilled(caught, missed);
                self.history.record(CouncilRecord { outcome: Outcome::Answered, ..record });
            }
        }
        self.sessions.remove(&id);
    }

    /// The winner was tried: tests ran, or a reviewed change held or did not (CON-17).
    pub fn resolved(&mut self, id: CouncilId, outcome: Outcome, at: Timestamp) {
        let Some(record) = self.tried.remove(&id) else { return };
        let Some(session) = self.sessions.remove(&id) else { return };
        let SessionStage::Decided { verdict } = &session.stage else { return };
        let worked = outcome == Outcome::Success;
        for vote in session.votes().unwrap_or_default() {
            let right = verdict.backs(vote) == worked;
            self.history.with(&vote.by, |record| {
                record.judged += 1;
                record.right += u32::from(right);
            });
        }
        let key = session.convocation.key.clone();
        let solution = match verdict {
            Verdict::Accepted { choice, winner, .. } | Verdict::Proposed { choice, winner, .. } => {
                choice.solution().map(|solution| (solution.to_owned(), winner.clone()))
            }
            Verdict::Combine { .. }
            | Verdict::Rejected { .. }
            | Verdict::Undecided { .. }
            | Verdict::Drill { .. } => None,
        };
        match solution {
            Some((solution, winner)) if worked => {
                self.history.remember(key, Remembered { solution, winner, at });
            }
            Some(_) | None if !worked => self.history.forget(&key),
            Some(_) | None => {}
        }
        let outcome = match record.question {
            Question::Problem => outcome,
            Question::Review { .. } | Question::Drill { .. } => Outcome::Answered,
        };
        self.history.record(CouncilRecord { applied: true, outcome, ..record });
    }

    /// The council was called off: its members are not waited for and nothing is learnt.
    pub fn abandoned(&mut self, id: CouncilId, cost: Usd, at: Timestamp) {
        let Some(session) = self.sessions.remove(&id) else { return };
        self.deadlines.remove(&(session.convocation.deadline, id));
        if self.tried.remove(&id).is_none() {
            self.purse.settle(id, cost, at);
        }
    }

    /// A remembered answer did not help this time.
    pub fn forgotten(&mut self, key: &ProblemKey) {
        self.history.forget(key);
    }

    fn drilled(&mut self, caught: &[Model], missed: &[Model]) {
        for model in caught.iter().chain(missed) {
            self.history.with(model, |record| record.drills += 1);
        }
        for model in caught {
            self.history.with(model, |record| record.caught += 1);
        }
    }
}
