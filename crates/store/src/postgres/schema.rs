//! Which version a project's schema is of, and how it becomes the current one.

use super::link::Link;
use super::tables;
use crate::error::Error;
use crate::location::Server;
use crate::migrations::{VERSION, after};

/// Any number that only we use: two servers may meet an empty database.
const MIGRATING: i64 = 0x4b41_5045_0001;

/// The truth, as far as a version has it. Everything else is made from the journal.
const TRUTH: [&str; 5] = ["meta", "journal", "blobs", "blob_owners", "documents"];

/// Makes the schema, with empty tables, if there is none.
pub(super) fn create(link: &Link, server: &Server) -> Result<(), Error> {
    if found(link, server)?.is_some() {
        return Ok(());
    }
    alone(link, || {
        if found(link, server)?.is_some() {
            return Ok(());
        }
        link.batch(&format!("CREATE SCHEMA IF NOT EXISTS {}", server.schema))?;
        go_forward(link, 0)?;
        link.batch(&tables::made_anew())
    })
}

/// Brings a schema up to date, all of it or nothing. What was there is copied first. For whoever
/// leads the project.
pub(super) fn migrate(link: &Link, server: &Server) -> Result<(), Error> {
    if found(link, server)? == Some(VERSION) {
        return Ok(());
    }
    alone(link, || match found(link, server)? {
        None => Err(Error::NoStore { store: server.to_string() }),
        Some(VERSION) => Ok(()),
        Some(older) => {
            back_up(link, &server.schema, older)?;
            go_forward(link, older)
        }
    })
}

/// In one transaction, and one at a time.
fn alone(link: &Link, work: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    link.batch(&format!("BEGIN; SELECT pg_advisory_xact_lock({MIGRATING})"))?;
    let done = work();
    link.batch(if done.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    done
}

fn go_forward(link: &Link, version: i64) -> Result<(), Error> {
    for migration in after(version) {
        link.batch_patiently(migration.postgres)?;
    }
    link.batch(&format!("UPDATE meta SET version = {VERSION}"))
}

/// A copy of the truth as it was, in a schema of its own. Those that are there already are of
/// earlier stores of that name, and are kept.
fn back_up(link: &Link, schema: &str, version: i64) -> Result<(), Error> {
    let backup = free_name(link, &format!("{schema}_v{version}_backup"))?;
    link.batch(&format!("CREATE SCHEMA {backup}"))?;
    for table in TRUTH {
        if exists(link, &format!("{schema}.{table}"))? {
            let copy = format!("CREATE TABLE {backup}.{table} AS TABLE {schema}.{table}");
            link.batch_patiently(&copy)?;
        }
    }
    Ok(())
}

/// The name itself, or with the first number that is not taken.
fn free_name(link: &Link, name: &str) -> Result<String, Error> {
    let mut candidate = name.to_owned();
    for number in 2.. {
        let sql = "SELECT to_regnamespace($1) IS NOT NULL";
        let taken = link.query(sql, vec![Box::new(candidate.as_str())])?;
        if !taken.first().is_some_and(|row| row.get(0)) {
            break;
        }
        candidate = format!("{name}_{number}");
    }
    Ok(candidate)
}

fn exists(link: &Link, table: &str) -> Result<bool, Error> {
    let found = link.query("SELECT to_regclass($1) IS NOT NULL", vec![Box::new(table)])?;
    Ok(found.first().is_some_and(|row| row.get(0)))
}

/// The version of the schema, if there is one; an error if it is newer than we know.
pub(super) fn found(link: &Link, server: &Server) -> Result<Option<i64>, Error> {
    if !exists(link, &format!("{}.meta", server.schema))? {
        return Ok(None);
    }
    let rows = link.query("SELECT version FROM meta", Vec::new())?;
    let found = rows.first().map(|row| row.get::<_, i64>(0));
    match found {
        Some(found) if found > VERSION => {
            Err(Error::TooNew { store: server.to_string(), found, known: VERSION })
        }
        found => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::link::{Use, cluster};
    use super::*;
    use crate::location::{Durability, Place};

    /// A large journal takes longer than any other answer; whoever migrates it waits.
    #[test]
    fn a_backup_may_take_longer_than_other_answers() {
        let cluster = cluster::Cluster::start();
        let Place::Postgres(server) = cluster.project().place else { panic!("it is a server") };
        let mut link = Link::connect(&server, Use::Writing(Durability::Full)).unwrap();
        create(&link, &server).unwrap();
        link.patience = Duration::from_millis(300);
        // Copying meets a table that is locked for longer than that.
        let slow = "BEGIN; LOCK TABLE journal; SELECT 1; SELECT pg_sleep(1); COMMIT;";
        std::thread::scope(|scope| {
            scope.spawn(|| cluster.psql(&server.schema, slow));
            let locked = "SELECT count(*) FROM pg_locks
                WHERE relation = 'journal'::regclass AND mode = 'AccessExclusiveLock' AND granted";
            let until = Instant::now() + Duration::from_secs(20);
            while cluster.psql(&server.schema, locked).unwrap() == "0" {
                assert!(Instant::now() < until, "nobody locks it");
            }
            back_up(&link, &server.schema, VERSION).unwrap();
        });
    }

    /// What no record tells would be lost with a migration that goes wrong.
    #[test]
    fn a_backup_has_blobs_and_notes_too() {
        let cluster = cluster::Cluster::start();
        let Place::Postgres(server) = cluster.project().place else { panic!("it is a server") };
        let link = Link::connect(&server, Use::Writing(Durability::Full)).unwrap();
        create(&link, &server).unwrap();
        let kept = "INSERT INTO blobs VALUES (repeat('a', 64), 'x');
            INSERT INTO blob_owners VALUES (repeat('a', 64), 'attempt 1');
            INSERT INTO documents (kind, source, at, body, words)
                VALUES ('memory', 'note', 1, 'milk', to_tsvector('milk'))";
        cluster.psql(&server.schema, kept).unwrap();
        back_up(&link, &server.schema, VERSION).unwrap();
        let backup = format!("{}_v{VERSION}_backup", server.schema);
        let count = "SELECT (SELECT count(*) FROM meta), (SELECT count(*) FROM blobs),
            (SELECT count(*) FROM blob_owners), (SELECT count(*) FROM documents)";
        assert_eq!(cluster.psql(&backup, count).unwrap(), "1|1|1|1");
    }
}
