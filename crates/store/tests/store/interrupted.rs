//! `kill -9` in the middle of what is done to a whole store: making it, migrating it, folding it,
//! moving it. Whoever comes next finds all of it or nothing, and needs no hand work.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kapelle_core::{Event, Record, Seq, State, Timestamp};
use kapelle_store::{
    Error, Extent, Head, Location, Reader, Writer, blob_hash, carry_over, import, rebuild,
};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::crash::location;
use crate::migrations::{POSTGRES_V1, SQLITE_V1};
use crate::{cluster, fixture};

/// Set for the process that this test binary starts from itself: what to do, and on which stores,
/// with a `|` in between.
const CHILD_ORDER: &str = "KAPELLE_TEST_INTERRUPTED";

/// How often each is interrupted on each database, from its first moment to its last; the variable
/// of this name asks for more.
const MOMENTS: &str = "KAPELLE_TEST_CRASH_MOMENTS";
const MOMENTS_DEFAULT: u32 = 12;

/// Long enough that whoever closes leaves a snapshot.
fn records() -> Vec<Record> {
    let mut records = fixture::history(12, 40);
    records.truncate(1_100);
    records
}

/// More than one page of what is carried over at a time.
fn many_records() -> Vec<Record> {
    let record = |seq| Record { seq: Seq(seq), at: Timestamp(seq), event: Event::SessionStarted };
    (1..=15_000).map(record).collect()
}

/// Not a test by itself: does what it is told, once.
#[test]
fn child_obeys() {
    let Ok(order) = std::env::var(CHILD_ORDER) else { return };
    let words: Vec<&str> = order.split('|').collect();
    println!("\nbegun");
    match words[..] {
        // Also what is due at the end: catching up, and a snapshot.
        ["open", place] => Writer::open(location(place)).unwrap().close().unwrap(),
        ["rebuild", place] => drop(rebuild(location(place)).unwrap()),
        ["move", from, to] => drop(carry_over(location(from), location(to)).unwrap()),
        ["import", file, to] => {
            let mut lines = BufReader::new(fs::File::open(file).unwrap());
            drop(import(&mut lines, Extent::Whole, location(to)).unwrap());
        }
        _ => panic!("{order}"),
    }
    println!("done");
}

fn begin(order: &str) -> (Child, impl Iterator<Item = String>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "interrupted::child_obeys", "--nocapture"])
        .env(CHILD_ORDER, order)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "begun"), "{order}");
    (child, lines)
}

/// How long it takes when nobody interrupts it.
fn length(order: &str) -> Duration {
    let (mut child, mut lines) = begin(order);
    let begun = Instant::now();
    assert!(lines.any(|line| line == "done"), "{order}");
    let length = begun.elapsed();
    child.wait().unwrap();
    length
}

/// Whether it was still at it when it was killed.
fn interrupt(order: &str, after: Duration) -> bool {
    let (mut child, mut lines) = begin(order);
    let moment = Instant::now() + after;
    while Instant::now() < moment {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    !lines.any(|line| line == "done")
}

/// Stores in one database: each with a name, and none there yet.
enum Kind {
    File(TempDir),
    Server(String),
}

impl Kind {
    fn both() -> [Kind; 2] {
        let project = fixture::schema(&cluster::shared().project());
        [Kind::File(tempfile::tempdir().unwrap()), Kind::Server(project.replace("kapelle_", ""))]
    }

    fn place(&self, name: &str) -> String {
        match self {
            Kind::File(dir) => dir.path().join(name).to_str().unwrap().to_owned(),
            Kind::Server(project) => format!("{} {project}_{name}", cluster::shared().url()),
        }
    }

    /// A store of the first version.
    fn fill_with_sample(&self, place: &str) {
        match self {
            Kind::File(_) => {
                Connection::open(Path::new(place)).unwrap().execute_batch(SQLITE_V1).unwrap();
            }
            Kind::Server(_) => {
                let schema = fixture::schema(&location(place));
                cluster::shared().psql("public", &format!("CREATE SCHEMA {schema}")).unwrap();
                cluster::shared().psql(&schema, POSTGRES_V1).unwrap();
            }
        }
    }
}

/// Interrupts one thing at moments all over its length, each time on a store of its own.
fn at_every_moment(
    kind: &Kind,
    prepare: impl Fn(&str),
    order: impl Fn(&str) -> String,
    check: impl Fn(&str),
) {
    let whole = kind.place("whole");
    prepare(&whole);
    let length = length(&order(&whole));
    check(&whole);
    let moments = std::env::var(MOMENTS).ok().and_then(|moments| moments.parse().ok());
    let (moments, mut interrupted) = (moments.unwrap_or(MOMENTS_DEFAULT), 0);
    for moment in 0..moments {
        let place = kind.place(&format!("at{moment}"));
        prepare(&place);
        interrupted += u32::from(interrupt(&order(&place), length * moment / moments));
        check(&place);
    }
    // Machines differ, and are shared: a slow first run makes later moments come too late.
    assert!(interrupted > 1, "only {interrupted} of {moments} were at it");
}

/// Somebody starts on it in peace; then it is what it should be.
fn is_sound(place: &str, expected: &[Record]) {
    let location = location(place);
    Writer::open(&location).unwrap().close().unwrap();
    let reader = Reader::open(&location).unwrap();
    reader.verify().unwrap();
    let kept: Vec<Record> = reader.history(Seq(0)).map(Result::unwrap).collect();
    assert!(kept == expected, "{place}: another history");
    assert_eq!(reader.watermark().unwrap(), Seq(expected.len() as u64), "{place}");
    assert_eq!(reader.wrong_tables().unwrap(), [""; 0], "{place}");
    assert_eq!(reader.recover().unwrap().state(), &folded(expected), "{place}");
}

fn folded(records: &[Record]) -> State {
    let mut state = State::default();
    for record in records {
        state.apply(&record.event, record.at);
    }
    state
}

#[test]
fn a_store_that_is_being_made_is_made_by_the_next() {
    for kind in Kind::both() {
        let open = |place: &str| format!("open|{place}");
        at_every_moment(&kind, |_| {}, open, |place| is_sound(place, &[]));
    }
}

#[test]
fn a_store_that_is_being_migrated_is_migrated_by_the_next() {
    for kind in Kind::both() {
        let whole = kind.place("sample");
        kind.fill_with_sample(&whole);
        Writer::open(location(&whole)).unwrap().close().unwrap();
        let reader = Reader::open(location(&whole)).unwrap();
        let sample: Vec<Record> = reader.history(Seq(0)).map(Result::unwrap).collect();
        let open = |place: &str| format!("open|{place}");
        let check = |place: &str| is_sound(place, &sample);
        at_every_moment(&kind, |place| kind.fill_with_sample(place), open, check);
    }
}

/// The first fold of a long journal, and the snapshot at its end.
#[test]
fn a_fold_and_a_snapshot_are_taken_up_by_the_next() {
    let records = records();
    for kind in Kind::both() {
        let check = |place: &str| {
            // A snapshot is there as a whole, or there is none.
            let (state, seq) = Reader::open(location(place)).unwrap().snapshot().unwrap();
            assert!(state == folded(&records[..seq.0 as usize]), "{place}: another state");
            is_sound(place, &records);
        };
        let open = |place: &str| format!("open|{place}");
        at_every_moment(&kind, |place| fixture::fill(&location(place), &records), open, check);
    }
}

#[test]
fn a_rebuild_is_taken_up_by_the_next() {
    let records = records();
    for kind in Kind::both() {
        let prepare = |place: &str| {
            fixture::fill(&location(place), &records);
            Writer::open(location(place)).unwrap().close().unwrap();
        };
        let order = |place: &str| format!("rebuild|{place}");
        at_every_moment(&kind, prepare, order, |place| is_sound(place, &records));
    }
}

/// The head of what is there; an empty one if there is nothing.
fn head(location: &Location) -> Head {
    match Reader::open(location) {
        Ok(reader) => reader.head().unwrap(),
        Err(Error::NoStore { .. } | Error::NotAStore { .. } | Error::Io { .. }) => Head::EMPTY,
        Err(error) => panic!("{error}"),
    }
}

/// All of it or nothing; and whoever asks again gets all of it.
#[test]
fn a_move_arrives_as_a_whole_or_is_repeated() {
    let records = many_records();
    let [source, _] = Kind::both();
    let from = source.place("source");
    fixture::fill(&location(&from), &records);
    let writer = Writer::open(location(&from)).unwrap();
    let (told, heard) = std::sync::mpsc::channel();
    writer.keep_blob(b"a transcript".to_vec(), "attempt 1", move |kept| told.send(kept).unwrap());
    heard.recv().unwrap().unwrap();
    writer.close().unwrap();
    let whole = head(&location(&from));
    for kind in Kind::both() {
        let check = |place: &str| {
            let to = location(place);
            let found = head(&to);
            assert!([Head::EMPTY, whole].contains(&found), "{place}: a part of it, {found:?}");
            assert_eq!(carry_over(location(&from), &to).unwrap().head, whole, "{place}");
            let blob = Reader::open(&to).unwrap().blob(blob_hash(b"a transcript")).unwrap();
            assert!(blob.is_some(), "{place}");
            is_sound(place, &records);
        };
        at_every_moment(&kind, |_| {}, |place| format!("move|{from}|{place}"), check);
    }
}

#[test]
fn an_import_arrives_as_a_whole_or_is_repeated() {
    let records = many_records();
    let [source, _] = Kind::both();
    let from = source.place("source");
    fixture::fill(&location(&from), &records);
    let mut lines = Vec::new();
    let whole = Reader::open(location(&from)).unwrap().export(&mut lines).unwrap();
    let file = source.place("lines");
    fs::write(&file, &lines).unwrap();
    for kind in Kind::both() {
        let check = |place: &str| {
            let to = location(place);
            let found = head(&to);
            assert!([Head::EMPTY, whole].contains(&found), "{place}: a part of it, {found:?}");
            assert_eq!(import(&mut &lines[..], Extent::Whole, &to).unwrap().head, whole, "{place}");
            is_sound(place, &records);
        };
        at_every_moment(&kind, |_| {}, |place| format!("import|{file}|{place}"), check);
    }
}
