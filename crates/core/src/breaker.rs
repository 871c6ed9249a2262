//! Circuit breakers: after several failures in a row nobody calls any more, until one call shows
//! that it works again.
//!
//! Invariant: while a breaker is half open exactly one call is under way, and only its result
//! counts; answers to calls from before are late news.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{Fence, MissionId};
use crate::limits;
use crate::time::{SECOND_MS, Timestamp};

/// What a breaker protects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "of", content = "name", rename_all = "snake_case")]
pub enum BreakerKey {
    Provider(String),
    /// Starting agents for a mission.
    Deployment(MissionId),
    Mission(MissionId),
}

impl BreakerKey {
    /// An open deployment or mission breaker pauses its mission (RET-06).
    #[must_use]
    pub fn pauses(&self) -> Option<MissionId> {
        match self {
            BreakerKey::Provider(_) => None,
            BreakerKey::Deployment(mission) | BreakerKey::Mission(mission) => Some(*mission),
        }
    }
}

impl fmt::Display for BreakerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BreakerKey::Provider(name) => write!(f, "provider {name}"),
            BreakerKey::Deployment(mission) => write!(f, "deployments of {mission}"),
            BreakerKey::Mission(mission) => mission.fmt(f),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reset {
    /// A probe is let through after a while.
    HalfOpen,
    /// Only a person closes it again.
    Manual,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BreakerPolicy {
    /// Failures in a row.
    pub failures_max: u32,
    pub open_ms: u64,
    /// A probe that says nothing for this long is lost, and another may try.
    pub probe_ms: u64,
    pub provider: Reset,
    pub deployment: Reset,
    pub mission: Reset,
}

impl Default for BreakerPolicy {
    fn default() -> BreakerPolicy {
        BreakerPolicy {
            failures_max: 5,
            open_ms: 300 * SECOND_MS,
            probe_ms: 600 * SECOND_MS,
            provider: Reset::HalfOpen,
            deployment: Reset::HalfOpen,
            mission: Reset::Manual,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub enum InvalidBreakerPolicy {
    #[error("a breaker that opens after no failure is always open")]
    NoFailures,
    #[error("breakers: {field} must be at least {} ms", SECOND_MS)]
    TooShort { field: &'static str },
}

impl BreakerPolicy {
    pub fn validate(&self) -> Result<(), InvalidBreakerPolicy> {
        if self.failures_max == 0 {
            return Err(InvalidBreakerPolicy::NoFailures);
        }
        for (field, ms) in [("open_ms", self.open_ms), ("probe_ms", self.probe_ms)] {
            if ms < SECOND_MS {
                return Err(InvalidBreakerPolicy::TooShort { field });
            }
        }
        Ok(())
    }

    fn reset(&self, key: &BreakerKey) -> Reset {
        match key {
            BreakerKey::Provider(_) => self.provider,
            BreakerKey::Deployment(_) => self.deployment,
            BreakerKey::Mission(_) => self.mission,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Breaker {
    Closed {
        failures: u32,
    },
    /// `until` is None if only a person closes it.
    Open {
        until: Option<Timestamp>,
    },
    HalfOpen {
        probe: Fence,
        until: Timestamp,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    Pass,
    /// Go ahead, as the one call that shows whether it works again; record `probed` first.
    Probe,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub enum BreakerRefusal {
    #[error("{key} failed too often; it is tried again in {} s", remaining_ms.div_ceil(SECOND_MS))]
    Open { key: BreakerKey, remaining_ms: u64 },
    #[error("{key} failed too often; a person has to reset it")]
    NeedsReset { key: BreakerKey },
    #[error("{key} is being tried; others wait for the result")]
    ProbeUnderWay { key: BreakerKey },
    #[error("{} breakers are enough", limits::BREAKERS_MAX)]
    TooMany,
    #[error("a provider's name has at most {} characters", limits::PROVIDER_NAME_CHARS_MAX)]
    NameTooLong,
    #[error("{key} is not open")]
    NotOpen { key: BreakerKey },
}

/// What a result did to a breaker; None of it needs an event if `Unchanged`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    Unchanged,
    Counted,
    Opened,
    Closed,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Breakers {
    /// Those that are not simply closed without a failure.
    states: BTreeMap<BreakerKey, Breaker>,
}

impl Breakers {
    #[must_use]
    pub fn state(&self, key: &BreakerKey) -> Breaker {
        self.states.get(key).copied().unwrap_or(Breaker::Closed { failures: 0 })
    }

    pub fn all(&self) -> impl Iterator<Item = (&BreakerKey, &Breaker)> {
        self.states.iter()
    }

    /// Whether a call may be made now.
    pub fn admit(&self, key: &BreakerKey, now: Timestamp) -> Result<Admission, BreakerRefusal> {
        match self.state(key) {
            Breaker::Closed { .. } => Ok(Admission::Pass),
            Breaker::Open { until: None } => Err(BreakerRefusal::NeedsReset { key: key.clone() }),
            Breaker::Open { until: Some(until) } if now < until => {
                Err(BreakerRefusal::Open { key: key.clone(), remaining_ms: until.ms_since(now) })
            }
            Breaker::HalfOpen { until, .. } if now < until => {
                Err(BreakerRefusal::ProbeUnderWay { key: key.clone() })
            }
            Breaker::Open { .. } | Breaker::HalfOpen { .. } => Ok(Admission::Probe),
        }
    }

    /// Whether a person may reset it.
    pub fn check_reset(&self, key: &BreakerKey) -> Result<(), BreakerRefusal> {
        match self.state(key) {
            Breaker::Open { .. } | Breaker::HalfOpen { .. } => Ok(()),
            Breaker::Closed { .. } => Err(BreakerRefusal::NotOpen { key: key.clone() }),
        }
    }

    /// Whether a breaker for `key` can still be kept.
    pub fn check_key(&self, key: &BreakerKey) -> Result<(), BreakerRefusal> {
        if matches!(key, BreakerKey::Provider(name) if name.len() > limits::PROVIDER_NAME_CHARS_MAX)
        {
            return Err(BreakerRefusal::NameTooLong);
        }
        let known = self.states.contains_key(key);
        if known || self.states.len() < limits::BREAKERS_MAX {
            Ok(())
        } else {
            Err(BreakerRefusal::TooMany)
        }
    }

    /// Fact: the probe is under way.
    pub fn probed(
        &mut self,
        policy: &BreakerPolicy,
        key: &BreakerKey,
        probe: Fence,
        at: Timestamp,
    ) {
        let until = at.plus_ms(policy.probe_ms);
        self.states.insert(key.clone(), Breaker::HalfOpen { probe, until });
    }

    /// Fact: a call succeeded.
    pub fn succeeded(&mut self, key: &BreakerKey, call: Fence) -> Turn {
        match self.state(key) {
            Breaker::Closed { failures: 0 } => Turn::Unchanged,
            Breaker::Closed { .. } => {
                self.states.remove(key);
                Turn::Counted
            }
            Breaker::HalfOpen { probe, .. } if probe == call => {
                self.states.remove(key);
                Turn::Closed
            }
            Breaker::Open { .. } | Breaker::HalfOpen { .. } => Turn::Unchanged,
        }
    }

    /// Fact: a call failed, through no fault of its task.
    pub fn failed(
        &mut self,
        policy: &BreakerPolicy,
        key: &BreakerKey,
        call: Fence,
        at: Timestamp,
    ) -> Turn {
        let open = Breaker::Open {
            until: match policy.reset(key) {
                Reset::HalfOpen => Some(at.plus_ms(policy.open_ms)),
                Reset::Manual => None,
            },
        };
        let (next, turn) = match self.state(key) {
            Breaker::Closed { failures } if failures + 1 >= policy.failures_max => {
                (open, Turn::Opened)
            }
            Breaker::Closed { failures } => {
                (Breaker::Closed { failures: failures + 1 }, Turn::Counted)
            }
            Breaker::HalfOpen { probe, .. } if probe == call => (open, Turn::Opened),
            Breaker::Open { .. } | Breaker::HalfOpen { .. } => return Turn::Unchanged,
        };
        self.states.insert(key.clone(), next);
        turn
    }

    /// Fact: a person closed it.
    pub fn reset(&mut self, key: &BreakerKey) {
        self.states.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn provider() -> BreakerKey {
        BreakerKey::Provider("claude".into())
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp(seconds * SECOND_MS)
    }

    /// After `failures` failures in a row, at second 0.
    fn broken(key: &BreakerKey, failures: u64) -> Breakers {
        let mut breakers = Breakers::default();
        for call in 1..=failures {
            breakers.failed(&BreakerPolicy::default(), key, Fence(call), at(0));
        }
        breakers
    }

    /// T-36: five failures, three hundred seconds.
    #[test]
    fn five_failures_in_a_row_open_it_for_three_hundred_seconds() {
        let key = provider();
        assert_eq!(broken(&key, 4).admit(&key, at(0)), Ok(Admission::Pass));
        let breakers = broken(&key, 5);
        let refused = breakers.admit(&key, at(100)).unwrap_err();
        assert_eq!(refused, BreakerRefusal::Open { key: key.clone(), remaining_ms: 200_000 });
        let said = "provider claude failed too often; it is tried again in 200 s";
        assert_eq!(refused.to_string(), said);
        assert!(breakers.admit(&key, Timestamp(299_999)).is_err());
        assert_eq!(breakers.admit(&key, at(300)), Ok(Admission::Probe));
        let other = BreakerKey::Provider("codex".into());
        assert_eq!(breakers.admit(&other, at(0)), Ok(Admission::Pass), "one breaker each");
    }

    /// RET-14, E-23: a success in between starts the count anew.
    #[test]
    fn only_failures_in_a_row_count() {
        let key = provider();
        let mut breakers = broken(&key, 4);
        assert_eq!(breakers.succeeded(&key, Fence(9)), Turn::Counted);
        assert_eq!(breakers, Breakers::default());
        assert_eq!(breakers.succeeded(&key, Fence(9)), Turn::Unchanged);
        for call in 0..4 {
            breakers.failed(&BreakerPolicy::default(), &key, Fence(call), at(1));
        }
        assert_eq!(breakers.admit(&key, at(1)), Ok(Admission::Pass));
    }

    #[test]
    fn half_open_admits_one_probe_and_believes_only_it() {
        let (key, policy) = (provider(), BreakerPolicy::default());
        let mut breakers = broken(&key, 5);
        breakers.probed(&policy, &key, Fence(50), at(300));
        let refused = BreakerRefusal::ProbeUnderWay { key: key.clone() };
        assert_eq!(breakers.admit(&key, at(301)), Err(refused));
        assert_eq!(breakers.succeeded(&key, Fence(3)), Turn::Unchanged);
        assert_eq!(breakers.failed(&policy, &key, Fence(3), at(302)), Turn::Unchanged);
        assert_eq!(breakers.succeeded(&key, Fence(50)), Turn::Closed);
        assert_eq!(breakers.state(&key), Breaker::Closed { failures: 0 });
    }

    #[test]
    fn a_failed_probe_opens_it_again() {
        let (key, policy) = (provider(), BreakerPolicy::default());
        let mut breakers = broken(&key, 5);
        breakers.probed(&policy, &key, Fence(50), at(300));
        assert_eq!(breakers.failed(&policy, &key, Fence(50), at(310)), Turn::Opened);
        assert_eq!(breakers.state(&key), Breaker::Open { until: Some(at(610)) });
    }

    /// The probe's host may die; the provider must not stay locked out for ever.
    #[test]
    fn a_lost_probe_is_followed_by_another() {
        let (key, policy) = (provider(), BreakerPolicy::default());
        let mut breakers = broken(&key, 5);
        breakers.probed(&policy, &key, Fence(50), at(300));
        assert_eq!(breakers.admit(&key, at(900)), Ok(Admission::Probe));
    }

    /// RET-06, C-15: the breaker of a mission waits for a person.
    #[test]
    fn a_mission_breaker_needs_a_person() {
        let key = BreakerKey::Mission(MissionId(1));
        let mut breakers = broken(&key, 5);
        let refused = breakers.admit(&key, at(1_000_000)).unwrap_err();
        assert_eq!(refused, BreakerRefusal::NeedsReset { key: key.clone() });
        assert_eq!(breakers.check_reset(&key), Ok(()));
        breakers.reset(&key);
        assert_eq!(breakers.admit(&key, at(1)), Ok(Admission::Pass));
        let not_open = BreakerRefusal::NotOpen { key: key.clone() };
        assert_eq!(breakers.check_reset(&key), Err(not_open));
        assert_eq!(key.pauses(), Some(MissionId(1)));
        assert_eq!(BreakerKey::Deployment(MissionId(2)).pauses(), Some(MissionId(2)));
        assert_eq!(provider().pauses(), None);
    }

    #[test]
    fn late_results_do_not_move_an_open_breaker() {
        let (key, policy) = (provider(), BreakerPolicy::default());
        let mut breakers = broken(&key, 5);
        let before = breakers.clone();
        assert_eq!(breakers.succeeded(&key, Fence(6)), Turn::Unchanged);
        assert_eq!(breakers.failed(&policy, &key, Fence(7), at(200)), Turn::Unchanged);
        assert_eq!(breakers, before);
    }

    #[test]
    fn breakers_are_bounded_and_their_rules_make_sense() {
        let mut breakers = Breakers::default();
        for n in 0..limits::BREAKERS_MAX as u32 {
            let key = BreakerKey::Mission(MissionId(n));
            breakers.failed(&BreakerPolicy::default(), &key, Fence(1), at(0));
        }
        assert_eq!(breakers.check_key(&provider()), Err(BreakerRefusal::TooMany));
        assert_eq!(breakers.check_key(&BreakerKey::Mission(MissionId(0))), Ok(()));
        let endless = BreakerKey::Provider("x".repeat(101));
        assert_eq!(breakers.check_key(&endless), Err(BreakerRefusal::NameTooLong));
        assert_eq!(BreakerPolicy::default().validate(), Ok(()));
        let none = BreakerPolicy { failures_max: 0, ..BreakerPolicy::default() };
        assert_eq!(none.validate(), Err(InvalidBreakerPolicy::NoFailures));
        let short = BreakerPolicy { open_ms: 1, ..BreakerPolicy::default() };
        assert_eq!(short.validate(), Err(InvalidBreakerPolicy::TooShort { field: "open_ms" }));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]

        /// Nobody but one probe gets through between the opening and a success of that probe.
        #[test]
        fn an_open_breaker_lets_nobody_but_its_probe_through(
            moves in prop::collection::vec((0..3u8, 0..400u64), 0..120),
        ) {
            let (key, policy) = (provider(), BreakerPolicy::default());
            let mut breakers = Breakers::default();
            let (mut now, mut next) = (at(0), 1);
            let mut calls: Vec<Fence> = Vec::new();
            let mut in_a_row = 0;
            for (step, value) in moves {
                now = now.plus_ms(value * 100);
                match step {
                    0 => {
                        let was_closed = matches!(breakers.state(&key), Breaker::Closed { .. });
                        match breakers.admit(&key, now) {
                            Ok(Admission::Pass) => prop_assert!(was_closed),
                            Ok(Admission::Probe) => {
                                prop_assert!(!was_closed);
                                breakers.probed(&policy, &key, Fence(next), now);
                            }
                            Err(_) => { prop_assert!(!was_closed); continue; }
                        }
                        calls.push(Fence(next));
                        next += 1;
                    }
                    _ if calls.is_empty() => {}
                    1 => {
                        let call = calls.remove(value as usize % calls.len());
                        if breakers.succeeded(&key, call) != Turn::Unchanged { in_a_row = 0; }
                    }
                    _ => {
                        let call = calls.remove(value as usize % calls.len());
                        let was_closed = matches!(breakers.state(&key), Breaker::Closed { .. });
                        let turn = breakers.failed(&policy, &key, call, now);
                        if was_closed {
                            in_a_row += 1;
                            prop_assert_eq!(turn == Turn::Opened, in_a_row >= 5);
                            if turn == Turn::Opened { in_a_row = 0; }
                        }
                    }
                }
            }
        }
    }
}
