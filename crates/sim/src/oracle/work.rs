//! Invariants of the work itself: order, checks, retries, merges and delivery.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_core::approval::{Order, OverrideAction, Subject};
use kapelle_core::command::CheckResult;
use kapelle_core::council::Verdict as Ruling;
use kapelle_core::event::Restart;
use kapelle_core::flow::{Expectation, Phase};
use kapelle_core::{Commit, Event, Fence, MissionId, TaskId};

use super::facts::TaskFacts;
use super::{Facts, Verdict, ensure};
use crate::repository::{Passed, Repository};

#[derive(Debug, Default)]
pub(super) struct Work {
    prepared: BTreeSet<MissionId>,
    tasks: BTreeMap<TaskId, Progress>,
    /// Commits on which all checks passed, by the journal.
    proved: BTreeSet<Commit>,
    sins: BTreeMap<Fence, &'static str>,
}

#[derive(Debug, Default)]
struct Progress {
    /// Index into the flow.
    phase: usize,
    skipped: BTreeSet<Phase>,
    last_checks: Option<(Commit, Passed)>,
}

impl Work {
    pub(super) fn is_proved(&self, commit: &Commit) -> bool {
        self.proved.contains(commit)
    }

    /// The phase that the task is in.
    pub(super) fn phase_of(&self, task: TaskId, facts: &Facts) -> Option<Phase> {
        let phase = self.tasks.get(&task).map_or(0, |progress| progress.phase);
        facts.mission_of(task).ok()?.policy.flow.get(phase).copied()
    }

    pub(super) fn note_sin(&mut self, fence: Fence, sin: &'static str) {
        self.sins.insert(fence, sin);
    }

    pub(super) fn observe(&mut self, event: &Event, facts: &Facts, repo: &Repository) -> Verdict {
        match event {
            Event::BranchPrepared { mission, .. } => {
                self.prepared.insert(*mission);
                Ok(())
            }
            Event::LeaseGranted { task, phase, base, .. } => {
                ensure(repo.knows(base), || format!("{task:?} starts from unknown {base}"))?;
                self.judge_start(*task, *phase, facts)
            }
            Event::AttemptFinished { fence, .. } => match self.sins.get(fence) {
                Some(sin) => Err(format!("attempt {fence} was accepted, although it {sin}")),
                None => Ok(()),
            },
            Event::Overridden { order, .. } => self.reorder(order, facts),
            Event::ApprovalRejected { subject: Subject::Merge(task), .. }
            | Event::CouncilDecided { task, verdict: Ruling::Rejected { .. }, .. } => {
                let flow = &facts.mission_of(*task)?.policy.flow;
                let progress = self.tasks.entry(*task).or_default();
                // Whoever does it again does what was skipped, too.
                flow.get(progress.phase).map(|phase| progress.skipped.remove(phase));
                Ok(())
            }
            Event::RetryScheduled { task, from: Restart::Flow, .. }
            | Event::TaskRequeued { task, .. } => {
                self.tasks.entry(*task).or_default().begin_anew();
                Ok(())
            }
            Event::ChecksFinished { task, commit, results, .. } => {
                let asked = self.asked_of(*task, facts)?;
                self.judge_checks(*task, commit, results, &asked, repo)
            }
            Event::PhaseAccepted { task, phase, change } => {
                let checked = !self.asked_of(*task, facts)?.is_empty();
                ensure(!repo.mocks(change), || {
                    format!("{phase} of {task:?} was accepted, although its tests test a mock")
                })?;
                let flow = &facts.mission_of(*task)?.policy.flow;
                self.judge_phase(*task, (*phase, flow), change, checked)
            }
            Event::ChangeConflicted { task, question: Some(_), .. } => {
                self.tasks.entry(*task).or_default().begin_anew();
                Ok(())
            }
            // What was built on it begins anew.
            Event::TaskRolledBack { task, .. } => {
                for (needing, _) in facts.needing(*task) {
                    self.tasks.entry(needing).or_default().begin_anew();
                }
                Ok(())
            }
            Event::TaskMerged { task, commit, .. } => {
                let branch = &facts.mission_of(*task)?.branch;
                ensure(repo.has_reached(branch, commit), || {
                    format!("{task:?} counts as merged, but {} never was the tip", commit.short())
                })
            }
            Event::DeliveryProposed { mission, commit } => {
                let is_in = |merged: &Commit| repo.is_ancestor(merged, commit);
                let all_in =
                    |task: &TaskFacts| task.rolled_back || task.merged.as_ref().is_some_and(is_in);
                ensure(facts.tasks_of(*mission).all(all_in), || {
                    format!("{mission} is proposed at {}, without all of it", commit.short())
                })
            }
            Event::DeliveryApproved { mission, commit, .. } => {
                let proposed = facts.mission(*mission)?.proposed.as_ref();
                ensure(proposed == Some(commit), || {
                    format!("{} was approved, but {proposed:?} was proposed", commit.short())
                })
            }
            _ => Ok(()),
        }
    }

    fn judge_start(&mut self, id: TaskId, phase: Phase, facts: &Facts) -> Verdict {
        let task = facts.task(id)?;
        let mission = facts.mission(task.mission)?;
        ensure(!mission.paused && !mission.ended, || {
            format!("{id:?} starts in a stopped mission")
        })?;
        ensure(self.prepared.contains(&task.mission), || format!("{id:?} starts on no branch"))?;
        ensure(task.merged.is_none(), || format!("{id:?} starts although it is merged"))?;
        for need in &task.needs {
            ensure(facts.task(*need)?.merged.is_some(), || {
                format!("{id:?} starts before {need:?}")
            })?;
        }
        let progress = self.tasks.entry(id).or_default();
        let expected = mission.policy.flow.get(progress.phase);
        ensure(expected == Some(&phase), || format!("{id:?} does {phase}, not {expected:?}"))
    }

    /// What has to have run before the phase that the task is in counts.
    fn asked_of(&self, task: TaskId, facts: &Facts) -> Result<Vec<String>, String> {
        let policy = &facts.mission_of(task)?.policy;
        let names = policy.checks.iter().map(|check| check.name.clone());
        let is_last = self
            .tasks
            .get(&task)
            .map_or(policy.flow.len() == 1, |progress| progress.next(&policy.flow).is_none());
        let own = facts.task(task)?.commands.iter().filter(|_| is_last).cloned();
        Ok(names.chain(own).collect())
    }

    fn judge_checks(
        &mut self,
        task: TaskId,
        commit: &Commit,
        results: &[CheckResult],
        asked: &[String],
        repo: &Repository,
    ) -> Verdict {
        let ran = |name: &str| results.iter().any(|result| result.name == name);
        let missing = asked.iter().find(|name| !ran(name));
        ensure(missing.is_none(), || {
            format!("the checks of {} count, but {missing:?} did not run", commit.short())
        })?;
        let passed = Passed::from(results.iter().all(|result| result.passed));
        ensure(repo.ran(commit, results), || {
            format!("the journal has checks on {} that never ran so", commit.short())
        })?;
        if passed == Passed::Yes {
            self.proved.insert(commit.clone());
        }
        self.tasks.entry(task).or_default().last_checks = Some((commit.clone(), passed));
        Ok(())
    }

    fn judge_phase(
        &mut self,
        id: TaskId,
        (phase, flow): (Phase, &[Phase]),
        change: &Commit,
        checked: bool,
    ) -> Verdict {
        let progress = self.tasks.entry(id).or_default();
        let wanted = match phase.expects() {
            Expectation::SomeCheckFails => Passed::No,
            Expectation::AllChecksPass => Passed::Yes,
        };
        let last = progress.last_checks.as_ref();
        let proved = last.is_some_and(|(commit, passed)| commit == change && *passed == wanted);
        ensure(!checked || proved, || {
            format!("{phase} of {id:?} was accepted, but its checks did not say {wanted:?}")
        })?;
        ensure(flow.get(progress.phase) == Some(&phase), || {
            format!("{phase} of {id:?} was accepted out of turn")
        })?;
        progress.go_on(flow);
        Ok(())
    }

    /// A person's order changes which phase is next.
    fn reorder(&mut self, order: &Order, facts: &Facts) -> Verdict {
        let flow = &facts.mission_of(order.task)?.policy.flow;
        let progress = self.tasks.entry(order.task).or_default();
        match order.action {
            OverrideAction::SkipStep { step } => {
                progress.skipped.insert(step);
                if flow.get(progress.phase) == Some(&step) {
                    progress.go_on(flow);
                }
            }
            OverrideAction::Reset { step } => {
                progress.skipped.remove(&step);
                progress.phase = flow.iter().position(|of| *of == step).unwrap_or(0);
            }
            OverrideAction::ForceComplete | OverrideAction::Reassign { .. } => {}
        }
        Ok(())
    }
}

impl Progress {
    /// The next phase that nobody skipped; past the last one there is none.
    fn next(&self, flow: &[Phase]) -> Option<usize> {
        let later = flow.iter().enumerate().skip(self.phase + 1);
        later.filter(|(_, phase)| !self.skipped.contains(phase)).map(|(n, _)| n).next()
    }

    fn go_on(&mut self, flow: &[Phase]) {
        self.phase = self.next(flow).unwrap_or(self.phase);
    }

    fn begin_anew(&mut self) {
        self.phase = 0;
        self.skipped.clear();
    }
}
