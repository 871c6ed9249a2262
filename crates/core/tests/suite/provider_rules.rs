//! Rules of providers at the engine: routes, rate limits, breakers.

use crate::fixture::{M1, World, ann, asked, done, failed, open, task};
use kapelle_core::breaker::{
    Breaker, BreakerKey, BreakerPolicy, BreakerRefusal, InvalidBreakerPolicy, Reset,
};
use kapelle_core::command::{AttemptOutcome, Spending};
use kapelle_core::escalation::Cause;
use kapelle_core::event::{Interruption, PauseReason};
use kapelle_core::failure::{Failure, FailureKind};
use kapelle_core::ledger::{self, Profile};
use kapelle_core::plan::{PlannedTask, Priority, TaskKind};
use kapelle_core::policy::Policy;
use kapelle_core::price::Price;
use kapelle_core::rate::{self, Provider, Throughput};
use kapelle_core::report::Usage;
use kapelle_core::routing::{
    self, Catalogue, InvalidCatalogue, Lineage, Model, NoRoute, Reason, Route, Tier, WorkKind,
};
use kapelle_core::scaling::{ManualScale, ScaleRefusal, ScalingMode, ScalingRules};
use kapelle_core::settings::{InvalidSettings, Settings};
use kapelle_core::state::UNROUTED;
use kapelle_core::{Actor, Command, Event, Refusal, Role, Usd, why};

fn model(provider: &str, tier: Tier) -> Model {
    Model {
        name: format!("{provider}-{tier}").into(),
        provider: Provider::new(provider),
        lineage: Lineage(provider.into()),
        tier,
        strengths: [].into(),
        enabled: true,
    }
}

/// Two providers with a model of every tier each, all of them priced, none of them preferred.
fn routed() -> Settings {
    let models: Vec<Model> =
        Tier::ALL.iter().flat_map(|tier| ["a", "b"].map(|name| model(name, *tier))).collect();
    let mut settings = Settings::default();
    let price = Price { input: Usd::cents(1), output: Usd::cents(1) };
    settings.prices.models = models.iter().map(|m| (m.name.to_string(), price)).collect();
    let models = Catalogue(models);
    let policy = routing::Policy { models, shards: [].into(), ..routing::Policy::default() };
    settings.routing = Some(policy);
    settings
}

fn world(settings: Settings, tasks: Vec<PlannedTask>) -> World {
    let mut world = World::empty();
    change(&mut world, settings);
    world.must(open(tasks, Policy::default()));
    world.chores();
    world
}

fn change(world: &mut World, settings: Settings) {
    world.must(Command::ChangeSettings { settings: Box::new(settings), by: ann() });
}

/// The route of the latest attempt.
fn route(world: &World) -> Route {
    let routes = world.journal.iter().rev().find_map(|record| match &record.event {
        Event::LeaseGranted { route, .. } => Some(route.clone()),
        _ => None,
    });
    *routes.flatten().expect("the work has a route")
}

fn limited(retry_after_ms: Option<u64>) -> AttemptOutcome {
    let failure = Failure::new(FailureKind::RateLimited, "429");
    AttemptOutcome::Failed(Failure { retry_after_ms, ..failure })
}

fn provider(name: &str) -> BreakerKey {
    BreakerKey::Provider(Provider::new(name))
}

fn paused(world: &World) -> Option<&PauseReason> {
    world.state().mission(M1).unwrap().paused.as_ref()
}

#[test]
fn without_a_catalogue_work_runs_as_its_agents_are_configured() {
    let world = world(Settings::default(), vec![task("1", &[])]);
    let granted = world.journal.iter().find_map(|record| match &record.event {
        Event::LeaseGranted { route, .. } => Some(route.clone()),
        _ => None,
    });
    assert_eq!(granted, Some(None));
}

/// RTE-01…04: by kind, by urgency, by length, by what is checked, by role.
#[test]
fn work_goes_to_the_tier_that_it_deserves_and_says_why() {
    let plain = || task("1", &[]);
    let kind = |kind| PlannedTask { kind, ..plain() };
    let mut checked = kind(TaskKind::Docs);
    checked.validation_criteria.security_checks.push("no secrets".into());
    let cases = [
        (plain(), Tier::Standard),
        (kind(TaskKind::Docs), Tier::Eco),
        (kind(TaskKind::Refactor), Tier::Premium),
        (kind(TaskKind::Infrastructure), Tier::Standard),
        (PlannedTask { priority: Priority::Critical, ..kind(TaskKind::Docs) }, Tier::Standard),
        (
            PlannedTask { estimated_duration_minutes: Some(31), ..kind(TaskKind::Docs) },
            Tier::Standard,
        ),
        (checked, Tier::Standard),
    ];
    for (plan, tier) in cases {
        let shown = format!("{plan:?}");
        let world = world(routed(), vec![plan]);
        let route = route(&world);
        assert_eq!((route.tier, &*route.provider.0), (tier, "a"), "{shown}");
        assert!(!route.reasons.is_empty(), "{shown}");
        assert_eq!(world.task("1").tier, Some(tier));
    }
}

/// RTE-05: what a cheap model could not do goes to a better one; what no model could, does not.
#[test]
fn a_failure_of_the_model_moves_work_up_a_tier() {
    let docs = PlannedTask { kind: TaskKind::Docs, ..task("1", &[]) };
    let mut world = world(routed(), vec![docs]);
    world.finish("1", failed(FailureKind::ValidationFailed));
    let second = route(&world);
    assert_eq!(second.tier, Tier::Standard);
    let waterfall = Reason::Waterfall { failed: Tier::Eco, kind: FailureKind::ValidationFailed };
    assert!(second.reasons.contains(&waterfall), "{second}");
    world.finish("1", failed(FailureKind::Network));
    world.wait(60_000);
    assert_eq!(route(&world).tier, Tier::Standard, "a lost connection is no reason to go back");
}

/// A lost connection fails on any model, so it moves nobody up.
#[test]
fn a_failure_that_no_model_could_have_helped_keeps_the_tier() {
    let docs = PlannedTask { kind: TaskKind::Docs, ..task("1", &[]) };
    let mut world = world(routed(), vec![docs]);
    world.finish("1", failed(FailureKind::Network));
    world.wait(60_000);
    assert_eq!(route(&world).tier, Tier::Eco);
}

/// RTE-05: the tier that a phase needed holds for the next one too, and no more than that: what
/// went well on it is no failure of it.
#[test]
fn the_next_phase_goes_on_where_the_last_one_ended_well() {
    let docs = PlannedTask { kind: TaskKind::Docs, ..task("1", &[]) };
    let mut world = World::empty();
    change(&mut world, routed());
    world.must(open(vec![docs], crate::fixture::test_first()));
    world.chores();
    world.finish("1", failed(FailureKind::AgentError));
    world.wait(60_000);
    assert_eq!(route(&world).tier, Tier::Standard);
    world.succeed("1");
    assert_eq!(world.working(), ["1".to_owned()].into(), "green");
    assert_eq!(route(&world).tier, Tier::Standard);
}

/// RTE-05: a question is no reason to give work back to a model that failed at it.
#[test]
fn a_question_does_not_undo_the_waterfall() {
    let docs = PlannedTask { kind: TaskKind::Docs, ..task("1", &[]) };
    let mut world = world(routed(), vec![docs]);
    world.finish("1", failed(FailureKind::ValidationFailed));
    assert_eq!(route(&world).tier, Tier::Standard);
    world.finish("1", asked("which"));
    let (task, resume_id, input) = (world.task("1").id, "which".into(), "a".into());
    world.must(Command::AnswerCheckpoint { task, resume_id, input, by: ann() });
    assert_eq!(route(&world).tier, Tier::Standard);
    // A person who wants it anew may have changed what it needs: it begins where it would have.
    for _ in 0..2 {
        world.finish("1", failed(FailureKind::ValidationFailed));
    }
    world.must(Command::RequeueTask { task, reason: "the plan was wrong".into(), by: ann() });
    assert_eq!(route(&world).tier, Tier::Eco);
}

/// QUE-18: each kind of work has its provider, and another one only while that cannot take it.
#[test]
fn work_is_sharded_to_providers_by_its_kind() {
    let mut settings = routed();
    let shards = [(WorkKind::Docs, Provider::new("b")), (WorkKind::Feature, Provider::new("a"))];
    settings.routing.as_mut().unwrap().shards = shards.into();
    for (kind, name) in [(TaskKind::Docs, "b"), (TaskKind::Implementation, "a")] {
        let mut world = world(settings.clone(), vec![PlannedTask { kind, ..task("1", &[]) }]);
        let first = route(&world);
        assert_eq!(&*first.provider.0, name);
        let shard = |reason: &Reason| matches!(reason, Reason::Shard { .. });
        assert!(first.reasons.iter().any(shard), "{first}");
        world.finish("1", limited(Some(60_000)));
        let other = route(&world);
        assert_ne!(&*other.provider.0, name, "its provider is parked");
        let fallback = |reason: &Reason| matches!(reason, Reason::Fallback { .. });
        assert!(other.reasons.iter().any(fallback), "{other}");
    }
}

/// RTE-01: the dearest models work one after the other.
#[test]
fn premium_work_is_done_one_at_a_time() {
    let hard = |id: &str| PlannedTask { kind: TaskKind::Refactor, ..task(id, &[]) };
    let mut world = world(routed(), vec![hard("1"), hard("2")]);
    assert_eq!(world.working(), ["1".to_owned()].into());
    let said = why(world.state(), world.task("2")).unwrap();
    assert!(said.contains("one after the other"), "{said}");
    world.finish("1", done(5, &["a"]));
    assert!(world.working().contains("2"));
}

/// BUD-09: the monthly profile forces the cheapest tier.
#[test]
fn a_budget_can_forbid_dear_models() {
    let mut settings = routed();
    settings.money = ledger::Policy {
        caps: settings.money.caps.clone(),
        pools: settings.money.pools,
        ..Profile::Monthly.policy()
    };
    let hard = PlannedTask { kind: TaskKind::Refactor, ..task("1", &[]) };
    let world = world(settings, vec![hard]);
    let route = route(&world);
    assert_eq!(route.tier, Tier::Eco);
    assert!(route.reasons.contains(&Reason::Capped { wanted: Tier::Premium, max: Tier::Eco }));
}

/// A free model by mistake is a bill by surprise.
#[test]
fn a_model_without_a_price_is_refused_unless_one_is_configured() {
    let mut settings = routed();
    settings.prices.models.clear();
    let mut world = world(settings.clone(), vec![task("1", &[])]);
    let reason = paused(&world).unwrap().to_string();
    assert_eq!(reason, "no price is known for the model \"a-standard\"");
    settings.prices.unknown = Some(Price { input: Usd::cents(1_500), output: Usd::cents(1_500) });
    change(&mut world, settings);
    world.must(Command::ResumeMission { mission: M1, by: ann() });
    assert_eq!(world.working().len(), 1);
}

#[test]
fn work_that_no_model_may_do_waits_for_a_person() {
    let mut settings = routed();
    let keys = [Provider::new("a"), Provider::new("b")];
    settings.routing.as_mut().unwrap().without_key = keys.into();
    let mut world = world(settings, vec![task("1", &[])]);
    assert_eq!(paused(&world), Some(&PauseReason::Route { refusal: NoRoute::Vacant }));
    change(&mut world, routed());
    world.must(Command::ResumeMission { mission: M1, by: ann() });
    assert_eq!(world.working().len(), 1);
}

/// QUE-27, T-54: a provider gets no more agents than its limits carry; the next one has room.
#[test]
fn a_full_provider_sends_work_to_the_next() {
    let mut settings = routed();
    let one = Throughput { requests_per_min: 60, tokens_per_min: 10_000 };
    settings.rate = rate::Policy { others: one, ..rate::Policy::default() };
    let mut world = world(settings, vec![task("1", &[]), task("2", &[]), task("3", &[])]);
    let seats = [(kapelle_core::Role::Developer, 3)].into();
    world.must(Command::ConfigureTeam { seats, workers_max: 3, by: ann() });
    assert_eq!(world.working().len(), 2, "one each");
    assert_eq!(world.state().permits_room(&Provider::new("a")), 0);
    let said = why(world.state(), world.task("3")).unwrap();
    assert!(said.contains("has as many agents as its rate limit carries"), "{said}");
    world.finish("1", done(5, &["a"]));
    assert!(world.working().contains("3"));
}

/// WRK-27: what agents used counts for the limits that scaling looks at, for a minute, and what a
/// long attempt used by its last minute only.
#[test]
fn nobody_is_added_while_a_provider_has_used_most_of_its_minute() {
    let scaling = ScalingRules { mode: ScalingMode::ByRole, ..ScalingRules::default() };
    let mut world = world(
        Settings { scaling, ..routed() },
        ["1", "2", "3"].map(|name| task(name, &[])).to_vec(),
    );
    let used = Usage { model: "a-standard".into(), input_tokens: 20_000, output_tokens: 5_000 };
    let spent = Spending { usage: vec![used], ..Spending::default() };
    let change = || ManualScale::Up { reason: "more".into() };
    let up = || Command::Scale { role: Role::Developer, change: change(), by: ann() };
    let (fence, outcome) = (world.fence_of("1"), done(5, &["a"]));
    world.must(Command::FinishAttempt { fence, outcome, spent: spent.clone() });
    let refused = ScaleRefusal::RateLimit { permille: 833 };
    assert_eq!(world.send(up()), Err(Refusal::Scale(refused)));
    world.wait(60_000);
    let (fence, outcome) = (world.fence_of("2"), done(6, &["b"]));
    world.must(Command::FinishAttempt { fence, outcome, spent: spent.clone() });
    assert!(matches!(world.send(up()), Err(Refusal::Scale(_))), "it took a minute");
    world.wait(60_000);
    let (fence, outcome) = (world.fence_of("3"), done(7, &["c"]));
    world.must(Command::FinishAttempt { fence, outcome, spent });
    world.must(up());
}

/// A rate limit is a parked provider, never a consumed attempt.
#[test]
fn a_rate_limit_parks_the_provider_and_counts_no_attempt() {
    let mut world = world(Settings::default(), vec![task("1", &[])]);
    let fence = world.fence_of("1");
    let events = world.finish("1", limited(Some(5_000)));
    let (unrouted, until) = (Provider::new(UNROUTED), world.now.plus_ms(5_000));
    let (task, cause) = (world.task("1").id, Interruption::ProviderParked);
    let expected = [
        Event::ProviderParked { provider: unrouted.clone(), until },
        Event::AttemptInterrupted { task, fence, cause },
    ];
    assert_eq!(events, expected);
    assert_eq!((world.task("1").retries, world.task("1").failed_times()), (0, 0));
    let said = why(world.state(), world.task("1")).unwrap();
    assert_eq!(said, "waits: rate limit until 1970-01-01 00:16:45 UTC");
    assert_eq!(world.state().wake_at(), Some(until));
    assert_eq!(world.wait(4_999), []);
    let events = world.wait(1);
    let back = Event::ProviderBack { provider: unrouted, by: Actor::kapelle() };
    assert_eq!(events.first(), Some(&back));
    assert_eq!(world.working().len(), 1);
}

#[test]
fn a_rate_limit_without_a_time_has_one_and_a_second_does_not_shorten_it() {
    let mut world = world(Settings::default(), vec![task("1", &[]), task("2", &[])]);
    world.finish("1", limited(None));
    let until = world.now.plus_ms(60_000);
    let events = world.finish("2", limited(Some(1_000)));
    assert!(matches!(&events[..], [Event::AttemptInterrupted { .. }]), "{events:?}");
    assert_eq!(world.state().wake_at(), Some(until));
}

#[test]
fn a_person_may_take_a_provider_back_early() {
    let mut world = world(Settings::default(), vec![task("1", &[])]);
    let provider = Provider::new(UNROUTED);
    let unpark = || Command::UnparkProvider { provider: Provider::new(UNROUTED), by: ann() };
    assert_eq!(world.send(unpark()), Err(Refusal::NotParked { provider }));
    world.finish("1", limited(None));
    world.must(unpark());
    assert_eq!(world.working().len(), 1);
}

#[test]
fn a_parked_provider_sends_work_to_another_of_its_tier() {
    let mut world = world(routed(), vec![task("1", &[])]);
    world.finish("1", limited(Some(5_000)));
    let second = route(&world);
    assert_eq!((&*second.provider.0, second.tier), ("b", Tier::Standard));
    assert!(matches!(second.reasons.last(), Some(Reason::Fallback { .. })), "{second}");
    world.finish("1", limited(Some(9_000)));
    assert!(world.working().is_empty(), "nobody is left");
    let said = why(world.state(), world.task("1")).unwrap();
    assert!(said.contains("a-standard has a rate limit until"), "{said}");
    world.wait(5_000);
    assert_eq!(&*route(&world).provider.0, "a");
}

/// The provider that failed `times` in a row, with breakers that open after two failures.
fn broken(reset: Reset) -> World {
    let mut settings = routed();
    settings.routing.as_mut().unwrap().models.0.retain(|model| &*model.provider.0 == "a");
    let (failures_max, open_ms) = (2, 300_000);
    settings.breakers =
        BreakerPolicy { failures_max, open_ms, provider: reset, ..BreakerPolicy::default() };
    let mut world = world(settings, vec![task("1", &[])]);
    for _ in 0..2 {
        world.finish("1", failed(FailureKind::Network));
        world.wait(60_000);
    }
    world
}

/// RET-05, RET-14: five failures in a row by default; here two.
#[test]
fn a_provider_that_fails_in_a_row_is_left_alone_and_then_tried_by_one() {
    let mut world = broken(Reset::HalfOpen);
    assert!(matches!(world.state().breakers().state(&provider("a")), Breaker::Open { .. }));
    assert!(world.working().is_empty());
    let said = why(world.state(), world.task("1")).unwrap();
    assert!(said.contains("breaker open until 1970-01-01 00:2"), "{said}");
    world.wait(300_000);
    let probe = Some(world.fence_of("1"));
    assert_eq!(world.state().breakers().state(&provider("a")), Breaker::HalfOpen { probe });
    let events = world.finish("1", done(5, &["a"]));
    let (key, to, by) = (provider("a"), Breaker::SOUND, Actor::kapelle());
    assert!(events.contains(&Event::BreakerMoved { key, to, by }), "{events:?}");
}

/// HUM-06: people hear of it once, whatever the probes say, and it is settled when it works again.
#[test]
fn people_are_told_of_a_breaker_that_opened() {
    let mut world = broken(Reset::HalfOpen);
    let cause = Cause::of_breaker(&provider("a"));
    let told = |world: &World| {
        let told = |event: &Event| matches!(event, Event::PersonNotified { causes } if causes.contains(&cause));
        world.journal.iter().filter(|record| told(&record.event)).count()
    };
    assert_eq!(told(&world), 1);
    assert_eq!(cause.to_string(), "provider a failed too often and is left alone");
    world.wait(300_000);
    world.finish("1", failed(FailureKind::Network));
    assert_eq!(told(&world), 1, "it is open again, which is no news");
    world.wait(600_000);
    world.finish("1", done(5, &["a"]));
    assert!(world.state().notices().group(&cause).is_none(), "it works");
}

#[test]
fn a_failed_probe_opens_the_breaker_again() {
    let mut world = broken(Reset::HalfOpen);
    world.wait(300_000);
    world.finish("1", failed(FailureKind::Network));
    assert!(matches!(world.state().breakers().state(&provider("a")), Breaker::Open { .. }));
}

/// A probe whose host dies says nothing; the provider must not stay locked out for ever.
#[test]
fn a_lost_probe_is_followed_by_another() {
    let mut world = broken(Reset::HalfOpen);
    world.wait(300_000);
    world.restart();
    assert_eq!(world.working().len(), 1);
}

/// RET-14, E-23: an answer in between starts the count anew, even if nobody likes it.
#[test]
fn only_failures_in_a_row_open_a_breaker() {
    let mut settings = routed();
    settings.breakers.failures_max = 2;
    let mut world = world(settings, vec![task("1", &[])]);
    for kind in [FailureKind::Network, FailureKind::AgentError, FailureKind::Network] {
        world.finish("1", failed(kind));
        world.wait(60_000);
    }
    let failures = 1;
    assert_eq!(world.state().breakers().state(&provider("a")), Breaker::Closed { failures });
}

/// RTE-07.
#[test]
fn an_open_breaker_sends_work_to_another_provider_of_the_tier() {
    let mut settings = routed();
    settings.breakers.failures_max = 1;
    let mut world = world(settings, vec![task("1", &[])]);
    world.finish("1", failed(FailureKind::Network));
    world.wait(60_000);
    let second = route(&world);
    assert_eq!((&*second.provider.0, second.tier), ("b", Tier::Standard));
}

/// C-15: in the manual mode only a person closes it, and the mission says so.
#[test]
fn a_manual_breaker_waits_for_a_person() {
    let mut world = broken(Reset::Manual);
    assert!(matches!(paused(&world), Some(PauseReason::Route { .. })), "{:?}", paused(&world));
    world.wait(24 * 60 * 60_000);
    assert!(world.running.is_empty());
    let reset = || Command::ResetBreaker { key: provider("a"), by: ann() };
    world.must(reset());
    world.must(Command::ResumeMission { mission: M1, by: ann() });
    assert_eq!(world.working().len(), 1);
    let not_open = BreakerRefusal::NotOpen { key: provider("a") };
    assert_eq!(world.send(reset()), Err(Refusal::Breaker(not_open)));
}

/// RET-06: so many failures of a mission in a row are no accident.
#[test]
fn the_breaker_of_a_mission_pauses_it_for_a_person() {
    let mut settings = Settings::default();
    settings.breakers.mission_failures_max = Some(2);
    let mut world = world(settings, vec![task("1", &[]), task("2", &[])]);
    world.finish("1", failed(FailureKind::AgentError));
    let events = world.finish("2", failed(FailureKind::AgentError));
    assert!(events.iter().any(|event| matches!(event, Event::BreakerMoved { .. })), "{events:?}");
    let key = BreakerKey::Mission(M1);
    let refusal = BreakerRefusal::NeedsReset { key: key.clone() };
    assert_eq!(paused(&world), Some(&PauseReason::Breaker { refusal }));
    world.wait(60_000);
    world.must(Command::ResumeMission { mission: M1, by: ann() });
    assert!(world.running.is_empty(), "the breaker is still open");
    world.must(Command::ResetBreaker { key, by: ann() });
    world.must(Command::ResumeMission { mission: M1, by: ann() });
    assert_eq!(world.working().len(), 2);
}

/// RET-13: a crash must not make anybody forget that a provider fails.
#[test]
fn breakers_and_rate_limits_survive_a_restart() {
    let mut world = broken(Reset::HalfOpen);
    let before = world.state().breakers().clone();
    world.restart();
    assert_eq!(world.state().breakers(), &before);
    assert!(world.working().is_empty());
    let mut world = self::world(Settings::default(), vec![task("1", &[])]);
    world.finish("1", limited(Some(30_000)));
    let until = world.now.plus_ms(30_000);
    world.restart();
    let parked: Vec<_> = world.state().permits().parked_providers().collect();
    assert_eq!(parked, [(&Provider::new(UNROUTED), until)]);
    assert!(world.working().is_empty());
    world.wait(30_000);
    assert_eq!(world.working(), ["1".to_owned()].into());
}

#[test]
fn rules_of_providers_that_cannot_work_are_refused() {
    let mut world = World::empty();
    let mut refused = |break_it: fn(&mut Settings)| {
        let mut settings = routed();
        break_it(&mut settings);
        world.send(Command::ChangeSettings { settings: Box::new(settings), by: ann() })
    };
    let models = refused(|settings| settings.routing.as_mut().unwrap().models.0.clear());
    let invalid = |wrong| Err(Refusal::InvalidSettings(wrong));
    assert_eq!(models, invalid(InvalidSettings::Routing(InvalidCatalogue::Empty)));
    let max_ms = kapelle_core::limits::PARKED_MS_MAX;
    let parking = InvalidSettings::Rate(rate::InvalidPolicy::Park { max_ms });
    assert_eq!(refused(|settings| settings.rate.park_ms = 0), invalid(parking));
    let breakers = InvalidSettings::Breakers(InvalidBreakerPolicy::NoFailures);
    assert_eq!(refused(|settings| settings.breakers.failures_max = 0), invalid(breakers));
}
