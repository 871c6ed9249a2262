//! Hardware: how many agents a machine carries.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disk {
    Spinning,
    Ssd,
    Nvme,
}

/// What a machine has, as far as it could be found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    pub ram_mb: u64,
    pub cores: u32,
    /// None where the system does not tell.
    pub disk: Option<Disk>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    #[default]
    Poc,
    Recommended,
    Enterprise,
}

impl Profile {
    pub const ALL: [Profile; 3] = [Profile::Poc, Profile::Recommended, Profile::Enterprise];

    /// Implementers at the same time; a hard cap (WRK-02).
    #[must_use]
    pub fn implementers_max(self) -> u32 {
        match self {
            Profile::Poc => 4,
            Profile::Recommended => 8,
            Profile::Enterprise => 12,
        }
    }

    #[must_use]
    pub fn needs(self) -> Hardware {
        let (ram_gb, cores, disk) = match self {
            Profile::Poc => (16, 4, Disk::Ssd),
            Profile::Recommended => (32, 8, Disk::Nvme),
            Profile::Enterprise => (64, 16, Disk::Nvme),
        };
        Hardware { ram_mb: ram_gb * 1_024, cores, disk: Some(disk) }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Profile::Poc => "poc",
            Profile::Recommended => "recommended",
            Profile::Enterprise => "enterprise",
        })
    }
}

/// What the machine may carry at the same time. Nothing said is no cap beyond `workers_max`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TeamRules {
    pub profile: Option<Profile>,
    /// What the machine has, as its host found out; None trusts the profile.
    pub machine: Option<Hardware>,
}

impl TeamRules {
    #[must_use]
    pub fn workers_cap(&self) -> Option<u32> {
        let profile = self.profile?;
        Some(self.machine.map_or(profile.implementers_max(), |m| m.fit(profile).workers_max))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, thiserror::Error)]
pub enum Shortfall {
    #[error("{found_mb} MB of memory; {profile} asks for {needed_mb}")]
    Memory { profile: Profile, found_mb: u64, needed_mb: u64 },
    #[error("{found} cores; {profile} asks for {needed}")]
    Cores { profile: Profile, found: u32, needed: u32 },
    #[error("the disk is slower than what {profile} asks for")]
    Disk { profile: Profile },
}

/// What was asked for, and what the machine carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fit {
    /// None below the smallest profile.
    pub profile: Option<Profile>,
    pub workers_max: u32,
    /// Why it is less than what was asked for.
    pub shortfalls: Vec<Shortfall>,
}

/// A machine sold with 16 GB reports less: firmware and graphics take their part.
const RAM_TOLERANCE_PERCENT: u64 = 90;

impl Hardware {
    /// The largest profile up to `wanted` that this machine carries.
    #[must_use]
    pub fn fit(&self, wanted: Profile) -> Fit {
        let shortfalls = self.shortfalls(wanted);
        let carried = Profile::ALL.into_iter().rev().filter(|profile| *profile <= wanted);
        let profile = { carried }.find(|profile| self.shortfalls(*profile).is_empty());
        let workers_max = match profile {
            Some(profile) => profile.implementers_max(),
            None => self.workers_below_minimum(),
        };
        Fit { profile, workers_max, shortfalls }
    }

    /// Less than the minimum still works, with fewer agents: four GB and a core each.
    fn workers_below_minimum(&self) -> u32 {
        let by_ram = u32::try_from(self.ram_mb / 4_096).unwrap_or(u32::MAX);
        by_ram.min(self.cores).clamp(1, Profile::Poc.implementers_max() - 1)
    }

    fn shortfalls(&self, profile: Profile) -> Vec<Shortfall> {
        let needs = profile.needs();
        let mut found = Vec::new();
        if self.ram_mb < needs.ram_mb * RAM_TOLERANCE_PERCENT / 100 {
            let (found_mb, needed_mb) = (self.ram_mb, needs.ram_mb);
            found.push(Shortfall::Memory { profile, found_mb, needed_mb });
        }
        if self.cores < needs.cores {
            found.push(Shortfall::Cores { profile, found: self.cores, needed: needs.cores });
        }
        if self.disk.is_some_and(|disk| Some(disk) < needs.disk) {
            found.push(Shortfall::Disk { profile });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(ram_gb: u64, cores: u32, disk: Disk) -> Hardware {
        Hardware { ram_mb: ram_gb * 1_024, cores, disk: Some(disk) }
    }

    /// T-77, T-40: 4, 8 and 12 on what the table asks for.
    #[test]
    fn each_profile_caps_its_implementers() {
        let table = [
            (machine(16, 4, Disk::Ssd), Profile::Poc, 4),
            (machine(32, 8, Disk::Nvme), Profile::Recommended, 8),
            (machine(64, 16, Disk::Nvme), Profile::Enterprise, 12),
        ];
        for (machine, profile, workers_max) in table {
            let fit = Fit { profile: Some(profile), workers_max, shortfalls: vec![] };
            assert_eq!(machine.fit(profile), fit);
            assert_eq!(machine.fit(Profile::Poc).workers_max, 4, "no more than asked for");
        }
    }

    #[test]
    fn a_smaller_machine_gets_a_smaller_team_and_is_told_why() {
        let fit = machine(32, 8, Disk::Ssd).fit(Profile::Enterprise);
        assert_eq!((fit.profile, fit.workers_max), (Some(Profile::Poc), 4));
        let said: Vec<String> = fit.shortfalls.iter().map(ToString::to_string).collect();
        let expected = [
            "32768 MB of memory; enterprise asks for 65536",
            "8 cores; enterprise asks for 16",
            "the disk is slower than what enterprise asks for",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn below_the_minimum_there_is_still_a_team() {
        let fit = machine(8, 2, Disk::Spinning).fit(Profile::Poc);
        assert_eq!((fit.profile, fit.workers_max, fit.shortfalls.len()), (None, 2, 3));
        assert_eq!(machine(1, 1, Disk::Ssd).fit(Profile::Poc).workers_max, 1);
        assert_eq!(machine(8, 64, Disk::Ssd).fit(Profile::Poc).workers_max, 2);
    }

    /// A machine that reports 15.5 of its 16 GB, and nothing of its disk, is what it was sold as.
    #[test]
    fn reported_memory_is_a_little_less_than_sold() {
        let laptop = Hardware { ram_mb: 15_872, cores: 4, disk: None };
        assert_eq!(laptop.fit(Profile::Poc).profile, Some(Profile::Poc));
        let smaller = Hardware { ram_mb: 12_000, cores: 4, disk: None };
        assert_eq!(smaller.fit(Profile::Poc).profile, None);
    }
}
