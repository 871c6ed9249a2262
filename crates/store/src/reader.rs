//! A look at a store from beside: other processes read while one writes.
//!
//! Invariant: nothing here can write, and nothing here waits for the writer.

use std::path::Path;

use kapelle_core::{Record, Seq};
use rusqlite::Connection;

use crate::error::Error;
use crate::journal::Head;
use crate::{connection, projections, sqlite};

/// Enough to keep SQLite busy, little enough to keep in memory.
const PAGE_RECORDS: usize = 1_000;

#[derive(Debug)]
pub struct Reader {
    conn: Connection,
}

impl Reader {
    pub fn open(path: &Path) -> Result<Reader, Error> {
        Ok(Reader { conn: connection::open_read_only(path)? })
    }

    pub fn head(&self) -> Result<Head, Error> {
        sqlite::head(&self.conn)
    }

    pub fn store_id(&self) -> Result<String, Error> {
        sqlite::store_id(&self.conn)
    }

    /// At most `limit` records that come after `after`, in order.
    pub fn records(&self, after: Seq, limit: usize) -> Result<Vec<Record>, Error> {
        sqlite::records(&self.conn, after, limit)
    }

    /// Everything that comes after `after`, page by page.
    #[must_use]
    pub fn history(&self, after: Seq) -> History<'_> {
        History { reader: self, after, page: Vec::new().into_iter(), ended: false }
    }

    /// How far the tables for people reach.
    pub fn watermark(&self) -> Result<Seq, Error> {
        projections::watermark(&self.conn)
    }
}

/// The records of a journal in order; ends at the first that cannot be read.
#[derive(Debug)]
pub struct History<'a> {
    reader: &'a Reader,
    after: Seq,
    page: std::vec::IntoIter<Record>,
    ended: bool,
}

impl Iterator for History<'_> {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Result<Record, Error>> {
        if self.page.len() == 0 && !self.ended {
            match self.reader.records(self.after, PAGE_RECORDS) {
                Ok(page) => {
                    self.ended = page.len() < PAGE_RECORDS;
                    self.page = page.into_iter();
                }
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        let record = self.page.next()?;
        self.after = record.seq;
        Some(Ok(record))
    }
}
