//! One rule each.

use super::*;
use crate::calendar::DAY_MS;
use crate::price::UnknownPrice;

fn purse(spent: u64, reserved: u64, excess: u64) -> Purse {
    let (spent, reserved) = (Usd::cents(spent), Usd::cents(reserved));
    Purse { spent, reserved, excess: Usd::cents(excess) }
}

fn over(limit: Limit, cap: u64, asked: u64, resets_at: Option<Timestamp>) -> Refusal {
    Refusal::OverLimit {
        limit,
        cap: Usd::cents(cap),
        spent: Usd::ZERO,
        reserved: Usd::ZERO,
        asked: Usd::cents(asked),
        resets_at,
    }
}

/// Each cap stands alone: the one that is passed is the one that is named.
#[test]
fn every_cap_refuses_in_its_own_name() {
    let dollar = Some(Usd::cents(100));
    let day = Some(Span::Day.ends_at(NOON));
    let week = Some(Span::Week.ends_at(NOON));
    let month = Some(Span::Month.ends_at(NOON));
    let retry = Account { purpose: Purpose::Retry, ..account() };
    let council = Account { purpose: Purpose::Council, ..account() };
    let extra = Account { crew: Crew::Extra, ..account() };
    type Case = (fn(&mut Caps) -> &mut Option<Usd>, Account, Limit, Option<Timestamp>);
    let cases: [Case; 12] = [
        (|caps| &mut caps.task_usd_max, account(), Limit::Task, None),
        (|caps| &mut caps.agent_usd_max, account(), Limit::Agent, None),
        (|caps| &mut caps.mission_usd_max, account(), Limit::Mission, None),
        (|caps| &mut caps.session_usd_max, account(), Limit::Session, None),
        (|caps| &mut caps.day_usd_max, account(), Limit::Day, day),
        (|caps| &mut caps.week_usd_max, account(), Limit::Week, week),
        (|caps| &mut caps.month_usd_max, account(), Limit::Month, month),
        (|caps| &mut caps.project_usd_max, account(), Limit::Project, None),
        (|caps| &mut caps.retries_usd_max, retry, Limit::Retries, None),
        (|caps| &mut caps.council_day_usd_max, council.clone(), Limit::CouncilDay, day),
        (|caps| &mut caps.council_week_usd_max, council, Limit::CouncilWeek, week),
        (|caps| &mut caps.scaling_day_usd_max, extra, Limit::ScalingDay, day),
    ];
    for (cap, account, limit, resets_at) in cases {
        let ledger = capped(|caps| *cap(caps) = dollar);
        assert!(ledger.reserve(&request(account.clone(), 100), NOON).is_ok(), "{limit}");
        let refused = ledger.reserve(&request(account, 101), NOON);
        assert_eq!(refused, Err(over(limit, 100, 101, resets_at)));
    }
}

/// Caps of retries, councils and scaling are theirs alone.
#[test]
fn first_attempts_do_not_use_the_budgets_of_others() {
    let none = Some(Usd::ZERO);
    let ledger = capped(|caps| {
        caps.retries_usd_max = none;
        caps.council_day_usd_max = none;
        caps.council_week_usd_max = none;
        caps.scaling_day_usd_max = none;
        caps.call_usd_max = none;
    });
    assert!(ledger.reserve(&request(account(), 100), NOON).is_ok());
}

#[test]
fn a_call_has_a_cap_of_its_own() {
    let mut ledger = capped(|caps| caps.call_usd_max = Some(Usd::cents(50)));
    let call = Request { unit: Unit::Call, ..request(account(), 51) };
    assert_eq!(ledger.reserve(&call, NOON), Err(over(Limit::Call, 50, 51, None)));
    let attempt = take(&mut ledger, &request(account(), 200)).unwrap();
    let refused = ledger.reserve_part(&part(attempt, Unit::Call, 51));
    assert_eq!(refused, Err(over(Limit::Call, 50, 51, None)));
    assert!(ledger.reserve_part(&part(attempt, Unit::Call, 50)).is_ok());
}

/// Several limits are passed: the one with the least room tells most.
#[test]
fn the_strictest_limit_is_named() {
    let mut ledger = capped(|caps| {
        caps.task_usd_max = Some(Usd::cents(300));
        caps.day_usd_max = Some(Usd::cents(500));
        caps.mission_usd_max = Some(Usd::cents(400));
    });
    let other = Account { task: Some(TaskId(2)), ..account() };
    spend(&mut ledger, other, 250).unwrap();
    let refused = ledger.reserve(&request(account(), 301), NOON).unwrap_err();
    let expected = Refusal::OverLimit {
        limit: Limit::Mission,
        cap: Usd::cents(400),
        spent: Usd::cents(250),
        reserved: Usd::ZERO,
        asked: Usd::cents(301),
        resets_at: None,
    };
    assert_eq!(refused, expected);
    let sentence = "the mission's budget is $4.00: $2.50 spent and $0.00 reserved leave no $3.01";
    assert_eq!(refused.to_string(), sentence);
}

/// BUD-13: parallel workers each see a cap with room, and together pass it, unless they reserve.
#[test]
fn parallel_work_cannot_pass_a_cap_together() {
    let mut ledger = capped(|caps| caps.day_usd_max = Some(Usd::cents(500)));
    take(&mut ledger, &request(account(), 200)).unwrap();
    let second = take(&mut ledger, &request(account(), 200)).unwrap();
    let refused = ledger.reserve(&request(account(), 200), NOON).unwrap_err();
    assert_eq!(refused.remedy(), Remedy::WaitForRelease);
    ledger.released(second);
    assert!(ledger.reserve(&request(account(), 200), NOON).is_ok());
}

/// BUD-01: kept by task, agent, mission, day and session, and shown.
#[test]
fn a_charge_counts_for_everybody_it_belongs_to() {
    let mut ledger = capped(|_| ());
    ledger.session_started(NOON);
    let id = take(&mut ledger, &request(account(), 200)).unwrap();
    ledger.charged(&charge(Some(id), 50));
    let sums = purse(50, 150, 0);
    let scopes = [
        Scope::Project,
        Scope::Session(1),
        Scope::Mission(MISSION),
        Scope::Task(MISSION, Some(TaskId(1))),
        Scope::Agent(MISSION, Some(developer(1))),
        Scope::Day(Span::Day.number(NOON)),
        Scope::Week(Span::Week.number(NOON)),
        Scope::Month(Span::Month.number(NOON)),
    ];
    for scope in scopes {
        assert_eq!(ledger.purse(scope), sums, "{scope:?}");
    }
    assert_eq!(ledger.by_task(MISSION).collect::<Vec<_>>(), [(Some(TaskId(1)), sums)]);
    assert_eq!(ledger.by_agent(MISSION).collect::<Vec<_>>(), [(Some(developer(1)), sums)]);
    assert_eq!(ledger.by_day().collect::<Vec<_>>(), [(Span::Day.number(NOON), sums)]);
    assert_eq!(ledger.remainder(id), Usd::cents(150));
}

/// What was not spent goes back, once, however often the end of an attempt is reported.
#[test]
fn a_reservation_is_released_exactly_once() {
    let mut ledger = capped(|_| ());
    let id = take(&mut ledger, &request(account(), 200)).unwrap();
    let other = take(&mut ledger, &request(account(), 100)).unwrap();
    ledger.charged(&charge(Some(id), 50));
    assert_eq!(ledger.released(id), Usd::cents(150));
    assert_eq!(ledger.released(id), Usd::ZERO);
    assert_eq!(ledger.purse(Scope::Project), purse(50, 100, 0));
    assert_eq!(ledger.reservation(id), None);
    assert!(ledger.reservation(other).is_some());
}

#[test]
fn a_reservation_that_is_repeated_counts_once() {
    let mut ledger = capped(|_| ());
    let reservation = ledger.reserve(&request(account(), 200), NOON).unwrap();
    ledger.reserved(&reservation);
    ledger.reserved(&reservation);
    assert_eq!(ledger.purse(Scope::Project), purse(0, 200, 0));
    ledger.released(reservation.id);
    ledger.reserved(&reservation);
    assert_eq!(ledger.purse(Scope::Project), purse(0, 0, 0));
}

/// An overspend cannot be undone, so it must be seen: in the answer, in every sum, for ever.
#[test]
fn an_overspend_is_recorded_and_counts_against_the_caps() {
    let mut ledger = capped(|caps| caps.mission_usd_max = Some(Usd::cents(500)));
    let id = take(&mut ledger, &request(account(), 200)).unwrap();
    let late = charge(Some(id), 450);
    let expected = Settlement { covered: Usd::cents(200), excess: Usd::cents(250) };
    assert_eq!(ledger.settle(&late), expected);
    assert_eq!(ledger.charged(&late), expected);
    assert_eq!(ledger.purse(Scope::Mission(MISSION)), purse(450, 0, 250));
    assert!(ledger.reserve(&request(account(), 51), NOON).is_err());
    ledger.charged(&charge(Some(id), 100));
    assert!(ledger.reserve(&request(account(), 0), NOON).is_err(), "even nothing is too much");
    assert_eq!(ledger.released(id), Usd::ZERO);
}

/// A bill after the end of its attempt, or without one, is money all the same.
#[test]
fn a_bill_without_a_reservation_is_an_overspend() {
    let mut ledger = capped(|_| ());
    let id = take(&mut ledger, &request(account(), 200)).unwrap();
    ledger.released(id);
    for reservation in [Some(id), None] {
        let settlement = ledger.charged(&charge(reservation, 30));
        assert_eq!(settlement, Settlement { covered: Usd::ZERO, excess: Usd::cents(30) });
    }
    assert_eq!(ledger.purse(Scope::Task(MISSION, Some(TaskId(1)))), purse(60, 0, 60));
}

/// Midnight must not push the new day past its cap by what the old one reserved.
#[test]
fn a_charge_after_midnight_counts_for_the_day_of_its_reservation() {
    let mut ledger = capped(|caps| caps.day_usd_max = Some(Usd::cents(500)));
    let id = take(&mut ledger, &request(account(), 500)).unwrap();
    let tomorrow = NOON.plus_ms(DAY_MS);
    assert!(ledger.reserve(&request(account(), 1), NOON).is_err());
    assert!(ledger.reserve(&request(account(), 500), tomorrow).is_ok(), "a new day");
    ledger.charged(&Charge { at: tomorrow, ..charge(Some(id), 400) });
    let day = Span::Day.number(NOON);
    assert_eq!(ledger.purse(Scope::Day(day)), purse(400, 100, 0));
    assert_eq!(ledger.purse(Scope::Day(day + 1)), purse(0, 0, 0));
}

/// BUD-05: the tiers of throttling, as the pools of the $75 run dry.
#[test]
fn as_pools_empty_the_less_urgent_waits_first() {
    let caps = Caps { day_usd_max: Some(Usd::cents(7_500)), ..Caps::NONE };
    let policy = Policy { caps, ..Policy::default() };
    let mut ledger = Ledger::new(policy);
    let of = |purpose, priority| Account { purpose, priority, ..account() };
    let low = of(Purpose::Work, Priority::Low);
    let high = of(Purpose::Work, Priority::High);
    let critical = of(Purpose::Work, Priority::Critical);
    let retry = of(Purpose::Retry, Priority::High);
    let dollar = Usd::cents(100);
    let refused = |ledger: &Ledger, account: &Account| {
        let answer = ledger.reserve(&request(account.clone(), 100), NOON);
        answer.err().map(|refusal| match refusal {
            Refusal::PoolsEmpty { throttle, .. } => throttle,
            other => panic!("{other}"),
        })
    };

    assert_eq!(ledger.throttle(dollar, NOON), Throttle::Open);
    spend(&mut ledger, low.clone(), 4_500).unwrap();
    assert_eq!(refused(&ledger, &low), Some(Throttle::Busy));
    assert_eq!(refused(&ledger, &high), None);

    spend(&mut ledger, high.clone(), 1_125).unwrap();
    assert_eq!(refused(&ledger, &high), Some(Throttle::CriticalOnly));
    assert_eq!(refused(&ledger, &retry), None, "retries have money of their own");
    assert_eq!(refused(&ledger, &critical), None);

    spend(&mut ledger, retry.clone(), 1_125).unwrap();
    assert!(refused(&ledger, &retry).is_some());
    let critical_retry = of(Purpose::Retry, Priority::Critical);
    spend(&mut ledger, critical_retry, 750).unwrap();
    assert_eq!(ledger.throttle(dollar, NOON), Throttle::Closed);
    assert_eq!(ledger.left(Scope::Day(Span::Day.number(NOON))), Some(Usd::ZERO));
    let stopped = ledger.reserve(&request(critical.clone(), 100), NOON).unwrap_err();
    assert!(matches!(stopped, Refusal::OverLimit { limit: Limit::Day, .. }), "{stopped}");
    assert_eq!(stopped.remedy(), Remedy::WaitUntil(Span::Day.ends_at(NOON)));
}

/// A council may use what bursts left over, but not the money of first attempts.
#[test]
fn a_council_draws_from_retries_then_spike() {
    let caps = Caps { day_usd_max: Some(Usd::cents(7_500)), ..Caps::NONE };
    let policy = Policy { caps, ..Policy::default() };
    let mut ledger = Ledger::new(policy);
    let council = Account { purpose: Purpose::Council, ..account() };
    let pools = [1_000, 1_000].map(|cents| {
        let id = take(&mut ledger, &request(council.clone(), cents)).unwrap();
        ledger.reservation(id).unwrap().pool
    });
    assert_eq!(pools, [Some(Pool::Retry), Some(Pool::Spike)]);
    let refused = ledger.reserve(&request(council, 1_000), NOON).unwrap_err();
    assert_eq!(refused.remedy(), Remedy::WaitUntil(Span::Day.ends_at(NOON)));
}

/// RET-08, C-16: a retry past $2.00 goes to a person, and 80 % are told of.
#[test]
fn retries_past_two_dollars_escalate_after_a_warning() {
    let mut ledger = Ledger::new(Policy::default());
    let retry = Account { purpose: Purpose::Retry, ..account() };
    let id = take(&mut ledger, &request(retry.clone(), 170)).unwrap();
    assert_eq!(ledger.warnings(&charge(Some(id), 160)), [], "80 % is not above 80 %");
    ledger.charged(&charge(Some(id), 160));
    let warning = Warning { limit: Limit::Retries, spent: Usd::cents(161), cap: Usd::cents(200) };
    assert_eq!(warning.to_string(), "$1.61 spent of $2.00, the mission's retry budget");
    assert_eq!(ledger.warnings(&charge(Some(id), 1)), [warning]);
    ledger.charged(&charge(Some(id), 1));
    assert_eq!(ledger.warnings(&charge(Some(id), 1)), [], "once is enough");
    ledger.released(id);
    let refused = ledger.reserve(&request(retry.clone(), 40), NOON).unwrap_err();
    assert!(matches!(refused, Refusal::OverLimit { limit: Limit::Retries, .. }));
    assert_eq!(refused.remedy(), Remedy::Escalate);
    let elsewhere = Account { mission: MissionId(2), ..retry.clone() };
    assert!(ledger.reserve(&request(elsewhere, 40), NOON).is_ok(), "per mission");
    let likely = Request { estimate: Usd::cents(39), ..request(retry, 200) };
    assert!(ledger.reserve(&likely, NOON).is_ok(), "the estimate counts, not the worst case");
}

/// T-47: at $2.00, and again in the next session.
#[test]
fn a_session_warns_once_at_two_dollars() {
    let mut ledger = Ledger::new(Policy::default());
    for _ in 0..2 {
        ledger.session_started(NOON);
        spend(&mut ledger, account(), 199).unwrap();
        let warning =
            Warning { limit: Limit::Session, spent: Usd::cents(200), cap: Usd::cents(200) };
        assert_eq!(ledger.warnings(&charge(None, 1)), [warning]);
        spend(&mut ledger, account(), 1).unwrap();
        assert_eq!(ledger.warnings(&charge(None, 1)), []);
    }
}

/// T-47: the profile `starter` stops hard at $10 a day.
#[test]
fn the_starter_profile_stops_at_ten_dollars_a_day() {
    let mut ledger = Ledger::new(Profile::Starter.policy());
    for task in 0..5 {
        let account = Account { task: Some(TaskId(task)), ..account() };
        spend(&mut ledger, account, 200).unwrap();
    }
    let refused = ledger.reserve(&request(account(), 1), NOON).unwrap_err();
    assert!(matches!(refused, Refusal::OverLimit { cap, .. } if cap == Usd::cents(1_000)));
    assert_eq!(ledger.day_left(NOON), Some(Usd::ZERO));
    assert_eq!(ledger.burn_alert(NOON.plus_ms(300_000)), None, "the stop comes before the alert");
}

/// Sub-agents live on what is left for their parent, and their calls on what is left for them.
#[test]
fn sub_agents_inherit_the_remainder() {
    let mut ledger = capped(|caps| caps.mission_usd_max = Some(Usd::cents(200)));
    let attempt = take(&mut ledger, &request(account(), 200)).unwrap();
    ledger.charged(&charge(Some(attempt), 50));
    let child_request =
        PartRequest { agent: Some(developer(2)), ..part(attempt, Unit::Attempt, 150) };
    let child = take_part(&mut ledger, &child_request).unwrap();
    assert_eq!(ledger.remainder(attempt), Usd::ZERO);
    let refused = ledger.reserve_part(&part(attempt, Unit::Call, 1)).unwrap_err();
    let (left, asked) = (Usd::ZERO, Usd::cents(1));
    assert_eq!(refused, Refusal::OverParent { parent: attempt, left, asked });
    ledger.charged(&charge(Some(child), 40));
    assert_eq!(ledger.purse(Scope::Mission(MISSION)), purse(90, 110, 0), "nothing more is held");
    assert_eq!(ledger.purse(Scope::Agent(MISSION, Some(developer(2)))), purse(40, 110, 0));
    assert_eq!(ledger.released(child), Usd::cents(110));
    assert_eq!(ledger.remainder(attempt), Usd::cents(110));
    assert_eq!(ledger.purse(Scope::Agent(MISSION, Some(developer(1)))), purse(50, 110, 0));
}

/// RUN-16: an agent that asks an agent that asks an agent; there it ends. Calls are no agents.
#[test]
fn agents_start_agents_two_deep() {
    let mut ledger = capped(|_| ());
    let attempt = take(&mut ledger, &request(account(), 200)).unwrap();
    let child = take_part(&mut ledger, &part(attempt, Unit::Attempt, 100)).unwrap();
    let grandchild = take_part(&mut ledger, &part(child, Unit::Attempt, 50)).unwrap();
    let refused = ledger.reserve_part(&part(grandchild, Unit::Attempt, 1));
    assert_eq!(refused, Err(Refusal::TooDeep { max: 2 }));
    let call = take_part(&mut ledger, &part(grandchild, Unit::Call, 1)).unwrap();
    let refused = ledger.reserve_part(&part(call, Unit::Call, 1));
    assert_eq!(refused, Err(Refusal::CallDivided { parent: call }));
    assert_eq!(ledger.released(attempt), Usd::cents(200), "with everything under it");
    assert_eq!(ledger.open_count(), 0);
    assert_eq!(ledger.purse(Scope::Project), purse(0, 0, 0));
    let refused = ledger.reserve_part(&part(attempt, Unit::Call, 1));
    assert_eq!(refused, Err(Refusal::NoParent { parent: attempt }));
}

/// A sub-agent has the cap of an agent, too.
#[test]
fn a_sub_agent_cannot_pass_its_own_cap() {
    let mut ledger = capped(|caps| caps.agent_usd_max = Some(Usd::cents(100)));
    let second = Account { agent: Some(developer(2)), ..account() };
    spend(&mut ledger, second, 80).unwrap();
    let attempt = take(&mut ledger, &request(account(), 100)).unwrap();
    let child = PartRequest { agent: Some(developer(2)), ..part(attempt, Unit::Attempt, 21) };
    let refused = ledger.reserve_part(&child).unwrap_err();
    assert!(matches!(refused, Refusal::OverLimit { limit: Limit::Agent, .. }), "{refused}");
    assert!(ledger.reserve_part(&PartRequest { usd: Usd::cents(20), ..child }).is_ok());
}

/// A mission gets its own cap beside the policy's, and the lower one holds.
#[test]
fn a_mission_has_a_cap_of_twice_its_p95_within_the_day() {
    let mut ledger = capped(|caps| {
        caps.day_usd_max = Some(Usd::cents(1_000));
        caps.mission_usd_max = Some(Usd::cents(5_000));
    });
    let cap = ledger.mission_cap(Usd::cents(150), NOON);
    assert_eq!(cap, Usd::cents(300));
    ledger.mission_capped(MISSION, cap);
    let refused = ledger.reserve(&request(account(), 301), NOON).unwrap_err();
    assert_eq!(refused, over(Limit::Mission, 300, 301, None));
    assert_eq!(refused.remedy(), Remedy::Person);
    assert_eq!(ledger.mission_cap(Usd::cents(900), NOON), Usd::cents(1_000));
    ledger.mission_capped(MISSION, Usd::cents(9_000));
    assert_eq!(ledger.cap(Scope::Mission(MISSION)), Some(Usd::cents(5_000)), "the lower one");
}

/// BUD-03, BUD-14: nothing new starts, not even a call of a running attempt, until a person says.
#[test]
fn the_watchdog_stops_all_reservations_until_it_is_resumed() {
    let mut ledger = Ledger::new(Policy::default());
    let id = take(&mut ledger, &request(account(), 300)).unwrap();
    ledger.charged(&Charge { began_at: NOON, ..charge(Some(id), 99) });
    assert_eq!(ledger.alarm(NOON), None);
    ledger.charged(&Charge { began_at: NOON, ..charge(Some(id), 1) });
    let alarm = Alarm { spent: Usd::cents(100), max: Usd::cents(100) };
    assert_eq!(ledger.alarm(NOON), Some(alarm));
    ledger.paused(NOON, NOON.plus_ms(30_000));
    let halted = Refusal::Halted { since: NOON };
    assert_eq!(ledger.reserve(&request(account(), 1), NOON), Err(halted.clone()));
    assert_eq!(ledger.reserve_part(&part(id, Unit::Call, 1)), Err(halted.clone()));
    assert_eq!(halted.remedy(), Remedy::Person);
    let late = ledger.grace_ends_at().unwrap();
    assert_eq!(late, NOON.plus_ms(30_000));
    ledger.stopped(late);
    assert_eq!(ledger.watchdog(), WatchdogState::Stopped { at: late });
    let still = Refusal::Halted { since: late };
    assert_eq!(ledger.reserve(&request(account(), 1), late), Err(still));
    ledger.resumed();
    assert_eq!(ledger.alarm(late), None);
    assert!(ledger.reserve(&request(account(), 1), late).is_ok());
}

/// T-47.
#[test]
fn ten_dollars_an_hour_for_five_minutes_are_an_alert() {
    let mut ledger = Ledger::new(Policy::default());
    ledger.charged(&charge(None, 1_001));
    assert_eq!(ledger.burn_alert(NOON.plus_ms(4 * 60_000)), None);
    let alert = BurnAlert { hour: Usd::cents(1_001), max: Usd::cents(1_000) };
    assert_eq!(ledger.burn_alert(NOON.plus_ms(5 * 60_000)), Some(alert));
    assert_eq!(alert.to_string(), "the last hour cost $10.01, more than $10.00");
    assert_eq!(ledger.hour_usd(NOON), Usd::cents(1_001));
}

/// BUD-02.
#[test]
fn a_session_projects_its_day() {
    let mut ledger = Ledger::new(Policy::default());
    ledger.session_started(NOON);
    ledger.charged(&charge(None, 150));
    assert_eq!(ledger.projected_day(NOON.plus_ms(60 * 60_000)), Some(Usd::cents(3_600)));
    assert_eq!(ledger.projected_day(NOON), None);
}

/// BUD-06, BUD-11: tokens are reserved as money is.
#[test]
fn token_budgets_refuse_what_would_pass_them() {
    let mut policy = Policy::default();
    policy.tokens.mission_max = Some(1_000);
    policy.tokens.week = Some(WeekTokens { max: 1_500, when_full: WhenFull::Refuse });
    let mut ledger = Ledger::new(policy.clone());
    let ask = |mission, tokens| Request {
        tokens,
        ..request(Account { mission: MissionId(mission), ..account() }, 1)
    };
    let id = take(&mut ledger, &ask(1, 800)).unwrap();
    let refused = ledger.reserve(&ask(1, 201), NOON).unwrap_err();
    assert!(refused.to_string().starts_with("Token budget exceeded"), "{refused}");
    assert_eq!(refused.remedy(), Remedy::Person);
    ledger.charged(&Charge { tokens: 300, ..charge(Some(id), 1) });
    let (part_left, tokens) = (ledger.reserve_part(&tokens_part(id, 500)), 501);
    assert!(part_left.is_ok());
    let refused = ledger.reserve_part(&tokens_part(id, tokens)).unwrap_err();
    assert_eq!(refused, Refusal::TokensOverParent { parent: id, left: 500, asked: tokens });
    ledger.released(id);
    assert_eq!(ledger.tokens().mission(MISSION).used(), 300);
    assert_eq!(ledger.tokens().week(NOON).reserved, 0);
    assert!(ledger.reserve(&ask(1, 700), NOON).is_ok());
    take(&mut ledger, &ask(2, 1_000)).unwrap();
    let refused = ledger.reserve(&ask(3, 201), NOON).unwrap_err();
    let expected = Refusal::TokenBudget {
        of: TokenLimit::Week,
        cap: 1_500,
        used: 300,
        reserved: 1_000,
        asked: 201,
        resets_at: Some(Span::Week.ends_at(NOON)),
    };
    assert_eq!(refused, expected);
    assert_eq!(refused.remedy(), Remedy::WaitUntil(Span::Week.ends_at(NOON)));
    policy.tokens.week = Some(WeekTokens { max: 1_500, when_full: WhenFull::Report });
    ledger.configured(policy);
    assert!(ledger.reserve(&ask(3, 201), NOON).is_ok(), "tracked, not refused");
}

fn tokens_part(parent: ReservationId, tokens: u64) -> PartRequest {
    PartRequest { tokens, ..part(parent, Unit::Call, 0) }
}

/// A leak of reservations must show before memory does.
#[test]
fn open_reservations_are_bounded() {
    let mut ledger = capped(|_| ());
    for _ in 0..limits::RESERVATIONS_OPEN_MAX {
        take(&mut ledger, &request(account(), 0)).unwrap();
    }
    let refused = ledger.reserve(&request(account(), 0), NOON).unwrap_err();
    assert_eq!(refused, Refusal::TooManyOpen { open: limits::RESERVATIONS_OPEN_MAX });
    assert_eq!(refused.remedy(), Remedy::WaitForRelease);
}

/// Old days are forgotten, but never reopened: else a clock set back would give money twice.
#[test]
fn old_days_are_closed_for_ever() {
    let mut ledger = capped(|caps| caps.day_usd_max = Some(Usd::cents(100)));
    let held = take(&mut ledger, &request(account(), 30)).unwrap();
    let after = |days: u64| NOON.plus_ms(days * DAY_MS);
    let use_days = |ledger: &mut Ledger, days: std::ops::Range<u64>| {
        for day in days {
            let reservation = ledger.reserve(&request(account(), 100), after(day)).unwrap();
            ledger.reserved(&reservation);
            ledger.released(reservation.id);
        }
    };
    use_days(&mut ledger, 1..100);
    assert_eq!(ledger.by_day().next(), Some((Span::Day.number(NOON), purse(0, 30, 0))), "held");
    ledger.released(held);
    use_days(&mut ledger, 100..101);
    assert_eq!(ledger.by_day().count(), limits::SPANS_KEPT_MAX);
    assert_eq!(ledger.reserve(&request(account(), 1), NOON), Err(Refusal::DayClosed));
    assert_eq!(Refusal::DayClosed.remedy(), Remedy::Person);
    assert!(ledger.reserve(&request(account(), 100), after(99)).is_ok(), "still on the books");
}

/// An unknown price stops a call before any money moves.
#[test]
fn an_unknown_price_is_a_refusal_for_a_person() {
    let unknown = crate::price::Prices::default().cost("mystery", 1, 1).unwrap_err();
    let refusal = Refusal::from(unknown);
    assert_eq!(refusal, Refusal::UnknownPrice(UnknownPrice { model: "mystery".into() }));
    assert_eq!(refusal.to_string(), "no price is known for the model \"mystery\"");
    assert_eq!(refusal.remedy(), Remedy::Person);
}

/// Reservations, charges and refusals stand in the journal.
#[test]
fn facts_read_back_as_they_were_written() {
    let ledger = Ledger::new(Policy::default());
    let reservation = ledger.reserve(&request(account(), 200), NOON).unwrap();
    let json = serde_json::to_string(&reservation).unwrap();
    assert_eq!(serde_json::from_str::<Reservation>(&json).unwrap(), reservation);
    let charge = charge(Some(reservation.id), 7);
    let json = serde_json::to_string(&charge).unwrap();
    assert_eq!(serde_json::from_str::<Charge>(&json).unwrap(), charge);
    let refusal = over(Limit::Day, 1, 2, Some(NOON));
    let json = serde_json::to_string(&refusal).unwrap();
    assert_eq!(serde_json::from_str::<Refusal>(&json).unwrap(), refusal);
}
