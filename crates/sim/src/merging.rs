//! What hosts and people do about merging: lanes, rebases, reversals.

use kapelle_core::command::{LaneOutcome, RewriteOutcome};
use kapelle_core::effect::Merge;
use kapelle_core::engine::Rules;
use kapelle_core::merge::Step;
use kapelle_core::rollback::Revert;
use kapelle_core::task::Stage;
use kapelle_core::{Actor, Command, Commit, TaskId};

use crate::agenda::Sender;
use crate::oracle::ensure;
use crate::repository::Passed;
use crate::world::World;

impl<R: Rules + Clone> World<R> {
    /// One change on top of the other.
    pub(crate) fn build_lane(&mut self, onto: &Commit, changes: &[Merge]) -> LaneOutcome {
        let (mut at, mut steps) = (onto.clone(), Vec::new());
        for Merge { task, change, .. } in changes {
            match self.merge(&at, change) {
                Some(commit) => at = commit,
                None => {
                    return LaneOutcome::Conflict { task: *task, paths: vec!["src/a".into()] };
                }
            }
            steps.push(Step { task: *task, commit: at.clone() });
        }
        LaneOutcome::Built(steps)
    }

    /// None if the two conflict.
    fn merge(&mut self, onto: &Commit, change: &Commit) -> Option<Commit> {
        if self.repo.is_ancestor(change, onto) {
            return Some(onto.clone());
        }
        if self.repo.is_ancestor(onto, change) {
            return Some(change.clone());
        }
        if self.strikes(|f| f.conflict) {
            return None;
        }
        let both = self.repo.passes(onto) && self.repo.passes(change);
        let passes = both && !self.strikes(|f| f.clash);
        Some(self.repo.commit(&[onto, change], Passed::from(passes)))
    }

    pub(crate) fn rebase(&mut self, change: &Commit, onto: &Commit) -> RewriteOutcome {
        if self.strikes(|f| f.conflict) {
            return RewriteOutcome::Conflict { paths: vec!["src/a".into()] };
        }
        let passes = self.repo.passes(onto) && self.repo.passes(change);
        let change = self.repo.commit(&[onto], Passed::from(passes));
        RewriteOutcome::Written {
            change,
            touched: vec![format!("src/{}", self.rng.u8(0..4))].into(),
        }
    }

    pub(crate) fn revert(
        &mut self,
        onto: &Commit,
        reverts: &[Revert],
    ) -> Result<RewriteOutcome, String> {
        let mut at = onto.clone();
        for revert in reverts {
            ensure(
                revert.commits.iter().all(|commit| self.repo.is_ancestor(commit, onto)),
                || format!("{:?} is to be reversed, but it is not on the branch", revert.task),
            )?;
            if self.strikes(|f| f.conflict) {
                return Ok(RewriteOutcome::Conflict { paths: vec!["src/a".into()] });
            }
            let passes = self.repo.passes(&at) && !self.strikes(|f| f.clash);
            at = self.repo.commit(&[&at], Passed::from(passes));
        }
        Ok(RewriteOutcome::Written { change: at, touched: vec!["src/0".into()].into() })
    }

    /// Somebody wants a task of some mission taken back, alone or with all that hangs on it.
    pub(crate) fn take_back(&mut self) {
        // Mostly one that can be.
        let any = self.rng.u8(0..4) == 0;
        let tasks = self.engine.state().tasks();
        let tasks = tasks.filter(|task| any || task.stage == Stage::Done);
        let tasks: Vec<TaskId> = tasks.map(|task| task.id).collect();
        if tasks.is_empty() {
            return;
        }
        let task = tasks[self.rng.usize(0..tasks.len())];
        let (reason, by) = ("it was wrong".to_owned(), Actor("ada".into()));
        let command = if self.rng.bool() {
            Command::RollbackTask { task, reason, by }
        } else {
            let state = self.engine.state();
            let mission = state.task(task).and_then(|task| state.mission(task.mission));
            let cascade = mission.and_then(|mission| mission.landings().cascade(task).ok());
            let tasks = cascade.map(|cascade| cascade.reverts).unwrap_or_default();
            let tasks = tasks.iter().map(|revert| revert.task).collect();
            Command::ConfirmRollback { task, tasks, reason, by }
        };
        let delay_ms = if self.rng.bool() { 0 } else { self.rng.u64(0..8_000) };
        self.arrive(Sender::Person, delay_ms, command);
    }
}
