//! What landed, in which order, on which files, and who was built on whom.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::refusal::{Irreversible, RollbackRefused};
use crate::by_task::ByTask;
use crate::few::FewSet;
use crate::ids::{Commit, TaskId};
use crate::merge::Paths;

/// Tasks that were declared to stand or fall together (GIT-16).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WaveId(pub u32);

/// A task whose commits are on the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landing {
    pub task: TaskId,
    /// As people type it.
    pub name: String,
    /// Its own, oldest first.
    pub commits: Vec<Commit>,
    pub paths: Paths,
    /// Tasks that it was built on.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub needs: BTreeSet<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<WaveId>,
    #[serde(default)]
    pub migration: Migration,
    #[serde(default)]
    pub word: Word,
    /// Where the target stood before it, for a reset by hand (GIT-21).
    pub last_good: Commit,
}

/// Whether a task changed a database, which git cannot take back (GIT-20).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Migration {
    #[default]
    None,
    WithWayBack,
    OneWay,
}

/// What the agents of a task say about taking it back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    #[default]
    Nothing,
    Irreversible,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Landed {
    pub landing: Landing,
    /// Its place in the order of landing.
    pub place: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Landings {
    pub(super) landed: ByTask<Box<Landed>>,
    /// A file is touched by few. One that all touch has a long list, of numbers that are quickly moved.
    pub(super) by_file: BTreeMap<String, FewSet<TaskId>>,
    /// Those of whose files nothing is known.
    pub(super) boundless: BTreeSet<TaskId>,
    pub(super) dependents: BTreeMap<TaskId, FewSet<TaskId>>,
    pub(super) waves: BTreeMap<WaveId, FewSet<TaskId>>,
    next_place: u64,
}

impl Landings {
    #[must_use]
    pub fn landing(&self, task: TaskId) -> Option<&Landing> {
        self.landed.get(task).map(|landed| &landed.landing)
    }

    /// `rollback_possible` of GIT-20 and GIT-21, with the reason if it is not. Its tree is no reason:
    /// all that an attempt leaves, untracked files too, is in its commit, so none lands half.
    pub fn reversible(&self, task: TaskId) -> Result<(), RollbackRefused> {
        let landed = self.landed.get(task).ok_or(RollbackRefused::NotLanded(task))?;
        let Landing { migration, word, .. } = landed.landing;
        let because = match (migration, word) {
            (Migration::OneWay, _) => Irreversible::Migration,
            (_, Word::Irreversible) => Irreversible::Stated,
            (Migration::None | Migration::WithWayBack, Word::Nothing) => return Ok(()),
        };
        Err(RollbackRefused::Irreversible { task: landed.landing.name.clone(), because })
    }

    pub fn landed(&mut self, landing: Landing) {
        let task = landing.task;
        if self.landed.get(task).is_some() {
            return;
        }
        match &landing.paths {
            Paths::Known(files) => {
                for file in files.iter() {
                    match self.by_file.get_mut(file) {
                        Some(tasks) => _ = tasks.insert(task),
                        None => _ = self.by_file.insert(file.clone(), FewSet::from_iter([task])),
                    }
                }
            }
            Paths::Unknown => {
                self.boundless.insert(task);
            }
        }
        for need in &landing.needs {
            self.dependents.entry(*need).or_default().insert(task);
        }
        if let Some(wave) = landing.wave {
            self.waves.entry(wave).or_default().insert(task);
        }
        let place = self.next_place;
        self.next_place += 1;
        self.landed.insert(task, Box::new(Landed { landing, place }));
    }

    /// Its commits were reversed on the target.
    pub fn rolled_back(&mut self, task: TaskId) {
        let Some(landed) = self.landed.remove(task) else { return };
        let landing = landed.landing;
        self.boundless.remove(&task);
        if let Paths::Known(files) = &landing.paths {
            for file in files.iter() {
                forget(&mut self.by_file, file, task);
            }
        }
        for need in &landing.needs {
            forget(&mut self.dependents, need, task);
        }
        if let Some(wave) = landing.wave {
            forget(&mut self.waves, &wave, task);
        }
    }
}

fn forget<K: Ord>(index: &mut BTreeMap<K, FewSet<TaskId>>, key: &K, task: TaskId) {
    if let Some(tasks) = index.get_mut(key) {
        tasks.remove(&task);
        if tasks.is_empty() {
            index.remove(key);
        }
    }
}
