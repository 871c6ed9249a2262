//! `cargo xtask bench`: measurements, as ratios against a floor of the same run.

use std::process::ExitCode;

use crate::args::Args;
use crate::error::{Error, Result};
use crate::{cargo, run};

pub const HELP: &str = "\
Measure a part of Kapelle in the release profile.

Usage: cargo xtask bench NAME [--json]

  core       decisions, growth with the number of tasks, replay, schedules (about a minute)
  store      life cycles on SQLite and PostgreSQL, syncs, claims, starts (about ten minutes)
  peers      the same life cycles by queues that people use instead (about five minutes)
  workspace  worktrees, sandboxes, candidates, supervised processes (about two minutes)

  --json     end with one line of JSON that holds every ratio

Each figure is a ratio against a floor measured in the same run, because machines differ and are
shared. Run it while nothing else does.

The peers are installed for this from the registries, in a workspace of their own.

Examples:
  cargo xtask bench core
  cargo xtask bench store
  cargo xtask bench core --json";

const NAMES: [&str; 4] = ["core", "store", "peers", "workspace"];

pub fn command(mut args: Args) -> Result<ExitCode> {
    let json = args.flag("--json");
    let name = args.next();
    args.finish()?;
    let Some(name) = name.filter(|name| NAMES.contains(&name.as_str())) else {
        return Err(
            Error::usage("what should be measured?").hint(format!("one of: {}", NAMES.join(", ")))
        );
    };
    // The peers are measured by the store's benchmark, beside the store.
    let (name, only) = match name.as_str() {
        "peers" => ("store", Some("peers")),
        name => (name, None),
    };
    let package = format!("kapelle-{name}");
    let mut bench = cargo::cargo(&["bench", "--quiet", "--package", &package, "--bench", name]);
    bench.arg("--").args(only).args(json.then_some("--json"));
    Err(run::become_program(&mut bench))
}
