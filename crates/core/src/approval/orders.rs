//! Overrides as people order them: skip a step, complete, reset, reassign.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::gate::Subject;
use crate::flow::Phase;
use crate::ids::{Actor, AgentId, TaskId};
use crate::plan::Risk;
use crate::status::Status;

/// The names are those of the broadcast (`orion_override`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum OverrideAction {
    SkipStep {
        step: Phase,
    },
    ForceComplete,
    Reset {
        step: Phase,
    },
    Reassign {
        #[serde(rename = "fromAgent")]
        from: AgentId,
        #[serde(rename = "toAgent")]
        to: AgentId,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    #[serde(rename = "subtaskId")]
    pub task: TaskId,
    #[serde(flatten)]
    pub action: OverrideAction,
    pub reason: String,
    pub by: Actor,
}

/// What an override meets: the task as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Situation<'a> {
    pub status: Status,
    pub risk: Risk,
    pub flow: &'a [Phase],
    /// Index into the flow of the phase that it is in.
    pub phase: usize,
    pub agent: Option<AgentId>,
    /// A gate of the task that still lacks a person's word.
    pub gate: Option<Subject>,
}

impl OverrideAction {
    /// Whether it jumps over what the task still had to show. Sending it back shows more, not less.
    #[must_use]
    pub fn passes_gates(&self) -> bool {
        match self {
            OverrideAction::SkipStep { .. } | OverrideAction::ForceComplete => true,
            OverrideAction::Reset { .. } | OverrideAction::Reassign { .. } => false,
        }
    }
}

impl fmt::Display for OverrideAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OverrideAction::SkipStep { step } => write!(f, "skip {step}"),
            OverrideAction::ForceComplete => f.write_str("complete it"),
            OverrideAction::Reset { step } => write!(f, "send it back to {step}"),
            OverrideAction::Reassign { from, to } => write!(f, "move it from {from} to {to}"),
        }
    }
}
