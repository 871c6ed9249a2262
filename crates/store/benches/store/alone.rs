//! One turn of a team while nobody else asks for anything, against a durable commit of its rows.

use std::time::Instant;

use kapelle_store::Location;

use crate::claim::Team;
use crate::cluster::Cluster;
use crate::probe::{self, Probe, Row};
use crate::report::{Goal, Report, percentile};

const TURNS: u32 = 400;
/// More than are ended.
const TASKS: u32 = 1_000;

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
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        // What the turn before left to be folded is no part of this one.
        team.rest();
        let started = Instant::now();
        let records = team.turn();
        ours.push(started.elapsed().as_secs_f64());
        let rows: Vec<Row> = records.iter().map(Row::of).collect();
        let started = Instant::now();
        probe.commit(&rows);
        floors.push(started.elapsed().as_secs_f64());
    }
    for (name, of_100) in names.into_iter().zip([50, 99]) {
        let at = |times: &[f64]| percentile(times.to_vec(), of_100);
        let detail = format!("{:.2} of {:.2} ms", at(&ours) * 1e3, at(&floors) * 1e3);
        report.add(name, at(&ours) / at(&floors), &Goal::AtMost(1.5), detail);
    }
}
