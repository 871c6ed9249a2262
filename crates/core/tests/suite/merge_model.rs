//! The merge queue against a simple model of a repository: what a commit contains decides whether
//! its tests pass.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kapelle_core::merge::{
    AfterConflict, AfterTests, Change, LaneId, MergePolicy, MergeQueue, Paths, Step, TestReport,
    Work,
};
use kapelle_core::{Commit, TaskId};
use proptest::prelude::*;

#[derive(Debug, Clone)]
struct Script {
    policy: MergePolicy,
    changes: Vec<Planned>,
    /// What the world does, one step a number.
    dice: Vec<u8>,
}

#[derive(Debug, Clone)]
struct Planned {
    files: BTreeSet<u8>,
    priority: i64,
    needs: BTreeSet<usize>,
    guilty: bool,
}

fn planned(index: usize) -> impl Strategy<Value = Planned> {
    let files = prop::collection::btree_set(0u8..8, 1..3);
    let needs = prop::collection::btree_set(0..index.max(1), 0..2);
    (files, -2i64..3, needs, prop::bool::weighted(0.2)).prop_map(
        move |(files, priority, needs, guilty)| {
            let needs = if index == 0 || priority < 1 { BTreeSet::new() } else { needs };
            Planned { files, priority, needs, guilty }
        },
    )
}

fn script() -> impl Strategy<Value = Script> {
    let changes = (1usize..14).prop_flat_map(|n| (0..n).map(planned).collect::<Vec<_>>());
    let dice = prop::collection::vec(any::<u8>(), 0..200);
    (1u32..6, 1u32..5, changes, dice).prop_map(|(batch_changes_max, lanes_max, changes, dice)| {
        let policy = MergePolicy { batch_changes_max, lanes_max, ..MergePolicy::default() };
        Script { policy, changes, dice }
    })
}

/// A repository in which a commit is the set of changes that it contains.
struct World {
    queue: MergeQueue,
    contains: BTreeMap<Commit, BTreeSet<TaskId>>,
    parent: BTreeMap<Commit, Commit>,
    passed: BTreeSet<Commit>,
    flaked: BTreeSet<Commit>,
    guilty: BTreeSet<TaskId>,
    target: Commit,
    landed: BTreeSet<TaskId>,
    blamed: BTreeSet<TaskId>,
    asked: BTreeSet<TaskId>,
    commits: u64,
}

impl World {
    fn new(script: &Script) -> World {
        let root: Commit = format!("{:040x}", 1).parse().unwrap();
        let queue = MergeQueue::new(script.policy.clone(), root.clone());
        let guilty = script.changes.iter().enumerate().filter(|(_, change)| change.guilty);
        World {
            queue,
            contains: BTreeMap::from([(root.clone(), BTreeSet::new())]),
            parent: BTreeMap::new(),
            passed: BTreeSet::new(),
            flaked: BTreeSet::new(),
            guilty: guilty.map(|(index, _)| task(index)).collect(),
            target: root,
            landed: BTreeSet::new(),
            blamed: BTreeSet::new(),
            asked: BTreeSet::new(),
            commits: 1,
        }
    }

    fn commit(&mut self, onto: &Commit, tasks: &[TaskId]) -> Commit {
        self.commits += 1;
        let commit: Commit = format!("{:040x}", self.commits).parse().unwrap();
        let mut contains = self.contains[onto].clone();
        contains.extend(tasks);
        self.contains.insert(commit.clone(), contains);
        self.parent.insert(commit.clone(), onto.clone());
        commit
    }

    fn form(&mut self) {
        for plan in self.queue.plan() {
            self.queue.formed(&plan);
        }
    }

    fn perform(&mut self, work: Work, die: u8) {
        match work {
            Work::Build { lane, onto, changes } => self.build(lane, &onto, &changes, die),
            Work::Test { lane, candidate, .. } => self.test(lane, &candidate, die),
            // The guilty do not land, so the target itself never fails.
            Work::Measure { tip } => self.queue.baseline_measured(&tip, &[]),
            Work::Rebase { .. } => panic!("nothing here conflicts alone"),
            Work::Land { lane, from, to } => {
                // Compare-and-swap, with somebody else pushing now and then.
                if die.is_multiple_of(16) {
                    self.target = self.commit(&self.target.clone(), &[]);
                }
                if self.target != from {
                    self.queue.moved(self.target.clone());
                    return;
                }
                assert!(self.passed.contains(&to), "an unchecked commit would land");
                assert_eq!(self.parent[&to], from, "the target would not go forward");
                self.landed = self.contains[&to].clone();
                self.target = to;
                self.queue.landed(lane);
                assert_eq!(self.queue.tip(), &self.target);
            }
        }
    }

    fn build(&mut self, lane: LaneId, onto: &Commit, changes: &[(TaskId, Commit)], die: u8) {
        // Conflicts appear only in company: alone, everything applies.
        let any = changes.get(usize::from(die / 8) % changes.len()).map(|(task, _)| *task);
        if let Some(task) = any.filter(|_| die.is_multiple_of(8) && changes.len() > 1) {
            match self.queue.after_conflict(lane, onto, task).unwrap() {
                AfterConflict::TryAlone => self.queue.set_aside(task),
                AfterConflict::Rebase | AfterConflict::AskPerson => {
                    self.asked.insert(task);
                }
            }
            return;
        }
        let tasks: Vec<TaskId> = changes.iter().map(|(task, _)| *task).collect();
        let candidate = self.commit(onto, &tasks);
        let steps: Vec<Step> =
            tasks.iter().map(|task| Step { task: *task, commit: candidate.clone() }).collect();
        self.queue.built(lane, onto, &steps);
    }

    fn test(&mut self, lane: LaneId, candidate: &Commit, die: u8) {
        let broken = !self.contains[candidate].is_disjoint(&self.guilty);
        // A flake strikes a commit once.
        let flake = die.is_multiple_of(5) && self.flaked.insert(candidate.clone());
        let failed = [(broken, "real"), (flake, "flake")];
        let failed = failed.into_iter().filter(|(fails, _)| *fails);
        let report = TestReport { failed: failed.map(|(_, name)| name.to_owned()).collect() };
        match self.queue.after_tests(lane, candidate, &report).unwrap() {
            AfterTests::Passed { flaky, excused } => {
                self.passed.insert(candidate.clone());
                self.queue.passed(lane, candidate, &flaky, &excused);
            }
            AfterTests::Held { failed } => self.queue.held(lane, candidate, &failed),
            AfterTests::TestAgain { failed } => self.queue.failed_once(lane, candidate, &failed),
            AfterTests::Doubted { failed } => self.queue.doubted(lane, candidate, &failed),
            AfterTests::Halved { .. } => self.queue.halved(lane),
            AfterTests::Blamed { culprit, .. } => {
                self.blamed.insert(culprit);
                self.queue.blamed(lane);
            }
        }
    }

    /// Lanes must not touch each other's files: at most one candidate for an overlapping set.
    fn assert_lanes_disjoint(&self, script: &Script) {
        let mut seen = BTreeSet::new();
        for work in self.queue.due() {
            let Work::Build { changes, .. } = work else { continue };
            let tasks = changes.iter().map(|(task, _)| &script.changes[task.0 as usize]);
            let files: BTreeSet<u8> = tasks.flat_map(|change| change.files.clone()).collect();
            assert!(seen.is_disjoint(&files), "two lanes touch one file");
            seen.extend(files);
        }
    }
}

fn task(index: usize) -> TaskId {
    TaskId(u32::try_from(index).unwrap())
}

fn change(index: usize, planned: &Planned, landed: &BTreeSet<TaskId>) -> Change {
    let files = Arc::new(planned.files.iter().map(ToString::to_string).collect());
    let commit = format!("{:040x}", 1_000_000 + index).parse().unwrap();
    let needs = planned.needs.iter().map(|need| task(*need)).filter(|need| !landed.contains(need));
    Change {
        task: task(index),
        commit,
        priority: planned.priority,
        needs: needs.collect(),
        paths: Paths::of(&files),
    }
}

/// Those that no guilty change stands before.
fn innocent(script: &Script) -> BTreeSet<TaskId> {
    let mut tainted = BTreeSet::new();
    for (index, change) in script.changes.iter().enumerate() {
        if change.guilty || change.needs.iter().any(|need| tainted.contains(need)) {
            tainted.insert(index);
        }
    }
    (0..script.changes.len()).filter(|index| !tainted.contains(index)).map(task).collect()
}

fn run(script: &Script) -> World {
    /// Far more than any script needs; a queue that stands still would run into it.
    const STEPS_MAX: usize = 20_000;
    let mut world = World::new(script);
    let mut waiting: Vec<usize> = (0..script.changes.len()).rev().collect();
    for step in 0..STEPS_MAX {
        // After the dice have run out the world is calm.
        let die = script.dice.get(step).copied().unwrap_or(1);
        if die % 3 == 1
            && let Some(index) = waiting.pop()
        {
            let change = change(index, &script.changes[index], &world.landed);
            world.queue.enqueued(change);
        }
        world.form();
        world.assert_lanes_disjoint(script);
        let due = world.queue.due();
        if due.is_empty() && waiting.is_empty() {
            return world;
        }
        if !due.is_empty() {
            let index = usize::from(die) % due.len();
            world.perform(due[index].clone(), die);
        }
    }
    panic!("the queue does not come to rest");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_096, failure_persistence: None, ..ProptestConfig::default() })]

    /// Only checked commits land and the target only goes forward (asserted in `perform`); every
    /// innocent change lands; no culprit does; nobody else is blamed.
    #[test]
    fn the_innocent_land_and_the_guilty_do_not(script in script()) {
        let world = run(&script);
        prop_assert!(world.landed.is_disjoint(&world.guilty));
        prop_assert!(world.blamed.is_subset(&world.guilty), "{:?}", world.blamed);
        prop_assert!(world.asked.is_empty(), "a conflict in company was taken for a real one");
        prop_assert_eq!(&world.landed, &innocent(&script));
    }

    /// Finding one culprit in a batch of n costs at most ⌈log₂ n⌉ + 1 extra builds.
    #[test]
    fn a_culprit_is_found_in_a_logarithm_of_builds(n in 2u32..33, at in 0u32..33) {
        let culprit = TaskId(at % n);
        let policy = MergePolicy {
            batch_changes_max: n, lanes_max: 1, flake_retries_max: 0, ..MergePolicy::default()
        };
        let planned = Planned {
            files: BTreeSet::from([1]), priority: 0, needs: BTreeSet::new(), guilty: false,
        };
        let mut changes = vec![planned; n as usize];
        changes[culprit.0 as usize].guilty = true;
        let script = Script { policy, changes, dice: Vec::new() };
        let mut world = World::new(&script);
        for (index, planned) in script.changes.iter().enumerate() {
            world.queue.enqueued(change(index, planned, &BTreeSet::new()));
        }
        let mut builds = 0;
        while world.blamed.is_empty() {
            prop_assert!(builds <= n + 1, "the culprit is not found at all");
            world.form();
            prop_assert!(!world.queue.due().is_empty(), "the queue stands still");
            for work in world.queue.due() {
                builds += u32::from(matches!(work, Work::Build { .. }));
                world.perform(work, 1);
            }
        }
        prop_assert_eq!(&world.blamed, &BTreeSet::from([culprit]));
        let log = n.next_power_of_two().trailing_zeros();
        prop_assert!(builds - 1 <= log + 1, "{} extra builds for {n}", builds - 1);
    }
}
