//! The watchdog: stops everything when money runs away.
//!
//! At the limit of a rolling minute it asks for a pause. Calls that were under way may end within
//! the grace; whoever still spends after it is killed. Only a person lets it go on.
//!
//! Invariant: between the pause and the resumption nothing new is reserved.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::money::Usd;
use crate::time::{MINUTE_MS, SECOND_MS, Timestamp};
use crate::window::Window;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    pub minute_usd_max: Usd,
    pub grace_ms: u64,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy { minute_usd_max: Usd::cents(100), grace_ms: 30 * SECOND_MS }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Watchdog {
    minute: Window,
    state: WatchdogState,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum WatchdogState {
    #[default]
    Watching,
    /// What runs may come to its end until the grace is over.
    Paused { at: Timestamp, grace_ends_at: Timestamp },
    /// What still ran when the grace was over has been ended.
    Stopped { at: Timestamp },
}

/// Too much was spent within a minute: all workers pause (`PAUSE_REQUESTED`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    pub spent: Usd,
    pub max: Usd,
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Alarm { spent, max } = self;
        write!(f, "{spent} were spent within a minute, and {max} is the most")
    }
}

impl Default for Watchdog {
    fn default() -> Watchdog {
        Watchdog { minute: Window::new(MINUTE_MS), state: WatchdogState::Watching }
    }
}

impl Watchdog {
    #[must_use]
    pub fn state(&self) -> WatchdogState {
        self.state
    }

    /// Since when nothing new may be reserved.
    #[must_use]
    pub fn halted_since(&self) -> Option<Timestamp> {
        match self.state {
            WatchdogState::Watching => None,
            WatchdogState::Paused { at, .. } | WatchdogState::Stopped { at } => Some(at),
        }
    }

    /// When the grace of a pause is over, and whatever still runs is ended.
    #[must_use]
    pub fn grace_ends_at(&self) -> Option<Timestamp> {
        match self.state {
            WatchdogState::Paused { grace_ends_at, .. } => Some(grace_ends_at),
            WatchdogState::Watching | WatchdogState::Stopped { .. } => None,
        }
    }

    #[must_use]
    pub fn minute_usd(&self, now: Timestamp) -> Usd {
        Usd::micros(self.minute.sum(now).amount)
    }

    #[must_use]
    pub fn alarm(&self, policy: &Policy, now: Timestamp) -> Option<Alarm> {
        let (spent, max) = (self.minute_usd(now), policy.minute_usd_max);
        (self.state == WatchdogState::Watching && spent >= max).then_some(Alarm { spent, max })
    }

    /// Money was spent, evenly from `began_at` until `at`. Only what falls into the last minute
    /// counts: the bill of an attempt that took ten minutes is no runaway minute.
    pub(super) fn spent(&mut self, usd: Usd, began_at: Timestamp, at: Timestamp) {
        if usd == Usd::ZERO {
            return;
        }
        let (took_ms, span_ms) = (at.ms_since(began_at), self.minute.span_ms());
        let share = match took_ms {
            longer if longer > span_ms => {
                let share = u128::from(usd.as_micros()) * u128::from(span_ms);
                u64::try_from(share.div_ceil(u128::from(longer))).unwrap_or(u64::MAX)
            }
            _ => usd.as_micros(),
        };
        self.minute.add(at, share);
    }

    pub(super) fn paused(&mut self, at: Timestamp, grace_ends_at: Timestamp) {
        if self.state == WatchdogState::Watching {
            self.state = WatchdogState::Paused { at, grace_ends_at };
        }
    }

    pub(super) fn stopped(&mut self, at: Timestamp) {
        self.state = WatchdogState::Stopped { at };
    }

    /// A person has seen it: a new minute begins.
    pub(super) fn resumed(&mut self) {
        self.state = WatchdogState::Watching;
        self.minute.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spend(watchdog: &mut Watchdog, cents: u64, at_ms: u64) {
        let at = Timestamp(at_ms);
        watchdog.spent(Usd::cents(cents), at, at);
    }

    fn alarm(watchdog: &Watchdog, at_ms: u64) -> Option<Alarm> {
        watchdog.alarm(&Policy::default(), Timestamp(at_ms))
    }

    /// T-46. A fixed minute would miss a burst across its border; a rolling one does not.
    #[test]
    fn a_dollar_within_any_minute_asks_for_a_pause() {
        let mut watchdog = Watchdog::default();
        spend(&mut watchdog, 50, 59_000);
        spend(&mut watchdog, 49, 100_000);
        assert_eq!(alarm(&watchdog, 100_000), None);
        spend(&mut watchdog, 1, 118_999);
        let pause = Alarm { spent: Usd::cents(100), max: Usd::cents(100) };
        assert_eq!(alarm(&watchdog, 118_999), Some(pause));
        assert_eq!(alarm(&watchdog, 119_000), None, "the first 50 cents are a minute old");
    }

    /// C-37: what is under way may end within the grace, and no longer.
    #[test]
    fn a_pause_has_a_grace_and_an_end() {
        let mut watchdog = Watchdog::default();
        spend(&mut watchdog, 100, 1_000);
        watchdog.paused(Timestamp(1_000), Timestamp(31_000));
        assert_eq!(alarm(&watchdog, 1_000), None, "once is enough");
        assert_eq!(watchdog.grace_ends_at(), Some(Timestamp(31_000)));
        watchdog.stopped(Timestamp(31_000));
        assert_eq!(watchdog.grace_ends_at(), None);
        assert_eq!(watchdog.halted_since(), Some(Timestamp(31_000)));
    }

    /// Time alone must not let spending go on, and the old minute must not stop it again.
    #[test]
    fn only_a_resumption_ends_a_pause() {
        let mut watchdog = Watchdog::default();
        spend(&mut watchdog, 500, 1_000);
        watchdog.paused(Timestamp(1_000), Timestamp(31_000));
        assert_eq!(watchdog.halted_since(), Some(Timestamp(1_000)));
        watchdog.resumed();
        assert_eq!(watchdog.halted_since(), None);
        assert_eq!(alarm(&watchdog, 1_001), None);
    }

    /// Agents outside the gateway report their whole bill at the end.
    #[test]
    fn a_long_bill_counts_by_its_last_minute() {
        let mut watchdog = Watchdog::default();
        watchdog.spent(Usd::cents(500), Timestamp(0), Timestamp(600_000));
        assert_eq!(watchdog.minute_usd(Timestamp(600_000)), Usd::cents(50));
        watchdog.spent(Usd::micros(1), Timestamp(0), Timestamp(600_000));
        assert_eq!(watchdog.minute_usd(Timestamp(600_000)), Usd::micros(500_001), "rounded up");
    }
}
