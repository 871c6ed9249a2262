//! Search with FTS5.

use kapelle_core::{Seq, TaskId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use super::journal::unsigned;
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
            .execute(params![id, document.words()])?;
    }
    if let Some(mark) = mark {
        let sql = "UPDATE search_watermark SET seq = ?1";
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

/// What no record of the journal tells.
pub(super) fn kept(conn: &Connection) -> Result<Vec<Document>, Error> {
    let columns = Document::COLUMNS;
    let sql = format!("SELECT {columns} FROM documents WHERE seq IS NULL ORDER BY id");
    let mut statement = conn.prepare(&sql)?;
    let documents = statement.query_map([], document)?;
    Ok(documents.collect::<Result<_, _>>()?)
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
