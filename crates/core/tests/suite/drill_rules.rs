//! Drills that Kapelle calls (CON-04): a defect is planted beside a review, and nobody can tell.

use kapelle_core::council::{
    Choice, CouncilId, CouncilPolicy, Defect, Evidence, Planted, Question, Switch, Verdict, visible,
};
use kapelle_core::policy::Policy;
use kapelle_core::settings::Settings;
use kapelle_core::task::Stage;
use kapelle_core::{Command, Event, Usd, activity};

use crate::council_rules::{by_hand, cast, rule, settings, verdict};
use crate::fixture::{World, check, checked, commit, done, open, task};

const REVIEW: CouncilId = CouncilId(1);
const DRILL: CouncilId = CouncilId(2);
const FILE: &str = "src/planted.rs";
const TEXT: &str = "while i <= n";

/// Every second review is a drill, with one defect to plant.
fn drills(policy: &mut CouncilPolicy) {
    policy.lazy.drill_every = 2;
    policy.defects = vec![Defect { file: FILE.into(), text: TEXT.into() }];
}

/// A world whose first task waits in the merge queue with its change.
fn queued(settings: Settings, policy: Policy) -> World {
    let mut world = World::empty();
    rule(&mut world, settings);
    world.must(open(vec![task("1", &[])], policy));
    world.chores();
    world.finish("1", done(100, &["a"]));
    let fence = world.fence_of("1");
    world.must(Command::FinishChecks { fence, results: check(true) });
    world
}

fn review(world: &mut World) -> Vec<Event> {
    let command = by_hand(world, Question::Review { commit: commit(100) }, &[]);
    world.must(command)
}

/// The councils that were called, with what each was asked.
fn called(events: &[Event]) -> Vec<(CouncilId, Question)> {
    let called = events.iter().filter_map(|event| match event {
        Event::CouncilConvened { council, convocation, .. } => {
            Some((*council, convocation.question.clone()))
        }
        _ => None,
    });
    called.collect()
}

fn planted() -> Question {
    let within = Planted { commit: commit(100), text: TEXT.into() };
    Question::Drill { planted: FILE.into(), within: Some(Box::new(within)) }
}

/// Looks at the file, and rejects what stands there.
fn keen(council: CouncilId, by: &str) -> Command {
    let Command::CastVote { vote, spent, .. } = cast(council, by, Choice::Reject) else { panic!() };
    let mut vote = *vote;
    vote.evidence =
        vec![Evidence::Lines { path: FILE.into(), line: 3, says: "one too far".into() }];
    Command::CastVote { council, vote: Box::new(vote), spent }
}

/// One review in two has a drill of the same members beside it, of one price and one time.
#[test]
fn a_drill_that_is_due_is_called_beside_the_review() {
    let mut world = queued(settings(drills), checked());
    let events = review(&mut world);
    let asked = Question::Review { commit: commit(100) };
    assert_eq!(called(&events), [(REVIEW, asked), (DRILL, planted())]);
    let sessions = [REVIEW, DRILL].map(|id| world.state().council().session(id).unwrap().clone());
    let alike = |session: &kapelle_core::council::Session| {
        let called = session.convocation.clone();
        (called.panel, called.judge, called.rules, called.deadline, called.reserved)
    };
    assert_eq!(alike(&sessions[0]), alike(&sessions[1]));
    assert_eq!(world.task("1").stage, Stage::Review { council: REVIEW }, "a drill holds nothing");
}

/// Without defects to plant, by hand only, and between its turns, no drill is called.
#[test]
fn no_drill_is_called_when_none_is_due() {
    let alone: [fn(&mut CouncilPolicy); 3] = [
        |policy| (policy.lazy.drill_every, policy.defects) = (1, Vec::new()),
        |policy| policy.enabled = Switch::ByHand,
        |policy| policy.lazy.drill_every = 3,
    ];
    for change in alone {
        let rules = settings(|policy| {
            drills(policy);
            change(policy);
        });
        let mut world = queued(rules, checked());
        assert_eq!(called(&review(&mut world)).len(), 1);
    }
}

/// The members of a drill are paid out of what councils may spend; what does not fit is left out,
/// and the review goes on.
#[test]
fn a_drill_that_does_not_fit_the_budget_of_councils_is_left_out() {
    for (cents, councils) in [(30, 2), (29, 1)] {
        let mut rules = settings(drills);
        rules.money.caps.council_day_usd_max = Some(Usd::cents(cents));
        let mut world = queued(rules, checked());
        assert_eq!(called(&review(&mut world)).len(), councils, "with {cents} cents");
    }
}

/// Nothing that is shown to anybody tells a drill from a review before its votes are open.
#[test]
fn a_drill_looks_like_a_review_until_it_closes() {
    let mut world = queued(settings(drills), checked());
    let events = review(&mut world);
    let shown = |world: &World| -> Vec<(CouncilId, Question)> {
        let events: Vec<Event> =
            events.iter().map(|event| visible(world.state(), event).into_owned()).collect();
        called(&events)
    };
    let asked = Question::Review { commit: commit(100) };
    assert_eq!(shown(&world), [(REVIEW, asked.clone()), (DRILL, asked.clone())]);
    let session = world.state().council().session(DRILL).unwrap();
    assert!(!format!("{session:?}").contains(FILE), "{session:?}");
    let lines: Vec<_> = events.iter().filter_map(|e| activity::line(world.state(), e)).collect();
    assert_eq!(lines[0].text, lines[1].text);
    let brief = world.state().council_brief(DRILL, "fn main() {}").unwrap();
    assert_eq!(brief.code, format!("{FILE}\n{TEXT}\nfn main() {{}}"), "its members do read it");
    let members = ["deepseek", "gemini", "gpt"];
    world.together(members.map(|by| cast(DRILL, by, Choice::Approve)).to_vec());
    assert_eq!(shown(&world), [(REVIEW, asked), (DRILL, planted())]);
}

/// Who nods the defect through was wrong: its next vote weighs less than that of who found it.
#[test]
fn members_that_miss_a_planted_defect_lose_weight() {
    let mut world = queued(settings(drills), checked());
    review(&mut world);
    let lazy = |by| cast(DRILL, by, Choice::Approve);
    let events = world.together(vec![keen(DRILL, "gemini"), lazy("deepseek"), lazy("gpt")]);
    let (caught, missed) = (vec!["gemini".into()], vec!["deepseek".into(), "gpt".into()]);
    assert_eq!(verdict(&events), Some(&Verdict::Drill { caught, missed }));
    let history = world.state().council().history();
    let trust = ["gemini", "deepseek", "gpt"].map(|name| history.trust_permille(&name.into()));
    assert_eq!(trust, [666, 333, 333]);
    let record = history.model(&"gpt".into());
    assert_eq!((record.drills, record.caught), (1, 0));
    assert_eq!(world.task("1").stage, Stage::Review { council: REVIEW }, "it decides nothing");
}
