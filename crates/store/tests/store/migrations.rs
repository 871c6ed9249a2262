//! From version to version: samples of every earlier one become current, with a backup.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use kapelle_core::{Record, Seq};
use kapelle_store::{Error, Journal, Location, Postgres, Reader, Sqlite, Writer, rebuild, verify};
use rusqlite::Connection;

use crate::{cluster, crowd, fixture};

pub const SQLITE_V1: &str = include_str!("../samples/sqlite-v1.sql");
pub const POSTGRES_V1: &str = include_str!("../samples/postgres-v1.sql");

/// The head of the samples, computed by another program.
const HEAD: &str = "0a1a11b2c9d39d1175b20b75754a8e0c7928edf199e806811ff6dbec25f718dc";
const RECORDS: usize = 40;

/// The history is the one of the sample, the tables are those of a whole fold, and it goes on.
fn is_current(location: &Location) {
    let verified = verify(location).unwrap();
    assert_eq!((verified.records, verified.head.hash.to_string()), (RECORDS as u64, HEAD.into()));
    let reader = Reader::open(location).unwrap();
    assert_eq!(reader.store_id().unwrap(), "0123456789abcdef0123456789abcdef");
    let kept: Vec<Record> = reader.history(Seq(0)).map(Result::unwrap).collect();
    assert_eq!(kept.len(), RECORDS);
    let writer = Writer::open(location).unwrap();
    assert!(writer.epoch().0 > 2, "an epoch that was over came back");
    writer.close().unwrap();
    assert_eq!(reader.watermark().unwrap(), Seq(RECORDS as u64));
    let rebuilt = rebuild(location).unwrap();
    assert_eq!(rebuilt.before, rebuilt.after);
}

#[test]
fn a_sqlite_store_of_version_1_becomes_current_and_is_backed_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    Connection::open(&path).unwrap().execute_batch(SQLITE_V1).unwrap();
    let waiting = Reader::open(&path).unwrap_err();
    assert!(matches!(waiting, Error::TooOld { found: 1, .. }), "{waiting}");
    // A look changes nothing: somebody else may lead it.
    drop(Sqlite::open(&path).unwrap());
    assert!(matches!(Reader::open(&path), Err(Error::TooOld { found: 1, .. })));
    Sqlite::open(&path).unwrap().claim_epoch().unwrap();
    is_current(&Location::sqlite(&path));

    let backup = dir.path().join("db.v1.backup");
    assert_eq!(fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
    let old = Connection::open(&backup).unwrap();
    let ask = |sql| old.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(ask("SELECT count(*) FROM journal"), RECORDS as i64);
    assert_eq!(ask("PRAGMA user_version"), 1);
    // It is a store like any other, and can be put back.
    drop(old);
    let place_back = dir.path().join("restored");
    fs::copy(&backup, &place_back).unwrap();
    Sqlite::open(&place_back).unwrap().claim_epoch().unwrap();
    is_current(&Location::sqlite(&place_back));
}

#[test]
fn a_postgres_store_of_version_1_becomes_current_and_is_backed_up() {
    let (cluster, location) = (cluster::shared(), cluster::shared().project());
    let schema = fixture::schema(&location);
    cluster.psql("public", &format!("CREATE SCHEMA {schema}")).unwrap();
    cluster.psql(&schema, POSTGRES_V1).unwrap();
    let waiting = Reader::open(&location).unwrap_err();
    assert!(matches!(waiting, Error::TooOld { found: 1, .. }), "{waiting}");
    // A look changes nothing: somebody else may lead it.
    drop(Postgres::open(&location).unwrap());
    assert!(matches!(Reader::open(&location), Err(Error::TooOld { found: 1, .. })));
    Postgres::open(&location).unwrap().claim_epoch().unwrap();
    is_current(&location);
    let backup = format!("{schema}_v1_backup");
    let records = cluster.psql(&backup, "SELECT count(*), max(seq) FROM journal").unwrap();
    assert_eq!(records, "40|40");
}

/// A store that was put back from its backup is migrated again, in the place of the first. What
/// was copied then is of another history, and stays; what is there now is copied, too.
#[test]
fn an_earlier_backup_is_kept_and_counts_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    fs::write(dir.path().join("db.v1.backup"), "of last year").unwrap();
    Connection::open(&path).unwrap().execute_batch(SQLITE_V1).unwrap();
    Sqlite::open(&path).unwrap().claim_epoch().unwrap();
    assert_eq!(fs::read(dir.path().join("db.v1.backup")).unwrap(), b"of last year");
    let old = Connection::open(dir.path().join("db.v1.backup.2")).unwrap();
    let records: i64 = old.query_row("SELECT count(*) FROM journal", [], |r| r.get(0)).unwrap();
    assert_eq!(records, RECORDS as i64);

    let (cluster, location) = (cluster::shared(), cluster::shared().project());
    let schema = fixture::schema(&location);
    for name in [&schema, &format!("{schema}_v1_backup")] {
        cluster.psql("public", &format!("CREATE SCHEMA {name}")).unwrap();
    }
    cluster.psql(&schema, POSTGRES_V1).unwrap();
    Postgres::open(&location).unwrap().claim_epoch().unwrap();
    let second = format!("{schema}_v1_backup_2");
    assert_eq!(cluster.psql(&second, "SELECT count(*) FROM journal").unwrap(), "40");
}

/// An older binary must not write what it does not understand.
#[test]
fn a_newer_postgres_store_is_refused_and_left_alone() {
    let (cluster, location) = (cluster::shared(), cluster::shared().project());
    let schema = fixture::schema(&location);
    drop(Postgres::open(&location).unwrap());
    cluster.psql(&schema, "UPDATE meta SET version = 99; DROP TABLE tasks CASCADE").unwrap();
    for refused in [Writer::open(&location).unwrap_err(), Reader::open(&location).unwrap_err()] {
        assert!(matches!(refused, Error::TooNew { found: 99, known: 2, .. }), "{refused}");
    }
    let tasks = cluster.psql(&schema, "SELECT to_regclass('tasks') IS NULL").unwrap();
    assert_eq!(tasks, "t", "somebody made the tables anew");
}

/// People, and their SQL clients, cannot put nonsense into the tables of a server either.
#[test]
fn wrong_values_and_dangling_references_are_refused_by_the_server() {
    let (cluster, location) = (cluster::shared(), cluster::shared().project());
    let schema = fixture::schema(&location);
    fixture::write(&location, &crowd::history(210, 2), 100);
    for (sql, refusal) in [
        ("UPDATE tasks SET status = 'doing'", "check constraint"),
        ("UPDATE missions SET status = 'completed'", "check constraint"),
        ("UPDATE attempts SET failure_kind = 'bad luck'", "check constraint"),
        ("UPDATE checks SET passed = 2", "check constraint"),
        ("UPDATE approvals SET subject = 'lunch'", "check constraint"),
        ("UPDATE overrides SET action = 'wish'", "check constraint"),
        ("UPDATE council_votes SET status = 'bought'", "check constraint"),
        ("UPDATE breakers SET state = 'broken'", "check constraint"),
        ("UPDATE file_locks SET task_id = 999", "foreign key"),
        ("UPDATE checkpoints SET options = '['", "invalid input syntax for type json"),
        ("UPDATE tasks SET mission_id = 'm9' WHERE id = 1", "foreign key"),
        ("UPDATE attempts SET agent = 'developer-9'", "foreign key"),
        ("INSERT INTO task_dependencies VALUES (1, 99)", "foreign key"),
        ("UPDATE tasks SET cost_usd_micros = NULL", "not-null"),
        ("DELETE FROM journal WHERE seq = 3", "the journal is append-only"),
        ("TRUNCATE journal", "the journal is append-only"),
        ("UPDATE journal SET body = '{}'", "the journal is append-only"),
    ] {
        let refused = cluster.psql(&schema, sql).expect_err(sql);
        assert!(refused.contains(refusal), "{sql}: {refused}");
    }
    cluster.psql(&schema, "UPDATE tasks SET status = 'blocked'").unwrap();
}

/// A server that does not sync its writes is refused: it would lose them without a word.
#[test]
fn a_server_that_does_not_sync_is_refused_unless_that_was_chosen() {
    let cluster = cluster::Cluster::start();
    let location = cluster.project();
    cluster.psql("public", "ALTER SYSTEM SET fsync = off").unwrap();
    cluster.psql("public", "SELECT pg_reload_conf()").unwrap();
    // The server reads its settings soon, not at once; a restart does.
    cluster.crash();
    cluster.start_again();
    let refused = Writer::open(&location).unwrap_err();
    assert!(matches!(refused, Error::Setting { setting: "fsync", .. }), "{refused}");
    let light = location.with(kapelle_store::Durability::Normal);
    Writer::open(&light).unwrap().close().unwrap();
}
