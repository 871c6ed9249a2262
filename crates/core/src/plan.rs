//! Plans: what a mission consists of, as a person or a planner writes it.
//!
//! A plan is outside data. It is bounded, and every way in which it is wrong is named at once, so
//! that its author needs one round, not ten.

pub mod batch;
pub mod convoy;
pub mod draft;
pub mod estimate;
pub mod feature;
pub mod flaws;
pub mod gaps;
pub mod hunk;
pub mod operation;
pub mod policy;
pub mod research;
pub mod sis;

pub use flaws::{Flaw, InvalidPlan, Warning};
pub use policy::{InvalidPlanPolicy, PlanPolicy};

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What the mission is for; `kapelle run "…"` overrides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// In an order in which they could be done one after the other.
    pub tasks: Vec<PlannedTask>,
}

impl Plan {
    /// The tasks, as a mission keeps them.
    #[must_use]
    pub fn shared(&self) -> Vec<Arc<PlannedTask>> {
        self.tasks.iter().cloned().map(Arc::new).collect()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedTask {
    /// The name that people type, such as `3-1`: letters, digits, `.`, `-` and `_`.
    #[serde(alias = "task_id")]
    pub id: String,
    pub title: String,
    /// What the agent is told.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// What sort of work it is: it decides time-outs, providers and, unless `risk` says more, who
    /// has to look at it.
    #[serde(rename = "type", default, skip_serializing_if = "TaskKind::is_default")]
    pub kind: TaskKind,
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
    /// The user story that it is part of, such as `US1`; the tasks of one story are a convoy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_story: Option<String>,
    /// Tasks that name the same wave stand or fall together: when one of them gives up, what the
    /// others have landed is taken back (GIT-16).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<String>,
    /// What has to be done, step by step; the source of the checklist.
    #[serde(default, alias = "requiredActions", skip_serializing_if = "Vec::is_empty")]
    pub required_actions: Vec<String>,
    /// How much harm it could do, where the plan knows better than `type` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
    /// How many prepared file operations come with it; they are kept beside the plan.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub file_operation_count: u32,
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

#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    #[default]
    Implementation,
    Test,
    Review,
    Analysis,
    Docs,
    Refactor,
    Migration,
    Security,
    Infrastructure,
}

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    Low,
    Medium,
    High,
}

impl Priority {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Priority::Low => "LOW",
            Priority::Medium => "MEDIUM",
            Priority::High => "HIGH",
            Priority::Critical => "CRITICAL",
        }
    }
}

impl PlannedTask {
    /// What the plan says, but never less than the kind of work commands: an author who is an
    /// agent must not be able to talk a schema change past the people who should see it.
    #[must_use]
    pub fn risk(&self) -> Risk {
        let floor = self.kind.risk();
        match self.risk {
            Some(said) if floor == Risk::High => said.max(floor),
            Some(said) => said,
            None => floor,
        }
    }
}

impl TaskKind {
    pub const ALL: [TaskKind; 9] = [
        TaskKind::Implementation,
        TaskKind::Test,
        TaskKind::Review,
        TaskKind::Analysis,
        TaskKind::Docs,
        TaskKind::Refactor,
        TaskKind::Migration,
        TaskKind::Security,
        TaskKind::Infrastructure,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TaskKind::Implementation => "implementation",
            TaskKind::Test => "test",
            TaskKind::Review => "review",
            TaskKind::Analysis => "analysis",
            TaskKind::Docs => "docs",
            TaskKind::Refactor => "refactor",
            TaskKind::Migration => "migration",
            TaskKind::Security => "security",
            TaskKind::Infrastructure => "infrastructure",
        }
    }

    /// The tiers of HUM-04: typos, docs and tests are low; endpoints and UI medium; schema,
    /// security and infrastructure high.
    #[must_use]
    pub fn risk(self) -> Risk {
        match self {
            TaskKind::Test | TaskKind::Review | TaskKind::Analysis | TaskKind::Docs => Risk::Low,
            TaskKind::Implementation | TaskKind::Refactor => Risk::Medium,
            TaskKind::Migration | TaskKind::Security | TaskKind::Infrastructure => Risk::High,
        }
    }

    fn is_default(&self) -> bool {
        *self == TaskKind::default()
    }
}

impl std::fmt::Display for TaskKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::fmt::Display for Risk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Risk::Low => "low",
            Risk::Medium => "medium",
            Risk::High => "high",
        })
    }
}

impl ValidationCriteria {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.criteria.is_empty() && self.security_checks.is_empty()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(fields: &str) -> PlannedTask {
        let text = format!(r#"{{"tasks": [{{"id": "a", "title": "A"{fields}}}]}}"#);
        Plan::parse(&text).unwrap().tasks.remove(0)
    }

    /// Plans that people wrote before these fields existed must read, and be written, as before.
    #[test]
    fn what_is_not_said_is_not_written() {
        let plain = parsed("");
        let json = serde_json::to_string(&plain).unwrap();
        assert_eq!(json, r#"{"id":"a","title":"A","priority":"MEDIUM"}"#);
        assert_eq!((plain.kind, plain.risk()), (TaskKind::Implementation, Risk::Medium));
    }

    #[test]
    fn kind_story_actions_and_risk_read_back() {
        let task = parsed(
            r#", "type": "docs", "user_story": "US2", "requiredActions": ["one"], "risk": "low""#,
        );
        let expected = PlannedTask {
            id: "a".into(),
            title: "A".into(),
            kind: TaskKind::Docs,
            user_story: Some("US2".into()),
            required_actions: vec!["one".into()],
            risk: Some(Risk::Low),
            ..PlannedTask::default()
        };
        assert_eq!(task, expected);
        let json = serde_json::to_string(&task).unwrap();
        assert_eq!(serde_json::from_str::<PlannedTask>(&json).unwrap(), expected);
    }

    /// An agent that plans a migration must not be able to call it harmless.
    #[test]
    fn schema_security_and_infrastructure_stay_high_whatever_the_plan_says() {
        let risk = |kind: TaskKind, risk| PlannedTask { kind, risk, ..Default::default() }.risk();
        for kind in [TaskKind::Migration, TaskKind::Security, TaskKind::Infrastructure] {
            assert_eq!(risk(kind, Some(Risk::Low)), Risk::High);
        }
        assert_eq!(risk(TaskKind::Implementation, Some(Risk::Low)), Risk::Low);
        assert_eq!(risk(TaskKind::Docs, Some(Risk::High)), Risk::High);
        assert_eq!(risk(TaskKind::Docs, None), Risk::Low);
    }

    #[test]
    fn kind_names_are_those_of_the_plan() {
        for kind in TaskKind::ALL {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
    }
}
