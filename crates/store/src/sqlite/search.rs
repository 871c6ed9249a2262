//! Search with FTS5.

use std::collections::BTreeMap;

use kapelle_core::{Seq, TaskId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use super::journal::unsigned;
use crate::backend::Kept;
use crate::error::Error;
use crate::search::{Document, Query, kind_named};
use crate::value::{Value, clamped};

pub(super) fn index(
    conn: &Connection,
    documents: &[Document],
    mark: Option<Seq>,
) -> Result<(), Error> {
    for document in documents {
        forget(conn, document)?;
        let id: i64 = conn
            .prepare_cached(
                "INSERT INTO documents (kind, source, seq, at, mission_id, task_id, agent, type,
                    body)
                VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) RETURNING id",
            )?
            .query_row(params_from_iter(values(document)), |row| row.get(0))?;
        conn.prepare_cached("INSERT INTO documents_words (rowid, body) VALUES (?1, ?2)")?
            .execute(params![id, document.words().collect::<Vec<_>>().join(" ")])?;
    }
    if let Some(mark) = mark {
        let sql = "INSERT INTO search_watermark (id, seq) VALUES (1, ?1)
            ON CONFLICT (id) DO UPDATE SET seq = excluded.seq";
        conn.prepare_cached(sql)?.execute([clamped(mark.0)])?;
    }
    Ok(())
}

fn values(document: &Document) -> [Value; 9] {
    [
        document.kind.name().into(),
        (&document.source).into(),
        document.seq.map(|seq| seq.0).into(),
        document.at.into(),
        document.mission.map(|mission| mission.to_string()).into(),
        document.task.map(|task| task.0).into(),
        document.agent.as_ref().into(),
        document.event.as_ref().into(),
        document.body().into(),
    ]
}

fn forget(conn: &Connection, document: &Document) -> Result<(), Error> {
    let old: Option<i64> = conn
        .prepare_cached("DELETE FROM documents WHERE kind = ?1 AND source = ?2 RETURNING id")?
        .query_row([document.kind.name(), &document.source], |row| row.get(0))
        .optional()?;
    if let Some(id) = old {
        conn.prepare_cached("DELETE FROM documents_words WHERE rowid = ?1")?.execute([id])?;
    }
    Ok(())
}

pub(super) fn search(conn: &Connection, query: &Query) -> Result<Vec<Document>, Error> {
    let Some(words) = query.words() else { return Ok(Vec::new()) };
    // Each word is quoted, so that none of them is taken for an operator.
    let wanted = words
        .map(|words| words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" "));
    let matching = match wanted {
        Some(_) => "id IN (SELECT rowid FROM documents_words WHERE documents_words MATCH ?1)",
        None => "?1 IS NULL",
    };
    let columns = Document::COLUMNS;
    let mut statement = conn.prepare(&format!(
        "SELECT {columns} FROM documents WHERE {matching}
            AND (?2 IS NULL OR kind = ?2) AND (?3 IS NULL OR mission_id = ?3)
            AND (?4 IS NULL OR task_id = ?4) AND (?5 IS NULL OR agent = ?5)
            AND (?6 IS NULL OR type = ?6) AND (?7 IS NULL OR at >= ?7)
            AND (?8 IS NULL OR at <= ?8)
        ORDER BY at DESC, id DESC LIMIT ?9"
    ))?;
    let values: [Value; 9] = [
        wanted.into(),
        query.kind.map(|kind| kind.name()).into(),
        query.mission.map(|mission| mission.to_string()).into(),
        query.task.map(|task| task.0).into(),
        query.agent.as_ref().into(),
        query.event.as_ref().into(),
        query.since.into(),
        query.until.into(),
        query.limit().into(),
    ];
    let found = statement.query_map(params_from_iter(values), document)?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// What no record of the journal tells. Where a page of them is damaged, those before it and those
/// after it.
pub(super) fn kept(conn: &Connection) -> Result<Kept, Error> {
    let (mut found, from_start) = kept_until_damage(conn, "ASC")?;
    if from_start {
        return Ok(Kept { documents: found.into_values().collect(), whole: true });
    }
    found.extend(kept_until_damage(conn, "DESC")?.0);
    Ok(Kept { documents: found.into_values().collect(), whole: false })
}

/// By their place, in this order, and whether that was all of them.
fn kept_until_damage(
    conn: &Connection,
    order: &str,
) -> Result<(BTreeMap<i64, Document>, bool), Error> {
    let columns = Document::COLUMNS;
    let sql = format!("SELECT {columns}, id FROM documents WHERE seq IS NULL ORDER BY id {order}");
    let mut statement = conn.prepare(&sql)?;
    let mut found = BTreeMap::new();
    for document in statement.query_map([], |row| Ok((row.get(9)?, document(row)?)))? {
        match document.map_err(Error::from) {
            Ok((id, document)) => drop(found.insert(id, document)),
            Err(Error::Damaged { .. } | Error::Database { .. }) => return Ok((found, false)),
            Err(error) => return Err(error),
        }
    }
    Ok((found, true))
}

/// The tables of the search, with those that FTS5 keeps its words in.
const TABLES: [&str; 6] = [
    "documents",
    "search_watermark",
    "documents_words_data",
    "documents_words_idx",
    "documents_words_docsize",
    "documents_words_config",
];

/// What SQLite itself finds wrong with the search.
pub(super) fn trouble(conn: &Connection) -> Result<Option<String>, Error> {
    for table in TABLES {
        let checked = conn.query_row(&format!("PRAGMA quick_check('{table}')"), [], |row| {
            row.get::<_, String>(0)
        });
        match checked.map_err(Error::from) {
            Ok(verdict) if verdict == "ok" => {}
            Ok(verdict) => return Ok(Some(format!("{table}: {verdict}"))),
            Err(Error::Damaged { what } | Error::Database { what }) => {
                return Ok(Some(format!("{table}: {what}")));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// A search that knows only what is kept.
pub(super) fn create_anew(conn: &Connection, kept: &[Document]) -> Result<(), Error> {
    let mut create = String::new();
    for table in ["documents_words", "documents", "search_watermark"] {
        let sql = "SELECT sql || ';' FROM sqlite_schema WHERE name = ?1";
        create += &conn.query_row(sql, [table], |row| row.get::<_, String>(0))?;
        remove(conn, table)?;
    }
    conn.execute_batch(&create)?;
    conn.execute_batch("INSERT INTO search_watermark (id, seq) VALUES (1, 0)")?;
    index(conn, kept, None)
}

/// What is damaged cannot always be dropped, because SQLite looks for its pages, to use them again;
/// and where that has failed, nothing more can be done in the same transaction. Struck out of the
/// schema it is gone all the same, and only its room is lost.
fn remove(conn: &Connection, table: &str) -> Result<(), Error> {
    conn.execute_batch("PRAGMA writable_schema = ON")?;
    let strike = "DELETE FROM sqlite_schema WHERE tbl_name = ?1 OR tbl_name GLOB ?1 || '_*'";
    let struck = conn.execute(strike, [table]);
    // Others learn from its number that the schema is another one.
    let version: i64 = conn.pragma_query_value(None, "schema_version", |row| row.get(0))?;
    conn.pragma_update(None, "schema_version", version + 1)?;
    conn.execute_batch("PRAGMA writable_schema = RESET")?;
    struck?;
    Ok(())
}

fn document(row: &Row<'_>) -> rusqlite::Result<Document> {
    let mission: Option<String> = row.get(4)?;
    Ok(Document {
        kind: kind_named(row.get_ref(0)?.as_str()?),
        source: row.get(1)?,
        seq: row.get::<_, Option<i64>>(2)?.map(|seq| Seq(seq.cast_unsigned())),
        at: Timestamp(unsigned(row, 3)?),
        mission: mission.and_then(|mission| mission.parse().ok()),
        task: row.get::<_, Option<u32>>(5)?.map(TaskId),
        agent: row.get(6)?,
        event: row.get(7)?,
        body: row.get(8)?,
    })
}
