//! How often the disk is asked to sync, counted from outside by strace.
//!
//! A store syncs when it is opened, filled and closed too. What a life cycle costs is the difference
//! between a run and one that is twice as long.

use std::process::Command;

use kapelle_store::Location;

use crate::load::{through_store, work};
use crate::report::{Goal, Report};

const CYCLES: u32 = 3_000;
const CYCLES_ALONE: u32 = 500;

/// What the counted process does; None for the one that counts.
pub fn child(asked: &[String]) -> Option<()> {
    let [flag, clients, cycles, path] = asked else { return None };
    if flag != "--counted" {
        return None;
    }
    let work = work(clients.parse().unwrap(), cycles.parse().unwrap());
    through_store(&Location::sqlite(path.as_ref()), &work);
    Some(())
}

pub fn measure(report: &mut Report) {
    for (name, clients, cycles, goal) in
        [("syncs_per_cycle", 64, CYCLES, 0.1), ("syncs_per_cycle_alone", 1, CYCLES_ALONE, 2.0)]
    {
        let (Some(once), Some(twice)) = (counted(clients, cycles), counted(clients, 2 * cycles))
        else {
            report.add(name, f64::NAN, &Goal::None, "strace is not here to count");
            continue;
        };
        let detail = format!(
            "{} more syncs for {cycles} more life cycles, {clients} in flight",
            twice.saturating_sub(once)
        );
        let per_cycle = f64::from(twice.saturating_sub(once)) / f64::from(cycles);
        report.add(name, per_cycle, &Goal::AtMost(goal), detail);
    }
}

fn counted(clients: u32, cycles: u32) -> Option<u32> {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let status = Command::new("strace")
        .args(["-f", "-qq", "-e", "trace=fsync,fdatasync,sync_file_range,msync", "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args(["--counted", &clients.to_string(), &cycles.to_string()])
        .arg(dir.path().join("db"))
        .status()
        .ok()?;
    assert!(status.success(), "the counted run failed");
    let trace = std::fs::read_to_string(trace).unwrap();
    let finished = trace.lines().filter(|line| line.contains("sync") && !line.contains("resumed"));
    u32::try_from(finished.count()).ok()
}
