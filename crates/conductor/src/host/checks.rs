//! Checks: the commands of the policy, one after the other, on exactly one commit.

use std::path::Path;
use std::time::Duration;

use kapelle_core::command::{Before, CheckResult};
use kapelle_core::policy::Check;
use kapelle_core::{Commit, Effect, Fence};
use kapelle_workspace::{Worktree, check, reaper};

use super::{Host, Order, Trouble, make_dir};

/// A killed process is gone within milliseconds; this is about two seconds.
const DYING_ROUNDS_MAX: u32 = 200;
const DYING_WAIT: Duration = Duration::from_millis(10);

impl Host {
    pub(super) async fn checks(
        &self,
        order: &Order,
        commit: &Commit,
        checks: &[Check],
    ) -> Result<Vec<CheckResult>, Trouble> {
        let dir = self.workplace(order.fence);
        make_dir(&dir)?;
        let mut results = Vec::new();
        for (number, wanted) in checks.iter().enumerate() {
            let run = check::Check {
                command: wanted.command.clone(),
                timeout: Duration::from_millis(wanted.timeout_ms),
                reading: wanted.reading.clone(),
                env: self.env.clone(),
                readable: self.readable.clone(),
                confinement: self.confinement(order.sandbox)?,
                lease: self.lease(order.fence),
                log: self.log(&format!("check-{}-{number}.log", order.fence)),
            };
            let ran = check::run(&self.repo, &dir, commit, &run).await?;
            let output = match ran.exit.timed_out {
                true => format!("{}\nended after {} s", ran.story(), run.timeout.as_secs()),
                false => ran.story(),
            };
            let before = match ran.passed || run.reading.is_plain() {
                true => None,
                false => self.before(order, commit, &dir, &run).await?,
            };
            results.push(CheckResult {
                name: wanted.name.clone(),
                passed: ran.passed,
                output,
                duration_ms: u64::try_from(ran.duration.as_millis()).unwrap_or(u64::MAX),
                outcome: ran.outcome.map(Box::new),
                before: before.map(Box::new),
                mocks: Vec::new(),
            });
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
        let mut baselines = self.baselines.lock().await;
        let run = baselines.of(&self.repo, dir, &base, &check).await?;
        Ok(run.map(|run| Before { passed: run.passed, outcome: run.outcome.clone() }))
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
