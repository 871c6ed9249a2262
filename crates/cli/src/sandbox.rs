//! `kapelle sandbox`: the box that agents and checks run in, for people who want to try it.

use std::sync::Arc;

use kapelle_core::Fence;
use kapelle_workspace::egress::{AllowList, Egress};
use kapelle_workspace::process::{self, Hold, Lease, Spec};
use kapelle_workspace::sandbox::{Backend, BoxProgram, Limits, Sandbox, Sandboxing, Wanted};
use kapelle_workspace::{Worktree, worktree};
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
    let dir = project.state_dir();
    std::fs::create_dir_all(&dir)
        .map_err(|e| Problem::environment(format!("{}: {e}", dir.display())))?;
    // One for each Kapelle: another one may be at work with a list of its own.
    let path = dir.join(format!("egress-{}.sock", std::process::id()));
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
    project.repo.exclude_locally("/.kapelle/").await?;
    let sandbox = usable(of_project(&project).await?)?;
    let dir = project.state_dir().join("try").join(std::process::id().to_string());
    let head = project.repo.resolve("HEAD").await?;
    let tree = Worktree::prepare(&project.repo, &dir.join("tree"), &head).await?;
    let mut walls = tree.walls(&dir.join("git")).await?;
    walls.readable.extend(project.readable()?);
    let (program, arguments) =
        args.command.split_first().ok_or_else(|| Problem::usage("there is no command"))?;
    let spec = Spec {
        program: program.into(),
        args: arguments.to_vec(),
        dir: tree.dir().into(),
        env: project.environment(),
        lease: Lease { store: "try".into(), fence: Fence(u64::from(std::process::id())) },
        log: "/dev/null".into(),
        hold: Hold::default(),
    };
    let spec = sandbox.wrap(spec, &walls).map_err(Problem::environment)?;
    let code = process::run_attached(spec).await.map_err(Problem::environment)?;
    let name = format!("try/{}", std::process::id());
    let kept = tree.keep(&name).await?;
    if kept.commit().is_some() {
        say(format!("what it left in the tree is kept: kapelle recover {name}"));
    }
    tree.remove(kept).await?;
    worktree::remove_scrap(&dir).await?;
    if code != 0 {
        say(format!("the command ended with exit code {code}"));
    }
    Ok(if code == 0 { Exit::Done } else { Exit::Failed })
}
