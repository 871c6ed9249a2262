//! The tables for people in SQLite.

use kapelle_core::Seq;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, ToSql, TransactionBehavior, params_from_iter};

use super::journal::seq;
use crate::error::Error;
use crate::projections::Changes;
use crate::tables::{Dialect, Table, VERSION, VIEWS, all, create, drop, upsert};
use crate::value::{Value, clamped};

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Int(number) => ValueRef::Integer(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

/// Makes sure that the tables are there in the form of this version. What was folded into tables
/// of another form is folded again.
pub(super) fn prepare(conn: &mut Connection) -> Result<(), Error> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if !are_current(&tx)? {
        create_anew(&tx)?;
    }
    Ok(tx.commit()?)
}

fn are_current(conn: &Connection) -> Result<bool, Error> {
    let mut exists = conn.prepare("SELECT 1 FROM sqlite_schema WHERE name = ?1")?;
    let names = all().iter().map(|table| table.name).chain(VIEWS.map(|(name, ..)| name));
    for name in names.chain([crate::tables::WATERMARK]) {
        if !exists.exists([name])? {
            return Ok(false);
        }
    }
    let version = "SELECT version FROM projection_watermark";
    let found: Option<i64> = conn.query_row(version, [], |row| row.get(0)).optional()?;
    Ok(found == Some(VERSION))
}

pub(super) fn create_anew(conn: &Connection) -> Result<(), Error> {
    conn.execute_batch(&drop(Dialect::Sqlite))?;
    Ok(conn.execute_batch(&create(Dialect::Sqlite))?)
}

pub(super) fn write(conn: &Connection, changes: &Changes, mark: Seq) -> Result<(), Error> {
    for (of, rows) in changes.by_table() {
        let mut statement = conn.prepare_cached(&upsert(of.table(), Dialect::Sqlite))?;
        for row in rows {
            statement.execute(params_from_iter(row))?;
        }
    }
    let sql = "UPDATE projection_watermark SET seq = ?1";
    conn.prepare_cached(sql)?.execute([clamped(mark.0)])?;
    Ok(())
}

/// How far the tables reach.
pub(super) fn watermark(conn: &Connection) -> Result<Seq, Error> {
    let mut mark = conn.prepare_cached("SELECT seq FROM projection_watermark")?;
    Ok(mark.query_row([], |row| seq(row, 0)).optional()?.unwrap_or_default())
}

pub(super) fn rows(conn: &Connection, table: &Table) -> Result<Vec<Vec<Value>>, Error> {
    let mut statement = conn.prepare(&format!("SELECT * FROM {}", table.name))?;
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| (0..columns).map(|at| value(row, at)).collect())?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn value(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Value> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(Value::Null),
        ValueRef::Integer(number) => Ok(Value::Int(number)),
        other => Ok(Value::Text(other.as_str()?.to_owned())),
    }
}
