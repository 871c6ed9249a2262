//! The sandbox: what an agent or a check can see, change and reach.
//!
//! Bubblewrap gives the process namespaces of its own (files, processes, network, users, host
//! name, shared memory), no capabilities, and a root file system that holds the system's
//! programs read-only, an empty home and an empty `/tmp`. Everything else is a wall that
//! somebody chose to open.
//!
//! Invariant: nothing is visible that is not listed, and nothing is writable but the listed
//! places. The more specific path wins; for the same path, the stricter rule.
//!
//! Not stopped by this level: use of memory, processes and processor time; exotic system calls;
//! and, when Kapelle itself runs as root, reading files of root inside the listed places.

mod mounts;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::process::Spec;

/// The home of a sandboxed process: empty, in memory, gone with it.
pub const HOME: &str = "/home/agent";

const INSTALL_HINT: &str = "install bubblewrap: apt-get install bubblewrap, dnf install bubblewrap or pacman -S bubblewrap";

const VERSION_HINT: &str = "bubblewrap 0.8 or newer is needed";

const KERNEL_HINT: &str = "allow unprivileged user namespaces: see the kernel settings \
    kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns and \
    user.max_user_namespaces";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path} cannot be opened to the sandbox: {reason}")]
    Path { path: PathBuf, reason: String },
    #[error("the environment variable {name:?} cannot be set")]
    Variable { name: String },
}

/// What of the network a sandboxed process can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// A loopback interface of its own, with nobody else on it.
    None,
}

/// A file or directory that is seen, read-only, in the place of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    pub source: PathBuf,
    pub over: PathBuf,
}

/// The openings in the walls, and the environment that belongs to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walls {
    pub writable: Vec<PathBuf>,
    /// Also for programs outside of `/usr`, such as a toolchain in the user's home.
    pub readable: Vec<PathBuf>,
    /// Parts of the above that look empty.
    pub hidden: Vec<PathBuf>,
    pub overlays: Vec<Overlay>,
    pub env: BTreeMap<String, OsString>,
    pub network: Network,
}

/// Whether processes can be sandboxed on this machine.
#[derive(Debug, Clone)]
pub enum Sandboxing {
    Usable(Sandbox),
    Unusable { reason: String, hint: String },
}

/// A bubblewrap that was seen to work.
#[derive(Debug, Clone)]
pub struct Sandbox {
    program: PathBuf,
}

/// Whether a process runs behind walls. Running without is for a person to choose.
#[derive(Debug, Clone)]
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
    /// Looks for bubblewrap and tries it with every option that will be used.
    pub async fn probe() -> Sandboxing {
        let unusable = |reason| Sandboxing::Unusable { reason, hint: INSTALL_HINT.into() };
        let Some(program) = find("bwrap") else {
            return unusable("bubblewrap (bwrap) is not installed".into());
        };
        let mut args = mounts::base();
        args.extend(["--".into(), "true".into()]);
        let mut command = tokio::process::Command::new(&program);
        command.args(args).env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
        command.stdin(std::process::Stdio::null());
        match command.output().await {
            Ok(output) if output.status.success() => Sandboxing::Usable(Sandbox { program }),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                let hint = if said.contains("Unknown option") { VERSION_HINT } else { KERNEL_HINT };
                let reason = format!("{} does not work here: {said}", program.display());
                Sandboxing::Unusable { reason, hint: hint.into() }
            }
            Err(error) => unusable(format!("{} cannot be run: {error}", program.display())),
        }
    }

    /// The same process, behind walls.
    ///
    /// Its environment is that of the spec and of the walls, and `HOME`. It is handed down
    /// through bubblewrap's own environment, not on its command line, which every user of the
    /// machine can read. Variables that would change how bubblewrap itself is loaded are the
    /// exception: outside of the walls they would let an agent's library in.
    pub fn wrap(&self, spec: Spec, walls: &Walls) -> Result<Spec, Error> {
        let mut args = mounts::base();
        match walls.network {
            // `--unshare-all` in the base has done it.
            Network::None => {}
        }
        args.extend(mounts::openings(walls)?);
        args.extend(["--remount-ro".into(), "/".into()]);
        args.extend(["--chdir".into(), spec.dir.clone().into()]);
        let mut env = spec.env;
        env.extend(walls.env.clone());
        env.insert("HOME".into(), HOME.into());
        if let Some(name) = env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(Error::Variable { name: name.clone() });
        }
        let (for_loader, env): (BTreeMap<_, _>, BTreeMap<_, _>) =
            env.into_iter().partition(|(name, _)| concerns_loader(name));
        for (name, value) in for_loader {
            args.extend(["--setenv".into(), name.into(), value]);
        }
        args.extend(["--".into(), spec.program.into()]);
        args.extend(spec.args);
        Ok(Spec { program: self.program.clone(), args, dir: "/".into(), env, ..spec })
    }
}

fn concerns_loader(name: &str) -> bool {
    ["LD_", "GLIBC_", "GCONV_", "MALLOC_", "LOCPATH"].iter().any(|start| name.starts_with(start))
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(program))
        .find(|candidate| is_executable(candidate))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
