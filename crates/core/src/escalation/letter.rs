//! Dead letters: what a person needs to know to bring a task back to life.
//!
//! The first failure and the last ones are kept in full: the first is often the cause, the last is
//! where things stand. How many lie between is counted.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{Hands, HumanBecause, Ladder};
use crate::failure::Failure;
use crate::flow::Phase;
use crate::ids::{AgentId, Commit, TaskId};
use crate::limits;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAttempt {
    /// Counted from 1 over the task's life.
    pub attempt: u32,
    pub agent: Option<AgentId>,
    pub phase: Phase,
    pub failure: Failure,
    /// What the attempt left, for a look or a rescue.
    pub change: Option<Commit>,
    pub at: Timestamp,
}

/// The failures of a task so far. Retries are briefed from it, and the dead letter carries it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureStory {
    first: Option<FailedAttempt>,
    latest: VecDeque<FailedAttempt>,
    omitted: u32,
}

impl FailureStory {
    pub fn attempts(&self) -> impl Iterator<Item = &FailedAttempt> {
        self.first.iter().chain(&self.latest)
    }

    /// Failures between the first and the latest that are not told in full.
    #[must_use]
    pub fn omitted(&self) -> u32 {
        self.omitted
    }

    #[must_use]
    pub fn last(&self) -> Option<&FailedAttempt> {
        self.latest.back().or(self.first.as_ref())
    }

    /// Fact: an attempt failed.
    pub fn failed(&mut self, mut attempt: FailedAttempt) {
        attempt.failure = attempt.failure.bounded();
        if self.first.is_none() {
            self.first = Some(attempt);
            return;
        }
        self.latest.push_back(attempt);
        if self.latest.len() >= limits::DEAD_LETTER_ATTEMPTS_MAX {
            self.latest.pop_front();
            self.omitted = self.omitted.saturating_add(1);
        }
    }
}

/// What a task has been through; only those that failed have one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardship {
    pub ladder: Ladder,
    pub story: FailureStory,
    /// Who should try next.
    pub by: Hands,
    /// Why it lies with a person now.
    pub because: Option<HumanBecause>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    pub task: TaskId,
    pub because: HumanBecause,
    pub story: FailureStory,
    pub counters: Ladder,
    pub died_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureKind;

    fn attempt(number: u32) -> FailedAttempt {
        let failure = Failure {
            kind: FailureKind::AgentError,
            message: format!("{}{number}", "x".repeat(limits::FAILURE_CHARS_MAX * 2)),
            retry_after_ms: None,
        };
        let at = Timestamp(u64::from(number));
        FailedAttempt {
            attempt: number,
            agent: None,
            phase: Phase::Green,
            failure,
            change: None,
            at,
        }
    }

    #[test]
    fn the_first_failure_and_the_latest_are_told_and_the_rest_is_counted() {
        let mut story = FailureStory::default();
        (1..=100).for_each(|number| story.failed(attempt(number)));
        let told: Vec<u32> = story.attempts().map(|attempt| attempt.attempt).collect();
        assert_eq!(told.len(), limits::DEAD_LETTER_ATTEMPTS_MAX);
        assert_eq!((told[0], told[1], told[19]), (1, 82, 100));
        assert_eq!(story.omitted() as usize, 100 - told.len());
        assert_eq!(story.last().map(|attempt| attempt.attempt), Some(100));
    }

    /// An agent that floods its output must not flood the journal.
    #[test]
    fn each_failure_keeps_the_end_of_its_message() {
        let mut story = FailureStory::default();
        story.failed(attempt(7));
        let message = &story.last().unwrap().failure.message;
        assert_eq!(message.chars().count(), limits::FAILURE_CHARS_MAX);
        assert!(message.ends_with("x7"));
    }
}
