//! What a model call costs.
//!
//! Invariant: a price that is not known is never taken for zero.

use std::collections::BTreeMap;

use kapelle_core::Usd;
use kapelle_core::report::Usage;
use serde::Deserialize;

const SHIPPED: &str = include_str!("../prices.toml");
const TOKENS_PER_PRICE: u128 = 1_000_000;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prices {
    by_model: BTreeMap<String, Price>,
}

/// Per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Price {
    input: Usd,
    output: Usd,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no price is known for the model {model:?}")]
pub struct UnknownPrice {
    pub model: String,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidPrices {
    #[error("the price table is not valid: {0}")]
    Malformed(String),
    #[error("the price of {model} is not an amount of money")]
    NotMoney { model: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    input: f64,
    output: f64,
}

impl Prices {
    /// The table that ships with Kapelle.
    pub fn shipped() -> Result<Prices, InvalidPrices> {
        Prices::parse(SHIPPED)
    }

    pub fn parse(text: &str) -> Result<Prices, InvalidPrices> {
        let rows: BTreeMap<String, Row> =
            toml::from_str(text).map_err(|e| InvalidPrices::Malformed(e.to_string()))?;
        let mut prices = Prices::default();
        for (model, row) in rows {
            prices.set(&model, row.input, row.output)?;
        }
        Ok(prices)
    }

    /// Sets a price in dollars per million tokens.
    pub fn set(&mut self, model: &str, input: f64, output: f64) -> Result<(), InvalidPrices> {
        let money = Usd::from_f64(input).zip(Usd::from_f64(output));
        let (input, output) =
            money.ok_or_else(|| InvalidPrices::NotMoney { model: model.to_owned() })?;
        self.by_model.insert(model.to_owned(), Price { input, output });
        Ok(())
    }

    /// The cost of a call, rounded up to the next millionth of a dollar.
    pub fn cost(&self, usage: &Usage) -> Result<Usd, UnknownPrice> {
        let price = self
            .by_model
            .get(&usage.model)
            .ok_or_else(|| UnknownPrice { model: usage.model.clone() })?;
        let part = |tokens: u64, price: Usd| u128::from(tokens) * u128::from(price.as_micros());
        let sum = part(usage.input_tokens, price.input) + part(usage.output_tokens, price.output);
        Ok(Usd::micros(u64::try_from(sum.div_ceil(TOKENS_PER_PRICE)).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(model: &str, input_tokens: u64, output_tokens: u64) -> Usage {
        Usage { model: model.into(), input_tokens, output_tokens }
    }

    /// The worked figures of the sources: a planner's call and an implementer's task.
    #[test]
    fn costs_are_the_worked_ones() {
        let prices = Prices::shipped().unwrap();
        let cost = |model, input, output| prices.cost(&usage(model, input, output)).unwrap();
        assert_eq!(cost("claude-haiku", 2_000, 3_000), Usd::micros(4_250));
        assert_eq!(cost("claude-sonnet", 15_000, 8_000), Usd::micros(165_000));
        assert_eq!(cost("claude-haiku", 1, 0), Usd::micros(1));
        assert_eq!(cost("claude-haiku", 0, 0), Usd::ZERO);
    }

    #[test]
    fn an_unknown_price_is_refused() {
        let unknown = Prices::shipped().unwrap().cost(&usage("mystery", 1, 1));
        assert_eq!(unknown, Err(UnknownPrice { model: "mystery".into() }));
    }

    #[test]
    fn absurd_usage_does_not_wrap_around() {
        let cost = Prices::shipped().unwrap().cost(&usage("claude-sonnet", u64::MAX, u64::MAX));
        assert!(cost.unwrap() > Usd::micros(1 << 60));
    }

    #[test]
    fn a_negative_price_is_refused() {
        assert!(Prices::parse("[m]\ninput = -1.0\noutput = 1.0").is_err());
        assert!(Prices::parse("[m]\ninput = 1.0").is_err());
    }
}
