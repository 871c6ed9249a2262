//! Rounds of review: counted, and paid for out of a sum of their own (TDD-11).

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewPolicy {
    pub rounds_max: u32,
    /// For all rounds of one task together. Votes do not say how many tokens they used yet, so it
    /// binds nothing before somebody counts them; rounds do.
    pub tokens_max: u64,
}

impl Default for ReviewPolicy {
    fn default() -> ReviewPolicy {
        ReviewPolicy { rounds_max: 3, tokens_max: 50_000 }
    }
}

/// What the reviews of a task have used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reviews {
    pub rounds: u32,
    pub tokens: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, thiserror::Error)]
pub enum ReviewsExhausted {
    #[error("{rounds} rounds of review are as many as a task may have; a person decides")]
    Rounds { rounds: u32 },
    #[error("{left} of {max} tokens for reviews are left, less than the {asked} of another round")]
    Tokens { left: u64, max: u64, asked: u64 },
}

impl Reviews {
    /// Whether another round that may use up to `tokens` can begin.
    pub fn check_round(&self, tokens: u64, policy: &ReviewPolicy) -> Result<(), ReviewsExhausted> {
        if self.rounds >= policy.rounds_max {
            return Err(ReviewsExhausted::Rounds { rounds: self.rounds });
        }
        let left = policy.tokens_max.saturating_sub(self.tokens);
        if tokens > left {
            let max = policy.tokens_max;
            return Err(ReviewsExhausted::Tokens { left, max, asked: tokens });
        }
        Ok(())
    }

    /// Fact: a round ended and used so much.
    pub fn held(&mut self, tokens: u64) {
        self.rounds = self.rounds.saturating_add(1);
        self.tokens = self.tokens.saturating_add(tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_end_with_their_rounds_or_their_tokens() {
        let policy = ReviewPolicy { rounds_max: 2, tokens_max: 100 };
        let mut reviews = Reviews::default();
        assert_eq!(reviews.check_round(60, &policy), Ok(()));
        reviews.held(60);
        let short = ReviewsExhausted::Tokens { left: 40, max: 100, asked: 50 };
        assert_eq!(reviews.check_round(50, &policy), Err(short));
        assert_eq!(reviews.check_round(40, &policy), Ok(()));
        reviews.held(1);
        let over = ReviewsExhausted::Rounds { rounds: 2 };
        assert_eq!(reviews.check_round(1, &policy), Err(over));
    }
}
