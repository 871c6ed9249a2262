//! The council as a whole: open sessions and what was learnt; its queries and its facts.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::ballot::Vote;
use super::brief::ProblemKey;
use super::convene::Convocation;
use super::history::{History, Remembered};
use super::judge::BadScore;
use super::policy::{CouncilPolicy, InvalidCouncil, Switch};
use super::record::{CouncilRecord, Metrics, Outcome};
use super::session::{
    CouncilId, Dropped, Planted, Question, Sealed, Session, SessionStage, VoteRefused,
};
use super::strategy::{Bench, Findings, Verdict};
use crate::failure::scatter;
use crate::limits;
use crate::money::Usd;
use crate::routing::ModelName;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Council {
    policy: CouncilPolicy,
    sessions: BTreeMap<CouncilId, Session>,
    deadlines: BTreeSet<(Timestamp, CouncilId)>,
    /// Those that wait for nothing: their votes can be opened, or their verdict given.
    ripe: BTreeSet<CouncilId>,
    /// Decided councils, and what was recorded of them, until their outcome is known.
    tried: BTreeMap<CouncilId, CouncilRecord>,
    history: History,
    next: u32,
    reviews: u32,
    /// The review that was called last, while the rules are those by which it was called.
    latest: Option<CouncilId>,
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

/// Nobody sits in it.
impl Default for Council {
    fn default() -> Council {
        Council::of(CouncilPolicy { enabled: Switch::Off, ..CouncilPolicy::default() })
    }
}

impl Council {
    pub fn new(policy: CouncilPolicy) -> Result<Council, InvalidCouncil> {
        policy.validate()?;
        Ok(Council::of(policy))
    }

    fn of(policy: CouncilPolicy) -> Council {
        Council {
            policy,
            sessions: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            ripe: BTreeSet::new(),
            tried: BTreeMap::new(),
            history: History::default(),
            next: 1,
            reviews: 0,
            latest: None,
        }
    }

    /// The number of the next council.
    #[must_use]
    pub fn next_id(&self) -> CouncilId {
        CouncilId(self.next)
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

    /// The drill that is due beside the review that was just called, and that review (CON-04): the
    /// same members, at the same moment and for the same price, and nothing to tell the two apart by.
    #[must_use]
    pub fn drill_beside(&self, now: Timestamp) -> Option<(CouncilId, Convocation)> {
        let review = self.sessions.get(&self.latest?).filter(|s| s.convened_at == now)?;
        let Question::Review { commit } = &review.convocation.question else { return None };
        let called = self.is_drill_due() && self.policy.enabled == Switch::On;
        if !called || self.open_count() >= limits::COUNCIL_OPEN_MAX {
            return None;
        }
        // By chance, as far as members can see, and the same for everybody who replays it.
        let picked = scatter(u64::from(review.id.0)) % self.policy.defects.len().max(1) as u64;
        let defect = self.policy.defects.get(picked as usize)?;
        let within = Planted { commit: commit.clone(), text: defect.text.clone() };
        let question =
            Question::Drill { planted: defect.file.clone(), within: Some(Box::new(within)) };
        Some((review.id, Convocation { question, ..review.convocation.clone() }))
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

    /// The first council that waits for nothing and nobody.
    #[must_use]
    pub fn ripe(&self) -> Option<&Session> {
        self.sessions.get(self.ripe.first()?)
    }

    /// Whether a vote counts.
    pub fn vote(&self, id: CouncilId, vote: &Vote, now: Timestamp) -> Result<(), NotInSession> {
        Ok(self.open(id)?.accepts(vote, now)?)
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
            quorum: session.convocation.rules.quorum,
            weights: session.convocation.rules.weights,
            findings,
        };
        Ok(bench.verdict(session.convocation.rules.strategy))
    }

    fn open(&self, id: CouncilId) -> Result<&Session, NotInSession> {
        self.sessions.get(&id).ok_or(NotInSession::Unknown(id))
    }

    /// Somebody changed the rules, or nobody sits in it any more. Councils that sit go on as they
    /// were called.
    pub fn configured(&mut self, policy: Option<&CouncilPolicy>) {
        self.policy = policy.cloned().unwrap_or_else(|| Council::default().policy);
        self.latest = None;
    }

    /// The members are asked. Ids follow from the order of these facts.
    pub fn convened(&mut self, convocation: Convocation, at: Timestamp) -> CouncilId {
        let id = CouncilId(self.next);
        self.next += 1;
        let is_review = matches!(convocation.question, Question::Review { .. });
        self.latest = is_review.then_some(id);
        match convocation.question {
            Question::Review { .. } | Question::Drill { .. } => self.reviews += 1,
            Question::Problem => {}
        }
        for member in &convocation.panel {
            self.history.asked(&convocation.problem_type, &member.model);
        }
        self.sessions.insert(id, Session::new(id, convocation, at));
        self.retime(id);
        id
    }

    /// What members say that they have cost counts, whatever their votes do.
    pub fn vote_cast(&mut self, id: CouncilId, vote: Vote, spent: Usd) {
        self.with(id, |session| session.cast(vote, spent));
    }

    /// A vote that does not count; the member has had its turn.
    pub fn vote_dropped(&mut self, id: CouncilId, model: &ModelName, why: Dropped, spent: Usd) {
        let Some(session) = self.sessions.get(&id) else { return };
        if session.stage != SessionStage::Voting || session.heard().any(|heard| heard == model) {
            return;
        }
        match why {
            Dropped::Late => self.history.with(model, |record| record.late += 1),
            Dropped::Invalid { .. } => self.history.with(model, |record| record.invalid += 1),
        }
        self.with(id, |session| session.drop_vote(model.clone(), why, spent));
    }

    /// The votes are opened; who has not voted is late. A judge is waited for, or none.
    pub fn closed(&mut self, id: CouncilId, judged_by: Option<Timestamp>) {
        let Some(session) = self.sessions.get(&id) else { return };
        for model in session.silent() {
            self.vote_dropped(id, &model, Dropped::Late, Usd::ZERO);
        }
        self.with(id, |session| {
            if session.stage == SessionStage::Voting {
                session.stage = SessionStage::Closed { judged_by };
            }
        });
    }

    /// Every change of a session passes here, so that what is waited for is right afterwards.
    fn with(&mut self, id: CouncilId, change: impl FnOnce(&mut Session)) {
        self.untime(id);
        if let Some(session) = self.sessions.get_mut(&id) {
            change(session);
        }
        self.retime(id);
    }

    fn untime(&mut self, id: CouncilId) {
        self.ripe.remove(&id);
        if let Some(at) = self.sessions.get(&id).and_then(Session::awaited_until) {
            self.deadlines.remove(&(at, id));
        }
    }

    fn retime(&mut self, id: CouncilId) {
        let Some(session) = self.sessions.get(&id) else { return };
        match session.awaited_until() {
            Some(at) => drop(self.deadlines.insert((at, id))),
            None if session.is_sitting() => drop(self.ripe.insert(id)),
            None => {}
        }
    }

    fn end(&mut self, id: CouncilId) -> Option<Session> {
        self.untime(id);
        self.sessions.remove(&id)
    }

    pub fn decided(&mut self, id: CouncilId, verdict: &Verdict, cost: Usd, at: Timestamp) {
        let Some(session) = self.sessions.get(&id) else { return };
        if !matches!(session.stage, SessionStage::Closed { .. }) {
            return;
        }
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
                let verdict = verdict.clone();
                self.with(id, |session| session.stage = SessionStage::Decided { verdict });
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
        self.end(id);
    }

    /// The winner was tried: tests ran, or a reviewed change held or did not (CON-17).
    pub fn resolved(&mut self, id: CouncilId, outcome: Outcome, at: Timestamp) {
        let Some(record) = self.tried.remove(&id) else { return };
        let Some(session) = self.end(id) else { return };
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
    pub fn abandoned(&mut self, id: CouncilId) {
        self.end(id);
        self.tried.remove(&id);
    }

    /// A remembered answer did not help this time.
    pub fn forgotten(&mut self, key: &ProblemKey) {
        self.history.forget(key);
    }

    fn drilled(&mut self, caught: &[ModelName], missed: &[ModelName]) {
        // Who nods a defect through was wrong, and weighs less from now on.
        for model in caught.iter().chain(missed) {
            self.history.with(model, |record| {
                record.drills += 1;
                record.judged += 1;
            });
        }
        for model in caught {
            self.history.with(model, |record| {
                record.caught += 1;
                record.right += 1;
            });
        }
    }
}
