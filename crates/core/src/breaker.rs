//! Circuit breakers: after several failures in a row nobody calls any more, until one call shows
//! that it works again.
//!
//! Invariant: while a breaker is half open at most one call is under way, and only its result
//! counts; answers to calls from before are late news.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::calendar::utc;
use crate::ids::{Fence, MissionId};
use crate::limits;
use crate::rate::Provider;
use crate::time::{SECOND_MS, Timestamp};

/// What a breaker protects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "of", content = "name", rename_all = "snake_case")]
pub enum BreakerKey {
    Provider(Provider),
    Mission(MissionId),
}

impl fmt::Display for BreakerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BreakerKey::Provider(name) => write!(f, "provider {name}"),
            BreakerKey::Mission(mission) => mission.fmt(f),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reset {
    /// One call is let through after a while.
    HalfOpen,
    /// Only a person closes it again.
    Manual,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BreakerPolicy {
    /// Failures of a provider in a row.
    pub failures_max: u32,
    pub open_ms: u64,
    pub provider: Reset,
    /// Failed attempts of a mission in a row, after which a person has to look (RET-06, C-15).
    /// None leaves it to the retries of each task.
    pub mission_failures_max: Option<u32>,
}

impl Default for BreakerPolicy {
    fn default() -> BreakerPolicy {
        BreakerPolicy {
            failures_max: 5,
            open_ms: 300 * SECOND_MS,
            provider: Reset::HalfOpen,
            mission_failures_max: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBreakerPolicy {
    #[error("a breaker that opens after no failure is always open")]
    NoFailures,
    #[error("breakers: open_ms must be at least {} ms", SECOND_MS)]
    TooShort,
}

impl BreakerPolicy {
    pub fn validate(&self) -> Result<(), InvalidBreakerPolicy> {
        if self.failures_max == 0 || self.mission_failures_max == Some(0) {
            return Err(InvalidBreakerPolicy::NoFailures);
        }
        match self.open_ms < SECOND_MS {
            true => Err(InvalidBreakerPolicy::TooShort),
            false => Ok(()),
        }
    }

    /// After how many failures in a row a breaker opens. None if it never does.
    fn failures_max(&self, key: &BreakerKey) -> Option<u32> {
        match key {
            BreakerKey::Provider(_) => Some(self.failures_max),
            BreakerKey::Mission(_) => self.mission_failures_max,
        }
    }

    fn opened(&self, key: &BreakerKey, now: Timestamp) -> Breaker {
        let until = match (key, self.provider) {
            (BreakerKey::Provider(_), Reset::HalfOpen) => Some(now.plus_ms(self.open_ms)),
            (BreakerKey::Provider(_), Reset::Manual) | (BreakerKey::Mission(_), _) => None,
        };
        Breaker::Open { until }
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
    /// One call may try, or does.
    HalfOpen {
        probe: Option<Fence>,
    },
}

impl Breaker {
    pub const SOUND: Breaker = Breaker::Closed { failures: 0 };
}

impl fmt::Display for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Breaker::Closed { .. } => f.write_str("works again"),
            Breaker::Open { until: Some(until) } => {
                write!(f, "failed too often and is left alone until {}", utc(*until))
            }
            Breaker::Open { until: None } => {
                f.write_str("failed too often; a person has to reset it")
            }
            Breaker::HalfOpen { .. } => f.write_str("is tried by one call"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "refusal", rename_all = "snake_case")]
pub enum BreakerRefusal {
    #[error("{key} failed too often; breaker open until {}", utc(*until))]
    Open { key: BreakerKey, until: Timestamp },
    #[error("{key} failed too often; a person has to reset its breaker")]
    NeedsReset { key: BreakerKey },
    #[error("{key} is being tried; others wait for the result")]
    ProbeUnderWay { key: BreakerKey },
    #[error("the breaker of {key} is not open")]
    NotOpen { key: BreakerKey },
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Breakers {
    /// Those that are not simply closed without a failure.
    states: BTreeMap<BreakerKey, Breaker>,
    /// When those that open by themselves may be tried.
    moments: BTreeSet<(Timestamp, BreakerKey)>,
}

impl Breakers {
    #[must_use]
    pub fn state(&self, key: &BreakerKey) -> Breaker {
        self.states.get(key).copied().unwrap_or(Breaker::SOUND)
    }

    pub fn all(&self) -> impl Iterator<Item = (&BreakerKey, &Breaker)> {
        self.states.iter()
    }

    /// Whether a call may be made.
    pub fn admit(&self, key: &BreakerKey) -> Result<(), BreakerRefusal> {
        let named = || key.clone();
        Err(match self.state(key) {
            Breaker::Closed { .. } | Breaker::HalfOpen { probe: None } => return Ok(()),
            Breaker::Open { until: None } => BreakerRefusal::NeedsReset { key: named() },
            Breaker::Open { until: Some(until) } => BreakerRefusal::Open { key: named(), until },
            Breaker::HalfOpen { probe: Some(_) } => BreakerRefusal::ProbeUnderWay { key: named() },
        })
    }

    /// Whether a person may reset it.
    pub fn check_reset(&self, key: &BreakerKey) -> Result<(), BreakerRefusal> {
        match self.state(key) {
            Breaker::Open { .. } | Breaker::HalfOpen { .. } => Ok(()),
            Breaker::Closed { .. } => Err(BreakerRefusal::NotOpen { key: key.clone() }),
        }
    }

    /// The next moment at which one may be tried again.
    #[must_use]
    pub fn next_at(&self) -> Option<Timestamp> {
        self.moments.first().map(|(at, _)| *at)
    }

    /// Those that may be tried now.
    pub fn due(&self, now: Timestamp) -> impl Iterator<Item = &BreakerKey> {
        self.moments.iter().take_while(move |(at, _)| *at <= now).map(|(_, key)| key)
    }

    /// Where a success moves it, if it moves.
    #[must_use]
    pub fn after_success(&self, key: &BreakerKey, call: Fence) -> Option<Breaker> {
        let is_probe = self.state(key) == Breaker::HalfOpen { probe: Some(call) };
        is_probe.then_some(Breaker::SOUND)
    }

    /// Where a failure moves it, if it moves.
    #[must_use]
    pub fn after_failure(
        &self,
        policy: &BreakerPolicy,
        key: &BreakerKey,
        call: Fence,
        now: Timestamp,
    ) -> Option<Breaker> {
        let opens = match self.state(key) {
            Breaker::Closed { failures } => {
                policy.failures_max(key).is_some_and(|max| failures + 1 >= max)
            }
            Breaker::HalfOpen { probe } => probe == Some(call),
            Breaker::Open { .. } => false,
        };
        opens.then(|| policy.opened(key, now))
    }
}

/// The facts.
impl Breakers {
    /// It was moved.
    pub fn moved(&mut self, key: &BreakerKey, to: Breaker) {
        if let Breaker::Open { until: Some(until) } = self.state(key) {
            self.moments.remove(&(until, key.clone()));
        }
        if let Breaker::Open { until: Some(until) } = to {
            self.moments.insert((until, key.clone()));
        }
        match to {
            Breaker::SOUND => self.states.remove(key),
            other => self.states.insert(key.clone(), other),
        };
    }

    /// A call was begun: the one that tries, if it is half open.
    pub fn called(&mut self, key: &BreakerKey, call: Fence) {
        if self.state(key) == (Breaker::HalfOpen { probe: None }) {
            self.moved(key, Breaker::HalfOpen { probe: Some(call) });
        }
    }

    /// A call ended without saying anything: another may try.
    pub fn gave_up(&mut self, key: &BreakerKey, call: Fence) {
        if self.state(key) == (Breaker::HalfOpen { probe: Some(call) }) {
            self.moved(key, Breaker::HalfOpen { probe: None });
        }
    }

    /// A call succeeded. Only failures in a row count (RET-14).
    pub fn succeeded(&mut self, key: &BreakerKey) {
        if matches!(self.state(key), Breaker::Closed { .. }) {
            self.moved(key, Breaker::SOUND);
        }
    }

    /// A call failed, through no fault of its task.
    pub fn failed(&mut self, key: &BreakerKey) {
        let is_kept = self.states.contains_key(key) || self.states.len() < limits::BREAKERS_MAX;
        if let (Breaker::Closed { failures }, true) = (self.state(key), is_kept) {
            self.moved(key, Breaker::Closed { failures: failures.saturating_add(1) });
        }
    }

    /// What it protected is gone.
    pub fn forget(&mut self, key: &BreakerKey) {
        self.moved(key, Breaker::SOUND);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn provider() -> BreakerKey {
        BreakerKey::Provider(Provider::new("claude"))
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp(seconds * SECOND_MS)
    }

    /// Fails a call as the engine does: asks where that leads, then records it.
    fn fail(breakers: &mut Breakers, key: &BreakerKey, call: u64, now: Timestamp) {
        let policy = BreakerPolicy { mission_failures_max: Some(5), ..BreakerPolicy::default() };
        let to = breakers.after_failure(&policy, key, Fence(call), now);
        breakers.failed(key);
        if let Some(to) = to {
            breakers.moved(key, to);
        }
    }

    fn succeed(breakers: &mut Breakers, key: &BreakerKey, call: u64) {
        let to = breakers.after_success(key, Fence(call));
        breakers.succeeded(key);
        if let Some(to) = to {
            breakers.moved(key, to);
        }
    }

    /// After `failures` failures in a row, at second 0.
    fn broken(key: &BreakerKey, failures: u64) -> Breakers {
        let mut breakers = Breakers::default();
        for call in 1..=failures {
            fail(&mut breakers, key, call, at(0));
        }
        breakers
    }

    /// Half open, with call 50 under way.
    fn probed(key: &BreakerKey) -> Breakers {
        let mut breakers = broken(key, 5);
        breakers.moved(key, Breaker::HalfOpen { probe: None });
        assert_eq!(breakers.admit(key), Ok(()));
        breakers.called(key, Fence(50));
        breakers
    }

    /// T-36: five failures, three hundred seconds.
    #[test]
    fn five_failures_in_a_row_open_it_for_three_hundred_seconds() {
        let key = provider();
        assert_eq!(broken(&key, 4).admit(&key), Ok(()));
        let breakers = broken(&key, 5);
        let refused = breakers.admit(&key).unwrap_err();
        assert_eq!(refused, BreakerRefusal::Open { key: key.clone(), until: at(300) });
        let said = "provider claude failed too often; breaker open until 1970-01-01 00:05:00 UTC";
        assert_eq!(refused.to_string(), said);
        assert_eq!(breakers.next_at(), Some(at(300)));
        assert_eq!(breakers.due(Timestamp(299_999)).count(), 0);
        assert_eq!(breakers.due(at(300)).collect::<Vec<_>>(), [&key]);
        let other = BreakerKey::Provider(Provider::new("codex"));
        assert_eq!(breakers.admit(&other), Ok(()), "one breaker each");
    }

    /// RET-14, E-23: a success in between starts the count anew.
    #[test]
    fn only_failures_in_a_row_count() {
        let key = provider();
        let mut breakers = broken(&key, 4);
        succeed(&mut breakers, &key, 9);
        assert_eq!(breakers, Breakers::default());
        for call in 0..4 {
            fail(&mut breakers, &key, call, at(1));
        }
        assert_eq!(breakers.admit(&key), Ok(()));
    }

    #[test]
    fn half_open_admits_one_probe_and_believes_only_it() {
        let key = provider();
        let mut breakers = probed(&key);
        let refused = BreakerRefusal::ProbeUnderWay { key: key.clone() };
        assert_eq!(breakers.admit(&key), Err(refused));
        let before = breakers.clone();
        succeed(&mut breakers, &key, 3);
        fail(&mut breakers, &key, 3, at(302));
        assert_eq!(breakers, before);
        succeed(&mut breakers, &key, 50);
        assert_eq!(breakers, Breakers::default());
    }

    #[test]
    fn a_failed_probe_opens_it_again() {
        let key = provider();
        let mut breakers = probed(&key);
        fail(&mut breakers, &key, 50, at(310));
        assert_eq!(breakers.state(&key), Breaker::Open { until: Some(at(610)) });
    }

    /// The probe's host may die; the provider must not stay locked out for ever.
    #[test]
    fn a_lost_probe_is_followed_by_another() {
        let key = provider();
        let mut breakers = probed(&key);
        breakers.gave_up(&key, Fence(50));
        assert_eq!(breakers.admit(&key), Ok(()));
    }

    /// RET-06, C-15: the breaker of a mission waits for a person.
    #[test]
    fn a_mission_breaker_needs_a_person() {
        let key = BreakerKey::Mission(MissionId(1));
        let mut breakers = broken(&key, 5);
        let refused = breakers.admit(&key).unwrap_err();
        assert_eq!(refused, BreakerRefusal::NeedsReset { key: key.clone() });
        assert_eq!(breakers.next_at(), None);
        assert_eq!(breakers.check_reset(&key), Ok(()));
        breakers.moved(&key, Breaker::SOUND);
        assert_eq!(breakers.admit(&key), Ok(()));
        let not_open = BreakerRefusal::NotOpen { key: key.clone() };
        assert_eq!(breakers.check_reset(&key), Err(not_open));
        let off = BreakerPolicy::default();
        assert_eq!(breakers.after_failure(&off, &key, Fence(1), at(0)), None);
    }

    #[test]
    fn late_results_do_not_move_an_open_breaker() {
        let key = provider();
        let mut breakers = broken(&key, 5);
        let before = breakers.clone();
        succeed(&mut breakers, &key, 6);
        fail(&mut breakers, &key, 7, at(200));
        assert_eq!(breakers, before);
    }

    #[test]
    fn breakers_are_bounded_and_their_rules_make_sense() {
        let mut breakers = Breakers::default();
        for n in 0..=limits::BREAKERS_MAX as u32 {
            breakers.failed(&BreakerKey::Mission(MissionId(n)));
        }
        assert_eq!(breakers.all().count(), limits::BREAKERS_MAX);
        assert_eq!(BreakerPolicy::default().validate(), Ok(()));
        let none = BreakerPolicy { failures_max: 0, ..BreakerPolicy::default() };
        assert_eq!(none.validate(), Err(InvalidBreakerPolicy::NoFailures));
        let short = BreakerPolicy { open_ms: 1, ..BreakerPolicy::default() };
        assert_eq!(short.validate(), Err(InvalidBreakerPolicy::TooShort));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]

        /// Nobody but one probe gets through between the opening and a success of that probe.
        #[test]
        fn an_open_breaker_lets_nobody_but_its_probe_through(
            moves in prop::collection::vec((0..3u8, 0..400u64), 0..120),
        ) {
            let key = provider();
            let mut breakers = Breakers::default();
            let (mut now, mut next) = (at(0), 1);
            let (mut calls, mut since_open) = (Vec::new(), 0);
            for (step, value) in moves {
                now = now.plus_ms(value * 1_000);
                let due: Vec<BreakerKey> = breakers.due(now).cloned().collect();
                for key in due {
                    breakers.moved(&key, Breaker::HalfOpen { probe: None });
                    since_open = 0;
                }
                let was_closed = matches!(breakers.state(&key), Breaker::Closed { .. });
                match step {
                    0 if breakers.admit(&key).is_ok() => {
                        breakers.called(&key, Fence(next));
                        since_open += u32::from(!was_closed);
                        prop_assert!(was_closed || since_open == 1);
                        calls.push(next);
                        next += 1;
                    }
                    0 => prop_assert!(!was_closed),
                    _ if calls.is_empty() => {}
                    1 => {
                        let call = calls.remove(value as usize % calls.len());
                        succeed(&mut breakers, &key, call);
                    }
                    _ => {
                        let call = calls.remove(value as usize % calls.len());
                        fail(&mut breakers, &key, call, now);
                    }
                }
            }
        }
    }
}
