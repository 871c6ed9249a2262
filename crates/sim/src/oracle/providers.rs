//! Invariants of providers: rate limits, breakers and routes, from the journal alone.

use std::collections::BTreeMap;

use kapelle_core::breaker::{Breaker, BreakerKey, BreakerPolicy, Reset};
use kapelle_core::event::Interruption;
use kapelle_core::failure::FailureKind;
use kapelle_core::rate::Provider;
use kapelle_core::routing::{Model, Route, Tier};
use kapelle_core::settings::Settings;
use kapelle_core::state::UNROUTED;
use kapelle_core::{Event, Fence, MissionId, Record, State, Timestamp};

use super::routes::Tiers;
use super::{Facts, Verdict, ensure};

#[derive(Debug, Default)]
pub(super) struct Providers {
    rules: Settings,
    tiers: Tiers,
    parked: BTreeMap<Provider, Timestamp>,
    breakers: BTreeMap<BreakerKey, Breaker>,
    /// Moves that must stand in the journal before the batch ends.
    owed: BTreeMap<BreakerKey, Owed>,
    live: BTreeMap<Fence, (MissionId, Option<Route>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owed {
    Open,
    Closed,
}

impl Providers {
    /// `before` is the state without this record.
    pub(super) fn observe(&mut self, record: &Record, facts: &Facts, before: &State) -> Verdict {
        self.judge_tier(&record.event, before)?;
        self.tiers.observe(&record.event);
        match &record.event {
            Event::SettingsChanged { settings, .. } => self.rules = (**settings).clone(),
            Event::LeaseGranted { task, fence, route, .. } => {
                let mission = facts.task(*task)?.mission;
                self.judge_route(*fence, mission, route.as_deref())?;
                self.live.insert(*fence, (mission, route.as_deref().cloned()));
                self.try_out(*fence);
            }
            Event::AttemptFinished { fence, .. } | Event::CheckpointRaised { fence, .. } => {
                self.end(*fence, Some(FailureKind::AgentError), true);
            }
            Event::AttemptFailed { fence, failure, .. } => {
                ensure(failure.kind != FailureKind::RateLimited, || {
                    format!("a rate limit counts as a failure of attempt {fence}")
                })?;
                self.end(*fence, Some(failure.kind), false);
            }
            Event::AttemptAbandoned { fence, .. } => self.end(*fence, None, false),
            Event::AttemptInterrupted { fence, cause, .. } => {
                let parked = *cause == Interruption::ProviderParked;
                let provider = self.provider(*fence);
                ensure(!parked || self.parked.contains_key(&provider), || {
                    format!("attempt {fence} waits for {provider}, which is not parked")
                })?;
                self.end(*fence, None, false);
            }
            Event::MissionCancelled { mission, .. } | Event::MissionDelivered { mission, .. } => {
                let of_mission = |(of, _): &(MissionId, Option<Route>)| of == mission;
                let gone = self.live.iter().filter(|(_, live)| of_mission(live));
                let gone: Vec<Fence> = gone.map(|(fence, _)| *fence).collect();
                gone.into_iter().for_each(|fence| self.end(fence, None, false));
                self.breakers.remove(&BreakerKey::Mission(*mission));
                self.owed.remove(&BreakerKey::Mission(*mission));
            }
            Event::ProviderParked { provider, until } => {
                let before = self.parked.insert(provider.clone(), *until);
                ensure(before.is_none_or(|before| before < *until), || {
                    format!("{provider} is parked for a shorter time than it asked for")
                })?;
            }
            Event::ProviderBack { provider, by } => {
                let until = self.parked.remove(provider);
                let late = until.is_some_and(|until| until <= record.at);
                ensure(late || by.0 != "kapelle", || format!("{provider} is back too early"))?;
            }
            Event::BreakerMoved { key, to, by } => return self.moved(key, *to, &by.0, record.at),
            _ => {}
        }
        Ok(())
    }

    /// Whether work goes to the tier that it deserves, or to the nearest that has a model.
    fn judge_tier(&self, event: &Event, before: &State) -> Verdict {
        let Event::LeaseGranted { task, fence, agent, route: Some(route), .. } = event else {
            return Ok(());
        };
        let task = before.task(*task).ok_or_else(|| format!("lease {fence} is for no task"))?;
        let due = self.tiers.due(task, agent.role, &self.rules);
        ensure(due == Some(route.tier), || {
            format!("lease {fence} is {}; its work is {due:?}", route.tier)
        })
    }

    fn judge_route(&self, fence: Fence, mission: MissionId, route: Option<&Route>) -> Verdict {
        let of_mission = self.state(&BreakerKey::Mission(mission));
        ensure(matches!(of_mission, Breaker::Closed { .. }), || {
            format!("lease {fence} was granted although the breaker of {mission} is open")
        })?;
        let provider = route.map_or_else(|| Provider::new(UNROUTED), |r| r.provider.clone());
        ensure(!self.parked.contains_key(&provider), || {
            format!("lease {fence} goes to {provider}, which is parked")
        })?;
        let (Some(policy), Some(route)) = (&self.rules.routing, route) else {
            return ensure(self.rules.routing.is_some() == route.is_some(), || {
                format!("lease {fence} has the route {route:?}")
            });
        };
        let open = match self.state(&BreakerKey::Provider(provider.clone())) {
            Breaker::Closed { .. } => false,
            Breaker::Open { .. } => true,
            Breaker::HalfOpen { probe } => probe.is_some(),
        };
        ensure(!open, || format!("lease {fence} goes to {provider}, whose breaker is open"))?;
        let known = policy.models.model(&route.model);
        ensure(
            known.is_some_and(|model| {
                model.enabled && model.provider == provider && model.tier == route.tier
            }),
            || format!("lease {fence} goes to {}, which is not in the catalogue", route.model),
        )?;
        let max = self.rules.money.tier_max.unwrap_or(Tier::Premium);
        ensure(route.tier <= max, || format!("lease {fence} is {}, over {max}", route.tier))?;
        ensure(!route.reasons.is_empty(), || format!("lease {fence} has no reason"))?;
        ensure(self.rules.prices.cost(&route.model, 1, 1).is_ok(), || {
            format!("lease {fence} goes to {}, which has no price", route.model)
        })?;
        let routes = || self.live.values().filter_map(|(_, route)| route.as_ref());
        let beside = routes().filter(|other| other.provider == provider).count();
        let room = self.rules.rate.agents_max(&provider) as usize;
        ensure(beside < room, || format!("lease {fence} is one too many for {provider}"))?;
        let premium = routes().filter(|other| other.tier == Tier::Premium).count();
        ensure(route.tier < Tier::Premium || premium == 0, || {
            format!("lease {fence} is premium beside another")
        })
    }

    fn moved(&mut self, key: &BreakerKey, to: Breaker, by: &str, at: Timestamp) -> Verdict {
        let (from, owed) = (self.state(key), self.owed.remove(key));
        let right = match (from, to) {
            (_, Breaker::Open { until }) => {
                owed == Some(Owed::Open) && until == self.until(key, at)
            }
            (Breaker::Open { until }, Breaker::HalfOpen { probe: None }) => {
                until.is_some_and(|until| until <= at)
            }
            (_, Breaker::Closed { failures: 0 }) => owed == Some(Owed::Closed) || by != "kapelle",
            _ => false,
        };
        ensure(right, || format!("the breaker of {key} moved from {from:?} to {to:?}"))?;
        self.breakers.insert(key.clone(), to);
        Ok(())
    }

    fn until(&self, key: &BreakerKey, at: Timestamp) -> Option<Timestamp> {
        let BreakerPolicy { open_ms, provider, .. } = self.rules.breakers;
        match key {
            BreakerKey::Provider(_) if provider == Reset::HalfOpen => Some(at.plus_ms(open_ms)),
            _ => None,
        }
    }

    /// An attempt ended; `kind` is what it says about its provider, if anything.
    fn end(&mut self, fence: Fence, kind: Option<FailureKind>, done: bool) {
        let Some((mission, route)) = self.live.remove(&fence) else { return };
        let mission = BreakerKey::Mission(mission);
        let max = self.rules.breakers.mission_failures_max;
        if done {
            self.succeed(&mission, fence);
        } else if let (Some(max), Some(_)) = (max, kind) {
            self.fail(&mission, fence, max);
        }
        let Some(route) = route else { return };
        let key = BreakerKey::Provider(route.provider);
        match kind {
            Some(FailureKind::Network | FailureKind::Auth) => {
                self.fail(&key, fence, self.rules.breakers.failures_max);
            }
            Some(
                FailureKind::FileLocked
                | FailureKind::ValidationFailed
                | FailureKind::AgentError
                | FailureKind::GitConflict
                | FailureKind::Budget,
            ) => self.succeed(&key, fence),
            _ => {
                if self.state(&key) == (Breaker::HalfOpen { probe: Some(fence) }) {
                    self.breakers.insert(key, Breaker::HalfOpen { probe: None });
                }
            }
        }
    }

    fn succeed(&mut self, key: &BreakerKey, fence: Fence) {
        match self.state(key) {
            Breaker::Closed { .. } => {
                self.breakers.remove(key);
            }
            Breaker::HalfOpen { probe } if probe == Some(fence) => {
                self.owed.insert(key.clone(), Owed::Closed);
            }
            Breaker::Open { .. } | Breaker::HalfOpen { .. } => {}
        }
    }

    fn fail(&mut self, key: &BreakerKey, fence: Fence, max: u32) {
        match self.state(key) {
            Breaker::Closed { failures } => {
                let failures = failures + 1;
                self.breakers.insert(key.clone(), Breaker::Closed { failures });
                if failures >= max {
                    self.owed.insert(key.clone(), Owed::Open);
                }
            }
            Breaker::HalfOpen { probe } if probe == Some(fence) => {
                self.owed.insert(key.clone(), Owed::Open);
            }
            Breaker::Open { .. } | Breaker::HalfOpen { .. } => {}
        }
    }

    fn state(&self, key: &BreakerKey) -> Breaker {
        self.breakers.get(key).copied().unwrap_or(Breaker::SOUND)
    }

    fn provider(&self, fence: Fence) -> Provider {
        let route = self.live.get(&fence).and_then(|(_, route)| route.as_ref());
        route.map_or_else(|| Provider::new(UNROUTED), |route| route.provider.clone())
    }

    /// After a grant: whoever is half open is tried by it.
    fn try_out(&mut self, fence: Fence) {
        let key = BreakerKey::Provider(self.provider(fence));
        if self.state(&key) == (Breaker::HalfOpen { probe: None }) {
            self.breakers.insert(key, Breaker::HalfOpen { probe: Some(fence) });
        }
    }

    /// After a batch: nothing that had to happen is missing.
    pub(super) fn close(&self, now: Timestamp) -> Verdict {
        if let Some((key, owed)) = self.owed.first_key_value() {
            return Err(format!("the breaker of {key} must be {owed:?} by now"));
        }
        if let Some((provider, _)) = self.parked.iter().find(|(_, until)| **until <= now) {
            return Err(format!("{provider} is parked past its time"));
        }
        let is_late = |breaker: &Breaker| matches!(breaker, Breaker::Open { until: Some(until) } if *until <= now);
        match self.breakers.iter().find(|(_, breaker)| is_late(breaker)) {
            Some((key, _)) => Err(format!("the breaker of {key} is open past its time")),
            None => Ok(()),
        }
    }

    /// Whether nothing keeps a mission's work from a provider: then somebody must do it.
    pub(super) fn are_free(&self, mission: MissionId) -> bool {
        let sound = |key: &BreakerKey| matches!(self.state(key), Breaker::Closed { .. });
        let Some(policy) = &self.rules.routing else {
            let parked = self.parked.contains_key(&Provider::new(UNROUTED));
            return !parked && sound(&BreakerKey::Mission(mission));
        };
        let max = self.rules.money.tier_max.unwrap_or(Tier::Premium);
        let keyed = |model: &&Model| model.enabled && !policy.without_key.contains(&model.provider);
        let staffed =
            |tier: Tier| policy.models.0.iter().filter(keyed).filter(move |m| m.tier == tier);
        // Which tier a task deserves is the router's to say: so whichever has anybody must be free.
        let tiers = Tier::ALL.into_iter().filter(|tier| *tier <= max);
        let mut tiers = tiers.filter(|tier| staffed(*tier).next().is_some()).peekable();
        let any = tiers.peek().is_some();
        let free = tiers.all(|tier| self.is_free(tier, staffed(tier)));
        any && free && sound(&BreakerKey::Mission(mission))
    }

    /// Whether whatever is routed to one of these models of a tier can start.
    fn is_free<'a>(&self, tier: Tier, mut models: impl Iterator<Item = &'a Model> + Clone) -> bool {
        let routes = || self.live.values().filter_map(|(_, route)| route.as_ref());
        let alone = tier < Tier::Premium || !routes().any(|route| route.tier == tier);
        let priced = |model: &Model| self.rules.prices.cost(&model.name, 1, 1).is_ok();
        let reached = |Model { provider, .. }: &Model| {
            let breaker = self.state(&BreakerKey::Provider(provider.clone()));
            let busy = routes().filter(|route| route.provider == *provider).count();
            matches!(breaker, Breaker::Closed { .. })
                && !self.parked.contains_key(provider)
                && busy < self.rules.rate.agents_max(provider) as usize
        };
        alone && models.clone().all(priced) && models.any(reached)
    }
}
