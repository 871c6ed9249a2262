//! Escalation: which counter each kind of trouble spends, and what comes when it is spent.

use kapelle_core::escalation::{
    EscalationPolicy, Hands, HumanBecause, InvalidEscalation, Ladder, Means, Next, Tier, Trouble,
};
use kapelle_core::failure::FailureKind;
use proptest::prelude::*;

const MEANS: Means = Means { orchestrators: 1, council_members: 3 };

/// Meets the same trouble again and again until a person is asked.
fn climb(trouble: Trouble, means: Means) -> Vec<Next> {
    let policy = EscalationPolicy::default();
    let mut ladder = Ladder::default();
    let mut path = Vec::new();
    loop {
        assert!(path.len() < 100, "no end: {path:?}");
        let next = ladder.next(&policy, trouble, means);
        ladder.taken(trouble, &next);
        path.push(next.clone());
        if next.tier() == Tier::Human {
            assert_eq!(ladder.tier, Tier::Human);
            return path;
        }
    }
}

fn tiers(path: &[Next]) -> Vec<u8> {
    path.iter().map(|next| next.tier().number()).collect()
}

fn retries(of: u32, by: Hands) -> Vec<Next> {
    (1..=of).map(|retry| Next::Retry { retry, of, by }).collect()
}

fn human(because: HumanBecause) -> Next {
    Next::AskHuman { because }
}

/// CON-05: the five tiers, in order, with what each of them does.
#[test]
fn an_agents_failure_climbs_all_tiers() {
    let path = climb(Trouble::Failure(FailureKind::AgentError), MEANS);
    assert_eq!(tiers(&path), [1, 1, 1, 2, 3, 4]);
    assert_eq!(path[..3], retries(3, Hands::Other));
    assert_eq!(path[5], human(HumanBecause::RetriesExhausted { retries: 5 }));
    assert_eq!(Tier::Council.to_string(), "tier 3: a council of other model families is asked");
    assert_eq!(Tier::ALL.map(Tier::number), [0, 1, 2, 3, 4]);
}

/// C-13, RET-02, T-33, T-35, T-38: counters that look alike and are not.
#[test]
fn each_trouble_has_a_counter_of_its_own() {
    let count = |trouble| {
        let own = |next: &&Next| matches!(next, Next::Retry { .. });
        climb(trouble, MEANS).iter().filter(own).count()
    };
    assert_eq!(count(Trouble::TestsFail), 3);
    assert_eq!(count(Trouble::Failure(FailureKind::Network)), 5);
    assert_eq!(count(Trouble::Failure(FailureKind::FileLocked)), 10);
    assert_eq!(count(Trouble::Failure(FailureKind::ValidationFailed)), 2);
    assert_eq!(count(Trouble::Failure(FailureKind::AgentError)), 3);
    assert_eq!(count(Trouble::Failure(FailureKind::GitConflict)), 1);
    assert_eq!(count(Trouble::Failure(FailureKind::Auth)), 0);
}

/// CON-06: two failed validations and a ruling are three retries; before that, no council.
#[test]
fn the_council_is_asked_only_after_three_retries() {
    let path = climb(Trouble::Failure(FailureKind::ValidationFailed), MEANS);
    assert_eq!(tiers(&path), [1, 1, 2, 3, 4]);
    let policy = EscalationPolicy { council_after_retries: 9, ..EscalationPolicy::default() };
    let trouble = Trouble::TestsFail;
    let tired = Ladder { test_fixes: 3, retries: 4, ruled: true, ..Ladder::default() };
    let exhausted = human(HumanBecause::RetriesExhausted { retries: 4 });
    assert_eq!(tired.next(&policy, trouble, MEANS), exhausted);
}

/// CON-15: one member is an opinion, and opinions were asked already.
#[test]
fn a_council_of_one_goes_to_a_person() {
    let path = climb(Trouble::TestsFail, Means { council_members: 1, ..MEANS });
    assert_eq!(tiers(&path), [1, 1, 1, 2, 4]);
    let because = HumanBecause::CouncilTooSmall { members: 1 };
    assert_eq!(path.last(), Some(&human(because.clone())));
    assert_eq!(because.to_string(), "a council of 1 would be one opinion");
}

/// No debate fills a disk with space or a conflict with sense (RET-02: manual intervention).
#[test]
fn trouble_that_no_opinion_can_mend_goes_straight_to_a_person() {
    for kind in [
        FailureKind::GitConflict,
        FailureKind::DiskFull,
        FailureKind::Auth,
        FailureKind::Budget,
        FailureKind::Network,
    ] {
        let path = climb(Trouble::Failure(kind), MEANS);
        assert_eq!(path.last(), Some(&human(HumanBecause::OutOfOurHands { kind })));
        assert_eq!(path.len() as u32, kind.retries_max() + 1);
    }
}

/// Without an orchestrator in the team nobody rules, and without a council nobody is convened.
#[test]
fn tiers_that_nobody_fills_are_passed_over() {
    let alone = Means { orchestrators: 0, council_members: 0 };
    let path = climb(Trouble::Failure(FailureKind::AgentError), alone);
    assert_eq!(tiers(&path), [1, 1, 1, 4]);
    assert_eq!(path[3], human(HumanBecause::RetriesExhausted { retries: 3 }));
    let council = Means { orchestrators: 0, ..MEANS };
    let path = climb(Trouble::Failure(FailureKind::AgentError), council);
    assert_eq!(tiers(&path), [1, 1, 1, 3, 4]);
}

#[test]
fn counters_without_an_end_are_refused() {
    type Change = fn(&mut EscalationPolicy);
    let with = |change: Change| {
        let mut policy = EscalationPolicy::default();
        change(&mut policy);
        policy.validate()
    };
    assert_eq!(with(|_| {}), Ok(()));
    let too_many = |what| Err(InvalidEscalation::TooMany { what, found: 101, max: 100 });
    assert_eq!(with(|p| p.test_fixes_max = 101), too_many("test_fixes_max"));
    let by_kind: Change = |p| p.retries_max = [(FailureKind::Hang, 101)].into();
    assert_eq!(with(by_kind), too_many("retries_max"));
    assert_eq!(with(|p| p.council_members_min = 1), Err(InvalidEscalation::LonelyCouncil));
}

fn trouble() -> impl Strategy<Value = Trouble> {
    prop_oneof![
        Just(Trouble::TestsFail),
        (0..FailureKind::ALL.len()).prop_map(|n| Trouble::Failure(FailureKind::ALL[n])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]

    /// Whatever goes wrong in whichever order, a person is asked before long: the sum of all
    /// counters is an end.
    #[test]
    fn trouble_of_any_kind_ends_with_a_person(troubles in prop::collection::vec(trouble(), 1..8)) {
        let policy = EscalationPolicy::default();
        let mut ladder = Ladder::default();
        let mut before = Tier::Agent;
        for round in 0..400 {
            let trouble = troubles[round % troubles.len()];
            let next = ladder.next(&policy, trouble, MEANS);
            ladder.taken(trouble, &next);
            prop_assert!(ladder.tier >= before, "tiers are only climbed");
            before = ladder.tier;
            if next.tier() == Tier::Human {
                return Ok(());
            }
        }
        prop_assert!(false, "400 rounds without a person");
    }
}
