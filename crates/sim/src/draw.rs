//! Random plans, policies and teams.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use kapelle_core::agents::{Hardware, HeartbeatPolicy, Profile, TeamRules};
use kapelle_core::approval::{ApprovalPolicy, Level};
use kapelle_core::breaker::{BreakerPolicy, Reset};
use kapelle_core::checklist::Source;
use kapelle_core::council::{self, CouncilPolicy, Defect, Member, Quorum, Size, Switch};
use kapelle_core::escalation::{EscalationPolicy, NoticePolicy, RatePolicy};
use kapelle_core::failure::{FailureKind, RetryPolicy};
use kapelle_core::flaky::FlakyPolicy;
use kapelle_core::flow::Phase;
use kapelle_core::ledger::{self, Caps, Shares, WatchdogPolicy};
use kapelle_core::locks::LockPolicy;
use kapelle_core::merge::MergePolicy;
use kapelle_core::plan::batch::BatchPolicy;
use kapelle_core::plan::estimate::{CapBy, CostRules, Price};
use kapelle_core::plan::gaps::GapPolicy;
use kapelle_core::plan::{Plan, PlanPolicy, PlannedTask, Priority, TaskKind, ValidationCriteria};
use kapelle_core::policy::{Budget, Check, Policy, Reading};
use kapelle_core::price::{self, Prices};
use kapelle_core::queue::{Contention, Preemption, QueuePolicy, Strategy, Territories};
use kapelle_core::rate::{self, Provider, Throughput};
use kapelle_core::routing::{self, Catalogue, Lineage, Model, Tier};
use kapelle_core::scaling::{
    RoleScaling, ScalingMode, ScalingPolicy, ScalingRules, Step, StepPolicy,
};
use kapelle_core::settings::Settings;
use kapelle_core::state::UNROUTED;
use kapelle_core::time::SECOND_MS;
use kapelle_core::{AgentId, Role, Timestamp, Usd};

/// The question that some policies answer beforehand.
pub(crate) const ANSWERED_BEFOREHAND: &str = "beforehand";

pub(crate) fn plan(rng: &mut Rng) -> Plan {
    let count = if rng.bool() { rng.usize(1..=4) } else { rng.usize(1..=12) };
    let shape = rng.u8(0..4);
    // Tasks that are alike and near are batched.
    let alike = rng.u8(0..3) == 0;
    let kind_of_all = kind(rng);
    // Tasks that stand or fall together.
    let waves = rng.u8(0..3) == 0;
    let task = |index: usize, rng: &mut Rng| PlannedTask {
        id: format!("t{index}"),
        title: if alike { format!("Add label {index}") } else { format!("task {index}") },
        description: String::new(),
        priority: if alike { Priority::Medium } else { priority(rng) },
        dependencies: needs(shape, index, count, rng).iter().map(|n| format!("t{n}")).collect(),
        files: match rng.u8(0..3) {
            _ if alike => vec![format!("src/ui/{}", rng.u8(0..3))],
            0 => vec![format!("src/{}", rng.u8(0..3)), format!("src/{}", rng.u8(3..6))],
            _ => Vec::new(),
        },
        estimated_duration_minutes: rng.bool().then(|| rng.u32(1..if alike { 12 } else { 60 })),
        file_operation_count: if rng.bool() { 0 } else { rng.u32(1..=3) },
        required_actions: (0..rng.u32(0..4)).map(|n| format!("action {n}")).collect(),
        validation_criteria: ValidationCriteria {
            criteria: (rng.u8(0..4) == 0).then(|| "$ make done".to_owned()).into_iter().collect(),
            ..ValidationCriteria::default()
        },
        kind: if alike { kind_of_all } else { kind(rng) },
        wave: (waves && rng.u8(0..4) > 0).then(|| format!("w{}", rng.u8(0..5) / 4)),
        ..PlannedTask::default()
    };
    Plan { goal: None, tasks: (0..count).map(|index| task(index, rng)).collect() }
}

fn kind(rng: &mut Rng) -> TaskKind {
    TaskKind::ALL[rng.usize(0..TaskKind::ALL.len())]
}

/// What somebody finds missing beside these tasks.
pub(crate) fn gaps(rng: &mut Rng, known: Vec<String>) -> Plan {
    let mut names = known;
    let first = names.len();
    let task = |index: usize, names: &[String], rng: &mut Rng| PlannedTask {
        id: format!("gap{index}"),
        title: format!("missing {index}"),
        wave: (rng.u8(0..8) == 0).then(|| "w0".to_owned()),
        dependencies: (0..rng.usize(0..3))
            .map(|_| names[rng.usize(0..names.len())].clone())
            .collect(),
        ..PlannedTask::default()
    };
    let mut tasks = Vec::new();
    for index in first..first + rng.usize(1..=3) {
        tasks.push(task(index, &names, rng));
        names.push(format!("gap{index}"));
    }
    Plan { goal: None, tasks }
}

/// By what missions are estimated, if at all.
fn cost(rng: &mut Rng) -> Option<CostRules> {
    let cap = match rng.u8(0..6) {
        0 => CapBy::Budget,
        1 => CapBy::Estimate,
        _ => return None,
    };
    let price = Price { input: Usd::cents(rng.u64(1..300)), output: Usd::cents(rng.u64(1..900)) };
    let prices = ["claude-haiku", "claude-sonnet-4.5"].map(|model| (model.to_owned(), price));
    Some(CostRules { prices: prices.into(), cap, ..CostRules::default() })
}

fn plan_policy(rng: &mut Rng) -> PlanPolicy {
    PlanPolicy {
        task_files_advised_max: rng.u32(0..3),
        gaps: GapPolicy { max_gap_retries: rng.u32(0..3) },
        batch: BatchPolicy { tasks_max: rng.u32(1..=4), ..BatchPolicy::default() },
        ..PlanPolicy::default()
    }
}

pub(crate) fn priority(rng: &mut Rng) -> Priority {
    match rng.u8(0..4) {
        0 => Priority::Low,
        1 => Priority::Medium,
        2 => Priority::High,
        _ => Priority::Critical,
    }
}

/// Often the defaults, else anything that is allowed.
fn queue(rng: &mut Rng) -> QueuePolicy {
    if rng.bool() {
        return QueuePolicy::default();
    }
    QueuePolicy {
        strategy: match rng.u8(0..6) {
            0 => Strategy::Serial,
            1 => Strategy::PriorityFifo,
            2 => Strategy::Scored,
            _ => Strategy::CriticalPath,
        },
        duration_divisor: if rng.bool() { 1 } else { 10 },
        ageing_ms_per_point: rng.u64(1..60) * SECOND_MS,
        urgent_permille: rng.u32(0..2_000),
        overtaken_ms_max: rng.u64(0..120) * SECOND_MS,
        contention: if rng.bool() { Contention::Hold } else { Contention::Deprioritise },
        preemption: match rng.u8(0..4) {
            0 => Preemption::Off,
            1 => Preemption::All,
            _ => Preemption::Critical,
        },
        launch_batch: rng.u32(1..=6),
        preempt_after_ms: SECOND_MS,
        preempt_margin_points: rng.u32(1..60),
        preempted_max: rng.u32(0..3),
        ..QueuePolicy::default()
    }
}

/// A chain, a fan, a diamond, or anything.
fn needs(shape: u8, index: usize, count: usize, rng: &mut Rng) -> Vec<usize> {
    match (shape, index) {
        (_, 0) => Vec::new(),
        (0, _) => vec![index - 1],
        (1, _) => vec![0],
        (2, _) if index > 1 && index + 1 == count => (1..index).collect(),
        (2, _) => vec![0],
        _ => (0..index).filter(|_| rng.u8(0..3) == 0).collect(),
    }
}

pub(crate) fn policy(rng: &mut Rng, pace: u64) -> Policy {
    let check = |name: &str| Check {
        name: name.into(),
        command: "true".into(),
        timeout_ms: 1_000,
        reading: Reading::default(),
    };
    let checks: Vec<Check> = match rng.u8(0..4) {
        0 => Vec::new(),
        1 => vec![check("build"), check("test")],
        _ => vec![check("test")],
    };
    let flow = match rng.u8(0..5) {
        _ if checks.is_empty() => vec![Phase::Green],
        0 | 1 => vec![Phase::Red, Phase::Green],
        2 => vec![Phase::Red, Phase::Green, Phase::Refactor],
        _ => vec![Phase::Green],
    };
    let attempt = Usd::cents(rng.u64(0..=50));
    let slots = if rng.bool() { rng.u64(1..=6) } else { 200 };
    let cap = Usd::micros(attempt.as_micros() * slots + rng.u64(0..2) * 5_000);
    // No time at all is a policy that a person can write.
    let timeout = if rng.u8(0..32) == 0 { 0 } else { rng.u64(5..40) * pace * SECOND_MS };
    let answers = match rng.bool() {
        true => BTreeMap::from([(ANSWERED_BEFOREHAND.to_owned(), "yes".to_owned())]),
        false => BTreeMap::new(),
    };
    Policy {
        flow,
        tests: if rng.bool() { vec!["tests/**".into()] } else { Vec::new() },
        checks,
        attempt_timeout_ms: BTreeMap::from([(Role::Developer, timeout), (Role::Tester, timeout)]),
        lease_ttl_ms: rng.u64(3..20) * pace * SECOND_MS,
        heartbeat: (rng.u8(0..6) == 0).then(HeartbeatPolicy::default),
        retry: RetryPolicy {
            backoff_base_ms: rng.u64(0..3_000),
            backoff_max_ms: rng.u64(1_000..20_000),
        },
        budget: Budget { mission_usd_max: cap, attempt_usd_max: attempt },
        answers,
        plan: plan_policy(rng),
        cost: cost(rng),
        checklist: match rng.u8(0..3) {
            0 => Source::Log,
            1 => Source::Llm,
            _ => Source::Hybrid,
        },
        approvals: approvals(rng),
        escalation: escalation(rng),
        failure_rate: failure_rate(rng),
        merge: merge(rng),
        ..Policy::default()
    }
}

/// The rules of the project, with windows short enough for worlds that last minutes.
pub(crate) fn settings(rng: &mut Rng) -> Settings {
    let money = money(rng);
    let notices = NoticePolicy { notices_per_hour_max: rng.u32(1..=6), ..NoticePolicy::default() };
    let queue = queue(rng);
    let locks = LockPolicy { ttl_ms: rng.u64(10..60) * SECOND_MS };
    let routing = (rng.u8(0..3) == 0).then(|| routing(rng));
    Settings {
        territories: territories(rng),
        team: machine(rng),
        scaling: scaling(rng),
        money,
        notices,
        queue,
        locks,
        prices: prices(),
        council: council(rng, routing.is_some()),
        routing,
        rate: rate(rng),
        breakers: breakers(rng),
        flaky: FlakyPolicy {
            contradictions_min: rng.u32(1..=3),
            passes_to_release: rng.u32(1..=3),
        },
        ..Settings::default()
    }
}

/// Where the first seats may work, if that is limited at all.
fn territories(rng: &mut Rng) -> Territories {
    if rng.u8(0..3) > 0 {
        return Territories::default();
    }
    let below = ["src/", "tests/"].map(str::to_owned);
    let few = ["src/0", "src/1", "src/ui/", "tests/0"].map(str::to_owned);
    let mut of = BTreeMap::new();
    for (role, seat) in [(Role::Developer, 1), (Role::Developer, 2), (Role::Tester, 1)] {
        let patterns = if rng.bool() { below.to_vec() } else { few.to_vec() };
        if rng.bool() {
            of.insert(AgentId { role, seat }, patterns);
        }
    }
    Territories::new(of).unwrap_or_default()
}

/// A few models that are in the catalogue too, and where there is none, some more.
pub(crate) fn council(rng: &mut Rng, routed: bool) -> Option<CouncilPolicy> {
    if rng.u8(0..4) == 0 {
        return None;
    }
    let all = if routed { 4 } else { MEMBERS.len() };
    let members = MEMBERS[..all].iter().map(|(model, lineage)| Member::new(model, lineage));
    let (enabled, size) = match rng.u8(0..8) {
        0 => (Switch::ByHand, Size::Standard),
        1 | 2 => (Switch::On, Size::Minimal),
        3 => (Switch::On, Size::Full),
        _ => (Switch::On, Size::Standard),
    };
    let of = rng.u32(2..=3);
    let mut policy = CouncilPolicy {
        enabled,
        models: members.collect(),
        judge: Member::new("west-eco", "west"),
        quorum: Quorum { agree: rng.u32(2..=of), of },
        size,
        strategy: council::Strategy::ALL[rng.usize(0..council::Strategy::ALL.len())],
        trigger_after_retries: if rng.u8(0..4) == 0 { 3 } else { rng.u32(0..2) },
        timeout_ms: rng.u64(1..30) * SECOND_MS,
        ..CouncilPolicy::default()
    };
    // Not drawn, so that the worlds without drills stay what they were.
    let luck = policy.timeout_ms / SECOND_MS;
    if !luck.is_multiple_of(3) {
        policy.lazy.drill_every = 1 + (luck % 4) as u32;
        let defect = |file: &str| Defect { file: file.into(), text: "while i <= n".into() };
        policy.defects = [PLANTED, "src/other.rs"].map(defect).to_vec();
    }
    Some(policy)
}

/// The file that lazy members do not look into.
pub(crate) const PLANTED: &str = "src/planted.rs";

const MEMBERS: [(&str, &str); 6] = [
    ("north-standard", "north"),
    ("south-standard", "south"),
    ("west-standard", "west"),
    ("north-eco", "north"),
    ("east", "east"),
    ("far east", "east"),
];

pub(crate) fn council_names() -> Vec<&'static str> {
    MEMBERS.iter().map(|(model, _)| *model).chain(["nobody"]).collect()
}

fn machine(rng: &mut Rng) -> TeamRules {
    let profile = (rng.u8(0..4) == 0).then_some(Profile::Poc);
    let small = Hardware { ram_mb: 8_192, cores: rng.u32(1..4), disk: None };
    TeamRules { profile, machine: rng.bool().then_some(small) }
}

fn scaling(rng: &mut Rng) -> ScalingRules {
    let rule = |rng: &mut Rng| RoleScaling {
        min: rng.u32(1..=2),
        max: rng.u32(2..=6),
        scale_up_threshold: rng.u32(1..=3),
        scale_down_threshold: 0,
        scale_up_after_seconds: rng.u64(0..8),
        scale_down_after_seconds: rng.u64(0..20),
        cooldown_seconds: rng.u64(0..15),
    };
    let roles = BTreeMap::from([(Role::Developer, rule(rng)), (Role::Tester, rule(rng))]);
    let step = |depth_max, agents| Step { depth_max, agents };
    ScalingRules {
        mode: match rng.u8(0..4) {
            0 => ScalingMode::ByRole,
            1 => ScalingMode::BySteps,
            _ => ScalingMode::Off,
        },
        by_role: ScalingPolicy {
            roles,
            sample_ms: rng.u64(1_000..6_000),
            daily_usd_max: Usd::cents(rng.u64(0..=100)),
            ..ScalingPolicy::default()
        },
        by_steps: StepPolicy {
            role: Role::Developer,
            steps: vec![step(0, 1), step(1, 2), step(2, rng.u32(3..=4))],
            cooldown_ms: rng.u64(0..10_000),
        },
    }
}

/// Some worlds begin shortly before the end of a day, and of a week, and of a month.
pub(crate) fn beginning(rng: &mut Rng) -> Timestamp {
    // Sunday, 2027-01-31, 24:00.
    const MIDNIGHT_MS: u64 = 1_801_440_000_000;
    match rng.u8(0..4) {
        0 => Timestamp(MIDNIGHT_MS - rng.u64(0..240) * SECOND_MS),
        _ => Timestamp(1_000),
    }
}

/// Rules that stand in nobody's way, and nevertheless limit the project.
pub(crate) fn generous() -> Settings {
    let caps = Caps { project_usd_max: Some(Usd::cents(100_000_000)), ..Caps::NONE };
    let watchdog =
        WatchdogPolicy { minute_usd_max: Usd::cents(10_000_000), ..WatchdogPolicy::default() };
    let money = ledger::Policy { caps, pools: None, watchdog, ..ledger::Policy::default() };
    Settings { money, ..Settings::default() }
}

/// Those that the catalogues of these worlds know, and the one that nobody chose.
pub(crate) const PROVIDERS: [&str; 4] = ["north", "south", "west", UNROUTED];

/// A few models of three providers; some worlds lack a key, or know no price of one.
pub(crate) fn routing(rng: &mut Rng) -> routing::Policy {
    let mut models = Vec::new();
    for provider in &PROVIDERS[..3] {
        for tier in Tier::ALL {
            if tier == Tier::Premium && rng.u8(0..3) > 0 {
                continue;
            }
            models.push(Model {
                name: format!("{provider}-{tier}").into(),
                provider: Provider::new(provider),
                lineage: Lineage((*provider).into()),
                tier,
                strengths: BTreeSet::new(),
                enabled: rng.u8(0..6) > 0,
            });
        }
    }
    models[0].enabled = true;
    let without_key = (rng.u8(0..8) == 0).then(|| Provider::new(PROVIDERS[1]));
    let without_key = without_key.into_iter().collect();
    let models = Catalogue(models);
    routing::Policy { models, without_key, ..routing::Policy::default() }
}

/// All models have one but those of the west at their dearest.
pub(crate) fn prices() -> Prices {
    let price = price::Price { input: Usd::cents(1), output: Usd::cents(2) };
    let names = PROVIDERS[..3].iter().flat_map(|p| Tier::ALL.map(|tier| format!("{p}-{tier}")));
    let models = names.filter(|name| name != "west-premium").map(|name| (name, price)).collect();
    Prices { models, unknown: None }
}

fn rate(rng: &mut Rng) -> rate::Policy {
    let narrow = Throughput { requests_per_min: rng.u64(1..60), tokens_per_min: 40_000 };
    let park_ms = rng.u64(1_000..20_000);
    rate::Policy { others: narrow, park_ms, ..rate::Policy::default() }
}

fn breakers(rng: &mut Rng) -> BreakerPolicy {
    BreakerPolicy {
        failures_max: rng.u32(1..4),
        open_ms: rng.u64(1..30) * SECOND_MS,
        provider: if rng.u8(0..4) == 0 { Reset::Manual } else { Reset::HalfOpen },
        mission_failures_max: (rng.u8(0..4) == 0).then(|| rng.u32(1..8)),
    }
}

/// The rules of spending: half of them tight in a few ways.
fn money(rng: &mut Rng) -> ledger::Policy {
    let mut money = generous().money;
    if rng.bool() {
        return money;
    }
    money.bill_ms = rng.u64(0..30) * SECOND_MS;
    let caps = &mut money.caps;
    let narrow = [
        (&mut caps.task_usd_max, 300),
        (&mut caps.agent_usd_max, 600),
        (&mut caps.mission_usd_max, 900),
        (&mut caps.session_usd_max, 1_200),
        (&mut caps.day_usd_max, 1_200),
        (&mut caps.week_usd_max, 1_200),
        (&mut caps.month_usd_max, 1_200),
        (&mut caps.retries_usd_max, 200),
        (&mut caps.council_day_usd_max, 100),
        (&mut caps.council_week_usd_max, 200),
        (&mut caps.scaling_day_usd_max, 400),
    ];
    for (cap, cents_max) in narrow {
        if rng.u8(0..5) == 0 {
            *cap = Some(Usd::cents(rng.u64(0..cents_max)));
        }
    }
    if caps.day_usd_max.is_some() && rng.bool() {
        money.pools = Some(Shares::default());
    }
    if rng.bool() {
        money.watchdog = WatchdogPolicy {
            minute_usd_max: Usd::cents(rng.u64(10..300)),
            grace_ms: rng.u64(0..3) * SECOND_MS,
        };
    }
    if rng.u8(0..4) == 0 {
        money.session_warning_usd = Some(Usd::cents(rng.u64(0..100)));
        money.burn.hour_usd_max = Usd::cents(rng.u64(0..50));
        money.burn.sustained_ms = 0;
    }
    if rng.u8(0..8) == 0 {
        money.tokens.mission_max = Some(rng.u64(0..20_000));
    }
    money
}

/// Who has to be asked about what.
fn approvals(rng: &mut Rng) -> Option<ApprovalPolicy> {
    let level = Level::ALL[rng.usize(0..Level::ALL.len())];
    (rng.u8(0..3) == 0).then(|| ApprovalPolicy {
        level,
        high_risk_people: rng.u32(1..=2),
        second_person_ms_max: rng.u64(1..60) * SECOND_MS,
        ..ApprovalPolicy::default()
    })
}

fn escalation(rng: &mut Rng) -> EscalationPolicy {
    let agreed = EscalationPolicy { lost_max: rng.u32(3..=5), ..EscalationPolicy::default() };
    if rng.bool() {
        return agreed;
    }
    if rng.bool() {
        // Little patience: whatever others could know better goes to them soon.
        let debatable = [
            FailureKind::ValidationFailed,
            FailureKind::AgentError,
            FailureKind::Timeout,
            FailureKind::Hang,
        ];
        return EscalationPolicy {
            test_fixes_max: rng.u32(0..2),
            retries_max: debatable.into_iter().map(|kind| (kind, rng.u32(0..2))).collect(),
            council_after_retries: rng.u32(0..2),
            ..agreed
        };
    }
    let kind = FailureKind::ALL[rng.usize(0..FailureKind::ALL.len())];
    EscalationPolicy {
        test_fixes_max: rng.u32(0..4),
        retries_max: BTreeMap::from([(kind, rng.u32(0..4))]),
        council_after_retries: rng.u32(0..4),
        ..agreed
    }
}

/// Plans here are small; a rate that speaks after ten tasks would never speak.
fn failure_rate(rng: &mut Rng) -> RatePolicy {
    let agreed = RatePolicy::default();
    match rng.u8(0..3) {
        0 => RatePolicy { finished_min: rng.u32(1..5), ..agreed },
        // Warned long before it pauses.
        1 => RatePolicy {
            finished_min: rng.u32(1..4),
            warn_permille: rng.u32(0..=100),
            pause_permille: rng.u32(300..=900),
            ..agreed
        },
        _ => agreed,
    }
}

fn merge(rng: &mut Rng) -> MergePolicy {
    if rng.u8(0..3) == 0 {
        return MergePolicy::default();
    }
    // Where there is but one lane, changes gather before it and go as batches.
    MergePolicy {
        batch_changes_max: rng.u32(1..=5),
        lanes_max: if rng.bool() { 1 } else { rng.u32(1..=4) },
        flake_retries_max: rng.u32(0..=2),
        rebases_max: rng.u32(0..=2),
    }
}

/// Seats for both roles that the flows know, and how many may work at the same time.
pub(crate) fn team(rng: &mut Rng) -> (BTreeMap<Role, u32>, u32) {
    let mut seats =
        BTreeMap::from([(Role::Developer, rng.u32(1..=4)), (Role::Tester, rng.u32(1..=3))]);
    if rng.u8(0..4) == 0 {
        seats.insert(Role::Orchestrator, 1);
    }
    (seats, rng.u32(1..=5))
}
