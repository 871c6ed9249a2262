//! Providers: who uses whom, and what the ends of attempts tell about them.

use crate::breaker::{Breaker, BreakerKey};
use crate::escalation::Cause;
use crate::failure::FailureKind;
use crate::ids::Fence;
use crate::routing::Route;
use crate::state::State;
use crate::state::providers::{Told, told_by};

impl State {
    /// A provider that is left alone is a person's business (HUM-06), until it is not any more.
    pub(in crate::state) fn move_breaker(&mut self, key: &BreakerKey, to: Breaker) {
        self.breakers.moved(key, to);
        if let BreakerKey::Mission(_) = key {
            return;
        }
        let cause = Cause::of_breaker(key);
        match (to, self.notices.group(&cause).is_some()) {
            (Breaker::Open { .. }, false) => self.raise_notice(Some(cause), None),
            (Breaker::Closed { .. }, true) => self.settle_notice(Some(cause), None),
            (Breaker::Open { .. } | Breaker::HalfOpen { .. } | Breaker::Closed { .. }, _) => {}
        }
    }

    /// An attempt begins to use its provider; it may be the one that tries it.
    pub(in crate::state) fn enter(&mut self, route: Option<&Route>, fence: Fence) {
        let Some(Route { provider, tier, .. }) = route else { return };
        *self.traffic.providers.entry(provider.clone()).or_default() += 1;
        *self.traffic.tiers.entry(*tier).or_default() += 1;
        self.breakers.called(&BreakerKey::Provider(provider.clone()), fence);
    }

    pub(in crate::state) fn leave(&mut self, route: Option<&Route>, fence: Fence) {
        let Some(Route { provider, tier, .. }) = route else { return };
        if let Some(busy) = self.traffic.providers.get_mut(provider) {
            *busy = busy.saturating_sub(1);
        }
        if let Some(busy) = self.traffic.tiers.get_mut(tier) {
            *busy = busy.saturating_sub(1);
        }
        self.breakers.gave_up(&BreakerKey::Provider(provider.clone()), fence);
    }

    /// The attempt came to something.
    pub(in crate::state) fn answered(&mut self, fence: Fence) {
        let Some(lease) = self.lease(fence) else { return };
        let mission = BreakerKey::Mission(lease.mission);
        if let Some(key) = self.provider_of(fence) {
            self.breakers.succeeded(&key);
        }
        self.breakers.succeeded(&mission);
    }

    /// The attempt failed.
    pub(in crate::state) fn broke(&mut self, fence: Fence, kind: FailureKind) {
        let Some(lease) = self.lease(fence) else { return };
        let mission = BreakerKey::Mission(lease.mission);
        match (self.provider_of(fence), told_by(kind)) {
            (Some(key), Told::Fails) => self.breakers.failed(&key),
            (Some(key), Told::Works) => self.breakers.succeeded(&key),
            (Some(_), Told::Nothing) | (None, _) => {}
        }
        if self.settings.breakers.mission_failures_max.is_some() {
            self.breakers.failed(&mission);
        }
    }

    fn provider_of(&self, fence: Fence) -> Option<BreakerKey> {
        let route = self.lease(fence)?.route.as_ref()?;
        Some(BreakerKey::Provider(route.provider.clone()))
    }
}
