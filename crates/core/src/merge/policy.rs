//! How the merge queue is set up.

use serde::{Deserialize, Serialize};

use crate::limits;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MergePolicy {
    /// Changes that are tested as one candidate.
    pub batch_changes_max: u32,
    /// Candidates that are tested side by side.
    pub lanes_max: u32,
    /// How often a failed candidate is tested again before anybody is blamed.
    pub flake_retries_max: u32,
    /// How often a conflicting change is rebased before a person is asked (GIT-19).
    pub rebases_max: u32,
}

impl Default for MergePolicy {
    fn default() -> MergePolicy {
        MergePolicy { batch_changes_max: 5, lanes_max: 4, flake_retries_max: 1, rebases_max: 1 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum InvalidMergePolicy {
    #[error("{what} must be at least 1")]
    Zero { what: &'static str },
    #[error("{what} is {count}, more than {max}")]
    TooMany { what: &'static str, count: u32, max: u32 },
}

impl MergePolicy {
    pub(crate) fn is_default(&self) -> bool {
        *self == MergePolicy::default()
    }

    pub fn validate(&self) -> Result<(), InvalidMergePolicy> {
        let bounds = [
            ("batch_changes_max", self.batch_changes_max, limits::MERGE_BATCH_MAX, 1),
            ("lanes_max", self.lanes_max, limits::MERGE_LANES_MAX, 1),
            ("flake_retries_max", self.flake_retries_max, limits::MERGE_RETRIES_MAX, 0),
            ("rebases_max", self.rebases_max, limits::MERGE_RETRIES_MAX, 0),
        ];
        for (what, count, max, min) in bounds {
            if count < min {
                return Err(InvalidMergePolicy::Zero { what });
            }
            if count > max {
                return Err(InvalidMergePolicy::TooMany { what, count, max });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: fn(&mut MergePolicy)) -> Result<(), InvalidMergePolicy> {
        let mut policy = MergePolicy::default();
        change(&mut policy);
        policy.validate()
    }

    /// A queue with no room would stand still without a word.
    #[test]
    fn rules_that_would_stall_the_queue_are_refused() {
        assert_eq!(with(|_| {}), Ok(()));
        let zero = |what| Err(InvalidMergePolicy::Zero { what });
        assert_eq!(with(|p| p.batch_changes_max = 0), zero("batch_changes_max"));
        assert_eq!(with(|p| p.lanes_max = 0), zero("lanes_max"));
        assert_eq!(with(|p| (p.flake_retries_max, p.rebases_max) = (0, 0)), Ok(()));
        let (count, max) = (1_000, limits::MERGE_LANES_MAX);
        let many = Err(InvalidMergePolicy::TooMany { what: "lanes_max", count, max });
        assert_eq!(with(|p| p.lanes_max = 1_000), many);
    }

    #[test]
    fn what_is_not_configured_is_the_agreed_default() {
        let policy: MergePolicy = serde_json::from_str("{}").unwrap();
        assert_eq!(policy, MergePolicy::default());
        assert_eq!((policy.batch_changes_max, policy.rebases_max), (5, 1));
    }
}
