//! `kapelle doctor`: does this machine have what Kapelle needs?

use kapelle_core::machine;
use kapelle_workspace::condition::Note;
use kapelle_workspace::governor;
use kapelle_workspace::sandbox::{LayerState, Sandboxing};
use serde::Serialize;

use crate::args::LookArgs;
use crate::config::Runner;
use crate::output::{Exit, Problem, print, print_json};
use crate::project::Project;
use crate::sandbox;

/// `git merge-tree --write-tree` came with this version.
const GIT_VERSION_MIN: (u32, u32) = (2, 38);

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
    let output = tokio::process::Command::new("tmux").arg("-V").output().await;
    let (fine, found) = match output {
        Ok(output) => (true, String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        Err(error) => (false, error.to_string()),
    };
    let hint = (!fine).then(|| "install tmux, or leave [team] runner out".to_owned());
    Some(Finding { what: "sessions", fine, found, hint })
}

async fn git() -> Finding {
    let output = tokio::process::Command::new("git").arg("--version").output().await;
    let found = match output {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    let fine = version(&found).is_some_and(|version| version >= GIT_VERSION_MIN);
    let (major, minor) = GIT_VERSION_MIN;
    let hint =
        (!fine).then(|| format!("install git {major}.{minor} or newer: apt-get install git"));
    Finding { what: "git", fine, found, hint }
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.strip_prefix("git version ")?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

async fn sandbox() -> Finding {
    let what = "sandbox";
    let config = Project::here().await.map(|project| project.config).unwrap_or_default();
    match sandbox::look(&config).await {
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

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn versions_are_numbers_not_text() {
        assert_eq!(version("git version 2.47.3"), Some((2, 47)));
        assert_eq!(version("git version 2.9.0 (Apple Git-1)"), Some((2, 9)));
        assert_eq!(version("fit version 2"), None);
    }
}
