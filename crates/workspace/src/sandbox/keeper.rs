//! The keeper of a box that has no process ids of its own.
//!
//! It adopts what its descendants leave behind, and ends all of it when the command has ended or
//! when the owner is gone, even if the owner was killed.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getppid};

use super::stage::code_of;

/// Runs the command, ends with its exit code, and takes everything below along.
pub(super) fn keep(command: &mut Command) -> io::Result<i32> {
    let owner = getppid();
    prctl::set_child_subreaper(true)?;
    // Not a kill: the keeper has to outlive its owner by a moment.
    prctl::set_pdeathsig(Signal::SIGTERM)?;
    let mut watched = SigSet::empty();
    watched.add(Signal::SIGCHLD);
    watched.add(Signal::SIGTERM);
    // Blocked for us alone: a command starts with no signal blocked.
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&watched), None)?;
    let child = command.spawn()?;
    let pid = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    let status = wait_for(pid, owner, &watched)?;
    end_all()?;
    Ok(status)
}

/// Until the command has ended or the owner is gone.
fn wait_for(command: Pid, owner: Pid, watched: &SigSet) -> io::Result<i32> {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    loop {
        if getppid() != owner {
            return Ok(code_of(ExitStatus::from_raw(Signal::SIGKILL as i32)));
        }
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) if pid == command => return Ok(code),
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == command => {
                    return Ok(code_of(ExitStatus::from_raw(signal as i32)));
                }
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => break,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // A request to end went to the whole group; the command decides what to do about it.
        watched.wait()?;
    }
}

/// Ends every descendant. Those that lose their parent become ours, so the search comes to an end.
fn end_all() -> io::Result<()> {
    loop {
        let below = descendants(std::process::id())?;
        if below.is_empty() {
            return Ok(());
        }
        for pid in below {
            let _gone_by_itself = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        while !matches!(
            waitpid(None, Some(WaitPidFlag::WNOHANG)),
            Ok(WaitStatus::StillAlive) | Err(_)
        ) {}
        std::thread::yield_now();
    }
}

fn descendants(of: u32) -> io::Result<BTreeSet<i32>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // The name is in brackets and may itself contain brackets and blanks.
        let Some((_, fields)) = stat.rsplit_once(") ") else { continue };
        let mut fields = fields.split(' ');
        let is_zombie = fields.next() == Some("Z");
        if let Some(parent) = fields.next().and_then(|parent| parent.parse::<i32>().ok()) {
            parents.push((pid, parent, is_zombie));
        }
    }
    let mut below = BTreeSet::from([i32::try_from(of).unwrap_or(i32::MAX)]);
    let own = below.clone();
    loop {
        let more: Vec<i32> = parents
            .iter()
            .filter(|(pid, parent, _)| below.contains(parent) && !below.contains(pid))
            .map(|(pid, ..)| *pid)
            .collect();
        if more.is_empty() {
            break;
        }
        below.extend(more);
    }
    let zombies: BTreeSet<i32> =
        parents.iter().filter(|(.., is_zombie)| *is_zombie).map(|(pid, ..)| *pid).collect();
    Ok(below.difference(&own).filter(|pid| !zombies.contains(pid)).copied().collect())
}
