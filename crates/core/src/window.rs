//! A rolling window: what happened within the last while, exactly.
//!
//! Entries of the same millisecond are one entry, so a window holds at most as many entries as it
//! spans milliseconds, however much happens.
//!
//! Invariant: an entry counts from its moment until `span_ms` later. A clock that goes back makes
//! later entries happen now: they count a little longer, and nothing is ever forgotten early.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    span_ms: u64,
    entries: VecDeque<Entry>,
    sum: Sum,
}

/// How often something happened, and how much of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    pub count: u64,
    pub amount: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    at: Timestamp,
    sum: Sum,
}

impl Window {
    #[must_use]
    pub fn new(span_ms: u64) -> Window {
        Window { span_ms, entries: VecDeque::new(), sum: Sum::default() }
    }

    #[must_use]
    pub fn span_ms(&self) -> u64 {
        self.span_ms
    }

    /// What happened in the window that ends now.
    #[must_use]
    pub fn sum(&self, now: Timestamp) -> Sum {
        let over = self.entries.iter().take_while(|entry| self.is_over(entry, now));
        over.fold(self.sum, |sum, entry| sum.minus(entry.sum))
    }

    pub fn add(&mut self, at: Timestamp, amount: u64) {
        self.rewind(at);
        self.prune(at);
        let added = Sum { count: 1, amount };
        self.sum = self.sum.plus(added);
        match self.entries.back_mut() {
            Some(last) if last.at == at => last.sum = last.sum.plus(added),
            _ => self.entries.push_back(Entry { at, sum: added }),
        }
    }

    pub fn clear(&mut self) {
        self.entries.clear();
        self.sum = Sum::default();
    }

    fn is_over(&self, entry: &Entry, now: Timestamp) -> bool {
        entry.at.plus_ms(self.span_ms) <= now
    }

    fn prune(&mut self, now: Timestamp) {
        while let Some(first) = self.entries.front().copied().filter(|e| self.is_over(e, now)) {
            self.sum = self.sum.minus(first.sum);
            self.entries.pop_front();
        }
    }

    fn rewind(&mut self, at: Timestamp) {
        let mut later = Sum::default();
        while let Some(last) = self.entries.pop_back_if(|entry| entry.at > at) {
            later = later.plus(last.sum);
        }
        if later == Sum::default() {
            return;
        }
        match self.entries.back_mut() {
            Some(last) if last.at == at => last.sum = last.sum.plus(later),
            _ => self.entries.push_back(Entry { at, sum: later }),
        }
    }
}

impl Sum {
    fn plus(self, other: Sum) -> Sum {
        let count = self.count.saturating_add(other.count);
        Sum { count, amount: self.amount.saturating_add(other.amount) }
    }

    fn minus(self, other: Sum) -> Sum {
        let count = self.count.saturating_sub(other.count);
        Sum { count, amount: self.amount.saturating_sub(other.amount) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SPAN_MS: u64 = 60_000;

    fn window(entries: &[(u64, u64)]) -> Window {
        let mut window = Window::new(SPAN_MS);
        for &(at, amount) in entries {
            window.add(Timestamp(at), amount);
        }
        window
    }

    #[test]
    fn an_entry_counts_for_exactly_the_span() {
        let window = window(&[(1_000, 5)]);
        assert_eq!(window.sum(Timestamp(60_999)), Sum { count: 1, amount: 5 });
        assert_eq!(window.sum(Timestamp(61_000)), Sum::default());
    }

    /// A clock that was set back must not make a minute's spending disappear, nor keep it for as
    /// long as the clock was wrong.
    #[test]
    fn a_clock_that_goes_back_brings_later_entries_along() {
        let window = window(&[(1_000, 5), (9_000_000, 7), (2_000, 1)]);
        assert_eq!(window.sum(Timestamp(2_000)), Sum { count: 2, amount: 8 });
        assert_eq!(window.sum(Timestamp(62_000)), Sum::default());
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 256, failure_persistence: None, ..ProptestConfig::default()
        })]

        /// The running sum is the sum of the entries, and memory is bounded by the span.
        #[test]
        fn the_sum_is_that_of_the_entries(steps in prop::collection::vec((0u64..50, 1u64..100), 1..300)) {
            let mut window = Window::new(100);
            let mut all = Vec::new();
            let mut now = 0;
            for (wait, amount) in steps {
                now += wait;
                window.add(Timestamp(now), amount);
                all.push((now, amount));
                let recent = all.iter().filter(|(at, _)| at + 100 > now);
                let expected = recent.map(|(_, amount)| amount).sum::<u64>();
                prop_assert_eq!(window.sum(Timestamp(now)).amount, expected);
                prop_assert!(window.entries.len() <= 100);
            }
        }
    }
}
