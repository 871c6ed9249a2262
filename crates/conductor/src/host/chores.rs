//! Git chores of a mission: its branch, its lanes, its delivery, and what is taken back.

use kapelle_core::command::{AdvanceOutcome, DeliveryOutcome, LaneOutcome, RewriteOutcome};
use kapelle_core::effect::Merge;
use kapelle_core::merge::Step;
use kapelle_core::rollback::Revert;
use kapelle_core::{Command, Commit, Fence, MissionId};
use kapelle_workspace::candidate::{self, Candidate};
use kapelle_workspace::rewrite::{self, Reversal, Rewrite};
use kapelle_workspace::{Advance, Delivery};

use super::{Host, Trouble};

impl Host {
    pub(super) async fn prepare_branch(
        &self,
        fence: Fence,
        branch: &str,
        base: &Commit,
    ) -> Result<Command, Trouble> {
        self.repo.create_branch(branch, base).await?;
        Ok(Command::FinishBranch { fence, tip: base.clone() })
    }

    /// One change on top of the other, each as a merge of its own, so that each can be taken back.
    pub(super) async fn build_lane(
        &self,
        fence: Fence,
        mission: MissionId,
        onto: &Commit,
        changes: &[Merge],
    ) -> Result<Command, Trouble> {
        let (mut at, mut steps) = (onto.clone(), Vec::new());
        for merge in changes {
            let Merge { task, change, .. } = merge;
            // A branch to look at; the change itself is held.
            let _not_shown = self.repo.follow_subtask(mission, *task, change).await;
            match candidate::build(&self.repo, &at, change, &merge.message(), &[]).await? {
                Candidate::Built(commit) => at = commit,
                Candidate::AlreadyThere => {}
                Candidate::Conflict { paths } => {
                    let outcome = LaneOutcome::Conflict { task: *task, paths };
                    return Ok(Command::FinishLane { fence, outcome });
                }
            }
            steps.push(Step { task: *task, commit: at.clone() });
        }
        Ok(Command::FinishLane { fence, outcome: LaneOutcome::Built(steps) })
    }

    pub(super) async fn rebase(
        &self,
        fence: Fence,
        change: &Commit,
        onto: &Commit,
    ) -> Result<Command, Trouble> {
        self.rewritten(fence, rewrite::rebase(&self.repo, change, onto).await?).await
    }

    pub(super) async fn revert(
        &self,
        fence: Fence,
        onto: &Commit,
        reverts: &[Revert],
    ) -> Result<Command, Trouble> {
        let reversal = |revert: &Revert| {
            let (before, message) = (revert.onto.clone(), revert.message.clone());
            let after = revert.commits.first()?.clone();
            Some(Reversal { before, after, message })
        };
        let reversals: Vec<Reversal> = reverts.iter().filter_map(reversal).collect();
        self.rewritten(fence, rewrite::revert(&self.repo, onto, &reversals).await?).await
    }

    /// Held under a hidden reference: until it lands, no branch has it.
    async fn rewritten(&self, fence: Fence, rewritten: Rewrite) -> Result<Command, Trouble> {
        let outcome = match rewritten {
            Rewrite::Conflict { paths } => RewriteOutcome::Conflict { paths },
            Rewrite::Written { commit: change, touched } => {
                self.repo.hold(&format!("rewritten/{fence}"), &change).await?;
                RewriteOutcome::Written { change, touched: touched.into() }
            }
        };
        Ok(Command::FinishRewrite { fence, outcome })
    }

    pub(super) async fn advance_branch(
        &self,
        fence: Fence,
        (mission, branch): (MissionId, &str),
        from: &Commit,
        to: &Commit,
    ) -> Result<Command, Trouble> {
        let outcome = match self.repo.advance(branch, from, to).await? {
            Advance::Advanced => {
                // Branches that are left over are a matter of looks.
                let _left_over = self.repo.remove_landed_subtasks(mission, (from, to)).await;
                AdvanceOutcome::Advanced
            }
            Advance::Moved { actual: Some(actual) } => {
                match self.repo.is_ancestor(from, &actual).await? {
                    true => AdvanceOutcome::Moved { actual },
                    false => AdvanceOutcome::Lost { actual },
                }
            }
            Advance::Moved { actual: None } => return Err(Trouble::BranchGone(branch.to_owned())),
        };
        Ok(Command::FinishAdvance { fence, outcome })
    }

    pub(super) async fn deliver(
        &self,
        fence: Fence,
        target: &str,
        commit: &Commit,
    ) -> Result<Command, Trouble> {
        let outcome = match self.repo.deliver(target, commit).await? {
            Delivery::Delivered => DeliveryOutcome::Delivered,
            Delivery::Refused { reason } => DeliveryOutcome::Refused { reason },
        };
        Ok(Command::FinishDelivery { fence, outcome })
    }
}
