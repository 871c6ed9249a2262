//! What councils may spend: a day's and a week's cap, asked before any model is (CON-12).
//!
//! Invariant: what is spent and reserved within a day or week is at most its cap when a council
//! convenes.

use std::collections::BTreeMap;

use super::policy::CouncilPolicy;
use super::session::CouncilId;
use crate::money::Usd;
use crate::time::{MINUTE_MS, Timestamp};

const DAY_MS: u64 = 24 * 60 * MINUTE_MS;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Purse {
    day: Window,
    week: Window,
    reserved: BTreeMap<CouncilId, Usd>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Window {
    number: u64,
    spent: Usd,
}

fn day(at: Timestamp) -> u64 {
    at.0 / DAY_MS
}

/// Weeks begin on Monday; the epoch was a Thursday.
fn week(at: Timestamp) -> u64 {
    (day(at) + 3) / 7
}

impl Window {
    /// A clock that jumped back does not open an old window again.
    fn spent(&self, number: u64) -> Usd {
        if number > self.number { Usd::ZERO } else { self.spent }
    }

    fn charge(&mut self, number: u64, usd: Usd) {
        if number > self.number {
            *self = Window { number, spent: Usd::ZERO };
        }
        self.spent += usd;
    }
}

impl Purse {
    #[must_use]
    pub fn spent_today(&self, now: Timestamp) -> Usd {
        self.day.spent(day(now))
    }

    #[must_use]
    pub fn spent_this_week(&self, now: Timestamp) -> Usd {
        self.week.spent(week(now))
    }

    #[must_use]
    pub fn reserved(&self) -> Usd {
        self.reserved.values().fold(Usd::ZERO, |sum, usd| sum + *usd)
    }

    /// The cap that `usd` more would break: what is gone of it, and the cap.
    #[must_use]
    pub fn lacks(&self, policy: &CouncilPolicy, usd: Usd, now: Timestamp) -> Option<(Usd, Usd)> {
        let open = self.reserved();
        let windows = [
            (self.spent_today(now) + open, policy.usd_per_day_max),
            (self.spent_this_week(now) + open, policy.usd_per_week_max),
        ];
        windows.into_iter().find(|(gone, cap)| *gone + usd > *cap)
    }

    pub(super) fn reserve(&mut self, council: CouncilId, usd: Usd) {
        self.reserved.insert(council, usd);
    }

    pub(super) fn settle(&mut self, council: CouncilId, usd: Usd, at: Timestamp) {
        self.reserved.remove(&council);
        self.day.charge(day(at), usd);
        self.week.charge(week(at), usd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Monday at noon: 1970-01-05.
    const MONDAY: Timestamp = Timestamp(4 * DAY_MS + DAY_MS / 2);

    /// CON-12, T-13.
    #[test]
    fn the_day_ends_at_five_dollars_whatever_is_still_open() {
        let (policy, mut purse) = (CouncilPolicy::default(), Purse::default());
        let cent = Usd::cents(1);
        purse.settle(CouncilId(1), Usd::cents(400), MONDAY);
        assert_eq!(purse.lacks(&policy, Usd::cents(100), MONDAY), None);
        purse.reserve(CouncilId(2), Usd::cents(100));
        let full = Some((Usd::cents(500), Usd::cents(500)));
        assert_eq!(purse.lacks(&policy, cent, MONDAY), full);
        purse.settle(CouncilId(2), Usd::cents(12), MONDAY);
        assert_eq!(purse.lacks(&policy, Usd::cents(88), MONDAY), None);
        assert!(purse.lacks(&policy, Usd::cents(89), MONDAY).is_some());
        let tomorrow = MONDAY.plus_ms(DAY_MS);
        assert_eq!(purse.lacks(&policy, Usd::cents(500), tomorrow), None);
        assert_eq!(purse.spent_this_week(tomorrow), Usd::cents(412));
    }

    #[test]
    fn the_week_has_a_cap_of_its_own_and_ends_on_sunday() {
        let (policy, mut purse) = (CouncilPolicy::default(), Purse::default());
        for n in 0..5 {
            purse.settle(CouncilId(1), Usd::cents(500), MONDAY.plus_ms(n * DAY_MS));
        }
        let sunday = MONDAY.plus_ms(6 * DAY_MS);
        let full = Some((Usd::cents(2_500), Usd::cents(2_500)));
        assert_eq!(purse.lacks(&policy, Usd::cents(5), sunday), full);
        assert_eq!(purse.lacks(&policy, Usd::cents(5), sunday.plus_ms(DAY_MS)), None);
    }

    /// A clock that is set back must not refill the purse.
    #[test]
    fn yesterday_does_not_come_back() {
        let (policy, mut purse) = (CouncilPolicy::default(), Purse::default());
        purse.settle(CouncilId(1), Usd::cents(500), MONDAY);
        let before = Timestamp(MONDAY.0 - DAY_MS);
        assert!(purse.lacks(&policy, Usd::cents(5), before).is_some());
    }
}
