//! Approvals and overrides, rule by rule.

use kapelle_core::approval::{
    Approval, ApprovalPolicy, ApprovalRefused, Approvals, Gate, GateStanding, Order,
    OverrideAction, OverrideDecision, OverrideRefused, Overrides, People, PeopleRefused,
    PersonRole, Right, Situation, Subject,
};
use kapelle_core::flow::Phase;
use kapelle_core::plan::Risk;
use kapelle_core::status::Status;
use kapelle_core::{Actor, AgentId, Commit, MissionId, Role, TaskId, Timestamp};
use proptest::prelude::*;

const TASK: TaskId = TaskId(3);
const MERGE: Subject = Subject::Merge(TASK);
const FLOW: [Phase; 3] = [Phase::Red, Phase::Green, Phase::Verify];

fn who(name: &str) -> Actor {
    Actor(name.into())
}

fn commit(n: u8) -> Commit {
    format!("{n:040x}").parse().unwrap()
}

/// Ada and Eve are admins, Rob and Rex reviewers, Ann an author, Rae a reader.
fn people() -> People {
    let mut people = People::default();
    let roles = [
        ("ada", PersonRole::Admin),
        ("eve", PersonRole::Admin),
        ("rob", PersonRole::Reviewer),
        ("rex", PersonRole::Reviewer),
        ("ann", PersonRole::Author),
        ("rae", PersonRole::Reader),
    ];
    for (name, role) in roles {
        people.assigned(&who(name), Some(role));
    }
    people
}

fn gate(subject: Subject, commit: Commit, persons: u32, at: u64) -> Gate {
    Gate {
        subject,
        mission: MissionId(1),
        commit,
        author: who("rex"),
        people: persons,
        assessed: None,
        opened_at: Timestamp(at),
    }
}

fn asked(persons: u32) -> Approvals {
    let mut approvals = Approvals::default();
    approvals.opened(gate(MERGE, commit(1), persons, 5));
    approvals
}

/// The change is another one now, and the engine asks about it.
fn moved(approvals: &mut Approvals, commit: Commit, at: Timestamp) {
    let gate = approvals.gate(MERGE).filter(|gate| gate.commit != commit).cloned();
    if let Some(gate) = gate {
        approvals.opened(Gate { commit, opened_at: at, ..gate });
    }
}

fn say_yes(approvals: &mut Approvals, by: &str, of: Commit) {
    approvals.approved(MERGE, Approval { by: who(by), commit: of, at: Timestamp(9) });
}

#[test]
fn one_person_opens_an_ordinary_gate() {
    let mut approvals = asked(1);
    assert_eq!(approvals.standing(MERGE, &commit(1)), GateStanding::Waiting { have: 0, need: 1 });
    assert_eq!(approvals.approve(&people(), MERGE, &commit(1), &who("rob")), Ok(0));
    say_yes(&mut approvals, "rob", commit(1));
    assert_eq!(approvals.standing(MERGE, &commit(1)), GateStanding::Granted);
    assert_eq!(approvals.waiting_count(), 0);
}

/// Agents push while a person reads; what they read is what they approved.
#[test]
fn an_approval_is_pinned_to_its_commit_and_ends_with_a_new_one() {
    let mut approvals = asked(1);
    say_yes(&mut approvals, "rob", commit(1));
    assert_eq!(approvals.standing(MERGE, &commit(2)), GateStanding::NotAsked);
    moved(&mut approvals, commit(2), Timestamp(20));
    assert_eq!(approvals.standing(MERGE, &commit(1)), GateStanding::NotAsked);
    assert_eq!(approvals.standing(MERGE, &commit(2)), GateStanding::Waiting { have: 0, need: 1 });
    let (subject, current, approved) = (MERGE, commit(2), commit(1));
    let (current, approved) = (Box::new(current), Box::new(approved));
    let other = ApprovalRefused::OtherCommit { subject, current, approved };
    assert_eq!(approvals.approve(&people(), MERGE, &commit(1), &who("rob")), Err(other));
    say_yes(&mut approvals, "rob", commit(1));
    assert!(approvals.is_waiting(MERGE), "a late approval of the old commit changes nothing");
}

#[test]
fn the_author_does_not_approve_its_own_work() {
    let refused = asked(1).approve(&people(), MERGE, &commit(1), &who("rex"));
    assert_eq!(refused, Err(ApprovalRefused::OwnWork { person: who("rex") }));
}

/// SEC-10: two people, not one person twice.
#[test]
fn high_risk_takes_two_different_people() {
    let mut approvals = asked(2);
    assert_eq!(approvals.approve(&people(), MERGE, &commit(1), &who("rob")), Ok(1));
    say_yes(&mut approvals, "rob", commit(1));
    let twice = approvals.approve(&people(), MERGE, &commit(1), &who("rob"));
    assert_eq!(twice, Err(ApprovalRefused::Twice { person: who("rob") }));
    say_yes(&mut approvals, "rob", commit(1));
    let half = approvals.standing(MERGE, &commit(1));
    assert_eq!(half, GateStanding::Waiting { have: 1, need: 2 });
    assert_eq!(half.to_string(), "waits for approval: 1 of 2 people");
    say_yes(&mut approvals, "ada", commit(1));
    assert_eq!(approvals.standing(MERGE, &commit(1)), GateStanding::Granted);
}

#[test]
fn only_those_with_the_right_approve() {
    let approve = |by| asked(1).approve(&people(), MERGE, &commit(1), &who(by));
    for (by, role) in [("ann", "author"), ("rae", "reader")] {
        let (person, right) = (by.to_owned(), Right::Approve);
        let refused = PeopleRefused::NoRight { person, role, right };
        assert_eq!(approve(by), Err(ApprovalRefused::People(refused)));
    }
    let unknown = PeopleRefused::Unknown { person: "developer-1".into() };
    assert_eq!(approve("developer-1"), Err(ApprovalRefused::People(unknown)));
}

#[test]
fn what_nobody_asked_cannot_be_approved() {
    let other = Subject::Delivery(MissionId(1));
    let refused = asked(1).approve(&people(), other, &commit(1), &who("rob"));
    assert_eq!(refused, Err(ApprovalRefused::NotAsked(other)));
}

#[test]
fn a_rejection_needs_a_reason_and_holds_until_there_is_something_new() {
    let mut approvals = asked(1);
    let reject = |reason| approvals.reject(&people(), MERGE, &commit(1), &who("rob"), reason);
    assert_eq!(reject("  "), Err(ApprovalRefused::NoReason));
    assert_eq!(reject("no tests"), Ok(()));
    approvals.rejected(MERGE, who("rob"), "no tests");
    let refused = approvals.approve(&people(), MERGE, &commit(1), &who("ada")).unwrap_err();
    let told = "the merge of task number 3 was rejected by rob: no tests";
    assert_eq!(refused.to_string(), told);
    assert!(approvals.is_waiting(MERGE));
    moved(&mut approvals, commit(2), Timestamp(9));
    assert_eq!(approvals.approve(&people(), MERGE, &commit(2), &who("ada")), Ok(0));
}

/// HUM-10: whoever comes sees what has waited longest first.
#[test]
fn what_waits_for_people_is_listed_oldest_first() {
    let mut approvals = asked(1);
    approvals.opened(gate(Subject::Delivery(MissionId(1)), commit(7), 2, 1));
    approvals.opened(gate(Subject::Start(TaskId(8)), commit(7), 1, 3));
    let list = |approvals: &Approvals| -> Vec<(Subject, u32)> {
        approvals.waiting().map(|(gate, missing)| (gate.subject, missing)).collect()
    };
    let (delivery, start) = (Subject::Delivery(MissionId(1)), Subject::Start(TaskId(8)));
    assert_eq!(list(&approvals), [(delivery, 2), (start, 1), (MERGE, 1)]);
    approvals.closed(start);
    assert_eq!(list(&approvals), [(delivery, 2), (MERGE, 1)]);
}

#[test]
fn a_gate_for_nobody_is_still_a_gate() {
    assert!(asked(0).is_waiting(MERGE));
}

fn order(by: &str, action: OverrideAction) -> Order {
    Order { task: TASK, action, reason: "stuck".into(), by: who(by) }
}

fn situation() -> Situation<'static> {
    Situation {
        status: Status::InProgress,
        risk: Risk::Medium,
        flow: &FLOW,
        phase: 1,
        agent: Some(developer(1)),
        gate: None,
    }
}

fn developer(seat: u32) -> AgentId {
    AgentId { role: Role::Developer, seat }
}

fn decide(order: &Order, situation: &Situation<'_>) -> Result<OverrideDecision, OverrideRefused> {
    let policy = ApprovalPolicy::default();
    Overrides::default().order(&policy, &people(), order, situation, Timestamp(0))
}

fn effective(order: Order) -> Result<OverrideDecision, OverrideRefused> {
    Ok(OverrideDecision::Effective { order, seconded_by: None })
}

/// OVR-01…04 for a task without gates: the four orders, each by somebody with the right.
#[test]
fn an_author_may_override_ordinary_tasks() {
    let actions = [
        OverrideAction::SkipStep { step: Phase::Green },
        OverrideAction::ForceComplete,
        OverrideAction::Reset { step: Phase::Red },
        OverrideAction::Reassign { from: developer(1), to: developer(2) },
    ];
    for action in actions {
        let order = order("ann", action);
        assert_eq!(decide(&order, &situation()), effective(order));
    }
}

/// OVR-06: without a reason the audit trail would say nothing.
#[test]
fn an_override_without_a_reason_is_refused() {
    let mut order = order("ada", OverrideAction::ForceComplete);
    order.reason = " \n".into();
    assert_eq!(decide(&order, &situation()), Err(OverrideRefused::NoReason));
    order.reason = "x".repeat(1_001);
    let long = OverrideRefused::ReasonTooLong { max: 1_000 };
    assert_eq!(decide(&order, &situation()), Err(long));
}

#[test]
fn reviewers_readers_and_agents_do_not_override() {
    for by in ["rob", "rae", "developer-1"] {
        let refused = decide(&order(by, OverrideAction::ForceComplete), &situation());
        assert!(matches!(refused, Err(OverrideRefused::People(_))), "{by}");
    }
}

/// OVR-07: an open gate is passed only with the right to do that, and by two people.
#[test]
fn a_human_gate_is_not_passed_without_the_right() {
    let gated = Situation { gate: Some(MERGE), ..situation() };
    let complete = |by| decide(&order(by, OverrideAction::ForceComplete), &gated);
    let (person, role, right) = ("ann".to_owned(), "author", Right::BypassGate);
    let refused = PeopleRefused::NoRight { person, role, right };
    assert_eq!(complete("ann"), Err(OverrideRefused::People(refused)));
    assert!(matches!(complete("ada"), Ok(OverrideDecision::NeedsSecond { .. })));
    let reset = order("ann", OverrideAction::Reset { step: Phase::Red });
    assert_eq!(decide(&reset, &gated), effective(reset), "sending it back passes nothing");
}

/// HUM-08: not even two admins.
#[test]
fn no_override_passes_the_protected_branch() {
    let delivery = Subject::Delivery(MissionId(1));
    let gated = Situation { gate: Some(delivery), ..situation() };
    let refused = decide(&order("ada", OverrideAction::ForceComplete), &gated);
    assert_eq!(refused, Err(OverrideRefused::Protected(delivery)));
}

/// SEC-10: the second person is another one, has the right too, and comes in time.
#[test]
fn a_risky_override_waits_for_a_second_person() {
    let risky = Situation { risk: Risk::High, ..situation() };
    let order = order("ann", OverrideAction::SkipStep { step: Phase::Verify });
    let (people, mut overrides) = (people(), Overrides::default());
    let day = 24 * 3_600_000;
    let needs = OverrideDecision::NeedsSecond { order: order.clone(), expires_at: Timestamp(day) };
    assert_eq!(decide(&order, &risky), Ok(needs));
    let second = |overrides: &Overrides, by, now| {
        overrides.second(&people, TASK, &who(by), &risky, Timestamp(now))
    };
    assert_eq!(second(&overrides, "ada", 1), Err(OverrideRefused::NothingPending));
    overrides.proposed(order.clone(), Timestamp(day));
    assert_eq!(overrides.pending(TASK).map(|pending| &pending.order), Some(&order));
    let same = Err(OverrideRefused::SamePerson { by: who("ann") });
    assert_eq!(second(&overrides, "ann", 1), same);
    assert!(matches!(second(&overrides, "rob", 1), Err(OverrideRefused::People(_))));
    assert_eq!(second(&overrides, "ada", day), Err(OverrideRefused::NothingPending));
    let seconded_by = Some(who("ada"));
    let done = OverrideDecision::Effective { order, seconded_by };
    assert_eq!(second(&overrides, "ada", day - 1), Ok(done));
    overrides.settled(TASK);
    assert_eq!(second(&overrides, "ada", 1), Err(OverrideRefused::NothingPending));
}

/// The task may have moved on while the second person was away.
#[test]
fn a_second_person_meets_the_task_as_it_is_now() {
    let mut overrides = Overrides::default();
    let order = order("ann", OverrideAction::SkipStep { step: Phase::Green });
    overrides.proposed(order, Timestamp(100));
    let later = Situation { phase: 2, risk: Risk::High, ..situation() };
    let refused = overrides.second(&people(), TASK, &who("ada"), &later, Timestamp(1));
    assert_eq!(refused, Err(OverrideRefused::StepDone(Phase::Green)));
}

#[test]
fn overrides_that_lead_nowhere_are_refused() {
    let refused = |action, situation: &Situation<'_>| {
        decide(&order("ada", action), situation).unwrap_err().to_string()
    };
    let skip = |step| OverrideAction::SkipStep { step };
    let reset = |step| OverrideAction::Reset { step };
    assert_eq!(refused(skip(Phase::Red), &situation()), "the phase red is behind it already");
    assert_eq!(refused(reset(Phase::Verify), &situation()), "the phase verify is still before it");
    let missing = "the phase refactor is not in the flow of this mission";
    assert_eq!(refused(skip(Phase::Refactor), &situation()), missing);
    assert_eq!(refused(reset(Phase::Refactor), &situation()), missing);
    let done = Situation { status: Status::Completed, ..situation() };
    let ended = "the task is completed; there is nothing to override";
    assert_eq!(refused(OverrideAction::ForceComplete, &done), ended);
    let from_other = OverrideAction::Reassign { from: developer(2), to: developer(3) };
    assert_eq!(refused(from_other, &situation()), "developer-2 does not have the task");
    let to = AgentId { role: Role::Tester, seat: 1 };
    let to_tester = OverrideAction::Reassign { from: developer(1), to };
    let told = "tester-1 is not a developer as developer-1 is";
    assert_eq!(refused(to_tester, &situation()), told);
}

/// The broadcast of the sources, word by word (OVR-06).
#[test]
fn the_broadcast_has_the_agreed_names() {
    let json = |order: &Order| serde_json::to_value(order).unwrap();
    let reassign = order("ann", OverrideAction::Reassign { from: developer(1), to: developer(2) });
    let expected = serde_json::json!({
        "subtaskId": 3, "action": "reassign", "fromAgent": "developer-1",
        "toAgent": "developer-2", "reason": "stuck", "by": "ann",
    });
    assert_eq!(json(&reassign), expected);
    let skip = order("ann", OverrideAction::SkipStep { step: Phase::Green });
    assert_eq!(json(&skip)["action"], "skip_step");
    assert_eq!(json(&skip)["step"], "green");
    assert_eq!(json(&order("ann", OverrideAction::ForceComplete))["action"], "force_complete");
    let read: Order = serde_json::from_value(json(&skip)).unwrap();
    assert_eq!(read, skip);
}

#[derive(Debug, Clone)]
enum Fact {
    Moved(u8),
    Approved(usize, u8),
    Rejected(usize),
    Reopened(u8),
}

const NAMES: [&str; 6] = ["ada", "eve", "rob", "rex", "ann", "rae"];

fn facts() -> impl Strategy<Value = Vec<Fact>> {
    let one = prop_oneof![
        (0u8..3).prop_map(Fact::Moved),
        (0usize..6, 0u8..3).prop_map(|(who, commit)| Fact::Approved(who, commit)),
        (0usize..6).prop_map(Fact::Rejected),
        (0u8..3).prop_map(Fact::Reopened),
    ];
    prop::collection::vec(one, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens in whatever order, a gate opens only for a commit that enough different
    /// people with the right, none of them the author, approved since it became current.
    #[test]
    fn a_gate_opens_only_for_what_enough_people_saw(facts in facts(), need in 1u32..4) {
        let (people, mut approvals) = (people(), Approvals::default());
        approvals.opened(gate(MERGE, commit(0), need, 0));
        let (mut current, mut said, mut rejected) = (0, std::collections::BTreeSet::new(), false);
        for fact in facts {
            match fact {
                Fact::Moved(new) => {
                    moved(&mut approvals, commit(new), Timestamp(1));
                    if new != current {
                        (current, rejected) = (new, false);
                        said.clear();
                    }
                }
                Fact::Reopened(new) => {
                    approvals.opened(gate(MERGE, commit(new), need, 2));
                    (current, rejected) = (new, false);
                    said.clear();
                }
                Fact::Approved(index, of) => {
                    let by = NAMES[index];
                    let may = ["ada", "eve", "rob"].contains(&by)
                        && of == current && !rejected && !said.contains(by);
                    let decided = approvals.approve(&people, MERGE, &commit(of), &who(by));
                    prop_assert_eq!(decided.is_ok(), may, "{:?}", decided);
                    if may {
                        say_yes(&mut approvals, by, commit(of));
                        said.insert(by);
                    }
                }
                Fact::Rejected(index) => {
                    let by = who(NAMES[index]);
                    if approvals.reject(&people, MERGE, &commit(current), &by, "no").is_ok() {
                        approvals.rejected(MERGE, by, "no");
                        rejected = true;
                    }
                }
            }
            let granted = !rejected && said.len() >= need as usize;
            let standing = approvals.standing(MERGE, &commit(current));
            prop_assert_eq!(standing == GateStanding::Granted, granted, "{}", standing);
            prop_assert_eq!(approvals.waiting_count(), usize::from(!granted && !rejected));
        }
    }
}
