//! What a project allows its plans to be.

use serde::{Deserialize, Serialize};

use super::batch::{BatchPolicy, InvalidBatchPolicy};
use super::gaps::{GapPolicy, InvalidGapPolicy};
use crate::limits;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlanPolicy {
    /// Past this many files a task is warned about (PLN-09).
    pub task_files_advised_max: u32,
    /// Past this many files the plan is refused.
    pub task_files_max: u32,
    pub gaps: GapPolicy,
    pub batch: BatchPolicy,
}

impl Default for PlanPolicy {
    fn default() -> PlanPolicy {
        PlanPolicy {
            task_files_advised_max: limits::TASK_FILES_ADVISED_MAX as u32,
            task_files_max: limits::TASK_FILES_MAX as u32,
            gaps: GapPolicy::default(),
            batch: BatchPolicy::default(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum InvalidPlanPolicy {
    #[error("task_files_max is {found}; it must be between 1 and {max}")]
    TaskFiles { found: u32, max: usize },
    #[error("tasks are warned about past {advised} files, but refused past {max} already")]
    AdvisedOverMax { advised: u32, max: u32 },
    #[error(transparent)]
    Gaps(#[from] InvalidGapPolicy),
    #[error(transparent)]
    Batch(#[from] InvalidBatchPolicy),
}

impl PlanPolicy {
    /// What is not said is not written, so that journals read back as they were.
    pub(crate) fn is_default(&self) -> bool {
        *self == PlanPolicy::default()
    }

    pub fn validate(&self) -> Result<(), InvalidPlanPolicy> {
        let (advised, max) = (self.task_files_advised_max, self.task_files_max);
        if max == 0 || max as usize > limits::TASK_FILES_MAX {
            return Err(InvalidPlanPolicy::TaskFiles { found: max, max: limits::TASK_FILES_MAX });
        }
        if advised > max {
            return Err(InvalidPlanPolicy::AdvisedOverMax { advised, max });
        }
        self.gaps.validate()?;
        Ok(self.batch.validate()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_cannot_work_are_refused() {
        let with = |change: fn(&mut PlanPolicy)| {
            let mut policy = PlanPolicy::default();
            change(&mut policy);
            policy.validate()
        };
        assert_eq!(with(|_| {}), Ok(()));
        let none = Err(InvalidPlanPolicy::TaskFiles { found: 0, max: 200 });
        assert_eq!(with(|p| p.task_files_max = 0), none);
        let over = Err(InvalidPlanPolicy::AdvisedOverMax { advised: 3, max: 2 });
        assert_eq!(with(|p| p.task_files_max = 2), over);
        assert!(matches!(with(|p| p.gaps.max_gap_retries = 99), Err(InvalidPlanPolicy::Gaps(_))));
        assert!(matches!(with(|p| p.batch.tasks_max = 99), Err(InvalidPlanPolicy::Batch(_))));
    }

    #[test]
    fn what_is_not_configured_has_its_default() {
        let policy: PlanPolicy = serde_json::from_str(r#"{"task_files_advised_max": 5}"#).unwrap();
        assert_eq!(policy, PlanPolicy { task_files_advised_max: 5, ..PlanPolicy::default() });
    }
}
