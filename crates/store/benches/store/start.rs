//! A start with a million events behind it, with a snapshot and without.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use kapelle_core::{Engine, Event, Record, Seq};
use kapelle_store::{Location, Reader, Writer};

use crate::report::{Goal, Report, median};
use crate::rounds::rounds;
use crate::world::World;

/// About five events a task, and the plans: a little more than a million.
const TASKS: u32 = 193_000;
const ROUNDS: usize = 3;
const BATCH: usize = 10_000;

pub fn measure(report: &mut Report) {
    let dir = tempfile::tempdir().unwrap();
    let location = Location::sqlite(&dir.path().join("db"));
    let mut world = World::with_tasks(TASKS);
    world.finish(TASKS);
    let records = world.take_journal();
    drop(world);
    let events = records.len();
    write(&location, &records);
    let bodies: Vec<String> =
        records.iter().map(|record| serde_json::to_string(&record.event).unwrap()).collect();
    let places: Vec<_> = records.iter().map(|record| (record.seq, record.at)).collect();
    drop(records);

    let size = |name: &str| std::fs::metadata(dir.path().join(name)).map_or(0, |found| found.len());
    let (db, tables, snapshot) = (size("db"), size("db-tables.db"), size("db-snapshot"));
    let text: usize = bodies.iter().map(String::len).sum();
    let detail = format!("{events} events, {} MB as JSON", text / 1_000_000);
    report.add("events", events as f64, &Goal::None, detail);
    report.add("store_mb", db as f64 / 1e6, &Goal::None, "journal and search");
    report.add("tables_mb", tables as f64 / 1e6, &Goal::None, "tables for people");
    report.add("snapshot_mb", snapshot as f64 / 1e6, &Goal::None, "beside it");

    let with = ratio(|| start(&location), || timed(|| decode(&location)));
    let detail =
        format!("start {:.2} s, reading and decoding the snapshot {:.2} s", with.1, with.2);
    report.add("start_ratio", with.0, &Goal::AtMost(1.5), detail);

    std::fs::remove_file(dir.path().join("db-snapshot")).unwrap();
    let fold = || {
        let history = bodies.iter().zip(&places).map(|(body, (seq, at))| {
            let event: Event = serde_json::from_str(body).unwrap();
            Record { seq: *seq, at: *at, event }
        });
        black_box(Engine::recover(history));
    };
    let without = ratio(|| timed(|| recover(&location)), || timed(fold));
    let detail =
        format!("start {:.2} s, decoding and folding in memory {:.2} s", without.1, without.2);
    report.add("start_ratio_without_snapshot", without.0, &Goal::AtMost(2.0), detail);
}

fn write(location: &Location, records: &[Record]) {
    let writer = Writer::open(location).unwrap();
    let mut head = Seq(0);
    for batch in records.chunks(BATCH) {
        head = writer.append_and_wait(writer.epoch(), head, batch.to_vec()).unwrap().seq;
    }
    writer.close().unwrap();
    assert!(Path::new(&format!("{location}-snapshot")).exists(), "no snapshot was left");
}

/// As a conductor starts: the lead, and an engine where the journal ends.
fn start(location: &Location) -> f64 {
    let started = Instant::now();
    let writer = Writer::open(location).unwrap();
    recover(location);
    let took = started.elapsed().as_secs_f64();
    writer.close().unwrap();
    took
}

fn recover(location: &Location) {
    black_box(Reader::open(location).unwrap().recover().unwrap());
}

fn decode(location: &Location) {
    black_box(Reader::open(location).unwrap().snapshot().unwrap());
}

fn timed(work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_secs_f64()
}

/// The median of ratios, of times and of floors.
fn ratio(ours: impl Fn() -> f64, floor: impl Fn() -> f64) -> (f64, f64, f64) {
    let kept = rounds(ROUNDS, || (floor(), ours(), floor())).kept;
    (
        median(kept.iter().map(|round| round.ours / round.floor).collect()),
        median(kept.iter().map(|round| round.ours).collect()),
        median(kept.iter().map(|round| round.floor).collect()),
    )
}
