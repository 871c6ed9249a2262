//! The tables for people in PostgreSQL: all rows of a batch go with one statement a table.

use kapelle_core::Seq;
use tokio_postgres::Row;

use super::lead::fenced;
use super::link::{LIGHTLY, Link, Param};
use crate::backend::Told;
use crate::error::Error;
use crate::journal::Epoch;
use crate::projections::Changes;
use crate::tables::{
    Column, Dialect, Table, VERSION, VIEWS, WATERMARK, all, create, drop, indexes, upsert,
};
use crate::value::{Value, clamped};

/// Makes sure that the tables are there in the form of this version, and tell of this journal. What
/// was folded into others is folded again. For whoever leads the project.
pub(super) fn prepare(link: &Link, schema: &str) -> Result<(), Error> {
    let usable = are_current(link, schema)? && belong_to_journal(link)?;
    if usable { Ok(()) } else { create_anew(link, schema) }
}

/// A journal can be put back from a backup, and the tables not with it.
fn belong_to_journal(link: &Link) -> Result<bool, Error> {
    let sql = "SELECT w.hash = coalesce(encode(journal.hash, 'hex'), '')
        FROM projection_watermark AS w LEFT JOIN journal ON journal.seq = w.seq";
    let told = link.query(sql, Vec::new())?;
    Ok(told.first().is_some_and(|row| row.get(0)))
}

fn are_current(link: &Link, schema: &str) -> Result<bool, Error> {
    if !missing(link, schema)?.is_empty() {
        return Ok(false);
    }
    // Somebody may have changed their form by hand.
    let columns = all().iter().flat_map(|table| table.columns.iter().map(|c| (table.name, c.name)));
    let (tables, columns): (Vec<&str>, Vec<&str>) = columns.unzip();
    let missing = "SELECT count(*) FROM unnest($1::text[], $2::text[]) AS n (of, name)
        WHERE NOT EXISTS (SELECT 1 FROM information_schema.columns
            WHERE table_schema = $3 AND table_name = n.of AND column_name = n.name)";
    let names: Vec<Param<'_>> = vec![Box::new(tables), Box::new(columns), Box::new(schema)];
    let missing = link.query(missing, names)?;
    if missing.first().is_none_or(|row| row.get::<_, i64>(0) > 0) {
        return Ok(false);
    }
    let version = link.query("SELECT version FROM projection_watermark", Vec::new())?;
    Ok(version.first().is_some_and(|row| row.get::<_, i64>(0) == VERSION))
}

/// Of everything that has to be there, what is not.
pub(super) fn missing(link: &Link, schema: &str) -> Result<Vec<&'static str>, Error> {
    let names = all().iter().map(|table| table.name).chain(VIEWS.map(|(name, ..)| name));
    let names: Vec<&'static str> = names.chain([WATERMARK]).collect();
    let places: Vec<String> = names.iter().map(|name| format!("{schema}.{name}")).collect();
    let sql = "SELECT at FROM unnest($1::text[]) WITH ORDINALITY AS n (name, at)
        WHERE to_regclass(name) IS NULL";
    let gone = link.query(sql, vec![Box::new(places)])?;
    let name = |row: &Row| usize::try_from(row.get::<_, i64>(0) - 1).map(|at| names[at]);
    Ok(gone.iter().flat_map(name).collect())
}

/// What they say of themselves.
pub(super) fn told(link: &Link) -> Result<Option<Told>, Error> {
    let sql = "SELECT seq, hash, version FROM projection_watermark";
    let rows = link.query(sql, Vec::new())?;
    Ok(rows.first().map(|row| Told {
        seq: Seq(u64::try_from(row.get::<_, i64>(0)).unwrap_or(0)),
        hash: row.get(1),
        version: row.get(2),
    }))
}

/// People forget transactions that they opened. The tables can wait for them; a leader that does
/// could not end, or would leave a session on the server that holds its lock.
pub(super) const LOCK_PATIENCE: &str = "SET LOCAL lock_timeout = '2s'";

/// Begins a transaction that needs the tables, and does not wait for the disk.
fn beside_readers() -> String {
    format!("{LIGHTLY}; {LOCK_PATIENCE}")
}

/// Empty tables. Those that have the right form stay: people lean views of their own on them.
pub(super) fn create_anew(link: &Link, schema: &str) -> Result<(), Error> {
    let made = match are_current(link, schema)? {
        true => emptied(),
        false => format!("{REMEMBER_NOTE} {} {NOTE_AGAIN}", made_anew()),
    };
    // Sent as one, it is one transaction.
    link.batch(&format!("{LOCK_PATIENCE}; {made}"))
}

/// What could not be made searchable is told by the next tables, too. A setting of the transaction
/// keeps it meanwhile; tables without a place for it have no such note.
const REMEMBER_NOTE: &str = "DO $$BEGIN
        PERFORM set_config('kapelle.unsearchable', '', true);
        PERFORM set_config('kapelle.unsearchable', coalesce(search_complaint::text, ''), true)
        FROM projection_watermark;
    EXCEPTION WHEN undefined_table OR undefined_column THEN NULL; END$$;";
const NOTE_AGAIN: &str = "UPDATE projection_watermark
    SET search_complaint = nullif(current_setting('kapelle.unsearchable', true), '');";

pub(super) fn made_anew() -> String {
    format!("{}{}", drop(Dialect::Postgres), create(Dialect::Postgres))
}

fn emptied() -> String {
    let names: Vec<&str> = all().iter().map(|table| table.name).collect();
    let hindrances = without_hindrances(&names);
    let mark = "UPDATE projection_watermark SET seq = 0, hash = '', complaint = NULL";
    format!("{hindrances} TRUNCATE {}; {mark};", names.join(", "))
}

/// What people may have put on our tables, and what could stop the fold: references to them from
/// tables of their own, whose rows stay, and whose parts have theirs from the whole; triggers;
/// indexes that are unique, have to compute something or ask which rows are theirs. Ours of that kind
/// belong to a constraint, or are known by their names.
fn without_hindrances(names: &[&str]) -> String {
    let ours: Vec<String> = names.iter().map(|name| format!("'{name}'::regclass")).collect();
    let indexes: Vec<String> = indexes().map(|name| format!("'{name}'")).collect();
    format!(
        "DO $$DECLARE hindrance text; ours oid[] := ARRAY[{}]::oid[];
            our_indexes text[] := ARRAY[{}]::text[]; BEGIN
            FOR hindrance IN
                SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname)
                FROM pg_constraint
                WHERE contype = 'f' AND confrelid = ANY (ours) AND conrelid <> ALL (ours)
                    AND conparentid = 0
                UNION ALL SELECT format('DROP TRIGGER %I ON %s', tgname, tgrelid::regclass)
                FROM pg_trigger WHERE tgrelid = ANY (ours) AND NOT tgisinternal
                UNION ALL SELECT format('DROP INDEX %s', indexrelid::regclass)
                FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
                WHERE indrelid = ANY (ours)
                    AND (indisunique OR indexprs IS NOT NULL OR indpred IS NOT NULL)
                    AND relname <> ALL (our_indexes)
                    AND NOT EXISTS (SELECT 1 FROM pg_constraint
                        WHERE conindid = indexrelid AND conrelid = indrelid)
            LOOP EXECUTE hindrance; END LOOP; END$$;",
        ours.join(", "),
        indexes.join(", ")
    )
}

pub(super) const NOTIFY: &str = "SELECT pg_notify($1, $2)";

/// What those who listen are told.
pub(super) fn word(head: Seq) -> String {
    format!("head {head}")
}

fn is_gone(link: &Link, seq: Seq) -> bool {
    let found = link.query("SELECT 1 FROM journal WHERE seq = $1", vec![Box::new(clamped(seq.0))]);
    found.is_ok_and(|found| found.is_empty())
}

/// The batch, and word of it to those who listen.
pub(super) fn write(
    link: &Link,
    claimed: Epoch,
    changes: &Changes,
    (from, to): (Seq, Seq),
    channel: &str,
) -> Result<(), Error> {
    // Tables that are elsewhere than expected make a null of the number, and a record that the
    // server has lost one of the hash; the columns refuse that, and with it everything else.
    let advance = "UPDATE projection_watermark SET seq = CASE WHEN seq = $2 THEN $1::bigint END,
        complaint = NULL,
        hash = (SELECT encode(hash, 'hex') FROM journal WHERE seq = $1::bigint)";
    let numbers: Vec<Param<'_>> = vec![Box::new(clamped(to.0)), Box::new(clamped(from.0))];
    let mut statements = vec![(advance, numbers)];
    for (of, rows) in changes.by_table() {
        let table = of.table();
        let rows: Vec<&Vec<Value>> = rows.collect();
        let columns = table.columns.iter().enumerate();
        let params = columns.map(|(at, column)| list(column, &rows, at)).collect();
        statements.push((upsert(of, Dialect::Postgres), params));
    }
    let told: Vec<Param<'_>> = vec![Box::new(channel), Box::new(word(to))];
    statements.push((NOTIFY, told));
    let written = fenced(link, claimed, &beside_readers(), statements);
    written.map_err(|error| match (error, watermark(link)) {
        (stale @ Error::StaleEpoch { .. }, _) => stale,
        (_, Ok(actual)) if actual != from => Error::Overtaken { expected: from, actual },
        (Error::Unfit { .. }, _) if is_gone(link, to) => Error::Missing { seq: to },
        (error, _) => error,
    })
}

pub(super) fn complain(link: &Link, claimed: Epoch, why: &str) -> Result<(), Error> {
    let sql = "UPDATE projection_watermark SET complaint = $1";
    fenced(link, claimed, &beside_readers(), vec![(sql, vec![Box::new(why)])])
}

pub(super) fn complain_of_search(link: &Link, claimed: Epoch, why: &str) -> Result<(), Error> {
    let sql = "UPDATE projection_watermark SET search_complaint = coalesce(search_complaint, $1)";
    fenced(link, claimed, &beside_readers(), vec![(sql, vec![Box::new(why)])])
}

pub(super) fn end_search_complaint(link: &Link, claimed: Epoch) -> Result<(), Error> {
    let sql = "UPDATE projection_watermark SET search_complaint = NULL";
    fenced(link, claimed, &beside_readers(), vec![(sql, Vec::new())])
}

pub(super) fn complaint(link: &Link) -> Result<Option<String>, Error> {
    noted(link, "SELECT complaint FROM projection_watermark")
}

pub(super) fn search_complaint(link: &Link) -> Result<Option<String>, Error> {
    noted(link, "SELECT search_complaint FROM projection_watermark")
}

fn noted(link: &Link, sql: &str) -> Result<Option<String>, Error> {
    let rows = link.query(sql, Vec::new())?;
    Ok(rows.first().and_then(|row| row.get(0)))
}

fn list<'a>(column: &Column, rows: &[&'a Vec<Value>], at: usize) -> Param<'a> {
    if column.kind.is_number() {
        let numbers: Vec<Option<i64>> = rows.iter().map(|row| row[at].int()).collect();
        return Box::new(numbers);
    }
    Box::new(rows.iter().map(|row| row[at].text()).collect::<Vec<Option<&str>>>())
}

pub(super) fn watermark(link: &Link) -> Result<Seq, Error> {
    let rows = link.query("SELECT seq FROM projection_watermark", Vec::new())?;
    Ok(Seq(rows.first().map_or(0, |row| row.get::<_, i64>(0).cast_unsigned())))
}

pub(super) fn rows(link: &Link, table: &Table) -> Result<Vec<Vec<Value>>, Error> {
    let names: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
    let rows =
        link.query(&format!("SELECT {} FROM {}", names.join(", "), table.name), Vec::new())?;
    let values = |row: &Row| {
        let columns = table.columns.iter().enumerate();
        columns.map(|(at, column)| value(row, at, column)).collect::<Vec<_>>()
    };
    Ok(rows.iter().map(values).collect())
}

fn value(row: &Row, at: usize, column: &Column) -> Value {
    if column.kind.is_number() {
        return row.get::<_, Option<i64>>(at).into();
    }
    row.get::<_, Option<String>>(at).into()
}
