//! What people are asked, told and shown, and what their word does not cover.

use kapelle_core::approval::{
    ApprovalPolicy, Level, Order, OverrideAction, OverrideRefused, PersonRole, Subject,
};
use kapelle_core::command::{LaneOutcome, RewriteOutcome};
use kapelle_core::escalation::{Cause, Matter};
use kapelle_core::event::Event;
use kapelle_core::failure::FailureKind;
use kapelle_core::flow::Phase;
use kapelle_core::mission::MissionStatus;
use kapelle_core::plan::{Plan, PlannedTask, Priority};
use kapelle_core::policy::Policy;
use kapelle_core::status::Status;
use kapelle_core::task::Stage;
use kapelle_core::{Actor, AgentId, Command, Commit, Refusal, Role, activity, why};

use crate::fixture::{
    M1, World, ann, asked, check, checked, commit, done, failed, task, test_first,
};

fn asking(level: Level) -> Policy {
    let approvals = Some(ApprovalPolicy { level, ..ApprovalPolicy::default() });
    Policy { approvals, ..Policy::default() }
}

fn touching(id: &str, file: &str) -> PlannedTask {
    PlannedTask { files: vec![file.into()], ..task(id, &[]) }
}

fn approve(subject: Subject, commit: Commit, by: &str) -> Command {
    Command::Approve { subject, commit, by: Actor(by.into()) }
}

fn order(world: &World, name: &str, action: OverrideAction) -> Command {
    let (task, reason) = (world.task(name).id, "stuck".into());
    Command::Override { order: Box::new(Order { task, action, reason, by: ann() }) }
}

fn told(events: &[Event]) -> Vec<Cause> {
    let causes = events.iter().filter_map(|event| match event {
        Event::PersonNotified { causes } => Some(causes.clone()),
        _ => None,
    });
    causes.flatten().collect()
}

/// HUM-09, level 2: what is of low risk happens by itself, people hear of it once, and can take it
/// back.
#[test]
fn what_goes_ahead_without_asking_is_told() {
    let mut world = World::with(vec![touching("1", "docs/a.md")], asking(Level::Supervised));
    world.chores();
    let events = world.finish("1", done(5, &["docs/a.md"]));
    let ahead = events.iter().find(|event| matches!(event, Event::WentAhead { .. })).unwrap();
    let line = activity::line(world.state(), ahead).unwrap();
    let sentence = "goes ahead without asking (low risk: docs/a.md is documentation)";
    assert_eq!(line.text, format!("a merge at {} {sentence}", commit(5).short()));
    let cause = Cause { mission: Some(M1), matter: Matter::WentAhead, pattern: "a merge".into() };
    assert_eq!(told(&events), std::slice::from_ref(&cause));
    world.chores();
    assert_eq!(world.status("1"), Status::Completed);
    assert!(world.state().notices().group(&cause).is_none(), "there is nothing left to do");
    let (task, reason) = (world.task("1").id, "not so".into());
    world.must(Command::RollbackTask { task, reason, by: ann() });
    world.chores();
    assert_eq!(world.status("1"), Status::RolledBack);
}

/// Level 5 tells of what level 2 would ask for; level 3 does not mention what is harmless.
#[test]
fn levels_differ_in_what_they_tell() {
    let merges = |level, file: &str| {
        let mut world = World::with(vec![touching("1", file)], asking(level));
        world.chores();
        let events = world.finish("1", done(5, &[file]));
        events.iter().any(|event| matches!(event, Event::WentAhead { .. }))
    };
    assert!(merges(Level::FullyAutonomous, "db/schema.sql"));
    assert!(merges(Level::Guarded, "src/a.rs"));
    assert!(!merges(Level::Guarded, "docs/a.md"));
    assert!(!merges(Level::FullyAutonomous, "src/a.rs"));
}

/// A rebase writes another commit: nobody has seen that one.
#[test]
fn a_change_that_was_written_anew_is_approved_anew() {
    let mut world = World::with(vec![touching("1", "src/a.rs")], asking(Level::Supervised));
    world.chores();
    world.finish("1", done(5, &["src/a.rs"]));
    let (id, paths) = (world.task("1").id, vec!["src/a.rs".to_owned()]);
    let subject = Subject::Merge(id);
    world.must(approve(subject, commit(5), "ann"));
    for _ in 0..2 {
        let Some((fence, _)) = world.merge_work() else { break };
        let outcome = LaneOutcome::Conflict { task: id, paths: paths.clone() };
        if world.send(Command::FinishLane { fence, outcome }).is_err() {
            break;
        }
    }
    let (fence, change) = (world.fence_of("1"), commit(9));
    let outcome = RewriteOutcome::Written { change, touched: paths.into() };
    world.must(Command::FinishRewrite { fence, outcome });
    assert_eq!(world.status("1"), Status::ReadyForReview);
    assert!(world.running.is_empty(), "it is not in the queue: {:?}", world.running);
    let old = world.send(approve(subject, commit(5), "bob"));
    assert!(matches!(old, Err(Refusal::Approval(_))), "{old:?}");
    world.must(approve(subject, commit(9), "ann"));
    world.chores();
    assert_eq!(world.status("1"), Status::Completed);
}

/// The one who said no can say yes another day.
#[test]
fn a_start_that_was_turned_down_comes_back_with_a_requeue() {
    let critical = PlannedTask { priority: Priority::Critical, ..touching("1", "docs/a.md") };
    let mut world = World::with(vec![critical], asking(Level::Guarded));
    world.chores();
    let (id, reason) = (world.task("1").id, "later".to_owned());
    let subject = Subject::Start(id);
    let requeue = Command::RequeueTask { task: id, reason: "now".into(), by: ann() };
    assert_eq!(world.send(requeue.clone()), Err(Refusal::NotDead { task: "1".into() }));
    world.must(Command::Reject { subject, commit: commit(1), reason, by: ann() });
    world.must(requeue);
    assert!(world.state().approvals().is_open(subject), "it is asked again");
    world.must(approve(subject, commit(1), "bob"));
    assert_eq!(world.working(), ["1".to_owned()].into());
}

/// HUM-05: a no to a start is an answer like any other: nobody waits for it any more. The task is
/// given up, what needs it is blocked, the rest goes on, and then the mission says how it ended.
#[test]
fn a_start_that_was_turned_down_is_given_up_and_the_rest_goes_on() {
    let critical = PlannedTask { priority: Priority::Critical, ..touching("1", "docs/a.md") };
    let tasks = vec![critical, task("2", &["1"]), touching("3", "docs/c.md")];
    let mut world = World::with(tasks, asking(Level::Guarded));
    world.chores();
    let (id, reason) = (world.task("1").id, "not this year".to_owned());
    let subject = Subject::Start(id);
    let events = world.must(Command::Reject { subject, commit: commit(1), reason, by: ann() });
    let statuses = ["1", "2"].map(|name| world.status(name));
    assert_eq!(statuses, [Status::DeadLetter, Status::Blocked]);
    assert!(told(&events).is_empty(), "whoever said so knows");
    world.finish("3", done(5, &["docs/c.md"]));
    world.chores();
    assert_eq!(world.status("3"), Status::Completed);
    let mission = world.state().mission(M1).unwrap();
    assert_eq!(mission.status(), MissionStatus::Failed);
    assert_eq!(mission.failure_rate.failed, 0, "a no is nobody's failure");
    assert_eq!(world.state().approvals().waiting_count(), 0);
    let told = |world: &World, name: &str| why(world.state(), world.task(name)).unwrap();
    let no = "ann turned its start down: not this year; a person can requeue it";
    assert_eq!(told(&world, "1"), no);
    let needs = "Dependency 1 was turned down by ann: not this year; it comes back when a person \
                 requeues 1";
    assert_eq!(told(&world, "2"), needs);

    world.must(Command::RequeueTask { task: id, reason: "now".into(), by: ann() });
    assert_eq!(world.state().mission(M1).unwrap().status(), MissionStatus::AwaitingApproval);
    assert_eq!(told(&world, "2"), "waits for 1 to be merged");
    let seen = world.state().approvals().gate(subject).unwrap().commit.clone();
    world.must(approve(subject, seen, "bob"));
    assert_eq!(world.working(), ["1".to_owned()].into());
}

/// OVR-07: who may order, but not pass a gate, cannot call done what others turned down.
#[test]
fn a_start_that_was_turned_down_is_called_done_only_by_who_may_pass_its_gate() {
    let critical = PlannedTask { priority: Priority::Critical, ..touching("1", "docs/a.md") };
    let mut world = World::with(vec![critical], asking(Level::Guarded));
    world.chores();
    for (person, role) in [("ann", PersonRole::Admin), ("eve", PersonRole::Author)] {
        let (person, role) = (Actor(person.into()), Some(role));
        world.must(Command::AssignRole { person, role, by: ann() });
    }
    let (task, reason) = (world.task("1").id, "no".to_owned());
    let subject = Subject::Start(task);
    world.must(Command::Reject { subject, commit: commit(1), reason, by: ann() });
    let action = OverrideAction::ForceComplete;
    let (reason, by) = ("done by hand".to_owned(), Actor("eve".into()));
    let order = Box::new(Order { task, action, reason, by });
    let refused = world.send(Command::Override { order });
    assert!(matches!(refused, Err(Refusal::Override(OverrideRefused::People(_)))), "{refused:?}");
}

/// Journals from before a no gave the task up have it before its gate for ever; a person can still
/// put it back to work.
#[test]
fn a_start_that_was_turned_down_long_ago_comes_back_with_a_requeue() {
    let critical = PlannedTask { priority: Priority::Critical, ..touching("1", "docs/a.md") };
    let mut world = World::with(vec![critical], asking(Level::Guarded));
    world.chores();
    let (task, reason) = (world.task("1").id, "later".to_owned());
    let subject = Subject::Start(task);
    world.must(Command::Reject { subject, commit: commit(1), reason, by: ann() });
    world.journal.retain(|record| !matches!(record.event, Event::TaskDeadLettered { .. }));
    world.restart();
    assert_eq!(world.task("1").stage, Stage::Approval { subject });
    world.must(Command::RequeueTask { task, reason: "now".into(), by: ann() });
    assert!(world.state().approvals().is_open(subject), "it is asked again");
}

/// HUM-05: what a person calls critical while it waits is asked about like what the plan does.
#[test]
fn a_task_that_becomes_critical_is_asked_about_before_it_starts() {
    let tasks = vec![touching("1", "docs/a.md"), task("2", &["1"])];
    let mut world = World::with(tasks, asking(Level::Guarded));
    world.chores();
    let task = world.task("2").id;
    let priority = Priority::Critical;
    world.must(Command::SetPriority { task, priority, by: ann() });
    world.finish("1", done(5, &["docs/a.md"]));
    world.chores();
    assert!(world.state().approvals().is_open(Subject::Start(task)));
    assert_eq!(world.working(), [].into());
}

/// Why, for a plan that waits.
#[test]
fn a_task_says_that_its_plan_is_not_approved() {
    let mut world = World::with(vec![touching("1", "docs/a.md")], asking(Level::Assisted));
    world.chores();
    let told = why(world.state(), world.task("1")).unwrap();
    let waits = "waits for approval: 0 of 1 people (low risk: docs/a.md is documentation)";
    assert_eq!(told, format!("a plan at {} {waits}", commit(1).short()));
}

/// HUM-08: a proposal that no longer holds cannot be approved or rejected, and the one that
/// follows is asked about anew.
#[test]
fn a_delivery_is_not_asked_about_while_there_is_more_to_do() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    world.succeed("1");
    let subject = Subject::Delivery(M1);
    assert!(world.state().approvals().is_open(subject));
    let seen = world.state().approvals().gate(subject).unwrap().commit.clone();
    let plan = Plan { goal: None, tasks: vec![task("2", &[])] };
    world.must(Command::ProposeGaps { mission: M1, plan, by: ann() });
    assert!(!world.state().approvals().is_open(subject));
    let reason = "no".to_owned();
    let late = Command::Reject { subject, commit: seen.clone(), reason, by: ann() };
    assert!(matches!(world.send(late), Err(Refusal::Approval(_))));
    world.succeed("2");
    let now = world.state().approvals().gate(subject).unwrap().commit.clone();
    assert_ne!(seen, now);
    let stale = world.send(approve(subject, seen, "ann"));
    assert!(matches!(stale, Err(Refusal::OtherCommit { .. })), "{stale:?}");
    world.must(approve(subject, now, "ann"));
    world.chores();
    assert_eq!(world.state().mission(M1).unwrap().status(), MissionStatus::Delivered);
}

/// HUM-07: at the levels where a plan takes a person's word, no agent adds to it.
#[test]
fn only_a_person_adds_to_a_plan_that_took_a_persons_word() {
    let refused = Err(Refusal::NotAPerson { by: "planner-1".into() });
    for (level, expected) in [(Level::Assisted, refused), (Level::Guarded, Ok(()))] {
        let mut world = World::with(vec![touching("1", "docs/a.md")], asking(level));
        let plan = Plan { goal: None, tasks: vec![touching("2", "docs/b.md")] };
        let by = Actor("planner-1".into());
        let added = world.send(Command::ProposeGaps { mission: M1, plan, by });
        assert_eq!(added.map(drop), expected, "{level:?}");
    }
}

/// OVR-05, HUM-10: one look shows who waits for whom.
#[test]
fn all_queues_are_seen_at_once() {
    let mut policy = asking(Level::Supervised);
    policy.checks = checked().checks;
    let files = ["src/a.rs", "docs/b.md", "docs/c.md", "docs/d.md", "docs/e.md"];
    let names = ["1", "2", "3", "4", "5"];
    let tasks = names.into_iter().zip(files).map(|(name, file)| touching(name, file)).collect();
    let mut world = World::with(tasks, policy);
    world.chores();
    let id = |world: &World, name: &str| world.task(name).id;
    world.finish("1", done(5, &["src/a.rs"]));
    let fence = world.fence_of("1");
    world.must(Command::FinishChecks { fence, results: check(true) });
    world.finish("2", done(6, &["docs/b.md"]));
    let fence = world.fence_of("2");
    world.must(Command::FinishChecks { fence, results: check(true) });
    let asking = world.working().into_iter().next().unwrap();
    world.finish(&asking, asked("which"));
    let queues = world.state().queues();
    assert_eq!(queues.for_approval, [Subject::Merge(id(&world, "1"))]);
    assert_eq!(queues.merging, [(M1, vec![id(&world, "2")])].into());
    assert_eq!(queues.for_answers, [id(&world, &asking)]);
    let busy = queues.at_work.len() + queues.waiting.values().map(Vec::len).sum::<usize>();
    assert_eq!(busy, 2, "{queues:?}");
}

/// OVR-01: what is skipped later disturbs nobody who works now.
#[test]
fn skipping_a_later_step_leaves_the_agent_at_work() {
    let mut world = World::with(vec![task("1", &[])], test_first());
    world.chores();
    let fence = world.fence_of("1");
    world.must(order(&world, "1", OverrideAction::SkipStep { step: Phase::Green }));
    assert_eq!(world.fence_of("1"), fence);
    world.finish("1", done(5, &["tests/a"]));
    world.chores();
    assert_eq!(world.status("1"), Status::Completed, "the tests alone are merged");
}

/// A change that is before people with all its phases done does not begin anew for a step that is
/// skipped once more.
#[test]
fn no_step_is_skipped_of_a_change_that_is_past_all_of_them() {
    let flow = vec![Phase::Green, Phase::Refactor];
    let policy = Policy { flow, ..asking(Level::Supervised) };
    let mut world = World::with(vec![touching("1", "src/a.rs")], policy);
    world.chores();
    let skip = || OverrideAction::SkipStep { step: Phase::Refactor };
    world.must(order(&world, "1", skip()));
    world.finish("1", done(5, &["src/a.rs"]));
    let subject = Subject::Merge(world.task("1").id);
    assert_eq!(world.task("1").stage, Stage::Approval { subject });
    let again = world.send(order(&world, "1", skip()));
    assert_eq!(again, Err(Refusal::BeingMerged { task: "1".into() }));
    world.must(approve(subject, commit(5), "ann"));
    world.chores();
    assert_eq!(world.status("1"), Status::Completed);
}

/// OVR-02: what gave up can be done by hand, and what waited for it goes on.
#[test]
fn a_person_completes_a_task_that_gave_up() {
    let mut world = World::with(vec![task("a", &[]), task("b", &["a"])], Policy::default());
    world.chores();
    world.finish("a", failed(FailureKind::Auth));
    assert_eq!(world.state().notices().open().count(), 1);
    let reset = world.send(order(&world, "a", OverrideAction::Reset { step: Phase::Green }));
    assert!(matches!(reset, Err(Refusal::Override(_))), "{reset:?}");
    world.must(order(&world, "a", OverrideAction::ForceComplete));
    assert_eq!(world.state().notices().open().count(), 0);
    assert_eq!(world.working(), ["b".to_owned()].into());
}

/// OVR-04: with one worker the free seat is the one that takes over.
#[test]
fn a_task_moves_although_every_worker_is_busy() {
    let mut world = World::with(vec![task("1", &[]), task("2", &[])], Policy::default());
    world.must(Command::ConfigureTeam {
        seats: [(Role::Developer, 2)].into(),
        workers_max: 1,
        by: ann(),
    });
    world.chores();
    let at_work = |world: &World| world.state().leases().next().map(|(_, l)| (l.task, l.agent));
    let (task, from) = at_work(&world).unwrap();
    let to = AgentId { role: Role::Developer, seat: if from.seat == 1 { 2 } else { 1 } };
    let name = world.state().task(task).unwrap().name().to_owned();
    world.must(order(&world, &name, OverrideAction::Reassign { from, to }));
    assert_eq!(at_work(&world), Some((task, to)));
}

/// GIT-15: more than one task falls only by a person's word, at every level.
#[test]
fn no_agent_takes_back_what_others_stand_on() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    world.succeed("1");
    let (task, by) = (world.task("1").id, Actor("developer-1".into()));
    let refused =
        world.send(Command::ConfirmRollback { task, tasks: vec![task], reason: "r".into(), by });
    assert_eq!(refused, Err(Refusal::NotAPerson { by: "developer-1".into() }));
}

/// SEC-10: where people are known, somebody without the right orders nothing, and seconds nothing.
#[test]
fn an_order_takes_the_right_to_it() {
    let mut world = World::with(vec![touching("1", "db/schema.sql")], asking(Level::Guarded));
    let assign = |person: &str, role| Command::AssignRole {
        person: Actor(person.into()),
        role: Some(role),
        by: ann(),
    };
    world.must(assign("ann", PersonRole::Admin));
    world.must(assign("rob", PersonRole::Reviewer));
    world.must(assign("eve", PersonRole::Author));
    world.chores();
    let task = world.task("1").id;
    let complete = |by: &str| {
        let (action, reason) = (OverrideAction::ForceComplete, "stuck".to_owned());
        let order = Order { task, action, reason, by: Actor(by.into()) };
        Command::Override { order: Box::new(order) }
    };
    for (by, right) in [("rob", "override"), ("eve", "pass a human gate"), ("max", "known")] {
        let refused = world.send(complete(by)).unwrap_err().to_string();
        assert!(refused.contains(right), "{by}: {refused}");
    }
    world.must(complete("ann"));
    let told = why(world.state(), world.task("1")).unwrap();
    assert!(told.contains("ann's order to complete it waits for a second person"), "{told}");
    let second = Command::SecondOverride { task, by: Actor("rob".into()) };
    let refused = world.send(second).unwrap_err().to_string();
    assert!(refused.contains("override"), "{refused}");
    assert_eq!(world.status("1"), Status::Blocked);
}
