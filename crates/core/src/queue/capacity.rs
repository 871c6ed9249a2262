//! Effective concurrency: how many attempts may run at the same time, and what says so.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::policy::Strategy;
use crate::money::Usd;

/// What limits how much can run at once. The smallest counts (C-02).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    pub workers: u32,
    /// Attempts that the providers' request and token limits carry.
    pub permits: u32,
    /// Attempts that memory, disk and processors carry.
    pub resources: u32,
    /// Attempts whose reservation still fits.
    pub budget: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    Workers,
    ProviderLimit,
    Resources,
    Budget,
    Serial,
}

/// A limit with the one of its causes that binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concurrency {
    pub limit: u32,
    pub bound: Bound,
}

impl Concurrency {
    #[must_use]
    pub fn room(self, running: u32) -> u32 {
        self.limit.saturating_sub(running)
    }
}

impl fmt::Display for Concurrency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.bound {
            Bound::Workers => "the number of workers",
            Bound::ProviderLimit => "the providers' rate limits",
            Bound::Resources => "the memory and disk of this machine",
            Bound::Budget => "the budget that is left",
            Bound::Serial => "the serial mode",
        };
        write!(f, "{} at the same time, bound by {by}", self.limit)
    }
}

impl Capacity {
    #[must_use]
    pub fn effective(self, strategy: Strategy) -> Concurrency {
        let mut least = Concurrency { limit: self.workers, bound: Bound::Workers };
        let others = [
            (self.permits, Bound::ProviderLimit),
            (self.resources, Bound::Resources),
            (self.budget, Bound::Budget),
        ];
        for (limit, bound) in others {
            if limit < least.limit {
                least = Concurrency { limit, bound };
            }
        }
        match strategy {
            Strategy::Serial if least.limit > 1 => Concurrency { limit: 1, bound: Bound::Serial },
            _ => least,
        }
    }

    /// How many attempts of `reserve` each fit into what is left.
    #[must_use]
    pub fn affordable(left: Usd, reserve: Usd) -> u32 {
        match reserve.as_micros() {
            0 => u32::MAX,
            micros => u32::try_from(left.as_micros() / micros).unwrap_or(u32::MAX),
        }
    }
}

/// What one working agent asks of a provider in a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    pub requests_per_minute: u32,
    pub tokens_per_minute: u32,
}

/// How many agents fit into a provider's limits (QUE-27). A limit that is not known binds nothing;
/// an agent that asks for nothing costs nothing.
#[must_use]
pub fn permits(rpm_max: Option<u32>, tpm_max: Option<u32>, demand: Demand) -> u32 {
    let fit = |limit: Option<u32>, each: u32| {
        limit.map_or(u32::MAX, |limit| limit.checked_div(each).unwrap_or(u32::MAX))
    };
    fit(rpm_max, demand.requests_per_minute).min(fit(tpm_max, demand.tokens_per_minute))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Capacity = Capacity { workers: 8, permits: 9, resources: 9, budget: 9 };

    #[test]
    fn the_smallest_limit_binds_and_says_so() {
        let cases = [
            (WIDE, Strategy::Scored, 8, Bound::Workers),
            (Capacity { permits: 3, ..WIDE }, Strategy::Scored, 3, Bound::ProviderLimit),
            (Capacity { resources: 2, ..WIDE }, Strategy::Scored, 2, Bound::Resources),
            (Capacity { budget: 0, ..WIDE }, Strategy::Serial, 0, Bound::Budget),
            (WIDE, Strategy::Serial, 1, Bound::Serial),
        ];
        for (capacity, strategy, limit, bound) in cases {
            assert_eq!(capacity.effective(strategy), Concurrency { limit, bound });
        }
        let said = Capacity { permits: 3, ..WIDE }.effective(Strategy::Scored);
        assert_eq!(said.to_string(), "3 at the same time, bound by the providers' rate limits");
        assert_eq!((said.room(1), said.room(5)), (2, 0));
    }

    /// T-54: 10k tokens a minute each, 30k allowed: three workers, whatever the seats.
    #[test]
    fn rate_limits_become_a_number_of_agents() {
        let demand = Demand { requests_per_minute: 10, tokens_per_minute: 10_000 };
        assert_eq!(permits(Some(60), Some(30_000), demand), 3);
        assert_eq!(permits(Some(20), Some(30_000), demand), 2);
        assert_eq!(permits(None, None, demand), u32::MAX);
        let silent = Demand { requests_per_minute: 0, tokens_per_minute: 0 };
        assert_eq!(permits(Some(60), Some(1), silent), u32::MAX);
    }

    #[test]
    fn money_left_becomes_a_number_of_attempts() {
        assert_eq!(Capacity::affordable(Usd::cents(500), Usd::cents(200)), 2);
        assert_eq!(Capacity::affordable(Usd::cents(199), Usd::cents(200)), 0);
        assert_eq!(Capacity::affordable(Usd::ZERO, Usd::ZERO), u32::MAX);
    }
}
