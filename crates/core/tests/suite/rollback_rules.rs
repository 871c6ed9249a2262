//! Taking back what landed, as the engine plays it.

use crate::fixture::{M1, World, ann, check, checked, commit, done, task};
use kapelle_core::command::{LaneOutcome, RewriteOutcome};
use kapelle_core::mission::MissionStatus;
use kapelle_core::plan::{PlannedTask, TaskKind};
use kapelle_core::policy::Policy;
use kapelle_core::report::Report;
use kapelle_core::rollback::{Irreversible, RollbackRefused};
use kapelle_core::status::Status;
use kapelle_core::{Command, Effect, Event, Refusal, TaskId, why};

fn roll_back(world: &World, name: &str) -> Command {
    let task = world.task(name).id;
    Command::RollbackTask { task, reason: "it was wrong".into(), by: ann() }
}

fn confirm(world: &World, name: &str, tasks: &[&str]) -> Command {
    let tasks = tasks.iter().map(|name| world.task(name).id).collect();
    let task = world.task(name).id;
    Command::ConfirmRollback { task, tasks, reason: "all of it".into(), by: ann() }
}

fn refused(because: RollbackRefused) -> Result<Vec<Event>, Refusal> {
    Err(Refusal::Rollback { because })
}

/// These tasks, merged one after the other; each touches the file of its name, or `files`.
fn merged(tasks: Vec<PlannedTask>, files: &[(&str, &[&str])], policy: Policy) -> World {
    let mut world = World::with(tasks, policy);
    world.chores();
    for (number, (name, touched)) in (1..).zip(files) {
        world.finish(name, done(100 + number, touched));
        world.chores();
    }
    world
}

fn status(world: &World) -> MissionStatus {
    world.state().mission(M1).unwrap().status()
}

/// GIT-13, GIT-14: the reversal is written on the branch, tested like any change, and lands; the
/// rest can be delivered.
#[test]
fn a_rollback_goes_through_the_merge_queue_and_the_rest_is_proposed_anew() {
    let tasks = vec![task("1", &[]), task("2", &[])];
    let mut world = merged(tasks, &[("1", &["a"]), ("2", &["b"])], checked());
    assert_eq!(status(&world), MissionStatus::AwaitingApproval);
    world.must(roll_back(&world, "1"));
    assert_eq!(status(&world), MissionStatus::Running, "what was proposed is not what will be");
    let fence = world.fence_of("1");
    let Some(Effect::BuildRevert { onto, reverts, .. }) = world.running.get(&fence).cloned() else {
        panic!("{:?}", world.running)
    };
    assert_eq!(onto, commit(102));
    let revert = &reverts[0];
    assert_eq!((&revert.commits[..], &revert.onto), (&[commit(101)][..], &commit(1)));
    assert_eq!(revert.message, "Rollback task 1");
    let outcome = RewriteOutcome::Written { change: commit(7), touched: vec!["a".into()].into() };
    world.must(Command::FinishRewrite { fence, outcome });
    world.build("1", 7);
    let fence = world.fence_of("1");
    world.must(Command::FinishChecks { fence, results: check(true) });
    world.chores();
    assert_eq!((world.status("1"), world.status("2")), (Status::RolledBack, Status::Completed));
    assert_eq!(status(&world), MissionStatus::AwaitingApproval);
    assert_eq!(world.state().mission(M1).unwrap().tip, Some(commit(7)));
    let told = why(world.state(), world.task("1"));
    let says = "was merged, and taken back again by ann: it was wrong; a person can requeue it";
    assert_eq!(told.as_deref(), Some(says));
    let again = roll_back(&world, "1");
    assert_eq!(world.send(again), refused(RollbackRefused::NotLanded(TaskId(1))));
}

/// GIT-14, with its very words.
#[test]
fn files_of_other_tasks_stop_a_rollback() {
    let tasks = vec![task("1", &[]), task("2", &[])];
    let mut world = merged(tasks, &[("1", &["a", "b"]), ("2", &["b"])], checked());
    let command = roll_back(&world, "1");
    let told = world.send(command).unwrap_err().to_string();
    let words = "Cannot rollback: 1 files modified by other tasks. Manual intervention required";
    assert_eq!(told, words);
}

/// GIT-18: a task on top of another goes only on the word of a person, and only if what stays
/// passes without it.
#[test]
fn an_overlapping_task_goes_when_confirmed_and_what_stays_passes() {
    let tasks = vec![task("1", &[]), task("2", &[])];
    let mut world = merged(tasks, &[("1", &["a"]), ("2", &["a"])], checked());
    let command = roll_back(&world, "2");
    let refused = RollbackRefused::FilesModified { files: 1, by: vec![world.task("1").id] };
    assert_eq!(world.send(command), Err(refused.into()));
    let command = confirm(&world, "2", &["2"]);
    world.must(command);
    let fence = world.fence_of("2");
    let outcome = RewriteOutcome::Written { change: commit(7), touched: vec!["a".into()].into() };
    world.must(Command::FinishRewrite { fence, outcome });
    world.build("2", 7);
    for _ in 0..2 {
        let fence = world.fence_of("2");
        world.must(Command::FinishChecks { fence, results: check(false) });
    }
    assert_eq!(world.status("2"), Status::Completed, "1 fails without it, so it stays");
    assert_eq!(status(&world), MissionStatus::AwaitingApproval);
    let failed = |event: &Event| matches!(event, Event::RollbackFailed { .. });
    assert!(world.journal.iter().any(|record| failed(&record.event)));
}

/// GIT-15: what was built on it falls first, and only when a person says so to that very list.
#[test]
fn dependents_fall_first_and_only_when_confirmed() {
    let tasks = vec![task("1", &[]), task("2", &["1"]), task("3", &["2"])];
    let files: [(&str, &[&str]); 3] = [("1", &["a"]), ("2", &["b"]), ("3", &["c"])];
    let mut world = merged(tasks, &files, checked());
    let command = roll_back(&world, "1");
    let because = RollbackRefused::BuiltOn { task: "1".into(), count: 1 };
    assert_eq!(world.send(command), refused(because));
    let command = confirm(&world, "1", &["1", "2"]);
    assert_eq!(world.send(command), refused(RollbackRefused::ScopeChanged { seen: 2, now: 3 }));
    let command = confirm(&world, "1", &["3", "2", "1"]);
    world.must(command);
    let fence = world.fence_of("1");
    let Some(Effect::BuildRevert { reverts, .. }) = world.running.get(&fence) else {
        panic!("{:?}", world.running)
    };
    assert_eq!(reverts.iter().map(|revert| revert.task.0).collect::<Vec<_>>(), [3, 2, 1]);
    world.chores();
    let statuses = ["1", "2", "3"].map(|name| world.status(name));
    assert_eq!(statuses, [Status::RolledBack; 3]);
    assert_eq!(status(&world), MissionStatus::Failed, "nothing is left to deliver");
}

/// A task that starts on what is being taken away would build on sand.
#[test]
fn what_needs_a_rolled_back_task_does_not_start() {
    let tasks = vec![task("1", &[]), task("2", &["1"]), task("3", &["2"])];
    let mut world = World::with(tasks, checked());
    world.chores();
    world.finish("1", done(101, &["a"]));
    world.chores();
    let command = roll_back(&world, "1");
    let because = RollbackRefused::InWork { task: "1".into(), count: 1 };
    let told = "Cannot rollback: 1 tasks that need task 1 are at work. Confirm the rollback: they \
                are stopped, and begin anew when it is done again";
    assert_eq!(Refusal::from(because.clone()).to_string(), told);
    assert_eq!(world.send(command), refused(because));
    world.must(Command::PauseMission { mission: M1, reason: "wait".into(), by: ann() });
    let command = roll_back(&world, "1");
    world.must(command);
    assert_eq!((world.status("2"), world.status("3")), (Status::Blocked, Status::Blocked));
    world.must(Command::ResumeMission { mission: M1, by: ann() });
    assert!(world.working().is_empty());
    world.chores();
    assert_eq!(world.status("1"), Status::RolledBack);
    assert_eq!(status(&world), MissionStatus::Failed);
}

/// A reversal that does not fit leaves everything as it was, and what it held up goes on.
#[test]
fn a_rollback_that_conflicts_is_called_off() {
    let tasks = vec![task("1", &[]), task("2", &["1"])];
    let mut world = World::with(tasks, Policy::default());
    world.chores();
    world.finish("1", done(101, &["a"]));
    world.chores();
    world.must(Command::PauseMission { mission: M1, reason: "wait".into(), by: ann() });
    let command = roll_back(&world, "1");
    world.must(command);
    let twice = roll_back(&world, "1");
    assert_eq!(world.send(twice), refused(RollbackRefused::UnderWay { task: "1".into() }));
    world.must(Command::ResumeMission { mission: M1, by: ann() });
    let fence = world.fence_of("1");
    let outcome = RewriteOutcome::Conflict { paths: vec!["a".into()] };
    world.must(Command::FinishRewrite { fence, outcome });
    assert_eq!(world.status("1"), Status::Completed);
    assert_eq!(world.working(), ["2".to_owned()].into());
}

/// The branch went on while the reversal was written: it is written anew, once.
#[test]
fn a_reversal_that_conflicts_in_its_lane_is_written_anew() {
    let tasks = vec![task("1", &[]), task("2", &[])];
    let mut world = merged(tasks, &[("1", &["a"]), ("2", &["b"])], Policy::default());
    let command = roll_back(&world, "1");
    world.must(command);
    let fence = world.fence_of("1");
    let written =
        |number| RewriteOutcome::Written { change: commit(number), touched: Vec::new().into() };
    world.must(Command::FinishRewrite { fence, outcome: written(7) });
    let (fence, task) = (world.fence_of("1"), world.task("1").id);
    let outcome = LaneOutcome::Conflict { task, paths: vec!["a".into()] };
    world.must(Command::FinishLane { fence, outcome });
    let fence = world.fence_of("1");
    assert!(matches!(world.running.get(&fence), Some(Effect::BuildRevert { .. })));
    world.must(Command::FinishRewrite { fence, outcome: written(8) });
    world.chores();
    assert_eq!(world.status("1"), Status::RolledBack);
}

/// GIT-20: git cannot take back a database.
#[test]
fn a_migration_without_a_way_back_is_not_reversible() {
    let migration = |id: &str| PlannedTask { kind: TaskKind::Migration, ..task(id, &[]) };
    let tasks = vec![migration("1"), migration("2")];
    let files: [(&str, &[&str]); 2] =
        [("1", &["db/1.sql", "ui/drop_down.tsx"]), ("2", &["db/2.sql", "db/2.down.sql"])];
    let mut world = merged(tasks, &files, checked());
    let command = roll_back(&world, "1");
    let because = Irreversible::Migration;
    let irreversible = RollbackRefused::Irreversible { task: "1".into(), because };
    assert_eq!(world.send(command), refused(irreversible.clone()));
    let landings = world.state().mission(M1).unwrap().landings();
    assert_eq!(landings.reversible(world.task("1").id), Err(irreversible));
    assert!(landings.reversible(world.task("2").id).is_ok());
    let command = roll_back(&world, "2");
    assert!(world.send(command).is_ok());
}

/// GIT-20: a task of any kind may bring a migration along, and its agent may know of more than git.
#[test]
fn migrations_are_known_by_their_place_and_by_the_word_of_the_agent() {
    let tasks = || ["1", "2", "3"].map(|name| task(name, &[])).to_vec();
    let mut world = World::with(tasks(), checked());
    world.chores();
    world.finish("1", done(101, &["app/migrations/0002_user.py", "app/models.py"]));
    world.chores();
    let fence = world.fence_of("2");
    let report = Report { rollback_possible: Some(false), ..Report::default() };
    assert!(report.says_something(), "or nobody would hear of it");
    world.must(Command::ReportTask { fence, report });
    world.finish("2", done(102, &["src/mail.rs"]));
    world.chores();
    world.finish("3", done(103, &["src/migrations.rs"]));
    world.chores();
    let landings = world.state().mission(M1).unwrap().landings();
    let because = |name: &str| match landings.reversible(world.task(name).id) {
        Ok(()) => None,
        Err(RollbackRefused::Irreversible { because, .. }) => Some(because),
        Err(other) => panic!("{other}"),
    };
    assert_eq!(because("1"), Some(Irreversible::Migration));
    assert_eq!(because("2"), Some(Irreversible::Stated));
    assert_eq!(because("3"), None, "a file of that name is none");
}

/// GIT-21: for a reset by hand.
#[test]
fn the_last_good_commit_of_each_task_is_kept() {
    let tasks = vec![task("1", &[]), task("2", &[])];
    let world = merged(tasks, &[("1", &["a"]), ("2", &["b"])], checked());
    let landings = world.state().mission(M1).unwrap().landings();
    let good =
        ["1", "2"].map(|name| landings.landing(world.task(name).id).unwrap().last_good.clone());
    assert_eq!(good, [commit(1), commit(101)]);
}

#[test]
fn a_rollback_is_signed_has_a_reason_and_comes_before_the_delivery() {
    let mut world = merged(vec![task("1", &[])], &[("1", &["a"])], checked());
    let task = world.task("1").id;
    let silent = Command::RollbackTask { task, reason: " ".into(), by: ann() };
    assert_eq!(world.send(silent), Err(Refusal::Missing { what: "the reason" }));
    let unknown = Command::RollbackTask { task: TaskId(99), reason: "r".into(), by: ann() };
    assert_eq!(world.send(unknown), Err(Refusal::UnknownTask(TaskId(99))));
    let tip = world.state().mission(M1).unwrap().tip.clone().unwrap();
    world.must(Command::ApproveDelivery { mission: M1, commit: tip, by: ann() });
    let command = roll_back(&world, "1");
    assert_eq!(world.send(command), Err(Refusal::Delivering { mission: M1 }));
    world.chores();
    let command = roll_back(&world, "1");
    assert!(matches!(world.send(command), Err(Refusal::MissionEnded { .. })));
}
