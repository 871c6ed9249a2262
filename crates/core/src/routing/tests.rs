//! Rules of routing.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::failure::FailureKind;
use crate::limits;
use crate::time::Timestamp;

fn all_reachable(_: &Provider) -> Result<(), Unavailable> {
    Ok(())
}

fn without<'a>(
    provider: &'a str,
    why: Unavailable,
) -> impl Fn(&Provider) -> Result<(), Unavailable> + 'a {
    move |asked| if *asked.0 == *provider { Err(why) } else { Ok(()) }
}

/// Only these providers have a key.
fn keys<'a>(providers: &'a [&str]) -> impl Fn(&Provider) -> Result<(), Unavailable> + 'a {
    |asked| if providers.contains(&&*asked.0) { Ok(()) } else { Err(Unavailable::NoKey) }
}

fn developer(kind: WorkKind) -> Work {
    Work { kind: Some(kind), ..Work::of(Role::Developer) }
}

fn route(work: &Work) -> Route {
    Policy::default().route(work, None, all_reachable).unwrap()
}

fn tier(work: &Work) -> Tier {
    route(work).tier
}

/// T-57, RTE-01.
#[test]
fn tiers_cost_one_five_and_twenty() {
    assert_eq!(Tier::ALL.map(Tier::cost_factor), [1, 5, 20]);
    assert_eq!(Tier::ALL.map(Tier::attempts_max), [None, None, Some(1)], "premium is sequential");
}

/// RTE-01, RTE-02.
#[test]
fn simple_work_is_eco_and_architecture_is_premium() {
    for kind in [WorkKind::Query, WorkKind::Chore, WorkKind::Lint, WorkKind::Docs, WorkKind::Test] {
        assert_eq!(tier(&developer(kind)), Tier::Eco, "{kind}");
    }
    for kind in [WorkKind::Feature, WorkKind::BugFix] {
        assert_eq!(tier(&developer(kind)), Tier::Standard, "{kind}");
    }
    for kind in [WorkKind::Architecture, WorkKind::Refactoring] {
        assert_eq!(tier(&developer(kind)), Tier::Premium, "{kind}");
    }
}

/// RTE-03: a cheap model on what matters is a false economy.
#[test]
fn critical_long_or_security_work_is_standard_or_above() {
    let chore = developer(WorkKind::Chore);
    assert_eq!(tier(&Work { estimated_minutes: Some(30), ..chore.clone() }), Tier::Eco);
    let raised = [
        (Work { estimated_minutes: Some(31), ..chore.clone() }, Reason::Long { minutes: 31 }),
        (Work { priority: Priority::Critical, ..chore.clone() }, Reason::Critical),
        (Work { security: SecurityChecks::Required, ..chore }, Reason::Security),
    ];
    for (work, reason) in raised {
        let route = route(&work);
        assert_eq!(route.tier, Tier::Standard, "{reason}");
        assert!(route.reasons.contains(&reason), "{route}");
    }
    let premium = Work { priority: Priority::Critical, ..developer(WorkKind::Architecture) };
    assert_eq!(tier(&premium), Tier::Premium, "never lowered");
}

/// RTE-04 and the table of roles.
#[test]
fn roles_have_the_agreed_tiers_and_a_project_may_change_them() {
    let eco = [Role::Orchestrator, Role::Router, Role::Planner, Role::Tester];
    for role in Role::ALL {
        let expected = match role {
            _ if eco.contains(&role) => Tier::Eco,
            Role::Judge => Tier::Premium,
            _ => Tier::Standard,
        };
        let route = route(&Work::of(role));
        assert_eq!(route.tier, expected, "{role}");
        assert_eq!(route.reasons[0], Reason::RoleDefault { role, tier: expected });
    }
    let roles = BTreeMap::from([(Role::Tester, Tier::Standard)]);
    let policy = Policy { roles, ..Policy::default() };
    let route = policy.route(&Work::of(Role::Tester), None, all_reachable).unwrap();
    assert_eq!(route.tier, Tier::Standard);
}

/// QUE-18: implementation to Codex, review to Claude, analysis to Gemini.
#[test]
fn kinds_of_work_are_sharded_to_providers() {
    let shards = [
        (WorkKind::Feature, "codex"),
        (WorkKind::Review, "claude"),
        (WorkKind::Analysis, "gemini"),
    ];
    for (kind, provider) in shards {
        let route = route(&developer(kind));
        assert_eq!(route.provider, Provider::new(provider));
        assert!(route.reasons.contains(&Reason::Shard { kind }), "{route}");
    }
}

/// CON-20: without a shard the strong model goes first, then the order of the catalogue.
#[test]
fn strength_decides_where_no_shard_does() {
    let strong = route(&developer(WorkKind::Chore));
    assert_eq!(&*strong.model, "codestral");
    assert!(strong.reasons.contains(&Reason::Strength { kind: WorkKind::Chore }));
    assert_eq!(&*route(&developer(WorkKind::Lint)).model, "claude-haiku");
}

/// RTE-05.
#[test]
fn a_failure_of_the_model_raises_the_next_attempt_by_a_tier() {
    let after = |kind, failed, failure| {
        let failed = Some(Failed { tier: failed, kind: failure });
        tier(&Work { failed, ..developer(kind) })
    };
    let validation = FailureKind::ValidationFailed;
    assert_eq!(after(WorkKind::Test, Tier::Eco, validation), Tier::Standard);
    assert_eq!(after(WorkKind::Test, Tier::Standard, validation), Tier::Premium);
    assert_eq!(after(WorkKind::Test, Tier::Premium, validation), Tier::Premium);
    for outside in [FailureKind::Network, FailureKind::RateLimited, FailureKind::DiskFull] {
        assert_eq!(after(WorkKind::Test, Tier::Eco, outside), Tier::Eco, "{outside}");
    }
}

/// RTE-07: and a provider that is down never changes the tier.
#[test]
fn an_open_breaker_or_a_parked_provider_falls_back_within_the_tier() {
    let policy = Policy::default();
    let until = Timestamp(9);
    for why in [Unavailable::BreakerOpen { until: None }, Unavailable::Parked { until }] {
        let work = developer(WorkKind::Feature);
        let route = policy.route(&work, None, without("codex", why)).unwrap();
        assert_eq!((&*route.model, route.tier), ("claude-sonnet", Tier::Standard));
        let fallback = Reason::Fallback { from: "gpt-codex".into(), because: why };
        assert!(route.reasons.contains(&fallback), "{route}");
    }
}

/// A tier that is down for now waits; it costs no attempt and no dearer model.
#[test]
fn when_a_whole_tier_is_down_work_waits_for_the_first_that_is_back() {
    let policy = Policy::default();
    let down = |provider: &Provider| match &*provider.0 {
        "claude" => Err(Unavailable::Parked { until: Timestamp(70) }),
        "codex" => Err(Unavailable::BreakerOpen { until: Some(Timestamp(60)) }),
        _ => Err(Unavailable::NoKey),
    };
    let refused = policy.route(&developer(WorkKind::Feature), None, down).unwrap_err();
    let expected = NoRoute::AllUnavailable {
        tier: Tier::Standard,
        because: vec![
            ("gpt-codex".into(), Unavailable::BreakerOpen { until: Some(Timestamp(60)) }),
            ("claude-sonnet".into(), Unavailable::Parked { until: Timestamp(70) }),
        ],
        retry_at: Some(Timestamp(60)),
    };
    assert_eq!(refused, expected);
}

/// Somebody with a single key must be able to work, on the nearest tier that the key opens.
#[test]
fn a_tier_without_any_key_gives_way_to_the_next() {
    let policy = Policy::default();
    let eco = developer(WorkKind::Docs);
    let up = policy.route(&eco, None, keys(&["codex"])).unwrap();
    assert_eq!((&*up.model, up.tier), ("gpt-codex", Tier::Standard));
    assert!(up.reasons.contains(&Reason::TierVacant { wanted: Tier::Eco }), "{up}");
    let down = policy.route(&developer(WorkKind::Architecture), None, keys(&["deepseek"])).unwrap();
    assert_eq!(down.tier, Tier::Eco);
    assert_eq!(policy.route(&eco, None, keys(&[])), Err(NoRoute::Vacant));
    let capped = policy.route(&eco, Some(Tier::Eco), keys(&["codex"]));
    assert_eq!(capped, Err(NoRoute::Vacant), "never above the most that is allowed");
}

/// BUD-09: the monthly profile lasts only on the cheapest models, failures or not.
#[test]
fn a_forced_tier_is_never_passed() {
    let policy = Policy::default();
    let failed = Some(Failed { tier: Tier::Eco, kind: FailureKind::AgentError });
    let work = Work { priority: Priority::Critical, failed, ..developer(WorkKind::Architecture) };
    let route = policy.route(&work, Some(Tier::Eco), all_reachable).unwrap();
    assert_eq!(route.tier, Tier::Eco);
    let capped = Reason::Capped { wanted: Tier::Premium, max: Tier::Eco };
    assert!(route.reasons.contains(&capped), "{route}");
}

#[test]
fn a_choice_by_name_is_kept_or_refused() {
    let policy = Policy::default();
    let pinned = |name: &str| Work { pinned: Some(name.into()), ..developer(WorkKind::Lint) };
    let route = policy.route(&pinned("claude-opus"), None, all_reachable).unwrap();
    assert_eq!((&*route.model, route.reasons), ("claude-opus", vec![Reason::Pinned]));
    let unknown = policy.route(&pinned("mystery"), None, all_reachable);
    assert_eq!(unknown, Err(NoRoute::UnknownModel { name: "mystery".into() }));
    let dear = policy.route(&pinned("claude-opus"), Some(Tier::Standard), all_reachable);
    let (tier, max) = (Tier::Premium, Tier::Standard);
    assert_eq!(dear, Err(NoRoute::PinnedOverMax { name: "claude-opus".into(), tier, max }));
    let until = Timestamp(5);
    let parked = without("claude", Unavailable::Parked { until });
    let refused = policy.route(&pinned("claude-opus"), None, parked).unwrap_err();
    let because = vec![("claude-opus".into(), Unavailable::Parked { until })];
    assert_eq!(refused, NoRoute::AllUnavailable { tier, because, retry_at: Some(until) });
}

/// CON-02: a judge of the author's family sees the author's mistakes as its own.
#[test]
fn an_excluded_family_is_not_chosen() {
    let not = BTreeSet::from([Lineage("claude".into())]);
    let judge = route(&Work { not, ..Work::of(Role::Judge) });
    assert_eq!(judge.lineage, Lineage("gpt".into()));
}

#[test]
fn a_disabled_model_is_not_chosen() {
    let mut policy = Policy::default();
    for model in &mut policy.models.0 {
        model.enabled = &*model.name != "gpt-codex";
    }
    let route = policy.route(&developer(WorkKind::Feature), None, all_reachable).unwrap();
    assert_ne!(&*route.model, "gpt-codex");
}

/// RTE-06: a person reads it.
#[test]
fn a_route_explains_itself_in_a_sentence() {
    let policy = Policy::default();
    let parked = without("codex", Unavailable::Parked { until: Timestamp(9) });
    let route = policy.route(&developer(WorkKind::BugFix), None, parked).unwrap();
    let sentence = "claude-sonnet (standard): bug_fix work is standard; \
                    gpt-codex has a rate limit until 1970-01-01 00:00:00 UTC";
    assert_eq!(route.to_string(), sentence);
    let json = serde_json::to_string(&route).unwrap();
    assert_eq!(serde_json::from_str::<Route>(&json).unwrap(), route);
}

#[test]
fn wrong_catalogues_are_refused() {
    let with = |change: &dyn Fn(&mut Vec<Model>)| {
        let mut policy = Policy::default();
        change(&mut policy.models.0);
        policy.validate()
    };
    assert_eq!(with(&|_| ()), Ok(()));
    assert_eq!(with(&|models| models.clear()), Err(InvalidCatalogue::Empty));
    let disable = |models: &mut Vec<Model>| models.iter_mut().for_each(|m| m.enabled = false);
    assert_eq!(with(&disable), Err(InvalidCatalogue::Empty));
    let twice = with(&|models| models.push(models[0].clone()));
    assert_eq!(twice, Err(InvalidCatalogue::Twice { name: "claude-haiku".into() }));
    let nameless = with(&|models| models[0].lineage = Lineage(" ".into()));
    assert_eq!(nameless, Err(InvalidCatalogue::BadName { name: "claude-haiku".into() }));
    let max = limits::MODELS_MAX;
    let many = with(&|models| *models = vec![models[0].clone(); max + 1]);
    assert_eq!(many, Err(InvalidCatalogue::TooMany { count: max + 1, max }));
}

fn kinds() -> impl Strategy<Value = Option<WorkKind>> {
    use WorkKind::{Analysis, Architecture, Chore, Feature, Review, Test};
    prop::option::of(prop::sample::select(vec![
        Analysis,
        Architecture,
        Chore,
        Feature,
        Review,
        Test,
    ]))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Whatever is down: a route is reachable, allowed, and of the wanted tier unless that tier
    /// has no key at all; a refusal that names a time can be asked again then.
    #[test]
    fn routes_are_reachable_and_allowed(
        kind in kinds(),
        role in prop::sample::select(Role::ALL.to_vec()),
        states in prop::collection::vec(0u8..4, 6),
        max in prop::sample::select(Tier::ALL.to_vec()),
    ) {
        let providers = ["claude", "codex", "gemini", "deepseek", "mistral", "qwen"];
        let reach = |asked: &Provider| {
            let at = providers.iter().position(|name| **name == *asked.0).unwrap();
            match states[at] {
                0 => Err(Unavailable::NoKey),
                1 => Err(Unavailable::BreakerOpen { until: None }),
                2 => Err(Unavailable::Parked { until: Timestamp(7) }),
                _ => Ok(()),
            }
        };
        let policy = Policy::default();
        let work = Work { kind, ..Work::of(role) };
        let answer = policy.route(&work, Some(max), reach);
        prop_assert_eq!(&answer, &policy.route(&work, Some(max), reach));
        match answer {
            Ok(route) => {
                prop_assert_eq!(reach(&route.provider), Ok(()));
                prop_assert!(route.tier <= max);
                let calm = policy.route(&work, Some(max), all_reachable).unwrap();
                let is_vacant = route.reasons.iter().any(|r| matches!(r, Reason::TierVacant { .. }));
                prop_assert_eq!(route.tier != calm.tier, is_vacant);
            }
            Err(NoRoute::AllUnavailable { because, retry_at, .. }) => {
                prop_assert!(!because.is_empty());
                let has_parked = because.iter().any(|(_, why)| why.until().is_some());
                prop_assert_eq!(retry_at.is_some(), has_parked);
            }
            Err(refusal) => prop_assert_eq!(refusal, NoRoute::Vacant),
        }
    }
}
