//! What the journal says plainly about missions and tasks.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_core::approval::OverrideAction;
use kapelle_core::plan::{PlannedTask, Priority, TaskKind};
use kapelle_core::policy::Policy;
use kapelle_core::{Commit, Event, MissionId, TaskId};

#[derive(Debug, Default)]
pub(crate) struct Facts {
    missions: BTreeMap<MissionId, MissionFacts>,
    tasks: BTreeMap<TaskId, TaskFacts>,
    names: BTreeMap<(MissionId, String), TaskId>,
}

#[derive(Debug)]
pub(crate) struct MissionFacts {
    pub policy: Policy,
    pub branch: String,
    base: Commit,
    pub paused: bool,
    pub ended: bool,
    pub proposed: Option<Commit>,
    approved: BTreeSet<Commit>,
}

#[derive(Debug)]
pub(crate) struct TaskFacts {
    pub mission: MissionId,
    pub kind: TaskKind,
    pub priority: Priority,
    pub needs: Vec<TaskId>,
    pub wave: Option<String>,
    /// Its criteria that are commands.
    pub commands: Vec<String>,
    pub merged: Option<Commit>,
    /// It was merged, and taken back.
    pub rolled_back: bool,
    /// A person called it done; nothing of it was merged.
    pub by_hand: bool,
}

impl Facts {
    pub(crate) fn observe(&mut self, event: &Event) {
        match event {
            Event::MissionOpened { mission, policy, branch, base, .. } => {
                let facts = MissionFacts {
                    policy: (**policy).clone(),
                    branch: branch.clone(),
                    base: (**base).clone(),
                    paused: false,
                    ended: false,
                    proposed: None,
                    approved: BTreeSet::new(),
                };
                self.missions.insert(*mission, facts);
            }
            Event::PlanAccepted { mission, first_task, tasks, .. } => {
                for (task, number) in tasks.iter().zip(first_task.0..) {
                    self.names.insert((*mission, task.id.clone()), TaskId(number));
                    let needs = task.dependencies.iter();
                    let needs = needs.filter_map(|name| self.named(*mission, name)).collect();
                    let (mission, kind, priority) = (*mission, task.kind, task.priority);
                    let facts = TaskFacts {
                        mission,
                        kind,
                        priority,
                        needs,
                        wave: task.wave.clone(),
                        commands: commands(task),
                        merged: None,
                        rolled_back: false,
                        by_hand: false,
                    };
                    self.tasks.insert(TaskId(number), facts);
                }
            }
            Event::MissionPaused { mission, .. } => self.with(*mission, |m| m.paused = true),
            Event::MissionResumed { mission, .. } => self.with(*mission, |m| m.paused = false),
            Event::MissionCancelled { mission, .. } | Event::MissionDelivered { mission, .. } => {
                self.with(*mission, |m| m.ended = true);
            }
            Event::DeliveryProposed { mission, commit } => {
                self.with(*mission, |m| m.proposed = Some(commit.clone()));
            }
            Event::DeliveryApproved { mission, commit, .. } => self.with(*mission, |m| {
                m.approved.insert(commit.clone());
            }),
            Event::PrioritySet { task, priority, .. } => {
                if let Some(facts) = self.tasks.get_mut(task) {
                    facts.priority = *priority;
                }
            }
            // Nothing of it is anywhere; what needs it goes on from what is there.
            Event::Overridden { order, .. } if order.action == OverrideAction::ForceComplete => {
                let base = self.mission_of(order.task).map(|mission| mission.base.clone());
                if let (Ok(base), Some(facts)) = (base, self.tasks.get_mut(&order.task)) {
                    (facts.merged, facts.by_hand) = (Some(base), true);
                }
            }
            Event::TaskMerged { task, commit, .. } => {
                if let Some(facts) = self.tasks.get_mut(task) {
                    facts.merged = Some(commit.clone());
                }
            }
            Event::TaskRolledBack { task, .. } => {
                if let Some(facts) = self.tasks.get_mut(task) {
                    (facts.merged, facts.rolled_back) = (None, true);
                }
            }
            Event::TaskRequeued { task, .. } => {
                if let Some(facts) = self.tasks.get_mut(task) {
                    facts.rolled_back = false;
                }
            }
            _ => {}
        }
    }

    fn with(&mut self, mission: MissionId, change: impl FnOnce(&mut MissionFacts)) {
        if let Some(facts) = self.missions.get_mut(&mission) {
            change(facts);
        }
    }

    pub(crate) fn mission(&self, id: MissionId) -> Result<&MissionFacts, String> {
        self.missions.get(&id).ok_or_else(|| format!("an event speaks of {id}, never opened"))
    }

    pub(crate) fn named(&self, mission: MissionId, name: &str) -> Option<TaskId> {
        self.names.get(&(mission, name.to_owned())).copied()
    }

    pub(crate) fn task(&self, id: TaskId) -> Result<&TaskFacts, String> {
        self.tasks.get(&id).ok_or_else(|| format!("an event speaks of {id:?}, never planned"))
    }

    pub(crate) fn tasks(&self) -> impl Iterator<Item = (TaskId, &TaskFacts)> {
        self.tasks.iter().map(|(id, task)| (*id, task))
    }

    pub(crate) fn mission_of(&self, task: TaskId) -> Result<&MissionFacts, String> {
        self.mission(self.task(task)?.mission)
    }

    /// The tasks that need this one directly.
    pub(crate) fn needing(&self, id: TaskId) -> impl Iterator<Item = (TaskId, &TaskFacts)> {
        let needing = self.tasks.iter().filter(move |(_, task)| task.needs.contains(&id));
        needing.map(|(id, task)| (*id, task))
    }

    pub(crate) fn tasks_of(&self, mission: MissionId) -> impl Iterator<Item = &TaskFacts> {
        self.tasks.values().filter(move |task| task.mission == mission)
    }

    /// Missions for which nothing may be in flight.
    pub(crate) fn withdrawn(&self) -> impl Iterator<Item = MissionId> {
        self.missions.iter().filter(|(_, m)| m.paused || m.ended).map(|(id, _)| *id)
    }

    pub(crate) fn has_checks(&self, mission: MissionId) -> bool {
        self.missions.get(&mission).is_some_and(|m| !m.policy.checks.is_empty())
    }

    pub(crate) fn is_approved(&self, mission: MissionId, commit: &Commit) -> bool {
        self.missions.get(&mission).is_some_and(|m| m.approved.contains(commit))
    }
}

fn commands(task: &PlannedTask) -> Vec<String> {
    let criteria = &task.validation_criteria.criteria;
    criteria.iter().filter_map(|text| text.strip_prefix("$ ")).map(str::to_owned).collect()
}
