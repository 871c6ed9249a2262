//! `kapelle run`: hand over a goal, or go on with what was begun.
//!
//! What is asked for is written to the state folder before anything starts, under a name that is
//! used once. So a crash at any moment leaves either nothing, or something to resume, and never
//! two missions.

use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use kapelle_core::plan::{Plan, PlannedTask, Priority};
use kapelle_core::policy::Sandbox;
use kapelle_core::{Actor, Command, MissionId, Refusal, RequestId};
use serde::{Deserialize, Serialize};

use crate::args::RunArgs;
use crate::output::{Exit, Problem, print_json, say};
use crate::project::{Project, person};
use crate::session::{Approval, Ended, Session, interrupted};

const REQUEST_FILE: &str = "request.json";

/// What a person asked for.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    pub request: RequestId,
    pub goal: String,
    pub plan: Plan,
    pub sandbox: Sandbox,
    pub target: Option<String>,
    pub by: String,
}

/// How a session is watched and ended.
#[derive(Debug, Clone, Copy)]
pub struct Watch {
    pub approval: Approval,
    pub json: bool,
    pub dashboard: bool,
    pub port: Option<u16>,
    pub keep_open: bool,
}

pub async fn run(args: RunArgs) -> Result<Exit, Problem> {
    let project = Project::here().await?;
    let watch = Watch {
        approval: if args.yes { Approval::Given } else { Approval::Asked },
        json: args.json,
        dashboard: !args.no_dashboard,
        port: args.port,
        keep_open: args.keep_open,
    };
    if args.resume {
        return go_on(project, watch).await;
    }
    let sandbox = if args.unsandboxed { Sandbox::Off } else { Sandbox::Required };
    let plan = plan(&args)?;
    for warning in plan.warnings() {
        say(warning);
    }
    let goal = args.goal.clone().or_else(|| plan.goal.clone()).ok_or_else(|| {
        Problem::usage("what is the goal?")
            .hint("kapelle run \"add rate limiting\" --plan plan.json")
    })?;
    project.ready_to_work(sandbox).await?;
    refuse_if_held(&project)?;
    let request = Request {
        request: new_request_id(),
        goal,
        plan,
        sandbox,
        target: args.target,
        by: person(),
    };
    request.write(&project.state_dir())?;
    go_on(project, watch).await
}

/// Starts what was asked for last, or goes on with what is unfinished.
pub async fn go_on(project: Project, watch: Watch) -> Result<Exit, Problem> {
    let mut session = Session::start(project).await?;
    if watch.dashboard {
        session.serve(watch.port).await?;
    }
    let outcome = watched(&mut session, watch).await;
    let ended = session.end().await;
    let exit = outcome?;
    ended?;
    Ok(exit)
}

async fn watched(session: &mut Session, watch: Watch) -> Result<Exit, Problem> {
    let asked = open_requested(session).await?;
    let missions = match asked {
        Some(mission) => vec![mission],
        None => unfinished(session).await?,
    };
    let Some(&mission) = missions.last() else {
        return Err(Problem::refused("there is nothing to resume here")
            .hint("start a mission: kapelle run \"what you want\" --plan plan.json"));
    };
    let ended = session.watch(&missions, watch.approval).await?;
    let (report, exit) = session.report(mission).await?;
    if watch.json {
        print_json(&report)?;
    }
    report.say();
    if ended == Ended::Interrupted {
        say("interrupted; nothing is lost. Go on with: kapelle run --resume");
        return Ok(Exit::Interrupted);
    }
    if watch.keep_open {
        say("the dashboard stays open until you press Ctrl-C");
        interrupted().await;
    }
    Ok(exit)
}

/// Opens the mission of the request file, once, however often it is tried.
async fn open_requested(session: &Session) -> Result<Option<MissionId>, Problem> {
    let project = session.project();
    let dir = project.state_dir();
    let Some(request) = Request::read(&dir)? else { return Ok(None) };
    let target = target(project, request.target.as_deref()).await?;
    let base = project.repo.branch_tip(&target).await?.ok_or_else(|| {
        Problem::refused(format!("there is no branch {target}"))
            .hint("name one with --target, or set [delivery] target in kapelle.toml")
    })?;
    let mut policy = project.policy()?;
    policy.sandbox = request.sandbox;
    if policy.sandbox == Sandbox::Off {
        say("WARNING: agents and checks run without a sandbox; this choice is recorded");
    }
    let command = Command::OpenMission {
        request: request.request,
        goal: request.goal,
        target,
        base,
        plan: request.plan,
        policy: Box::new(policy),
        by: Actor(request.by),
    };
    let mission = match session.handle().send(command).await {
        Ok(accepted) => accepted.opened,
        Err(kapelle_conductor::Error::Refused(Refusal::MissionExists { mission })) => Some(mission),
        Err(other) => {
            // A request that is refused will be refused again.
            Request::remove(&dir)?;
            return Err(other.into());
        }
    };
    Request::remove(&dir)?;
    Ok(mission)
}

/// The missions that have not ended, or the last one if all have.
async fn unfinished(session: &Session) -> Result<Vec<MissionId>, Problem> {
    let look = |state: &kapelle_core::State| {
        let open: Vec<MissionId> =
            state.missions().filter(|m| !m.has_ended()).map(|m| m.id).collect();
        let last = state.missions().next_back().map(|m| m.id);
        if open.is_empty() { last.into_iter().collect() } else { open }
    };
    Ok(session.handle().look(look).await?)
}

async fn target(project: &Project, asked: Option<&str>) -> Result<String, Problem> {
    if let Some(target) = asked.or(project.config.delivery.target.as_deref()) {
        return Ok(target.to_owned());
    }
    project.repo.head_branch().await?.ok_or_else(|| {
        Problem::refused("no branch is checked out, so there is nowhere to deliver to")
            .hint("name one with --target")
    })
}

/// The plan of the file, or the goal as one task.
fn plan(args: &RunArgs) -> Result<Plan, Problem> {
    if let Some(path) = &args.plan {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Problem::usage(format!("{}: {e}", path.display())))?;
        return Plan::parse(&text).map_err(|invalid| {
            Problem::usage(invalid).hint("the format is in docs/reference/plan.schema.json")
        });
    }
    let goal = args.goal.as_deref().unwrap_or("").trim();
    let title = kapelle_core::limits::head(goal, kapelle_core::limits::TITLE_CHARS_MAX);
    let task = PlannedTask {
        id: "1".into(),
        title: title.lines().next().unwrap_or("").to_owned(),
        description: goal.to_owned(),
        priority: Priority::default(),
        dependencies: Vec::new(),
        files: Vec::new(),
        estimated_duration_minutes: None,
        ..PlannedTask::default()
    };
    let plan = Plan { goal: None, tasks: vec![task] };
    plan.validate().map_err(|_| {
        Problem::usage("what is the goal?").hint("kapelle run \"add rate limiting to the API\"")
    })?;
    Ok(plan)
}

/// A second Kapelle must not leave a request behind for the first one to find.
fn refuse_if_held(project: &Project) -> Result<(), Problem> {
    match kapelle_store::holder(&project.state_dir())? {
        None => Ok(()),
        Some(holder) => {
            let held = kapelle_store::Error::Held { holder: Some(holder) };
            Err(Problem::refused(held).hint("wait for it to end, or stop it with Ctrl-C"))
        }
    }
}

fn new_request_id() -> RequestId {
    let now = kapelle_conductor::clock::now().0;
    RequestId(format!("{now:x}-{:x}", std::process::id()))
}

impl Request {
    /// Whole or not at all: written beside its place and renamed into it.
    pub fn write(&self, dir: &Path) -> Result<(), Problem> {
        let file = |e: std::io::Error| Problem::environment(format!("{}: {e}", dir.display()));
        let text = serde_json::to_vec_pretty(self).map_err(Problem::environment)?;
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(builder.recursive(true), 0o700);
        builder.create(dir).map_err(file)?;
        let beside = dir.join(format!("{REQUEST_FILE}.new"));
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits());
        let mut created = options.open(&beside).map_err(file)?;
        std::io::Write::write_all(&mut created, &text).map_err(file)?;
        created.sync_all().map_err(file)?;
        std::fs::rename(&beside, dir.join(REQUEST_FILE)).map_err(file)
    }

    fn read(dir: &Path) -> Result<Option<Request>, Problem> {
        let path = dir.join(REQUEST_FILE);
        match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|e| {
                Problem::environment(format!("{}: {e}", path.display()))
                    .hint("remove the file and ask again")
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Problem::environment(format!("{}: {error}", path.display()))),
        }
    }

    fn remove(dir: &Path) -> Result<(), Problem> {
        let path = dir.join(REQUEST_FILE);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Problem::environment(format!("{}: {error}", path.display())))
            }
            _ => Ok(()),
        }
    }
}
