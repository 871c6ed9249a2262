//! Kapelle's own tooling, run as `cargo xtask …`.
//!
//! This is the first thing that a new user compiles, so it leans on almost nothing: arguments are
//! read by hand, and the tidy checks look at tokens instead of full syntax trees.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool speaks to people"
)]

mod args;
mod bench;
mod cargo;
mod demo;
mod docs;
mod error;
mod leftovers;
mod licences;
mod run;
mod setup;
mod sim;
mod spdx;
mod test;
mod tidy;
mod web;

use std::process::ExitCode;

use args::Args;
use error::{Error, Result};

const HELP: &str = "\
Kapelle's own tooling.

Usage: cargo xtask COMMAND [OPTIONS]

Commands:
  demo      build everything that is needed and show Kapelle at work
  test      everything that must pass before a change lands
  setup     look for the tools that Kapelle needs, and install the missing ones
  web       build the dashboard
  sim       run the engine through many seeded hostile worlds
  bench     measure, as ratios against a floor
  tidy      check walls between crates and the taste of the code
  licences  check the licence of every dependency
  docs      write docs/reference from the code, or check that it is current

`cargo xtask COMMAND --help` says more about each.

Examples:
  cargo xtask demo
  cargo xtask test --quick";

fn main() -> ExitCode {
    let outcome = Args::from_env().and_then(dispatch);
    outcome.unwrap_or_else(|error| {
        eprintln!("{error}");
        error.exit_code()
    })
}

fn dispatch(mut args: Args) -> Result<ExitCode> {
    let Some(command) = args.next() else {
        eprintln!("{HELP}");
        return Ok(ExitCode::from(error::USAGE));
    };
    let (help, action): (&str, fn(Args) -> Result<ExitCode>) = match command.as_str() {
        "demo" => (demo::HELP, demo::command),
        "test" => (test::HELP, test::command),
        "setup" => (setup::HELP, setup::command),
        "web" => (web::HELP, web::command),
        "sim" => (sim::HELP, sim::command),
        "bench" => (bench::HELP, bench::command),
        "tidy" => (tidy::HELP, tidy::command),
        "licences" | "licenses" => (licences::HELP, licences::command),
        "docs" => (docs::HELP, docs::command),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            return Ok(ExitCode::SUCCESS);
        }
        other => {
            return Err(Error::usage(format!("there is no command `{other}`"))
                .hint("`cargo xtask help` lists them"));
        }
    };
    if args.asks_for_help() {
        println!("{help}");
        return Ok(ExitCode::SUCCESS);
    }
    action(args)
}
