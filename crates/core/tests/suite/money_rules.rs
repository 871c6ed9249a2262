//! Rules of money at the engine: what may start, what is charged, what stops everything.

use crate::fixture::{M1, World, ann, asked, done, failed, task, test_first};
use kapelle_core::calendar::{DAY_MS, Span};
use kapelle_core::command::{AttemptOutcome, Spending};
use kapelle_core::event::PauseReason;
use kapelle_core::failure::FailureKind;
use kapelle_core::ledger::{
    self, Alarm, Caps, Limit, Pool, Profile, Purpose, Scope, TokenPolicy, Warning, WatchdogState,
};
use kapelle_core::plan::{PlannedTask, Priority};
use kapelle_core::policy::{Budget, Policy};
use kapelle_core::report::Usage;
use kapelle_core::settings::Settings;
use kapelle_core::status::Status;
use kapelle_core::{Command, Event, Fence, Refusal, Role, TaskId, Timestamp, Usd, why};

/// Attempts of a dollar each.
fn dollars(mission: u64) -> Policy {
    let budget =
        Budget { mission_usd_max: Usd::cents(mission * 100), attempt_usd_max: Usd::cents(100) };
    Policy { budget, ..Policy::default() }
}

/// The rules of spending, without a limit but those that are set here.
fn rules(change: impl FnOnce(&mut ledger::Policy)) -> Command {
    let caps = Caps { project_usd_max: Some(Usd::cents(1_000_000)), ..Caps::NONE };
    let mut money = ledger::Policy { caps, pools: None, ..ledger::Policy::default() };
    money.watchdog.minute_usd_max = Usd::cents(1_000_000);
    change(&mut money);
    let settings = Box::new(Settings { money, ..Settings::default() });
    Command::ChangeSettings { settings, by: ann() }
}

fn world(tasks: Vec<PlannedTask>, money: Command, policy: Policy) -> World {
    let mut world = World::empty();
    world.must(money);
    world.must(crate::fixture::open(tasks, policy));
    world.chores();
    world
}

fn bill(cents: u64) -> Spending {
    Spending { usd: Usd::cents(cents), ..Spending::default() }
}

fn end(world: &mut World, name: &str, outcome: AttemptOutcome, spent: Spending) -> Vec<Event> {
    let fence = world.fence_of(name);
    world.must(Command::FinishAttempt { fence, outcome, spent })
}

fn paused(world: &World) -> Option<&PauseReason> {
    world.state().mission(M1).unwrap().paused.as_ref()
}

fn raise(limit: Limit, cents: u64) -> Command {
    let (usd, reason) = (Usd::cents(cents), "it is worth it".into());
    Command::RaiseCap { mission: M1, limit, usd, reason, by: ann() }
}

fn resume() -> Command {
    Command::ResumeMission { mission: M1, by: ann() }
}

#[test]
fn a_person_can_raise_a_missions_cap_and_let_it_go_on() {
    let mut world = world(vec![task("1", &[]), task("2", &["1"])], rules(|_| {}), dollars(1));
    end(&mut world, "1", done(5, &["a"]), bill(10));
    world.chores();
    let broke = PauseReason::Budget { spent: Usd::cents(10), cap: Usd::cents(100) };
    assert_eq!(paused(&world), Some(&broke));
    world.must(resume());
    assert_eq!(paused(&world), Some(&broke), "nothing has changed");
    world.must(raise(Limit::Mission, 110));
    world.must(resume());
    assert_eq!(world.working(), ["2".to_owned()].into());
}

#[test]
fn a_cap_is_raised_with_a_reason_within_the_rules_and_really() {
    let tasks = vec![task("1", &[])];
    let capped = rules(|money| money.caps.mission_usd_max = Some(Usd::cents(500)));
    let mut world = world(tasks, capped, dollars(2));
    let refused = |world: &mut World, command| world.send(command).unwrap_err();
    let day = Refusal::NotOfMission { limit: Limit::Day };
    assert_eq!(refused(&mut world, raise(Limit::Day, 900)), day);
    let (limit, cap, asked) = (Limit::Mission, Usd::cents(200), Usd::cents(200));
    let same = Refusal::NotRaised { limit, cap, asked };
    assert_eq!(refused(&mut world, raise(Limit::Mission, 200)), same);
    let over = Refusal::OverProjectRules { cap: Usd::cents(500), asked: Usd::cents(501) };
    assert_eq!(refused(&mut world, raise(Limit::Mission, 501)), over);
    let free = Refusal::NotCapped { limit: Limit::Retries };
    assert_eq!(refused(&mut world, raise(Limit::Retries, 100)), free);
    let (usd, reason) = (Usd::cents(300), " ".into());
    let silent = Command::RaiseCap { mission: M1, limit, usd, reason, by: ann() };
    assert_eq!(refused(&mut world, silent), Refusal::Missing { what: "the reason" });
    world.must(raise(Limit::Mission, 500));
    assert_eq!(world.state().ledger().cap(Scope::Mission(M1)), Some(Usd::cents(500)));
}

/// Each cap stands alone, and the one that is in the way is the one that is named.
#[test]
fn every_cap_stops_what_it_is_for() {
    type Set = fn(&mut Caps, Option<Usd>);
    let caps: [(Limit, Set); 7] = [
        (Limit::Task, |caps, usd| caps.task_usd_max = usd),
        (Limit::Agent, |caps, usd| caps.agent_usd_max = usd),
        (Limit::Session, |caps, usd| caps.session_usd_max = usd),
        (Limit::Day, |caps, usd| caps.day_usd_max = usd),
        (Limit::Week, |caps, usd| caps.week_usd_max = usd),
        (Limit::Month, |caps, usd| caps.month_usd_max = usd),
        (Limit::Project, |caps, usd| caps.project_usd_max = usd),
    ];
    for (limit, set) in caps {
        let narrow = rules(|money| set(&mut money.caps, Some(Usd::cents(99))));
        let mut world = world(vec![task("1", &[])], narrow, dollars(9));
        assert!(world.running.is_empty(), "{limit}");
        let Some(PauseReason::Limit {
            refusal: ledger::Refusal::OverLimit { limit: named, asked, .. },
        }) = paused(&world)
        else {
            panic!("{limit}: {:?}", paused(&world))
        };
        assert_eq!((*named, *asked), (limit, Usd::cents(100)));
        let said = why(world.state(), world.task("1")).unwrap();
        assert!(said.contains(&limit.to_string()), "{said}");
        world.must(rules(|money| set(&mut money.caps, Some(Usd::cents(100)))));
        world.must(resume());
        assert_eq!(world.working().len(), 1, "{limit}: a dollar is enough");
    }
}

/// BUD-13: each of two parallel attempts would fit; both do not.
#[test]
fn parallel_attempts_cannot_pass_a_cap_together() {
    let day = rules(|money| money.caps.day_usd_max = Some(Usd::cents(199)));
    let mut world = world(vec![task("1", &[]), task("2", &[])], day, dollars(9));
    assert_eq!(world.working(), ["1".to_owned()].into());
    let said = why(world.state(), world.task("2")).unwrap();
    assert_eq!(
        said,
        "waits: the day's budget is $1.99: $0.00 spent and $1.00 reserved leave no $1.00"
    );
    end(&mut world, "1", done(5, &["a"]), bill(50));
    assert!(world.working().contains("2"), "half a dollar went back");
}

/// C-01: a hard stop for the day is one until midnight, not for ever.
#[test]
fn a_mission_goes_on_when_its_limit_begins_anew() {
    let day = rules(|money| money.caps.day_usd_max = Some(Usd::cents(150)));
    let mut world = world(vec![task("1", &[]), task("2", &["1"])], day, dollars(9));
    end(&mut world, "1", done(5, &["a"]), bill(100));
    world.chores();
    assert!(matches!(paused(&world), Some(PauseReason::Limit { .. })), "{:?}", paused(&world));
    let midnight = Span::Day.ends_at(world.now);
    assert_eq!(world.state().wake_at(), Some(midnight));
    world.wait(midnight.ms_since(world.now) - 1);
    assert!(world.running.is_empty());
    let events = world.wait(1);
    assert!(
        matches!(&events[..], [Event::MissionResumed { by, .. }, Event::LeaseGranted { .. }]
            if by.0 == "kapelle"),
        "{events:?}"
    );
    assert_eq!(Span::Day.number(world.now), Span::Day.number(Timestamp(DAY_MS)));
}

/// TSK-15: what a person wants to be paused does not go on by itself.
#[test]
fn a_person_keeps_paused_what_would_go_on_by_itself() {
    let day = rules(|money| money.caps.day_usd_max = Some(Usd::cents(50)));
    let mut world = world(vec![task("1", &[])], day, dollars(9));
    assert!(matches!(paused(&world), Some(PauseReason::Limit { .. })), "{:?}", paused(&world));
    let pause = Command::PauseMission { mission: M1, reason: "wait".into(), by: ann() };
    world.must(pause.clone());
    assert_eq!(world.state().wake_at(), None);
    world.wait(DAY_MS);
    assert_eq!(paused(&world), Some(&PauseReason::Person { text: "wait".into() }));
    assert_eq!(world.send(pause), Err(Refusal::AlreadyPaused { mission: M1 }));
}

#[test]
fn a_person_may_resume_or_cancel_what_waits_for_a_renewal() {
    for cancels in [false, true] {
        let day = rules(|money| money.caps.day_usd_max = Some(Usd::cents(50)));
        let mut world = world(vec![task("1", &[])], day, dollars(9));
        if cancels {
            let (mission, reason) = (M1, "no".into());
            world.must(Command::CancelMission { mission, reason, by: ann() });
            assert_eq!(world.state().wake_at(), None);
        } else {
            world.must(rules(|money| money.caps.day_usd_max = Some(Usd::cents(500))));
            world.must(resume());
            assert_eq!(world.working().len(), 1);
            assert!(world.state().wake_at() < Some(Span::Day.ends_at(world.now)));
        }
    }
}

/// BUD-05: as pools empty, the less urgent waits for the next day first.
#[test]
fn as_pools_run_dry_the_less_urgent_waits() {
    let with = |id: &str, priority| PlannedTask { priority, ..task(id, &[]) };
    let tasks = vec![with("low", Priority::Low), with("medium", Priority::Medium)];
    let pools = rules(|money| {
        money.caps.day_usd_max = Some(Usd::cents(1_000));
        money.pools = Some(ledger::Shares { baseline: 90, retry: 300, emergency: 300, spike: 310 });
    });
    let mut world = world(tasks, pools, dollars(20));
    assert_eq!(world.working(), ["medium".to_owned()].into(), "the baseline holds 90 cents");
    let drawn = world.journal.iter().find_map(|record| match &record.event {
        Event::LeaseGranted { reservation, .. } => reservation.clone(),
        _ => None,
    });
    assert_eq!(drawn.unwrap().pool, Some(Pool::Spike));
    let said = why(world.state(), world.task("low")).unwrap();
    assert!(said.contains("no pool of the day has $1.00 for this work"), "{said}");
    end(&mut world, "medium", done(5, &["a"]), bill(1));
    world.chores();
    assert!(matches!(
        paused(&world),
        Some(PauseReason::Limit { refusal: ledger::Refusal::PoolsEmpty { .. } })
    ));
}

/// QUE-13, BUD-05: what a person calls urgent draws on the pools of what is urgent.
#[test]
fn a_priority_set_by_a_person_opens_its_pools() {
    let with = |id: &str, priority| PlannedTask { priority, ..task(id, &[]) };
    let tasks = vec![with("low", Priority::Low), with("medium", Priority::Medium)];
    let pools = rules(|money| {
        money.caps.day_usd_max = Some(Usd::cents(1_000));
        money.pools = Some(ledger::Shares { baseline: 90, retry: 300, emergency: 300, spike: 310 });
    });
    let mut world = world(tasks, pools, dollars(20));
    assert_eq!(world.working(), ["medium".to_owned()].into());
    let (task, priority) = (world.task("low").id, Priority::Medium);
    world.must(Command::SetPriority { task, priority, by: ann() });
    assert_eq!(world.working().len(), 2, "{:?}", why(world.state(), world.task("low")));
}

/// BUD-03, BUD-14, C-37: pause at the limit of a rolling minute, end what runs after the grace.
#[test]
fn a_runaway_minute_pauses_spending_and_the_grace_ends_what_runs() {
    let watched = rules(|money| money.watchdog.minute_usd_max = Usd::cents(100));
    let tasks = vec![task("1", &[]), task("2", &[]), task("3", &["1"])];
    let mut world = world(tasks, watched, dollars(9));
    let refused = world.send(Command::ResumeSpending { by: ann() });
    assert_eq!(refused, Err(Refusal::NotHalted));
    let events = end(&mut world, "1", done(5, &["a"]), bill(100));
    let alarm = Alarm { spent: Usd::cents(100), max: Usd::cents(100) };
    let grace_ends_at = world.now.plus_ms(30_000);
    assert!(events.contains(&Event::SpendingPaused { alarm, grace_ends_at }), "{events:?}");
    world.chores();
    assert_eq!(world.working(), ["2".to_owned()].into(), "3 does not start, 2 may end");
    let said = why(world.state(), world.task("3")).unwrap();
    assert!(said.contains("stopped by the watchdog"), "{said}");
    world.wait(29_999);
    assert_eq!(world.working().len(), 1);
    let events = world.wait(1);
    assert!(events.contains(&Event::SpendingStopped), "{events:?}");
    assert!(world.running.is_empty());
    assert_eq!(paused(&world), Some(&PauseReason::Watchdog));
    assert_eq!(world.task("2").retries, 0, "it is not its fault");
}

#[test]
fn only_a_person_lets_spending_go_on() {
    let watched = rules(|money| money.watchdog.minute_usd_max = Usd::cents(100));
    let mut world = world(vec![task("1", &[]), task("2", &["1"])], watched, dollars(9));
    end(&mut world, "1", done(5, &["a"]), bill(100));
    world.chores();
    world.wait(24 * 60 * 60_000);
    assert!(world.running.is_empty());
    world.must(resume());
    assert_eq!(paused(&world), Some(&PauseReason::Watchdog), "the mission alone is not enough");
    world.must(Command::ResumeSpending { by: ann() });
    assert_eq!(world.working(), ["2".to_owned()].into());
    assert_eq!(world.state().ledger().watchdog(), WatchdogState::Watching);
}

#[test]
fn spending_that_is_resumed_within_the_grace_ends_nothing() {
    let watched = rules(|money| money.watchdog.minute_usd_max = Usd::cents(100));
    let mut world = world(vec![task("1", &[]), task("2", &[])], watched, dollars(9));
    end(&mut world, "1", done(5, &["a"]), bill(100));
    world.chores();
    let fence = world.fence_of("2");
    world.must(Command::ResumeSpending { by: ann() });
    world.wait(60_000);
    assert_eq!(world.fence_of("2"), fence);
}

/// A dollar that was spent before a time-out is a dollar.
#[test]
fn the_bill_of_an_ended_attempt_is_paid_once() {
    let mut world = world(vec![task("1", &[])], rules(|_| {}), dollars(9));
    let fence = world.fence_of("1");
    let report = |cents| Command::ReportSpending { fence, spent: bill(cents) };
    assert_eq!(world.send(report(7)), Err(Refusal::StillRunning { fence }));
    world.restart();
    let purse = |world: &World| world.state().ledger().purse(Scope::Mission(M1));
    assert_eq!(purse(&world).reserved, Usd::cents(200), "held beside the new attempt's");
    world.must(report(7));
    assert_eq!((purse(&world).spent, purse(&world).excess), (Usd::cents(7), Usd::ZERO));
    assert_eq!(purse(&world).reserved, Usd::cents(100));
    assert_eq!(world.task("1").spent, Usd::cents(7));
    assert_eq!(world.send(report(7)), Err(Refusal::StaleFence { presented: fence }));
    let never = Command::ReportSpending { fence: Fence(999), spent: bill(7) };
    assert_eq!(world.send(never), Err(Refusal::StaleFence { presented: Fence(999) }));
}

#[test]
fn money_without_a_bill_is_held_for_a_while_and_a_later_bill_is_paid_nevertheless() {
    let mut world = world(vec![task("1", &[])], rules(|_| {}), dollars(9));
    let fence = world.fence_of("1");
    world.must(Command::CancelMission { mission: M1, reason: "no".into(), by: ann() });
    let reserved = |world: &World| world.state().purse_of(M1).reserved;
    assert_eq!(reserved(&world), Usd::cents(100));
    let events = world.wait(60_000);
    let (task, usd) = (TaskId(1), Usd::cents(100));
    assert_eq!(events, [Event::ReservationReleased { task, fence, usd }]);
    assert_eq!(reserved(&world), Usd::ZERO);
    world.must(Command::ReportSpending { fence, spent: bill(30) });
    assert_eq!(world.state().purse_of(M1).spent, Usd::cents(30));
    let excess = world.state().ledger().purse(Scope::Mission(M1)).excess;
    assert_eq!(excess, Usd::cents(30), "nothing was held for it any more");
}

#[test]
fn a_late_bill_of_more_than_was_reserved_pauses_the_mission() {
    let mut world = world(vec![task("1", &[])], rules(|_| {}), dollars(9));
    let fence = world.fence_of("1");
    world.restart();
    world.must(Command::ReportSpending { fence, spent: bill(101) });
    assert!(matches!(paused(&world), Some(PauseReason::Overspent { .. })));
}

/// After `kill -9` nobody is left who could say what the dead attempts cost, but for the reports
/// that lie on the disk. Once those are told, money that waits for the rest is waited for in vain.
#[test]
fn work_goes_on_at_once_when_a_host_that_starts_has_told_all_bills() {
    let tasks = vec![task("1", &[]), task("2", &[])];
    let mut world = world(tasks, rules(|_| {}), dollars(2));
    let (first, second) = (world.fence_of("1"), world.fence_of("2"));
    let greeting = vec![
        Command::HostStarted,
        Command::ReportSpending { fence: first, spent: bill(7) },
        Command::CloseBills,
    ];
    world.running.clear();
    let events = world.together(greeting);
    let released = |fence: Fence| {
        let of = |event: &Event| matches!(event, Event::ReservationReleased { fence: f, .. } if *f == fence);
        events.iter().any(of)
    };
    assert!(!released(first) && released(second), "{events:?}");
    let purse = world.state().ledger().purse(Scope::Mission(M1));
    assert_eq!((purse.spent, purse.excess), (Usd::cents(7), Usd::ZERO), "out of its reservation");
    assert_eq!(world.working().len(), 1, "there is money for one, and it works");
    assert_eq!(purse.reserved, Usd::cents(100));
    // A bill that comes out of nowhere is paid nevertheless.
    world.must(Command::ReportSpending { fence: second, spent: bill(30) });
    let purse = world.state().ledger().purse(Scope::Mission(M1));
    assert_eq!((purse.spent, purse.excess), (Usd::cents(37), Usd::cents(30)));
}

/// A host that was down for longer than bills are awaited still pays them out of what was reserved.
#[test]
fn bills_that_a_start_finds_are_paid_before_the_clock_gives_their_money_away() {
    let mut world = world(vec![task("1", &[])], rules(|_| {}), dollars(9));
    let fence = world.fence_of("1");
    let batch = world.engine.note(vec![((), Command::StopHost)], world.now);
    world.journal.extend(batch.records);
    world.engine = kapelle_core::Engine::recover(world.journal.clone());
    world.running.clear();
    world.now = world.now.plus_ms(600_000);
    let spent = bill(40);
    world.together(vec![Command::HostStarted, Command::ReportSpending { fence, spent }]);
    let purse = world.state().ledger().purse(Scope::Mission(M1));
    assert_eq!((purse.spent, purse.excess), (Usd::cents(40), Usd::ZERO));
}

/// An attempt that runs out of time has no bill yet; one that reports a time-out has.
#[test]
fn the_clock_ends_an_attempt_before_its_bill() {
    let mut world = world(vec![task("1", &[]), task("2", &[])], rules(|_| {}), dollars(9));
    end(&mut world, "1", failed(FailureKind::Timeout), bill(5));
    assert_eq!(world.state().purse_of(M1).reserved, Usd::cents(100));
    let fence = world.fence_of("2");
    for _ in 0..3 {
        world.must(Command::Heartbeat { fences: world.running.keys().copied().collect() });
        world.wait(200_000);
    }
    assert_eq!(world.task("2").failures.get(&FailureKind::Timeout), Some(&1));
    world.must(Command::ReportSpending { fence, spent: bill(60) });
    assert_eq!(world.task("2").spent, Usd::cents(60));
}

/// RET-08, C-16: a retry whose estimate does not fit is refused; its worst case is no estimate.
#[test]
fn retries_are_admitted_by_what_they_will_probably_cost() {
    let mut world = world(
        vec![task("1", &[])],
        rules(|money| money.caps.retries_usd_max = Some(Usd::cents(50))),
        dollars(9),
    );
    end(&mut world, "1", failed(FailureKind::ValidationFailed), bill(40));
    assert_eq!(world.working().len(), 1, "40 cents are likely, 50 are allowed");
    end(&mut world, "1", failed(FailureKind::ValidationFailed), bill(30));
    let said = "the mission's retry budget is $0.50: $0.30 spent and $0.00 reserved leave no $0.35";
    assert_eq!(paused(&world).unwrap().to_string(), said);
    world.must(raise(Limit::Retries, 65));
    world.must(resume());
    assert_eq!(world.working().len(), 1);
}

/// The purpose and the estimate of the latest attempt.
fn drawn(world: &World) -> (Purpose, Usd) {
    let drawn = world.journal.iter().rev().find_map(|record| match &record.event {
        Event::LeaseGranted { reservation, .. } => reservation.clone(),
        _ => None,
    });
    let drawn = drawn.expect("an attempt says where its money comes from");
    (drawn.purpose, drawn.estimate)
}

/// RET-08: whoever asks in the middle of a retry goes on with a retry.
#[test]
fn a_question_does_not_make_a_retry_first_work() {
    let mut world = world(vec![task("1", &[])], rules(|_| {}), dollars(9));
    assert_eq!(drawn(&world), (Purpose::Work, Usd::cents(100)));
    end(&mut world, "1", failed(FailureKind::ValidationFailed), bill(40));
    assert_eq!(drawn(&world), (Purpose::Retry, Usd::cents(40)));
    end(&mut world, "1", asked("which"), bill(20));
    let (task, resume_id, input) = (world.task("1").id, "which".into(), "a".into());
    world.must(Command::AnswerCheckpoint { task, resume_id, input, by: ann() });
    assert_eq!(drawn(&world), (Purpose::Retry, Usd::cents(30)));
}

/// RET-08: the phase after one that took two tries has not been tried at all.
#[test]
fn the_first_attempt_at_the_next_phase_is_no_retry() {
    let policy = Policy { budget: dollars(9).budget, ..test_first() };
    let mut world = world(vec![task("1", &[])], rules(|_| {}), policy);
    end(&mut world, "1", failed(FailureKind::ValidationFailed), bill(40));
    assert_eq!(drawn(&world), (Purpose::Retry, Usd::cents(40)));
    world.succeed("1");
    assert_eq!(world.working(), ["1".to_owned()].into(), "green");
    assert_eq!(drawn(&world), (Purpose::Work, Usd::cents(100)));
    assert_eq!(world.status("1"), Status::Retrying, "what people see is worked off at the merge");
    end(&mut world, "1", failed(FailureKind::ValidationFailed), bill(20));
    assert_eq!(drawn(&world).0, Purpose::Retry);
}

/// RET-08: whoever begins the flow anew after a failure does each of its phases a second time,
/// up to the one that failed.
#[test]
fn what_begins_anew_after_a_failure_is_a_retry_to_where_it_had_been() {
    let mut world = World::empty();
    let seats = [Role::Orchestrator, Role::Developer, Role::Tester].map(|role| (role, 1));
    world.must(Command::ConfigureTeam { seats: seats.into(), workers_max: 3, by: ann() });
    world.must(rules(|_| {}));
    let policy = Policy { budget: dollars(9).budget, ..test_first() };
    world.must(crate::fixture::open(vec![task("1", &[])], policy));
    world.chores();
    world.succeed("1");
    assert_eq!(drawn(&world).0, Purpose::Work, "green");
    for _ in 0..3 {
        end(&mut world, "1", failed(FailureKind::ValidationFailed), bill(1));
        world.wait(60_000);
    }
    assert_eq!(world.task("1").phase, 0, "the orchestrator begins anew");
    assert_eq!(drawn(&world).0, Purpose::Retry, "red again");
    world.succeed("1");
    assert_eq!(drawn(&world).0, Purpose::Retry, "green again");
}

/// RET-08: what an attempt cost is not nothing because nobody has said it yet.
#[test]
fn a_retry_counts_an_open_bill_as_what_was_reserved() {
    let mut world = world(
        vec![task("1", &[])],
        rules(|money| money.caps.retries_usd_max = Some(Usd::cents(50))),
        dollars(9),
    );
    let fence = world.fence_of("1");
    for _ in 0..3 {
        world.must(Command::Heartbeat { fences: vec![fence] });
        world.wait(200_000);
    }
    world.wait(5_000);
    assert_eq!(world.working().len(), 0);
    let said = "the mission's retry budget is $0.50: $0.00 spent and $0.00 reserved leave no $1.00";
    assert_eq!(paused(&world).unwrap().to_string(), said);
    world.must(Command::ReportSpending { fence, spent: bill(20) });
    world.must(resume());
    assert_eq!(drawn(&world), (Purpose::Retry, Usd::cents(20)));
}

/// BUD-04, T-47: people hear of it once.
#[test]
fn spending_warns_at_the_session_sum_and_near_every_cap() {
    let mut world = world(
        vec![task("1", &[]), task("2", &[])],
        rules(|money| money.caps.day_usd_max = Some(Usd::cents(250))),
        dollars(9),
    );
    let warnings = |events: Vec<Event>| {
        let warned = events.into_iter().filter_map(|event| match event {
            Event::SpendingWarned { warning, .. } => Some(warning),
            _ => None,
        });
        warned.collect::<Vec<Warning>>()
    };
    let spent = |cents| bill(cents);
    assert_eq!(warnings(end(&mut world, "1", done(5, &["a"]), spent(100))), []);
    let told = warnings(end(&mut world, "2", done(6, &["b"]), spent(101)));
    let warning = |limit, cap| Warning { limit, spent: Usd::cents(201), cap: Usd::cents(cap) };
    assert_eq!(told, [warning(Limit::Session, 200), warning(Limit::Day, 250)]);
}

/// T-47: an hour above ten dollars, for five minutes.
#[test]
fn a_dear_hour_is_told_once() {
    let mut world = world(
        vec![task("1", &[]), task("2", &[])],
        rules(|money| money.burn.hour_usd_max = Usd::cents(90)),
        dollars(9),
    );
    let alerts = |events: &[Event]| {
        events.iter().filter(|event| matches!(event, Event::BurnAlerted { .. })).count()
    };
    end(&mut world, "1", done(5, &["a"]), bill(100));
    assert_eq!(alerts(&world.wait(200_000)), 0);
    world.must(Command::Heartbeat { fences: world.running.keys().copied().collect() });
    assert_eq!(alerts(&world.wait(100_000)), 1);
    assert_eq!(alerts(&end(&mut world, "2", done(6, &["b"]), bill(100))), 0, "people know");
}

/// BUD-06.
#[test]
fn a_used_up_token_budget_halts_the_mission() {
    let tokens = TokenPolicy { mission_max: Some(1_000), week: None };
    let mut world = world(
        vec![task("1", &[]), task("2", &["1"])],
        rules(|money| money.tokens = tokens),
        dollars(9),
    );
    let used = Usage { model: "m".into(), input_tokens: 900, output_tokens: 100 };
    end(&mut world, "1", done(5, &["a"]), Spending { usage: vec![used], ..Spending::default() });
    world.chores();
    let reason = paused(&world).unwrap().to_string();
    assert!(reason.starts_with("Token budget exceeded: 1000 used"), "{reason}");
}

/// BUD-01: by task, agent, mission, session and day, and it adds up.
#[test]
fn a_charge_counts_for_everybody_it_belongs_to() {
    let mut world = world(vec![task("1", &[]), task("2", &[])], rules(|_| {}), dollars(9));
    world.must(Command::HostStarted);
    end(&mut world, "1", done(5, &["a"]), bill(30));
    end(&mut world, "2", done(6, &["b"]), bill(12));
    let ledger = world.state().ledger();
    let spent = |scope| ledger.purse(scope).spent.as_micros() / 10_000;
    let day = Span::Day.number(world.now);
    assert_eq!(spent(Scope::Task(M1, Some(TaskId(1)))), 30);
    assert_eq!(spent(Scope::Task(M1, Some(TaskId(2)))), 12);
    let wide = [Scope::Mission(M1), Scope::Day(day), Scope::Session(1), Scope::Project];
    assert_eq!(wide.map(spent), [42; 4]);
    let agents: u64 = ledger.by_agent(M1).map(|(_, purse)| purse.spent.as_micros() / 10_000).sum();
    assert_eq!(agents, 42);
    let hour = world.now.plus_ms(60 * 60_000);
    assert_eq!(ledger.projected_day(hour), Some(Usd::cents(42 * 24)), "BUD-02");
    // 48 bills of 21 cents a day: 0.8 + 0.2 * 4 of their squares, doubled, is the variance.
    let forecast = ledger.forecast_day(hour).unwrap();
    let deviation = 21.0 * (48.0 * 1.6 * 2.0_f64).sqrt();
    let expected = 1.2 * 48.0 * 21.0 + 1.645 * deviation;
    let p95 = forecast.p95.as_micros() as f64 / 10_000.0;
    assert_eq!(forecast.mean, Usd::cents(42 * 24));
    assert!((p95 - expected).abs() < 1.0, "BUD-07: {p95}, not {expected}");
    assert_eq!(ledger.forecast_day(world.now), None, "too early to say");
}

/// C-01: the profile `starter` stops hard at $10 a day.
#[test]
fn the_starter_profile_stops_at_ten_dollars_a_day() {
    let mut world = World::empty();
    let mut money = Profile::Starter.policy();
    // The mission may take more than a day.
    money.caps.mission_usd_max = None;
    let settings = Box::new(Settings { money, ..Settings::default() });
    world.must(Command::ChangeSettings { settings, by: ann() });
    let names: Vec<String> = (0..12).map(|n| format!("t{n}")).collect();
    let tasks = names.iter().map(|name| task(name, &[])).collect();
    world.must(crate::fixture::open(tasks, dollars(75)));
    world.chores();
    for _ in 0..12 {
        let Some(name) = world.working().pop_first() else { break };
        world.wait(120_000);
        end(&mut world, &name, done(5, &["a"]), bill(95));
        world.chores();
    }
    let spent = world.state().purse_of(M1).spent;
    assert_eq!(spent, Usd::cents(950), "the eleventh dollar is not started");
    assert!(matches!(paused(&world), Some(PauseReason::Limit { .. })), "{:?}", paused(&world));
}

#[test]
fn rules_of_spending_that_cannot_work_are_refused() {
    let mut world = World::empty();
    let unlimited = world.send(rules(|money| money.caps = Caps::NONE));
    let wrong = unlimited.unwrap_err();
    let said = "nothing limits the project: set a cap for the day, week, month or project";
    assert_eq!(wrong.to_string(), said);
    let mut settings = Box::new(Settings::default());
    let price = settings.prices.models["claude-haiku"];
    settings.prices.models.insert(String::new(), price);
    let nameless = world.send(Command::ChangeSettings { settings, by: ann() });
    assert!(matches!(nameless, Err(Refusal::InvalidSettings(_))), "{nameless:?}");
    assert_eq!(world.state().settings(), &Settings::default());
}

/// What people would lose by a crash is in the journal, not in memory.
#[test]
fn money_survives_a_restart() {
    let watched = rules(|money| money.watchdog.minute_usd_max = Usd::cents(100));
    let mut world = world(vec![task("1", &[]), task("2", &[])], watched, dollars(9));
    end(&mut world, "1", done(5, &["a"]), bill(100));
    let before = world.state().ledger().clone();
    let replayed = kapelle_core::Engine::recover(world.journal.clone());
    assert_eq!(replayed.state().ledger(), &before);
    world.restart();
    assert!(world.state().ledger().purse(Scope::Mission(M1)).spent == Usd::cents(100));
    assert!(world.working().is_empty(), "spending is still paused");
}
