//! Snapshots save time, and nothing depends on them.

use std::fs;
use std::path::PathBuf;
use std::sync::mpsc;

use kapelle_core::{Event, Record, Seq, State, Timestamp};
use kapelle_store::{Location, Reader, Writer, rebuild};

use crate::{cluster, fixture};

/// Long enough that a writer leaves a snapshot at its end.
fn long() -> Vec<Record> {
    let records = fixture::history(12, 40);
    assert!(records.len() > 2_200, "{}", records.len());
    records
}

fn folded(records: &[Record]) -> State {
    let mut state = State::default();
    for record in records {
        state.apply(&record.event, record.at);
    }
    state
}

fn snapshot(location: &Location) -> (State, Seq) {
    Reader::open(location).unwrap().snapshot().unwrap()
}

fn file(location: &Location) -> PathBuf {
    location.path().unwrap().with_file_name("db-snapshot")
}

#[test]
fn a_snapshot_is_the_fold_of_what_it_covers() {
    let records = long();
    for place in fixture::places() {
        let (first, rest) = records.split_at(1_100);
        fixture::write(&place.location, first, 100);
        let (state, seq) = snapshot(&place.location);
        assert_eq!(seq, Seq(1_100), "{}", place.name);
        assert!(state == folded(first), "{}: another state", place.name);

        // The next writer goes on from it, and its tables are those of a whole fold.
        fixture::write(&place.location, rest, 100);
        assert_eq!(snapshot(&place.location).1, Seq(records.len() as u64), "{}", place.name);
        let rebuilt = rebuild(&place.location).unwrap();
        assert_eq!(rebuilt.before, rebuilt.after, "{}", place.name);
    }
}

/// A team that never rests must not make the next start fold everything.
#[test]
fn a_snapshot_is_taken_under_steady_load_too() {
    const BATCH: u64 = 500;
    let [place, _] = fixture::places();
    let writer = Writer::open(&place.location).unwrap();
    let (told, heard) = mpsc::channel();
    let mut under_way = 0;
    for before in (0..400_000).step_by(BATCH as usize) {
        if file(&place.location).exists() {
            break;
        }
        let record = |seq| Record { seq, at: Timestamp(1), event: Event::SessionStarted };
        let batch: Vec<Record> = (before + 1..=before + BATCH).map(Seq).map(record).collect();
        let told = told.clone();
        writer.append(writer.epoch(), Seq(before), batch, move |done| told.send(done).unwrap());
        under_way += 1;
        // There is always more to do when something is done.
        if under_way > 4 {
            heard.recv().unwrap().unwrap();
            under_way -= 1;
        }
    }
    assert!(file(&place.location).exists(), "nobody found the time");
    let (_, at) = snapshot(&place.location);
    assert!(at >= Seq(100_000), "at {at}");
    writer.close().unwrap();
}

/// Damaged, cut, of another store, of another version, a link: all of them are as good as none.
#[test]
fn a_snapshot_that_is_not_ours_is_ignored() {
    let records = long();
    let [place, _] = fixture::places();
    let [other, _] = fixture::places();
    fixture::write(&place.location, &records[..1_200], 100);
    fixture::write(&other.location, &fixture::history(13, 40)[..1_200], 100);
    let good = fs::read(file(&place.location)).unwrap();
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let wrong = [
        ("its magic", flipped(3)),
        ("its version", flipped(12)),
        ("its place", flipped(45)),
        ("its head", flipped(60)),
        ("its checksum", flipped(90)),
        ("its body", flipped(good.len() - 7)),
        ("cut", good[..good.len() / 2].to_vec()),
        ("cut in its header", good[..50].to_vec()),
        ("empty", Vec::new()),
        ("of another store", fs::read(file(&other.location)).unwrap()),
    ];
    for (what, bytes) in wrong {
        fs::write(file(&place.location), bytes).unwrap();
        assert_eq!(snapshot(&place.location), (State::default(), Seq(0)), "{what}");
        Writer::open(&place.location).unwrap().close().unwrap();
    }
    fs::remove_file(file(&place.location)).unwrap();
    assert_eq!(snapshot(&place.location), (State::default(), Seq(0)), "none");
    fixture::write(&place.location, &records[1_200..], 100);
    let rebuilt = rebuild(&place.location).unwrap();
    assert_eq!(rebuilt.before, rebuilt.after);
}

#[test]
fn a_snapshot_in_the_database_is_ignored_too() {
    let location = cluster::shared().project();
    fixture::write(&location, &long()[..1_200], 100);
    assert_eq!(snapshot(&location).1, Seq(1_200));
    let harm = "UPDATE snapshots SET body = substr(body, 1, length(body) - 1)";
    cluster::shared().psql(&fixture::schema(&location), harm).unwrap();
    assert_eq!(snapshot(&location), (State::default(), Seq(0)));
}
