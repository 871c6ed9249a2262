//! The journal in one SQLite file.
//!
//! Invariant: an append is one transaction of journal rows. Who may append and after what is
//! looked up inside that transaction, so a stale leader is refused by the database itself.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use kapelle_core::{Record, Seq, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};

use crate::connection;
use crate::error::Error;
use crate::journal::{Epoch, Hash, Head, Journal, Link, admit};
use crate::projections;

#[derive(Debug)]
pub struct Sqlite {
    conn: Connection,
    head: Head,
}

/// One append of a group.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub epoch: Epoch,
    pub expected: Seq,
    pub records: Cow<'a, [Record]>,
}

impl Sqlite {
    /// Opens the store in the file `path`, and creates it if there is none.
    pub fn open(path: &Path) -> Result<Sqlite, Error> {
        let mut conn = connection::open(path)?;
        projections::prepare(&mut conn)?;
        let head = head(&conn)?;
        Ok(Sqlite { conn, head })
    }

    /// Tells this store from every other one, copies aside.
    pub fn store_id(&self) -> Result<String, Error> {
        store_id(&self.conn)
    }

    /// Makes all tables for people anew from the journal. Returns how far they reach.
    pub fn rebuild_projections(&mut self) -> Result<Seq, Error> {
        projections::rebuild(&mut self.conn)
    }

    pub(crate) fn conn_mut(&mut self) -> &mut Connection {
        &mut self.conn
    }

    /// Carries out several appends with one commit. Each is admitted or refused by itself; if the
    /// commit fails, all of them have failed.
    pub(crate) fn append_group(&mut self, group: &[Request<'_>]) -> Vec<Result<Head, Error>> {
        match self.write_group(group) {
            Ok((head, outcomes)) => {
                self.head = head;
                outcomes
            }
            Err(error) => group.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn write_group(&mut self, group: &[Request<'_>]) -> Result<Written, Error> {
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let (mut head, epoch) = (head(&tx)?, epoch(&tx)?);
        let mut outcomes = Vec::with_capacity(group.len());
        for request in group {
            let admitted = admit((head, epoch), request.epoch, request.expected, &request.records);
            outcomes.push(match admitted {
                Ok(links) => {
                    insert(&tx, request.epoch, &links)?;
                    if let Some(last) = links.last() {
                        head = Head { seq: last.seq, hash: last.hash };
                    }
                    Ok(head)
                }
                Err(refused) => Err(refused),
            });
        }
        tx.commit()?;
        Ok((head, outcomes))
    }
}

type Written = (Head, Vec<Result<Head, Error>>);

impl Journal for Sqlite {
    fn claim_epoch(&mut self) -> Result<Epoch, Error> {
        let claim = "UPDATE meta SET epoch = epoch + 1 RETURNING epoch";
        Ok(Epoch(self.conn.query_row(claim, [], |row| unsigned(row, 0))?))
    }

    fn head(&self) -> Head {
        self.head
    }

    fn append(&mut self, epoch: Epoch, expected: Seq, records: &[Record]) -> Result<Head, Error> {
        let request = Request { epoch, expected, records: Cow::Borrowed(records) };
        let (head, mut outcomes) = self.write_group(&[request])?;
        self.head = head;
        outcomes.pop().unwrap_or(Ok(head))
    }

    fn read(&self, after: Seq, limit: usize) -> Result<Vec<Record>, Error> {
        records(&self.conn, after, limit)
    }
}

fn insert(conn: &Connection, epoch: Epoch, links: &[Link]) -> Result<(), Error> {
    let mut statement = conn.prepare_cached(
        "INSERT INTO journal (seq, at, epoch, body, hash) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let epoch = signed("epoch", epoch.0)?;
    for Link { seq, at, body, hash } in links {
        let (seq, at) = (signed("record number", seq.0)?, signed("time", at.0)?);
        statement.execute(params![seq, at, epoch, body, hash.0])?;
    }
    Ok(())
}

pub(crate) fn head(conn: &Connection) -> Result<Head, Error> {
    let mut last =
        conn.prepare_cached("SELECT seq, hash FROM journal ORDER BY seq DESC LIMIT 1")?;
    let head = last.query_row([], |row| Ok(Head { seq: seq(row, 0)?, hash: Hash(row.get(1)?) }));
    Ok(head.optional()?.unwrap_or(Head::EMPTY))
}

pub(crate) fn epoch(conn: &Connection) -> Result<Epoch, Error> {
    let mut epoch = conn.prepare_cached("SELECT epoch FROM meta")?;
    Ok(Epoch(epoch.query_row([], |row| unsigned(row, 0))?))
}

pub(crate) fn store_id(conn: &Connection) -> Result<String, Error> {
    Ok(conn.query_row("SELECT store_id FROM meta", [], |row| row.get(0))?)
}

pub(crate) fn records(conn: &Connection, after: Seq, limit: usize) -> Result<Vec<Record>, Error> {
    let mut statement = conn
        .prepare_cached("SELECT seq, at, body FROM journal WHERE seq > ?1 ORDER BY seq LIMIT ?2")?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![clamped(after.0), limit])?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        let (seq, at) = (seq(row, 0)?, Timestamp(unsigned(row, 1)?));
        let event = serde_json::from_str(row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?)
            .map_err(|source| Error::Unreadable { seq, source: Arc::new(source) })?;
        records.push(Record { seq, at, event });
    }
    Ok(records)
}

pub(crate) fn seq(row: &Row<'_>, column: usize) -> rusqlite::Result<Seq> {
    unsigned(row, column).map(Seq)
}

pub(crate) fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}

fn signed(what: &'static str, value: u64) -> Result<i64, Error> {
    i64::try_from(value).map_err(|_| Error::OutOfRange { what, value: value.to_string() })
}

/// For numbers that are only shown or compared: SQLite counts to 2^63.
pub(crate) fn clamped(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
