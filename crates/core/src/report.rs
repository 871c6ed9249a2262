//! What an agent says about its work: `summary.json`.
//!
//! A report is intent, not authority: the change is what is in the tree, and it counts only after
//! the checks. The report is outside data, so it is bounded and never trusted to be well formed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::gates::RedReason;
use crate::limits;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    #[serde(default)]
    pub status: ReportStatus,
    #[serde(default)]
    pub message: String,
    /// Commits that the agent made, for its own record; the orchestrator looks at the tree.
    #[serde(default)]
    pub commits: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback_possible: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification_result: Option<Verification>,
    /// With `status: "checkpoint"`: the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Question>,
    /// After a red phase: why the new tests fail. Without it, new tests have to run and fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub red: Option<Box<RedReason>>,
    /// Model use that did not pass the gateway.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<Usage>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportStatus {
    #[default]
    Success,
    #[serde(alias = "failed")]
    Error,
    Timeout,
    Checkpoint,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verification {
    pub success: bool,
    #[serde(default)]
    pub tests_passed: u32,
    #[serde(default)]
    pub tests_failed: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<f64>,
}

/// A question to a person. Only the task that asks waits for the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Question {
    pub message: String,
    /// Comes back with the answer, so that the agent knows where it stood.
    pub resume_id: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// What the next spawn of the agent gets after an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResumeData {
    pub checkpoint_id: String,
    pub user_input: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    pub model: String,
    #[serde(default)]
    pub input_tokens: u64,
    #[serde(default)]
    pub output_tokens: u64,
}

impl Usage {
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReport {
    #[error("the report has {bytes} bytes, more than {max}")]
    TooLarge { bytes: usize, max: usize },
    #[error("the report is not valid: {message}")]
    Malformed { message: String },
    #[error("the report says checkpoint but has no question")]
    NoQuestion,
}

impl Report {
    pub fn parse(bytes: &[u8]) -> Result<Report, InvalidReport> {
        if bytes.len() > limits::REPORT_BYTES_MAX {
            let max = limits::REPORT_BYTES_MAX;
            return Err(InvalidReport::TooLarge { bytes: bytes.len(), max });
        }
        let mut report: Report = serde_json::from_slice(bytes)
            .map_err(|e| InvalidReport::Malformed { message: e.to_string() })?;
        if report.status == ReportStatus::Checkpoint && report.checkpoint.is_none() {
            return Err(InvalidReport::NoQuestion);
        }
        if let Some(question) = &mut report.checkpoint {
            *question = question.bounded();
        }
        if let Some(RedReason::Tests { names, .. }) = report.red.as_deref_mut() {
            names.truncate(limits::RED_TESTS_MAX);
        }
        Ok(report)
    }
}

impl Report {
    /// Whether there is anything in it beside the bare facts that its end tells anyway.
    #[must_use]
    pub fn says_something(&self) -> bool {
        !self.message.is_empty()
            || self.verification_result.is_some()
            || self.red.is_some()
            || self.rollback_possible == Some(false)
    }
}

impl Question {
    /// The same, with no more of it than is kept.
    #[must_use]
    pub fn bounded(&self) -> Question {
        let head = |text: &str, max| limits::head(text, max).to_owned();
        let options = self.options.iter().take(limits::QUESTION_OPTIONS_MAX);
        Question {
            message: head(&self.message, limits::QUESTION_CHARS_MAX),
            resume_id: head(&self.resume_id, limits::QUESTION_ID_CHARS_MAX),
            options: options.map(|option| head(option, limits::OPTION_CHARS_MAX)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read() {
        let text = br#"{"status": "success", "message": "done", "commits": ["abc"],
            "rollback_possible": true, "verification_result":
            {"success": true, "tests_passed": 12, "tests_failed": 0, "coverage": 85.3}}"#;
        let report = Report::parse(text).unwrap();
        assert_eq!(report.status, ReportStatus::Success);
        assert_eq!(report.verification_result.unwrap().tests_passed, 12);
    }

    /// `max_tokens = 10` gives half a JSON object; that is an answer, not a crash.
    #[test]
    fn truncated_and_huge_reports_are_typed_errors() {
        assert!(matches!(Report::parse(b"{\"sta"), Err(InvalidReport::Malformed { .. })));
        assert!(matches!(Report::parse(b"\xff\xfe"), Err(InvalidReport::Malformed { .. })));
        let huge = vec![b' '; limits::REPORT_BYTES_MAX + 1];
        assert!(matches!(Report::parse(&huge), Err(InvalidReport::TooLarge { .. })));
        let silent = br#"{"status": "checkpoint"}"#;
        assert_eq!(Report::parse(silent), Err(InvalidReport::NoQuestion));
    }

    #[test]
    fn a_question_is_bounded() {
        let text = serde_json::json!({"status": "checkpoint", "checkpoint": {
            "message": "m".repeat(9_000), "resume_id": "r", "options": vec!["o"; 99]}});
        let question = Report::parse(text.to_string().as_bytes()).unwrap().checkpoint.unwrap();
        assert_eq!(question.message.len(), limits::QUESTION_CHARS_MAX);
        assert_eq!(question.options.len(), limits::QUESTION_OPTIONS_MAX);
    }
}
