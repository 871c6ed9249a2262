//! What work will cost: means, the day that nineteen of twenty days stay below, projections.

use serde::{Deserialize, Serialize};

use crate::calendar::DAY_MS;
use crate::money::Usd;

/// Some pieces of work that are expected to come, at random, with what one of them costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    pub count: u64,
    pub usd_each: Usd,
}

/// How the costs of single pieces lie around their mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// Each costs the same.
    Fixed,
    /// Most cost little and a few cost much, as attempts of agents do.
    Exponential,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forecast {
    pub mean: Usd,
    /// Exceeded by one of twenty.
    pub p95: Usd,
}

impl Forecast {
    /// The sum of randomly arriving pieces of random size (compound Poisson).
    #[must_use]
    pub fn of(loads: &[Load], spread: Spread) -> Forecast {
        let loads = loads.iter().map(|load| (u128::from(load.count) * 1_000, load.usd_each));
        Forecast::of_thousandths(loads, spread)
    }

    /// A day of `tasks` in which a fifth of them take twice the tokens (BUD-07).
    #[must_use]
    pub fn bursty_day(tasks: u64, usd_each: Usd, spread: Spread) -> Forecast {
        let tasks = u128::from(tasks);
        let loads = [(tasks * 800, usd_each), (tasks * 200, usd_each + usd_each)];
        Forecast::of_thousandths(loads.into_iter(), spread)
    }

    /// Of thousandths of pieces. The variance of the sum is the sum of the squares of the sizes,
    /// doubled if the sizes are exponential.
    fn of_thousandths(loads: impl Iterator<Item = (u128, Usd)>, spread: Spread) -> Forecast {
        /// A normal variable stays below this many thousandths of its deviation in 95 %.
        const Z95_PERMILLE: u128 = 1_645;
        let (mut mean, mut variance) = (0_u128, 0_u128);
        for (count, each) in loads {
            let each = u128::from(each.as_micros());
            mean = mean.saturating_add(count.saturating_mul(each));
            variance = variance.saturating_add(count.saturating_mul(each.saturating_mul(each)));
        }
        if spread == Spread::Exponential {
            variance = variance.saturating_mul(2);
        }
        let (mean, variance) = (mean / 1_000, variance / 1_000);
        let above = variance.isqrt().saturating_mul(Z95_PERMILLE) / 1_000;
        Forecast { mean: micros(mean), p95: micros(mean.saturating_add(above)) }
    }
}

fn micros(sum: u128) -> Usd {
    Usd::micros(u64::try_from(sum).unwrap_or(u64::MAX))
}

/// What a day costs if it goes on like this (BUD-02). None while there is too little to go by.
#[must_use]
pub fn projected_day(spent: Usd, elapsed_ms: u64) -> Option<Usd> {
    /// Before this, one call would project a fortune.
    const ELAPSED_MS_MIN: u64 = 60_000;
    if elapsed_ms < ELAPSED_MS_MIN {
        return None;
    }
    let day = u128::from(spent.as_micros()) * u128::from(DAY_MS) / u128::from(elapsed_ms);
    Some(micros(day))
}

/// A mission may cost twice what it costs in nineteen of twenty cases, and never more than the
/// day has left.
#[must_use]
pub fn mission_cap(p95: Usd, day_left: Option<Usd>) -> Usd {
    let twice = p95 + p95;
    day_left.map_or(twice, |left| twice.min(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T-50: 72 tasks at half a dollar.
    #[test]
    fn a_calm_day_costs_36_dollars() {
        let calm = Forecast::of(&[Load { count: 72, usd_each: Usd::cents(50) }], Spread::Fixed);
        assert_eq!(calm.mean, Usd::cents(3_600));
        assert_eq!(Usd::cents(5_000).saturating_sub(calm.mean), Usd::cents(1_400));
    }

    /// T-51 with E-03 put right: the mean is $43.20, and nineteen of twenty days stay below $52.02
    /// (equal sizes) or $55.68 (exponential sizes), not $60.
    #[test]
    fn a_bursty_day_has_the_recomputed_p95() {
        let day = |spread| Forecast::bursty_day(72, Usd::cents(50), spread);
        assert_eq!(day(Spread::Fixed).mean, Usd::micros(43_200_000));
        assert_eq!(day(Spread::Fixed).p95.as_micros() / 10_000, 5_202);
        assert_eq!(day(Spread::Exponential).mean, Usd::micros(43_200_000));
        assert_eq!(day(Spread::Exponential).p95.as_micros() / 10_000, 5_568);
    }

    /// BUD-02.
    #[test]
    fn a_session_projects_a_day() {
        let hour_ms = 60 * 60 * 1_000;
        assert_eq!(projected_day(Usd::cents(300), 2 * hour_ms), Some(Usd::cents(3_600)));
        assert_eq!(projected_day(Usd::ZERO, hour_ms), Some(Usd::ZERO));
        assert_eq!(projected_day(Usd::cents(300), 59_999), None, "too early to say");
    }

    #[test]
    fn a_mission_may_cost_twice_its_p95_if_the_day_has_it() {
        let cap = |left| mission_cap(Usd::cents(345), left);
        assert_eq!(cap(None), Usd::cents(690));
        assert_eq!(cap(Some(Usd::cents(7_500))), Usd::cents(690));
        assert_eq!(cap(Some(Usd::cents(100))), Usd::cents(100));
    }

    #[test]
    fn absurd_loads_do_not_wrap_around() {
        let load = Load { count: u64::MAX, usd_each: Usd::micros(u64::MAX) };
        let absurd = Forecast::of(&[load, load], Spread::Exponential);
        assert_eq!(absurd.mean, Usd::micros(u64::MAX));
        assert!(absurd.p95 >= absurd.mean);
    }
}
