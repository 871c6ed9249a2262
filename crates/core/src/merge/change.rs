//! A change that wants to land.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::lane::LaneId;
use crate::ids::{Commit, TaskId};
use crate::limits;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub task: TaskId,
    pub commit: Commit,
    /// Higher lands sooner.
    pub priority: i64,
    /// Tasks that have to land first and have not landed yet.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub needs: BTreeSet<TaskId>,
    pub paths: Paths,
}

/// The files that a change touches. Shared: a task, its change in the queue and what is known of its
/// landing say the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "files", rename_all = "snake_case")]
pub enum Paths {
    /// In order.
    Known(Arc<Vec<String>>),
    /// Too many to name, or nobody said: it may touch anything.
    Unknown,
}

impl Paths {
    /// A list that was cut off does not say what else was touched.
    #[must_use]
    pub fn of(touched: &Arc<Vec<String>>) -> Paths {
        if touched.is_empty() || touched.len() >= limits::TOUCHED_PATHS_MAX {
            return Paths::Unknown;
        }
        Paths::Known(Arc::clone(touched))
    }

    #[must_use]
    pub fn overlaps(&self, other: &Paths) -> bool {
        match (self, other) {
            (Paths::Known(a), Paths::Known(b)) => {
                let (few, many) = if a.len() < b.len() { (a, b) } else { (b, a) };
                few.iter().any(|path| many.binary_search(path).is_ok())
            }
            (Paths::Unknown, _) | (_, Paths::Unknown) => true,
        }
    }
}

/// Best priority first, then the order of arrival.
pub(super) type Key = (Reverse<i64>, u64, TaskId);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub change: Change,
    pub arrival: u64,
    pub rebases: u32,
    pub company: Company,
    pub place: Place,
}

/// Whether a change may be built together with others. One that conflicts in company is tried
/// alone before anybody says that it conflicts with the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Company {
    Any,
    Alone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Place {
    Waiting,
    Lane(LaneId),
    /// The half of a failed batch that is not being tested.
    Behind(LaneId),
    /// In a group that failed together.
    Suspect,
    Rebasing,
}

impl Entry {
    pub fn key(&self) -> Key {
        (Reverse(self.change.priority), self.arrival, self.change.task)
    }

    /// Whether it waits for nothing but these.
    pub fn is_free_to_follow(&self, members: &[TaskId]) -> bool {
        let mut needs = self.change.needs.iter();
        self.place == Place::Waiting
            && self.company == Company::Any
            && !members.contains(&self.change.task)
            && needs.all(|need| members.contains(need))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(names: &[&str]) -> Paths {
        Paths::of(&Arc::new(names.iter().map(ToString::to_string).collect()))
    }

    /// A list of files that was cut at its limit must not pass for a disjoint change.
    #[test]
    fn what_is_not_known_overlaps_everything() {
        assert!(paths(&["a", "b"]).overlaps(&paths(&["b", "c"])));
        assert!(!paths(&["a"]).overlaps(&paths(&["b"])));
        assert!(paths(&[]).overlaps(&paths(&["b"])));
        let cut = |from: usize| {
            Arc::new((from..limits::TOUCHED_PATHS_MAX).map(|i| i.to_string()).collect())
        };
        assert_eq!(Paths::of(&cut(0)), Paths::Unknown);
        assert_ne!(Paths::of(&cut(1)), Paths::Unknown);
    }
}
