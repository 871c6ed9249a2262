//! Rules of provider permits.

use proptest::prelude::*;

use super::*;

fn claude() -> Provider {
    Provider::new("claude")
}

fn after(calls: &[(u64, u64)]) -> Permits {
    let mut permits = Permits::new(Policy::default());
    for &(at, tokens) in calls {
        permits.granted(&claude(), tokens, Timestamp(at));
    }
    permits
}

/// T-54, T-55, RUN-13.
#[test]
fn the_shipped_limits_are_the_agreed_ones() {
    let policy = Policy::default();
    let of = |name| policy.throughput(&Provider::new(name));
    let requests = ["claude", "codex", "gemini"].map(|name| of(name).requests_per_min);
    assert_eq!(requests, [60, 90, 120]);
    for name in ["claude", "codex", "gemini", "somebody else"] {
        assert!((30_000..=40_000).contains(&of(name).tokens_per_min), "{name}");
    }
    assert_eq!(policy.validate(), Ok(()));
}

/// Requests wait instead of failing, and exactly as long as they must.
#[test]
fn the_sixty_first_request_waits_until_the_first_is_a_minute_old() {
    let calls: Vec<_> = (0..60).map(|i| (i * 100, 10)).collect();
    let permits = after(&calls[..59]);
    assert_eq!(permits.permit(&claude(), 10, Timestamp(6_000)), Permit::Granted);
    let permits = after(&calls);
    let wait = Permit::WaitUntil { at: Timestamp(60_000), wait: Wait::Requests };
    assert_eq!(permits.permit(&claude(), 10, Timestamp(6_000)), wait);
    assert_eq!(permits.permit(&claude(), 10, Timestamp(59_999)), wait);
    assert_eq!(permits.permit(&claude(), 10, Timestamp(60_000)), Permit::Granted);
}

/// T-54: three workers of 10k tokens a minute fit, a fifth of them does not.
#[test]
fn tokens_of_a_minute_are_limited_too() {
    let permits = after(&[(0, 10_000), (1_000, 10_000), (2_000, 10_000)]);
    assert_eq!(permits.permit(&claude(), 10_000, Timestamp(3_000)), Permit::Granted);
    let wait = Permit::WaitUntil { at: Timestamp(61_000), wait: Wait::Tokens };
    assert_eq!(permits.permit(&claude(), 20_001, Timestamp(3_000)), wait);
    assert_eq!(permits.free(&claude(), 4_000, Timestamp(3_000)), 2);
}

/// A call that can never fit must not wait for ever.
#[test]
fn a_call_larger_than_a_minute_is_refused() {
    let permit = after(&[]).permit(&claude(), 40_001, Timestamp(0));
    assert_eq!(permit, Permit::TooLarge { tokens: 40_001, max: 40_000 });
}

/// Permits are taken for the worst case; what was not used is free again for others.
#[test]
fn unused_tokens_are_given_back() {
    let mut permits = after(&[(0, 39_000), (500, 1_000)]);
    assert!(matches!(permits.permit(&claude(), 1, Timestamp(1_000)), Permit::WaitUntil { .. }));
    permits.used_less(&claude(), Timestamp(0), 30_000);
    assert_eq!(permits.permit(&claude(), 30_000, Timestamp(1_000)), Permit::Granted);
    permits.used_less(&claude(), Timestamp(0), u64::MAX);
    assert_eq!(permits.used_permille(&claude(), Timestamp(1_000)), 33, "two requests stay");
}

/// RUN-14: a 429 parks its provider until the reset time and leaves the others alone.
#[test]
fn a_parked_provider_waits_while_others_go_on() {
    let mut permits = after(&[]);
    let until = permits.policy().parked_until(Some(90_000), Timestamp(10_000));
    permits.parked(&claude(), until);
    let wait = Permit::WaitUntil { at: Timestamp(100_000), wait: Wait::Parked };
    assert_eq!(permits.permit(&claude(), 1, Timestamp(10_000)), wait);
    assert_eq!(permits.parked_until(&claude(), Timestamp(10_000)), Some(until));
    assert_eq!(permits.next_back_at(), Some(until));
    assert_eq!(permits.free(&claude(), 1, Timestamp(10_000)), 0);
    let gemini = Provider::new("gemini");
    assert_eq!(permits.permit(&gemini, 1, Timestamp(10_000)), Permit::Granted);
    permits.parked(&claude(), Timestamp(50_000));
    assert_eq!(permits.parked_until(&claude(), Timestamp(99_999)), Some(until), "not shortened");
    assert_eq!(permits.permit(&claude(), 1, until), Permit::Granted);
    permits.unparked(&claude());
    assert_eq!(permits.permit(&claude(), 1, Timestamp(10_000)), Permit::Granted);
}

/// A header is outside data: it may be missing or absurd.
#[test]
fn a_pause_has_a_default_and_a_bound() {
    let policy = Policy::default();
    assert_eq!(policy.parked_until(None, Timestamp(0)), Timestamp(60_000));
    let absurd = policy.parked_until(Some(u64::MAX), Timestamp(0));
    assert_eq!(absurd, Timestamp(limits::PARKED_MS_MAX));
}

/// WRK-27: from 80 % on, no agent is added.
#[test]
fn a_provider_is_busy_from_eighty_percent_on() {
    let calls: Vec<_> = (0..48).map(|i| (i, 1)).collect();
    assert!(!after(&calls[..47]).is_busy(&claude(), Timestamp(100)));
    assert!(after(&calls).is_busy(&claude(), Timestamp(100)));
    assert!(after(&[(0, 32_000)]).is_busy(&claude(), Timestamp(100)), "by tokens");
    assert!(!after(&[]).is_busy(&claude(), Timestamp(100)));
    let mut parked = after(&[]);
    parked.parked(&claude(), Timestamp(200));
    assert!(parked.is_busy(&claude(), Timestamp(100)));
}

/// QUE-27.
#[test]
fn throughput_is_bounded_by_the_calls_of_a_task() {
    let policy = Policy::default();
    assert_eq!(policy.tasks_per_min_permille(&claude(), 10), 6_000);
    assert_eq!(policy.tasks_per_min_permille(&claude(), 90), 666);
    assert_eq!(policy.tasks_per_min_permille(&claude(), 0), 60_000);
}

#[test]
fn wrong_policies_are_refused() {
    let wrong = |change: &dyn Fn(&mut Policy)| {
        let mut policy = Policy::default();
        change(&mut policy);
        policy.validate()
    };
    let throughput = Throughput { requests_per_min: 1, tokens_per_min: 1 };
    let crowd = (0..=limits::PROVIDERS_MAX).map(|i| (Provider::new(&i.to_string()), throughput));
    let crowd: BTreeMap<_, _> = crowd.collect();
    let (count, max) = (limits::PROVIDERS_MAX + 1, limits::PROVIDERS_MAX);
    let refused = wrong(&|p| p.providers = crowd.clone());
    assert_eq!(refused, Err(InvalidPolicy::TooMany { count, max }));
    let others = Provider::new("others");
    let max = limits::REQUESTS_PER_MIN_MAX;
    for requests in [0, max + 1] {
        let refused = wrong(&|p| p.others.requests_per_min = requests);
        let provider = others.clone();
        assert_eq!(refused, Err(InvalidPolicy::Requests { provider, max }));
    }
    let refused = wrong(&|p| p.others.tokens_per_min = 0);
    assert_eq!(refused, Err(InvalidPolicy::Tokens { provider: others }));
    let max_ms = limits::PARKED_MS_MAX;
    assert_eq!(wrong(&|p| p.park_ms = 0), Err(InvalidPolicy::Park { max_ms }));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Whoever obeys permits stays within both limits in every minute, and the moment that a
    /// refusal names is right: it is granted then, and not a millisecond earlier.
    #[test]
    fn obeying_permits_keeps_every_minute_within_the_limits(
        calls in prop::collection::vec((0u64..3_000, 1u64..9_000, 0u64..20), 1..200),
    ) {
        let mut policy = Policy::default();
        policy.providers.insert(claude(), Throughput { requests_per_min: 12, tokens_per_min: 30_000 });
        let mut permits = Permits::new(policy);
        let mut now = Timestamp(0);
        let mut granted: Vec<(u64, u64)> = Vec::new();
        for (pause, tokens, luck) in calls {
            now = now.plus_ms(pause);
            if luck == 0 {
                permits.parked(&claude(), now.plus_ms(5_000));
            }
            if let Permit::WaitUntil { at, .. } = permits.permit(&claude(), tokens, now) {
                prop_assert!(at > now);
                let early = Timestamp(at.0 - 1);
                prop_assert_ne!(permits.permit(&claude(), tokens, early), Permit::Granted);
                now = at;
            }
            prop_assert_eq!(permits.permit(&claude(), tokens, now), Permit::Granted);
            permits.granted(&claude(), tokens, now);
            granted.push((now.0, tokens));
            let minute = granted.iter().filter(|(at, _)| at + 60_000 > now.0);
            prop_assert!(minute.clone().count() <= 12);
            prop_assert!(minute.map(|(_, tokens)| tokens).sum::<u64>() <= 30_000);
        }
    }
}
