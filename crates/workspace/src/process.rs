//! Supervised processes: agents and checks.
//!
//! A process leads a group of its own, sees only the environment that it is given, reads from
//! nothing, and writes to a bounded log. It ends by itself, when it is stopped, or when nobody is
//! interested in it any more, and always together with its group. Limits of time are for whoever
//! watches it: `commands` for checks and commands, the engine for attempts.
//!
//! Invariant: every process that was started has exactly one [`Exit`], and a group is only ever
//! signalled while its leader has not been reaped, so the number cannot be that of a stranger.

mod group;
mod log;
mod quota;
mod spawner;
mod supervise;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kapelle_core::Fence;
use kapelle_core::failure::{Failure, FailureKind};
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use group::Group;
use log::{Last, Log};
pub use quota::Quota;
use supervise::Supervisor;

use crate::reaper;
use crate::sandbox::Cgroup;

/// How long a process has between being asked to end and being killed.
pub const GRACE: Duration = Duration::from_secs(2);

/// How much of the end of the output an [`Exit`] carries.
pub const TAIL_CHARS_MAX: usize = 2_000;

/// The largest log; a longer output is cut in the middle.
pub(crate) const LOG_BYTES_MAX: usize = log::HEAD_BYTES_MAX as usize + log::TAIL_BYTES_MAX;

/// The variable by which the reaper knows the processes of a store.
pub const LEASE_VARIABLE: &str = "KAPELLE_LEASE";

/// The variable by which everything that one process started is known, even if it left the group.
pub const RUN_VARIABLE: &str = "KAPELLE_RUN";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{program} could not be started in {dir}: {source}")]
    Start { program: PathBuf, dir: PathBuf, source: std::io::Error },
    #[error("log {path}: {source}")]
    Log { path: PathBuf, source: std::io::Error },
    #[error("the supervisor of process {pid} is gone")]
    SupervisorGone { pid: i32 },
    #[error("{text:?} is not a lease of the form store:fence")]
    Lease { text: String },
}

/// On whose behalf a process runs. It is in the environment of the process, and so in that of
/// everything that it starts; after a crash the reaper finds them all by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub store: String,
    pub fence: Fence,
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.store, self.fence)
    }
}

impl FromStr for Lease {
    type Err = Error;

    fn from_str(text: &str) -> Result<Lease, Error> {
        let wrong = || Error::Lease { text: text.into() };
        let (store, fence) = text.rsplit_once(':').ok_or_else(wrong)?;
        let fence = fence.parse().map_err(|_| wrong())?;
        Ok(Lease { store: store.into(), fence: Fence(fence) })
    }
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Spec {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    pub dir: PathBuf,
    /// All of the environment, the lease aside.
    pub env: BTreeMap<String, OsString>,
    pub lease: Lease,
    pub log: PathBuf,
    /// What a box holds on to while the process runs; [`Hold::default`] without one.
    pub hold: Hold,
}

impl Spec {
    /// The same command, behind the program that joins its control group.
    #[must_use]
    pub(crate) fn joining(&self) -> Spec {
        let mut words = self.hold.joining.iter().cloned();
        let Some(program) = words.next() else { return self.clone() };
        let mut args: Vec<OsString> = words.collect();
        args.push(self.program.clone().into());
        args.extend(self.args.iter().cloned());
        Spec { program: program.into(), args, ..self.clone() }
    }
}

/// What bounds a process beside its walls, and what becomes of its descendants.
#[derive(Debug, Clone, Default)]
pub struct Hold {
    pub cgroup: Option<Arc<Cgroup>>,
    /// A program that joins the group and becomes the command behind it, for whoever cannot start
    /// the command as a member.
    pub joining: Vec<OsString>,
    pub quota: Option<Quota>,
    /// It has process ids of its own. If not, those that left its group are looked for at its end.
    pub dies_with_owner: bool,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// The kernel ended one of its processes for want of memory.
    pub out_of_memory: bool,
    /// How it used up more of the disk than it may, if that is why it was ended.
    pub over_quota: Option<String>,
    /// The last [`TAIL_CHARS_MAX`] characters of its output.
    pub tail: String,
    pub duration: Duration,
    /// Why the log is not complete, if it is not. A full disk must not end an agent's work.
    pub log_error: Option<String>,
}

impl Exit {
    /// Why it ended, if that was the machine's doing or ours and not its own.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        if let Some(reason) = &self.over_quota {
            return Some(Failure::new(FailureKind::DiskFull, reason));
        }
        let message = "the kernel ended it: it used more memory than it may";
        let starved = self.out_of_memory && self.code != Some(0);
        starved.then(|| Failure::new(FailureKind::OutOfMemory, message))
    }
}

/// What a process has printed so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    pub bytes: u64,
    /// When it last printed something, or was started.
    pub at: Instant,
}

/// A process that was started. Dropping this kills the process and its group.
#[derive(Debug)]
pub struct Running {
    group: Group,
    cgroup: Option<Arc<Cgroup>>,
    last: Last,
    activity: watch::Receiver<Heard>,
    stops: mpsc::UnboundedSender<Duration>,
    supervisor: JoinHandle<Exit>,
    exit: Option<Exit>,
}

/// Starts a process.
pub async fn spawn(spec: Spec) -> Result<Running, Error> {
    let log = Log::create(&spec.log)
        .await
        .map_err(|source| Error::Log { path: spec.log.clone(), source })?;
    let start =
        |source| Error::Start { program: spec.program.clone(), dir: spec.dir.clone(), source };
    // Listening for the death of children starts before there is a child that may die.
    let deaths = signal(SignalKind::child()).map_err(start)?;
    let (reader, writer) = std::io::pipe().map_err(start)?;
    let run = run_name();
    let mut command = command_of(&spec, &run);
    command.process_group(0);
    command.stdin(Stdio::null()).stdout(writer.try_clone().map_err(start)?).stderr(writer);
    let output = pipe::Receiver::from_owned_fd(reader.into()).map_err(start)?;
    let child = spawner::spawn(command, spec.hold.cgroup.clone()).await.map_err(start)?;
    let group = Group::of(&child).map_err(start)?;
    let (stops, requests) = mpsc::unbounded_channel();
    let (heard, activity) = watch::channel(Heard { bytes: 0, at: Instant::now() });
    let (cgroup, last) = (spec.hold.cgroup.clone(), log.last());
    let hold = supervise::Held { run, hold: spec.hold, heard };
    let supervisor = Supervisor::new(child, group.clone(), output, log, deaths, hold);
    let supervisor = tokio::spawn(supervisor.run(requests));
    Ok(Running { group, cgroup, last, activity, stops, supervisor, exit: None })
}

/// How a process ended that a person had at the terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attached {
    /// As a shell would say it.
    Exited { code: i32 },
    /// We ended it: it used up more of the disk than it may.
    OverQuota { reason: String },
    /// We ended it: the person, or whoever stops services, asked us to end.
    Interrupted,
}

/// Runs a process that belongs to the person at the terminal: it has the terminal's input and
/// output, and the keys that are pressed there. Whoever wants us to end meanwhile ends the process,
/// and what it left can still be put away.
pub async fn run_attached(spec: Spec) -> Result<Attached, Error> {
    let start =
        |source| Error::Start { program: spec.program.clone(), dir: spec.dir.clone(), source };
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let [mut interrupt, mut terminate, mut hangup] = kinds.map(signal);
    let run = run_name();
    let command = command_of(&spec, &run);
    let mut child = spawner::spawn(command, spec.hold.cgroup.clone()).await.map_err(start)?;
    let group = Group::of(&child).map_err(start)?;
    let mut quota = spec.hold.quota.clone().map(quota::Watch::start);
    let leader = group.clone();
    let mut waited = tokio::task::spawn_blocking(move || leader.wait_for_leader());
    let cut_short = tokio::select! {
        _ = &mut waited => None,
        reason = quota::passed(&mut quota) => Some(Attached::OverQuota { reason }),
        () = heard(&mut interrupt) => Some(Attached::Interrupted),
        () = heard(&mut terminate) => Some(Attached::Interrupted),
        () = heard(&mut hangup) => Some(Attached::Interrupted),
    };
    if cut_short.is_some() {
        group.kill_leader();
        let _ended = waited.await;
    }
    let status = group.reap_leader(&mut child).map_err(start)?;
    if cut_short.is_some() {
        // A box that was still in the making is not yet bound to its leader.
        let _unreadable = reaper::end_run(&run).await;
    }
    supervise::end_orphans(&spec.hold, &run).await;
    // The keys that end us end it as well, and its end may be heard of first.
    let asked = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    let cut_short = cut_short.or_else(|| {
        status.signal().is_some_and(|it| asked.contains(&it)).then_some(Attached::Interrupted)
    });
    let by_signal = status.signal().map(|signal| 128 + signal);
    let code = status.code().or(by_signal).unwrap_or(1);
    Ok(cut_short.unwrap_or(Attached::Exited { code }))
}

/// Ends when the signal comes; if it cannot be listened to, never.
async fn heard(signal: &mut std::io::Result<tokio::signal::unix::Signal>) {
    let came = match signal {
        Ok(signal) => signal.recv().await,
        Err(_) => None,
    };
    if came.is_none() {
        std::future::pending().await
    }
}

fn command_of(spec: &Spec, run: &str) -> Command {
    let as_member = spec.hold.cgroup.as_ref().is_some_and(|group| group.takes_threads());
    let joining = (!as_member).then(|| spec.joining());
    let Spec { program, args, dir, env, lease, .. } = joining.as_ref().unwrap_or(spec);
    let mut command = Command::new(program);
    command.args(args).current_dir(dir).env_clear().envs(env);
    command.env(LEASE_VARIABLE, lease.to_string()).env(RUN_VARIABLE, run);
    command
}

/// A name that no other process of ours has had, now or before a crash.
fn run_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap_or_default().as_nanos();
    format!("{}-{now:x}-{number}", std::process::id())
}

impl Running {
    /// The process id, which is also that of the group.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.group.pid()
    }

    /// Waits for the end. May be given up and called again; the answer is always the same.
    pub async fn wait(&mut self) -> Result<Exit, Error> {
        if let Some(exit) = &self.exit {
            return Ok(exit.clone());
        }
        let ended = (&mut self.supervisor).await;
        let exit = ended.map_err(|_| Error::SupervisorGone { pid: self.group.pid() })?;
        self.exit = Some(exit.clone());
        Ok(exit)
    }

    /// What it has printed, and whenever that changes.
    #[must_use]
    pub fn activity(&self) -> watch::Receiver<Heard> {
        self.activity.clone()
    }

    /// The last [`TAIL_CHARS_MAX`] characters of its output so far.
    #[must_use]
    pub fn tail(&self) -> String {
        self.last.tail()
    }

    /// Ends the group at once, without asking.
    pub fn kill(&self) {
        self.group.kill();
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill();
        }
    }

    /// Asks the group to end, and kills it if that has not happened after `grace`.
    pub async fn stop(&mut self, grace: Duration) -> Result<Exit, Error> {
        // If the supervisor no longer listens, the process has ended.
        let _ended_already = self.stops.send(grace);
        self.wait().await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}
