//! Containers as the outer wall, for people who have an image with their tools in it.
//!
//! The engine makes the namespaces; Kapelle says what is mounted, and allows nothing else. A
//! container does not die with whoever asked for it, so each has a label by which the next start
//! finds and ends what a crash left.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::process::Command;

use super::{Error, HOME, Walls, mounts};
use crate::process::{Hold, Spec};

/// The label that every container of ours has; its value is the store.
const LABEL: &str = "org.kapelle.store";

/// What an engine needs to find its images and its own server.
const ENGINE_VARIABLES: [&str; 3] = ["HOME", "XDG_RUNTIME_DIR", "DOCKER_HOST"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Engine {
    pub program: PathBuf,
    pub image: String,
    /// Podman maps our user to itself; docker has only the number.
    pub keeps_id: bool,
}

impl Engine {
    /// The process in a container of its own.
    pub fn wrap(&self, spec: Spec, walls: &Walls) -> Result<Spec, Error> {
        mounts::openings(walls)?;
        let mut args = self.base(&spec.lease.store, walls);
        for path in &walls.writable {
            args.extend(bind(path, path, Access::Write)?);
        }
        for path in &walls.readable {
            args.extend(bind(path, path, Access::Read)?);
        }
        for overlay in &walls.overlays {
            args.extend(bind(&overlay.source, &overlay.over, Access::Read)?);
        }
        for path in &walls.hidden {
            match path.is_dir() {
                true => args.extend(mount("type=tmpfs", &[("target", path)])?),
                false => args.extend(bind(Path::new("/dev/null"), path, Access::Read)?),
            }
        }
        args.extend(["--workdir".into(), spec.dir.clone().into()]);
        let mut env = spec.env.clone();
        for name in ENGINE_VARIABLES {
            env.remove(name);
        }
        // By name: the engine takes the values from its own environment, which nobody else can read.
        for name in env.keys().map(String::as_str).chain(["KAPELLE_LEASE", "KAPELLE_RUN"]) {
            args.extend(["--env".into(), name.into()]);
        }
        args.extend(["--env".into(), format!("HOME={HOME}").into()]);
        // The engine finds its own files by the person's variables; the command does not see them.
        for name in ENGINE_VARIABLES {
            env.extend(std::env::var_os(name).map(|value| (name.to_owned(), value)));
        }
        args.extend([self.image.clone().into(), spec.program.clone().into()]);
        args.extend(spec.args.iter().cloned());
        let program = self.program.clone();
        Ok(Spec { program, args, dir: "/".into(), env, hold: Hold::default(), ..spec })
    }

    fn base(&self, store: &str, walls: &Walls) -> Vec<OsString> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let limits = &walls.limits;
        let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
        let mut args: Vec<String> =
            ["run", "--rm", "--init", "--network=none", "--read-only", "--cap-drop=all"]
                .map(str::to_owned)
                .to_vec();
        args.extend([
            "--security-opt=no-new-privileges".into(),
            "--pull=never".into(),
            "--ipc=private".into(),
            format!("--name=kapelle-{}-{number}", std::process::id()),
            format!("--label={LABEL}={store}"),
            format!("--pids-limit={}", limits.processes),
            format!("--memory={}b", limits.memory_bytes),
            format!("--memory-swap={}b", limits.memory_bytes),
            format!("--ulimit=nofile={0}:{0}", limits.open_files),
            format!("--ulimit=fsize={0}:{0}", limits.file_bytes),
            "--ulimit=core=0:0".into(),
            "--tmpfs=/tmp".into(),
            format!("--tmpfs={HOME}"),
            format!("--user={uid}:{gid}"),
        ]);
        if self.keeps_id {
            args.push("--userns=keep-id".into());
        }
        args.into_iter().map(OsString::from).collect()
    }

    /// Starts a container that does nothing, with everything that will be used.
    pub async fn try_out(&self) -> Result<(), String> {
        let walls = Walls::default();
        let mut args = self.base("probe", &walls);
        args.extend([self.image.clone().into(), "true".into()]);
        let output = self.call(args).await.map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    /// Ends the containers that an earlier run of this store left.
    pub async fn reap(&self, store: &str) -> std::io::Result<()> {
        let filter = format!("--filter=label={LABEL}={store}");
        let listed = self.call(["ps".into(), "--quiet".into(), filter.into()].to_vec()).await?;
        let ids = String::from_utf8_lossy(&listed.stdout).into_owned();
        let mut args: Vec<OsString> = ["rm", "--force"].map(OsString::from).to_vec();
        args.extend(ids.split_whitespace().map(OsString::from));
        if args.len() > 2 {
            self.call(args).await?;
        }
        Ok(())
    }

    async fn call(&self, args: Vec<OsString>) -> std::io::Result<Output> {
        let mut command = Command::new(&self.program);
        command.args(args).stdin(Stdio::null()).kill_on_drop(true).output().await
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

fn bind(source: &Path, target: &Path, access: Access) -> Result<[OsString; 2], Error> {
    let kind = match access {
        Access::Read => "type=bind,readonly",
        Access::Write => "type=bind",
    };
    mount(kind, &[("source", source), ("target", target)])
}

/// Colons mean nothing here. Commas do, and engines do not agree on how to quote them.
fn mount(kind: &str, places: &[(&str, &Path)]) -> Result<[OsString; 2], Error> {
    let mut value = OsString::from(kind);
    for (name, path) in places {
        if path.as_os_str().as_bytes().iter().any(|byte| b",\"\n\r".contains(byte)) {
            let reason =
                "a container cannot be told of a path with a comma, a quote or a line end in it";
            return Err(Error::Path { path: path.into(), reason: reason.into() });
        }
        value.push(format!(",{name}="));
        value.push(path);
    }
    Ok(["--mount".into(), value])
}

#[cfg(test)]
mod tests {
    use kapelle_core::Fence;

    use super::*;
    use crate::process::Lease;

    /// No engine runs on every machine; what it is told can be looked at on all of them.
    #[test]
    fn a_container_is_told_to_open_what_is_listed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("a:tree");
        let listed = dir.path().join("a,readonly=false");
        for place in [&tree, &listed] {
            std::fs::create_dir(place).unwrap();
        }
        let walls = Walls {
            writable: vec![tree.clone()],
            readable: vec!["/opt".into()],
            ..Walls::default()
        };
        let spec = Spec {
            program: "sh".into(),
            args: vec!["-c".into(), "true".into()],
            dir: tree.clone(),
            env: [("TOKEN".to_owned(), OsString::from("secret"))].into(),
            lease: Lease { store: "s".into(), fence: Fence(1) },
            log: "/dev/null".into(),
            hold: Hold::default(),
        };
        let engine =
            Engine { program: "/usr/bin/podman".into(), image: "tools:1".into(), keeps_id: true };
        let wrapped = engine.wrap(spec.clone(), &walls).unwrap();
        let args: Vec<String> =
            wrapped.args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
        for needed in [
            "--network=none",
            "--read-only",
            "--cap-drop=all",
            "--security-opt=no-new-privileges",
            "--pull=never",
            "--userns=keep-id",
            "--label=org.kapelle.store=s",
        ] {
            assert!(args.iter().any(|arg| arg == needed), "{needed} is missing in {args:?}");
        }
        let mounts: Vec<&String> = args
            .iter()
            .zip(args.iter().skip(1))
            .filter(|(arg, _)| *arg == "--mount")
            .map(|(_, value)| value)
            .collect();
        let tree = tree.display();
        let writable = format!("type=bind,source={tree},target={tree}");
        let readable = "type=bind,readonly,source=/opt,target=/opt".to_owned();
        assert_eq!(mounts, [&writable, &readable]);
        assert!(!args.iter().any(|arg| arg.contains("secret")), "everybody can read command lines");
        let end: Vec<&str> = args[args.len() - 4..].iter().map(String::as_str).collect();
        assert_eq!(end, ["tools:1", "sh", "-c", "true"]);
        let walls = Walls { readable: vec![listed.clone()], ..Walls::default() };
        let refused = engine.wrap(spec, &walls);
        assert!(
            matches!(refused, Err(Error::Path { path, .. }) if path == listed),
            "a list of words"
        );
    }
}
