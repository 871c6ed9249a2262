//! `kapelle demo`: a sample repository and a scripted team that delivers a mission on it.
//!
//! Everything but the models is real: engine, store, git, sandbox, checks, merge queue. The sample
//! appears in its place whole or not at all, with its request in it, so that a demo that is killed
//! at any moment can be resumed.

use std::io::IsTerminal;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use kapelle_core::RequestId;
use kapelle_core::plan::Plan;
use kapelle_core::policy::Sandbox;
use kapelle_workspace::Git;

use crate::args::DemoArgs;
use crate::config::Config;
use crate::output::{Exit, Problem, say};
use crate::project::{Project, STATE_DIR, person, ready_to_confine};
use crate::run::{About, Request, Watch, go_on};
use crate::session::{Approval, Interrupts};

const PLAN: &str = include_str!("demo/plan.json");
const SCENARIO: &str = include_str!("demo/scenario.toml");

/// What the scripted agents pause after every step when a person watches.
const PACE_MS: u64 = 300;

/// The sample repository's files.
const FILES: [(&str, &str); 3] = [
    ("README.md", include_str!("demo/sample/README.md")),
    ("tests/run.sh", include_str!("demo/sample/tests/run.sh")),
    ("kapelle.toml", include_str!("demo/kapelle.toml")),
];

pub async fn demo(args: DemoArgs) -> Result<Exit, Problem> {
    let interrupts = Interrupts::listen()?;
    let sandbox = if args.unsandboxed { Sandbox::Off } else { Sandbox::Required };
    ready_to_confine(sandbox, &Config::default()).await?;
    let place = match &args.dir {
        Some(dir) => Place::stays(dir)?,
        None => Place::temporary()?,
    };
    say(format!("making a sample repository in {}", place.dir.display()));
    let pace_ms = args.pace.unwrap_or(if watched_by_a_person(&args) { PACE_MS } else { 0 });
    make_sample(&place.dir, pace_ms, sandbox).await?;
    let outcome = deliver(&place, &args, interrupts).await;
    if !place.stays {
        place.remove();
    }
    outcome
}

async fn deliver(place: &Place, args: &DemoArgs, interrupts: Interrupts) -> Result<Exit, Problem> {
    let project = Project::at(&place.dir).await?.by_itself();
    say("a scripted team now delivers 8 tasks on it, test first; this takes less than a minute");
    let watch = Watch {
        // The sample belongs to whoever runs the demo.
        approval: Approval::Given,
        json: args.json,
        dashboard: true,
        port: args.port,
        keep_open: args.keep_open || watched_by_a_person(args),
    };
    let exit = go_on(project, About::Unfinished, watch, interrupts).await?;
    if place.stays {
        say(format!("look around: cd {} && git log --stat", place.dir.display()));
    }
    Ok(exit)
}

/// Whether somebody sits at a terminal, for whom a demo of two seconds would be a blur.
fn watched_by_a_person(args: &DemoArgs) -> bool {
    !args.json && std::io::stderr().is_terminal()
}

struct Place {
    dir: PathBuf,
    stays: bool,
}

impl Place {
    fn stays(dir: &Path) -> Result<Place, Problem> {
        let there = dir.read_dir().map(|mut entries| entries.next().is_some());
        if there.unwrap_or(false) {
            return Err(Problem::refused(format!("{} is not empty", dir.display())).hint(
                "name a new folder, or go on with the demo in it: kapelle run --resume --yes",
            ));
        }
        let absolute = std::path::absolute(dir).map_err(Problem::environment)?;
        Ok(Place { dir: absolute, stays: true })
    }

    fn temporary() -> Result<Place, Problem> {
        let name = format!("kapelle-demo-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        Ok(Place { dir, stays: false })
    }

    fn remove(&self) {
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            say(format!("{} could not be removed: {error}", self.dir.display()));
        }
    }
}

/// Made beside its place and moved there as a whole.
async fn make_sample(dir: &Path, pace_ms: u64, sandbox: Sandbox) -> Result<(), Problem> {
    let file = |e: std::io::Error| Problem::environment(format!("{}: {e}", dir.display()));
    let name = dir.file_name().ok_or_else(|| Problem::usage("the demo needs a folder"))?;
    let beside = dir.with_file_name(format!(".{}-{}", name.to_string_lossy(), std::process::id()));
    if let Some(parent) = beside.parent() {
        std::fs::create_dir_all(parent).map_err(file)?;
    }
    // The folder for temporary files is everybody's: what is there already is not ours.
    std::fs::DirBuilder::new().mode(0o700).create(&beside).map_err(file)?;
    let made = fill_sample(&beside, pace_ms, sandbox).await;
    let made = made.and_then(|()| std::fs::rename(&beside, dir).map_err(file));
    if made.is_err() {
        // The error says more than what could not be cleared away after it.
        let _ = std::fs::remove_dir_all(&beside);
    }
    made
}

async fn fill_sample(dir: &Path, pace_ms: u64, sandbox: Sandbox) -> Result<(), Problem> {
    let file = |e: std::io::Error| Problem::environment(format!("{}: {e}", dir.display()));
    for (path, text) in FILES {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(dir)).map_err(file)?;
        std::fs::write(&path, text).map_err(file)?;
    }
    let git = Git::in_dir(dir);
    let commands: [&[&str]; 3] = [
        &["init", "--quiet", "--initial-branch=main"],
        &["add", "--all"],
        &["commit", "--quiet", "--message", "an empty to-do list"],
    ];
    for command in commands {
        let command = command.iter().map(Into::into).collect();
        git.run(command).await.map_err(Problem::environment)?;
    }
    let request = Request {
        request: RequestId("demo".into()),
        goal: "Build a to-do list for the shell".into(),
        plan: Plan::parse(PLAN).map_err(Problem::environment)?,
        sandbox,
        target: Some("main".into()),
        by: person(),
    };
    let state = dir.join(STATE_DIR);
    request.write(&state)?;
    let scenario = format!("pace_ms = {pace_ms}\n{SCENARIO}");
    std::fs::write(state.join("scenario.toml"), scenario).map_err(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kapelle_agents::scenario::Scenario;

    #[test]
    fn the_plan_and_the_scenario_belong_together() {
        let plan = Plan::parse(PLAN).unwrap();
        let scenario = Scenario::parse(SCENARIO).unwrap();
        assert!(plan.tasks.len() >= 6);
        for task in &plan.tasks {
            let phases: Vec<_> = scenario
                .plays
                .iter()
                .filter(|play| play.task == task.id)
                .filter_map(|play| play.phase)
                .map(kapelle_core::flow::Phase::name)
                .collect();
            assert!(phases.contains(&"red") && phases.contains(&"green"), "{}", task.id);
        }
        assert!(crate::config::Config::parse(FILES[2].1).is_ok());
    }
}
