//! The hourly burn: whether the last hour has cost too much for too long (T-47).
//!
//! An alert, not a limit: it is answered from what was spent in each minute, so that asking
//! changes nothing.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::policy::BurnPolicy;
use crate::money::Usd;
use crate::time::{MINUTE_MS, Timestamp};

const HOUR_MINUTES: u64 = 60;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Burn {
    /// By the number of the minute; at most two hours of them.
    minutes: BTreeMap<u64, Usd>,
    alerted_at: Option<Timestamp>,
}

/// The last hour has cost more than `max` for at least as long as the policy says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BurnAlert {
    pub hour: Usd,
    pub max: Usd,
}

impl fmt::Display for BurnAlert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the last hour cost {}, more than {}", self.hour, self.max)
    }
}

impl Burn {
    /// What the running minute and the 59 before it cost.
    #[must_use]
    pub fn hour_usd(&self, now: Timestamp) -> Usd {
        self.hour_until(now.0 / MINUTE_MS)
    }

    fn hour_until(&self, minute: u64) -> Usd {
        let first = (minute + 1).saturating_sub(HOUR_MINUTES);
        self.minutes.range(first..=minute).fold(Usd::ZERO, |sum, (_, usd)| sum + *usd)
    }

    #[must_use]
    pub fn alert(&self, policy: &BurnPolicy, now: Timestamp) -> Option<BurnAlert> {
        let minute = now.0 / MINUTE_MS;
        let first = minute.saturating_sub(policy.sustained_ms.div_ceil(MINUTE_MS));
        let is_over = |minute| self.hour_until(minute) > policy.hour_usd_max;
        let alert = || BurnAlert { hour: self.hour_until(minute), max: policy.hour_usd_max };
        let is_news = self.alerted_at.is_none_or(|at| now.ms_since(at) >= HOUR_MINUTES * MINUTE_MS);
        (is_news && (first..=minute).all(is_over)).then(alert)
    }

    /// People were told; for an hour that is enough.
    pub(super) fn alerted(&mut self, at: Timestamp) {
        self.alerted_at = Some(at);
    }

    pub(super) fn spent(&mut self, usd: Usd, at: Timestamp) {
        let minute = at.0 / MINUTE_MS;
        // A clock that went back: later minutes become this one.
        let later = self.minutes.split_off(&(minute + 1));
        let later = later.into_values().fold(Usd::ZERO, |sum, usd| sum + usd);
        *self.minutes.entry(minute).or_default() += usd + later;
        self.minutes = self.minutes.split_off(&minute.saturating_sub(2 * HOUR_MINUTES));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: u64) -> Timestamp {
        Timestamp(minute * MINUTE_MS)
    }

    fn alert(burn: &Burn, minute: u64) -> Option<BurnAlert> {
        burn.alert(&BurnPolicy::default(), at(minute))
    }

    /// One dear minute is no alarm; five minutes above ten dollars an hour are.
    #[test]
    fn a_burn_alarms_after_five_minutes_above_the_limit() {
        let mut burn = Burn::default();
        burn.spent(Usd::cents(1_000), at(100));
        assert_eq!(alert(&burn, 110), None, "ten dollars are not more than ten");
        burn.spent(Usd::cents(1), at(110));
        assert_eq!(alert(&burn, 114), None);
        let expected = BurnAlert { hour: Usd::cents(1_001), max: Usd::cents(1_000) };
        assert_eq!(alert(&burn, 115), Some(expected));
        let mut told = burn.clone();
        told.alerted(at(115));
        assert_eq!(alert(&told, 116), None, "people know");
        assert_eq!(alert(&burn, 160), None, "the ten dollars are an hour old");
    }

    #[test]
    fn a_burn_remembers_no_more_than_it_needs() {
        let mut burn = Burn::default();
        for minute in 0..1_000 {
            burn.spent(Usd::cents(1), at(minute));
        }
        assert_eq!(burn.minutes.len(), 121);
        burn.spent(Usd::cents(1), at(900));
        assert_eq!(burn.hour_usd(at(900)), Usd::cents(121 + 1), "set back: nothing is lost");
    }
}
