//! Invariants of plans under way: gaps, batches, operations, steps and estimates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kapelle_core::approval::OverrideAction;
use kapelle_core::event::Restart;
use kapelle_core::flow::Phase;
use kapelle_core::plan::batch::{Batch, Batches};
use kapelle_core::plan::{Plan, PlannedTask};
use kapelle_core::{Commit, Event, Fence, MissionId, TaskId};

use super::leases::Leases;
use super::work::Work;
use super::{Facts, Verdict, ensure};

#[derive(Debug, Default)]
pub(super) struct Plans {
    tasks: BTreeMap<TaskId, Progress>,
    /// Gap plans since a person last let the mission go on.
    gaps: BTreeMap<MissionId, u32>,
    /// Whose turn comes right before a task's in its batch.
    before: BTreeMap<TaskId, TaskId>,
    /// Tasks that came to their end, well or not.
    ended: BTreeSet<TaskId>,
    /// Batches that a plan of this batch of records must have.
    owed: Option<(MissionId, Vec<Batch>)>,
}

#[derive(Debug, Default)]
struct Progress {
    operations: u32,
    operations_done: u32,
    /// The tree that has all operations and steps that are done and kept.
    kept: Option<Commit>,
    steps: usize,
    steps_done: BTreeSet<u32>,
    /// What was done when the change of a phase was accepted, by the place of the phase.
    accepted: BTreeMap<usize, (u32, BTreeSet<u32>)>,
}

impl Plans {
    pub(super) fn observe(
        &mut self,
        event: &Event,
        facts: &Facts,
        (leases, work): (&Leases, &Work),
    ) -> Verdict {
        match event {
            Event::PlanAccepted { mission, first_task, tasks, gap } => {
                self.settle()?;
                self.accept(*mission, *first_task, tasks, facts)?;
                gap.map_or(Ok(()), |number| self.judge_gap(*mission, number, facts))
            }
            Event::PlanBatched { mission, batches } => self.batch(*mission, batches, facts),
            Event::MissionResumed { mission, .. } => {
                self.gaps.remove(mission);
                Ok(())
            }
            Event::LeaseGranted { task, base, .. } => {
                self.settle()?;
                self.judge_start(*task, base)
            }
            Event::OperationCompleted { task, fence, index, change } => {
                judge_fence(leases, *fence, *task)?;
                let progress = self.tasks.entry(*task).or_default();
                ensure(*index == progress.operations_done && *index < progress.operations, || {
                    let (done, all) = (progress.operations_done, progress.operations);
                    format!("operation {index} of {task:?} comes after {done} of {all}")
                })?;
                progress.operations_done += 1;
                progress.kept = Some(change.clone());
                Ok(())
            }
            Event::ChecklistMade { task, fence, steps } => {
                judge_fence(leases, *fence, *task)?;
                let progress = self.tasks.entry(*task).or_default();
                ensure(progress.steps_done.is_empty(), || {
                    format!("the steps of {task:?} change after some were done")
                })?;
                progress.steps = steps.len();
                Ok(())
            }
            Event::StepCompleted { task, fence, step, progress: told, change, .. } => {
                judge_fence(leases, *fence, *task)?;
                let progress = self.tasks.entry(*task).or_default();
                let new = progress.steps_done.insert(*step);
                let in_order = progress.steps_done.iter().copied().eq(0..=*step);
                ensure(change.is_none() || (in_order && progress.operations == 0), || {
                    format!("the tree of step {step} of {task:?} is kept out of its turn")
                })?;
                progress.kept = change.clone().or(progress.kept.take());
                ensure(new, || format!("step {step} of {task:?} is done twice"))?;
                let expected = format!("{}/{}", progress.steps_done.len(), progress.steps);
                ensure(*told == expected, || format!("{told} is said of {task:?}, not {expected}"))
            }
            Event::TaskReported { task, fence, .. } => judge_fence(leases, *fence, *task),
            Event::Overridden { order, .. } => {
                let phase = work.phase_of(order.task, facts);
                match order.action {
                    OverrideAction::Reset { step } => {
                        self.forget(order.task, place(order.task, Some(step), facts)?);
                    }
                    OverrideAction::SkipStep { step } if phase == Some(step) => {
                        self.forget(order.task, place(order.task, phase, facts)?);
                    }
                    OverrideAction::ForceComplete => {
                        self.ended.insert(order.task);
                    }
                    OverrideAction::SkipStep { .. } | OverrideAction::Reassign { .. } => {}
                }
                Ok(())
            }
            Event::ChangeRejected { task, .. } => {
                let phase = work.phase_of(*task, facts);
                self.forget(*task, place(*task, phase, facts)?);
                Ok(())
            }
            Event::TaskRequeued { task, .. }
            | Event::ChangeConflicted { task, question: Some(_), .. }
            | Event::RetryScheduled { task, from: Restart::Flow, .. } => {
                self.forget(*task, 0);
                Ok(())
            }
            // What was built on it begins anew.
            Event::TaskRolledBack { task, .. } => {
                facts.needing(*task).for_each(|(needing, _)| self.forget(needing, 0));
                Ok(())
            }
            Event::PhaseAccepted { task, phase, .. } => {
                let place = place(*task, Some(*phase), facts)?;
                let progress = self.tasks.entry(*task).or_default();
                progress.kept = None;
                progress.accepted.retain(|earlier, _| *earlier < place);
                let done = (progress.operations_done, progress.steps_done.clone());
                progress.accepted.insert(place, done);
                Ok(())
            }
            Event::CheckpointRaised { task, change: Some(change), .. } => {
                let progress = self.tasks.entry(*task).or_default();
                progress.kept = progress.kept.take().map(|_| change.clone());
                Ok(())
            }
            Event::TaskMerged { task, .. }
            | Event::TaskDeadLettered { task, .. }
            | Event::TaskBlocked { task, .. } => {
                self.ended.insert(*task);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What was done in a change is thrown away with it, but not what earlier phases left.
    fn forget(&mut self, task: TaskId, place: usize) {
        let progress = self.tasks.entry(task).or_default();
        progress.accepted.retain(|earlier, _| *earlier < place);
        let left = progress.accepted.last_key_value().map(|(_, done)| done.clone());
        (progress.operations_done, progress.steps_done) = left.unwrap_or_default();
        progress.kept = None;
    }

    /// After a batch of records: nothing is owed any more.
    pub(super) fn close(&mut self) -> Verdict {
        self.settle()
    }

    fn settle(&mut self) -> Verdict {
        match self.owed.take() {
            Some((mission, batches)) if !batches.is_empty() => {
                Err(format!("tasks of {mission} are alike, and nobody said so: {batches:?}"))
            }
            _ => Ok(()),
        }
    }

    fn accept(
        &mut self,
        mission: MissionId,
        first: TaskId,
        tasks: &[Arc<PlannedTask>],
        facts: &Facts,
    ) -> Verdict {
        for (task, number) in tasks.iter().zip(first.0..) {
            let progress = Progress {
                operations: task.file_operation_count,
                steps: task.required_actions.len(),
                ..Progress::default()
            };
            self.tasks.insert(TaskId(number), progress);
        }
        let tasks = tasks.iter().map(|task| PlannedTask::clone(task)).collect();
        let plan = Plan { goal: None, tasks };
        let batches = Batches::of(&plan, &facts.mission(mission)?.policy.plan.batch);
        self.owed = Some((mission, batches.list().to_vec()));
        Ok(())
    }

    fn judge_gap(&mut self, mission: MissionId, number: u32, facts: &Facts) -> Verdict {
        let count = self.gaps.entry(mission).or_default();
        *count += 1;
        let max = facts.mission(mission)?.policy.plan.gaps.max_gap_retries;
        ensure(number == *count && number <= max, || {
            format!("gap plan {number} of {mission} is the {count}. of {max}")
        })
    }

    fn batch(&mut self, mission: MissionId, batches: &[Batch], facts: &Facts) -> Verdict {
        let owed = self.owed.take();
        ensure(owed.is_some_and(|(of, owed)| of == mission && owed == batches), || {
            format!("the tasks of {mission} are batched in another way than their plan says")
        })?;
        for pair in batches.iter().flat_map(|batch| batch.tasks.windows(2)) {
            let ids = (facts.named(mission, &pair[0]), facts.named(mission, &pair[1]));
            if let (Some(before), Some(after)) = ids {
                self.before.insert(after, before);
            }
        }
        Ok(())
    }

    fn judge_start(&self, task: TaskId, base: &Commit) -> Verdict {
        let before = self.before.get(&task);
        ensure(before.is_none_or(|before| self.ended.contains(before)), || {
            format!("{task:?} starts before {before:?}, which comes first in their batch")
        })?;
        let kept = self.tasks.get(&task).and_then(|progress| progress.kept.as_ref());
        ensure(kept.is_none_or(|kept| kept == base), || {
            format!("{task:?} starts from {}, without what is done and kept", base.short())
        })
    }
}

fn judge_fence(leases: &Leases, fence: Fence, task: TaskId) -> Verdict {
    ensure(leases.task(fence) == Some(task), || {
        format!("fence {fence} says something of {task:?}, which it does not stand for")
    })
}

/// Where a phase stands in the flow of its task.
fn place(task: TaskId, phase: Option<Phase>, facts: &Facts) -> Result<usize, String> {
    let flow = &facts.mission(facts.task(task)?.mission)?.policy.flow;
    let found = flow.iter().position(|one| Some(*one) == phase);
    Ok(found.unwrap_or(0))
}
