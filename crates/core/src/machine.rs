//! The machine that work runs on: how full it may be before work stops there (WRK-32).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Past these, the kernel or the file system acts next. In percent of what there is.
const MEMORY_PERCENT_MAX: u64 = 90;
const DISK_PERCENT_MAX: u64 = 95;

/// How much is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MachineUse {
    pub memory_percent: u64,
    pub disk_percent: u64,
    /// Of the files that the file system can have.
    pub inodes_percent: u64,
}

/// Why no more work is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Pressure {
    Memory { percent: u64 },
    Disk { percent: u64 },
    Inodes { percent: u64 },
}

impl MachineUse {
    /// What stands in the way of more work.
    #[must_use]
    pub fn pressures(&self) -> Vec<Pressure> {
        let MachineUse { memory_percent, disk_percent, inodes_percent } = *self;
        let all = [
            (memory_percent > MEMORY_PERCENT_MAX)
                .then_some(Pressure::Memory { percent: memory_percent }),
            (disk_percent > DISK_PERCENT_MAX).then_some(Pressure::Disk { percent: disk_percent }),
            (inodes_percent > DISK_PERCENT_MAX)
                .then_some(Pressure::Inodes { percent: inodes_percent }),
        ];
        all.into_iter().flatten().collect()
    }
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
                "{percent} % of the files that the disk can have exist; remove some where the \
                 repository is"
            ),
        }
    }
}

/// Several pressures as one sentence.
#[must_use]
pub fn told(pressures: &[Pressure]) -> String {
    let all: Vec<String> = pressures.iter().map(ToString::to_string).collect();
    all.join("; ")
}
