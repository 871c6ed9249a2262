//! Life cycles of tasks: made ready, claimed, finished, each acknowledged before the next.
//!
//! As the conductor does it, everything that clients ask for while a commit is on its way goes
//! into the next one. So one commit carries one step of every client.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use kapelle_core::{Event, Record, Seq, Timestamp};
use kapelle_store::{Location, Reader, Writer};
use serde_json::json;

use crate::cluster::Cluster;
use crate::probe::{self, Probe, Row};
use crate::report::{Goal, Report, median, percentile};
use crate::rounds::{Rounds, rounds};
use crate::world::{World, commit};

/// How much is measured.
struct Length {
    /// How long a floor should take.
    floor_seconds: f64,
    /// The most that this comes to, on a disk that does not sync at all.
    cycles_max: u32,
    /// Measured until so many rounds were undisturbed, or given up on.
    rounds: usize,
}

/// Long enough that the tables are folded many times under way, and that a fold which does not
/// keep up is seen to fall behind.
const SHORT: Length = Length { floor_seconds: 0.5, cycles_max: 100_000, rounds: 3 };

/// Long enough that nothing can be put off until it is over.
const LASTING: Length = Length { floor_seconds: 3.0, cycles_max: 600_000, rounds: 1 };

/// The least that is measured, on a slow disk.
const CYCLES_MIN: u32 = 3_000;

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
    writer.append_and_wait(writer.epoch(), expected, records).unwrap().seq
}

/// How a load went through the store.
pub struct Through {
    /// Life cycles a second until the last was answered, with the tables folded beside.
    pub answered: f64,
    /// The same until the tables tell of the last one too.
    pub folded: f64,
    /// How much later that is.
    pub lag: Duration,
}

pub fn through_store(location: &Location, work: &Work) -> Through {
    let writer = Writer::open(location).unwrap();
    let mut head = append(&writer, Seq(0), work.before.clone());
    flush(&writer);
    let turns = work.turns.clone();
    let started = Instant::now();
    for turn in turns {
        head = append(&writer, head, turn);
    }
    let answered = started.elapsed();
    flush(&writer);
    let folded = started.elapsed();
    writer.close().unwrap();
    let rate = |took: Duration| f64::from(work.cycles) / took.as_secs_f64();
    Through { answered: rate(answered), folded: rate(folded), lag: folded - answered }
}

/// Life cycles a second that come in by the clock. The first is far more than any team makes, and
/// far less than the disk could take.
const STEADY: [u32; 5] = [2_000, 4_000, 8_000, 16_000, 32_000];

/// What people are promised.
const LAG_MS_MAX: f64 = 100.0;

/// How far behind the tables are when this many life cycles a second come in. The worst turn of a
/// hundred; none if the store did not answer as many.
fn steady_lag_ms(location: &Location, cycles_a_second: u32) -> f64 {
    const CLIENTS: u32 = 64;
    const SECONDS: u32 = 3;
    let work = work(CLIENTS, SECONDS * cycles_a_second);
    let writer = Writer::open(location).unwrap();
    let mut head = append(&writer, Seq(0), work.before);
    flush(&writer);
    let between = f64::from(SECONDS) / work.turns.len() as f64;
    let last = head.0 + work.turns.iter().map(Vec::len).sum::<usize>() as u64;
    let reader = Reader::open(location).unwrap();
    let looking = std::thread::spawn(move || {
        let mut seen = Vec::new();
        loop {
            let reached = reader.watermark().unwrap();
            seen.push((reached, Instant::now()));
            if reached.0 >= last {
                return seen;
            }
            wait_until(Instant::now() + Duration::from_millis(1));
        }
    });
    let (mut answered, started) = (Vec::new(), Instant::now());
    for (number, turn) in work.turns.into_iter().enumerate() {
        let due = started + Duration::from_secs_f64(number as f64 * between);
        wait_until(due);
        head = append(&writer, head, turn);
        answered.push((head, Instant::now()));
    }
    let took = started.elapsed().as_secs_f64();
    let seen = looking.join().unwrap();
    writer.close().unwrap();
    // Behind the clock by more than a moment at the end.
    if took > f64::from(SECONDS) * 1.05 {
        return f64::INFINITY;
    }
    let lag = |(seq, at): &(Seq, Instant)| {
        let told = seen.iter().find(|(reached, _)| reached >= seq);
        told.map_or(f64::NAN, |(_, told)| told.saturating_duration_since(*at).as_secs_f64() * 1e3)
    };
    percentile(answered.iter().map(lag).collect(), 99)
}

/// The load comes by the clock. A thread may be woken before its time, and then goes on waiting.
fn wait_until(due: Instant) {
    while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    {
        std::thread::park_timeout(left);
    }
}

pub fn flush(writer: &Writer) {
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

/// The figures of one database under one load.
struct Names {
    ratio: &'static str,
    folded_ratio: &'static str,
    rate: &'static str,
    lag: &'static str,
}

/// Where the load goes: fresh files, and fresh projects of one server.
struct Places {
    dir: tempfile::TempDir,
    cluster: Cluster,
    files: AtomicU32,
}

impl Places {
    fn new() -> Places {
        let dir = tempfile::tempdir().unwrap();
        Places { dir, cluster: Cluster::start(), files: AtomicU32::new(0) }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join(self.files.fetch_add(1, Relaxed).to_string())
    }

    fn sqlite(&self, clients: u32, length: &Length) -> Measured {
        let floor = |work: &Work| through_probe(&mut *probe::sqlite(&self.file()), work);
        let ours = |work: &Work| through_store(&Location::sqlite(&self.file()), work);
        measured(clients, length, floor, ours)
    }

    fn postgres(&self, clients: u32, length: &Length) -> Measured {
        let floor = |work: &Work| through_probe(&mut *probe::postgres(&self.cluster.url()), work);
        measured(clients, length, floor, |work| through_store(&self.cluster.project(), work))
    }
}

pub fn measure(report: &mut Report) {
    let places = Places::new();
    let names = |ratio, folded_ratio, rate, lag| Names { ratio, folded_ratio, rate, lag };
    places.sqlite(64, &SHORT).add(
        report,
        names("sqlite_ratio", "sqlite_folded_ratio", "sqlite_cycles_per_s", "sqlite_lag_ms"),
    );
    places.sqlite(512, &SHORT).add(
        report,
        names(
            "sqlite_ratio_512",
            "sqlite_folded_ratio_512",
            "sqlite_cycles_per_s_512",
            "sqlite_lag_ms_512",
        ),
    );
    let lag = |rate| steady_lag_ms(&Location::sqlite(&places.file()), rate);
    steady(report, ["sqlite_steady_lag_ms", "sqlite_steady_cycles_per_s"], lag);
    places.postgres(64, &SHORT).add(
        report,
        names(
            "postgres_ratio",
            "postgres_folded_ratio",
            "postgres_cycles_per_s",
            "postgres_lag_ms",
        ),
    );
    places.postgres(512, &SHORT).add(
        report,
        names(
            "postgres_ratio_512",
            "postgres_folded_ratio_512",
            "postgres_cycles_per_s_512",
            "postgres_lag_ms_512",
        ),
    );
    let lag = |rate| steady_lag_ms(&places.cluster.project(), rate);
    steady(report, ["postgres_steady_lag_ms", "postgres_steady_cycles_per_s"], lag);
}

/// Only when asked for: whether a load that lasts goes as well as a short one.
pub fn measure_lasting(report: &mut Report) {
    let places = Places::new();
    let names = |ratio, folded_ratio, rate, lag| Names { ratio, folded_ratio, rate, lag };
    places.sqlite(512, &LASTING).add(
        report,
        names(
            "sqlite_lasting_ratio",
            "sqlite_lasting_folded_ratio",
            "sqlite_lasting_cycles_per_s",
            "sqlite_lasting_lag_ms",
        ),
    );
    places.postgres(512, &LASTING).add(
        report,
        names(
            "postgres_lasting_ratio",
            "postgres_lasting_folded_ratio",
            "postgres_lasting_cycles_per_s",
            "postgres_lasting_lag_ms",
        ),
    );
}

fn steady(report: &mut Report, [lag, rate]: [&'static str; 2], measure: impl Fn(u32) -> f64) {
    let usual = |rate: u32| median((0..SHORT.rounds).map(|_| measure(rate)).collect());
    let mut kept = 0;
    for cycles_a_second in STEADY {
        let ms = usual(cycles_a_second);
        if cycles_a_second == STEADY[0] {
            let detail = format!("the same with {cycles_a_second} life cycles a second, p99");
            report.add(lag, ms, &Goal::AtMost(LAG_MS_MAX), detail);
        }
        if ms > LAG_MS_MAX {
            break;
        }
        kept = cycles_a_second;
    }
    let detail = "as many life cycles a second keep within that, of those that were tried";
    report.add(rate, f64::from(kept), &Goal::None, detail);
}

struct Measured {
    clients: u32,
    cycles: u32,
    rounds: Rounds<Through>,
}

impl Measured {
    fn add(self, report: &mut Report, names: Names) {
        let Measured { clients, cycles, rounds: Rounds { kept, disturbed } } = self;
        let all = |of: &dyn Fn(&Through) -> f64| {
            median(kept.iter().map(|round| of(&round.ours)).collect())
        };
        let ratio = |of: fn(&Through) -> f64| {
            median(kept.iter().map(|round| of(&round.ours) / round.floor).collect())
        };
        let detail = format!(
            "{clients} clients, {cycles} cycles; floor {:.0} cycles/s; {} rounds, {disturbed} thrown away",
            median(kept.iter().map(|round| round.floor).collect()),
            kept.len(),
        );
        report.add(names.ratio, ratio(|ours| ours.answered), &Goal::AtLeast(0.6), detail);
        let detail = "the same until the tables have caught up";
        report.add(names.folded_ratio, ratio(|ours| ours.folded), &Goal::None, detail);
        let detail = "life cycles a second, answered, with the tables folded beside";
        report.add(names.rate, all(&|ours| ours.answered), &Goal::None, detail);
        let detail = "how far behind the tables were at the end";
        report.add(
            names.lag,
            all(&|ours| ours.lag.as_secs_f64() * 1e3),
            &Goal::AtMost(LAG_MS_MAX),
            detail,
        );
    }
}

fn measured(
    clients: u32,
    length: &Length,
    floor: impl Fn(&Work) -> f64,
    ours: impl Fn(&Work) -> Through,
) -> Measured {
    let cycles = floor(&work(clients, CYCLES_MIN)) * length.floor_seconds;
    let cycles = (cycles as u32).clamp(CYCLES_MIN, length.cycles_max);
    let work = work(clients, cycles);
    let rounds = rounds(length.rounds, || (floor(&work), ours(&work), floor(&work)));
    Measured { clients, cycles, rounds }
}
