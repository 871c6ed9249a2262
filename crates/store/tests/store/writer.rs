//! The writer: answers in order, tables soon after, and never a lost append.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use kapelle_core::{Record, Seq, Timestamp};
use kapelle_store::search::{Document, Kind, Query};
use kapelle_store::{Error, Head, Reader, Writer, blob_hash, rebuild, verify};

use crate::fixture;

/// Asks for the append of everything, record by record, without waiting in between.
fn append_all(writer: &Writer, records: &[Record]) -> Receiver<Result<Head, Error>> {
    let (told, heard) = mpsc::channel();
    for record in records {
        let told = told.clone();
        let expected = Seq(record.seq.0 - 1);
        writer.append(writer.epoch(), expected, vec![record.clone()], move |done| {
            told.send(done).unwrap();
        });
    }
    heard
}

/// More than one group holds, so that what is left over between groups would be missed.
#[test]
fn many_appends_in_a_row_are_answered_in_order() {
    let records: Vec<Record> = fixture::history(8, 12);
    assert!(records.len() > 600, "{}", records.len());
    for place in fixture::places() {
        let writer = Writer::open(&place.location).unwrap();
        let answers: Vec<Head> =
            append_all(&writer, &records).into_iter().map(Result::unwrap).collect();
        let seqs: Vec<Seq> = answers.iter().map(|head| head.seq).collect();
        assert_eq!(seqs, records.iter().map(|record| record.seq).collect::<Vec<_>>());
        writer.close().unwrap();
        let reader = Reader::open(&place.location).unwrap();
        assert_eq!(reader.head().unwrap(), *answers.last().unwrap(), "{}", place.name);
        assert_eq!(reader.watermark().unwrap(), reader.head().unwrap().seq, "{}", place.name);
        assert_eq!(reader.history(Seq(0)).map(Result::unwrap).collect::<Vec<_>>(), records);
    }
}

/// The conductor asks for the search to be told, and then appends: the order of its questions is the
/// order of what happens.
#[test]
fn an_append_that_is_waited_for_is_durable_and_comes_after_what_was_asked_for_before() {
    let records = fixture::history(8, 0);
    for place in fixture::places() {
        let writer = Writer::open(&place.location).unwrap();
        let mut at = 0;
        for queued in [0, 1, 0, 40, 3, 0] {
            let earlier = append_all(&writer, &records[at..at + queued]);
            at += queued + 1;
            let (expected, record) = (Seq(at as u64 - 1), records[at - 1].clone());
            let head = writer.append_and_wait(writer.epoch(), expected, vec![record]).unwrap();
            assert_eq!(head.seq, Seq(at as u64), "{}", place.name);
            let answered = earlier.try_iter().filter(Result::is_ok).count();
            assert_eq!(answered, queued, "{}: answered before the last one", place.name);
            let reader = Reader::open(&place.location).unwrap();
            assert_eq!(reader.head().unwrap(), head, "{}", place.name);
        }
        assert_eq!(flushed(&writer).unwrap(), Seq(at as u64), "{}", place.name);
        writer.close().unwrap();
        assert_eq!(verify(&place.location).unwrap().records, at as u64, "{}", place.name);
    }
}

/// One of them has the connection, and the other waits for its turn.
#[test]
fn two_who_append_at_once_are_both_answered() {
    const EACH: usize = 100;
    fn append_some(writer: &Writer) {
        let mut at = Seq(0);
        for _ in 0..EACH {
            loop {
                let event = kapelle_core::Event::SessionStarted;
                let record = Record { seq: Seq(at.0 + 1), at: Timestamp(1), event };
                match writer.append_and_wait(writer.epoch(), at, vec![record]) {
                    Ok(head) => break at = head.seq,
                    // The other one was here first.
                    Err(Error::Conflict { actual, .. }) => at = actual,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
    for place in fixture::places() {
        let writer = Writer::open(&place.location).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| append_some(&writer));
            scope.spawn(|| append_some(&writer));
        });
        assert_eq!(flushed(&writer).unwrap(), Seq(2 * EACH as u64), "{}", place.name);
        writer.close().unwrap();
        let verified = verify(&place.location).unwrap();
        assert_eq!(verified.records, 2 * EACH as u64, "{}", place.name);
    }
}

/// A command line that records one decision does so inside of its runtime, whose threads must not
/// serve the connection of another one.
#[test]
fn an_append_can_be_waited_for_on_a_thread_of_a_runtime() {
    let records = fixture::history(8, 0);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for place in fixture::places() {
        let writer = Writer::open(&place.location).unwrap();
        let append = async {
            writer.append_and_wait(writer.epoch(), Seq(0), records[..1].to_vec()).unwrap().seq
        };
        assert_eq!(runtime.block_on(append), Seq(1), "{}", place.name);
    }
}

/// Whoever panics with the connection takes the writer with it, and leaves nobody waiting.
#[test]
fn a_writer_whose_thread_panicked_refuses_and_ends() {
    let records = fixture::history(8, 0);
    for place in fixture::places() {
        let writer = Writer::open(&place.location).unwrap();
        let (told, heard) = mpsc::channel();
        writer.append(writer.epoch(), Seq(0), records[..1].to_vec(), move |done| {
            told.send(done).unwrap();
            panic!("in an answer, on purpose");
        });
        // Only then: what waits together is committed together, answered or not.
        assert_eq!(heard.recv().unwrap().unwrap().seq, Seq(1), "{}", place.name);
        let refused = writer.append_and_wait(writer.epoch(), Seq(1), records[1..2].to_vec());
        assert!(matches!(refused, Err(Error::WriterGone)), "{}: {refused:?}", place.name);
        let ended = writer.close();
        assert!(matches!(ended, Err(Error::WriterGone)), "{}: {ended:?}", place.name);
        let reader = Reader::open(&place.location).unwrap();
        assert_eq!(reader.head().unwrap().seq, Seq(1), "{}", place.name);
    }
}

/// In a group, a refused append takes nobody with it but those that build on it.
#[test]
fn a_refused_append_does_not_harm_its_neighbours() {
    let records = fixture::history(9, 0);
    for place in fixture::places() {
        let writer = Writer::open(&place.location).unwrap();
        let mut asked = records[..6].to_vec();
        asked.insert(3, records[50].clone());
        let answers: Vec<String> = append_all(&writer, &asked)
            .into_iter()
            .map(|answer| answer.map_or_else(|e| e.to_string(), |head| head.seq.to_string()))
            .collect();
        let refused = "the journal stands at record 3, not at 50";
        assert_eq!(answers, ["1", "2", "3", refused, "4", "5", "6"], "{}", place.name);
    }
}

#[test]
fn tables_follow_without_being_asked() {
    let records = fixture::history(10, 0);
    for place in fixture::places() {
        let writer = Writer::open(&place.location).unwrap();
        for answer in append_all(&writer, &records) {
            answer.unwrap();
        }
        let reader = Reader::open(&place.location).unwrap();
        wait_for(&reader, reader.head().unwrap().seq);
        assert_eq!(reader.trouble_with_tables(), None);
    }
}

/// Waits for the tables, and not for ever.
fn wait_for(reader: &Reader, head: Seq) {
    let patience = Instant::now() + Duration::from_secs(20);
    while reader.watermark().unwrap() != head {
        assert!(Instant::now() < patience, "at {} of {head}", reader.watermark().unwrap());
        std::thread::yield_now();
    }
}

/// Asks for an empty append, and for the next one as soon as this one is answered.
fn keep_asking(writer: Arc<Writer>, at: Seq, enough: Arc<AtomicBool>) {
    let asked = Arc::clone(&writer);
    asked.append(asked.epoch(), at, Vec::new(), move |done| {
        assert_eq!(done.unwrap().seq, at);
        if !enough.load(Ordering::Relaxed) {
            keep_asking(writer, at, enough);
        }
    });
}

/// A queue that is never empty must not keep the tables from ever being written.
#[test]
fn tables_follow_under_load_too() {
    let records = fixture::history(10, 0);
    for place in fixture::places() {
        let writer = Arc::new(Writer::open(&place.location).unwrap());
        flushed(&writer).unwrap();
        let head = Seq(records.len() as u64);
        let answers = append_all(&writer, &records);
        let enough = Arc::new(AtomicBool::new(false));
        for _ in 0..10 {
            keep_asking(Arc::clone(&writer), head, Arc::clone(&enough));
        }
        assert!(answers.into_iter().all(|answer| answer.is_ok()));
        let reader = Reader::open(&place.location).unwrap();
        wait_for(&reader, head);
        enough.store(true, Ordering::Relaxed);
    }
}

/// Whoever ends in peace leaves tables that tell everything, however much was on its way.
#[test]
fn a_clean_end_leaves_nothing_behind() {
    let records = fixture::history(8, 12);
    for place in fixture::places() {
        let writer = Writer::open(&place.location).unwrap();
        let answers = append_all(&writer, &records);
        writer.close().unwrap();
        assert!(answers.into_iter().all(|answer| answer.is_ok()), "{}", place.name);
        let reader = Reader::open(&place.location).unwrap();
        assert_eq!(reader.watermark().unwrap(), Seq(records.len() as u64), "{}", place.name);
        assert_eq!(reader.wrong_tables().unwrap(), [""; 0], "{}", place.name);
    }
}

fn flushed(writer: &Writer) -> Result<Seq, Error> {
    let (told, heard) = mpsc::channel();
    writer.flush(move |done| told.send(done).unwrap());
    heard.recv().unwrap()
}

/// The tables are for people; the work goes on without them, and they catch up when they can.
#[test]
fn failing_tables_stop_no_append_and_are_reported() {
    let records = fixture::history(1, 0);
    let (before, after) = records.split_at(records.len() / 2);
    for place in fixture::places() {
        let writer = Writer::open(&place.location).unwrap();
        assert!(append_all(&writer, before).into_iter().all(|answer| answer.is_ok()));
        flushed(&writer).unwrap();
        // The rows of missions are written last, when the batch is already folded in memory.
        let (harm, end) = match place.location.path() {
            Some(_) => (
                "CREATE TRIGGER harm BEFORE UPDATE ON missions
                BEGIN SELECT RAISE(ABORT, 'harm was done'); END",
                "DROP TRIGGER harm",
            ),
            None => (
                "CREATE FUNCTION harm() RETURNS trigger LANGUAGE plpgsql AS
                $$BEGIN RAISE 'harm was done'; END$$;
                CREATE TRIGGER harm BEFORE UPDATE ON missions
                FOR EACH ROW EXECUTE FUNCTION harm()",
                "DROP TRIGGER harm ON missions",
            ),
        };
        place.change(harm);
        assert!(append_all(&writer, after).into_iter().all(|answer| answer.is_ok()));
        let failed = flushed(&writer).unwrap_err().to_string();
        assert_eq!(failed, "the database failed: harm was done", "{}", place.name);
        let reader = Reader::open(&place.location).unwrap();
        assert_eq!(reader.trouble_with_tables(), Some(failed), "{}", place.name);
        assert_eq!(verify(&place.location).unwrap().records, records.len() as u64);

        place.change(end);
        assert_eq!(flushed(&writer).unwrap(), Seq(records.len() as u64), "{}", place.name);
        assert_eq!(reader.trouble_with_tables(), None, "{}", place.name);
        writer.close().unwrap();
        assert_eq!(rebuild(&place.location).unwrap().repaired().count(), 0, "{}", place.name);
    }
}

/// On a server, a leader that was stopped may still have a batch on its way when it wakes. Whoever
/// finds the tables elsewhere than it left them writes nothing, and looks again.
#[test]
fn a_batch_does_not_go_into_tables_that_somebody_else_has_folded() {
    let records = fixture::history(1, 0);
    let (before, after) = records.split_at(records.len() / 2);
    for place in fixture::places() {
        let writer = Writer::open(&place.location).unwrap();
        assert!(append_all(&writer, before).into_iter().all(|answer| answer.is_ok()));
        let reached = flushed(&writer).unwrap();
        place.change("UPDATE projection_watermark SET seq = 3");
        assert!(append_all(&writer, after).into_iter().all(|answer| answer.is_ok()));
        let refused = flushed(&writer).unwrap_err().to_string();
        let expected =
            format!("the tables reach record 3, not {reached}: somebody else folds them");
        assert_eq!(refused, expected, "{}", place.name);
        assert_eq!(place.ask("SELECT seq FROM projection_watermark"), ["3"], "{}", place.name);
        assert_eq!(flushed(&writer).unwrap(), Seq(records.len() as u64), "{}", place.name);
        let reader = Reader::open(&place.location).unwrap();
        assert_eq!(reader.wrong_tables().unwrap(), [""; 0], "{}", place.name);
    }
}

/// A leader that could not fold before it lost the project must not fold afterwards, although the
/// tables are exactly where it left them.
#[test]
fn whoever_lost_the_lead_folds_no_more() {
    let records = fixture::history(1, 0);
    let (before, after) = records.split_at(records.len() / 2);
    for place in fixture::places() {
        let old = Writer::open(&place.location).unwrap();
        assert!(append_all(&old, before).into_iter().all(|answer| answer.is_ok()));
        let reached = flushed(&old).unwrap();
        let lock = place.lock_tables();
        assert!(append_all(&old, after).into_iter().all(|answer| answer.is_ok()));
        let current = place.take_over();
        drop(lock);
        let refused = flushed(&old).unwrap_err().to_string();
        let expected = format!("epoch 1 is not current: the store is at epoch {current}");
        assert_eq!(refused, expected, "{}", place.name);
        let reader = Reader::open(&place.location).unwrap();
        assert_eq!(reader.trouble_with_tables(), None, "{}: not its own to say", place.name);
        assert_eq!(reader.watermark().unwrap(), reached, "{}", place.name);
        assert_eq!(old.close().unwrap_err().to_string(), expected, "{}", place.name);

        // What it left undone is done by whoever comes next.
        Writer::open(&place.location).unwrap().close().unwrap();
        assert_eq!(reader.watermark().unwrap(), Seq(records.len() as u64), "{}", place.name);
        assert_eq!(reader.wrong_tables().unwrap(), [""; 0], "{}", place.name);
    }
}

/// Nor does it write anything else: what it knows of is not what its successor knows of.
#[test]
fn whoever_lost_the_lead_keeps_nothing_and_removes_nothing() {
    fn asked<T: Send + 'static>(
        ask: impl FnOnce(Box<dyn FnOnce(Result<T, Error>) + Send>),
    ) -> Result<T, Error> {
        let (told, heard) = mpsc::channel();
        ask(Box::new(move |done| told.send(done).unwrap()));
        heard.recv().unwrap()
    }
    for place in fixture::places() {
        let old = Writer::open(&place.location).unwrap();
        let hash = asked(|done| old.keep_blob(b"owned".to_vec(), "one", done)).unwrap();
        let ownerless = asked(|done| old.keep_blob(b"ownerless".to_vec(), "two", done)).unwrap();
        asked(|done| old.release_blobs("two", done)).unwrap();
        let current = place.take_over();
        // A mark that somebody removed, to have all searched anew, is no way around the fence.
        place.forget_search();
        let note = Document {
            kind: Kind::Memory,
            source: "note".into(),
            seq: None,
            at: Timestamp(1),
            mission: None,
            task: None,
            agent: None,
            event: None,
            body: "too late".into(),
        };
        let refused = [
            asked(|done| old.keep_blob(b"new".to_vec(), "one", done)).map(drop),
            asked(|done| old.release_blobs("one", done)),
            asked(|done| old.collect_garbage(done)).map(drop),
            asked(|done| old.index(note, done)),
        ];
        for refused in refused {
            let Err(Error::StaleEpoch { current: told, .. }) = refused else {
                panic!("{}: {refused:?}", place.name)
            };
            assert_eq!(told, current, "{}", place.name);
        }
        let reader = Reader::open(&place.location).unwrap();
        let kept = |hash| reader.blob(hash).unwrap().is_some();
        assert!(kept(hash) && kept(ownerless), "{}", place.name);
        assert!(!kept(blob_hash(b"new")), "{}", place.name);
        assert_eq!(reader.search(&Query::default()).unwrap(), [], "{}", place.name);
    }
}

/// Who closes wants to know that the tables are behind; the appends were answered long ago.
#[test]
fn closing_tells_that_the_rest_was_not_folded() {
    for place in fixture::places() {
        let writer = Writer::open(&place.location).unwrap();
        flushed(&writer).unwrap();
        place.change("DROP TABLE checks");
        let answers = append_all(&writer, &fixture::history(1, 0));
        assert!(answers.into_iter().all(|answer| answer.is_ok()));
        let failed = writer.close().unwrap_err().to_string();
        assert!(failed.contains("checks"), "{}: {failed}", place.name);
    }
}

/// The stale one has to learn it from the answer to its next append.
#[test]
fn a_new_writer_fences_off_the_old_one() {
    let records = fixture::history(2, 0);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let old = Writer::open(&path).unwrap();
    let new = Writer::open(&path).unwrap();
    let answers: Vec<_> = append_all(&old, &records[..1]).into_iter().collect();
    assert!(matches!(answers[..], [Err(Error::StaleEpoch { .. })]), "{answers:?}");
    let answer = old.append_and_wait(old.epoch(), Seq(0), records[..1].to_vec());
    assert!(matches!(answer, Err(Error::StaleEpoch { .. })), "{answer:?}");
    let answers: Vec<_> = append_all(&new, &records[..1]).into_iter().collect();
    assert!(matches!(answers[..], [Ok(Head { seq: Seq(1), .. })]), "{answers:?}");
}

/// The last handle may be dropped by an answer, on the thread that it would wait for.
#[test]
fn a_writer_can_be_dropped_by_its_own_answer() {
    let records = fixture::history(3, 0);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let writer = Writer::open(&path).unwrap();
    let (told, heard) = mpsc::channel();
    let (hand_over, given) = mpsc::channel::<Writer>();
    writer.append(writer.epoch(), Seq(0), records[..1].to_vec(), move |done| {
        drop(given.recv().unwrap());
        told.send(done).unwrap();
    });
    hand_over.send(writer).unwrap();
    assert_eq!(heard.recv().unwrap().unwrap().seq, Seq(1));

    let writer = Writer::open(&path).unwrap();
    let (told, heard) = mpsc::channel();
    let (hand_over, given) = mpsc::channel::<Writer>();
    writer.flush(move |done| {
        drop(given.recv().unwrap());
        told.send(done).unwrap();
    });
    hand_over.send(writer).unwrap();
    assert_eq!(heard.recv().unwrap().unwrap(), Seq(1));
}

/// What was written before the crash of a writer that had no time to fold is caught up with.
#[test]
fn a_new_writer_catches_up_at_once() {
    let records = fixture::history(4, 2);
    for place in fixture::places() {
        place.fill(&records);
        let reader = Reader::open(&place.location).unwrap();
        assert_eq!(reader.watermark().unwrap(), Seq(0), "{}", place.name);
        let head = reader.head().unwrap();
        let writer = Writer::open(&place.location).unwrap();
        assert_eq!(writer.opened_at(), head, "{}", place.name);
        writer.close().unwrap();
        assert_eq!(reader.watermark().unwrap(), head.seq, "{}", place.name);
    }
}
