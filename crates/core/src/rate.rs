//! Provider permits: how many requests and tokens a provider takes in a minute.
//!
//! Whoever would pass a limit waits and does not fail. A provider that answered 429 is parked
//! until its reset time: its work waits or goes elsewhere, and no attempt is counted.
//!
//! Invariant: within any minute, what was granted to a provider is within its limits.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::queue::{Demand, permits};
use crate::time::{MINUTE_MS, SECOND_MS, Timestamp};
use crate::window::{Sum, Window};

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

    /// How many tasks a minute a provider can carry: `tasks/min ≤ (req/min) / (calls per task)`
    /// (QUE-27). In thousandths, since it is often less than one.
    #[must_use]
    pub fn tasks_per_min_permille(&self, provider: &Provider, calls_per_task: u64) -> u64 {
        let requests = self.throughput(provider).requests_per_min;
        requests.saturating_mul(1_000) / calls_per_task.max(1)
    }

    /// Until when a 429 at `now` parks its provider.
    #[must_use]
    pub fn parked_until(&self, retry_after_ms: Option<u64>, now: Timestamp) -> Timestamp {
        let ms = retry_after_ms.unwrap_or(self.park_ms);
        // Asked again at once, it would only say the same.
        now.plus_ms(ms.clamp(SECOND_MS, limits::PARKED_MS_MAX))
    }
}

/// The answer to whether a call may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "permit", rename_all = "snake_case")]
pub enum Permit {
    Granted,
    WaitUntil {
        at: Timestamp,
        wait: Wait,
    },
    /// More tokens than the provider takes in a whole minute: no waiting helps.
    TooLarge {
        tokens: u64,
        max: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// The provider answered 429.
    Parked,
    Requests,
    Tokens,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wait::Parked => "the provider asked for a pause",
            Wait::Requests => "the provider's requests of this minute are used up",
            Wait::Tokens => "the provider's tokens of this minute are used up",
        })
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

    /// Whether a call of at most this many tokens may be made now, and if not, when.
    #[must_use]
    pub fn permit(&self, provider: &Provider, tokens: u64, now: Timestamp) -> Permit {
        let Throughput { requests_per_min, tokens_per_min } = self.policy.throughput(provider);
        if tokens > tokens_per_min {
            return Permit::TooLarge { tokens, max: tokens_per_min };
        }
        let Some(lane) = self.providers.get(provider) else { return Permit::Granted };
        let has_request = |sum: Sum| sum.count < requests_per_min;
        let has_tokens = |sum: Sum| sum.amount.saturating_add(tokens) <= tokens_per_min;
        let when = |wait, at: Option<Timestamp>| (at.unwrap_or(now), wait);
        let waits = [
            (lane.parked_until, Wait::Parked),
            when(Wait::Requests, lane.minute.when(now, has_request)),
            when(Wait::Tokens, lane.minute.when(now, has_tokens)),
        ];
        match waits.into_iter().filter(|(at, _)| *at > now).max_by_key(|(at, _)| *at) {
            Some((at, wait)) => Permit::WaitUntil { at, wait },
            None => Permit::Granted,
        }
    }

    /// Until when a provider is parked, if it is.
    #[must_use]
    pub fn parked_until(&self, provider: &Provider, now: Timestamp) -> Option<Timestamp> {
        let until = self.providers.get(provider)?.parked_until;
        (until > now).then_some(until)
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

    /// How much of its minute a provider has used, by requests or tokens, whichever is more; all
    /// of it while it is parked.
    #[must_use]
    pub fn used_permille(&self, provider: &Provider, now: Timestamp) -> u64 {
        let Some(lane) = self.providers.get(provider) else { return 0 };
        if lane.parked_until > now {
            return 1_000;
        }
        let Throughput { requests_per_min, tokens_per_min } = self.policy.throughput(provider);
        let sum = lane.minute.sum(now);
        let share = |used: u64, max: u64| used.saturating_mul(1_000) / max.max(1);
        share(sum.count, requests_per_min).max(share(sum.amount, tokens_per_min))
    }

    /// Whether the provider has too little room for another agent.
    #[must_use]
    pub fn is_busy(&self, provider: &Provider, now: Timestamp) -> bool {
        self.used_permille(provider, now) >= u64::from(self.policy.busy_permille)
    }

    /// How many calls of this size fit now; the scheduler starts no more work than that.
    #[must_use]
    pub fn free(&self, provider: &Provider, tokens_each: u64, now: Timestamp) -> u64 {
        let Throughput { requests_per_min, tokens_per_min } = self.policy.throughput(provider);
        let lane = self.providers.get(provider);
        if lane.is_some_and(|lane| lane.parked_until > now) {
            return 0;
        }
        let sum = lane.map_or(Sum::default(), |lane| lane.minute.sum(now));
        let by_tokens = tokens_per_min.saturating_sub(sum.amount).checked_div(tokens_each);
        let by_requests = requests_per_min.saturating_sub(sum.count);
        by_tokens.map_or(by_requests, |tokens| tokens.min(by_requests))
    }
}

/// The facts.
impl Permits {
    /// A call of at most this many tokens was let through.
    pub fn granted(&mut self, provider: &Provider, tokens: u64, at: Timestamp) {
        self.lane(provider).minute.add(at, tokens);
    }

    /// A call that was let through at `granted_at` used fewer tokens than it might have.
    pub fn used_less(&mut self, provider: &Provider, granted_at: Timestamp, tokens_less: u64) {
        self.lane(provider).minute.correct(granted_at, tokens_less);
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
