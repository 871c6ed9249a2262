//! Search with text vectors.

use kapelle_core::{Seq, TaskId, Timestamp};
use tokio_postgres::Row;

use super::lead::fenced;
use super::link::{LIGHTLY, Link, Param};
use super::tables::LOCK_PATIENCE;
use crate::backend::Kept;
use crate::error::Error;
use crate::journal::Epoch;
use crate::search::{Document, Query, kind_named};
use crate::value::{Value, clamped};

const PUT: &str = "INSERT INTO documents (kind, source, seq, at, mission_id, task_id, agent, type,
        body, words)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, array_to_tsvector($10))
    ON CONFLICT (kind, source) DO UPDATE SET seq = excluded.seq, at = excluded.at,
        mission_id = excluded.mission_id, task_id = excluded.task_id, agent = excluded.agent,
        type = excluded.type, body = excluded.body, words = excluded.words";

pub(super) fn index(
    link: &Link,
    epoch: Epoch,
    documents: &[Document],
    mark: Option<Seq>,
) -> Result<(), Error> {
    let mut statements: Vec<(&str, Vec<Param<'_>>)> =
        documents.iter().map(|document| (PUT, values(document))).collect();
    if let Some(mark) = mark {
        let advance = "INSERT INTO search_watermark (id, seq) VALUES (1, $1)
            ON CONFLICT (id) DO UPDATE SET seq = excluded.seq";
        statements.push((advance, vec![Box::new(clamped(mark.0))]));
    }
    let begin = if mark.is_some() { LIGHTLY } else { "BEGIN" };
    // Appends wait for whoever waits here.
    fenced(link, epoch, &format!("{begin}; {LOCK_PATIENCE}"), statements)
}

fn values(document: &Document) -> Vec<Param<'_>> {
    let text = |text: &str| match Value::from(text) {
        Value::Text(text) => text.into_owned(),
        Value::Null | Value::Int(_) => String::new(),
    };
    vec![
        Box::new(document.kind.name()),
        Box::new(text(&document.source)),
        Box::new(document.seq.map(|seq| clamped(seq.0))),
        Box::new(clamped(document.at.0)),
        Box::new(document.mission.map(|mission| mission.to_string())),
        Box::new(document.task.map(|task| i64::from(task.0))),
        Box::new(document.agent.as_deref().map(text)),
        Box::new(document.event.as_deref().map(text)),
        Box::new(text(document.body())),
        Box::new(document.words().collect::<Vec<_>>()),
    ]
}

pub(super) fn search(link: &Link, query: &Query) -> Result<Vec<Document>, Error> {
    let Some(words) = query.words() else { return Ok(Vec::new()) };
    let columns = Document::COLUMNS;
    let sql = format!(
        "SELECT {columns} FROM documents
        WHERE ($1::text IS NULL OR words @@ $1::tsquery)
            AND ($2::text IS NULL OR kind = $2) AND ($3::text IS NULL OR mission_id = $3)
            AND ($4::bigint IS NULL OR task_id = $4) AND ($5::text IS NULL OR agent = $5)
            AND ($6::text IS NULL OR type = $6) AND ($7::bigint IS NULL OR at >= $7)
            AND ($8::bigint IS NULL OR at <= $8)
        ORDER BY at DESC, id DESC LIMIT $9"
    );
    let time = |at: Option<Timestamp>| at.map(|at| clamped(at.0));
    let params: Vec<Param<'_>> = vec![
        Box::new(words.map(|words| all_of(&words))),
        Box::new(query.kind.map(|kind| kind.name())),
        Box::new(query.mission.map(|mission| mission.to_string())),
        Box::new(query.task.map(|task| i64::from(task.0))),
        Box::new(query.agent.clone()),
        Box::new(query.event.clone()),
        Box::new(time(query.since)),
        Box::new(time(query.until)),
        Box::new(query.limit()),
    ];
    Ok(link.query(&sql, params)?.iter().map(document).collect())
}

/// As PostgreSQL writes such a question. What it would make of a text itself may be other words.
fn all_of(words: &[String]) -> String {
    words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" & ")
}

/// What no record of the journal tells.
pub(super) fn kept(link: &Link) -> Result<Kept, Error> {
    let columns = Document::COLUMNS;
    let sql = format!("SELECT {columns} FROM documents WHERE seq IS NULL ORDER BY id");
    let documents = link.query(&sql, Vec::new())?.iter().map(document).collect();
    Ok(Kept { documents, whole: true })
}

/// One statement after the other, in one transaction.
pub(super) fn create_anew(link: &Link, epoch: Epoch, kept: &[Document]) -> Result<(), Error> {
    let begin = "INSERT INTO search_watermark (id, seq) VALUES (1, 0)
        ON CONFLICT (id) DO UPDATE SET seq = 0";
    let mut statements = vec![("TRUNCATE documents", Vec::new()), (begin, Vec::new())];
    statements.extend(kept.iter().map(|document| (PUT, values(document))));
    fenced(link, epoch, "BEGIN", statements)
}

fn document(row: &Row) -> Document {
    let (mission, task): (Option<&str>, Option<i64>) = (row.get(4), row.get(5));
    Document {
        kind: kind_named(row.get(0)),
        source: row.get(1),
        seq: row.get::<_, Option<i64>>(2).map(|seq| Seq(seq.cast_unsigned())),
        at: Timestamp(row.get::<_, i64>(3).cast_unsigned()),
        mission: mission.and_then(|mission| mission.parse().ok()),
        task: task.and_then(|task| u32::try_from(task).ok()).map(TaskId),
        agent: row.get(6),
        event: row.get(7),
        body: row.get(8),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::link::{Use, cluster};
    use super::super::schema;
    use super::*;
    use crate::location::{Durability, Place};

    /// It has the connection of the appends: they would wait as long, and then lose it.
    #[test]
    fn somebody_who_locked_the_documents_is_not_waited_for_long() {
        let cluster = cluster::Cluster::start();
        let Place::Postgres(server) = cluster.project().place else { panic!("it is a server") };
        let mut link = Link::connect(&server, Use::Writing(Durability::Full)).unwrap();
        schema::create(&link, &server).unwrap();
        link.patience = Duration::from_secs(10);
        let _lock = cluster.session(&server.schema, "BEGIN; LOCK TABLE documents;");
        for mark in [None, Some(Seq(0))] {
            let refused = index(&link, Epoch(0), &[Document::note()], mark).unwrap_err();
            assert!(matches!(refused, Error::Locked { .. }), "{refused:?}");
        }
        assert!(!link.is_closed());
    }
}
