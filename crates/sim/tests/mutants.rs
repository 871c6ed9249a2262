//! The simulator finds bugs: each planted one breaks a seed, and the sound rules break none.

use kapelle_sim::{Mutant, hunt, run};

/// Every planted bug must show within as many seeds as CI runs; most do within a hundred.
const SEEDS: u64 = 10_000;

#[test]
fn the_sound_rules_break_no_seed() {
    // The first of many: all of them are run by `cargo xtask sim`.
    for seed in 1..=1_000 {
        if let Err(broken) = run(seed) {
            panic!("{broken}");
        }
    }
}

#[test]
fn every_planted_bug_is_found() {
    let found = hunt(SEEDS, 1);
    let hidden: Vec<_> = found.iter().filter(|(_, broken)| broken.is_none()).collect();
    assert_eq!(found.len(), Mutant::ALL.len());
    assert!(hidden.is_empty(), "not found within {SEEDS} seeds: {hidden:?}");
}
