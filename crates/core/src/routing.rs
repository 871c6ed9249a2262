//! Routing: which model does which work.
//!
//! First the tier, by what the work is; then the model within the tier, by who is preferred and
//! who can be reached. Only when a whole tier has no model with a key does work change its tier;
//! a provider that is down for now never makes work dearer or worse.
//!
//! Invariant: the same work in the same circumstances always takes the same route, and every
//! route says why.

mod catalogue;
mod route;
mod work;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use catalogue::{Catalogue, InvalidCatalogue, Lineage, Model, ModelName, Tier};
pub use route::{NoRoute, Reason, Route, Unavailable};
pub use work::{Failed, SecurityChecks, Work, WorkKind};

use crate::ids::Role;
use crate::plan::Priority;
use crate::rate::Provider;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    pub models: Catalogue,
    /// Providers that nobody has a key for.
    pub without_key: BTreeSet<Provider>,
    /// Where a role is not named, the default of the requirements holds.
    pub roles: BTreeMap<Role, Tier>,
    /// Which kind of work goes to which provider, if it can take it (QUE-18).
    pub shards: BTreeMap<WorkKind, Provider>,
    /// Work that takes longer than this is no simple work (RTE-03).
    pub long_minutes: u32,
}

impl Default for Policy {
    fn default() -> Policy {
        let shard = |kind, provider: &str| (kind, Provider::new(provider));
        Policy {
            models: Catalogue::default(),
            without_key: BTreeSet::new(),
            roles: BTreeMap::new(),
            shards: BTreeMap::from([
                shard(WorkKind::Feature, "codex"),
                shard(WorkKind::BugFix, "codex"),
                shard(WorkKind::Refactoring, "codex"),
                shard(WorkKind::Review, "claude"),
                shard(WorkKind::Analysis, "gemini"),
            ]),
            long_minutes: 30,
        }
    }
}

/// What a role works on when nothing else is known about the work (RTE-04).
#[must_use]
pub fn default_tier(role: Role) -> Tier {
    match role {
        Role::Orchestrator | Role::Router | Role::Planner | Role::Tester => Tier::Eco,
        Role::Merger
        | Role::Librarian
        | Role::Researcher
        | Role::Developer
        | Role::Reviewer
        | Role::Breaker
        | Role::Devops
        | Role::PromptEngineer
        | Role::ProductManager => Tier::Standard,
        Role::Judge => Tier::Premium,
    }
}

impl Policy {
    /// Whoever could be asked.
    #[must_use]
    pub fn providers(&self) -> BTreeSet<&Provider> {
        let usable = |model: &&Model| model.enabled && !self.without_key.contains(&model.provider);
        self.models.0.iter().filter(usable).map(|model| &model.provider).collect()
    }

    pub fn validate(&self) -> Result<(), InvalidCatalogue> {
        self.models.validate()
    }

    /// The route of this work. `tier_max` comes from the budget; `reach` says whether a provider
    /// can take work: it has a key, its breaker is closed and it is not parked.
    pub fn route(
        &self,
        work: &Work,
        tier_max: Option<Tier>,
        reach: impl Fn(&Provider) -> Result<(), Unavailable>,
    ) -> Result<Route, NoRoute> {
        let max = tier_max.unwrap_or(Tier::Premium);
        if let Some(name) = &work.pinned {
            return self.pinned(name, max, reach);
        }
        let (wanted, mut reasons) = self.tier(work, max);
        let tier = self.staffed(wanted, max, work, &reach).ok_or(NoRoute::Vacant)?;
        if tier != wanted {
            reasons.push(Reason::TierVacant { wanted });
        }
        let mut because = Vec::new();
        for model in self.preferred(tier, work) {
            match reach(&model.provider) {
                Ok(()) => {
                    let from = because.into_iter().filter(|(_, why)| *why != Unavailable::NoKey);
                    reasons.extend(self.preference(model, work));
                    let fallback = |(from, because)| Reason::Fallback { from, because };
                    reasons.extend(from.map(fallback));
                    return Ok(chosen(model, reasons));
                }
                Err(why) => because.push((model.name.clone(), why)),
            }
        }
        because.retain(|(_, why)| *why != Unavailable::NoKey);
        let retry_at = because.iter().filter_map(|(_, why)| why.until()).min();
        Err(NoRoute::AllUnavailable { tier, because, retry_at })
    }

    /// A choice by name is kept or refused, never replaced by another.
    fn pinned(
        &self,
        name: &str,
        max: Tier,
        reach: impl Fn(&Provider) -> Result<(), Unavailable>,
    ) -> Result<Route, NoRoute> {
        let known = self.models.model(name).filter(|model| model.enabled);
        let model = known.ok_or_else(|| NoRoute::UnknownModel { name: name.into() })?;
        let tier = model.tier;
        if tier > max {
            return Err(NoRoute::PinnedOverMax { name: name.into(), tier, max });
        }
        match reach(&model.provider) {
            Ok(()) => Ok(chosen(model, vec![Reason::Pinned])),
            Err(why) => Err(NoRoute::AllUnavailable {
                tier,
                because: vec![(name.into(), why)],
                retry_at: why.until(),
            }),
        }
    }

    /// The tier that the work deserves, whoever is there.
    pub(crate) fn deserved(&self, work: &Work, tier_max: Option<Tier>) -> Tier {
        self.tier(work, tier_max.unwrap_or(Tier::Premium)).0
    }

    /// The tier that the work deserves, and why.
    fn tier(&self, work: &Work, max: Tier) -> (Tier, Vec<Reason>) {
        let of_kind = work.kind.and_then(|kind| Some((kind, kind.tier()?)));
        let (mut tier, first) = match of_kind {
            Some((kind, tier)) => (tier, Reason::Kind { kind, tier }),
            None => {
                let role = work.role;
                let tier = self.roles.get(&role).copied().unwrap_or_else(|| default_tier(role));
                (tier, Reason::RoleDefault { role, tier })
            }
        };
        let mut reasons = vec![first];
        let long = work.estimated_minutes.filter(|minutes| *minutes > self.long_minutes);
        let floors = [
            (work.priority == Priority::Critical).then_some(Reason::Critical),
            long.map(|minutes| Reason::Long { minutes }),
            (work.security == SecurityChecks::Required).then_some(Reason::Security),
        ];
        for floor in floors.into_iter().flatten() {
            if tier < Tier::Standard {
                tier = Tier::Standard;
                reasons.push(floor);
            }
        }
        if let Some(failed) = work.failed.filter(|failed| failed.was_the_model()) {
            let next = failed.tier.next().unwrap_or(failed.tier);
            if next > tier {
                tier = next;
                reasons.push(Reason::Waterfall { failed: failed.tier, kind: failed.kind });
            }
        }
        if tier > max {
            reasons.push(Reason::Capped { wanted: tier, max });
            tier = max;
        }
        (tier, reasons)
    }

    /// The tier itself if anybody there has a key; else the next one above, else below.
    fn staffed(
        &self,
        wanted: Tier,
        max: Tier,
        work: &Work,
        reach: &impl Fn(&Provider) -> Result<(), Unavailable>,
    ) -> Option<Tier> {
        let has_key = |model: &&Model| reach(&model.provider) != Err(Unavailable::NoKey);
        let has_staff = |tier: &Tier| self.candidates(*tier, work).any(|model| has_key(&model));
        let above = Tier::ALL.into_iter().filter(|tier| *tier >= wanted && *tier <= max);
        let below = Tier::ALL.into_iter().rev().filter(|tier| *tier < wanted);
        above.chain(below).find(has_staff)
    }

    fn candidates(&self, tier: Tier, work: &Work) -> impl Iterator<Item = &Model> {
        let is_fit = move |model: &&Model| model.tier == tier && !work.not.contains(&model.lineage);
        self.models.enabled().filter(is_fit)
    }

    /// Those of the tier, best first: the provider of the shard, then the strong ones, then the
    /// order of the catalogue.
    fn preferred(&self, tier: Tier, work: &Work) -> Vec<&Model> {
        let mut models: Vec<&Model> = self.candidates(tier, work).collect();
        models.sort_by_key(|model| {
            let is_of_shard = self.is_of_shard(model, work);
            (!is_of_shard, !is_strong(model, work))
        });
        models
    }

    fn is_of_shard(&self, model: &Model, work: &Work) -> bool {
        work.kind.and_then(|kind| self.shards.get(&kind)) == Some(&model.provider)
    }

    fn preference(&self, model: &Model, work: &Work) -> Option<Reason> {
        let kind = work.kind?;
        if self.is_of_shard(model, work) {
            Some(Reason::Shard { kind })
        } else {
            is_strong(model, work).then_some(Reason::Strength { kind })
        }
    }
}

fn is_strong(model: &Model, work: &Work) -> bool {
    work.kind.is_some_and(|kind| model.strengths.contains(&kind))
}

fn chosen(model: &Model, reasons: Vec<Reason>) -> Route {
    Route {
        model: model.name.clone(),
        provider: model.provider.clone(),
        lineage: model.lineage.clone(),
        tier: model.tier,
        reasons,
    }
}

#[cfg(test)]
mod tests;
