//! The wall clock, read in one place.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kapelle_core::Timestamp;

/// Now, as the engine counts time.
#[must_use]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// A clock that never goes back: a corrected system clock must not undo what has happened.
#[derive(Debug, Default)]
pub struct SteadyClock {
    last: Timestamp,
}

impl SteadyClock {
    pub fn now(&mut self) -> Timestamp {
        self.last = self.last.max(now());
        self.last
    }
}
