//! Checks: the commands of the policy, one after the other, on exactly one commit.

use std::path::Path;
use std::time::Duration;

use kapelle_core::command::{Before, CheckNews, CheckResult};
use kapelle_core::failure::{Failure, FailureKind};
use kapelle_core::{Command, Commit, Effect, Fence};
use kapelle_workspace::commands::{Commands, Told};
use kapelle_workspace::{CheckRun, Worktree, check, reaper};

use super::{Host, Order, Trouble, make_dir};

/// A killed process is gone within milliseconds; this is about two seconds.
const DYING_ROUNDS_MAX: u32 = 200;
const DYING_WAIT: Duration = Duration::from_millis(10);

impl Host {
    pub(super) async fn checks(
        &self,
        order: &Order,
        commit: &Commit,
    ) -> Result<Vec<CheckResult>, Trouble> {
        let (checks, tested) = match &order.effect {
            Effect::RunChecks { checks, tested, .. } => (checks, Some(tested)),
            Effect::TestLane { policy, .. } | Effect::MeasureBaseline { policy, .. } => {
                (&policy.checks, None)
            }
            _ => return Ok(Vec::new()),
        };
        let dir = self.workplace(order.fence);
        make_dir(&dir)?;
        let mut results = Vec::new();
        for (number, wanted) in checks.iter().enumerate() {
            let limit = Duration::from_millis(wanted.timeout_ms);
            let run = check::Check {
                command: wanted.command.clone(),
                rules: self.rules.of_check(&wanted.command, limit),
                commands: listened(order, &wanted.name),
                reading: wanted.reading.clone(),
                env: self.env.clone(),
                readable: self.readable.clone(),
                confinement: self.confinement(order.sandbox)?,
                lease: self.lease(order.fence),
                log: self.log(&format!("check-{}-{number}.log", order.fence)),
            };
            let (ran, earlier) = self.run_check(order, commit, &dir, &run).await?;
            let cut_short = ran.result.cut_short();
            if let Some(failure) = cut_short.clone().filter(|it| is_no_answer(&order.effect, it)) {
                return Err(Trouble::CutShort { name: wanted.name.clone(), failure });
            }
            let before = match ran.passed || run.reading.is_plain() {
                true => None,
                false => self.before(order, commit, &dir, &run).await?,
            };
            results.push(CheckResult {
                name: wanted.name.clone(),
                passed: ran.passed,
                output: ran.story(),
                duration_ms: u64::try_from(ran.result.duration.as_millis()).unwrap_or(u64::MAX),
                cut_short: cut_short.map(|failure| failure.kind),
                outcome: ran.outcome.map(Box::new),
                before: before.map(Box::new),
                earlier: earlier.map(|run| Box::new(as_before(&run))),
                mocks: Vec::new(),
            });
        }
        if let (Some(tested), Some(first)) = (tested, results.first_mut()) {
            first.mocks = check::mocks(&self.repo, commit, tested).await?;
        }
        // Empty by now; if not, the next start-up tidies it.
        let _ = std::fs::remove_dir(&dir);
        Ok(results)
    }

    /// A failed check once more, where the change left the branch; of the same files the answer is
    /// known. Nothing if there is no such place, or if the machine kept it from an answer.
    async fn before(
        &self,
        order: &Order,
        commit: &Commit,
        dir: &Path,
        check: &check::Check,
    ) -> Result<Option<Before>, Trouble> {
        let Effect::RunChecks { tip: Some(tip), .. } = &order.effect else { return Ok(None) };
        let Some(base) = self.repo.merge_base(tip, commit).await? else { return Ok(None) };
        let check = check::Check { log: check.log.with_extension("before.log"), ..check.clone() };
        let run = self.baselines.of(&self.repo, dir, &base, &check).await?;
        Ok(run.map(|run| as_before(&run)))
    }

    /// Runs a check, and again if it fails where that may be a flake. With the last run comes the
    /// first, if there were several. What was cut short is not tried again: it took its time.
    async fn run_check(
        &self,
        order: &Order,
        commit: &Commit,
        dir: &Path,
        check: &check::Check,
    ) -> Result<(CheckRun, Option<CheckRun>), Trouble> {
        let retries = match &order.effect {
            Effect::RunChecks { retries, .. } => *retries,
            _ => 0,
        };
        let mut ran = check::run(&self.repo, dir, commit, check).await?;
        let mut first = None;
        for _ in 0..retries {
            if ran.passed || ran.result.cut_short().is_some() {
                break;
            }
            let again = check::run(&self.repo, dir, commit, check).await?;
            let earlier = std::mem::replace(&mut ran, again);
            first.get_or_insert(earlier);
        }
        Ok((ran, first))
    }

    /// Puts away the tree of checks that were given up. Their process was killed with the giving
    /// up, and is waited for: the dying still write.
    pub(super) async fn put_checks_away(&self, fence: Fence, commit: &Commit) {
        for _ in 0..DYING_ROUNDS_MAX {
            let running = reaper::running(&self.store_id).unwrap_or_default();
            if running.iter().all(|process| process.fence != fence) {
                break;
            }
            tokio::time::sleep(DYING_WAIT).await;
        }
        // What cannot be put away now is, at the next start.
        let _ = self.remove_tree(fence, commit).await;
    }

    /// A tree may still be in the making. Preparing it anew waits for that, and clears it.
    async fn remove_tree(&self, fence: Fence, commit: &Commit) -> Result<(), Trouble> {
        let dir = self.workplace(fence);
        let tree = Worktree::prepare(&self.repo, &dir.join("tree"), commit).await?;
        let kept = tree.keep(&format!("leftover/{fence}")).await?;
        tree.remove(kept).await?;
        std::fs::remove_dir_all(&dir).map_err(|source| Trouble::File { path: dir, source })
    }
}

/// On the branch itself a failure excuses others, and a check that was cut short is no such failure.
/// A full disk says nothing of any change.
fn is_no_answer(effect: &Effect, cut_short: &Failure) -> bool {
    match effect {
        Effect::MeasureBaseline { .. } => true,
        Effect::TestLane { .. } => cut_short.kind == FailureKind::DiskFull,
        _ => false,
    }
}

fn as_before(run: &CheckRun) -> Before {
    Before { passed: run.passed, outcome: run.outcome.clone() }
}

/// Runs commands for a check, of which the engine hears what people should know before the end: once
/// that it is silent, and that it takes long. How it ends is told by its result.
fn listened(order: &Order, check: &str) -> Commands {
    let (commands, mut told) = Commands::new();
    let (handle, fence, check) = (order.handle.clone(), order.fence, check.to_owned());
    tokio::spawn(async move {
        let mut silent = false;
        // Ends with the commands.
        while let Some(told) = told.recv().await {
            let news = match told {
                Told::Warning { silent_ms, .. } if !silent => CheckNews::Silent { silent_ms },
                Told::LongRunning { running_ms, .. } => CheckNews::LongRunning { running_ms },
                Told::Warning { .. }
                | Told::Output { .. }
                | Told::Backgrounded { .. }
                | Told::Escalated { .. }
                | Told::Complete { .. }
                | Told::BackgroundComplete(_) => continue,
            };
            silent |= matches!(news, CheckNews::Silent { .. });
            handle.report(Command::ReportCheck { fence, check: check.clone(), news });
        }
    });
    commands
}
