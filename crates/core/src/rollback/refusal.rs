//! Why something is not taken back.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::TaskId;
use crate::limits;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RollbackRefused {
    #[error("task number {} has not landed", .0.0)]
    NotLanded(TaskId),
    /// The words are those of GIT-14.
    #[error("Cannot rollback: {files} files modified by other tasks")]
    FilesModified { files: usize, by: Vec<TaskId> },
    #[error("Cannot rollback: it is not known which files task {task} touched")]
    FilesUnknown { task: String },
    #[error("Cannot rollback: {count} tasks were built on task {task}")]
    BuiltOn { task: String, count: usize },
    #[error("Cannot rollback task {task}: {because}")]
    Irreversible { task: String, because: Irreversible },
    #[error("Cannot rollback: {count} tasks are more than {}", limits::ROLLBACK_TASKS_MAX)]
    TooMany { count: usize },
    #[error("Cannot rollback: {count} tasks that need task {task} are at work")]
    InWork { task: String, count: usize },
    #[error("Cannot rollback task {task}: {dependent} needs it, and is about to land")]
    Landing { task: String, dependent: String },
    #[error("Cannot rollback task {task}: {mate} of its wave has not ended")]
    WaveInWork { task: String, mate: String },
    #[error("Cannot rollback the wave of task {task} alone: {count} tasks beyond it fall too")]
    BeyondWave { task: String, count: usize },
    #[error("task {task} is being rolled back already")]
    UnderWay { task: String },
    #[error("the rollback now concerns {now} tasks, not the {seen} that were confirmed")]
    ScopeChanged { seen: usize, now: usize },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Irreversible {
    Migration,
    Stated,
}

impl RollbackRefused {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            RollbackRefused::NotLanded(_) => "There is nothing to take back",
            RollbackRefused::WaveInWork { .. } => "Wait until all of the wave has landed",
            RollbackRefused::BuiltOn { .. } | RollbackRefused::BeyondWave { .. } => {
                "Confirm the rollback of those tasks too"
            }
            RollbackRefused::InWork { .. } => {
                "Confirm the rollback: they are stopped, and begin anew when it is done again"
            }
            RollbackRefused::Landing { .. } => "Wait until it has landed, and look again",
            RollbackRefused::UnderWay { .. } => "Wait for it to end",
            RollbackRefused::ScopeChanged { .. } => "Look at the rollback again and confirm it",
            RollbackRefused::FilesModified { .. }
            | RollbackRefused::FilesUnknown { .. }
            | RollbackRefused::Irreversible { .. }
            | RollbackRefused::TooMany { .. } => "Manual intervention required",
        }
    }
}

impl fmt::Display for Irreversible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Irreversible::Migration => "it ran a database migration that has no way back",
            Irreversible::Stated => "its agent said that git alone cannot take it back",
        })
    }
}
