//! Members of councils: late, silent, lazy, twice, and under names that are not theirs.

use kapelle_core::council::{
    CheckStanding, Checked, Choice, Convocation, CouncilId, Evidence, Findings, Question, Score,
    Vote,
};
use kapelle_core::engine::Rules;
use kapelle_core::routing::ModelName;
use kapelle_core::task::Stage;
use kapelle_core::{Actor, Command, Commit, Event, Record, TaskId, Usd};

use crate::agenda::Sender;
use crate::draw::{self, PLANTED};
use crate::world::World;

/// What members propose; in a world this small they often agree.
const SOLUTIONS: [&str; 3] = ["wait for the lock", "mock the clock", "split the loop"];

impl<R: Rules + Clone> World<R> {
    /// Those who are asked hear of it, and those who judge.
    pub(crate) fn summon(&mut self, records: &[Record]) {
        for record in records {
            match &record.event {
                Event::CouncilConvened { council, convocation, .. } => {
                    for member in &convocation.panel {
                        self.invite(*council, convocation, &member.model);
                    }
                }
                Event::CouncilClosed { council, judged_by: Some(_), .. } => self.judge(*council),
                _ => {}
            }
        }
    }

    fn invite(&mut self, council: CouncilId, convocation: &Convocation, model: &ModelName) {
        if self.strikes(|f| f.member_silent) {
            return;
        }
        let time_ms = convocation.deadline.ms_since(self.now);
        let mut delay_ms = self.rng.u64(0..time_ms.max(1));
        if self.strikes(|f| f.member_late) {
            delay_ms += time_ms;
        }
        let mut by = model.clone();
        if self.strikes(|f| f.member_lies) {
            let names = ["a stranger".into(), convocation.panel[0].model.clone()];
            by = names[self.rng.usize(0..2)].clone();
        }
        let vote = self.vote(by, &convocation.question);
        let spent = Usd::cents(self.rng.u64(0..if self.is_calm() { 2 } else { 7 }));
        let command = Command::CastVote { council, vote: Box::new(vote), spent };
        if self.strikes(|f| f.member_twice) {
            let mut again = self.vote(model.clone(), &convocation.question);
            again.confidence = 1_000;
            let vote = Box::new(again);
            self.arrive(Sender::Host, delay_ms, Command::CastVote { council, vote, spent });
        }
        self.arrive(Sender::Host, delay_ms, command);
    }

    fn vote(&mut self, by: ModelName, question: &Question) -> Vote {
        let choice = match question {
            Question::Problem => {
                let most = if self.is_calm() { 1 } else { SOLUTIONS.len() };
                Choice::Solution(SOLUTIONS[self.rng.usize(0..most)].to_owned())
            }
            Question::Review { .. } | Question::Drill { .. } if self.rng.bool() => Choice::Reject,
            Question::Review { .. } | Question::Drill { .. } => Choice::Approve,
        };
        // No two members think the same words: whoever shows them early is found out.
        let reasoning = format!("thought number {}", self.rng.u64(..));
        let path = if self.rng.bool() { PLANTED } else { "src/a.rs" }.to_owned();
        let says = "the bound is not checked".to_owned();
        let mut evidence = vec![Evidence::Lines { path, line: 3, says }];
        if self.strikes(|f| f.member_lazy) {
            evidence.clear();
        }
        let confidence = self.rng.u32(0..=1_000);
        Vote { by, choice, reasoning, evidence, confidence }
    }

    fn judge(&mut self, council: CouncilId) {
        if self.strikes(|f| f.member_silent) {
            return;
        }
        let Some(session) = self.engine.state().council().session(council) else { return };
        let voters: Vec<ModelName> = session.heard().cloned().collect();
        let scores = voters.into_iter().map(|model| (model, self.score())).collect();
        let standing = |world: &mut World<R>| match world.rng.u8(0..3) {
            _ if world.is_calm() => CheckStanding::Passed { tests: 1 },
            0 => CheckStanding::Failed,
            1 => CheckStanding::NotRun,
            _ => CheckStanding::Passed { tests: world.rng.u32(0..3) },
        };
        let checks = SOLUTIONS.map(|name| Checked {
            choice: Choice::Solution(name.to_owned()),
            standing: standing(self),
        });
        let findings = Box::new(Findings { checks: checks.to_vec(), scores });
        let (delay_ms, spent) = (self.rng.u64(0..8_000), Usd::cents(self.rng.u64(0..3)));
        let command = Command::JudgeCouncil { council, findings, spent };
        self.arrive(Sender::Host, delay_ms, command);
    }

    fn score(&mut self) -> Score {
        let mut part = || self.rng.u32(0..=4) * 250;
        Score { correctness: part(), reasoning: part(), tests: part(), confidence: part() }
    }

    /// Somebody wants to hear a council, about anything.
    pub(crate) fn call_council(&mut self) {
        let tasks = self.engine.state().tasks();
        let changes = tasks.filter_map(|task| match &task.stage {
            Stage::Gating { change } => Some((task.id, change.clone())),
            _ => Some((task.id, task.accepted.clone()?)),
        });
        let changes: Vec<(TaskId, Commit)> = changes.collect();
        let tasks = self.engine.state().tasks().count() as u32;
        let anything = TaskId(self.rng.u32(0..tasks + 2));
        let (task, question) = match (self.rng.u8(0..4), changes.len()) {
            // Drills come beside reviews, so there have to be many.
            (0 | 1, 1..) => {
                let (task, commit) = changes[self.rng.usize(0..changes.len())].clone();
                (task, Question::Review { commit })
            }
            (2, _) => (anything, Question::Drill { planted: PLANTED.to_owned(), within: None }),
            (_, _) => (anything, Question::Problem),
        };
        let names = draw::council_names();
        let panel = match self.rng.bool() {
            true => Vec::new(),
            false => (0..3).map(|_| names[self.rng.usize(0..names.len())].into()).collect(),
        };
        let by = Actor("ada".into());
        self.arrive(Sender::Person, 0, Command::ConveneCouncil { task, question, panel, by });
    }
}
