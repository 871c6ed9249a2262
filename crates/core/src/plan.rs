//! Plans: what a mission consists of, as a person or a planner writes it.
//!
//! A plan is outside data. It is bounded, and every way in which it is wrong is named at once, so
//! that its author needs one round, not ten.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What the mission is for; `kapelle run "…"` overrides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// In an order in which they could be done one after the other.
    pub tasks: Vec<PlannedTask>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedTask {
    /// The name that people type, such as `3-1`: letters, digits, `.`, `-` and `_`.
    #[serde(alias = "task_id")]
    pub id: String,
    pub title: String,
    /// What the agent is told.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    #[serde(default)]
    pub priority: Priority,
    /// Ids of tasks that must be merged before this one starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<String>,
    /// Files that the task is expected to touch, relative to the repository's root.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_duration_minutes: Option<u32>,
    #[serde(default, skip_serializing_if = "ValidationCriteria::is_empty")]
    pub validation_criteria: ValidationCriteria,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ValidationCriteria {
    /// Sentences that must hold when the task is done; part of the briefing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub criteria: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_checks: Vec<String>,
}

impl ValidationCriteria {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.criteria.is_empty() && self.security_checks.is_empty()
    }
}

#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Priority {
    Low,
    #[default]
    Medium,
    High,
    Critical,
}

/// One thing that is wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum Flaw {
    #[error("Invalid plan: {bytes} bytes are more than {max}")]
    TooLarge { bytes: usize, max: usize },
    #[error("Invalid plan: {message}")]
    Malformed { message: String },
    #[error("Invalid plan: it has no tasks")]
    Empty,
    #[error("Invalid plan: {count} tasks are more than {max}")]
    TooManyTasks { count: usize, max: usize },
    #[error(
        "Invalid plan: {id:?} is not a task id (letters, digits, '-', '_', single '.' within; at most {max})"
    )]
    BadId { id: String, max: usize },
    #[error("Invalid plan: Task {id} appears twice")]
    Duplicate { id: String },
    #[error("Invalid plan: Task {id} has no title")]
    NoTitle { id: String },
    #[error("Invalid plan: Task {id}: {what} is longer than {max} characters")]
    TooLong { id: String, what: &'static str, max: usize },
    #[error("Invalid plan: Task {id} has {count} {what}, more than {max}")]
    TooMany { id: String, what: &'static str, count: usize, max: usize },
    #[error("Invalid plan: Task {id} names the file {path:?}, which is not inside the repository")]
    BadPath { id: String, path: String },
    #[error("Invalid plan: Task {id} depends on itself")]
    OnItself { id: String },
    #[error("Invalid plan: Task {id} depends on {dep} which does not exist")]
    Unknown { id: String, dep: String },
    #[error("Invalid plan: Task {id} depends on {dep} which appears later")]
    Later { id: String, dep: String },
    #[error("Invalid plan: these tasks wait for each other in a circle: {}", ids.join(", "))]
    Cycle { ids: Vec<String> },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct InvalidPlan(pub Vec<Flaw>);

impl Plan {
    /// Reads and checks a plan file.
    pub fn parse(text: &str) -> Result<Plan, InvalidPlan> {
        if text.len() > limits::PLAN_BYTES_MAX {
            let flaw = Flaw::TooLarge { bytes: text.len(), max: limits::PLAN_BYTES_MAX };
            return Err(InvalidPlan(vec![flaw]));
        }
        let plan: Plan = serde_json::from_str(text)
            .map_err(|e| InvalidPlan(vec![Flaw::Malformed { message: e.to_string() }]))?;
        plan.validate()?;
        Ok(plan)
    }

    pub fn validate(&self) -> Result<(), InvalidPlan> {
        let mut flaws = Vec::new();
        if self.tasks.is_empty() {
            flaws.push(Flaw::Empty);
        }
        if self.tasks.len() > limits::PLAN_TASKS_MAX {
            let (count, max) = (self.tasks.len(), limits::PLAN_TASKS_MAX);
            return Err(InvalidPlan(vec![Flaw::TooManyTasks { count, max }]));
        }
        let mut place = BTreeMap::new();
        for (index, task) in self.tasks.iter().enumerate() {
            if place.insert(task.id.as_str(), index).is_some() {
                flaws.push(Flaw::Duplicate { id: task.id.clone() });
            }
            task.flaws(&mut flaws);
        }
        let circle = self.circle(&place);
        for (index, task) in self.tasks.iter().enumerate() {
            for dep in &task.dependencies {
                let (id, dep_id) = (task.id.clone(), dep.clone());
                match place.get(dep.as_str()) {
                    _ if *dep == task.id => flaws.push(Flaw::OnItself { id }),
                    None => flaws.push(Flaw::Unknown { id, dep: dep_id }),
                    Some(_) if circle.contains(dep) && circle.contains(&id) => {}
                    Some(&at) if at > index => flaws.push(Flaw::Later { id, dep: dep_id }),
                    Some(_) => {}
                }
            }
        }
        if !circle.is_empty() {
            flaws.push(Flaw::Cycle { ids: circle.into_iter().collect() });
        }
        if flaws.is_empty() { Ok(()) } else { Err(InvalidPlan(flaws)) }
    }

    /// Tasks that wait for each other: what is left when everything that can be done is done,
    /// from both ends.
    fn circle(&self, place: &BTreeMap<&str, usize>) -> BTreeSet<String> {
        let edges = |task: &PlannedTask| -> Vec<usize> {
            let known = task.dependencies.iter().filter(|dep| **dep != task.id);
            known.filter_map(|dep| place.get(dep.as_str()).copied()).collect()
        };
        let forward: Vec<Vec<usize>> = self.tasks.iter().map(edges).collect();
        let mut backward = vec![Vec::new(); self.tasks.len()];
        for (from, deps) in forward.iter().enumerate() {
            for to in deps {
                backward[*to].push(from);
            }
        }
        let stuck = left_over(&forward, &backward);
        let needed = left_over(&backward, &forward);
        let both = (0..self.tasks.len()).filter(|i| stuck[*i] && needed[*i]);
        both.map(|i| self.tasks[i].id.clone()).collect()
    }

    /// Advice that does not make the plan wrong.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let crowded = self.tasks.iter().filter(|t| t.files.len() > limits::TASK_FILES_ADVISED_MAX);
        crowded.map(|task| format!("WARN Task {} exceeds context budget", task.id)).collect()
    }
}

/// Which nodes remain after removing, again and again, every node without outgoing edges.
fn left_over(out: &[Vec<usize>], into: &[Vec<usize>]) -> Vec<bool> {
    let mut open: Vec<usize> = out.iter().map(Vec::len).collect();
    let mut left = vec![true; out.len()];
    let mut free: Vec<usize> = (0..out.len()).filter(|i| open[*i] == 0).collect();
    while let Some(node) = free.pop() {
        left[node] = false;
        for waiting in &into[node] {
            open[*waiting] -= 1;
            if open[*waiting] == 0 {
                free.push(*waiting);
            }
        }
    }
    left
}

impl PlannedTask {
    fn flaws(&self, flaws: &mut Vec<Flaw>) {
        let id = || self.id.clone();
        let max = limits::TASK_NAME_CHARS_MAX;
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        let leads = |c: char| c.is_ascii_alphanumeric();
        // Work is kept under references that bear the task's name, and git has its own taste.
        let no_reference =
            self.id.contains("..") || self.id.ends_with('.') || self.id.ends_with(".lock");
        let spelt = self.id.starts_with(leads) && self.id.chars().all(plain);
        if !spelt || no_reference || self.id.len() > max {
            let shown = limits::head(&self.id, max).to_owned();
            flaws.push(Flaw::BadId { id: shown, max });
        }
        if self.title.trim().is_empty() {
            flaws.push(Flaw::NoTitle { id: id() });
        }
        let criteria = self.validation_criteria.criteria.iter();
        let security = self.validation_criteria.security_checks.iter();
        let texts = [
            ("the title", self.title.as_str(), limits::TITLE_CHARS_MAX),
            ("the description", self.description.as_str(), limits::TEXT_CHARS_MAX),
        ];
        let criteria = criteria.chain(security).map(|text| ("a criterion", text.as_str(), 1_000));
        for (what, text, max) in texts.into_iter().chain(criteria) {
            if limits::head(text, max).len() < text.len() {
                flaws.push(Flaw::TooLong { id: id(), what, max });
            }
        }
        let counts = [
            ("files", self.files.len(), limits::TASK_FILES_MAX),
            ("dependencies", self.dependencies.len(), limits::TASK_DEPENDENCIES_MAX),
        ];
        for (what, count, max) in counts {
            if count > max {
                flaws.push(Flaw::TooMany { id: id(), what, count, max });
            }
        }
        for path in &self.files {
            let outside = path.is_empty()
                || path.starts_with('/')
                || path.len() > limits::PATH_CHARS_MAX
                || path.split('/').any(|part| part == ".." || part == ".git")
                || path.contains('\0');
            if outside {
                let path = limits::head(path, limits::TITLE_CHARS_MAX).to_owned();
                flaws.push(Flaw::BadPath { id: id(), path });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flaws(tasks: &str) -> Vec<String> {
        match Plan::parse(&format!("{{\"tasks\": {tasks}}}")) {
            Ok(_) => Vec::new(),
            Err(InvalidPlan(flaws)) => flaws.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn a_plan_in_order_is_taken() {
        let tasks = r#"[
            {"id": "1-1", "title": "first", "priority": "HIGH", "files": ["a.rs"]},
            {"task_id": "1-2", "title": "second", "dependencies": ["1-1"],
             "estimated_duration_minutes": 20,
             "validation_criteria": {"criteria": ["works"], "security_checks": ["no secrets"]}}
        ]"#;
        assert_eq!(flaws(tasks), Vec::<String>::new());
    }

    /// The author of a plan should need one round to mend it, so all flaws come at once.
    #[test]
    fn every_flaw_is_named_at_once() {
        let tasks = r#"[
            {"id": "a", "title": "A", "dependencies": ["c", "nowhere", "a"]},
            {"id": "a", "title": ""},
            {"id": "-x", "title": "bad id", "files": ["../up"]},
            {"id": "c", "title": "C"}
        ]"#;
        let expected = [
            "Invalid plan: Task a appears twice",
            "Invalid plan: Task a has no title",
            "Invalid plan: \"-x\" is not a task id (letters, digits, '-', '_', single '.' within; at most 40)",
            "Invalid plan: Task -x names the file \"../up\", which is not inside the repository",
            "Invalid plan: Task a depends on c which appears later",
            "Invalid plan: Task a depends on nowhere which does not exist",
            "Invalid plan: Task a depends on itself",
        ];
        assert_eq!(flaws(tasks), expected);
    }

    #[test]
    fn a_circle_is_named_with_its_members_and_nothing_else() {
        let tasks = r#"[
            {"id": "a", "title": "A", "dependencies": ["b"]},
            {"id": "b", "title": "B", "dependencies": ["c"]},
            {"id": "c", "title": "C", "dependencies": ["b"]},
            {"id": "d", "title": "D", "dependencies": ["c"]}
        ]"#;
        let expected = [
            "Invalid plan: Task a depends on b which appears later",
            "Invalid plan: these tasks wait for each other in a circle: b, c",
        ];
        assert_eq!(flaws(tasks), expected);
    }

    #[test]
    fn malformed_and_oversized_plans_say_so() {
        assert_eq!(flaws("[]"), ["Invalid plan: it has no tasks"]);
        assert!(flaws("[{]").first().is_some_and(|f| f.contains("line 1")));
        let huge = format!("[{{\"id\":\"a\",\"title\":\"{}\"}}]", "x".repeat(5 << 20));
        assert!(flaws(&huge).first().is_some_and(|f| f.contains("bytes are more than")));
    }

    #[test]
    fn a_task_with_many_files_is_warned_about() {
        let text = r#"{"tasks": [{"id": "a", "title": "A", "files": ["1", "2", "3", "4"]}]}"#;
        let plan = Plan::parse(text).unwrap();
        assert_eq!(plan.warnings(), ["WARN Task a exceeds context budget"]);
    }
}
