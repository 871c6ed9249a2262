//! The box program: what runs inside a box before the command does, and closes the last doors.
//!
//! It is Kapelle's own binary, called with a mandate. It closes what is open, joins control groups,
//! sets limits, gives up every way to gain rights, puts Landlock and the filter on system calls
//! around itself, and becomes the command. With ports to forward it stays as the command's parent;
//! without process ids of its own it stays to end what the command leaves behind.

use std::ffi::OsString;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;

use super::access::Enforced;
use super::mandate::{Limits, Mandate};
use super::{access, cgroup, forward, keeper, syscalls};

/// As shells have it: the command was not found, or cannot be run.
const NOT_FOUND: i32 = 127;
const NOT_RUN: i32 = 126;

/// A process that a signal ended, as shells count it.
const SIGNAL_BASE: i32 = 128;

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Mandate(#[from] super::mandate::NotAMandate),
    #[error("there is no command to run")]
    NoCommand,
    #[error("whoever started this is gone")]
    NoOwner,
    #[error("files that are open already: {0}")]
    Inherited(std::io::Error),
    #[error("the control group {place} cannot be joined: {source}")]
    Join { place: String, source: std::io::Error },
    #[error("a session of its own: {0}")]
    Session(nix::Error),
    #[error("limit {name}: {source}")]
    Limit { name: &'static str, source: nix::Error },
    #[error("giving up rights: {0}")]
    Rights(nix::Error),
    #[error("Landlock: {0}")]
    Access(#[from] landlock::RulesetError),
    #[error("Landlock is not there any more")]
    NoAccess,
    #[error("filter on system calls: {0}")]
    Calls(#[from] seccompiler::Error),
    #[error("port {port} cannot be forwarded: {source}")]
    Forward { port: u16, source: std::io::Error },
    #[error("{program}: {source}")]
    Start { program: String, source: std::io::Error },
}

/// Runs a mandate and gives the exit code, unless the process becomes the command.
///
/// To be called first thing in `main`, on the only thread: what is put around a thread is not put
/// around those that run already.
#[must_use]
pub fn enter(args: &[OsString]) -> i32 {
    match perform(args) {
        Ok(code) => code,
        Err(error) => {
            // Nobody can be told if this fails.
            let _ = writeln!(std::io::stderr(), "kapelle box: {error}");
            match error {
                Error::Start { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                    NOT_FOUND
                }
                _ => NOT_RUN,
            }
        }
    }
}

fn perform(args: &[OsString]) -> Result<i32, Error> {
    let (mandate, command) = Mandate::from_args(args)?;
    let (program, arguments) = command.split_first().ok_or(Error::NoCommand)?;
    if nobody_reads() {
        return Err(Error::NoOwner);
    }
    close_inherited().map_err(Error::Inherited)?;
    let start = |source| Error::Start { program: program.to_string_lossy().into_owned(), source };
    for place in &mandate.join {
        cgroup::join(place)
            .map_err(|source| Error::Join { place: place.display().to_string(), source })?;
    }
    let mut command = Command::new(program);
    command.args(arguments).envs(mandate.env.iter().cloned());
    if mandate.keep {
        return keeper::keep(&mut command).map_err(start);
    }
    if mandate.session {
        nix::unistd::setsid().map_err(Error::Session)?;
    }
    confine(&mandate)?;
    if mandate.forwards.is_empty() {
        return Err(start(command.exec()));
    }
    for forward in &mandate.forwards {
        forward::listen(forward).map_err(|source| Error::Forward { port: forward.port, source })?;
    }
    let status = command.status().map_err(start)?;
    Ok(code_of(status))
}

/// Bubblewrap ends a box with its owner only once the box is made. An owner that dies while it is
/// being made would leave a command behind; what the command would print has no reader then.
fn nobody_reads() -> bool {
    let stdout = std::io::stdout();
    let mut output = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    let found = poll(&mut output, PollTimeout::ZERO);
    let is_broken = |fd: &PollFd<'_>| fd.revents().is_some_and(|e| e.contains(PollFlags::POLLERR));
    found.is_ok() && output.iter().any(is_broken)
}

/// Whoever started Kapelle may have had files open that programs hand down to each other. No wall
/// stands between a process and what it has open.
fn close_inherited() -> std::io::Result<()> {
    /// Input, output and errors.
    const STANDARD_MAX: i32 = 2;
    let listed = std::fs::read_dir("/proc/self/fd")?;
    let open = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    for number in open.filter(|number| *number > STANDARD_MAX).collect::<Vec<_>>() {
        // One of them was the list itself, and is closed already.
        let _closed_already = nix::unistd::close(number);
    }
    Ok(())
}

pub(super) fn code_of(status: ExitStatus) -> i32 {
    let signal = status.signal().map(|signal| SIGNAL_BASE + signal);
    status.code().or(signal).unwrap_or(NOT_RUN)
}

fn confine(mandate: &Mandate) -> Result<(), Error> {
    if let Some(limits) = &mandate.limits {
        limit(limits)?;
    }
    if mandate.access.is_none() && mandate.sockets.is_none() {
        return Ok(());
    }
    prctl::set_no_new_privs().map_err(Error::Rights)?;
    // If whoever started us dies, the command must not live on.
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(Error::Rights)?;
    if let Some(access) = &mandate.access {
        match access::confine(access, mandate.sockets)? {
            Enforced::Fully | Enforced::Partly => {}
            Enforced::Not => return Err(Error::NoAccess),
        }
    }
    match mandate.sockets {
        Some(sockets) => Ok(syscalls::confine(sockets)?),
        None => Ok(()),
    }
}

/// Sets the limits of single processes. Memory is counted by what a process writes to, not by what it
/// reserves: runtimes with a garbage collector reserve far more than they ever use.
fn limit(limits: &Limits) -> Result<(), Error> {
    let wanted = [
        ("memory", Resource::RLIMIT_DATA, limits.memory_bytes),
        ("processes", Resource::RLIMIT_NPROC, limits.processes),
        ("processor time", Resource::RLIMIT_CPU, limits.cpu_seconds),
        ("file size", Resource::RLIMIT_FSIZE, limits.file_bytes),
        ("open files", Resource::RLIMIT_NOFILE, limits.open_files),
        ("core dumps", Resource::RLIMIT_CORE, 0),
        // What is locked in memory or queued in the kernel is counted by nothing else.
        ("message queues", Resource::RLIMIT_MSGQUEUE, 0),
    ];
    for (name, resource, value) in wanted {
        let failed = |source| Error::Limit { name, source };
        let (_, hard) = getrlimit(resource).map_err(failed)?;
        // A limit that is stricter already stays.
        let value = value.min(hard);
        setrlimit(resource, value, value).map_err(failed)?;
    }
    Ok(())
}
