//! `kapelle recover`: the work that was kept before trees were removed.

use kapelle_workspace::kept::{self, KeptWork};
use serde::Serialize;

use crate::args::RecoverArgs;
use crate::output::{Exit, Problem, print, print_json, say};
use crate::project::Project;
use crate::sandbox;

#[derive(Debug, Serialize)]
struct View {
    name: String,
    kind: &'static str,
    commit: String,
    at: String,
    files_changed: usize,
}

pub async fn recover(args: &RecoverArgs) -> Result<Exit, Problem> {
    let project = Project::here().await?;
    sandbox::keep_abandoned(&project).await?;
    let all = kept::list(&project.repo).await?;
    let Some(name) = &args.name else { return list(&project, &all, args.json).await };
    let named = all.iter().filter(|work| work.name == *name || work.reference() == *name);
    // A tree and a change of the same attempt have the same name; the tree has everything.
    let Some(work) = named.min_by_key(|work| work.kind) else {
        return Err(Problem::refused(format!("nothing was kept as {name}"))
            .hint("`kapelle recover` lists what was"));
    };
    if work.is_partial {
        say("files that the project ignores were too much to keep, and are not in it");
    }
    match (&args.to, &args.branch) {
        (Some(dir), _) => {
            kept::write_files(&project.repo, work, dir).await?;
            say(format!("{name} is in {}", dir.display()));
        }
        (None, Some(branch)) => {
            project.repo.create_branch(branch, &work.commit).await?;
            say(format!("{name} is the branch {branch}"));
        }
        (None, None) => {
            for path in kept::changed(&project.repo, work).await? {
                print(path);
            }
            say(format!("get it with: kapelle recover {name} --to DIR, or --branch NAME"));
        }
    }
    Ok(Exit::Done)
}

async fn list(project: &Project, all: &[KeptWork], json: bool) -> Result<Exit, Problem> {
    let mut views = Vec::new();
    for work in all {
        views.push(View {
            name: work.name.clone(),
            kind: work.kind.name(),
            commit: work.commit.to_string(),
            at: work.at.clone(),
            files_changed: kept::changed(&project.repo, work).await?.len(),
        });
    }
    if json {
        print_json(&views)?;
        return Ok(Exit::Done);
    }
    if views.is_empty() {
        say("nothing was kept in this repository");
    }
    for view in &views {
        let commit: String = view.commit.chars().take(10).collect();
        print(format!(
            "{}  {:<7}  {}  {} files  {}",
            view.at, view.kind, commit, view.files_changed, view.name
        ));
    }
    Ok(Exit::Done)
}
