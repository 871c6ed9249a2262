//! Checks: the commands of the policy, one after the other, on exactly one commit.

use std::time::Duration;

use kapelle_core::Commit;
use kapelle_core::command::CheckResult;
use kapelle_core::policy::Check;
use kapelle_workspace::check;

use super::{Host, Order, Trouble, make_dir};

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
                env: self.env.clone(),
                readable: self.readable.clone(),
                confinement: self.confinement(order.sandbox)?,
                lease: self.lease(order.fence),
                log: self.log(&format!("check-{}-{number}.log", order.fence)),
            };
            let ran = check::run(&self.repo, &dir, commit, &run).await?;
            let output = match ran.exit.timed_out {
                true => format!("{}\nended after {} s", ran.tail, run.timeout.as_secs()),
                false => ran.tail,
            };
            results.push(CheckResult {
                name: wanted.name.clone(),
                passed: ran.passed,
                output,
                duration_ms: u64::try_from(ran.duration.as_millis()).unwrap_or(u64::MAX),
            });
        }
        // Empty by now; if not, the next start-up tidies it.
        let _ = std::fs::remove_dir(&dir);
        Ok(results)
    }
}
