//! Histories on their way: export, import, and from one database to another and back.

use kapelle_core::Seq;
use kapelle_core::Timestamp;
use kapelle_store::search::{Document, Kind, Query};
use kapelle_store::{
    AuditError, Error, Location, Reader, Writer, carry_over, import, rebuild, verify,
};
use rusqlite::Connection;

use crate::{crowd, fixture};

fn exported(location: &Location) -> Vec<u8> {
    let mut lines = Vec::new();
    Reader::open(location).unwrap().export(&mut lines).unwrap();
    lines
}

#[test]
fn an_export_becomes_the_same_store_again() {
    let records = fixture::history(33, 2);
    let [sqlite, postgres] = fixture::places();
    let [again, on_server] = fixture::places();
    fixture::write(&sqlite.location, &records, 50);
    let lines = exported(&sqlite.location);
    assert_eq!(lines.iter().filter(|byte| **byte == b'\n').count(), records.len());
    let head = Reader::open(&sqlite.location).unwrap().head().unwrap();
    let tables = Reader::open(&sqlite.location).unwrap().tables().unwrap();
    for to in [&again.location, &on_server.location, &postgres.location] {
        let carried = import(&mut &lines[..], to).unwrap();
        assert_eq!((carried.head, &carried.tables), (head, &tables), "{to}");
        assert_eq!(verify(to).unwrap().head, head, "{to}");
        assert!(exported(to) == lines, "{to}: other lines");
        let refused = import(&mut &lines[..], to).unwrap_err();
        assert!(matches!(refused, Error::NotEmpty { .. }), "{refused}");
    }
    // And it goes on from there.
    fixture::write(&again.location, &[], 1);
}

#[test]
fn an_import_names_the_line_that_is_wrong() {
    let records = fixture::history(1, 0);
    let [from, _] = fixture::places();
    fixture::write(&from.location, &records, 50);
    let text = String::from_utf8(exported(&from.location)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let changed = lines[4].replace("\"seq\":5,", "\"seq\":6,");
    let edited = lines[1].replace("first", "worst");
    assert!(changed != lines[4] && edited != lines[1]);
    for (wrong, line, why) in [
        ([&lines[..4], &[&changed]].concat(), 5, "record 5 is missing"),
        ([&lines[..1], &[&edited]].concat(), 2, "record 2 was changed"),
        ([&lines[..2], &["{"]].concat(), 3, "EOF"),
        ([&lines[..2], &["[]"]].concat(), 3, "invalid length"),
        (lines[1..].to_vec(), 1, "record 1 is missing"),
    ] {
        let [to, _] = fixture::places();
        let refused = import(&mut wrong.join("\n").as_bytes(), &to.location).unwrap_err();
        let Error::Import { line: found, why: because } = &refused else { panic!("{refused}") };
        assert_eq!(*found, line, "{refused}");
        assert!(because.contains(why), "{refused}");
    }
}

/// There and back again: the same head, the same tables, the same blobs and memories.
#[test]
fn a_store_moves_to_a_server_and_back() {
    let records = crowd::history(54, 2);
    let [file, server] = fixture::places();
    let [back, _] = fixture::places();
    fixture::write(&file.location, &records, 50);
    let writer = Writer::open(&file.location).unwrap();
    let (told, heard) = std::sync::mpsc::channel();
    writer.keep_blob(b"a transcript".to_vec(), "attempt 1", {
        let told = told.clone();
        move |done| told.send(done.map(drop)).unwrap()
    });
    let note = Document {
        kind: Kind::Memory,
        source: "note".into(),
        seq: None,
        at: Timestamp(9),
        mission: None,
        task: None,
        agent: None,
        event: None,
        body: "remember the milk".into(),
    };
    writer.index(note, move |done| told.send(done).unwrap());
    assert!(heard.iter().take(2).all(|done| done.is_ok()));
    writer.close().unwrap();

    let there = carry_over(&file.location, &server.location).unwrap();
    let here = carry_over(&server.location, &back.location).unwrap();
    assert_eq!(there, here);
    let original = Reader::open(&file.location).unwrap();
    assert_eq!(there.head, original.head().unwrap());
    assert_eq!(there.tables, original.tables().unwrap());
    assert_eq!(there.blobs, 1);
    for location in [&server.location, &back.location] {
        let reader = Reader::open(location).unwrap();
        let hash = kapelle_store::blob_hash(b"a transcript");
        assert_eq!(reader.blob(hash).unwrap().as_deref(), Some(b"a transcript".as_slice()));
        let milk = Query { text: "milk".into(), ..Query::default() };
        assert_eq!(reader.search(&milk).unwrap().len(), 1, "{location}");
        assert_eq!(reader.watermark().unwrap(), Seq(records.len() as u64));
    }
    let full = carry_over(&file.location, &back.location).unwrap_err();
    assert!(matches!(full, AuditError::Store(Error::NotEmpty { .. })), "{full}");
}

/// A broken history is not carried on.
#[test]
fn a_broken_history_stays_where_it_is() {
    let [file, server] = fixture::places();
    fixture::write(&file.location, &fixture::history(1, 0), 50);
    let raw = Connection::open(file.location.path().unwrap()).unwrap();
    raw.execute_batch(
        "DROP TRIGGER journal_is_not_edited; UPDATE journal SET at = 7 WHERE seq = 9",
    )
    .unwrap();
    let broken = carry_over(&file.location, &server.location).unwrap_err();
    assert!(broken.to_string().starts_with("record 9 was changed"), "{broken}");
    let broken = Reader::open(&file.location).unwrap().export(&mut Vec::new()).unwrap_err();
    assert!(broken.to_string().starts_with("record 9 was changed"), "{broken}");
}

/// The proof of `kapelle store rebuild` can fail: it names the tables that said something else.
#[test]
fn a_rebuild_names_the_tables_that_were_wrong() {
    let records = fixture::history(2, 0);
    for place in fixture::places() {
        fixture::write(&place.location, &records, 50);
        let untouched = rebuild(&place.location).unwrap();
        assert_eq!(untouched.repaired().count(), 0, "{}", place.name);
        place.change("UPDATE tasks SET title = 'harm'");
        let repaired = rebuild(&place.location).unwrap();
        let names: Vec<&str> = repaired.repaired().map(|table| table.table).collect();
        assert_eq!(names, ["tasks"], "{}", place.name);
        assert_eq!(repaired.after, untouched.after, "{}", place.name);
    }
}
