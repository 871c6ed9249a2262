//! Plans as the engine carries them out: flaws, estimates, batches, gaps, operations, checklists.

use std::collections::BTreeMap;

use crate::fixture::{
    M1, World, ann, check, checked, commit, done, failed, open, task, test_first,
};
use kapelle_core::approval::{Order, OverrideAction};
use kapelle_core::checklist::{InvalidChecklist, Source, StepRefusal};
use kapelle_core::command::{LaneOutcome, RewriteOutcome, Spending};
use kapelle_core::completion::{CompletionReport, MissionReport};
use kapelle_core::event::PauseReason;
use kapelle_core::failure::FailureKind;
use kapelle_core::flow::Phase;
use kapelle_core::mission::MissionStatus;
use kapelle_core::plan::estimate::{CapBy, CostProfile, CostRules, Price};
use kapelle_core::plan::gaps::{GapPolicy, GapsExhausted};
use kapelle_core::plan::operation::OperationRefusal;
use kapelle_core::plan::{Flaw, InvalidPlan, Plan, PlanPolicy, PlannedTask};
use kapelle_core::policy::{InvalidPolicy, Policy};
use kapelle_core::report::{Report, Verification};
use kapelle_core::status::Status;
use kapelle_core::{
    Command, Effect, Event, Fence, MissionId, Refusal, RequestId, Usd, activity, why,
};

fn with_files(id: &str, files: &[&str]) -> PlannedTask {
    PlannedTask { files: files.iter().map(ToString::to_string).collect(), ..task(id, &[]) }
}

/// A small task of the sort that is batched.
fn label(id: &str, needs: &[&str]) -> PlannedTask {
    PlannedTask {
        title: "Add label".into(),
        files: vec![format!("src/ui/{id}.ts")],
        estimated_duration_minutes: Some(5),
        ..task(id, needs)
    }
}

fn gaps(tasks: Vec<PlannedTask>) -> Command {
    Command::ProposeGaps { mission: M1, plan: Plan { goal: None, tasks }, by: ann() }
}

fn said(world: &World, events: &[Event]) -> Vec<String> {
    let lines = events.iter().filter_map(|event| activity::line(world.state(), event));
    lines.map(|line| line.text).collect()
}

fn mission_status(world: &World) -> MissionStatus {
    world.state().mission(M1).unwrap().status()
}

/// PLN-08: the author of a plan needs one round, not ten.
#[test]
fn a_plan_is_refused_with_all_its_flaws_at_once() {
    let tasks = vec![
        task("a", &["a", "b"]),
        task("b", &["nowhere"]),
        task("b", &[]),
        with_files("c", &["1", "2", "3"]),
    ];
    let plan = PlanPolicy { task_files_advised_max: 1, task_files_max: 2, ..PlanPolicy::default() };
    let refused = World::empty().send(open(tasks, Policy { plan, ..Policy::default() }));
    let Err(Refusal::InvalidPlan(InvalidPlan(flaws))) = refused else { panic!("{refused:?}") };
    assert!(flaws.contains(&Flaw::OnItself { id: "a".into() }), "{flaws:?}");
    assert!(flaws.contains(&Flaw::Later { id: "a".into(), dep: "b".into() }), "{flaws:?}");
    assert!(flaws.contains(&Flaw::Unknown { id: "b".into(), dep: "nowhere".into() }));
    assert!(flaws.contains(&Flaw::Duplicate { id: "b".into() }));
    let files = |flaw: &Flaw| matches!(flaw, Flaw::TooMany { what: "files", count: 3, max: 2, .. });
    assert!(flaws.iter().any(files), "{flaws:?}");
}

/// PLN-09: said by the orchestrator itself; the plan is carried out all the same.
#[test]
fn a_task_with_too_many_files_is_warned_about() {
    let mut world = World::empty();
    let tasks = vec![task("a", &[]), with_files("b", &["1", "2", "3", "4"])];
    let events = world.must(open(tasks, Policy::default()));
    let lines = said(&world, &events);
    assert!(lines.contains(&"WARN Task b exceeds context budget".to_owned()), "{lines:?}");
    assert_eq!(world.state().tasks().count(), 2);
}

#[test]
fn plan_rules_that_cannot_work_are_refused() {
    let plan = PlanPolicy { task_files_max: 0, ..PlanPolicy::default() };
    let refused = World::empty().send(open(vec![task("a", &[])], Policy { plan, ..checked() }));
    assert!(matches!(refused, Err(Refusal::InvalidPolicy(InvalidPolicy::Plan(_)))), "{refused:?}");
    let profile = CostProfile { burst_permille: 1_001, ..CostProfile::default() };
    let cost = Some(CostRules { profile, ..CostRules::default() });
    let refused = World::empty().send(open(vec![task("a", &[])], Policy { cost, ..checked() }));
    assert!(matches!(refused, Err(Refusal::InvalidPolicy(InvalidPolicy::Cost(_)))), "{refused:?}");
}

fn priced(cap: CapBy) -> CostRules {
    let price = |input, output| Price { input: Usd::cents(input), output: Usd::cents(output) };
    let prices = BTreeMap::from([
        ("claude-haiku".to_owned(), price(25, 125)),
        ("claude-sonnet-4.5".to_owned(), price(300, 1_500)),
    ]);
    CostRules { prices, cap, ..CostRules::default() }
}

/// PLN-21: the estimate is on record with the plan, before anything is spent.
#[test]
fn a_planned_mission_shows_what_it_will_cost() {
    let mut world = World::empty();
    let tasks: Vec<PlannedTask> = (1..=18).map(|n| task(&n.to_string(), &[])).collect();
    let events = world.must(open(tasks, Policy { cost: Some(priced(CapBy::Budget)), ..checked() }));
    let estimate = world.state().mission(M1).unwrap().estimate.clone().unwrap();
    assert_eq!(estimate.base, Usd::micros(3_445_500));
    assert!(estimate.base < estimate.mean && estimate.mean < estimate.p95);
    let lines = said(&world, &events);
    let line = lines.iter().find(|line| line.starts_with("will cost about")).unwrap();
    assert!(line.contains("95 %"), "{line}");
    assert_eq!(world.state().mission(M1).unwrap().policy.budget, checked().budget);
}

/// A mission's own cap is twice its P95, if that is asked for, and never more than its budget.
#[test]
fn the_cap_can_follow_the_estimate() {
    let mut world = World::empty();
    let tasks: Vec<PlannedTask> = (1..=18).map(|n| task(&n.to_string(), &[])).collect();
    world.must(open(tasks, Policy { cost: Some(priced(CapBy::Estimate)), ..checked() }));
    let mission = world.state().mission(M1).unwrap();
    let p95 = mission.estimate.as_ref().unwrap().p95;
    assert_eq!(mission.policy.budget.mission_usd_max, p95 + p95);
    let mut small = World::empty();
    let mut policy = Policy { cost: Some(priced(CapBy::Estimate)), ..checked() };
    policy.budget.mission_usd_max = Usd::cents(300);
    small.must(open(vec![task("1", &[])], policy));
    let cap = small.state().mission(M1).unwrap().policy.budget.mission_usd_max;
    assert!(cap <= Usd::cents(300), "{cap}");
}

/// BUD-10: what a delivered mission really cost is held against its estimate, and the next one is
/// estimated in its light.
#[test]
fn estimates_learn_from_what_missions_really_cost() {
    let mut world = World::empty();
    let policy = || Policy { cost: Some(priced(CapBy::Budget)), ..checked() };
    world.must(open(vec![task("1", &[])], policy()));
    world.chores();
    let made = world.state().mission(M1).unwrap().estimate.clone().unwrap();
    let spent = Spending { usd: made.mean + made.mean, ..Spending::default() };
    let fence = world.fence_of("1");
    world.must(Command::FinishAttempt { fence, outcome: done(7, &["src/a"]), spent });
    world.chores();
    assert_eq!(world.state().calibration().comparison(M1), None, "it has not ended");
    let commit = world.state().mission(M1).unwrap().tip.clone().unwrap();
    world.must(Command::ApproveDelivery { mission: M1, commit, by: ann() });
    world.chores();
    let compared = world.state().calibration().comparison(M1).unwrap();
    assert_eq!(compared.actual_permille(), Some(2_000));
    let mut next = open(vec![task("1", &[])], policy());
    if let Command::OpenMission { request, .. } = &mut next {
        *request = RequestId("r2".into());
    }
    world.must(next);
    let second = world.state().mission(MissionId(2)).unwrap().estimate.clone().unwrap();
    assert_eq!((second.mean, second.p95), (made.mean + made.mean, made.p95 + made.p95));
    assert_eq!((second.base, second.uncalibrated_mean()), (made.base, made.mean));
}

/// BUD-15: an unknown price is never taken for nothing.
#[test]
fn a_mission_without_prices_for_its_models_is_refused() {
    let cost = Some(CostRules::default());
    let refused = World::empty().send(open(vec![task("1", &[])], Policy { cost, ..checked() }));
    assert!(matches!(refused, Err(Refusal::UnknownPrice(_))), "{refused:?}");
}

/// PLN-18: context, files and set-up once: the tasks of a batch are done one after the other.
#[test]
fn small_neighbours_are_done_one_after_the_other() {
    let tasks = vec![label("a", &[]), label("b", &[]), label("c", &[])];
    let mut world = World::empty();
    let events = world.must(open(tasks, checked()));
    let line = "a, b, c are small, alike and near (3 files): one agent does them in one go";
    assert!(said(&world, &events).contains(&line.to_owned()));
    world.chores();
    assert_eq!(world.working(), ["a".to_owned()].into(), "two developers, one batch");
    let waits = why(world.state(), world.task("b")).unwrap();
    assert_eq!(waits, "waits for its turn after a: they are done in one go");
    world.succeed("a");
    assert_eq!(world.working(), ["b".to_owned()].into());
}

fn hands(world: &World, name: &str) -> Vec<String> {
    world.task(name).agents.iter().map(ToString::to_string).collect()
}

/// PLN-18: who did the first of a batch has its context, and does the next.
#[test]
fn one_agent_does_a_batch() {
    let tasks = vec![task("z", &[]), label("a", &[]), label("b", &[])];
    let mut world = World::with(tasks, checked());
    world.chores();
    assert_eq!(hands(&world, "a"), ["developer-2"], "the first seat is taken");
    world.succeed("z");
    assert_eq!(world.working(), ["a".to_owned()].into(), "b has to wait, whoever is free");
    world.succeed("a");
    assert_eq!(hands(&world, "b"), ["developer-2"], "although the first seat is free");
}

/// PLN-12: one convoy a developer: who began a story goes on with it.
#[test]
fn a_developer_stays_with_the_story_that_it_began() {
    let of_story = |id: &str, story: &str, needs: &[&str]| PlannedTask {
        user_story: Some(story.into()),
        ..task(id, needs)
    };
    let tasks = vec![
        of_story("a1", "US1", &[]),
        of_story("b1", "US2", &[]),
        of_story("b2", "US2", &["a1", "b1"]),
    ];
    let mut world = World::with(tasks, checked());
    world.chores();
    let convoys = &world.state().mission(M1).unwrap().convoys;
    let ids: Vec<&str> = convoys.list().iter().map(|convoy| convoy.id.as_str()).collect();
    assert_eq!(ids, ["convoy-us1", "convoy-us2"]);
    assert_eq!(hands(&world, "b1"), ["developer-2"]);
    world.succeed("a1");
    world.succeed("b1");
    assert_eq!(hands(&world, "b2"), ["developer-2"], "although the first seat is free");
}

/// A batch is a way to save, not a dependency: who comes next does not need who came before.
#[test]
fn a_batch_goes_on_after_one_of_it_gave_up() {
    let mut world = World::with(vec![label("a", &[]), label("b", &[])], checked());
    world.chores();
    while world.status("a") != Status::DeadLetter {
        world.finish("a", failed(FailureKind::Auth));
        world.wait(60_000);
    }
    assert_eq!(world.working(), ["b".to_owned()].into());
}

/// PLN-19: what verification misses is planned and done, on top of what is merged.
#[test]
fn a_gap_plan_adds_tasks_to_a_mission_that_was_done() {
    let mut world = World::with(vec![task("1", &[])], checked());
    world.chores();
    world.succeed("1");
    assert_eq!(mission_status(&world), MissionStatus::AwaitingApproval);
    let events = world.must(gaps(vec![task("g1", &["1"]), task("g2", &["g1"])]));
    assert_eq!(said(&world, &events)[0], "accepted a plan of 2 tasks for what is missing (1 of 2)");
    assert_eq!(mission_status(&world), MissionStatus::Running);
    assert_eq!(world.working(), ["g1".to_owned()].into());
    world.succeed("g1");
    world.succeed("g2");
    assert_eq!(mission_status(&world), MissionStatus::AwaitingApproval);
}

/// A gap plan can wait for what is still being done.
#[test]
fn a_gap_task_waits_for_an_open_task() {
    let mut world = World::with(vec![task("1", &[]), task("2", &["1"])], checked());
    world.chores();
    world.must(gaps(vec![task("g", &["2"])]));
    assert_eq!(world.working(), ["1".to_owned()].into());
    assert_eq!(why(world.state(), world.task("g")).unwrap(), "waits for 2 to be merged");
    world.succeed("1");
    world.succeed("2");
    assert_eq!(world.working(), ["g".to_owned()].into());
}

#[test]
fn a_gap_plan_that_needs_what_will_never_come_is_blocked_at_once() {
    let mut world = World::with(vec![task("1", &[]), task("2", &["1"])], checked());
    world.chores();
    while world.status("1") != Status::DeadLetter {
        world.finish("1", failed(FailureKind::Auth));
        world.wait(60_000);
    }
    world.must(gaps(vec![task("g", &["2"]), task("h", &["g"]), task("i", &[])]));
    assert_eq!((world.status("g"), world.status("h")), (Status::Blocked, Status::Blocked));
    assert_eq!(why(world.state(), world.task("h")).unwrap(), "Dependency 1 failed");
    assert_eq!(world.working(), ["i".to_owned()].into());
}

#[test]
fn a_gap_plan_must_fit_the_mission() {
    let mut world = World::with(vec![task("1", &[])], checked());
    let taken = world.send(gaps(vec![task("1", &[])]));
    let flaw = InvalidPlan(vec![Flaw::Taken { id: "1".into() }]);
    assert_eq!(taken, Err(Refusal::InvalidPlan(flaw)));
    world.chores();
    world.succeed("1");
    let tip = world.state().mission(M1).unwrap().tip.clone().unwrap();
    world.must(Command::ApproveDelivery { mission: M1, commit: tip, by: ann() });
    let late = world.send(gaps(vec![task("g", &[])]));
    assert_eq!(late, Err(Refusal::Delivering { mission: M1 }));
}

/// What a paused mission needs is a person, not more tasks; a task that is blocked from its start
/// would go from paused to blocked, which no task may (sim seed 74).
#[test]
fn a_paused_mission_takes_no_gap_plan() {
    let mut world = World::with(vec![task("1", &[])], checked());
    world.must(Command::PauseMission { mission: M1, reason: "lunch".into(), by: ann() });
    let refused = world.send(gaps(vec![task("g", &[])]));
    assert_eq!(refused, Err(Refusal::MissionPaused { mission: M1 }));
}

/// RET-07: verification that never succeeds ends at a person, who may let it go on.
#[test]
fn the_third_gap_plan_pauses_the_mission_until_a_person_resumes_it() {
    let mut world = World::with(vec![task("1", &[])], checked());
    world.must(gaps(vec![task("g1", &[])]));
    world.must(gaps(vec![task("g2", &[])]));
    let events = world.must(gaps(vec![task("g3", &[])]));
    let exhausted = GapsExhausted { gap_count: 2, max_gap_retries: 2 };
    let paused = |event: &Event| matches!(event, Event::MissionPaused { reason, .. } if *reason == PauseReason::Gaps(exhausted));
    assert!(events.iter().any(paused), "{events:?}");
    let told = "paused m1: Max Retries Exceeded (Human Intervention Needed)".to_owned();
    assert!(said(&world, &events).contains(&told), "{events:?}");
    let again = world.send(gaps(vec![task("g3", &[])]));
    assert_eq!(again, Err(Refusal::GapsExhausted(exhausted)));
    world.must(Command::ResumeMission { mission: M1, by: ann() });
    world.must(gaps(vec![task("g3", &[])]));
}

#[test]
fn the_number_of_gap_plans_is_a_rule_of_the_mission() {
    let plan = PlanPolicy { gaps: GapPolicy { max_gap_retries: 0 }, ..PlanPolicy::default() };
    let mut world = World::with(vec![task("1", &[])], Policy { plan, ..checked() });
    world.must(gaps(vec![task("g", &[])]));
    assert_eq!(mission_status(&world), MissionStatus::Paused);
}

fn prepared(operations: u32) -> World {
    let planned = PlannedTask { file_operation_count: operations, ..task("1", &[]) };
    let mut world = World::with(vec![planned], checked());
    world.chores();
    world
}

fn operation(fence: Fence, index: u32) -> Command {
    Command::CompleteOperation { fence, index, change: commit(500 + u64::from(index)) }
}

/// TSK-09: an attempt that was cut short resumes after what is done, on the tree that has it.
#[test]
fn an_interrupted_attempt_resumes_at_the_next_operation() {
    let mut world = prepared(3);
    let fence = world.fence_of("1");
    world.must(operation(fence, 0));
    world.must(operation(fence, 1));
    world.restart();
    assert_eq!(world.task("1").operations.next(), Some(2));
    let resumed = world.fence_of("1");
    let Some(Effect::RunAttempt { base, .. }) = world.running.get(&resumed) else { panic!() };
    assert_eq!(*base, commit(501));
    assert_eq!(world.must(operation(resumed, 1)), [], "said twice, done once");
    let late = world.send(operation(fence, 2));
    assert_eq!(late, Err(Refusal::StaleFence { presented: fence }));
}

#[test]
fn operations_are_done_in_their_order() {
    let mut world = prepared(3);
    let fence = world.fence_of("1");
    let early = Err(Refusal::Operation(OperationRefusal::TooEarly { index: 2, next: 0 }));
    assert_eq!(world.send(operation(fence, 2)), early);
    let unknown = Err(Refusal::Operation(OperationRefusal::Unknown { index: 9, total: 3 }));
    assert_eq!(world.send(operation(fence, 9)), unknown);
}

/// A change that did not fit is thrown away, and what was done in it.
#[test]
fn a_rejected_change_takes_its_operations_with_it() {
    let mut world = prepared(1);
    let fence = world.fence_of("1");
    world.must(operation(fence, 0));
    world.finish("1", done(9, &["a"]));
    let gate = world.fence_of("1");
    world.must(Command::FinishChecks { fence: gate, results: crate::fixture::check(false) });
    assert_eq!(world.task("1").operations.next(), Some(0));
    world.wait(60_000);
    let again = world.fence_of("1");
    let Some(Effect::RunAttempt { base, .. }) = world.running.get(&again) else { panic!() };
    assert_eq!(*base, commit(1), "the phase begins where it began");
}

fn listed(actions: &[&str], checklist: Source) -> World {
    let required_actions = actions.iter().map(ToString::to_string).collect();
    let planned = PlannedTask { required_actions, ..task("1", &[]) };
    let mut world = World::with(vec![planned], Policy { checklist, ..checked() });
    world.chores();
    world
}

fn step(fence: Fence, step: &str) -> Command {
    Command::CompleteStep { fence, step: step.into(), notes: "it was easy".into(), change: None }
}

/// PLN-14, PLN-16: steps from the required actions, and their progress in words.
#[test]
fn a_completed_step_is_told_with_its_progress() {
    let mut world = listed(&["write", "test", "tidy"], Source::Log);
    let fence = world.fence_of("1");
    let events = world.must(step(fence, "step-0"));
    assert!(
        matches!(&events[..], [Event::StepCompleted { step: 0, progress, .. }] if progress == "1/3"),
        "{events:?}"
    );
    assert_eq!(said(&world, &events), ["1/3: write"]);
    let by = kapelle_core::Actor("developer-1".into());
    let twice = Err(Refusal::Step(StepRefusal::AlreadyDone { step: 0, by }));
    assert_eq!(world.send(step(fence, "step-0")), twice);
    let unknown = StepRefusal::Unknown { step: "step-3".into(), last: 2 };
    assert_eq!(world.send(step(fence, "step-3")), Err(Refusal::Step(unknown)));
}

/// PLN-17: the next session begins at the first step that is not done, and knows which failed.
#[test]
fn a_new_session_resumes_at_the_first_incomplete_step() {
    let mut world = listed(&["write", "test", "tidy"], Source::Log);
    let fence = world.fence_of("1");
    world.wait(10_000);
    world.must(step(fence, "step-0"));
    world.finish("1", failed(FailureKind::Timeout));
    let list = |world: &World| world.task("1").checklist.clone().unwrap();
    assert_eq!(list(&world).failing().map(|step| step.index), Some(1));
    world.wait(60_000);
    world.fence_of("1");
    assert_eq!(list(&world).first_incomplete().map(|step| step.index), Some(1));
    assert_eq!(list(&world).pace().mean_ms(), Some(10_000));
}

/// TSK-09, PLN-17: what an accepted phase left is there; whoever does a later one again must not
/// do it twice.
#[test]
fn what_an_accepted_phase_did_is_not_done_again() {
    let mut one = PlannedTask { file_operation_count: 3, ..task("1", &[]) };
    one.required_actions = vec!["write".into(), "test".into()];
    let mut world = World::with(vec![one], test_first());
    world.chores();
    let fence = world.fence_of("1");
    world.must(Command::CompleteOperation { fence, index: 0, change: commit(40) });
    world.must(step(fence, "step-0"));
    world.finish("1", done(5, &["tests/a"]));
    judge(&mut world, false);
    let fence = world.fence_of("1");
    world.must(Command::CompleteOperation { fence, index: 1, change: commit(41) });
    world.must(step(fence, "step-1"));
    world.finish("1", done(6, &["src/a"]));
    judge(&mut world, false);
    let progress = |world: &World| {
        let (task, list) = (world.task("1"), world.task("1").checklist.clone().unwrap());
        (task.operations.next(), list.progress().to_string())
    };
    assert_eq!(progress(&world), (Some(1), "1/2".to_owned()), "red was accepted, green was not");
    let (task, reason) = (world.task("1").id, "again".to_owned());
    let reset = OverrideAction::Reset { step: Phase::Red };
    let order = Order { task, action: reset, reason, by: ann() };
    world.must(Command::Override { order: Box::new(order) });
    assert_eq!(progress(&world), (Some(0), "0/2".to_owned()), "nothing is left of it");
}

fn judge(world: &mut World, passes: bool) {
    let fence = world.fence_of("1");
    world.must(Command::FinishChecks { fence, results: check(passes) });
}

/// PLN-15: an agent's own steps under those of the plan.
#[test]
fn an_agent_breaks_its_task_into_steps_before_it_begins() {
    let mut world = listed(&["write", "test"], Source::Hybrid);
    let fence = world.fence_of("1");
    let breakdown = |text: &str| Command::MakeChecklist { fence, breakdown: text.into() };
    let events = world.must(breakdown("1.1 read the docs\n2.1 run them"));
    assert_eq!(said(&world, &events), ["has 4 steps"]);
    world.must(step(fence, "step-1"));
    let fixed = Err(Refusal::ChecklistFixed { task: "1".into() });
    assert_eq!(world.send(breakdown("1. again")), fixed);
    let mut world = listed(&[], Source::Llm);
    let fence = world.fence_of("1");
    assert_eq!(world.send(step(fence, "step-0")), Err(Refusal::Step(StepRefusal::NoChecklist)));
    let prose = Command::MakeChecklist { fence, breakdown: "just prose".into() };
    assert_eq!(world.send(prose), Err(Refusal::InvalidChecklist(InvalidChecklist::NoSteps)));
}

/// The steps of a plan are the plan's where the mission says so.
#[test]
fn a_checklist_from_the_plan_is_not_an_agents_to_make() {
    let mut world = listed(&["write"], Source::Log);
    let fence = world.fence_of("1");
    let make = Command::MakeChecklist { fence, breakdown: "1. less".into() };
    assert_eq!(world.send(make), Err(Refusal::ChecklistFixed { task: "1".into() }));
}

/// A change that has to begin again on another branch has its steps before it again.
#[test]
fn a_conflict_opens_the_steps_again() {
    let mut world = listed(&["write"], Source::Log);
    let fence = world.fence_of("1");
    world.must(step(fence, "step-0"));
    world.finish("1", done(9, &["a"]));
    let gate = world.fence_of("1");
    world.must(Command::FinishChecks { fence: gate, results: crate::fixture::check(true) });
    let (build, task) = (world.fence_of("1"), world.task("1").id);
    let outcome = LaneOutcome::Conflict { task, paths: vec!["a".into()] };
    world.must(Command::FinishLane { fence: build, outcome });
    let rebase = world.fence_of("1");
    let outcome = RewriteOutcome::Conflict { paths: vec!["a".into()] };
    world.must(Command::FinishRewrite { fence: rebase, outcome });
    assert_eq!(world.task("1").checklist.as_ref().unwrap().progress().to_string(), "0/1");
}

/// TSK-12: one page on a task that has ended, with what its agent said, marked as that.
#[test]
fn a_task_that_ended_has_its_report() {
    let mut world = listed(&["write"], Source::Log);
    let fence = world.fence_of("1");
    world.must(step(fence, "step-0"));
    let verification =
        Verification { success: true, tests_passed: 3, tests_failed: 0, coverage: None };
    let report = Report {
        message: "done and dusted".into(),
        verification_result: Some(verification),
        ..Report::default()
    };
    let events = world.must(Command::ReportTask { fence, report });
    assert_eq!(said(&world, &events), ["says: done and dusted"]);
    let mission = |world: &World| world.state().mission(M1).unwrap().clone();
    let early = CompletionReport::of(world.task("1"), &mission(&world)).unwrap_err();
    assert_eq!(early.status, Status::InProgress);
    world.succeed("1");
    let page = CompletionReport::of(world.task("1"), &mission(&world)).unwrap();
    let whole = MissionReport::of(world.state(), &mission(&world));
    assert_eq!((whole.tasks_completed, whole.tasks_total), (1, 1));
    assert_eq!(whole.tasks, std::slice::from_ref(&page));
    assert_eq!((page.status, page.attempts), (Status::Completed, 1));
    assert_eq!(page.progress.as_deref(), Some("1/1"));
    assert_eq!(page.message, "done and dusted");
}
