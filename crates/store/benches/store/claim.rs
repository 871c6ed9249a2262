//! The next task of a team, durable, with few and with a million waiting.

use std::sync::mpsc;
use std::time::Instant;

use kapelle_core::{Record, Seq};
use kapelle_store::{Location, Writer};
use tempfile::TempDir;

use crate::report::{Goal, Report, percentile};
use crate::world::World;

const FEW: u32 = 10_000;
const MANY: u32 = 1_000_000;
const CLAIMS: u32 = 1_000;

pub fn measure(report: &mut Report) {
    let (mut few, mut many) = (Team::with_waiting(FEW), Team::with_waiting(MANY));
    // In turns, so that what the disk does in the meantime happens to both.
    let times: Vec<(f64, f64)> = (0..CLAIMS).map(|_| (few.claim(), many.claim())).collect();
    let (few, many): (Vec<f64>, Vec<f64>) = times.into_iter().unzip();
    let at = |times: &[f64], of_100| percentile(times.to_vec(), of_100);
    let detail = format!(
        "p99 {:.2} ms with {MANY} waiting, {:.2} ms with {FEW}",
        at(&many, 99) * 1e3,
        at(&few, 99) * 1e3,
    );
    report.add("claim_growth", at(&many, 99) / at(&few, 99), &Goal::AtMost(2.0), detail);
    let detail = format!("p50 {:.2} and {:.2} ms", at(&many, 50) * 1e3, at(&few, 50) * 1e3);
    report.add("claim_growth_p50", at(&many, 50) / at(&few, 50), &Goal::AtMost(2.0), detail);
}

/// A team at work, with its store.
struct Team {
    world: World,
    writer: Writer,
    head: Seq,
    _dir: TempDir,
}

impl Team {
    fn with_waiting(tasks: u32) -> Team {
        let dir = tempfile::tempdir().unwrap();
        let writer = Writer::open(Location::sqlite(&dir.path().join("db"))).unwrap();
        let mut team = Team { world: World::with_tasks(tasks), writer, head: Seq(0), _dir: dir };
        team.append();
        let (told, heard) = mpsc::channel();
        team.writer.flush(move |done| told.send(done).unwrap());
        heard.recv().unwrap().unwrap();
        team.world.finish(8);
        team.append();
        team
    }

    /// The time from one task's end to the next one's claim on disk, decisions included.
    fn claim(&mut self) -> f64 {
        let started = Instant::now();
        self.world.finish(1);
        self.append();
        started.elapsed().as_secs_f64()
    }

    fn append(&mut self) {
        let records: Vec<Record> = self.world.take_journal();
        let (told, heard) = mpsc::channel();
        let epoch = self.writer.epoch();
        self.writer.append(epoch, self.head, records, move |done| told.send(done).unwrap());
        self.head = heard.recv().unwrap().unwrap().seq;
    }
}
