//! The floor: the rows of a journal, written with the same durability and nothing around it.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use kapelle_core::Record;
use rusqlite::{Connection, params};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls, Statement};

/// A row that is ready to be written.
pub struct Row {
    seq: i64,
    at: i64,
    body: String,
    hash: Vec<u8>,
}

impl Row {
    pub fn of(record: &Record) -> Row {
        let body = serde_json::to_string(&record.event).unwrap();
        Row { seq: record.seq.0 as i64, at: record.at.0 as i64, body, hash: vec![7; 32] }
    }
}

/// Numbers that no row had before, for rows that are written once more.
pub fn renumber(rows: &mut [Row], last: &mut i64) {
    for row in rows {
        *last += 1;
        row.seq = *last;
    }
}

pub trait Probe {
    fn commit(&mut self, rows: &[Row]);
}

struct Sqlite(Connection);

pub fn sqlite(path: &Path) -> Box<dyn Probe> {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 4000;
        CREATE TABLE journal (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, epoch INTEGER NOT NULL,
            body TEXT NOT NULL, hash BLOB NOT NULL) STRICT;",
    )
    .unwrap();
    Box::new(Sqlite(conn))
}

impl Probe for Sqlite {
    fn commit(&mut self, rows: &[Row]) {
        let tx = self.0.transaction().unwrap();
        {
            let insert =
                "INSERT INTO journal (seq, at, epoch, body, hash) VALUES (?1, ?2, ?3, ?4, ?5)";
            let mut insert = tx.prepare_cached(insert).unwrap();
            for row in rows {
                insert.execute(params![row.seq, row.at, 1, row.body, row.hash]).unwrap();
            }
        }
        tx.commit().unwrap();
    }
}

struct Postgres {
    runtime: Runtime,
    client: Client,
    insert: Statement,
}

pub fn postgres(url: &str) -> Box<dyn Probe> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let table = format!("probe{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (client, insert) = runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let create = format!(
            "CREATE TABLE {table} (seq BIGINT PRIMARY KEY, at BIGINT NOT NULL, epoch BIGINT NOT NULL,
                body TEXT NOT NULL, hash BYTEA NOT NULL)"
        );
        client.batch_execute(&create).await.unwrap();
        let insert = format!(
            "INSERT INTO {table} SELECT r.seq, r.at, 1, r.body, r.hash
            FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bytea[]) AS r(seq, at, body, hash)"
        );
        let insert = client.prepare(&insert).await.unwrap();
        (client, insert)
    });
    Box::new(Postgres { runtime, client, insert })
}

impl Probe for Postgres {
    fn commit(&mut self, rows: &[Row]) {
        let seqs: Vec<i64> = rows.iter().map(|row| row.seq).collect();
        let ats: Vec<i64> = rows.iter().map(|row| row.at).collect();
        let bodies: Vec<&str> = rows.iter().map(|row| row.body.as_str()).collect();
        let hashes: Vec<&[u8]> = rows.iter().map(|row| row.hash.as_slice()).collect();
        let insert =
            async { self.client.execute(&self.insert, &[&seqs, &ats, &bodies, &hashes]).await };
        self.runtime.block_on(insert).unwrap();
    }
}
