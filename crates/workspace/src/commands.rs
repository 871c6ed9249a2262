//! Commands of agents and checks: run so that none can hang, flood or get lost.
//!
//! Five layers, each of which ends a command that the others missed: silence is noticed and then
//! ended; a slow command goes to the background and its agent goes on; the end of the process is
//! what makes a result; an absolute limit makes one if nothing else did; and a health check finds
//! commands whose process is gone.
//!
//! Invariant: whatever combination of layers acts, a command has exactly one [`CommandResult`].

mod destructive;
mod flags;
mod kind;
mod runner;
mod watch;

use std::time::Duration;

use kapelle_core::failure::{Failure, FailureKind};

pub use destructive::{Destructive, destructive};
pub use flags::with_safety_flags;
pub use kind::{CommandKind, ThresholdRule, ThresholdRules, Thresholds};
pub use runner::{Answer, Commands, Ended, Order, Told};
pub use watch::{Action, Input, KillReason, Watch};

/// How much of the output goes along with a result.
pub const RESULT_CHARS_MAX: usize = 2_000;

/// How much of it goes along when somebody has to look at a hang.
pub const ESCALATION_CHARS_MAX: usize = 500;

/// What became of a command: the one thing that its agent hears about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandResult {
    /// The command, by the number that its agent was given.
    pub id: u64,
    /// On whose behalf: the task or sub-task.
    pub subtask: String,
    pub success: bool,
    pub code: Option<i32>,
    /// The last [`RESULT_CHARS_MAX`] characters.
    pub output: String,
    pub duration: Duration,
    pub error: Option<CommandError>,
}

/// Why a result is not simply the end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandError {
    /// It was silent for too long and was ended.
    Hang,
    /// It ran into the absolute limit and was ended.
    TimeLimit,
    /// It was to be ended and did not end; nobody waits for it any more.
    SafetyNetTriggered,
    /// Its process is gone, and nobody saw its end.
    OrphanedCommand,
    OutOfMemory,
    DiskFull,
}

impl CommandError {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CommandError::Hang => "HANG",
            CommandError::TimeLimit => "TIME_LIMIT",
            CommandError::SafetyNetTriggered => "SAFETY_NET_TRIGGERED",
            CommandError::OrphanedCommand => "ORPHANED_COMMAND",
            CommandError::OutOfMemory => "OUT_OF_MEMORY",
            CommandError::DiskFull => "DISK_FULL",
        }
    }
}

impl CommandResult {
    /// Why it has no answer of its own: the machine or we ended it.
    #[must_use]
    pub fn cut_short(&self) -> Option<Failure> {
        let seconds = self.duration.as_secs();
        let (kind, message) = match self.error? {
            CommandError::Hang => (
                FailureKind::Hang,
                format!("it was silent for too long and ended after {seconds} s"),
            ),
            CommandError::TimeLimit => {
                (FailureKind::Timeout, format!("it was ended at its time limit, after {seconds} s"))
            }
            CommandError::SafetyNetTriggered => {
                (FailureKind::Hang, "it could not be ended, and nobody waits for it".to_owned())
            }
            CommandError::OrphanedCommand => {
                (FailureKind::AgentError, "its process is gone, and nobody saw its end".to_owned())
            }
            CommandError::OutOfMemory => (
                FailureKind::OutOfMemory,
                "the kernel ended it: it used more memory than it may".to_owned(),
            ),
            CommandError::DiskFull => {
                (FailureKind::DiskFull, "it used more of the disk than it may".to_owned())
            }
        };
        Some(Failure::new(kind, &message))
    }
}

/// The last characters of a text, whole ones.
#[must_use]
pub fn last_chars(text: &str, max: usize) -> &str {
    match text.char_indices().rev().nth(max.saturating_sub(1)) {
        Some((at, _)) if max > 0 => &text[at..],
        None if max > 0 => text,
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_end_of_a_text_is_cut_between_characters() {
        assert_eq!(last_chars("aüé", 2), "üé");
        assert_eq!(last_chars("aüé", 3), "aüé");
        assert_eq!(last_chars("aüé", 9), "aüé");
        assert_eq!(last_chars("aüé", 0), "");
    }

    proptest! {
        #[test]
        fn no_text_is_cut_too_long_or_too_short(text in "\\PC{0,40}", max in 0usize..50) {
            let kept = last_chars(&text, max);
            prop_assert!(text.ends_with(kept));
            prop_assert_eq!(kept.chars().count(), max.min(text.chars().count()));
        }
    }
}
