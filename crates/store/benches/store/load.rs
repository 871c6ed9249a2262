//! Life cycles of tasks: made ready, claimed, finished, each acknowledged before the next.
//!
//! As the conductor does it, everything that clients ask for while a commit is on its way goes
//! into the next one. So one commit carries one step of every client.

use std::path::Path;
use std::sync::mpsc;
use std::time::Instant;

use kapelle_core::{Event, Record, Seq, Timestamp};
use kapelle_store::{Location, Writer};
use serde_json::json;

use crate::cluster::Cluster;
use crate::probe::{Probe, Row};
use crate::report::{Goal, Report, median};
use crate::world::{World, commit};

/// Enough that the tables are folded many times under way.
const CYCLES: u32 = 10_000;

/// Measured until so many rounds were undisturbed, or given up on.
const ROUNDS: usize = 3;
const TRIES_MAX: usize = 9;

/// Two floors of one round that differ by more tell of somebody else's load.
const DISTURBED: f64 = 1.25;

pub struct Work {
    /// The plan, and everything else that has to be there.
    pub before: Vec<Record>,
    /// What each commit carries.
    pub turns: Vec<Vec<Record>>,
    pub cycles: u32,
}

pub fn work(clients: u32, cycles: u32) -> Work {
    let mut world = World::with_tasks(cycles);
    let mut before = world.take_journal();
    let mut seq = before.len() as u64;
    let mut next = |event: serde_json::Value| {
        seq += 1;
        let event: Event = serde_json::from_value(event).unwrap();
        Record { seq: Seq(seq), at: Timestamp(2_000), event }
    };
    before.push(next(json!({
        "type": "team_changed", "seats": {"developer": clients}, "workers_max": clients })));
    // Every client makes its next step in every turn; a third of them is at each step.
    let mut at: Vec<(u32, u32)> = (0..clients).map(|client| (client % 3, 0)).collect();
    let (mut given, mut ended, mut turns) = (0, 0, Vec::new());
    while ended < cycles {
        let mut turn = Vec::new();
        for (client, (step, task)) in at.iter_mut().enumerate() {
            if *task == 0 {
                // Whoever starts in the middle begins when its turn comes.
                if *step == 0 && given < cycles {
                    given += 1;
                    *task = given;
                } else {
                    *step = (*step + 1) % 3;
                    continue;
                }
            }
            turn.push(next(event(*step, *task, client as u32 + 1)));
            if *step == 0 && clients == 1 {
                // With somebody free, what becomes ready is claimed in the same commit.
                *step = 1;
                turn.push(next(event(1, *task, 1)));
            }
            if *step == 2 {
                (*task, ended) = (0, ended + 1);
            }
            *step = (*step + 1) % 3;
        }
        if !turn.is_empty() {
            turns.push(turn);
        }
    }
    Work { before, turns, cycles }
}

fn event(step: u32, task: u32, seat: u32) -> serde_json::Value {
    let fence = 1_000_000 + task;
    match step {
        0 => json!({ "type": "backoff_ended", "task": task }),
        1 => json!({
            "type": "lease_granted", "task": task, "fence": fence,
            "agent": format!("developer-{seat}"), "phase": "green", "base": commit(1),
            "reserved": 10_000, "granted_at": 2_000, "expires_at": 302_000, "deadline": 602_000 }),
        _ => json!({
            "type": "attempt_finished", "task": task, "fence": fence,
            "change": commit(u64::from(task)), "touched": ["src/lib.rs"] }),
    }
}

fn append(writer: &Writer, expected: Seq, records: Vec<Record>) -> Seq {
    let (told, heard) = mpsc::channel();
    writer.append(writer.epoch(), expected, records, move |done| told.send(done).unwrap());
    heard.recv().unwrap().unwrap().seq
}

/// Life cycles a second through the store, with its tables folded at the end.
pub fn through_store(location: &Location, work: &Work) -> f64 {
    let writer = Writer::open(location).unwrap();
    let mut head = append(&writer, Seq(0), work.before.clone());
    flush(&writer);
    let turns = work.turns.clone();
    let started = Instant::now();
    for turn in turns {
        head = append(&writer, head, turn);
    }
    flush(&writer);
    let took = started.elapsed().as_secs_f64();
    writer.close().unwrap();
    f64::from(work.cycles) / took
}

fn flush(writer: &Writer) {
    let (told, heard) = mpsc::channel();
    writer.flush(move |done| told.send(done).unwrap());
    heard.recv().unwrap().unwrap();
}

/// The same rows in the same groups, and nothing else.
pub fn through_probe(probe: &mut dyn Probe, work: &Work) -> f64 {
    let rows: Vec<Vec<Row>> =
        work.turns.iter().map(|turn| turn.iter().map(Row::of).collect()).collect();
    let started = Instant::now();
    for turn in &rows {
        probe.commit(turn);
    }
    f64::from(work.cycles) / started.elapsed().as_secs_f64()
}

pub fn measure(report: &mut Report) {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start();
    for clients in [64, 512] {
        let work = work(clients, CYCLES);
        let sqlite = rounds(
            |round| {
                through_probe(&mut *crate::probe::sqlite(&probe_path(dir.path(), round)), &work)
            },
            |round| {
                let path = dir.path().join(format!("store{clients}-{round}"));
                through_store(&Location::sqlite(&path), &work)
            },
        );
        let names = match clients {
            64 => {
                ["sqlite_ratio", "sqlite_cycles_per_s", "postgres_ratio", "postgres_cycles_per_s"]
            }
            _ => [
                "sqlite_ratio_512",
                "sqlite_cycles_per_s_512",
                "postgres_ratio_512",
                "postgres_cycles_per_s_512",
            ],
        };
        sqlite.add(report, names[0], names[1], clients);
        let postgres = rounds(
            |_| through_probe(&mut *crate::probe::postgres(&cluster.url()), &work),
            |_| through_store(&cluster.project(), &work),
        );
        postgres.add(report, names[2], names[3], clients);
    }
}

fn probe_path(dir: &Path, round: usize) -> std::path::PathBuf {
    // A floor before and one after: each on a file of its own.
    (0..).map(|n| dir.join(format!("probe{round}-{n}"))).find(|path| !path.exists()).unwrap()
}

struct Rounds {
    ratios: Vec<f64>,
    ours: Vec<f64>,
    floor: Vec<f64>,
    disturbed: usize,
}

impl Rounds {
    fn add(self, report: &mut Report, ratio: &'static str, rate: &'static str, clients: u32) {
        let (kept, disturbed, floor) = (self.ratios.len(), self.disturbed, median(self.floor));
        let detail = format!(
            "{clients} clients; floor {floor:.0} cycles/s; {kept} rounds, {disturbed} thrown away"
        );
        report.add(ratio, median(self.ratios), &Goal::AtLeast(0.6), detail);
        report.add(rate, median(self.ours), &Goal::None, "life cycles a second, tables folded");
    }
}

fn rounds(floor: impl Fn(usize) -> f64, ours: impl Fn(usize) -> f64) -> Rounds {
    let mut all = Rounds { ratios: vec![], ours: vec![], floor: vec![], disturbed: 0 };
    for round in 0..TRIES_MAX {
        let (before, rate, after) = (floor(round), ours(round), floor(round));
        if before.max(after) / before.min(after) > DISTURBED {
            all.disturbed += 1;
            continue;
        }
        let floor = f64::midpoint(before, after);
        all.ratios.push(rate / floor);
        all.ours.push(rate);
        all.floor.push(floor);
        if all.ratios.len() == ROUNDS {
            break;
        }
    }
    all
}
