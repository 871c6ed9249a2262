//! Room for work: while something runs, the machine is looked at now and then, and a machine that is
//! nearly full pauses its missions with a reason (WRK-32).
//!
//! Nothing goes on by itself: a person who has made room says so with `kapelle resume`.

use std::path::PathBuf;

use kapelle_core::time::SECOND_MS;
use kapelle_core::{Actor, Command, State, Timestamp};
use kapelle_workspace::governor::Governor;

use crate::project::Measure;

/// Memory can fill up in seconds, but then the kernel acts; this is for what fills slowly.
const LOOK_EVERY_MS: u64 = 15 * SECOND_MS;

pub(crate) struct Room {
    governor: Governor,
    place: PathBuf,
    measure: Measure,
    look_at: Timestamp,
}

impl Room {
    pub(crate) fn new(place: PathBuf, measure: Measure) -> Room {
        Room { governor: Governor::default(), place, measure, look_at: Timestamp(0) }
    }

    /// When to look next; never while nothing runs.
    pub(crate) fn wake_at(&self, state: &State) -> Option<Timestamp> {
        (!state.due().is_empty()).then_some(self.look_at)
    }

    /// What to ask of the engine, if it is time to look.
    pub(crate) fn look(&mut self, state: &State, now: Timestamp) -> Vec<Command> {
        if self.wake_at(state).is_none_or(|at| now < at) {
            return Vec::new();
        }
        self.look_at = now.plus_ms(LOOK_EVERY_MS);
        // A machine that does not say how full it is is not called full.
        let Ok(used) = (self.measure)(&self.place) else { return Vec::new() };
        let pressures = self.governor.judge(used);
        if pressures.is_empty() {
            return Vec::new();
        }
        let told: Vec<String> = pressures.iter().map(ToString::to_string).collect();
        let reason = told.join("; ");
        let runs = state.missions().filter(|m| m.paused.is_none() && !m.has_ended());
        runs.map(|mission| Command::PauseMission {
            mission: mission.id,
            reason: reason.clone(),
            by: Actor::kapelle(),
        })
        .collect()
    }
}
