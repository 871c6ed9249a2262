//! Failure, through the engine: retries, tiers, dead letters and their way back, host trouble,
//! pauses and notices.

use kapelle_core::command::{AttemptOutcome, Spending};
use kapelle_core::escalation::{
    Cause, EscalationPolicy, Hands, HumanBecause, InvalidEscalation, InvalidNotices, Matter, Next,
    NoticePolicy, RatePolicy, Resume, Trouble,
};
use kapelle_core::event::{PauseReason, Restart};
use kapelle_core::failure::{Failure, FailureKind};
use kapelle_core::machine::{MachineUse, Pressure};
use kapelle_core::mission::MissionStatus;
use kapelle_core::plan::PlannedTask;
use kapelle_core::policy::{InvalidPolicy, Policy};
use kapelle_core::settings::{InvalidSettings, Settings};
use kapelle_core::status::Status;
use kapelle_core::{Actor, AgentId, Command, Effect, Event, Refusal, Role, Usd, activity, why};

use crate::fixture::{M1, World, ann, asked, check, checked, done, failed, open, task};

fn requeue(world: &World, name: &str) -> Command {
    let (task, reason) = (world.task(name).id, "the key is there now".into());
    Command::RequeueTask { task, reason, by: ann() }
}

fn rules(notices: NoticePolicy) -> Box<Settings> {
    Box::new(Settings { notices, ..Settings::default() })
}

fn mission_status(world: &World) -> MissionStatus {
    world.state().mission(M1).unwrap().status()
}

fn paused(world: &World) -> Option<&PauseReason> {
    world.state().mission(M1).unwrap().paused.as_ref()
}

/// Who works on the task.
fn agent(world: &World, name: &str) -> AgentId {
    world.state().lease(world.fence_of(name)).unwrap().agent
}

fn host_trouble() -> AttemptOutcome {
    AttemptOutcome::Abandoned(Failure::new(FailureKind::DiskFull, "no space left"))
}

/// RET-02, RET-11: every decision about a failure is on record, with its number and its limit.
#[test]
fn a_failure_says_what_is_done_about_it() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    let events = world.finish("1", failed(FailureKind::Network));
    let trouble = Trouble::Failure(FailureKind::Network);
    let next = Next::Retry { retry: 1, of: 5, by: Hands::Same };
    let id = world.task("1").id;
    assert_eq!(events[1], Event::TroubleMet { task: id, trouble, next });
    let Event::RetryScheduled { at, from: Restart::Phase, .. } = &events[2] else {
        panic!("{events:?}")
    };
    let wait = at.ms_since(world.now);
    assert!((750..=1_250).contains(&wait), "{wait}");
}

/// C-13: what the checks refuse is the loop of fixing tests, three rounds long, and none of them
/// is taken from another counter.
#[test]
fn tests_that_fail_have_three_rounds_of_their_own() {
    let mut world = World::with(vec![task("1", &[])], checked());
    world.chores();
    world.finish("1", AttemptOutcome::Done { change: None, touched: Vec::new().into() });
    world.wait(0);
    for round in 1..=4 {
        world.finish("1", done(5 + round, &["a"]));
        let fence = world.fence_of("1");
        world.must(Command::FinishChecks { fence, results: check(false) });
        let expected = if round < 4 { Status::Retrying } else { Status::DeadLetter };
        world.wait(0);
        assert_eq!(world.status("1"), expected, "round {round}");
    }
}

/// The mission's own rules come before the table.
#[test]
fn a_mission_may_have_other_limits_than_the_table() {
    let retries_max = [(FailureKind::AgentError, 0)].into();
    let escalation = EscalationPolicy { retries_max, ..EscalationPolicy::default() };
    let mut world = World::with(vec![task("1", &[])], Policy { escalation, ..Policy::default() });
    world.chores();
    world.finish("1", failed(FailureKind::AgentError));
    assert_eq!(world.status("1"), Status::DeadLetter);
    let retries_max = [(FailureKind::AgentError, 101)].into();
    let escalation = EscalationPolicy { retries_max, ..EscalationPolicy::default() };
    let endless = Policy { escalation, ..Policy::default() };
    let wrong = InvalidEscalation::TooMany { what: "retries_max", found: 101, max: 100 };
    let refused = Refusal::InvalidPolicy(InvalidPolicy::Escalation { wrong });
    assert_eq!(World::empty().send(open(vec![task("1", &[])], endless)), Err(refused));
    let failure_rate = RatePolicy { finished_min: 0, ..RatePolicy::default() };
    let hasty = Policy { failure_rate, ..Policy::default() };
    let refused = World::empty().send(open(vec![task("1", &[])], hasty));
    assert!(
        matches!(refused, Err(Refusal::InvalidPolicy(InvalidPolicy::FailureRate { .. }))),
        "{refused:?}"
    );
}

/// RET-02: an agent's error goes to a different agent; a network's does not care.
#[test]
fn whoever_failed_at_a_task_is_the_last_to_be_asked_again() {
    let files = vec!["src/a.rs".to_owned()];
    let of_files = PlannedTask { files, ..task("1", &[]) };
    let mut world = World::with(vec![of_files], Policy::default());
    world.chores();
    let first = agent(&world, "1");
    world.finish("1", failed(FailureKind::Network));
    world.wait(60_000);
    assert_eq!(agent(&world, "1"), first, "it knows the file");
    world.finish("1", failed(FailureKind::AgentError));
    world.wait(60_000);
    assert_ne!(agent(&world, "1"), first);
}

/// CON-05: where the team has an orchestrator, it rules once before a person is asked: the task
/// begins anew.
#[test]
fn an_orchestrator_lets_a_task_begin_anew() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    let seats = [(Role::Developer, 2), (Role::Orchestrator, 1)].into();
    world.must(Command::ConfigureTeam { seats, workers_max: 3, by: ann() });
    world.chores();
    for _ in 0..2 {
        world.finish("1", failed(FailureKind::Hang));
        world.wait(60_000);
    }
    let events = world.finish("1", failed(FailureKind::Hang));
    let ruled = |event: &Event| matches!(event, Event::TroubleMet { next, .. } if *next == Next::AskOrchestrator);
    assert!(events.iter().any(ruled), "{events:?}");
    let told = activity::line(world.state(), &events[1]).unwrap().text;
    assert!(told.starts_with("escalates to tier 2"), "{told}");
    world.wait(60_000);
    world.finish("1", failed(FailureKind::Hang));
    assert_eq!(world.status("1"), Status::DeadLetter);
}

/// TSK-13, RET-03: the dead letter has every failure, with who, where and when.
#[test]
fn a_dead_letter_tells_the_whole_story() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    world.finish("1", failed(FailureKind::Network));
    world.wait(60_000);
    let events = world.finish("1", failed(FailureKind::Auth));
    let found = events.iter().find_map(|event| match event {
        Event::TaskDeadLettered { letter, .. } => letter.as_deref(),
        _ => None,
    });
    let letter = found.unwrap();
    assert_eq!(letter.because, HumanBecause::OutOfOurHands { kind: FailureKind::Auth });
    assert_eq!(letter.died_at, world.now);
    let kinds: Vec<_> = letter.story.attempts().map(|a| (a.attempt, a.failure.kind)).collect();
    assert_eq!(kinds, [(1, FailureKind::Network), (2, FailureKind::Auth)]);
    assert!(letter.story.attempts().all(|attempt| attempt.agent.is_some()));
    let told = why(world.state(), world.task("1")).unwrap();
    let expected = "gave up after 2 failures (auth needs someone who can change the surroundings); \
        a person can requeue it: it broke";
    assert_eq!(told, expected);
}

/// TSK-13: a requeued task and what it blocked live again, with fresh counters.
#[test]
fn a_requeued_task_lives_again_with_all_that_it_blocked() {
    let tasks = vec![task("a", &[]), task("b", &["a"]), task("c", &["b"])];
    let mut world = World::with(tasks, Policy::default());
    world.chores();
    world.finish("a", failed(FailureKind::Auth));
    assert_eq!(mission_status(&world), MissionStatus::Failed);
    world.must(requeue(&world, "a"));
    let states = ["a", "b", "c"].map(|name| world.status(name));
    assert_eq!(states, [Status::InProgress, Status::Pending, Status::Pending]);
    assert_eq!(world.send(requeue(&world, "a")), Err(Refusal::NotDead { task: "a".into() }));
    for _ in 0..3 {
        world.finish("a", failed(FailureKind::AgentError));
        world.wait(60_000);
    }
    for name in ["a", "b", "c"] {
        world.succeed(name);
    }
    assert_eq!(mission_status(&world), MissionStatus::AwaitingApproval);
}

/// What two dead tasks block is freed by the second.
#[test]
fn a_task_stays_blocked_while_anything_that_it_needs_is_dead() {
    let tasks = vec![task("a", &[]), task("b", &[]), task("c", &["a", "b"]), task("d", &["c"])];
    let mut world = World::with(tasks, Policy::default());
    world.chores();
    world.finish("a", failed(FailureKind::Auth));
    world.finish("b", failed(FailureKind::Auth));
    world.must(requeue(&world, "a"));
    assert_eq!((world.status("c"), world.status("d")), (Status::Blocked, Status::Blocked));
    assert_eq!(why(world.state(), world.task("d")), Some("Dependency b failed".into()));
    world.must(requeue(&world, "b"));
    assert_eq!((world.status("c"), world.status("d")), (Status::Pending, Status::Pending));
}

#[test]
fn only_a_person_requeues_with_a_reason_while_the_mission_lives() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    world.finish("1", failed(FailureKind::Auth));
    let with = |by: &str, reason: &str| Command::RequeueTask {
        task: world.task("1").id,
        reason: reason.into(),
        by: Actor(by.into()),
    };
    let (agent, silent) = (with("developer-1", "I can"), with("ann", " "));
    let refused = Refusal::NotAPerson { by: "developer-1".into() };
    assert_eq!(world.send(agent), Err(refused));
    assert_eq!(world.send(silent), Err(Refusal::Missing { what: "the reason" }));
    let late = requeue(&world, "1");
    world.must(Command::CancelMission { mission: M1, reason: "no".into(), by: ann() });
    assert!(matches!(world.send(late), Err(Refusal::MissionEnded { .. })));
}

/// A full disk is not the task's fault: it waits and comes back, and no counter moves.
#[test]
fn host_trouble_costs_the_task_nothing() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    world.finish("1", host_trouble());
    assert!(world.running.is_empty());
    world.wait(60_000);
    assert_eq!(world.working(), ["1".to_owned()].into());
    let task = world.task("1");
    assert_eq!((task.retries, task.failed_times(), task.attempts), (0, 0, 2));
}

#[test]
fn host_trouble_in_a_row_pauses_the_mission() {
    let mut world = World::with(vec![task("1", &[]), task("2", &[])], Policy::default());
    world.chores();
    for _ in 0..4 {
        world.finish("1", host_trouble());
        world.wait(60_000);
    }
    assert_eq!(mission_status(&world), MissionStatus::Running);
    world.finish("1", host_trouble());
    let reason = PauseReason::Environment { message: "no space left".into() };
    assert_eq!(paused(&world), Some(&reason));
    assert!(world.running.is_empty());
    world.must(Command::ResumeMission { mission: M1, by: ann() });
    world.finish("1", host_trouble());
    assert_eq!(mission_status(&world), MissionStatus::Running, "counted anew");
}

/// RET-09, C-14: the task that crosses the line pauses the mission, and a person has to resume.
#[test]
fn a_mission_pauses_when_too_many_of_its_tasks_give_up() {
    let names: Vec<String> = (0..12).map(|n| format!("t{n}")).collect();
    let tasks = names.iter().map(|name| task(name, &[])).collect();
    let mut world = World::with(tasks, Policy::default());
    world.chores();
    for name in &names[..6] {
        world.succeed(name);
    }
    for name in &names[6..10] {
        assert_eq!(paused(&world), None, "before {name}");
        world.finish(name, failed(FailureKind::Auth));
    }
    let reason = PauseReason::FailureRate { failed: 4, finished: 10, resume: Resume::Human };
    assert_eq!(paused(&world), Some(&reason));
    assert!(world.running.is_empty());
    let by = |name: &str| Command::ResumeMission { mission: M1, by: Actor(name.into()) };
    let refused = Refusal::NotAPerson { by: "orchestrator-1".into() };
    assert_eq!(world.send(by("orchestrator-1")), Err(refused));
    world.must(by("ann"));
    assert_eq!(world.working().len(), 2);
}

/// C-11: what the orchestrator may resume is not for whoever happens to be an agent.
#[test]
fn of_all_agents_only_the_orchestrator_resumes_after_failures() {
    let names: Vec<String> = (1..=13).map(|n| n.to_string()).collect();
    let tasks = names.iter().map(|name| task(name, &[])).collect();
    let mut world = World::with(tasks, Policy::default());
    world.chores();
    for name in &names[..8] {
        world.succeed(name);
    }
    for name in &names[8..10] {
        world.finish(name, failed(FailureKind::Auth));
    }
    let reason = PauseReason::FailureRate { failed: 2, finished: 10, resume: Resume::Orchestrator };
    assert_eq!(paused(&world), Some(&reason));
    let by = |name: &str| Command::ResumeMission { mission: M1, by: Actor(name.into()) };
    for name in ["developer-1", "judge-1"] {
        let refused = Refusal::NotAPerson { by: name.into() };
        assert_eq!(world.send(by(name)), Err(refused));
    }
    world.must(by("orchestrator-1"));
    assert_eq!(paused(&world), None);
}

fn notified(events: &[Event]) -> Vec<&Cause> {
    let told = events.iter().filter_map(|event| match event {
        Event::PersonNotified { causes } => Some(causes),
        _ => None,
    });
    told.flatten().collect()
}

/// HUM-06, RET-12: one cause is one notice, however many tasks it meets.
#[test]
fn people_are_told_once_of_one_cause() {
    let tasks = vec![task("1", &[]), task("2", &[])];
    let mut world = World::with(tasks, Policy::default());
    world.chores();
    let events = world.finish("1", failed(FailureKind::Auth));
    let told = notified(&events);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].matter, Matter::Failure(FailureKind::Auth));
    let line = activity::line(world.state(), events.last().unwrap()).unwrap().text;
    assert_eq!(line, "needs a person: m1: auth: it broke");
    let events = world.finish("2", failed(FailureKind::Auth));
    assert_eq!(notified(&events), Vec::<&Cause>::new());
    assert_eq!(world.state().notices().open().map(|(_, group)| group.count).sum::<u32>(), 2);
}

/// RET-12: what does not fit the hour is told together later, and nothing is lost.
#[test]
fn notices_wait_for_their_hour() {
    let tasks = vec![task("1", &[]), task("2", &[])];
    let mut world = World::with(tasks, Policy::default());
    let notices = NoticePolicy { notices_per_hour_max: 1, ..NoticePolicy::default() };
    let settings = rules(notices);
    world.must(Command::ChangeSettings { settings, by: ann() });
    world.chores();
    assert_eq!(notified(&world.finish("1", failed(FailureKind::Auth))).len(), 1);
    assert_eq!(notified(&world.finish("2", failed(FailureKind::Budget))).len(), 0);
    assert_eq!(notified(&world.wait(59 * 60_000)).len(), 0);
    assert_eq!(notified(&world.wait(60_000)).len(), 1);
    assert_eq!(world.state().wake_at(), None, "nobody is reminded without news");
}

/// HUM-06: work that waits for an answer waits for ever if nobody hears of the question. Many
/// agents that ask the same are one piece of news.
#[test]
fn people_are_told_of_questions() {
    let mut world = World::with(vec![task("1", &[]), task("2", &[])], Policy::default());
    world.chores();
    let events = world.finish("1", asked("which"));
    let told: Vec<String> = notified(&events).iter().map(ToString::to_string).collect();
    assert_eq!(told, ["m1: a question waits for an answer: which one?"]);
    assert_eq!(notified(&world.finish("2", asked("which"))).len(), 0);
    for name in ["1", "2"] {
        let (task, resume_id, input) = (world.task(name).id, "which".into(), "a".into());
        world.must(Command::AnswerCheckpoint { task, resume_id, input, by: ann() });
    }
    assert_eq!(world.state().notices().open().count(), 0, "nobody waits any more");
}

/// What the rules of the mission answer takes nobody's time.
#[test]
fn nobody_is_told_of_a_question_that_has_its_answer() {
    let answers = [("which".to_owned(), "a".to_owned())].into();
    let mut world = World::with(vec![task("1", &[])], Policy { answers, ..Policy::default() });
    world.chores();
    assert_eq!(notified(&world.finish("1", asked("which"))).len(), 0);
    assert_eq!(world.state().notices().open().count(), 0);
}

/// HUM-06: an agent that hangs costs time until somebody looks.
#[test]
fn people_are_told_of_an_agent_that_hangs() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    let (begun, fence) = (world.now, world.fence_of("1"));
    let silence = Cause::of_silence(M1);
    for minutes in [2, 4] {
        world.now = begun.plus_ms(minutes * 60_000);
        world.must(Command::Heartbeat { fences: vec![fence] });
    }
    world.now = begun.plus_ms(301_000);
    let events = world.must(Command::ReportOutput { heard: vec![(fence, begun)] });
    assert_eq!(notified(&events), [&silence]);
    assert_eq!(silence.to_string(), "m1: an agent has printed nothing for long");
    let now = world.now;
    world.must(Command::ReportOutput { heard: vec![(fence, now)] });
    assert_eq!(world.state().notices().group(&silence), None, "it is heard again");
    world.now = now.plus_ms(200_000);
    world.must(Command::Heartbeat { fences: vec![fence] });
    world.now = now.plus_ms(298_000);
    world.must(Command::Heartbeat { fences: vec![fence] });
    world.now = now.plus_ms(298_500);
    let quiet = world.must(Command::ReportOutput { heard: vec![(fence, now)] });
    assert_eq!(notified(&quiet).len(), 0, "not for long enough");
    world.finish("1", done(5, &["a"]));
    assert_eq!(world.state().notices().open().count(), 0);
}

/// HUM-06: whoever does not hear that the watchdog barks cannot let spending go on within its grace.
#[test]
fn people_are_told_that_spending_is_paused() {
    let mut settings = Settings::default();
    settings.money.watchdog.minute_usd_max = Usd::cents(100);
    let mut world = World::empty();
    world.must(Command::ChangeSettings { settings: Box::new(settings), by: ann() });
    world.must(open(vec![task("1", &[]), task("2", &["1"])], Policy::default()));
    world.chores();
    let (fence, outcome) = (world.fence_of("1"), done(5, &["a"]));
    let spent = Spending { usd: Usd::cents(100), ..Spending::default() };
    let events = world.must(Command::FinishAttempt { fence, outcome, spent });
    let matters: Vec<Matter> = notified(&events).iter().map(|cause| cause.matter).collect();
    assert_eq!(matters, [Matter::Spending]);
    world.must(Command::ResumeSpending { by: ann() });
    assert_eq!(world.state().notices().open().count(), 0);
}

/// HUM-06: a pause that nobody asked for is news; one that a person made is not.
#[test]
fn people_are_told_of_pauses_that_they_did_not_make() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    let pause = Command::PauseMission { mission: M1, reason: "lunch".into(), by: ann() };
    assert_eq!(notified(&world.must(pause)).len(), 0);
    world.must(Command::ResumeMission { mission: M1, by: ann() });
    let spent = Spending { usd: Usd::cents(900), ..Spending::default() };
    let fence = world.fence_of("1");
    let events = world.must(Command::FinishAttempt { fence, outcome: done(5, &["a"]), spent });
    let matters: Vec<Matter> = notified(&events).iter().map(|cause| cause.matter).collect();
    assert_eq!(matters, [Matter::Spending, Matter::Pause], "nine dollars wake the watchdog, too");
    world.must(Command::ResumeSpending { by: ann() });
    world.must(Command::ResumeMission { mission: M1, by: ann() });
    assert_eq!(world.state().notices().open().count(), 0);
}

#[test]
fn rules_about_notices_that_never_tell_are_refused() {
    let notices = NoticePolicy { notices_per_hour_max: 0, ..NoticePolicy::default() };
    let settings = rules(notices);
    let wrong = InvalidNotices { field: "notices_per_hour_max", min: 1 };
    let refused = Refusal::InvalidSettings(InvalidSettings::Notices(wrong));
    let mut world = World::empty();
    assert_eq!(world.send(Command::ChangeSettings { settings, by: ann() }), Err(refused));
}

/// An attempt that both overspends and brings the mission down pauses it once.
#[test]
fn a_mission_is_paused_once_whatever_the_reasons() {
    let failure_rate = RatePolicy { finished_min: 1, ..RatePolicy::default() };
    let policy = Policy { failure_rate, ..Policy::default() };
    let mut world = World::with(vec![task("1", &[]), task("2", &[])], policy);
    world.chores();
    let spent = Spending { usd: Usd::cents(900), ..Spending::default() };
    let fence = world.fence_of("1");
    let outcome = failed(FailureKind::Auth);
    let events = world.must(Command::FinishAttempt { fence, outcome, spent });
    let pauses = events.iter().filter(|e| matches!(e, Event::MissionPaused { .. })).count();
    assert_eq!(pauses, 1, "{events:?}");
    assert!(!world.running.values().any(|e| matches!(e, Effect::RunAttempt { .. })));
}

/// WRK-32: a machine that is nearly full pauses what works on it, says why, and leaves alone what
/// does not; a person resumes it.
#[test]
fn a_full_machine_pauses_what_works_on_it() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    let report = |memory_percent, disk_percent| {
        let used = MachineUse { memory_percent, disk_percent, inodes_percent: 0 };
        Command::ReportMachine { used }
    };
    assert_eq!(world.must(report(90, 95)), [], "full to the brim, and not beyond");
    world.must(report(91, 96));
    let pressures = vec![Pressure::Memory { percent: 91 }, Pressure::Disk { percent: 96 }];
    let reason = world.state().mission(M1).unwrap().paused.clone().unwrap();
    assert_eq!(reason, PauseReason::Machine { pressures });
    assert!(reason.to_string().starts_with("91 % of memory is in use; close something"));
    assert!(world.running.is_empty());
    assert_eq!(world.must(report(99, 99)), [], "it is paused already");
    world.must(Command::ResumeMission { mission: M1, by: ann() });
    assert_eq!(world.working(), ["1".to_owned()].into());
    assert_eq!(world.task("1").retries, 0);
}

/// C-14, RET-09: people hear that more than a tenth of the tasks failed before the mission pauses for
/// it, once.
#[test]
fn a_mission_warns_before_its_failure_rate_pauses_it() {
    let tasks = (0..40).map(|n| task(&format!("t{n:02}"), &[])).collect();
    let mut world = World::with(tasks, Policy::default());
    world.chores();
    let end = |world: &mut World, fails: bool| {
        let name = world.working().into_iter().next().unwrap();
        if !fails {
            world.succeed(&name);
            return Vec::new();
        }
        world.finish(&name, failed(FailureKind::Auth))
    };
    for _ in 0..17 {
        end(&mut world, false);
    }
    let warned = |events: &[Event]| {
        events.iter().find(|event| matches!(event, Event::FailuresWarned { .. })).cloned()
    };
    assert_eq!(warned(&end(&mut world, true)), None, "1 of 18");
    let events = end(&mut world, true);
    let (failed, finished) = (2, 19);
    let warning = Event::FailuresWarned { mission: M1, failed, finished };
    assert_eq!(warned(&events), Some(warning.clone()), "{events:?}");
    let line = activity::line(world.state(), &warning).unwrap();
    assert_eq!(line.text, "2 of 19 tasks failed; if many more do, the mission pauses");
    assert_eq!(warned(&end(&mut world, true)), None, "3 of 20: it was said");
    assert_eq!(paused(&world), None);
    end(&mut world, true);
    let reason = PauseReason::FailureRate { failed: 4, finished: 21, resume: Resume::Orchestrator };
    assert_eq!(paused(&world), Some(&reason));
}
