//! Failures by type, and how often each is tried again.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::TaskId;
use crate::limits;
use crate::time::SECOND_MS;

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    Network,
    RateLimited,
    FileLocked,
    ValidationFailed,
    AgentError,
    GitConflict,
    Timeout,
    Hang,
    OutOfMemory,
    DiskFull,
    Budget,
    Auth,
    DependencyFailed,
}

impl FailureKind {
    pub const ALL: [FailureKind; 13] = [
        FailureKind::Network,
        FailureKind::RateLimited,
        FailureKind::FileLocked,
        FailureKind::ValidationFailed,
        FailureKind::AgentError,
        FailureKind::GitConflict,
        FailureKind::Timeout,
        FailureKind::Hang,
        FailureKind::OutOfMemory,
        FailureKind::DiskFull,
        FailureKind::Budget,
        FailureKind::Auth,
        FailureKind::DependencyFailed,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Network => "network",
            FailureKind::RateLimited => "rate_limited",
            FailureKind::FileLocked => "file_locked",
            FailureKind::ValidationFailed => "validation_failed",
            FailureKind::AgentError => "agent_error",
            FailureKind::GitConflict => "git_conflict",
            FailureKind::Timeout => "timeout",
            FailureKind::Hang => "hang",
            FailureKind::OutOfMemory => "out_of_memory",
            FailureKind::DiskFull => "disk_full",
            FailureKind::Budget => "budget",
            FailureKind::Auth => "auth",
            FailureKind::DependencyFailed => "dependency_failed",
        }
    }

    /// How many times a task is tried again after failing this way (RET-02 where it speaks).
    #[must_use]
    pub fn retries_max(self) -> u32 {
        match self {
            FailureKind::FileLocked => 10,
            FailureKind::Network | FailureKind::RateLimited => 5,
            FailureKind::AgentError => 3,
            FailureKind::ValidationFailed | FailureKind::Timeout | FailureKind::Hang => 2,
            FailureKind::GitConflict | FailureKind::OutOfMemory | FailureKind::DiskFull => 1,
            FailureKind::Budget | FailureKind::Auth | FailureKind::DependencyFailed => 0,
        }
    }

    fn backoff(self) -> Backoff {
        match self {
            FailureKind::ValidationFailed | FailureKind::GitConflict => Backoff::None,
            FailureKind::FileLocked => Backoff::ConstantMs(5 * SECOND_MS),
            FailureKind::Network
            | FailureKind::RateLimited
            | FailureKind::AgentError
            | FailureKind::Timeout
            | FailureKind::Hang
            | FailureKind::OutOfMemory
            | FailureKind::DiskFull
            | FailureKind::Budget
            | FailureKind::Auth
            | FailureKind::DependencyFailed => Backoff::Exponential,
        }
    }
}

impl std::fmt::Display for FailureKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

enum Backoff {
    None,
    ConstantMs(u64),
    Exponential,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub kind: FailureKind,
    /// The end of what was said about it, bounded.
    pub message: String,
    /// Of a rate limit: after how long the provider wants to be asked again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl Failure {
    #[must_use]
    pub fn new(kind: FailureKind, message: &str) -> Failure {
        let message = limits::tail(message, limits::FAILURE_CHARS_MAX).to_owned();
        Failure { kind, message, retry_after_ms: None }
    }

    /// The same, with no more of the message than is kept.
    #[must_use]
    pub fn bounded(&self) -> Failure {
        Failure { retry_after_ms: self.retry_after_ms, ..Failure::new(self.kind, &self.message) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    pub backoff_base_ms: u64,
    pub backoff_max_ms: u64,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy { backoff_base_ms: SECOND_MS, backoff_max_ms: 60 * SECOND_MS }
    }
}

impl RetryPolicy {
    /// How long to wait before retry number `retry` (from 1). Jitter of ±25 % comes from the ids,
    /// so that the same history always waits equally long; the cap holds after the jitter.
    #[must_use]
    pub fn delay_ms(&self, kind: FailureKind, task: TaskId, retry: u32) -> u64 {
        let planned = match kind.backoff() {
            Backoff::None => return 0,
            Backoff::ConstantMs(ms) => return ms.min(self.backoff_max_ms),
            Backoff::Exponential => {
                let doublings = retry.saturating_sub(1).min(30);
                self.backoff_base_ms.saturating_mul(1 << doublings).min(self.backoff_max_ms)
            }
        };
        let spread = planned / 2;
        let jitter = match spread {
            0 => 0,
            _ => scatter(u64::from(task.0) << 32 | u64::from(retry)) % (spread + 1),
        };
        (planned - planned / 4).saturating_add(jitter).min(self.backoff_max_ms)
    }
}

/// A fixed hash: neighbouring ids give unrelated numbers, and every run gives the same.
pub(crate) fn scatter(id: u64) -> u64 {
    let mixed = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_within_a_quarter_and_never_pass_the_cap() {
        let policy = RetryPolicy::default();
        for task in 0..200 {
            for (retry, planned) in [(1, 1_000), (2, 2_000), (3, 4_000), (4, 8_000), (5, 16_000)] {
                let ms = policy.delay_ms(FailureKind::Network, TaskId(task), retry);
                assert!((planned * 3 / 4..=planned * 5 / 4).contains(&ms), "{ms} for {planned}");
            }
            assert!(policy.delay_ms(FailureKind::Network, TaskId(task), 40) <= 60_000);
        }
    }

    #[test]
    fn waits_differ_between_tasks_so_that_they_do_not_return_together() {
        let policy = RetryPolicy::default();
        let wait = |task| policy.delay_ms(FailureKind::AgentError, TaskId(task), 3);
        let distinct: std::collections::BTreeSet<u64> = (0..100).map(wait).collect();
        assert!(distinct.len() > 50, "{distinct:?}");
    }

    #[test]
    fn the_retry_table_is_the_agreed_one() {
        let table = [
            (FailureKind::Network, 5),
            (FailureKind::FileLocked, 10),
            (FailureKind::ValidationFailed, 2),
            (FailureKind::AgentError, 3),
            (FailureKind::GitConflict, 1),
        ];
        for (kind, retries) in table {
            assert_eq!(kind.retries_max(), retries, "{kind}");
        }
        let policy = RetryPolicy::default();
        assert_eq!(policy.delay_ms(FailureKind::FileLocked, TaskId(1), 9), 5_000);
        assert_eq!(policy.delay_ms(FailureKind::ValidationFailed, TaskId(1), 2), 0);
    }
}
