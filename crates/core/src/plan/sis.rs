//! The specification that a planner writes (SIS): tasks with prepared file operations.
//!
//! It is checked against its published schema before anything is made of it; an invalid one says
//! where it is wrong, and creates nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::operation::FileOperation;
use super::{Priority, Risk, TaskKind, ValidationCriteria};
use crate::limits;
use crate::schema::{self, Findings, InvalidDocument};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sis {
    #[schemars(length(min = 1, max = limits::SIS_TASKS_MAX))]
    pub tasks: Vec<SpecifiedTask>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpecifiedTask {
    /// Letters, digits, `.`, `-` and `_`.
    #[schemars(length(min = 1, max = limits::TASK_NAME_CHARS_MAX))]
    pub task_id: String,
    /// One line; without it, the first line of the description.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = limits::TITLE_CHARS_MAX))]
    pub title: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = limits::TEXT_CHARS_MAX))]
    pub description: String,
    #[serde(rename = "type", default)]
    pub kind: TaskKind,
    pub priority: Priority,
    #[schemars(length(max = limits::TASK_DEPENDENCIES_MAX))]
    pub dependencies: Vec<String>,
    pub estimated_duration_minutes: u32,
    pub validation_criteria: ValidationCriteria,
    #[schemars(length(max = limits::SIS_OPERATIONS_MAX))]
    pub file_operations: Vec<FileOperation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_story: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limits::CHECKLIST_STEPS_MAX))]
    pub required_actions: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("Invalid SIS: {0}")]
pub struct InvalidSis(pub InvalidDocument);

impl Sis {
    pub fn parse(text: &str) -> Result<Sis, InvalidSis> {
        let sis: Sis = schema::parse(text, limits::SIS_BYTES_MAX).map_err(InvalidSis)?;
        let mut findings = Findings::default();
        for (task, at) in sis.tasks.iter().zip(0..) {
            for (operation, index) in task.file_operations.iter().zip(0..) {
                if let Some((field, why)) = operation.flaw() {
                    let path = format!("tasks[{at}].file_operations[{index}].{field}");
                    findings.push(&path, why);
                }
            }
        }
        findings.into_result().map_err(InvalidSis)?;
        Ok(sis)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub(in crate::plan) fn task(id: &str, dependencies: &[&str]) -> Value {
        json!({
            "task_id": id, "title": format!("do {id}"), "priority": "HIGH",
            "dependencies": dependencies, "estimated_duration_minutes": 20,
            "validation_criteria": {"security_checks": ["no traversal"]},
            "file_operations": [
                {"operation": "edit", "file_path": "knowledge.py", "line_range": [42, 58],
                 "diff": "@@ -42,5 +42,8 @@\n+    validate_path(file_path)\n"},
                {"operation": "edit", "file_path": "a.py", "old_string": "x", "new_string": "y"},
                {"operation": "create", "file_path": "b.py", "content": ""},
                {"operation": "delete", "file_path": "c.py"},
            ],
        })
    }

    fn with(change: impl FnOnce(&mut Value)) -> Result<Sis, String> {
        let mut sis = json!({"tasks": [task("1-1", &[]), task("1-2", &["1-1"])]});
        change(&mut sis);
        Sis::parse(&sis.to_string()).map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn a_specification_is_read_and_written() {
        let sis = with(|_| {}).unwrap();
        assert_eq!(sis.tasks[1].dependencies, ["1-1"]);
        assert_eq!(sis.tasks[0].file_operations.len(), 4);
        let written = serde_json::to_string(&sis).unwrap();
        assert_eq!(Sis::parse(&written), Ok(sis));
    }

    /// PLN-05: the path of what is wrong, so that the planner can mend it without guessing.
    #[test]
    fn an_invalid_specification_is_refused_with_the_failing_path() {
        let operation = "/tasks/0/file_operations/0";
        let refused = |pointer: &str, value: Value| {
            with(|sis| *sis.pointer_mut(pointer).unwrap() = value).unwrap_err()
        };
        assert_eq!(
            refused("/tasks/1/priority", json!("URGENT")),
            r#"Invalid SIS: tasks[1].priority: must be one of "LOW", "MEDIUM", "HIGH", "CRITICAL""#
        );
        assert_eq!(
            refused("/tasks/0/estimated_duration_minutes", json!(-5)),
            "Invalid SIS: tasks[0].estimated_duration_minutes: must be at least 0"
        );
        assert_eq!(
            refused("/tasks/0/validation_criteria", json!({"tests": []})),
            "Invalid SIS: tasks[0].validation_criteria.tests: is not a known field"
        );
        let at = "Invalid SIS: tasks[0].file_operations[0]";
        let edit = |rest: Value| {
            let mut whole = json!({"operation": "edit", "file_path": "a.py"});
            whole.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            refused(operation, whole)
        };
        assert_eq!(edit(json!({"old_string": "x"})), format!("{at}.new_string: is missing"));
        assert_eq!(
            edit(json!({"line_range": [5, 2], "diff": "@@ -1 +1 @@\n-a\n"})),
            format!(
                "{at}.line_range: the lines 5-2 are not a range: it starts at 1 and does not run backwards"
            )
        );
        assert_eq!(
            edit(json!({"line_range": [1], "diff": "@@"})),
            format!("{at}.line_range: has 1 items, fewer than 2")
        );
        assert_eq!(
            edit(json!({"line_range": [1, 2], "diff": "no hunk"})),
            format!("{at}.diff: the diff has no hunk: it must begin with @@")
        );
        assert_eq!(
            edit(json!({"old_string": "", "new_string": "y"})),
            format!("{at}.old_string: is empty: it must say what to replace")
        );
        assert_eq!(
            refused(operation, json!({"operation": "delete", "file_path": "../x"})),
            format!("{at}.file_path: is not inside the repository")
        );
        assert_eq!(
            refused(operation, json!({"operation": "move", "file_path": "x"})),
            format!(r#"{at}.operation: must be one of "create", "write", "edit", "delete""#)
        );
        assert_eq!(
            refused(operation, json!({"operation": "delete", "file_path": "x", "content": "y"})),
            format!("{at}.content: does not belong here")
        );
        let missing = with(|sis| {
            sis.pointer_mut("/tasks/0").and_then(Value::as_object_mut).unwrap().remove("priority");
        });
        assert_eq!(missing.unwrap_err(), "Invalid SIS: tasks[0].priority: is missing");
    }

    #[test]
    fn what_is_no_json_or_too_large_says_so() {
        let refused = |text: &str| Sis::parse(text).unwrap_err().to_string();
        assert!(refused("{").starts_with("Invalid SIS: not JSON: "));
        assert_eq!(refused("[]"), "Invalid SIS: $: must be object");
        assert_eq!(refused(r#"{"tasks": []}"#), "Invalid SIS: tasks: has 0 items, fewer than 1");
        let huge = " ".repeat(limits::SIS_BYTES_MAX + 1);
        assert_eq!(refused(&huge), "Invalid SIS: 4194305 bytes are more than 4194304");
    }

    /// A keyword that is published but not enforced would be a promise that nobody keeps.
    #[test]
    fn every_keyword_of_the_published_schema_is_enforced() {
        let schema = schemars::schema_for!(Sis);
        assert_eq!(schema::unknown_keywords(schema.as_value()), Vec::<String>::new());
        assert!(schema.as_value().pointer("/$defs/FileOperation/oneOf/4").is_some());
    }
}
