//! Heartbeats: how long an agent may be silent, by what it is doing.
//!
//! One window for all is wrong: a review that says nothing for ten minutes is dead, an integration
//! run is not.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Attendance;
use crate::flow::Phase;
use crate::time::{MINUTE_MS, Timestamp};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    Review,
    Documentation,
    Planning,
    Tests,
    Implementation,
    Refactoring,
    Research,
    Integration,
    Migration,
}

impl WorkKind {
    pub const ALL: [WorkKind; 9] = [
        WorkKind::Review,
        WorkKind::Documentation,
        WorkKind::Planning,
        WorkKind::Tests,
        WorkKind::Implementation,
        WorkKind::Refactoring,
        WorkKind::Research,
        WorkKind::Integration,
        WorkKind::Migration,
    ];

    #[must_use]
    pub fn of_phase(phase: Phase) -> WorkKind {
        match phase {
            Phase::Red => WorkKind::Tests,
            Phase::Green => WorkKind::Implementation,
            Phase::Refactor => WorkKind::Refactoring,
            Phase::IntegrationRed | Phase::IntegrationGreen | Phase::Verify => {
                WorkKind::Integration
            }
            Phase::Complete => WorkKind::Review,
        }
    }

    fn default_window_ms(self) -> u64 {
        let minutes = match self {
            WorkKind::Review | WorkKind::Documentation => 5,
            WorkKind::Planning | WorkKind::Tests => 10,
            WorkKind::Implementation => 15,
            WorkKind::Refactoring | WorkKind::Research => 20,
            WorkKind::Integration | WorkKind::Migration => 30,
        };
        minutes * MINUTE_MS
    }
}

/// Windows that differ from the defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HeartbeatPolicy {
    pub window_ms: BTreeMap<WorkKind, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("the heartbeat window of {kind:?} must be between 5 and 30 minutes, not {window_ms} ms")]
pub struct InvalidHeartbeat {
    pub kind: WorkKind,
    pub window_ms: u64,
}

/// What an agent's silence means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulse {
    Alive,
    /// More than half of the window: worth a line in the log, no more.
    Quiet {
        silent_ms: u64,
    },
    /// Its lease is over and its task goes back into the queue.
    Lost {
        silent_ms: u64,
    },
}

impl HeartbeatPolicy {
    pub fn validate(&self) -> Result<(), InvalidHeartbeat> {
        for (&kind, &window_ms) in &self.window_ms {
            if !(5 * MINUTE_MS..=30 * MINUTE_MS).contains(&window_ms) {
                return Err(InvalidHeartbeat { kind, window_ms });
            }
        }
        Ok(())
    }

    #[must_use]
    pub fn window_ms(&self, kind: WorkKind) -> u64 {
        self.window_ms.get(&kind).copied().unwrap_or_else(|| kind.default_window_ms())
    }

    /// When an agent that was last heard then is lost, if it stays silent and alone.
    #[must_use]
    pub fn lost_at(&self, kind: WorkKind, heard: Timestamp) -> Timestamp {
        heard.plus_ms(self.window_ms(kind))
    }

    #[must_use]
    pub fn pulse(
        &self,
        kind: WorkKind,
        attendance: Attendance,
        heard: Timestamp,
        now: Timestamp,
    ) -> Pulse {
        let (silent_ms, window) = (now.ms_since(heard), self.window_ms(kind));
        match attendance {
            Attendance::Interactive => Pulse::Alive,
            Attendance::Alone if silent_ms >= window => Pulse::Lost { silent_ms },
            Attendance::Alone if silent_ms * 2 > window => Pulse::Quiet { silent_ms },
            Attendance::Alone => Pulse::Alive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T-43: five minutes at least, thirty at most, and different kinds differ.
    #[test]
    fn windows_go_from_five_to_thirty_minutes() {
        let policy = HeartbeatPolicy::default();
        let minutes: Vec<u64> =
            WorkKind::ALL.iter().map(|kind| policy.window_ms(*kind) / MINUTE_MS).collect();
        assert_eq!(minutes, [5, 5, 10, 10, 15, 20, 20, 30, 30]);
        assert_eq!(WorkKind::of_phase(Phase::Verify), WorkKind::Integration);
    }

    #[test]
    fn silence_is_quiet_before_it_is_loss() {
        let policy = HeartbeatPolicy::default();
        let heard = Timestamp(1_000);
        let pulse = |minutes: u64| {
            let now = heard.plus_ms(minutes * MINUTE_MS);
            policy.pulse(WorkKind::Tests, Attendance::Alone, heard, now)
        };
        assert_eq!(pulse(5), Pulse::Alive);
        assert_eq!(pulse(6), Pulse::Quiet { silent_ms: 6 * MINUTE_MS });
        assert_eq!(pulse(10), Pulse::Lost { silent_ms: 10 * MINUTE_MS });
        assert_eq!(policy.lost_at(WorkKind::Tests, heard), heard.plus_ms(10 * MINUTE_MS));
    }

    #[test]
    fn a_window_outside_of_the_range_is_refused() {
        let with = |ms| HeartbeatPolicy { window_ms: BTreeMap::from([(WorkKind::Review, ms)]) };
        assert_eq!(with(5 * MINUTE_MS).validate(), Ok(()));
        assert_eq!(with(7 * MINUTE_MS).window_ms(WorkKind::Review), 7 * MINUTE_MS);
        assert!(with(5 * MINUTE_MS - 1).validate().is_err());
        assert!(with(31 * MINUTE_MS).validate().is_err());
    }
}
