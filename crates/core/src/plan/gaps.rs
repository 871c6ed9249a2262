//! Gap plans: when verification finds work missing, how often may a mission plan again?
//!
//! Invariant: without a person, at most `max_gap_retries` gap plans are made.

use serde::{Deserialize, Serialize};

use crate::limits;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GapPolicy {
    pub max_gap_retries: u32,
}

impl Default for GapPolicy {
    fn default() -> GapPolicy {
        GapPolicy { max_gap_retries: 2 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("max_gap_retries is {found}, more than {max}: a person should look before that")]
pub struct InvalidGapPolicy {
    pub found: u32,
    pub max: u32,
}

impl GapPolicy {
    pub fn validate(&self) -> Result<(), InvalidGapPolicy> {
        if self.max_gap_retries > limits::GAP_PLANS_MAX {
            let (found, max) = (self.max_gap_retries, limits::GAP_PLANS_MAX);
            return Err(InvalidGapPolicy { found, max });
        }
        Ok(())
    }
}

/// The gap plans of one mission.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Gaps {
    policy: GapPolicy,
    count: u32,
}

/// The sentence of RET-07; what was counted is in the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("Max Retries Exceeded (Human Intervention Needed)")]
pub struct GapsExhausted {
    pub gap_count: u32,
    pub max_gap_retries: u32,
}

impl Gaps {
    #[must_use]
    pub fn new(policy: GapPolicy) -> Gaps {
        Gaps { policy, count: 0 }
    }

    /// How many gap plans were made since a person last looked: `gap_count`.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether one more gap plan may be made, and which number it has.
    pub fn admit(&self) -> Result<u32, GapsExhausted> {
        let (gap_count, max_gap_retries) = (self.count, self.policy.max_gap_retries);
        if gap_count >= max_gap_retries {
            return Err(GapsExhausted { gap_count, max_gap_retries });
        }
        Ok(gap_count + 1)
    }

    /// A gap plan was made.
    pub fn planned(&mut self) {
        self.count = self.count.saturating_add(1);
    }

    /// A person looked and wants it tried again.
    pub fn forgiven(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Verification that never succeeds must end at a person, not in an endless bill.
    #[test]
    fn the_third_gap_plan_needs_a_person() {
        let mut gaps = Gaps::new(GapPolicy::default());
        for number in [1, 2] {
            assert_eq!(gaps.admit(), Ok(number));
            gaps.planned();
        }
        let refused = gaps.admit().unwrap_err();
        assert_eq!(refused, GapsExhausted { gap_count: 2, max_gap_retries: 2 });
        assert_eq!(refused.to_string(), "Max Retries Exceeded (Human Intervention Needed)");
        gaps.forgiven();
        assert_eq!(gaps.admit(), Ok(1));
    }

    #[test]
    fn the_limit_is_configurable_down_to_none() {
        let none = GapsExhausted { gap_count: 0, max_gap_retries: 0 };
        assert_eq!(Gaps::new(GapPolicy { max_gap_retries: 0 }).admit(), Err(none));
        let mut once = Gaps::new(GapPolicy { max_gap_retries: 1 });
        assert_eq!(once.admit(), Ok(1));
        once.planned();
        assert_eq!(once.admit(), Err(GapsExhausted { gap_count: 1, max_gap_retries: 1 }));
        let wild = GapPolicy { max_gap_retries: 21 };
        assert_eq!(wild.validate(), Err(InvalidGapPolicy { found: 21, max: 20 }));
    }
}
