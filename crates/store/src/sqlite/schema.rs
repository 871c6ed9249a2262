//! Which version a file is of, and how it becomes the current one.

use std::path::Path;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::connection::{beside, free_place, make_private, sync_folder};
use crate::error::Error;
use crate::migrations::{VERSION, after};

/// "KAPE" in ASCII: tells our files from other people's databases.
const APPLICATION_ID: i64 = 0x4b41_5045;

/// "KAPT": the tables for people.
const TABLES_ID: i64 = 0x4b41_5054;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Empty,
    Older(i64),
    Current,
}

/// Makes an empty file a store. One that is there is left as it is.
pub(super) fn create(conn: &mut Connection, path: &Path) -> Result<(), Error> {
    // In one transaction with the look at what is there: two processes may meet an empty file.
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    match inspect(&tx, path)? {
        Found::Current | Found::Older(_) => Ok(()),
        Found::Empty => go_forward(tx, 0),
    }
}

/// Brings the file up to date, after a copy of it was put beside it. For whoever leads.
pub(super) fn migrate(conn: &mut Connection, path: &Path) -> Result<(), Error> {
    if let Found::Older(version) = inspect(conn, path)? {
        back_up(conn, path, version)?;
    }
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    match inspect(&tx, path)? {
        Found::Current => Ok(()),
        Found::Older(version) => go_forward(tx, version),
        Found::Empty => go_forward(tx, 0),
    }
}

fn go_forward(tx: Transaction<'_>, version: i64) -> Result<(), Error> {
    for migration in after(version) {
        tx.execute_batch(migration.sqlite)?;
    }
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.pragma_update(None, "user_version", VERSION)?;
    Ok(tx.commit()?)
}

/// Looks without touching: what another program or a newer version made stays as it is.
pub(super) fn inspect(conn: &Connection, path: &Path) -> Result<Found, Error> {
    match (number(conn, "application_id")?, number(conn, "user_version")?) {
        (0, 0) if objects(conn)? == 0 => Ok(Found::Empty),
        (APPLICATION_ID, VERSION) => Ok(Found::Current),
        (APPLICATION_ID, found) if found > VERSION => {
            Err(Error::TooNew { store: path.display().to_string(), found, known: VERSION })
        }
        (APPLICATION_ID, found) if found > 0 => Ok(Found::Older(found)),
        _ => Err(Error::NotAStore { path: path.to_owned() }),
    }
}

/// Makes an empty file one for tables. What another program made stays as it is.
pub(super) fn claim_tables(conn: &Connection, path: &Path) -> Result<(), Error> {
    match (number(conn, "application_id")?, objects(conn)?) {
        (TABLES_ID, _) => Ok(()),
        (0, 0) => Ok(conn.pragma_update(None, "application_id", TABLES_ID)?),
        _ => Err(Error::NotAStore { path: path.to_owned() }),
    }
}

/// A whole copy, made by SQLite itself, and on the disk before anything is changed.
fn back_up(conn: &Connection, path: &Path, version: i64) -> Result<(), Error> {
    // Those that are there already are of earlier stores in this place, or of a try that was
    // interrupted.
    let place = free_place(path, &format!(".v{version}.backup"));
    let half = beside(path, ".backup.half");
    match std::fs::remove_file(&half) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::io(&half)(error));
        }
        _ => {}
    }
    // SQLite wants an empty file or none; made beforehand, it is never readable by others.
    make_private(&half)?;
    let name = half.to_str().ok_or_else(|| Error::NotPlainFile { path: half.clone() })?;
    conn.execute("VACUUM INTO ?1", [name])?;
    let synced = std::fs::File::open(&half).and_then(|file| file.sync_all());
    synced.map_err(Error::io(&half))?;
    std::fs::rename(&half, &place).map_err(Error::io(&place))?;
    sync_folder(&place)
}

pub(super) fn objects(conn: &Connection) -> Result<i64, Error> {
    Ok(conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?)
}

fn number(conn: &Connection, pragma: &str) -> Result<i64, Error> {
    Ok(conn.pragma_query_value(None, pragma, |row| row.get(0))?)
}
