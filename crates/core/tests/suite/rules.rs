//! The rules, one test each: given a history, when a command comes, then these events.

use crate::fixture::{
    M1, World, ann, asked, check, checked, commit, done, failed, open, task, test_first,
};
use kapelle_core::approval::{PeopleRefused, PersonRole, Right};
use kapelle_core::command::{AdvanceOutcome, AttemptOutcome, DeliveryOutcome, Spending};
use kapelle_core::event::{Interruption, PauseReason};
use kapelle_core::failure::{Failure, FailureKind};
use kapelle_core::limits;
use kapelle_core::mission::MissionStatus;
use kapelle_core::plan::Priority;
use kapelle_core::policy::{Budget, Policy};
use kapelle_core::report::Question;
use kapelle_core::scaling::ManualScale;
use kapelle_core::status::Status;
use kapelle_core::task::Stage;
use kapelle_core::{
    Actor, Command, Effect, Engine, Event, Fence, MissionId, Refusal, Role, TaskId, Usd, council,
    why,
};

fn mission_status(world: &World) -> MissionStatus {
    world.state().mission(M1).unwrap().status()
}

fn approve(number: u64) -> Command {
    Command::ApproveDelivery { mission: M1, commit: commit(number), by: ann() }
}

#[test]
fn a_goal_walks_from_plan_to_delivery() {
    let mut world = World::with(vec![task("1", &[]), task("2", &["1"])], checked());
    world.chores();
    world.succeed("1");
    world.succeed("2");
    assert_eq!(mission_status(&world), MissionStatus::AwaitingApproval);
    let tip = world.state().mission(M1).unwrap().tip.clone().unwrap();
    world.must(Command::ApproveDelivery { mission: M1, commit: tip, by: ann() });
    world.chores();
    assert_eq!(mission_status(&world), MissionStatus::Delivered);
    assert!(world.state().due().is_empty());
}

/// Two clicks on one button must not deliver the goal twice.
#[test]
fn the_same_request_opens_one_mission() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    let again = world.send(open(vec![task("1", &[])], Policy::default()));
    assert_eq!(again, Err(Refusal::MissionExists { mission: M1 }));
}

#[test]
fn a_mission_without_goal_or_with_a_wrong_plan_is_refused() {
    let mut world = World::empty();
    let Command::OpenMission { request, target, base, plan, policy, by, .. } =
        open(vec![task("1", &[])], Policy::default())
    else {
        unreachable!()
    };
    let goal = "  ".to_owned();
    let silent = Command::OpenMission { request, goal, target, base, plan, policy, by };
    assert_eq!(world.send(silent), Err(Refusal::Missing { what: "the goal" }));
    let wrong = world.send(open(vec![task("1", &["2"])], Policy::default()));
    assert!(matches!(wrong, Err(Refusal::InvalidPlan(_))), "{wrong:?}");
    let flow = Policy { flow: Vec::new(), ..Policy::default() };
    let wrong = world.send(open(vec![task("1", &[])], flow));
    assert!(matches!(wrong, Err(Refusal::InvalidPolicy(_))), "{wrong:?}");
    assert_eq!(world.state().missions().count(), 0);
}

#[test]
fn a_dependent_starts_with_the_commit_that_merges_its_dependency() {
    let mut world = World::with(vec![task("1", &[]), task("2", &["1"])], Policy::default());
    world.chores();
    assert_eq!(world.working(), ["1".to_owned()].into());
    world.finish("1", done(5, &["a"]));
    assert!(world.working().is_empty(), "2 started before 1 was merged");
    world.build("1", 5);
    let fence = world.fence_of("1");
    let events = world.must(Command::FinishAdvance { fence, outcome: AdvanceOutcome::Advanced });
    assert!(
        matches!(
            events.as_slice(),
            [Event::LaneLanded { .. }, Event::TaskMerged { .. }, Event::LeaseGranted { .. }]
        ),
        "{events:?}"
    );
}

#[test]
fn the_best_score_goes_first_and_workers_bound_how_many_run() {
    let mut urgent = task("9", &[]);
    urgent.priority = kapelle_core::plan::Priority::Critical;
    let tasks = vec![task("1", &[]), task("2", &[]), task("3", &[]), urgent];
    let mut world = World::with(tasks, Policy::default());
    world.chores();
    assert_eq!(world.working(), ["1".to_owned(), "9".to_owned()].into());
}

/// An agent that hangs past its lease must not end the attempt that replaced it.
#[test]
fn straggler_cannot_finish_its_successor() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    let old = world.fence_of("1");
    world.wait(5 * 60_000);
    let new = world.fence_of("1");
    assert_ne!(old, new);
    let late =
        Command::FinishAttempt { fence: old, outcome: done(5, &[]), spent: Spending::default() };
    assert_eq!(world.send(late), Err(Refusal::StaleFence { presented: old }));
    assert_eq!(world.fence_of("1"), new);
}

/// A clock that is corrected, or that of another machine, must not take back what has happened:
/// no record is older than the one before it, and no wait begins anew.
#[test]
fn a_clock_that_is_set_back_takes_no_time_back() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    let before = world.now;
    world.finish("1", failed(FailureKind::Network));
    let until = match &world.task("1").stage {
        kapelle_core::task::Stage::Backoff { until } => *until,
        other => panic!("{other:?}"),
    };
    world.now = kapelle_core::Timestamp(1_000);
    world.must(Command::PauseMission { mission: M1, reason: "lunch".into(), by: ann() });
    world.restart();
    world.must(Command::ResumeMission { mission: M1, by: ann() });
    let times = world.journal.iter().map(|record| record.at);
    assert!(times.is_sorted(), "{:?}", world.journal);
    assert_eq!(world.journal.last().unwrap().at, before);
    // What Kapelle only notes is no older either.
    let (task, priority) = (world.task("1").id, kapelle_core::plan::Priority::High);
    let noted = Command::SetPriority { task, priority, by: ann() };
    let batch = world.engine.note(vec![((), noted)], world.now);
    assert_eq!(batch.records[0].at, before);
    let _ = world.engine.committed(batch);
    world.now = until;
    world.wait(0);
    assert_eq!(world.working(), ["1".to_owned()].into());
}

#[test]
fn a_result_counts_once() {
    let mut world = World::with(vec![task("1", &[])], checked());
    world.chores();
    let fence = world.fence_of("1");
    world.finish("1", done(5, &["a"]));
    let again = Command::FinishAttempt {
        fence,
        outcome: failed(FailureKind::AgentError),
        spent: Spending::default(),
    };
    assert_eq!(world.send(again), Err(Refusal::StaleFence { presented: fence }));
    let unknown = Command::FinishChecks { fence: Fence(999), results: check(true) };
    assert_eq!(world.send(unknown), Err(Refusal::StaleFence { presented: Fence(999) }));
    let gate = world.fence_of("1");
    let other = Command::FinishAdvance { fence: gate, outcome: AdvanceOutcome::Advanced };
    assert!(matches!(world.send(other), Err(Refusal::OtherFence { .. })));
    let other =
        Command::FinishAttempt { fence: gate, outcome: done(6, &[]), spent: Spending::default() };
    assert!(matches!(world.send(other), Err(Refusal::OtherFence { .. })));
}

/// A slow but reporting host keeps its lease, and only a lease that is half over costs a record.
#[test]
fn heartbeats_keep_a_lease_alive() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    let fence = world.fence_of("1");
    assert_eq!(world.must(Command::Heartbeat { fences: vec![fence] }), []);
    world.wait(3 * 60_000);
    let events = world.must(Command::Heartbeat { fences: vec![fence, fence, Fence(77)] });
    let expires_at = world.now.plus_ms(5 * 60_000);
    assert_eq!(events, [Event::LeaseRenewed { fence, expires_at }]);
    assert_eq!(world.wait(3 * 60_000), []);
    assert_eq!(world.fence_of("1"), fence);
}

#[test]
fn an_attempt_past_its_deadline_is_a_timeout_and_is_tried_again() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    for _ in 0..3 {
        let fences = world.running.keys().copied().collect();
        world.wait(200_000);
        world.must(Command::Heartbeat { fences });
    }
    assert_eq!(world.task("1").failures.get(&FailureKind::Timeout), Some(&1));
    assert_eq!(world.status("1"), Status::Retrying);
    assert!(world.running.is_empty(), "the timed-out agent must be stopped");
    world.wait(2_000);
    assert_eq!(world.working(), ["1".to_owned()].into());
}

#[test]
fn failures_are_retried_as_often_as_their_type_allows() {
    let mut world = World::with(vec![task("1", &[]), task("2", &["1"])], Policy::default());
    world.chores();
    for _ in 0..3 {
        world.finish("1", failed(FailureKind::AgentError));
        assert_eq!(world.status("1"), Status::Retrying);
        world.wait(60_000);
    }
    let events = world.finish("1", failed(FailureKind::AgentError));
    assert!(
        matches!(
            events.as_slice(),
            [
                Event::AttemptFailed { .. },
                Event::TroubleMet { .. },
                Event::TaskDeadLettered { .. },
                Event::TaskBlocked { .. },
                Event::PersonNotified { .. }
            ]
        ),
        "{events:?}"
    );
    assert_eq!((world.status("1"), world.status("2")), (Status::DeadLetter, Status::Blocked));
    assert_eq!(mission_status(&world), MissionStatus::Failed);
    assert_eq!(why(world.state(), world.task("2")), Some("Dependency 1 failed".into()));
}

#[test]
fn a_dead_task_blocks_all_that_need_it_and_nothing_else() {
    let tasks = vec![task("a", &[]), task("b", &["a"]), task("c", &["b"]), task("d", &[])];
    let mut world = World::with(tasks, Policy::default());
    world.chores();
    world.finish("a", failed(FailureKind::Auth));
    let states = ["a", "b", "c", "d"].map(|name| world.status(name));
    use Status::{Blocked, DeadLetter, InProgress};
    assert_eq!(states, [DeadLetter, Blocked, Blocked, InProgress]);
    assert_eq!(mission_status(&world), MissionStatus::Running);
}

/// "Done" without a change is the cheapest lie.
#[test]
fn done_without_a_change_is_a_failure() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    world.finish("1", AttemptOutcome::Done { change: None, touched: Vec::new().into() });
    assert_eq!(world.task("1").failures.get(&FailureKind::ValidationFailed), Some(&1));
}

#[test]
fn red_must_fail_and_green_must_leave_the_tests_alone() {
    let mut world = World::with(vec![task("1", &[])], test_first());
    world.chores();
    world.finish("1", done(5, &["tests/a.sh"]));
    let fence = world.fence_of("1");
    let events = world.must(Command::FinishChecks { fence, results: check(true) });
    assert!(events.iter().any(|e| matches!(e, Event::ChangeRejected { .. })), "{events:?}");
    world.wait(0);
    world.finish("1", done(6, &["tests/a.sh"]));
    let fence = world.fence_of("1");
    world.must(Command::FinishChecks { fence, results: check(false) });
    let Some(Effect::RunAttempt { base, phase, .. }) = world.running.values().next() else {
        panic!("green should run: {:?}", world.running)
    };
    assert_eq!((base, phase.name()), (&commit(6), "green"));
    world.finish("1", done(7, &["src/a.sh", "tests/a.sh"]));
    let told = &world.task("1").last_failure.as_ref().unwrap().message;
    assert_eq!(told, "the phase green may not change these files: tests/a.sh");
}

#[test]
fn a_rejected_change_is_tried_again_with_what_the_check_said() {
    let mut world = World::with(vec![task("1", &[])], checked());
    world.chores();
    world.finish("1", done(5, &["a"]));
    let fence = world.fence_of("1");
    world.must(Command::FinishChecks { fence, results: check(false) });
    let failure = world.task("1").last_failure.clone().unwrap();
    assert_eq!(
        *failure,
        Failure::new(FailureKind::ValidationFailed, "check test failed:\nsaid so")
    );
    world.wait(0);
    assert_eq!(world.working(), ["1".to_owned()].into());
}

#[test]
fn a_question_holds_one_task_and_its_answer_reaches_the_next_attempt() {
    let mut world = World::with(vec![task("1", &[]), task("2", &[])], Policy::default());
    world.chores();
    world.finish("1", asked("which"));
    assert_eq!((world.status("1"), world.status("2")), (Status::Blocked, Status::InProgress));
    let id = world.task("1").id;
    let answer = |resume_id: &str, input: &str| Command::AnswerCheckpoint {
        task: id,
        resume_id: resume_id.into(),
        input: input.into(),
        by: ann(),
    };
    assert!(matches!(world.send(answer("other", "a")), Err(Refusal::OtherQuestion { .. })));
    assert_eq!(world.send(answer("which", "")), Err(Refusal::Missing { what: "the answer" }));
    world.restart();
    world.must(answer("which", "a"));
    let resume = world.task("1").resume.clone().unwrap();
    assert_eq!((resume.checkpoint_id.as_str(), resume.user_input.as_str()), ("which", "a"));
    assert!(world.working().contains("1"));
    assert_eq!(world.send(answer("which", "a")), Err(Refusal::NotAsking { task: "1".into() }));
}

#[test]
fn an_answer_given_beforehand_needs_nobody() {
    let answers = [("which".to_owned(), "b".to_owned())].into();
    let mut world = World::with(vec![task("1", &[])], Policy { answers, ..Policy::default() });
    world.chores();
    world.finish("1", asked("which"));
    assert_eq!(world.task("1").resume.as_ref().unwrap().user_input, "b");
    assert!(world.working().contains("1"));
}

/// HUM-01: whoever asks the same again is not helped by the same answer; an agent that only asks
/// would never end otherwise.
#[test]
fn a_question_that_comes_back_goes_to_a_person() {
    let answers = [("which".to_owned(), "b".to_owned())].into();
    let mut world = World::with(vec![task("1", &[])], Policy { answers, ..Policy::default() });
    world.chores();
    for _ in 0..limits::ANSWERS_BY_RULE_MAX {
        world.finish("1", asked("which"));
        assert!(world.working().contains("1"));
    }
    world.finish("1", asked("which"));
    assert!(matches!(world.task("1").stage, Stage::Asking { .. }));
    let (task, resume_id, input) = (world.task("1").id, "which".to_owned(), "c".to_owned());
    world.must(Command::AnswerCheckpoint { task, resume_id, input, by: ann() });
    world.finish("1", asked("which"));
    assert_eq!(world.task("1").resume.as_ref().unwrap().user_input, "b", "counted anew");
}

#[test]
fn a_question_keeps_unfinished_work_for_the_next_attempt() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    let AttemptOutcome::Asked { question, .. } = asked("which") else { unreachable!() };
    world.finish("1", AttemptOutcome::Asked { question, change: Some(commit(8)) });
    let task = world.task("1").id;
    let (resume_id, input) = ("which".into(), "a".into());
    world.must(Command::AnswerCheckpoint { task, resume_id, input, by: ann() });
    let Some(Effect::RunAttempt { base, since, .. }) = world.running.values().next() else {
        panic!("{:?}", world.running)
    };
    assert_eq!((base, since), (&commit(8), &commit(1)));
}

#[test]
fn a_pause_stops_everything_and_costs_no_retry() {
    let mut world = World::with(vec![task("1", &[]), task("2", &[])], checked());
    world.chores();
    world.finish("1", done(5, &["a"]));
    let pause = || Command::PauseMission { mission: M1, reason: "lunch".into(), by: ann() };
    world.must(pause());
    assert!(world.running.is_empty());
    assert_eq!((world.status("1"), world.status("2")), (Status::Paused, Status::Paused));
    assert_eq!(world.send(pause()), Err(Refusal::AlreadyPaused { mission: M1 }));
    assert_eq!(why(world.state(), world.task("2")), Some("m1 is paused: lunch".into()));
    world.must(Command::ResumeMission { mission: M1, by: ann() });
    assert_eq!(world.running.len(), 2);
    assert_eq!(world.task("2").retries, 0);
    let resume = Command::ResumeMission { mission: M1, by: ann() };
    assert_eq!(world.send(resume), Err(Refusal::NotPaused { mission: M1 }));
}

#[test]
fn a_cancelled_mission_stops_and_stays_cancelled() {
    let mut world = World::with(vec![task("1", &[]), task("2", &[])], Policy::default());
    world.chores();
    let cancel = || Command::CancelMission { mission: M1, reason: "no more".into(), by: ann() };
    world.must(cancel());
    assert!(world.running.is_empty());
    assert_eq!(world.status("1"), Status::Cancelled);
    let ended = Refusal::MissionEnded { mission: M1, status: MissionStatus::Cancelled };
    assert_eq!(world.send(cancel()), Err(ended));
    world.wait(60_000);
    assert_eq!(world.state().wake_at(), None, "nobody waits for its bills any more");
}

#[test]
fn an_approval_is_pinned_to_the_proposed_commit() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    assert!(matches!(world.send(approve(1)), Err(Refusal::NothingProposed { .. })));
    world.chores();
    world.succeed("1");
    assert!(matches!(world.send(approve(4)), Err(Refusal::OtherCommit { .. })));
    assert!(world.running.is_empty(), "nothing is delivered without an approval");
}

#[test]
fn a_refused_delivery_needs_a_new_approval() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    world.finish("1", done(5, &["a"]));
    world.chores();
    world.must(approve(5));
    let fence = *world.running.keys().next().unwrap();
    let outcome = DeliveryOutcome::Refused { reason: "main has moved".into() };
    world.must(Command::FinishDelivery { fence, outcome });
    assert_eq!(mission_status(&world), MissionStatus::AwaitingApproval);
    world.must(approve(5));
    world.chores();
    assert_eq!(mission_status(&world), MissionStatus::Delivered);
}

#[test]
fn a_chore_that_keeps_failing_pauses_the_mission_for_a_person() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    for _ in 0..5 {
        let fence = *world.running.keys().next().unwrap();
        let failure = Failure::new(FailureKind::DiskFull, "no space left");
        world.must(Command::FailChore { fence, failure });
        world.wait(60_000);
    }
    let mission = world.state().mission(M1).unwrap();
    let reason = PauseReason::Environment { message: "no space left".into() };
    assert_eq!(mission.paused, Some(reason));
    world.must(Command::ResumeMission { mission: M1, by: ann() });
    world.chores();
    assert_eq!(world.working(), ["1".to_owned()].into());
}

fn tight(mission: u64, attempt: u64) -> Policy {
    let budget =
        Budget { mission_usd_max: Usd::cents(mission), attempt_usd_max: Usd::cents(attempt) };
    Policy { budget, ..Policy::default() }
}

fn spend(world: &mut World, name: &str, cents: u64, outcome: AttemptOutcome) {
    let fence = world.fence_of(name);
    let spent = Spending { usd: Usd::cents(cents), usage: Vec::new(), unpriced: None };
    world.must(Command::FinishAttempt { fence, outcome, spent });
}

/// No dollar is spent that was not reserved.
#[test]
fn an_attempt_starts_only_with_its_money_reserved() {
    let mut world = World::with(vec![task("1", &[]), task("2", &[])], tight(150, 100));
    world.chores();
    assert_eq!(world.working(), ["1".to_owned()].into(), "both would pass the cap");
    spend(&mut world, "1", 40, done(5, &["a"]));
    assert!(world.working().contains("2"), "what 1 did not spend is free again");
    spend(&mut world, "2", 60, done(6, &["b"]));
    world.chores();
    let purse = world.state().purse_of(M1);
    assert_eq!((purse.spent, purse.reserved), (Usd::cents(100), Usd::ZERO));
}

#[test]
fn a_mission_without_money_for_another_attempt_is_paused() {
    let mut world = World::with(vec![task("1", &[]), task("2", &["1"])], tight(150, 100));
    world.chores();
    spend(&mut world, "1", 90, done(5, &["a"]));
    world.chores();
    let reason = PauseReason::Budget { spent: Usd::cents(90), cap: Usd::cents(150) };
    assert_eq!(world.state().mission(M1).unwrap().paused, Some(reason));
}

#[test]
fn an_agent_that_overspends_pauses_its_mission_at_once() {
    let mut world = World::with(vec![task("1", &[]), task("2", &[])], tight(300, 100));
    world.chores();
    spend(&mut world, "1", 120, done(5, &["a"]));
    let reason = PauseReason::Overspent { reserved: Usd::cents(100), spent: Usd::cents(120) };
    assert_eq!(world.state().mission(M1).unwrap().paused, Some(reason));
    assert!(world.running.is_empty());
}

/// `kill -9` at any moment: what was in flight is taken up again, and nothing is counted twice.
#[test]
fn a_restart_interrupts_attempts_and_repeats_chores() {
    let mut world = World::with(vec![task("1", &[]), task("2", &[])], checked());
    world.chores();
    world.finish("1", done(5, &["a"]));
    let (gate, attempt) = (world.fence_of("1"), world.fence_of("2"));
    world.restart();
    assert_ne!(world.fence_of("1"), gate, "the chore is done again, under a new fence");
    assert_ne!(world.fence_of("2"), attempt, "and so is the attempt");
    let interrupted = world.journal.iter().any(|record| {
        let task = world.task("2").id;
        let cause = Interruption::HostRestarted;
        record.event == Event::AttemptInterrupted { task, fence: attempt, cause }
    });
    assert!(interrupted);
    assert_eq!(world.task("2").retries, 0);
}

#[test]
fn replay_gives_the_same_state() {
    let mut world = World::with(vec![task("1", &[]), task("2", &["1"])], test_first());
    world.chores();
    world.succeed("1");
    world.succeed("1");
    world.finish("2", failed(FailureKind::Network));
    let replayed = Engine::recover(world.journal.clone());
    assert_eq!(replayed.state(), world.state());
    assert_eq!(replayed.head(), world.engine.head());
}

#[test]
fn a_team_has_workers_and_a_sane_number_of_seats() {
    let mut world = World::empty();
    let seats = |n| [(kapelle_core::Role::Developer, n)].into();
    let none = Command::ConfigureTeam { seats: seats(1), workers_max: 0, by: ann() };
    assert_eq!(world.send(none), Err(Refusal::NoWorkers));
    let many = Command::ConfigureTeam { seats: seats(65), workers_max: 1, by: ann() };
    assert_eq!(world.send(many), Err(Refusal::TooManySeats { count: 65 }));
}

/// HUM-07: what is for people to say no agent says, also where no person has a role.
#[test]
fn agents_do_not_direct() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    world.finish("1", asked("which"));
    let (task, by) = (world.task("1").id, Actor("developer-1".into()));
    let reason = || "because".to_owned();
    let (resume_id, input) = ("which".to_owned(), "b".to_owned());
    let change = ManualScale::Up { reason: reason() };
    for command in [
        Command::PauseMission { mission: M1, reason: reason(), by: by.clone() },
        Command::CancelMission { mission: M1, reason: reason(), by: by.clone() },
        Command::AnswerCheckpoint { task, resume_id, input, by: by.clone() },
        Command::Scale { role: Role::Developer, change, by: by.clone() },
        Command::SetPriority { task, priority: Priority::Critical, by: by.clone() },
        Command::RollbackTask { task, reason: reason(), by: by.clone() },
        Command::ConveneCouncil {
            task,
            question: council::Question::Problem,
            panel: Vec::new(),
            by,
        },
    ] {
        let refused = Refusal::NotAPerson { by: "developer-1".into() };
        assert_eq!(world.send(command.clone()), Err(refused), "{command:?}");
    }
}

/// An agent could give itself colleagues otherwise, or send away who would judge it.
#[test]
fn only_people_who_may_direct_configure_the_team() {
    let mut world = World::empty();
    let configure = |by: &str, n| {
        let seats = [(kapelle_core::Role::Developer, n)].into();
        Command::ConfigureTeam { seats, workers_max: n, by: Actor(by.into()) }
    };
    for by in ["kapelle", "developer-1"] {
        let refused = Refusal::NotAPerson { by: by.into() };
        assert_eq!(world.send(configure(by, 5)), Err(refused));
    }
    let nobody = Refusal::Missing { what: "the name of who decides" };
    assert_eq!(world.send(configure(" ", 5)), Err(nobody));
    let assign = |person: &str, role| Command::AssignRole {
        person: Actor(person.into()),
        role: Some(role),
        by: ann(),
    };
    world.must(assign("ann", PersonRole::Admin));
    world.must(assign("rob", PersonRole::Reader));
    let (person, role, right) = ("rob".to_owned(), PersonRole::Reader.name(), Right::Direct);
    let no_right = PeopleRefused::NoRight { person, role, right };
    assert_eq!(world.send(configure("rob", 5)), Err(no_right.into()));
    let events = world.must(configure("ann", 5));
    let by = Some(ann());
    let seats = [(kapelle_core::Role::Developer, 5)].into();
    assert_eq!(events, [Event::TeamChanged { seats, workers_max: 5, by }]);
    assert_eq!(world.must(configure("rob", 5)), [], "what is so already needs no right");
}

/// A price that nobody knows must not be a way to spend for nothing.
#[test]
fn an_unknown_price_costs_all_that_was_reserved() {
    let mut world = World::with(vec![task("1", &[])], tight(300, 100));
    world.chores();
    let fence = world.fence_of("1");
    let spent = Spending { unpriced: Some("mystery".into()), ..Spending::default() };
    world.must(Command::FinishAttempt { fence, outcome: done(5, &["a"]), spent });
    assert_eq!(world.state().purse_of(M1).spent, Usd::cents(100));
    assert_eq!(world.status("1"), Status::DeadLetter);
}

/// A decision that is recorded while nobody works must not start anything.
#[test]
fn a_note_decides_but_sets_nothing_in_motion() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    world.finish("1", asked("which"));
    let (id, resume_id, input) = (world.task("1").id, "which".into(), "a".into());
    let answer = Command::AnswerCheckpoint { task: id, resume_id, input, by: ann() };
    let batch = world.engine.note(vec![((), answer)], world.now);
    assert!(
        matches!(batch.records.as_slice(), [record] if matches!(record.event, Event::CheckpointAnswered { .. })),
        "{:?}",
        batch.records
    );
}

/// Delivering without a task's work, and calling it delivered, is the worst lie of all.
#[test]
fn a_branch_that_lost_merged_work_needs_a_person() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    world.finish("1", done(5, &["a"]));
    world.build("1", 5);
    let fence = world.fence_of("1");
    let outcome = AdvanceOutcome::Lost { actual: commit(9) };
    world.must(Command::FinishAdvance { fence, outcome });
    let mission = world.state().mission(M1).unwrap();
    assert!(
        matches!(&mission.paused, Some(PauseReason::Environment { message })
        if message.contains("git branch -f kapelle/m1")),
        "{:?}",
        mission.paused
    );
    assert_eq!(mission.tip, Some(commit(1)));
    world.must(Command::ResumeMission { mission: M1, by: ann() });
    assert!(matches!(world.running.values().next(), Some(Effect::LandLane { .. })));
}

#[test]
fn a_decision_is_signed_in_one_line() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    let by = kapelle_core::Actor("x\nKAPELLE: delivered".into());
    let forged = Command::PauseMission { mission: M1, reason: "r".into(), by };
    assert!(matches!(world.send(forged), Err(Refusal::Missing { .. })));
}

/// Two wrongs: an unknown price does not excuse what is known to be too much.
#[test]
fn overspending_is_seen_beside_an_unknown_price() {
    let mut world = World::with(vec![task("1", &[])], tight(300, 100));
    world.chores();
    let fence = world.fence_of("1");
    let unpriced = Some("mystery".into());
    let spent = Spending { usd: Usd::cents(120), unpriced, ..Spending::default() };
    world.must(Command::FinishAttempt { fence, outcome: done(5, &["a"]), spent });
    assert!(world.state().mission(M1).unwrap().paused.is_some());
}

#[test]
fn what_is_not_there_is_refused_by_name() {
    let mut world = World::with(vec![task("1", &[])], checked());
    let (mission, stranger) = (MissionId(9), TaskId(9));
    let resume = Command::ResumeMission { mission, by: ann() };
    assert_eq!(world.send(resume), Err(Refusal::UnknownMission(mission)));
    let (resume_id, input) = ("q".to_owned(), "a".to_owned());
    let answer = Command::AnswerCheckpoint { task: stranger, resume_id, input, by: ann() };
    assert_eq!(world.send(answer), Err(Refusal::UnknownTask(stranger)));
}

#[test]
fn what_people_say_is_bounded() {
    let mut world = World::with(vec![task("1", &[])], checked());
    let reason = "x".repeat(limits::REASON_CHARS_MAX + 1);
    let refused = world.send(Command::PauseMission { mission: M1, reason, by: ann() });
    let max = limits::REASON_CHARS_MAX;
    assert_eq!(refused, Err(Refusal::TooLong { what: "the reason", max }));
}

/// The words of an agent are as long as it likes; the journal keeps them for ever.
#[test]
fn what_agents_say_is_bounded_before_it_is_kept() {
    let mut world = World::with(vec![task("1", &[]), task("2", &[])], Policy::default());
    world.chores();
    let long = "x".repeat(limits::TEXT_CHARS_MAX);
    let failure = Failure {
        kind: FailureKind::ValidationFailed,
        message: long.clone(),
        retry_after_ms: None,
    };
    world.finish("1", AttemptOutcome::Failed(failure));
    let kept = world.task("1").last_failure.as_ref().unwrap();
    assert_eq!(kept.message.len(), limits::FAILURE_CHARS_MAX);
    let question = Question {
        message: long.clone(),
        resume_id: long.clone(),
        options: vec![long; limits::QUESTION_OPTIONS_MAX + 1],
    };
    world.finish("2", AttemptOutcome::Asked { question, change: None });
    let Stage::Asking { question } = &world.task("2").stage else { panic!("it asks") };
    assert_eq!(question.message.len(), limits::QUESTION_CHARS_MAX);
    assert_eq!(question.resume_id.len(), limits::QUESTION_ID_CHARS_MAX);
    let options: Vec<usize> = question.options.iter().map(String::len).collect();
    assert_eq!(options, [limits::OPTION_CHARS_MAX; limits::QUESTION_OPTIONS_MAX]);
    let (resume_id, input) = (question.resume_id.clone(), "a".into());
    let task = world.task("2").id;
    world.must(Command::AnswerCheckpoint { task, resume_id, input, by: ann() });
}
