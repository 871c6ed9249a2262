//! From specifications to a plan: what several planners wrote becomes one graph.
//!
//! Planners work side by side and may depend on each other's tasks, so the plan's order is made
//! here: dependencies first, else as it was written. What cannot be ordered is left for the plan's
//! own check to name.

use std::collections::{BTreeMap, BTreeSet};

use super::flaws::Flaws;
use super::operation::FileOperation;
use super::sis::{Sis, SpecifiedTask};
use super::{Flaw, InvalidPlan, Plan, PlanPolicy, PlannedTask};
use crate::limits;

/// A plan with the file operations that its planners prepared, by task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    pub plan: Plan,
    pub operations: BTreeMap<String, Vec<FileOperation>>,
}

impl SpecifiedTask {
    /// The task as the plan has it; its operations are kept beside the plan.
    #[must_use]
    pub fn to_planned(&self) -> PlannedTask {
        let mut files: Vec<String> = Vec::new();
        let mut seen = BTreeSet::new();
        for operation in &self.file_operations {
            if seen.insert(&operation.file_path) {
                files.push(operation.file_path.clone());
            }
        }
        let said = [self.title.trim(), self.description.trim(), self.task_id.as_str()];
        let title = said.into_iter().find(|text| !text.is_empty()).unwrap_or("");
        let title = title.lines().next().unwrap_or("");
        PlannedTask {
            id: self.task_id.clone(),
            title: limits::head(title, limits::TITLE_CHARS_MAX).to_owned(),
            description: self.description.clone(),
            kind: self.kind,
            priority: self.priority,
            dependencies: self.dependencies.clone(),
            files,
            estimated_duration_minutes: Some(self.estimated_duration_minutes),
            validation_criteria: self.validation_criteria.clone(),
            user_story: self.user_story.clone(),
            wave: None,
            required_actions: self.required_actions.clone(),
            risk: self.risk,
            file_operation_count: self.file_operations.len() as u32,
        }
    }
}

/// Makes one plan of what the planners wrote, each with its name.
pub fn merge(
    goal: Option<String>,
    specifications: Vec<(String, Sis)>,
    policy: &PlanPolicy,
) -> Result<Draft, InvalidPlan> {
    let mut owner: BTreeMap<String, String> = BTreeMap::new();
    let mut flaws = Flaws::default();
    let mut tasks = Vec::new();
    let mut operations = BTreeMap::new();
    for (planner, sis) in specifications {
        for task in sis.tasks {
            let id = task.task_id.clone();
            match owner.get(&id) {
                Some(first) if *first != planner => {
                    let (first, second) = (first.clone(), planner.clone());
                    flaws.push(Flaw::PlannedByBoth { id, first, second });
                    continue;
                }
                // Twice by the same planner: the plan's own check says so.
                Some(_) => {}
                None => drop(owner.insert(id, planner.clone())),
            }
            tasks.push(task.to_planned());
            operations.insert(task.task_id, task.file_operations);
        }
    }
    let plan = Plan { goal, tasks: in_order(tasks) };
    if let Err(InvalidPlan(more)) = plan.validate_under(policy) {
        more.into_iter().for_each(|flaw| flaws.push(flaw));
    }
    flaws.into_result()?;
    Ok(Draft { plan, operations })
}

/// Dependencies first; among what could come next, what was written first.
fn in_order(tasks: Vec<PlannedTask>) -> Vec<PlannedTask> {
    let mut place: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, task) in tasks.iter().enumerate() {
        place.entry(task.id.as_str()).or_insert(index);
    }
    let mut waits = vec![0_usize; tasks.len()];
    let mut dependents = vec![Vec::new(); tasks.len()];
    for (index, task) in tasks.iter().enumerate() {
        let needs: BTreeSet<usize> =
            task.dependencies.iter().filter_map(|dep| place.get(dep.as_str()).copied()).collect();
        for dep in needs {
            waits[index] += 1;
            dependents[dep].push(index);
        }
    }
    let mut free: BTreeSet<usize> = (0..tasks.len()).filter(|index| waits[*index] == 0).collect();
    let mut order = Vec::with_capacity(tasks.len());
    while let Some(index) = free.pop_first() {
        order.push(index);
        for &dependent in &dependents[index] {
            waits[dependent] -= 1;
            if waits[dependent] == 0 {
                free.insert(dependent);
            }
        }
    }
    let stuck = (0..tasks.len()).filter(|index| waits[*index] > 0);
    let order: Vec<usize> = order.iter().copied().chain(stuck).collect();
    let mut tasks: Vec<Option<PlannedTask>> = tasks.into_iter().map(Some).collect();
    order.into_iter().filter_map(|index| tasks[index].take()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sis::tests::task;
    use super::*;

    fn merged(planners: &[&[(&str, &[&str])]]) -> Result<Draft, Vec<String>> {
        let written = planners.iter().zip(1..).map(|(tasks, number)| {
            let tasks: Vec<_> = tasks.iter().map(|(id, deps)| task(id, deps)).collect();
            let sis = Sis::parse(&json!({"tasks": tasks}).to_string()).unwrap();
            (format!("planner-{number}"), sis)
        });
        merge(None, written.collect(), &PlanPolicy::default())
            .map_err(|InvalidPlan(flaws)| flaws.iter().map(ToString::to_string).collect())
    }

    fn ids(draft: &Draft) -> Vec<&str> {
        draft.plan.tasks.iter().map(|task| task.id.as_str()).collect()
    }

    #[test]
    fn a_task_keeps_what_the_planner_said() {
        let draft = merged(&[&[("1-1", &[])]]).unwrap();
        let planned = &draft.plan.tasks[0];
        assert_eq!(planned.files, ["knowledge.py", "a.py", "b.py", "c.py"]);
        assert_eq!((planned.file_operation_count, draft.operations["1-1"].len()), (4, 4));
        assert_eq!(planned.estimated_duration_minutes, Some(20));
        assert_eq!(planned.validation_criteria.security_checks, ["no traversal"]);
        let mut untitled = Sis::parse(&json!({"tasks": [task("x", &[])]}).to_string()).unwrap();
        untitled.tasks[0].title = String::new();
        assert_eq!(untitled.tasks[0].to_planned().title, "x");
        untitled.tasks[0].description = "Say hello.\nThen go.".into();
        assert_eq!(untitled.tasks[0].to_planned().title, "Say hello.");
    }

    /// Planners do not see each other's work, so none of them can know the order.
    #[test]
    fn tasks_of_several_planners_are_put_in_order() {
        let draft = merged(&[&[("b", &["a"]), ("c", &[])], &[("a", &[]), ("d", &["b"])]]).unwrap();
        assert_eq!(ids(&draft), ["c", "a", "b", "d"]);
        assert_eq!(draft.plan.validate(), Ok(()));
    }

    #[test]
    fn a_name_used_by_two_planners_is_named_with_both() {
        let refused = merged(&[&[("a", &[])], &[("a", &[]), ("b", &["nowhere"])]]).unwrap_err();
        let expected = [
            "Invalid plan: Task a is planned by both planner-1 and planner-2",
            "Invalid plan: Task b depends on nowhere which does not exist",
        ];
        assert_eq!(refused, expected);
        let twice = merged(&[&[("a", &[]), ("a", &[])]]).unwrap_err();
        assert_eq!(twice, ["Invalid plan: Task a appears twice"]);
    }

    #[test]
    fn planners_that_wait_for_each_other_are_named() {
        let refused = merged(&[&[("a", &["b"])], &[("b", &["a"]), ("c", &["c"])]]).unwrap_err();
        let expected = [
            "Invalid plan: Task c depends on itself",
            "Invalid plan: these tasks wait for each other in a circle: a, b",
        ];
        assert_eq!(refused, expected);
    }
}
