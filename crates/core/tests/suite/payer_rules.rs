//! Whose money it is: an agent that has none left makes room for one that has.

use std::collections::BTreeMap;

use crate::fixture::{M1, World, ann, done, open, task};
use kapelle_core::calendar::DAY_MS;
use kapelle_core::command::{AttemptOutcome, Spending};
use kapelle_core::failure::{Failure, FailureKind};
use kapelle_core::ledger::{self, Caps, Scope};
use kapelle_core::plan::{PlannedTask, Priority};
use kapelle_core::policy::{Budget, Policy};
use kapelle_core::queue::Because;
use kapelle_core::scaling::ManualScale;
use kapelle_core::settings::Settings;
use kapelle_core::{
    AgentId, Command, Effect, Event, Fence, MissionId, RequestId, Role, TaskId, Usd, why,
};

fn dev(seat: u32) -> AgentId {
    AgentId { role: Role::Developer, seat }
}

/// Attempts of a dollar each, and no limit but those that are set here.
fn rules(change: impl FnOnce(&mut Caps)) -> Command {
    let mut caps = Caps { project_usd_max: Some(Usd::cents(1_000_000)), ..Caps::NONE };
    change(&mut caps);
    let mut money = ledger::Policy { caps, pools: None, ..ledger::Policy::default() };
    money.watchdog.minute_usd_max = Usd::cents(1_000_000);
    let settings = Box::new(Settings { money, ..Settings::default() });
    Command::ChangeSettings { settings, by: ann() }
}

fn dollars() -> Policy {
    let budget = Budget { mission_usd_max: Usd::cents(10_000), attempt_usd_max: Usd::cents(100) };
    Policy { budget, ..Policy::default() }
}

fn world(developers: u32, money: Command, tasks: Vec<PlannedTask>) -> World {
    let mut world = World::empty();
    let seats = BTreeMap::from([(Role::Developer, developers)]);
    world.must(Command::ConfigureTeam { seats, workers_max: 9, by: ann() });
    world.must(money);
    world.must(open(tasks, dollars()));
    world.chores();
    world
}

fn touching(id: &str, needs: &[&str]) -> PlannedTask {
    PlannedTask { files: vec!["src/x".into()], ..task(id, needs) }
}

/// The attempt ends well and has cost this much.
fn end(world: &mut World, fence: Fence, cents: u64) {
    let spent = Spending { usd: Usd::cents(cents), ..Spending::default() };
    let outcome = done(5_000 + fence.0, &["src/x"]);
    world.must(Command::FinishAttempt { fence, outcome, spent });
    world.chores();
}

fn grants(world: &World) -> Vec<(TaskId, AgentId, Because)> {
    let granted = |event: &Event| match event {
        Event::LeaseGranted { task, agent, because, .. } => {
            Some((*task, *agent, because.clone().unwrap()))
        }
        _ => None,
    };
    world.journal.iter().filter_map(|record| granted(&record.event)).collect()
}

/// The agent that knows the file has used up what it may spend on this mission. The task must not
/// wait for it while somebody else is free and can pay.
#[test]
fn who_cannot_pay_is_passed_over_for_who_can() {
    let tasks = vec![touching("a", &[]), touching("b", &["a"])];
    let mut world = world(2, rules(|caps| caps.agent_usd_max = Some(Usd::cents(149))), tasks);
    let fence = world.fence_of("a");
    end(&mut world, fence, 50);
    let knows = Because::FileContext { path: "src/x".into() };
    let (a, b) = (world.task("a").id, world.task("b").id);
    let least = Because::LeastLoaded { received: 0 };
    assert_eq!(grants(&world), [(a, dev(1), least.clone()), (b, dev(2), least)]);
    // With a cent more it would have gone to who knows the file.
    let tasks = vec![touching("a", &[]), touching("b", &["a"])];
    let mut world = self::world(2, rules(|caps| caps.agent_usd_max = Some(Usd::cents(150))), tasks);
    let fence = world.fence_of("a");
    end(&mut world, fence, 50);
    assert_eq!(grants(&world)[1], (b, dev(1), knows));
}

/// What one agent has used up says nothing of what another may: a retry behind one that nobody may
/// begin is not hidden by it.
#[test]
fn what_one_agent_cannot_pay_hides_no_retry_from_another() {
    let first = PlannedTask { priority: Priority::High, ..task("a", &[]) };
    let money = rules(|caps| {
        caps.agent_usd_max = Some(Usd::cents(149));
        caps.retries_usd_max = Some(Usd::cents(30));
    });
    let mut world = world(2, money, vec![first, task("b", &[])]);
    for (name, cents) in [("a", 55), ("b", 15)] {
        let fence = world.fence_of(name);
        let outcome = AttemptOutcome::Failed(Failure::new(FailureKind::AgentError, "it broke"));
        let spent = Spending { usd: Usd::cents(cents), ..Spending::default() };
        world.must(Command::FinishAttempt { fence, outcome, spent });
    }
    world.wait(DAY_MS / 24);
    assert_eq!(world.working(), ["b".to_owned()].into());
}

/// Seat 1 cannot pay, seat 2 can and is busy elsewhere: the mission waits for it, and is neither
/// paused nor said to lack money.
#[test]
fn a_mission_is_stuck_only_if_nobody_of_the_role_can_pay() {
    let tasks = vec![touching("a", &[]), touching("b", &["a"])];
    let mut world = world(2, rules(|caps| caps.agent_usd_max = Some(Usd::cents(149))), tasks);
    let Command::OpenMission { goal, target, base, plan, policy, by, .. } =
        open(vec![task("other", &[])], dollars())
    else {
        unreachable!("`open` opens a mission")
    };
    let request = RequestId("r2".into());
    world.must(Command::OpenMission { request, goal, target, base, plan, policy, by });
    let branch = world.running.iter().find_map(|(fence, effect)| match effect {
        Effect::PrepareBranch { base, .. } => Some((*fence, base.clone())),
        _ => None,
    });
    let (fence, tip) = branch.unwrap();
    world.must(Command::FinishBranch { fence, tip });
    let other = world.state().task_named(MissionId(2), "other").unwrap().id;
    assert_eq!(grants(&world)[1], (other, dev(2), Because::LeastLoaded { received: 0 }));
    let fence = world.fence_of("a");
    end(&mut world, fence, 50);
    assert_eq!(world.state().mission(M1).unwrap().paused, None);
    let said = why(world.state(), world.task("b")).unwrap();
    assert_eq!(said, "waits for a free developer");
    let attempt = world.running.iter().find(|(_, effect)| match effect {
        Effect::RunAttempt { task, .. } => *task == other,
        _ => false,
    });
    let fence = *attempt.unwrap().0;
    end(&mut world, fence, 0);
    assert_eq!(grants(&world)[2].1, dev(2));
    // Now nobody has a dollar left for this mission.
    let fence = world.fence_of("b");
    world.must(Command::FinishAttempt {
        fence,
        outcome: crate::fixture::failed(kapelle_core::failure::FailureKind::ValidationFailed),
        spent: Spending { usd: Usd::cents(50), ..Spending::default() },
    });
    let paused = world.state().mission(M1).unwrap().paused.as_ref().unwrap().to_string();
    assert!(paused.contains("the agent's budget in this mission"), "{paused}");
}

/// WRK-27: agents that were added because of the load spend no more in a day than they may all
/// together; the team goes on, and with the next day so do they.
#[test]
fn extra_agents_stop_at_the_scaling_money_of_the_day() {
    let tasks: Vec<PlannedTask> = (1..=6).map(|n| task(&n.to_string(), &[])).collect();
    let capped = |cents| rules(move |caps| caps.scaling_day_usd_max = Some(Usd::cents(cents)));
    let mut world = world(1, capped(150), tasks);
    for reason in ["more", "and more"] {
        let change = ManualScale::Up { reason: reason.into() };
        world.must(Command::Scale { role: Role::Developer, change, by: ann() });
    }
    let by = |world: &World| {
        let agents = grants(world).into_iter().map(|(_, agent, _)| agent);
        agents.collect::<Vec<_>>()
    };
    assert_eq!(by(&world), [dev(1), dev(2)], "two extra attempts would be two dollars");
    let said = why(world.state(), world.task("6")).unwrap();
    assert_eq!(said, "waits for a free developer");
    world.must(capped(200));
    assert_eq!(by(&world), [dev(1), dev(2), dev(3)]);
    for name in ["2", "3"] {
        let fence = world.fence_of(name);
        end(&mut world, fence, 100);
    }
    assert_eq!(by(&world).len(), 3, "the day's money is spent");
    let fence = world.fence_of("1");
    end(&mut world, fence, 100);
    assert_eq!(by(&world)[3..], [dev(1)], "the team has its own");
    world.wait(DAY_MS);
    assert!(by(&world)[4..].contains(&dev(2)), "{:?}", by(&world));
}

/// Seat 1 works and has no money beside that, but others have: what works alone goes next, and
/// neither starts beside it nor lets anybody overtake it.
#[test]
fn who_works_alone_is_not_overtaken_while_anybody_could_pay_for_it() {
    let last = PlannedTask { priority: Priority::Low, ..task("c", &[]) };
    let mut world = World::empty();
    let seats = BTreeMap::from([(Role::Developer, 3)]);
    world.must(Command::ConfigureTeam { seats, workers_max: 2, by: ann() });
    world.must(rules(|caps| caps.agent_usd_max = Some(Usd::cents(149))));
    let attempt_timeout_ms = [(Role::Developer, 3_600_000)].into();
    world.must(open(
        vec![task("a", &[]), task("b", &[]), last],
        Policy { attempt_timeout_ms, ..dollars() },
    ));
    world.chores();
    assert_eq!(grants(&world).iter().map(|grant| grant.1).collect::<Vec<_>>(), [dev(1), dev(2)]);
    let half_a_lease = dollars().lease_ttl_ms / 2;
    let heard = world.fence_of("a");
    // Twice nobody hears of b; then nobody waits for its bills any more.
    while world.task("b").lost < 2
        || world.state().ledger().purse(Scope::Mission(M1)).reserved > Usd::cents(100)
    {
        world.wait(half_a_lease);
        world.must(Command::Heartbeat { fences: vec![heard] });
    }
    assert_eq!(world.working(), ["a".to_owned()].into());
    let waits = "waits until it can work alone: its host was lost 2 times in a row";
    assert_eq!(why(world.state(), world.task("b")).unwrap(), waits);
    end(&mut world, heard, 50);
    assert_eq!(world.working(), ["b".to_owned()].into());
}
