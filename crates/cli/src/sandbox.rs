//! `kapelle sandbox`: the box that agents and checks run in, for people who want to try it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use kapelle_core::Fence;
use kapelle_workspace::egress::{AllowList, Egress};
use kapelle_workspace::process::{self, Attached, Hold, Lease, Spec};
use kapelle_workspace::sandbox::{Backend, BoxProgram, Limits, Sandbox, Sandboxing, Wanted};
use kapelle_workspace::{Worktree, kept, reaper, worktree};
use serde::Serialize;

use crate::args::{LookArgs, SandboxRunArgs};
use crate::config::{Config, SandboxBackend, SandboxConfig};
use crate::output::{Exit, Problem, print, print_json, say};
use crate::project::Project;

/// The first argument that makes this binary the box program.
pub const BOX_PROGRAM: &str = "box-program";

/// The best box that works here, within what the configuration asks for.
pub async fn look(config: &Config) -> Sandboxing {
    let stage = std::env::current_exe().ok();
    let stage = stage.map(|path| BoxProgram { path, args: vec![BOX_PROGRAM.into()] });
    let backend = match config.sandbox.backend {
        SandboxBackend::Auto => Backend::Auto,
        SandboxBackend::Bubblewrap => Backend::Bubblewrap,
        SandboxBackend::Landlock => Backend::Landlock,
        SandboxBackend::Podman => Backend::Podman,
        SandboxBackend::Docker => Backend::Docker,
    };
    let image = config.sandbox.image.clone();
    match Sandbox::look_for(&Wanted { backend, stage, image }).await {
        Sandboxing::Usable(found) => Sandboxing::Usable(found.with_limits(limits(&config.sandbox))),
        unusable => unusable,
    }
}

/// The same, with the way to the hosts that the project allows.
pub async fn of_project(project: &Project) -> Result<Sandboxing, Problem> {
    let found = match look(&project.config).await {
        Sandboxing::Usable(found) if !project.config.sandbox.egress.is_empty() => found,
        other => return Ok(other),
    };
    if !found.can_forward() {
        let what = "[sandbox] egress needs bubblewrap with namespaces, and this box has none";
        return Err(Problem::environment(what)
            .hint("`kapelle sandbox explain` says why; or leave egress empty"));
    }
    let hosts = project.config.sandbox.egress.iter().map(String::as_str);
    let allowed = AllowList::new(hosts).map_err(Problem::usage)?;
    // One for each Kapelle: another one may be at work with a list of its own.
    let path = project.sockets()?.join(format!("egress-{}", std::process::id()));
    let egress = Egress::listen(&path, allowed).map_err(Problem::environment)?;
    Ok(Sandboxing::Usable(found.with_egress(Arc::new(egress))))
}

fn limits(config: &SandboxConfig) -> Limits {
    let default = Limits::default();
    let mib =
        |value: Option<u64>, otherwise| value.map_or(otherwise, |mib| mib.saturating_mul(1 << 20));
    Limits {
        memory_bytes: mib(config.memory_mib, default.memory_bytes),
        processes: config.processes.unwrap_or(default.processes),
        disk_bytes: mib(config.disk_mib, default.disk_bytes),
        ..default
    }
}

#[derive(Debug, Serialize)]
struct LayerView {
    layer: &'static str,
    active: bool,
    detail: String,
    stops: &'static str,
}

pub async fn explain(args: &LookArgs) -> Result<Exit, Problem> {
    let config = Project::here().await.map(|project| project.config).unwrap_or_default();
    let found = usable(look(&config).await)?;
    let layers: Vec<LayerView> = found
        .layers()
        .iter()
        .map(|state| LayerView {
            layer: state.layer.name(),
            active: state.active,
            detail: state.detail.clone(),
            stops: state.layer.stops(),
        })
        .collect();
    if args.json {
        print_json(&layers)?;
        return Ok(Exit::Done);
    }
    for layer in &layers {
        let mark = if layer.active { "active " } else { "MISSING" };
        print(format!("{mark}  {:<10}  {}", layer.layer, layer.detail));
        let stops = if layer.active { "stops" } else { "would stop" };
        print(format!("                     {stops}: {}", layer.stops));
    }
    print("What no layer stops is in docs/internals/security.md.");
    Ok(Exit::Done)
}

fn usable(found: Sandboxing) -> Result<Sandbox, Problem> {
    match found {
        Sandboxing::Usable(sandbox) => Ok(sandbox),
        Sandboxing::Unusable { reason, hint } => {
            Err(Problem::environment(format!("there is no sandbox here: {reason}")).hint(hint))
        }
    }
}

/// Runs a command in a fresh tree. What it leaves there is kept, as an agent's work would be.
pub async fn run(args: SandboxRunArgs) -> Result<Exit, Problem> {
    let project = Project::here().await?;
    project.make_state_dir().await?;
    keep_abandoned(&project).await?;
    let sandbox = usable(of_project(&project).await?)?;
    let of_role = args.role.as_deref().map(|role| project.readable_by(role)).transpose()?;
    let place = Place::make(&project)?;
    let head = project.repo.resolve("HEAD").await?;
    let tree = Worktree::prepare(&project.repo, &place.tree(), &head).await?;
    let mut walls = tree.walls(&place.git()).await?;
    walls.readable.extend(project.readable()?);
    walls.readable.extend(of_role.unwrap_or_default());
    let (program, arguments) =
        args.command.split_first().ok_or_else(|| Problem::usage("there is no command"))?;
    let spec = Spec {
        program: program.into(),
        args: arguments.to_vec(),
        dir: tree.dir().into(),
        env: project.environment(),
        lease: Lease { store: place.store(), fence: Fence(u64::from(std::process::id())) },
        log: "/dev/null".into(),
        hold: Hold::default(),
    };
    let spec = sandbox.wrap(spec, &walls).map_err(Problem::environment)?;
    let ended = process::run_attached(spec).await.map_err(Problem::environment)?;
    put_away(tree, &place).await?;
    Ok(match ended {
        Attached::Exited { code: 0 } => Exit::Done,
        Attached::Exited { code } => {
            say(format!("the command ended with exit code {code}"));
            Exit::Failed
        }
        Attached::OverQuota { reason } => {
            say(format!("the command was ended: {reason}"));
            Exit::Failed
        }
        Attached::Interrupted => Exit::Interrupted,
    })
}

/// Where one command is tried. Whoever has it open holds its lock; the kernel lets go of that with
/// the process, however it ends.
struct Place {
    dir: PathBuf,
    _held: File,
}

impl Place {
    fn make(project: &Project) -> Result<Place, Problem> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let dir = tries(project).join(format!("{}-{}", now.as_secs(), std::process::id()));
        let failed = |e| Problem::environment(format!("{}: {e}", dir.display()));
        std::fs::create_dir_all(&dir).map_err(failed)?;
        let held = File::create(dir.join("lock")).map_err(failed)?;
        held.lock().map_err(failed)?;
        Ok(Place { dir, _held: held })
    }

    /// A place that nobody has open any more.
    fn abandoned(dir: &Path) -> Option<Place> {
        let held = File::open(dir.join("lock")).ok()?;
        held.try_lock().ok()?;
        Some(Place { dir: dir.into(), _held: held })
    }

    fn tree(&self) -> PathBuf {
        self.dir.join("tree")
    }

    fn git(&self) -> PathBuf {
        self.dir.join("git")
    }

    /// By which its processes and control groups are known.
    fn store(&self) -> String {
        self.name().replace('/', "-")
    }

    /// Under which its work is kept.
    fn name(&self) -> String {
        format!("try/{}", self.dir.file_name().unwrap_or_default().to_string_lossy())
    }
}

fn tries(project: &Project) -> PathBuf {
    project.state_dir().join("try")
}

/// Keeps what is left of commands whose Kapelle was killed. What cannot be kept stays where it is.
pub async fn keep_abandoned(project: &Project) -> Result<(), Problem> {
    for left in Worktree::leftovers(&project.repo, &tries(project)).await? {
        let Some(place) = left.dir().parent().and_then(Place::abandoned) else { continue };
        reaper::reap(&place.store()).await.map_err(Problem::environment)?;
        if let Err(problem) = put_away(left, &place).await {
            say(format!("{}; {}", problem.what, problem.hint.unwrap_or_default()));
        }
    }
    Ok(())
}

async fn put_away(tree: Worktree, place: &Place) -> Result<(), Problem> {
    let kept = async {
        let name = place.name();
        let kept = tree.keep(&name).await?;
        let commits = tree.keep_commits(&place.git(), &name).await?;
        let names = commits.iter().filter_map(|one| kept::name_of(one)).map(str::to_owned);
        let names: Vec<String> = kept.commit().map(|_| name).into_iter().chain(names).collect();
        tree.remove(kept).await?;
        worktree::remove_scrap(&place.dir).await?;
        Ok::<_, worktree::Error>(names)
    };
    let names = kept.await.map_err(|error| {
        let hint = format!("what the command left is still in {}", place.dir.display());
        Problem::from(error).hint(hint)
    })?;
    for name in names {
        say(format!("what it left is kept: kapelle recover {name}"));
    }
    Ok(())
}
