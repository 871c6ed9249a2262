//! Work that nobody of the team may do: a person is told, and `why` says so.

use std::collections::BTreeMap;

use kapelle_core::event::PauseReason;
use kapelle_core::plan::PlannedTask;
use kapelle_core::policy::Policy;
use kapelle_core::queue::Territories;
use kapelle_core::settings::Settings;
use kapelle_core::{AgentId, Command, Engine, Event, Role, Timestamp, why};

use crate::fixture::{M1, World, ann, commit, open, task, test_first};

const NOW: Timestamp = Timestamp(1_000_000);

fn team(developers: u32, testers: u32) -> Command {
    let seats = BTreeMap::from([(Role::Developer, developers), (Role::Tester, testers)]);
    Command::ConfigureTeam { seats, workers_max: 4, by: ann() }
}

/// The first developer is at home in `web/`, the second in `backend/`.
fn at_home() -> Command {
    let own = |seat, path: &str| (AgentId { role: Role::Developer, seat }, vec![path.to_owned()]);
    let of = BTreeMap::from([own(1, "web/"), own(2, "backend/")]);
    let territories = Territories::new(of).unwrap();
    let settings = Box::new(Settings { territories, ..Settings::default() });
    Command::ChangeSettings { settings, by: ann() }
}

fn touching(id: &str, files: &[&str]) -> PlannedTask {
    PlannedTask { files: files.iter().map(ToString::to_string).collect(), ..task(id, &[]) }
}

fn why_of(world: &World, name: &str) -> String {
    why(world.state(), world.task(name)).unwrap_or_default()
}

fn resume() -> Command {
    Command::ResumeMission { mission: M1, by: ann() }
}

fn notified(world: &World) -> usize {
    let told = |event: &Event| matches!(event, Event::PersonNotified { .. });
    world.journal.iter().filter(|record| told(&record.event)).count()
}

/// Waiting does not help, and nothing runs that could: nobody would ever look.
#[test]
fn work_for_a_role_without_a_seat_is_paused_and_told() {
    let mut world = World::empty();
    world.must(team(1, 0));
    world.must(open(vec![task("1", &[])], test_first()));
    world.chores();
    assert_eq!(why_of(&world, "1"), "m1 is paused: the team has no tester");
    world.wait(60_000);
    assert_eq!(notified(&world), 1);
    world.must(resume());
    assert_eq!(why_of(&world, "1"), "m1 is paused: the team has no tester", "it still has none");
    world.must(team(1, 1));
    world.must(resume());
    assert_eq!(world.working(), ["1".to_owned()].into());
}

/// A project whose team was never configured has nobody, and no worker who could become free.
#[test]
fn work_without_any_team_is_paused_and_told() {
    let mut engine = Engine::recover([]);
    let opened = engine.handle(vec![((), open(vec![task("1", &[])], Policy::default()))], NOW);
    let actions = engine.committed(opened);
    let (fence, _) = actions.start[0].clone();
    let prepared = vec![((), Command::FinishBranch { fence, tip: commit(1) })];
    let batch = engine.handle(prepared, NOW);
    let reason = PauseReason::NoSeat { role: Role::Developer };
    let paused =
        |event: &Event| matches!(event, Event::MissionPaused { reason: r, .. } if *r == reason);
    assert!(batch.records.iter().any(|record| paused(&record.event)), "{:?}", batch.records);
}

/// What can be done is done first; then a person hears of the rest.
#[test]
fn work_in_nobodys_territory_is_paused_and_told() {
    let tasks = vec![touching("back", &["backend/a"]), touching("both", &["web/a", "backend/b"])];
    let mut world = World::empty();
    world.must(at_home());
    world.must(open(tasks, Policy::default()));
    world.chores();
    assert_eq!(world.working(), ["back".to_owned()].into());
    let outside = "waits: its files lie outside of the territory of every developer";
    assert_eq!(why_of(&world, "both"), outside);
    world.finish("back", crate::fixture::done(7, &["backend/a"]));
    world.chores();
    let paused = "m1 is paused: there is work outside of the territory of every developer";
    assert_eq!(why_of(&world, "both"), paused);
    let settings = Box::new(Settings::default());
    world.must(Command::ChangeSettings { settings, by: ann() });
    world.must(resume());
    assert_eq!(world.working(), ["both".to_owned()].into());
}

/// The third developer could have done it, and has left.
#[test]
fn whoever_has_left_may_do_nothing() {
    let tasks = vec![
        touching("web", &["web/a"]),
        touching("other", &["docs/a"]),
        touching("both", &["web/b", "backend/b"]),
    ];
    let mut world = World::empty();
    world.must(team(3, 0));
    world.must(at_home());
    world.must(open(tasks, Policy::default()));
    world.chores();
    assert_eq!(world.working(), ["other".to_owned(), "web".to_owned()].into());
    assert_eq!(why_of(&world, "both"), "waits for a free developer");
    world.must(team(2, 0));
    world.finish("other", crate::fixture::done(7, &["docs/a"]));
    world.chores();
    let outside = "waits: its files lie outside of the territory of every developer";
    assert_eq!(why_of(&world, "both"), outside);
}
