//! Councils: who sits, what was voted, what it cost, and what came of it.

use crate::council::{Choice, CouncilId, Outcome, Question, Summons, Verdict};
use crate::escalation::Trouble;
use crate::event::Event;
use crate::failure::{Failure, FailureKind};
use crate::ids::{MissionId, TaskId};
use crate::money::Usd;
use crate::routing::ModelName;
use crate::state::State;
use crate::state::council::{Advice, AfterReview, Case, Opinion, after_review, council_account};
use crate::task::{Stage, Task};
use crate::time::Timestamp;

impl State {
    /// The arms of `apply` about councils; it names each of them, so none is forgotten.
    pub(in crate::state) fn apply_to_councils(&mut self, event: &Event, at: Timestamp) {
        let chamber = &mut self.councils.chamber;
        match event {
            Event::CouncilConvened { .. } => self.convene(event, at),
            Event::VoteCast { council, vote, spent, .. } => {
                chamber.vote_cast(*council, (**vote).clone(), *spent);
            }
            Event::VoteDropped { council, model, why, spent, .. } => {
                chamber.vote_dropped(*council, model, why.clone(), *spent);
            }
            Event::CouncilClosed { council, judged_by, .. } => chamber.closed(*council, *judged_by),
            Event::CouncilDecided { council, task, verdict, cost, .. } => {
                self.pay_council(*council, *cost, at);
                self.take_advice(*council, *task, verdict);
                self.note_objections(*task, *council, verdict);
                if !matches!(verdict, Verdict::Accepted { .. }) {
                    self.note_dispute(*task, *council);
                }
                self.councils.chamber.decided(*council, verdict, *cost, at);
                if self.councils.chamber.session(*council).is_none() {
                    self.end_case(*council);
                    self.disappoint(*task, *council);
                }
                self.review(*task, *council, verdict);
            }
            Event::CouncilResolved { council, task, outcome } => {
                if *outcome == Outcome::Failure {
                    self.note_refuted(*task, *council);
                }
                self.councils.chamber.resolved(*council, *outcome, at);
                self.end_case(*council);
            }
            Event::CouncilAbandoned { council, task, cost } => {
                self.pay_council(*council, *cost, at);
                self.note_dispute(*task, *council);
                self.councils.chamber.abandoned(*council);
                self.end_case(*council);
                let ended = self.task(*task).and_then(|t| self.mission(t.mission));
                if ended.is_some_and(|mission| !mission.has_ended()) {
                    self.disappoint(*task, *council);
                }
            }
            Event::SolutionRecalled { task, key, known } => {
                let opinion = Opinion {
                    by: known.winner.clone(),
                    solution: known.solution.clone(),
                    reasoning: String::new(),
                    evidence: Vec::new(),
                };
                let after_attempt = self.attempts_at(*task);
                let (opinions, recalled) = (vec![opinion], Some(key.clone()));
                let advice = Advice { opinions, recalled, after_attempt };
                self.councils.advice.insert(*task, advice);
            }
            _ => {}
        }
    }

    fn convene(&mut self, event: &Event, at: Timestamp) {
        let Event::CouncilConvened { council, task, because, convocation, reservation } = event
        else {
            return;
        };
        let Some(asking) = self.task(*task) else { return };
        let (account, mission) = (council_account(asking), asking.mission);
        let usd = convocation.reserved;
        let id = self.ledger.attempt_reserved(account.clone(), usd, reservation, at);
        self.councils.chamber.convened((**convocation).clone(), at);
        let (task, reservation) = (*task, Some(id));
        let because = because.clone();
        let is_retry = matches!(because, Summons::Retries(_));
        let case = Case { task, mission, account, reservation, after_attempt: 0, because };
        self.councils.cases.insert(*council, case);
        self.councils.of_task.entry(task).or_default().insert(*council);
        let holds = |state: &State| state.is_under_review(task) == Some(*council);
        let waits = |task: &Task| {
            matches!(task.stage, Stage::Queued | Stage::Merging { checked: false, .. })
        };
        if self.task(task).is_some_and(waits) && holds(self) {
            self.move_to(task, Stage::Review { council: *council });
        }
        if is_retry {
            self.with_task(task, Task::repeat);
            self.move_to(task, Stage::Deliberating { council: *council });
        }
    }

    fn pay_council(&mut self, council: CouncilId, cost: Usd, at: Timestamp) {
        let Some(case) = self.councils.cases.get(&council) else { return };
        let Some(session) = self.councils.chamber.session(council) else { return };
        let Some(reservation) = case.reservation else { return };
        let charge = self.council_charge(session, case, cost, at);
        self.ledger.charged(&charge);
        self.ledger.released(reservation);
        if let Some(case) = self.councils.cases.get_mut(&council) {
            case.reservation = None;
        }
    }

    /// The council that looks at the change of a task, as long as it sits.
    pub(in crate::state) fn is_under_review(&self, id: TaskId) -> Option<CouncilId> {
        self.reviews_of(id).next()
    }

    /// All of them; one that is about to be called off is not waited for.
    pub(in crate::state) fn reviews_of(&self, id: TaskId) -> impl Iterator<Item = CouncilId> {
        let change = self.task(id).and_then(|task| task.accepted.as_ref());
        let councils = self.councils.of_task.get(&id).into_iter().flatten().copied();
        councils.filter(move |council| {
            let session = self.councils.chamber.session(*council);
            let asked = session.filter(|session| session.is_sitting());
            let reviewed = asked.and_then(|session| match &session.convocation.question {
                Question::Review { commit } => Some(commit),
                Question::Problem | Question::Drill { .. } => None,
            });
            reviewed.is_some() && reviewed == change && !self.councils.stale.contains(council)
        })
    }

    /// What reviewers have against a change, for whoever does it again.
    fn note_objections(&mut self, id: TaskId, council: CouncilId, verdict: &Verdict) {
        let waits = Stage::Review { council };
        let Verdict::Rejected { .. } = verdict else { return };
        let Some(session) = self.councils.chamber.session(council) else { return };
        if self.task(id).is_none_or(|task| task.stage != waits) {
            return;
        }
        let votes = session.votes().unwrap_or_default();
        let against = votes.iter().filter(|vote| vote.choice == Choice::Reject);
        let reasons: Vec<String> =
            against.map(|vote| format!("{}: {}", vote.by, vote.reasoning)).collect();
        let message = format!("its reviewers rejected the change\n{}", reasons.join("\n"));
        let failure = Failure::new(FailureKind::ValidationFailed, &message);
        self.with_task(id, |task| task.last_failure = Some(Box::new(failure)));
    }

    /// A review ends without a yes. Whether its change waits for it or for something else: it is not
    /// to be merged as if nobody had looked.
    fn note_dispute(&mut self, id: TaskId, council: CouncilId) {
        let Some(session) = self.councils.chamber.session(council) else { return };
        let Question::Review { commit } = session.convocation.question.clone() else { return };
        self.with_task(id, |task| {
            let at_gate = matches!(&task.stage, Stage::Gating { change } if *change == commit);
            if at_gate || task.accepted.as_ref() == Some(&commit) {
                task.disputed = Some(Box::new(commit));
            }
        });
    }

    /// A review has ended: its change goes on, back, or stays until people have seen it.
    fn review(&mut self, id: TaskId, council: CouncilId, verdict: &Verdict) {
        let Some(task) = self.task(id) else { return };
        let Some(mission) = self.mission(task.mission) else { return };
        if task.stage != (Stage::Review { council }) {
            return;
        }
        let then = after_review(verdict, task.reviews, &mission.policy.reviews);
        self.with_task(id, |task| task.reviews.held(0));
        match then {
            // If others did not agree, the question to a person follows and takes it out again.
            AfterReview::Merge => self.queue_or_wait(id),
            AfterReview::SendBack => self.send_back(id),
            // The question to them follows.
            AfterReview::AskPerson => {}
        }
    }

    /// Keeps what those who won have said, for whoever tries next.
    fn take_advice(&mut self, council: CouncilId, task: TaskId, verdict: &Verdict) {
        let Some(session) = self.councils.chamber.session(council) else { return };
        let votes = session.votes().unwrap_or_default();
        let is_problem = session.convocation.question == Question::Problem;
        let opinion = |by: &ModelName| {
            let vote = votes.iter().find(|vote| vote.by == *by)?;
            Some(Opinion {
                by: vote.by.clone(),
                solution: vote.choice.solution()?.to_owned(),
                reasoning: vote.reasoning.clone(),
                evidence: vote.evidence.clone(),
            })
        };
        let opinions: Vec<Opinion> = match verdict {
            Verdict::Accepted { winner, .. } | Verdict::Proposed { winner, .. } => {
                opinion(winner).into_iter().collect()
            }
            Verdict::Combine { from } => from.iter().filter_map(opinion).collect(),
            Verdict::Rejected { .. } | Verdict::Undecided { .. } | Verdict::Drill { .. } => {
                Vec::new()
            }
        };
        // A review is about work that is there already.
        let after_attempt = if is_problem { self.attempts_at(task) } else { 0 };
        if let Some(case) = self.councils.cases.get_mut(&council) {
            case.after_attempt = after_attempt;
        }
        if !opinions.is_empty() {
            let advice = Advice { opinions, recalled: None, after_attempt };
            self.councils.advice.insert(task, advice);
        }
    }

    /// The council that the task waited for has no answer.
    fn disappoint(&mut self, task: TaskId, council: CouncilId) {
        let waits = Stage::Deliberating { council };
        if self.task(task).is_some_and(|task| task.stage == waits) {
            self.move_to(task, Stage::Failed { kind: FailureKind::ValidationFailed });
        }
    }

    fn note_refuted(&mut self, task: TaskId, council: CouncilId) {
        let session = self.councils.chamber.session(council);
        let solution = match session.and_then(|session| session.verdict()) {
            Some(Verdict::Accepted { choice, .. } | Verdict::Proposed { choice, .. }) => {
                choice.solution().map(str::to_owned)
            }
            _ => None,
        };
        if let Some(solution) = solution {
            self.councils.refuted.entry(task).or_default().insert(solution);
        }
    }

    /// An answer from memory that did not help is forgotten.
    pub(in crate::state) fn doubt_advice(&mut self, task: TaskId, trouble: Trouble) {
        let attempts = self.attempts_at(task);
        let Some(advice) = self.councils.advice.get(&task) else { return };
        if let Some(key) = advice.recalled.clone()
            && trouble.is_debatable()
            && attempts > advice.after_attempt
        {
            self.councils.advice.remove(&task);
            self.councils.chamber.forgotten(&key);
        }
    }

    /// A task that no longer waits for its council leaves it without a question.
    pub(in crate::state) fn leave_council(&mut self, old: &Stage) {
        let (Stage::Deliberating { council } | Stage::Review { council }) = old else { return };
        let session = self.councils.chamber.session(*council);
        if session.is_some_and(|session| session.is_sitting()) {
            self.councils.stale.insert(*council);
        }
    }

    pub(in crate::state) fn end_councils_of(&mut self, mission: MissionId) {
        let of_mission = self.councils.cases.iter().filter(|(_, case)| case.mission == mission);
        let ids: Vec<CouncilId> = of_mission.map(|(id, _)| *id).collect();
        self.councils.stale.extend(ids);
        let tasks = &self.tasks;
        let goes_on = |id: &TaskId| {
            let task = tasks.get((id.0 as usize).wrapping_sub(1));
            task.is_some_and(|task| task.mission != mission)
        };
        self.councils.advice.retain(|id, _| goes_on(id));
        self.councils.refuted.retain(|id, _| goes_on(id));
    }

    fn end_case(&mut self, council: CouncilId) {
        self.councils.stale.remove(&council);
        let Some(case) = self.councils.cases.remove(&council) else { return };
        if let Some(councils) = self.councils.of_task.get_mut(&case.task) {
            councils.remove(&council);
            if councils.is_empty() {
                self.councils.of_task.remove(&case.task);
            }
        }
    }

    fn attempts_at(&self, task: TaskId) -> u32 {
        self.task(task).map_or(0, |task| task.attempts)
    }
}
