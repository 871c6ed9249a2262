//! `kapelle doctor`: does this machine have what Kapelle needs?

use kapelle_core::machine;
use kapelle_store::{Error, Reader};
use kapelle_workspace::condition::Note;
use kapelle_workspace::sandbox::{LayerState, Sandboxing};
use kapelle_workspace::tmux::Tmux;
use kapelle_workspace::{governor, programs};
use serde::Serialize;

use crate::args::LookArgs;
use crate::config::{Config, Runner};
use crate::look::{Trouble, tables_are_behind};
use crate::output::{Exit, LOST_END, Problem, print, print_json};
use crate::project::Project;
use crate::sandbox;

/// `git merge-tree --write-tree` came with this version.
const GIT_VERSION_MIN: (u32, u32) = (2, 38);

/// Variables of a session's own (`new-session -e`) came with this version.
const TMUX_VERSION_MIN: (u32, u32) = (3, 2);

#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    fine: bool,
    found: String,
    hint: Option<String>,
}

pub async fn doctor(args: &LookArgs) -> Result<Exit, Problem> {
    let mut findings = vec![git().await, user(), sandbox().await, room(), project().await];
    findings.extend(sessions().await);
    findings.extend(repository().await);
    findings.extend(store().await);
    if args.json {
        print_json(&findings)?;
    } else {
        for finding in &findings {
            let mark = if finding.fine { "ok     " } else { "MISSING" };
            print(format!("{mark}  {}: {}", finding.what, finding.found));
            if let Some(hint) = &finding.hint {
                print(format!("         {hint}"));
            }
        }
    }
    let fine = findings.iter().all(|finding| finding.fine);
    Ok(if fine { Exit::Done } else { Exit::Environment })
}

/// How full the machine is; past its limits missions are paused.
fn room() -> Finding {
    let what = "room";
    let measured = std::env::current_dir()
        .map_err(|error| error.to_string())
        .and_then(|here| governor::measure(&here).map_err(|error| error.to_string()));
    let (found, pressures) = match measured {
        Err(error) => (error, Vec::new()),
        Ok(used) => {
            let (memory, disk) = (used.memory_percent, used.disk_percent);
            let found = format!("{memory} % of memory and {disk} % of the disk are in use");
            (found, used.pressures())
        }
    };
    let fine = pressures.is_empty();
    Finding { what, fine, found, hint: (!fine).then(|| machine::told(&pressures)) }
}

/// Only for those who want to attach to their agents.
async fn sessions() -> Option<Finding> {
    let project = Project::here().await.ok()?;
    if project.config.team.runner == Runner::Direct {
        return None;
    }
    let tmux = said_by("tmux", "-V").await;
    let script = said_by("script", "--version").await;
    let judged = judge_sessions(tmux, script);
    match (judged.fine, try_session(&project).await) {
        (true, Err(Problem { what: found, hint, .. })) => {
            Some(Finding { fine: false, found, hint, ..judged })
        }
        _ => Some(judged),
    }
}

/// Where the sessions of agents will be, but on a server of its own: they may be at work.
async fn try_session(project: &Project) -> Result<(), Problem> {
    let socket = project.sockets()?.join(format!("try-{}", std::process::id()));
    Tmux::at(&socket).try_out().await.map_err(Problem::environment)
}

/// The first line that a program says about itself, or why it says nothing.
async fn said_by(program: &str, flag: &str) -> Result<String, String> {
    let output = tokio::process::Command::new(programs::named(program)).arg(flag).output().await;
    let output = output.map_err(|error| format!("{program} cannot be run: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or("").to_owned();
    match output.status.success() {
        true => Ok(said),
        false => Err(format!("{program} {flag} failed")),
    }
}

fn judge_sessions(tmux: Result<String, String>, script: Result<String, String>) -> Finding {
    let (major, minor) = TMUX_VERSION_MIN;
    let instead = "or leave [team] runner out";
    let old = |said: &String| version("tmux", said).is_none_or(|found| found < TMUX_VERSION_MIN);
    let (fine, found, hint) = match (tmux, script) {
        (Err(missing), _) => (false, missing, Some(format!("apt-get install tmux, {instead}"))),
        (Ok(said), _) if old(&said) => {
            let hint = format!("tmux {major}.{minor} or newer is needed: update it, {instead}");
            (false, said, Some(hint))
        }
        // Not every `script` is that of util-linux, which records as it goes and gives the exit code,
        // and comes with `flock`.
        (_, Err(missing)) => {
            let hint = format!("apt-get install bsdutils or util-linux, {instead}");
            (false, missing, Some(hint))
        }
        (Ok(tmux), Ok(script)) => (true, format!("{tmux}, {script}"), None),
    };
    Finding { what: "sessions", fine, found, hint }
}

async fn git() -> Finding {
    let output =
        tokio::process::Command::new(programs::named("git")).arg("--version").output().await;
    let found = match output {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    let fine = version("git version", &found).is_some_and(|version| version >= GIT_VERSION_MIN);
    let (major, minor) = GIT_VERSION_MIN;
    let hint =
        (!fine).then(|| format!("install git {major}.{minor} or newer: apt-get install git"));
    Finding { what: "git", fine, found, hint }
}

/// The first two numbers behind the name. Some versions have letters behind theirs, as in `3.3a`.
fn version(name: &str, text: &str) -> Option<(u32, u32)> {
    let mut parts = text.strip_prefix(name)?.strip_prefix(' ')?.split('.');
    let number = |part: &str| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse().ok()
    };
    Some((number(parts.next()?)?, number(parts.next()?)?))
}

async fn sandbox() -> Finding {
    let what = "sandbox";
    let found = match Project::here().await {
        Ok(project) => sandbox::of_project(&project).await,
        Err(_outside_of_a_project) => Ok(sandbox::look(&Config::default()).await),
    };
    let found = match found {
        Ok(found) => found,
        Err(Problem { what: found, hint, .. }) => {
            return Finding { what, fine: false, found, hint };
        }
    };
    match found {
        Sandboxing::Usable(found) => {
            let (active, missing): (Vec<_>, Vec<_>) =
                found.layers().iter().partition(|state| state.active);
            let names = |states: Vec<&LayerState>| {
                states.iter().map(|state| state.layer.name()).collect::<Vec<_>>().join(", ")
            };
            let hint = (!missing.is_empty()).then(|| {
                format!("not here: {}; `kapelle sandbox explain` says why", names(missing))
            });
            Finding { what, fine: true, found: format!("works, with {}", names(active)), hint }
        }
        Sandboxing::Unusable { reason, hint } => {
            Finding { what, fine: false, found: reason, hint: Some(hint) }
        }
    }
}

/// Agents are programs that were not written for this machine; they must not run as its owner.
fn user() -> Finding {
    let root = nix::unistd::geteuid().is_root();
    let found = if root { "root" } else { "an ordinary user" };
    let hint = root.then(|| {
        "better an ordinary user: inside a box, files of root in the listed places can be read"
            .into()
    });
    Finding { what: "user", fine: true, found: found.into(), hint }
}

/// What a person should know about the repository before agents work on it. None of it stops them.
async fn repository() -> Vec<Finding> {
    let Ok(project) = Project::here().await else { return Vec::new() };
    let notes = project.repo.condition().await.unwrap_or_default();
    let finding = |note: &Note| Finding {
        what: "repository",
        fine: true,
        found: note.to_string(),
        hint: Some(note.hint().into()),
    };
    notes.iter().map(finding).collect()
}

async fn project() -> Finding {
    let what = "project";
    match Project::here().await {
        Ok(project) => {
            let roles: Vec<&str> = project.config.roles.keys().map(|role| role.name()).collect();
            let fine = !roles.is_empty();
            let hint = (!fine).then(|| "name them under [roles] in kapelle.toml; `kapelle init` writes one to start from".into());
            let found = match fine {
                true => format!("{} with agents for: {}", project.name(), roles.join(", ")),
                false => format!("{} has no agents configured", project.name()),
            };
            Finding { what, fine, found, hint }
        }
        Err(problem) => Finding { what, fine: false, found: problem.what, hint: problem.hint },
    }
}

/// Whether the store can be read, what SQL clients see and what can be searched, where there is
/// something to see.
async fn store() -> Vec<Finding> {
    let Ok(project) = Project::here().await else { return Vec::new() };
    let unusable = |fine: bool, Problem { what: found, hint, .. }: Problem| {
        vec![Finding { what: "store", fine, found, hint }]
    };
    let store = match project.is_begun().and_then(|begun| Ok((begun, project.location()?))) {
        Ok((true, store)) => store,
        Ok((false, _)) => return Vec::new(),
        Err(problem) => return unusable(false, problem),
    };
    // A store can be opened before anything in it is read.
    match Reader::open(store).and_then(|reader| reader.head().map(|_| reader)) {
        Ok(reader) => tables(&project, &reader).into_iter().chain(search(&reader)).collect(),
        // The next run brings it up to date by itself.
        Err(old @ Error::TooOld { .. }) => unusable(true, old.into()),
        Err(error) => unusable(false, error.into()),
    }
}

fn tables(project: &Project, reader: &Reader) -> Option<Finding> {
    let what = "tables";
    let reach = || Some(format!("up to record {}", reader.watermark().ok()?));
    Some(match Trouble::told_by(reader) {
        None => {
            let hint = tables_are_behind(project, reader).ok().flatten();
            Finding { what, fine: true, found: reach()?, hint }
        }
        Some(Trouble::Tables(found)) => {
            let hint = "make them anew with `kapelle store rebuild`; the journal is not concerned";
            Finding { what, fine: false, found, hint: Some(hint.into()) }
        }
        Some(Trouble::LostEnd(found)) => {
            Finding { what: "journal", fine: false, found, hint: Some(LOST_END.into()) }
        }
    })
}

fn search(reader: &Reader) -> Option<Finding> {
    let found = reader.unsearchable()?;
    let hint = "what is not found is in .kapelle/logs; `kapelle store rebuild` mends the search and ends this note";
    Some(Finding { what: "search", fine: false, found, hint: Some(hint.into()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers_not_text() {
        assert_eq!(version("git version", "git version 2.47.3"), Some((2, 47)));
        assert_eq!(version("git version", "git version 2.9.0 (Apple Git-1)"), Some((2, 9)));
        assert_eq!(version("git version", "fit version 2"), None);
        assert_eq!(version("tmux", "tmux 3.3a"), Some((3, 3)));
        assert_eq!(version("tmux", "tmux next-3.4"), None);
    }

    /// An old tmux takes the command line and then loses the variables: better said before.
    #[test]
    fn sessions_need_a_new_tmux_and_a_script_and_say_what_to_do() {
        let script = || Ok("script from util-linux 2.38".to_owned());
        let judged = |tmux: &str| judge_sessions(Ok(tmux.to_owned()), script());
        assert!(judged("tmux 3.2").fine && judged("tmux 3.10").fine);
        let old = judged("tmux 3.1c");
        assert!(!old.fine && old.hint.unwrap().starts_with("tmux 3.2 or newer is needed"));
        let none = judge_sessions(Err("tmux cannot be run".into()), script());
        assert!(none.hint.unwrap().starts_with("apt-get install tmux"));
        let mute = judge_sessions(Ok("tmux 3.3a".into()), Err("script cannot be run".into()));
        assert!(!mute.fine && mute.hint.unwrap().contains("util-linux"), "no log without it");
    }
}
