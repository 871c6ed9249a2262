//! One seed: a hostile phase, a calm phase, and the verdict.

use kapelle_core::Record;
use kapelle_core::engine::{Rules, SoundRules};

use crate::story::{Story, Telling};
use crate::world::{Progress, World};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    pub turns: u64,
    pub events: u64,
    pub crashes: u64,
    /// Virtual time that passed.
    pub ms: u64,
    pub delivered: u64,
    pub failed: u64,
    pub cancelled: u64,
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Stats) {
        self.turns += other.turns;
        self.events += other.events;
        self.crashes += other.crashes;
        self.ms += other.ms;
        self.delivered += other.delivered;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
    }
}

/// A seed that broke an invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    pub seed: u64,
    /// The invariant, as a sentence.
    pub rule: String,
    /// The last things that happened.
    pub story: Vec<String>,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.story {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "seed {}: {}", self.seed, self.rule)?;
        write!(f, "again: cargo run -p kapelle-sim -- --story {}", self.seed)
    }
}

/// Runs one seed with the sound rules.
pub fn run(seed: u64) -> Result<Stats, Box<Broken>> {
    run_with(seed, SoundRules)
}

/// Runs one seed with rules that may have a planted bug. A failure is run again to tell its story.
pub fn run_with<R: Rules + Clone>(seed: u64, rules: R) -> Result<Stats, Box<Broken>> {
    let mut world = World::new(seed, rules.clone(), Story::new(Telling::Nothing));
    match live(&mut world) {
        Ok(()) => Ok(world.summary()),
        Err(rule) => {
            let mut world = World::new(seed, rules, Story::new(Telling::TheEnd));
            let told = live(&mut world).err();
            // The same seed must break the same rule, or the simulator itself is not a function
            // of its seed.
            let rule = match told {
                Some(again) if again == rule => rule,
                other => format!("not reproducible: first {rule:?}, then {other:?}"),
            };
            Err(Box::new(Broken { seed, rule, story: world.story.into_lines() }))
        }
    }
}

/// Everything that happens in a seed, line by line, and the verdict.
pub fn story(seed: u64) -> (Vec<String>, Result<Stats, String>) {
    let mut world = World::new(seed, SoundRules, Story::new(Telling::Everything));
    let verdict = live(&mut world);
    let stats = world.summary();
    (world.story.into_lines(), verdict.map(|()| stats))
}

/// The journal that a seed leaves.
#[must_use]
pub fn history(seed: u64) -> Vec<Record> {
    let mut world = World::new(seed, SoundRules, Story::new(Telling::Nothing));
    // A journal is worth reading whether or not the seed passed.
    let _ = live(&mut world);
    world.durable
}

fn live<R: Rules + Clone>(world: &mut World<R>) -> Result<(), String> {
    let turns = world.rng.u64(40..260);
    // People and strangers come by for ever, even where nothing is left to decide.
    for _ in 0..turns * 3 {
        if world.chore()? == Progress::Idle || world.stats.turns >= turns {
            break;
        }
        let settled = world.engine.state().missions().count() == world.wishes.len()
            && world.engine.state().missions().all(|m| m.has_ended());
        if settled {
            break;
        }
    }
    world.calm_down()
}

impl<R: Rules + Clone> World<R> {
    fn summary(&self) -> Stats {
        use kapelle_core::mission::MissionStatus::{Cancelled, Delivered, Failed};
        let count =
            |wanted| self.engine.state().missions().filter(|m| m.status() == wanted).count() as u64;
        Stats {
            events: self.oracle.events(),
            ms: self.now.0,
            delivered: count(Delivered),
            failed: count(Failed),
            cancelled: count(Cancelled),
            ..self.stats
        }
    }
}
