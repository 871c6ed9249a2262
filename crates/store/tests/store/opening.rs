//! What may be opened as a store, by whom, and what is refused.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use kapelle_core::Seq;
use kapelle_store::{Error, Journal, Location, Reader, Sqlite, Writer, tables_path};
use rusqlite::Connection;

use crate::{cluster, fixture};

/// The journal tells what a project works on; so do its companions.
#[test]
fn only_the_owner_can_read_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let _store = fixture::filled(&path, &fixture::history(1, 0), 10);
    drop(Writer::open(&path).unwrap());
    for name in ["db", "db-wal", "db-shm", "db-tables.db"] {
        let mode = fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

/// A copy of a backup may be readable for all, and its log is made as readable as the file is then.
#[test]
fn a_store_that_others_can_read_is_closed_to_them_with_its_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    drop(fixture::filled(&path, &fixture::history(1, 0), 10));
    assert!(!dir.path().join("db-wal").exists(), "it would not be made anew");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let _store = Sqlite::open(&path).unwrap();
    for name in ["db", "db-wal", "db-shm"] {
        let mode = fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

/// An older binary must not write what it does not understand, nor change a byte of it.
#[test]
fn a_newer_store_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    drop(Sqlite::open(&path).unwrap());
    let raw = Connection::open(&path).unwrap();
    raw.pragma_update(None, "user_version", 99).unwrap();
    drop(raw);
    let before = fs::read(&path).unwrap();
    for refused in [Sqlite::open(&path).unwrap_err(), Reader::open(&path).unwrap_err()] {
        assert!(matches!(refused, Error::TooNew { found: 99, known: 2, .. }), "{refused}");
        assert!(
            refused.to_string().ends_with(
                "was written by a newer version: its schema is 99, this version knows 2"
            )
        );
    }
    assert!(fs::read(&path).unwrap() == before);
}

#[test]
fn a_symbolic_link_is_not_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let (path, link) = (dir.path().join("db"), dir.path().join("link"));
    drop(Sqlite::open(&path).unwrap());
    symlink(&path, &link).unwrap();
    let dangling = dir.path().join("dangling");
    symlink(dir.path().join("nowhere"), &dangling).unwrap();
    for link in [link, dangling] {
        for refused in [Sqlite::open(&link).unwrap_err(), Reader::open(&link).unwrap_err()] {
            assert!(matches!(refused, Error::NotPlainFile { .. }), "{refused}");
        }
    }
    assert!(!dir.path().join("nowhere").exists());
}

/// Homes and temporary folders are often links; that is not the store's business.
#[test]
fn a_folder_may_be_a_link() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("real")).unwrap();
    symlink(dir.path().join("real"), dir.path().join("folder")).unwrap();
    Sqlite::open(&dir.path().join("folder/db")).unwrap();
    Reader::open(&dir.path().join("folder/db")).unwrap();
}

#[test]
fn other_peoples_databases_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
    let before = fs::read(&path).unwrap();
    for refused in [Sqlite::open(&path).unwrap_err(), Reader::open(&path).unwrap_err()] {
        assert!(matches!(refused, Error::NotAStore { .. }), "{refused}");
    }
    assert!(fs::read(&path).unwrap() == before);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o664);
}

/// Killed at its very first moment, a store is an empty file, or one that SQLite has to take back.
#[test]
fn a_store_that_is_only_half_made_is_none_yet() {
    let dir = tempfile::tempdir().unwrap();
    let (making, path) = (dir.path().join("making"), dir.path().join("db"));
    let raw = Connection::open(&making).unwrap();
    raw.execute_batch("BEGIN IMMEDIATE; CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
    raw.cache_flush().unwrap();
    fs::copy(&making, &path).unwrap();
    fs::copy(dir.path().join("making-journal"), dir.path().join("db-journal")).unwrap();
    let empty = dir.path().join("empty");
    fs::write(&empty, "").unwrap();
    for half_made in [&path, &empty] {
        let none = Reader::open(half_made).unwrap_err();
        assert!(matches!(none, Error::NoStore { .. }), "{none:?}");
    }
    // The same with the tables beside a store.
    for (name, half_made) in [("a", &path), ("b", &empty)] {
        let whole = dir.path().join(name);
        drop(Sqlite::open(&whole).unwrap());
        let tables = tables_path(&whole);
        fs::copy(half_made, &tables).unwrap();
        if half_made == &path {
            let journal = tables.with_extension("db-journal");
            fs::copy(dir.path().join("db-journal"), journal).unwrap();
        }
        assert_eq!(Reader::open(&whole).unwrap().watermark().unwrap(), Seq(0), "{name}");
        assert_eq!(Reader::open(&whole).unwrap().trouble_with_tables(), None, "{name}");
        Writer::open(&whole).unwrap().close().unwrap();
    }
    for half_made in [&path, &empty] {
        Writer::open(half_made).unwrap().close().unwrap();
        assert_eq!(Reader::open(half_made).unwrap().head().unwrap().seq, Seq(0));
    }
}

/// Tables without their journal: it was lost, and a new one in its place would hide that.
#[test]
fn a_journal_that_is_gone_is_not_begun_anew() {
    let records = fixture::history(1, 0);
    for is_missing in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        fixture::filled(&path, &records, 10);
        Writer::open(&path).unwrap().close().unwrap();
        let backup = fs::read(&path).unwrap();
        match is_missing {
            true => fs::remove_file(&path).unwrap(),
            false => fs::write(&path, "").unwrap(),
        }
        let opened = [Writer::open(&path).map(drop), Reader::open(&path).map(drop)];
        for refused in opened.map(Result::unwrap_err) {
            let Error::JournalGone { records: told, .. } = &refused else { panic!("{refused}") };
            assert_eq!(*told, records.len() as u64);
            assert!(refused.to_string().contains("restore it from a backup"), "{refused}");
        }
        assert_eq!(path.exists(), !is_missing, "nothing was made in its place");
        assert!(tables_path(&path).exists());
        // Either of what it says helps.
        fs::write(&path, &backup).unwrap();
        Writer::open(&path).unwrap().close().unwrap();
        fs::remove_file(&path).unwrap();
        fs::remove_file(tables_path(&path)).unwrap();
        Writer::open(&path).unwrap().close().unwrap();
        assert_eq!(Reader::open(&path).unwrap().head().unwrap().seq, Seq(0));
    }
}

/// Through a link to a file beside the store, whoever made it would choose what we write over.
#[test]
fn a_symbolic_link_is_no_companion_of_a_store() {
    for ending in ["-wal", "-shm", "-journal", "-snapshot", "-snapshot.half"] {
        let dir = tempfile::tempdir().unwrap();
        let (path, precious) = (dir.path().join("db"), dir.path().join("precious"));
        drop(Sqlite::open(&path).unwrap());
        fs::write(&precious, "precious").unwrap();
        let companion = dir.path().join(format!("db{ending}"));
        symlink(&precious, &companion).unwrap();
        let opened = [Writer::open(&path).map(drop), Reader::open(&path).map(drop)];
        for refused in opened.map(Result::unwrap_err) {
            let Error::NotPlainFile { path } = &refused else { panic!("{ending}: {refused}") };
            assert_eq!(path.file_name(), companion.file_name(), "{ending}");
        }
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious", "{ending}");
    }
}

/// A text that the database cannot keep would end the journal in the middle of a mission.
#[test]
fn a_server_has_to_keep_every_text() {
    let cluster = cluster::shared();
    for encoding in ["LATIN1", "SQL_ASCII"] {
        let database = format!("kept_as_{}", encoding.to_lowercase());
        let create = format!(
            "CREATE DATABASE {database} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
        );
        cluster.psql("public", &create).unwrap();
        let url = cluster.url().replace("///postgres?", &format!("///{database}?"));
        let location = Location::postgres(&url, "p").unwrap();
        let opened = [Writer::open(&location).map(drop), Reader::open(&location).map(drop)];
        for refused in opened.map(Result::unwrap_err) {
            let Error::Encoding { found, .. } = &refused else { panic!("{refused}") };
            assert_eq!(found, encoding);
            assert!(refused.to_string().contains("createdb -E UTF8"), "{refused}");
        }
    }
}

/// `kapelle log` looks on while a run is on.
#[test]
fn a_reader_sees_what_is_committed_while_somebody_writes() {
    let records = fixture::history(5, 0);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let (mut store, epoch) = fixture::filled(&path, &records[..4], 4);
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.head().unwrap(), store.head());
    assert_eq!(reader.store_id().unwrap().len(), 32);
    store.append(epoch, Seq(4), &records[4..]).unwrap();
    assert_eq!(reader.head().unwrap(), store.head());
    assert_eq!(reader.records(Seq(3), 2).unwrap(), records[3..5]);
    let all: Vec<_> = reader.history(Seq(0)).map(Result::unwrap).collect();
    assert_eq!(all, records);
}

/// The prompt of a SQL client is no place to rewrite history by accident.
#[test]
fn the_journal_cannot_be_edited_by_accident() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let _store = fixture::filled(&path, &fixture::history(6, 0), 10);
    let raw = Connection::open(&path).unwrap();
    for sql in ["DELETE FROM journal WHERE seq = 3", "UPDATE journal SET body = '{}'"] {
        let refused = raw.execute(sql, []).unwrap_err().to_string();
        assert_eq!(refused, "the journal is append-only", "{sql}");
    }
}
