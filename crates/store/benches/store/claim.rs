//! The next task of a team, durable, with few and with a million waiting.

use std::sync::mpsc;
use std::time::Instant;

use kapelle_core::Seq;
use kapelle_store::{Location, Writer};

use crate::report::{Goal, Report, percentile};
use crate::world::World;

const FEW: u32 = 10_000;
const MANY: u32 = 1_000_000;
const CLAIMS: u32 = 500;

pub fn measure(report: &mut Report) {
    let (few, many) = (claims(FEW), claims(MANY));
    let (few_99, many_99) = (percentile(few.clone(), 99), percentile(many.clone(), 99));
    let detail = format!(
        "p99 {:.2} ms with {MANY} waiting, {:.2} ms with {FEW}; p50 {:.2} and {:.2} ms",
        many_99 * 1e3,
        few_99 * 1e3,
        percentile(many, 50) * 1e3,
        percentile(few, 50) * 1e3,
    );
    report.add("claim_growth", many_99 / few_99, &Goal::AtMost(2.0), detail);
}

/// The time from one task's end to the next one's claim on disk, decisions included.
fn claims(waiting: u32) -> Vec<f64> {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::with_tasks(waiting);
    let writer = Writer::open(Location::sqlite(&dir.path().join("db"))).unwrap();
    let mut head = Seq(0);
    let mut append = |records: Vec<kapelle_core::Record>| {
        let (told, heard) = mpsc::channel();
        writer.append(writer.epoch(), head, records, move |done| told.send(done).unwrap());
        head = heard.recv().unwrap().unwrap().seq;
    };
    append(world.take_journal());
    let (told, heard) = mpsc::channel();
    writer.flush(move |done| told.send(done).unwrap());
    heard.recv().unwrap().unwrap();
    world.finish(8);
    append(world.take_journal());
    (0..CLAIMS)
        .map(|_| {
            let started = Instant::now();
            world.finish(1);
            append(world.take_journal());
            started.elapsed().as_secs_f64()
        })
        .collect()
}
