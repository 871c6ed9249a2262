//! The council in the life of a task: tier 3 of escalation, and whoever calls it by hand.
//!
//! A task whose retries are used up waits while models of other families think about it. What they
//! agree on goes back to its agent as advice: the task begins anew, and its checks decide. What a
//! person or an orchestrator calls by hand holds nothing up, but for a review: its change is not
//! merged before it has ended, nor without a person if it did not agree.
//!
//! Invariants: nobody is asked before the money is reserved, and what was reserved is charged or
//! given back when the council ends, in whichever way. No verdict lands anything.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::State;
use super::apply::tokens_of;
use super::approvals::assess;
use super::decide::Decision;
use super::failure::{Blow, failed_attempt};
use crate::approval::{Gate, Subject};
use crate::council::{
    Brief, CheckStanding, Checked, Choice, Convening, Convocation, Council, CouncilId, Dropped,
    Evidence, Findings, Member, NotInSession, Outcome, Petition, ProblemKey, Question, Session,
    Summons, ToHuman, Verdict, Vote, VoteRefused,
};
use crate::escalation::{HumanBecause, Ladder, Next, Trouble};
use crate::event::{Event, PauseReason, Restart};
use crate::failure::FailureKind;
use crate::gates::{ReviewPolicy, Reviews};
use crate::ids::{Actor, Commit, Fence, MissionId, TaskId};
use crate::ledger::{
    self, Account, Charge, Crew, Drawn, Purpose, Request, Reservation, ReservationId, Unit,
};
use crate::limits;
use crate::mission::Mission;
use crate::money::Usd;
use crate::plan::TaskKind;
use crate::refusal::Refusal;
use crate::routing::ModelName;
use crate::task::{Stage, Task};
use crate::time::Timestamp;

/// All councils, and what each of them is for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Councils {
    pub chamber: Council,
    /// Of those that sit, and of those whose answer is being tried.
    pub cases: BTreeMap<CouncilId, Case>,
    pub of_task: BTreeMap<TaskId, BTreeSet<CouncilId>>,
    /// Nobody needs their answer any more.
    pub stale: BTreeSet<CouncilId>,
    pub advice: BTreeMap<TaskId, Advice>,
    /// Answers that were tried at a task and failed its checks.
    pub refuted: BTreeMap<TaskId, BTreeSet<String>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Case {
    pub task: TaskId,
    pub mission: MissionId,
    pub account: Account,
    /// None once it is paid.
    pub reservation: Option<ReservationId>,
    /// Attempts after this one have its answer.
    pub after_attempt: u32,
    pub because: Summons,
}

/// What a council has to say to whoever tries next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// The best first; more than one are to be put together.
    pub opinions: Vec<Opinion>,
    /// Of an earlier problem like this one.
    pub recalled: Option<ProblemKey>,
    pub(super) after_attempt: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opinion {
    pub by: ModelName,
    pub solution: String,
    pub reasoning: String,
    pub evidence: Vec<Evidence>,
}

impl State {
    #[must_use]
    pub fn council(&self) -> &Council {
        &self.councils.chamber
    }

    /// What a council says about a task, for the briefing of its next attempt.
    #[must_use]
    pub fn advice(&self, task: TaskId) -> Option<&Advice> {
        self.councils.advice.get(&task)
    }

    /// What a council is told of its task; the code is for whoever has the repository.
    #[must_use]
    pub fn council_brief(&self, id: CouncilId, code: &str) -> Option<Brief> {
        let task = self.task(self.councils.cases.get(&id)?.task)?;
        let error = task.last_failure.as_ref().map_or("", |failure| &failure.message);
        let story = task.hardship.as_ref().map(|hardship| &hardship.story);
        let told = story.into_iter().flat_map(|story| story.attempts());
        let told = told.map(|attempt| format!("{}: {}", attempt.phase, attempt.failure.message));
        let criteria = &task.plan.validation_criteria;
        let constraints: Vec<String> =
            criteria.criteria.iter().chain(&criteria.security_checks).cloned().collect();
        let question = self.councils.chamber.session(id).map(|s| &s.convocation.question);
        let planted = match question {
            // First, so that it is not what is cut.
            Some(Question::Drill { planted, within: Some(within) }) => {
                format!("{planted}\n{}\n", within.text)
            }
            _ => String::new(),
        };
        let code = planted + code;
        Some(Brief::new(&code, error, &told.collect::<Vec<_>>(), &constraints))
    }

    /// How many could sit on a council about this failure.
    pub(super) fn council_seats(&self, blow: &Blow<'_>) -> u32 {
        let Ok((task, _)) = self.task_or_refuse(blow.task) else { return 0 };
        let petition =
            self.petition(task, &blow.failure.message, Question::Problem, Summons::Retries(0));
        u32::try_from(self.councils.chamber.seats(&petition)).unwrap_or(u32::MAX)
    }

    /// Tier 3: an answer that is known, a council, or the reason why a person has to look.
    pub(super) fn call_council(
        &self,
        blow: &Blow<'_>,
        ladder: &Ladder,
        now: Timestamp,
    ) -> (Next, Vec<Event>) {
        let retries = ladder.retries;
        let exhausted = HumanBecause::RetriesExhausted { retries };
        let human = |because| (Next::AskHuman { because }, Vec::new());
        let Ok((task, _)) = self.task_or_refuse(blow.task) else { return human(exhausted) };
        let summons = Summons::Retries(retries);
        let petition = self.petition(task, &blow.failure.message, Question::Problem, summons);
        match self.councils.chamber.convene(&petition, now) {
            Convening::Convene(convocation) => {
                match self.convened(task, *convocation, petition.summons, now) {
                    Ok(event) => (Next::ConveneCouncil, vec![event]),
                    Err(refusal) => {
                        let council = ToHuman::Money { refusal };
                        human(HumanBecause::NoCouncil { council })
                    }
                }
            }
            Convening::Known(known) => {
                let (task, key) = (task.id, petition.key);
                let recalled = Event::SolutionRecalled { task, key, known };
                let retry = Event::RetryScheduled { task, at: now, from: Restart::Flow };
                (Next::ConveneCouncil, vec![recalled, retry])
            }
            Convening::ToHuman(council) => human(HumanBecause::NoCouncil { council }),
            Convening::NotYet { .. } | Convening::Refused(_) => human(exhausted),
        }
    }

    pub(super) fn convene_by_hand(
        &self,
        id: TaskId,
        question: &Question,
        panel: &[ModelName],
        by: &Actor,
        now: Timestamp,
    ) -> Decision {
        let (task, mission) = self.task_or_refuse(id)?;
        self.open_mission_or_refuse(mission.id)?;
        self.orchestrates(by)?;
        if mission.paused.is_some() {
            return Err(Refusal::MissionPaused { mission: mission.id });
        }
        match question {
            Question::Review { commit } if standing(task, commit).is_none() => {
                let (task, commit) = (task.name().to_owned(), commit.clone());
                return Err(Refusal::NoSuchChange { task, commit });
            }
            Question::Review { .. } => {
                task.reviews.check_round(0, &mission.policy.reviews)?;
                if let Stage::Merging { checked: true, .. } = task.stage {
                    return Err(Refusal::BeingMerged { task: task.name().to_owned() });
                }
            }
            Question::Drill { planted, .. } => {
                super::people::said("the planted file", planted, limits::PATH_CHARS_MAX)?;
            }
            Question::Problem => {}
        }
        let error = task.last_failure.as_ref().map_or("", |failure| &failure.message);
        let summons = Summons::ByHand { by: by.clone(), panel: panel.to_vec() };
        let petition = self.petition(task, error, question.clone(), summons);
        match self.councils.chamber.convene(&petition, now) {
            Convening::Convene(convocation) => {
                let event = self.convened(task, *convocation, petition.summons, now);
                let no_money = |refusal| Refusal::NoCouncil { why: ToHuman::Money { refusal } };
                Ok(vec![event.map_err(no_money)?])
            }
            Convening::ToHuman(why) => Err(Refusal::NoCouncil { why }),
            Convening::Refused(refused) => Err(refused.into()),
            // Whoever asks by hand is neither early nor told what is known.
            Convening::NotYet { .. } | Convening::Known(_) => Ok(Vec::new()),
        }
    }

    fn petition(&self, task: &Task, error: &str, question: Question, summons: Summons) -> Petition {
        let problem_type = problem_type(task.plan.kind);
        Petition {
            problem_id: format!("{}-error-{}", task.name(), task.failed_times()),
            problem_type: problem_type.to_owned(),
            key: ProblemKey::new(problem_type, limits::tail(error, limits::FAILURE_CHARS_MAX)),
            question,
            summons,
            author: task.lineage.clone(),
            available: self.council_members(),
        }
    }

    /// Members that can be asked now: with a key, a price and a provider in service, where models
    /// are routed; all of them elsewhere.
    fn council_members(&self) -> BTreeSet<ModelName> {
        let policy = self.councils.chamber.policy();
        let is_there = |member: &&Member| {
            let Some(routing) = &self.settings.routing else { return true };
            let known = routing.models.model(&member.model).filter(|model| model.enabled);
            known.is_some_and(|model| self.reach(&model.provider).is_ok())
                && self.settings.prices.cost(&member.model, 0, 0).is_ok()
        };
        let members = policy.models.iter().chain([&policy.judge]).filter(is_there);
        members.map(|member| member.model.clone()).collect()
    }

    /// The council with its money, or why there is none for it.
    fn convened(
        &self,
        task: &Task,
        convocation: Convocation,
        because: Summons,
        now: Timestamp,
    ) -> Result<Event, ledger::Refusal> {
        // A vote is one call of a model.
        let votes = convocation.panel.len().max(1) as u64;
        self.ledger.check_call(Usd::micros(convocation.reserved.as_micros().div_ceil(votes)))?;
        let request = council_request(task, convocation.reserved);
        let Reservation { pool, estimate, .. } = self.ledger.reserve(&request, now)?;
        let reservation = Drawn { pool, purpose: Purpose::Council, estimate };
        let (council, task) = (self.councils.chamber.next_id(), task.id);
        let convocation = Box::new(convocation);
        Ok(Event::CouncilConvened { council, task, because, convocation, reservation })
    }

    /// The attempt that calls a council is paid before it: what it spent beyond its reservation is
    /// not there for the council.
    pub(super) fn pay_before_asking(&self, events: &mut Vec<Event>, ended: Fence, now: Timestamp) {
        let asked = events.iter().position(|event| matches!(event, Event::CouncilConvened { .. }));
        let Some(asked) = asked else { return };
        let (mut bill, mut failure) = (None, None);
        for event in &*events {
            match event {
                Event::CostCharged { fence, usd, usage, .. } => {
                    bill = self.charge_of(*fence, *usd, tokens_of(usage), now);
                }
                Event::AttemptFailed { failure: told, .. } => failure = Some(told.clone()),
                _ => {}
            }
        }
        let Some(bill) = bill else { return };
        let Event::CouncilConvened { task, convocation, .. } = &events[asked] else { return };
        let Ok((task, mission)) = self.task_or_refuse(*task) else { return };
        let request = council_request(task, convocation.reserved);
        let refusal = match self.ledger.reserve_behind(&request, &bill, now) {
            // The pool that it would have had may be empty by now.
            Ok(Reservation { pool, .. }) => {
                if let Event::CouncilConvened { reservation, .. } = &mut events[asked] {
                    reservation.pool = pool;
                }
                return;
            }
            Err(refusal) => refusal,
        };
        let Some(failure) = failure else { return };
        let because = HumanBecause::NoCouncil { council: ToHuman::Money { refusal } };
        let story = task.hardship.as_ref().map(|hardship| hardship.story.clone());
        let mut story = story.unwrap_or_default();
        story.failed(failed_attempt(task, mission, &failure, now));
        let letter = self.letter(task, because.clone(), story, now);
        let mut buried = self.bury((task, mission), letter, Some(ended));
        if events.iter().any(|event| matches!(event, Event::MissionPaused { .. })) {
            buried.retain(falls);
        }
        events.splice(asked..=asked, buried);
        for event in events {
            if let Event::TroubleMet { next: next @ Next::ConveneCouncil, .. } = event {
                *next = Next::AskHuman { because: because.clone() };
            }
        }
    }

    /// A vote that shows nothing does not count, but its member has had its turn.
    pub(super) fn cast_vote(
        &self,
        council: CouncilId,
        vote: &Vote,
        spent: Usd,
        now: Timestamp,
    ) -> Decision {
        let case = self.case_or_refuse(council)?;
        let task = case.task;
        Ok(vec![match self.councils.chamber.vote(council, vote, now) {
            Ok(()) => Event::VoteCast { council, task, vote: Box::new(vote.clone()), spent },
            Err(NotInSession::Vote(VoteRefused::Invalid { by: model, fault })) => {
                let why = Dropped::Invalid { fault };
                Event::VoteDropped { council, task, model, why, spent }
            }
            Err(refused) => return Err(refused.into()),
        }])
    }

    pub(super) fn judge_council(
        &self,
        council: CouncilId,
        findings: &Findings,
        spent: Usd,
        now: Timestamp,
    ) -> Decision {
        let session = self.councils.chamber.session(council);
        let session = session.ok_or(NotInSession::Unknown(council))?;
        self.conclude(session, findings, spent, now)
    }

    /// What the moment changes for the first council whose time has come.
    pub(super) fn council_overdue(&self, now: Timestamp) -> Vec<Event> {
        let first = self.councils.chamber.overdue(now).next();
        let Some(session) = first.and_then(|id| self.councils.chamber.session(id)) else {
            return Vec::new();
        };
        match session.judged_by() {
            None => self.close_council(session, now),
            Some(_) => {
                // The judge may have worked all the same.
                let rest = session.convocation.reserved.saturating_sub(session.cost(Usd::ZERO));
                self.conclude(session, &Findings::default(), rest, now).unwrap_or_default()
            }
        }
    }

    /// What councils have to do that wait for nobody.
    pub(super) fn next_council(&self, now: Timestamp) -> Option<Vec<Event>> {
        let stale = self.councils.stale.first().and_then(|id| self.called_off(*id));
        if let Some(event) = stale.or_else(|| self.next_drill(now)) {
            return Some(vec![event]);
        }
        let session = self.councils.chamber.ripe()?;
        let events = match session.votes() {
            Err(_) => self.close_council(session, now),
            Ok(_) => {
                let nothing = Findings::default();
                self.conclude(session, &nothing, Usd::ZERO, now).unwrap_or_default()
            }
        };
        (!events.is_empty()).then_some(events)
    }

    /// The drill beside the review that was just called, if one is due and can be paid. Nothing is
    /// held up by it, so one that does not fit into the caps is left out.
    fn next_drill(&self, now: Timestamp) -> Option<Event> {
        let (review, convocation) = self.councils.chamber.drill_beside(now)?;
        let case = self.councils.cases.get(&review)?;
        let (task, mission) = self.task_or_refuse(case.task).ok()?;
        if mission.paused.is_some() || mission.has_ended() {
            return None;
        }
        self.convened(task, convocation, case.because.clone(), now).ok()
    }

    fn called_off(&self, council: CouncilId) -> Option<Event> {
        let task = self.councils.cases.get(&council)?.task;
        let session = self.councils.chamber.session(council);
        let sitting = session.filter(|session| session.is_sitting());
        let cost = sitting.map_or(Usd::ZERO, |session| session.cost(Usd::ZERO));
        Some(Event::CouncilAbandoned { council, task, cost })
    }

    fn close_council(&self, session: &Session, now: Timestamp) -> Vec<Event> {
        let council = session.id;
        let Some(case) = self.councils.cases.get(&council) else { return Vec::new() };
        let wait = self.councils.chamber.policy().timeout_ms;
        let judged_by = session.needs_findings().then(|| now.plus_ms(wait));
        vec![Event::CouncilClosed { council, task: case.task, judged_by }]
    }

    /// The verdict, and what follows from it for a task that waits for it.
    fn conclude(&self, session: &Session, given: &Findings, last: Usd, now: Timestamp) -> Decision {
        let council = session.id;
        let case = self.case_or_refuse(council)?;
        let (task, mission) = self.task_or_refuse(case.task)?;
        let findings = self.findings(session, task, given)?;
        let verdict = self.councils.chamber.verdict(council, &findings)?;
        let cost = session.cost(last);
        let charge = self.council_charge(session, case, cost, now);
        let warn = |warning| Event::SpendingWarned { mission: mission.id, warning };
        let warnings = self.ledger.warnings(&charge).into_iter().map(warn);
        let then = match task.stage {
            Stage::Deliberating { council: own } if own == council => {
                self.after_verdict_of((task, mission), &verdict, now)
            }
            Stage::Review { council: own } if own == council => {
                self.after_review((task, mission), (council, &verdict), now)
            }
            _ => Vec::new(),
        };
        let findings = Box::new(findings);
        let mut events =
            vec![Event::CouncilDecided { council, task: task.id, verdict, findings, cost }];
        events.extend(warnings);
        events.extend(then);
        let reserved = session.convocation.reserved;
        let paused = events.iter().any(|event| matches!(event, Event::MissionPaused { .. }));
        let goes_on = mission.paused.is_none() && !mission.has_ended() && !paused;
        if cost > reserved && goes_on {
            let reason = PauseReason::Overspent { reserved, spent: cost };
            events.extend(self.pause_for(mission, reason, Actor::kapelle(), None));
        }
        Ok(events)
    }

    fn after_verdict_of(
        &self,
        (task, mission): (&Task, &Mission),
        verdict: &Verdict,
        now: Timestamp,
    ) -> Vec<Event> {
        let why = match verdict {
            Verdict::Accepted { .. } | Verdict::Proposed { .. } | Verdict::Combine { .. } => {
                let (task, from) = (task.id, Restart::Flow);
                return vec![Event::RetryScheduled { task, at: now, from }];
            }
            Verdict::Undecided { why } => *why,
            Verdict::Rejected { .. } | Verdict::Drill { .. } => {
                crate::council::NoVerdict::EverythingFailed
            }
        };
        let because = HumanBecause::CouncilUndecided { council: why };
        let story = task.hardship.as_ref().map(|hardship| hardship.story.clone());
        let letter = self.letter(task, because, story.unwrap_or_default(), now);
        self.bury((task, mission), letter, None)
    }

    /// A review that agreed lets the change go on, one that did not sends it back; what nobody
    /// could say, and what was sent back often enough, is for a person. So is what others did not
    /// agree to, once nobody looks at it any more.
    fn after_review(
        &self,
        (task, mission): (&Task, &Mission),
        (council, verdict): (CouncilId, &Verdict),
        now: Timestamp,
    ) -> Vec<Event> {
        let disputed = task.is_disputed(task.accepted.as_ref());
        let last = || self.reviews_of(task.id).all(|other| other == council);
        match after_review(verdict, task.reviews, &mission.policy.reviews) {
            AfterReview::AskPerson => self.ask_about_merge((task, mission), now),
            AfterReview::Merge if disputed && last() => self.ask_about_merge((task, mission), now),
            AfterReview::Merge | AfterReview::SendBack => Vec::new(),
        }
    }

    /// A person has to look at a change that its reviewers could not settle.
    pub(super) fn ask_about_merge(
        &self,
        (task, mission): (&Task, &Mission),
        now: Timestamp,
    ) -> Vec<Event> {
        let change = task.accepted.as_ref();
        change.map(|change| ask_about((task, mission), change, now)).into_iter().collect()
    }

    /// The grace of the watchdog is over: councils that sit could still spend. What waited for one
    /// is a person's.
    pub(super) fn stop_councils(&self, now: Timestamp) -> (Vec<Event>, BTreeSet<MissionId>) {
        let mut events = Vec::new();
        let mut missions = BTreeSet::new();
        for (&council, case) in &self.councils.cases {
            let session = self.councils.chamber.session(council);
            let Some(session) = session.filter(|session| session.is_sitting()) else { continue };
            let Ok((task, mission)) = self.task_or_refuse(case.task) else { continue };
            missions.insert(mission.id);
            let cost = session.cost(Usd::ZERO);
            events.push(Event::CouncilAbandoned { council, task: task.id, cost });
            match task.stage {
                Stage::Deliberating { council: own } if own == council => {
                    let refusal = ledger::Refusal::Halted { since: now };
                    let because = HumanBecause::NoCouncil { council: ToHuman::Money { refusal } };
                    let story = task.hardship.as_ref().map(|hardship| hardship.story.clone());
                    let letter = self.letter(task, because, story.unwrap_or_default(), now);
                    events
                        .extend(self.bury((task, mission), letter, None).into_iter().filter(falls));
                }
                Stage::Review { council: own } if own == council => {
                    events.extend(self.ask_about_merge((task, mission), now));
                }
                _ => {}
            }
        }
        (events, missions)
    }

    /// What was told about the choices that were made, and what the journal knows of them. The
    /// worst that is said about a choice counts.
    fn findings(
        &self,
        session: &Session,
        task: &Task,
        given: &Findings,
    ) -> Result<Findings, NotInSession> {
        let votes = session.votes()?;
        let is_about = |checked: &&Checked| votes.iter().any(|vote| vote.choice == checked.choice);
        let mut checks: Vec<Checked> = given.checks.iter().filter(is_about).cloned().collect();
        checks.truncate(limits::COUNCIL_EVIDENCE_MAX);
        let voted = |model: &ModelName| votes.iter().any(|vote| vote.by == *model);
        let scores = given.scores.iter().filter(|(model, _)| voted(model));
        let scores = scores.map(|(model, score)| (model.clone(), *score)).collect();
        if let Question::Review { commit } = &session.convocation.question {
            // What becomes of a commit is not for its reviewers to say.
            checks.clear();
            let standing = standing(task, commit).unwrap_or(CheckStanding::NotRun);
            checks.push(Checked { choice: Choice::Approve, standing });
        }
        let refuted = self.councils.refuted.get(&task.id).into_iter().flatten();
        let refuted = refuted.map(|name| Checked {
            choice: Choice::Solution(name.clone()),
            standing: CheckStanding::Failed,
        });
        checks.extend(refuted.filter(|checked| is_about(&checked)));
        Ok(Findings { checks, scores })
    }

    /// The answers that were tried at this task and did not hold.
    pub(super) fn refuted(&self, task: &Task, trouble: Trouble) -> Vec<Event> {
        match trouble.is_debatable() {
            true => self.resolved(task, Outcome::Failure),
            false => Vec::new(),
        }
    }

    /// What came of the answers that an attempt at this task had before it.
    pub(super) fn resolved(&self, task: &Task, outcome: Outcome) -> Vec<Event> {
        let councils = self.councils.of_task.get(&task.id).into_iter().flatten();
        let tried = councils.filter(|council| {
            let session = self.councils.chamber.session(**council);
            let case = self.councils.cases.get(council);
            session.is_some_and(|session| !session.is_sitting())
                && case.is_some_and(|case| task.attempts > case.after_attempt)
        });
        let task = task.id;
        tried.map(|council| Event::CouncilResolved { council: *council, task, outcome }).collect()
    }

    pub(super) fn council_charge(
        &self,
        session: &Session,
        case: &Case,
        usd: Usd,
        at: Timestamp,
    ) -> Charge {
        let (reservation, account) = (case.reservation, case.account.clone());
        Charge { reservation, account, usd, tokens: 0, began_at: session.convened_at, at }
    }

    fn case_or_refuse(&self, council: CouncilId) -> Result<&Case, Refusal> {
        let case = self.councils.cases.get(&council);
        case.ok_or(Refusal::Council(NotInSession::Unknown(council)))
    }
}

/// What follows from the review of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterReview {
    Merge,
    SendBack,
    AskPerson,
}

/// One person has to say yes to this change, whatever the rules about people are.
pub(super) fn ask_about(
    (task, mission): (&Task, &Mission),
    change: &Commit,
    now: Timestamp,
) -> Event {
    let rules = mission.policy.approvals.as_ref();
    let author = task.last_agent().map(|agent| Actor(agent.to_string()));
    let gate = Gate {
        subject: Subject::Merge(task.id),
        mission: mission.id,
        commit: change.clone(),
        author: author.unwrap_or_else(Actor::kapelle),
        people: 1,
        assessed: rules.map(|rules| assess(rules, task, &[])),
        opened_at: now,
    };
    Event::ApprovalAsked { gate: Box::new(gate) }
}

pub(super) fn after_review(
    verdict: &Verdict,
    mut reviews: Reviews,
    rules: &ReviewPolicy,
) -> AfterReview {
    reviews.held(0);
    match verdict {
        Verdict::Accepted { .. } => AfterReview::Merge,
        Verdict::Rejected { .. } if reviews.check_round(0, rules).is_ok() => AfterReview::SendBack,
        Verdict::Rejected { .. }
        | Verdict::Proposed { .. }
        | Verdict::Combine { .. }
        | Verdict::Undecided { .. }
        | Verdict::Drill { .. } => AfterReview::AskPerson,
    }
}

/// Of a burial in a mission that is paused anyway: people hear of that, and need no warning.
fn falls(event: &Event) -> bool {
    matches!(event, Event::TaskDeadLettered { .. } | Event::TaskBlocked { .. })
}

/// A council belongs to a mission without being a task of it.
pub(super) fn council_account(task: &Task) -> Account {
    Account {
        mission: task.mission,
        task: None,
        agent: None,
        crew: Crew::Standing,
        purpose: Purpose::Council,
        priority: task.priority,
    }
}

fn council_request(task: &Task, usd: Usd) -> Request {
    let (account, tokens) = (council_account(task), limits::ATTEMPT_TOKENS_MIN);
    Request { account, unit: Unit::Attempt, usd, estimate: usd, tokens }
}

/// What the checks said about a change of this task; None if it is no change of it.
fn standing(task: &Task, commit: &Commit) -> Option<CheckStanding> {
    let story = task.hardship.as_ref().map(|hardship| &hardship.story);
    let mut attempts = story.into_iter().flat_map(|story| story.attempts());
    let failed = attempts.any(|attempt| {
        attempt.change.as_ref() == Some(commit)
            && attempt.failure.kind == FailureKind::ValidationFailed
    });
    let at_gate = matches!(&task.stage, Stage::Gating { change } if change == commit);
    match () {
        () if failed => Some(CheckStanding::Failed),
        () if task.checked.as_deref() == Some(commit) => Some(CheckStanding::Passed { tests: 1 }),
        () if task.accepted.as_ref() == Some(commit) || at_gate => Some(CheckStanding::NotRun),
        () => None,
    }
}

/// As the strengths of models are listed (CON-20).
fn problem_type(kind: TaskKind) -> &'static str {
    match kind {
        TaskKind::Implementation | TaskKind::Test | TaskKind::Docs => "coding",
        TaskKind::Review => "review",
        TaskKind::Analysis | TaskKind::Migration | TaskKind::Infrastructure => "architecture",
        TaskKind::Refactor => "refactoring",
        TaskKind::Security => "security",
    }
}
