//! Rules that the engine broke once, each as small as it gets. The simulator found them; the
//! commit that added a rule names its seed.

use kapelle_core::approval::{Order, OverrideAction};
use kapelle_core::command::{AttemptOutcome, CheckResult, RewriteOutcome, Spending};
use kapelle_core::engine::Accepted;
use kapelle_core::event::Interruption;
use kapelle_core::failure::{Failure, FailureKind};
use kapelle_core::flow::Phase;
use kapelle_core::plan::{Plan, PlannedTask};
use kapelle_core::policy::{Check, Policy, Reading};
use kapelle_core::report::Question;
use kapelle_core::status::Status;
use kapelle_core::task::Stage;
use kapelle_core::{
    Actor, Command, Effect, Engine, Event, Fence, MissionId, Refusal, RequestId, Role, State,
    TaskId, Timestamp,
};

use crate::fixture::{World, checked, commit, done, failed, task as planned};

const NOW: Timestamp = Timestamp(1_000);
const M1: MissionId = MissionId(1);

/// An engine with one mission of one task, and the conductor's part played straight.
struct Played {
    engine: Engine,
    now: Timestamp,
    last: Vec<Event>,
    started: Vec<(Fence, Effect)>,
}

impl Played {
    fn new(policy: Policy) -> Played {
        let (engine, now) = (Engine::recover(Vec::new()), NOW);
        let mut played = Played { engine, now, last: Vec::new(), started: Vec::new() };
        let seats = [(Role::Developer, 2), (Role::Tester, 2)].into();
        played.accept(Command::ConfigureTeam { seats, workers_max: 2, by: crate::fixture::ann() });
        played.accept(Command::OpenMission {
            request: RequestId("r".into()),
            goal: "g".into(),
            target: "main".into(),
            base: commit(0),
            plan: Plan { goal: None, tasks: vec![task()] },
            policy: Box::new(policy),
            by: ada(),
        });
        let fence = played.started(|effect| matches!(effect, Effect::PrepareBranch { .. }));
        played.accept(Command::FinishBranch { fence, tip: commit(0) });
        played
    }

    fn send(&mut self, command: Command) -> Result<Accepted, Refusal> {
        let batch = self.engine.handle(vec![((), command)], self.now);
        self.last = batch.records.iter().map(|record| record.event.clone()).collect();
        let mut actions = self.engine.committed(batch);
        self.started.append(&mut actions.start);
        self.started.retain(|(fence, _)| !actions.stop.contains(fence));
        actions.replies.remove(0).1
    }

    fn accept(&mut self, command: Command) {
        let reply = self.send(command);
        assert!(reply.is_ok(), "{reply:?}");
    }

    /// The fence of the one effect that runs and fits.
    fn started(&self, fits: impl Fn(&Effect) -> bool) -> Fence {
        let fences: Vec<Fence> =
            self.started.iter().filter(|(_, e)| fits(e)).map(|(fence, _)| *fence).collect();
        assert_eq!(fences.len(), 1, "{:?}", self.started);
        fences[0]
    }

    fn attempt(&self) -> Fence {
        self.started(|effect| matches!(effect, Effect::RunAttempt { .. }))
    }

    fn finish(&mut self, outcome: AttemptOutcome) {
        let (fence, spent) = (self.attempt(), Spending::default());
        self.accept(Command::FinishAttempt { fence, outcome, spent });
    }
}

fn ada() -> Actor {
    Actor("ada".into())
}

fn task() -> PlannedTask {
    PlannedTask {
        id: "t".into(),
        title: "t".into(),
        description: String::new(),
        priority: Default::default(),
        dependencies: Vec::new(),
        files: Vec::new(),
        estimated_duration_minutes: None,
        ..PlannedTask::default()
    }
}

/// A conductor that sleeps until a moment that has come already would need a second commit to
/// hand out work that the first one made ready.
#[test]
fn a_retry_without_a_wait_starts_in_the_same_turn() {
    let mut played = Played::new(Policy::default());
    let failure = Failure::new(FailureKind::ValidationFailed, "no");
    played.finish(AttemptOutcome::Failed(failure));
    assert!(matches!(played.last.last(), Some(Event::LeaseGranted { .. })), "{:?}", played.last);
    assert!(played.engine.state().wake_at() > Some(played.now));
}

/// A report that leaves out a check must not let an unchecked commit through, and must not show a
/// red phase its failure either: the chore is done again.
#[test]
fn a_report_without_all_checks_is_a_failed_chore() {
    let check = |name: &str| Check {
        name: name.into(),
        command: "true".into(),
        timeout_ms: 1,
        reading: Reading::default(),
    };
    let checks = vec![check("build"), check("test")];
    let mut played = Played::new(Policy { checks, ..Policy::default() });
    played.finish(AttemptOutcome::Done { change: Some(commit(1)), touched: Vec::new().into() });
    let built = CheckResult { name: "build".into(), passed: true, ..CheckResult::default() };
    let fence = played.started(|effect| matches!(effect, Effect::RunChecks { .. }));
    for results in [vec![], vec![built]] {
        let command = Command::FinishChecks { fence, results };
        let events = played.engine.state().decide(&command, played.now).unwrap();
        assert!(matches!(events[..], [Event::ChoreFailed { .. }]), "{events:?}");
    }
}

/// A person may answer while the mission is paused; the task then waits for the mission alone.
#[test]
fn an_answer_in_a_pause_leaves_the_task_paused() {
    let mut played = Played::new(Policy::default());
    let question =
        Question { message: "which?".into(), resume_id: "q".into(), options: Vec::new() };
    played.finish(AttemptOutcome::Asked { question, change: None });
    played.accept(Command::PauseMission { mission: M1, reason: "lunch".into(), by: ada() });
    let status = |played: &Played| {
        let state = played.engine.state();
        state.task(TaskId(1)).unwrap().status(state.mission(M1).unwrap())
    };
    let asked = status(&played);
    let (task, resume_id, input) = (TaskId(1), "q".into(), "yes".into());
    played.accept(Command::AnswerCheckpoint { task, resume_id, input, by: ada() });
    assert_eq!((asked, status(&played)), (Status::Blocked, Status::Paused));
    assert!(asked.may_become(status(&played)));
}

/// A host that starts anew has forgotten its chores; whoever waits for them waits for ever.
#[test]
fn a_restarted_host_gets_its_chores_again() {
    let (name, command) = ("test".into(), "true".into());
    let check = Check { name, command, timeout_ms: 1, reading: Reading::default() };
    let mut played = Played::new(Policy { checks: vec![check], ..Policy::default() });
    played.finish(AttemptOutcome::Done { change: Some(commit(1)), touched: Vec::new().into() });
    let checks = |effect: &Effect| matches!(effect, Effect::RunChecks { .. });
    let forgotten = played.started(checks);
    played.accept(Command::HostStarted);
    let again = played.started(checks);
    assert!(again > forgotten, "{:?}", played.last);
}

/// A conductor that was down for an hour finds attempts past their deadline. They died with it;
/// counting that against the task would give up healthy work after two long outages.
#[test]
fn an_outage_is_not_a_time_out() {
    let mut played = Played::new(Policy::default());
    let fence = played.attempt();
    played.now = played.now.plus_ms(60 * 60 * 1_000);
    played.accept(Command::HostStarted);
    let (task, cause) = (TaskId(1), Interruption::HostRestarted);
    assert_eq!(played.last.first(), Some(&Event::AttemptInterrupted { task, fence, cause }));
}

/// A task that gave up comes back while what it needs is taken back: it has nothing to stand on,
/// nor has what needs it, until that stays after all.
#[test]
fn a_task_that_comes_back_waits_for_what_is_taken_back() {
    let tasks = vec![planned("1", &[]), planned("2", &["1"]), planned("3", &["2"])];
    let mut world = World::with(tasks, Policy::default());
    world.chores();
    world.finish("1", done(101, &["a"]));
    world.chores();
    world.finish("2", failed(FailureKind::Auth));
    let (one, two) = (world.task("1").id, world.task("2").id);
    let said = || "it was wrong".to_owned();
    world.must(Command::RollbackTask { task: one, reason: said(), by: ada() });
    world.must(Command::RequeueTask { task: two, reason: said(), by: ada() });
    let blocked = Stage::Blocked { on: one };
    assert_eq!([&world.task("2").stage, &world.task("3").stage], [&blocked, &blocked]);
    let (fence, paths) = (world.fence_of("1"), vec!["a".into()]);
    world.must(Command::FinishRewrite { fence, outcome: RewriteOutcome::Conflict { paths } });
    assert_eq!(world.working(), ["2".to_owned()].into());
    assert_eq!(world.task("3").stage, Stage::Waiting);
}

/// What had begun and was blocked by a rollback that came to nothing is pending again.
#[test]
fn a_begun_task_that_was_blocked_is_pending_again() {
    let tasks = vec![planned("1", &[]), planned("2", &["1"])];
    let mut world = World::with(tasks, Policy::default());
    world.chores();
    world.finish("1", done(101, &["a"]));
    world.chores();
    let (task, reason) = (world.task("1").id, "it was wrong".to_owned());
    world.must(Command::PauseMission { mission: M1, reason: reason.clone(), by: ada() });
    world.must(Command::RollbackTask { task, reason, by: ada() });
    world.must(Command::ResumeMission { mission: M1, by: ada() });
    let (fence, paths) = (world.fence_of("1"), vec!["a".into()]);
    world.must(Command::FinishRewrite { fence, outcome: RewriteOutcome::Conflict { paths } });
    let (mut state, mut statuses) = (State::default(), Vec::new());
    for record in &world.journal {
        state.apply(&record.event, record.at);
        let mission = state.mission(M1);
        let task = state.task_named(M1, "2");
        statuses.extend(mission.zip(task).map(|(mission, task)| task.status(mission)));
    }
    statuses.dedup();
    assert_eq!(
        statuses[statuses.len() - 3..],
        [Status::Blocked, Status::Pending, Status::InProgress]
    );
}

fn ordered(world: &World, name: &str, action: OverrideAction) -> Command {
    let (task, reason) = (world.task(name).id, "I know better".into());
    Command::Override { order: Box::new(Order { task, action, reason, by: ada() }) }
}

/// What was done in a phase goes with it when a person skips that, also while the task is blocked.
#[test]
fn a_step_skipped_while_the_task_is_blocked_takes_its_operations_with_it() {
    let wave = Some("login".to_owned());
    let begun = PlannedTask { wave: wave.clone(), file_operation_count: 2, ..planned("1", &[]) };
    let failing = PlannedTask { wave, ..planned("2", &[]) };
    let flow = vec![Phase::Green, Phase::Refactor];
    let mut world = World::with(vec![begun, failing], Policy { flow, ..checked() });
    world.chores();
    let fence = world.fence_of("1");
    world.must(Command::CompleteOperation { fence, index: 0, change: commit(500) });
    while world.status("2") != Status::DeadLetter {
        world.finish("2", failed(FailureKind::GitConflict));
        world.wait(60_000);
    }
    assert_eq!(world.status("1"), Status::Blocked);
    let skip = OverrideAction::SkipStep { step: Phase::Green };
    world.must(ordered(&world, "1", skip));
    assert_eq!(world.task("1").operations.next(), Some(0));
    assert_eq!(world.task("1").unfinished, None);
}

/// Checks that failed to run and were put off are not run for a task that a person sent back
/// meanwhile: the journal said that they began, and nothing ran.
#[test]
fn checks_that_were_put_off_go_with_the_change_that_a_person_gave_up() {
    let checks = Policy { checks: checked().checks, ..Policy::default() };
    for action in [OverrideAction::Reset { step: Phase::Green }, OverrideAction::ForceComplete] {
        let mut world = World::with(vec![planned("1", &[]), planned("2", &[])], checks.clone());
        world.chores();
        world.finish("1", done(101, &["a"]));
        let fence = world.fence_of("1");
        let failure = Failure::new(FailureKind::AgentError, "the host has no room");
        world.must(Command::FailChore { fence, failure });
        world.must(ordered(&world, "1", action));
        let later = world.wait(60_000);
        let started = |event: &&Event| matches!(event, Event::ChoreStarted { .. });
        assert_eq!(later.iter().find(started), None);
        let live = world.state().due().iter().count();
        assert_eq!(world.running.len(), live);
    }
}

/// Who gives up takes along what needs it, but not what needs only what a person did by hand.
#[test]
fn what_was_done_by_hand_protects_what_needs_it() {
    let tasks = vec![planned("1", &[]), planned("2", &["1"]), planned("3", &["2", "4"])];
    let mut all = tasks;
    all.insert(2, planned("4", &[]));
    let mut world = World::with(all, Policy::default());
    world.chores();
    world.must(ordered(&world, "2", OverrideAction::ForceComplete));
    world.finish("1", failed(FailureKind::Auth));
    assert_eq!(world.task("3").stage, Stage::Waiting);
}

/// A person's order does not put a task that waits at the end of its queue, nor out of it.
#[test]
fn a_task_that_waits_goes_on_waiting_when_it_is_sent_back() {
    let mut world = World::with(vec![planned("1", &[]), planned("2", &[])], Policy::default());
    world.must(Command::ConfigureTeam {
        seats: [(Role::Developer, 1)].into(),
        workers_max: 1,
        by: crate::fixture::ann(),
    });
    world.chores();
    let waits = if world.working().contains("1") { "2" } else { "1" };
    let before = world.state().waiting_for(Role::Developer);
    let reset = OverrideAction::Reset { step: Phase::Green };
    world.must(ordered(&world, waits, reset));
    assert_eq!(world.state().waiting_for(Role::Developer), before);
    let busy = if waits == "1" { "2" } else { "1" };
    world.finish(busy, done(101, &["a"]));
    assert!(world.working().contains(waits));
}
