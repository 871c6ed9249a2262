//! The time of people (HUM-11): how long they were busy with a mission, and how long it waited.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::policy::ApprovalPolicy;
use crate::ids::MissionId;
use crate::money::Usd;
use crate::time::{MINUTE_MS, Timestamp};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissionTime {
    pub decisions: u32,
    /// People at work on decisions.
    pub attention_ms: u64,
    /// From question to answer, work or not.
    pub waited_ms: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HumanTime {
    by_mission: BTreeMap<MissionId, MissionTime>,
}

impl HumanTime {
    #[must_use]
    pub fn of(&self, mission: MissionId) -> MissionTime {
        self.by_mission.get(&mission).copied().unwrap_or_default()
    }

    /// What the attention would have cost at the configured rate.
    #[must_use]
    pub fn cost(&self, mission: MissionId, policy: &ApprovalPolicy) -> Usd {
        let ms = u128::from(self.of(mission).attention_ms);
        let micros = ms * u128::from(policy.usd_per_hour.as_micros()) / u128::from(60 * MINUTE_MS);
        Usd::micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// A person decided something that was asked at `asked`, and looked at it since `shown`.
    pub fn decided(
        &mut self,
        policy: &ApprovalPolicy,
        mission: MissionId,
        asked: Timestamp,
        shown: Option<Timestamp>,
        at: Timestamp,
    ) {
        let attention = shown.map_or(policy.attention_ms_assumed, |shown| at.ms_since(shown));
        let time = self.by_mission.entry(mission).or_default();
        time.decisions = time.decisions.saturating_add(1);
        time.waited_ms = time.waited_ms.saturating_add(at.ms_since(asked));
        let attention = attention.min(policy.attention_ms_max);
        time.attention_ms = time.attention_ms.saturating_add(attention);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HUM-11, E-25: half an hour at the reference rate is $50, not $25.
    #[test]
    fn half_an_hour_of_a_person_is_fifty_dollars() {
        let (policy, mission) = (ApprovalPolicy::default(), MissionId(1));
        let mut time = HumanTime::default();
        for n in 0..3u64 {
            let asked = Timestamp(n * 100 * MINUTE_MS);
            let shown = asked.plus_ms(MINUTE_MS);
            time.decided(&policy, mission, asked, Some(shown), shown.plus_ms(10 * MINUTE_MS));
        }
        let (attention_ms, waited_ms) = (30 * MINUTE_MS, 33 * MINUTE_MS);
        assert_eq!(time.of(mission), MissionTime { decisions: 3, attention_ms, waited_ms });
        assert_eq!(time.cost(mission, &policy), Usd::cents(5_000));
        assert_eq!(time.cost(MissionId(2), &policy), Usd::ZERO);
    }

    /// A page left open over night is not eight hours of work.
    #[test]
    fn long_pauses_are_not_attention() {
        let (policy, mission) = (ApprovalPolicy::default(), MissionId(1));
        let mut time = HumanTime::default();
        let morning = Timestamp(600 * MINUTE_MS);
        time.decided(&policy, mission, Timestamp(0), Some(Timestamp(0)), morning);
        assert_eq!(time.of(mission).attention_ms, 15 * MINUTE_MS);
        time.decided(&policy, mission, Timestamp(0), None, Timestamp(5));
        assert_eq!(time.of(mission).attention_ms, 17 * MINUTE_MS);
        assert_eq!(time.of(mission).waited_ms, 600 * MINUTE_MS + 5);
    }
}
