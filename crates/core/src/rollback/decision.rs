//! What is taken back, and with whose word.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::landings::{Landed, Landings, WaveId};
use super::refusal::RollbackRefused;
use crate::few::FewSet;
use crate::ids::{Commit, TaskId};
use crate::limits;
use crate::merge::Paths;

/// `git revert --no-edit` of these commits, in this order, for one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revert {
    pub task: TaskId,
    /// Newest first.
    pub commits: Vec<Commit>,
    /// The branch before them.
    pub onto: Commit,
    pub message: String,
}

/// Several tasks that are taken back together, dependents before what they were built on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cascade {
    pub reverts: Vec<Revert>,
    /// Tasks that stay and share files with them.
    pub retest: Vec<TaskId>,
    pub confirmation: Confirmation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confirmation {
    /// It reaches tasks that nobody agreed to take back.
    Needed,
    /// It stays within a wave, whose tasks were declared to stand or fall together.
    AgreedBefore,
}

impl Landings {
    /// Takes back one task, if nobody else touched its files and nobody was built on it.
    pub fn rollback(&self, task: TaskId) -> Result<Revert, RollbackRefused> {
        let landed = self.single(task)?;
        let (files, others) = self.others_on_files(&BTreeSet::from([task]))?;
        if files > 0 {
            let by = others.into_iter().collect();
            return Err(RollbackRefused::FilesModified { files, by });
        }
        Ok(landed.revert())
    }

    /// The whole of what falls with a task; always for a person to confirm (GIT-15).
    pub fn cascade(&self, task: TaskId) -> Result<Cascade, RollbackRefused> {
        self.landed.get(task).ok_or(RollbackRefused::NotLanded(task))?;
        let closure = self.closure(BTreeSet::from([task]))?;
        self.together(&closure, Confirmation::Needed)
    }

    /// A person confirmed the list that they saw; it must still be the list.
    pub fn confirmed(&self, task: TaskId, seen: &[TaskId]) -> Result<Cascade, RollbackRefused> {
        let cascade = self.cascade(task)?;
        let now: Vec<TaskId> = cascade.reverts.iter().map(|revert| revert.task).collect();
        if now != seen {
            return Err(RollbackRefused::ScopeChanged { seen: seen.len(), now: now.len() });
        }
        Ok(cascade)
    }

    /// One task of a wave failed: what of the wave has landed is taken back (GIT-16).
    pub fn wave(&self, wave: WaveId) -> Result<Cascade, RollbackRefused> {
        let members = self.waves.get(&wave).into_iter().flatten();
        let members: BTreeSet<TaskId> = members.copied().collect();
        let closure = self.closure(members.clone())?;
        let beyond = closure.len() > members.len();
        let agreed = Confirmation::AgreedBefore;
        self.together(&closure, if beyond { Confirmation::Needed } else { agreed })
    }

    /// How one task that landed is reversed.
    #[must_use]
    pub fn revert(&self, task: TaskId) -> Option<Revert> {
        self.landed.get(task).map(|landed| landed.revert())
    }

    fn single(&self, task: TaskId) -> Result<&Landed, RollbackRefused> {
        let landed = self.landed.get(task).ok_or(RollbackRefused::NotLanded(task))?;
        self.reversible(task)?;
        match self.dependents.get(&task).map(FewSet::len) {
            None => Ok(landed),
            Some(count) => {
                Err(RollbackRefused::BuiltOn { task: landed.landing.name.clone(), count })
            }
        }
    }

    fn together(
        &self,
        tasks: &BTreeSet<TaskId>,
        confirmation: Confirmation,
    ) -> Result<Cascade, RollbackRefused> {
        for task in tasks {
            self.reversible(*task)?;
        }
        let retest = self.earlier_others(tasks)?;
        let mut landed: Vec<&Landed> =
            tasks.iter().filter_map(|task| self.landed.get(*task)).map(Box::as_ref).collect();
        // Nothing lands before what it needs, so the order of landing is an order of dependencies.
        landed.sort_by_key(|landed| std::cmp::Reverse(landed.place));
        let reverts = landed.into_iter().map(Landed::revert).collect();
        Ok(Cascade { reverts, retest, confirmation })
    }

    /// The tasks, all that were built on them, and all that stands or falls with any of these.
    fn closure(&self, tasks: BTreeSet<TaskId>) -> Result<BTreeSet<TaskId>, RollbackRefused> {
        let mut open: Vec<TaskId> = tasks.iter().copied().collect();
        let mut closure = tasks;
        while let Some(task) = open.pop() {
            let wave = self.landed.get(task).and_then(|landed| landed.landing.wave);
            let mates = wave.and_then(|wave| self.waves.get(&wave));
            let built_on = self.dependents.get(&task);
            for falls in built_on.into_iter().chain(mates).flatten() {
                if closure.insert(*falls) {
                    open.push(*falls);
                }
            }
            if closure.len() > limits::ROLLBACK_TASKS_MAX {
                return Err(RollbackRefused::TooMany { count: closure.len() });
            }
        }
        Ok(closure)
    }

    /// Tasks that stay and share files with `tasks`, all of them older; later ones are refused.
    fn earlier_others(&self, tasks: &BTreeSet<TaskId>) -> Result<Vec<TaskId>, RollbackRefused> {
        let (_, others) = self.others_on_files(tasks)?;
        let later: BTreeSet<TaskId> =
            others.iter().copied().filter(|other| self.is_later(*other, tasks)).collect();
        if later.is_empty() {
            return Ok(others.into_iter().collect());
        }
        let is_later = |task: &TaskId| later.contains(task);
        let files = self.files(tasks).filter(|file| self.on_file(file).any(is_later));
        let files = files.collect::<BTreeSet<_>>().len();
        Err(RollbackRefused::FilesModified { files, by: later.into_iter().collect() })
    }

    /// Whether `other` landed after one of `tasks` with which it shares a file.
    fn is_later(&self, other: TaskId, tasks: &BTreeSet<TaskId>) -> bool {
        let Some(other) = self.landed.get(other) else { return false };
        let mut shared = tasks.iter().filter_map(|task| self.landed.get(*task));
        shared.any(|task| {
            task.place < other.place && task.landing.paths.overlaps(&other.landing.paths)
        })
    }

    /// How many files of these tasks others touched too, and who.
    fn others_on_files(
        &self,
        tasks: &BTreeSet<TaskId>,
    ) -> Result<(usize, BTreeSet<TaskId>), RollbackRefused> {
        let stays = |task: &&TaskId| !tasks.contains(*task);
        let unknown = tasks.iter().find(|task| self.boundless.contains(task));
        // With nobody else around, it does not matter which files.
        let unknown = unknown.filter(|_| self.landed.len() > tasks.len());
        if let Some(task) = unknown.or_else(|| self.boundless.iter().find(stays)) {
            let task = self.landed.get(*task).map(|landed| landed.landing.name.clone());
            return Err(RollbackRefused::FilesUnknown { task: task.unwrap_or_default() });
        }
        let mut others = BTreeSet::new();
        let mut files = BTreeSet::new();
        for file in self.files(tasks) {
            for other in self.on_file(file).filter(stays) {
                files.insert(file);
                others.insert(*other);
            }
        }
        Ok((files.len(), others))
    }

    fn files<'a>(&'a self, tasks: &'a BTreeSet<TaskId>) -> impl Iterator<Item = &'a str> {
        let landed = tasks.iter().filter_map(|task| self.landed.get(*task));
        let known = landed.filter_map(|landed| match &landed.landing.paths {
            Paths::Known(files) => Some(files.iter()),
            Paths::Unknown => None,
        });
        known.flatten().map(String::as_str)
    }

    fn on_file(&self, file: &str) -> impl Iterator<Item = &TaskId> {
        self.by_file.get(file).into_iter().flatten()
    }
}

impl Landed {
    fn revert(&self) -> Revert {
        let commits = self.landing.commits.iter().rev().cloned().collect();
        let message = format!("Rollback task {}", self.landing.name);
        let (task, onto) = (self.landing.task, self.landing.last_good.clone());
        Revert { task, commits, onto, message }
    }
}
