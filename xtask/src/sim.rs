//! `cargo xtask sim`: sweeps of the seeded simulator.

use std::process::ExitCode;

use crate::args::Args;
use crate::error::{Error, Result};
use crate::{cargo, run};

pub const HELP: &str = "\
Run the engine through many seeded hostile worlds and check its invariants in each.

Usage: cargo xtask sim --seeds N [--from SEED]

  --seeds N    how many seeds to run
  --from SEED  the first seed (default 0)

The exit code is the simulator's: not 0 if any seed broke an invariant. A failing seed fails
again, the same way, on every machine.

Examples:
  cargo xtask sim --seeds 10000
  cargo xtask sim --seeds 1 --from 8813     # one seed again";

pub fn command(mut args: Args) -> Result<ExitCode> {
    let seeds = args.number("--seeds")?;
    let from = args.number("--from")?.unwrap_or(0);
    args.finish()?;
    let Some(seeds) = seeds.filter(|seeds| *seeds > 0) else {
        return Err(Error::usage("how many seeds should be run?")
            .hint("for example `cargo xtask sim --seeds 10000`"));
    };
    let mut sim = cargo::cargo(&["run", "--quiet", "--package", "kapelle-sim", "--"]);
    Err(run::become_program(sim.args(sweep(seeds, from))))
}

/// The simulator's own arguments.
pub fn sweep(seeds: u64, from: u64) -> [String; 4] {
    ["--seeds".into(), seeds.to_string(), "--from".into(), from.to_string()]
}
