//! What a person asks of missions: approve, answer, pause, resume, cancel.
//!
//! If a Kapelle runs the project, it is asked over HTTP. If not, the decision is recorded in the
//! journal, and carried out by the next one that runs.

use kapelle_conductor::project::record;
use kapelle_core::mission::MissionStage;
use kapelle_core::task::{Stage, Task};
use kapelle_core::{Actor, Command, Commit, MissionId, State};
use kapelle_server::wire::Ask;
use kapelle_server::{Client, client};
use kapelle_store::Holder;

use crate::args::{AnswerArgs, ApproveArgs, CancelArgs, PauseArgs, ResumeArgs};
use crate::output::{Exit, Problem, say};
use crate::project::{Project, person};
use crate::run::{About, Watch, go_on, ready_to_resume};
use crate::session::{Approval, Interrupts};

pub async fn approve(args: ApproveArgs) -> Result<Exit, Problem> {
    let interrupts = Interrupts::listen()?;
    let project = Project::here().await?;
    project.bring_up_to_date().await?;
    let (_, engine) = project.read()?;
    let mission = find_mission(engine.state(), args.mission.as_deref())?;
    let commit = proposed(engine.state(), mission, args.commit.as_deref())?;
    if let Some(running) = Running::find(&project).await? {
        let ask =
            Ask::Approve { mission: mission.to_string(), commit: commit.to_string(), by: person() };
        running.ask(&ask).await?;
        say(format!("approved {} of {mission}", commit.short()));
        return Ok(Exit::Done);
    }
    ready_to_resume(&project).await?;
    let by = Actor(person());
    let approve = Command::ApproveDelivery { mission, commit: commit.clone(), by };
    record_alone(&project, approve).await?;
    say(format!("approved {} of {mission}", commit.short()));
    let watch = Watch {
        approval: Approval::Asked,
        json: args.json,
        dashboard: false,
        port: None,
        keep_open: false,
    };
    go_on(project, About::Mission(mission), watch, interrupts).await
}

pub async fn answer(args: AnswerArgs) -> Result<Exit, Problem> {
    let project = Project::here().await?;
    project.bring_up_to_date().await?;
    let (_, engine) = project.read()?;
    let task = find_task(engine.state(), &args.task)?;
    let Stage::Asking { question } = &task.stage else {
        return Err(Problem::refused(format!("task {} is not asking anything", args.task))
            .hint("kapelle tasks shows who asks"));
    };
    let (id, resume_id, input) = (task.id, question.resume_id.clone(), args.answer);
    let ask = Ask::Answer {
        task: id.0,
        resume_id: resume_id.clone(),
        input: input.clone(),
        by: person(),
    };
    let by = Actor(person());
    let command = Command::AnswerCheckpoint { task: id, resume_id, input, by };
    carry_out(&project, ask, command, "answered").await
}

pub async fn pause(args: PauseArgs) -> Result<Exit, Problem> {
    let project = Project::here().await?;
    let mission = mission_here(&project, args.mission.as_deref()).await?;
    let reason = args.reason;
    let ask = Ask::Pause { mission: mission.to_string(), reason: reason.clone(), by: person() };
    let command = Command::PauseMission { mission, reason, by: Actor(person()) };
    carry_out(&project, ask, command, "paused").await
}

pub async fn resume(args: ResumeArgs) -> Result<Exit, Problem> {
    let project = Project::here().await?;
    let mission = mission_here(&project, args.mission.as_deref()).await?;
    let ask = Ask::Resume { mission: mission.to_string(), by: person() };
    let command = Command::ResumeMission { mission, by: Actor(person()) };
    carry_out(&project, ask, command, "resumed").await
}

pub async fn cancel(args: CancelArgs) -> Result<Exit, Problem> {
    let project = Project::here().await?;
    let mission = mission_here(&project, args.mission.as_deref()).await?;
    let reason = args.reason;
    let ask = Ask::Cancel { mission: mission.to_string(), reason: reason.clone(), by: person() };
    let command = Command::CancelMission { mission, reason, by: Actor(person()) };
    carry_out(&project, ask, command, "cancelled").await
}

async fn carry_out(
    project: &Project,
    ask: Ask,
    command: Command,
    done: &str,
) -> Result<Exit, Problem> {
    match Running::find(project).await? {
        Some(running) => {
            running.ask(&ask).await?;
            say(done);
        }
        None => {
            record_alone(project, command).await?;
            let next = match ask {
                Ask::Cancel { .. } => "",
                Ask::Pause { .. } => "; let it go on with: kapelle resume",
                Ask::Answer { .. } | Ask::Resume { .. } | Ask::Approve { .. } => {
                    "; nothing runs this project now, go on with: kapelle run --resume"
                }
            };
            say(format!("{done}{next}"));
        }
    }
    Ok(Exit::Done)
}

async fn record_alone(project: &Project, command: Command) -> Result<(), Problem> {
    // A clone of a project on a server may have none yet.
    project.make_state_dir().await?;
    record(&project.state_dir(), &project.location()?, command).map_err(|error| match error {
        kapelle_conductor::Error::Refused(refusal) => Problem::refused(refusal),
        kapelle_conductor::Error::Store(error) => error.into(),
        other => Problem::environment(other),
    })
}

/// The Kapelle that runs the project.
struct Running {
    holder: Holder,
    client: Client,
}

impl Running {
    /// None if nobody runs it; an error if somebody does who cannot be asked from here.
    async fn find(project: &Project) -> Result<Option<Running>, Problem> {
        let Some(holder) = project.holder()? else { return Ok(None) };
        let Some(url) = &holder.url else {
            return Err(Problem::refused(format!(
                "{holder} runs this project without a dashboard, so it cannot be asked"
            ))
            .hint("stop it with Ctrl-C first; nothing is lost"));
        };
        // It answers on its loopback only. On ours, or elsewhere, the token is for nobody.
        if !holder.is_on_this_machine() || !is_loopback(url) {
            return Err(Problem::refused(format!("{holder} runs this project, at {url} there"))
                .hint("it can be asked on that machine only, in the folder that it runs in"));
        }
        project.make_state_dir().await?;
        let client = Client::new(url, &project.token()?);
        Ok(Some(Running { holder, client }))
    }

    async fn ask(&self, ask: &Ask) -> Result<(), Problem> {
        let runs = format!("{} runs this project", self.holder);
        match self.client.ask(ask).await {
            Ok(_) => Ok(()),
            Err(client::Error::Refused(text)) => Err(Problem::refused(text)),
            Err(client::Error::Unauthorised { .. }) => {
                Err(Problem::refused(format!("{runs}, and does not take the token of this folder"))
                    .hint(
                        "ask it in the folder that it runs in, or copy .kapelle/token from there",
                    ))
            }
            Err(unreachable @ client::Error::Unreachable { .. }) => {
                Err(Problem::environment(format!("{runs}, but {unreachable}"))
                    .hint("if it hangs, end it; kapelle run --resume takes over then"))
            }
            Err(other) => Err(Problem::environment(other)),
        }
    }
}

fn is_loopback(url: &str) -> bool {
    let port = url.strip_prefix("http://127.0.0.1:").map(|rest| rest.trim_end_matches('/'));
    port.is_some_and(|port| port.parse::<u16>().is_ok())
}

async fn mission_here(project: &Project, named: Option<&str>) -> Result<MissionId, Problem> {
    project.bring_up_to_date().await?;
    let (_, engine) = project.read()?;
    find_mission(engine.state(), named)
}

/// The named mission, or the last one.
pub fn find_mission(state: &State, named: Option<&str>) -> Result<MissionId, Problem> {
    match named {
        Some(name) => name.parse().map_err(Problem::usage),
        None => match state.missions().next_back() {
            Some(mission) => Ok(mission.id),
            None => Err(Problem::refused("there is no mission yet")),
        },
    }
}

/// `3-1` in the last mission, or `m1/3-1`.
pub fn find_task<'a>(state: &'a State, name: &str) -> Result<&'a Task, Problem> {
    let (mission, task) = match name.split_once('/') {
        Some((mission, task)) => (find_mission(state, Some(mission))?, task),
        None => (find_mission(state, None)?, name),
    };
    state.task_named(mission, task).ok_or_else(|| {
        Problem::refused(format!("{mission} has no task {task}")).hint("kapelle tasks lists them")
    })
}

/// The commit that waits for approval. A person who names one must name that one.
fn proposed(state: &State, id: MissionId, named: Option<&str>) -> Result<Commit, Problem> {
    let mission = state.mission(id);
    let Some(MissionStage::Proposed { commit }) = mission.map(|mission| &mission.stage) else {
        let status = mission.map_or("unknown", |mission| mission.status().name());
        return Err(Problem::refused(format!("{id} has nothing to approve: it is {status}")));
    };
    match named {
        Some(named) if named.len() < 7 || !commit.as_str().starts_with(named) => {
            Err(Problem::refused(format!("{id} proposes {commit}, not {named}"))
                .hint(format!("look at it: git log {}", commit.short())))
        }
        _ => Ok(commit.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    /// The address comes from a database that others write to, and the token goes there.
    #[test]
    fn a_token_is_sent_to_the_loopback_only() {
        assert!(is_loopback("http://127.0.0.1:7117/"));
        for elsewhere in
            ["http://evil.example:7117/", "http://127.0.0.1:1@evil.example/", "http://127.0.0.1:/"]
        {
            assert!(!is_loopback(elsewhere), "{elsewhere}");
        }
    }
}
