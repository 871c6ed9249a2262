//! Chores: branch, checks, delivery, and what follows from each. Merging has its own file.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::decide::Decision;
use super::failure::Blow;
use super::{State, gate};
use crate::command::{Before, CheckNews, CheckResult, DeliveryOutcome};
use crate::escalation::Trouble;
use crate::event::{Chore, Event, PauseReason, Restart};
use crate::failure::{Failure, FailureKind};
use crate::flow::Expectation;
use crate::gates::Mock;
use crate::ids::{Actor, Commit, Fence, TaskId};
use crate::limits;
use crate::mission::{Mission, MissionStage};
use crate::policy::Check;
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
        let (mission, chore) = self.chore_or_refuse(fence)?;
        let mission = self.mission_or_refuse(mission)?;
        // Silence about a check is neither a pass nor the failure that a red phase wants to see.
        let told = |name: &str| results.iter().any(|result| result.name == name);
        let checks = self.checks_of(mission, chore);
        if let Some(missing) = checks.iter().find(|check| !told(&check.name)) {
            let message = format!("the host reported no result of the check {}", missing.name);
            return self.fail_chore(fence, &Failure::new(FailureKind::AgentError, &message), now);
        }
        match chore {
            Chore::Gate(task) => self.judge_gate(task, fence, results, now),
            // Compared with what the journal keeps of the branch itself, so only as much of them.
            _ => {
                let kept = results.iter().map(|result| bounded(result, &BTreeSet::new()));
                self.finish_queue_checks(fence, kept.collect(), now)
            }
        }
    }

    /// What people should hear of a check before it ends.
    pub(super) fn note_check(&self, fence: Fence, check: &str, news: CheckNews) -> Decision {
        let (mission, chore) = self.chore_or_refuse(fence)?;
        let known = self.checks_of(self.mission_or_refuse(mission)?, chore);
        if !known.iter().any(|one| one.name == check) {
            return Err(Refusal::OtherFence { presented: fence, expected: "checks" });
        }
        Ok(vec![Event::CheckNoted { mission, fence, check: check.to_owned(), news }])
    }

    /// What the chore has to run; nothing if it does not check anything.
    fn checks_of<'a>(&self, mission: &'a Mission, chore: Chore) -> Cow<'a, [Check]> {
        let policy = &mission.policy;
        match chore {
            Chore::Gate(task) => {
                self.task(task).map(|task| gate::checks(task, policy)).unwrap_or_default().into()
            }
            Chore::LaneTest(_) | Chore::Baseline(_) => (&policy.checks).into(),
            _ => Cow::default(),
        }
    }

    fn judge_gate(
        &self,
        id: TaskId,
        fence: Fence,
        results: &[CheckResult],
        now: Timestamp,
    ) -> Decision {
        let wrong = Refusal::OtherFence { presented: fence, expected: "checks" };
        let (task, mission) = self.task_or_refuse(id)?;
        let Stage::Gating { change } = &task.stage else { return Err(wrong) };
        let commit = change.clone();
        let phase = task.phase(&mission.policy);
        let expects = gate::expects(task, &mission.policy);
        let verdict = gate::judge(task, &mission.policy, self.tests.quarantine(), results);
        let named = gate::named_tests(task);
        let results = results.iter().map(|result| bounded(result, &named)).collect();
        let mut events =
            vec![Event::ChecksFinished { task: id, fence, commit: commit.clone(), results }];
        events.extend(match (verdict, phase) {
            (Ok(()), Some(phase)) => {
                let asked = self.ask_to_merge((task, mission), (&commit, &[]), now);
                let accepted = Event::PhaseAccepted { task: id, phase, change: commit };
                asked.into_iter().chain([accepted]).collect()
            }
            (Ok(()), None) => Vec::new(),
            (Err(failure), _) => {
                // Tests that say no are for the loop of fixing; tests that test nothing are not.
                let trouble = match (expects, failure.kind) {
                    (Expectation::AllChecksPass, FailureKind::ValidationFailed) => {
                        Trouble::TestsFail
                    }
                    _ => Trouble::Failure(failure.kind),
                };
                let from = Restart::Phase;
                let blow = Blow { task: id, ended: fence, failure: &failure, trouble, from };
                let then = self.meet(&blow, now);
                let mut events = vec![Event::ChangeRejected { task: id, failure }];
                events.extend(then);
                events
            }
        });
        Ok(events)
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
        let failure = failure.bounded();
        if failures < CHORE_FAILURES_MAX {
            let kind = FailureKind::AgentError;
            let wait = mission.policy.retry.delay_ms(kind, subject(chore), failures);
            let retry_at = Some(now.plus_ms(wait.max(1)));
            return Ok(vec![Event::ChoreFailed { fence, failure, retry_at }]);
        }
        Ok(self.give_up(fence, mission, &failure))
    }

    /// Trying again cannot help: a person has to look.
    pub(super) fn give_up(&self, fence: Fence, mission: &Mission, failure: &Failure) -> Vec<Event> {
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
        | Chore::Advance(task)
        | Chore::Rebase(task)
        | Chore::Revert(task) => task,
        Chore::Baseline(mission) => TaskId(mission.0),
        Chore::LaneBuild(lane) | Chore::LaneTest(lane) | Chore::LaneLand(lane) => {
            TaskId(u32::try_from(lane.0).unwrap_or(u32::MAX))
        }
    }
}

/// What the journal keeps of a result. Nobody judges by it what can be judged by the whole.
fn bounded(result: &CheckResult, named: &BTreeSet<String>) -> CheckResult {
    let mut matters: BTreeSet<&str> = named.iter().map(String::as_str).collect();
    let earlier = result.before.as_ref().and_then(|before| before.outcome.as_ref());
    if let (Some(now), Some(earlier)) = (result.outcome.as_deref(), earlier) {
        matters.extend(now.unlike(earlier));
    }
    let before = |before: &Before| Before {
        passed: before.passed,
        outcome: before.outcome.as_ref().map(|outcome| outcome.kept(&matters)),
    };
    CheckResult {
        name: result.name.clone(),
        passed: result.passed,
        output: limits::tail(&result.output, limits::FAILURE_CHARS_MAX).to_owned(),
        duration_ms: result.duration_ms,
        cut_short: result.cut_short,
        outcome: result.outcome.as_ref().map(|outcome| Box::new(outcome.kept(&matters))),
        before: result.before.as_ref().map(|run| Box::new(before(run))),
        earlier: result.earlier.as_ref().map(|run| Box::new(before(run))),
        mocks: result.mocks.iter().take(limits::OBJECTIONS_MAX).map(Mock::bounded).collect(),
    }
}
