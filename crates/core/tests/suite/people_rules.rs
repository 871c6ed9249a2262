//! People, through the engine: approvals, levels, rights, overrides and second persons.

use std::collections::BTreeMap;

use kapelle_core::approval::{
    ApprovalPolicy, ApprovalRefused, InvalidApprovalPolicy, Level, Order, OverrideAction,
    OverrideRefused, PeopleRefused, PersonRole, Right, Subject,
};
use kapelle_core::breaker::BreakerKey;
use kapelle_core::flow::Phase;
use kapelle_core::ledger::Limit;
use kapelle_core::mission::MissionStatus;
use kapelle_core::plan::{PlannedTask, Priority};
use kapelle_core::policy::{InvalidPolicy, Policy};
use kapelle_core::queue::Territories;
use kapelle_core::rate::Provider;
use kapelle_core::settings::Settings;
use kapelle_core::status::Status;
use kapelle_core::task::Stage;
use kapelle_core::{Actor, AgentId, Command, Commit, Event, Refusal, Role, Usd, activity, why};

use crate::fixture::{
    M1, World, ann, check, checked, commit, done, failed, open, task, test_first,
};

fn who(name: &str) -> Actor {
    Actor(name.into())
}

fn asking(level: Level) -> Policy {
    let approvals = Some(ApprovalPolicy { level, ..ApprovalPolicy::default() });
    Policy { approvals, ..Policy::default() }
}

fn touching(id: &str, file: &str) -> PlannedTask {
    PlannedTask { files: vec![file.into()], ..task(id, &[]) }
}

fn mission_status(world: &World) -> MissionStatus {
    world.state().mission(M1).unwrap().status()
}

fn approve(subject: Subject, commit: Commit, by: &str) -> Command {
    Command::Approve { subject, commit, by: who(by) }
}

fn merge(world: &World, name: &str) -> Subject {
    Subject::Merge(world.task(name).id)
}

fn order(world: &World, name: &str, action: OverrideAction, by: &str) -> Command {
    let (task, reason) = (world.task(name).id, "stuck".into());
    Command::Override { order: Box::new(Order { task, action, reason, by: who(by) }) }
}

fn second(world: &World, name: &str, by: &str) -> Command {
    Command::SecondOverride { task: world.task(name).id, by: who(by) }
}

fn developer(seat: u32) -> AgentId {
    AgentId { role: Role::Developer, seat }
}

/// HUM-04, HUM-07: at the level of supervision a medium change waits for one person, and what was
/// approved is the commit that the person saw.
#[test]
fn a_change_of_medium_risk_waits_for_an_approval_of_its_commit() {
    let mut world = World::with(vec![touching("1", "src/api.rs")], asking(Level::Supervised));
    world.chores();
    world.finish("1", done(5, &["src/api.rs"]));
    assert!(world.running.is_empty());
    assert_eq!(world.status("1"), Status::ReadyForReview);
    assert_eq!(mission_status(&world), MissionStatus::AwaitingApproval);
    let told = why(world.state(), world.task("1")).unwrap();
    assert!(told.contains("waits for approval: 0 of 1 people (medium risk"), "{told}");
    let subject = merge(&world, "1");
    let other = world.send(approve(subject, commit(6), "ann"));
    assert!(matches!(other, Err(Refusal::Approval(ApprovalRefused::OtherCommit { .. }))));
    let agent = world.send(approve(subject, commit(5), "developer-1"));
    assert_eq!(agent, Err(Refusal::NotAPerson { by: "developer-1".into() }));
    world.must(approve(subject, commit(5), "ann"));
    world.chores();
    assert_eq!(world.status("1"), Status::Completed);
    let late = world.send(approve(subject, commit(5), "bob"));
    assert_eq!(late, Err(Refusal::Approval(ApprovalRefused::NotAsked(subject))));
}

/// The files decide, not what the plan calls them.
#[test]
fn low_risk_goes_by_itself_and_touched_files_raise_the_risk() {
    let tasks = vec![touching("1", "docs/a.md"), touching("2", "docs/b.md")];
    let mut world = World::with(tasks, asking(Level::Guarded));
    world.chores();
    world.finish("1", done(5, &["docs/a.md"]));
    world.chores();
    assert_eq!(world.status("1"), Status::Completed);
    world.finish("2", done(6, &["docs/b.md", "src/auth/token.rs"]));
    assert_eq!(world.status("2"), Status::ReadyForReview);
    let subject = merge(&world, "2");
    world.must(approve(subject, commit(6), "ann"));
    assert_eq!(world.status("2"), Status::ReadyForReview, "high risk takes two");
    let twice = world.send(approve(subject, commit(6), "ann"));
    let person = who("ann");
    assert_eq!(twice, Err(Refusal::Approval(ApprovalRefused::Twice { person })));
    world.must(approve(subject, commit(6), "bob"));
    world.chores();
    assert_eq!(world.status("2"), Status::Completed);
}

/// HUM-05, C-33: a critical task is asked about before it starts.
#[test]
fn a_critical_task_starts_when_a_person_agrees() {
    let mut critical = touching("1", "docs/a.md");
    critical.priority = Priority::Critical;
    let mut world = World::with(vec![critical], asking(Level::Guarded));
    world.chores();
    assert!(world.running.is_empty());
    assert_eq!(world.status("1"), Status::Blocked);
    let subject = Subject::Start(world.task("1").id);
    world.must(approve(subject, commit(1), "ann"));
    assert_eq!(world.working(), ["1".to_owned()].into());
}

#[test]
fn a_start_that_was_rejected_stays_so() {
    let mut critical = touching("1", "docs/a.md");
    critical.priority = Priority::Critical;
    let mut world = World::with(vec![critical], asking(Level::Guarded));
    world.chores();
    let subject = Subject::Start(world.task("1").id);
    let reject = |reason: &str| Command::Reject {
        subject,
        commit: commit(1),
        reason: reason.into(),
        by: ann(),
    };
    assert_eq!(world.send(reject(" ")), Err(Refusal::Missing { what: "the reason" }));
    world.must(reject("not now"));
    let told = why(world.state(), world.task("1")).unwrap();
    assert!(told.contains("ann turned its start down: not now"), "{told}");
    let late = world.send(approve(subject, commit(1), "bob"));
    assert!(matches!(late, Err(Refusal::Approval(ApprovalRefused::Rejected { .. }))));
}

/// HUM-07: at level 0 and 1 nothing begins before its plan is approved.
#[test]
fn a_manual_mission_waits_for_its_plan() {
    let mut world = World::with(vec![touching("1", "docs/a.md")], asking(Level::Assisted));
    world.chores();
    assert!(world.running.is_empty());
    assert_eq!(mission_status(&world), MissionStatus::AwaitingApproval);
    world.must(approve(Subject::Plan(M1), commit(1), "ann"));
    assert_eq!(world.working(), ["1".to_owned()].into());
    let late = world.send(approve(Subject::Plan(M1), commit(1), "bob"));
    let granted = ApprovalRefused::NotAsked(Subject::Plan(M1));
    assert_eq!(late, Err(Refusal::Approval(granted)), "one yes too many (sim)");
}

#[test]
fn a_rejected_plan_ends_the_mission() {
    let mut world = World::with(vec![touching("1", "docs/a.md")], asking(Level::Manual));
    let (subject, reason) = (Subject::Plan(M1), "too much".into());
    world.must(Command::Reject { subject, commit: commit(1), reason, by: ann() });
    assert_eq!(mission_status(&world), MissionStatus::Cancelled);
}

/// A rejected change goes back to work with what the person said, and comes back as a new commit.
#[test]
fn a_rejected_change_is_reworked() {
    let mut world = World::with(vec![touching("1", "src/a.rs")], asking(Level::Supervised));
    world.chores();
    world.finish("1", done(5, &["src/a.rs"]));
    let (subject, reason) = (merge(&world, "1"), "no tests".into());
    world.must(Command::Reject { subject, commit: commit(5), reason, by: ann() });
    let told = &world.task("1").last_failure.as_ref().unwrap().message;
    assert_eq!(told, "rejected by ann: no tests");
    world.finish("1", done(6, &["src/a.rs"]));
    world.must(approve(subject, commit(6), "ann"));
    world.chores();
    assert_eq!(world.status("1"), Status::Completed);
    assert_eq!(world.state().human_time().of(M1).decisions, 2, "HUM-11");
}

/// HUM-08: no level lifts the approval of the delivery, and what is risky takes two.
#[test]
fn the_protected_branch_takes_people_at_every_level() {
    for level in Level::ALL.into_iter().skip(2) {
        let mut world = World::with(vec![touching("1", "db/schema.sql")], asking(level));
        world.chores();
        if world.running.is_empty() {
            let subject = Subject::Start(world.task("1").id);
            for by in ["ann", "bob"] {
                world.must(approve(subject, commit(1), by));
            }
        }
        world.finish("1", done(5, &["db/schema.sql"]));
        let subject = merge(&world, "1");
        for by in ["ann", "bob"] {
            let _ = world.send(approve(subject, commit(5), by));
        }
        world.chores();
        assert_eq!(mission_status(&world), MissionStatus::AwaitingApproval, "{level:?}");
        let delivery =
            |by: &str| Command::ApproveDelivery { mission: M1, commit: commit(5), by: who(by) };
        let agent = world.send(delivery("developer-1"));
        assert_eq!(agent, Err(Refusal::NotAPerson { by: "developer-1".into() }));
        world.must(delivery("ann"));
        assert!(world.running.is_empty(), "{level:?}");
        world.must(delivery("bob"));
        world.chores();
        assert_eq!(mission_status(&world), MissionStatus::Delivered, "{level:?}");
    }
}

/// Where nobody is configured everybody may; from the first admin on, only who has the right.
#[test]
fn rights_count_from_the_first_admin_on() {
    let mut world = World::with(vec![touching("1", "src/a.rs")], asking(Level::Supervised));
    let assign = |person: &str, role, by: &str| Command::AssignRole {
        person: who(person),
        role,
        by: who(by),
    };
    let nobody = world.send(assign("bob", Some(PersonRole::Reader), "ada"));
    assert_eq!(nobody, Err(Refusal::People(PeopleRefused::NoAdmin)));
    world.must(assign("ada", Some(PersonRole::Admin), "ada"));
    world.must(assign("bob", Some(PersonRole::Reader), "ada"));
    let pause = |by: &str| Command::PauseMission { mission: M1, reason: "x".into(), by: who(by) };
    let (person, role, right) = ("bob".to_owned(), "reader", Right::Direct);
    let refused = Refusal::People(PeopleRefused::NoRight { person, role, right });
    assert_eq!(world.send(pause("bob")), Err(refused));
    let unknown = Refusal::People(PeopleRefused::Unknown { person: "eve".into() });
    assert_eq!(world.send(pause("eve")), Err(unknown));
    world.chores();
    world.finish("1", done(5, &["src/a.rs"]));
    let subject = merge(&world, "1");
    let refused = world.send(approve(subject, commit(5), "bob"));
    assert!(matches!(refused, Err(Refusal::Approval(ApprovalRefused::People(_)))), "{refused:?}");
    world.must(approve(subject, commit(5), "ada"));
}

/// OVR-01: the step is skipped, whoever was at it.
#[test]
fn a_person_skips_a_step() {
    let mut world = World::with(vec![task("1", &[])], test_first());
    world.chores();
    let skip = |step| OverrideAction::SkipStep { step };
    let nothing = order(&world, "1", skip(Phase::Green), "ann");
    world.must(order(&world, "1", skip(Phase::Red), "ann"));
    let phase = world.task("1").phase(&world.state().mission(M1).unwrap().policy);
    assert_eq!(phase, Some(Phase::Green));
    let refused = world.send(nothing);
    assert_eq!(refused, Err(Refusal::NothingToMerge { task: "1".into() }));
    world.finish("1", done(5, &["src/a"]));
    world.chores();
    assert_eq!(world.status("1"), Status::Completed);
}

/// OVR-01: whoever skips the last step says that the change is good as it is, to the gate as well.
#[test]
fn skipping_the_last_step_passes_the_gate_before_the_merge() {
    let mut world = World::with(vec![touching("1", "src/a.rs")], asking(Level::Supervised));
    world.chores();
    world.finish("1", done(5, &["src/a.rs"]));
    assert_eq!(world.task("1").stage, Stage::Approval { subject: merge(&world, "1") });
    let step = Phase::Green;
    world.must(order(&world, "1", OverrideAction::SkipStep { step }, "ann"));
    world.must(second(&world, "1", "bob"));
    assert!(matches!(world.task("1").stage, Stage::Merging { .. }), "{:?}", world.task("1").stage);
    world.chores();
    assert_eq!(world.status("1"), Status::Completed);
}

/// TDD-03: what red has shown stays frozen if a later step is reset, and not if red itself is.
#[test]
fn a_reset_unfreezes_only_what_is_shown_anew() {
    let mut policy = test_first();
    policy.flow.push(Phase::Verify);
    let mut world = World::with(vec![task("1", &[])], policy);
    world.chores();
    for (change, path, passes) in [(5, "tests/a", false), (6, "src/a", true)] {
        world.finish("1", done(change, &[path]));
        let fence = world.fence_of("1");
        world.must(Command::FinishChecks { fence, results: check(passes) });
    }
    let frozen = |world: &World| world.task("1").frozen.iter().cloned().collect::<Vec<_>>();
    assert_eq!(frozen(&world), ["tests/a"]);
    for (step, left) in [(Phase::Verify, &["tests/a"][..]), (Phase::Red, &[])] {
        world.must(order(&world, "1", OverrideAction::Reset { step }, "ann"));
        assert_eq!(frozen(&world), left, "{step}");
    }
}

/// OVR-02, OVR-06: completed by hand, on record with who and why.
#[test]
fn a_person_completes_a_task_and_its_dependents_go_on() {
    let mut world = World::with(vec![task("1", &[]), task("2", &["1"])], Policy::default());
    let early = world.send(order(&world, "1", OverrideAction::ForceComplete, "ann"));
    assert_eq!(early, Err(Refusal::NotBegun { task: "1".into() }));
    world.chores();
    let events = world.must(order(&world, "1", OverrideAction::ForceComplete, "ann"));
    let line = events.iter().find(|e| matches!(e, Event::Overridden { .. })).unwrap();
    let told = activity::line(world.state(), line).unwrap();
    assert_eq!((told.actor.as_str(), told.text.as_str()), ("ann", "OVERRIDE: complete it: stuck"));
    assert_eq!(world.working(), ["2".to_owned()].into());
    world.must(order(&world, "2", OverrideAction::ForceComplete, "ann"));
    assert_eq!(mission_status(&world), MissionStatus::AwaitingApproval);
    let again = world.send(order(&world, "2", OverrideAction::ForceComplete, "ann"));
    let ended = OverrideRefused::Ended(Status::Completed);
    assert_eq!(again, Err(Refusal::Override(ended)));
}

/// What a dead task blocked goes on when a person completes what stood between.
#[test]
fn completing_a_blocked_task_frees_what_it_held() {
    let tasks = vec![task("a", &[]), task("b", &["a"]), task("c", &["b"])];
    let mut world = World::with(tasks, Policy::default());
    world.chores();
    world.finish("a", failed(kapelle_core::failure::FailureKind::Auth));
    world.must(order(&world, "b", OverrideAction::ForceComplete, "ann"));
    assert_eq!(world.working(), ["c".to_owned()].into());
}

/// OVR-03: back to red is back to the tester.
#[test]
fn a_person_sends_a_task_back() {
    let mut world = World::with(vec![task("1", &[]), task("2", &["1"])], test_first());
    world.chores();
    world.finish("1", done(5, &["tests/a"]));
    let fence = world.fence_of("1");
    world.must(Command::FinishChecks { fence, results: check(false) });
    let reset = |step| OverrideAction::Reset { step };
    let waiting = world.send(order(&world, "2", reset(Phase::Red), "ann"));
    assert_eq!(waiting, Err(Refusal::NotBegun { task: "2".into() }));
    world.must(order(&world, "1", reset(Phase::Red), "ann"));
    let lease = world.state().lease(world.fence_of("1")).unwrap();
    assert_eq!((lease.agent.role, &lease.base), (Role::Tester, &commit(1)));
}

/// OVR-04.
#[test]
fn a_person_moves_a_task_to_another_agent() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    let to = |seat| OverrideAction::Reassign { from: developer(1), to: developer(seat) };
    let refused = world.send(order(&world, "1", to(9), "ann"));
    assert_eq!(refused, Err(Refusal::NotFree { agent: developer(9) }));
    world.must(order(&world, "1", to(2), "ann"));
    assert_eq!(world.state().lease(world.fence_of("1")).unwrap().agent, developer(2));
    assert_eq!(world.task("1").retries, 0);
}

/// OVR-04: nobody is sent where they may not go, whoever sends them.
#[test]
fn a_task_is_not_moved_to_whoever_may_not_touch_its_files() {
    let mut world = World::with(vec![touching("1", "src/a.rs")], Policy::default());
    let of = BTreeMap::from([(developer(2), vec!["docs/".to_owned()])]);
    let territories = Territories::new(of).unwrap();
    let settings = Box::new(Settings { territories, ..Settings::default() });
    world.must(Command::ChangeSettings { settings, by: who("ann") });
    world.chores();
    let (agent, task) = (developer(2), "1".to_owned());
    let action = OverrideAction::Reassign { from: developer(1), to: agent };
    let refused = world.send(order(&world, "1", action, "ann"));
    assert_eq!(refused, Err(Refusal::OutsideTerritory { agent, task }));
}

/// OVR-07, SEC-10: what passes a gate takes a second person, in time.
#[test]
fn an_override_of_a_gate_takes_a_second_person() {
    let mut world = World::with(vec![touching("1", "src/a.rs")], asking(Level::Supervised));
    world.chores();
    world.finish("1", done(5, &["src/a.rs"]));
    let complete = order(&world, "1", OverrideAction::ForceComplete, "ann");
    world.must(complete.clone());
    assert_eq!(world.status("1"), Status::ReadyForReview);
    let same = world.send(second(&world, "1", "ann"));
    let by = who("ann");
    assert_eq!(same, Err(Refusal::Override(OverrideRefused::SamePerson { by })));
    world.wait(24 * 3_600_000);
    let late = world.send(second(&world, "1", "bob"));
    assert_eq!(late, Err(Refusal::Override(OverrideRefused::NothingPending)));
    world.must(complete);
    world.must(second(&world, "1", "bob"));
    assert_eq!(world.status("1"), Status::Completed);
}

/// OVR-02: it leaves the merge queue, too; but what may already be on the branch stays.
#[test]
fn an_order_takes_a_change_out_of_the_merge_queue_until_it_has_passed() {
    let mut world = World::with(vec![task("1", &[]), task("2", &[])], checked());
    world.chores();
    world.finish("1", done(5, &["a"]));
    let fence = world.fence_of("1");
    world.must(Command::FinishChecks { fence, results: check(true) });
    let skip = OverrideAction::SkipStep { step: Phase::Green };
    let refused = world.send(order(&world, "1", skip, "ann"));
    assert_eq!(refused, Err(Refusal::BeingMerged { task: "1".into() }));
    let reset = OverrideAction::Reset { step: Phase::Green };
    world.must(order(&world, "1", reset, "ann"));
    assert_eq!(world.working(), ["1".to_owned(), "2".to_owned()].into());
    assert!(world.state().mission(M1).unwrap().merge_queue().unwrap().is_empty());
    world.finish("1", done(6, &["a"]));
    let fence = world.fence_of("1");
    world.must(Command::FinishChecks { fence, results: check(true) });
    world.build("1", 6);
    let late = world.send(order(&world, "1", OverrideAction::ForceComplete, "ann"));
    assert_eq!(late, Err(Refusal::BeingMerged { task: "1".into() }));
}

#[test]
fn rules_about_people_that_nobody_could_fulfil_are_refused() {
    let approvals = Some(ApprovalPolicy { high_risk_people: 9, ..ApprovalPolicy::default() });
    let policy = Policy { approvals, ..Policy::default() };
    let wrong = InvalidApprovalPolicy::People { count: 9, max: 5 };
    let refused = Refusal::InvalidPolicy(InvalidPolicy::Approvals { wrong });
    assert_eq!(World::empty().send(open(vec![task("1", &[])], policy)), Err(refused));
}

/// An install that configures nothing about people goes on as it always did.
#[test]
fn without_rules_about_people_only_the_delivery_asks() {
    let mut world = World::with(vec![touching("1", "db/schema.sql")], Policy::default());
    world.chores();
    world.finish("1", done(5, &["db/schema.sql"]));
    world.chores();
    let approve = Command::ApproveDelivery { mission: M1, commit: commit(5), by: ann() };
    world.must(approve);
    world.chores();
    assert_eq!(mission_status(&world), MissionStatus::Delivered);
    let waiting: Vec<_> = world.state().approvals().waiting().collect();
    assert!(waiting.is_empty(), "{waiting:?}");
}

/// HUM-08, C-12: no level lifts it, and nobody but a person says it.
#[test]
fn at_every_level_the_protected_branch_waits_for_a_person() {
    for level in Level::ALL {
        let mut world = World::with(vec![touching("1", "docs/a.md")], asking(level));
        world.chores();
        let open = |world: &World| {
            let next = world.state().approvals().waiting().next().map(|(gate, _)| gate.clone());
            next.filter(|gate| gate.subject != Subject::Delivery(M1))
        };
        let agree = |world: &mut World| {
            while let Some(gate) = open(world) {
                let bob = world.state().approvals().waiting().next().unwrap().1 > 1;
                world.must(approve(gate.subject, gate.commit.clone(), "ann"));
                if bob {
                    world.must(approve(gate.subject, gate.commit, "bob"));
                }
                world.chores();
            }
        };
        agree(&mut world);
        world.finish("1", done(5, &["docs/a.md"]));
        world.chores();
        agree(&mut world);
        assert_eq!(mission_status(&world), MissionStatus::AwaitingApproval, "{level:?}");
        world.wait(7 * 24 * 60 * 60 * 1_000);
        assert_eq!(mission_status(&world), MissionStatus::AwaitingApproval, "{level:?}");
        let delivery = Subject::Delivery(M1);
        for machine in ["kapelle", "developer-1"] {
            let refused = Err(Refusal::NotAPerson { by: machine.into() });
            assert_eq!(world.send(approve(delivery, commit(5), machine)), refused, "{level:?}");
        }
        world.must(approve(delivery, commit(5), "ann"));
        world.chores();
        assert_eq!(mission_status(&world), MissionStatus::Delivered, "{level:?}");
    }
}

/// BUD-09: what holds the machine back is lifted by people, not by agents, nor by Kapelle itself;
/// also where nobody has a role yet.
#[test]
fn neither_agents_nor_kapelle_lift_what_holds_them_back() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    let (mission, reason) = (M1, || "it is worth it".to_owned());
    world.must(Command::PauseMission { mission, reason: reason(), by: ann() });
    for name in ["developer-1", "kapelle"] {
        let by = || who(name);
        let (limit, usd, provider) = (Limit::Mission, Usd::cents(1), Provider("east".into()));
        let lifting = [
            Command::ResumeSpending { by: by() },
            Command::RaiseCap { mission, limit, usd, reason: reason(), by: by() },
            Command::ResumeMission { mission, by: by() },
            Command::ResetBreaker { key: BreakerKey::Mission(mission), by: by() },
            Command::UnparkProvider { provider, by: by() },
            Command::ChangeSettings { settings: Box::default(), by: by() },
        ];
        for command in lifting {
            let told = format!("{command:?}");
            assert_eq!(world.send(command), Err(Refusal::NotAPerson { by: name.into() }), "{told}");
        }
    }
}

/// Answers of that name come from the rules of a mission: a person of that name would not count
/// as one.
#[test]
fn nobody_is_called_as_the_configuration_is() {
    let mut world = World::with(vec![task("1", &[])], Policy::default());
    world.chores();
    let by = who("configuration");
    let refused = Err(Refusal::NotAPerson { by: by.0.clone() });
    let pause = Command::PauseMission { mission: M1, reason: "lunch".into(), by: by.clone() };
    assert_eq!(world.send(pause), refused);
    let assign = Command::AssignRole { person: by, role: Some(PersonRole::Admin), by: ann() };
    assert_eq!(world.send(assign), refused);
}
