//! `kapelle attach`: look over the shoulder of an agent that runs in a session.

use std::collections::BTreeMap;

use crate::args::AttachArgs;
use crate::config::Runner;
use crate::look;
use crate::output::{Exit, Problem, print, say};
use crate::project::Project;

pub async fn attach(args: &AttachArgs) -> Result<Exit, Problem> {
    let project = Project::here().await?;
    let tmux = project.sessions()?;
    let sessions = tmux.sessions().await.map_err(Problem::environment)?;
    let idle = match project.is_begun()? {
        true => look::idle(project.read()?.1.state()),
        false => BTreeMap::new(),
    };
    let Some(agent) = &args.agent else {
        for session in &sessions {
            match idle.get(session) {
                Some(warning) => print(format!("{session}  {warning}")),
                None => print(session),
            }
        }
        return Ok(Exit::Done);
    };
    if !sessions.contains(agent) {
        let hint = match project.config.team.runner {
            Runner::Direct => "agents run in sessions with [team] runner = \"tmux\"".to_owned(),
            Runner::Tmux if sessions.is_empty() => "nobody is at work now".to_owned(),
            Runner::Tmux => format!("these are at work: {}", sessions.join(", ")),
        };
        return Err(Problem::refused(format!("there is no session of {agent}")).hint(hint));
    }
    if let Some(warning) = idle.get(agent) {
        say(warning);
    }
    let status = tmux.attach(agent).await.map_err(Problem::environment)?;
    Ok(if status.success() { Exit::Done } else { Exit::Environment })
}
