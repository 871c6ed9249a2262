//! Rules of provider permits.

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

/// RUN-14: a 429 parks its provider until the reset time and leaves the others alone.
#[test]
fn a_parked_provider_waits_while_others_go_on() {
    let mut permits = after(&[]);
    let until = permits.policy().parked_until(Some(90_000), Timestamp(10_000));
    permits.parked(&claude(), until);
    let parked = |permits: &Permits| {
        permits.parked_providers().map(|(who, until)| (who.clone(), until)).collect::<Vec<_>>()
    };
    assert_eq!(until, Timestamp(100_000));
    assert_eq!(parked(&permits), [(claude(), until)]);
    assert_eq!(permits.next_back_at(), Some(until));
    permits.parked(&claude(), Timestamp(50_000));
    assert_eq!(parked(&permits), [(claude(), until)], "not shortened");
    permits.unparked(&claude());
    assert_eq!((parked(&permits), permits.next_back_at()), (Vec::new(), None));
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
    let busiest = |permits: &Permits| permits.busiest_permille(Timestamp(100));
    assert_eq!(busiest(&after(&calls[..47])), None);
    assert_eq!(busiest(&after(&calls)), Some(800));
    assert_eq!(busiest(&after(&[(0, 32_400)])), Some(810), "by tokens");
    assert_eq!(after(&calls).busiest_permille(Timestamp(60_000)), None, "47 of them are left");
    assert_eq!(busiest(&after(&[])), None);
    let mut parked = after(&[]);
    parked.parked(&claude(), Timestamp(200));
    assert_eq!(busiest(&parked), Some(1_000));
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
