//! Sub-agents through the engine: paid by their attempt, never past what it has left.

use kapelle_core::command::{AttemptOutcome, Spending};
use kapelle_core::event::PauseReason;
use kapelle_core::ledger::{self, ReservationId, Scope};
use kapelle_core::policy::{Budget, Policy};
use kapelle_core::{Command, Event, Fence, Refusal, Usd};

use crate::fixture::{M1, World, ann, done, task};

/// An attempt at one task with five dollars.
fn world() -> (World, Fence) {
    let budget = Budget { mission_usd_max: Usd::cents(2_000), attempt_usd_max: Usd::cents(500) };
    let mut world = World::with(vec![task("1", &[])], Policy { budget, ..Policy::default() });
    world.chores();
    let fence = world.fence_of("1");
    (world, fence)
}

fn start(fence: Fence, of: Option<ReservationId>, cents: Option<u64>) -> Command {
    Command::OpenSubAgent { fence, of, usd_max: cents.map(Usd::cents) }
}

fn end(fence: Fence, sub_agent: ReservationId, cents: u64) -> Command {
    let spent = Spending { usd: Usd::cents(cents), ..Spending::default() };
    Command::CloseSubAgent { fence, sub_agent, spent }
}

fn finish(fence: Fence, cents: u64) -> Command {
    let spent = Spending { usd: Usd::cents(cents), ..Spending::default() };
    Command::FinishAttempt { fence, outcome: done(100, &["a"]), spent }
}

fn opened(events: &[Event]) -> ReservationId {
    let id = events.iter().find_map(|event| match event {
        Event::SubAgentOpened { sub_agent, .. } => Some(*sub_agent),
        _ => None,
    });
    id.unwrap()
}

/// Spent and reserved of the mission, in cents.
fn purse(world: &World) -> (u64, u64) {
    let purse = world.state().ledger().purse(Scope::Mission(M1));
    (purse.spent.as_micros() / 10_000, purse.reserved.as_micros() / 10_000)
}

fn overspent(events: &[Event]) -> bool {
    let pauses = |event: &Event| {
        matches!(event, Event::MissionPaused { reason: PauseReason::Overspent { .. }, .. })
    };
    events.iter().any(pauses)
}

/// What a sub-agent spends is its attempt's: no cap sees more than was reserved for that.
#[test]
fn a_sub_agent_is_paid_out_of_its_attempt() {
    let (mut world, fence) = world();
    assert_eq!(purse(&world), (0, 500));
    let child = opened(&world.must(start(fence, None, Some(200))));
    assert_eq!(purse(&world), (0, 500), "money moves within the attempt");
    world.must(end(fence, child, 150));
    assert_eq!(purse(&world), (150, 350));
    let events = world.must(finish(fence, 350));
    assert!(!overspent(&events), "what the sub-agent left is the attempt's again");
    assert_eq!(purse(&world), (500, 0));
    assert_eq!(world.task("1").spent, Usd::cents(500));
}

/// Without a sum of its own it inherits the remainder, and that is never more than there is.
#[test]
fn sub_agents_inherit_the_remainder_and_no_more() {
    let (mut world, fence) = world();
    let first = opened(&world.must(start(fence, None, Some(200))));
    let second = opened(&world.must(start(fence, None, None)));
    let left = |cents: u64| Usd::cents(cents);
    assert_eq!(world.state().sub_agents(fence), [(first, left(200)), (second, left(300))]);
    let parent = world.state().ledger().reservation(first).unwrap().parent.unwrap();
    let over = |asked| ledger::Refusal::OverParent { parent, left: Usd::ZERO, asked };
    let refused = |usd| Err(Refusal::Money(over(usd)));
    assert_eq!(world.send(start(fence, None, Some(1))), refused(Usd::cents(1)));
    assert_eq!(world.send(start(fence, None, None)), refused(Usd::micros(1)));
    world.must(end(fence, second, 0));
    assert!(world.send(start(fence, None, Some(300))).is_ok());
}

/// RUN-16: those of sub-agents live on what that one has, and there it ends.
#[test]
fn sub_agents_of_sub_agents_share_its_part_and_have_none_themselves() {
    let (mut world, fence) = world();
    let child = opened(&world.must(start(fence, None, Some(200))));
    let grandchild = opened(&world.must(start(fence, Some(child), None)));
    assert_eq!(world.state().sub_agents(fence)[0], (child, Usd::ZERO));
    assert!(matches!(
        world.send(start(fence, Some(grandchild), Some(1))),
        Err(Refusal::Money(ledger::Refusal::TooDeep { .. }))
    ));
    world.must(end(fence, grandchild, 120));
    assert_eq!(world.state().sub_agents(fence), [(child, Usd::cents(80))]);
    world.must(end(fence, child, 80));
    assert_eq!(purse(&world), (200, 300));
}

/// Whoever does not end its sub-agents ends them all the same, and has their money for its bill.
#[test]
fn all_sub_agents_end_with_their_attempt() {
    let (mut world, fence) = world();
    let child = opened(&world.must(start(fence, None, Some(400))));
    world.must(start(fence, Some(child), Some(100)));
    let events = world.must(finish(fence, 500));
    assert!(!overspent(&events));
    assert_eq!(purse(&world), (500, 0));
    assert_eq!(world.send(end(fence, child, 1)), Err(Refusal::StaleFence { presented: fence }));
    assert_eq!(world.state().ledger().open_count(), 0);
}

/// An attempt that is cut short keeps all of it until its bill comes.
#[test]
fn the_bill_of_an_interrupted_attempt_covers_its_sub_agents() {
    let (mut world, fence) = world();
    let child = opened(&world.must(start(fence, None, Some(200))));
    world.must(end(fence, child, 50));
    world.must(start(fence, None, Some(200)));
    world.must(Command::PauseMission { mission: M1, reason: "lunch".into(), by: ann() });
    assert_eq!(purse(&world), (50, 450));
    let spent = Spending { usd: Usd::cents(450), ..Spending::default() };
    world.must(Command::ReportSpending { fence, spent });
    assert_eq!(purse(&world), (500, 0));
}

/// Spending past what is left stops the mission at once, whoever of the attempt does it.
#[test]
fn a_sub_agent_that_overspends_pauses_its_mission() {
    let (mut world, fence) = world();
    let child = opened(&world.must(start(fence, None, Some(200))));
    world.must(start(fence, None, Some(250)));
    let events = world.must(end(fence, child, 251));
    assert!(overspent(&events), "200 of its own and 50 of the attempt are all that is for it");
    assert!(world.running.is_empty());
    assert_eq!(world.state().ledger().purse(Scope::Mission(M1)).excess, Usd::cents(1));
}

/// What the attempt itself spends counts beside what its sub-agents have spent.
#[test]
fn an_attempt_overspends_together_with_its_sub_agents() {
    let (mut world, fence) = world();
    let child = opened(&world.must(start(fence, None, Some(200))));
    world.must(end(fence, child, 200));
    assert!(overspent(&world.must(finish(fence, 301))));
}

#[test]
fn a_sub_agent_belongs_to_one_attempt_that_runs() {
    let (mut world, fence) = world();
    let (nobody, other) = (Fence(9_999), ReservationId(77));
    assert_eq!(
        world.send(start(nobody, None, Some(1))),
        Err(Refusal::StaleFence { presented: nobody })
    );
    let unknown = Err(Refusal::NoSubAgent { fence, sub_agent: other });
    assert_eq!(world.send(end(fence, other, 1)), unknown);
    assert_eq!(world.send(start(fence, Some(other), Some(1))), unknown);
}

/// Nothing starts while spending is stopped, sub-agents neither.
#[test]
fn no_sub_agent_starts_while_the_watchdog_holds() {
    let (mut world, fence) = world();
    let child = opened(&world.must(start(fence, None, Some(200))));
    world.must(end(fence, child, 200));
    assert!(matches!(
        world.send(start(fence, None, Some(1))),
        Err(Refusal::Money(ledger::Refusal::Halted { .. }))
    ));
    let outcome = AttemptOutcome::Done { change: None, touched: Vec::new().into() };
    let spent = Spending::default();
    assert!(world.send(Command::FinishAttempt { fence, outcome, spent }).is_ok());
}
