//! The judge's scores, in exact integers (CON-09).

use serde::{Deserialize, Serialize};

/// In percent; they add up to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JudgeWeights {
    pub correctness: u32,
    pub reasoning: u32,
    pub tests: u32,
    pub confidence: u32,
}

impl Default for JudgeWeights {
    fn default() -> JudgeWeights {
        JudgeWeights { correctness: 40, reasoning: 25, tests: 20, confidence: 15 }
    }
}

/// How good a solution is, each in thousandths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Score {
    /// Syntax, types.
    pub correctness: u32,
    pub reasoning: u32,
    /// The share of the tests that pass.
    pub tests: u32,
    /// As the model itself states it.
    pub confidence: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {value}; a score is at most 1000")]
pub struct BadScore {
    pub what: &'static str,
    pub value: u32,
}

impl JudgeWeights {
    #[must_use]
    pub fn sum(&self) -> u32 {
        let parts = [self.correctness, self.reasoning, self.tests, self.confidence];
        parts.into_iter().fold(0, u32::saturating_add)
    }

    /// From 0 to 100,000: percent times thousandths.
    #[must_use]
    pub fn total(&self, score: &Score) -> u64 {
        let parts = [
            (self.correctness, score.correctness),
            (self.reasoning, score.reasoning),
            (self.tests, score.tests),
            (self.confidence, score.confidence),
        ];
        parts.into_iter().map(|(weight, score)| u64::from(weight) * u64::from(score)).sum()
    }
}

impl Score {
    pub fn validate(&self) -> Result<(), BadScore> {
        let parts = [
            ("correctness", self.correctness),
            ("reasoning", self.reasoning),
            ("tests", self.tests),
            ("confidence", self.confidence),
        ];
        match parts.into_iter().find(|(_, value)| *value > 1_000) {
            Some((what, value)) => Err(BadScore { what, value }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T-15.
    #[test]
    fn the_weights_are_40_25_20_15() {
        let weights = JudgeWeights::default();
        assert_eq!(weights.sum(), 100);
        let one = |change: fn(&mut Score)| {
            let mut score = Score::default();
            change(&mut score);
            weights.total(&score)
        };
        assert_eq!(one(|s| s.correctness = 1_000), 40_000);
        assert_eq!(one(|s| s.reasoning = 1_000), 25_000);
        assert_eq!(one(|s| s.tests = 1_000), 20_000);
        assert_eq!(one(|s| s.confidence = 1_000), 15_000);
        let mixed = Score { correctness: 900, reasoning: 801, tests: 667, confidence: 333 };
        assert_eq!(weights.total(&mixed), 36_000 + 20_025 + 13_340 + 4_995);
    }

    #[test]
    fn scores_beyond_the_scale_are_refused() {
        let score = Score { confidence: 1_001, ..Score::default() };
        let refused = score.validate().unwrap_err();
        assert_eq!(refused.to_string(), "confidence is 1001; a score is at most 1000");
        assert_eq!(Score::default().validate(), Ok(()));
    }
}
