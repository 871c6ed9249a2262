//! Trying what works on this machine, with every option that will be used.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use tokio::process::Command;

use super::cgroup::Cgroups;
use super::container::Engine;
use super::mandate::{Access, Mandate, Sockets};
use super::mounts::{self, Users};
use super::{Layer, LayerState, Sandbox, Sandboxing, Shape};
use crate::programs::find;

const INSTALL_HINT: &str = "install bubblewrap: apt-get install bubblewrap, dnf install bubblewrap or pacman -S bubblewrap";

const VERSION_HINT: &str = "bubblewrap 0.8 or newer is needed";

const KERNEL_HINT: &str = "allow unprivileged user namespaces: see the kernel settings \
    kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns and \
    user.max_user_namespaces";

const ROOT_HINT: &str = "or run Kapelle as an ordinary user, where Landlock alone can do";

const CGROUPS_HINT: &str =
    "start Kapelle by `systemd-run --user --scope kapelle …` to get a place for them";

/// Kapelle's own binary, and the arguments that make it the box program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoxProgram {
    pub path: PathBuf,
    pub args: Vec<OsString>,
}

/// What the outer wall may be made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// Namespaces if they work, else Landlock with the filter on system calls.
    #[default]
    Auto,
    Bubblewrap,
    Landlock,
    Podman,
    Docker,
}

/// What to look for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    pub backend: Backend,
    /// Without it, bubblewrap is the only layer.
    pub stage: Option<BoxProgram>,
    /// What containers are made from; needed for podman and docker.
    pub image: Option<String>,
}

impl Sandbox {
    /// Bubblewrap alone, for those who have no box program at hand.
    pub async fn probe() -> Sandboxing {
        let wanted = Wanted { backend: Backend::Bubblewrap, ..Wanted::default() };
        Sandbox::look_for(&wanted).await
    }

    /// Looks for the best box that works here.
    pub async fn look_for(wanted: &Wanted) -> Sandboxing {
        match wanted.backend {
            Backend::Podman => return container("podman", wanted).await,
            Backend::Docker => return container("docker", wanted).await,
            Backend::Auto | Backend::Bubblewrap | Backend::Landlock => {}
        }
        let stage = wanted.stage.clone();
        let (landlock, syscalls) = match &stage {
            Some(stage) => (try_landlock(stage).await, try_syscalls(stage).await),
            None => (Err(no_stage()), Err(no_stage())),
        };
        let cgroups = match &stage {
            Some(_) => Cgroups::find().map_err(|reason| format!("{reason}; {CGROUPS_HINT}")),
            None => Err(no_stage()),
        };
        let namespaces = match wanted.backend {
            Backend::Landlock => Err(Missing::new("the configuration asks for Landlock alone", "")),
            Backend::Auto | Backend::Bubblewrap | Backend::Podman | Backend::Docker => {
                namespaces().await
            }
        };
        let shape = match &namespaces {
            Ok(shape) => shape.clone(),
            Err(missing) => {
                let rules = landlock.is_ok() && syscalls.is_ok() && !is_root();
                if wanted.backend == Backend::Bubblewrap || !rules {
                    let hint = match is_root() {
                        true => format!("{}; {ROOT_HINT}", missing.hint),
                        false => missing.hint.clone(),
                    };
                    return Sandboxing::Unusable { reason: missing.reason.clone(), hint };
                }
                Shape::Rules
            }
        };
        let layers = describe(&shape, &namespaces, &landlock, &syscalls, &cgroups);
        Sandboxing::Usable(Sandbox {
            shape,
            stage,
            landlock: landlock.is_ok(),
            syscalls: syscalls.is_ok(),
            cgroups: cgroups.ok(),
            layers,
            limits: None,
            egress: None,
        })
    }
}

/// A container engine, asked for by name. There is no fall-back from it.
async fn container(name: &str, wanted: &Wanted) -> Sandboxing {
    let unusable = |reason: String, hint: &str| Sandboxing::Unusable { reason, hint: hint.into() };
    let Some(program) = find(name) else {
        let hint = format!(
            "install it (apt-get install {name}, dnf install {name}), or choose another box: \
             [sandbox] backend = \"auto\""
        );
        return unusable(format!("{name} is not installed"), &hint);
    };
    let Some(image) = wanted.image.clone() else {
        let hint = "name one with your tools in it: [sandbox] image = \"…\"";
        return unusable(format!("{name} needs an image"), hint);
    };
    let engine = Engine { program, image: image.clone(), keeps_id: name == "podman" };
    if let Err(said) = engine.try_out().await {
        let hint = "try the same by hand: is the engine running, and the image there?";
        return unusable(format!("{name} cannot run {image}: {said}"), hint);
    }
    let by = |what: &str| Ok(format!("{what} of {name}"));
    let layers = vec![
        LayerState::of(Layer::Namespaces, by("those")),
        LayerState::of(Layer::Landlock, Err("there is no box program in a container".into())),
        LayerState::of(Layer::Syscalls, by("the default filter")),
        LayerState::of(Layer::Limits, by("those")),
        LayerState::of(Layer::ControlGroups, by("those")),
        LayerState::of(Layer::Network, Ok("none at all".into())),
    ];
    let shape = Shape::Container(engine);
    let (cgroups, limits, egress) = (None, None, None);
    let (landlock, syscalls) = (false, false);
    Sandboxing::Usable(Sandbox {
        shape,
        stage: None,
        landlock,
        syscalls,
        cgroups,
        layers,
        limits,
        egress,
    })
}

/// Why a layer is not there, and what to do about it.
struct Missing {
    reason: String,
    hint: String,
}

impl Missing {
    fn new(reason: impl Into<String>, hint: &str) -> Missing {
        Missing { reason: reason.into(), hint: hint.into() }
    }
}

fn no_stage() -> String {
    "there is no box program here".into()
}

fn describe(
    shape: &Shape,
    namespaces: &Result<Shape, Missing>,
    landlock: &Result<(), String>,
    syscalls: &Result<(), String>,
    cgroups: &Result<Cgroups, String>,
) -> Vec<LayerState> {
    let outer = match (shape, namespaces) {
        (Shape::Namespaces { bwrap, users: Users::Own }, _) => {
            Ok(format!("{}, with users of its own", bwrap.display()))
        }
        (Shape::Namespaces { bwrap, users: Users::Shared }, _) => {
            Ok(format!("{}, as root and without users of its own", bwrap.display()))
        }
        (Shape::Rules, Err(missing)) => Err(format!("{}; {}", missing.reason, missing.hint)),
        (Shape::Rules, Ok(_)) | (Shape::Container(_), _) => Err("not used".into()),
    };
    let network = match shape {
        Shape::Namespaces { .. } => "a network of its own".to_owned(),
        Shape::Rules | Shape::Container(_) => {
            "only local sockets; no port can be forwarded".to_owned()
        }
    };
    let cgroups = match cgroups {
        Ok(Cgroups::Two { parent }) => Ok(format!("version 2, below {}", parent.display())),
        Ok(Cgroups::One { .. }) => Ok("version 1".to_owned()),
        Err(reason) => Err(reason.clone()),
    };
    let limits = syscalls.clone().map(|()| "set by the box program".to_owned());
    let by_kernel = |found: &Result<(), String>| found.clone().map(|()| "by the kernel".to_owned());
    vec![
        LayerState::of(Layer::Namespaces, outer),
        LayerState::of(Layer::Landlock, by_kernel(landlock)),
        LayerState::of(Layer::Syscalls, by_kernel(syscalls)),
        LayerState::of(Layer::Limits, limits),
        LayerState::of(Layer::ControlGroups, cgroups),
        LayerState::of(Layer::Network, Ok(network)),
    ]
}

/// Bubblewrap with users of its own; where that is closed, as root without.
async fn namespaces() -> Result<Shape, Missing> {
    let Some(bwrap) = find("bwrap") else {
        return Err(Missing::new("bubblewrap (bwrap) is not installed", INSTALL_HINT));
    };
    let first = try_bwrap(&bwrap, Users::Own).await;
    match first {
        Ok(()) => Ok(Shape::Namespaces { bwrap, users: Users::Own }),
        Err(missing) if !is_root() => Err(missing),
        Err(missing) => match try_bwrap(&bwrap, Users::Shared).await {
            Ok(()) => Ok(Shape::Namespaces { bwrap, users: Users::Shared }),
            Err(_) => Err(missing),
        },
    }
}

async fn try_bwrap(bwrap: &Path, users: Users) -> Result<(), Missing> {
    let mut args = mounts::base(users);
    args.extend(["--".into(), "true".into()]);
    let tried = run(bwrap, args).await;
    let output = tried.map_err(|error| {
        Missing::new(format!("{} cannot be run: {error}", bwrap.display()), INSTALL_HINT)
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = said(&output);
    let hint = if said.contains("Unknown option") { VERSION_HINT } else { KERNEL_HINT };
    Err(Missing::new(format!("{} does not work here: {said}", bwrap.display()), hint))
}

async fn try_landlock(stage: &BoxProgram) -> Result<(), String> {
    let access = Access { read: vec!["/".into()], write: Vec::new() };
    try_stage(stage, &Mandate { access: Some(access), ..Mandate::default() }).await
}

async fn try_syscalls(stage: &BoxProgram) -> Result<(), String> {
    let sockets = Some(Sockets::Local);
    let limits = Some(super::Limits::default());
    try_stage(stage, &Mandate { sockets, limits, ..Mandate::default() }).await
}

async fn try_stage(stage: &BoxProgram, mandate: &Mandate) -> Result<(), String> {
    let mut args = stage.args.clone();
    args.extend(mandate.to_args());
    args.push("true".into());
    match run(&stage.path, args).await {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("does not work here: {}", said(&output))),
        Err(error) => Err(format!("{} cannot be run: {error}", stage.path.display())),
    }
}

async fn run(program: &Path, args: Vec<OsString>) -> std::io::Result<Output> {
    let mut command = Command::new(program);
    command.args(args).env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
    command.stdin(Stdio::null()).kill_on_drop(true).output().await
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
