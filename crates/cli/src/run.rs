//! `kapelle run`: hand over a goal, or go on with what was begun.
//!
//! What is asked for is written to the state folder before anything starts, under a name that is
//! used once. So a crash at any moment leaves either nothing, or something to resume, and never
//! two missions.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use kapelle_conductor::project::make_private;
use kapelle_core::mission::{Mission, MissionStatus};
use kapelle_core::plan::{Plan, PlannedTask, Priority};
use kapelle_core::policy::Sandbox;
use kapelle_core::{Actor, Command, MissionId, Refusal, RequestId};
use serde::{Deserialize, Serialize};

use crate::args::RunArgs;
use crate::output::{Exit, Problem, print_json, say};
use crate::project::{Project, person};
use crate::session::{Approval, Ended, Interrupts, Session, Until};

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

/// What a session is about.
#[derive(Debug)]
pub enum About {
    /// A new goal. Its request is on disk.
    Goal(Box<Request>),
    Mission(MissionId),
    /// What was asked for and not opened, and what is unfinished.
    Unfinished,
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
    let interrupts = Interrupts::listen()?;
    let project = Project::here().await?;
    let watch = Watch {
        approval: if args.yes { Approval::Given } else { Approval::Asked },
        json: args.json,
        dashboard: !args.no_dashboard,
        port: args.port,
        keep_open: args.keep_open,
    };
    if args.resume {
        ready_to_resume(&project).await?;
        return go_on(project, About::Unfinished, watch, interrupts).await;
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
    project.ready_to_work(&project.policy()?.flow, sandbox).await?;
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
    go_on(project, About::Goal(Box::new(request)), watch, interrupts).await
}

/// Starts what was asked for, or goes on with what was begun.
pub async fn go_on(
    project: Project,
    about: About,
    watch: Watch,
    mut interrupts: Interrupts,
) -> Result<Exit, Problem> {
    let dir = project.state_dir();
    let mut session = match (Session::start(project).await, &about) {
        (Ok(session), _) => session,
        (Err(problem), About::Goal(request)) => {
            // Somebody else has the lead, and must not find it.
            request.remove(&dir)?;
            return Err(problem);
        }
        (Err(problem), _) => return Err(problem),
    };
    let outcome = watched(&mut session, about, watch, &mut interrupts).await;
    let ended = session.end().await;
    // Why the conductor ended says more than that it did.
    ended?;
    outcome
}

async fn watched(
    session: &mut Session,
    about: About,
    watch: Watch,
    interrupts: &mut Interrupts,
) -> Result<Exit, Problem> {
    if watch.dashboard {
        session.serve(watch.port).await?;
    }
    let missions = match about {
        About::Mission(mission) => vec![mission],
        About::Goal(request) => vec![open_requested(session, *request).await?],
        About::Unfinished => {
            for request in Request::pending(&session.project().state_dir())? {
                open_requested(session, request).await?;
            }
            unfinished(session).await?
        }
    };
    let Some(&mission) = missions.last() else { return Err(nothing_to_resume()) };
    let ended = session.watch(&missions, watch.approval, Until::Settled, interrupts).await?;
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
        session.watch(&missions, watch.approval, Until::Interrupted, interrupts).await?;
        return Ok(session.report(mission).await?.1);
    }
    Ok(exit)
}

/// Refuses to go on where nothing was begun, and where what was begun could not be worked on:
/// the work is not to blame for a machine that cannot do it.
pub async fn ready_to_resume(project: &Project) -> Result<(), Problem> {
    project.bring_up_to_date().await?;
    let requests = Request::pending(&project.state_dir())?;
    for request in &requests {
        project.ready_to_work(&project.policy()?.flow, request.sandbox).await?;
    }
    if !project.is_begun()? {
        return if requests.is_empty() { Err(nothing_to_resume()) } else { Ok(()) };
    }
    let (_, engine) = project.read()?;
    for mission in engine.state().missions().filter(|mission| has_work(mission.status())) {
        project.ready_to_work(&mission.policy.flow, mission.policy.sandbox).await?;
    }
    Ok(())
}

/// Whether an agent may have to work on the mission yet.
fn has_work(status: MissionStatus) -> bool {
    match status {
        MissionStatus::Running | MissionStatus::Paused | MissionStatus::AwaitingAnswer => true,
        MissionStatus::AwaitingApproval
        | MissionStatus::Delivering
        | MissionStatus::Delivered
        | MissionStatus::Failed
        | MissionStatus::Cancelled => false,
    }
}

fn nothing_to_resume() -> Problem {
    Problem::refused("there is nothing to resume here")
        .hint("start a mission: kapelle run \"what you want\" --plan plan.json")
}

/// Opens the mission of a request, once, however often it is tried. What is refused is forgotten.
async fn open_requested(session: &Session, request: Request) -> Result<MissionId, Problem> {
    let dir = session.project().state_dir();
    let opened = open(session, &request).await;
    request.remove(&dir)?;
    opened
}

async fn open(session: &Session, request: &Request) -> Result<MissionId, Problem> {
    let project = session.project();
    let target = target(project, request.target.as_deref()).await?;
    let base = project.repo.branch_tip(&target).await?.ok_or_else(|| {
        Problem::refused(format!("there is no branch {target}"))
            .hint("name one with --target, or set [delivery] target in kapelle.toml")
    })?;
    let mut policy = project.policy()?;
    policy.sandbox = request.sandbox;
    if policy.checks.is_empty() {
        say("WARNING: no checks are configured, so whatever agents leave will be merged");
    }
    if policy.sandbox == Sandbox::Off {
        say("WARNING: agents and checks run without a sandbox; this choice is recorded");
    }
    refuse_taken_branch(session, &request.request).await?;
    let command = Command::OpenMission {
        request: request.request.clone(),
        goal: request.goal.clone(),
        target,
        base,
        plan: request.plan.clone(),
        policy: Box::new(policy),
        by: Actor(request.by.clone()),
    };
    match session.handle().send(command).await {
        Ok(accepted) => accepted
            .opened
            .ok_or_else(|| Problem::environment("the mission was accepted but not opened")),
        Err(kapelle_conductor::Error::Refused(Refusal::MissionExists { mission })) => Ok(mission),
        Err(other) => Err(other.into()),
    }
}

/// The branch of the next mission may be there from a state folder that was lost.
async fn refuse_taken_branch(session: &Session, request: &RequestId) -> Result<(), Problem> {
    let request = request.clone();
    let next = session.handle().look(move |state| state.next_mission(&request)).await?;
    let Some(branch) = next.map(|mission| mission.branch()) else { return Ok(()) };
    match session.project().repo.branch_tip(&branch).await? {
        None => Ok(()),
        Some(tip) => {
            Err(Problem::refused(format!(
                "the branch {branch} is there already, at {}",
                tip.short()
            ))
                .hint(format!("it is not of this state folder; keep it under another name: git branch -m {branch} old/{branch}")))
        }
    }
}

/// The missions that have neither ended nor failed, or the last one if all have.
async fn unfinished(session: &Session) -> Result<Vec<MissionId>, Problem> {
    let look = |state: &kapelle_core::State| {
        let over = |m: &&Mission| m.has_ended() || m.status() == MissionStatus::Failed;
        let open: Vec<MissionId> = state.missions().filter(|m| !over(m)).map(|m| m.id).collect();
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

/// A second Kapelle must not leave a request behind for the first one to find. On a server only
/// whoever asks for the lead learns whether its holder is alive.
fn refuse_if_held(project: &Project) -> Result<(), Problem> {
    if project.location()?.path().is_none() {
        return Ok(());
    }
    match project.holder()? {
        None => Ok(()),
        held => Err(kapelle_store::Error::Held { holder: held }.into()),
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
        make_private(dir).map_err(Problem::environment)?;
        let place = self.place(dir);
        let beside = place.with_extension("new");
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits());
        let mut created = options.open(&beside).map_err(file)?;
        std::io::Write::write_all(&mut created, &text).map_err(file)?;
        created.sync_all().map_err(file)?;
        std::fs::rename(&beside, place).map_err(file)
    }

    /// What was asked for and not opened, oldest first.
    fn pending(dir: &Path) -> Result<Vec<Request>, Problem> {
        let Ok(entries) = dir.read_dir() else { return Ok(Vec::new()) };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> =
            names.filter(|n| n.starts_with("request-") && n.ends_with(".json")).collect();
        names.sort();
        names.iter().map(|name| Request::read(&dir.join(name))).collect()
    }

    fn read(path: &Path) -> Result<Request, Problem> {
        let wrong = |e: &dyn std::fmt::Display| {
            Problem::environment(format!("{}: {e}", path.display()))
                .hint("remove the file and ask again")
        };
        let text = std::fs::read(path).map_err(|e| wrong(&e))?;
        serde_json::from_slice(&text).map_err(|e| wrong(&e))
    }

    fn remove(&self, dir: &Path) -> Result<(), Problem> {
        let path = self.place(dir);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Problem::environment(format!("{}: {error}", path.display())))
            }
            _ => Ok(()),
        }
    }

    /// A file of its own: two people who ask at the same moment must not get each other's goal.
    fn place(&self, dir: &Path) -> PathBuf {
        dir.join(format!("request-{}.json", self.request.0))
    }
}
