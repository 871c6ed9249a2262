//! The tables for people in SQLite: a file of their own, so that whoever writes or reads them never
//! has the lock that an append needs.

use std::time::Duration;

use kapelle_core::Seq;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{
    Connection, OptionalExtension, ToSql, Transaction, TransactionBehavior, params,
    params_from_iter,
};

use super::journal::{refuse_stale, seq};
use crate::backend::Told;
use crate::error::Error;
use crate::journal::{Epoch, Hash};
use crate::projections::Changes;
use crate::tables::{Dialect, Table, VERSION, VIEWS, WATERMARK, all, create, drop, upsert};
use crate::value::{Value, clamped};

/// How long whoever folds waits for somebody who has locked the tables, before it says so. It comes
/// again, and whoever closes should not wait for long.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Int(number) => ValueRef::Integer(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

/// Makes sure that the tables are there in the form of this version, and tell of this journal. What
/// was folded into others is folded again.
pub(super) fn prepare(conn: &Connection, journal: &Connection) -> Result<(), Error> {
    // Nearly always. Then nobody is waited for who has locked them.
    if are_usable(conn, journal)? {
        return Ok(());
    }
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    if !are_usable(&tx, journal)? {
        create_anew(&tx)?;
    }
    Ok(tx.commit()?)
}

fn are_usable(conn: &Connection, journal: &Connection) -> Result<bool, Error> {
    if !missing(conn)?.is_empty() {
        return Ok(false);
    }
    match told(conn) {
        Ok(Some(told)) => Ok(told.version == VERSION && told.hash == hash_at(journal, told.seq)?),
        // Somebody wrote into them what nobody can read.
        Ok(None) | Err(Error::Database { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Everything that has to be there.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let names = all().iter().map(|table| table.name).chain(VIEWS.map(|(name, ..)| name));
    names.chain([WATERMARK])
}

pub(super) fn missing(conn: &Connection) -> Result<Vec<&'static str>, Error> {
    let mut gone = Vec::new();
    for name in names() {
        if !exists(conn, name)? {
            gone.push(name);
        }
    }
    Ok(gone)
}

fn exists(conn: &Connection, name: &str) -> Result<bool, Error> {
    let mut named = conn.prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = ?1")?;
    Ok(named.exists([name])?)
}

/// What they say of themselves. Two files can part: one may be restored from a backup, so the hash
/// has to be that of the journal beside it.
pub(super) fn told(conn: &Connection) -> Result<Option<Told>, Error> {
    let sql = "SELECT seq, hash, version FROM projection_watermark";
    let told = conn.query_row(sql, [], |row| {
        Ok(Told { seq: seq(row, 0)?, hash: row.get(1)?, version: row.get(2)? })
    });
    Ok(told.optional()?)
}

/// The hash of a record, as text; empty if there is no such record.
fn hash_at(journal: &Connection, seq: Seq) -> Result<String, Error> {
    let mut hash = journal.prepare_cached("SELECT hash FROM journal WHERE seq = ?1")?;
    let found = hash.query_row([clamped(seq.0)], |row| Ok(Hash(row.get(0)?))).optional()?;
    Ok(found.map(|hash| hash.to_string()).unwrap_or_default())
}

/// Everything goes, also what only another version had.
pub(super) fn create_anew(conn: &Connection) -> Result<(), Error> {
    // What was made last refers to what was made before, and not the other way round.
    let mut all = conn.prepare(
        "SELECT type, name FROM sqlite_schema
        WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
        ORDER BY type = 'table', rowid DESC",
    )?;
    let drops = all.query_map([], |row| {
        let (kind, name): (String, String) = (row.get(0)?, row.get(1)?);
        Ok(format!("DROP {kind} \"{}\";", name.replace('"', "\"\"")))
    })?;
    let drops = drops.collect::<Result<String, _>>()?;
    conn.execute_batch(&drops)?;
    Ok(conn.execute_batch(&create(Dialect::Sqlite))?)
}

/// Earlier versions had the tables in the file of the journal.
pub(super) fn leave(journal: &Connection) -> Result<(), Error> {
    if !exists(journal, WATERMARK)? {
        return Ok(());
    }
    let tx = Transaction::new_unchecked(journal, TransactionBehavior::Immediate)?;
    tx.execute_batch(&drop(Dialect::Sqlite))?;
    Ok(tx.commit()?)
}

pub(super) fn write(
    (conn, journal): (&Connection, &Connection),
    claimed: Epoch,
    changes: &Changes,
    (from, to): (Seq, Seq),
) -> Result<(), Error> {
    let hash = hash_at(journal, to)?;
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    refuse_stale(journal, claimed)?;
    let sql = "UPDATE projection_watermark SET seq = ?1, hash = ?2, complaint = NULL
        WHERE seq = ?3";
    let moved = tx.prepare_cached(sql)?.execute(params![clamped(to.0), hash, clamped(from.0)])?;
    if moved == 0 {
        return Err(Error::Overtaken { expected: from, actual: watermark(&tx)? });
    }
    for (of, rows) in changes.by_table() {
        let mut statement = tx.prepare_cached(upsert(of, Dialect::Sqlite))?;
        for row in rows {
            statement.execute(params_from_iter(row))?;
        }
    }
    Ok(tx.commit()?)
}

/// At once or not at all.
pub(super) fn complain(conn: &Connection, why: &str) -> Result<(), Error> {
    conn.busy_timeout(Duration::ZERO)?;
    let sql = "UPDATE projection_watermark SET complaint = ?1";
    let noted = conn.execute(sql, [why]);
    conn.busy_timeout(PATIENCE)?;
    noted?;
    Ok(())
}

pub(super) fn complaint(conn: &Connection) -> Result<Option<String>, Error> {
    let sql = "SELECT complaint FROM projection_watermark";
    Ok(conn.query_row(sql, [], |row| row.get(0)).optional()?.flatten())
}

/// How far the tables reach.
pub(super) fn watermark(conn: &Connection) -> Result<Seq, Error> {
    let mut mark = conn.prepare_cached("SELECT seq FROM projection_watermark")?;
    Ok(mark.query_row([], |row| seq(row, 0)).optional()?.unwrap_or_default())
}

pub(super) fn rows(conn: &Connection, table: &Table) -> Result<Vec<Vec<Value>>, Error> {
    // By their names: a column that was renamed is not the one that it was.
    let names: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
    let sql = format!("SELECT {} FROM {}", names.join(", "), table.name);
    let (mut statement, columns) = (conn.prepare(&sql)?, names.len());
    let rows = statement.query_map([], |row| (0..columns).map(|at| value(row, at)).collect())?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn value(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Value> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(Value::Null),
        ValueRef::Integer(number) => Ok(Value::Int(number)),
        other => Ok(Value::Text(other.as_str()?.to_owned().into())),
    }
}
