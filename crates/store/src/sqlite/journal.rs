//! The journal in a SQLite file, with the tables for people in another one beside it.
//!
//! Invariant: an append is one transaction of journal rows. Who may append and after what is
//! looked up inside that transaction, so a stale leader is refused by the database itself.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use kapelle_core::{Record, Seq, Timestamp};
use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};

use super::{complaint, connection, schema, tables};
use crate::backend::{self, Admitted, Backend, Kept, Request, Told, admit_group};
use crate::error::Error;
use crate::journal::{Epoch, Hash, Head, Journal, Link, event, refuse_hole};
use crate::location::{Durability, tables_path};
use crate::projections::Changes;
use crate::search::{Document, Query};
use crate::tables::Table;
use crate::value::{Value, clamped};

#[derive(Debug)]
pub struct Sqlite {
    pub(super) conn: Connection,
    /// Opened when somebody asks for the tables. Whoever appends does not.
    tables: OnceCell<Connection>,
    pub(super) path: PathBuf,
    access: Access,
    head: Head,
    /// A transaction is open, and whatever is written is a part of it.
    carrying: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Reading,
    Writing(Durability),
}

impl Sqlite {
    /// Opens the store in the file `path`, and creates it if there is none. One that is there is
    /// left as it is: whoever claims its epoch brings it up to date.
    pub fn open(path: &Path) -> Result<Sqlite, Error> {
        Sqlite::open_with(path, Durability::Full)
    }

    pub fn open_with(path: &Path, durability: Durability) -> Result<Sqlite, Error> {
        let conn = connection::open(path, durability)?;
        Sqlite::at(conn, path, Access::Writing(durability))
    }

    /// Beside whoever writes; nothing can be changed through it.
    pub(crate) fn open_read_only(path: &Path) -> Result<Sqlite, Error> {
        Sqlite::at(connection::open_read_only(path)?, path, Access::Reading)
    }

    fn at(conn: Connection, path: &Path, access: Access) -> Result<Sqlite, Error> {
        let head = head(&conn)?;
        let (tables, path) = (OnceCell::new(), path.to_owned());
        Ok(Sqlite { conn, tables, path, access, head, carrying: false })
    }

    /// The tables for people; None if there are none, and we only look on.
    fn tables(&self) -> Result<Option<&Connection>, Error> {
        if let known @ Some(_) = self.tables.get() {
            return Ok(known);
        }
        let opened = match self.access {
            Access::Writing(_) => Some(match self.named_tables() {
                Err(Error::Damaged { .. }) => self.tables_in_place_of_damaged()?,
                prepared => prepared?,
            }),
            Access::Reading => connection::open_tables_read_only(&self.path)?,
        };
        Ok(opened.map(|conn| self.tables.get_or_init(|| conn)))
    }

    fn named_tables(&self) -> Result<Connection, Error> {
        self.prepared_tables().map_err(|error| self.name_tables(error))
    }

    /// Somebody who has locked a file wants to know which.
    fn name_tables(&self, error: Error) -> Error {
        match error {
            Error::Locked { what } => {
                let tables = tables_path(&self.path);
                Error::Locked { what: format!("{}: {what}", tables.display()) }
            }
            other => other,
        }
    }

    fn prepared_tables(&self) -> Result<Connection, Error> {
        let conn = connection::open_tables(&self.path)?;
        tables::prepare(&conn, &self.conn)?;
        Ok(conn)
    }

    /// What the journal tells is told again; the damaged file is put aside for whoever wants to know
    /// what happened. Views of people are in no other place, and go with the tables if they can still
    /// be read.
    fn tables_in_place_of_damaged(&self) -> Result<Connection, Error> {
        let damaged = connection::open_tables_read_only(&self.path);
        let theirs = damaged.ok().flatten().and_then(|conn| tables::of_people(&conn).ok());
        connection::set_tables_aside(&self.path)?;
        let conn = self.named_tables()?;
        theirs.unwrap_or_default().put_into(&conn)?;
        Ok(conn)
    }

    fn replace_damaged(&mut self, outcome: &Result<(), Error>) -> Result<(), Error> {
        match outcome {
            Err(Error::Damaged { .. }) => {
                drop(self.tables.take());
                self.tables = OnceCell::from(self.tables_in_place_of_damaged()?);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn empty_tables(&self) -> Result<(), Error> {
        tables::create_anew(self.tables_or_refuse()?).map_err(|error| self.name_tables(error))
    }

    fn tables_or_refuse(&self) -> Result<&Connection, Error> {
        let missing = || Error::NoStore { store: tables_path(&self.path).display().to_string() };
        self.tables()?.ok_or_else(missing)
    }

    /// Runs what can be made anew from the journal, without waiting for the disk. It is in the file
    /// of the journal, which keeps the order of commits: so it is never ahead of the records.
    fn lightly<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Access::Writing(durability) = self.access else { return self.in_transaction(work) };
        connection::set_durability(&self.conn, Durability::Normal)?;
        let outcome = self.in_transaction(work);
        connection::set_durability(&self.conn, durability)?;
        outcome
    }

    /// In a transaction of its own, or as a part of the one that is open.
    fn in_transaction<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // Asked of us and not of SQLite: what meets a transaction that nobody means to commit must
        // fail, and not be answered.
        if self.carrying {
            return work(&self.conn);
        }
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let done = work(&tx)?;
        tx.commit()?;
        Ok(done)
    }

    fn claimed<T>(
        &mut self,
        presented: Epoch,
        work: impl FnOnce(&Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.in_transaction(|tx| {
            refuse_stale(tx, presented)?;
            work(tx)
        })
    }

    fn write_group(&mut self, group: &[Request<'_>]) -> Result<Admitted, Error> {
        self.in_transaction(|tx| {
            let (head, epoch) = look(tx)?;
            let admitted = admit_group((head, epoch), group);
            insert(tx, epoch, &admitted.links)?;
            Ok(admitted)
        })
    }
}

impl Journal for Sqlite {
    fn claim_epoch(&mut self) -> Result<Epoch, Error> {
        let claim = "UPDATE meta SET epoch = epoch + 1 RETURNING epoch";
        // In a transaction that is seen to end: a claim that did not reach the disk is none.
        let claimed =
            self.in_transaction(|tx| Ok(tx.query_row(claim, [], |row| unsigned(row, 0))?));
        let epoch = Epoch(claimed?);
        // From here on, nobody else writes what is changed now.
        schema::migrate(&mut self.conn, &self.path)?;
        if tables::are_beside_journal(&self.conn)? {
            tables::leave(&self.conn)?;
            if let Some(conn) = self.tables()? {
                tables::follow(&self.conn, conn)?;
            }
        }
        // Looked at after the claim: nobody but us can have written since.
        self.head = head(&self.conn)?;
        Ok(epoch)
    }

    fn head(&self) -> Head {
        self.head
    }

    fn append(&mut self, epoch: Epoch, expected: Seq, records: &[Record]) -> Result<Head, Error> {
        let request = Request { epoch, expected, records: records.into() };
        self.append_group(&[request]).pop().unwrap_or(Ok(self.head))
    }

    fn read(&self, after: Seq, limit: usize) -> Result<Vec<Record>, Error> {
        records(&self.conn, after, limit)
    }
}

impl Backend for Sqlite {
    fn append_group(&mut self, group: &[Request<'_>]) -> Vec<Result<Head, Error>> {
        match self.write_group(group) {
            Ok(Admitted { head, outcomes, .. }) => {
                self.head = head;
                outcomes
            }
            Err(error) => group.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn all_or_nothing(&mut self, work: &mut backend::Writes<'_>) -> Result<(), Error> {
        // The tables are in another file, which one transaction does not reach: what is folded
        // before it is known whether it stays goes with the connection.
        let unkept = OnceCell::from(connection::open_unkept()?);
        self.conn.execute_batch("BEGIN IMMEDIATE")?;
        let kept = std::mem::replace(&mut self.tables, unkept);
        self.carrying = true;
        let done = work(self).and_then(|()| Ok(self.conn.execute_batch("COMMIT")?));
        self.carrying = false;
        self.tables = kept;
        if done.is_err() && !self.conn.is_autocommit() {
            // With the connection it would end, too.
            let _ = self.conn.execute_batch("ROLLBACK");
        }
        self.head = head(&self.conn)?;
        done
    }

    fn adopt(&mut self, after: Seq, rows: &[backend::Row]) -> Result<(), Error> {
        let Some(last) = rows.last() else { return Ok(()) };
        let adopted = self.in_transaction(|tx| {
            let found = head(tx)?.seq;
            if found != after {
                return Err(Error::Conflict { expected: after, actual: found });
            }
            for row in rows {
                let body = String::from_utf8_lossy(&row.body);
                let values = params![row.seq, row.at, row.epoch, body, row.hash];
                tx.prepare_cached(INSERT)?.execute(values)?;
            }
            tx.execute("UPDATE meta SET epoch = max(epoch, ?1)", [last.epoch])?;
            head(tx)
        });
        self.head = adopted?;
        Ok(())
    }

    fn store_id(&self) -> Result<String, Error> {
        Ok(self.conn.query_row("SELECT store_id FROM meta", [], |row| row.get(0))?)
    }

    fn look(&self) -> Result<(Head, Epoch), Error> {
        look(&self.conn)
    }

    fn rows(&self, after: Seq, limit: usize) -> Result<Vec<backend::Row>, Error> {
        let mut statement = self.conn.prepare_cached(
            "SELECT seq, at, epoch, body, hash FROM journal WHERE seq > ?1 ORDER BY seq LIMIT ?2",
        )?;
        let rows = statement.query_map(params![clamped(after.0), limit as i64], |row| {
            let (seq, at, epoch) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let body = row.get_ref(3)?.as_bytes()?.to_vec();
            Ok(backend::Row { seq, at, epoch, body, hash: row.get(4)? })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn has_record(&self, hash: Hash) -> Result<bool, Error> {
        let mut found = self.conn.prepare("SELECT 1 FROM journal WHERE hash = ?1")?;
        Ok(found.exists([hash.0])?)
    }

    fn told(&self) -> Result<Option<Told>, Error> {
        self.tables()?.map_or(Ok(None), tables::told)
    }

    fn missing_tables(&self) -> Result<Vec<&'static str>, Error> {
        self.tables()?.map_or_else(|| Ok(tables::names().collect()), tables::missing)
    }

    fn watermark(&self) -> Result<Seq, Error> {
        self.tables()?.map_or(Ok(Seq(0)), tables::watermark)
    }

    fn write_rows(
        &mut self,
        epoch: Epoch,
        changes: &Changes,
        span: (Seq, Seq),
    ) -> Result<(), Error> {
        let written = tables::write((self.tables_or_refuse()?, &self.conn), epoch, changes, span);
        // Those of a successor are not ours to put aside.
        if refuse_stale(&self.conn, epoch).is_ok() {
            self.replace_damaged(&written)?;
        }
        written.map_err(|error| self.name_tables(error))?;
        complaint::forget(&self.path)
    }

    /// What is watched is the folder of the file. Its log does not do: it is written before the
    /// commit can be seen.
    fn announce(&self, _head: Seq) -> Result<(), Error> {
        let (now, stay) = (TimeSpec::UTIME_NOW, UtimensatFlags::NoFollowSymlink);
        let touched = utimensat(AT_FDCWD, &self.path, &TimeSpec::UTIME_OMIT, &now, stay);
        touched.map_err(|errno| Error::io(&self.path)(errno.into()))
    }

    fn complain(&mut self, epoch: Epoch, why: &str) -> Result<(), Error> {
        refuse_stale(&self.conn, epoch)?;
        // Tables that somebody has locked are not waited for again.
        match self.tables.get().map(|conn| tables::complain(conn, why)) {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) | None => complaint::note(&self.path, why),
        }
    }

    fn complaint(&self) -> Result<Option<String>, Error> {
        let told = self.tables()?.map_or(Ok(None), tables::complaint)?;
        Ok(told.or_else(|| complaint::read(&self.path)))
    }

    fn create_tables_anew(&mut self) -> Result<(), Error> {
        let emptied = self.empty_tables();
        self.replace_damaged(&emptied)?;
        match emptied {
            Err(Error::Damaged { .. }) => self.empty_tables(),
            emptied => emptied,
        }
    }

    fn table(&self, table: &Table) -> Result<Vec<Vec<Value>>, Error> {
        tables::rows(self.tables_or_refuse()?, table)
    }

    fn searchable(&self) -> Result<Seq, Error> {
        let mark = "SELECT seq FROM search_watermark";
        let found = self.conn.prepare_cached(mark)?.query_row([], |row| seq(row, 0)).optional()?;
        Ok(found.unwrap_or_default())
    }

    fn index(
        &mut self,
        epoch: Epoch,
        documents: &[Document],
        mark: Option<Seq>,
    ) -> Result<(), Error> {
        let index = |tx: &Connection| {
            refuse_stale(tx, epoch)?;
            super::search::index(tx, documents, mark)
        };
        match mark {
            Some(_) => self.lightly(index),
            None => self.in_transaction(index),
        }
    }

    fn search(&self, query: &Query) -> Result<Vec<Document>, Error> {
        super::search::search(&self.conn, query)
    }

    fn kept_documents(&self) -> Result<Kept, Error> {
        super::search::kept(&self.conn)
    }

    fn trouble_with_search(&self) -> Result<Option<String>, Error> {
        super::search::trouble(&self.conn)
    }

    fn complain_of_search(&mut self, epoch: Epoch, why: &str) -> Result<(), Error> {
        refuse_stale(&self.conn, epoch)?;
        tables::complain_of_search(self.tables_or_refuse()?, why)
    }

    fn end_search_complaint(&mut self, epoch: Epoch) -> Result<(), Error> {
        refuse_stale(&self.conn, epoch)?;
        let ended = tables::end_search_complaint(self.tables_or_refuse()?);
        ended.map_err(|error| self.name_tables(error))
    }

    fn search_complaint(&self) -> Result<Option<String>, Error> {
        self.tables()?.map_or(Ok(None), tables::search_complaint)
    }

    fn create_search_anew(&mut self, epoch: Epoch, kept: &[Document]) -> Result<(), Error> {
        self.claimed(epoch, |tx| super::search::create_anew(tx, kept))
    }

    fn put_blob(
        &mut self,
        epoch: Epoch,
        hash: &str,
        body: &[u8],
        owners: &[String],
    ) -> Result<(), Error> {
        self.claimed(epoch, |tx| super::blobs::put(tx, hash, body, owners))
    }

    fn blob(&self, hash: &str) -> Result<Option<Vec<u8>>, Error> {
        super::blobs::get(&self.conn, hash)
    }

    fn release_blobs(&mut self, epoch: Epoch, owner: &str) -> Result<(), Error> {
        let release = "DELETE FROM blob_owners WHERE owner = ?1";
        self.claimed(epoch, |tx| Ok(tx.execute(release, [owner]).map(drop)?))
    }

    fn ownerless_blobs(&self) -> Result<Vec<String>, Error> {
        super::blobs::ownerless(&self.conn)
    }

    fn remove_blobs(&mut self, epoch: Epoch, hashes: &[String]) -> Result<u64, Error> {
        self.claimed(epoch, |tx| super::blobs::remove(tx, hashes))
    }

    fn blobs(&self) -> Result<Vec<(String, Vec<String>)>, Error> {
        super::blobs::all(&self.conn)
    }

    fn snapshot(&self) -> Result<Option<Vec<u8>>, Error> {
        super::snapshot::read(&self.path)
    }

    fn snapshot_start(&self, bytes: usize) -> Result<Option<Vec<u8>>, Error> {
        super::snapshot::read_start(&self.path, bytes)
    }

    fn keep_snapshot(&mut self, body: &[u8]) -> Result<(), Error> {
        super::snapshot::write(&self.path, body)
    }
}

const INSERT: &str = "INSERT INTO journal (seq, at, epoch, body, hash) VALUES (?1, ?2, ?3, ?4, ?5)";

fn insert(conn: &Connection, epoch: Epoch, links: &[Link]) -> Result<(), Error> {
    let mut statement = conn.prepare_cached(INSERT)?;
    for Link { seq, at, body, hash } in links {
        let (seq, at, epoch) = (clamped(seq.0), clamped(at.0), clamped(epoch.0));
        statement.execute(params![seq, at, epoch, body, hash.0])?;
    }
    Ok(())
}

fn head(conn: &Connection) -> Result<Head, Error> {
    look(conn).map(|(head, _)| head)
}

/// Where the journal ends, and whose turn it is to append. Every append asks, so it is one question.
fn look(conn: &Connection) -> Result<(Head, Epoch), Error> {
    let mut look = conn.prepare_cached(
        "SELECT meta.epoch, journal.seq, journal.hash FROM meta
        LEFT JOIN journal ON journal.seq = (SELECT max(seq) FROM journal)",
    )?;
    let found = look.query_row([], |row| {
        let head = match row.get_ref(1)? {
            ValueRef::Null => Head::EMPTY,
            _ => Head { seq: seq(row, 1)?, hash: Hash(row.get(2)?) },
        };
        Ok((head, Epoch(unsigned(row, 0)?)))
    });
    let nothing = || Error::Damaged { what: "the table meta is empty".into() };
    found.optional()?.ok_or_else(nothing)
}

pub(super) fn epoch(conn: &Connection) -> Result<Epoch, Error> {
    let mut epoch = conn.prepare_cached("SELECT epoch FROM meta")?;
    Ok(Epoch(epoch.query_row([], |row| unsigned(row, 0))?))
}

/// The file lock of the leader is what holds; this is for whoever did not ask for it, or was stopped
/// for so long that somebody broke it.
pub(super) fn refuse_stale(journal: &Connection, presented: Epoch) -> Result<(), Error> {
    let current = epoch(journal)?;
    if current == presented { Ok(()) } else { Err(Error::StaleEpoch { presented, current }) }
}

fn records(conn: &Connection, after: Seq, limit: usize) -> Result<Vec<Record>, Error> {
    let mut statement = conn
        .prepare_cached("SELECT seq, at, body FROM journal WHERE seq > ?1 ORDER BY seq LIMIT ?2")?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![clamped(after.0), limit])?;
    let (mut records, mut last) = (Vec::new(), after);
    while let Some(row) = rows.next()? {
        let (seq, at) = (seq(row, 0)?, Timestamp(unsigned(row, 1)?));
        refuse_hole(last, seq)?;
        let body = row.get_ref(2)?.as_bytes().map_err(rusqlite::Error::from)?;
        records.push(Record { seq, at, event: event(seq, body)? });
        last = seq;
    }
    Ok(records)
}

pub(super) fn seq(row: &Row<'_>, column: usize) -> rusqlite::Result<Seq> {
    unsigned(row, column).map(Seq)
}

pub(super) fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(seq: u64) -> Record {
        let event = kapelle_core::Event::SessionStarted;
        Record { seq: Seq(seq), at: Timestamp(1), event }
    }

    /// What can be made anew is written lightly. An append that comes after it must not be.
    #[test]
    fn an_append_after_a_light_write_is_as_durable_as_before() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Sqlite::open(&dir.path().join("db")).unwrap();
        let synchronous = |store: &Sqlite| -> i64 {
            store.conn.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap()
        };
        assert_eq!(synchronous(&store), 2);
        store.index(Epoch(0), &[], Some(Seq(0))).unwrap();
        assert_eq!(synchronous(&store), 2);
        let failed = store.lightly(|_| Err::<(), _>(Error::WriterGone));
        assert!(failed.is_err());
        assert_eq!(synchronous(&store), 2);
    }

    /// Whoever has locked the file for longer than anybody waits is named for what they are, and the
    /// append is not there.
    #[test]
    fn a_file_that_stays_locked_is_an_error_with_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let mut store = Sqlite::open(&path).unwrap();
        let epoch = store.claim_epoch().unwrap();
        store.conn.busy_timeout(std::time::Duration::from_millis(1)).unwrap();
        let somebody = Connection::open(&path).unwrap();
        somebody.execute_batch("BEGIN IMMEDIATE").unwrap();
        let refused = store.append(epoch, Seq(0), &[record(1)]).unwrap_err();
        assert!(matches!(refused, Error::Locked { .. }), "{refused:?}");
        somebody.execute_batch("COMMIT").unwrap();
        assert_eq!(store.append(epoch, Seq(0), &[record(1)]).unwrap().seq, Seq(1));
    }

    /// A store has two files, and whoever has one of them open wants to know which.
    #[test]
    fn tables_that_stay_locked_are_named_by_a_rebuild() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let mut store = Sqlite::open(&path).unwrap();
        store.claim_epoch().unwrap();
        let tables = store.tables_or_refuse().unwrap();
        tables.busy_timeout(std::time::Duration::from_millis(1)).unwrap();
        let somebody = Connection::open(tables_path(&path)).unwrap();
        somebody.execute_batch("BEGIN IMMEDIATE").unwrap();
        let refused = store.create_tables_anew().unwrap_err();
        assert!(matches!(refused, Error::Locked { .. }), "{refused:?}");
        assert!(refused.to_string().contains("store.tables.db"), "{refused}");
        somebody.execute_batch("COMMIT").unwrap();
        store.create_tables_anew().unwrap();
    }

    /// What the journal tells can be made searchable again; a note is told by nothing else, and
    /// whoever was answered may forget it.
    #[test]
    fn a_note_is_as_durable_as_a_record() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Sqlite::open(&dir.path().join("db")).unwrap();
        let watch = "CREATE TEMP TABLE seen (synchronous);
            CREATE TEMP TRIGGER watch AFTER INSERT ON documents
            BEGIN INSERT INTO seen SELECT * FROM pragma_synchronous; END";
        store.conn.execute_batch(watch).unwrap();
        store.index(Epoch(0), &[Document::note()], None).unwrap();
        store.index(Epoch(0), &[Document::note()], Some(Seq(0))).unwrap();
        let seen = "SELECT group_concat(synchronous) FROM seen";
        let seen: String = store.conn.query_row(seen, [], |row| row.get(0)).unwrap();
        assert_eq!(seen, "2,1");
    }

    /// A transaction that was left open takes everything with it when it goes. An append must not be
    /// answered as a part of that.
    #[test]
    fn an_append_is_no_part_of_somebody_elses_transaction() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Sqlite::open(&dir.path().join("db")).unwrap();
        let epoch = store.claim_epoch().unwrap();
        store.conn.execute_batch("BEGIN").unwrap();
        let refused = store.append(epoch, Seq(0), &[record(1)]).unwrap_err();
        assert!(matches!(refused, Error::Database { .. }), "{refused:?}");
    }

    /// Somebody who was stopped in the middle of a fold, and wakes when another has gone on.
    #[test]
    fn whoever_folds_late_does_not_take_the_tables_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Sqlite::open(&dir.path().join("db")).unwrap();
        let (epoch, nothing) = (store.claim_epoch().unwrap(), Changes::default());
        let records: Vec<Record> = (1..=7).map(record).collect();
        store.append(epoch, Seq(0), &records).unwrap();
        store.write_rows(epoch, &nothing, (Seq(0), Seq(7))).unwrap();
        let late = store.write_rows(epoch, &nothing, (Seq(0), Seq(3)));
        let refused = late.unwrap_err().to_string();
        assert_eq!(refused, "the tables reach record 7, not 0: somebody else folds them");
        assert_eq!(store.watermark().unwrap(), Seq(7));
    }
}
