//! The merge queue at work: what follows when a lane is built, tested or landed.
//!
//! The queue itself (`crate::merge`) says what should happen to whom; this is where hosts' answers
//! meet it. An answer to something that the queue no longer wants is refused as stale.

use super::approvals::told_of;
use super::decide::Decision;
use super::failure::Blow;
use super::gate::Blamed;
use super::{State, gate};
use crate::command::{AdvanceOutcome, CheckResult, LaneOutcome, RewriteOutcome};
use crate::council::Outcome;
use crate::effect::Effect;
use crate::escalation::Trouble;
use crate::event::{Event, Restart};
use crate::failure::{Failure, FailureKind};
use crate::ids::{Commit, Fence, TaskId};
use crate::limits;
use crate::merge::{AfterConflict, AfterTests, LaneId, MergeQueue, Step, TestReport};
use crate::mission::Mission;
use crate::refusal::Refusal;
use crate::report::Question;
use crate::task::Stage;
use crate::time::Timestamp;

impl State {
    pub(super) fn finish_lane(
        &self,
        fence: Fence,
        outcome: &LaneOutcome,
        now: Timestamp,
    ) -> Decision {
        let (mission, queue) = self.merging_or_refuse(fence, "a lane")?;
        let Some(Effect::BuildLane { lane, onto, changes, .. }) = self.due.get(fence) else {
            return Err(Refusal::OtherFence { presented: fence, expected: "a lane" });
        };
        match outcome {
            LaneOutcome::Built(steps) => {
                let asked = changes.iter().map(|merge| merge.task);
                if !asked.eq(steps.iter().map(|step| step.task)) {
                    let message = "the host built other changes than it was asked to";
                    let failure = Failure::new(FailureKind::AgentError, message);
                    return self.fail_chore(fence, &failure, now);
                }
                Ok(self.lane_built(mission, fence, *lane, onto, steps))
            }
            LaneOutcome::Conflict { task, paths } => {
                let stale = Refusal::StaleFence { presented: fence };
                let next = queue.after_conflict(*lane, onto, *task).map_err(|_| stale)?;
                Ok(self.conflicted(*task, fence, (onto, paths), next, now))
            }
        }
    }

    fn lane_built(
        &self,
        mission: &Mission,
        fence: Fence,
        lane: LaneId,
        onto: &Commit,
        steps: &[Step],
    ) -> Vec<Event> {
        let (id, onto) = (mission.id, onto.clone());
        let mut events = Vec::with_capacity(2);
        events.push(Event::LaneBuilt { mission: id, fence, lane, onto, steps: steps.to_vec() });
        // The gate may have checked this very commit already.
        let seen = match steps {
            [only] => {
                self.task(only.task).is_some_and(|t| t.checked.as_deref() == Some(&only.commit))
            }
            _ => false,
        };
        if let (true, Some(last)) = (seen || mission.policy.checks.is_empty(), steps.last()) {
            events.push(Event::LanePassed { mission: id, lane, candidate: last.commit.clone() });
        }
        events
    }

    /// The checks of a candidate, or of the branch itself, have run.
    pub(super) fn finish_queue_checks(
        &self,
        fence: Fence,
        results: Vec<CheckResult>,
        now: Timestamp,
    ) -> Decision {
        let (mission, queue) = self.merging_or_refuse(fence, "checks")?;
        match self.due.get(fence) {
            Some(Effect::MeasureBaseline { commit, .. }) => {
                let (mission, commit) = (mission.id, commit.clone());
                Ok(vec![Event::BaselineMeasured { mission, fence, commit, results }])
            }
            Some(Effect::TestLane { lane, candidate, .. }) => {
                let failed = gate::failing(&mission.policy, self.tests.quarantine(), &results);
                let report = TestReport { failed };
                let stale = Refusal::StaleFence { presented: fence };
                let verdict = queue.after_tests(*lane, candidate, &report).map_err(|_| stale)?;
                let consequences = self.after_verdict(mission, fence, &verdict, &results, now);
                let mut events = vec![Event::LaneTested {
                    mission: mission.id,
                    fence,
                    lane: *lane,
                    candidate: candidate.clone(),
                    results,
                    verdict,
                }];
                events.extend(consequences);
                Ok(events)
            }
            _ => Err(Refusal::OtherFence { presented: fence, expected: "checks" }),
        }
    }

    fn after_verdict(
        &self,
        mission: &Mission,
        fence: Fence,
        verdict: &AfterTests,
        results: &[CheckResult],
        now: Timestamp,
    ) -> Vec<Event> {
        let AfterTests::Blamed { culprit, failed, .. } = verdict else { return Vec::new() };
        let blamed = |result: &'_ CheckResult| {
            let alone = std::slice::from_ref(result);
            let own = gate::failing(&mission.policy, self.tests.quarantine(), alone);
            own.into_iter().filter(|name| failed.contains(name)).collect::<Vec<String>>()
        };
        let failures = results.iter().map(|result| Blamed { result, names: blamed(result) });
        let failures: Vec<Blamed<'_>> = failures.filter(|one| !one.names.is_empty()).collect();
        let failure = gate::failed_checks(&failures);
        if mission.merging.rollbacks.contains_key(culprit) {
            return self.rollback_failed(mission, *culprit, &failure.message, now);
        }
        let (task, trouble, from) = (*culprit, Trouble::TestsFail, Restart::Flow);
        let blow = Blow { task, ended: fence, failure: &failure, trouble, from };
        let then = self.meet(&blow, now);
        let mut events = vec![Event::ChangeRejected { task, failure }];
        events.extend(then);
        events
    }

    pub(super) fn finish_rewrite(
        &self,
        fence: Fence,
        outcome: &RewriteOutcome,
        now: Timestamp,
    ) -> Decision {
        let (mission, _) = self.merging_or_refuse(fence, "a rewrite")?;
        let (task, onto) = match self.due.get(fence) {
            Some(
                Effect::RebaseChange { task, onto, .. } | Effect::BuildRevert { task, onto, .. },
            ) => (*task, onto),
            _ => return Err(Refusal::OtherFence { presented: fence, expected: "a rewrite" }),
        };
        Ok(match outcome {
            RewriteOutcome::Conflict { paths } => {
                self.conflicted(task, fence, (onto, paths), AfterConflict::AskPerson, now)
            }
            RewriteOutcome::Written { change, .. }
                if mission.merging.rollbacks.contains_key(&task) =>
            {
                vec![Event::RevertBuilt { task, fence, change: change.clone() }]
            }
            RewriteOutcome::Written { change, touched } => {
                let rebased = self
                    .task(task)
                    .and_then(|task| self.ask_to_merge((task, mission), (change, touched), now));
                let (change, touched) = (change.clone(), told_of(mission, touched));
                let event = Event::ChangeRebased { task, fence, change, touched };
                [event].into_iter().chain(rebased).collect()
            }
        })
    }

    fn conflicted(
        &self,
        task: TaskId,
        fence: Fence,
        (onto, paths): (&Commit, &[String]),
        next: AfterConflict,
        now: Timestamp,
    ) -> Vec<Event> {
        let paths = bounded(paths);
        let asks = next == AfterConflict::AskPerson;
        let mission = self.task(task).and_then(|task| self.mission(task.mission));
        let reverts = mission.filter(|m| m.merging.rollbacks.contains_key(&task));
        let question = (asks && reverts.is_none())
            .then(|| self.both_sides(task, fence, onto, &paths))
            .flatten();
        let message = format!("it conflicts with what others merged: {}", paths.join(", "));
        let onto = onto.clone();
        let mut events = vec![Event::ChangeConflicted { task, fence, onto, paths, next, question }];
        if let (true, Some(mission)) = (asks, reverts) {
            events.extend(self.rollback_failed(mission, task, &message, now));
        }
        events
    }

    /// The question to a person (GIT-19): what is on either side, and what an answer does.
    fn both_sides(
        &self,
        id: TaskId,
        fence: Fence,
        onto: &Commit,
        paths: &[String],
    ) -> Option<Question> {
        let task = self.task(id)?;
        let mission = self.mission(task.mission)?;
        let change = task.accepted.as_ref().map_or("?", |change| change.short());
        let about = format!(
            "the change {change} of task {} conflicts with {} at {} in {}",
            task.name(),
            mission.branch,
            onto.short(),
            paths.join(", "),
        );
        // A long list is cut; what to do about it is not.
        let about = limits::head(&about, limits::QUESTION_CHARS_MAX / 3);
        let message = format!(
            "{about}, also after a rebase; how shall they go together? The task starts over on the \
             branch, with your answer. Both sides (- the branch, + the change): git diff {} {change} --{}",
            onto.short(),
            path_words(paths, limits::QUESTION_CHARS_MAX / 2),
        );
        let options = vec!["start over".to_owned()];
        Some(Question { message, resume_id: format!("conflict-{fence}"), options })
    }

    pub(super) fn finish_advance(
        &self,
        fence: Fence,
        outcome: &AdvanceOutcome,
        now: Timestamp,
    ) -> Decision {
        let (mission, queue) = self.merging_or_refuse(fence, "an advance")?;
        let Some(Effect::LandLane { lane, to, .. }) = self.due.get(fence) else {
            return Err(Refusal::OtherFence { presented: fence, expected: "an advance" });
        };
        queue.landing(*lane).map_err(|_| Refusal::StaleFence { presented: fence })?;
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
                vec![Event::TargetMoved { mission: mission.id, fence, actual: actual.clone() }]
            }
            AdvanceOutcome::Advanced => self.landed(mission, queue, fence, (*lane, to), now),
        })
    }

    /// Everything that a lane brings to the branch, in its order, and what that completes.
    fn landed(
        &self,
        mission: &Mission,
        queue: &MergeQueue,
        fence: Fence,
        (lane, commit): (LaneId, &Commit),
        now: Timestamp,
    ) -> Vec<Event> {
        let commit = commit.clone();
        let brings = queue.brings(lane);
        let mut events = Vec::with_capacity(brings.len() + 1);
        events.push(Event::LaneLanded { mission: mission.id, fence, lane, commit: commit.clone() });
        let mut counts = mission.counts;
        let mut rolling = mission.merging.rollbacks.len();
        for (task, before, commit) in brings {
            let Some(taken_back) = mission.merging.rollbacks.get(&task) else {
                let onto = Some(before);
                events.push(Event::TaskMerged { task, fence, commit, onto, at: now });
                let landed = self.task(task).map(|task| self.resolved(task, Outcome::Success));
                events.extend(landed.into_iter().flatten());
                counts.completed += 1;
                continue;
            };
            rolling -= 1;
            for task in taken_back {
                let commit = commit.clone();
                events.push(Event::TaskRolledBack { task: *task, commit, at: now });
                counts.completed = counts.completed.saturating_sub(1);
                counts.rolled_back += 1;
            }
        }
        if rolling == 0 && mission.is_complete(&counts) {
            events.push(Event::DeliveryProposed { mission: mission.id, commit });
        }
        events
    }

    /// The mission that the fence of a chore works for, and its queue. Refused if the chore is not
    /// what the queue wants any more, though nobody has stopped it yet.
    fn merging_or_refuse(
        &self,
        fence: Fence,
        expected: &'static str,
    ) -> Result<(&Mission, &MergeQueue), Refusal> {
        let (id, chore) = self.chore_or_refuse(fence)?;
        let mission = self.mission_or_refuse(id)?;
        if mission.merging.stale.contains(&fence) {
            return Err(Refusal::StaleFence { presented: fence });
        }
        match &mission.merging.queue {
            Some(queue) if chore.is_of_queue() => Ok((mission, queue)),
            Some(_) | None => Err(Refusal::OtherFence { presented: fence, expected }),
        }
    }

    /// What the merge queues want to change: what is no longer wanted is withdrawn first, then
    /// lanes are formed.
    pub(super) fn next_merge(&self) -> Option<Event> {
        let mission = self.mission(*self.with_merges.first()?)?;
        if let Some(&fence) = mission.merging.stale.first() {
            return Some(Event::ChoreWithdrawn { fence });
        }
        let plan = mission.merging.planned.first()?.clone();
        let lane = mission.merging.queue.as_ref()?.next_lane();
        let (members, behind) = (plan.members, plan.behind);
        Some(Event::LaneFormed { mission: mission.id, lane, members, behind })
    }

    /// Whether the task's change is in the merge queue.
    pub(super) fn is_merging(stage: &Stage) -> bool {
        matches!(stage, Stage::Queued | Stage::Merging { .. })
    }
}

/// As many of these paths as have room, as words for git in a shell.
fn path_words(paths: &[String], bytes_max: usize) -> String {
    let mut words = String::new();
    for path in paths {
        let word = path_word(path);
        if words.len() + 1 + word.len() > bytes_max {
            break;
        }
        words = format!("{words} {word}");
    }
    words
}

/// One word for a shell: names of files are the agent's, and people paste what they are told. It
/// means the same in every folder of the repository. What cannot be shown is matched by a star.
fn path_word(path: &str) -> String {
    let shown = |c: char| if c.is_control() || c == char::REPLACEMENT_CHARACTER { '*' } else { c };
    let path: String = path.chars().map(shown).collect();
    format!("':(top){}'", path.replace('\'', r"'\''"))
}

fn bounded(paths: &[String]) -> Vec<String> {
    paths.iter().take(limits::TOUCHED_PATHS_MAX).cloned().collect()
}
