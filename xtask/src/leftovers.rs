//! Processes that a step started and did not end.
//!
//! We adopt every orphan below us, so that whatever outlives its step can be seen, named and
//! ended. A browser or a database that stays behind is a bug of the test that started it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::error::{Error, Result};

/// Git tidies up in the background for a moment after a commit; that is no leak.
const GRACE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Build servers that outlive us on purpose, and belong to the person.
const NOT_OURS: [&str; 2] = ["sccache", "fsmonitor"];

/// From now on orphans become our children instead of init's.
pub fn adopt_orphans() -> Result {
    prctl::set_child_subreaper(true)
        .map_err(|why| Error::environment(format!("cannot adopt orphaned processes: {why}")))
}

/// Waits a moment for the processes below us to go, then kills and names the rest. To be called
/// when no child of ours is meant to be running.
pub fn end() -> Vec<String> {
    let deadline = Instant::now() + GRACE;
    while !living().is_empty() && Instant::now() < deadline {
        thread::sleep(LOOK_AGAIN);
    }
    let leaked = living();
    let deadline = Instant::now() + GRACE;
    while Instant::now() < deadline {
        let rest = living();
        if rest.is_empty() {
            break;
        }
        for pid in rest.keys() {
            // It may have gone in between; the next look decides.
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        thread::sleep(LOOK_AGAIN);
    }
    leaked.into_iter().map(|(pid, name)| format!("{name} ({pid})")).collect()
}

/// Everything below us that still runs, by process id, with its name.
fn living() -> BTreeMap<i32, String> {
    reap();
    let Ok(own) = i32::try_from(std::process::id()) else { return BTreeMap::new() };
    let mut found = descendants(own, &processes());
    found.retain(|_, name| !NOT_OURS.iter().any(|known| name.contains(known)));
    found
}

/// Takes leave of children that have ended.
fn reap() {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

#[derive(Debug, Clone)]
struct Process {
    pid: i32,
    parent: i32,
    name: String,
}

fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbered = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbered
        .filter_map(|pid: i32| parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?))
        .collect()
}

/// One line of `/proc/PID/stat`. The name is in parentheses and may itself hold some.
fn parse_stat(stat: &str) -> Option<Process> {
    let (pid, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let is_dead = matches!(state, "Z" | "X");
    let process = Process { pid: pid.parse().ok()?, parent, name: name.to_owned() };
    (!is_dead).then_some(process)
}

fn descendants(ancestor: i32, processes: &[Process]) -> BTreeMap<i32, String> {
    let mut family = BTreeSet::from([ancestor]);
    let mut found = BTreeMap::new();
    loop {
        let before = found.len();
        for process in processes {
            if family.contains(&process.parent) && family.insert(process.pid) {
                found.insert(process.pid, process.name.clone());
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_are_read_and_the_dead_are_not() {
        let process = parse_stat("42 (tmux: (1) x) S 7 42 42 0").unwrap();
        assert_eq!((process.pid, process.parent), (42, 7));
        assert_eq!(process.name, "tmux: (1) x");
        assert!(parse_stat("42 (gone) Z 7 42").is_none());
    }

    #[test]
    fn the_whole_family_is_found_in_any_order() {
        let process = |pid, parent| Process { pid, parent, name: pid.to_string() };
        let all = [process(9, 5), process(5, 2), process(2, 1), process(8, 1)];
        let found: Vec<i32> = descendants(2, &all).into_keys().collect();
        assert_eq!(found, [5, 9]);
    }
}
