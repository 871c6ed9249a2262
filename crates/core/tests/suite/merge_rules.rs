//! The merge queue as the engine plays it: lanes, culprits, flakes, conflicts, a branch that moves.

use crate::fixture::{M1, World, ann, check, checked, commit, done, task};
use kapelle_core::command::{AdvanceOutcome, LaneOutcome, RewriteOutcome, Spending};
use kapelle_core::event::Restart;
use kapelle_core::failure::Failure;
use kapelle_core::failure::FailureKind;
use kapelle_core::merge::{AfterTests, LaneId, MergePolicy, Step};
use kapelle_core::policy::Policy;
use kapelle_core::status::Status;
use kapelle_core::task::Stage;
use kapelle_core::{Command, Effect, Event, Fence, Refusal, TaskId, why};

/// Tasks named 1, 2, … that need nothing, with a developer for each.
fn world(tasks: u32, policy: Policy) -> World {
    let names: Vec<String> = (1..=tasks).map(|n| n.to_string()).collect();
    let mut world = World::empty();
    let seats = [(kapelle_core::Role::Developer, tasks)].into();
    world.must(Command::ConfigureTeam { seats, workers_max: tasks, by: ann() });
    let tasks = names.iter().map(|name| task(name, &[])).collect();
    world.must(crate::fixture::open(tasks, policy));
    world.chores();
    world
}

/// Changes of all these tasks, on these files, pass their gates in one and the same turn.
fn finish_together(world: &mut World, changes: &[(&str, &str)]) -> Vec<Event> {
    for (number, (name, file)) in (1..).zip(changes) {
        world.finish(name, done(100 + number, &[file]));
    }
    let gates = changes.iter().map(|(name, _)| world.fence_of(name)).collect::<Vec<_>>();
    let answers =
        gates.into_iter().map(|fence| Command::FinishChecks { fence, results: check(true) });
    world.together(answers.collect())
}

fn lanes(events: &[Event]) -> Vec<Vec<u32>> {
    let members = events.iter().filter_map(|event| match event {
        Event::LaneFormed { members, .. } => Some(members.iter().map(|task| task.0).collect()),
        _ => None,
    });
    members.collect()
}

fn verdicts(events: &[Event]) -> Vec<&AfterTests> {
    let told = events.iter().filter_map(|event| match event {
        Event::LaneTested { verdict, .. } => Some(verdict),
        _ => None,
    });
    told.collect()
}

fn test(world: &mut World, name: &str, passed: bool) -> Vec<Event> {
    let fence = world.fence_of(name);
    world.must(Command::FinishChecks { fence, results: check(passed) })
}

fn land(world: &mut World, name: &str) -> Vec<Event> {
    let fence = world.fence_of(name);
    world.must(Command::FinishAdvance { fence, outcome: AdvanceOutcome::Advanced })
}

fn baseline(world: &mut World, passed: bool) -> Vec<Event> {
    let measures = |(fence, effect): (&Fence, &Effect)| {
        matches!(effect, Effect::MeasureBaseline { .. }).then_some(*fence)
    };
    let fence = world.running.iter().find_map(measures).unwrap();
    world.must(Command::FinishChecks { fence, results: check(passed) })
}

fn tip(world: &World) -> kapelle_core::Commit {
    world.state().mission(M1).unwrap().tip.clone().unwrap()
}

/// GIT-11: disjoint changes do not wait for each other; overlapping ones share one candidate.
#[test]
fn disjoint_changes_get_lanes_of_their_own_and_overlapping_ones_share_one() {
    let mut world = world(4, checked());
    let changes = [("1", "a"), ("2", "b"), ("3", "a"), ("4", "c")];
    let events = finish_together(&mut world, &changes);
    assert_eq!(lanes(&events), [vec![1, 3], vec![2], vec![4]]);
}

/// One candidate for each overlapping batch, and never more than five changes in it.
#[test]
fn a_batch_has_at_most_five_changes() {
    let mut world = world(7, checked());
    let names: Vec<String> = (1..=7).map(|n| n.to_string()).collect();
    let changes: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "a")).collect();
    let events = finish_together(&mut world, &changes);
    assert_eq!(lanes(&events), [vec![1, 2, 3, 4, 5]]);
    let told = why(world.state(), world.task("7"));
    assert_eq!(told, Some("waits for its turn in the merge queue".into()));
}

/// GIT-10: one after the other, each on exactly what the one before it made of the branch, and
/// each task with a commit of its own.
#[test]
fn a_lane_lands_whole_and_every_task_keeps_its_own_commit() {
    let mut world = world(2, checked());
    finish_together(&mut world, &[("1", "a"), ("2", "a")]);
    world.build("1", 12);
    assert_eq!(world.status("1"), Status::Testing);
    test(&mut world, "1", true);
    assert_eq!(world.status("2"), Status::ReadyForReview);
    let told = why(world.state(), world.task("2"));
    assert_eq!(told, Some("passed, and lands".into()));
    let events = land(&mut world, "1");
    let merged: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::TaskMerged { task, commit, onto, .. } => Some((task.0, commit.clone(), onto)),
            _ => None,
        })
        .collect();
    let (first, second) = (commit(101), commit(12));
    let expected = [(1, first.clone(), &Some(commit(1))), (2, second.clone(), &Some(first))];
    assert_eq!(merged, expected);
    assert_eq!(tip(&world), second);
    assert!(events.iter().any(|event| matches!(event, Event::DeliveryProposed { .. })));
}

/// Two candidates on one tip would each be tested against a branch that neither will meet.
#[test]
fn a_lane_is_built_on_the_candidate_before_it_and_lands_in_its_turn() {
    let mut world = world(2, checked());
    finish_together(&mut world, &[("1", "a"), ("2", "b")]);
    world.build("1", 11);
    let fence = world.fence_of("2");
    let Some(Effect::BuildLane { onto, .. }) = world.running.get(&fence) else {
        panic!("{:?}", world.running)
    };
    assert_eq!(onto, &commit(11));
    world.build("2", 12);
    test(&mut world, "2", true);
    assert!(!world.running.values().any(|effect| matches!(effect, Effect::LandLane { .. })));
    test(&mut world, "1", true);
    land(&mut world, "1");
    land(&mut world, "2");
    assert_eq!(tip(&world), commit(12));
}

/// The gate has seen this very commit: testing it again would tell nothing new.
#[test]
fn a_commit_that_its_gate_has_checked_needs_no_second_check() {
    let mut world = world(1, checked());
    finish_together(&mut world, &[("1", "a")]);
    let events = world.build("1", 101);
    assert!(matches!(events[1], Event::LanePassed { .. }), "{events:?}");
    land(&mut world, "1");
    assert_eq!(world.status("1"), Status::Completed);
}

/// TDD-12: one retry tells a flake from a fault, and the flake is remembered.
#[test]
fn a_flaky_check_costs_one_run_and_is_recorded() {
    let mut world = world(1, checked());
    finish_together(&mut world, &[("1", "a")]);
    world.build("1", 12);
    let events = test(&mut world, "1", false);
    assert!(matches!(verdicts(&events)[..], [AfterTests::TestAgain { .. }]), "{events:?}");
    test(&mut world, "1", true);
    let queue = world.state().mission(M1).unwrap().merge_queue().unwrap();
    assert_eq!(queue.flaky().get("test"), Some(&1));
    land(&mut world, "1");
    assert_eq!(world.status("1"), Status::Completed);
}

/// A failed batch is halved until the culprit stands alone; the others land, and only the culprit
/// starts over.
#[test]
fn only_the_culprit_of_a_failed_batch_starts_over() {
    let mut world = world(4, checked());
    let changes = [("1", "a"), ("2", "a"), ("3", "a"), ("4", "a")];
    finish_together(&mut world, &changes);
    let culprit = world.task("3").id;
    let mut candidate = 1_000;
    let mut rejected = Vec::new();
    while let Some((fence, effect)) = world.merge_work() {
        candidate += 1;
        let guilty = |lane: &LaneId| world.members(*lane).contains(&culprit);
        let answer = match &effect {
            Effect::BuildLane { changes, .. } => {
                let mut steps = crate::fixture::steps(fence, changes);
                steps.last_mut().unwrap().commit = commit(candidate);
                Command::FinishLane { fence, outcome: LaneOutcome::Built(steps) }
            }
            Effect::TestLane { lane, .. } => {
                Command::FinishChecks { fence, results: check(!guilty(lane)) }
            }
            Effect::MeasureBaseline { .. } => Command::FinishChecks { fence, results: check(true) },
            Effect::LandLane { .. } => {
                Command::FinishAdvance { fence, outcome: AdvanceOutcome::Advanced }
            }
            other => panic!("{other:?}"),
        };
        let events = world.must(answer);
        rejected.extend(events.into_iter().filter_map(|event| match event {
            Event::ChangeRejected { task, .. } => Some(task),
            _ => None,
        }));
    }
    assert_eq!(rejected, [culprit]);
    let statuses = ["1", "2", "3", "4"].map(|name| world.status(name));
    use Status::{Completed, Retrying};
    assert_eq!(statuses, [Completed, Completed, Retrying, Completed]);
    let again = Event::RetryScheduled { task: culprit, at: world.now, from: Restart::Flow };
    assert!(world.journal.iter().any(|record| record.event == again));
}

/// A lane that stands on an unjudged candidate may fail for the other's fault.
#[test]
fn nobody_is_blamed_on_top_of_an_unjudged_candidate() {
    let mut world = world(2, checked());
    finish_together(&mut world, &[("1", "a"), ("2", "b")]);
    world.build("1", 11);
    world.build("2", 12);
    let events = test(&mut world, "2", false);
    assert!(matches!(verdicts(&events)[..], [AfterTests::Held { .. }]), "{events:?}");
    let told = why(world.state(), world.task("2"));
    assert_eq!(told, Some("failed on top of 1 candidate judged first".into()));
    test(&mut world, "1", true);
    land(&mut world, "1");
    test(&mut world, "2", true);
    land(&mut world, "2");
    assert_eq!(world.status("2"), Status::Completed);
}

/// When the candidate below it falls, what was tested on top of it proves nothing: it is stopped,
/// and its late answer is refused.
#[test]
fn what_stood_on_a_fallen_candidate_is_stopped_and_built_anew() {
    let mut world = world(2, checked());
    finish_together(&mut world, &[("1", "a"), ("2", "b")]);
    world.build("1", 11);
    world.build("2", 12);
    let late = world.fence_of("2");
    test(&mut world, "1", false);
    test(&mut world, "1", false);
    baseline(&mut world, true);
    let events = test(&mut world, "1", false);
    assert!(matches!(verdicts(&events)[..], [AfterTests::Blamed { culprit: TaskId(1), .. }]));
    assert!(events.contains(&Event::ChoreWithdrawn { fence: late }), "{events:?}");
    let answer = Command::FinishChecks { fence: late, results: check(true) };
    assert_eq!(world.send(answer), Err(Refusal::StaleFence { presented: late }));
    let fence = world.fence_of("2");
    let Some(Effect::BuildLane { onto, .. }) = world.running.get(&fence) else {
        panic!("{:?}", world.running)
    };
    assert_eq!(onto, &commit(1));
}

/// An answer in the very turn in which its lane falls is as stale as one that comes later.
#[test]
fn an_answer_beside_the_fall_of_its_lane_is_stale() {
    let mut world = world(2, checked());
    finish_together(&mut world, &[("1", "a"), ("2", "b")]);
    world.build("1", 11);
    world.build("2", 12);
    test(&mut world, "1", true);
    let (land, late) = (world.fence_of("1"), world.fence_of("2"));
    let moved = AdvanceOutcome::Moved { actual: commit(9) };
    world.together(vec![
        Command::FinishAdvance { fence: land, outcome: moved },
        Command::FinishChecks { fence: late, results: check(true) },
    ]);
    assert_eq!(world.refused, [Refusal::StaleFence { presented: late }]);
}

/// A failure that the base already has is reported, not blamed.
#[test]
fn a_failure_that_the_branch_has_by_itself_is_nobodys() {
    let mut world = world(1, checked());
    finish_together(&mut world, &[("1", "a")]);
    world.build("1", 12);
    test(&mut world, "1", false);
    let events = test(&mut world, "1", false);
    assert!(matches!(verdicts(&events)[..], [AfterTests::Doubted { .. }]), "{events:?}");
    baseline(&mut world, false);
    let events = test(&mut world, "1", false);
    let excused = vec!["test".to_owned()];
    let passed = AfterTests::Passed { flaky: Vec::new(), excused };
    assert_eq!(verdicts(&events), [&passed]);
    land(&mut world, "1");
    assert_eq!(world.status("1"), Status::Completed);
}

/// Two changes that pass alone can fail together: the candidate is what must pass.
#[test]
fn a_change_that_fails_on_the_branch_starts_over_with_what_the_check_said() {
    let mut world = world(1, checked());
    finish_together(&mut world, &[("1", "a")]);
    world.build("1", 12);
    test(&mut world, "1", false);
    test(&mut world, "1", false);
    baseline(&mut world, true);
    test(&mut world, "1", false);
    let failure = world.task("1").last_failure.clone().unwrap();
    assert_eq!(
        *failure,
        Failure::new(FailureKind::ValidationFailed, "check test failed:\nsaid so")
    );
    assert_eq!(tip(&world), commit(1));
    world.wait(60_000);
    assert_eq!(world.working(), ["1".to_owned()].into());
}

fn conflict(world: &mut World, name: &str) -> Vec<Event> {
    let (fence, task) = (world.fence_of(name), world.task(name).id);
    let outcome = LaneOutcome::Conflict { task, paths: vec!["a".into()] };
    world.must(Command::FinishLane { fence, outcome })
}

/// GIT-19: tried alone, rebased once, and then a person who sees both sides.
#[test]
fn a_conflict_is_tried_alone_then_rebased_once_and_then_a_person_is_asked() {
    let mut world = world(2, checked());
    finish_together(&mut world, &[("1", "a"), ("2", "a")]);
    conflict(&mut world, "2");
    assert_eq!(world.status("2"), Status::Testing, "it is tried alone first");
    world.chores_of_lane("1");
    assert_eq!(world.status("1"), Status::Completed);
    conflict(&mut world, "2");
    let told = why(world.state(), world.task("2"));
    assert_eq!(told, Some("conflicts with the target and is being rebased".into()));
    let fence = world.fence_of("2");
    let (change, touched) = (commit(77), vec!["a".to_owned()]);
    let outcome = RewriteOutcome::Written { change, touched: touched.into() };
    world.must(Command::FinishRewrite { fence, outcome });
    conflict(&mut world, "2");
    assert_eq!(world.status("2"), Status::Blocked);
    let Stage::Asking { question } = world.task("2").stage.clone() else {
        panic!("{:?}", world.task("2").stage)
    };
    let sides = format!("the change {} of task 2 conflicts with kapelle/m1", commit(77).short());
    assert!(question.message.starts_with(&sides), "{}", question.message);
    let (task, input) = (world.task("2").id, "keep both".to_owned());
    let resume_id = question.resume_id;
    world.must(Command::AnswerCheckpoint { task, resume_id, input, by: ann() });
    let fence = world.fence_of("2");
    let Some(Effect::RunAttempt { base, .. }) = world.running.get(&fence) else {
        panic!("{:?}", world.running)
    };
    assert_eq!(base, &tip(&world), "it starts over on the branch as it is now");
    assert_eq!(world.task("2").resume.as_ref().unwrap().user_input, "keep both");
}

/// A rebase that conflicts by itself needs no second try.
#[test]
fn a_rebase_that_conflicts_asks_at_once() {
    let mut world = world(1, Policy::default());
    world.finish("1", done(5, &["a"]));
    conflict(&mut world, "1");
    let fence = world.fence_of("1");
    let outcome = RewriteOutcome::Conflict { paths: vec!["a".into()] };
    world.must(Command::FinishRewrite { fence, outcome });
    assert_eq!(world.status("1"), Status::Blocked);
}

/// A question has a bound, and half a command would show something else than both sides.
#[test]
fn a_question_about_many_files_still_tells_a_whole_command() {
    let told = |paths: Vec<String>| {
        let mut world = world(1, Policy::default());
        world.finish("1", done(5, &["a"]));
        conflict(&mut world, "1");
        let fence = world.fence_of("1");
        world.must(Command::FinishRewrite { fence, outcome: RewriteOutcome::Conflict { paths } });
        let Stage::Asking { question } = world.task("1").stage.clone() else {
            panic!("{:?}", world.task("1").stage)
        };
        let (_, command) = question.message.split_once("+ the change): ").unwrap();
        command.to_owned()
    };
    let (onto, change) = (commit(1).short().to_owned(), commit(5).short().to_owned());
    let folder = "x".repeat(200);
    let few = (1..=4).map(|n| format!(" ':(top){folder}/{n}'")).collect::<String>();
    let many = (1..=100).map(|n| format!("{folder}/{n}")).collect();
    assert_eq!(told(many), format!("git diff {onto} {change} --{few}"));
    assert_eq!(told(vec!["y".repeat(4_000)]), format!("git diff {onto} {change} --"));
    let odd = "it's\nodd".to_owned();
    assert_eq!(told(vec![odd]), format!(r"git diff {onto} {change} -- ':(top)it'\''s*odd'"));
}

/// Compare-and-swap: what was tested is not what would be, so it is built and tested anew.
#[test]
fn a_branch_that_somebody_else_moved_means_building_anew() {
    let mut world = world(1, checked());
    finish_together(&mut world, &[("1", "a")]);
    world.build("1", 101);
    let fence = world.fence_of("1");
    let outcome = AdvanceOutcome::Moved { actual: commit(9) };
    world.must(Command::FinishAdvance { fence, outcome });
    let Some(Effect::BuildLane { onto, .. }) = world.running.values().next() else {
        panic!("{:?}", world.running)
    };
    assert_eq!(onto, &commit(9));
    assert_eq!(world.status("1"), Status::Testing);
}

/// A host that builds something else than it was asked to has built nothing.
#[test]
fn a_lane_of_other_changes_is_a_failed_chore() {
    let mut world = world(1, checked());
    finish_together(&mut world, &[("1", "a")]);
    let fence = world.fence_of("1");
    let steps = vec![Step { task: TaskId(9), commit: commit(12) }];
    let events = world.must(Command::FinishLane { fence, outcome: LaneOutcome::Built(steps) });
    assert!(matches!(events[..], [Event::ChoreFailed { .. }]), "{events:?}");
}

/// A chore of the queue answers for itself only.
#[test]
fn a_lane_is_finished_by_its_own_kind_of_answer() {
    let mut world = world(1, checked());
    let attempt = world.fence_of("1");
    let answer = |fence| Command::FinishLane { fence, outcome: LaneOutcome::Built(Vec::new()) };
    assert!(matches!(world.send(answer(attempt)), Err(Refusal::OtherFence { .. })));
    finish_together(&mut world, &[("1", "a")]);
    let build = world.fence_of("1");
    let others = [
        Command::FinishAdvance { fence: build, outcome: AdvanceOutcome::Advanced },
        Command::FinishChecks { fence: build, results: check(true) },
        Command::FinishRewrite {
            fence: build,
            outcome: RewriteOutcome::Conflict { paths: Vec::new() },
        },
        Command::FinishAttempt { fence: build, outcome: done(6, &[]), spent: Spending::default() },
    ];
    for other in others {
        let refused = world.send(other.clone());
        assert!(matches!(refused, Err(Refusal::OtherFence { .. })), "{other:?}: {refused:?}");
    }
}

/// `kill -9` while lanes are built and tested: all of it is taken up again.
#[test]
fn a_restart_takes_up_every_lane_again() {
    let mut world = world(2, checked());
    finish_together(&mut world, &[("1", "a"), ("2", "b")]);
    world.build("1", 11);
    let before: Vec<Fence> = world.running.keys().copied().collect();
    world.restart();
    let after: Vec<Fence> = world.running.keys().copied().collect();
    assert_eq!(before.len(), after.len());
    assert!(before.iter().all(|fence| !after.contains(fence)), "{before:?} {after:?}");
    world.chores();
    assert_eq!((world.status("1"), world.status("2")), (Status::Completed, Status::Completed));
}

/// A chore of a lane that failed waits, and is not started twice when something else happens.
#[test]
fn a_parked_lane_is_tried_again_when_its_moment_comes() {
    let mut world = world(2, checked());
    finish_together(&mut world, &[("1", "a"), ("2", "b")]);
    let fence = world.fence_of("1");
    let failure = Failure::new(FailureKind::DiskFull, "no space left");
    world.must(Command::FailChore { fence, failure });
    assert!(world.running.is_empty(), "{:?}", world.running);
    world.wait(60_000);
    world.chores();
    assert_eq!(world.status("2"), Status::Completed);
}

#[test]
fn a_cancelled_mission_lands_nothing_more() {
    let mut world = world(2, checked());
    finish_together(&mut world, &[("1", "a"), ("2", "b")]);
    world.must(Command::CancelMission { mission: M1, reason: "no".into(), by: ann() });
    assert!(world.running.is_empty());
    assert!(world.state().mission(M1).unwrap().merge_queue().is_none());
}

/// A queue with no room would stand still without a word.
#[test]
fn a_mission_with_a_queue_that_cannot_work_is_refused() {
    let mut world = World::empty();
    let merge = MergePolicy { lanes_max: 0, ..MergePolicy::default() };
    let policy = Policy { merge, ..Policy::default() };
    let refused = world.send(crate::fixture::open(vec![task("1", &[])], policy)).unwrap_err();
    let expected = "the merge queue cannot work: lanes_max must be at least 1";
    assert_eq!(refused.to_string(), expected);
}
