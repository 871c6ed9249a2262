//! Hosts: how effects are carried out, badly.

use kapelle_core::command::{
    AdvanceOutcome, AttemptOutcome, CheckNews, CheckResult, DeliveryOutcome, LaneOutcome,
    RewriteOutcome, Spending,
};
use kapelle_core::engine::Rules;
use kapelle_core::failure::{Failure, FailureKind};
use kapelle_core::gates::Mock;
use kapelle_core::outcome::{Ended, Outcome};
use kapelle_core::policy::Check;
use kapelle_core::{Command, Commit, Effect, Fence, MissionId, TaskId, Timestamp, Usd};

use crate::agenda::{Sender, Thing};
use crate::oracle::{Verdict, ensure};
use crate::repository::Passed;
use crate::world::World;

/// Well within the shortest lease.
const HEARTBEAT_MS: u64 = 1_000;
const FLOOD_MESSAGES: u64 = 40;

impl<R: Rules + Clone> World<R> {
    /// The conductor starts an effect on the host.
    pub(crate) fn begin(&mut self, fence: Fence, effect: &Effect) {
        let mut wait_ms = match effect {
            Effect::RunAttempt { .. } => self.rng.u64(300..6_000) * self.pace,
            _ => self.rng.u64(1..400),
        };
        if let Effect::RunAttempt { .. } = effect {
            self.alive.insert(fence);
            if !std::mem::replace(&mut self.beating, true) {
                self.agenda
                    .add(self.now.plus_ms(HEARTBEAT_MS * self.pace.div_ceil(4)), Thing::Beat);
            }
            if let Effect::RunAttempt { task, .. } = effect
                && self.strikes(|f| f.agent_kills)
            {
                self.killers.insert(*task);
            }
            self.narrate(fence, effect);
            if self.strikes(|f| f.agent_hang) {
                return;
            }
            if self.strikes(|f| f.agent_slow) {
                wait_ms *= 8;
            }
        }
        if matches!(effect, Effect::TestLane { .. }) && self.strikes(|f| f.checks_slow) {
            wait_ms *= 40;
        }
        if self.strikes(|f| f.agent_silent) {
            let news = CheckNews::Silent { silent_ms: wait_ms };
            let check = "test".to_owned();
            self.arrive(Sender::Host, wait_ms / 2, Command::ReportCheck { fence, check, news });
        }
        let (at, life) = (self.now.plus_ms(wait_ms), self.life);
        self.agenda.add(at, Thing::Perform { fence, life });
    }

    pub(crate) fn beat(&mut self) -> Option<Command> {
        self.beating = !self.alive.is_empty();
        if self.beating {
            self.agenda.add(self.now.plus_ms(HEARTBEAT_MS * self.pace.div_ceil(4)), Thing::Beat);
        }
        if self.strikes(|f| f.agent_delegates) {
            self.delegate();
        }
        if self.strikes(|f| f.agent_silent) {
            let silent_ms = if self.rng.bool() { self.rng.u64(0..600_000) } else { 0 };
            let at = Timestamp(self.now.0.saturating_sub(silent_ms));
            let heard = |fence: &Fence| (*fence, at);
            let heard = self.alive.iter().map(heard).collect();
            self.arrive(Sender::Host, 0, Command::ReportOutput { heard });
        }
        if !self.beating || self.strikes(|f| f.heartbeat_loss) {
            return None;
        }
        Some(Command::Heartbeat { fences: self.alive.iter().copied().collect() })
    }

    pub(crate) fn perform(&mut self, fence: Fence, life: u32) -> Verdict {
        if life != self.life {
            return Ok(());
        }
        let running = self.running.get(&fence).cloned();
        let Some(effect) = running.or_else(|| self.undead.remove(&fence)) else { return Ok(()) };
        if self.gone.contains(&fence) {
            return Ok(());
        }
        if let Effect::RunAttempt { task, .. } = &effect
            && self.killers.contains(task)
            && !self.is_calm()
        {
            self.story.tell(self.now, || format!("* {fence} takes its host down"));
            self.lose_host();
            // Not of the host that is gone: what greets is the next one.
            for word in self.greet() {
                self.arrive(Sender::Person, 0, word);
            }
            return Ok(());
        }
        self.alive.remove(&fence);
        let message = match &effect {
            Effect::RunAttempt { task, phase, base, .. } => {
                self.work(fence, *task, *phase, base)?
            }
            _ if self.chore_fails() => {
                let failure = Failure::new(FailureKind::DiskFull, "no space left on device");
                Command::FailChore { fence, failure }
            }
            Effect::PrepareBranch { branch, base, .. } => {
                if self.repo.branch(branch).is_none() {
                    self.repo.set_branch(branch, base);
                }
                let tip = self.repo.branch(branch).cloned().unwrap_or_else(|| base.clone());
                Command::FinishBranch { fence, tip }
            }
            Effect::RunChecks { commit, checks, .. } => {
                let mut results = self.check(commit, checks);
                if let (true, Some(first)) = (self.repo.mocks(commit), results.first_mut()) {
                    let (path, unit) = ("tests/0".into(), "src/0".into());
                    first.mocks = vec![Mock { path, line: 1, unit }];
                }
                Command::FinishChecks { fence, results }
            }
            Effect::TestLane { candidate: commit, policy, .. }
            | Effect::MeasureBaseline { commit, policy, .. } => {
                let mut results = self.check(commit, &policy.checks);
                results.iter_mut().for_each(|result| self.name_tests(result));
                Command::FinishChecks { fence, results }
            }
            Effect::BuildLane { onto, changes, .. } => {
                Command::FinishLane { fence, outcome: self.build_lane(onto, changes) }
            }
            Effect::LandLane { mission, branch, from, to, .. } => {
                let outcome = self.advance(*mission, branch, from, to)?;
                Command::FinishAdvance { fence, outcome }
            }
            Effect::RebaseChange { change, onto, .. } => {
                Command::FinishRewrite { fence, outcome: self.rebase(change, onto) }
            }
            Effect::BuildRevert { onto, reverts, .. } => {
                Command::FinishRewrite { fence, outcome: self.revert(onto, reverts)? }
            }
            Effect::Deliver { mission, target, commit } => {
                Command::FinishDelivery { fence, outcome: self.deliver(*mission, target, commit)? }
            }
        };
        self.send(message);
        Ok(())
    }

    fn chore_fails(&mut self) -> bool {
        if self.strikes(|f| f.chore_storm) {
            self.storm_until = self.now.plus_ms(self.rng.u64(1_000..30_000));
        }
        self.strikes(|f| f.chore_failure) || (!self.is_calm() && self.now < self.storm_until)
    }

    /// A host's message on its way to the conductor.
    pub(crate) fn send(&mut self, command: Command) {
        let mut delay_ms = self.rng.u64(0..60);
        if self.strikes(|f| f.lose) {
            let is_word = |c: &Command| {
                matches!(c, Command::FinishAttempt { .. } | Command::ReportSpending { .. })
            };
            if is_word(&command) {
                return;
            }
            // Chores have no lease, so their hosts repeat what was not acknowledged.
            delay_ms += self.rng.u64(5_000..60_000);
        }
        if self.strikes(|f| f.late) {
            delay_ms += self.rng.u64(1_000..90_000);
        }
        if self.strikes(|f| f.duplicate) {
            let again_ms = delay_ms + self.rng.u64(0..30_000);
            self.arrive(Sender::Host, again_ms, command.clone());
        }
        if self.strikes(|f| f.agent_flood) {
            for again_ms in 0..FLOOD_MESSAGES {
                self.arrive(Sender::Host, delay_ms + again_ms, command.clone());
            }
        }
        self.arrive(Sender::Host, delay_ms, command);
        if self.strikes(|f| f.confused) {
            let confused = self.confuse();
            self.arrive(Sender::Host, delay_ms, confused);
        }
    }

    /// A message of any kind about any fence: past, present or never given.
    fn confuse(&mut self) -> Command {
        let newest = self.running.keys().last().map_or(1, |fence| fence.0);
        let fence = Fence(self.rng.u64(0..newest + 3));
        let failure = Failure::new(FailureKind::AgentError, "confused");
        let actual = self.repo.commit(&[], Passed::No);
        match self.rng.u8(0..8) {
            7 => {
                let usd = Usd::cents(self.rng.u64(0..200));
                let spent = Spending { usd, ..Spending::default() };
                Command::ReportSpending { fence, spent }
            }
            0 => Command::FailChore { fence, failure },
            1 => Command::FinishChecks { fence, results: Vec::new() },
            2 => {
                let outcome = match self.rng.bool() {
                    true => LaneOutcome::Conflict { task: TaskId(1), paths: Vec::new() },
                    false => LaneOutcome::Built(Vec::new()),
                };
                Command::FinishLane { fence, outcome }
            }
            6 => {
                let outcome = RewriteOutcome::Conflict { paths: Vec::new() };
                Command::FinishRewrite { fence, outcome }
            }
            3 => Command::FinishAdvance { fence, outcome: AdvanceOutcome::Lost { actual } },
            4 => {
                let outcome = DeliveryOutcome::Refused { reason: "confused".into() };
                Command::FinishDelivery { fence, outcome }
            }
            _ => {
                let (outcome, spent) = (AttemptOutcome::Failed(failure), Spending::default());
                Command::FinishAttempt { fence, outcome, spent }
            }
        }
    }

    fn check(&mut self, commit: &Commit, checks: &[Check]) -> Vec<CheckResult> {
        let flaky = self.strikes(|f| f.checks_flaky);
        let broken = !self.repo.passes(commit);
        let count = checks.len().max(1);
        // What is broken fails the same check every time; a flake can be anywhere.
        let culprit = match broken {
            true => self.repo.fault(commit) % count,
            false => self.rng.usize(0..count),
        };
        let result = |(index, name): (usize, &String)| CheckResult {
            name: name.clone(),
            passed: broken == flaky || index != culprit,
            duration_ms: 1,
            ..CheckResult::default()
        };
        let names = checks.iter().map(|check| &check.name).enumerate();
        let mut results: Vec<CheckResult> = names.map(result).collect();
        if self.strikes(|f| f.checks_truncated) {
            results.pop();
        } else {
            self.repo.note_run(commit, &results);
        }
        results
    }

    /// A check that passed names its tests; some of them had to be tried again.
    fn name_tests(&mut self, result: &mut CheckResult) {
        if !result.passed {
            return;
        }
        let mut outcome = Outcome::default();
        for test in ["adds", "removes"] {
            let again = self.strikes(|f| f.tests_flaky);
            let ended = if again { Ended::Flaky } else { Ended::Passed };
            outcome.record(test, ended, None, "");
        }
        result.outcome = Some(Box::new(outcome));
    }

    /// Compare and swap, and only forward.
    fn advance(
        &mut self,
        mission: MissionId,
        branch: &str,
        from: &Commit,
        to: &Commit,
    ) -> Result<AdvanceOutcome, String> {
        let Some(actual) = self.repo.branch(branch).cloned() else {
            return Err(format!("{branch} is to be advanced, but it was never made"));
        };
        if actual == *to || actual == *from {
            self.oracle.judge_advance(mission, to)?;
            ensure(self.repo.is_ancestor(from, to), || {
                format!("{branch} would not go forward from {} to {}", from.short(), to.short())
            })?;
            self.repo.set_branch(branch, to);
            self.repo.note_reached(branch, to);
            return Ok(AdvanceOutcome::Advanced);
        }
        if self.repo.is_ancestor(from, &actual) {
            return Ok(AdvanceOutcome::Moved { actual });
        }
        Ok(AdvanceOutcome::Lost { actual })
    }

    fn deliver(
        &mut self,
        mission: MissionId,
        target: &str,
        commit: &Commit,
    ) -> Result<DeliveryOutcome, String> {
        self.oracle.judge_delivery(mission, commit)?;
        let Some(tip) = self.repo.branch(target).cloned() else {
            return Err(format!("the target {target} is gone"));
        };
        if self.repo.is_ancestor(&tip, commit) {
            self.repo.set_branch(target, commit);
        }
        let arrived = self.repo.branch(target).is_some_and(|at| self.repo.is_ancestor(commit, at));
        Ok(match arrived {
            true => DeliveryOutcome::Delivered,
            false => DeliveryOutcome::Refused { reason: "the target has moved on".into() },
        })
    }
}
