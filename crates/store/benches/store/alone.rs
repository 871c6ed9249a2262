//! One command while nobody else asks for anything, against a durable commit of its rows.

use std::time::{Duration, Instant};

use kapelle_core::Record;
use kapelle_store::Location;

use crate::claim::Team;
use crate::cluster::Cluster;
use crate::probe::{self, Probe, Row};
use crate::report::{Goal, Report, percentile};
use crate::rounds::{Rounds, rounds};

const ROUNDS: usize = 8;
/// A hundredth of them all is more than a few.
const TURNS: usize = 100;
/// Longer than whatever waits for a lull: while the search learns of the turn before, which begins
/// after five milliseconds, nobody is alone.
const IDLE: Duration = Duration::from_millis(20);
/// More than are ended, however many rounds are thrown away.
const TASKS: u32 = 3_000;

pub fn measure(report: &mut Report) {
    let dir = tempfile::tempdir().unwrap();
    let location = Location::sqlite(&dir.path().join("store"));
    let probe = probe::sqlite(&dir.path().join("probe"));
    compare(report, ["alone_p50_ratio", "alone_p99_ratio"], &location, probe);
    let cluster = Cluster::start();
    let probe = probe::postgres(&cluster.url());
    let names = ["alone_p50_ratio_postgres", "alone_p99_ratio_postgres"];
    compare(report, names, &cluster.project(), probe);
}

fn compare(
    report: &mut Report,
    names: [&'static str; 2],
    location: &Location,
    mut probe: Box<dyn Probe>,
) {
    let mut team = Team::with_waiting(TASKS, location.clone());
    let (mut rows, mut last) = (rows_of(&team.turn().1), 0);
    let mut floor = |team: &Team, rows: &mut [Row]| {
        idle(team);
        probe::renumber(rows, &mut last);
        let started = Instant::now();
        probe.commit(rows);
        started.elapsed().as_secs_f64()
    };
    let mut fetched = 0;
    let Rounds { kept, disturbed } = rounds(ROUNDS, || {
        let (mut before, mut ours, mut after) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..TURNS {
            let faults = major_faults();
            let first = floor(&team, &mut rows);
            idle(&team);
            let (took, records) = team.turn();
            rows = rows_of(&records);
            let last = floor(&team, &mut rows);
            if major_faults() > faults {
                fetched += 1;
                continue;
            }
            before.push(first);
            ours.push(took);
            after.push(last);
        }
        let agreed = (percentile(before.clone(), 50), percentile(after.clone(), 50));
        (agreed.0, (ours, [before, after].concat()), agreed.1)
    });
    let ours: Vec<f64> = kept.iter().flat_map(|round| round.ours.0.clone()).collect();
    let floors: Vec<f64> = kept.iter().flat_map(|round| round.ours.1.clone()).collect();
    for (name, of_100) in names.into_iter().zip([50, 99]) {
        if kept.is_empty() {
            report.add(name, f64::NAN, &Goal::None, "the machine was never quiet");
            continue;
        }
        let at = |times: &[f64]| percentile(times.to_vec(), of_100);
        let detail = format!(
            "{:.2} of {:.2} ms; {} rounds, {disturbed} thrown away, and {fetched} turns",
            at(&ours) * 1e3,
            at(&floors) * 1e3,
            kept.len()
        );
        report.add(name, at(&ours) / at(&floors), &Goal::AtMost(1.5), detail);
    }
}

fn rows_of(records: &[Record]) -> Vec<Row> {
    records.iter().map(Row::of).collect()
}

/// How often this thread waited for memory that the system had written out, or for its own program
/// to be read again. Some systems do that to whoever sleeps; it is no part of what is measured.
fn major_faults() -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // The name before it is in brackets, and may have anything in it.
    let numbers = told.rsplit_once(')').unwrap().1;
    numbers.split_whitespace().nth(9).unwrap().parse().unwrap()
}

/// Everybody sleeps, as they do when a command comes out of the blue; what the turn before left to
/// be folded is no part of the next. A floor that finds everything awake would be another one.
fn idle(team: &Team) {
    team.rest();
    std::thread::park_timeout(IDLE);
}
