//! How full this machine is. Whether that is too full is decided in the core (WRK-32).

use std::path::{Path, PathBuf};

use kapelle_core::machine::MachineUse;
use nix::sys::statvfs::statvfs;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("/proc/meminfo says nothing about {0}")]
    Memory(&'static str),
}

/// How much of this machine is used, with the disk that `place` is on.
pub fn measure(place: &Path) -> Result<MachineUse, Error> {
    let meminfo = Path::new("/proc/meminfo");
    let text = std::fs::read_to_string(meminfo)
        .map_err(|source| Error::File { path: meminfo.into(), source })?;
    let disk =
        statvfs(place).map_err(|errno| Error::File { path: place.into(), source: errno.into() })?;
    // As `df` counts: what only root may use is not there for us.
    let used = disk.blocks().saturating_sub(disk.blocks_free());
    let usable = used.saturating_add(disk.blocks_available());
    let inodes = disk.files().saturating_sub(disk.files_free());
    Ok(MachineUse {
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
        // A little more than the limit is more than the limit.
        total => used.saturating_mul(100).div_ceil(total),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_understood() {
        let meminfo = "MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable:   250 kB\n";
        assert_eq!(memory_percent(meminfo).unwrap(), 75);
        assert_eq!(percent(901, 1_000), 91);
        assert!(memory_percent("MemTotal: 1 kB").is_err());
        let here = measure(Path::new("/")).unwrap();
        assert!(here.memory_percent <= 100 && here.disk_percent <= 100, "{here:?}");
    }
}
