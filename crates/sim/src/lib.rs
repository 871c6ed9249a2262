//! The seeded hostile world that runs Kapelle's engine.
//!
//! One number decides everything: the plans, the policies, the team, which faults there are and
//! when each of them strikes. The world drives the engine exactly as the conductor does, keeps the
//! git repository that the engine only hears about, and lets an oracle judge what happens from the
//! outside. A seed that fails once fails for ever, and can be told as a story.
//!
//! Nothing here waits, reads a clock or touches the machine.

mod agenda;
mod agents;
mod calm;
mod conductor;
mod council;
mod draw;
mod faults;
mod hosts;
mod merging;
mod mutants;
mod oracle;
mod people;
mod repository;
mod run;
mod story;
mod sweep;
mod world;

pub use mutants::{Mutant, Planted};
pub use run::{Broken, Stats, history, run, run_with, story};
pub use sweep::{Sweep, hunt, sweep};
