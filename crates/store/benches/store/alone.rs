//! One command while nobody else asks for anything, against a durable commit of its rows.

use std::time::{Duration, Instant};

use kapelle_core::Record;
use kapelle_store::Location;

use crate::claim::Team;
use crate::cluster::Cluster;
use crate::probe::{self, Probe, Row};
use crate::report::{Goal, Report, percentile};
use crate::rounds::{Rounds, rounds};

const ROUNDS: usize = 5;
/// A hundredth of them is more than one or two.
const TURNS: usize = 400;
/// Longer than whatever waits for a lull: while the search learns of the turn before, which begins
/// after five milliseconds, nobody is alone.
const IDLE: Duration = Duration::from_millis(20);
/// More than are ended, however many rounds are thrown away.
const TASKS: u32 = 8_000;

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
    let Rounds { kept, disturbed } = rounds(ROUNDS, || {
        let (mut before, mut ours, mut after) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..TURNS {
            before.push(floor(&team, &mut rows));
            idle(&team);
            let (took, records) = team.turn();
            ours.push(took);
            rows = rows_of(&records);
            after.push(floor(&team, &mut rows));
        }
        let agreed = (percentile(before.clone(), 50), percentile(after.clone(), 50));
        (agreed.0, (ours, [before, after].concat()), agreed.1)
    });
    for (name, of_100) in names.into_iter().zip([50, 99]) {
        let at = |times: &[f64]| percentile(times.to_vec(), of_100);
        let told = kept.iter().map(|round| (at(&round.ours.0), at(&round.ours.1)));
        let mut told: Vec<(f64, f64)> = told.collect();
        told.sort_by(|a, b| f64::total_cmp(&(a.0 / a.1), &(b.0 / b.1)));
        let Some((ours, floor)) = told.get(told.len() / 2) else {
            report.add(name, f64::NAN, &Goal::None, "the machine was never quiet");
            continue;
        };
        let ratios: Vec<String> = told.iter().map(|(a, b)| format!("{:.2}", a / b)).collect();
        let detail = format!(
            "{:.2} of {:.2} ms; rounds {}, {disturbed} thrown away",
            ours * 1e3,
            floor * 1e3,
            ratios.join(" ")
        );
        report.add(name, ours / floor, &Goal::AtMost(1.5), detail);
    }
}

fn rows_of(records: &[Record]) -> Vec<Row> {
    records.iter().map(Row::of).collect()
}

/// Everybody sleeps, as they do when a command comes out of the blue; what the turn before left to
/// be folded is no part of the next. A floor that finds everything awake would be another one.
fn idle(team: &Team) {
    team.rest();
    std::thread::park_timeout(IDLE);
}
