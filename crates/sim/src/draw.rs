//! Random plans, policies and teams.

use std::collections::BTreeMap;

use fastrand::Rng;
use kapelle_core::failure::RetryPolicy;
use kapelle_core::flow::Phase;
use kapelle_core::plan::{Plan, PlannedTask, Priority};
use kapelle_core::policy::{Budget, Check, Policy, Reading};
use kapelle_core::time::SECOND_MS;
use kapelle_core::{Role, Usd};

/// The question that some policies answer beforehand.
pub(crate) const ANSWERED_BEFOREHAND: &str = "beforehand";

pub(crate) fn plan(rng: &mut Rng) -> Plan {
    let count = if rng.bool() { rng.usize(1..=4) } else { rng.usize(1..=12) };
    let shape = rng.u8(0..4);
    let task = |index: usize, rng: &mut Rng| PlannedTask {
        id: format!("t{index}"),
        title: format!("task {index}"),
        description: String::new(),
        priority: match rng.u8(0..4) {
            0 => Priority::Low,
            1 => Priority::Medium,
            2 => Priority::High,
            _ => Priority::Critical,
        },
        dependencies: needs(shape, index, count, rng).iter().map(|n| format!("t{n}")).collect(),
        files: Vec::new(),
        estimated_duration_minutes: rng.bool().then(|| rng.u32(1..60)),
        ..PlannedTask::default()
    };
    Plan { goal: None, tasks: (0..count).map(|index| task(index, rng)).collect() }
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

pub(crate) fn policy(rng: &mut Rng) -> Policy {
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
    let timeout = if rng.u8(0..32) == 0 { 0 } else { rng.u64(5..40) * SECOND_MS };
    let answers = match rng.bool() {
        true => BTreeMap::from([(ANSWERED_BEFOREHAND.to_owned(), "yes".to_owned())]),
        false => BTreeMap::new(),
    };
    Policy {
        flow,
        tests: if rng.bool() { vec!["tests/**".into()] } else { Vec::new() },
        checks,
        attempt_timeout_ms: BTreeMap::from([(Role::Developer, timeout), (Role::Tester, timeout)]),
        lease_ttl_ms: rng.u64(3..20) * SECOND_MS,
        retry: RetryPolicy {
            backoff_base_ms: rng.u64(0..3_000),
            backoff_max_ms: rng.u64(1_000..20_000),
        },
        budget: Budget { mission_usd_max: cap, attempt_usd_max: attempt },
        answers,
        ..Policy::default()
    }
}

/// Seats for both roles that the flows know, and how many may work at the same time.
pub(crate) fn team(rng: &mut Rng) -> (BTreeMap<Role, u32>, u32) {
    let seats = BTreeMap::from([(Role::Developer, rng.u32(1..=4)), (Role::Tester, rng.u32(1..=3))]);
    (seats, rng.u32(1..=5))
}
