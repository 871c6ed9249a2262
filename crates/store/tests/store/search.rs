//! Search: the same question has the same answer on every database.

use std::sync::mpsc;

use kapelle_core::{MissionId, Seq, TaskId, Timestamp};
use kapelle_store::search::{Document, HITS_MAX, Kind, Query};
use kapelle_store::{Reader, Writer, carry_over, rebuild};

use rusqlite::Connection;

use crate::faults::damage;
use crate::fixture::Place;
use crate::{cluster, fixture};

fn query(text: &str) -> Query {
    Query { text: text.into(), ..Query::default() }
}

fn memory(source: &str, at: u64, body: &str) -> Document {
    Document {
        kind: Kind::Memory,
        source: source.into(),
        seq: None,
        at: Timestamp(at),
        mission: Some(MissionId(1)),
        task: Some(TaskId(2)),
        agent: Some("librarian-1".into()),
        event: None,
        body: body.into(),
    }
}

fn remember(writer: &Writer, document: Document) {
    let (told, heard) = mpsc::channel();
    writer.index(document, move |done| told.send(done).unwrap());
    heard.recv().unwrap().unwrap();
}

/// What happened, what checks printed and what was remembered are found with one question.
#[test]
fn one_question_finds_activity_logs_and_memory_on_every_database() {
    let records = fixture::history(33, 2);
    let questions = [
        query("merged"),
        query("Connection RESET"),
        query("test ran"),
        query("fence tokens"),
        query("no such word anywhere"),
        query("!?"),
        Query { kind: Some(Kind::Log), ..query("1 test") },
        Query { kind: Some(Kind::Activity), ..query("1 test") },
        Query { mission: Some(MissionId(2)), ..query("opened") },
        Query { task: Some(TaskId(2)), ..Query::default() },
        Query { agent: Some("developer-1".into()), ..Query::default() },
        Query { event: Some("attempt_failed".into()), ..Query::default() },
        Query { since: Some(Timestamp(1_100_000)), limit: Some(7), ..Query::default() },
        Query { until: Some(Timestamp(1_010_000)), ..Query::default() },
    ];
    let answers = fixture::places().map(|place| {
        fixture::write(&place.location, &records, 100);
        let writer = Writer::open(&place.location).unwrap();
        remember(&writer, memory("note 1", 5, "Fence tokens: never reuse one (see src/lib.rs)"));
        writer.close().unwrap();
        let reader = Reader::open(&place.location).unwrap();
        assert_eq!(reader.searchable().unwrap(), Seq(records.len() as u64), "{}", place.name);
        questions.clone().map(|question| reader.search(&question).unwrap())
    });
    for ((question, one), other) in questions.iter().zip(&answers[0]).zip(&answers[1]) {
        assert_eq!(one, other, "{question:?}");
    }
    let found: Vec<usize> = answers[0].iter().map(Vec::len).collect();
    assert_eq!((found[4], found[5], found[12]), (0, 0, 7));
    assert!(found.iter().enumerate().all(|(at, n)| (*n > 0) != [4, 5].contains(&at)), "{found:?}");
    let [Document { kind: Kind::Memory, source, .. }] = &answers[0][3][..] else {
        panic!("{:?}", answers[0][3])
    };
    assert_eq!(source, "note 1");
}

/// A note that was rewritten is found by its new words, and only by them.
#[test]
fn a_later_document_takes_the_place_of_an_earlier_one() {
    for place in fixture::places() {
        let writer = Writer::open(&place.location).unwrap();
        remember(&writer, memory("note 1", 5, "the quick fox"));
        remember(&writer, memory("note 2", 6, "another fox"));
        remember(&writer, memory("note 1", 7, "the slow hedgehog"));
        let reader = Reader::open(&place.location).unwrap();
        let sources = |text: &str| -> Vec<String> {
            let hits = reader.search(&query(text)).unwrap();
            hits.into_iter().map(|hit| hit.source).collect()
        };
        assert_eq!(sources("fox"), ["note 2"], "{}", place.name);
        assert_eq!(sources("hedgehog"), ["note 1"], "{}", place.name);
        assert_eq!(sources(""), ["note 1", "note 2"], "newest first on {}", place.name);
    }
}

/// What PostgreSQL would make of such a text is numbers, parts of words, or nothing.
#[test]
fn a_word_is_the_same_on_every_database() {
    for place in fixture::places() {
        let writer = Writer::open(&place.location).unwrap();
        remember(&writer, memory("note 1", 5, "at 1e5abc, x²y or 2½ of user@example.com"));
        let reader = Reader::open(&place.location).unwrap();
        let finds = |text: &str| !reader.search(&query(text)).unwrap().is_empty();
        for word in ["1e5abc", "1E5ABC", "x²y", "2½", "example", "com user"] {
            assert!(finds(word), "{word} on {}", place.name);
        }
        for part in ["1e5", "abc", "x", "y", "2", "example.org"] {
            assert!(!finds(part), "{part} on {}", place.name);
        }
    }
}

/// What the journal tells can be made searchable again; a note is told by nothing else.
#[test]
fn a_note_on_a_server_is_on_its_disk_when_it_is_answered() {
    let location = cluster::shared().project();
    let schema = fixture::schema(&location);
    let ask = |sql: &str| cluster::shared().psql(&schema, sql).unwrap();
    let writer = Writer::open(&location).unwrap();
    ask("CREATE TABLE seen (kind TEXT, setting TEXT);
        CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
            INSERT INTO seen VALUES (NEW.kind, current_setting('synchronous_commit'));
            RETURN NEW; END$$;
        CREATE TRIGGER watch BEFORE INSERT ON documents FOR EACH ROW EXECUTE FUNCTION watch()");
    remember(&writer, memory("note 1", 5, "remember the milk"));
    writer.close().unwrap();
    fixture::write(&location, &fixture::history(33, 0), 100);
    let seen = "SELECT DISTINCT kind, setting FROM seen ORDER BY kind";
    assert_eq!(ask(seen), "activity|off\nlog|off\nmemory|on");
}

/// A question is data: nothing in it is an operator.
#[test]
fn questions_cannot_be_malformed() {
    for place in fixture::places() {
        let writer = Writer::open(&place.location).unwrap();
        remember(&writer, memory("note", 5, "NEAR and OR are words; so is 'quote' \"double\""));
        let reader = Reader::open(&place.location).unwrap();
        for text in ["near OR quote", "\"", "quote\" OR \"x", "a & | ! ( :*", "' OR 1=1 --", "\0"] {
            let found = reader.search(&query(text));
            assert!(found.is_ok(), "{text:?} on {}: {found:?}", place.name);
        }
        assert_eq!(reader.search(&query("near OR \"quote")).unwrap().len(), 1, "{}", place.name);
        let many = Query { limit: Some(usize::MAX), ..query("words") };
        assert!(reader.search(&many).unwrap().len() <= HITS_MAX);
    }
}

/// What can be made anew must not keep a project where it is, nor stay broken. What no record tells
/// is kept as far as it can be read.
#[test]
fn a_damaged_search_stops_no_move_and_is_made_anew() {
    let records = fixture::history(33, 2);
    for (table, notes) in [("documents_words_data", 1), ("documents", 0), ("search_watermark", 1)] {
        let [place, _] = fixture::places();
        let [to, _] = fixture::places();
        fixture::write(&place.location, &records, 100);
        let writer = Writer::open(&place.location).unwrap();
        remember(&writer, memory("note 1", 5, "the quick fox"));
        writer.close().unwrap();
        damage(place.location.path().unwrap(), table);

        let trouble = Reader::open(&place.location).unwrap().trouble_with_search();
        assert!(trouble.is_some_and(|why| why.starts_with(table)), "{table}");
        let carried = carry_over(&place.location, &to.location).unwrap();
        assert_eq!(carried.notes_lost, notes == 0, "{table}");
        let search = rebuild(&place.location).unwrap().search.unwrap();
        assert_eq!((search.kept, search.lost), (notes, notes == 0), "{table}");
        assert_eq!(rebuild(&place.location).unwrap().search, None, "{table}");
        for location in [&place.location, &to.location] {
            let reader = Reader::open(location).unwrap();
            assert_eq!(reader.searchable().unwrap(), Seq(records.len() as u64), "{table}");
            assert!(!reader.search(&query("merged")).unwrap().is_empty(), "{table}");
            assert_eq!(reader.search(&query("fox")).unwrap().len(), notes, "{table}");
        }
    }
}

/// Nor does it stop whoever has work to do.
#[test]
fn a_damaged_search_stops_no_append() {
    let records = fixture::history(33, 2);
    let (before, after) = records.split_at(100);
    for table in ["documents_words_data", "documents", "search_watermark"] {
        let [place, _] = fixture::places();
        fixture::write(&place.location, before, 100);
        damage(place.location.path().unwrap(), table);
        let writer = Writer::open(&place.location).unwrap();
        writer.append_and_wait(writer.epoch(), Seq(100), after.to_vec()).unwrap();
        writer.close().unwrap();
        rebuild(&place.location).unwrap();
        let reader = Reader::open(&place.location).unwrap();
        assert_eq!(reader.searchable().unwrap(), Seq(records.len() as u64), "{table}");
    }
}

/// A log that is not there when somebody looks for it was not printed, as far as they can see. So
/// it is told once, and not only to whoever wrote it.
#[test]
fn what_could_not_be_made_searchable_is_told_until_a_rebuild() {
    for place in fixture::places() {
        fixture::write(&place.location, &fixture::history(33, 0), 100);
        let unsearchable = || Reader::open(&place.location).unwrap().unsearchable();
        refuse_documents(&place);
        let writer = Writer::open(&place.location).unwrap();
        let (told, heard) = mpsc::channel();
        for number in 1..=2 {
            let log =
                Document { kind: Kind::Log, ..memory(&format!("attempt {number}"), 5, "ran") };
            let told = told.clone();
            writer.index(log, move |done| told.send(done.unwrap_err().to_string()).unwrap());
        }
        let why = heard.recv().unwrap();
        assert!(why.contains("there is no room"), "{}: {why}", place.name);
        writer.close().unwrap();
        let noted = format!("the log of attempt 1: {why}");
        assert_eq!(unsearchable(), Some(noted.clone()), "{}", place.name);
        fixture::write(&place.location, &[], 1);
        assert_eq!(unsearchable(), Some(noted.clone()), "{}: it is still not there", place.name);

        accept_documents(&place);
        let rebuilt = rebuild(&place.location).unwrap();
        assert_eq!(rebuilt.search, None, "{}: nothing is wrong with it", place.name);
        assert_eq!(rebuilt.unsearchable, Some(noted), "{}", place.name);
        assert_eq!(unsearchable(), None, "{}", place.name);
        assert_eq!(rebuild(&place.location).unwrap().unsearchable, None, "{}", place.name);
        let reader = Reader::open(&place.location).unwrap();
        assert!(!reader.search(&query("merged")).unwrap().is_empty(), "{}", place.name);
    }
}

/// The log is as little there when the tables are others, or when a rebuild did not get to its end.
#[test]
fn what_could_not_be_made_searchable_is_told_by_tables_that_are_made_anew() {
    let records = fixture::history(33, 0);
    let (before, rest) = records.split_at(records.len() / 2);
    for place in fixture::places() {
        fixture::write(&place.location, before, 100);
        place.change("UPDATE projection_watermark SET search_complaint = 'the log''s page'");
        let noted = |what: &str| {
            let found = Reader::open(&place.location).unwrap().unsearchable();
            assert_eq!(found.as_deref(), Some("the log's page"), "{what} on {}", place.name);
        };
        for harm in [
            "UPDATE projection_watermark SET version = version - 1",
            "UPDATE projection_watermark SET hash = 'another'",
            "DROP VIEW costs_by_mission",
        ] {
            place.change(harm);
            Writer::open(&place.location).unwrap().close().unwrap();
            noted(harm);
        }
        if let Some(path) = place.location.path() {
            damage(&kapelle_store::tables_path(path), "tasks");
            let writer = Writer::open(&place.location).unwrap();
            let (epoch, head) = (writer.epoch(), writer.opened_at().seq);
            writer.append(epoch, head, rest.to_vec(), |done| assert!(done.is_ok()));
            // It is damage, and told as such; the next one folds.
            let _ = writer.close();
            Writer::open(&place.location).unwrap().close().unwrap();
            noted("damage");
        }
        refuse_documents(&place);
        place.forget_search();
        let failed = rebuild(&place.location).unwrap_err().to_string();
        assert!(failed.contains("there is no room"), "{}: {failed}", place.name);
        noted("a rebuild that failed");
        accept_documents(&place);
        rebuild(&place.location).unwrap();
        assert_eq!(Reader::open(&place.location).unwrap().unsearchable(), None, "{}", place.name);
    }
}

/// Somebody who has locked the tables keeps the note from them, and not for good.
#[test]
fn a_note_waits_for_locked_tables_and_not_for_the_next_failure() {
    let [place, _] = fixture::places();
    let records = fixture::history(33, 0);
    let writer = Writer::open(&place.location).unwrap();
    let flush = || {
        let (told, heard) = mpsc::channel();
        writer.flush(move |done| told.send(done).unwrap());
        heard.recv().unwrap().unwrap()
    };
    flush();
    refuse_documents(&place);
    let lock = place.lock_tables();
    let (told, heard) = mpsc::channel();
    let log = Document { kind: Kind::Log, ..memory("attempt 1", 5, "ran") };
    writer.index(log, move |done| told.send(done).unwrap());
    heard.recv().unwrap().unwrap_err();
    // With nothing to fold, this waits for nobody but the note, which comes first.
    flush();
    let unsearchable = || Reader::open(&place.location).unwrap().unsearchable();
    assert_eq!(unsearchable(), None);
    drop(lock);
    writer.append(writer.epoch(), Seq(0), records, |done| assert!(done.is_ok()));
    flush();
    let noted = unsearchable().unwrap();
    assert!(noted.starts_with("the log of attempt 1: "), "{noted}");
}

fn refuse_documents(place: &Place) {
    let Some(path) = place.location.path() else {
        return place.change(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                $$BEGIN RAISE EXCEPTION 'there is no room'; END$$;
            CREATE TRIGGER refuse BEFORE INSERT ON documents FOR EACH ROW EXECUTE FUNCTION refuse()",
        );
    };
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON documents
        BEGIN SELECT RAISE(ABORT, 'there is no room'); END";
    Connection::open(path).unwrap().execute_batch(refuse).unwrap();
}

fn accept_documents(place: &Place) {
    let Some(path) = place.location.path() else {
        return place.change("DROP TRIGGER refuse ON documents");
    };
    Connection::open(path).unwrap().execute_batch("DROP TRIGGER refuse").unwrap();
}

/// Whoever removes the mark makes the search begin again, and not at the same place for ever.
#[test]
fn a_search_without_its_mark_gets_to_the_end_again() {
    let records = fixture::history(12, 12);
    assert!(records.len() > 600, "{}", records.len());
    for place in fixture::places() {
        fixture::write(&place.location, &records, 100);
        place.forget_search();
        fixture::write(&place.location, &[], 1);
        let reader = Reader::open(&place.location).unwrap();
        assert_eq!(reader.searchable().unwrap(), Seq(records.len() as u64), "{}", place.name);
    }
}
