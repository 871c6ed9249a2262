//! Agents and their number, as the engine decides it: heartbeats, caps, drains and scaling.

use std::collections::BTreeMap;

use crate::fixture::{World, ann, checked, done, open, task};
use kapelle_core::agents::{
    Disk, Hardware, HeartbeatPolicy, PERMANENT_ROLES, Permanence, Presence, Profile, TeamPreset,
    TeamRules, WorkKind,
};
use kapelle_core::command::Spending;
use kapelle_core::event::Interruption;
use kapelle_core::ledger::Limit;
use kapelle_core::plan::{PlannedTask, TaskKind};
use kapelle_core::policy::{InvalidPolicy, Policy};
use kapelle_core::scaling::{
    InvalidScaling, ManualScale, ScaleReason, ScaleRefusal, ScalingMode, ScalingRules,
};
use kapelle_core::settings::{InvalidSettings, Settings};
use kapelle_core::{Actor, AgentId, Command, Event, Refusal, RequestId, Role, Usd, activity, why};

const MINUTE: u64 = 60_000;

fn dev(seat: u32) -> AgentId {
    AgentId { role: Role::Developer, seat }
}

fn up(reason: &str) -> Command {
    let change = ManualScale::Up { reason: reason.into() };
    Command::Scale { role: Role::Developer, change, by: ann() }
}

fn down(reason: &str) -> Command {
    let change = ManualScale::Down { reason: reason.into() };
    Command::Scale { role: Role::Developer, change, by: ann() }
}

fn team(developers: u32, workers_max: u32) -> Command {
    Command::ConfigureTeam {
        seats: BTreeMap::from([(Role::Developer, developers)]),
        workers_max,
        by: ann(),
    }
}

fn many(count: u32) -> Vec<PlannedTask> {
    (1..=count).map(|n| task(&n.to_string(), &[])).collect()
}

fn ruled(mode: ScalingMode) -> Command {
    let scaling = ScalingRules { mode, ..ScalingRules::default() };
    let settings = Settings { scaling, ..Settings::default() };
    Command::ChangeSettings { settings: Box::new(settings), by: ann() }
}

/// One developer, room for ten, these many tasks that could all start, and this way to scale.
fn crowded(mode: ScalingMode, tasks: u32) -> World {
    let mut world = World::empty();
    world.must(team(1, 10));
    world.must(ruled(mode));
    let policy = Policy { lease_ttl_ms: 600 * MINUTE, ..checked() };
    let hours = BTreeMap::from([(Role::Developer, 600 * MINUTE)]);
    world.must(open(many(tasks), Policy { attempt_timeout_ms: hours, ..policy }));
    world.chores();
    world
}

fn said(world: &World, events: &[Event]) -> Vec<String> {
    let lines = events.iter().filter_map(|event| activity::line(world.state(), event));
    lines.map(|line| line.text).collect()
}

/// WRK-03, WRK-12.
#[test]
fn four_permanent_agents_are_there_with_the_first_team_and_stay() {
    let mut world = World::empty();
    world.must(Command::ConfigureTeam { seats: BTreeMap::new(), workers_max: 1, by: ann() });
    for role in PERMANENT_ROLES {
        let agent = world.state().agents().get(AgentId { role, seat: 1 }).unwrap();
        assert_eq!(agent.presence(), Presence::Idle, "{role}");
        assert_eq!(agent.permanence, Permanence::Permanent);
    }
    assert_eq!(world.state().agents().team().count(), 0, "nobody is there to work on tasks");
}

/// WRK-33: the presets are teams like any other.
#[test]
fn the_sequential_preset_lets_one_agent_work_at_a_time() {
    let mut world = World::empty();
    let preset = TeamPreset::Sequential;
    let (seats, workers_max) = (preset.seats(), preset.workers_max());
    world.must(Command::ConfigureTeam { seats, workers_max, by: ann() });
    world.must(open(many(3), Policy::default()));
    world.chores();
    assert_eq!(world.working().len(), 1);
}

/// WRK-02, WRK-31: what the machine carries is a hard cap, whatever the team's size.
#[test]
fn a_small_machine_caps_how_many_work() {
    let mut world = World::empty();
    world.must(team(12, 12));
    let machine = Hardware { ram_mb: 8_192, cores: 2, disk: Some(Disk::Ssd) };
    let rules = TeamRules { profile: Some(Profile::Recommended), machine: Some(machine) };
    let settings = Settings { team: rules, ..Settings::default() };
    world.must(Command::ChangeSettings { settings: Box::new(settings), by: ann() });
    world.must(open(many(12), Policy::default()));
    world.chores();
    assert_eq!(world.working().len(), 2);
    let rules = TeamRules { profile: Some(Profile::Recommended), machine: None };
    let settings = Settings { team: rules, ..Settings::default() };
    world.must(Command::ChangeSettings { settings: Box::new(settings), by: ann() });
    world.online();
    assert_eq!(world.working().len(), 8, "a larger machine takes more at once");
}

/// WRK-20, TSK-08: a migration may be silent for longer than a review.
#[test]
fn the_kind_of_work_decides_how_long_its_host_may_be_silent() {
    let of = |id: &str, kind: TaskKind| PlannedTask { kind, ..task(id, &[]) };
    let tasks = vec![of("migration", TaskKind::Migration), of("review", TaskKind::Review)];
    let hours = BTreeMap::from([(Role::Developer, 600 * MINUTE)]);
    let heartbeat = Some(HeartbeatPolicy::default());
    let mut world =
        World::with(tasks, Policy { heartbeat, attempt_timeout_ms: hours, ..Policy::default() });
    world.chores();
    let (migration, review) = (world.fence_of("migration"), world.fence_of("review"));
    world.wait(5 * MINUTE);
    assert_eq!(world.fence_of("migration"), migration, "half an hour may pass");
    assert_ne!(world.fence_of("review"), review, "five minutes of silence are its end");
    world.wait(20 * MINUTE);
    let events = world.must(Command::Heartbeat { fences: vec![migration] });
    let expires_at = world.now.plus_ms(30 * MINUTE);
    assert!(events.contains(&Event::LeaseRenewed { fence: migration, expires_at }));
    let heard = world.state().agents().get(dev(1)).unwrap().last_heartbeat;
    assert_eq!(heard, Some(world.now));
}

#[test]
fn a_window_that_is_too_short_is_refused_with_the_mission() {
    let heartbeat = HeartbeatPolicy { window_ms: BTreeMap::from([(WorkKind::Review, 1)]) };
    let policy = Policy { heartbeat: Some(heartbeat), ..Policy::default() };
    let refused = World::empty().send(open(many(1), policy));
    assert!(
        matches!(refused, Err(Refusal::InvalidPolicy(InvalidPolicy::Heartbeat(_)))),
        "{refused:?}"
    );
}

/// Old journals know one window for all kinds of work.
#[test]
fn without_windows_by_kind_one_lease_holds_for_all() {
    let review = PlannedTask { kind: TaskKind::Review, ..task("1", &[]) };
    let mut world = World::with(vec![review], Policy { lease_ttl_ms: 1_000, ..Policy::default() });
    world.chores();
    let events = world.wait(1_000);
    let expired = |event: &Event| {
        matches!(event, Event::AttemptInterrupted { cause: Interruption::LeaseExpired, .. })
    };
    assert!(events.iter().any(expired), "{events:?}");
}

/// WRK-24, WRK-25: more than three wait for two minutes, so a second developer comes, and works.
#[test]
fn a_queue_that_stays_long_adds_a_developer() {
    let mut world = crowded(ScalingMode::ByRole, 10);
    assert_eq!(world.wait(2 * MINUTE - 1), []);
    let events = world.wait(1);
    let reason = ScaleReason::QueueLong { threshold: 3, for_ms: 2 * MINUTE };
    let added = Event::AgentAdded { agent: dev(2), reason, by: Actor::kapelle() };
    assert_eq!(events.first(), Some(&added));
    assert!(matches!(events[1], Event::LeaseGranted { agent, .. } if agent == dev(2)));
    let line = "Scaling up - spawning developer-2 (reason: queue > 3 for 2 minutes)";
    assert_eq!(said(&world, &events)[0], line);
}

/// WRK-26: two minutes between two changes, and never more than the maximum.
#[test]
fn cooldown_and_maximum_hold_in_the_engine() {
    let mut world = crowded(ScalingMode::ByRole, 20);
    let mut added = Vec::new();
    for minute in 1..=30 {
        let events = world.wait(MINUTE);
        added.extend(events.iter().filter_map(|event| match event {
            Event::AgentAdded { agent, .. } => Some((minute, *agent)),
            _ => None,
        }));
    }
    assert_eq!(added, [(2, dev(2)), (4, dev(3))]);
}

/// WRK-25: an empty queue for five minutes sends the extra developer away, and only that one.
#[test]
fn an_empty_queue_sends_the_extra_developer_away() {
    let mut world = crowded(ScalingMode::ByRole, 5);
    world.wait(2 * MINUTE);
    while let Some(name) = world.working().first().cloned() {
        world.succeed(&name);
    }
    assert_eq!(world.wait(5 * MINUTE - 1), []);
    let reason = ScaleReason::QueueEmpty { for_ms: 5 * MINUTE };
    let retired = Event::AgentRetired { agent: dev(2), reason, by: Actor::kapelle() };
    assert_eq!(world.wait(1), [retired]);
    assert_eq!(world.state().agents().get(dev(2)).unwrap().presence(), Presence::Offline);
    assert_eq!(world.state().wake_at(), None, "an idle team is not looked at again and again");
}

/// WRK-26: who is sent away at work finishes its attempt and gets no other.
#[test]
fn an_agent_that_drains_finishes_its_attempt_and_gets_no_other() {
    let mut world = crowded(ScalingMode::Off, 10);
    world.must(up("release day"));
    assert_eq!(world.working().len(), 2);
    let events = world.must(down("too loud"));
    let line = "Scaling down - retiring developer-2, after its task (reason: too loud)";
    assert_eq!(said(&world, &events), [line]);
    let name = |world: &World| {
        let agent = world.state().agents().get(dev(2)).unwrap();
        Some(world.state().task(agent.current_task()?).unwrap().name().to_owned())
    };
    let drained = name(&world).unwrap();
    world.finish(&drained, done(77, &["a"]));
    assert_eq!(name(&world), None);
    assert_eq!(world.state().agents().get(dev(2)).unwrap().presence(), Presence::Offline);
    assert_eq!(world.working().len(), 1, "the others wait for the one who is left");
}

/// WRK-28: a person need not wait for windows, but the limits are theirs too.
#[test]
fn a_person_scales_within_the_limits_with_a_reason() {
    let mut world = crowded(ScalingMode::Off, 10);
    let min = Err(Refusal::Scale(ScaleRefusal::AtMin { role: Role::Developer, min: 1 }));
    assert_eq!(world.send(down("quiet")), min);
    assert_eq!(world.send(up(" ")), Err(Refusal::Missing { what: "the reason" }));
    world.must(up("release day"));
    world.must(up("release day"));
    let max = Err(Refusal::Scale(ScaleRefusal::AtMax { role: Role::Developer, max: 3 }));
    assert_eq!(world.send(up("release day")), max);
    let change = ManualScale::Up { reason: "why not".into() };
    let judge = Command::Scale { role: Role::Judge, change, by: ann() };
    let none = Err(Refusal::Scale(ScaleRefusal::NotScaled { role: Role::Judge }));
    assert_eq!(world.send(judge), none);
    world.must(team(3, 10));
    let kept = Err(Refusal::Scale(ScaleRefusal::OnlyPermanent { role: Role::Developer }));
    assert_eq!(world.send(down("quiet")), kept);
}

/// WRK-27: no more agents near a rate limit; said once, looked at again with every sample, and
/// `why` knows it.
#[test]
fn a_rate_limit_refuses_more_agents_until_it_relaxes() {
    let mut world = crowded(ScalingMode::ByRole, 10);
    assert_eq!(world.must(Command::ReportRateUse { permille: 500 }), [], "nothing to remember");
    world.wait(MINUTE + MINUTE / 2);
    let told = Event::RateUseReported { permille: 800 };
    assert_eq!(world.must(Command::ReportRateUse { permille: 800 }), [told]);
    assert_eq!(world.must(Command::ReportRateUse { permille: 810 }), [], "known already");
    let refused = world.wait(MINUTE / 2);
    assert_eq!(said(&world, &refused), ["Scale-up blocked (reason: API rate limit at 80%)"]);
    let waiting = why(world.state(), world.task("9")).unwrap();
    assert_eq!(waiting, "waits for a free developer; no more are added: API rate limit at 80%");
    let by_hand = Refusal::Scale(ScaleRefusal::RateLimit { permille: 800 });
    assert_eq!(world.send(up("now")), Err(by_hand));
    let again = world.wait(MINUTE / 2);
    assert!(matches!(again[..], [Event::ScaleRefused { repeated: true, .. }]), "{again:?}");
    assert_eq!(said(&world, &again), Vec::<String>::new());
    world.must(Command::ReportRateUse { permille: 300 });
    let events = world.wait(MINUTE / 2);
    assert!(matches!(events[0], Event::AgentAdded { .. }), "{events:?}");
}

/// A gateway that died while a limit was tight must not hold the team small for ever.
#[test]
fn an_old_report_of_a_rate_limit_is_forgotten() {
    let mut world = crowded(ScalingMode::ByRole, 10);
    world.must(Command::ReportRateUse { permille: 900 });
    let mut events = Vec::new();
    for _ in 0..5 {
        events.extend(world.wait(MINUTE / 2));
    }
    assert!(events.iter().any(|event| matches!(event, Event::AgentAdded { .. })), "{events:?}");
}

/// C-38: a warning at 80 % of what extra agents may cost in a day, once; half of it is none (E-33).
#[test]
fn people_are_warned_before_the_money_for_extra_agents_ends() {
    let mut world = crowded(ScalingMode::ByRole, 20);
    world.wait(2 * MINUTE);
    let bill = |world: &mut World, cents: u64| {
        world.wait(10 * MINUTE);
        let fence = world.state().agents().get(dev(2)).unwrap().fence().unwrap();
        let spent = Spending { usd: Usd::cents(cents), ..Spending::default() };
        let outcome = done(90 + cents, &["a"]);
        let events = world.must(Command::FinishAttempt { fence, outcome, spent });
        let of_scaling = events.into_iter().filter_map(|event| match event {
            Event::SpendingWarned { warning, .. } if warning.limit == Limit::ScalingDay => {
                Some((warning.spent, warning.cap))
            }
            _ => None,
        });
        of_scaling.collect::<Vec<_>>()
    };
    assert_eq!(bill(&mut world, 200), []);
    assert_eq!(bill(&mut world, 199), []);
    assert_eq!(bill(&mut world, 1), [(Usd::cents(400), Usd::cents(500))]);
    assert_eq!(bill(&mut world, 50), [], "said once");
}

/// WRK-27: what extra agents cost in a day is bounded; the next day is a new one.
#[test]
fn the_money_for_extra_agents_ends_with_the_day() {
    let mut world = crowded(ScalingMode::ByRole, 20);
    world.wait(2 * MINUTE);
    let agent = world.state().agents().get(dev(2)).unwrap();
    let fence = agent.fence().unwrap();
    let spent = Spending { usd: Usd::cents(500), ..Spending::default() };
    // More than was reserved pauses the mission; a person lets it go on.
    world.must(Command::FinishAttempt { fence, outcome: done(90, &["a"]), spent });
    world.must(Command::ResumeMission { mission: crate::fixture::M1, by: ann() });
    let events = world.wait(2 * MINUTE);
    let line = "Scale-up blocked (reason: Daily budget: $5.00 / $5.00 \
                (scaling paused until budget resets or increased))";
    assert!(said(&world, &events).contains(&line.to_owned()), "{events:?}");
    let tomorrow = 24 * 60 * MINUTE - world.now.0 % (24 * 60 * MINUTE);
    let events = world.wait(tomorrow);
    assert!(events.iter().any(|event| matches!(event, Event::AgentAdded { .. })), "{events:?}");
}

/// WRK-29: a range of depths asks for a team; beyond the last one, somebody should know.
#[test]
fn the_step_policy_jumps_to_the_team_of_the_table() {
    let mut world = crowded(ScalingMode::BySteps, 100);
    let events = world.wait(MINUTE / 2);
    let added = events.iter().filter(|event| matches!(event, Event::AgentAdded { .. })).count();
    assert_eq!(added, 11, "one is there, twelve are asked for");
    let line = "Scaling up - spawning developer-12 (reason: 99 waiting ask for 12 agents)";
    assert!(said(&world, &events).contains(&line.to_owned()));
    world.online();
    assert_eq!(world.working().len(), 10, "workers_max holds all the same");
    let events = world.wait(MINUTE / 2);
    assert_eq!(events, [Event::QueueBackedUp { role: Role::Developer, depth: 90 }]);
    assert_eq!(world.wait(10 * MINUTE), [], "said once");
}

/// WRK-29: depth 0 and more than four idle: one leaves at a time, down to four.
#[test]
fn the_step_policy_shrinks_to_its_minimum() {
    let mut world = crowded(ScalingMode::BySteps, 7);
    world.wait(MINUTE / 2);
    while let Some(name) = world.working().first().cloned() {
        world.succeed(&name);
    }
    for _ in 0..20 {
        world.wait(MINUTE);
    }
    assert_eq!(world.state().agents().team().count(), 4);
    assert_eq!(world.state().wake_at(), None);
}

#[test]
fn scaling_rules_that_cannot_work_are_refused() {
    let mut world = World::empty();
    let mut settings = Settings::default();
    settings.scaling.by_role.sample_ms = 0;
    let refused = world.send(Command::ChangeSettings { settings: Box::new(settings), by: ann() });
    let range = matches!(
        refused,
        Err(Refusal::InvalidSettings(InvalidSettings::Scaling(InvalidScaling::Range { .. })))
    );
    assert!(range, "{refused:?}");
    let mut settings = Settings::default();
    settings.scaling.by_steps.steps.clear();
    let refused = world.send(Command::ChangeSettings { settings: Box::new(settings), by: ann() });
    assert!(matches!(refused, Err(Refusal::InvalidSettings(_))), "{refused:?}");
}

/// A person who configures the team means the whole team.
#[test]
fn configuring_the_same_team_again_sends_extra_agents_away() {
    let mut world = crowded(ScalingMode::Off, 1);
    assert_eq!(world.must(team(1, 10)), [], "it is so already");
    world.must(up("release day"));
    assert!(matches!(world.must(team(1, 10))[..], [Event::TeamChanged { .. }]));
    assert_eq!(world.state().agents().team().count(), 1);
}

/// Rules that change while the queue is long start its window anew, and leave no timer behind.
#[test]
fn turning_scaling_off_stops_the_clock() {
    let mut world = crowded(ScalingMode::ByRole, 10);
    world.wait(MINUTE);
    world.must(ruled(ScalingMode::Off));
    assert_eq!(world.wait(10 * MINUTE), []);
    world.must(ruled(ScalingMode::ByRole));
    assert_eq!(world.wait(2 * MINUTE - 1), []);
    assert_eq!(world.wait(1).len(), 2);
}

#[test]
fn a_second_mission_waits_in_the_same_queue() {
    let mut world = crowded(ScalingMode::ByRole, 3);
    assert_eq!(world.state().wake_at().map(|at| at > world.now.plus_ms(3 * MINUTE)), Some(true));
    let Command::OpenMission { goal, target, base, plan, policy, by, .. } =
        open(many(3), Policy::default())
    else {
        unreachable!()
    };
    let request = RequestId("r2".into());
    world.must(Command::OpenMission { request, goal, target, base, plan, policy, by });
    world.chores();
    let events = world.wait(2 * MINUTE);
    assert!(events.iter().any(|event| matches!(event, Event::AgentAdded { .. })), "{events:?}");
}

/// WRK-08: an agent that prints nothing is spoken of once; it goes on, and is heard of when it prints
/// again.
#[test]
fn a_silent_agent_is_spoken_of_once_until_it_prints_again() {
    let mut world = crowded(ScalingMode::Off, 1);
    let fence = world.fence_of("1");
    let begun = world.now;
    let heard = |at| Command::ReportOutput { heard: vec![(fence, at)] };
    assert_eq!(world.state().output_due_at(fence, begun, begun), Some(begun.plus_ms(300_001)));
    world.now = begun.plus_ms(300_000);
    assert_eq!(world.must(heard(begun)), [], "not above 300 s yet");
    world.now = begun.plus_ms(301_500);
    let events = world.must(heard(begun));
    let idle = "WARNING: developer-1 idle for 301s";
    let notice = "needs a person: m1: an agent has printed nothing for long";
    assert_eq!(said(&world, &events), [idle, notice]);
    let told = why(world.state(), world.task("1")).unwrap();
    assert!(told.starts_with("developer-1 has printed nothing since "), "{told}");
    let told_at = world.now;
    world.now = begun.plus_ms(900_000);
    assert_eq!(world.must(heard(begun)), [], "once is enough");
    let soon = Some(told_at.plus_ms(30_000));
    assert_eq!(world.state().output_due_at(fence, begun, told_at), soon, "it may print again");
    let events = world.must(heard(begun.plus_ms(890_000)));
    assert_eq!(said(&world, &events), ["developer-1 prints again"]);
    assert_eq!(why(world.state(), world.task("1")), None);
    world.now = begun.plus_ms(1_191_000);
    let events = world.must(heard(begun.plus_ms(890_000)));
    assert_eq!(said(&world, &events), [idle, notice], "another silence");
    world.finish("1", done(7, &["a"]));
    assert_eq!(world.must(heard(begun)), [], "nobody listens to what has ended");
}

/// WRK-20: a migration may be silent for half an hour, so it is not out of time after ten minutes;
/// what a person said about the time of a role holds.
#[test]
fn work_that_may_be_silent_for_long_has_at_least_as_long() {
    let deadline = |kind, timeouts: BTreeMap<Role, u64>| {
        let policy = Policy {
            heartbeat: Some(HeartbeatPolicy::default()),
            attempt_timeout_ms: timeouts,
            ..checked()
        };
        let mut world = World::with(vec![PlannedTask { kind, ..task("1", &[]) }], policy);
        world.chores();
        let lease = world.state().lease(world.fence_of("1")).unwrap();
        (lease.expires_at.ms_since(world.now), lease.deadline.ms_since(world.now))
    };
    let none = BTreeMap::new;
    assert_eq!(deadline(TaskKind::Migration, none()), (30 * MINUTE, 30 * MINUTE));
    assert_eq!(deadline(TaskKind::Review, none()), (5 * MINUTE, 10 * MINUTE));
    let said = [(Role::Developer, 2 * MINUTE)].into();
    assert_eq!(deadline(TaskKind::Migration, said), (30 * MINUTE, 2 * MINUTE));
}
