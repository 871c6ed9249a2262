//! What goes over the wire. Separate from the engine's types, so that either can change alone.

use kapelle_core::activity::Level;
use kapelle_core::mission::MissionStatus;
use kapelle_core::status::Status;
use serde::{Deserialize, Serialize};

/// Everything that the dashboard's first page shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    pub project: String,
    /// The journal's head that this was read at.
    pub seq: u64,
    /// The server's clock, in milliseconds since the Unix epoch.
    pub now: u64,
    pub missions: Vec<Mission>,
    pub tasks: Vec<Task>,
    pub agents: Vec<Agent>,
    /// The newest lines, oldest first.
    pub activity: Vec<Activity>,
    pub cost: Cost,
}

/// What changed since: entries are whole, and replace the ones of the same id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Update {
    pub seq: u64,
    pub now: u64,
    pub missions: Vec<Mission>,
    pub tasks: Vec<Task>,
    pub agents: Vec<Agent>,
    pub activity: Vec<Activity>,
    pub cost: Cost,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mission {
    pub id: String,
    pub goal: String,
    pub status: MissionStatus,
    pub status_reason: Option<String>,
    /// What a person has to do, as a command line.
    pub needs: Option<String>,
    /// The phases of its tasks, in order; merging comes after the last.
    pub flow: Vec<String>,
    pub branch: String,
    pub target: String,
    pub tip: Option<String>,
    pub opened_at: u64,
    pub ended_at: Option<u64>,
    pub tasks_total: u32,
    pub tasks_completed: u32,
    pub tasks_failed: u32,
    pub tasks_running: u32,
    pub cost_usd: f64,
    pub budget_usd: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    pub id: u32,
    pub mission: String,
    pub name: String,
    pub title: String,
    pub status: Status,
    pub phase: Option<String>,
    pub agent: Option<String>,
    pub attempts: u32,
    pub retries: u32,
    pub depends_on: Vec<String>,
    /// Why it is not running or not merged.
    pub why: Option<String>,
    pub question: Option<Question>,
    pub started_at: Option<u64>,
    pub ended_at: Option<u64>,
    pub cost_usd: f64,
    pub commit: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    pub text: String,
    pub options: Vec<String>,
    /// The command that answers it.
    pub command: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    pub id: String,
    pub role: String,
    pub status: AgentStatus,
    pub task: Option<String>,
    pub mission: Option<String>,
    pub since: Option<u64>,
    pub cost_usd: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentStatus {
    Idle,
    Busy,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    pub seq: u64,
    pub at: u64,
    pub actor: String,
    pub text: String,
    pub level: Level,
    pub mission: Option<String>,
    pub task: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub spent_usd: f64,
    pub reserved_usd: f64,
    pub cap_usd: f64,
}

/// What a person asks of a running Kapelle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
    Pause { mission: String, reason: String, by: String },
    Resume { mission: String, by: String },
    Cancel { mission: String, reason: String, by: String },
    Answer { task: u32, resume_id: String, input: String, by: String },
    Approve { mission: String, commit: String, by: String },
}

/// It was carried out; the journal was at `seq` then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    pub seq: u64,
}

/// It was not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    pub error: String,
}
