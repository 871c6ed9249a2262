//! `kill -9` at any instant: whatever was acknowledged is there.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;

use kapelle_core::{Record, Seq};
use kapelle_store::{Reader, Sqlite, Writer, verify};

use crate::fixture;
use crate::projections::{assert_same, dump};

/// Set for the process that this test binary starts from itself.
const CHILD_STORE: &str = "KAPELLE_TEST_CRASH_STORE";

/// Longer than all rounds together will get.
fn long_history() -> Vec<Record> {
    fixture::history(12, 200)
}

/// Not a test by itself: goes on where the journal ends and tells what was acknowledged.
#[test]
fn child_appends() {
    let Some(path) = std::env::var_os(CHILD_STORE) else { return };
    let writer = Writer::open(Path::new(&path)).unwrap();
    let at = writer.opened_at().seq.0;
    println!("\nopened {at}");
    let records = long_history().split_off(at as usize);
    // Batches of one to four records, a few of them on their way at any moment.
    let (told, heard) = mpsc::channel();
    let (mut rest, mut under_way) = (&records[..], 0);
    while !rest.is_empty() {
        let (batch, after) = rest.split_at(rest.len().min(rest[0].seq.0 as usize % 4 + 1));
        let (told, expected) = (told.clone(), Seq(batch[0].seq.0 - 1));
        writer.append(writer.epoch(), expected, batch.to_vec(), move |done| {
            println!("acknowledged {}", done.unwrap().seq);
            told.send(()).unwrap();
        });
        (rest, under_way) = (after, under_way + 1);
        if under_way > 3 {
            heard.recv().unwrap();
            under_way -= 1;
        }
    }
    panic!("the history was too short to be killed in");
}

/// Lets a child append, kills it soon after its `acks`th answer, and returns the last answer that
/// it got out of the door.
fn run_and_kill(path: &Path, acks: usize) -> Seq {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child_appends", "--nocapture"])
        .env(CHILD_STORE, path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let number = |line: String| {
        let said = line.strip_prefix("acknowledged ").or_else(|| line.strip_prefix("opened "));
        said.and_then(|number| number.parse().ok()).map(Seq)
    };
    let mut last = lines.by_ref().filter_map(number).take(acks + 1).last().unwrap();
    child.kill().unwrap();
    // What was still in the pipe was acknowledged too.
    last = lines.filter_map(number).last().unwrap_or(last);
    assert!(!child.wait().unwrap().success());
    last
}

#[test]
fn whatever_was_acknowledged_survives_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let records = long_history();
    for round in 0..20 {
        // From a store that was hardly opened to one in the middle of a checkpoint.
        let acknowledged = run_and_kill(&path, round * 37 % 113);
        let verified = verify(&path).unwrap();
        assert!(verified.head.seq >= acknowledged, "{acknowledged} of {verified:?}");
        let reader = Reader::open(&path).unwrap();
        let kept: Vec<Record> = reader.history(Seq(0)).map(Result::unwrap).collect();
        assert!(kept == records[..kept.len()], "round {round}: another history");
        assert_eq!(kept.len() as u64, verified.records);
        assert!(reader.watermark().unwrap() <= verified.head.seq);
    }
    Writer::open(&path).unwrap().close().unwrap();
    let caught_up = dump(&path);
    Sqlite::open(&path).unwrap().rebuild_projections().unwrap();
    assert_same(&caught_up, &dump(&path), "after the last round");
    assert!(Reader::open(&path).unwrap().watermark().unwrap() > Seq(1_000));
}
