//! Many seeds on all cores.

use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::mutants::{Mutant, Planted};
use crate::run::{Broken, Stats, run, run_with};

/// Failing seeds that are kept; a bug that breaks more is found as well with these.
const BROKEN_KEPT_MAX: usize = 8;

#[derive(Debug, Default)]
pub struct Sweep {
    pub stats: Stats,
    pub failures: u64,
    /// The first failing seeds.
    pub broken: Vec<Box<Broken>>,
}

/// Runs all seeds of a range. `progress` hears now and then how many are done.
pub fn sweep(
    seeds: RangeInclusive<u64>,
    threads: usize,
    progress: impl Fn(u64, u64) + Sync,
) -> Sweep {
    let next = AtomicU64::new(*seeds.start());
    let (done, failures) = (AtomicU64::new(0), AtomicU64::new(0));
    let total = Mutex::new(Sweep::default());
    let worker = || {
        let mut mine = Sweep::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > *seeds.end() {
                break;
            }
            match run(seed) {
                Ok(stats) => mine.stats += stats,
                Err(broken) => {
                    mine.failures += 1;
                    failures.fetch_add(1, Ordering::Relaxed);
                    if mine.broken.len() < BROKEN_KEPT_MAX {
                        mine.broken.push(broken);
                    }
                }
            }
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, failures.load(Ordering::Relaxed));
        }
        let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        total.stats += mine.stats;
        total.failures += mine.failures;
        total.broken.append(&mut mine.broken);
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(worker);
        }
    });
    let mut total = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    total.broken.sort_by_key(|broken| broken.seed);
    total.broken.truncate(BROKEN_KEPT_MAX);
    total
}

/// The first seed that each planted bug breaks, within so many; None for one that hides.
pub fn hunt(seeds_max: u64, threads: usize) -> Vec<(Mutant, Option<Box<Broken>>)> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let worker = || {
        while let Some(&mutant) = Mutant::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut seeds = 1..=seeds_max;
            let broken = seeds.find_map(|seed| run_with(seed, Planted::new(mutant)).err());
            let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            found.push((mutant, broken));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(worker);
        }
    });
    let mut found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let place = |mutant: &Mutant| Mutant::ALL.iter().position(|other| other == mutant);
    found.sort_by_key(|(mutant, _)| place(mutant));
    found
}
