//! The resource governor: whether this machine can take more work (WRK-32).
//!
//! Past its limits it says why, and goes on saying so until there is clearly room again, so that
//! work is not stopped and started by the minute.

use std::fmt;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;

/// Past these, work stops; below the second, it goes on. In percent of what there is.
const MEMORY_PERCENT: (u64, u64) = (90, 85);
const DISK_PERCENT: (u64, u64) = (95, 93);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("/proc/meminfo says nothing about {0}")]
    Memory(&'static str),
}

/// How much is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Use {
    pub memory_percent: u64,
    pub disk_percent: u64,
    /// Of the files that the file system can have.
    pub inodes_percent: u64,
}

/// Why no more work is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    Memory { percent: u64 },
    Disk { percent: u64 },
    Inodes { percent: u64 },
}

impl fmt::Display for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pressure::Memory { percent } => {
                write!(f, "{percent} % of memory is in use; close something, or lower workers_max")
            }
            Pressure::Disk { percent } => {
                write!(f, "the disk is {percent} % full; make room where the repository is")
            }
            Pressure::Inodes { percent } => write!(
                f,
                "{percent} % of the files that the disk can have exist; remove some where the repository is"
            ),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Governor {
    memory: bool,
    disk: bool,
    inodes: bool,
}

impl Governor {
    /// What stands in the way of more work, now that this much is used.
    pub fn judge(&mut self, used: Use) -> Vec<Pressure> {
        step(&mut self.memory, used.memory_percent, MEMORY_PERCENT);
        step(&mut self.disk, used.disk_percent, DISK_PERCENT);
        step(&mut self.inodes, used.inodes_percent, DISK_PERCENT);
        let all = [
            self.memory.then_some(Pressure::Memory { percent: used.memory_percent }),
            self.disk.then_some(Pressure::Disk { percent: used.disk_percent }),
            self.inodes.then_some(Pressure::Inodes { percent: used.inodes_percent }),
        ];
        all.into_iter().flatten().collect()
    }
}

fn step(stopped: &mut bool, percent: u64, (stop, go_on): (u64, u64)) {
    *stopped = if *stopped { percent >= go_on } else { percent > stop };
}

/// How much of this machine is used, with the disk that `place` is on.
pub fn measure(place: &Path) -> Result<Use, Error> {
    let meminfo = Path::new("/proc/meminfo");
    let text = std::fs::read_to_string(meminfo)
        .map_err(|source| Error::File { path: meminfo.into(), source })?;
    let disk =
        statvfs(place).map_err(|errno| Error::File { path: place.into(), source: errno.into() })?;
    // As `df` counts: what only root may use is not there for us.
    let used = disk.blocks().saturating_sub(disk.blocks_free());
    let usable = used.saturating_add(disk.blocks_available());
    let inodes = disk.files().saturating_sub(disk.files_free());
    Ok(Use {
        memory_percent: memory_percent(&text)?,
        disk_percent: percent(used, usable),
        inodes_percent: percent(inodes, disk.files()),
    })
}

fn memory_percent(meminfo: &str) -> Result<u64, Error> {
    let value = |name: &'static str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .ok_or(Error::Memory(name))
    };
    let (total, available) = (value("MemTotal")?, value("MemAvailable")?);
    Ok(percent(total.saturating_sub(available), total))
}

/// A file system without a number of its own (some have no limit on files) is never full.
fn percent(used: u64, total: u64) -> u64 {
    match total {
        0 => 0,
        total => used.saturating_mul(100) / total,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(memory_percent: u64, disk_percent: u64) -> Use {
        Use { memory_percent, disk_percent, inodes_percent: 0 }
    }

    #[test]
    fn work_stops_past_the_limit_and_goes_on_well_below_it() {
        let mut governor = Governor::default();
        assert_eq!(governor.judge(used(90, 95)), []);
        let stopped = [Pressure::Memory { percent: 91 }, Pressure::Disk { percent: 96 }];
        assert_eq!(governor.judge(used(91, 96)), stopped);
        let still = [Pressure::Memory { percent: 86 }, Pressure::Disk { percent: 94 }];
        assert_eq!(governor.judge(used(86, 94)), still, "not by the minute");
        assert_eq!(governor.judge(used(84, 92)), []);
        assert!(stopped[0].to_string().starts_with("91 % of memory is in use"));
    }

    #[test]
    fn files_without_room_are_a_full_disk_too() {
        let full = Use { inodes_percent: 99, ..Use::default() };
        assert_eq!(Governor::default().judge(full), [Pressure::Inodes { percent: 99 }]);
    }

    #[test]
    fn what_the_kernel_says_is_understood() {
        let meminfo = "MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable:   250 kB\n";
        assert_eq!(memory_percent(meminfo).unwrap(), 75);
        assert!(memory_percent("MemTotal: 1 kB").is_err());
        let here = measure(Path::new("/")).unwrap();
        assert!(here.memory_percent <= 100 && here.disk_percent <= 100, "{here:?}");
    }
}
