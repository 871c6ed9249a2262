//! Where the time of a life cycle goes: each thing that happens to its records, done alone.
//!
//! Only when asked for (`-- profile`): it explains the other figures and is none of them.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use kapelle_core::{Event, Record, State};
use kapelle_store::{Journal, Location, Sqlite, Writer};
use sha2::{Digest, Sha256};

use crate::load::{Work, flush, through_probe, through_store, work};
use crate::report::{Goal, Report};

const CYCLES: u32 = 20_000;

pub fn measure(report: &mut Report) {
    for clients in [64, 512] {
        let work = work(clients, CYCLES);
        let dir = tempfile::tempdir().unwrap();
        let mut add = |what: &'static str, seconds: f64| {
            let micros = seconds * 1e6 / f64::from(CYCLES);
            report.add(what, micros, &Goal::None, format!("µs a life cycle, {clients} clients"));
        };
        let records: Vec<&Record> = work.turns.iter().flatten().collect();
        let bodies: Vec<String> = records.iter().map(|record| text(record)).collect();
        add("encode", timed(|| records.iter().map(|record| text(record).len()).sum::<usize>()));
        add("hash", timed(|| bodies.iter().map(|body| Sha256::digest(body)[0]).max()));
        add("decode", timed(|| bodies.iter().for_each(|body| drop(black_box(event(body))))));
        add("clone", timed(|| work.turns.clone()));
        add("apply", applied(&work));
        add("raw probe", {
            let mut probe = crate::probe::sqlite(&dir.path().join("probe"));
            f64::from(CYCLES) / through_probe(&mut *probe, &work)
        });
        add("append alone", appended(&dir.path().join("append"), &work));
        add("rebuild", rebuilt(&dir.path().join("append")));
        let location = Location::sqlite(&dir.path().join("store"));
        let through = through_store(&location, &work);
        add("writer, answered", f64::from(CYCLES) / through.answered);
        add("writer, folded", f64::from(CYCLES) / through.folded);
    }
}

fn text(record: &Record) -> String {
    serde_json::to_string(&record.event).unwrap()
}

fn event(body: &str) -> Event {
    serde_json::from_str(body).unwrap()
}

fn timed<T>(work: impl FnOnce() -> T) -> f64 {
    let started = Instant::now();
    black_box(work());
    started.elapsed().as_secs_f64()
}

fn applied(work: &Work) -> f64 {
    let mut state = State::default();
    for record in &work.before {
        state.apply(&record.event, record.at);
    }
    timed(|| {
        for record in work.turns.iter().flatten() {
            state.apply(&record.event, record.at);
        }
    })
}

/// On the thread that asks, without tables.
fn appended(path: &Path, work: &Work) -> f64 {
    let mut store = Sqlite::open(path).unwrap();
    let epoch = store.claim_epoch().unwrap();
    store.append(epoch, store.head().seq, &work.before).unwrap();
    timed(|| {
        for turn in &work.turns {
            store.append(epoch, store.head().seq, turn).unwrap();
        }
    })
}

/// The whole fold, in large batches: reading, decoding, applying, and writing each row once.
fn rebuilt(path: &Path) -> f64 {
    let mut writer = None;
    let time = timed(|| {
        writer = Some(Writer::open(path).unwrap());
        flush(writer.as_ref().unwrap());
    });
    writer.unwrap().close().unwrap();
    time
}
