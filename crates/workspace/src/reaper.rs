//! The reaper: after a crash, ends every process that the crashed Kapelle left running.
//!
//! Processes are known by the lease in their environment, never by their name or by a number
//! that was written down: a descendant that made itself independent still has the variable, and
//! a stranger that got the old number does not.
//!
//! A process that erases its own environment escapes. Inside a sandbox that does not help it:
//! the sandbox dies with its parent.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use kapelle_core::Fence;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getuid};

use crate::process::{LEASE_VARIABLE, Lease, RUN_VARIABLE};
use crate::sandbox::Cgroups;

/// A process may fork while it is being looked for, so the search goes on until it finds
/// nothing. A killed process is gone within milliseconds; 200 rounds are about four seconds.
const ROUNDS_MAX: u32 = 200;
const ROUND_WAIT: Duration = Duration::from_millis(20);

/// The kernel gives an environment of any size; ours are far smaller.
const ENVIRONMENT_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("/proc cannot be read: {0}")]
    Proc(#[from] io::Error),
    #[error("{left} processes of {whose} are still running after {rounds} rounds")]
    StillRunning { whose: String, left: usize, rounds: u32 },
}

/// A process that was found and killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reaped {
    pub pid: i32,
    pub fence: Fence,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    reaped: Reaped,
    /// When it started, in the kernel's ticks: together with the number, this is one process.
    started: u64,
}

/// Kills every process of our user that runs on behalf of this store, but not ourselves.
pub async fn reap(store: &str) -> Result<Vec<Reaped>, Error> {
    // Where there are control groups, those of earlier runs go first, whole.
    for group in Cgroups::find().map(|groups| groups.leftovers(store)).unwrap_or_default() {
        group.clear().await;
    }
    let of_store = |environment: &[u8]| lease(environment).filter(|lease| lease.store == store);
    end(&format!("store {store}"), |environment| of_store(environment).map(|lease| lease.fence))
        .await
}

/// Kills what one process started and what outlived it, whatever group or session it is in.
pub async fn end_run(run: &str) -> Result<Vec<Reaped>, Error> {
    let of_run = |environment: &[u8]| {
        let is_its = variable(environment, RUN_VARIABLE).is_some_and(|name| name == run);
        is_its.then(|| lease(environment).map_or(Fence(0), |lease| lease.fence))
    };
    end(&format!("run {run}"), of_run).await
}

/// Kills whatever runs under one lease.
pub async fn end_lease(wanted: &Lease) -> Result<Vec<Reaped>, Error> {
    let of_lease = |environment: &[u8]| lease(environment).filter(|lease| lease == wanted);
    end(&format!("lease {wanted}"), |environment| of_lease(environment).map(|lease| lease.fence))
        .await
}

async fn end(whose: &str, is_its: impl Fn(&[u8]) -> Option<Fence>) -> Result<Vec<Reaped>, Error> {
    let mut killed: Vec<Found> = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let found = find(&is_its)?;
        if found.is_empty() {
            return Ok(killed.into_iter().map(|found| found.reaped).collect());
        }
        for found in found {
            if started(found.reaped.pid) != Some(found.started) {
                continue;
            }
            let _gone_by_itself = kill(Pid::from_raw(found.reaped.pid), Signal::SIGKILL);
            if !killed.contains(&found) {
                killed.push(found);
            }
        }
        tokio::time::sleep(ROUND_WAIT).await;
    }
    let left = find(&is_its)?.len();
    Err(Error::StillRunning { whose: whose.into(), left, rounds: ROUNDS_MAX })
}

/// The processes that [`reap`] would kill.
pub fn running(store: &str) -> Result<Vec<Reaped>, Error> {
    let of_store = |environment: &[u8]| lease(environment).filter(|lease| lease.store == store);
    let found = find(&|environment: &[u8]| of_store(environment).map(|lease| lease.fence))?;
    Ok(found.into_iter().map(|found| found.reaped).collect())
}

fn find(is_its: &impl Fn(&[u8]) -> Option<Fence>) -> Result<Vec<Found>, Error> {
    let (ours, us) = (std::process::id(), getuid().as_raw());
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let is_ours = entry.metadata().is_ok_and(|process| process.uid() == us);
        if !is_ours || pid.unsigned_abs() == ours {
            continue;
        }
        // The start is read first: were the number to change hands in between, the start would
        // not match when it is read again before the kill.
        let Some(started) = started(pid) else { continue };
        // Gone, a zombie, or not ours to read: nothing to reap.
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { continue };
        let environment = &environment[..environment.len().min(ENVIRONMENT_BYTES_MAX)];
        if let Some(fence) = is_its(environment) {
            found.push(Found { reaped: Reaped { pid, fence }, started });
        }
    }
    Ok(found)
}

fn lease(environment: &[u8]) -> Option<Lease> {
    variable(environment, LEASE_VARIABLE)?.parse().ok()
}

fn variable<'a>(environment: &'a [u8], wanted: &str) -> Option<&'a str> {
    environment.split(|byte| *byte == 0).find_map(|variable| {
        let (name, value) = std::str::from_utf8(variable).ok()?.split_once('=')?;
        (name == wanted).then_some(value)
    })
}

fn started(pid: i32) -> Option<u64> {
    /// The 22nd field of the line, counted from the state, which follows the name.
    const FIELD: usize = 19;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in brackets and may itself contain brackets and blanks.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(FIELD)?.parse().ok()
}
