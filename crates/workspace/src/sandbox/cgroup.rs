//! A control group around one box: the only limit that counts all of its processes together.
//!
//! Version 2 where a place for it was delegated to us, version 1 where we may write there. Where
//! neither is the case, the limits of single processes have to do.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Limits;

/// The names of our groups begin with this, then comes the store.
const PREFIX: &str = "kapelle-";

/// A killed process leaves its group within a millisecond, mostly; all waits are about two seconds.
const WAIT_FIRST: Duration = Duration::from_millis(1);
const WAIT_LAST: Duration = Duration::from_millis(1_024);

/// The controllers that bound what a box may use.
const WANTED: [&str; 2] = ["memory", "pids"];

/// Version 1 has a file to which a single thread writes itself. The kernel then moves nobody else
/// and waits for nobody; by the other file it holds up every fork of the machine meanwhile.
const THREADS: &str = "tasks";
const PROCESSES: &str = "cgroup.procs";

/// Where groups can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cgroups {
    /// A directory whose children have the controllers that are wanted.
    Two { parent: PathBuf },
    /// For each controller a directory of its own.
    One { parents: Vec<PathBuf> },
}

/// A group that exists. Dropping it removes it once it is empty.
#[derive(Debug)]
pub struct Cgroup {
    places: Vec<PathBuf>,
}

/// Puts whoever calls into a group: its thread where the group takes threads, else its process.
pub(super) fn join(place: &Path) -> io::Result<()> {
    let threads = place.join(THREADS);
    write_itself(&if threads.exists() { threads } else { place.join(PROCESSES) })
}

fn write_itself(file: &Path) -> io::Result<()> {
    use std::io::Write;
    fs::OpenOptions::new().write(true).open(file)?.write_all(b"0")
}

impl Cgroups {
    /// Finds a place, and tries it. The error says what stands in the way.
    pub fn find() -> Result<Cgroups, String> {
        let ours = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let mounts =
            fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
        let mut reasons = Vec::new();
        for found in [version_two(&ours, &mounts), version_one(&ours, &mounts)] {
            let tried = found.and_then(|groups| groups.tried());
            match tried {
                Ok(groups) => return Ok(groups),
                Err(reason) => reasons.push(reason),
            }
        }
        Err(reasons.join("; "))
    }

    fn tried(self) -> Result<Cgroups, String> {
        let limits = Limits::default();
        let group =
            self.make("probe", &limits).map_err(|error| format!("not writable: {error}"))?;
        drop(group);
        Ok(self)
    }

    /// A new group for a box of this store.
    pub fn make(&self, store: &str, limits: &Limits) -> io::Result<Cgroup> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{}-{number}", prefix(store), std::process::id());
        let (memory, pids) = (limits.memory_bytes.to_string(), limits.processes.to_string());
        let mut group = Cgroup { places: Vec::new() };
        match self {
            Cgroups::Two { parent } => {
                let place = group.add(parent.join(name))?;
                fs::write(place.join("memory.max"), memory)?;
                fs::write(place.join("pids.max"), pids)?;
                // What does not fit into memory must not go on in swap; absent without swap.
                let _no_swap = fs::write(place.join("memory.swap.max"), "0");
            }
            Cgroups::One { parents } => {
                for parent in parents {
                    let place = group.add(parent.join(&name))?;
                    if place.join("memory.limit_in_bytes").exists() {
                        fs::write(place.join("memory.limit_in_bytes"), &memory)?;
                    }
                    if place.join("pids.max").exists() {
                        fs::write(place.join("pids.max"), &pids)?;
                    }
                }
            }
        }
        Ok(group)
    }

    /// The groups that a crashed run of this store left.
    pub fn leftovers(&self, store: &str) -> Vec<Cgroup> {
        let parents = match self {
            Cgroups::Two { parent } => std::slice::from_ref(parent),
            Cgroups::One { parents } => parents.as_slice(),
        };
        let entries = parents.iter().filter_map(|parent| fs::read_dir(parent).ok()).flatten();
        let ours = prefix(store);
        let names = entries
            .flatten()
            .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(&ours)));
        names.map(|entry| Cgroup { places: vec![entry.path()] }).collect()
    }
}

impl Cgroup {
    fn add(&mut self, place: PathBuf) -> io::Result<&PathBuf> {
        fs::create_dir(&place)?;
        self.places.push(place);
        self.places.last().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The directories that a process has to join.
    #[must_use]
    pub fn places(&self) -> &[PathBuf] {
        &self.places
    }

    /// Whether a thread can be in it while the rest of its process is not.
    #[must_use]
    pub(crate) fn takes_threads(&self) -> bool {
        !self.places.is_empty() && self.places.iter().all(|place| place.join(THREADS).exists())
    }

    /// Does something as a member of this group: what the calling thread starts meanwhile is in it,
    /// without a program in between that joins first. Only for a group that takes threads.
    pub(crate) fn with_member<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let entered = self.places.iter().try_for_each(|place| join(place));
        let done = entered.and_then(|()| work());
        // Back to where our own group is, around this one. It takes us: the rest of us is there.
        let homes = self.places.iter().filter_map(|place| place.parent());
        let back = homes.map(|home| write_itself(&home.join(THREADS)));
        let back = back.fold(Ok(()), io::Result::and);
        if back.is_err() {
            // Nobody is told of what was started.
            self.kill();
        }
        back.and(done)
    }

    /// Whether the kernel ended a process in it for want of memory.
    #[must_use]
    pub fn ran_out_of_memory(&self) -> bool {
        let kills = |file: &str| {
            let texts =
                self.places.iter().filter_map(|place| fs::read_to_string(place.join(file)).ok());
            let lines: Vec<String> = texts.flat_map(|text| lines_of(&text)).collect();
            lines
                .iter()
                .any(|line| matches!(line.strip_prefix("oom_kill "), Some(count) if count != "0"))
        };
        kills("memory.events") || kills("memory.oom_control")
    }

    /// Ends everything in it.
    pub fn kill(&self) {
        for place in &self.places {
            if fs::write(place.join("cgroup.kill"), "1").is_ok() {
                continue;
            }
            // A thread of ours may be in it for as long as it takes to start a process there.
            for pid in members(place).into_iter().filter(|pid| *pid != own_pid()) {
                let _gone_by_itself = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }

    /// Ends everything in it, and waits until it is empty.
    pub async fn clear(&self) {
        let mut wait = WAIT_FIRST;
        while wait <= WAIT_LAST && !self.places.iter().all(|place| members(place).is_empty()) {
            self.kill();
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for place in &self.places {
            // Not empty yet: the reaper of the next start takes it away.
            let _later = fs::remove_dir(place);
        }
    }
}

fn own_pid() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(i32::MAX)
}

fn lines_of(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

fn members(place: &Path) -> Vec<i32> {
    let listed = fs::read_to_string(place.join(PROCESSES)).unwrap_or_default();
    listed.lines().filter_map(|line| line.parse().ok()).collect()
}

/// The store's name with nothing in it that a file system could mind.
fn prefix(store: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("{PREFIX}{}-", store.chars().map(plain).collect::<String>())
}

/// Beside our own group, not in it: a group with processes cannot hand controllers down.
fn version_two(ours: &str, mounts: &str) -> Result<Cgroups, String> {
    let path = ours.lines().find_map(|line| line.strip_prefix("0::"));
    let mount = mounts.lines().find_map(|line| mount_point(line, "cgroup2", None));
    let (Some(path), Some(mount)) = (path, mount) else {
        return Err("no control groups of version 2".into());
    };
    let own = mount.join(path.trim_start_matches('/'));
    let parent = match own.parent() {
        Some(parent) if path != "/" && parent.starts_with(&mount) => parent.to_owned(),
        _ => mount,
    };
    let handed = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
    let handed: Vec<&str> = handed.split_whitespace().collect();
    match WANTED.iter().find(|wanted| !handed.contains(wanted)) {
        Some(missing) => Err(format!("{} does not hand down {missing}", parent.display())),
        None => Ok(Cgroups::Two { parent }),
    }
}

fn version_one(ours: &str, mounts: &str) -> Result<Cgroups, String> {
    let mut parents = Vec::new();
    for wanted in WANTED {
        let path = ours.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            controllers.split(',').any(|name| name == wanted).then_some(path)
        });
        let mount = mounts.lines().find_map(|line| mount_point(line, "cgroup", Some(wanted)));
        let (Some(path), Some(mount)) = (path, mount) else {
            return Err(format!("no control groups of version 1 for {wanted}"));
        };
        parents.push(mount.join(path.trim_start_matches('/')));
    }
    Ok(Cgroups::One { parents })
}

/// Where a line of `mountinfo` mounts this type of file system, with this option if one is named.
fn mount_point(line: &str, kind: &str, option: Option<&str>) -> Option<PathBuf> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = after.split(' ');
    let is_kind = fields.next() == Some(kind);
    let options = fields.nth(1).unwrap_or_default();
    let has_option = option.is_none_or(|option| options.split(',').any(|one| one == option));
    let place = before.split(' ').nth(4)?;
    (is_kind && has_option).then(|| PathBuf::from(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_from_what_the_kernel_says() {
        let mounts = "31 23 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                      32 23 0:28 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n\
                      33 23 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let ours = "8:pids:/\n4:memory:/a/b\n0::/\n";
        let parents = vec!["/sys/fs/cgroup/memory/a/b".into(), "/sys/fs/cgroup/pids".into()];
        assert_eq!(version_one(ours, mounts), Ok(Cgroups::One { parents }));
        let missing = version_one("8:pids:/\n", mounts);
        assert_eq!(missing, Err("no control groups of version 1 for memory".into()));
        assert!(version_two("0::/x/y\n", "").is_err());
    }
}
