//! The council, rule by rule.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_core::council::{
    BadScore, Brief, CheckStanding, Checked, Choice, Convening, Convocation, Council, CouncilId,
    CouncilPolicy, Dropped, Evidence, Findings, InvalidVote, Member, NoVerdict, NotInSession,
    Outcome, PanelRefused, Petition, ProblemKey, Question, Quorum, Rejection, Score, Sealed, Size,
    Strategy, Summons, Switch, ToHuman, Verdict, Vote, VoteRefused,
};
use kapelle_core::routing::{Lineage, ModelName};
use kapelle_core::{Actor, Commit, Timestamp, Usd, limits};
use proptest::prelude::{
    Just, ProptestConfig, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest,
};
use proptest::strategy::Strategy as _;

const NOW: Timestamp = Timestamp(1_000_000_000_000);
const IN_TIME: Timestamp = Timestamp(NOW.0 + 1_000);
const DEADLINE: Timestamp = Timestamp(NOW.0 + 30_000);

fn model(name: &str) -> ModelName {
    ModelName(name.into())
}

fn council(change: impl FnOnce(&mut CouncilPolicy)) -> Council {
    let mut policy = CouncilPolicy::default();
    change(&mut policy);
    Council::new(policy).unwrap()
}

fn commit() -> Commit {
    "c".repeat(40).parse().unwrap()
}

fn petition(summons: Summons) -> Petition {
    Petition {
        problem_id: "2-5-error-3".into(),
        problem_type: "api".into(),
        key: Brief::new("", "429 too many requests", &[], &[]).key("api"),
        question: Question::Problem,
        summons,
        author: None,
        available: ["deepseek", "gemini", "gpt", "claude"].map(model).into(),
    }
}

fn review() -> Petition {
    let question = Question::Review { commit: commit() };
    Petition { question, ..petition(Summons::Review) }
}

fn drill(planted: &str) -> Petition {
    let question = Question::Drill { planted: planted.into(), within: None };
    Petition { question, ..petition(Summons::Review) }
}

fn convocation(council: &Council, petition: &Petition) -> Convocation {
    match council.convene(petition, NOW) {
        Convening::Convene(convocation) => *convocation,
        other => panic!("{other:?}"),
    }
}

fn names(convocation: &Convocation) -> Vec<&str> {
    convocation.panel.iter().map(|member| &*member.model.0).collect()
}

fn open(council: &mut Council, petition: &Petition) -> CouncilId {
    let convocation = convocation(council, petition);
    council.convened(convocation, NOW)
}

fn vote(by: &str, choice: Choice) -> Vote {
    let lines = Evidence::Lines { path: "src/a.rs".into(), line: 7, says: "retry-after".into() };
    let (reasoning, evidence) = ("the header says so".to_owned(), vec![lines]);
    Vote { by: model(by), choice, reasoning, evidence, confidence: 700 }
}

fn solution(name: &str) -> Choice {
    Choice::Solution(name.into())
}

fn cast(council: &mut Council, id: CouncilId, vote: Vote) {
    assert_eq!(council.vote(id, &vote, IN_TIME), Ok(()));
    council.vote_cast(id, vote, Usd::ZERO);
}

/// Opens a council with these votes and closes it at its deadline.
fn voted(council: &mut Council, petition: &Petition, votes: &[(&str, Choice)]) -> CouncilId {
    let id = open(council, petition);
    for (by, choice) in votes {
        cast(council, id, vote(by, choice.clone()));
    }
    council.closed(id, None);
    id
}

fn passed(choice: Choice, tests: u32) -> Checked {
    Checked { choice, standing: CheckStanding::Passed { tests } }
}

fn failed(choice: Choice) -> Checked {
    Checked { choice, standing: CheckStanding::Failed }
}

fn checks(checks: Vec<Checked>) -> Findings {
    Findings { checks, scores: BTreeMap::new() }
}

fn score(reasoning: u32, correctness: u32) -> Score {
    Score { reasoning, correctness, ..Score::default() }
}

/// Solves or fails one problem, won by the first of the votes.
fn history(council: &mut Council, votes: &[(&str, Choice)], outcome: Outcome) {
    let id = voted(council, &petition(by_hand(&[])), votes);
    let (winner, choice) = (model(votes[0].0), votes[0].1.clone());
    let verdict = Verdict::Proposed { choice, winner, by: Strategy::Majority };
    council.decided(id, &verdict, Usd::cents(12), NOW);
    council.resolved(id, outcome, NOW);
}

fn by_hand(panel: &[&str]) -> Summons {
    let panel = panel.iter().map(|name| model(name)).collect();
    Summons::ByHand { by: Actor("ada".into()), panel }
}

/// SEC-03: a vote that others can see sways them.
#[test]
fn votes_are_sealed_until_all_have_voted() {
    let mut council = council(|_| {});
    let id = open(&mut council, &petition(Summons::Retries(3)));
    cast(&mut council, id, vote("gemini", solution("secret-answer")));
    cast(&mut council, id, vote("gpt", solution("secret-answer")));
    let sealed = Sealed { voted: 2, asked: 3 };
    let session = council.session(id).unwrap();
    assert_eq!(session.votes(), Err(sealed.clone()));
    assert!(council.ripe().is_none(), "one is missing");
    let verdict = council.verdict(id, &Findings::default());
    assert_eq!(verdict, Err(NotInSession::Sealed(sealed)));
    assert!(!format!("{council:?}").contains("secret-answer"), "not even in a log line");
    assert_eq!(session.heard().cloned().collect::<Vec<_>>(), [model("gemini"), model("gpt")]);
    cast(&mut council, id, vote("deepseek", solution("other")));
    assert_eq!(council.ripe().map(|session| session.id), Some(id));
    council.closed(id, None);
    assert_eq!(council.session(id).unwrap().votes().unwrap().len(), 3);
}

/// CON-07, T-13: late members are dropped after 30 s, not waited for.
#[test]
fn the_deadline_opens_the_votes_and_drops_the_late() {
    let mut council = council(|_| {});
    let id = open(&mut council, &petition(Summons::Retries(3)));
    assert_eq!(council.wake_at(), Some(DEADLINE));
    cast(&mut council, id, vote("gemini", solution("a")));
    cast(&mut council, id, vote("gpt", solution("a")));
    let just_before = Timestamp(DEADLINE.0 - 1);
    assert!(council.ripe().is_none());
    assert_eq!(council.overdue(just_before).count(), 0);
    assert_eq!(council.overdue(DEADLINE).collect::<Vec<_>>(), [id]);
    let late = council.vote(id, &vote("deepseek", solution("a")), DEADLINE);
    let refused = VoteRefused::Late { by: model("deepseek"), late_ms: 0 };
    assert_eq!(late, Err(NotInSession::Vote(refused)));
    council.closed(id, None);
    assert_eq!(council.history().model(&model("deepseek")).late, 1);
    assert_eq!(council.wake_at(), None);
    council.vote_cast(id, vote("deepseek", solution("b")), Usd::ZERO);
    assert_eq!(council.session(id).unwrap().votes().unwrap().len(), 2);
}

#[test]
fn votes_that_do_not_count_are_refused_by_name() {
    let mut council = council(|_| {});
    let id = open(&mut council, &petition(Summons::Retries(3)));
    let refused = |council: &Council, vote: &Vote| match council.vote(id, vote, IN_TIME) {
        Err(NotInSession::Vote(refused)) => refused,
        other => panic!("{other:?}"),
    };
    let stranger = refused(&council, &vote("claude", solution("a")));
    assert_eq!(stranger, VoteRefused::NotAsked(model("claude")));
    let mut praise = vote("gpt", solution("a"));
    (praise.reasoning, praise.evidence) = ("looks good".into(), Vec::new());
    let (by, fault) = (model("gpt"), InvalidVote::NoEvidence);
    assert_eq!(refused(&council, &praise), VoteRefused::Invalid { by, fault });
    let (by, fault) = (model("gpt"), InvalidVote::OtherQuestion);
    let off_topic = refused(&council, &vote("gpt", Choice::Approve));
    assert_eq!(off_topic, VoteRefused::Invalid { by, fault });
    cast(&mut council, id, vote("gemini", solution("a")));
    let again = refused(&council, &vote("gemini", solution("b")));
    assert_eq!(again, VoteRefused::Twice(model("gemini")));
    let gone = CouncilId(99);
    let unknown = council.vote(gone, &vote("gpt", solution("a")), IN_TIME);
    assert_eq!(unknown, Err(NotInSession::Unknown(gone)));
}

/// A member whose vote was worthless has had its turn, and it is remembered.
#[test]
fn an_invalid_vote_is_counted_against_its_model() {
    let mut council = council(|_| {});
    let id = open(&mut council, &petition(Summons::Retries(3)));
    let fault = InvalidVote::NoEvidence;
    council.vote_dropped(id, &model("gpt"), Dropped::Invalid { fault }, Usd::ZERO);
    let second = council.vote(id, &vote("gpt", solution("a")), IN_TIME);
    assert_eq!(second, Err(NotInSession::Vote(VoteRefused::Twice(model("gpt")))));
    assert_eq!(council.history().model(&model("gpt")).invalid, 1);
}

/// CON-06, T-13.
#[test]
fn the_council_convenes_after_three_retries() {
    let council = council(|_| {});
    let early = council.convene(&petition(Summons::Retries(2)), NOW);
    assert_eq!(early, Convening::NotYet { retries: 2, needed: 3 });
    let convocation = convocation(&council, &petition(Summons::Retries(3)));
    assert_eq!(convocation.deadline, DEADLINE);
    assert_eq!(convocation.reserved.to_string(), "$0.15");
    assert_eq!(convocation.judge, Some(Member::new("claude", "claude")));
}

/// CON-08: a person need not wait for the third failure.
#[test]
fn a_person_may_call_the_council_at_once() {
    let by_hand_only = council(|p| p.enabled = Switch::ByHand);
    let automatic = by_hand_only.convene(&petition(Summons::Retries(9)), NOW);
    assert_eq!(automatic, Convening::ToHuman(ToHuman::ByHandOnly));
    let convocation = convocation(&by_hand_only, &petition(by_hand(&["gpt", "deepseek"])));
    assert_eq!(names(&convocation), ["deepseek", "gpt"]);
    let off = council(|p| p.enabled = Switch::Off).convene(&petition(by_hand(&[])), NOW);
    assert_eq!(off, Convening::ToHuman(ToHuman::Off));
}

/// CON-02 at quorum time, not only in the configuration.
#[test]
fn a_panel_with_two_of_one_family_is_refused() {
    let council = council(|p| p.models.push(Member::new("gpt-mini", "gpt")));
    let mut petition = petition(by_hand(&["gpt", "gpt-mini", "gemini"]));
    petition.available.insert(model("gpt-mini"));
    let (first, second) = (model("gpt"), model("gpt-mini"));
    let same = PanelRefused::SameLineage { lineage: Lineage("gpt".into()), first, second };
    assert_eq!(council.convene(&petition, NOW), Convening::Refused(same));
    petition.summons = Summons::Retries(3);
    let chosen = convocation(&council, &petition);
    assert_eq!(names(&chosen), ["gemini", "deepseek", "gpt"], "by itself it takes one of each");
}

/// CON-15: missing keys make it smaller; with fewer than two it is for a person.
#[test]
fn missing_keys_degrade_the_council_down_to_a_person() {
    let council = council(|_| {});
    let mut petition = petition(Summons::Retries(3));
    petition.available = ["gemini", "gpt"].map(model).into();
    let two = convocation(&council, &petition);
    assert_eq!(names(&two), ["gemini", "gpt"]);
    assert_eq!(two.reserved.to_string(), "$0.05");
    petition.available = ["gpt", "claude"].map(model).into();
    let few = ToHuman::TooFewMembers { members: 1, needed: 2 };
    assert_eq!(few.to_string(), "1 model families can vote, 2 are needed");
    assert_eq!(council.convene(&petition, NOW), Convening::ToHuman(few));
}

/// A family neither votes on its own work nor judges it.
#[test]
fn the_authors_family_stays_outside() {
    let council = council(|p| p.models.push(Member::new("qwen", "qwen")));
    let mut petition = petition(Summons::Retries(3));
    petition.author = Some(Lineage("gemini".into()));
    assert_eq!(names(&convocation(&council, &petition)), ["deepseek", "gpt"]);
    petition.author = Some(Lineage("claude".into()));
    petition.available.insert(model("qwen"));
    let convened = convocation(&council, &petition);
    assert_eq!(names(&convened), ["gemini", "deepseek", "gpt"]);
    assert_eq!(convened.judge, Some(Member::new("qwen", "qwen")));
}

/// What nobody said what it cost is taken for its share of what was reserved.
#[test]
fn a_council_costs_what_is_said_and_the_share_of_the_silent() {
    let mut council = council(|_| {});
    let id = open(&mut council, &petition(Summons::Retries(3)));
    council.vote_cast(id, vote("gemini", solution("a")), Usd::cents(2));
    let fault = InvalidVote::NoEvidence;
    council.vote_dropped(id, &model("gpt"), Dropped::Invalid { fault }, Usd::cents(1));
    let cost = |council: &Council| council.session(id).unwrap().cost(Usd::ZERO);
    assert_eq!(cost(&council), Usd::cents(2 + 1 + 5), "before the deadline too");
    council.closed(id, None);
    assert_eq!(cost(&council), Usd::cents(2 + 1 + 5));
    assert_eq!(council.session(id).unwrap().cost(Usd::cents(4)), Usd::cents(12));
}

/// CON-11: DeepSeek + 1.
#[test]
fn a_minimal_council_keeps_the_first_and_adds_the_best() {
    let council = council(|p| p.size = Size::Minimal);
    let api = convocation(&council, &petition(Summons::Retries(3)));
    assert_eq!((names(&api), api.reserved), (vec!["deepseek", "gemini"], Usd::cents(5)));
    let mut architecture = petition(Summons::Retries(3));
    architecture.problem_type = "architecture".into();
    assert_eq!(names(&convocation(&council, &architecture)), ["deepseek", "gpt"]);
}

/// CON-14, CON-20: strengths are a first guess; wins on such problems overrule it.
#[test]
fn wins_route_the_next_problem_of_the_type() {
    let mut council = council(|p| p.size = Size::Minimal);
    for n in 0..4 {
        let votes = [("gpt", solution(&n.to_string())), ("deepseek", solution("x"))];
        let id = voted(&mut council, &petition(by_hand(&["gpt", "deepseek"])), &votes);
        let (choice, winner) = (votes[0].1.clone(), model("gpt"));
        let verdict = Verdict::Proposed { choice, winner, by: Strategy::Majority };
        council.decided(id, &verdict, Usd::ZERO, NOW);
    }
    let gpt = council.history().affinity_permille("api", &model("gpt"));
    assert_eq!(gpt, 833, "4 of 4, and one half for the rest");
    let mut petition = petition(Summons::Retries(3));
    petition.key = ProblemKey::new("api", "new");
    assert_eq!(names(&convocation(&council, &petition)), ["deepseek", "gpt"]);
    petition.problem_type = "visual".into();
    assert_eq!(names(&convocation(&council, &petition)), ["deepseek", "gemini"]);
}

/// CON-01, CON-10.
#[test]
fn majority_takes_what_two_of_three_agree_on() {
    let mut council = council(|_| {});
    let votes = [("deepseek", solution("a")), ("gemini", solution("b")), ("gpt", solution("b"))];
    let id = voted(&mut council, &petition(Summons::Retries(3)), &votes);
    let verdict = council.verdict(id, &Findings::default()).unwrap();
    let (choice, winner, by) = (solution("b"), model("gemini"), Strategy::Majority);
    assert_eq!(verdict, Verdict::Proposed { choice, winner, by });
    let checked = council.verdict(id, &checks(vec![passed(solution("b"), 3)])).unwrap();
    assert!(matches!(checked, Verdict::Accepted { .. }));
    let told = "most agreed on the answer of gemini; its checks passed";
    assert_eq!(checked.to_string(), told);
}

#[test]
fn without_agreement_there_is_no_majority() {
    let mut council = council(|_| {});
    let votes = [("deepseek", solution("a")), ("gemini", solution("b")), ("gpt", solution("c"))];
    let id = voted(&mut council, &petition(Summons::Retries(3)), &votes);
    let verdict = council.verdict(id, &Findings::default()).unwrap();
    assert_eq!(verdict, undecided(NoVerdict::NoQuorum { agreed: 1, needed: 2 }));
    assert_eq!(verdict.to_string(), "undecided: 1 agreed, 2 are needed");
}

fn undecided(why: NoVerdict) -> Verdict {
    Verdict::Undecided { why }
}

#[test]
fn a_single_voice_is_no_council() {
    let mut council = council(|p| p.strategy = Strategy::BestReasoning);
    let votes = [("gpt", solution("c"))];
    let id = voted(&mut council, &petition(Summons::Retries(3)), &votes);
    let verdict = council.verdict(id, &Findings::default());
    assert_eq!(verdict, Ok(undecided(NoVerdict::TooFewVotes { valid: 1, needed: 2 })));
}

/// Weighted: one that is mostly right outweighs one that is mostly wrong.
#[test]
fn weighted_votes_follow_who_was_right() {
    let mut council = council(|p| p.strategy = Strategy::Weighted);
    for _ in 0..3 {
        let votes = [("gemini", solution("g")), ("gpt", solution("p"))];
        history(&mut council, &votes, Outcome::Success);
    }
    assert_eq!(council.history().trust_permille(&model("gemini")), 800);
    assert_eq!(council.history().trust_permille(&model("gpt")), 200);
    assert_eq!(council.history().trust_permille(&model("deepseek")), 500);
    let votes = [("deepseek", solution("a")), ("gemini", solution("b")), ("gpt", solution("a"))];
    let id = voted(&mut council, &petition(by_hand(&[])), &votes);
    let verdict = council.verdict(id, &Findings::default()).unwrap();
    assert_eq!(verdict.winner(), Some(&model("gemini")), "800 against 500 + 200");
}

/// Right also is who voted against what then failed.
#[test]
fn dissent_from_a_failure_counts_as_right() {
    let mut council = council(|_| {});
    let votes = [("gemini", solution("g")), ("gpt", solution("p"))];
    history(&mut council, &votes, Outcome::Failure);
    assert_eq!(council.history().model(&model("gpt")).right, 1);
    assert_eq!(council.history().model(&model("gemini")).right, 0);
}

#[test]
fn best_reasoning_is_the_judges_choice() {
    let mut council = council(|p| p.strategy = Strategy::BestReasoning);
    let votes = [("deepseek", solution("a")), ("gemini", solution("b")), ("gpt", solution("a"))];
    let id = voted(&mut council, &petition(Summons::Retries(3)), &votes);
    let mut findings = Findings::default();
    findings.scores.insert(model("deepseek"), score(600, 1_000));
    findings.scores.insert(model("gpt"), score(500, 1_000));
    let missing = council.verdict(id, &findings);
    assert_eq!(missing, Ok(undecided(NoVerdict::NotJudged)));
    findings.scores.insert(model("gemini"), score(900, 100));
    let verdict = council.verdict(id, &findings).unwrap();
    assert_eq!(verdict.winner(), Some(&model("gemini")));
    findings.scores.insert(model("gemini"), score(600, 1_000));
    assert_eq!(council.verdict(id, &findings), Ok(undecided(NoVerdict::Tie)));
}

/// A judge that gives 2000 of 1000 points must not decide anything.
#[test]
fn scores_beyond_the_scale_are_refused() {
    let mut council = council(|_| {});
    let votes = [("gemini", solution("a")), ("gpt", solution("a"))];
    let id = voted(&mut council, &petition(Summons::Retries(3)), &votes);
    let mut findings = Findings::default();
    findings.scores.insert(model("gpt"), score(2_000, 0));
    let refused = BadScore { what: "reasoning", value: 2_000 };
    assert_eq!(council.verdict(id, &findings), Err(NotInSession::Score(refused)));
}

/// Councils that never end must not pile up for ever.
#[test]
fn the_number_of_open_councils_is_bounded() {
    let mut council = council(|_| {});
    let petition = petition(by_hand(&[]));
    for _ in 0..limits::COUNCIL_OPEN_MAX {
        open(&mut council, &petition);
    }
    let full = council.convene(&petition, NOW);
    assert_eq!(full, Convening::ToHuman(ToHuman::TooManyOpen));
}

/// What is remembered is bounded: the oldest answer makes room.
#[test]
fn the_oldest_answers_are_forgotten_first() {
    let mut council = council(|_| {});
    let nth = |n: usize, summons| {
        let letters = n.to_string().bytes().map(|digit| char::from(digit + 49)).collect::<String>();
        Petition { key: ProblemKey::new("api", &letters), ..petition(summons) }
    };
    let at = |n: usize| NOW.plus_ms(n as u64);
    for n in 0..=limits::COUNCIL_REMEMBERED_MAX {
        let id = voted(&mut council, &nth(n, by_hand(&[])), &[("gpt", solution("s"))]);
        let (choice, winner) = (solution("s"), model("gpt"));
        let verdict = Verdict::Proposed { choice, winner, by: Strategy::Majority };
        council.decided(id, &verdict, Usd::ZERO, at(n));
        council.resolved(id, Outcome::Success, at(n));
    }
    let is_known = |n| {
        let answer = council.convene(&nth(n, Summons::Retries(3)), NOW);
        matches!(answer, Convening::Known(_))
    };
    assert_eq!([0, 1, limits::COUNCIL_REMEMBERED_MAX].map(is_known), [false, true, true]);
    assert_eq!(council.history().records().count(), limits::COUNCIL_RECORDS_MAX);
}

#[test]
fn the_test_winner_passes_most_tests() {
    let mut council = council(|p| p.strategy = Strategy::TestWinner);
    let votes = [("deepseek", solution("a")), ("gemini", solution("b")), ("gpt", solution("c"))];
    let id = voted(&mut council, &petition(Summons::Retries(3)), &votes);
    let nothing = council.verdict(id, &Findings::default());
    assert_eq!(nothing, Ok(undecided(NoVerdict::NotChecked)));
    let run = vec![passed(solution("a"), 7), passed(solution("b"), 9), failed(solution("c"))];
    let verdict = council.verdict(id, &checks(run)).unwrap();
    let (choice, winner, by) = (solution("b"), model("gemini"), Strategy::TestWinner);
    assert_eq!(verdict, Verdict::Accepted { choice, winner, by });
}

/// The combination is new, so it is never accepted unseen.
#[test]
fn consensus_is_built_from_the_best_parts() {
    let mut council = council(|p| p.strategy = Strategy::ConsensusBuild);
    let votes = [("deepseek", solution("a")), ("gemini", solution("b")), ("gpt", solution("c"))];
    let id = voted(&mut council, &petition(Summons::Retries(3)), &votes);
    let mut findings = checks(vec![passed(solution("a"), 1), failed(solution("c"))]);
    findings.scores.insert(model("gemini"), score(900, 900));
    let verdict = council.verdict(id, &findings).unwrap();
    assert_eq!(verdict, Verdict::Combine { from: vec![model("gemini"), model("deepseek")] });
    findings.checks.push(failed(solution("a")));
    let few = NoVerdict::NoQuorum { agreed: 1, needed: 2 };
    assert_eq!(council.verdict(id, &findings), Ok(undecided(few)));
}

#[test]
fn a_review_is_accepted_by_quorum_and_checks_together() {
    let mut council = council(|_| {});
    let (yes, no) = (Choice::Approve, Choice::Reject);
    let votes = [("deepseek", yes.clone()), ("gemini", yes.clone()), ("gpt", no)];
    let id = voted(&mut council, &review(), &votes);
    let verdict = |findings: &Findings| council.verdict(id, findings).unwrap();
    assert!(matches!(verdict(&checks(vec![passed(yes.clone(), 1)])), Verdict::Accepted { .. }));
    let unchecked = undecided(NoVerdict::NotChecked);
    assert_eq!(verdict(&Findings::default()), unchecked, "CON-03: agreement is not enough");
    let red = verdict(&checks(vec![failed(yes)]));
    assert_eq!(red, Verdict::Rejected { because: Rejection::ChecksFailed });
}

#[test]
fn a_review_can_be_voted_down_or_stay_open() {
    let (yes, no) = (Choice::Approve, Choice::Reject);
    let verdict = |quorum, votes: &[(&str, Choice)]| {
        let mut council = council(|p| p.quorum = quorum);
        let id = voted(&mut council, &review(), votes);
        council.verdict(id, &checks(vec![passed(yes.clone(), 1)])).unwrap()
    };
    let usual = Quorum { agree: 2, of: 3 };
    let down = [("deepseek", no.clone()), ("gemini", no.clone()), ("gpt", yes.clone())];
    let because = Rejection::Votes { against: 2 };
    assert_eq!(verdict(usual, &down), Verdict::Rejected { because });
    let split = [("deepseek", no.clone()), ("gemini", yes.clone())];
    assert_eq!(verdict(usual, &split), undecided(NoVerdict::Tie));
    let strict = Quorum { agree: 3, of: 3 };
    let most = [("deepseek", yes.clone()), ("gemini", yes.clone()), ("gpt", no)];
    let short = undecided(NoVerdict::NoQuorum { agreed: 2, needed: 3 });
    assert_eq!(verdict(strict, &most), short);
}

/// CON-04: seeded defects show who looks and who nods.
#[test]
fn those_who_nod_through_planted_defects_are_no_longer_asked() {
    let mut council = council(|_| {});
    for _ in 0..4 {
        let id = open(&mut council, &drill("src/planted.rs"));
        let mut keen = vote("gemini", Choice::Reject);
        let says = "off by one".to_owned();
        keen.evidence = vec![Evidence::Lines { path: "src/planted.rs".into(), line: 3, says }];
        cast(&mut council, id, keen);
        cast(&mut council, id, vote("gpt", Choice::Approve));
        cast(&mut council, id, vote("deepseek", Choice::Reject));
        council.closed(id, None);
        let verdict = council.verdict(id, &Findings::default()).unwrap();
        let (caught, missed) = (vec![model("gemini")], vec![model("deepseek"), model("gpt")]);
        assert_eq!(verdict, Verdict::Drill { caught, missed }, "a lucky no is not a find");
        council.decided(id, &verdict, Usd::ZERO, NOW);
    }
    let lazy = |name| council.history().is_lazy(&model(name), &council.policy().lazy);
    assert_eq!(["gemini", "gpt", "deepseek"].map(lazy), [false, true, true]);
    let few = ToHuman::TooFewMembers { members: 1, needed: 2 };
    assert_eq!(council.convene(&review(), NOW), Convening::ToHuman(few));
}

#[test]
fn those_who_vote_without_evidence_are_lazy_too() {
    let mut council = council(|_| {});
    for n in 0..4 {
        let id = open(&mut council, &petition(by_hand(&[])));
        if n > 0 {
            let fault = InvalidVote::NoEvidence;
            council.vote_dropped(id, &model("gpt"), Dropped::Invalid { fault }, Usd::ZERO);
        }
        council.closed(id, None);
        council.decided(id, &undecided(NoVerdict::Tie), Usd::ZERO, NOW);
    }
    let lazy = |name| council.history().is_lazy(&model(name), &council.policy().lazy);
    assert_eq!(["gpt", "gemini"].map(lazy), [true, false]);
}

#[test]
fn every_twentieth_review_is_a_drill() {
    let mut council = council(|_| {});
    let due: Vec<u32> = (1..=60)
        .filter(|_| {
            let due = council.is_drill_due();
            let petition = if due { drill("a") } else { review() };
            let id = open(&mut council, &petition);
            council.abandoned(id);
            due
        })
        .collect();
    assert_eq!(due, [20, 40, 60]);
}

/// CON-18: a problem that was solved costs nothing the next time, until the answer fails.
#[test]
fn a_solved_problem_is_remembered_until_it_fails_or_ages() {
    let mut council = council(|_| {});
    let votes = [("gemini", solution("wait")), ("gpt", solution("wait"))];
    history(&mut council, &votes, Outcome::Success);
    let automatic = petition(Summons::Retries(3));
    let known = |council: &Council, now| match council.convene(&automatic, now) {
        Convening::Known(known) => Some(known.solution),
        _ => None,
    };
    assert_eq!(known(&council, NOW), Some("wait".into()));
    assert_eq!(known(&council, NOW.plus_ms(30 * 24 * 3_600_000)), None);
    let hand = council.convene(&petition(by_hand(&[])), NOW);
    assert!(matches!(hand, Convening::Convene(_)), "who asks by hand wants to hear them");
    let mut failed = council.clone();
    history(&mut failed, &votes, Outcome::Failure);
    assert_eq!(known(&failed, NOW), None);
    council.forgotten(&automatic.key);
    assert_eq!(known(&council, NOW), None);
}

/// CON-13, CON-17: the log, under the names of the sources.
#[test]
fn each_council_is_logged_with_its_outcome() {
    let mut council = council(|_| {});
    let votes = [("gemini", solution("wait")), ("gpt", solution("wait"))];
    let id = voted(&mut council, &petition(Summons::Retries(3)), &votes);
    let verdict = council.verdict(id, &Findings::default()).unwrap();
    council.decided(id, &verdict, Usd::cents(12), DEADLINE);
    assert_eq!(council.verdict(id, &Findings::default()), Err(NotInSession::Decided(id)));
    assert_eq!(council.history().records().count(), 0, "its outcome is not known yet");
    council.resolved(id, Outcome::Success, DEADLINE);
    let record = serde_json::to_value(council.history().records().next().unwrap()).unwrap();
    let expected = serde_json::json!({
        "problem_id": "2-5-error-3",
        "problem_type": "api",
        "models_queried": ["gemini", "deepseek", "gpt"],
        "winner": "gemini",
        "winner_reason": "most agreed on the answer of gemini; it has to pass its checks yet",
        "applied": true,
        "outcome": "success",
        "question": "problem",
        "cost": 120_000,
        "convened_at": NOW.0,
        "decided_at": DEADLINE.0,
    });
    assert_eq!(record, expected);
    assert_eq!(council.open_count(), 0);
}

/// CON-19, T-12: 13 of 15 is 87 %; five wins before four and four.
#[test]
fn the_panel_shows_the_agreed_numbers() {
    let mut council = council(|_| {});
    let winners = [
        "gemini", "gemini", "gemini", "gemini", "gemini", "gpt", "gpt", "gpt", "gpt", "deepseek",
        "deepseek", "deepseek", "deepseek",
    ];
    for winner in winners {
        let other = if winner == "gpt" { "gemini" } else { "gpt" };
        let votes = [(winner, solution("s")), (other, solution("s"))];
        history(&mut council, &votes, Outcome::Success);
    }
    for _ in 0..2 {
        let id = voted(&mut council, &petition(by_hand(&[])), &[]);
        let verdict = council.verdict(id, &Findings::default()).unwrap();
        council.decided(id, &verdict, Usd::cents(3), NOW);
    }
    let metrics = council.metrics(NOW);
    assert_eq!(metrics.to_string(), "Success rate: 87% (13/15)");
    let ranking: Vec<_> = metrics.ranking().into_iter().map(|(m, wins)| (&**m, wins)).collect();
    assert_eq!(ranking, [("gemini", 5), ("deepseek", 4), ("gpt", 4)]);
    assert_eq!(metrics.cost_per_solution(), Some(Usd::cents(12)));
    assert_eq!(metrics.cost, Usd::cents(13 * 12 + 2 * 3));
    assert_eq!(metrics.minutes_saved, 13 * 30);
    assert_eq!(council.metrics(DEADLINE).success_percent(), None);
}

/// A verdict about votes that are still sealed, or a second one, changes nothing.
#[test]
fn facts_out_of_place_change_nothing() {
    let mut council = council(|_| {});
    let id = open(&mut council, &petition(Summons::Retries(3)));
    let before = council.clone();
    council.decided(id, &undecided(NoVerdict::Tie), Usd::cents(1), NOW);
    council.resolved(id, Outcome::Success, NOW);
    council.vote_cast(id, vote("stranger", solution("a")), Usd::ZERO);
    council.closed(CouncilId(99), None);
    council.abandoned(CouncilId(99));
    assert_eq!(council, before);
}

#[derive(Debug, Clone)]
struct Hearing {
    strategy: Strategy,
    agree: u32,
    is_review: bool,
    /// By member: the number of its choice.
    votes: Vec<u8>,
    /// By choice.
    standings: Vec<CheckStanding>,
    scores: Vec<Option<(u32, u32)>>,
}

fn hearing() -> impl proptest::strategy::Strategy<Value = Hearing> {
    let standing = prop_oneof![
        Just(CheckStanding::NotRun),
        (0u32..20).prop_map(|tests| CheckStanding::Passed { tests }),
        Just(CheckStanding::Failed),
    ];
    (
        prop::sample::select(Strategy::ALL.to_vec()),
        2u32..4,
        any::<bool>(),
        prop::collection::vec(0u8..3, 0..=5),
        prop::collection::vec(standing, 3),
        prop::collection::vec(prop::option::weighted(0.9, (0u32..4, 0u32..4)), 5),
    )
        .prop_map(|(strategy, agree, is_review, votes, standings, scores)| Hearing {
            strategy,
            agree,
            is_review,
            votes,
            standings,
            scores,
        })
}

const FIVE: [&str; 5] = ["deepseek", "gemini", "gpt", "qwen", "mistral"];

fn choice(hearing: &Hearing, number: u8) -> Choice {
    match number {
        _ if !hearing.is_review => solution(&number.to_string()),
        0 => Choice::Reject,
        _ => Choice::Approve,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    /// No strategy, no majority and no judge lets anything through whose checks failed; and
    /// nothing is accepted that was not checked, nor approved by fewer than the quorum.
    #[test]
    fn a_majority_never_overrides_a_failing_check(hearing in hearing()) {
        let mut council = council(|p| {
            p.models = FIVE.iter().map(|name| Member::new(name, name)).collect();
            (p.size, p.strategy) = (Size::Full, hearing.strategy);
            p.quorum = Quorum { agree: hearing.agree, of: 5 };
        });
        let mut petition = if hearing.is_review { review() } else { petition(Summons::Retries(3)) };
        petition.available = FIVE.map(model).into();
        let votes: Vec<_> =
            FIVE.into_iter().zip(hearing.votes.iter().map(|n| choice(&hearing, *n))).collect();
        let id = voted(&mut council, &petition, &votes);
        let numbers = 0..3u8;
        let checks = numbers.zip(&hearing.standings).map(|(number, standing)| Checked {
            choice: choice(&hearing, number), standing: *standing,
        });
        let scored = FIVE.into_iter().zip(&hearing.scores);
        let scores = scored.filter_map(|(name, s)| s.map(|(r, c)| (model(name), score(r, c))));
        let findings = Findings { checks: checks.collect(), scores: scores.collect() };
        let verdict = council.verdict(id, &findings).unwrap();

        let said = |choice: &Choice| -> Vec<CheckStanding> {
            let about = findings.checks.iter().filter(|checked| checked.choice == *choice);
            about.map(|checked| checked.standing).collect()
        };
        let has_failed = |choice: &Choice| said(choice).contains(&CheckStanding::Failed);
        let backers = |choice: &Choice| votes.iter().filter(|(_, c)| c == choice).count();
        match &verdict {
            Verdict::Accepted { choice, winner, .. } => {
                prop_assert!(!has_failed(choice), "{verdict:?}");
                let passed = |s: &CheckStanding| matches!(s, CheckStanding::Passed { .. });
                prop_assert!(said(choice).iter().any(passed), "nobody checked it");
                prop_assert!(votes.contains(&(&*winner.0, choice.clone())));
                if hearing.is_review {
                    prop_assert!(backers(choice) >= hearing.agree as usize);
                }
            }
            Verdict::Proposed { choice, .. } => {
                prop_assert!(!has_failed(choice) && !hearing.is_review, "{verdict:?}");
            }
            Verdict::Combine { from } => {
                let failing = votes.iter().filter(|(_, choice)| has_failed(choice));
                let failing: BTreeSet<_> = failing.map(|(name, _)| model(name)).collect();
                prop_assert!(from.iter().all(|model| !failing.contains(model)));
                prop_assert!(from.len() >= hearing.agree as usize);
            }
            Verdict::Rejected { .. } => prop_assert!(hearing.is_review),
            Verdict::Undecided { .. } => {}
            Verdict::Drill { .. } => prop_assert!(false),
        }
        if hearing.is_review && has_failed(&Choice::Approve) {
            let because = Rejection::ChecksFailed;
            prop_assert_eq!(verdict, Verdict::Rejected { because });
        }
    }
}
