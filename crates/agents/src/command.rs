//! The command-agent contract: how any executable becomes an agent.
//!
//! It runs in the worktree. It finds its briefing and the place for its report in the
//! environment. Its output is its log, its change is what it leaves in the tree. See
//! `docs/reference/command-agent.md`.

use std::collections::BTreeMap;
use std::path::Path;

use kapelle_core::failure::{Failure, FailureKind};
use kapelle_core::report::{InvalidReport, Question, Report, ReportStatus, Usage};

use crate::briefing::Briefing;

pub const BRIEFING_VARIABLE: &str = "KAPELLE_BRIEFING";
pub const REPORT_VARIABLE: &str = "KAPELLE_REPORT";
pub const MISSION_VARIABLE: &str = "KAPELLE_MISSION";
pub const TASK_VARIABLE: &str = "KAPELLE_TASK";
pub const PHASE_VARIABLE: &str = "KAPELLE_PHASE";
pub const AGENT_VARIABLE: &str = "KAPELLE_AGENT";

/// The variables that a command agent finds.
#[must_use]
pub fn variables(briefing: &Briefing, at: &Path, report: &Path) -> BTreeMap<String, String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    [
        (BRIEFING_VARIABLE, text(at)),
        (REPORT_VARIABLE, text(report)),
        (MISSION_VARIABLE, briefing.mission.clone()),
        (TASK_VARIABLE, briefing.task.clone()),
        (PHASE_VARIABLE, briefing.phase.to_string()),
        (AGENT_VARIABLE, briefing.agent.clone()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// How the process ended, as far as the contract cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// None if a signal ended it.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// The end of its output.
    pub tail: String,
}

/// What the agent says. Whether it is true is for others to find out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    Done,
    Asks(Question),
    Failed(Failure),
}

/// Reads the agent's answer from how its process ended and from its report, if it wrote one.
#[must_use]
pub fn read(ending: &Ending, report: Option<&[u8]>) -> (Word, Vec<Usage>) {
    let report = match report.map(Report::parse) {
        None => Report { status: ReportStatus::Success, ..Report::default() },
        Some(Ok(report)) => report,
        Some(Err(invalid)) => return (failed(&unreadable(&invalid, ending)), Vec::new()),
    };
    let usage = report.usage;
    let word = match (report.status, ending.code) {
        (ReportStatus::Checkpoint, Some(0)) => match report.checkpoint {
            Some(question) => Word::Asks(question),
            None => failed("the agent asked without a question"),
        },
        (ReportStatus::Success, Some(0)) => Word::Done,
        (ReportStatus::Timeout, _) => {
            Word::Failed(Failure::new(FailureKind::Timeout, &report.message))
        }
        (ReportStatus::Error, _) if !report.message.is_empty() => failed(&report.message),
        (ReportStatus::Success | ReportStatus::Checkpoint | ReportStatus::Error, _) => {
            failed(&format!("{}\n{}", how(ending), ending.tail))
        }
    };
    (word, usage)
}

fn unreadable(invalid: &InvalidReport, ending: &Ending) -> String {
    format!("{}\n{}\n{invalid}", ending.tail, how(ending))
}

fn how(ending: &Ending) -> String {
    match (ending.code, ending.signal) {
        (Some(code), _) => format!("the agent ended with exit code {code}"),
        (None, Some(signal)) => format!("the agent was ended by signal {signal}"),
        (None, None) => "the agent ended in an unknown way".to_owned(),
    }
}

fn failed(message: &str) -> Word {
    Word::Failed(Failure::new(FailureKind::AgentError, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: i32) -> Ending {
        Ending { code: Some(code), signal: None, tail: "last words".into() }
    }

    /// Anything that a shell script can do is enough: exit 0 and a changed tree.
    #[test]
    fn exit_zero_without_a_report_means_done() {
        assert_eq!(read(&ended(0), None), (Word::Done, Vec::new()));
    }

    #[test]
    fn another_exit_code_is_a_failure_whatever_the_report_says() {
        let (word, _) = read(&ended(3), Some(br#"{"status": "success"}"#));
        let Word::Failed(failure) = word else { panic!("{word:?}") };
        assert_eq!(failure.message, "the agent ended with exit code 3\nlast words");
        let killed = Ending { code: None, signal: Some(9), tail: String::new() };
        let (word, _) = read(&killed, None);
        assert!(matches!(word, Word::Failed(f) if f.message.contains("signal 9")));
    }

    #[test]
    fn a_checkpoint_is_a_question() {
        let report = br#"{"status": "checkpoint", "checkpoint":
            {"message": "Auth0 or Supabase?", "resume_id": "auth", "options": ["Auth0"]}}"#;
        let (word, _) = read(&ended(0), Some(report));
        assert!(matches!(word, Word::Asks(question) if question.resume_id == "auth"));
    }

    #[test]
    fn a_broken_report_is_an_error_that_says_why() {
        let (word, _) = read(&ended(0), Some(b"{\"status"));
        let Word::Failed(failure) = word else { panic!("{word:?}") };
        assert_eq!(failure.kind, FailureKind::AgentError);
        assert!(failure.message.contains("the report is not valid"), "{}", failure.message);
    }

    #[test]
    fn what_was_spent_counts_even_when_the_agent_failed() {
        let report = br#"{"status": "error", "message": "no idea",
            "usage": [{"model": "m", "input_tokens": 7}]}"#;
        let (word, usage) = read(&ended(1), Some(report));
        assert_eq!(word, failed("no idea"));
        assert_eq!(usage.first().map(|u| u.input_tokens), Some(7));
    }
}
