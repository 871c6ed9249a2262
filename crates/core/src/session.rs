//! `session.json`: where a mission stands, for agents and tools that read files (TSK-11).
//!
//! It is a view: the journal is the truth. Its `variables` are closed, so that nothing can grow
//! into a second, unchecked state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits;
use crate::schema::{self, InvalidDocument};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Session {
    #[schemars(extend("format" = "uuid"))]
    pub session_id: String,
    /// The number of the phase as two digits or more, such as `01`.
    #[schemars(length(min = 1, max = limits::TASK_NAME_CHARS_MAX))]
    pub current_phase: String,
    pub current_task_idx: u32,
    pub status: SessionStatus,
    pub retry_count: u32,
    #[serde(default)]
    pub gap_count: u32,
    #[serde(default, skip_serializing_if = "SessionConfig::is_default")]
    pub config: SessionConfig,
    pub variables: Variables,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    Researching,
    Planning,
    Executing,
    Verifying,
    Paused,
    Halted,
    Completed,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_gap_retries: Option<u32>,
}

/// Nothing but these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Variables {
    #[serde(default)]
    pub research_done: bool,
    #[serde(default)]
    #[schemars(length(max = limits::FAILURE_CHARS_MAX))]
    pub last_error: Option<String>,
}

impl SessionConfig {
    fn is_default(&self) -> bool {
        *self == SessionConfig::default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("Invalid session: {0}")]
pub struct InvalidSession(pub InvalidDocument);

impl Session {
    pub fn parse(text: &str) -> Result<Session, InvalidSession> {
        schema::parse(text, limits::SESSION_BYTES_MAX).map_err(InvalidSession)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFERENCE: &str = r#"{
        "session_id": "123e4567-e89b-12d3-a456-426614174000", "current_phase": "01",
        "current_task_idx": 0, "status": "executing", "retry_count": 0,
        "variables": {"research_done": true, "last_error": null}}"#;

    #[test]
    fn the_reference_session_is_read_and_written() {
        let session = Session::parse(REFERENCE).unwrap();
        let variables = Variables { research_done: true, last_error: None };
        assert_eq!((&session.variables, session.gap_count), (&variables, 0));
        let written = serde_json::to_string(&session).unwrap();
        assert_eq!(Session::parse(&written), Ok(session));
    }

    /// An open bag of variables becomes a second state that no one checks.
    #[test]
    fn only_declared_variables_are_accepted() {
        let with = |from: &str, to: &str| {
            Session::parse(&REFERENCE.replace(from, to)).unwrap_err().to_string()
        };
        assert_eq!(
            with("\"research_done\"", "\"scratch\""),
            "Invalid session: variables.scratch: is not a known field"
        );
        assert_eq!(
            with("\"executing\"", "\"busy\""),
            "Invalid session: status: must be one of \"researching\", \"planning\", \"executing\", \
             \"verifying\", \"paused\", \"halted\", \"completed\""
        );
        assert_eq!(with("123e", "xxxx"), "Invalid session: session_id: must be a UUID");
        assert_eq!(
            with("\"retry_count\": 0", "\"retry_count\": 4294967296"),
            "Invalid session: retry_count: must be at most 4294967295"
        );
    }

    #[test]
    fn every_keyword_of_the_published_schema_is_enforced() {
        let schema = schemars::schema_for!(Session);
        assert_eq!(schema::unknown_keywords(schema.as_value()), Vec::<String>::new());
    }
}
