//! Providers: which model does the work, and who is left alone for now.

use std::collections::BTreeMap;

use super::decide::Decision;
use super::money::Hindrance;
use super::people::person;
use super::{Lease, State};
use crate::approval::Right;
use crate::breaker::{Breaker, BreakerKey, BreakerRefusal};
use crate::command::AttemptOutcome;
use crate::event::{Event, Interruption, PauseReason};
use crate::failure::{Failure, FailureKind};
use crate::ids::{Actor, Fence, Role, TaskId};
use crate::mission::Mission;
use crate::plan::TaskKind;
use crate::rate::Provider;
use crate::refusal::Refusal;
use crate::routing::{NoRoute, Route, SecurityChecks, Tier, Unavailable, Work, WorkKind};
use crate::task::Task;
use crate::time::Timestamp;

/// Who serves work for which no models are configured: whoever its agents ask.
pub const UNROUTED: &str = "unrouted";

/// How many attempts are under way, by what they use.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct Traffic {
    pub providers: BTreeMap<Provider, u32>,
    pub tiers: BTreeMap<Tier, u32>,
}

impl State {
    /// How many more attempts a provider's rate limit carries; none while it is parked.
    #[must_use]
    pub fn permits_room(&self, provider: &Provider) -> u32 {
        if self.permits.parked_providers().any(|(parked, _)| parked == provider) {
            return 0;
        }
        let busy = self.traffic.providers.get(provider).copied().unwrap_or(0);
        self.permits.policy().agents_max(provider).saturating_sub(busy)
    }

    /// The model for a task, or why there is none for it now, or once that lease has ended.
    pub(super) fn route(
        &self,
        task: &Task,
        mission: &Mission,
        role: Role,
        ended: Option<&Lease>,
    ) -> Result<Option<Box<Route>>, Hindrance> {
        self.breakers.admit(&BreakerKey::Mission(mission.id))?;
        let Some(policy) = &self.settings.routing else {
            let mut parked = self.permits.parked_providers();
            return match parked.find(|(provider, _)| &*provider.0 == UNROUTED) {
                Some((_, until)) => Err(Hindrance::RateLimit { until }),
                None => Ok(None),
            };
        };
        let tier_max = self.settings.money.tier_max;
        let left = ended.and_then(|lease| lease.route.as_deref());
        let reach = |provider: &Provider| match self.reach(provider) {
            Err(Unavailable::Full) if left.is_some_and(|route| route.provider == *provider) => {
                Ok(())
            }
            reached => reached,
        };
        let route = policy.route(&work(task, role), tier_max, reach)?;
        // A model without a price would be a bill by surprise.
        self.settings.prices.cost(&route.model, 0, 0).map_err(crate::ledger::Refusal::from)?;
        let busy = self.traffic.tiers.get(&route.tier).copied().unwrap_or(0);
        let busy = busy.saturating_sub(u32::from(left.is_some_and(|l| l.tier == route.tier)));
        match route.tier.attempts_max() {
            Some(max) if busy >= max => Err(Hindrance::TierFull { tier: route.tier }),
            _ => Ok(Some(Box::new(route))),
        }
    }

    /// What of a task decides where it may go: the tier that it deserves, and its kind.
    pub(super) fn route_class(&self, task: &Task, role: Role) -> u16 {
        let Some(policy) = &self.settings.routing else { return 0 };
        let work = work(task, role);
        let tier = policy.deserved(&work, self.settings.money.tier_max);
        let kind = work.kind.map_or(0, |kind| kind as u16 + 1);
        kind << 2 | tier as u16
    }

    pub(super) fn reach(&self, provider: &Provider) -> Result<(), Unavailable> {
        let routing = self.settings.routing.as_ref();
        if routing.is_some_and(|policy| policy.without_key.contains(provider)) {
            return Err(Unavailable::NoKey);
        }
        let mut parked = self.permits.parked_providers();
        if let Some((_, until)) = parked.find(|(parked, _)| *parked == provider) {
            return Err(Unavailable::Parked { until });
        }
        match self.breakers.state(&BreakerKey::Provider(provider.clone())) {
            Breaker::Open { until } => Err(Unavailable::BreakerOpen { until }),
            Breaker::HalfOpen { probe: Some(_) } => Err(Unavailable::Tried),
            _ if self.permits_room(provider) == 0 => Err(Unavailable::Full),
            Breaker::Closed { .. } | Breaker::HalfOpen { probe: None } => Ok(()),
        }
    }

    /// A rate limit: the provider is left alone for as long as it asks, and no attempt is counted.
    pub(super) fn park_provider(
        &self,
        task: TaskId,
        lease: &Lease,
        fence: Fence,
        failure: &Failure,
        now: Timestamp,
    ) -> Vec<Event> {
        let provider = match &lease.route {
            Some(route) => route.provider.clone(),
            None => Provider::new(UNROUTED),
        };
        let until = self.permits.policy().parked_until(failure.retry_after_ms, now);
        let mut events = Vec::new();
        let is_longer = |(parked, at): (&Provider, Timestamp)| *parked == provider && at >= until;
        if !self.permits.parked_providers().any(is_longer) {
            events.push(Event::ProviderParked { provider, until });
        }
        let cause = Interruption::ProviderParked;
        events.push(Event::AttemptInterrupted { task, fence, cause });
        events
    }

    /// What the end of an attempt says about its provider's breaker.
    pub(super) fn judge_provider(
        &self,
        lease: &Lease,
        fence: Fence,
        outcome: &AttemptOutcome,
        now: Timestamp,
    ) -> Option<Event> {
        let key = BreakerKey::Provider(lease.route.as_ref()?.provider.clone());
        let to = match told(outcome) {
            Told::Works => self.breakers.after_success(&key, fence),
            Told::Fails => self.breakers.after_failure(&self.settings.breakers, &key, fence, now),
            Told::Nothing => None,
        };
        to.map(|to| Event::BreakerMoved { key, to, by: Actor::kapelle() })
    }

    /// Whether this failure was one too many of its mission in a row.
    pub(super) fn judge_mission(
        &self,
        mission: &Mission,
        fence: Fence,
        now: Timestamp,
        events: &mut Vec<Event>,
    ) {
        let key = BreakerKey::Mission(mission.id);
        let moved = self.breakers.after_failure(&self.settings.breakers, &key, fence, now);
        let Some(to) = moved else { return };
        let is_paused = events.iter().any(|event| matches!(event, Event::MissionPaused { .. }));
        let refusal = BreakerRefusal::NeedsReset { key: key.clone() };
        events.push(Event::BreakerMoved { key, to, by: Actor::kapelle() });
        if !is_paused && mission.paused.is_none() {
            let reason = PauseReason::Breaker { refusal };
            events.extend(self.pause_for(mission, reason, Actor::kapelle(), Some(fence)));
        }
    }

    /// Whose time of being left alone is over.
    pub(super) fn back_in_service(&self, now: Timestamp) -> Vec<Event> {
        let by = Actor::kapelle();
        let parked = self.permits.parked_providers().filter(|(_, until)| *until <= now);
        let back = parked.map(|(provider, _)| Event::ProviderBack {
            provider: provider.clone(),
            by: by.clone(),
        });
        let tried = self.breakers.due(now).map(|key| Event::BreakerMoved {
            key: key.clone(),
            to: Breaker::HalfOpen { probe: None },
            by: by.clone(),
        });
        back.chain(tried).collect()
    }

    pub(super) fn unpark(&self, provider: &Provider, by: &Actor) -> Decision {
        person(by)?;
        self.may(by, Right::Direct)?;
        if !self.permits.parked_providers().any(|(parked, _)| parked == provider) {
            return Err(Refusal::NotParked { provider: provider.clone() });
        }
        Ok(vec![Event::ProviderBack { provider: provider.clone(), by: by.clone() }])
    }

    pub(super) fn reset_breaker(&self, key: &BreakerKey, by: &Actor) -> Decision {
        person(by)?;
        self.may(by, Right::Direct)?;
        self.breakers.check_reset(key)?;
        let (key, to, by) = (key.clone(), Breaker::SOUND, by.clone());
        Ok(vec![Event::BreakerMoved { key, to, by }])
    }
}

/// What the end of an attempt tells about whoever served it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum Told {
    Works,
    Fails,
    Nothing,
}

pub(super) fn told(outcome: &AttemptOutcome) -> Told {
    match outcome {
        AttemptOutcome::Failed(failure) => told_by(failure.kind),
        AttemptOutcome::Abandoned(_) => Told::Nothing,
        AttemptOutcome::Done { .. } | AttemptOutcome::Asked { .. } => Told::Works,
    }
}

/// A provider that cannot be reached, or does not know our key, fails; one that answered works,
/// whatever became of its answer.
pub(super) fn told_by(kind: FailureKind) -> Told {
    match kind {
        FailureKind::Network | FailureKind::Auth => Told::Fails,
        FailureKind::RateLimited
        | FailureKind::Timeout
        | FailureKind::Hang
        | FailureKind::OutOfMemory
        | FailureKind::DiskFull
        | FailureKind::DependencyFailed => Told::Nothing,
        FailureKind::FileLocked
        | FailureKind::ValidationFailed
        | FailureKind::AgentError
        | FailureKind::GitConflict
        | FailureKind::Budget => Told::Works,
    }
}

/// Whether nothing but a person helps.
pub(super) fn is_hopeless(refusal: &NoRoute) -> bool {
    match refusal {
        NoRoute::AllUnavailable { because, .. } => {
            because.iter().all(|(_, why)| *why == Unavailable::BreakerOpen { until: None })
        }
        NoRoute::Vacant | NoRoute::UnknownModel { .. } | NoRoute::PinnedOverMax { .. } => true,
    }
}

fn work(task: &Task, role: Role) -> Work {
    let plan = &task.plan;
    let security = match plan.validation_criteria.security_checks.is_empty() {
        true => SecurityChecks::None,
        false => SecurityChecks::Required,
    };
    Work {
        kind: kind(plan.kind, role),
        priority: task.priority,
        estimated_minutes: plan.estimated_duration_minutes,
        security,
        failed: task.outgrown,
        ..Work::of(role)
    }
}

/// What a role does for a task of this kind. None where the role alone decides the tier.
fn kind(of_task: TaskKind, role: Role) -> Option<WorkKind> {
    match (of_task, role) {
        (_, Role::Tester) | (TaskKind::Test, _) => Some(WorkKind::Test),
        (TaskKind::Implementation, _) => Some(WorkKind::Feature),
        (TaskKind::Review, _) => Some(WorkKind::Review),
        (TaskKind::Analysis, _) => Some(WorkKind::Analysis),
        (TaskKind::Docs, _) => Some(WorkKind::Docs),
        (TaskKind::Refactor, _) => Some(WorkKind::Refactoring),
        (TaskKind::Security, _) => Some(WorkKind::Security),
        (TaskKind::Migration | TaskKind::Infrastructure, _) => None,
    }
}
