//! Snapshots save time, and nothing depends on them.

use std::fs;
use std::path::PathBuf;

use kapelle_core::{Record, Seq, State};
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
    std::os::unix::fs::symlink("/etc/passwd", file(&place.location)).unwrap();
    assert_eq!(snapshot(&place.location), (State::default(), Seq(0)), "a link");
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
