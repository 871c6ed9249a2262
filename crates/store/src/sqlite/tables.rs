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
use crate::tables::{Dialect, MARK, Table, VERSION, VIEWS, WATERMARK, all, create, drop, upsert};
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
    without_references(conn, |tx| match are_usable(tx, journal)? {
        true => Ok(()),
        false => make_anew(tx),
    })
}

fn are_usable(conn: &Connection, journal: &Connection) -> Result<bool, Error> {
    if !missing(conn)?.is_empty() {
        return Ok(false);
    }
    match told(conn) {
        Ok(Some(told)) => {
            Ok(told.version == VERSION
                && told.hash == hash_at(journal, told.seq)?.unwrap_or_default())
        }
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

/// The hash of a record, as text.
fn hash_at(journal: &Connection, seq: Seq) -> Result<Option<String>, Error> {
    let mut hash = journal.prepare_cached("SELECT hash FROM journal WHERE seq = ?1")?;
    let found = hash.query_row([clamped(seq.0)], |row| Ok(Hash(row.get(0)?))).optional()?;
    Ok(found.map(|hash| hash.to_string()))
}

/// Empty tables, in the form of this version. What people have put beside them stays, and indexes
/// that they put on them are made again.
pub(super) fn create_anew(conn: &Connection) -> Result<(), Error> {
    without_references(conn, make_anew)
}

/// In one transaction, in which a table of somebody may refer to one of ours that is gone.
fn without_references(
    conn: &Connection,
    work: impl FnOnce(&Connection) -> Result<(), Error>,
) -> Result<(), Error> {
    // Within a transaction it cannot be set any more.
    conn.pragma_update(None, "foreign_keys", false)?;
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate);
    let done = tx.map_err(Error::from).and_then(|tx| {
        work(&tx)?;
        Ok(tx.commit()?)
    });
    conn.pragma_update(None, "foreign_keys", true)?;
    done
}

fn make_anew(conn: &Connection) -> Result<(), Error> {
    let theirs = of_people(conn)?;
    conn.execute_batch(&drops(conn)?)?;
    conn.execute_batch(&create(Dialect::Sqlite))?;
    put_back(conn, &theirs.indexes);
    theirs.note_unsearchable(conn)
}

/// Whether an object is one of ours, by the mark in its text. A copy of it that a person made has
/// our mark, and a name of its own.
fn is_marked(schema: &str) -> String {
    format!("coalesce(instr({schema}.sql, '/* ' || {schema}.name || ': ' || ?1 || ' */') > 0, 0)")
}

/// What removes all that is ours, also what only another version had.
fn drops(conn: &Connection) -> Result<String, Error> {
    let marked = is_marked("made");
    let mut all = conn.prepare(&format!(
        "SELECT type, name, {marked} FROM sqlite_schema AS made WHERE type IN ('table', 'view')"
    ))?;
    let all = all.query_map([MARK], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let all: Vec<(String, String, bool)> = all.collect::<Result<_, _>>()?;
    let ours = all.iter().filter(|(_, name, marked)| *marked || names().any(|our| our == name));
    Ok(ours.map(|(kind, name, _)| format!("DROP {kind} {};", quoted(name))).collect())
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// What no journal tells: what people have put beside our tables, as the texts that make it again,
/// and what is noted for them.
#[derive(Debug, Default)]
pub(super) struct OfPeople {
    views: Vec<String>,
    indexes: Vec<String>,
    unsearchable: Option<String>,
}

/// Without what could stop the fold: triggers, and indexes that are unique, have to compute
/// something or ask which rows are theirs. Without their tables, too, whose rows no text makes again.
pub(super) fn of_people(conn: &Connection) -> Result<OfPeople, Error> {
    let texts = |sql: &str| -> Result<Vec<String>, Error> {
        let mut statement = conn.prepare(sql)?;
        let found = statement.query_map([MARK], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let found: Vec<(String, String)> = found.collect::<Result<_, _>>()?;
        let theirs = found.into_iter().filter(|(name, _)| names().all(|our| our != name));
        Ok(theirs.map(|(_, sql)| sql).collect())
    };
    let marked = is_marked("made");
    let views = format!(
        "SELECT name, sql FROM sqlite_schema AS made WHERE type = 'view' AND NOT {marked}
        ORDER BY rowid"
    );
    let indexes = format!(
        "SELECT made.name, made.sql
        FROM sqlite_schema AS made, pragma_index_list(made.tbl_name) AS of
        WHERE made.type = 'index' AND of.name = made.name AND of.origin = 'c' AND NOT of.\"unique\"
            AND NOT of.partial AND NOT {marked}
            AND NOT EXISTS (SELECT 1 FROM pragma_index_xinfo(made.name) WHERE cid = -2)
        ORDER BY made.rowid"
    );
    // Tables without a watermark that can be read have no note.
    let unsearchable = search_complaint(conn).ok().flatten();
    Ok(OfPeople { views: texts(&views)?, indexes: texts(&indexes)?, unsearchable })
}

impl OfPeople {
    pub(super) fn put_into(&self, conn: &Connection) -> Result<(), Error> {
        put_back(conn, &self.views);
        put_back(conn, &self.indexes);
        self.note_unsearchable(conn)
    }

    fn note_unsearchable(&self, conn: &Connection) -> Result<(), Error> {
        let sql = "UPDATE projection_watermark SET search_complaint = ?1";
        conn.execute(sql, [&self.unsearchable])?;
        Ok(())
    }
}

/// What does not fit any more, or is there already, is left out.
fn put_back(conn: &Connection, texts: &[String]) {
    for text in texts {
        let _ = conn.execute(text, []);
    }
}

/// Whether there are tables in the file of the journal, as in earlier versions.
pub(super) fn are_beside_journal(journal: &Connection) -> Result<bool, Error> {
    exists(journal, WATERMARK)
}

/// Removes them from there.
pub(super) fn leave(journal: &Connection) -> Result<(), Error> {
    let tx = Transaction::new_unchecked(journal, TransactionBehavior::Immediate)?;
    tx.execute_batch(&drop(Dialect::Sqlite))?;
    Ok(tx.commit()?)
}

/// Views of people that leaned on them go to where the tables are now.
pub(super) fn follow(journal: &Connection, conn: &Connection) -> Result<(), Error> {
    let mut views = journal.prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'view'")?;
    let views = views.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    for (name, text) in views.collect::<Result<Vec<(String, String)>, _>>()? {
        let name = quoted(&name);
        let works = |conn: &Connection| conn.prepare(&format!("SELECT * FROM {name}")).is_ok();
        if works(journal) {
            continue;
        }
        put_back(conn, &[text]);
        if works(conn) {
            journal.execute(&format!("DROP VIEW {name}"), [])?;
        }
    }
    Ok(())
}

pub(super) fn write(
    (conn, journal): (&Connection, &Connection),
    claimed: Epoch,
    changes: &Changes,
    (from, to): (Seq, Seq),
) -> Result<(), Error> {
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    refuse_stale(journal, claimed)?;
    let hash = hash_at(journal, to)?.ok_or(Error::Missing { seq: to })?;
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

pub(super) fn complain(conn: &Connection, why: &str) -> Result<(), Error> {
    note(conn, "UPDATE projection_watermark SET complaint = ?1", why)
}

pub(super) fn complain_of_search(conn: &Connection, why: &str) -> Result<(), Error> {
    let sql = "UPDATE projection_watermark SET search_complaint = coalesce(search_complaint, ?1)";
    note(conn, sql, why)
}

pub(super) fn end_search_complaint(conn: &Connection) -> Result<(), Error> {
    conn.execute("UPDATE projection_watermark SET search_complaint = NULL", [])?;
    Ok(())
}

/// At once or not at all.
fn note(conn: &Connection, sql: &str, why: &str) -> Result<(), Error> {
    conn.busy_timeout(Duration::ZERO)?;
    let noted = conn.execute(sql, [why]);
    conn.busy_timeout(PATIENCE)?;
    noted?;
    Ok(())
}

pub(super) fn complaint(conn: &Connection) -> Result<Option<String>, Error> {
    noted(conn, "SELECT complaint FROM projection_watermark")
}

pub(super) fn search_complaint(conn: &Connection) -> Result<Option<String>, Error> {
    noted(conn, "SELECT search_complaint FROM projection_watermark")
}

fn noted(conn: &Connection, sql: &str) -> Result<Option<String>, Error> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is not marked would be taken for a person's, and stay when another version has it no more.
    #[test]
    fn everything_that_is_made_is_marked() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(&create(Dialect::Sqlite)).unwrap();
        let unmarked = format!(
            "SELECT name FROM sqlite_schema AS made WHERE sql IS NOT NULL AND NOT {}",
            is_marked("made")
        );
        let mut statement = conn.prepare(&unmarked).unwrap();
        let found = statement.query_map([MARK], |row| row.get(0)).unwrap();
        assert_eq!(found.collect::<Result<Vec<String>, _>>().unwrap(), [""; 0]);
    }
}
