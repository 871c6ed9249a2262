//! Heartbeats: how long an agent may be silent, by what it is doing.
//!
//! One window for all is wrong: a review that says nothing for ten minutes is dead, an integration
//! run is not.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::flow::Phase;
use crate::plan::TaskKind;
use crate::time::MINUTE_MS;

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

    /// What a phase of a task of this kind is. A task of the usual kind is what its phase is.
    #[must_use]
    pub fn of(kind: TaskKind, phase: Phase) -> WorkKind {
        match kind {
            TaskKind::Implementation => WorkKind::of_phase(phase),
            TaskKind::Test => WorkKind::Tests,
            TaskKind::Review => WorkKind::Review,
            TaskKind::Docs => WorkKind::Documentation,
            TaskKind::Analysis | TaskKind::Security => WorkKind::Research,
            TaskKind::Refactor => WorkKind::Refactoring,
            TaskKind::Migration | TaskKind::Infrastructure => WorkKind::Migration,
        }
    }

    fn of_phase(phase: Phase) -> WorkKind {
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
        assert_eq!(WorkKind::of(TaskKind::Implementation, Phase::Verify), WorkKind::Integration);
        assert_eq!(WorkKind::of(TaskKind::Review, Phase::Green), WorkKind::Review);
    }

    #[test]
    fn a_window_outside_of_the_range_is_refused() {
        let with = |ms| HeartbeatPolicy { window_ms: BTreeMap::from([(WorkKind::Review, ms)]) };
        assert_eq!(with(5 * MINUTE_MS).validate(), Ok(()));
        assert_eq!(with(7 * MINUTE_MS).window_ms(WorkKind::Review), 7 * MINUTE_MS);
        for window_ms in [5 * MINUTE_MS - 1, 30 * MINUTE_MS + 1] {
            let refused = InvalidHeartbeat { kind: WorkKind::Review, window_ms };
            assert_eq!(with(window_ms).validate(), Err(refused));
        }
    }
}
