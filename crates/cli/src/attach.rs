//! `kapelle attach`: look over the shoulder of an agent that runs in a session.

use crate::args::AttachArgs;
use crate::config::Runner;
use crate::output::{Exit, Problem, print};
use crate::project::Project;

pub async fn attach(args: &AttachArgs) -> Result<Exit, Problem> {
    let project = Project::here().await?;
    let tmux = project.sessions();
    let sessions = tmux.sessions().await.map_err(Problem::environment)?;
    let Some(agent) = &args.agent else {
        sessions.iter().for_each(print);
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
    let status = tmux.attach(agent).await.map_err(Problem::environment)?;
    Ok(if status.success() { Exit::Done } else { Exit::Environment })
}
