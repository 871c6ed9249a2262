//! The price table that ships with Kapelle, as data that a project can add to.

use std::collections::BTreeMap;

use kapelle_core::Usd;
use kapelle_core::price::{Price, Prices};
use serde::Deserialize;

const SHIPPED: &str = include_str!("../prices.toml");

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidTable {
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

/// The table that ships with Kapelle.
pub fn shipped() -> Result<Prices, InvalidTable> {
    parse(SHIPPED)
}

pub fn parse(text: &str) -> Result<Prices, InvalidTable> {
    let rows: BTreeMap<String, Row> =
        toml::from_str(text).map_err(|e| InvalidTable::Malformed(e.to_string()))?;
    let priced = |(model, row): (String, Row)| {
        let price = price(&model, row.input, row.output)?;
        Ok((model, price))
    };
    let models = rows.into_iter().map(priced).collect::<Result<_, _>>()?;
    Ok(Prices { models, unknown: None })
}

/// A price in dollars per million tokens, as people write it.
pub fn price(model: &str, input: f64, output: f64) -> Result<Price, InvalidTable> {
    let money = Usd::from_f64(input).zip(Usd::from_f64(output));
    let wrong = || InvalidTable::NotMoney { model: model.to_owned() };
    money.map(|(input, output)| Price { input, output }).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_table_holds_the_reference_prices() {
        let (shipped, reference) = (shipped().unwrap(), Prices::default());
        assert_eq!(shipped.validate(), Ok(()));
        for (model, price) in &reference.models {
            assert_eq!(shipped.models.get(model), Some(price), "{model}");
        }
        assert_eq!(shipped.unknown, None, "a price that is not known is refused");
    }

    #[test]
    fn a_negative_price_is_refused() {
        let table = "[m]\ninput = -1.0\noutput = 1.0";
        assert_eq!(parse(table), Err(InvalidTable::NotMoney { model: "m".into() }));
        assert!(matches!(parse("[m]\ninput = 1.0"), Err(InvalidTable::Malformed(_))));
    }
}
