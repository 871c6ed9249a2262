//! Histories on their way: export, import, and from one database to another and back.

use std::io::{BufReader, Read};

use kapelle_core::{Event, Record, Seq, Timestamp};
use kapelle_store::search::{Document, Kind, Query};
use kapelle_store::{
    AuditError, Error, Extent, Location, Reader, Writer, carry_over, import, rebuild, verify,
};
use rusqlite::Connection;

use crate::{cluster, crowd, fixture};

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
    assert_eq!(lines.iter().filter(|byte| **byte == b'\n').count(), records.len() + 1);
    let head = Reader::open(&sqlite.location).unwrap().head().unwrap();
    let tables = Reader::open(&sqlite.location).unwrap().tables().unwrap();
    for to in [&again.location, &on_server.location, &postgres.location] {
        let carried = import(&mut &lines[..], Extent::Whole, to).unwrap();
        assert_eq!((carried.head, &carried.tables), (head, &tables), "{to}");
        assert_eq!(verify(to).unwrap().head, head, "{to}");
        assert!(exported(to) == lines, "{to}: other lines");
        // Whoever was interrupted at the very end, or does not know, may ask again.
        assert_eq!(import(&mut &lines[..], Extent::Whole, to).unwrap(), carried, "{to}");
        let half = lines.split_inclusive(|byte| *byte == b'\n').take(50).collect::<Vec<_>>();
        let refused = import(&mut &half.concat()[..], Extent::AsFarAsItGoes, to).unwrap_err();
        assert!(matches!(refused, Error::NotEmpty { .. }), "{refused}");
        assert_eq!(verify(to).unwrap().head, head, "{to}");
    }
    // And it goes on from there.
    fixture::write(&again.location, &[], 1);
}

/// More records than are held in memory at a time.
fn many() -> Vec<Record> {
    let record = |seq| Record { seq: Seq(seq), at: Timestamp(seq), event: Event::SessionStarted };
    (1..=10_500).map(record).collect()
}

/// A chain has no end of its own: half of a history is a history.
#[test]
fn an_export_that_was_cut_does_not_pass_for_a_whole_one() {
    let [from, to] = fixture::places();
    fixture::write(&from.location, &fixture::history(1, 0), 50);
    let text = String::from_utf8(exported(&from.location)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let whole = lines.len() - 1;
    let read = |lines: &[&str], extent| {
        import(&mut lines.join("\n").as_bytes(), extent, &to.location)
            .map(|carried| carried.head.seq)
    };
    for cut in [0, 1, whole] {
        let refused = read(&lines[..cut], Extent::Whole).unwrap_err();
        assert!(
            matches!(refused, Error::CutShort { records } if records == cut as u64),
            "{refused}"
        );
    }
    // Nor with an end that is not its own, or with more behind it.
    let without = [&lines[..whole - 1], &lines[whole..]].concat();
    let more = [&lines[..], &lines[whole..]].concat();
    for (wrong, at) in [(without, whole), (more, whole + 2)] {
        for extent in [Extent::Whole, Extent::AsFarAsItGoes] {
            let refused = read(&wrong, extent).unwrap_err();
            assert!(
                matches!(refused, Error::Import { line, .. } if line == at as u64),
                "{refused}"
            );
        }
    }
    assert_eq!(read(&lines[..1], Extent::AsFarAsItGoes).unwrap(), Seq(1));
}

/// What is cut ends anywhere, also in the middle of a character.
#[test]
fn an_export_that_ends_in_the_middle_of_a_line_was_cut_too() {
    let [from, to] = fixture::places();
    fixture::write(&from.location, &fixture::history(1, 0), 50);
    let text = exported(&from.location);
    let ends: Vec<usize> = (0..text.len()).filter(|at| text[*at] == b'\n').collect();
    let (first, second) = (ends[0], ends[1]);
    let hash = b"\"hash\":\"";
    let hash = first + text[first..].windows(hash.len()).position(|at| at == hash).unwrap();
    let half_a_character = [&text[..hash + 20], &[0xc3]].concat();
    let cuts = [first + 2, (first + second) / 2, second - 1].map(|end| &text[..end]);
    for cut in cuts.into_iter().chain([&half_a_character[..]]) {
        let refused = import(&mut &*cut, Extent::Whole, &to.location).unwrap_err();
        assert!(matches!(refused, Error::CutShort { records: 1 }), "{refused}");
    }
    // A line that is wrong in itself is none that was cut.
    let goes_on = [&text[..first + 9], &text[second..]].concat();
    let is_none = [&text[..=first], b"no record"].concat();
    for wrong in [goes_on, is_none] {
        let refused = import(&mut &wrong[..], Extent::AsFarAsItGoes, &to.location).unwrap_err();
        assert!(matches!(refused, Error::Import { line: 2, .. }), "{refused}");
    }
    let cut = import(&mut &text[..second - 1], Extent::AsFarAsItGoes, &to.location).unwrap();
    assert_eq!(cut.head.seq, Seq(1));
}

/// What is found to be wrong only after the first pages leaves nothing behind, so that the right
/// export can follow without hand work.
#[test]
fn an_import_of_many_pages_arrives_whole_or_not_at_all() {
    let [from, _] = fixture::places();
    fixture::filled(from.location.path().unwrap(), &many(), 5_000);
    let lines = exported(&from.location);
    let head = Reader::open(&from.location).unwrap().head().unwrap();
    let text = String::from_utf8(lines.clone()).unwrap();
    let wrong = text.replace("\"seq\":10400,", "\"seq\":10401,");
    for to in fixture::places() {
        let refused = import(&mut wrong.as_bytes(), Extent::Whole, &to.location).unwrap_err();
        assert!(matches!(refused, Error::Import { line: 10_400, .. }), "{}: {refused}", to.name);
        assert_eq!(Reader::open(&to.location).unwrap().head().unwrap().seq, Seq(0), "{}", to.name);
        let carried = import(&mut &lines[..], Extent::Whole, &to.location).unwrap();
        assert_eq!(carried.head, head, "{}", to.name);
        assert!(exported(&to.location) == lines, "{}: other lines", to.name);
    }
}

/// Has nothing to read; when it is asked, it ends the session of whoever leads.
struct Cut<'a>(&'a Location);

impl Read for Cut<'_> {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        assert_eq!(fixture::end_leading_session(self.0), "1");
        Ok(0)
    }
}

/// What was written before the connection was lost is gone with it; to go on on another one would
/// be to leave that out.
#[test]
fn an_import_that_loses_its_connection_leaves_nothing() {
    let [from, _] = fixture::places();
    fixture::filled(from.location.path().unwrap(), &many(), 5_000);
    let lines = exported(&from.location);
    // After the first page; and after the last, before the blobs and the end.
    for cut in [lines.len() - 1_000, lines.len()] {
        let [_, to] = fixture::places();
        let (before, after) = lines.split_at(cut);
        let broken = before.chain(Cut(&to.location)).chain(after);
        let lost = import(&mut BufReader::new(broken), Extent::Whole, &to.location).unwrap_err();
        assert!(matches!(lost, Error::Lost { .. }), "{lost}");
        assert_eq!(Reader::open(&to.location).unwrap().head().unwrap().seq, Seq(0));
        import(&mut &lines[..], Extent::Whole, &to.location).unwrap();
    }
}

/// Whoever may not write into a store does not depose its leader either.
#[test]
fn a_store_that_is_not_empty_is_left_alone() {
    let [from, _] = fixture::places();
    fixture::write(&from.location, &fixture::history(1, 0), 50);
    let lines = exported(&from.location);
    for to in fixture::places() {
        let leader = Writer::open(&to.location).unwrap();
        let records = fixture::history(2, 0);
        let append = |expected: usize, records: &[Record]| {
            let (told, heard) = std::sync::mpsc::channel();
            let expected = Seq(expected as u64);
            leader.append(leader.epoch(), expected, records.to_vec(), move |done| {
                told.send(done).unwrap();
            });
            heard.recv().unwrap()
        };
        append(0, &records[..5]).unwrap();
        let refused = import(&mut &lines[..], Extent::Whole, &to.location).unwrap_err();
        assert!(matches!(refused, Error::NotEmpty { records: 5 }), "{}: {refused}", to.name);
        let refused = carry_over(&from.location, &to.location).unwrap_err();
        let AuditError::Store(refused) = refused else { panic!("{refused}") };
        assert!(matches!(refused, Error::NotEmpty { records: 5 }), "{}: {refused}", to.name);
        append(5, &records[5..]).unwrap();
    }
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
        let refused =
            import(&mut (wrong.join("\n") + "\n").as_bytes(), Extent::Whole, &to.location)
                .unwrap_err();
        let Error::Import { line: found, why: because } = &refused else { panic!("{refused}") };
        assert_eq!(*found, line, "{refused}");
        assert!(because.contains(why), "{refused}");
    }
}

/// What the guide tells people to do on a server.
#[test]
fn a_dump_of_a_project_is_a_backup() {
    let records = crowd::history(210, 2);
    let (before, after) = records.split_at(records.len() / 2);
    let cluster = cluster::shared();
    let location = cluster.project();
    let schema = fixture::schema(&location);
    fixture::write(&location, before, 50);
    let writer = Writer::open(&location).unwrap();
    let dump = cluster.dump(&schema);
    writer.append_and_wait(writer.epoch(), writer.opened_at().seq, after.to_vec()).unwrap();
    writer.close().unwrap();
    cluster.psql("public", &format!("DROP SCHEMA {schema} CASCADE")).unwrap();
    drop(cluster.session("public", &dump));
    let there = verify(&location).unwrap();
    assert_eq!(there.records, before.len() as u64);
    fixture::write(&location, after, 50);
    assert_eq!(rebuild(&location).unwrap().repaired().count(), 0);
}

/// There and back again: the same head, the same tables, the same blobs and memories.
#[test]
fn a_store_moves_to_a_server_and_back() {
    let records = crowd::history(210, 2);
    let [file, server] = fixture::places();
    let [back, _] = fixture::places();
    fixture::write(&file.location, &records, 50);
    let writer = Writer::open(&file.location).unwrap();
    let (told, heard) = std::sync::mpsc::channel();
    writer.keep_blob(b"a transcript".to_vec(), "attempt 1", {
        let told = told.clone();
        move |done| told.send(done.map(drop)).unwrap()
    });
    writer.index(note("note", 9, "remember the milk"), {
        let told = told.clone();
        move |done| told.send(done).unwrap()
    });
    // Its owner is gone; a record may still mention it.
    writer.keep_blob(b"a diff".to_vec(), "attempt 2", |_| {});
    writer.release_blobs("attempt 2", move |done| told.send(done).unwrap());
    assert!(heard.iter().take(3).all(|done| done.is_ok()));
    writer.close().unwrap();

    let there = carry_over(&file.location, &server.location).unwrap();
    let here = carry_over(&server.location, &back.location).unwrap();
    assert_eq!(there, here);
    let original = Reader::open(&file.location).unwrap();
    assert_eq!(there.head, original.head().unwrap());
    assert_eq!(there.tables, original.tables().unwrap());
    assert_eq!(there.blobs, 2);
    for location in [&server.location, &back.location] {
        let reader = Reader::open(location).unwrap();
        let hash = kapelle_store::blob_hash(b"a transcript");
        assert_eq!(reader.blob(hash).unwrap().as_deref(), Some(b"a transcript".as_slice()));
        let diff = reader.blob(kapelle_store::blob_hash(b"a diff")).unwrap();
        assert_eq!(diff.as_deref(), Some(b"a diff".as_slice()), "{location}");
        let milk = Query { text: "milk".into(), ..Query::default() };
        assert_eq!(reader.search(&milk).unwrap().len(), 1, "{location}");
        assert_eq!(reader.watermark().unwrap(), Seq(records.len() as u64));
    }
    // Whoever was interrupted at the very end, or does not know, may ask again.
    assert_eq!(carry_over(&file.location, &back.location).unwrap(), here);
}

fn note(source: &str, at: u64, body: &str) -> Document {
    Document {
        kind: Kind::Memory,
        source: source.into(),
        seq: None,
        at: Timestamp(at),
        mission: None,
        task: None,
        agent: None,
        event: None,
        body: body.into(),
    }
}

fn keep(location: &Location, blob: &[u8], notes: Vec<Document>) {
    let writer = Writer::open(location).unwrap();
    let (told, heard) = std::sync::mpsc::channel();
    writer.keep_blob(blob.to_vec(), "attempt 1", {
        let told = told.clone();
        move |done| told.send(done.map(drop)).unwrap()
    });
    for note in notes {
        let told = told.clone();
        writer.index(note, move |done| told.send(done).unwrap());
    }
    drop(told);
    assert!(heard.iter().all(|done| done.is_ok()));
    writer.close().unwrap();
}

/// Blobs and notes come without a record, so the same head does not mean that all is there.
#[test]
fn a_move_that_is_repeated_carries_what_came_since() {
    let [file, server] = fixture::places();
    fixture::write(&file.location, &fixture::history(1, 0), 50);
    keep(&file.location, b"early", vec![note("milk", 1, "remember the milk")]);
    carry_over(&file.location, &server.location).unwrap();
    // What somebody wrote there meanwhile is newer than what is here.
    keep(&server.location, b"theirs", vec![note("eggs", 9, "no eggs any more")]);
    let here = vec![note("milk", 2, "remember the oatmilk"), note("eggs", 3, "remember the eggs")];
    keep(&file.location, b"late", here);
    let again = carry_over(&file.location, &server.location).unwrap();
    assert_eq!(again.blobs, 2);
    let reader = Reader::open(&server.location).unwrap();
    for blob in [b"early".as_slice(), b"late", b"theirs"] {
        let kept = reader.blob(kapelle_store::blob_hash(blob)).unwrap();
        assert_eq!(kept.as_deref(), Some(blob));
    }
    for (word, count) in [("oatmilk", 1), ("milk", 0), ("any", 1), ("remember", 1)] {
        let query = Query { text: word.into(), ..Query::default() };
        assert_eq!(reader.search(&query).unwrap().len(), count, "{word}");
    }
}

/// Whoever moves a project goes on looking for things in it, also before its next run.
#[test]
fn what_has_arrived_can_be_searched_at_once() {
    let records = fixture::history(33, 12);
    assert!(records.len() > 600, "{}: more than one batch of the search", records.len());
    let [from, _] = fixture::places();
    fixture::write(&from.location, &records, 100);
    let log = Document { kind: Kind::Log, ..note("attempt 1", 8, "the log of milk") };
    keep(&from.location, b"blob", vec![note("note", 9, "remember the milk"), log]);
    let lines = exported(&from.location);
    let found = |location: &Location, text: &str| {
        let reader = Reader::open(location).unwrap();
        assert_eq!(reader.searchable().unwrap(), Seq(records.len() as u64), "{location}");
        reader.search(&Query { text: text.into(), ..Query::default() }).unwrap()
    };
    let [merged, printed] = ["merged", "1 test"].map(|text| found(&from.location, text));
    assert!(!merged.is_empty() && !printed.is_empty());
    let [one, other] = fixture::places();
    let [third, last] = fixture::places();
    for [moved, imported] in [[&one, &other], [&last, &third]] {
        carry_over(&from.location, &moved.location).unwrap();
        import(&mut &lines[..], Extent::Whole, &imported.location).unwrap();
        for to in [&moved.location, &imported.location] {
            assert_eq!(found(to, "merged"), merged, "{to}");
            assert_eq!(found(to, "1 test"), printed, "{to}");
        }
        assert_eq!(found(&moved.location, "milk").len(), 2, "{}", moved.name);
    }
}

/// The same file has many names. Whoever moves it onto itself means something else.
#[test]
fn a_file_is_not_moved_onto_itself_by_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let [real, linked] = ["real", "linked"].map(|name| dir.path().join(name));
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &linked).unwrap();
    let path = real.join("db");
    fixture::write(&(&path).into(), &fixture::history(1, 0), 50);
    std::fs::hard_link(&path, real.join("hard")).unwrap();
    let (head, there) = (verify(&path).unwrap().head, std::fs::read(&path).unwrap());
    for name in [linked.join("db"), real.join("../real/./db"), real.join("hard")] {
        let refused = carry_over(&path, &name).unwrap_err().to_string();
        assert!(refused.contains("is there already"), "{}: {refused}", name.display());
        assert!(std::fs::read(&path).unwrap() == there, "{}: changed", name.display());
    }
    assert_eq!(carry_over(&path, &real.join("other")).unwrap().head, head);
}

/// So does the same database: by socket or by host, with or without what goes without saying.
#[test]
fn a_database_is_not_moved_onto_itself_by_another_address() {
    let cluster = cluster::Cluster::start();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    cluster.psql("public", "CREATE ROLE ada LOGIN").unwrap();
    for setting in ["listen_addresses = '127.0.0.1'".to_owned(), format!("port = {port}")] {
        cluster.psql("public", &format!("ALTER SYSTEM SET {setting}")).unwrap();
    }
    cluster.crash();
    cluster.start_again();
    let url = cluster.url();
    let (_, dir) = url.split_once("host=").unwrap();
    let encoded = dir.replace('/', "%2F");
    let at = |url: &str| Location::postgres(url, "shop").unwrap();
    let here = at(&format!("{url}&port={port}"));
    fixture::write(&here, &fixture::history(1, 0), 50);
    let head = || verify(&here).unwrap().head;
    let before = head();
    for other in [
        format!("postgres://app@127.0.0.1:{port}/postgres"),
        format!("postgres://app@localhost:{port}/postgres?connect_timeout=3"),
        format!("postgres://app@{encoded}:{port}/postgres"),
        format!("postgres://ada@127.0.0.1:{port}/%70ostgres"),
        format!("host={dir} port={port} user=app dbname=postgres"),
    ] {
        let refused = carry_over(&here, at(&other)).unwrap_err().to_string();
        assert!(refused.contains("is there already"), "{other}: {refused}");
        assert_eq!(head(), before, "{other}");
    }
    // Another project on the same server is another place.
    let shelf = Location::postgres(&format!("{url}&port={port}"), "shelf").unwrap();
    assert_eq!(carry_over(&here, &shelf).unwrap().head, before);
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

/// What was gone, or could not be read, was not equal to anything.
#[test]
fn a_rebuild_names_what_was_not_there() {
    let records = fixture::history(2, 0);
    let moved = "UPDATE projection_watermark SET seq = 1000000";
    for place in fixture::places() {
        fixture::write(&place.location, &records, 50);
        for (harm, name) in [
            ("DELETE FROM checks; DROP TABLE checks", "checks"),
            ("DROP VIEW costs_by_mission", "costs_by_mission"),
            ("DROP TABLE projection_watermark", "projection_watermark"),
            ("DELETE FROM projection_watermark", "projection_watermark"),
            ("UPDATE projection_watermark SET version = 0", "projection_watermark"),
            (moved, "projection_watermark"),
            ("ALTER TABLE tasks RENAME COLUMN title TO heading", "tasks"),
        ] {
            place.change(harm);
            let rebuilt = rebuild(&place.location).unwrap();
            let names: Vec<&str> = rebuilt.repaired().map(|repaired| repaired.table).collect();
            assert_eq!(names, [name], "{harm} on {}", place.name);
            assert_eq!(rebuild(&place.location).unwrap().repaired().count(), 0, "{}", place.name);
        }
    }
}
