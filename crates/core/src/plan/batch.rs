//! Batches: small tasks of the same sort in neighbouring files, done in one invocation of an
//! agent, so that context, files and validation are set up once (PLN-18).
//!
//! Tasks of a batch have the very same dependencies. That keeps the contracted graph free of
//! circles: if one batch waits for another, all of its tasks wait for the same task of the other,
//! so a circle of batches would have been a circle of tasks.
//!
//! Invariant: a task is in at most one batch, and batches in place of tasks cannot deadlock.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Plan, PlannedTask, Priority, Risk, TaskKind};
use crate::limits;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BatchPolicy {
    /// Tasks in one invocation; 1 turns batching off.
    pub tasks_max: u32,
    /// Only tasks that are estimated to be this short are batched.
    pub task_minutes_max: u32,
    /// Different files in one invocation.
    pub files_max: u32,
    /// How many folders, from the root, the files must share to count as near.
    pub shared_folders_min: u32,
    /// How many words, from the start, the titles must share to count as similar; 0 for any.
    pub shared_words_min: u32,
}

impl Default for BatchPolicy {
    fn default() -> BatchPolicy {
        BatchPolicy {
            tasks_max: 6,
            task_minutes_max: 10,
            files_max: 6,
            shared_folders_min: 1,
            shared_words_min: 2,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{what} is {found}; it must be between 1 and {max}")]
pub struct InvalidBatchPolicy {
    pub what: &'static str,
    pub found: u32,
    pub max: u32,
}

impl BatchPolicy {
    pub fn validate(&self) -> Result<(), InvalidBatchPolicy> {
        let bounded = [
            ("tasks_max", self.tasks_max, limits::BATCH_TASKS_MAX),
            ("files_max", self.files_max, limits::TASK_FILES_MAX as u32),
        ];
        for (what, found, max) in bounded {
            if found == 0 || found > max {
                return Err(InvalidBatchPolicy { what, found, max });
            }
        }
        Ok(())
    }
}

/// At least two tasks for one invocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// In the order in which they are done.
    pub tasks: Vec<String>,
    /// All files of all of them, sorted.
    pub files: Vec<String>,
}

impl std::fmt::Display for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (tasks, files) = (self.tasks.join(", "), self.files.len());
        write!(
            f,
            "{tasks} are small, alike and near ({files} files): one agent does them in one go"
        )
    }
}

/// All batches of a plan, found by task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batches {
    batches: Vec<Batch>,
    by_task: BTreeMap<String, usize>,
}

impl Batches {
    #[must_use]
    pub fn of(plan: &Plan, policy: &BatchPolicy) -> Batches {
        let mut alike: BTreeMap<Sort, Vec<&PlannedTask>> = BTreeMap::new();
        for task in &plan.tasks {
            if let Some(sort) = sort(task, policy) {
                alike.entry(sort).or_default().push(task);
            }
        }
        let mut batches = Vec::new();
        for mut tasks in alike.into_values() {
            // Neighbours by path are neighbours in the list; the sort keeps the plan's order
            // among tasks on the same file.
            tasks.sort_by(|a, b| a.files.iter().min().cmp(&b.files.iter().min()));
            batches.extend(cut(&tasks, policy));
        }
        Batches::from(batches)
    }

    #[must_use]
    pub fn list(&self) -> &[Batch] {
        &self.batches
    }

    #[must_use]
    pub fn of_task(&self, task: &str) -> Option<&Batch> {
        self.by_task.get(task).map(|index| &self.batches[*index])
    }

    /// How many invocations of an agent are saved.
    #[must_use]
    pub fn saved(&self) -> u32 {
        self.batches.iter().map(|batch| (batch.tasks.len() as u32).saturating_sub(1)).sum()
    }
}

impl From<Vec<Batch>> for Batches {
    fn from(batches: Vec<Batch>) -> Batches {
        let numbered = batches.iter().zip(0..);
        let by_task =
            numbered.flat_map(|(b, index)| b.tasks.iter().map(move |t| (t.clone(), index)));
        Batches { by_task: by_task.collect(), batches }
    }
}

/// What tasks of one batch have in common.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sort<'p> {
    dependencies: BTreeSet<&'p str>,
    kind: TaskKind,
    priority: Priority,
    risk: Risk,
    user_story: Option<&'p str>,
    words: Vec<String>,
    folders: Vec<&'p str>,
}

/// None for a task that is to be done by itself: long, of unknown length or place, urgent, or
/// dangerous.
fn sort<'p>(task: &'p PlannedTask, policy: &BatchPolicy) -> Option<Sort<'p>> {
    let small = task.estimated_duration_minutes.is_some_and(|m| m <= policy.task_minutes_max);
    let guarded = !task.validation_criteria.security_checks.is_empty();
    let few = task.files.len() <= policy.files_max as usize;
    if !small || !few || guarded || task.priority == Priority::Critical || task.risk() == Risk::High
    {
        return None;
    }
    let folders = shared_folders(&task.files, policy.shared_folders_min as usize)?;
    let words = task.title.split_whitespace().take(policy.shared_words_min as usize);
    Some(Sort {
        dependencies: task.dependencies.iter().map(String::as_str).collect(),
        kind: task.kind,
        priority: task.priority,
        risk: task.risk(),
        user_story: task.user_story.as_deref(),
        words: words.map(str::to_lowercase).collect(),
        folders,
    })
}

/// The first folders that all of the files are in; None if they are not in the same ones.
fn shared_folders(files: &[String], count: usize) -> Option<Vec<&str>> {
    let folders = |file: &'_ str| -> usize { file.matches('/').count() };
    let first = files.first()?;
    let shared: Vec<&str> = first.split('/').take(count.min(folders(first))).collect();
    let inside = |file: &String| {
        let mut parts = file.split('/').take(count.min(folders(file)));
        shared.iter().copied().eq(parts.by_ref())
    };
    files.iter().all(inside).then_some(shared)
}

/// Fills one batch after the other.
fn cut(tasks: &[&PlannedTask], policy: &BatchPolicy) -> Vec<Batch> {
    let mut batches = Vec::new();
    let mut rest = tasks;
    while !rest.is_empty() {
        let mut files: BTreeSet<&str> = BTreeSet::new();
        let mut taken = 0;
        for task in rest.iter().take(policy.tasks_max as usize) {
            let with: BTreeSet<&str> =
                files.iter().copied().chain(task.files.iter().map(String::as_str)).collect();
            if taken > 0 && with.len() > policy.files_max as usize {
                break;
            }
            files = with;
            taken += 1;
        }
        // A batch size of zero is refused by the policy; this loop ends without it, too.
        let (batch, left) = rest.split_at(taken.max(1));
        if batch.len() > 1 {
            batches.push(Batch {
                tasks: batch.iter().map(|task| task.id.clone()).collect(),
                files: files.into_iter().map(str::to_owned).collect(),
            });
        }
        rest = left;
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aria(id: usize, file: &str) -> PlannedTask {
        PlannedTask {
            id: format!("1-{id}"),
            title: format!("Add ARIA label to button {id}"),
            files: vec![file.to_owned()],
            estimated_duration_minutes: Some(5),
            ..PlannedTask::default()
        }
    }

    fn batches(tasks: Vec<PlannedTask>) -> Vec<Vec<String>> {
        let policy = BatchPolicy::default();
        let batches = Batches::of(&Plan { goal: None, tasks }, &policy);
        batches.list().iter().map(|batch| batch.tasks.clone()).collect()
    }

    fn twelve() -> Vec<PlannedTask> {
        (1..=12).map(|n| aria(n, &format!("web/pages/page{n:02}.tsx"))).collect()
    }

    /// The reference of PLN-18.
    #[test]
    fn twelve_label_tasks_are_two_invocations() {
        let plan = Plan { goal: None, tasks: twelve() };
        let found = Batches::of(&plan, &BatchPolicy::default());
        assert_eq!(found.list().len(), 2);
        assert_eq!(found.saved(), 10);
        assert_eq!(found.list()[0].tasks, ["1-1", "1-2", "1-3", "1-4", "1-5", "1-6"]);
        assert_eq!(found.of_task("1-7").unwrap().tasks[0], "1-7");
        let said = "are small, alike and near (6 files): one agent does them in one go";
        assert!(found.list()[1].to_string().ends_with(said));
    }

    /// Files decide, not the order in which the plan happens to name the tasks.
    #[test]
    fn neighbours_by_path_are_done_together() {
        let mut tasks = twelve();
        tasks.reverse();
        let found = batches(tasks);
        assert_eq!(found[0], ["1-1", "1-2", "1-3", "1-4", "1-5", "1-6"]);
    }

    /// Whatever makes a task different, urgent or dangerous keeps it out.
    #[test]
    fn what_is_not_small_and_alike_stays_alone() {
        let differs: [fn(&mut PlannedTask); 12] = [
            |t| t.estimated_duration_minutes = Some(11),
            |t| t.estimated_duration_minutes = None,
            |t| t.priority = Priority::Critical,
            |t| t.priority = Priority::High,
            |t| t.risk = Some(Risk::High),
            |t| t.kind = TaskKind::Docs,
            |t| t.validation_criteria.security_checks = vec!["x".into()],
            |t| t.dependencies = vec!["1-1".into()],
            |t| t.user_story = Some("US1".into()),
            |t| t.title = "Rename button 2".into(),
            |t| t.files = vec!["server/a.rs".into()],
            |t| t.files = Vec::new(),
        ];
        let pair = || vec![aria(1, "web/a.tsx"), aria(2, "web/b.tsx")];
        assert_eq!(batches(pair()).len(), 1);
        for (change, index) in differs.iter().zip(0..) {
            let mut tasks = pair();
            change(&mut tasks[1]);
            assert_eq!(batches(tasks), Vec::<Vec<String>>::new(), "difference {index}");
        }
    }

    #[test]
    fn a_batch_has_bounded_tasks_and_files() {
        let mut tasks: Vec<_> = (1..=4).map(|n| aria(n, &format!("web/{n}a.ts"))).collect();
        for (task, n) in tasks.iter_mut().zip(1..) {
            task.files.push(format!("web/{n}b.ts"));
        }
        assert_eq!(batches(tasks), [vec!["1-1", "1-2", "1-3"]]);
        let same: Vec<_> = (1..=7).map(|n| aria(n, "web/one.ts")).collect();
        assert_eq!(batches(same).iter().map(Vec::len).collect::<Vec<_>>(), [6]);
    }

    #[test]
    fn one_task_an_invocation_turns_it_off() {
        let policy = BatchPolicy { tasks_max: 1, ..BatchPolicy::default() };
        let plan = Plan { goal: None, tasks: twelve() };
        assert_eq!(Batches::of(&plan, &policy), Batches::default());
        assert_eq!(policy.validate(), Ok(()));
        let wrong = BatchPolicy { files_max: 0, ..BatchPolicy::default() };
        assert_eq!(
            wrong.validate().unwrap_err().to_string(),
            "files_max is 0; it must be between 1 and 200"
        );
    }
}
