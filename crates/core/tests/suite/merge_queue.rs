//! The merge queue, rule by rule.

use std::collections::BTreeSet;
use std::sync::Arc;

use kapelle_core::merge::{
    AfterConflict, AfterTests, Change, LaneId, LanePlan, MergePolicy, MergeQueue, Paths, StaleWork,
    Standing, Step, TestReport, Work,
};
use kapelle_core::{Commit, TaskId};

fn commit(n: u64) -> Commit {
    format!("{n:040x}").parse().unwrap()
}

const TIP: u64 = 1;

fn change(task: u32, priority: i64, files: &[&str]) -> Change {
    let files = Arc::new(files.iter().map(ToString::to_string).collect());
    let (commit, paths) = (commit(1_000 + u64::from(task)), Paths::of(&files));
    Change { task: TaskId(task), commit, priority, needs: BTreeSet::new(), paths }
}

fn after(mut change: Change, needs: &[u32]) -> Change {
    change.needs = needs.iter().map(|task| TaskId(*task)).collect();
    change
}

fn queue(policy: MergePolicy, changes: Vec<Change>) -> MergeQueue {
    let mut queue = MergeQueue::new(policy, commit(TIP));
    // Most rules here are about changes, not about a target that fails by itself.
    queue.baseline_measured(&commit(TIP), &[]);
    changes.into_iter().for_each(|change| queue.enqueued(change));
    queue
}

/// One lane at a time, so that order and batches are easy to see.
fn single() -> MergePolicy {
    MergePolicy { lanes_max: 1, ..MergePolicy::default() }
}

fn ids(tasks: &[u32]) -> Vec<TaskId> {
    tasks.iter().map(|task| TaskId(*task)).collect()
}

fn plans(queue: &MergeQueue) -> Vec<Vec<TaskId>> {
    queue.plan().into_iter().map(|plan| plan.members).collect()
}

fn form(queue: &mut MergeQueue) -> Vec<LaneId> {
    queue.plan().iter().map(|plan| queue.formed(plan)).collect()
}

/// The members do not matter where only the candidate is looked at.
fn candidate_of(commit: Commit) -> [Step; 1] {
    [Step { task: TaskId(0), commit }]
}

/// Builds what is due and names each candidate after its lane.
fn build(queue: &mut MergeQueue) {
    loop {
        let built = queue.due().into_iter().find_map(|work| match work {
            Work::Build { lane, onto, .. } => Some((lane, onto)),
            _ => None,
        });
        let Some((lane, onto)) = built else { return };
        let name = onto.as_str().bytes().fold(lane.0, |n, b| (n * 31 + u64::from(b)) % (1 << 40));
        queue.built(lane, &onto, &candidate_of(commit((1 << 41) + name)));
    }
}

fn candidate(queue: &MergeQueue, wanted: LaneId) -> Commit {
    let tested = queue.due().into_iter().find_map(|work| match work {
        Work::Test { lane, candidate, .. } if lane == wanted => Some(candidate),
        _ => None,
    });
    tested.unwrap()
}

fn failing(names: &[&str]) -> TestReport {
    TestReport { failed: names.iter().map(ToString::to_string).collect() }
}

/// Decides on a test run and records what was decided.
fn test(queue: &mut MergeQueue, lane: LaneId, failed: &[&str]) -> AfterTests {
    let candidate = candidate(queue, lane);
    let verdict = queue.after_tests(lane, &candidate, &failing(failed)).unwrap();
    match &verdict {
        AfterTests::Passed { flaky, excused } => queue.passed(lane, &candidate, flaky, excused),
        AfterTests::Held { failed } => queue.held(lane, &candidate, failed),
        AfterTests::TestAgain { failed } => queue.failed_once(lane, &candidate, failed),
        AfterTests::Doubted { failed } => queue.doubted(lane, &candidate, failed),
        AfterTests::Halved { .. } => queue.halved(lane),
        AfterTests::Blamed { .. } => queue.blamed(lane),
    }
    verdict
}

fn fail_twice(queue: &mut MergeQueue, lane: LaneId) -> AfterTests {
    let again = test(queue, lane, &["t"]);
    assert_eq!(again, AfterTests::TestAgain { failed: vec!["t".into()] });
    test(queue, lane, &["t"])
}

/// GIT-11: what others need lands before them; then the more urgent; then who came first.
#[test]
fn the_order_is_dependencies_then_priority_then_arrival() {
    let changes = vec![
        change(1, 40, &["a"]),
        change(2, 140, &["a"]),
        after(change(3, 900, &["a"]), &[4]),
        change(4, 10, &["a"]),
        change(5, 40, &["a"]),
    ];
    let queue = queue(single(), changes);
    assert_eq!(plans(&queue), [ids(&[2, 1, 5, 4, 3])]);
    let needs = Standing::Needs { first: TaskId(4), count: 1 };
    assert_eq!(queue.standing(TaskId(3)), Some(needs));
}

/// A change whose dependency is not even in the queue waits, however urgent it is.
#[test]
fn nothing_lands_before_what_it_needs() {
    let mut queue =
        queue(single(), vec![after(change(1, 900, &["a"]), &[7]), change(2, 1, &["b"])]);
    assert_eq!(plans(&queue), [ids(&[2])]);
    let lane = form(&mut queue)[0];
    build(&mut queue);
    test(&mut queue, lane, &[]);
    queue.landed(lane);
    assert_eq!(plans(&queue), Vec::<Vec<TaskId>>::new());
    queue.enqueued(change(7, 1, &["c"]));
    assert_eq!(plans(&queue), [ids(&[7, 1])]);
}

#[test]
fn a_batch_has_at_most_five_changes() {
    let queue = queue(single(), (1..=7).map(|task| change(task, 0, &["a"])).collect());
    assert_eq!(plans(&queue), [ids(&[1, 2, 3, 4, 5])]);
}

/// GIT-11: disjoint changes do not wait for each other; overlapping ones share one candidate.
#[test]
fn disjoint_changes_are_tested_side_by_side_and_overlapping_ones_together() {
    let changes = vec![
        change(1, 0, &["a"]),
        change(2, 0, &["b"]),
        change(3, 0, &["a", "x"]),
        change(4, 0, &["c"]),
    ];
    let mut queue = queue(MergePolicy::default(), changes);
    assert_eq!(plans(&queue), [ids(&[1, 3]), ids(&[2]), ids(&[4])]);
    form(&mut queue);
    queue.enqueued(change(5, 999, &["x"]));
    queue.enqueued(change(6, 0, &["d"]));
    assert_eq!(plans(&queue), [ids(&[6])], "5 touches a file of a lane that is under way");
    assert_eq!(queue.standing(TaskId(5)), Some(Standing::Waiting));
}

/// A change between two lanes must wait for both, and nobody may slip past it.
#[test]
fn a_waiting_change_keeps_its_files() {
    let changes = vec![change(1, 0, &["a"]), change(2, 0, &["b"]), change(3, 0, &["a", "b", "c"])];
    let mut queue = queue(MergePolicy::default(), changes);
    queue.enqueued(change(4, 0, &["c"]));
    assert_eq!(plans(&queue), [ids(&[1]), ids(&[2])]);
}

/// What may touch anything is tested by itself.
#[test]
fn a_change_of_unknown_extent_shares_no_tip_with_others() {
    let mut queue = queue(MergePolicy::default(), vec![change(1, 0, &["a"]), change(2, 0, &[])]);
    assert_eq!(plans(&queue), [ids(&[1, 2])]);
    form(&mut queue);
    queue.enqueued(change(3, 0, &["z"]));
    assert_eq!(plans(&queue), Vec::<Vec<TaskId>>::new());
}

/// Two candidates on one tip would each be tested against a target that neither will meet.
#[test]
fn each_lane_is_built_on_the_candidate_before_it() {
    let mut queue = queue(MergePolicy::default(), vec![change(1, 0, &["a"]), change(2, 0, &["b"])]);
    let lanes = form(&mut queue);
    let first = [Work::Build {
        lane: lanes[0],
        onto: commit(TIP),
        changes: vec![(TaskId(1), commit(1_001))],
    }];
    assert_eq!(queue.due(), first, "the second waits for what it stands on");
    queue.built(lanes[0], &commit(TIP), &candidate_of(commit(50)));
    let second =
        Work::Build { lane: lanes[1], onto: commit(50), changes: vec![(TaskId(2), commit(1_002))] };
    let test = Work::Test { lane: lanes[0], candidate: commit(50), run: 1 };
    assert_eq!(queue.due(), [test, second]);
}

/// A lane that passed early lands in its turn, on exactly the tip it was tested on.
#[test]
fn lanes_land_in_order_and_only_from_the_tip() {
    let mut queue = queue(MergePolicy::default(), vec![change(1, 0, &["a"]), change(2, 0, &["b"])]);
    let lanes = form(&mut queue);
    build(&mut queue);
    let second = candidate(&queue, lanes[1]);
    test(&mut queue, lanes[1], &[]);
    assert_eq!(queue.landing(lanes[1]), Err(StaleWork::NotLanding { lane: lanes[1] }));
    assert_eq!(queue.standing(TaskId(2)), Some(Standing::Passed { lanes_before: 1 }));
    queue.landed(lanes[1]);
    assert_eq!(queue.tip(), &commit(TIP), "out of turn, nothing moves");
    let first = candidate(&queue, lanes[0]);
    test(&mut queue, lanes[0], &[]);
    queue.landed(lanes[0]);
    assert_eq!(queue.tip(), &first);
    let land = Work::Land { lane: lanes[1], from: first, to: second };
    assert_eq!(queue.landing(lanes[1]), Ok(land));
}

/// GIT-10, compare-and-swap: somebody pushed in between, so what was tested is not what would be.
#[test]
fn a_moved_target_means_building_anew() {
    let mut queue = queue(single(), vec![change(1, 0, &["a"])]);
    let lane = form(&mut queue)[0];
    build(&mut queue);
    let old = candidate(&queue, lane);
    test(&mut queue, lane, &[]);
    queue.moved(commit(77));
    assert_eq!(queue.landing(lane), Err(StaleWork::NotLanding { lane }));
    queue.landed(lane);
    assert_eq!(queue.tip(), &commit(77));
    let late = queue.after_tests(lane, &old, &TestReport::default());
    assert_eq!(late, Err(StaleWork::NotTesting { lane, candidate: old }));
    let changes = vec![(TaskId(1), commit(1_001))];
    assert_eq!(queue.due(), [Work::Build { lane, onto: commit(77), changes }]);
}

/// TDD-12: one retry tells a flake from a fault, and the flake is remembered.
#[test]
fn a_flaky_test_costs_one_run_and_is_recorded() {
    let mut queue = queue(single(), vec![change(1, 0, &["a"]), change(2, 0, &["a"])]);
    let lane = form(&mut queue)[0];
    build(&mut queue);
    assert_eq!(
        test(&mut queue, lane, &["net::slow"]),
        AfterTests::TestAgain { failed: vec!["net::slow".into()] }
    );
    assert_eq!(queue.standing(TaskId(1)), Some(Standing::Testing { with: 1, run: 2 }));
    let flaky = vec!["net::slow".to_owned()];
    let passed = AfterTests::Passed { flaky, excused: Vec::new() };
    assert_eq!(test(&mut queue, lane, &[]), passed);
    assert_eq!(queue.flaky().get("net::slow"), Some(&1));
}

/// The innocent half lands before the culprit is even known; the culprit leaves alone.
#[test]
fn a_failed_batch_is_halved_until_the_culprit_stands_alone() {
    let mut queue = queue(single(), (1..=5).map(|task| change(task, 0, &["a"])).collect());
    let culprit = TaskId(4);
    let (mut landed, mut builds, mut blamed) = (Vec::new(), 0, Vec::new());
    while !queue.is_empty() {
        let plan = queue.plan().remove(0);
        let lane = queue.formed(&plan);
        build(&mut queue);
        builds += 1;
        if plan.members.contains(&culprit) {
            if let AfterTests::Blamed { culprit, .. } = fail_twice(&mut queue, lane) {
                blamed.push(culprit);
            }
        } else {
            test(&mut queue, lane, &[]);
            queue.landed(lane);
            landed.extend(plan.members);
        }
    }
    assert_eq!(landed, ids(&[1, 2, 3, 5]));
    assert_eq!(blamed, [culprit]);
    assert_eq!(builds, 1 + 2 + 1, "the batch, two to find it, one for the innocent rest");
}

/// Failures on the target itself are not the fault of who comes next, until somebody mends them.
#[test]
fn baseline_failures_are_not_blamed_and_end_when_mended() {
    let mut queue = queue(single(), vec![change(1, 0, &["a"])]);
    queue.baseline_measured(&commit(TIP), &["old".into(), "older".into()]);
    let lane = form(&mut queue)[0];
    build(&mut queue);
    let passed = AfterTests::Passed { flaky: Vec::new(), excused: vec!["old".into()] };
    assert_eq!(test(&mut queue, lane, &["old"]), passed);
    queue.landed(lane);
    queue.enqueued(change(2, 0, &["a"]));
    let lane = form(&mut queue)[0];
    build(&mut queue);
    let again = AfterTests::TestAgain { failed: vec!["older".into()] };
    assert_eq!(test(&mut queue, lane, &["old", "older"]), again, "`older` was mended by 1");
}

/// A target that somebody else moved may be broken by itself: that is found out before blaming.
#[test]
fn a_target_that_nobody_tested_is_measured_before_anybody_is_blamed() {
    let mut queue = queue(single(), vec![change(1, 0, &["a"])]);
    queue.moved(commit(77));
    let lane = form(&mut queue)[0];
    build(&mut queue);
    test(&mut queue, lane, &["t"]);
    let doubted = AfterTests::Doubted { failed: vec!["t".into()] };
    assert_eq!(test(&mut queue, lane, &["t"]), doubted);
    assert_eq!(queue.due(), [Work::Measure { tip: commit(77) }]);
    let mut innocent = queue.clone();
    innocent.baseline_measured(&commit(77), &["t".into()]);
    let excused = AfterTests::Passed { flaky: Vec::new(), excused: vec!["t".into()] };
    assert_eq!(test(&mut innocent, lane, &["t"]), excused);
    queue.baseline_measured(&commit(78), &["t".into()]);
    assert_eq!(queue.due(), [Work::Measure { tip: commit(77) }], "an answer for another commit");
    queue.baseline_measured(&commit(77), &[]);
    let blamed = test(&mut queue, lane, &["t"]);
    assert!(matches!(blamed, AfterTests::Blamed { culprit: TaskId(1), .. }), "{blamed:?}");
}

/// An excuse that the lane before removed does not carry the one behind it over the line.
#[test]
fn a_candidate_whose_excuse_was_mended_is_tested_again() {
    let mut queue = queue(MergePolicy::default(), vec![change(1, 0, &["a"]), change(2, 0, &["b"])]);
    queue.baseline_measured(&commit(TIP), &["old".into()]);
    let lanes = form(&mut queue);
    build(&mut queue);
    test(&mut queue, lanes[1], &["old"]);
    test(&mut queue, lanes[0], &[]);
    queue.landed(lanes[0]);
    assert_eq!(queue.landing(lanes[1]), Err(StaleWork::NotLanding { lane: lanes[1] }));
    assert!(matches!(test(&mut queue, lanes[1], &["old"]), AfterTests::TestAgain { .. }));
}

/// A lane that stands on an unjudged candidate may fail for the other's fault.
#[test]
fn nobody_is_blamed_on_top_of_an_unjudged_candidate() {
    let mut queue = queue(MergePolicy::default(), vec![change(1, 0, &["a"]), change(2, 0, &["b"])]);
    let lanes = form(&mut queue);
    build(&mut queue);
    let held = AfterTests::Held { failed: vec!["t".into()] };
    assert_eq!(test(&mut queue, lanes[1], &["t"]), held);
    assert_eq!(queue.standing(TaskId(2)), Some(Standing::Held { lanes_before: 1 }));
    let blamed = fail_twice(&mut queue, lanes[0]);
    assert!(matches!(blamed, AfterTests::Blamed { culprit: TaskId(1), .. }));
    build(&mut queue);
    let passed = AfterTests::Passed { flaky: Vec::new(), excused: Vec::new() };
    assert_eq!(test(&mut queue, lanes[1], &[]), passed);
}

/// Once the candidate before it has passed, a held failure counts as the first of two.
#[test]
fn a_held_failure_is_confirmed_when_its_base_has_passed() {
    let mut queue = queue(MergePolicy::default(), vec![change(1, 0, &["a"]), change(2, 0, &["b"])]);
    let lanes = form(&mut queue);
    build(&mut queue);
    test(&mut queue, lanes[1], &["t"]);
    test(&mut queue, lanes[0], &[]);
    let verdict = test(&mut queue, lanes[1], &["t"]);
    assert!(matches!(verdict, AfterTests::Blamed { culprit: TaskId(2), .. }), "{verdict:?}");
}

/// GIT-19: alone, then one rebase, then a person.
#[test]
fn a_conflict_is_tried_alone_then_rebased_once_then_asked_about() {
    let mut queue = queue(single(), vec![change(1, 0, &["a"]), change(2, 0, &["a"])]);
    let lane = form(&mut queue)[0];
    let tip = commit(TIP);
    assert_eq!(queue.after_conflict(lane, &tip, TaskId(2)), Ok(AfterConflict::TryAlone));
    queue.set_aside(TaskId(2));
    build(&mut queue);
    test(&mut queue, lane, &[]);
    queue.landed(lane);
    let tip = queue.tip().clone();
    let lane = form(&mut queue)[0];
    assert_eq!(queue.after_conflict(lane, &tip, TaskId(2)), Ok(AfterConflict::Rebase));
    queue.rebase_started(TaskId(2));
    assert_eq!(queue.standing(TaskId(2)), Some(Standing::Rebasing));
    assert_eq!(plans(&queue), Vec::<Vec<TaskId>>::new());
    let (change_commit, onto) = (commit(1_002), tip.clone());
    let rebase = Work::Rebase { task: TaskId(2), change: change_commit, onto };
    assert_eq!(queue.due(), [rebase]);
    queue.rebased(TaskId(2), commit(2_002), change(2, 0, &["b"]).paths);
    let lane = form(&mut queue)[0];
    let changes = vec![(TaskId(2), commit(2_002))];
    assert_eq!(queue.due(), [Work::Build { lane, onto: tip.clone(), changes }]);
    assert_eq!(queue.after_conflict(lane, &tip, TaskId(2)), Ok(AfterConflict::AskPerson));
    queue.withdrawn(TaskId(2));
    assert!(queue.is_empty() && queue.due().is_empty());
}

/// A cancelled task must not take its batch with it, nor land.
#[test]
fn a_withdrawn_change_leaves_the_others_to_land() {
    let mut queue = queue(single(), (1..=4).map(|task| change(task, 0, &["a"])).collect());
    let lane = form(&mut queue)[0];
    build(&mut queue);
    queue.withdrawn(TaskId(2));
    let due = queue.due();
    let [Work::Build { changes, .. }] = due.as_slice() else { panic!("{due:?}") };
    assert_eq!(changes.iter().map(|(task, _)| *task).collect::<Vec<_>>(), ids(&[1, 3, 4]));
    build(&mut queue);
    fail_twice(&mut queue, lane);
    assert_eq!(queue.standing(TaskId(1)), Some(Standing::Suspect));
    queue.withdrawn(TaskId(1));
    let probe = LanePlan { members: ids(&[3]), behind: ids(&[4]) };
    assert_eq!(queue.plan(), [probe]);
    form(&mut queue);
    queue.withdrawn(TaskId(3));
    assert_eq!(plans(&queue), [ids(&[4])], "with the suspect gone, nothing speaks against 4");
}

/// Whoever leaves a lane, or the half that waits behind it, takes with it who needs it.
#[test]
fn what_needs_a_change_that_left_waits_for_it() {
    let changes = || {
        let [one, two, three] = [1, 2, 3].map(|task| change(task, 0, &["a"]));
        vec![one, two, after(three, &[2])]
    };
    let mut together = queue(single(), changes());
    form(&mut together);
    together.set_aside(TaskId(2));
    assert_eq!(together.members(LaneId(1)), ids(&[1]));

    let mut halved = queue(single(), changes());
    let lane = form(&mut halved)[0];
    build(&mut halved);
    fail_twice(&mut halved, lane);
    assert_eq!(plans(&halved), [ids(&[1, 2])]);
    let lane = form(&mut halved)[0];
    halved.set_aside(TaskId(2));
    build(&mut halved);
    test(&mut halved, lane, &[]);
    halved.landed(lane);
    assert_eq!(plans(&halved), [ids(&[2])], "3 would land before what it needs");
}

/// Planning looks at a bounded number of changes, so a long queue stays cheap.
#[test]
fn a_long_queue_still_plans() {
    let mut queue = queue(MergePolicy::default(), Vec::new());
    (0..10_000).for_each(|task| queue.enqueued(change(task, 0, &[&task.to_string()])));
    assert_eq!(plans(&queue)[0], ids(&[0, 4, 8, 12, 16]), "four lanes, filled in turn");
}

/// Answers for lanes, candidates and members that are gone change nothing.
#[test]
fn stale_answers_are_named() {
    let mut queue = queue(single(), vec![change(1, 0, &["a"])]);
    let gone = LaneId(9);
    let report = TestReport::default();
    assert_eq!(queue.after_tests(gone, &commit(5), &report), Err(StaleWork::NoLane(gone)));
    let tip = commit(TIP);
    assert_eq!(queue.after_conflict(gone, &tip, TaskId(1)), Err(StaleWork::NoLane(gone)));
    let lane = form(&mut queue)[0];
    let aboard = queue.after_conflict(lane, &tip, TaskId(8));
    assert_eq!(aboard, Err(StaleWork::NotAboard { lane, task: TaskId(8) }));
    let elsewhere = queue.after_conflict(lane, &commit(3), TaskId(1));
    assert_eq!(elsewhere, Err(StaleWork::NotBuilding { lane, onto: commit(3) }));
    let before = queue.clone();
    queue.built(lane, &commit(3), &candidate_of(commit(4)));
    queue.passed(lane, &commit(4), &[], &[]);
    queue.landed(lane);
    assert_eq!(queue, before);
}

#[test]
fn verdicts_read_as_sentences() {
    let failed = vec!["a".to_owned(), "b".to_owned()];
    let blamed = AfterTests::Blamed { culprit: TaskId(1), released: Vec::new(), failed };
    assert_eq!(blamed.to_string(), "a, b failed with this change alone on the target");
    let rebase = AfterConflict::Rebase.to_string();
    assert_eq!(rebase, "it conflicts with the target and is rebased, once");
    let waits = Standing::Waiting.to_string();
    assert_eq!(waits, "waits for its turn in the merge queue");
}
