//! What a council's review does to a merge, who weighs how much, and what stops a council.

use kapelle_core::approval::Subject;
use kapelle_core::command::{AttemptOutcome, RewriteOutcome};
use kapelle_core::council::{
    Choice, CouncilId, NoVerdict, Outcome, Question, Rejection, Strategy, ToHuman, Verdict,
};
use kapelle_core::escalation::{HumanBecause, RatePolicy};
use kapelle_core::event::PauseReason;
use kapelle_core::failure::FailureKind;
use kapelle_core::flow::Phase;
use kapelle_core::gates::ReviewPolicy;
use kapelle_core::ledger::{self, Scope, WatchdogPolicy};
use kapelle_core::policy::Policy;
use kapelle_core::settings::Settings;
use kapelle_core::status::Status;
use kapelle_core::task::Stage;
use kapelle_core::{Command, Effect, Event, Record, Refusal, Role, State, Usd, why};

use crate::council_rules::{
    because, by_hand, cast, exhaust, rule, settings, sitting, verdict, votes,
};
use crate::fixture::{M1, World, ann, check, checked, commit, done, failed, open, task};

const C1: CouncilId = CouncilId(1);
const C2: CouncilId = CouncilId(2);

/// A world whose first task is at its gate.
fn at_gate(policy: Policy) -> World {
    let mut world = World::empty();
    rule(&mut world, settings(|_| {}));
    world.must(open(vec![task("1", &[]), task("2", &[])], policy));
    world.chores();
    world.finish("1", done(100, &["a"]));
    world
}

/// Its checks pass.
fn pass_gate(world: &mut World) {
    let fence = world.fence_of("1");
    world.must(Command::FinishChecks { fence, results: check(true) });
}

/// A world whose first task has passed its gate and waits in the merge queue.
fn queued(policy: Policy) -> World {
    let mut world = at_gate(policy);
    pass_gate(&mut world);
    assert!(matches!(world.task("1").stage, Stage::Merging { checked: false, .. }));
    world
}

/// It waits for a person, and is merged when that one says yes.
fn is_for_a_person(world: &mut World, name: &str, change: u64) {
    let subject = Subject::Merge(world.task(name).id);
    assert_eq!(world.task(name).stage, Stage::Approval { subject });
    assert!(!merges(world), "{:?}", world.running);
    world.must(Command::Approve { subject, commit: commit(change), by: ann() });
    world.chores();
    assert_eq!(world.status(name), Status::Completed);
}

fn review(world: &World) -> Command {
    let commit = world.task("1").accepted.clone().unwrap();
    by_hand(world, Question::Review { commit }, &[])
}

/// All three members say the same.
fn all(world: &mut World, council: CouncilId, choice: &Choice) -> Vec<Event> {
    let members = ["deepseek", "gemini", "gpt"];
    let commands = members.map(|by| cast(council, by, choice.clone())).to_vec();
    let events = world.together(commands);
    assert_eq!(world.refused, []);
    events
}

fn merges(world: &World) -> bool {
    world.running.values().any(|effect| {
        matches!(
            effect,
            Effect::BuildLane { .. } | Effect::TestLane { .. } | Effect::LandLane { .. }
        )
    })
}

/// CON-01: a change that is reviewed waits for what its reviewers say.
#[test]
fn a_change_under_review_is_not_merged() {
    let mut world = queued(checked());
    world.must(review(&world));
    assert!(!merges(&world), "{:?}", world.running);
    assert_eq!(world.status("1"), Status::ReadyForReview);
    let told = why(world.state(), world.task("1")).unwrap();
    assert!(told.starts_with("council until") && told.contains("0 of 3 votes in"), "{told}");
    let events = all(&mut world, C1, &Choice::Approve);
    assert!(matches!(verdict(&events), Some(Verdict::Accepted { .. })));
    world.chores();
    assert_eq!(world.status("1"), Status::Completed);
}

/// CON-01, CON-03: a review that says no sends the change back to work, with its reason.
#[test]
fn a_review_that_says_no_stops_the_merge_and_sends_the_task_back() {
    let mut world = queued(checked());
    world.must(review(&world));
    let events = all(&mut world, C1, &Choice::Reject);
    let no = Verdict::Rejected { because: Rejection::Votes { against: 3 } };
    assert_eq!(verdict(&events), Some(&no));
    assert!(!merges(&world));
    assert!(world.working().contains("1"), "it is worked on again");
    let told = world.task("1").last_failure.as_ref().unwrap().message.clone();
    assert!(told.contains("deepseek thinks so"), "{told}");
    world.finish("1", done(200, &["a"]));
    world.chores();
    assert_eq!(world.task("1").merged, Some(commit(200)), "the new change is another one");
}

/// A review that began while the checks ran holds the change as soon as it would be merged.
#[test]
fn a_review_that_began_before_the_gate_holds_the_merge() {
    let mut world = at_gate(checked());
    world.must(by_hand(&world, Question::Review { commit: commit(100) }, &[]));
    pass_gate(&mut world);
    assert!(!merges(&world));
    assert!(matches!(world.task("1").stage, Stage::Review { council: C1 }));
}

/// CON-05: reviewers who do not agree leave the merge to a person.
#[test]
fn a_review_without_a_verdict_asks_a_person_before_the_merge() {
    let mut world = queued(checked());
    world.must(review(&world));
    let events = world.together(vec![
        cast(C1, "deepseek", Choice::Approve),
        cast(C1, "gemini", Choice::Reject),
        Command::Tick,
    ]);
    assert_eq!(verdict(&events), None);
    let events = world.wait(31_000);
    let tie = Verdict::Undecided { why: NoVerdict::Tie };
    assert_eq!(verdict(&events), Some(&tie));
    assert!(!merges(&world));
    let subject = Subject::Merge(world.task("1").id);
    assert!(world.state().approvals().is_open(subject));
    world.must(Command::Approve { subject, commit: commit(100), by: ann() });
    world.chores();
    assert_eq!(world.status("1"), Status::Completed);
}

/// Whoever is asked again looks first, also if people approve meanwhile.
#[test]
fn an_approval_does_not_overtake_a_review() {
    let mut world = queued(checked());
    world.must(review(&world));
    world.together(vec![cast(C1, "deepseek", Choice::Approve), cast(C1, "gemini", Choice::Reject)]);
    world.wait(31_000);
    let subject = Subject::Merge(world.task("1").id);
    assert!(world.state().approvals().is_open(subject), "they did not agree");
    world.must(review(&world));
    world.must(Command::Approve { subject, commit: commit(100), by: ann() });
    assert!(!merges(&world), "{:?}", world.running);
    assert!(matches!(world.task("1").stage, Stage::Review { council: C2 }));
    all(&mut world, C2, &Choice::Approve);
    world.chores();
    assert_eq!(world.status("1"), Status::Completed);
}

/// TDD-11: rounds of review are counted, and after the last one a person decides.
#[test]
fn after_the_last_round_of_review_a_person_decides() {
    let reviews = ReviewPolicy { rounds_max: 2, ..ReviewPolicy::default() };
    let mut world = queued(Policy { reviews, ..checked() });
    world.must(review(&world));
    all(&mut world, C1, &Choice::Reject);
    world.finish("1", done(200, &["a"]));
    let fence = world.fence_of("1");
    world.must(Command::FinishChecks { fence, results: check(true) });
    world.must(review(&world));
    all(&mut world, C2, &Choice::Reject);
    let subject = Subject::Merge(world.task("1").id);
    assert!(world.state().approvals().is_open(subject), "{:?}", world.task("1").stage);
    let again = review(&world);
    assert!(matches!(world.send(again), Err(Refusal::Reviews(_))));
    world.must(Command::Approve { subject, commit: commit(200), by: ann() });
    world.chores();
    assert_eq!(world.status("1"), Status::Completed, "people are above councils");
}

/// Its candidate may be on the branch before anybody can say stop.
#[test]
fn a_change_that_is_landing_is_not_reviewed_any_more() {
    let mut world = queued(checked());
    world.build("1", 100);
    assert!(matches!(world.task("1").stage, Stage::Merging { checked: true, .. }));
    let late = review(&world);
    assert_eq!(world.send(late), Err(Refusal::BeingMerged { task: "1".into() }));
}

/// CON-14: one who was right outweighs two who were not, once that is known.
#[test]
fn history_decides_a_weighted_vote_against_the_greater_number() {
    let mut world = sitting(|p| p.strategy = Strategy::Weighted);
    let chosen = |events: &[Event]| {
        verdict(events).and_then(|verdict| match verdict {
            Verdict::Proposed { choice, .. } => choice.solution().map(str::to_owned),
            _ => None,
        })
    };
    // What two of them say is tried and fails, once against the third, once without it.
    for (round, third) in [(1, Some("one")), (2, None)] {
        let all = [("deepseek", Some("most")), ("gemini", Some("most")), ("gpt", third)];
        let all = all.iter().filter_map(|(by, says)| Some((*by, format!("{} {round}", (*says)?))));
        let all: Vec<(&str, String)> = all.collect();
        let all: Vec<(&str, &str)> = all.iter().map(|(by, says)| (*by, says.as_str())).collect();
        let mut events = votes(&mut world, CouncilId(round), &all);
        events.extend(world.wait(31_000));
        assert_eq!(chosen(&events), Some(format!("most {round}")));
        world.finish("1", failed(FailureKind::AgentError));
        assert_eq!(world.status("1"), Status::DeadLetter, "what they said did not help");
        let (task, reason) = (world.task("1").id, "again".to_owned());
        world.must(Command::RequeueTask { task, reason, by: ann() });
        exhaust(&mut world, "1");
    }
    let history = world.state().council().history();
    let trust = ["deepseek", "gemini", "gpt"].map(|name| history.trust_permille(&name.into()));
    assert_eq!(trust, [250, 250, 666]);
    let all = [("deepseek", "most"), ("gemini", "most"), ("gpt", "one")];
    let events = votes(&mut world, CouncilId(3), &all);
    assert_eq!(chosen(&events), Some("one".to_owned()));
}

fn watched() -> Settings {
    let watchdog = WatchdogPolicy { minute_usd_max: Usd::cents(50), ..WatchdogPolicy::default() };
    let money = ledger::Policy { watchdog, ..ledger::Policy::default() };
    Settings { money, ..settings(|p| p.timeout_ms = 600_000) }
}

/// BUD-14: after the grace nothing spends any more, a council neither; its money is free, and the
/// task that waited for it is a person's.
#[test]
fn the_watchdog_ends_a_sitting_council_and_frees_its_money() {
    let mut world = World::empty();
    rule(&mut world, watched());
    let policy = Policy { escalation: crate::council_rules::policy().escalation, ..checked() };
    world.must(open(vec![task("1", &[]), task("2", &[])], policy));
    world.chores();
    exhaust(&mut world, "1");
    assert!(matches!(world.task("1").stage, Stage::Deliberating { .. }));
    let fence = world.fence_of("2");
    let spent = kapelle_core::command::Spending { usd: Usd::cents(195), ..Default::default() };
    world.must(Command::FinishAttempt { fence, outcome: done(9, &["b"]), spent });
    let events = world.wait(31_000);
    assert!(events.contains(&Event::SpendingStopped), "{events:?}");
    assert!(events.iter().any(|event| matches!(event, Event::CouncilAbandoned { .. })));
    let halted = |because: Option<HumanBecause>| {
        matches!(
            because,
            Some(HumanBecause::NoCouncil {
                council: ToHuman::Money { refusal: ledger::Refusal::Halted { .. } }
            })
        )
    };
    assert!(halted(because(&events)), "{events:?}");
    assert_eq!(world.status("1"), Status::DeadLetter);
    assert_eq!(world.state().ledger().purse(Scope::Mission(M1)).reserved, Usd::ZERO);
    let mission = world.state().mission(M1).unwrap();
    assert_eq!(mission.paused, Some(PauseReason::Watchdog));
}

/// Two that wait for councils give up at once, in a mission that is paused with them: that says
/// more than a warning.
#[test]
fn what_the_watchdog_ends_warns_of_no_failures() {
    let mut world = World::empty();
    rule(&mut world, watched());
    let seats = [(Role::Developer, 3)].into();
    world.must(Command::ConfigureTeam { seats, workers_max: 3, by: ann() });
    let policy = crate::council_rules::policy();
    let failure_rate = RatePolicy { finished_min: 1, pause_permille: 1_000, ..policy.failure_rate };
    world.must(open(
        vec![task("1", &[]), task("2", &[]), task("3", &[])],
        Policy { failure_rate, ..policy },
    ));
    world.chores();
    exhaust(&mut world, "1");
    exhaust(&mut world, "2");
    let fence = world.fence_of("3");
    let spent = kapelle_core::command::Spending { usd: Usd::cents(195), ..Default::default() };
    world.must(Command::FinishAttempt { fence, outcome: done(9, &["b"]), spent });
    let events = world.wait(31_000);
    let gave_up = |event: &&Event| matches!(event, Event::TaskDeadLettered { .. });
    assert_eq!(events.iter().filter(gave_up).count(), 2, "{events:?}");
    let warned = events.iter().any(|event| matches!(event, Event::FailuresWarned { .. }));
    assert!(!warned, "{events:?}");
}

/// Seed 18333: a change that is blocked in the merge queue can be reviewed meanwhile. What its
/// reviewers said counts when it goes on.
#[test]
fn a_change_that_was_rejected_while_it_was_blocked_waits_for_a_person() {
    let mut world = World::empty();
    rule(&mut world, settings(|_| {}));
    world.must(open(vec![task("1", &[]), task("2", &["1"])], checked()));
    world.chores();
    world.finish("1", done(100, &["a"]));
    world.chores();
    world.finish("2", done(101, &["b"]));
    let fence = world.fence_of("2");
    world.must(Command::FinishChecks { fence, results: check(true) });
    let (first, second) = (world.task("1").id, world.task("2").id);
    let (tasks, reason) = (vec![first], "wrong".to_owned());
    world.must(Command::ConfirmRollback { task: first, tasks, reason, by: ann() });
    assert_eq!(world.task("2").stage, Stage::Blocked { on: first });
    let (question, panel) = (Question::Review { commit: commit(101) }, Vec::new());
    world.must(Command::ConveneCouncil { task: second, question, panel, by: ann() });
    all(&mut world, C1, &Choice::Reject);
    let fence = world.fence_of("1");
    let outcome = RewriteOutcome::Conflict { paths: vec!["a".into()] };
    world.now = world.now.plus_ms(60_000);
    world.must(Command::FinishRewrite { fence, outcome });
    let gate = world.state().approvals().gate(Subject::Merge(second)).unwrap();
    assert_eq!(gate.opened_at, world.now, "nobody waited before they were asked");
    is_for_a_person(&mut world, "2", 101);
}

/// Seed 47662: people can ask two councils about one change. It waits for the first; a no of the
/// second that comes before is not forgotten because of the first one's yes.
#[test]
fn a_change_that_one_of_two_reviews_rejected_waits_for_a_person() {
    let mut world = queued(checked());
    world.must(review(&world));
    world.must(review(&world));
    assert!(matches!(world.task("1").stage, Stage::Review { council: C1 }));
    all(&mut world, C2, &Choice::Reject);
    assert!(matches!(world.task("1").stage, Stage::Review { council: C1 }));
    all(&mut world, C1, &Choice::Approve);
    is_for_a_person(&mut world, "1", 100);
}

/// A no counts, also if it comes before the change could be merged.
#[test]
fn a_change_that_was_rejected_at_its_gate_waits_for_a_person() {
    let mut world = at_gate(checked());
    world.must(by_hand(&world, Question::Review { commit: commit(100) }, &[]));
    all(&mut world, C1, &Choice::Reject);
    pass_gate(&mut world);
    is_for_a_person(&mut world, "1", 100);
}

/// A phase that may leave everything as it is brings the same commit back, which nobody wanted.
#[test]
fn a_rejected_change_that_comes_back_as_it_was_waits_for_a_person() {
    let reject = |world: &mut World| {
        world.must(review(world));
        all(world, C1, &Choice::Reject);
    };
    let turn_down = |world: &mut World| {
        let subject = Subject::Merge(world.task("1").id);
        let (commit, reason) = (commit(100), "no".to_owned());
        world.must(review(world));
        world.together(vec![cast(C1, "gemini", Choice::Reject), Command::Tick]);
        world.wait(600_000);
        world.must(Command::Reject { subject, commit, reason, by: ann() });
    };
    for say_no in [reject as fn(&mut World), turn_down] {
        let leave_as_it_is = |world: &mut World| {
            world.finish("1", AttemptOutcome::Done { change: None, touched: Vec::new().into() });
            pass_gate(world);
        };
        let mut world = at_gate(Policy { flow: vec![Phase::Green, Phase::Verify], ..checked() });
        pass_gate(&mut world);
        leave_as_it_is(&mut world);
        say_no(&mut world);
        leave_as_it_is(&mut world);
        is_for_a_person(&mut world, "1", 100);
    }
}

/// In a journal from before a no of another review counted, nobody was asked: what it says of such
/// a change is what happened to it.
#[test]
fn a_journal_without_the_question_goes_on_as_it_did() {
    let mut world = queued(checked());
    world.must(review(&world));
    world.must(review(&world));
    all(&mut world, C2, &Choice::Reject);
    all(&mut world, C1, &Choice::Approve);
    let mut state = State::default();
    let asked = |record: &&Record| matches!(record.event, Event::ApprovalAsked { .. });
    for record in world.journal.iter().filter(|record| !asked(record)) {
        state.apply(&record.event, record.at);
    }
    assert_eq!(state.task(world.task("1").id).unwrap().stage, Stage::Queued);
}

/// A change whose review was cut short is not merged unseen.
#[test]
fn a_review_that_the_watchdog_ends_leaves_the_merge_to_a_person() {
    let mut world = World::empty();
    rule(&mut world, watched());
    world.must(open(vec![task("1", &[]), task("2", &[])], checked()));
    world.chores();
    world.finish("1", done(100, &["a"]));
    let fence = world.fence_of("1");
    world.must(Command::FinishChecks { fence, results: check(true) });
    world.must(review(&world));
    let fence = world.fence_of("2");
    let spent = kapelle_core::command::Spending { usd: Usd::cents(60), ..Default::default() };
    world.must(Command::FinishAttempt { fence, outcome: done(9, &["b"]), spent });
    world.wait(31_000);
    let subject = Subject::Merge(world.task("1").id);
    assert!(world.state().approvals().is_open(subject), "{:?}", world.task("1").stage);
}

/// What became of a reviewed change is known to its reviewers' record.
#[test]
fn a_review_that_agreed_is_measured_by_the_merge() {
    let mut world = queued(checked());
    world.must(review(&world));
    all(&mut world, C1, &Choice::Approve);
    world.chores();
    let resolved = world.journal.iter().any(|record| {
        matches!(record.event, Event::CouncilResolved { outcome: Outcome::Success, .. })
    });
    assert!(resolved);
}
