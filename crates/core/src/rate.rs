//! Provider permits: how many requests and tokens a provider takes in a minute.
//!
//! No more agents work with a provider than its limits carry, and none is added while one of them is
//! nearly used up. A provider that answered 429 is parked until its reset time: its work waits or goes
//! elsewhere, and no attempt is counted.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::queue::{Demand, permits};
use crate::time::{MINUTE_MS, SECOND_MS, Timestamp};
use crate::window::Window;

/// Who serves a model, such as `claude`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Provider(pub Box<str>);

impl Provider {
    #[must_use]
    pub fn new(name: &str) -> Provider {
        Provider(name.into())
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Throughput {
    pub requests_per_min: u64,
    pub tokens_per_min: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    pub providers: BTreeMap<Provider, Throughput>,
    /// For a provider that is not named.
    pub others: Throughput,
    /// How long a provider is parked that does not say for how long.
    pub park_ms: u64,
    /// What one working agent asks of its provider.
    pub demand: Demand,
    /// From here on no agent is added (WRK-27).
    pub busy_permille: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPolicy {
    #[error("{count} providers are more than {max}")]
    TooMany { count: usize, max: usize },
    #[error("{provider} must take between 1 and {max} requests a minute")]
    Requests { provider: Provider, max: u64 },
    #[error("{provider} must take at least one token a minute")]
    Tokens { provider: Provider },
    #[error("a provider must be parked for between 1 and {max_ms} ms")]
    Park { max_ms: u64 },
}

impl Default for Policy {
    fn default() -> Policy {
        let of = |name, requests_per_min| {
            (Provider::new(name), Throughput { requests_per_min, tokens_per_min: 40_000 })
        };
        Policy {
            providers: BTreeMap::from([of("claude", 60), of("codex", 90), of("gemini", 120)]),
            others: Throughput { requests_per_min: 60, tokens_per_min: 30_000 },
            park_ms: MINUTE_MS,
            demand: Demand { requests_per_minute: 10, tokens_per_minute: 10_000 },
            busy_permille: 800,
        }
    }
}

impl Policy {
    pub fn validate(&self) -> Result<(), InvalidPolicy> {
        let (count, max) = (self.providers.len(), limits::PROVIDERS_MAX);
        if count > max {
            return Err(InvalidPolicy::TooMany { count, max });
        }
        let others = Provider::new("others");
        for (provider, throughput) in self.providers.iter().chain([(&others, &self.others)]) {
            let (provider, max) = (provider.clone(), limits::REQUESTS_PER_MIN_MAX);
            if !(1..=max).contains(&throughput.requests_per_min) {
                return Err(InvalidPolicy::Requests { provider, max });
            }
            if throughput.tokens_per_min == 0 {
                return Err(InvalidPolicy::Tokens { provider });
            }
        }
        let max_ms = limits::PARKED_MS_MAX;
        match (1..=max_ms).contains(&self.park_ms) {
            true => Ok(()),
            false => Err(InvalidPolicy::Park { max_ms }),
        }
    }

    #[must_use]
    pub fn throughput(&self, provider: &Provider) -> Throughput {
        self.providers.get(provider).copied().unwrap_or(self.others)
    }

    /// How many agents may work with a provider at a time (C-02, T-54). One always may: its calls
    /// wait where they would pass a limit.
    #[must_use]
    pub fn agents_max(&self, provider: &Provider) -> u32 {
        let Throughput { requests_per_min, tokens_per_min } = self.throughput(provider);
        let limit = |max: u64| Some(u32::try_from(max).unwrap_or(u32::MAX));
        permits(limit(requests_per_min), limit(tokens_per_min), self.demand).max(1)
    }

    /// Until when a 429 at `now` parks its provider.
    #[must_use]
    pub fn parked_until(&self, retry_after_ms: Option<u64>, now: Timestamp) -> Timestamp {
        let ms = retry_after_ms.unwrap_or(self.park_ms);
        // Asked again at once, it would only say the same.
        now.plus_ms(ms.clamp(SECOND_MS, limits::PARKED_MS_MAX))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Permits {
    policy: Policy,
    providers: BTreeMap<Provider, Lane>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Lane {
    minute: Window,
    parked_until: Timestamp,
}

impl Default for Lane {
    fn default() -> Lane {
        Lane { minute: Window::new(MINUTE_MS), parked_until: Timestamp::default() }
    }
}

impl Default for Permits {
    fn default() -> Permits {
        Permits::new(Policy::default())
    }
}

impl Permits {
    #[must_use]
    pub fn new(policy: Policy) -> Permits {
        Permits { policy, providers: BTreeMap::new() }
    }

    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Those that were sent away and not yet taken back, with the moment until which.
    pub fn parked_providers(&self) -> impl Iterator<Item = (&Provider, Timestamp)> {
        let lanes = self.providers.iter().map(|(provider, lane)| (provider, lane.parked_until));
        lanes.filter(|(_, until)| *until > Timestamp::default())
    }

    /// The next moment at which a parked provider is back.
    #[must_use]
    pub fn next_back_at(&self) -> Option<Timestamp> {
        self.parked_providers().map(|(_, until)| until).min()
    }

    /// How much of its minute the busiest provider has used, by our own count; None if all have
    /// room for another agent (WRK-27).
    #[must_use]
    pub fn busiest_permille(&self, now: Timestamp) -> Option<u32> {
        let used = self.providers.iter().map(|(provider, lane)| self.used(provider, lane, now));
        let busiest = used.max().filter(|used| *used >= u64::from(self.policy.busy_permille));
        busiest.map(|used| u32::try_from(used).unwrap_or(u32::MAX))
    }

    /// By requests or tokens, whichever is more; all of it while it is parked.
    fn used(&self, provider: &Provider, lane: &Lane, now: Timestamp) -> u64 {
        if lane.parked_until > now {
            return 1_000;
        }
        let Throughput { requests_per_min, tokens_per_min } = self.policy.throughput(provider);
        let sum = lane.minute.sum(now);
        let share = |used: u64, max: u64| used.saturating_mul(1_000) / max.max(1);
        share(sum.count, requests_per_min).max(share(sum.amount, tokens_per_min))
    }
}

/// The facts.
impl Permits {
    /// This many tokens were used within the last minute.
    pub fn granted(&mut self, provider: &Provider, tokens: u64, at: Timestamp) {
        self.lane(provider).minute.add(at, tokens);
    }

    /// The provider wants to be left alone. A shorter wish does not shorten an earlier one.
    pub fn parked(&mut self, provider: &Provider, until: Timestamp) {
        let lane = self.lane(provider);
        lane.parked_until = lane.parked_until.max(until);
    }

    /// The time is over, or a person knows better, for example after paying.
    pub fn unparked(&mut self, provider: &Provider) {
        self.lane(provider).parked_until = Timestamp::default();
    }

    pub fn configured(&mut self, policy: Policy) {
        self.policy = policy;
    }

    fn lane(&mut self, provider: &Provider) -> &mut Lane {
        self.providers.entry(provider.clone()).or_default()
    }
}

#[cfg(test)]
mod tests;
