//! Records that are gone: whoever finds that out says so, and leaves what shows it as it is.

use std::sync::mpsc;

use kapelle_core::Seq;
use kapelle_store::{
    AuditError, Broken, Error, Extent, Reader, Why, Writer, accept_loss, import, rebuild, verify,
};

use crate::fixture::{self, Place};

/// The first record that is missing, as the audit names it.
fn missing(place: &Place) -> Option<Seq> {
    match verify(&place.location) {
        Err(AuditError::Broken(Broken { seq, why: Why::Missing })) => Some(seq),
        _ => None,
    }
}

/// The tables tell of records only after those are durable: if they tell of more, the end was lost.
/// To go on would be to do again what was done, and to forget that it was.
#[test]
fn a_journal_that_lost_its_end_is_not_gone_on_with() {
    let records = fixture::history(1, 0);
    let told = records.len() as u64;
    for place in fixture::places() {
        fixture::write(&place.location, &records, 50);
        place.harm_journal(&format!("DELETE FROM journal WHERE seq > {}", told - 5));
        for _again in 0..2 {
            let opened =
                [Writer::open(&place.location).map(drop), rebuild(&place.location).map(drop)];
            for refused in opened.map(Result::unwrap_err) {
                let said = refused.to_string();
                let numbers = format!("ends at record {}, but its tables tell of {told}", told - 5);
                assert!(said.contains(&numbers), "{}: {said}", place.name);
            }
            assert_eq!(missing(&place), Some(Seq(told - 4)), "{}", place.name);
        }
        let lost = Reader::open(&place.location).unwrap().lost_end().unwrap();
        assert!(matches!(lost, Some(Error::LostEnd { .. })), "{}: {lost:?}", place.name);

        // A person may decide that it is so; then it goes on from there.
        accept_loss(&place.location).unwrap();
        assert_eq!(verify(&place.location).unwrap().records, told - 5, "{}", place.name);
        fixture::write(&place.location, &records[records.len() - 5..], 50);
        assert_eq!(rebuild(&place.location).unwrap().repaired().count(), 0, "{}", place.name);
    }
}

/// A server that comes back without what it acknowledged takes it from a writer that lives. What
/// was not folded yet is nowhere then, and waiting for it would keep everybody from ending.
#[test]
fn a_journal_that_loses_its_end_under_its_writer_keeps_nobody_waiting() {
    let records = fixture::history(1, 0);
    let left = records.len() as u64 - 5;
    for place in fixture::places() {
        let writer = Writer::open(&place.location).unwrap();
        let flush = || {
            let (told, heard) = mpsc::channel();
            writer.flush(move |done| told.send(done).unwrap());
            heard.recv().unwrap()
        };
        let lock = place.lock_tables();
        writer.append_and_wait(writer.epoch(), Seq(0), records.clone()).unwrap();
        let locked = flush().unwrap_err();
        assert!(matches!(locked, Error::Locked { .. }), "{}: {locked}", place.name);
        place.harm_journal(&format!("DELETE FROM journal WHERE seq > {left}"));
        drop(lock);
        let named = format!("record {} is missing", left + 1);
        assert_eq!(flush().unwrap_err().to_string(), named, "{}", place.name);
        assert_eq!(writer.close().unwrap_err().to_string(), named, "{}", place.name);
    }
}

/// Where everything was folded, whoever appends next finds it out.
#[test]
fn a_server_that_lost_records_is_not_taken_for_somebody_who_writes() {
    let records = fixture::history(1, 0);
    let (before, after) = records.split_at(records.len() - 1);
    let [_, place] = fixture::places();
    let writer = Writer::open(&place.location).unwrap();
    let head = writer.append_and_wait(writer.epoch(), Seq(0), before.to_vec()).unwrap().seq;
    place.harm_journal("DELETE FROM journal WHERE seq > 20");
    for _again in 0..2 {
        let lost = writer.append_and_wait(writer.epoch(), head, after.to_vec()).unwrap_err();
        assert!(matches!(lost, Error::Missing { seq: Seq(21) }), "{lost}");
    }
}

/// Nor are rows made of what the writer remembers and nobody has any more.
#[test]
fn tables_do_not_tell_of_what_the_journal_lost() {
    let records = fixture::history(1, 0);
    let left = records.len() as u64 - 5;
    for place in fixture::places() {
        let writer = Writer::open(&place.location).unwrap();
        // It waits, with all of them at hand.
        let lock = place.lock_tables();
        writer.append_and_wait(writer.epoch(), Seq(0), records.clone()).unwrap();
        place.harm_journal(&format!("DELETE FROM journal WHERE seq > {left}"));
        drop(lock);
        let lost = writer.close().unwrap_err();
        assert!(matches!(lost, Error::Missing { .. }), "{}: {lost}", place.name);
        let told = Reader::open(&place.location).unwrap().watermark().unwrap();
        assert!(told.0 <= left, "{}: {told}", place.name);
    }
}

/// An export that ends as if it were whole would pass for the history.
#[test]
fn an_export_of_what_is_left_does_not_say_that_it_is_whole() {
    for place in fixture::places() {
        fixture::write(&place.location, &fixture::history(1, 0), 50);
        place.harm_journal("DELETE FROM journal WHERE seq > 20");
        let mut lines = Vec::new();
        let refused = Reader::open(&place.location).unwrap().export(&mut lines).unwrap_err();
        assert!(refused.to_string().contains("ends at record 20, but"), "{refused}");
        let [_, to] = fixture::places();
        let cut = import(&mut &lines[..], Extent::Whole, &to.location).unwrap_err();
        assert!(matches!(cut, Error::CutShort { records: 20 }), "{}: {cut}", place.name);
    }
}

/// Without tables, a snapshot is what remembers.
#[test]
fn a_snapshot_of_lost_records_is_not_ignored() {
    let records = fixture::history(12, 40);
    for place in fixture::places() {
        fixture::write(&place.location, &records[..1_100], 100);
        match place.location.path() {
            Some(path) => std::fs::remove_file(kapelle_store::tables_path(path)).unwrap(),
            None => place.change("DROP TABLE projection_watermark"),
        }
        place.harm_journal("DELETE FROM journal WHERE seq > 1000");
        let refused = Writer::open(&place.location).unwrap_err().to_string();
        let numbers = "ends at record 1000, but its last snapshot tells of 1100";
        assert!(refused.contains(numbers), "{}: {refused}", place.name);
        assert_eq!(missing(&place), Some(Seq(1_001)), "{}", place.name);
        accept_loss(&place.location).unwrap();
        Writer::open(&place.location).unwrap().close().unwrap();
    }
}

/// A history with a hole is another history. Nobody decides anything from it, or appends to it.
#[test]
fn a_hole_in_the_journal_is_named_by_whoever_reads_it() {
    let records = fixture::history(1, 0);
    for place in fixture::places() {
        fixture::write(&place.location, &records, 50);
        place.harm_journal("DELETE FROM journal WHERE seq = 9");
        let reader = Reader::open(&place.location).unwrap();
        let named = "record 9 is missing";
        assert_eq!(reader.records(Seq(3), 10).unwrap_err().to_string(), named, "{}", place.name);
        assert_eq!(reader.records(Seq(8), 1).unwrap_err().to_string(), named, "{}", place.name);
        assert_eq!(reader.recover().unwrap_err().to_string(), named, "{}", place.name);
        let read: Result<Vec<_>, _> = reader.history(Seq(0)).collect();
        assert_eq!(read.unwrap_err().to_string(), named, "{}", place.name);
        assert_eq!(rebuild(&place.location).unwrap_err().to_string(), named, "{}", place.name);
        assert_eq!(reader.records(Seq(9), 2).unwrap(), records[9..11], "{}", place.name);
    }
}
