//! Which tier work must go to: by what it is, who does it and what failed at it before.

use std::collections::BTreeMap;

use kapelle_core::failure::FailureKind;
use kapelle_core::plan::{Priority, TaskKind};
use kapelle_core::routing::{Model, Policy, Tier};
use kapelle_core::settings::Settings;
use kapelle_core::task::Task;
use kapelle_core::{Event, Role, TaskId};

#[derive(Debug, Default)]
pub(super) struct Tiers {
    /// Of the latest attempt at a task.
    latest: BTreeMap<TaskId, Tier>,
    /// The best that failed at it, where a better one might not have.
    outgrown: BTreeMap<TaskId, Tier>,
}

impl Tiers {
    pub(super) fn observe(&mut self, event: &Event) {
        match event {
            Event::LeaseGranted { task, route, .. } => {
                match route {
                    Some(route) => self.latest.insert(*task, route.tier),
                    None => self.latest.remove(task),
                };
            }
            Event::AttemptFailed { task, failure, .. }
            | Event::ChangeRejected { task, failure }
            | Event::CandidateRejected { task, failure, .. } => {
                let model = matches!(
                    failure.kind,
                    FailureKind::ValidationFailed
                        | FailureKind::AgentError
                        | FailureKind::Hang
                        | FailureKind::Timeout
                );
                if let Some(tier) = self.latest.get(task).filter(|_| model) {
                    let best = self.outgrown.entry(*task).or_insert(*tier);
                    *best = (*best).max(*tier);
                }
            }
            Event::TaskRequeued { task, .. } => drop(self.outgrown.remove(task)),
            _ => {}
        }
    }

    /// The tier that the work of this role on this task must go to; None if nobody could do it.
    pub(super) fn due(&self, task: &Task, role: Role, rules: &Settings) -> Option<Tier> {
        let policy = rules.routing.as_ref()?;
        let max = rules.money.tier_max.unwrap_or(Tier::Premium);
        let mut tier = of_work(task, role, policy);
        let plan = &task.plan;
        let long = plan.estimated_duration_minutes.is_some_and(|m| m > policy.long_minutes);
        let careful = !plan.validation_criteria.security_checks.is_empty();
        if long || careful || task.priority == Priority::Critical {
            tier = tier.max(Tier::Standard);
        }
        if let Some(failed) = self.outgrown.get(&task.id) {
            tier = tier.max(failed.next().unwrap_or(*failed));
        }
        let wanted = tier.min(max);
        let usable =
            |model: &&Model| model.enabled && !policy.without_key.contains(&model.provider);
        let staffed =
            |tier: &Tier| policy.models.0.iter().filter(usable).any(|model| model.tier == *tier);
        let above = Tier::ALL.into_iter().filter(|tier| *tier >= wanted && *tier <= max);
        let below = Tier::ALL.into_iter().rev().filter(|tier| *tier < wanted);
        above.chain(below).find(staffed)
    }
}

/// RTE-01, RTE-02, RTE-04: tests and documents are simple, features are not, and a change of shape
/// takes the best; for the rest the role decides.
fn of_work(task: &Task, role: Role, policy: &Policy) -> Tier {
    match (task.plan.kind, role) {
        (_, Role::Tester) | (TaskKind::Test | TaskKind::Docs, _) => Tier::Eco,
        (TaskKind::Implementation, _) => Tier::Standard,
        (TaskKind::Refactor, _) => Tier::Premium,
        (
            TaskKind::Review
            | TaskKind::Analysis
            | TaskKind::Security
            | TaskKind::Migration
            | TaskKind::Infrastructure,
            role,
        ) => policy.roles.get(&role).copied().unwrap_or(match role {
            Role::Orchestrator | Role::Router | Role::Planner | Role::Tester => Tier::Eco,
            Role::Judge => Tier::Premium,
            Role::Merger
            | Role::Librarian
            | Role::Researcher
            | Role::Developer
            | Role::Reviewer
            | Role::Breaker
            | Role::Devops
            | Role::PromptEngineer
            | Role::ProductManager => Tier::Standard,
        }),
    }
}
