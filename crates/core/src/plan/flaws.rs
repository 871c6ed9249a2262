//! What can be wrong with a plan, all of it found in one reading.
//!
//! Invariant: a plan without flaws can be done in the order in which it is written.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Plan, PlanPolicy, PlannedTask};
use crate::limits;

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
    #[error("Invalid plan: the goal is longer than {max} characters")]
    LongGoal { max: usize },
    #[error("Invalid plan: {count} tasks are more than {max}")]
    TooManyTasks { count: usize, max: usize },
    #[error(
        "Invalid plan: {id:?} is not a task id (letters, digits, '-', '_', single '.' within; at most {max})"
    )]
    BadId { id: String, max: usize },
    #[error("Invalid plan: Task {id} appears twice")]
    Duplicate { id: String },
    /// Two planners used the same name for their work.
    #[error("Invalid plan: Task {id} is planned by both {first} and {second}")]
    PlannedByBoth { id: String, first: String, second: String },
    /// A plan that adds to a mission must not take the name of a task that is already there.
    #[error("Invalid plan: Task {id} is already part of the mission")]
    Taken { id: String },
    #[error("Invalid plan: Task {id} has no title")]
    NoTitle { id: String },
    #[error("Invalid plan: Task {id}: {what} is longer than {max} characters")]
    TooLong { id: String, what: &'static str, max: usize },
    #[error("Invalid plan: Task {id} has {count} {what}, more than {max}")]
    TooMany { id: String, what: &'static str, count: usize, max: usize },
    #[error(
        "Invalid plan: Task {id} names the file {path:?}, which is not a path inside the \
         repository such as src/lib.rs"
    )]
    BadPath { id: String, path: String },
    #[error("Invalid plan: Task {id} depends on itself")]
    OnItself { id: String },
    #[error("Invalid plan: Task {id} depends on {dep} which does not exist")]
    Unknown { id: String, dep: String },
    #[error("Invalid plan: Task {id} depends on {dep} which appears later")]
    Later { id: String, dep: String },
    #[error("Invalid plan: these tasks wait for each other in a circle: {}", ids.join(", "))]
    Cycle { ids: Vec<String> },
    #[error("Invalid plan: and {count} more problems")]
    More { count: usize },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct InvalidPlan(pub Vec<Flaw>);

/// Advice that does not make the plan wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "warning", rename_all = "snake_case")]
pub enum Warning {
    /// So many files do not fit the context of one agent (PLN-09).
    #[error("WARN Task {id} exceeds context budget")]
    ContextBudget { id: String, files: usize, max: u32 },
}

/// A list of flaws that a hostile plan cannot grow without bound.
#[derive(Debug, Default)]
pub(super) struct Flaws {
    named: Vec<Flaw>,
    count: usize,
}

impl Flaws {
    pub(super) fn push(&mut self, flaw: Flaw) {
        self.count += 1;
        if self.named.len() < limits::PLAN_FLAWS_MAX {
            self.named.push(flaw);
        }
    }

    pub(super) fn into_result(mut self) -> Result<(), InvalidPlan> {
        if self.count > self.named.len() {
            let count = self.count - self.named.len();
            self.named.push(Flaw::More { count });
        }
        if self.named.is_empty() { Ok(()) } else { Err(InvalidPlan(self.named)) }
    }
}

impl Plan {
    /// Reads and checks a plan file.
    pub fn parse(text: &str) -> Result<Plan, InvalidPlan> {
        Plan::parse_under(text, &PlanPolicy::default())
    }

    pub fn parse_under(text: &str, policy: &PlanPolicy) -> Result<Plan, InvalidPlan> {
        if text.len() > limits::PLAN_BYTES_MAX {
            let flaw = Flaw::TooLarge { bytes: text.len(), max: limits::PLAN_BYTES_MAX };
            return Err(InvalidPlan(vec![flaw]));
        }
        let plan: Plan = serde_json::from_str(text)
            .map_err(|e| InvalidPlan(vec![Flaw::Malformed { message: e.to_string() }]))?;
        plan.validate_under(policy)?;
        Ok(plan)
    }

    pub fn validate(&self) -> Result<(), InvalidPlan> {
        self.validate_under(&PlanPolicy::default())
    }

    pub fn validate_under(&self, policy: &PlanPolicy) -> Result<(), InvalidPlan> {
        self.validate_addition(policy, |_| false)
    }

    /// Checks a plan that adds to a mission, such as a gap plan: it may depend on tasks that are
    /// already `known` there, and must not use their names again.
    pub fn validate_addition(
        &self,
        policy: &PlanPolicy,
        known: impl Fn(&str) -> bool,
    ) -> Result<(), InvalidPlan> {
        let mut flaws = Flaws::default();
        if self.tasks.is_empty() {
            flaws.push(Flaw::Empty);
        }
        if self.tasks.len() > limits::PLAN_TASKS_MAX {
            let (count, max) = (self.tasks.len(), limits::PLAN_TASKS_MAX);
            return Err(InvalidPlan(vec![Flaw::TooManyTasks { count, max }]));
        }
        if self.goal.as_deref().is_some_and(|goal| is_longer(goal, limits::GOAL_CHARS_MAX)) {
            flaws.push(Flaw::LongGoal { max: limits::GOAL_CHARS_MAX });
        }
        let mut place = BTreeMap::new();
        for (index, task) in self.tasks.iter().enumerate() {
            if known(&task.id) {
                flaws.push(Flaw::Taken { id: shown(&task.id) });
            }
            if place.insert(task.id.as_str(), index).is_some() {
                flaws.push(Flaw::Duplicate { id: shown(&task.id) });
            }
            task.flaws(policy, &mut flaws);
        }
        self.order_flaws(&place, known, &mut flaws);
        flaws.into_result()
    }

    fn order_flaws(
        &self,
        place: &BTreeMap<&str, usize>,
        known: impl Fn(&str) -> bool,
        flaws: &mut Flaws,
    ) {
        let circle = self.circle(place);
        for (index, task) in self.tasks.iter().enumerate() {
            for dep in &task.dependencies {
                let (id, dep_id) = (shown(&task.id), shown(dep));
                match place.get(dep.as_str()) {
                    _ if *dep == task.id => flaws.push(Flaw::OnItself { id }),
                    None if known(dep) => {}
                    None => flaws.push(Flaw::Unknown { id, dep: dep_id }),
                    Some(_) if circle.contains(dep) && circle.contains(&task.id) => {}
                    Some(&at) if at > index => flaws.push(Flaw::Later { id, dep: dep_id }),
                    Some(_) => {}
                }
            }
        }
        if !circle.is_empty() {
            flaws.push(Flaw::Cycle { ids: circle.iter().map(|id| shown(id)).collect() });
        }
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

    /// Advice under the default policy, as it is printed.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings_under(&PlanPolicy::default()).iter().map(ToString::to_string).collect()
    }

    #[must_use]
    pub fn warnings_under(&self, policy: &PlanPolicy) -> Vec<Warning> {
        let max = policy.task_files_advised_max;
        let crowded = self.tasks.iter().filter(|task| task.files.len() > max as usize);
        let warning = |task: &PlannedTask| Warning::ContextBudget {
            id: task.id.clone(),
            files: task.files.len(),
            max,
        };
        crowded.map(warning).collect()
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
    fn flaws(&self, policy: &PlanPolicy, flaws: &mut Flaws) {
        let max = limits::TASK_NAME_CHARS_MAX;
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        let leads = |c: char| c.is_ascii_alphanumeric();
        // Work is kept under references that bear the task's name, and git has its own taste.
        let no_reference =
            self.id.contains("..") || self.id.ends_with('.') || self.id.ends_with(".lock");
        let spelt = self.id.starts_with(leads) && self.id.chars().all(plain);
        if !spelt || no_reference || self.id.len() > max {
            flaws.push(Flaw::BadId { id: shown(&self.id), max });
        }
        if self.title.trim().is_empty() {
            flaws.push(Flaw::NoTitle { id: shown(&self.id) });
        }
        self.length_flaws(flaws);
        let criteria = &self.validation_criteria;
        let counts = [
            ("files", self.files.len(), policy.task_files_max as usize),
            ("dependencies", self.dependencies.len(), limits::TASK_DEPENDENCIES_MAX),
            ("required actions", self.required_actions.len(), limits::CHECKLIST_STEPS_MAX),
            ("criteria", criteria.criteria.len(), limits::CRITERIA_MAX),
            ("security checks", criteria.security_checks.len(), limits::CRITERIA_MAX),
        ];
        for (what, count, max) in counts {
            if count > max {
                flaws.push(Flaw::TooMany { id: shown(&self.id), what, count, max });
            }
        }
        for path in self.files.iter().filter(|path| !is_inside(path)) {
            let path = limits::head(path, limits::TITLE_CHARS_MAX).to_owned();
            flaws.push(Flaw::BadPath { id: shown(&self.id), path });
        }
    }

    fn length_flaws(&self, flaws: &mut Flaws) {
        let title = ("the title", self.title.as_str(), limits::TITLE_CHARS_MAX);
        let description = ("the description", self.description.as_str(), limits::TEXT_CHARS_MAX);
        let story = self.user_story.as_deref().unwrap_or("");
        let story = ("the user story", story, limits::TITLE_CHARS_MAX);
        let wave = self.wave.as_deref().unwrap_or("");
        let wave = ("the wave", wave, limits::TITLE_CHARS_MAX);
        let criteria = &self.validation_criteria;
        let criteria = criteria.criteria.iter().chain(&criteria.security_checks);
        let criteria =
            criteria.map(|text| ("a criterion", text.as_str(), limits::CRITERION_CHARS_MAX));
        let actions = self.required_actions.iter();
        let actions = actions.map(|text| ("an action", text.as_str(), limits::STEP_CHARS_MAX));
        for (what, text, max) in
            [title, description, story, wave].into_iter().chain(criteria).chain(actions)
        {
            if is_longer(text, max) {
                flaws.push(Flaw::TooLong { id: shown(&self.id), what, max });
            }
        }
    }
}

/// Whether a path is relative, stays in the repository and out of `.git`, and is spelled as git
/// spells it: locks, territories and risks know a file by that name alone.
pub(crate) fn is_inside(path: &str) -> bool {
    let strange = |part: &str| matches!(part, "" | "." | "..") || part.eq_ignore_ascii_case(".git");
    !path.is_empty()
        && !path.starts_with('/')
        && path.len() <= limits::PATH_CHARS_MAX
        && !path.split('/').any(strange)
        && !path.contains('\0')
}

fn is_longer(text: &str, max: usize) -> bool {
    limits::head(text, max).len() < text.len()
}

/// Enough of an id to recognise it.
fn shown(id: &str) -> String {
    limits::head(id, limits::TASK_NAME_CHARS_MAX).to_owned()
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
            "Invalid plan: Task -x names the file \"../up\", which is not a path inside the repository such as src/lib.rs",
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

    /// PLN-08, word for word: tools and people match on it.
    #[test]
    fn a_task_before_its_dependency_is_refused_with_the_agreed_sentence() {
        let tasks = r#"[{"id": "1-1", "title": "A", "dependencies": ["1-2"]},
                        {"id": "1-2", "title": "B"}]"#;
        assert_eq!(flaws(tasks), ["Invalid plan: Task 1-1 depends on 1-2 which appears later"]);
    }

    /// The context that an agent has differs between models, so the limit is the project's.
    #[test]
    fn the_limits_on_files_are_configurable() {
        let text = r#"{"tasks": [{"id": "a", "title": "A", "files": ["1", "2", "3"]}]}"#;
        let policy =
            PlanPolicy { task_files_advised_max: 1, task_files_max: 2, ..PlanPolicy::default() };
        let plan = Plan::parse(text).unwrap();
        let warning = Warning::ContextBudget { id: "a".into(), files: 3, max: 1 };
        assert_eq!(plan.warnings_under(&policy), [warning]);
        assert_eq!(plan.warnings(), Vec::<String>::new());
        let refused = Plan::parse_under(text, &policy).unwrap_err();
        assert_eq!(refused.to_string(), "Invalid plan: Task a has 3 files, more than 2");
    }

    #[test]
    fn texts_and_lists_past_their_limits_are_named() {
        let long = "x".repeat(20_001);
        let tasks = serde_json::json!([{
            "id": "a", "title": &long[..201], "description": long, "user_story": &long[..201],
            "required_actions": vec![&long[..501]; 101], "dependencies": vec!["b"; 201],
            "validation_criteria": {"criteria": [&long[..1001]], "security_checks": vec!["c"; 51]},
        }, {"id": "b", "title": "B"}]);
        let found = flaws(&tasks.to_string());
        for expected in [
            "Invalid plan: Task a: the title is longer than 200 characters",
            "Invalid plan: Task a: the description is longer than 20000 characters",
            "Invalid plan: Task a: the user story is longer than 200 characters",
            "Invalid plan: Task a: a criterion is longer than 1000 characters",
            "Invalid plan: Task a: an action is longer than 500 characters",
        ] {
            assert!(found.contains(&expected.to_owned()), "{expected} in {found:#?}");
        }
    }

    /// 10,000 tasks with 200 wrong dependencies each must not become two million sentences.
    #[test]
    fn the_list_of_flaws_is_bounded_and_says_how_many_it_left_out() {
        let ids: Vec<String> = (0..150).map(|n| format!("no-{n}")).collect();
        let tasks = serde_json::json!([{"id": "a", "title": "A", "dependencies": ids}]);
        let found = flaws(&tasks.to_string());
        assert_eq!(found.len(), limits::PLAN_FLAWS_MAX + 1);
        assert_eq!(found.last().unwrap(), "Invalid plan: and 50 more problems");
    }

    #[test]
    fn counts_and_the_goal_have_limits_of_their_own() {
        let goal = "g".repeat(10_001);
        let tasks = serde_json::json!({"goal": goal, "tasks": [{
            "id": "a", "title": "A", "dependencies": vec!["b"; 0],
            "required_actions": vec!["do"; 101],
            "validation_criteria": {"criteria": vec!["c"; 51], "security_checks": vec!["c"; 51]},
        }]});
        let refused = Plan::parse(&tasks.to_string()).unwrap_err();
        let expected = "Invalid plan: the goal is longer than 10000 characters\n\
            Invalid plan: Task a has 101 required actions, more than 100\n\
            Invalid plan: Task a has 51 criteria, more than 50\n\
            Invalid plan: Task a has 51 security checks, more than 50";
        assert_eq!(refused.to_string(), expected);
        let many: Vec<_> = (0..=limits::PLAN_TASKS_MAX)
            .map(|n| serde_json::json!({"id": n.to_string(), "title": "t"}))
            .collect();
        let many = flaws(&serde_json::json!(many).to_string());
        assert_eq!(many, ["Invalid plan: 10001 tasks are more than 10000"]);
    }

    /// A gap plan builds on what is there, but must not pretend to be it.
    #[test]
    fn an_addition_may_depend_on_known_tasks_and_not_take_their_names() {
        let text = r#"{"tasks": [{"id": "gap-1", "title": "G", "dependencies": ["1-1"]},
                                 {"id": "1-1", "title": "again"}]}"#;
        let plan: Plan = serde_json::from_str(text).unwrap();
        let known = |id: &str| id == "1-1";
        let refused = plan.validate_addition(&PlanPolicy::default(), known).unwrap_err();
        assert_eq!(refused.0[0], Flaw::Taken { id: "1-1".into() });
        let only_gap = Plan { goal: None, tasks: plan.tasks[..1].to_vec() };
        assert_eq!(only_gap.validate_addition(&PlanPolicy::default(), known), Ok(()));
        assert!(only_gap.validate().is_err());
    }

    /// On some file systems `.GIT` is `.git`, and hooks in there run as the person.
    #[test]
    fn the_git_folder_is_outside_in_any_spelling() {
        for path in [".git/hooks/x", "a/.GIT/config", "", "/etc/passwd", "a/../../b", "a\0b"] {
            assert!(!is_inside(path), "{path:?}");
        }
        assert!(is_inside("src/.github/a.rs"));
    }
}
