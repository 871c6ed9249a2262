//! The sandbox: what an agent or a check can see, change, reach and use up.
//!
//! Layers, each of which holds by itself: namespaces made by bubblewrap (files, processes,
//! network, users, host name, shared memory), Landlock, a filter on system calls, limits of
//! single processes, and a control group around all of them. [`Sandbox::probe`] tries which of
//! them work here; [`Sandbox::layers`] says so.
//!
//! Invariant: nothing is visible that is not listed, and nothing is writable but the listed
//! places. The more specific path wins; for the same path, the stricter rule.
//!
//! What is not stopped is in `docs/internals/security.md`.

mod access;
mod cgroup;
mod container;
mod forward;
mod keeper;
mod layers;
mod mandate;
mod mounts;
mod probe;
mod stage;
mod syscalls;
mod wrap;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use crate::egress::Egress;
use crate::process::Spec;

pub use cgroup::{Cgroup, Cgroups};
pub use layers::{Layer, LayerState};
pub use mandate::{Forward, Limits};
pub use probe::{Backend, BoxProgram, Wanted};
pub use stage::enter;

/// The home of a sandboxed process: empty, in memory, gone with it.
pub const HOME: &str = "/home/agent";

/// Where programs in a box find the egress proxy; the usual port of a proxy.
pub const EGRESS_PORT: u16 = 3_128;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path} cannot be opened to the sandbox: {reason}")]
    Path { path: PathBuf, reason: String },
    #[error("the environment variable {name:?} cannot be set")]
    Variable { name: String },
    #[error("{path} cannot be hidden inside of {inside}: this machine has no namespaces")]
    Hidden { path: PathBuf, inside: PathBuf },
    #[error("ports cannot be forwarded: {reason}")]
    Forward { reason: &'static str },
    #[error("the control group of the sandbox: {0}")]
    Cgroup(std::io::Error),
}

/// What of the network a sandboxed process can reach.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Network {
    /// A loopback interface of its own, with nobody else on it.
    #[default]
    None,
    /// The same, with ports that lead to sockets outside, and to nothing else.
    Forwards(Vec<Forward>),
}

/// A file or directory that is seen, read-only, in the place of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    pub source: PathBuf,
    pub over: PathBuf,
}

/// What takes the place of mounts where there are none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StandIn {
    /// Home and temporary files are below this; it is made when it is needed.
    pub scratch: PathBuf,
    /// Says what an overlay would show.
    pub env: BTreeMap<String, OsString>,
}

/// The openings in the walls, and the environment that belongs to them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Walls {
    pub writable: Vec<PathBuf>,
    /// Also for programs outside of `/usr`, such as a toolchain in the user's home.
    pub readable: Vec<PathBuf>,
    /// Parts of the above that look empty.
    pub hidden: Vec<PathBuf>,
    pub overlays: Vec<Overlay>,
    pub env: BTreeMap<String, OsString>,
    pub network: Network,
    pub limits: Limits,
    pub stand_in: StandIn,
}

/// Whether processes can be sandboxed on this machine.
#[derive(Debug, Clone)]
pub enum Sandboxing {
    Usable(Sandbox),
    Unusable { reason: String, hint: String },
}

/// A way to sandbox that was seen to work.
#[derive(Debug, Clone)]
pub struct Sandbox {
    shape: Shape,
    stage: Option<BoxProgram>,
    /// Whether the box program puts Landlock and the filter on system calls around the command.
    landlock: bool,
    syscalls: bool,
    cgroups: Option<Cgroups>,
    layers: Vec<LayerState>,
    /// For every box, instead of what its walls say.
    limits: Option<Limits>,
    egress: Option<Arc<Egress>>,
}

/// What the outer wall is made of.
#[derive(Debug, Clone)]
enum Shape {
    Namespaces {
        bwrap: PathBuf,
        users: mounts::Users,
    },
    /// Landlock and the filter on system calls alone.
    Rules,
    Container(container::Engine),
}

/// Whether a process runs behind walls. Running without is for a person to choose.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "there is one for each process that is started")]
pub enum Confinement {
    Sandboxed(Sandbox),
    Unsandboxed,
}

impl Confinement {
    /// The process as it is to be started. Without walls, only their environment is left.
    pub fn confine(&self, mut spec: Spec, walls: &Walls) -> Result<Spec, Error> {
        match self {
            Confinement::Sandboxed(sandbox) => sandbox.wrap(spec, walls),
            Confinement::Unsandboxed => {
                spec.env.extend(walls.env.clone());
                Ok(spec)
            }
        }
    }
}

impl Sandbox {
    /// Which layers work here, which do not and why, and what each stops.
    #[must_use]
    pub fn layers(&self) -> &[LayerState] {
        &self.layers
    }

    /// The same with these limits for every box.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Sandbox {
        self.limits = Some(limits);
        self
    }

    /// The same with a way to the hosts that this proxy allows, for every box.
    #[must_use]
    pub fn with_egress(mut self, egress: Arc<Egress>) -> Sandbox {
        self.egress = Some(egress);
        self
    }

    /// Whether a box has files, processes and a network of its own.
    #[must_use]
    pub fn has_namespaces(&self) -> bool {
        matches!(self.shape, Shape::Namespaces { .. } | Shape::Container(_))
    }

    /// Whether ports of a box can lead to sockets outside.
    #[must_use]
    pub fn can_forward(&self) -> bool {
        matches!(self.shape, Shape::Namespaces { .. }) && self.stage.is_some()
    }

    /// Ends the containers that a crash left. Other boxes die with their owner.
    pub async fn reap(&self, store: &str) -> std::io::Result<()> {
        match &self.shape {
            Shape::Container(engine) => engine.reap(store).await,
            Shape::Namespaces { .. } | Shape::Rules => Ok(()),
        }
    }

    /// Where control groups for boxes are made, if anywhere.
    #[must_use]
    pub fn cgroups(&self) -> Option<&Cgroups> {
        self.cgroups.as_ref()
    }
}
