//! The completion report: one page on a task that has ended, for people and for the record
//! (TSK-12).
//!
//! It says what the engine knows. What the agent said about its work is quoted, bounded, and
//! marked as its words.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::failure::FailureKind;
use crate::flow::Phase;
use crate::gates::Judged;
use crate::ids::{Commit, MissionId};
use crate::mission::{Mission, MissionStatus};
use crate::money::Usd;
use crate::report::Verification;
use crate::state::State;
use crate::status::Status;
use crate::task::Task;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompletionReport {
    #[schemars(with = "String")]
    pub mission: MissionId,
    /// As the plan names it.
    pub task: String,
    pub title: String,
    #[schemars(with = "String")]
    pub status: Status,
    /// The phases that it went through.
    pub phases: Vec<Phase>,
    pub attempts: u32,
    #[schemars(with = "BTreeMap<String, u32>")]
    pub failures: BTreeMap<FailureKind, u32>,
    /// The end of the last failure, for a task that gave up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<String>,
    /// What landed on the mission's branch.
    #[schemars(with = "Option<String>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<Commit>,
    #[schemars(with = "Option<u64>")]
    pub started_at: Option<Timestamp>,
    #[schemars(with = "Option<u64>")]
    pub ended_at: Option<Timestamp>,
    pub duration_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_duration_minutes: Option<u32>,
    #[schemars(with = "u64")]
    pub spent: Usd,
    #[serde(default)]
    pub operations_completed: u32,
    /// Such as `7/7`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// Tests that passed and failed on one and the same commit of it (TDD-12).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flaky_tests: Vec<String>,
    /// Its criteria, with what the checks of the last gate say about each: `met`, `not_met` or
    /// `open` (TDD-13).
    #[schemars(with = "Vec<(String, String)>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub criteria: Vec<(String, Judged)>,
    /// In the agent's words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// In the agent's words, too: the checks that count are in the journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification_result: Option<Verification>,
}

/// A report on work that goes on would be out of date when it is read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("task {task} has not ended: it is {status}")]
pub struct NotEnded {
    pub task: String,
    pub status: Status,
}

impl CompletionReport {
    pub fn of(task: &Task, mission: &Mission) -> Result<CompletionReport, NotEnded> {
        let status = task.status(mission);
        if !status.is_final() {
            return Err(NotEnded { task: task.name().to_owned(), status });
        }
        let ended_at = task.ended_at.or(mission.ended_at);
        let duration = task.started_at.zip(ended_at).map(|(from, to)| to.ms_since(from));
        let reached = (task.phase + 1).min(mission.policy.flow.len());
        let phases = if task.started { &mission.policy.flow[..reached] } else { &[] };
        let failure = task.last_failure.as_ref().filter(|_| status != Status::Completed);
        Ok(CompletionReport {
            mission: mission.id,
            task: task.name().to_owned(),
            title: task.plan.title.clone(),
            status,
            phases: phases.to_vec(),
            attempts: task.attempts,
            failures: task.failures.clone(),
            last_failure: failure.map(|failure| failure.message.clone()),
            merged: task.merged.clone(),
            started_at: task.started_at,
            ended_at,
            duration_ms: duration.unwrap_or(0),
            estimated_duration_minutes: task.plan.estimated_duration_minutes,
            spent: task.spent,
            operations_completed: task.operations.completed_count(),
            progress: task.checklist.as_ref().map(|list| list.progress().to_string()),
            flaky_tests: task.flaky.iter().cloned().collect(),
            criteria: task.done.criteria.clone(),
            message: task.said.as_ref().map_or_else(String::new, |said| said.message.clone()),
            verification_result: task.said.as_ref().and_then(|s| s.verification_result.clone()),
        })
    }
}

/// One page on a mission: what came of it, what it cost, and each of its tasks that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MissionReport {
    #[schemars(with = "String")]
    pub mission: MissionId,
    pub goal: String,
    #[schemars(with = "String")]
    pub status: MissionStatus,
    pub tasks_total: u32,
    pub tasks_completed: u32,
    pub tasks_given_up: u32,
    /// Plans for what was missing, since a person last looked.
    pub gap_count: u32,
    #[schemars(with = "u64")]
    pub spent: Usd,
    /// What it was expected to cost at most, with 95 % certainty.
    #[schemars(with = "Option<u64>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_p95: Option<Usd>,
    /// Tests whose failures blame nobody for now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quarantined_tests: Vec<String>,
    #[schemars(with = "u64")]
    pub opened_at: Timestamp,
    #[schemars(with = "Option<u64>")]
    pub ended_at: Option<Timestamp>,
    pub tasks: Vec<CompletionReport>,
}

impl MissionReport {
    #[must_use]
    pub fn of(state: &State, mission: &Mission) -> MissionReport {
        let report = |task: &Task| CompletionReport::of(task, mission).ok();
        MissionReport {
            mission: mission.id,
            goal: mission.goal.clone(),
            status: mission.status(),
            tasks_total: mission.total(),
            tasks_completed: mission.counts.completed,
            tasks_given_up: mission.counts.dead,
            gap_count: mission.gaps.count(),
            spent: state.purse_of(mission.id).spent,
            estimated_p95: mission.estimate.as_ref().map(|estimate| estimate.p95),
            quarantined_tests: state.test_history().quarantine().iter().cloned().collect(),
            opened_at: mission.opened_at,
            ended_at: mission.ended_at,
            tasks: state.tasks_of(mission).filter_map(report).collect(),
        }
    }
}
