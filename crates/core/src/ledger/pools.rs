//! Four pools of the day's budget, and who may still draw when they run dry (BUD-05).
//!
//! | pool | share of the day | of $75 | what it is for |
//! |---|---|---|---|
//! | baseline | 60 % | $45.00 | first attempts; holds the mean day with its bursts ($43.20) |
//! | retry | 15 % | $11.25 | work that failed before, so that a bad day does not eat a good one |
//! | emergency | 10 % | $7.50 | critical work only: there is always something left to save a day |
//! | spike | 15 % | $11.25 | a day that is busier than most |
//!
//! Throttling by tiers: as pools empty, the less urgent waits for the next day first.
//!
//! | work | draws from, in this order |
//! |---|---|
//! | LOW | baseline |
//! | MEDIUM, HIGH | baseline, spike |
//! | CRITICAL | baseline, spike, emergency |
//! | retries | retry (and emergency if CRITICAL) |
//! | councils | retry, spike (and emergency if CRITICAL) |
//!
//! A reservation is drawn from one pool as a whole.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::account::Purpose;
use crate::money::Usd;
use crate::plan::Priority;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pool {
    Baseline,
    Retry,
    Emergency,
    Spike,
}

impl Pool {
    pub const ALL: [Pool; 4] = [Pool::Baseline, Pool::Retry, Pool::Emergency, Pool::Spike];
    pub(super) const FIRST: Pool = Pool::Baseline;

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Pool::Baseline => "baseline",
            Pool::Retry => "retry",
            Pool::Emergency => "emergency",
            Pool::Spike => "spike",
        }
    }

    /// The pools that this work may draw from, in order.
    #[must_use]
    pub fn open_to(purpose: Purpose, priority: Priority) -> &'static [Pool] {
        use Pool::{Baseline, Emergency, Retry, Spike};
        match (purpose, priority) {
            (Purpose::Work, Priority::Low) => &[Baseline],
            (Purpose::Work, Priority::Medium | Priority::High) => &[Baseline, Spike],
            (Purpose::Work, Priority::Critical) => &[Baseline, Spike, Emergency],
            (Purpose::Retry, Priority::Critical) => &[Retry, Emergency],
            (Purpose::Retry, Priority::Low | Priority::Medium | Priority::High) => &[Retry],
            (Purpose::Council, Priority::Critical) => &[Retry, Spike, Emergency],
            (Purpose::Council, Priority::Low | Priority::Medium | Priority::High) => {
                &[Retry, Spike]
            }
        }
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How the day's budget is split, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shares {
    pub baseline: u32,
    pub retry: u32,
    pub emergency: u32,
    pub spike: u32,
}

pub(super) const WHOLE_PERMILLE: u32 = 1_000;

impl Default for Shares {
    fn default() -> Shares {
        Shares { baseline: 600, retry: 150, emergency: 100, spike: 150 }
    }
}

impl Shares {
    #[must_use]
    pub fn sum(&self) -> u64 {
        [self.baseline, self.retry, self.emergency, self.spike].map(u64::from).iter().sum()
    }

    /// What a pool holds of a day. What rounding leaves over belongs to the baseline, so that the
    /// pools add up to the day exactly.
    #[must_use]
    pub fn of(&self, pool: Pool, day: Usd) -> Usd {
        let part = |permille| permille_of(day, permille);
        match pool {
            Pool::Baseline => {
                let rest = part(self.retry) + part(self.emergency) + part(self.spike);
                day.saturating_sub(rest)
            }
            Pool::Retry => part(self.retry),
            Pool::Emergency => part(self.emergency),
            Pool::Spike => part(self.spike),
        }
    }
}

/// Rounded down.
pub(super) fn permille_of(usd: Usd, permille: u32) -> Usd {
    let part = u128::from(usd.as_micros()) * u128::from(permille) / u128::from(WHOLE_PERMILLE);
    Usd::micros(u64::try_from(part).unwrap_or(u64::MAX))
}

/// How far the day's pools are down, for first attempts of a given size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Throttle {
    /// Everything may start.
    Open,
    /// The baseline is used up: LOW waits for the next day.
    Busy,
    /// Baseline and spike are used up: only CRITICAL starts.
    CriticalOnly,
    /// No first attempt fits any more.
    Closed,
}

impl fmt::Display for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Throttle::Open => "all work may start",
            Throttle::Busy => "the day's baseline is used up, so LOW work waits",
            Throttle::CriticalOnly => "only the emergency pool is left, so all but CRITICAL waits",
            Throttle::Closed => "the day's pools are used up",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T-48.
    #[test]
    fn seventy_five_dollars_split_into_four_pools() {
        let split = Pool::ALL.map(|pool| Shares::default().of(pool, Usd::cents(7_500)));
        let expected = [4_500, 1_125, 750, 1_125].map(Usd::cents);
        assert_eq!(split, expected);
    }

    /// A cap that does not divide must not lose or make a millionth.
    #[test]
    fn pools_add_up_to_the_day() {
        for micros in [0, 1, 7, 999, 1_001, 9_999_999, u64::MAX] {
            let day = Usd::micros(micros);
            let sum = Pool::ALL
                .iter()
                .fold(Usd::ZERO, |sum, pool| sum + Shares::default().of(*pool, day));
            assert_eq!(sum, day);
        }
    }

    /// Only critical work may take the last reserve, and retries never take from first attempts.
    #[test]
    fn pools_are_open_to_those_they_are_for() {
        for priority in [Priority::Low, Priority::Medium, Priority::High, Priority::Critical] {
            for purpose in [Purpose::Work, Purpose::Retry, Purpose::Council] {
                let open = Pool::open_to(purpose, priority);
                let is_critical = priority == Priority::Critical;
                assert_eq!(
                    open.contains(&Pool::Emergency),
                    is_critical,
                    "{purpose:?} {priority:?}"
                );
                let is_work = purpose == Purpose::Work;
                assert_eq!(open.contains(&Pool::Baseline), is_work, "{purpose:?} {priority:?}");
            }
        }
        assert_eq!(Pool::open_to(Purpose::Work, Priority::Low), [Pool::Baseline]);
    }
}
