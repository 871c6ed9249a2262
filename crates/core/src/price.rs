//! What tokens cost: editable data, exact sums.
//!
//! Invariant: a price that is not known is never taken for zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::money::Usd;

const TOKENS_PER_PRICE: u128 = 1_000_000;

/// Per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    pub input: Usd,
    pub output: Usd,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prices {
    pub models: BTreeMap<String, Price>,
    /// What to take for a model that the table does not know. Without it, its calls are refused.
    pub unknown: Option<Price>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("no price is known for the model {model:?}")]
pub struct UnknownPrice {
    pub model: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPrices {
    #[error("{count} prices are more than {max}")]
    TooMany { count: usize, max: usize },
    #[error("a model's name is empty or longer than {max} characters")]
    BadName { max: usize },
}

impl Price {
    /// Rounded up to the next millionth of a dollar.
    #[must_use]
    pub fn cost(&self, input_tokens: u64, output_tokens: u64) -> Usd {
        let part = |tokens: u64, price: Usd| u128::from(tokens) * u128::from(price.as_micros());
        let sum = part(input_tokens, self.input).saturating_add(part(output_tokens, self.output));
        Usd::micros(u64::try_from(sum.div_ceil(TOKENS_PER_PRICE)).unwrap_or(u64::MAX))
    }

    /// How many tokens of the dearer kind an amount buys for certain. None if they are free.
    #[must_use]
    pub fn tokens_for(&self, usd: Usd) -> Option<u64> {
        let price = u128::from(self.input.max(self.output).as_micros());
        let tokens = (u128::from(usd.as_micros()) * TOKENS_PER_PRICE).checked_div(price)?;
        Some(u64::try_from(tokens).unwrap_or(u64::MAX))
    }
}

/// The reference prices of the requirements (BUD-08).
impl Default for Prices {
    fn default() -> Prices {
        let price = |model: &str, input, output| {
            (model.to_owned(), Price { input: Usd::cents(input), output: Usd::cents(output) })
        };
        let models = BTreeMap::from([
            price("claude-haiku", 25, 125),
            price("claude-sonnet", 300, 1_500),
            price("deepseek-chat", 100, 100),
        ]);
        Prices { models, unknown: None }
    }
}

impl Prices {
    pub fn validate(&self) -> Result<(), InvalidPrices> {
        let (count, max) = (self.models.len(), limits::MODELS_MAX);
        if count > max {
            return Err(InvalidPrices::TooMany { count, max });
        }
        let max = limits::MODEL_CHARS_MAX;
        let is_name = |name: &String| !name.is_empty() && name.chars().count() <= max;
        match self.models.keys().all(is_name) {
            true => Ok(()),
            false => Err(InvalidPrices::BadName { max }),
        }
    }

    /// What a call costs, or can at most cost with the most tokens that it may write.
    pub fn cost(&self, model: &str, input: u64, output: u64) -> Result<Usd, UnknownPrice> {
        let price = self.models.get(model).or(self.unknown.as_ref());
        let price = price.ok_or_else(|| UnknownPrice { model: model.to_owned() })?;
        Ok(price.cost(input, output))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worked figures of the sources: a planner's call and an implementer's task.
    #[test]
    fn costs_are_the_worked_ones() {
        let prices = Prices::default();
        assert_eq!(prices.cost("claude-haiku", 2_000, 3_000), Ok(Usd::micros(4_250)));
        assert_eq!(prices.cost("claude-sonnet", 15_000, 8_000), Ok(Usd::micros(165_000)));
        assert_eq!(prices.cost("claude-haiku", 15_000, 8_000), Ok(Usd::micros(13_750)));
        assert_eq!(prices.cost("deepseek-chat", 1_000, 0), Ok(Usd::micros(1_000)));
        assert_eq!(prices.cost("claude-haiku", 1, 0), Ok(Usd::micros(1)), "rounded up");
    }

    /// A free model by mistake is a bill by surprise.
    #[test]
    fn an_unknown_price_is_refused_unless_one_is_configured() {
        let mut prices = Prices::default();
        let unknown = UnknownPrice { model: "mystery".into() };
        assert_eq!(prices.cost("mystery", 1, 1), Err(unknown));
        prices.unknown = Some(Price { input: Usd::cents(1_500), output: Usd::cents(7_500) });
        assert_eq!(prices.cost("mystery", 1_000, 0), Ok(Usd::micros(15_000)));
    }

    /// T-49: what $2.50 a day buys at the blended price of $15 a million.
    #[test]
    fn a_monthly_budget_buys_nine_loops_a_day() {
        let blended = Price { input: Usd::cents(1_500), output: Usd::cents(1_500) };
        assert_eq!(blended.tokens_for(Usd::cents(250)), Some(166_666));
        assert_eq!(166_666 / 18_000, 9);
        let free = Price { input: Usd::ZERO, output: Usd::ZERO };
        assert_eq!(free.tokens_for(Usd::cents(250)), None);
    }

    #[test]
    fn absurd_usage_does_not_wrap_around() {
        let cost = Prices::default().cost("claude-sonnet", u64::MAX, u64::MAX).unwrap();
        assert_eq!(cost, Usd::micros(u64::MAX));
    }

    #[test]
    fn a_table_is_bounded() {
        let price = Price { input: Usd::ZERO, output: Usd::ZERO };
        let table = |names: Vec<String>| Prices {
            models: names.into_iter().map(|name| (name, price)).collect(),
            unknown: None,
        };
        let names = (0..=limits::MODELS_MAX).map(|i| format!("m{i}")).collect();
        let max = limits::MODELS_MAX;
        let refused = table(names).validate();
        assert_eq!(refused, Err(InvalidPrices::TooMany { count: max + 1, max }));
        let max = limits::MODEL_CHARS_MAX;
        for name in [String::new(), "m".repeat(max + 1)] {
            assert_eq!(table(vec![name]).validate(), Err(InvalidPrices::BadName { max }));
        }
        assert_eq!(Prices::default().validate(), Ok(()));
    }
}
