//! The council through the engine: who is asked, what is sealed, what it costs, what follows.

use kapelle_core::command::Spending;
use kapelle_core::council::{
    CheckStanding, Checked, Choice, CouncilId, CouncilPolicy, Dropped, Evidence, Findings,
    InvalidCouncil, InvalidVote, Member, NoVerdict, NotInSession, Outcome, PanelRefused, Question,
    Rejection, Score, Size, Strategy, Summons, Switch, ToHuman, Verdict, Vote, VoteRefused,
    visible,
};
use kapelle_core::escalation::{EscalationPolicy, HumanBecause, Next};
use kapelle_core::event::{PauseReason, Restart};
use kapelle_core::failure::FailureKind;
use kapelle_core::ledger::{self, Limit, Scope};
use kapelle_core::plan::{PlannedTask, TaskKind};
use kapelle_core::policy::Policy;
use kapelle_core::price::Price;
use kapelle_core::rate::Provider;
use kapelle_core::routing::{self, Catalogue, Lineage, Model, ModelName, Tier};
use kapelle_core::settings::{InvalidSettings, Settings};
use kapelle_core::status::Status;
use kapelle_core::task::Stage;
use kapelle_core::{Command, Event, Refusal, Usd, activity, why};
use proptest::prelude::{Just, ProptestConfig, prop_assert_eq, proptest};
use proptest::strategy::Strategy as _;

use crate::fixture::{M1, World, ann, check, checked, commit, done, failed, open, task};

const C1: CouncilId = CouncilId(1);

pub fn settings(change: impl FnOnce(&mut CouncilPolicy)) -> Settings {
    let mut council = CouncilPolicy::default();
    change(&mut council);
    Settings { council: Some(council), ..Settings::default() }
}

pub fn rule(world: &mut World, settings: Settings) {
    world.must(Command::ChangeSettings { settings: Box::new(settings), by: ann() });
}

/// Agents may err three times.
pub fn policy() -> Policy {
    let retries_max = [(FailureKind::AgentError, 3)].into();
    let escalation = EscalationPolicy { retries_max, ..EscalationPolicy::default() };
    Policy { escalation, ..Policy::default() }
}

/// A world with one task at work and these rules.
fn world(settings: Settings) -> World {
    let mut world = World::empty();
    rule(&mut world, settings);
    world.must(open(vec![task("1", &[]), task("2", &["1"])], policy()));
    world.chores();
    world
}

/// Fails until no retry is left.
pub fn exhaust(world: &mut World, name: &str) -> Vec<Event> {
    let mut events = Vec::new();
    for _ in 0..4 {
        events = world.finish(name, failed(FailureKind::AgentError));
        if world.status(name) == Status::Retrying && !is_deliberating(world, name) {
            world.wait(60_000);
        }
    }
    events
}

fn is_deliberating(world: &World, name: &str) -> bool {
    matches!(world.task(name).stage, Stage::Deliberating { .. })
}

/// A world whose first task waits for a council.
pub fn sitting(change: impl FnOnce(&mut CouncilPolicy)) -> World {
    let mut world = world(settings(change));
    exhaust(&mut world, "1");
    assert!(is_deliberating(&world, "1"), "{:?}", world.task("1").stage);
    world
}

fn vote(by: &str, choice: Choice) -> Vote {
    let evidence = vec![Evidence::Test { name: "it_waits".into(), says: "timed out".into() }];
    let reasoning = format!("{by} thinks so");
    Vote { by: by.into(), choice, reasoning, evidence, confidence: 700 }
}

fn solution(name: &str) -> Choice {
    Choice::Solution(name.into())
}

pub fn cast(council: CouncilId, by: &str, choice: Choice) -> Command {
    Command::CastVote { council, vote: Box::new(vote(by, choice)), spent: Usd::cents(2) }
}

pub fn votes(world: &mut World, council: CouncilId, votes: &[(&str, &str)]) -> Vec<Event> {
    let commands = votes.iter().map(|(by, name)| cast(council, by, solution(name))).collect();
    let events = world.together(commands);
    assert_eq!(world.refused, []);
    events
}

/// All three want the same.
fn agree(world: &mut World, council: CouncilId, name: &str) -> Vec<Event> {
    votes(world, council, &[("deepseek", name), ("gemini", name), ("gpt", name)])
}

pub fn verdict(events: &[Event]) -> Option<&Verdict> {
    events.iter().find_map(|event| match event {
        Event::CouncilDecided { verdict, .. } => Some(verdict),
        _ => None,
    })
}

pub fn because(events: &[Event]) -> Option<HumanBecause> {
    events.iter().find_map(|event| match event {
        Event::TaskDeadLettered { letter, .. } => Some(letter.as_ref()?.because.clone()),
        _ => None,
    })
}

fn panel(events: &[Event]) -> Vec<&str> {
    let convened = events.iter().find_map(|event| match event {
        Event::CouncilConvened { convocation, .. } => Some(convocation),
        _ => None,
    });
    convened.map_or(Vec::new(), |c| c.panel.iter().map(|member| &*member.model).collect())
}

pub fn by_hand(world: &World, question: Question, panel: &[&str]) -> Command {
    let panel = panel.iter().map(|name| ModelName::from(*name)).collect();
    Command::ConveneCouncil { task: world.task("1").id, question, panel, by: ann() }
}

fn findings(checks: Vec<(&str, CheckStanding)>, reasoning: &[(&str, u32)]) -> Box<Findings> {
    let checks = checks.into_iter();
    let checks = checks.map(|(name, standing)| Checked { choice: solution(name), standing });
    let scores = reasoning.iter().map(|(name, reasoning)| {
        ((*name).into(), Score { reasoning: *reasoning, ..Score::default() })
    });
    Box::new(Findings { checks: checks.collect(), scores: scores.collect() })
}

/// CON-01, CON-17: two of three agree, and what they agree on goes back to the agent as advice.
#[test]
fn what_two_of_three_agree_on_is_tried_next() {
    let mut world = sitting(|_| {});
    let events = votes(&mut world, C1, &[("deepseek", "a"), ("gemini", "b"), ("gpt", "b")]);
    let (choice, winner, by) = (solution("b"), "gemini".into(), Strategy::Majority);
    assert_eq!(verdict(&events), Some(&Verdict::Proposed { choice, winner, by }));
    let id = world.task("1").id;
    let retry = Event::RetryScheduled { task: id, at: world.now, from: Restart::Flow };
    assert!(events.contains(&retry), "{events:?}");
    let advice = world.state().advice(id).unwrap();
    let told: Vec<_> = advice.opinions.iter().map(|o| (&*o.by, o.reasoning.as_str())).collect();
    assert_eq!(told, [("gemini", "gemini thinks so")]);
    assert_eq!(world.working(), ["1".to_owned()].into(), "and its agent is at work");
}

/// CON-02: by itself the council takes one of each family; by name, two of one are refused.
#[test]
fn two_voters_of_one_family_are_rejected() {
    let twins =
        |p: &mut CouncilPolicy| p.models.insert(1, Member::new("deepseek-mini", "deepseek"));
    let mut world = world(settings(twins));
    let events = exhaust(&mut world, "1");
    assert_eq!(panel(&events), ["deepseek", "gemini", "gpt"]);
    let named = by_hand(&world, Question::Problem, &["deepseek", "deepseek-mini", "gpt"]);
    let (first, second) = ("deepseek".into(), "deepseek-mini".into());
    let refused = PanelRefused::SameLineage { lineage: Lineage("deepseek".into()), first, second };
    assert_eq!(world.send(named), Err(Refusal::Panel(refused)));
}

/// Nobody listens to six at once, nor pays for them.
#[test]
fn more_voters_than_a_council_seats_are_rejected() {
    let more = ["qwen", "mistral", "llama"].map(|name| Member::new(name, name));
    let mut world = world(settings(|p| p.models.extend(more)));
    let all = ["deepseek", "gemini", "gpt", "qwen", "mistral", "llama"];
    let named = by_hand(&world, Question::Problem, &all);
    let refused = PanelRefused::TooMany { members: 6, max: 5 };
    assert_eq!(world.send(named), Err(Refusal::Panel(refused)));
    let fewer = by_hand(&world, Question::Problem, &all[..5]);
    assert_eq!(panel(&world.must(fewer)).len(), 5);
}

/// CON-03: an answer that was tried and failed stays out, however many want it again.
#[test]
fn a_majority_never_overrides_a_failing_check() {
    let mut world = sitting(|_| {});
    agree(&mut world, C1, "a");
    let events = world.finish("1", failed(FailureKind::AgentError));
    let id = world.task("1").id;
    let outcome = Outcome::Failure;
    assert!(events.contains(&Event::CouncilResolved { council: C1, task: id, outcome }));
    assert_eq!(because(&events), Some(HumanBecause::RetriesExhausted { retries: 4 }));
    world.must(by_hand(&world, Question::Problem, &[]));
    let events = agree(&mut world, CouncilId(2), "a");
    let why = NoVerdict::EverythingFailed;
    assert_eq!(verdict(&events), Some(&Verdict::Undecided { why }));
}

/// CON-03: reviewers cannot make a failing commit pass, nor an unchecked one.
#[test]
fn a_review_of_a_failing_commit_is_rejected_whoever_approves() {
    let mut world = World::empty();
    rule(&mut world, settings(|_| {}));
    world.must(open(vec![task("1", &[])], checked()));
    world.chores();
    world.finish("1", done(5, &["src/a"]));
    let gate = world.fence_of("1");
    let review = |number| Question::Review { commit: commit(number) };
    world.must(by_hand(&world, review(5), &[]));
    world.must(Command::FinishChecks { fence: gate, results: check(false) });
    let approve = ["deepseek", "gemini", "gpt"].map(|by| cast(C1, by, Choice::Approve));
    let events = world.together(approve.to_vec());
    let rejected = Verdict::Rejected { because: Rejection::ChecksFailed };
    assert_eq!(verdict(&events), Some(&rejected));
    let refused = world.send(by_hand(&world, review(6), &[]));
    let unknown = Refusal::NoSuchChange { task: "1".into(), commit: commit(6) };
    assert_eq!(refused, Err(unknown), "and what is no change of the task is not reviewed");
}

/// CON-03: a review needs the quorum and the checks together, and what became of it is known.
#[test]
fn a_review_is_accepted_by_quorum_and_checks_together() {
    let mut world = World::empty();
    rule(&mut world, settings(|_| {}));
    world.must(open(vec![task("1", &[])], checked()));
    world.chores();
    world.finish("1", done(5, &["src/a"]));
    let fence = world.fence_of("1");
    world.must(Command::FinishChecks { fence, results: check(true) });
    world.must(by_hand(&world, Question::Review { commit: commit(5) }, &[]));
    let approve = ["deepseek", "gemini", "gpt"].map(|by| cast(C1, by, Choice::Approve));
    let events = world.together(approve.to_vec());
    assert!(matches!(verdict(&events), Some(Verdict::Accepted { .. })), "{events:?}");
    world.chores();
    let model = world.state().council().history().model(&"gpt".into());
    assert_eq!((model.judged, model.right), (1, 1), "it was merged, so they were right");
}

/// CON-04: "looks good" is not a vote; the member has had its turn, and it is remembered.
#[test]
fn a_vote_without_evidence_does_not_count() {
    let mut world = sitting(|_| {});
    let mut praise = vote("gpt", solution("a"));
    praise.evidence.clear();
    let command = Command::CastVote { council: C1, vote: Box::new(praise), spent: Usd::ZERO };
    let events = world.must(command.clone());
    let why = Dropped::Invalid { fault: InvalidVote::NoEvidence };
    assert!(
        matches!(&events[..], [Event::VoteDropped { why: told, .. }] if *told == why),
        "{events:?}"
    );
    let twice = NotInSession::Vote(VoteRefused::Twice("gpt".into()));
    assert_eq!(world.send(command), Err(Refusal::Council(twice)));
    assert_eq!(world.state().council().history().model(&"gpt".into()).invalid, 1);
    let told = activity::line(world.state(), &events[0]).unwrap().text;
    assert_eq!(told, "the vote of gpt does not count: it shows no evidence (1 of 3)");
}

/// CON-04: whoever nods through planted defects is no longer asked.
#[test]
fn members_that_miss_planted_defects_are_no_longer_asked() {
    let mut world = world(settings(|p| p.models.push(Member::new("qwen", "qwen"))));
    let drill = Question::Drill { planted: "src/planted.rs".into(), within: None };
    for number in 1..=4 {
        world.must(by_hand(&world, drill.clone(), &["gemini", "gpt"]));
        let mut keen = vote("gemini", Choice::Reject);
        let says = "off by one".to_owned();
        keen.evidence = vec![Evidence::Lines { path: "src/planted.rs".into(), line: 3, says }];
        let council = CouncilId(number);
        let keen = Command::CastVote { council, vote: Box::new(keen), spent: Usd::ZERO };
        let events = world.together(vec![keen, cast(council, "gpt", Choice::Approve)]);
        let (caught, missed) = (vec!["gemini".into()], vec!["gpt".into()]);
        assert_eq!(verdict(&events), Some(&Verdict::Drill { caught, missed }));
    }
    let events = exhaust(&mut world, "1");
    let asked = panel(&events);
    assert!(asked.len() == 3 && !asked.contains(&"gpt"), "{asked:?}");
}

/// CON-05: where nobody sits in a council, tier 3 is skipped.
#[test]
fn without_members_a_person_is_asked_at_once() {
    let mut world = world(Settings::default());
    let events = exhaust(&mut world, "1");
    assert_eq!(because(&events), Some(HumanBecause::RetriesExhausted { retries: 3 }));
}

/// CON-05, CON-06: the council comes after the retries of tier 1, by default after three.
#[test]
fn a_council_convenes_after_three_retries_and_not_before() {
    let mut world = world(settings(|_| {}));
    for retry in 1..=3 {
        let events = world.finish("1", failed(FailureKind::AgentError));
        assert_eq!(panel(&events), [""; 0], "retry {retry}");
        world.wait(60_000);
    }
    let events = world.finish("1", failed(FailureKind::AgentError));
    let called =
        |event: &Event| matches!(event, Event::TroubleMet { next: Next::ConveneCouncil, .. });
    assert!(events.iter().any(called), "{events:?}");
    let summoned = events.iter().find_map(|event| match event {
        Event::CouncilConvened { because, .. } => Some(because),
        _ => None,
    });
    assert_eq!(summoned, Some(&Summons::Retries(3)));
    assert_eq!(world.status("1"), Status::Retrying);

    let mut hasty = self::world(settings(|p| p.trigger_after_retries = 4));
    let events = exhaust(&mut hasty, "1");
    assert_eq!(because(&events), Some(HumanBecause::RetriesExhausted { retries: 3 }));
}

/// CON-07: late members are dropped at the deadline, not waited for.
#[test]
fn the_deadline_closes_the_council_without_the_late() {
    let mut world = sitting(|_| {});
    votes(&mut world, C1, &[("gemini", "a"), ("gpt", "a")]);
    assert!(world.wait(29_999).is_empty());
    let events = world.wait(1);
    assert!(matches!(events[0], Event::CouncilClosed { council: C1, judged_by: None, .. }));
    assert!(matches!(verdict(&events), Some(Verdict::Proposed { .. })), "{events:?}");
    let late = world.send(cast(C1, "deepseek", solution("a")));
    let (by, late_ms) = ("deepseek".into(), 0);
    let refused = NotInSession::Vote(VoteRefused::Late { by, late_ms });
    // It was heard as late when the council closed.
    let twice = NotInSession::Vote(VoteRefused::Twice("deepseek".into()));
    assert!(late == Err(Refusal::Council(refused)) || late == Err(Refusal::Council(twice)));
    assert_eq!(world.state().council().history().model(&"deepseek".into()).late, 1);
}

/// CON-07: all are told the same four things.
#[test]
fn members_are_told_code_error_attempts_and_constraints() {
    let mut world = World::empty();
    rule(&mut world, settings(|_| {}));
    let mut planned = task("1", &[]);
    planned.validation_criteria.criteria = vec!["no new dependency".into()];
    world.must(open(vec![planned], policy()));
    world.chores();
    exhaust(&mut world, "1");
    let brief = world.state().council_brief(C1, "fn main() {}").unwrap();
    assert_eq!((brief.code.as_str(), brief.error.as_str()), ("fn main() {}", "it broke"));
    assert_eq!(brief.prior_attempts, ["green: it broke"; 4]);
    assert_eq!(brief.constraints, ["no new dependency"]);
}

/// CON-08: a person need not wait for the third failure, and the task does not wait for them.
#[test]
fn a_person_calls_a_council_beside_the_work() {
    let mut world = world(settings(|p| p.enabled = Switch::ByHand));
    world.must(by_hand(&world, Question::Problem, &["gpt", "deepseek"]));
    assert_eq!(world.working(), ["1".to_owned()].into());
    votes(&mut world, C1, &[("gpt", "a"), ("deepseek", "a")]);
    assert_eq!(world.working(), ["1".to_owned()].into());
    assert!(world.state().advice(world.task("1").id).is_some());
    let anonymous = Command::ConveneCouncil {
        task: world.task("1").id,
        question: Question::Problem,
        panel: Vec::new(),
        by: kapelle_core::Actor(" ".into()),
    };
    assert!(matches!(world.send(anonymous), Err(Refusal::Missing { .. })));
    let events = exhaust(&mut world, "1");
    assert_eq!(panel(&events), [""; 0], "by hand only");
    world.must(Command::RequeueTask { task: world.task("1").id, reason: "x".into(), by: ann() });
    world.must(Command::PauseMission { mission: M1, reason: "lunch".into(), by: ann() });
    let paused = world.send(by_hand(&world, Question::Problem, &[]));
    assert_eq!(paused, Err(Refusal::MissionPaused { mission: M1 }));
}

/// CON-08: the orchestrator sees the whole and may call one, too. No other agent may: it could
/// have its own work judged until somebody likes it.
#[test]
fn of_all_agents_only_the_orchestrator_calls_a_council() {
    let called = |name: &str| {
        let mut world = world(settings(|p| p.enabled = Switch::ByHand));
        let task = world.task("1").id;
        let (question, panel) = (Question::Problem, Vec::new());
        let by = kapelle_core::Actor(name.into());
        world.send(Command::ConveneCouncil { task, question, panel, by }).map(|_| ())
    };
    assert_eq!(called("orchestrator-1"), Ok(()));
    assert_eq!(called("kapelle"), Ok(()));
    for name in ["developer-1", "judge-1", "merger-1"] {
        assert_eq!(called(name), Err(Refusal::NotAPerson { by: name.into() }));
    }
}

/// CON-09: where the judge decides, it is waited for, and not for ever.
#[test]
fn the_judges_scores_decide_once_the_votes_are_open() {
    let strategy = |p: &mut CouncilPolicy| p.strategy = Strategy::BestReasoning;
    let scores = [("deepseek", 600), ("gemini", 900), ("gpt", 500)];
    let judge = || Command::JudgeCouncil {
        council: C1,
        findings: findings(Vec::new(), &scores),
        spent: Usd::cents(1),
    };
    let mut world = sitting(strategy);
    assert!(
        matches!(world.send(judge()), Err(Refusal::Council(NotInSession::Sealed(_)))),
        "nobody judges what is sealed"
    );
    votes(&mut world, C1, &[("deepseek", "a"), ("gemini", "b"), ("gpt", "a")]);
    assert!(is_deliberating(&world, "1"), "until the judge has spoken");
    let told = why(world.state(), world.task("1")).unwrap();
    assert!(told.starts_with("council: its votes are in, its judge has until "), "{told}");
    let mut without = sitting(strategy);
    votes(&mut without, C1, &[("deepseek", "a"), ("gemini", "b"), ("gpt", "a")]);
    let events = world.must(judge());
    let winner = verdict(&events).and_then(|verdict| verdict.winner());
    assert_eq!(winner, Some(&"gemini".into()));
    let events = without.wait(30_000);
    let council = NoVerdict::NotJudged;
    assert_eq!(because(&events), Some(HumanBecause::CouncilUndecided { council }));
    let beyond = Command::JudgeCouncil {
        council: C1,
        findings: findings(Vec::new(), &[("gpt", 2_000)]),
        spent: Usd::ZERO,
    };
    let mut world = sitting(strategy);
    agree(&mut world, C1, "a");
    assert!(matches!(world.send(beyond), Err(Refusal::Council(NotInSession::Score(_)))));
}

/// CON-10: the same votes, by five strategies.
#[test]
fn each_strategy_has_its_own_winner() {
    let won = |strategy| {
        let mut world = sitting(|p| p.strategy = strategy);
        let said = [("deepseek", "a"), ("gemini", "b"), ("gpt", "b")];
        let mut events = votes(&mut world, C1, &said);
        if verdict(&events).is_none() {
            let run = vec![
                ("a", CheckStanding::Passed { tests: 9 }),
                ("b", CheckStanding::Passed { tests: 3 }),
            ];
            let findings = findings(run, &[("deepseek", 1), ("gemini", 2), ("gpt", 3)]);
            let spent = Usd::ZERO;
            events = world.must(Command::JudgeCouncil { council: C1, findings, spent });
        }
        verdict(&events).unwrap().clone()
    };
    let winner = |strategy| won(strategy).winner().map(ToString::to_string).unwrap();
    assert_eq!(winner(Strategy::Majority), "gemini");
    assert_eq!(winner(Strategy::Weighted), "gemini", "all are trusted alike");
    assert_eq!(winner(Strategy::BestReasoning), "gpt");
    assert_eq!(winner(Strategy::TestWinner), "deepseek");
    let from = ["deepseek", "gemini", "gpt"].map(ModelName::from).to_vec();
    assert_eq!(won(Strategy::ConsensusBuild), Verdict::Combine { from });
}

/// CON-11: more members are more money, all of it reserved before anybody is asked.
#[test]
fn the_size_of_a_council_is_what_is_reserved_for_it() {
    let more = ["qwen", "mistral"].map(|name| Member::new(name, name));
    for (size, members, usd) in
        [(Size::Minimal, 2, 5), (Size::Standard, 3, 15), (Size::Full, 5, 30)]
    {
        let mut world = world(settings(|p| {
            p.models.extend(more.clone());
            p.size = size;
        }));
        let before = world.state().purse_of(M1).reserved;
        assert!(before > Usd::ZERO, "its attempt runs");
        let events = exhaust(&mut world, "1");
        assert_eq!(panel(&events).len(), members);
        assert_eq!(world.state().purse_of(M1).reserved, Usd::cents(usd));
    }
}

/// CON-12: without money nobody is asked, and a person hears why.
#[test]
fn a_council_that_cannot_be_paid_is_not_asked() {
    let mut poor = settings(|_| {});
    poor.money.caps.council_day_usd_max = Some(Usd::cents(14));
    let mut world = world(poor);
    let events = exhaust(&mut world, "1");
    assert_eq!(panel(&events), [""; 0]);
    let Some(HumanBecause::NoCouncil { council: ToHuman::Money { refusal } }) = because(&events)
    else {
        panic!("{events:?}")
    };
    let told = refusal.to_string();
    assert!(told.contains(&Limit::CouncilDay.to_string()), "{told}");
    let refused = world.send(by_hand(&world, Question::Problem, &[]));
    assert_eq!(refused, Err(Refusal::NoCouncil { why: ToHuman::Money { refusal } }));
}

/// A vote is one call of a model: none is asked for that would cost more than a call may.
#[test]
fn a_council_whose_votes_cost_more_than_a_call_may_is_not_asked() {
    let capped = |cents| {
        let mut settings = settings(|_| {});
        settings.money.caps.call_usd_max = Some(Usd::cents(cents));
        settings
    };
    // Three members for fifteen cents.
    let mut enough = world(capped(5));
    assert_eq!(panel(&exhaust(&mut enough, "1")).len(), 3);
    let mut world = world(capped(4));
    let events = exhaust(&mut world, "1");
    let (limit, cap, asked) = (Limit::Call, Usd::cents(4), Usd::cents(5));
    let (spent, reserved, resets_at) = (Usd::ZERO, Usd::ZERO, None);
    let refusal = ledger::Refusal::OverLimit { limit, cap, spent, reserved, asked, resets_at };
    let council = ToHuman::Money { refusal };
    assert_eq!(because(&events), Some(HumanBecause::NoCouncil { council }));
}

/// Seed 3002: the attempt that calls a council is paid first, and may leave nothing for it.
#[test]
fn an_attempt_that_overspends_leaves_no_money_for_its_council() {
    let mut world = world(settings(|_| {}));
    for _ in 0..3 {
        world.finish("1", failed(FailureKind::AgentError));
        world.wait(60_000);
    }
    let (fence, outcome) = (world.fence_of("1"), failed(FailureKind::AgentError));
    let usd = world.state().mission(M1).unwrap().policy.budget.mission_usd_max;
    let spent = Spending { usd, ..Spending::default() };
    let events = world.must(Command::FinishAttempt { fence, outcome, spent });
    assert_eq!(panel(&events), [""; 0], "{events:?}");
    let money = |because: &HumanBecause| {
        matches!(because, HumanBecause::NoCouncil { council: ToHuman::Money { .. } })
    };
    assert!(because(&events).is_some_and(|because| money(&because)), "{events:?}");
    let told = events.iter().any(|event| {
        matches!(event, Event::TroubleMet { next: Next::AskHuman { because }, .. } if money(because))
    });
    assert!(told, "{events:?}");
    assert_eq!(world.status("1"), Status::DeadLetter);
}

/// CON-12: what was reserved is charged as far as it was spent, and the rest goes back.
#[test]
fn a_council_is_charged_when_it_has_decided() {
    let mut world = sitting(|_| {});
    votes(&mut world, C1, &[("gemini", "a"), ("gpt", "a")]);
    let events = world.wait(30_000);
    let cost = events.iter().find_map(|event| match event {
        Event::CouncilDecided { cost, .. } => Some(*cost),
        _ => None,
    });
    assert_eq!(cost, Some(Usd::cents(2 + 2 + 5)), "a third of the reservation for the silent one");
    let mission = world.state().mission(M1).unwrap();
    let attempt = mission.policy.budget.attempt_usd_max;
    let purse = world.state().purse_of(M1);
    assert_eq!((purse.spent, purse.reserved), (Usd::cents(9), attempt));
    let purse = world.state().ledger().purse(Scope::Task(M1, None));
    assert_eq!((purse.spent, purse.reserved), (Usd::cents(9), Usd::ZERO));
}

/// Whoever spends more than was reserved stops the mission, as an attempt does.
#[test]
fn a_council_that_overspends_pauses_its_mission() {
    let mut world = sitting(|_| {});
    let dear = |by| Command::CastVote {
        council: C1,
        vote: Box::new(vote(by, solution("a"))),
        spent: Usd::cents(6),
    };
    world.together(["deepseek", "gemini", "gpt"].map(dear).to_vec());
    let (reserved, spent) = (Usd::cents(15), Usd::cents(18));
    let paused = world.state().mission(M1).unwrap().paused.clone();
    assert_eq!(paused, Some(PauseReason::Overspent { reserved, spent }));
}

/// CON-13: each council is logged, with what came of it.
#[test]
fn each_council_is_logged_with_its_outcome() {
    let mut world = sitting(|_| {});
    agree(&mut world, C1, "a");
    world.succeed("1");
    let record = world.state().council().history().records().next_back().unwrap();
    assert_eq!((record.problem_id.as_str(), record.problem_type.as_str()), ("1-error-3", "coding"));
    assert_eq!(record.models_queried.len(), 3);
    assert_eq!(record.winner, Some("deepseek".into()));
    let reason = "most agreed on the answer of deepseek; it has to pass its checks yet";
    assert_eq!(record.winner_reason, reason);
    assert_eq!((record.applied, record.outcome), (true, Outcome::Success));
}

/// CON-14: who was right weighs more, and is asked first.
#[test]
fn history_weighs_votes_and_routes_problems() {
    let mut world = sitting(|p| (p.size, p.strategy) = (Size::Minimal, Strategy::Majority));
    votes(&mut world, C1, &[("deepseek", "a"), ("gemini", "a")]);
    world.succeed("1");
    let history = world.state().council().history();
    let trust = ["deepseek", "gemini", "gpt"].map(|name| history.trust_permille(&name.into()));
    assert_eq!(trust, [666, 666, 500]);
    let won = ["deepseek", "gemini"].map(|n| history.affinity_permille("coding", &n.into()));
    assert_eq!(won, [666, 333], "the credit goes to one");
}

fn catalogue(names: &[&str]) -> (routing::Policy, std::collections::BTreeMap<String, Price>) {
    let model = |name: &&str| Model {
        name: (*name).into(),
        provider: Provider::new(name),
        lineage: Lineage((*name).into()),
        tier: Tier::Standard,
        strengths: [].into(),
        enabled: true,
    };
    let models = Catalogue(names.iter().map(model).collect());
    let price = Price { input: Usd::cents(1), output: Usd::cents(1) };
    let prices = names.iter().map(|name| ((*name).to_owned(), price)).collect();
    (routing::Policy { models, shards: [].into(), ..routing::Policy::default() }, prices)
}

/// CON-15: missing keys make it smaller, and with fewer than two it is for a person.
#[test]
fn members_without_a_key_are_not_asked() {
    let names = ["claude", "deepseek", "gemini", "gpt"];
    let routed = |without: &[&str]| {
        let (mut routing, prices) = catalogue(&names);
        routing.without_key = without.iter().map(|name| Provider::new(name)).collect();
        let mut settings = settings(|_| {});
        settings.prices.models = prices;
        settings.routing = Some(routing);
        settings
    };
    let mut world = world(routed(&["deepseek"]));
    assert_eq!(panel(&exhaust(&mut world, "1")), ["gemini", "gpt"]);
    let mut alone = self::world(routed(&["deepseek", "gemini"]));
    let events = exhaust(&mut alone, "1");
    assert_eq!(because(&events), Some(HumanBecause::CouncilTooSmall { members: 1 }));
}

/// CON-15: nobody votes on work of its own family.
#[test]
fn the_family_that_did_the_work_stays_outside() {
    let (mut routing, prices) = catalogue(&["gemini", "deepseek", "gpt", "claude"]);
    routing.shards = [].into();
    let mut settings = settings(|_| {});
    settings.prices.models = prices;
    settings.routing = Some(routing);
    let mut world = world(settings);
    let events = exhaust(&mut world, "1");
    assert_eq!(panel(&events), ["deepseek", "gpt"], "gemini did it");
}

/// CON-16: rules that cannot work are refused, and so is a member that the catalogue has not.
#[test]
fn a_council_that_cannot_work_is_refused() {
    let send = |settings: Settings| {
        let settings = Box::new(settings);
        World::empty().send(Command::ChangeSettings { settings, by: ann() })
    };
    let short = send(settings(|p| p.timeout_ms = 10));
    let wrong = InvalidCouncil::TooShort { timeout_ms: 10 };
    assert_eq!(short, Err(Refusal::InvalidSettings(InvalidSettings::Council(wrong))));
    let (routing, prices) = catalogue(&["deepseek", "gemini", "claude"]);
    let mut routed = settings(|_| {});
    routed.prices.models = prices;
    routed.routing = Some(routing);
    let wrong = InvalidCouncil::NotInCatalogue { model: "gpt".into() };
    assert_eq!(send(routed), Err(Refusal::InvalidSettings(InvalidSettings::Council(wrong))));
}

/// CON-17: the outcome is recorded when the answer was tried, not before.
#[test]
fn the_outcome_is_known_when_the_answer_was_tried() {
    let mut world = sitting(|_| {});
    agree(&mut world, C1, "a");
    assert_eq!(world.state().council().history().records().count(), 0);
    let events = world.finish("1", failed(FailureKind::Network));
    assert!(!events.iter().any(|e| matches!(e, Event::CouncilResolved { .. })), "bad weather");
    world.wait(60_000);
    world.succeed("1");
    let outcomes = world.state().council().history().records().map(|record| record.outcome);
    assert_eq!(outcomes.collect::<Vec<_>>(), [Outcome::Success]);
}

/// CON-18: a problem that was solved is not asked about again, until its answer fails.
#[test]
fn a_solved_problem_is_remembered_until_its_answer_fails() {
    let mut world = sitting(|_| {});
    agree(&mut world, C1, "wait for the lock");
    world.succeed("1");
    let spent = world.state().purse_of(M1).spent;
    let events = exhaust(&mut world, "2");
    assert_eq!(panel(&events), [""; 0]);
    let recalled = events.iter().any(|event| {
        matches!(event, Event::SolutionRecalled { known, .. } if known.solution == "wait for the lock")
    });
    assert!(recalled, "{events:?}");
    assert_eq!(world.state().purse_of(M1).spent, spent, "for nothing");
    let id = world.task("2").id;
    assert!(world.state().advice(id).is_some());
    world.finish("2", failed(FailureKind::AgentError));
    assert_eq!(world.state().advice(id), None);
    let key = kapelle_core::council::ProblemKey::new("coding", "it broke");
    assert_eq!(world.state().council().history().recall(&key, u64::MAX, world.now), None);
}

/// CON-19: what councils were good for.
#[test]
fn councils_are_measured() {
    let mut world = sitting(|_| {});
    let begun = world.now;
    agree(&mut world, C1, "a");
    world.succeed("1");
    let metrics = world.state().council().metrics(begun);
    assert_eq!(metrics.to_string(), "Success rate: 100% (1/1)");
    assert_eq!(metrics.cost_per_solution(), Some(Usd::cents(6)));
    assert_eq!(metrics.ranking(), [(&"deepseek".into(), 1)]);
    assert_eq!(metrics.minutes_saved, 30);
}

/// CON-20: who is strong in what is data, and decides while there is no history.
#[test]
fn strengths_choose_who_is_asked_first() {
    let ask = |strong: &str| {
        let mut world = World::empty();
        rule(
            &mut world,
            settings(|p| {
                p.size = Size::Minimal;
                p.strengths = [("security".to_owned(), vec![strong.into()])].into();
            }),
        );
        let secure = PlannedTask { kind: TaskKind::Security, ..task("1", &[]) };
        world.must(open(vec![secure], policy()));
        world.chores();
        panel(&exhaust(&mut world, "1")).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(ask("gpt"), ["deepseek", "gpt"]);
    assert_eq!(ask("gemini"), ["deepseek", "gemini"]);
}

/// SEC-03: while a council sits, nothing that anybody is shown says what was voted.
#[test]
fn nobody_sees_a_vote_before_the_council_closes() {
    let mut world = sitting(|_| {});
    let events = votes(&mut world, C1, &[("gpt", "secret-answer"), ("gemini", "secret-answer")]);
    let shown = |world: &World| {
        let lines = events.iter().filter_map(|event| activity::line(world.state(), event));
        let lines: Vec<String> = lines.map(|line| line.text).collect();
        let events: Vec<_> = events.iter().map(|event| visible(world.state(), event)).collect();
        let told = why(world.state(), world.task("1"));
        format!("{lines:?} {events:?} {told:?} {:?}", world.state())
    };
    let before = shown(&world);
    assert!(!before.contains("secret-answer") && !before.contains("thinks so"), "{before}");
    assert!(before.contains("gpt has voted (2 of 3)"), "{before}");
    world.wait(30_000);
    assert!(shown(&world).contains("secret-answer"), "then everybody may");
}

/// The sentence that a person sees while a council sits.
#[test]
fn why_says_how_far_the_council_is() {
    let mut world = sitting(|_| {});
    votes(&mut world, C1, &[("gpt", "a"), ("gemini", "a")]);
    let told = why(world.state(), world.task("1")).unwrap();
    let until = kapelle_core::calendar::utc(world.now.plus_ms(30_000));
    assert_eq!(told, format!("council until {until}: 2 of 3 votes in"));
}

/// Whoever was not asked, or asks for another council, is told so.
#[test]
fn strangers_do_not_vote() {
    let mut world = sitting(|_| {});
    let stranger = NotInSession::Vote(VoteRefused::NotAsked("claude".into()));
    assert_eq!(world.send(cast(C1, "claude", solution("a"))), Err(Refusal::Council(stranger)));
    let gone = CouncilId(9);
    let unknown = Refusal::Council(NotInSession::Unknown(gone));
    assert_eq!(world.send(cast(gone, "gpt", solution("a"))), Err(unknown));
}

/// A council that does not agree leaves the task to a person, with its reason.
#[test]
fn without_agreement_a_person_is_asked() {
    let mut world = sitting(|_| {});
    let events = votes(&mut world, C1, &[("deepseek", "a"), ("gemini", "b"), ("gpt", "c")]);
    let council = NoVerdict::NoQuorum { agreed: 1, needed: 2 };
    assert_eq!(because(&events), Some(HumanBecause::CouncilUndecided { council }));
    assert_eq!((world.status("1"), world.status("2")), (Status::DeadLetter, Status::Blocked));
    let told = why(world.state(), world.task("1")).unwrap();
    assert!(told.contains("the council did not agree: 1 agreed, 2 are needed"), "{told}");
}

/// A council goes on through a pause; what follows from it waits, or needs a person.
#[test]
fn a_council_ends_in_a_paused_mission_too() {
    for (name, status) in [("a", Status::Paused), ("", Status::DeadLetter)] {
        let mut world = sitting(|_| {});
        world.must(Command::PauseMission { mission: M1, reason: "lunch".into(), by: ann() });
        assert_eq!(world.status("1"), Status::Paused);
        if !name.is_empty() {
            agree(&mut world, C1, name);
        }
        world.wait(30_000);
        assert_eq!(world.status("1"), status);
        assert!(world.working().is_empty());
    }
}

/// The money of a council that nobody needs any more goes back.
#[test]
fn a_cancelled_mission_calls_its_council_off() {
    let mut world = sitting(|_| {});
    votes(&mut world, C1, &[("gpt", "a")]);
    let events = world.must(Command::CancelMission { mission: M1, reason: "no".into(), by: ann() });
    let (task, cost) = (world.task("1").id, Usd::cents(2 + 5 + 5));
    assert!(events.contains(&Event::CouncilAbandoned { council: C1, task, cost }), "{events:?}");
    assert_eq!(world.state().purse_of(M1).reserved, Usd::ZERO);
    assert_eq!(world.state().wake_at(), None);
}

/// The rules under which it was called hold for a council, whatever is changed meanwhile.
#[test]
fn a_council_ends_by_the_rules_that_it_began_with() {
    let mut world = sitting(|_| {});
    rule(&mut world, Settings::default());
    let events = agree(&mut world, C1, "a");
    assert!(matches!(verdict(&events), Some(Verdict::Proposed { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// In whichever order the same votes come in, they say the same; and replay agrees.
    #[test]
    fn the_order_of_votes_does_not_matter(
        choices in proptest::array::uniform3(0u8..3),
        order in Just([("deepseek", 0), ("gemini", 1), ("gpt", 2)]).prop_shuffle(),
        strategy in proptest::sample::select(vec![
            Strategy::Majority, Strategy::Weighted, Strategy::ConsensusBuild,
        ]),
    ) {
        let hear = |order: [(&str, usize); 3]| {
            let mut world = sitting(|p| p.strategy = strategy);
            let names = order.map(|(by, index)| (by, choices[index].to_string()));
            let said: Vec<(&str, &str)> = names.iter().map(|(by, n)| (*by, n.as_str())).collect();
            let events = votes(&mut world, C1, &said);
            let replayed = kapelle_core::Engine::recover(world.journal.clone());
            assert!(replayed.state() == world.state());
            verdict(&events).cloned()
        };
        let sorted = hear([("deepseek", 0), ("gemini", 1), ("gpt", 2)]);
        prop_assert_eq!(hear(order), sorted);
    }
}
