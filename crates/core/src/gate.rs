//! The dependency gate: a task is let through when everything it needs is done.
//!
//! Completing a task counts down its dependents, so nothing is ever searched for work that became
//! possible. When a task fails for good, everything behind it stops: what waits is blocked, what
//! runs is cancelled, however long the chain.
//!
//! Invariant: `waits_for` of a task is the number of its dependencies that are not done.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::TaskId;
use crate::limits;
use crate::status::Status;

/// Where a task stands, as far as the gate cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Not started: before the gate, or in a queue behind it.
    Waiting,
    Running,
    Done,
    /// Given up, cancelled or rolled back: it will not come without a person.
    Failed,
}

#[derive(Debug, Clone, PartialEq)]
struct Node {
    standing: Standing,
    waits_for: u32,
    dependencies: Vec<TaskId>,
    dependents: Vec<TaskId>,
    /// The failures that stand before it.
    blocked_by: BTreeSet<TaskId>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Gate {
    nodes: BTreeMap<TaskId, Node>,
}

/// What the failure of a task does to the tasks behind it, nearest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fallout {
    pub blocked: Vec<Blocked>,
    /// Their agents are to be stopped.
    pub cancelled: Vec<TaskId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Blocked {
    pub task: TaskId,
    pub on: TaskId,
}

impl Blocked {
    /// The sentence of QUE-10; `name` is what people call the task that failed.
    #[must_use]
    pub fn reason(name: &str) -> String {
        format!("Dependency {name} failed")
    }
}

/// The gate and the tasks disagree: a bug of ours, and the run must halt (QUE-08).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("CRITICAL ERROR: task number {} must not start: its dependency number {} is {found}, not completed", task.0, dependency.0)]
pub struct CriticalError {
    pub task: TaskId,
    pub dependency: TaskId,
    pub found: Found,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    Missing,
    Status(Status),
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::Missing => f.write_str("missing"),
            Found::Status(status) => status.fmt(f),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub enum GateRefusal {
    #[error("task number {} is already known", .0.0)]
    Known(TaskId),
    #[error("task number {} needs number {}, which is not known", task.0, dependency.0)]
    UnknownDependency { task: TaskId, dependency: TaskId },
    #[error("{count} dependencies are more than {}", limits::TASK_DEPENDENCIES_MAX)]
    TooMany { count: usize },
    #[error("task number {} has not failed", .0.0)]
    NotFailed(TaskId),
}

impl Gate {
    /// Whether the task can be added. Plans name a task after all that it needs, so there are no
    /// circles to look for.
    pub fn check_admission(&self, task: TaskId, needs: &[TaskId]) -> Result<(), GateRefusal> {
        if self.nodes.contains_key(&task) {
            return Err(GateRefusal::Known(task));
        }
        if needs.len() > limits::TASK_DEPENDENCIES_MAX {
            return Err(GateRefusal::TooMany { count: needs.len() });
        }
        match needs.iter().find(|need| !self.nodes.contains_key(need)) {
            Some(&dependency) => Err(GateRefusal::UnknownDependency { task, dependency }),
            None => Ok(()),
        }
    }

    /// Fact: the plan has this task.
    pub fn admitted(&mut self, task: TaskId, needs: &[TaskId]) {
        let needs: BTreeSet<TaskId> = needs.iter().copied().collect();
        let mut node = Node {
            standing: Standing::Waiting,
            waits_for: 0,
            dependencies: Vec::new(),
            dependents: Vec::new(),
            blocked_by: BTreeSet::new(),
        };
        for need in needs {
            let Some(dependency) = self.nodes.get_mut(&need) else { continue };
            dependency.dependents.push(task);
            node.dependencies.push(need);
            node.waits_for += u32::from(dependency.standing != Standing::Done);
            node.blocked_by.extend(&dependency.blocked_by);
            if dependency.standing == Standing::Failed {
                node.blocked_by.insert(need);
            }
        }
        self.nodes.insert(task, node);
    }

    #[must_use]
    pub fn standing(&self, task: TaskId) -> Option<Standing> {
        self.nodes.get(&task).map(|node| node.standing)
    }

    /// Nothing stands before it, and it has not been started.
    #[must_use]
    pub fn is_open(&self, task: TaskId) -> bool {
        self.nodes.get(&task).is_some_and(Node::is_open)
    }

    #[must_use]
    pub fn waits_for(&self, task: TaskId) -> u32 {
        self.nodes.get(&task).map_or(0, |node| node.waits_for)
    }

    pub fn dependents(&self, task: TaskId) -> &[TaskId] {
        self.nodes.get(&task).map_or(&[], |node| &node.dependents)
    }

    /// The failure that blocks a task; the oldest one if there are several.
    #[must_use]
    pub fn blocked_on(&self, task: TaskId) -> Option<TaskId> {
        self.nodes.get(&task)?.blocked_by.first().copied()
    }

    /// The last look before an agent starts: every dependency's status is read anew from where
    /// tasks are kept, not from the counters that let the task through.
    pub fn check_start(
        &self,
        task: TaskId,
        status: impl Fn(TaskId) -> Option<Status>,
    ) -> Result<(), CriticalError> {
        let needs = self.nodes.get(&task).map_or(&[][..], |node| &node.dependencies);
        for &dependency in needs {
            let found = match status(dependency) {
                Some(Status::Completed) => continue,
                Some(other) => Found::Status(other),
                None => Found::Missing,
            };
            return Err(CriticalError { task, dependency, found });
        }
        Ok(())
    }

    /// What follows if `task` fails for good. Costs what it reaches, nothing else.
    #[must_use]
    pub fn fallout(&self, task: TaskId) -> Fallout {
        let mut fallout = Fallout::default();
        let mut roots = vec![task];
        let mut next = 0;
        while let Some(&root) = roots.get(next) {
            next += 1;
            let mut seen = BTreeSet::from([root]);
            let mut reached = vec![root];
            let mut place = 0;
            while let Some(&at) = reached.get(place) {
                place += 1;
                for &dependent in self.dependents(at) {
                    let Some(node) = self.nodes.get(&dependent) else { continue };
                    if !seen.insert(dependent) {
                        continue;
                    }
                    match node.standing {
                        Standing::Waiting if !node.blocked_by.contains(&root) => {
                            fallout.blocked.push(Blocked { task: dependent, on: root });
                        }
                        // Cancelled is final, so it stands before its own dependents from now on.
                        Standing::Running if !roots.contains(&dependent) => {
                            fallout.cancelled.push(dependent);
                            roots.push(dependent);
                        }
                        // What is done stands, and so does what was built on it.
                        Standing::Done => continue,
                        Standing::Waiting | Standing::Running | Standing::Failed => {}
                    }
                    reached.push(dependent);
                }
            }
        }
        fallout
    }

    /// Which tasks would be free of all failures if the failed `task` were tried again. Those
    /// whose dependencies are done are ready at once.
    pub fn revival(&self, task: TaskId) -> Result<Vec<TaskId>, GateRefusal> {
        if self.standing(task) != Some(Standing::Failed) {
            return Err(GateRefusal::NotFailed(task));
        }
        let behind = self.behind(task).into_iter();
        let only_this = |id: &TaskId| {
            self.nodes
                .get(id)
                .is_some_and(|node| node.blocked_by.len() == 1 && node.blocked_by.contains(&task))
        };
        Ok(behind.filter(only_this).collect())
    }

    fn behind(&self, task: TaskId) -> Vec<TaskId> {
        let mut seen = BTreeSet::from([task]);
        let mut reached = vec![task];
        let mut place = 0;
        while let Some(&at) = reached.get(place) {
            place += 1;
            let fresh: Vec<TaskId> =
                self.dependents(at).iter().copied().filter(|id| seen.insert(*id)).collect();
            reached.extend(fresh);
        }
        reached.split_off(1)
    }

    /// Fact: an agent began.
    pub fn started(&mut self, task: TaskId) {
        self.stand(task, Standing::Running);
    }

    /// Fact: the attempt ended, the task waits again for its next phase or its next try.
    pub fn returned(&mut self, task: TaskId) {
        self.stand(task, Standing::Waiting);
    }

    /// Fact: the task is done. Returns the tasks that this lets through, each exactly once.
    pub fn completed(&mut self, task: TaskId) -> Vec<TaskId> {
        if self.standing(task).is_none_or(|now| now == Standing::Done) {
            return Vec::new();
        }
        self.stand(task, Standing::Done);
        let mut freed = Vec::new();
        for dependent in self.dependents(task).to_vec() {
            let Some(node) = self.nodes.get_mut(&dependent) else { continue };
            node.waits_for = node.waits_for.saturating_sub(1);
            if node.is_open() {
                freed.push(dependent);
            }
        }
        freed
    }

    /// Fact: the task failed for good, was cancelled or rolled back, with this fallout.
    pub fn failed(&mut self, task: TaskId, fallout: &Fallout) {
        for id in std::iter::once(task).chain(fallout.cancelled.iter().copied()) {
            let was_done = self.standing(id) == Some(Standing::Done);
            self.stand(id, Standing::Failed);
            if was_done {
                for dependent in self.dependents(id).to_vec() {
                    if let Some(node) = self.nodes.get_mut(&dependent) {
                        node.waits_for += 1;
                    }
                }
            }
        }
        for blocked in &fallout.blocked {
            if let Some(node) = self.nodes.get_mut(&blocked.task) {
                node.blocked_by.insert(blocked.on);
            }
        }
    }

    /// Fact: a person took the task out of the dead letters; it waits again, and so does all that
    /// only it had blocked. Returns the tasks that can start at once.
    pub fn requeued(&mut self, task: TaskId) -> Vec<TaskId> {
        self.stand(task, Standing::Waiting);
        self.inherit_failures(task);
        let mut open = Vec::new();
        for id in std::iter::once(task).chain(self.behind(task)) {
            let Some(node) = self.nodes.get_mut(&id) else { continue };
            let was_blocked = node.blocked_by.remove(&task);
            if node.is_open() && (was_blocked || id == task) {
                open.push(id);
            }
        }
        open
    }

    /// What failed before a task while it was itself out of the game.
    fn inherit_failures(&mut self, task: TaskId) {
        let Some(node) = self.nodes.get(&task) else { return };
        let mut before = BTreeSet::new();
        for need in &node.dependencies {
            let Some(dependency) = self.nodes.get(need) else { continue };
            match dependency.standing {
                Standing::Failed => {
                    before.insert(*need);
                    before.extend(&dependency.blocked_by);
                }
                Standing::Waiting | Standing::Running => before.extend(&dependency.blocked_by),
                Standing::Done => {}
            }
        }
        if let Some(node) = self.nodes.get_mut(&task) {
            node.blocked_by.extend(before);
        }
    }

    fn stand(&mut self, task: TaskId, standing: Standing) {
        if let Some(node) = self.nodes.get_mut(&task) {
            node.standing = standing;
        }
    }
}

impl Node {
    fn is_open(&self) -> bool {
        self.standing == Standing::Waiting && self.waits_for == 0 && self.blocked_by.is_empty()
    }
}
