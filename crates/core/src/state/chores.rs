//! Chores: branch, checks, candidate, advance, delivery, and what follows from each.

use super::State;
use super::decide::Decision;
use super::failure::Blow;
use crate::command::{AdvanceOutcome, CandidateOutcome, CheckResult, DeliveryOutcome};
use crate::escalation::Trouble;
use crate::event::{Chore, Event, PauseReason, Restart};
use crate::failure::{Failure, FailureKind};
use crate::flow::Expectation;
use crate::ids::{Actor, Commit, Fence, TaskId};
use crate::limits;
use crate::mission::{Mission, MissionStage};
use crate::refusal::Refusal;
use crate::task::Stage;
use crate::time::Timestamp;

/// After this many failed chores in a row the trouble is not passing, and a person should look.
const CHORE_FAILURES_MAX: u32 = 5;

impl State {
    pub(super) fn finish_branch(&self, fence: Fence, tip: &Commit) -> Decision {
        match self.chore_or_refuse(fence)? {
            (mission, Chore::Branch(_)) => {
                Ok(vec![Event::BranchPrepared { mission, fence, tip: tip.clone() }])
            }
            _ => Err(Refusal::OtherFence { presented: fence, expected: "a branch" }),
        }
    }

    pub(super) fn finish_checks(
        &self,
        fence: Fence,
        results: &[CheckResult],
        now: Timestamp,
    ) -> Decision {
        let (_, chore) = self.chore_or_refuse(fence)?;
        let wrong = Refusal::OtherFence { presented: fence, expected: "checks" };
        let (Chore::Gate(id) | Chore::CandidateChecks(id)) = chore else { return Err(wrong) };
        let (task, mission) = self.task_or_refuse(id)?;
        let commit = match &task.stage {
            Stage::Gating { change } => change.clone(),
            Stage::Merging { candidate: Some(candidate), .. } => candidate.clone(),
            _ => return Err(wrong),
        };
        let bounded = |result: &CheckResult| CheckResult {
            output: limits::tail(&result.output, limits::FAILURE_CHARS_MAX).to_owned(),
            ..result.clone()
        };
        let results: Vec<CheckResult> = results.iter().map(bounded).collect();
        // Silence about a check is neither a pass nor the failure that a red phase wants to see.
        let told = |name: &str| results.iter().any(|result| result.name == name);
        if let Some(missing) = mission.policy.checks.iter().find(|check| !told(&check.name)) {
            let message = format!("the host reported no result of the check {}", missing.name);
            return self.fail_chore(fence, &Failure::new(FailureKind::AgentError, &message), now);
        }
        let expectation = match chore {
            Chore::Gate(_) => task.phase(&mission.policy).map(crate::flow::Phase::expects),
            _ => None,
        };
        let expectation = expectation.unwrap_or(Expectation::AllChecksPass);
        let verdict = judge(expectation, &results);
        let mut events =
            vec![Event::ChecksFinished { task: id, fence, commit: commit.clone(), results }];
        events.extend(match (verdict, chore) {
            (Ok(()), Chore::Gate(_)) => match task.phase(&mission.policy) {
                Some(phase) => vec![Event::PhaseAccepted { task: id, phase, change: commit }],
                None => Vec::new(),
            },
            (Ok(()), _) => vec![Event::CandidatePassed { task: id, candidate: commit }],
            (Err(failure), chore) => {
                let from = if chore == Chore::Gate(id) { Restart::Phase } else { Restart::Flow };
                // Tests that say no are for the loop of fixing; tests that test nothing are not.
                let trouble = match expectation {
                    Expectation::AllChecksPass => Trouble::TestsFail,
                    Expectation::SomeCheckFails => Trouble::Failure(failure.kind),
                };
                let blow = Blow { task: id, ended: fence, failure: &failure, trouble, from };
                let then = self.meet(&blow, now);
                let mut events = vec![Event::ChangeRejected { task: id, failure }];
                events.extend(then);
                events
            }
        });
        Ok(events)
    }

    pub(super) fn finish_candidate(
        &self,
        fence: Fence,
        outcome: &CandidateOutcome,
        now: Timestamp,
    ) -> Decision {
        let (_, chore) = self.chore_or_refuse(fence)?;
        let Chore::Candidate(id) = chore else {
            return Err(Refusal::OtherFence { presented: fence, expected: "a candidate" });
        };
        let (task, mission) = self.task_or_refuse(id)?;
        Ok(match outcome {
            CandidateOutcome::Built(candidate) => {
                let candidate = candidate.clone();
                let mut events =
                    vec![Event::CandidateBuilt { task: id, fence, candidate: candidate.clone() }];
                // The gate may have checked this very commit already.
                let seen = task.checked.as_ref() == Some(&candidate);
                if seen || mission.policy.checks.is_empty() {
                    events.push(Event::CandidatePassed { task: id, candidate });
                }
                events
            }
            CandidateOutcome::Conflict { paths } => {
                let message = format!("it conflicts with what others merged: {}", paths.join(", "));
                let failure = Failure::new(FailureKind::GitConflict, &message);
                let trouble = Trouble::Failure(failure.kind);
                let from = Restart::Flow;
                let blow = Blow { task: id, ended: fence, failure: &failure, trouble, from };
                let then = self.meet(&blow, now);
                let mut events = vec![Event::CandidateRejected { task: id, fence, failure }];
                events.extend(then);
                events
            }
        })
    }

    pub(super) fn finish_advance(
        &self,
        fence: Fence,
        outcome: &AdvanceOutcome,
        now: Timestamp,
    ) -> Decision {
        let (_, chore) = self.chore_or_refuse(fence)?;
        let wrong = Refusal::OtherFence { presented: fence, expected: "an advance" };
        let Chore::Advance(id) = chore else { return Err(wrong) };
        let (task, mission) = self.task_or_refuse(id)?;
        let Stage::Merging { candidate: Some(commit), checked: true } = &task.stage else {
            return Err(wrong);
        };
        Ok(match outcome {
            AdvanceOutcome::Lost { actual } => {
                let tip = mission.tip.as_ref().map_or("nothing", |tip| tip.short());
                let branch = &mission.branch;
                let message = format!(
                    "{branch} was moved to {}, without what was merged; put it back with \
                     `git branch -f {branch} {tip}`",
                    actual.short(),
                );
                self.give_up(fence, mission, &Failure::new(FailureKind::GitConflict, &message))
            }
            AdvanceOutcome::Moved { actual } => {
                vec![Event::BranchMoved { task: id, fence, actual: actual.clone() }]
            }
            AdvanceOutcome::Advanced => {
                let commit = commit.clone();
                let merged = Event::TaskMerged { task: id, fence, commit: commit.clone(), at: now };
                let mut events = vec![merged];
                if mission.counts.completed + 1 == mission.total() {
                    events.push(Event::DeliveryProposed { mission: mission.id, commit });
                }
                events
            }
        })
    }

    pub(super) fn finish_delivery(
        &self,
        fence: Fence,
        outcome: &DeliveryOutcome,
        now: Timestamp,
    ) -> Decision {
        let wrong = Refusal::OtherFence { presented: fence, expected: "a delivery" };
        let (id, Chore::Delivery(_)) = self.chore_or_refuse(fence)? else { return Err(wrong) };
        let mission = self.mission_or_refuse(id)?;
        let MissionStage::Approved { commit, .. } = &mission.stage else { return Err(wrong) };
        Ok(vec![match outcome {
            DeliveryOutcome::Delivered => {
                Event::MissionDelivered { mission: id, fence, commit: commit.clone(), at: now }
            }
            DeliveryOutcome::Refused { reason } => {
                let reason = limits::tail(reason, limits::REASON_CHARS_MAX).to_owned();
                Event::DeliveryRefused { mission: id, fence, reason }
            }
        }])
    }

    pub(super) fn fail_chore(&self, fence: Fence, failure: &Failure, now: Timestamp) -> Decision {
        let (id, chore) = self.chore_or_refuse(fence)?;
        let mission = self.mission_or_refuse(id)?;
        let failures = mission.chore_failures + 1;
        let failure = Failure::new(failure.kind, &failure.message);
        if failures < CHORE_FAILURES_MAX {
            let kind = FailureKind::AgentError;
            let wait = mission.policy.retry.delay_ms(kind, subject(chore), failures);
            let retry_at = Some(now.plus_ms(wait.max(1)));
            return Ok(vec![Event::ChoreFailed { fence, failure, retry_at }]);
        }
        Ok(self.give_up(fence, mission, &failure))
    }

    /// Trying again cannot help: a person has to look.
    fn give_up(&self, fence: Fence, mission: &Mission, failure: &Failure) -> Vec<Event> {
        let reason = PauseReason::Environment { message: failure.message.clone() };
        let failure = failure.clone();
        let mut events = vec![Event::ChoreFailed { fence, failure, retry_at: None }];
        events.extend(self.pause_for(mission, reason, Actor::kapelle(), Some(fence)));
        events
    }
}

/// A number to spread waits by.
fn subject(chore: Chore) -> TaskId {
    match chore {
        Chore::Branch(mission) | Chore::Delivery(mission) => TaskId(mission.0),
        Chore::Gate(task)
        | Chore::Candidate(task)
        | Chore::CandidateChecks(task)
        | Chore::Advance(task) => task,
    }
}

fn judge(expectation: Expectation, results: &[CheckResult]) -> Result<(), Failure> {
    let failed: Vec<&CheckResult> = results.iter().filter(|result| !result.passed).collect();
    let invalid = |message: &str| Err(Failure::new(FailureKind::ValidationFailed, message));
    match expectation {
        Expectation::AllChecksPass if failed.is_empty() => Ok(()),
        Expectation::SomeCheckFails if !failed.is_empty() => Ok(()),
        Expectation::SomeCheckFails => {
            invalid("all checks passed, but the new tests have to fail before the work is done")
        }
        Expectation::AllChecksPass => {
            let told = |r: &&CheckResult| format!("check {} failed:\n{}", r.name, r.output.trim());
            invalid(&failed.iter().map(told).collect::<Vec<_>>().join("\n"))
        }
    }
}
