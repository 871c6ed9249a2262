//! Team presets: one, three or five agents.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::Role;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TeamPreset {
    /// One agent at a time.
    Sequential,
    #[default]
    Light,
    Full,
}

impl TeamPreset {
    pub const ALL: [TeamPreset; 3] = [TeamPreset::Sequential, TeamPreset::Light, TeamPreset::Full];

    /// Agents at work at the same time, the orchestrator among them where there is more than one.
    #[must_use]
    pub fn size(self) -> u32 {
        match self {
            TeamPreset::Sequential => 1,
            TeamPreset::Light => 3,
            TeamPreset::Full => 5,
        }
    }

    /// Requests a minute that such a team is expected to make.
    #[must_use]
    pub fn expected_rpm(self) -> u32 {
        self.size() * 10
    }

    /// Seats for those who write. A test is never written by who makes it pass, so there is
    /// always one of each, even if they take turns.
    #[must_use]
    pub fn seats(self) -> BTreeMap<Role, u32> {
        let each = match self {
            TeamPreset::Sequential | TeamPreset::Light => 1,
            TeamPreset::Full => 2,
        };
        BTreeMap::from([(Role::Tester, each), (Role::Developer, each)])
    }

    #[must_use]
    pub fn workers_max(self) -> u32 {
        match self {
            TeamPreset::Sequential => 1,
            TeamPreset::Light => 2,
            TeamPreset::Full => 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WRK-33.
    #[test]
    fn presets_are_one_three_and_five_with_their_request_rates() {
        let table = TeamPreset::ALL.map(|team| (team.size(), team.expected_rpm()));
        assert_eq!(table, [(1, 10), (3, 30), (5, 50)]);
        for team in TeamPreset::ALL {
            let seats: u32 = team.seats().values().sum();
            assert!(team.workers_max() <= seats, "{team:?} could not use its workers");
            assert!(team.seats().keys().all(|role| team.seats()[role] >= 1));
        }
    }
}
