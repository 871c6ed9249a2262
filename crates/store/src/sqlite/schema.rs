//! The tables that hold the truth, and their version.
//!
//! Invariant: a store that was written by a newer version is left alone. Tables that are only
//! derived from the journal are versioned apart from these (`projections`), so that they can
//! change without a migration.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use crate::error::Error;

/// Raised with every change to the tables below.
pub(crate) const VERSION: i64 = 1;

/// "KAPE" in ASCII: tells our files from other people's databases.
const APPLICATION_ID: i64 = 0x4b41_5045;

/// The triggers keep the hands of a person at a SQL prompt off the history. They are no
/// protection against someone who means it; the hash chain is.
const TABLES: &str = "
    CREATE TABLE meta (
        id        INTEGER PRIMARY KEY CHECK (id = 1),
        store_id  TEXT NOT NULL CHECK (length(store_id) = 32),
        epoch     INTEGER NOT NULL CHECK (epoch >= 0)
    ) STRICT;
    INSERT INTO meta (id, store_id, epoch) VALUES (1, lower(hex(randomblob(16))), 0);

    CREATE TABLE journal (
        seq    INTEGER PRIMARY KEY CHECK (seq > 0),
        at     INTEGER NOT NULL,
        epoch  INTEGER NOT NULL,
        body   TEXT NOT NULL,
        hash   BLOB NOT NULL CHECK (length(hash) = 32)
    ) STRICT;
    CREATE TRIGGER journal_is_not_edited BEFORE UPDATE ON journal
        BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
    CREATE TRIGGER journal_is_not_cut BEFORE DELETE ON journal
        BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Empty,
    Current,
}

/// Creates what is missing in an empty database. Older schemas will be brought up to date here.
pub(crate) fn migrate(conn: &mut Connection, path: &Path) -> Result<(), Error> {
    // In one transaction with the look at what is there: two processes may meet an empty file.
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if inspect(&tx, path)? == Found::Empty {
        tx.execute_batch(TABLES)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.pragma_update(None, "user_version", VERSION)?;
    }
    Ok(tx.commit()?)
}

/// Looks without touching: what another program or a newer version made stays as it is.
pub(crate) fn inspect(conn: &Connection, path: &Path) -> Result<Found, Error> {
    let objects: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))?;
    match (number(conn, "application_id")?, number(conn, "user_version")?) {
        (0, 0) if objects == 0 => Ok(Found::Empty),
        (APPLICATION_ID, VERSION) => Ok(Found::Current),
        (APPLICATION_ID, found) if found > VERSION => {
            Err(Error::TooNew { path: path.to_owned(), found, known: VERSION })
        }
        _ => Err(Error::NotAStore { path: path.to_owned() }),
    }
}

fn number(conn: &Connection, pragma: &str) -> Result<i64, Error> {
    Ok(conn.pragma_query_value(None, pragma, |row| row.get(0))?)
}
