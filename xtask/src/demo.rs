//! `cargo xtask demo`: from a fresh clone to Kapelle at work, in one command.

use std::process::ExitCode;

use crate::args::Args;
use crate::error::Result;
use crate::setup::{self, Purpose};
use crate::{cargo, run, web};

pub const HELP: &str = "\
Build everything that is needed and show Kapelle at work on a sample repository.

Usage: cargo xtask demo [--] [ARGS]

ARGS go to `kapelle demo`; `cargo xtask demo -- --help` lists them. What xtask itself has to
say goes to stderr, so stdout carries only what Kapelle prints. The exit code is Kapelle's.

Missing tools are installed where that is possible (see `cargo xtask setup --help`). Without the
dashboard or the sandbox's tools the demo goes on with less, and says so.

Examples:
  cargo xtask demo
  cargo xtask demo --json > result.json";

pub fn command(args: Args) -> Result<ExitCode> {
    let args = args.pass_on();
    run::say("1. tools, 2. dashboard, 3. kapelle itself, 4. the demo.");
    run::say("The first time this takes some minutes (downloads and a full build), later seconds.");
    setup::ensure(Purpose::Demo)?;
    if let Err(error) = web::build() {
        // An unreachable npm registry should not keep anybody from seeing the rest.
        run::say(format!("warning: the dashboard was not built\n{error}"));
        run::say("the demo goes on; its page will say how to build the dashboard");
    }
    run::say("building kapelle");
    let kapelle = cargo::build_kapelle()?;
    run::say("starting `kapelle demo`");
    Err(run::become_program(run::command(kapelle).arg("demo").args(args)))
}
