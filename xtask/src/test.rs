//! `cargo xtask test`: everything that must pass before a change lands.
//!
//! The dashboard comes before the crates, because the server embeds it, and the whole workspace is
//! built once, with the features that the tests use; the later steps take the binaries from there.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::error::{Error, FAILED, Result};
use crate::setup::{self, Probe, Purpose, Tool};
use crate::{cargo, docs, leftovers, licences, run, sim, tidy, web};

pub const HELP: &str = "\
Everything that must pass before a change lands.

Usage: cargo xtask test [--quick] [--only STEP]

  --quick      fewer simulated seeds, and no browser
  --only STEP  this step, after the steps that it needs

Steps: tools format tidy licences web web-types web-tests build clippy tests docs sim browser

Missing tools are installed where that is possible (see `cargo xtask setup --help`). A failing
step does not stop the others. The last line is `N passed, N failed`, counted in steps.

Examples:
  cargo xtask test
  cargo xtask test --quick
  cargo xtask test --only clippy";

const SEEDS: u64 = 10_000;
const SEEDS_QUICK: u64 = 500;

struct Step {
    name: &'static str,
    what: &'static str,
    needs: &'static [&'static str],
    run: fn() -> Result,
}

fn steps(quick: bool) -> Vec<Step> {
    let step = |name, what, needs, run| Step { name, what, needs, run };
    let mut steps = vec![
        step("tools", "look for tools, install missing ones", &[], tools),
        step("format", "cargo fmt --all --check", &[], format),
        step("tidy", "walls and taste", &[], tidy::check),
        step("licences", "licences of all dependencies", &[], licences::check),
        step("web", "build the dashboard", &[], web::build),
        step("web-types", "npm run check", &["web"], web_types),
        step("web-tests", "npm run test", &["web"], web_tests),
        step("build", "cargo build --workspace --all-targets", &[], build),
        step("clippy", "cargo clippy, warnings are errors", &[], clippy),
        step("tests", "cargo test --workspace", &["build"], tests),
        step("docs", "docs/reference is what the code says", &["build"], docs_drift),
    ];
    if quick {
        steps.push(step("sim", "500 simulated worlds", &["build"], || simulate(SEEDS_QUICK)));
    } else {
        steps.push(step("sim", "10,000 simulated worlds", &["build"], || simulate(SEEDS)));
        let needs: &[&str] = &["web", "build"];
        steps.push(step("browser", "the demo in a real browser", needs, browser));
    }
    steps
}

fn tools() -> Result {
    setup::ensure(Purpose::Test)
}

fn format() -> Result {
    run::succeed(&mut cargo::cargo(&["fmt", "--all", "--check"]))
        .map_err(|error| error.hint("run `cargo fmt --all`"))
}

fn web_types() -> Result {
    run::succeed(web::node_command("npm").args(["run", "check"]))
}

fn web_tests() -> Result {
    run::succeed(web::node_command("npm").args(["run", "test"]))
}

fn build() -> Result {
    run::succeed(&mut cargo::cargo(&["build", "--workspace", "--all-targets"]))
}

fn clippy() -> Result {
    let args = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    run::succeed(&mut cargo::cargo(&args))
}

fn tests() -> Result {
    run::succeed(&mut cargo::cargo(&["test", "--workspace", "--no-fail-fast"]))
}

fn docs_drift() -> Result {
    docs::check(&cargo::built("kapelle")?)
}

fn simulate(seeds: u64) -> Result {
    let simulator = cargo::built("kapelle-sim")?;
    run::succeed(run::command(simulator).args(sim::sweep(seeds, 0)))
}

fn browser() -> Result {
    let Probe::Present { program, .. } = setup::probe(Tool::Chromium) else {
        return Err(Error::environment("no Chromium was found").hint("run `cargo xtask setup`"));
    };
    let mut node = web::node_command("node");
    node.current_dir(run::root()).arg("web/e2e/demo.mjs");
    node.env("KAPELLE_BIN", cargo::built("kapelle")?).env("CHROMIUM", program);
    run::succeed(&mut node)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    /// A step that it needs did not pass.
    NotRun {
        needs: &'static str,
    },
}

type Report = Vec<(&'static str, Outcome, Duration)>;

pub fn command(mut args: Args) -> Result<ExitCode> {
    let quick = args.flag("--quick");
    let only = args.value("--only")?;
    args.finish()?;
    let mut steps = steps(quick);
    if let Some(only) = only {
        select(&mut steps, &only)?;
    }
    leftovers::adopt_orphans()?;
    let report = perform(&steps, leftovers::end);
    print!("{}", summary(&report));
    let all_passed = report.iter().all(|(_, outcome, _)| *outcome == Outcome::Passed);
    Ok(if all_passed { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// Keeps one step and those that it needs, directly or not.
fn select(steps: &mut Vec<Step>, only: &str) -> Result {
    let mut wanted = BTreeSet::from([only]);
    // A step needs only earlier ones, so one pass from the end finds them all.
    for step in steps.iter().rev() {
        if wanted.contains(step.name) {
            wanted.extend(step.needs);
        }
    }
    let is_known = steps.iter().any(|step| step.name == only);
    let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
    if !is_known {
        return Err(Error::usage(format!("there is no step `{only}`"))
            .hint(format!("there are: {}", names.join(" "))));
    }
    steps.retain(|step| wanted.contains(step.name));
    Ok(())
}

/// Runs every step that can run. After each, `end_leftovers` ends and names what it left behind.
fn perform(steps: &[Step], end_leftovers: fn() -> Vec<String>) -> Report {
    let mut passed: BTreeMap<&str, bool> = BTreeMap::new();
    let mut report = Report::new();
    for step in steps {
        let missing = step.needs.iter().find(|need| passed.get(*need) == Some(&false));
        let started = Instant::now();
        let outcome = match missing {
            Some(needs) => Outcome::NotRun { needs },
            None => perform_one(step, end_leftovers),
        };
        passed.insert(step.name, outcome == Outcome::Passed);
        report.push((step.name, outcome, started.elapsed()));
    }
    report
}

fn perform_one(step: &Step, end_leftovers: fn() -> Vec<String>) -> Outcome {
    println!("\n=== {}: {}", step.name, step.what);
    let mut outcome = Outcome::Passed;
    if let Err(error) = (step.run)() {
        println!("{error}");
        outcome = Outcome::Failed;
    }
    let leaked = end_leftovers();
    if !leaked.is_empty() {
        println!("error: left running, and ended now: {}", leaked.join(", "));
        println!("hint: whoever starts a process must end it, also when a test fails");
        outcome = Outcome::Failed;
    }
    outcome
}

/// A table for people, and a closing line that is easy to find.
fn summary(report: &Report) -> String {
    let mut text = String::from("\n=== summary\n");
    for (name, outcome, took) in report {
        let seconds = took.as_secs_f64();
        let line = match outcome {
            Outcome::Passed => format!("passed   {name:<10} {seconds:>7.1} s"),
            Outcome::Failed => {
                format!(
                    "FAILED   {name:<10} {seconds:>7.1} s   again: cargo xtask test --only {name}"
                )
            }
            Outcome::NotRun { needs } => {
                format!("NOT RUN  {name:<10}             it needs `{needs}`, which did not pass")
            }
        };
        text.push_str(&line);
        text.push('\n');
    }
    let passed = report.iter().filter(|(_, outcome, _)| *outcome == Outcome::Passed).count();
    text.push_str(&format!("{passed} passed, {} failed\n", report.len() - passed));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &'static str, needs: &'static [&'static str], run: fn() -> Result) -> Step {
        Step { name, what: "", needs, run }
    }

    fn names(steps: &[Step]) -> Vec<&str> {
        steps.iter().map(|step| step.name).collect()
    }

    /// `--only` trusts this order, and so does a run: a need that comes later would never be met.
    #[test]
    fn steps_need_only_earlier_steps() {
        let all = steps(false);
        for (at, step) in all.iter().enumerate() {
            let earlier = names(&all[..at]);
            assert!(step.needs.iter().all(|need| earlier.contains(need)), "{}", step.name);
            assert!(HELP.contains(step.name), "{} is not in the help", step.name);
        }
    }

    #[test]
    fn one_step_brings_what_it_needs() {
        let mut chosen = steps(false);
        select(&mut chosen, "browser").unwrap();
        assert_eq!(names(&chosen), ["web", "build", "browser"]);
        let error = select(&mut steps(true), "browser").unwrap_err();
        assert!(error.to_string().contains("no step `browser`"), "{error}");
    }

    #[test]
    fn a_failure_stops_only_what_needs_it() {
        let steps = [
            step("a", &[], || Err(Error::failed("broken"))),
            step("b", &["a"], || Ok(())),
            step("c", &["b"], || Ok(())),
            step("d", &[], || Ok(())),
        ];
        let report = perform(&steps, Vec::new);
        let outcomes: Vec<Outcome> = report.iter().map(|(_, outcome, _)| *outcome).collect();
        let not_run = |needs| Outcome::NotRun { needs };
        assert_eq!(outcomes, [Outcome::Failed, not_run("a"), not_run("b"), Outcome::Passed]);
        assert!(summary(&report).ends_with("\n1 passed, 3 failed\n"), "{}", summary(&report));
    }

    /// A test that passes and leaves a database running has not passed.
    #[test]
    fn a_step_that_leaves_a_process_behind_fails() {
        let report = perform(&[step("a", &[], || Ok(()))], || vec!["postgres (7)".to_owned()]);
        assert_eq!(report[0].1, Outcome::Failed);
    }
}
