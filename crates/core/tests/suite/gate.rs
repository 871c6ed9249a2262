//! The dependency gate: what is let through, what stops when something fails, what comes back.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_core::TaskId;
use kapelle_core::gate::{Blocked, CriticalError, Fallout, Found, Gate, GateRefusal, Standing};
use kapelle_core::status::Status;
use proptest::prelude::*;

fn t(n: u32) -> TaskId {
    TaskId(n)
}

/// Tasks in order, each with what it needs.
fn gate(tasks: &[(u32, &[u32])]) -> Gate {
    let mut gate = Gate::default();
    for (task, needs) in tasks {
        let needs: Vec<TaskId> = needs.iter().copied().map(TaskId).collect();
        assert_eq!(gate.check_admission(t(*task), &needs), Ok(()));
        gate.admitted(t(*task), &needs);
    }
    gate
}

fn fail(gate: &mut Gate, task: u32) -> Fallout {
    let fallout = gate.fallout(t(task));
    gate.failed(t(task), &fallout);
    fallout
}

fn blocked(pairs: &[(u32, u32)]) -> Vec<Blocked> {
    pairs.iter().map(|(task, on)| Blocked { task: t(*task), on: t(*on) }).collect()
}

/// QUE-07: the last dependency opens the gate, and only the last.
#[test]
fn a_task_is_let_through_when_all_it_needs_is_done() {
    let mut gate = gate(&[(1, &[]), (2, &[]), (3, &[1, 2, 2])]);
    assert!(gate.is_open(t(1)) && !gate.is_open(t(3)));
    assert_eq!(gate.waits_for(t(3)), 2, "a dependency named twice counts once");
    assert_eq!(gate.completed(t(1)), []);
    assert_eq!(gate.completed(t(1)), [], "a repeated completion must not open the gate");
    assert_eq!(gate.completed(t(2)), [t(3)]);
}

/// QUE-10: the chain behind a failure cannot run, however long it is.
#[test]
fn a_failure_blocks_all_that_waits_behind_it() {
    let mut gate = gate(&[(1, &[]), (2, &[1]), (3, &[2]), (4, &[]), (5, &[3, 4])]);
    let fallout = fail(&mut gate, 1);
    assert_eq!(fallout.blocked, blocked(&[(2, 1), (3, 1), (5, 1)]));
    assert_eq!(fallout.cancelled, []);
    assert_eq!(gate.blocked_on(t(5)), Some(t(1)));
    assert_eq!(gate.blocked_on(t(4)), None);
    assert_eq!(Blocked::reason("1-1"), "Dependency 1-1 failed");
    assert_eq!(gate.completed(t(4)), [], "what is blocked stays out of the queue");
}

/// QUE-10: a rolled back task takes the agents that build on it out of work, and what waits for
/// them waits for something that was cancelled.
#[test]
fn a_failure_cancels_what_runs_behind_it() {
    let mut gate = gate(&[(1, &[]), (2, &[1]), (3, &[2])]);
    gate.completed(t(1));
    gate.started(t(2));
    let fallout = fail(&mut gate, 1);
    assert_eq!(fallout.cancelled, [t(2)]);
    assert_eq!(fallout.blocked, blocked(&[(3, 1), (3, 2)]));
    assert_eq!(gate.standing(t(2)), Some(Standing::Failed));
    assert_eq!(gate.requeued(t(1)), [t(1)]);
    assert_eq!(gate.blocked_on(t(3)), Some(t(2)));
}

#[test]
fn what_is_done_stays_done_when_its_dependency_is_taken_back() {
    let mut gate = gate(&[(1, &[]), (2, &[1]), (3, &[2])]);
    gate.completed(t(1));
    gate.completed(t(2));
    let fallout = fail(&mut gate, 1);
    assert_eq!((fallout, gate.standing(t(2))), (Fallout::default(), Some(Standing::Done)));
    assert!(gate.is_open(t(3)), "its own dependency is done");
}

/// A person who takes a task out of the dead letters expects the rest of the mission to follow.
#[test]
fn a_requeued_task_frees_what_only_it_had_blocked() {
    let mut gate = gate(&[(1, &[]), (2, &[]), (3, &[1]), (4, &[1, 2]), (5, &[3])]);
    fail(&mut gate, 1);
    fail(&mut gate, 2);
    assert_eq!(gate.revival(t(1)), Ok(vec![t(3), t(5)]));
    assert_eq!(gate.requeued(t(1)), [t(1)]);
    assert_eq!((gate.blocked_on(t(3)), gate.blocked_on(t(4))), (None, Some(t(2))));
    assert_eq!(gate.completed(t(1)), [t(3)]);
    assert_eq!(gate.requeued(t(2)), [t(2)]);
    assert_eq!(gate.completed(t(2)), [t(4)]);
    assert_eq!(gate.revival(t(2)), Err(GateRefusal::NotFailed(t(2))));
}

#[test]
fn a_rolled_back_dependency_closes_the_gate_again() {
    let mut gate = gate(&[(1, &[]), (2, &[1])]);
    assert_eq!(gate.completed(t(1)), [t(2)]);
    fail(&mut gate, 1);
    assert!(!gate.is_open(t(2)));
    assert_eq!(gate.requeued(t(1)), [t(1)]);
    assert!(!gate.is_open(t(2)), "requeued is not done");
    assert_eq!(gate.completed(t(1)), [t(2)]);
}

/// QUE-08: the counters may be wrong; then nothing runs and a person reads which task it was.
#[test]
fn a_start_with_an_open_dependency_is_a_critical_error() {
    let gate = gate(&[(1, &[]), (2, &[]), (3, &[1, 2])]);
    let status = |task: TaskId| (task == t(1)).then_some(Status::Completed);
    let error = CriticalError { task: t(3), dependency: t(2), found: Found::Missing };
    assert_eq!(gate.check_start(t(3), status), Err(error));
    let status = |task| Some(if task == t(1) { Status::Completed } else { Status::RolledBack });
    let error = gate.check_start(t(3), status).unwrap_err();
    let said = "CRITICAL ERROR: task number 3 must not start: its dependency number 2 is rolled_back, not completed";
    assert_eq!(error.to_string(), said);
    assert_eq!(gate.check_start(t(3), |_| Some(Status::Completed)), Ok(()));
}

#[test]
fn what_the_gate_cannot_admit_is_named() {
    let gate = gate(&[(1, &[])]);
    assert_eq!(gate.check_admission(t(1), &[]), Err(GateRefusal::Known(t(1))));
    let unknown = GateRefusal::UnknownDependency { task: t(3), dependency: t(2) };
    assert_eq!(gate.check_admission(t(3), &[t(1), t(2)]), Err(unknown));
    let many = vec![t(1); 201];
    assert_eq!(gate.check_admission(t(3), &many), Err(GateRefusal::TooMany { count: 201 }));
}

/// A task that joins a plan behind a failure must not slip through.
#[test]
fn a_late_task_behind_a_failure_is_blocked_from_the_start() {
    let mut gate = gate(&[(1, &[]), (2, &[1])]);
    fail(&mut gate, 1);
    gate.admitted(t(3), &[t(2)]);
    assert_eq!(gate.blocked_on(t(3)), Some(t(1)));
}

#[derive(Debug, Clone)]
enum Move {
    Start(usize),
    Complete(usize),
    Fail(usize),
    Requeue(usize),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        4 => any::<usize>().prop_map(Move::Start),
        4 => any::<usize>().prop_map(Move::Complete),
        1 => any::<usize>().prop_map(Move::Fail),
        1 => any::<usize>().prop_map(Move::Requeue),
    ];
    prop::collection::vec(one, 0..80)
}

fn pick(tasks: impl Iterator<Item = TaskId>, index: usize) -> Option<TaskId> {
    let tasks: Vec<TaskId> = tasks.collect();
    tasks.get(index % tasks.len().max(1)).copied()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]

    /// The counters against a scan: a task is open exactly if it waits, all that it needs is done
    /// and no ancestor has failed; and each opening is announced.
    #[test]
    fn the_counters_agree_with_a_scan(
        edges in prop::collection::vec(prop::collection::btree_set(0..20u32, 0..3), 2..20),
        moves in moves(),
    ) {
        let mut gate = Gate::default();
        let mut needs: BTreeMap<TaskId, Vec<TaskId>> = BTreeMap::new();
        for (n, of) in edges.iter().enumerate() {
            let n = n as u32;
            let of: Vec<TaskId> = of.iter().filter(|need| **need < n).copied().map(TaskId).collect();
            gate.admitted(t(n), &of);
            needs.insert(t(n), of);
        }
        let ids: Vec<TaskId> = needs.keys().copied().collect();
        let with = |gate: &Gate, standing| -> Vec<TaskId> {
            ids.iter().copied().filter(|id| gate.standing(*id) == Some(standing)).collect()
        };
        for step in moves {
            let open: BTreeSet<TaskId> = ids.iter().copied().filter(|id| gate.is_open(*id)).collect();
            let mut announced = BTreeSet::new();
            match step {
                Move::Start(n) => {
                    if let Some(task) = pick(open.iter().copied(), n) {
                        prop_assert_eq!(gate.check_start(task, |id| match gate.standing(id)? {
                            Standing::Done => Some(Status::Completed),
                            _ => Some(Status::Pending),
                        }), Ok(()));
                        gate.started(task);
                    }
                }
                Move::Complete(n) => {
                    if let Some(task) = pick(with(&gate, Standing::Running).into_iter(), n) {
                        announced.extend(gate.completed(task));
                    }
                }
                Move::Fail(n) => {
                    let live = with(&gate, Standing::Running).into_iter().chain(with(&gate, Standing::Done));
                    if let Some(task) = pick(live, n) {
                        let fallout = gate.fallout(task);
                        gate.failed(task, &fallout);
                    }
                }
                Move::Requeue(n) => {
                    if let Some(task) = pick(with(&gate, Standing::Failed).into_iter(), n) {
                        announced.extend(gate.requeued(task));
                    }
                }
            }
            for id in &ids {
                let waits = needs[id].iter().filter(|n| gate.standing(**n) != Some(Standing::Done)).count();
                prop_assert_eq!(gate.waits_for(*id) as usize, waits);
                let is_open = gate.standing(*id) == Some(Standing::Waiting) && waits == 0
                    && gate.blocked_on(*id).is_none();
                prop_assert_eq!(gate.is_open(*id), is_open);
                if is_open && !open.contains(id) {
                    prop_assert!(announced.contains(id), "{:?} opened silently", id);
                }
                let behind_failure = needs[id].iter().any(|n| gate.standing(*n) == Some(Standing::Failed));
                if behind_failure && gate.standing(*id) == Some(Standing::Waiting) {
                    prop_assert!(gate.blocked_on(*id).is_some());
                }
                prop_assert!(!(behind_failure && gate.standing(*id) == Some(Standing::Running)));
            }
        }
    }
}
