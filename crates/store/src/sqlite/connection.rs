//! Connections to a SQLite file, with settings that are asserted rather than hoped for.
//!
//! Invariant: no connection leaves this module before every setting was read back. SQLite ignores
//! a pragma that it does not like, and a store that is silently not durable looks like any other.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use kapelle_core::Seq;
use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};

use super::schema::{self, Found};
use super::tables::watermark;
use crate::error::Error;
use crate::location::{Durability, tables_path};

/// The first version without the WAL-reset bug, which could corrupt a database with several
/// connections.
const SQLITE_VERSION_MIN: (i32, &str) = (3_051_003, "3.51.3");

/// What a file may be for others than its owner: the journal tells what a project works on.
const MODE: u32 = 0o600;

/// More than there are different statements in this crate, so that none is prepared twice.
const STATEMENTS_MAX: usize = 64;

/// A setting: its name, what is asked for, and how SQLite tells that it is so.
type Setting = (&'static str, &'static str, &'static str);

const READING: [Setting; 3] = [
    // Longer than any checkpoint or backup takes; who waits this long meets a bug.
    ("busy_timeout", "30000", "30000"),
    ("foreign_keys", "ON", "1"),
    // A crafted database must not run functions through its views and triggers.
    ("trusted_schema", "OFF", "0"),
];

const WRITING: [Setting; 4] = [
    ("journal_mode", "WAL", "wal"),
    // Four times the usual: the same pages are written over and over, and each checkpoint syncs
    // twice for all of them.
    ("wal_autocheckpoint", "4000", "4000"),
    // On macOS, an fsync alone does not reach the disk; elsewhere these two change nothing.
    ("fullfsync", "ON", "1"),
    ("checkpoint_fullfsync", "ON", "1"),
];

const TABLES: [Setting; 2] = [
    // 16 MiB, eight times the usual: rows change all over the tables and their indexes.
    ("cache_size", "-16384", "-16384"),
    // As long as `tables::PATIENCE`.
    ("busy_timeout", "5000", "5000"),
];

/// Every commit reaches the disk before it is answered.
const FULL: Setting = ("synchronous", "FULL", "2");

/// Commits reach the disk with the next one that is full, or with the next checkpoint.
const NORMAL: Setting = ("synchronous", "NORMAL", "1");

/// Opens for writing; creates the file if it is missing. One that is there keeps its version until
/// somebody claims its epoch.
pub(super) fn open(path: &Path, durability: Durability) -> Result<Connection, Error> {
    let path = locate(path)?;
    // Asked before a file is made: one that is missing stays missing.
    if !path.exists() {
        refuse_without_journal(&path)?;
    }
    create(&path)?;
    let mut conn = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // SQLite opens what it must not write all the same, and complains much later.
    if conn.is_readonly(rusqlite::MAIN_DB)? {
        return Err(Error::ReadOnly { what: path.display().to_string() });
    }
    if schema::inspect(&conn, &path)? == Found::Empty {
        refuse_without_journal(&path)?;
    }
    close_to_others(&path)?;
    set(&conn, &WRITING)?;
    set_durability(&conn, Durability::Full)?;
    schema::create(&mut conn, &path)?;
    set_durability(&conn, durability)?;
    Ok(conn)
}

/// The tables for people, beside the journal in `path`. All that is in them can be made anew, so
/// nothing waits for the disk.
pub(super) fn open_tables(path: &Path) -> Result<Connection, Error> {
    let path = locate(&tables_path(path))?;
    create(&path)?;
    let conn = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    set(&conn, &TABLES)?;
    schema::claim_tables(&conn, &path)?;
    close_to_others(&path)?;
    set(&conn, &WRITING)?;
    set_durability(&conn, Durability::Normal)?;
    Ok(conn)
}

/// Tables tell of records only after those are on the disk. So where there are such tables, an
/// empty journal is one that was lost, and not one that is being made.
fn refuse_without_journal(path: &Path) -> Result<(), Error> {
    // Tables that cannot be read tell nothing, and are put aside by whoever needs them.
    let told = open_tables_read_only(path)
        .and_then(|conn| conn.map_or(Ok(Seq(0)), |conn| watermark(&conn)));
    match told {
        Ok(Seq(0)) | Err(_) => Ok(()),
        Ok(Seq(records)) => {
            let (journal, tables) = (path.to_owned(), tables_path(path));
            Err(Error::JournalGone { journal, tables, records })
        }
    }
}

/// A database for nobody: SQLite keeps it in memory or in a temporary file, and removes it with the
/// connection.
pub(super) fn open_unkept() -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    connect(Path::new(""), flags)
}

/// Puts the tables beside the journal in `path` out of the way, beside those that were put there
/// before.
pub(super) fn set_tables_aside(path: &Path) -> Result<(), Error> {
    let path = locate(&tables_path(path))?;
    let place = free_place(&path, ".damaged");
    // The file itself goes last: whoever is interrupted puts the rest of it into the same place.
    for ending in ["-shm", "-wal", ""] {
        let [from, to] = [&path, &place].map(|path| beside(path, ending));
        match fs::rename(&from, &to) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::io(&from)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The path with this at its end.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// The path with this at its end, and with a number if there is such a file already: what was put
/// there before is kept.
pub(super) fn free_place(path: &Path, ending: &str) -> PathBuf {
    let mut place = beside(path, ending);
    for number in 2.. {
        if place.symlink_metadata().is_err() {
            break;
        }
        place = beside(path, &format!("{ending}.{number}"));
    }
    place
}

/// The same for those who look on; None if there are none yet.
pub(super) fn open_tables_read_only(path: &Path) -> Result<Option<Connection>, Error> {
    let path = locate(&tables_path(path))?;
    if !path.exists() {
        return Ok(None);
    }
    refuse_special_file(&path)?;
    let conn = look_on(&path)?;
    let none_yet = is_half_made(&conn) || schema::objects(&conn)? == 0;
    Ok((!none_yet).then_some(conn))
}

/// How durable the next commits are.
pub(super) fn set_durability(conn: &Connection, durability: Durability) -> Result<(), Error> {
    match durability {
        Durability::Full => set(conn, &[FULL]),
        Durability::Normal => set(conn, &[NORMAL]),
    }
}

/// Opens for reading only, beside whoever writes.
pub(super) fn open_read_only(path: &Path) -> Result<Connection, Error> {
    let path = locate(path)?;
    if !path.exists() {
        refuse_without_journal(&path)?;
    }
    refuse_special_file(&path)?;
    let conn = look_on(&path)?;
    let none_yet = || Error::NoStore { store: path.display().to_string() };
    if is_half_made(&conn) {
        return Err(none_yet());
    }
    match schema::inspect(&conn, &path)? {
        Found::Current => Ok(conn),
        Found::Empty => {
            refuse_without_journal(&path)?;
            Err(none_yet())
        }
        Found::Older(found) => Err(Error::TooOld { store: path.display().to_string(), found }),
    }
}

/// For whoever only reads. Where there is a log, SQLite writes beside the file to read it, which a
/// disk that was mounted to be read does not let it do.
fn look_on(path: &Path) -> Result<Connection, Error> {
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    match conn.pragma_query_value(None, "schema_version", |_| Ok(())) {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::CannotOpen) => {
            drop(conn);
            as_it_stands(path)
        }
        // Whatever else is wrong is told with the next question.
        _ => Ok(conn),
    }
}

/// Without a log, the file is all there is, and nobody can change it under us.
fn as_it_stands(path: &Path) -> Result<Connection, Error> {
    let log = beside(path, "-wal");
    if fs::metadata(&log).is_ok_and(|found| found.len() > 0) {
        let what = format!("{} has to be taken in by somebody who can write", log.display());
        return Err(Error::ReadOnly { what });
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    connect(&unchanging(path), flags)
}

/// The address by which SQLite takes a file for one that does not change.
fn unchanging(path: &Path) -> PathBuf {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-".contains(byte);
    let coded = path.as_os_str().as_bytes().iter().map(|byte| match plain(byte) {
        true => char::from(*byte).to_string(),
        false => format!("%{byte:02x}"),
    });
    format!("file:{}?immutable=1", coded.collect::<String>()).into()
}

/// Whoever made it was killed before it had its log, so before there was anything in it. The next
/// one who writes takes that back and makes it again; whoever only reads cannot.
fn is_half_made(conn: &Connection) -> bool {
    let looked = conn.pragma_query_value(None, "schema_version", |_| Ok(()));
    let why = looked.err().and_then(|error| error.sqlite_error().map(|why| why.extended_code));
    why == Some(ffi::SQLITE_READONLY_ROLLBACK)
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, Error> {
    let (needed_number, needed) = SQLITE_VERSION_MIN;
    if rusqlite::version_number() < needed_number {
        return Err(Error::SqliteTooOld { found: rusqlite::version(), needed });
    }
    let always = OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let conn = Connection::open_with_flags(path, flags | always).map_err(unopened(path))?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    set(&conn, &READING)?;
    Ok(conn)
}

/// SQLite does not say why it cannot open a file; there is one usual reason.
fn unopened(path: &Path) -> impl FnOnce(rusqlite::Error) -> Error {
    move |error| match error.sqlite_error_code() {
        Some(ErrorCode::CannotOpen) => {
            Error::io(path)(io::Error::new(ErrorKind::PermissionDenied, error.to_string()))
        }
        _ => error.into(),
    }
}

fn set(conn: &Connection, settings: &[Setting]) -> Result<(), Error> {
    for &(setting, value, wanted) in settings {
        conn.pragma_update_and_check(None, setting, value, |_| Ok(())).or_else(ignore_silence)?;
        let found = told(conn, setting)?;
        if found != wanted {
            return Err(Error::Setting { setting, wanted, found });
        }
    }
    Ok(())
}

fn told(conn: &Connection, setting: &str) -> Result<String, Error> {
    let value: Value = conn.pragma_query_value(None, setting, |row| row.get(0))?;
    Ok(match value {
        Value::Integer(number) => number.to_string(),
        Value::Text(text) => text,
        other => format!("{other:?}"),
    })
}

/// Some pragmas answer when they are set, others do not; what counts is what is read back.
fn ignore_silence(error: rusqlite::Error) -> Result<(), rusqlite::Error> {
    match error {
        rusqlite::Error::QueryReturnedNoRows => Ok(()),
        error => Err(error),
    }
}

/// The path with its folder resolved. Folders may be links, as homes are; the file itself must
/// not be one, and SQLite, asked not to follow links, would refuse both.
fn locate(path: &Path) -> Result<PathBuf, Error> {
    let not_a_file = || Error::NotPlainFile { path: path.to_owned() };
    let name = path.file_name().ok_or_else(not_a_file)?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let place = folder.canonicalize().map_err(Error::io(folder))?.join(name);
    refuse_linked_companions(&place)?;
    Ok(place)
}

/// Whether two paths lead to the same file, by whatever folders, links or names. One that is not
/// there is no other's.
pub(crate) fn is_same_file(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    place(one).is_some_and(|place_of_one| Some(place_of_one) == place(other))
}

/// SQLite does not follow a link to the file, but it would follow one to its log. Whoever made one
/// for a snapshot has the same in mind.
fn refuse_linked_companions(path: &Path) -> Result<(), Error> {
    for ending in ["-wal", "-shm", "-journal", "-snapshot", "-snapshot.half", "-complaint"] {
        let companion = beside(path, ending);
        if fs::symlink_metadata(&companion).is_ok_and(|found| !found.is_file()) {
            return Err(Error::NotPlainFile { path: companion });
        }
    }
    Ok(())
}

/// Makes sure that there is a file which only its owner can read.
///
/// An existing file is never opened here: closing it would drop the locks that another connection
/// of this process holds on it (POSIX locks belong to the process, not to the descriptor).
fn create(path: &Path) -> Result<(), Error> {
    match make_private(path) {
        Ok(()) => Ok(()),
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::AlreadyExists => {
            refuse_special_file(path)?;
            let found = fs::metadata(path).map_err(Error::io(path))?.permissions();
            // Somebody took that right away, perhaps for a reason; it is not ours to give back.
            if found.mode() & 0o200 == 0 {
                return Err(Error::ReadOnly { what: path.display().to_string() });
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// For a file that is known to be ours: one of somebody else is not ours to close. SQLite makes its
/// log with the mode that the file has when it is first read, so that may have to be closed too.
fn close_to_others(path: &Path) -> Result<(), Error> {
    close_file(path).map_err(Error::io(path))?;
    for file in ["-wal", "-shm"].map(|ending| beside(path, ending)) {
        match close_file(&file) {
            // Whoever used it last took it along.
            Err(gone) if gone.kind() == ErrorKind::NotFound => {}
            closed => closed.map_err(Error::io(&file))?,
        }
    }
    Ok(())
}

fn close_file(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.permissions().mode() & 0o777 == MODE {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(MODE))
}

/// A new file that nobody else can read, and that is there after a power cut.
pub(super) fn make_private(path: &Path) -> Result<(), Error> {
    let created = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path);
    created.and_then(|file| file.sync_all()).map_err(Error::io(path))?;
    sync_folder(path)
}

/// The name of a file is on the disk only when its folder is.
pub(super) fn sync_folder(path: &Path) -> Result<(), Error> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::io(folder))
}

fn refuse_special_file(path: &Path) -> Result<(), Error> {
    if fs::symlink_metadata(path).map_err(Error::io(path))?.is_file() {
        return Ok(());
    }
    Err(Error::NotPlainFile { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Read with the eyes of SQLite, not with ours.
    #[test]
    fn a_store_is_as_durable_as_it_says() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open(&dir.path().join("db"), Durability::Full).unwrap();
        let pragmas = ["journal_mode", "synchronous", "foreign_keys", "busy_timeout"];
        let told = pragmas.map(|pragma| told(&conn, pragma).unwrap());
        assert_eq!(told, ["wal", "2", "1", "30000"]);
    }

    #[test]
    fn a_store_is_lighter_only_if_that_was_chosen() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open(&dir.path().join("db"), Durability::Normal).unwrap();
        let told = ["journal_mode", "synchronous"].map(|pragma| told(&conn, pragma).unwrap());
        assert_eq!(told, ["wal", "1"]);
    }

    /// What is in the log of a damaged file may be all that can be read of it.
    #[test]
    fn a_file_that_is_put_aside_keeps_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["", "-wal", "-shm"];
        for which in ["first", "second"] {
            for name in names {
                fs::write(dir.path().join(format!("db-tables.db{name}")), which).unwrap();
            }
            set_tables_aside(&dir.path().join("db")).unwrap();
        }
        for (ending, which) in [("", "first"), (".2", "second")] {
            let place = format!("db-tables.db.damaged{ending}");
            let read = |name| fs::read(dir.path().join(format!("{place}{name}"))).unwrap();
            assert_eq!(names.map(read), [which.as_bytes(); 3], "{place}");
        }
    }

    /// A temporary database cannot have a write-ahead log; SQLite does not call that an error.
    #[test]
    fn a_setting_that_is_not_taken_is_an_error() {
        let conn = Connection::open_in_memory().unwrap();
        let refused = set(&conn, &WRITING).unwrap_err().to_string();
        assert_eq!(refused, "the database did not take journal_mode = wal: it is memory");
    }
}
