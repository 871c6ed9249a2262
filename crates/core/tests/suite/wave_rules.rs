//! Tasks that stand or fall together (GIT-16), as the engine plays it.

use crate::fixture::{M1, World, ann, check, checked, commit, done, failed, task};
use kapelle_core::approval::{ApprovalPolicy, Level, Subject};
use kapelle_core::command::RewriteOutcome;
use kapelle_core::event::{Interruption, PauseReason};
use kapelle_core::failure::FailureKind;
use kapelle_core::mission::MissionStatus;
use kapelle_core::plan::{PlannedTask, TaskKind};
use kapelle_core::policy::Policy;
use kapelle_core::rollback::RollbackRefused;
use kapelle_core::status::Status;
use kapelle_core::task::Stage;
use kapelle_core::{Actor, Command, Effect, Event, Refusal, TaskId, why};

fn in_wave(id: &str, needs: &[&str]) -> PlannedTask {
    PlannedTask { wave: Some("login".into()), ..task(id, needs) }
}

/// A world with a branch, and these tasks landed, each in a file of its name.
fn landed(tasks: Vec<PlannedTask>, names: &[&str], policy: Policy) -> World {
    let mut world = World::with(tasks, policy);
    world.chores();
    for (number, name) in (1..).zip(names) {
        world.finish(name, done(100 + number, &[name]));
        world.chores();
    }
    world
}

/// The task fails until it gives up; what else runs is left alone.
fn give_up(world: &mut World, name: &str) -> Vec<Event> {
    loop {
        let events = world.finish(name, failed(FailureKind::GitConflict));
        if world.status(name) == Status::DeadLetter {
            return events;
        }
        world.wait(60_000);
    }
}

fn taken_back(events: &[Event]) -> Option<Vec<u32>> {
    events.iter().find_map(|event| match event {
        Event::RollbackStarted { tasks, .. } => Some(tasks.iter().map(|task| task.0).collect()),
        _ => None,
    })
}

fn paused(events: &[Event]) -> Option<String> {
    events.iter().find_map(|event| match event {
        Event::MissionPaused { reason: reason @ PauseReason::Wave { .. }, .. } => {
            Some(reason.to_string())
        }
        _ => None,
    })
}

fn refused(because: RollbackRefused) -> Result<Vec<Event>, Refusal> {
    Err(Refusal::Rollback { because })
}

/// GIT-16: the whole of it, in the commit in which one gives up.
#[test]
fn when_one_of_a_wave_gives_up_all_that_landed_of_it_is_taken_back() {
    let tasks = vec![in_wave("1", &[]), in_wave("2", &[]), in_wave("3", &[]), task("4", &[])];
    let mut world = landed(tasks, &["1", "2", "4"], checked());
    let events = give_up(&mut world, "3");
    assert_eq!(taken_back(&events), Some(vec![2, 1]), "the newest first, and nothing else");
    world.chores();
    let statuses = ["1", "2", "3", "4"].map(|name| world.status(name));
    use Status::{Completed, DeadLetter, RolledBack};
    assert_eq!(statuses, [RolledBack, RolledBack, DeadLetter, Completed]);
}

/// What is still at work on a wave that fell is stopped, and nobody pays for more of it.
#[test]
fn the_others_of_a_wave_stop_when_one_gives_up() {
    let tasks = vec![in_wave("1", &[]), in_wave("2", &[]), task("3", &["2"])];
    let mut world = World::with(tasks, checked());
    world.chores();
    assert_eq!(world.working(), ["1".to_owned(), "2".to_owned()].into());
    let events = give_up(&mut world, "1");
    let with = TaskId(1);
    let stopped = |event: &Event| {
        matches!(event, Event::AttemptInterrupted { cause, .. }
            if *cause == Interruption::WaveFell { with })
    };
    assert!(events.iter().any(stopped), "{events:?}");
    assert_eq!((world.status("2"), world.status("3")), (Status::Blocked, Status::Blocked));
    assert!(world.working().is_empty());
    let told = why(world.state(), world.task("2")).unwrap();
    assert_eq!(told, "stands or falls with the wave login, of which 1 gave up");
    assert_eq!(why(world.state(), world.task("3")).unwrap(), "Dependency 1 failed");
}

/// What waited for its merge when its wave fell is done: it goes on to the merge, and nobody is
/// asked to do it again.
#[test]
fn a_finished_change_of_a_wave_that_stands_again_is_merged() {
    let mut world = World::with(vec![in_wave("1", &[]), in_wave("2", &[])], checked());
    world.chores();
    world.finish("1", done(5, &["a"]));
    let fence = world.fence_of("1");
    world.must(Command::FinishChecks { fence, results: check(true) });
    assert!(matches!(world.task("1").stage, Stage::Merging { .. }));
    give_up(&mut world, "2");
    assert_eq!(world.status("1"), Status::Blocked);
    let (task, reason) = (world.task("2").id, "again".to_owned());
    world.must(Command::RequeueTask { task, reason, by: ann() });
    assert_eq!(world.working(), ["2".to_owned()].into());
    world.chores();
    assert_eq!(world.task("1").merged, Some(commit(5)));
}

/// A wave falls, too, with what it needs.
#[test]
fn a_wave_falls_with_a_task_that_it_needs() {
    let tasks = vec![in_wave("1", &[]), task("2", &[]), in_wave("3", &["2"])];
    let mut world = landed(tasks, &["1"], checked());
    let events = give_up(&mut world, "2");
    assert_eq!(taken_back(&events), Some(vec![1]));
}

/// GIT-16, C-08: all or nothing. What cannot be taken back as a whole stays as a whole, and the
/// person who is asked reads which task is in the way.
#[test]
fn a_wave_that_cannot_be_taken_back_as_a_whole_stays_and_a_person_is_asked() {
    let migration = PlannedTask { kind: TaskKind::Migration, ..in_wave("2", &[]) };
    let tasks = vec![in_wave("1", &[]), migration, in_wave("3", &[])];
    let mut world = landed(tasks, &["1", "2"], checked());
    let events = give_up(&mut world, "3");
    assert_eq!(taken_back(&events), None);
    let told = paused(&events).unwrap();
    assert_eq!(
        told,
        "the wave login fell with task 3, and stays half landed: Cannot rollback task 2: it ran a \
         database migration that has no way back. Manual intervention required"
    );
    assert_eq!((world.status("1"), world.status("2")), (Status::Completed, Status::Completed));
    // Once is enough: a person who goes on is not stopped again.
    world.must(Command::ResumeMission { mission: M1, by: ann() });
    assert_eq!(world.state().mission(M1).unwrap().status(), MissionStatus::Failed);
}

/// Another task built on files of the wave since: its name is in what people are told.
#[test]
fn a_wave_under_somebody_elses_work_stays_and_says_whose() {
    let tasks = vec![in_wave("1", &[]), task("2", &[]), in_wave("3", &[])];
    let mut world = World::with(tasks, checked());
    world.chores();
    for (number, name) in [(101, "1"), (102, "2")] {
        world.finish(name, done(number, &["shared"]));
        world.chores();
    }
    let told = paused(&give_up(&mut world, "3")).unwrap();
    assert!(told.contains("Cannot rollback: 1 files modified by other tasks (2)"), "{told}");
}

/// A reversal that fails its checks takes nothing back, and is not tried for ever.
#[test]
fn a_wave_whose_reversal_conflicts_stays_and_a_person_is_asked() {
    let tasks = vec![in_wave("1", &[]), in_wave("2", &[])];
    let mut world = landed(tasks, &["1"], Policy::default());
    give_up(&mut world, "2");
    let fence = world.fence_of("1");
    let outcome = RewriteOutcome::Conflict { paths: vec!["1".into()] };
    let events = world.must(Command::FinishRewrite { fence, outcome });
    assert!(paused(&events).is_some(), "{events:?}");
    world.must(Command::ResumeMission { mission: M1, by: ann() });
    assert_eq!(world.status("1"), Status::Completed);
    assert!(world.running.is_empty(), "{:?}", world.running);
}

/// Nobody takes one of a wave back and leaves the others, not even a person.
#[test]
fn a_person_takes_a_wave_back_as_a_whole_or_not_at_all() {
    let tasks = vec![in_wave("1", &[]), in_wave("2", &[]), in_wave("3", &[]), task("4", &["1"])];
    let mut world = landed(tasks, &["1", "2"], checked());
    let command = |world: &World| {
        let task = world.task("1").id;
        Command::RollbackTask { task, reason: "it was wrong".into(), by: ann() }
    };
    let roll_back = command(&world);
    let because = RollbackRefused::WaveInWork { task: "1".into(), mate: "3".into() };
    assert_eq!(world.send(roll_back), refused(because));
    world.finish("3", done(103, &["3"]));
    world.chores();
    world.finish("4", done(104, &["4"]));
    world.chores();
    let roll_back = command(&world);
    let because = RollbackRefused::BeyondWave { task: "1".into(), count: 1 };
    assert_eq!(world.send(roll_back), refused(because));
    let tasks = [4, 3, 2, 1].map(TaskId).to_vec();
    let (task, reason) = (world.task("3").id, "all of it".to_owned());
    world.must(Command::ConfirmRollback { task, tasks, reason, by: ann() });
    world.chores();
    let statuses = ["1", "2", "3", "4"].map(|name| world.status(name));
    assert_eq!(statuses, [Status::RolledBack; 4]);
}

/// Whoever brings back the task that gave up brings back all that fell with it.
#[test]
fn a_wave_that_fell_rises_as_a_whole() {
    let tasks = vec![in_wave("1", &[]), in_wave("2", &["1"]), in_wave("3", &[])];
    let mut world = landed(tasks, &["1"], checked());
    give_up(&mut world, "3");
    let requeue = |world: &World| {
        let task = world.task("3").id;
        Command::RequeueTask { task, reason: "mended".into(), by: ann() }
    };
    let early = requeue(&world);
    assert_eq!(world.send(early), refused(RollbackRefused::UnderWay { task: "1".into() }));
    world.chores();
    assert_eq!((world.status("1"), world.status("2")), (Status::RolledBack, Status::Blocked));
    let again = requeue(&world);
    world.must(again);
    assert_eq!(world.working(), ["1".to_owned(), "3".to_owned()].into());
    assert_eq!(world.status("2"), Status::Pending);
    for (number, name) in [(201, "1"), (202, "3"), (203, "2")] {
        world.finish(name, done(number, &[name]));
        world.chores();
    }
    let mission = world.state().mission(M1).unwrap();
    assert_eq!(mission.status(), MissionStatus::AwaitingApproval);
}

/// Whoever gave up may need what fell with it: that rises with it, and must not hold it back.
#[test]
fn a_task_that_comes_back_is_not_held_back_by_what_fell_with_it() {
    let tasks = vec![in_wave("1", &[]), in_wave("2", &["1"])];
    let mut world = landed(tasks, &["1"], checked());
    give_up(&mut world, "2");
    world.chores();
    let requeue = |world: &mut World, name: &str| {
        let task = world.task(name).id;
        world.must(Command::RequeueTask { task, reason: "mended".into(), by: ann() });
    };
    requeue(&mut world, "1");
    assert_eq!(world.status("1"), Status::Blocked, "the wave is still broken");
    requeue(&mut world, "2");
    assert_eq!(world.working(), ["1".to_owned()].into());
    assert_eq!(world.status("2"), Status::Pending);
}

/// Who broke it was put back to work, and waits for what was taken back: the wave is whole again,
/// and what else is in it needs nobody.
#[test]
fn a_wave_is_not_held_back_by_what_was_taken_back() {
    let tasks = vec![task("1", &[]), in_wave("2", &["1"]), in_wave("3", &[])];
    let mut world = landed(tasks, &["1"], checked());
    give_up(&mut world, "2");
    assert_eq!(world.status("3"), Status::Blocked);
    let (first, second) = (world.task("1").id, world.task("2").id);
    let reason = || "it was wrong".to_owned();
    world.must(Command::RollbackTask { task: first, reason: reason(), by: ann() });
    world.chores();
    world.must(Command::RequeueTask { task: second, reason: reason(), by: ann() });
    assert_eq!((world.status("1"), world.status("2")), (Status::RolledBack, Status::Blocked));
    assert_eq!(world.working(), ["3".to_owned()].into());
}

/// HUM-09: at level 1 people approve it, at level 2 they are told, from level 3 on it just happens.
#[test]
fn what_falls_with_a_wave_goes_back_with_the_word_that_the_level_asks_for() {
    for level in Level::ALL {
        let docs = |id: &str| PlannedTask { kind: TaskKind::Docs, ..in_wave(id, &[]) };
        let approvals = Some(ApprovalPolicy { level, ..ApprovalPolicy::default() });
        let mut world = World::with(vec![docs("1"), docs("2")], Policy { approvals, ..checked() });
        let agree = |world: &mut World| {
            let next = |world: &World| {
                let gate = world.state().approvals().waiting().next().map(|(gate, _)| gate.clone());
                gate.filter(|g| !matches!(g.subject, Subject::Delivery(_) | Subject::Rollback(_)))
            };
            while let Some(gate) = next(world) {
                let (subject, commit, by) = (gate.subject, gate.commit, ann());
                world.must(Command::Approve { subject, commit, by });
                world.chores();
            }
        };
        world.chores();
        agree(&mut world);
        world.finish("1", done(101, &["a"]));
        world.chores();
        agree(&mut world);
        let events = give_up(&mut world, "2");
        let told = events
            .iter()
            .any(|event| matches!(event, Event::WentAhead { subject: Subject::Rollback(_), .. }));
        let number = u8::from(level);
        assert_eq!(taken_back(&events).is_some(), number >= 2, "{level:?}");
        assert_eq!(told, number == 2, "{level:?}");
        if number < 2 {
            let (subject, tip) = (Subject::Rollback(TaskId(1)), commit(101));
            let by = Actor("bob".into());
            let events = world.must(Command::Approve { subject, commit: tip, by });
            assert_eq!(taken_back(&events), Some(vec![1]), "{level:?}");
        }
        let fence = world.fence_of("1");
        assert!(matches!(world.running.get(&fence), Some(Effect::BuildRevert { .. })));
    }
}

/// Whoever says no to it keeps what has landed.
#[test]
fn people_may_keep_what_landed_of_a_wave() {
    let approvals = ApprovalPolicy { level: Level::Assisted, ..ApprovalPolicy::default() };
    let docs = |id: &str| PlannedTask { kind: TaskKind::Docs, ..in_wave(id, &[]) };
    let policy = Policy { approvals: Some(approvals), ..checked() };
    let mut world = World::with(vec![docs("1"), docs("2")], policy);
    world.chores();
    let plan = Subject::Plan(M1);
    world.must(Command::Approve { subject: plan, commit: commit(1), by: ann() });
    world.finish("1", done(101, &["a"]));
    world.chores();
    let merge = Subject::Merge(TaskId(1));
    world.must(Command::Approve { subject: merge, commit: commit(101), by: ann() });
    world.chores();
    give_up(&mut world, "2");
    let (subject, reason) = (Subject::Rollback(TaskId(1)), "it is fine alone".to_owned());
    let events = world.must(Command::Reject { subject, commit: commit(101), reason, by: ann() });
    assert_eq!(taken_back(&events), None);
    assert_eq!(world.status("1"), Status::Completed);
    assert!(world.running.is_empty(), "{:?}", world.running);
}
