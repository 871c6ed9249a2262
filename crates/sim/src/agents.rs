//! Agents: honest, careless, lying, trespassing, asking, failing, and expensive.

use kapelle_core::command::{AttemptOutcome, Spending};
use kapelle_core::engine::Rules;
use kapelle_core::failure::{Failure, FailureKind};
use kapelle_core::flow::{Expectation, Phase};
use kapelle_core::report::{Question, Report, Usage};
use kapelle_core::{Command, Commit, Effect, Fence, TaskId, Usd};

use crate::agenda::Sender;
use crate::draw;
use crate::oracle::ensure;
use crate::repository::Passed;
use crate::world::World;

/// What a host says that could not perform an attempt.
pub(crate) const HOST_TROUBLE: &str = "no space left for an attempt";

impl<R: Rules + Clone> World<R> {
    /// What an agent that was given time reports in the end.
    pub(crate) fn work(
        &mut self,
        fence: Fence,
        task: TaskId,
        phase: Phase,
        base: &Commit,
    ) -> Result<Command, String> {
        ensure(self.repo.knows(base), || format!("{task:?} is to start from unknown {base}"))?;
        let policy = &self.oracle.facts.mission_of(task)?.policy;
        let (reserved, frozen) = (policy.budget.attempt_usd_max, !policy.tests.is_empty());
        let spent = self.spend(reserved);
        let outcome = if self.strikes(|f| f.host_trouble) {
            AttemptOutcome::Abandoned(Failure::new(FailureKind::DiskFull, HOST_TROUBLE))
        } else if self.is_down(fence) {
            AttemptOutcome::Failed(Failure::new(FailureKind::Network, "no answer"))
        } else if self.strikes(|f| f.agent_stuck) && self.engine.state().advice(task).is_none() {
            AttemptOutcome::Failed(Failure::new(FailureKind::AgentError, "stuck at a lock"))
        } else if self.strikes(|f| f.agent_failure) {
            let kind = FailureKind::ALL[self.rng.usize(0..FailureKind::ALL.len())];
            let retry_after_ms = self.rng.bool().then(|| self.rng.u64(0..20_000));
            let failure = Failure::new(kind, "something went wrong");
            AttemptOutcome::Failed(Failure { retry_after_ms, ..failure })
        } else if self.strikes(|f| f.agent_loop) {
            let question = Question {
                message: "and now?".into(),
                resume_id: "again".into(),
                options: Vec::new(),
            };
            AttemptOutcome::Asked { question, change: None }
        } else if self.strikes(|f| f.agent_question) {
            self.ask(fence, base)
        } else {
            self.change(fence, phase, base, frozen)
        };
        Ok(Command::FinishAttempt { fence, outcome, spent })
    }

    /// What an attempt says while it works, in the order in which it happens to arrive.
    pub(crate) fn narrate(&mut self, fence: Fence, effect: &Effect) {
        let Effect::RunAttempt { task, base, .. } = effect else { return };
        let Some(task) = self.engine.state().task(*task) else { return };
        let (first, all) = (task.operations.completed_count(), task.plan.file_operation_count);
        let steps = task.plan.required_actions.len() + 1;
        let mut tree = base.clone();
        let mut said = Vec::new();
        for index in first..all {
            tree = self.repo.commit(&[&tree], Passed::No);
            said.push(Command::CompleteOperation { fence, index, change: tree.clone() });
        }
        for _ in 0..self.rng.usize(0..4) {
            let step = format!("step-{}", self.rng.usize(0..=steps));
            // Some hosts keep the tree with every step.
            let kept = (self.rng.u8(0..3) == 0).then(|| self.repo.commit(&[&tree], Passed::No));
            tree = kept.clone().unwrap_or(tree);
            said.push(Command::CompleteStep { fence, step, notes: String::new(), change: kept });
        }
        if self.rng.u8(0..4) == 0 {
            let breakdown = "1. look\n2. leap".to_owned();
            said.push(Command::MakeChecklist { fence, breakdown });
        }
        if self.rng.u8(0..4) == 0 {
            let report = Report { message: "all is well".into(), ..Report::default() };
            said.push(Command::ReportTask { fence, report });
        }
        let mut delay_ms = 0;
        for command in said {
            delay_ms += self.rng.u64(0..500);
            let late_ms = if self.rng.u8(0..8) == 0 { self.rng.u64(0..3_000) } else { 0 };
            self.arrive(Sender::Host, delay_ms + late_ms, command);
        }
    }

    /// An agent starts another, or one that it started has ended; some ask for more than there is.
    pub(crate) fn delegate(&mut self) {
        let alive: Vec<Fence> = self.alive.iter().copied().collect();
        if alive.is_empty() {
            return;
        }
        let fence = alive[self.rng.usize(0..alive.len())];
        let open = self.engine.state().sub_agents(fence);
        let some = open.get(self.rng.usize(0..open.len().max(1))).copied();
        let command = match some.filter(|_| self.rng.bool()) {
            Some((sub_agent, left)) => {
                let spent = self.spend(left);
                Command::CloseSubAgent { fence, sub_agent, spent }
            }
            None => {
                let of = some.map(|(id, _)| id).filter(|_| self.rng.bool());
                let usd_max = self.rng.bool().then(|| Usd::cents(self.rng.u64(0..60)));
                Command::OpenSubAgent { fence, of, usd_max }
            }
        };
        let late_ms = if self.rng.u8(0..4) == 0 { self.rng.u64(0..3_000) } else { 0 };
        self.arrive(Sender::Host, late_ms, command);
    }

    fn has_territory(&self, fence: Fence) -> bool {
        let state = self.engine.state();
        let agent = state.lease(fence).map(|lease| lease.agent);
        state.settings().territories.iter().any(|(of, _)| Some(of) == agent)
    }

    /// A file below this folder, in the territory of who works, if there is one.
    fn own_file(&mut self, fence: Fence, folder: &str) -> String {
        let mut files: Vec<String> = (0..4).map(|n| format!("{folder}/{n}")).collect();
        let state = self.engine.state();
        if let Some(agent) = state.lease(fence).map(|lease| lease.agent) {
            let own = |file: &String| state.settings().territories.admits(agent, &[file]);
            if files.iter().any(own) {
                files.retain(own);
            }
        }
        files.swap_remove(self.rng.usize(0..files.len()))
    }

    /// Whether the provider of an attempt does not answer; some are down for a while.
    fn is_down(&mut self, fence: Fence) -> bool {
        let effect = self.running.get(&fence).or_else(|| self.undead.get(&fence));
        let Some(Effect::RunAttempt { route: Some(route), .. }) = effect else { return false };
        let provider = route.provider.clone();
        if self.strikes(|f| f.provider_down) {
            let until = self.now.plus_ms(self.rng.u64(1_000..60_000));
            self.down.insert(provider.clone(), until);
        }
        !self.is_calm() && self.down.get(&provider).is_some_and(|until| self.now < *until)
    }

    pub(crate) fn spend(&mut self, reserved: Usd) -> Spending {
        let mut usd = match self.rng.u8(0..3) {
            0 => Usd::ZERO,
            1 => Usd::micros(self.rng.u64(0..=reserved.as_micros())),
            _ => Usd::micros(reserved.as_micros() / 8),
        };
        if self.strikes(|f| f.agent_overspend) {
            usd = reserved + Usd::micros(self.rng.u64(1..3_000_000));
        }
        let used = |input_tokens| Usage { model: "m".into(), input_tokens, output_tokens: 1 };
        let usage = self.rng.bool().then(|| used(self.rng.u64(0..5_000)));
        Spending { usd, usage: usage.into_iter().collect(), unpriced: None }
    }

    fn ask(&mut self, fence: Fence, base: &Commit) -> AttemptOutcome {
        let resume_id = match self.rng.u8(0..3) {
            0 => draw::ANSWERED_BEFOREHAND.to_owned(),
            _ => format!("question-{fence}"),
        };
        let question = Question { message: "which?".into(), resume_id, options: Vec::new() };
        let change = self.rng.bool().then(|| self.repo.commit(&[base], Passed::No));
        AttemptOutcome::Asked { question, change }
    }

    fn change(
        &mut self,
        fence: Fence,
        phase: Phase,
        base: &Commit,
        frozen: bool,
    ) -> AttemptOutcome {
        if self.strikes(|f| f.agent_lie) {
            // Where there is nothing to tidy up it is no lie.
            if !matches!(phase, Phase::Refactor | Phase::Verify | Phase::Complete) {
                self.oracle.note_sin(fence, "changed nothing");
            }
            return AttemptOutcome::Done { change: None, touched: Vec::new().into() };
        }
        let red = phase.expects() == Expectation::SomeCheckFails;
        let (own, other) = if red { ("tests", "src/a") } else { ("src", "tests/a") };
        // Few files, so that changes meet in some and not in others.
        let mut touched = vec![self.own_file(fence, own)];
        if self.has_territory(fence) && self.strikes(|f| f.agent_strays) {
            touched.push("elsewhere/a".to_owned());
        }
        if self.strikes(|f| f.agent_trespass) {
            touched.push(other.to_owned());
            if frozen {
                self.oracle.note_sin(fence, "touched files of the other side");
            }
        }
        // A careless developer breaks the tests, a careless tester writes none that fail.
        let careless = self.strikes(|f| f.agent_careless);
        let change = self.repo.commit(&[base], Passed::from(red == careless));
        if red && self.strikes(|f| f.agent_mocks) {
            self.repo.note_mocks(&change);
        }
        AttemptOutcome::Done { change: Some(change), touched: touched.into() }
    }
}
