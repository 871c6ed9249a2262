//! Putting walls around one process: the command line that starts it in its box.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::mandate::{Access, Mandate, Sockets};
use super::mounts::{self, STAGE, Users};
use super::{BoxProgram, EGRESS_PORT, Error, Forward, HOME, Network, Sandbox, Shape, Walls};
use crate::process::{Hold, Quota, Spec};

/// Devices that every program may take for granted. The shared memory of the machine is not one.
const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/fd"];

impl Sandbox {
    /// The same process, behind walls.
    ///
    /// Its environment is that of the spec and of the walls, and `HOME`. It is handed down
    /// through the environment of the outer programs, not on their command line, which every user
    /// of the machine can read. Variables that would change how these programs themselves are
    /// loaded are the exception: outside of the walls they would let an agent's library in.
    pub fn wrap(&self, spec: Spec, walls: &Walls) -> Result<Spec, Error> {
        let walls = &self.with_own(walls);
        let mut spec = spec;
        spec.env.extend(walls.env.clone());
        match &self.shape {
            Shape::Namespaces { bwrap, users } => self.in_namespaces(spec, walls, bwrap, *users),
            Shape::Rules => self.by_rules(spec, walls),
            Shape::Container(_) if !self.forwards(walls)?.is_empty() => {
                Err(Error::Forward { reason: "containers have no box program in them" })
            }
            Shape::Container(engine) => engine.wrap(spec, walls),
        }
    }

    /// The walls with what this sandbox opens and limits for every box.
    fn with_own(&self, walls: &Walls) -> Walls {
        let mut walls = walls.clone();
        if let Some(limits) = &self.limits {
            walls.limits = limits.clone();
        }
        let Some(egress) = &self.egress else { return walls };
        let forward = Forward { port: EGRESS_PORT, socket: egress.path().into() };
        match &mut walls.network {
            Network::None => walls.network = Network::Forwards(vec![forward]),
            Network::Forwards(forwards) => forwards.push(forward),
        }
        let proxy = format!("http://127.0.0.1:{EGRESS_PORT}");
        for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
            walls.env.insert(name.into(), proxy.clone().into());
        }
        for name in ["no_proxy", "NO_PROXY"] {
            walls.env.insert(name.into(), "127.0.0.1,localhost,::1".into());
        }
        walls
    }

    fn in_namespaces(
        &self,
        spec: Spec,
        walls: &Walls,
        bwrap: &Path,
        users: Users,
    ) -> Result<Spec, Error> {
        let mut args = mounts::base(users);
        args.extend(mounts::openings(walls)?);
        let forwards = self.forwards(walls)?;
        for (number, forward) in forwards.iter().enumerate() {
            let inside = socket_inside(number);
            args.extend(["--ro-bind".into(), forward.socket.clone().into(), inside.into()]);
        }
        if let Some(stage) = &self.stage {
            args.extend(["--ro-bind".into(), stage.path.clone().into(), STAGE.into()]);
        }
        args.extend(["--remount-ro".into(), "/".into()]);
        args.extend(["--chdir".into(), spec.dir.clone().into()]);
        let mut env = spec.env.clone();
        env.insert("HOME".into(), HOME.into());
        let (for_loader, env) = parted(env)?;
        match &self.stage {
            Some(stage) => {
                let mut mandate = self.inner(walls, for_loader);
                let inside = |(number, forward): (usize, Forward)| Forward {
                    socket: socket_inside(number),
                    ..forward
                };
                mandate.forwards = forwards.into_iter().enumerate().map(inside).collect();
                args.extend(["--".into(), STAGE.into()]);
                args.extend(stage.args.iter().cloned().chain(mandate.to_args()));
                args.push(spec.program.clone().into());
            }
            None => {
                args.push("--new-session".into());
                for (name, value) in for_loader {
                    args.extend(["--setenv".into(), name.into(), value]);
                }
                args.extend(["--".into(), spec.program.clone().into()]);
            }
        }
        args.extend(spec.args.iter().cloned());
        self.held(Spec { env, ..spec }, walls, bwrap.to_owned(), args)
    }

    /// What the box program does inside of namespaces: everything may be read that is there.
    fn inner(&self, walls: &Walls, env: Vec<(String, OsString)>) -> Mandate {
        let mut write = walls.writable.clone();
        write.extend(["/tmp", HOME, "/dev"].map(PathBuf::from));
        let access = Access { read: vec!["/".into()], write };
        Mandate {
            limits: self.syscalls.then(|| walls.limits.clone()),
            access: self.landlock.then_some(access),
            sockets: self.syscalls.then_some(Sockets::Internet),
            env,
            // Were it bubblewrap that leaves the session, its own first process would leave the
            // group, too, before it is bound to whoever watches it: killing the group in that
            // moment would set the box free.
            session: true,
            ..Mandate::default()
        }
    }

    fn by_rules(&self, spec: Spec, walls: &Walls) -> Result<Spec, Error> {
        let stage = self.stage.as_ref().ok_or(Error::Forward { reason: "no box program" })?;
        if !self.forwards(walls)?.is_empty() {
            return Err(Error::Forward { reason: "this machine has no network namespaces" });
        }
        // Checked as for mounts, and for the same reasons.
        mounts::openings(walls)?;
        let open = || walls.readable.iter().chain(&walls.writable);
        if let Some((path, inside)) = walls.hidden.iter().find_map(|path| {
            open().find(|inside| path.starts_with(inside)).map(|inside| (path, inside))
        }) {
            return Err(Error::Hidden { path: path.clone(), inside: inside.clone() });
        }
        let scratch = &walls.stand_in.scratch;
        let (home, temporary) = (scratch.join("home"), scratch.join("tmp"));
        for dir in [&home, &temporary] {
            std::fs::create_dir_all(dir)
                .map_err(|error| Error::Path { path: dir.clone(), reason: error.to_string() })?;
        }
        let mut env = spec.env.clone();
        env.extend(walls.stand_in.env.clone());
        env.insert("HOME".into(), home.clone().into());
        env.insert("TMPDIR".into(), temporary.clone().into());
        let (for_loader, env) = parted(env)?;
        let mut read = mounts::system_places();
        read.extend(walls.readable.iter().cloned());
        read.extend([stage.path.clone(), "/proc".into()]);
        let mut write = walls.writable.clone();
        write.extend([home, temporary]);
        write.extend(DEVICES.map(PathBuf::from));
        let mandate = Mandate {
            limits: Some(walls.limits.clone()),
            access: Some(Access { read, write }),
            sockets: Some(Sockets::Local),
            env: for_loader,
            ..Mandate::default()
        };
        let mut args = call(stage, &Mandate { keep: true, ..Mandate::default() });
        args.push(stage.path.clone().into());
        args.extend(call(stage, &mandate));
        args.push(spec.program.clone().into());
        args.extend(spec.args.iter().cloned());
        let dir = spec.dir.clone();
        let program = stage.path.clone();
        let held = self.held(Spec { env, ..spec }, walls, program, args)?;
        Ok(Spec { dir, ..held })
    }

    /// Around all of it: the control group, which whoever starts it joins first, and the quota.
    fn held(
        &self,
        spec: Spec,
        walls: &Walls,
        program: PathBuf,
        args: Vec<OsString>,
    ) -> Result<Spec, Error> {
        let quota = Quota {
            places: walls.writable.clone(),
            bytes_max: walls.limits.disk_bytes,
            files_max: walls.limits.disk_files,
        };
        let mut hold = Hold {
            dies_with_owner: self.has_namespaces(),
            quota: self.stage.is_some().then_some(quota),
            cgroup: None,
            joining: Vec::new(),
        };
        let dir = PathBuf::from("/");
        if let (Some(stage), Some(cgroups)) = (&self.stage, &self.cgroups) {
            let group = cgroups.make(&spec.lease.store, &walls.limits).map_err(Error::Cgroup)?;
            let join = Mandate { join: group.places().to_vec(), ..Mandate::default() };
            hold.joining.push(stage.path.clone().into());
            hold.joining.extend(call(stage, &join));
            hold.cgroup = Some(Arc::new(group));
        }
        Ok(Spec { program, args, dir, hold, ..spec })
    }

    fn forwards(&self, walls: &Walls) -> Result<Vec<Forward>, Error> {
        match &walls.network {
            Network::None => Ok(Vec::new()),
            Network::Forwards(forwards) if forwards.is_empty() => Ok(Vec::new()),
            Network::Forwards(_) if self.stage.is_none() => {
                Err(Error::Forward { reason: "there is no box program here" })
            }
            Network::Forwards(forwards) => Ok(forwards.clone()),
        }
    }
}

fn call(stage: &BoxProgram, mandate: &Mandate) -> Vec<OsString> {
    stage.args.iter().cloned().chain(mandate.to_args()).collect()
}

fn socket_inside(number: usize) -> PathBuf {
    PathBuf::from(format!("{}/{number}", mounts::SOCKETS))
}

type Variables = BTreeMap<String, OsString>;

/// Variables that concern the loader of programs, and all others.
fn parted(env: Variables) -> Result<(Vec<(String, OsString)>, Variables), Error> {
    if let Some(name) = env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        return Err(Error::Variable { name: name.clone() });
    }
    let (loader, rest): (Variables, Variables) =
        env.into_iter().partition(|(name, _)| concerns_loader(name));
    Ok((loader.into_iter().collect(), rest))
}

fn concerns_loader(name: &str) -> bool {
    ["LD_", "GLIBC_", "GCONV_", "MALLOC_", "LOCPATH"].iter().any(|start| name.starts_with(start))
}
