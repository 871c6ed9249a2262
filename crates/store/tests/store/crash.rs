//! `kill -9` at any instant: whatever was acknowledged is there, on both databases.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use kapelle_core::{Record, Seq};
use kapelle_store::{Location, Reader, Writer, rebuild};
use nix::sys::signal::Signal;

use crate::{cluster, fixture};

/// Set for the process that this test binary starts from itself: a file, or an address and a
/// project.
const CHILD_STORE: &str = "KAPELLE_TEST_CRASH_STORE";

/// How often a writer is killed on each database; the variable of this name asks for more.
const ROUNDS: &str = "KAPELLE_TEST_CRASH_ROUNDS";
const ROUNDS_DEFAULT: u64 = 500;

/// After so many rounds comes a new store, so that looking through one stays quick.
const ROUNDS_PER_STORE: u64 = 25;

/// Longer than the rounds on one store will get.
fn long_history() -> Vec<Record> {
    fixture::history(12, 40)
}

pub fn location(place: &str) -> Location {
    match place.split_once(' ') {
        Some((url, project)) => Location::postgres(url, project).unwrap(),
        None => Location::sqlite(Path::new(place)),
    }
}

/// Not a test by itself: goes on where the journal ends and tells what was acknowledged.
#[test]
fn child_appends() {
    let Ok(place) = std::env::var(CHILD_STORE) else { return };
    let writer = Writer::open(location(&place)).unwrap();
    let at = writer.opened_at().seq.0;
    println!("\nopened {at}");
    let records = long_history().split_off(at as usize);
    // Batches of one to four records: by turns a few of them on their way at any moment, and one
    // after the other, each committed by whoever waits for it.
    let (told, heard) = mpsc::channel();
    let (mut rest, mut under_way) = (&records[..], 0);
    while !rest.is_empty() {
        let (batch, after) = rest.split_at(rest.len().min(rest[0].seq.0 as usize % 4 + 1));
        let (told, expected) = (told.clone(), Seq(batch[0].seq.0 - 1));
        if expected.0 / 16 % 2 == 0 {
            heard.iter().take(under_way).for_each(drop);
            let done = writer.append_and_wait(writer.epoch(), expected, batch.to_vec());
            println!("acknowledged {}", done.unwrap().seq);
            (rest, under_way) = (after, 0);
            continue;
        }
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

/// Lets a child append, kills it some microseconds after its `acks`th answer, and returns the last
/// answer that it got out of the door.
fn run_and_kill(place: &str, acks: usize, later: Duration) -> Seq {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child_appends", "--nocapture"])
        .env(CHILD_STORE, place)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let number = |line: String| {
        let said = line.strip_prefix("acknowledged ").or_else(|| line.strip_prefix("opened "));
        said.and_then(|number| number.parse().ok()).map(Seq)
    };
    let answers: Vec<Seq> = lines.by_ref().filter_map(number).take(acks + 1).collect();
    assert_eq!(answers.len(), acks + 1, "it ended before it was killed");
    let moment = Instant::now() + later;
    while Instant::now() < moment {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    // What was still in the pipe was acknowledged too.
    let last = lines.filter_map(number).last().unwrap_or(answers[acks]);
    let ended = child.wait().unwrap();
    assert_eq!(ended.signal(), Some(Signal::SIGKILL as i32), "it ended by itself: {ended}");
    last
}

/// A number without a pattern for every round.
fn chance(round: u64) -> u64 {
    round.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) % 10_007
}

fn survives(next_place: impl Fn(u64) -> String) {
    let rounds = std::env::var(ROUNDS).ok().and_then(|rounds| rounds.parse().ok());
    let records = long_history();
    for round in 0..rounds.unwrap_or(ROUNDS_DEFAULT) {
        let place = next_place(round / ROUNDS_PER_STORE);
        // From a store that was hardly opened to one in the middle of a fold.
        let (acks, later) = (chance(round) % 30, Duration::from_micros(chance(round + 1) % 1_500));
        let acknowledged = run_and_kill(&place, acks as usize, later);
        let location = location(&place);
        let reader = Reader::open(&location).unwrap();
        let verified = reader.verify().unwrap();
        assert!(verified.head.seq >= acknowledged, "{acknowledged} of {verified:?}");
        assert!(reader.watermark().unwrap() <= reader.head().unwrap().seq);
        let kept: Vec<Record> = reader.history(Seq(0)).map(Result::unwrap).collect();
        // A server may finish what a dead client had asked of it: more may be there, never less.
        assert!(kept.len() as u64 >= verified.records);
        assert!(kept == records[..kept.len()], "round {round}: another history");
        // The next leader has waited for the dead one's session, and catches up.
        Writer::open(&location).unwrap().close().unwrap();
        assert_eq!(reader.wrong_tables().unwrap(), [""; 0], "round {round}");
        assert_eq!(reader.watermark().unwrap(), reader.head().unwrap().seq, "round {round}");
        if (round + 1) % ROUNDS_PER_STORE == 0 {
            let rebuilt = rebuild(&location).unwrap();
            assert_eq!(rebuilt.before, rebuilt.after, "round {round}");
            assert_eq!(rebuilt.repaired().next(), None, "round {round}");
        }
    }
}

#[test]
fn whatever_was_acknowledged_survives_kill_9_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    survives(|store| dir.path().join(format!("db{store}")).to_str().unwrap().to_owned());
}

#[test]
fn whatever_was_acknowledged_survives_kill_9_on_postgres() {
    let url = cluster::shared().url();
    survives(|store| format!("{url} crash{store}"));
}
