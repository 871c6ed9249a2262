//! Elastic scaling on a virtual clock: the two activity logs of the sources, and a day of traffic.

use kapelle_core::agents::{Permanence, Presence, Registry};
use kapelle_core::scaling::{
    InvalidScaling, ManualScale, Pressure, Scale, ScaleReason, ScaleRefusal, Scaler, ScalingPolicy,
};
use kapelle_core::{AgentId, Fence, Role, TaskId, Timestamp, Usd};

const SECOND: u64 = 1_000;
const NO_PRESSURE: Pressure = Pressure { rate_limit_permille: 0, spent_today: Usd::ZERO };

fn at(hours: u64, minutes: u64, seconds: u64) -> Timestamp {
    Timestamp(((hours * 60 + minutes) * 60 + seconds) * SECOND)
}

fn tester(seat: u32) -> AgentId {
    AgentId { role: Role::Tester, seat }
}

/// The first agent of each role is permanent, as in the sources.
fn team(testers: u32) -> Registry {
    let mut registry = Registry::default();
    for seat in 1..=testers {
        let permanence = if seat == 1 { Permanence::Permanent } else { Permanence::Extra };
        registry.joined(tester(seat), permanence, at(0, 0, 0));
    }
    registry
}

struct World {
    policy: ScalingPolicy,
    scaler: Scaler,
    registry: Registry,
    pressure: Pressure,
}

impl World {
    fn with(testers: u32) -> World {
        let (policy, scaler) = (ScalingPolicy::default(), Scaler::default());
        World { policy, scaler, registry: team(testers), pressure: NO_PRESSURE }
    }

    fn depth(&mut self, depth: u32, now: Timestamp) {
        self.scaler.depth_changed(&self.policy, Role::Tester, depth, now);
    }

    fn decide(&self, now: Timestamp) -> Option<Result<Scale, ScaleRefusal>> {
        self.scaler.decide(&self.policy, &self.registry, Role::Tester, self.pressure, now)
    }

    fn wake_at(&self) -> Option<Timestamp> {
        self.scaler.wake_at(&self.policy, &self.registry, Role::Tester)
    }

    /// Records what was decided, as the journal would; returns the line of the activity log.
    fn act(&mut self, now: Timestamp) -> Option<String> {
        match self.decide(now)? {
            Ok(Scale::Up { agent, reason }) => {
                self.registry.joined(agent, Permanence::Extra, now);
                self.scaler.scaled(Role::Tester, now);
                Some(format!("Scaling up - spawning {agent} (reason: {reason})"))
            }
            Ok(Scale::Down { agent, reason }) => {
                self.registry.retired(agent, now);
                self.scaler.scaled(Role::Tester, now);
                Some(format!("Scaling down - retiring {agent} (reason: {reason})"))
            }
            Err(refusal) => {
                let news = self.scaler.is_news(Role::Tester, &refusal);
                let line = news.then(|| format!("Scale-up blocked (reason: {refusal})"));
                self.scaler.refused(Role::Tester, refusal, now);
                line
            }
        }
    }
}

/// T-19, the first log: 6 at 10:00:00, 7 at 10:02:00, a second tester at 10:02.
#[test]
fn a_long_queue_adds_a_tester_after_two_minutes() {
    let mut world = World::with(1);
    world.depth(6, at(10, 0, 0));
    world.depth(7, at(10, 1, 59));
    assert_eq!(world.wake_at(), Some(at(10, 2, 0)));
    assert_eq!(world.act(at(10, 1, 59)), None);
    let line = "Scaling up - spawning tester-2 (reason: queue > 5 for 2 minutes)";
    assert_eq!(world.act(at(10, 2, 0)).as_deref(), Some(line));
    assert_eq!(world.registry.get(tester(2)).map(|a| a.presence()), Some(Presence::Idle));
}

/// T-19, the second log: empty at 10:30:01, tester-2 leaves at 10:35:01, three agents are left.
#[test]
fn an_empty_queue_retires_the_extra_tester_after_five_minutes() {
    let mut world = World::with(2);
    world.depth(1, at(10, 20, 0));
    world.depth(0, at(10, 30, 1));
    assert_eq!(world.wake_at(), Some(at(10, 35, 1)));
    assert_eq!(world.act(at(10, 35, 0)), None);
    let line = "Scaling down - retiring tester-2 (reason: queue empty for 5 minutes)";
    assert_eq!(world.act(at(10, 35, 1)).as_deref(), Some(line));
    assert_eq!(world.registry.get(tester(2)).map(|a| a.presence()), Some(Presence::Offline));
    assert_eq!(world.decide(at(11, 0, 0)), None, "one tester stays");
    assert_eq!(world.wake_at(), None, "an idle team is not looked at again and again");
}

/// The third log, with the sums put right (C-38): 80 % of a rate limit, all of the day's money.
#[test]
fn rate_limit_and_budget_block_more_agents_and_say_so_once() {
    let mut world = World::with(1);
    world.depth(6, at(10, 58, 0));
    world.pressure.rate_limit_permille = 800;
    let blocked = "Scale-up blocked (reason: API rate limit at 80%)";
    assert_eq!(world.act(at(11, 0, 0)).as_deref(), Some(blocked));
    assert_eq!(world.wake_at(), Some(at(11, 0, 30)), "looked at again with the next sample");
    assert_eq!(world.act(at(11, 0, 30)), None, "said once");
    let spent_today = Usd::cents(500);
    world.pressure = Pressure { rate_limit_permille: 799, spent_today };
    let broke = "Scale-up blocked (reason: Daily budget: $5.00 / $5.00 (scaling paused until budget resets or increased))";
    assert_eq!(world.act(at(11, 1, 0)).as_deref(), Some(broke));
    world.pressure.spent_today = Usd::cents(250);
    assert!(!world.pressure.warns(&world.policy), "half is not exceeded (E-33)");
    assert!(world.act(at(11, 1, 30)).is_some_and(|line| line.starts_with("Scaling up")));
    world.pressure.spent_today = Usd::cents(400);
    assert!(world.pressure.warns(&world.policy));
}

/// A burst that ends before two minutes have passed costs nothing.
#[test]
fn only_what_lasts_counts() {
    let mut world = World::with(1);
    world.depth(9, at(10, 0, 0));
    world.depth(5, at(10, 1, 0));
    world.depth(9, at(10, 1, 1));
    assert_eq!(world.decide(at(10, 3, 0)), None);
    assert!(world.decide(at(10, 3, 1)).is_some_and(|decision| decision.is_ok()));
    world.depth(0, at(10, 4, 0));
    world.depth(1, at(10, 8, 59));
    world.depth(0, at(10, 9, 0));
    assert_eq!(world.decide(at(10, 13, 0)), None);
}

/// WRK-26: two minutes between two changes, never above the maximum.
#[test]
fn the_cooldown_and_the_maximum_hold() {
    let mut world = World::with(1);
    world.policy.roles.get_mut(&Role::Tester).unwrap().scale_up_after_seconds = 60;
    world.depth(50, at(10, 0, 0));
    let added = |line: Option<String>| line.is_some_and(|line| line.starts_with("Scaling up"));
    assert!(added(world.act(at(10, 1, 0))));
    let until = at(10, 3, 0);
    assert_eq!(world.decide(at(10, 2, 59)), None);
    assert_eq!(world.wake_at(), Some(until));
    assert!(added(world.act(until)));
    let full = ScaleRefusal::AtMax { role: Role::Tester, max: 3 };
    assert_eq!(world.decide(at(12, 0, 0)), Some(Err(full)));
    assert_eq!(world.wake_at(), None);
}

/// A new agent needs a moment to shorten the queue; the window starts again with it.
#[test]
fn after_a_change_the_queue_has_to_show_anew_that_it_is_long() {
    let mut world = World::with(1);
    world.policy.roles.get_mut(&Role::Tester).unwrap().cooldown_seconds = 10;
    world.depth(50, at(10, 0, 0));
    assert!(world.act(at(10, 2, 0)).is_some());
    assert_eq!(world.decide(at(10, 3, 59)), None);
    assert!(world.decide(at(10, 4, 0)).is_some());
}

/// WRK-12: permanent agents stay even where the minimum would let them go.
#[test]
fn permanent_agents_are_never_scaled_down() {
    let mut world = World::with(1);
    world.registry.joined(tester(2), Permanence::Permanent, at(0, 0, 0));
    world.depth(0, at(10, 0, 0));
    assert_eq!((world.decide(at(11, 0, 0)), world.wake_at()), (None, None));
    let down = ManualScale::Down { reason: "quiet day".into() };
    let World { policy, scaler, registry, .. } = &world;
    let refused = scaler.manual(policy, registry, Role::Tester, down, NO_PRESSURE);
    assert_eq!(refused, Err(ScaleRefusal::OnlyPermanent { role: Role::Tester }));
}

/// An empty queue before a team at work shows that the team has the right size: whoever is sent
/// away then is missed in the next minute.
#[test]
fn only_an_agent_that_was_idle_all_the_time_leaves() {
    let mut world = World::with(3);
    world.registry.took(tester(3), TaskId(1), Fence(1), at(9, 0, 0));
    world.registry.took(tester(2), TaskId(2), Fence(2), at(9, 0, 0));
    world.depth(0, at(10, 0, 0));
    assert_eq!((world.decide(at(10, 30, 0)), world.wake_at()), (None, None));
    world.registry.finished(tester(2), at(10, 31, 0));
    assert_eq!(world.wake_at(), Some(at(10, 36, 0)));
    assert_eq!(world.decide(at(10, 35, 59)), None);
    let line = "Scaling down - retiring tester-2 (reason: queue empty for 5 minutes)";
    assert_eq!(world.act(at(10, 36, 0)).as_deref(), Some(line));
}

/// WRK-26: who is sent away by a person at work finishes first.
#[test]
fn a_busy_agent_is_sent_away_only_by_a_person_and_finishes_first() {
    let mut world = World::with(2);
    world.registry.took(tester(2), TaskId(1), Fence(1), at(9, 0, 0));
    let down = ManualScale::Down { reason: "quiet day".into() };
    let World { policy, scaler, registry, .. } = &mut world;
    let leaves = scaler.manual(policy, registry, Role::Tester, down, NO_PRESSURE);
    assert!(matches!(leaves, Ok(Scale::Down { agent, .. }) if agent == tester(2)));
    registry.retired(tester(2), at(10, 0, 0));
    assert_eq!(registry.get(tester(2)).map(|a| a.presence()), Some(Presence::Active));
    registry.finished(tester(2), at(10, 1, 0));
    assert_eq!(registry.get(tester(2)).map(|a| a.presence()), Some(Presence::Offline));
}

/// WRK-28: a person need not wait for the windows, but the limits are theirs too.
#[test]
fn a_person_scales_by_hand_within_the_limits() {
    let mut world = World::with(2);
    let manual = |world: &World, by| {
        world.scaler.manual(&world.policy, &world.registry, Role::Tester, by, world.pressure)
    };
    let reason = "release day".to_owned();
    let up = ManualScale::Up { reason: reason.clone() };
    let text = reason.clone();
    let expected = Scale::Up { agent: tester(3), reason: ScaleReason::Person { text } };
    assert_eq!(manual(&world, up.clone()), Ok(expected));
    world.pressure.rate_limit_permille = 950;
    assert_eq!(manual(&world, up.clone()), Err(ScaleRefusal::RateLimit { permille: 950 }));
    world.pressure = NO_PRESSURE;
    let cap = world.policy.daily_usd_max;
    world.pressure.spent_today = cap;
    assert_eq!(manual(&world, up.clone()), Err(ScaleRefusal::Budget { spent: cap, cap }));
    world.pressure = NO_PRESSURE;
    world.registry.joined(tester(3), Permanence::Extra, at(0, 0, 0));
    assert_eq!(manual(&world, up), Err(ScaleRefusal::AtMax { role: Role::Tester, max: 3 }));
    let down = ManualScale::Down { reason };
    assert!(
        matches!(manual(&world, down.clone()), Ok(Scale::Down { agent, .. }) if agent.seat == 3)
    );
    let registry = team(1);
    let last =
        world.scaler.manual(&world.policy, &registry, Role::Tester, down.clone(), NO_PRESSURE);
    assert_eq!(last, Err(ScaleRefusal::AtMin { role: Role::Tester, min: 1 }));
    let judge = world.scaler.manual(&world.policy, &registry, Role::Judge, down, NO_PRESSURE);
    assert_eq!(judge, Err(ScaleRefusal::NotScaled { role: Role::Judge }));
}

#[test]
fn the_rules_are_those_of_the_table_and_bad_ones_are_refused() {
    let text = r#"{"roles": {"tester": {"min": 1, "max": 3, "scaleUpThreshold": 5,
        "scaleDownThreshold": 0, "cooldownSeconds": 120},
        "developer": {"min": 1, "max": 3, "scaleUpThreshold": 3}}}"#;
    assert_eq!(serde_json::from_str::<ScalingPolicy>(text).unwrap(), ScalingPolicy::default());
    let role = Role::Tester;
    let wrong = |min, max, up, down| {
        let mut policy = ScalingPolicy::default();
        let rule = policy.roles.get_mut(&role).unwrap();
        (rule.min, rule.max) = (min, max);
        (rule.scale_up_threshold, rule.scale_down_threshold) = (up, down);
        policy.validate()
    };
    assert_eq!(wrong(1, 3, 5, 0), Ok(()));
    assert_eq!(wrong(0, 3, 5, 0), Err(InvalidScaling::NoAgents { role }));
    assert_eq!(wrong(4, 3, 5, 0), Err(InvalidScaling::MinOverMax { role, min: 4, max: 3 }));
    assert_eq!(wrong(1, 65, 5, 0), Err(InvalidScaling::TooMany { role, max: 65 }));
    assert_eq!(wrong(1, 3, 5, 5), Err(InvalidScaling::Thresholds { role }));
    let policy = ScalingPolicy { sample_ms: 0, ..ScalingPolicy::default() };
    assert!(matches!(policy.validate(), Err(InvalidScaling::Range { field: "sample_ms", .. })));
}

/// A fixed series that looks random.
fn noise(n: u64) -> u64 {
    let mixed = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

struct Day {
    mean_depth: f64,
    changes: u32,
    busy_percent: u64,
}

/// A day of tests that take five minutes, one every 390 s, and more often in two rushes of three
/// hours.
fn day(rush_seconds: u64) -> Day {
    const DAY_SECONDS: u64 = 24 * 3_600;
    let mut world = World::with(1);
    let mut waiting: u32 = 0;
    let mut ends: Vec<(u64, AgentId)> = Vec::new();
    let (mut depths, mut busy, mut online, mut changes) = (0u64, 0u64, 0u64, 0u32);
    let (mut next_arrival, mut arrivals) = (0, 0);
    for second in 0..DAY_SECONDS {
        let now = Timestamp(second * SECOND);
        while second >= next_arrival {
            waiting += 1;
            arrivals += 1;
            let hour = second / 3_600;
            let rush = (9..12).contains(&hour) || (14..17).contains(&hour);
            let mean = if rush { rush_seconds } else { 390 };
            next_arrival += mean / 2 + noise(arrivals) % mean;
        }
        for (_, agent) in ends.extract_if(.., |(end, _)| *end <= second) {
            world.registry.finished(agent, now);
        }
        while waiting > 0 {
            let free = world.registry.of(Role::Tester).find(|(_, agent)| agent.takes_work());
            let Some(agent) = free.map(|(id, _)| id) else { break };
            waiting -= 1;
            world.registry.took(agent, TaskId(1), Fence(1), now);
            ends.push((second + 300, agent));
        }
        world.depth(waiting, now);
        if world.wake_at().is_some_and(|due| due <= now)
            && world.act(now).is_some_and(|line| line.starts_with("Scaling"))
        {
            changes += 1;
        }
        depths += u64::from(waiting);
        busy += ends.len() as u64;
        online += world.registry.of(Role::Tester).filter(|(_, a)| a.online).count() as u64;
    }
    let mean_depth = depths as f64 / DAY_SECONDS as f64;
    Day { mean_depth, changes, busy_percent: busy * 100 / online }
}

/// T-04, T-05, T-06: below capacity, whatever the rush: short queues, busy agents, few changes.
#[test]
fn a_day_of_traffic_scales_seldom_keeps_queues_short_and_agents_busy() {
    for rush_seconds in [390, 250, 200, 170, 150, 130, 115] {
        let Day { mean_depth, changes, busy_percent } = day(rush_seconds);
        println!(
            "a task every {rush_seconds} s in the rush: mean depth {mean_depth:.2}, \
             {changes} changes, {busy_percent} % busy"
        );
        assert!(mean_depth < 3.0, "{rush_seconds}: {mean_depth}");
        assert!(changes < 10, "{rush_seconds}: {changes}");
        assert!(busy_percent > 70, "{rush_seconds}: {busy_percent}");
        assert_eq!(changes > 0, rush_seconds < 300, "{rush_seconds}: {changes}");
    }
}
