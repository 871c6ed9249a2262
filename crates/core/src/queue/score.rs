//! The priority score of QUE-11, in whole tenths of a point: a divisor of 10 gives halves.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::policy::QueuePolicy;
use crate::plan::Priority;

/// Tenths of a point, exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Points(i64);

impl Points {
    #[must_use]
    pub const fn whole(points: i64) -> Points {
        Points(points.saturating_mul(10))
    }

    #[must_use]
    pub const fn tenths(tenths: i64) -> Points {
        Points(tenths)
    }

    #[must_use]
    pub const fn as_tenths(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Points {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, abs) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        match abs % 10 {
            0 => write!(f, "{sign}{}", abs / 10),
            tenth => write!(f, "{sign}{}.{tenth}", abs / 10),
        }
    }
}

/// What the score is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    pub priority: Priority,
    /// As the plan has them, done or not.
    pub dependencies: u32,
    pub dependents: u32,
    pub minutes: u32,
}

/// More than this says "long", and long tasks must not sink below everything.
const DURATION_PENALTY_MAX: Points = Points::whole(30);
const FREE_BONUS: Points = Points::whole(50);
const DEPENDENT_BONUS: Points = Points::whole(10);
const LOCKED_PENALTY: Points = Points::whole(40);

impl Standing {
    #[must_use]
    pub fn explicit(self) -> Points {
        Points::whole(match self.priority {
            Priority::Critical => 100,
            Priority::High => 70,
            Priority::Medium => 40,
            Priority::Low => 10,
        })
    }

    #[must_use]
    pub fn score(self, policy: &QueuePolicy, locked: bool) -> Points {
        let free = if self.dependencies == 0 { FREE_BONUS.0 } else { 0 };
        let opens = DEPENDENT_BONUS.0.saturating_mul(i64::from(self.dependents));
        let tenths = i64::from(self.minutes) * 10 / i64::from(policy.duration_divisor.max(1));
        let held = if locked { LOCKED_PENALTY.0 } else { 0 };
        Points(self.explicit().0 + free + opens - tenths.min(DURATION_PENALTY_MAX.0) - held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(priority: Priority, dependencies: u32, dependents: u32, minutes: u32) -> Standing {
        Standing { priority, dependencies, dependents, minutes }
    }

    fn examples(divisor: u32) -> Vec<String> {
        let policy = QueuePolicy { duration_divisor: divisor, ..QueuePolicy::default() };
        let scores = [
            standing(Priority::Critical, 0, 0, 10).score(&policy, false),
            standing(Priority::High, 2, 0, 30).score(&policy, false),
            standing(Priority::Medium, 0, 0, 5).score(&policy, true),
            standing(Priority::High, 0, 3, 15).score(&policy, false),
        ];
        scores.iter().map(ToString::to_string).collect()
    }

    /// T-70, QUE-12, E-01: both readings of the sources, to the tenth.
    #[test]
    fn scores_of_a_b_c_and_d_are_the_golden_ones() {
        assert_eq!(examples(1), ["140", "40", "45", "135"]);
        assert_eq!(examples(10), ["149", "67", "49.5", "148.5"]);
    }

    #[test]
    fn a_long_task_loses_at_most_thirty_points() {
        let policy = QueuePolicy::default();
        let of = |minutes| standing(Priority::Low, 1, 0, minutes).score(&policy, false);
        assert_eq!(of(30), Points::whole(-20));
        assert_eq!(of(100_000), of(30));
    }

    #[test]
    fn points_read_as_people_write_them() {
        let said = [0, 5, -5, 1_485, -400].map(|tenths| Points::tenths(tenths).to_string());
        assert_eq!(said, ["0", "0.5", "-0.5", "148.5", "-40"]);
    }
}
