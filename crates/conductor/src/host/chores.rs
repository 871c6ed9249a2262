//! Git chores of a mission: its branch, its candidates, its delivery.

use kapelle_core::command::{AdvanceOutcome, CandidateOutcome, DeliveryOutcome};
use kapelle_core::{Command, Commit, Fence};
use kapelle_workspace::candidate::{self, Candidate};
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

    pub(super) async fn build_candidate(
        &self,
        fence: Fence,
        message: &str,
        onto: &Commit,
        change: &Commit,
    ) -> Result<Command, Trouble> {
        let built = candidate::build(&self.repo, onto, change, message, &[]).await?;
        let outcome = match built {
            Candidate::Built(commit) => CandidateOutcome::Built(commit),
            Candidate::AlreadyThere => CandidateOutcome::Built(onto.clone()),
            Candidate::Conflict { paths } => CandidateOutcome::Conflict { paths },
        };
        Ok(Command::FinishCandidate { fence, outcome })
    }

    pub(super) async fn advance_branch(
        &self,
        fence: Fence,
        branch: &str,
        from: &Commit,
        to: &Commit,
    ) -> Result<Command, Trouble> {
        let outcome = match self.repo.advance(branch, from, to).await? {
            Advance::Advanced => AdvanceOutcome::Advanced,
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
