//! Room for work: while something runs, the machine is looked at now and then, and the engine is
//! told how full it is (WRK-32).

use std::path::PathBuf;

use kapelle_core::time::SECOND_MS;
use kapelle_core::{Command, State, Timestamp};

use crate::project::Measure;

/// Memory can fill up in seconds, but then the kernel acts; this is for what fills slowly.
const LOOK_EVERY_MS: u64 = 15 * SECOND_MS;

pub(crate) struct Room {
    place: PathBuf,
    measure: Measure,
    look_at: Timestamp,
}

impl Room {
    pub(crate) fn new(place: PathBuf, measure: Measure) -> Room {
        Room { place, measure, look_at: Timestamp(0) }
    }

    /// When to look next; never while nothing runs.
    pub(crate) fn wake_at(&self, state: &State) -> Option<Timestamp> {
        (!state.due().is_empty()).then_some(self.look_at)
    }

    /// What to tell the engine, if it is time to look.
    pub(crate) fn look(&mut self, state: &State, now: Timestamp) -> Option<Command> {
        if self.wake_at(state).is_none_or(|at| now < at) {
            return None;
        }
        self.look_at = now.plus_ms(LOOK_EVERY_MS);
        // A machine that does not say how full it is is not called full.
        (self.measure)(&self.place).ok().map(|used| Command::ReportMachine { used })
    }
}
