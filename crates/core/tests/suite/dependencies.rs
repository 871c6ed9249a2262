//! The gate of dependencies (QUE-07), through the engine, on any graph: nobody starts before all it
//! needs is merged, and nobody waits once it is.

use std::collections::BTreeMap;

use kapelle_core::failure::FailureKind;
use kapelle_core::policy::Policy;
use kapelle_core::status::Status;
use kapelle_core::task::Stage;
use kapelle_core::{Command, Event, Role, why};
use proptest::prelude::*;

use crate::fixture::{M1, World, failed, open, task};

/// More seats than tasks, so that nothing but the graph holds anybody back.
fn world(needs: &[Vec<usize>]) -> World {
    let mut world = World::empty();
    let seats = BTreeMap::from([(Role::Developer, 30)]);
    world.must(Command::ConfigureTeam { seats, workers_max: 30, by: crate::fixture::ann() });
    let names: Vec<String> = (0..needs.len()).map(|n| format!("t{n}")).collect();
    let plan = needs.iter().enumerate().map(|(n, needs)| {
        let needs: Vec<&str> = needs.iter().map(|need| names[*need].as_str()).collect();
        task(&names[n], &needs)
    });
    world.must(open(plan.collect(), Policy::default()));
    world.chores();
    world.online();
    world
}

/// Who waits although all it needs is merged, or works although something is not.
fn misplaced(world: &World) -> Vec<String> {
    let merged = |id| world.state().task(id).is_some_and(|need| need.merged.is_some());
    let wrong = world.state().tasks().filter(|task| {
        let free = task.dependencies.iter().all(|need| merged(*need));
        match task.stage {
            Stage::Waiting | Stage::Ready => free,
            Stage::Working { .. } => !free,
            _ => false,
        }
    });
    wrong.map(|task| format!("{}: {:?}", task.name(), why(world.state(), task))).collect()
}

fn graphs() -> impl Strategy<Value = Vec<Vec<usize>>> {
    let any =
        prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..4), 1..20);
    any.prop_map(|picks| {
        let needs = |(n, picks): (usize, Vec<prop::sample::Index>)| {
            let mut needs: Vec<usize> =
                picks.iter().filter(|_| n > 0).map(|p| p.index(n)).collect();
            needs.sort_unstable();
            needs.dedup();
            needs
        };
        picks.into_iter().enumerate().map(needs).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn whoever_has_all_it_needs_works_and_nobody_else(
        needs in graphs(),
        turns in prop::collection::vec(any::<prop::sample::Index>(), 20),
    ) {
        let mut world = world(&needs);
        for turn in turns {
            prop_assert_eq!(misplaced(&world), Vec::<String>::new());
            let working: Vec<String> = world.working().into_iter().collect();
            if working.is_empty() {
                break;
            }
            world.succeed(&working[turn.index(working.len())]);
            world.online();
        }
        let done = |n: usize| world.status(&format!("t{n}")) == Status::Completed;
        prop_assert!((0..needs.len()).all(done), "{:?}", world.working());
    }

    /// QUE-10: who gives up for good blocks all that need it, however far behind, and nobody else.
    #[test]
    fn a_death_blocks_exactly_what_needs_it(
        needs in graphs(),
        dies in any::<prop::sample::Index>(),
    ) {
        let mut world = world(&needs);
        let dies = dies.index(needs.len());
        while let Some(name) = world.working().into_iter().next() {
            if name == format!("t{dies}") {
                let events = world.finish(&name, failed(FailureKind::Auth));
                let dead = events.iter().any(|e| matches!(e, Event::TaskDeadLettered { .. }));
                prop_assert!(dead, "{:?}", events);
            } else {
                world.succeed(&name);
            }
            world.online();
            // Enough dead tasks pause a mission; a person lets it go on.
            if world.state().mission(M1).unwrap().paused.is_some() {
                let by = crate::fixture::ann();
                world.must(Command::ResumeMission { mission: M1, by });
            }
        }
        let mut lost = vec![false; needs.len()];
        lost[dies] = true;
        for n in 0..needs.len() {
            lost[n] |= needs[n].iter().any(|need| lost[*need]);
        }
        for (n, lost) in lost.into_iter().enumerate() {
            let expected = match (lost, n == dies) {
                (_, true) => Status::DeadLetter,
                (true, false) => Status::Blocked,
                (false, false) => Status::Completed,
            };
            prop_assert_eq!(world.status(&format!("t{n}")), expected, "t{}", n);
        }
    }
}
