//! The next task of a team, durable, with few and with a million waiting.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use kapelle_core::{Event, Record, Seq};
use kapelle_store::{Location, Reader, Writer};

use crate::report::{Goal, Report, percentile};
use crate::rounds::{Rounds, rounds};
use crate::world::World;

const FEW: u32 = 10_000;
const MANY: u32 = 1_000_000;
const ROUNDS: usize = 8;
/// Long enough for what is folded behind them to be felt by those who come after, and for a
/// hundredth to be more than a few.
const CLAIMS: u32 = 1_000;
/// A log that is as long as it gets is written to more quickly than one that grows.
const WARMING: u32 = 2_000;
/// How often somebody who waits for the search looks.
const LOOK: Duration = Duration::from_millis(5);

pub fn measure(report: &mut Report) {
    let dir = tempfile::tempdir().unwrap();
    let team = |tasks, name| {
        let mut team = Team::with_waiting(tasks, Location::sqlite(&dir.path().join(name)));
        team.claims(WARMING);
        team
    };
    let (mut few, mut many) = (team(FEW, "few"), team(MANY, "many"));
    let Rounds { kept, disturbed } = rounds(ROUNDS, || {
        let claimed = (few.claims(CLAIMS), many.claims(CLAIMS), few.claims(CLAIMS));
        let (before, many, after) = claimed;
        let agreed = (percentile(before.clone(), 50), percentile(after.clone(), 50));
        (agreed.0, (many, [before, after].concat()), agreed.1)
    });
    if kept.is_empty() {
        report.add("claim_growth", f64::NAN, &Goal::None, "the machine was never quiet");
        return;
    }
    let many: Vec<f64> = kept.iter().flat_map(|round| round.ours.0.clone()).collect();
    let few: Vec<f64> = kept.iter().flat_map(|round| round.ours.1.clone()).collect();
    let at = |times: &[f64], of_100| percentile(times.to_vec(), of_100);
    let detail = format!(
        "p99 {:.2} ms with {MANY} waiting, {:.2} ms with {FEW}; {} rounds, {disturbed} thrown away",
        at(&many, 99) * 1e3,
        at(&few, 99) * 1e3,
        kept.len(),
    );
    report.add("claim_growth", at(&many, 99) / at(&few, 99), &Goal::AtMost(2.0), detail);
    let detail = format!("p50 {:.2} and {:.2} ms", at(&many, 50) * 1e3, at(&few, 50) * 1e3);
    report.add("claim_growth_p50", at(&many, 50) / at(&few, 50), &Goal::AtMost(2.0), detail);
}

/// A team at work, with its store.
pub struct Team {
    world: World,
    location: Location,
    writer: Writer,
    head: Seq,
}

impl Team {
    pub fn with_waiting(tasks: u32, location: Location) -> Team {
        let writer = Writer::open(location.clone()).unwrap();
        let mut world = World::with_tasks(tasks);
        world.written = None;
        let mut team = Team { world, location, writer, head: Seq(0) };
        team.append_all();
        team.rest();
        team.world.begin();
        team.world.finish(8);
        team.append_all();
        team.rest();
        team
    }

    /// The times from one task's end to the next one's claim on disk, decisions included. As many
    /// come as are claimed, so that as many wait as before. What is folded and made searchable
    /// behind them is waited for, so that nobody else pays for it.
    fn claims(&mut self, claims: u32) -> Vec<f64> {
        self.world.add_tasks(claims);
        self.append_all();
        self.settle();
        let mut times = Vec::new();
        while times.len() < claims as usize {
            let (took, records) = self.turn();
            if records.iter().any(|record| matches!(record.event, Event::LeaseGranted { .. })) {
                times.push(took);
            }
        }
        self.settle();
        times
    }

    /// One command, decided and on disk: how long it took, and its records.
    pub fn turn(&mut self) -> (f64, Vec<Record>) {
        let started = Instant::now();
        assert!(self.world.step(), "everything is done");
        let decided = started.elapsed();
        let records = self.world.take_journal();
        // For whoever asked, and no part of what it takes.
        let shown = records.clone();
        let started = Instant::now();
        self.append(records);
        ((decided + started.elapsed()).as_secs_f64(), shown)
    }

    /// Waits until the tables have caught up.
    pub fn rest(&self) {
        let (told, heard) = mpsc::channel();
        self.writer.flush(move |done| told.send(done).unwrap());
        heard.recv().unwrap().unwrap();
    }

    /// Waits until nothing is left to be done: the search has caught up, too.
    fn settle(&self) {
        self.rest();
        let reader = Reader::open(self.location.clone()).unwrap();
        // Nobody tells of the search: it is a help and no promise.
        while reader.searchable().unwrap() < self.head {
            thread::park_timeout(LOOK);
        }
    }

    fn append_all(&mut self) {
        let records = self.world.take_journal();
        self.append(records);
    }

    fn append(&mut self, records: Vec<Record>) {
        let appended = self.writer.append_and_wait(self.writer.epoch(), self.head, records);
        self.head = appended.unwrap().seq;
    }
}
