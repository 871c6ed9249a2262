//! What can go wrong in a store, with the values that a person or a caller needs to act on it.
//!
//! Sources are shared, so that one failed commit can be told to everybody who waited for it.

use std::error::Error as _;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kapelle_core::Seq;
use rusqlite::{ErrorCode, ffi};
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::journal::Epoch;
use crate::lock::Holder;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("the journal stands at record {actual}, not at {expected}")]
    Conflict { expected: Seq, actual: Seq },
    #[error("the tables reach record {actual}, not {expected}: somebody else folds them")]
    Overtaken { expected: Seq, actual: Seq },
    /// Somebody else has taken over; whoever gets this must stop writing for good.
    #[error("epoch {presented} is not current: the store is at epoch {current}")]
    StaleEpoch { presented: Epoch, current: Epoch },
    #[error("record {found} does not follow record {after}")]
    Gap { after: Seq, found: Seq },
    #[error("record {seq} is missing")]
    Missing { seq: Seq },
    #[error("record {seq} cannot be written: {source}")]
    Unwritable { seq: Seq, source: Arc<serde_json::Error> },
    #[error("record {seq} cannot be read: {source}")]
    Unreadable { seq: Seq, source: Arc<serde_json::Error> },
    #[error("{what} {value} does not fit the store")]
    OutOfRange { what: &'static str, value: String },
    #[error("a {what} of {bytes} bytes is larger than {max}")]
    TooLarge { what: &'static str, bytes: usize, max: usize },
    #[error("the store has {records} records already; it has to be empty for this")]
    NotEmpty { records: u64 },
    #[error("the store is there already: {to} is the same place as {from}")]
    SamePlace { from: String, to: String },
    #[error("line {line} is not a record of a journal: {why}")]
    Import { line: u64, why: String },
    #[error("the export ends after {records} records without saying that this is all of it")]
    CutShort { records: u64 },
    /// A history whose chain is right, and that no engine wrote.
    #[error(
        "record {record} cannot have happened after those before it: {why}; nothing was written"
    )]
    Impossible { record: Seq, why: String },

    #[error(
        "{store} was written by a newer version: its schema is {found}, this version knows {known}"
    )]
    TooNew { store: String, found: i64, known: i64 },
    #[error("{store} is of the older schema {found}; the next run brings it up to date")]
    TooOld { store: String, found: i64 },
    #[error("{} is not a store of Kapelle", path.display())]
    NotAStore { path: PathBuf },
    #[error("there is no store in {store}")]
    NoStore { store: String },
    #[error("{} is a symbolic link or another special file", path.display())]
    NotPlainFile { path: PathBuf },
    #[error("the database did not take {setting} = {wanted}: it is {found}")]
    Setting { setting: &'static str, wanted: &'static str, found: String },
    #[error(
        "{store} keeps its text as {found}, not as UTF8; make a database that does: \
         createdb -E UTF8 -T template0 NAME"
    )]
    Encoding { store: String, found: String },
    #[error(
        "the journal {} is gone: it is empty, but the tables beside it tell of {records} records; \
         restore it from a backup, or remove {} to begin anew",
        journal.display(), tables.display()
    )]
    JournalGone { journal: PathBuf, tables: PathBuf, records: u64 },
    /// What is made from the journal never runs ahead of it: there was more, and it was lost.
    #[error("the journal ends at record {head}, but its {witness} of {told}: it has lost its end")]
    LostEnd { head: Seq, told: Seq, witness: &'static str },
    #[error("SQLite {found} is too old, {needed} is needed")]
    SqliteTooOld { found: &'static str, needed: &'static str },
    #[error("the address of the store is wrong: {why}")]
    Address { why: String },

    /// None: it holds the lock but has not said yet who it is.
    #[error("{}", held(holder.as_ref()))]
    Held { holder: Option<Holder> },

    #[error("the disk of the store is full: {what}")]
    DiskFull { what: String },
    #[error("the store can only be read: {what}")]
    ReadOnly { what: String },
    /// The server is there, and does not let us in, or not to this.
    #[error("the database does not allow it: {what}")]
    Forbidden { what: String },
    #[error("the store is damaged: {what}")]
    Damaged { what: String },
    #[error("another program has locked the store: {what}")]
    Locked { what: String },
    /// A value, or what it refers to, is none that the tables have room for.
    #[error("the tables do not take it: {what}")]
    Unfit { what: String },
    #[error("the database has it already: {what}")]
    Duplicate { what: String },
    /// Whether the last append arrived is not known; the journal itself knows.
    #[error("the connection to the database was lost: {what}")]
    Lost { what: String },

    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: Arc<io::Error> },
    #[error("the database failed: {what}")]
    Database { what: String },
    #[error("the writer of the store has ended")]
    WriterGone,
}

impl Error {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                Error::DiskFull { what: format!("{}: {source}", path.display()) }
            }
            _ => Error::Io { path, source: Arc::new(source) },
        }
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Error {
        let what = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Error::DiskFull { what },
            Some(ErrorCode::ReadOnly) => Error::ReadOnly { what },
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Error::Damaged { what },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Locked { what },
            // SQLite does not tell a quota from a broken disk.
            Some(ErrorCode::SystemIoFailure) if is_of_write(&error) => {
                Error::Database { what: format!("{what}; the disk failed, or a quota is used up") }
            }
            Some(ErrorCode::ConstraintViolation) if !is_of_trigger(&error) => Error::Unfit { what },
            _ => Error::Database { what },
        }
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Error {
        let Some(told) = error.as_db_error() else {
            let cause = error.source().map(|source| format!(": {source}")).unwrap_or_default();
            let what = format!("{error}{cause}");
            let about_connection = error.is_closed() || error.source().is_some_and(is_io);
            return if about_connection { Error::Lost { what } } else { Error::Database { what } };
        };
        let what = told.message().to_owned();
        match told.code() {
            &SqlState::DISK_FULL | &SqlState::INSUFFICIENT_RESOURCES => Error::DiskFull { what },
            &SqlState::READ_ONLY_SQL_TRANSACTION => Error::ReadOnly { what },
            &SqlState::INVALID_PASSWORD
            | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION
            | &SqlState::INVALID_CATALOG_NAME
            | &SqlState::INSUFFICIENT_PRIVILEGE => Error::Forbidden { what },
            &SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED => Error::Damaged { what },
            &SqlState::UNIQUE_VIOLATION => Error::Duplicate { what },
            &SqlState::LOCK_NOT_AVAILABLE => Error::Locked { what },
            unfit if UNFIT.iter().any(|class| unfit.code().starts_with(class)) => {
                Error::Unfit { what }
            }
            &SqlState::ADMIN_SHUTDOWN
            | &SqlState::CRASH_SHUTDOWN
            | &SqlState::CANNOT_CONNECT_NOW
            | &SqlState::CONNECTION_FAILURE
            | &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => Error::Lost { what },
            _ if is_last_word(told) => Error::Lost { what },
            _ => Error::Database { what },
        }
    }
}

/// Whether the connection ends with it, whoever says so in whatever words: the server, or a pooler
/// before it. What ended a connection while it was idle is heard as the answer to the next question.
fn is_last_word(told: &DbError) -> bool {
    matches!(told.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
}

/// Classes of what PostgreSQL calls data exceptions and integrity constraint violations.
const UNFIT: [&str; 2] = ["22", "23"];

/// Somebody's trigger may refuse for whatever reason.
fn is_of_trigger(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    code == Some(ffi::SQLITE_CONSTRAINT_TRIGGER)
}

fn is_of_write(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    let writes = [ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_TRUNCATE];
    code.is_some_and(|code| writes.contains(&code))
}

fn is_io(error: &(dyn std::error::Error + 'static)) -> bool {
    error.is::<io::Error>()
}

fn held(holder: Option<&Holder>) -> String {
    let Some(holder) = holder else {
        return "another process already leads this project".into();
    };
    let at = holder.url.as_ref().map(|url| format!(", at {url}")).unwrap_or_default();
    format!("{holder} already leads this project{at}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Locks, snapshots and backups are written beside the database; their disk is the same one.
    #[test]
    fn a_full_disk_has_one_name_whatever_was_written() {
        let full = Error::io(Path::new("store.db.lock"))(io::Error::from_raw_os_error(28));
        let Error::DiskFull { what } = full else { panic!("{full:?}") };
        assert!(what.starts_with("store.db.lock: No space left"), "{what}");
    }
}
