//! Plans while they are carried out: what they will cost, what was missing from them, and how far
//! an attempt has come.

use std::collections::BTreeMap;

use super::decide::Decision;
use super::people::person;
use super::{Lease, State};
use crate::approval::Right;
use crate::checklist::{Checklist, Source, StepRefusal};
use crate::event::{Event, Interruption, PauseReason};
use crate::ids::{Actor, AgentId, Commit, Fence, MissionId, Role, TaskId};
use crate::ledger::Calibration;
use crate::limits;
use crate::mission::{Mission, MissionStage};
use crate::plan::batch::Batches;
use crate::plan::estimate::{Estimate, UnknownPrice};
use crate::plan::operation::OperationRefusal;
use crate::plan::{Flaw, InvalidPlan, Plan};
use crate::policy::Policy;
use crate::queue::Because;
use crate::refusal::Refusal;
use crate::report::Report;
use crate::task::{Stage, Task};
use crate::time::Timestamp;

/// The rules of a mission with this plan, and what it will cost if they say how to know.
pub(super) fn estimated(
    plan: &Plan,
    policy: &Policy,
    calibration: &Calibration,
) -> Result<(Policy, Option<Estimate>), UnknownPrice> {
    let mut policy = policy.clone();
    let Some(rules) = &policy.cost else { return Ok((policy, None)) };
    let batches = Batches::of(plan, &policy.plan.batch);
    let estimate = rules.estimate(plan, &batches)?.calibrated(calibration);
    policy.budget = rules.capped(policy.budget, &estimate);
    Ok((policy, Some(estimate)))
}

/// What follows from a plan that is new to a mission, after the event that accepts it.
pub(super) fn around_plan(mission: MissionId, plan: &Plan, policy: &Policy) -> Vec<Event> {
    let mut events = Vec::new();
    let warnings = plan.warnings_under(&policy.plan);
    if !warnings.is_empty() {
        events.push(Event::PlanWarned { mission, warnings });
    }
    let batches = Batches::of(plan, &policy.plan.batch);
    if !batches.list().is_empty() {
        events.push(Event::PlanBatched { mission, batches: batches.list().to_vec() });
    }
    events
}

impl State {
    /// Who of the free agents should do the task before others: who did the one before it in its
    /// batch, or who has its story.
    pub(super) fn preferred(&self, task: &Task, free: &[AgentId]) -> Option<(AgentId, Because)> {
        let role = free.first()?.role;
        let before = task.before_in_batch.and_then(|id| self.task(id)?.agent_of(role));
        if let Some(agent) = before.filter(|agent| free.contains(agent)) {
            return Some((agent, Because::Batch));
        }
        let convoys = &self.mission(task.mission)?.convoys;
        if convoys.list().is_empty() {
            return None;
        }
        let agent = convoys.prefers(free, task.name())?;
        (role == Role::Developer).then_some((agent, Because::Story))
    }

    /// What is missing from a mission is planned; past the limit a person has to look (RET-07).
    pub(super) fn propose_gaps(&self, id: MissionId, plan: &Plan, by: &Actor) -> Decision {
        let mission = self.open_mission_or_refuse(id)?;
        self.may(by, Right::Direct)?;
        if let MissionStage::Approved { .. } = mission.stage {
            return Err(Refusal::Delivering { mission: id });
        }
        // Where a plan takes a person's word, whoever adds to it is one.
        if self.asks_about_plans(mission, &plan.tasks) {
            person(by)?;
        }
        plan.validate_addition(&mission.policy.plan, |name| mission.names.contains_key(name))?;
        let (count, max) = (mission.tasks.len() + plan.tasks.len(), limits::PLAN_TASKS_MAX);
        if count > max {
            return Err(InvalidPlan(vec![Flaw::TooManyTasks { count, max }]).into());
        }
        match mission.gaps.admit() {
            Ok(_) if mission.paused.is_some() => Err(Refusal::MissionPaused { mission: id }),
            Ok(number) => Ok(self.fill_gaps(mission, plan, number)),
            Err(exhausted) if mission.paused.is_some() => Err(exhausted.into()),
            Err(exhausted) => {
                let reason = PauseReason::Gaps(exhausted);
                Ok(self.pause_for(mission, reason, Actor::kapelle(), None))
            }
        }
    }

    fn fill_gaps(&self, mission: &Mission, plan: &Plan, number: u32) -> Vec<Event> {
        let first_task = TaskId(self.tasks.len() as u32 + 1);
        let mut events = vec![Event::PlanAccepted {
            mission: mission.id,
            first_task,
            tasks: plan.shared(),
            gap: Some(number),
        }];
        events.extend(self.blocked_from_the_start(mission, plan, first_task));
        events.extend(around_plan(mission.id, plan, &mission.policy));
        events
    }

    /// New tasks that need something which will never come.
    fn blocked_from_the_start(
        &self,
        mission: &Mission,
        plan: &Plan,
        first_task: TaskId,
    ) -> Vec<Event> {
        let mut lost: BTreeMap<&str, TaskId> = BTreeMap::new();
        for task in &plan.tasks {
            let of_old = |name: &String| {
                let need = self.task(*mission.names.get(name)?)?;
                match need.stage {
                    Stage::DeadLetter | Stage::RolledBack => Some(need.id),
                    Stage::Done if mission.is_rolling_back(need.id) => Some(need.id),
                    Stage::Blocked { on } => Some(on),
                    _ => None,
                }
            };
            let of_new = |name: &String| lost.get(name.as_str()).copied();
            let on =
                task.dependencies.iter().find_map(|name| of_old(name).or_else(|| of_new(name)));
            if let Some(on) = on {
                lost.insert(task.id.as_str(), on);
            }
        }
        let numbered = plan.tasks.iter().zip(first_task.0..);
        let blocked = numbered.filter_map(|(task, number)| {
            let on = *lost.get(task.id.as_str())?;
            Some(Event::TaskBlocked { task: TaskId(number), on })
        });
        blocked.collect()
    }

    /// A prepared operation is done, and the tree with it is kept as `change` (TSK-09).
    pub(super) fn complete_operation(
        &self,
        fence: Fence,
        index: u32,
        change: &Commit,
        now: Timestamp,
    ) -> Decision {
        let lease = self.lease_or_refuse(fence)?;
        let (task, _) = self.task_or_refuse(lease.task)?;
        match task.operations.complete(index) {
            Ok(()) => {
                let (task, change) = (task.id, change.clone());
                let mut events = vec![Event::OperationCompleted { task, fence, index, change }];
                events.extend(self.make_room((fence, lease), now));
                Ok(events)
            }
            // A repeated message: what it says is so.
            Err(OperationRefusal::AlreadyDone { .. }) => Ok(Vec::new()),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// What an attempt did so far is finished and kept: here it makes room, if somebody needs it.
    fn make_room(&self, (fence, lease): (Fence, &Lease), now: Timestamp) -> Option<Event> {
        let cause = Interruption::GaveWay { to: self.gives_way_to(lease, now)? };
        Some(Event::AttemptInterrupted { task: lease.task, fence, cause })
    }

    /// An agent broke its task into steps (PLN-15).
    pub(super) fn make_checklist(&self, fence: Fence, breakdown: &str) -> Decision {
        let lease = self.lease_or_refuse(fence)?;
        let (task, mission) = self.task_or_refuse(lease.task)?;
        let source = mission.policy.checklist;
        let begun = task.checklist.as_ref().is_some_and(|list| list.progress().done > 0);
        if begun || source == Source::Log {
            return Err(Refusal::ChecklistFixed { task: task.name().to_owned() });
        }
        let text = limits::head(breakdown, limits::TEXT_CHARS_MAX);
        let list = Checklist::generate(source, &task.plan.required_actions, text)?;
        let steps = list.steps().iter().map(|step| step.text.clone()).collect();
        Ok(vec![Event::ChecklistMade { task: task.id, fence, steps }])
    }

    /// A step of the checklist is done (PLN-16). If the tree with it is kept, the attempt can make
    /// room here without losing it (C-07).
    pub(super) fn complete_step(
        &self,
        fence: Fence,
        (step, notes): (&str, &str),
        change: Option<&Commit>,
        now: Timestamp,
    ) -> Decision {
        let lease = self.lease_or_refuse(fence)?;
        let (task, _) = self.task_or_refuse(lease.task)?;
        let list = task.checklist.as_deref().ok_or(StepRefusal::NoChecklist)?;
        let done = list.complete(step)?;
        // Messages overtake each other, and nobody can tell which of two trees has the other in it. So
        // one counts only if all steps before it are done, none after it is, and there are no
        // operations, which have trees of their own.
        let in_order = list.first_incomplete().is_some_and(|first| first.index == done.step)
            && list.progress().done == done.step;
        let change = change.filter(|_| in_order && task.plan.file_operation_count == 0);
        let mut events = vec![Event::StepCompleted {
            task: task.id,
            fence,
            step: done.step,
            progress: done.progress.to_string(),
            by: Actor(lease.agent.to_string()),
            notes: limits::head(notes, limits::REASON_CHARS_MAX).to_owned(),
            change: change.cloned(),
        }];
        if change.is_some() {
            events.extend(self.make_room((fence, lease), now));
        }
        Ok(events)
    }

    /// What the agent says about its work; it counts for nothing but the report (TSK-12).
    pub(super) fn report_task(&self, fence: Fence, report: &Report) -> Decision {
        let lease = self.lease_or_refuse(fence)?;
        Ok(vec![Event::TaskReported {
            task: lease.task,
            fence,
            message: limits::head(&report.message, limits::FAILURE_CHARS_MAX).to_owned(),
            verification_result: report.verification_result.clone(),
            red: report.red.as_deref().cloned(),
            // Only a no is news: what can be taken back is for us to find out.
            rollback_possible: report.rollback_possible.filter(|possible| !possible),
        }])
    }
}
