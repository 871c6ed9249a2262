//! The store: the journal of a project, and the tables that people may query.
//!
//! The journal is the truth (`journal`), kept by SQLite, PostgreSQL or memory behind one contract
//! (`backend`). One connection writes it (`writer`), under leadership that one process holds at a time
//! (`lock`, and on PostgreSQL the database itself); others look on (`reader`), wait for more
//! (`follow`) and check it (`audit`). What SQL clients see (`tables`, `projections`) is folded behind
//! it and can always be made anew; so can snapshots and the search over it.
//!
//! Nothing here decides anything about missions, and nobody has to be asynchronous to use it.

// The server of the integration tests serves unit tests, too.
#[cfg(test)]
extern crate self as kapelle_store;

mod advice;
mod audit;
mod backend;
mod blobs;
mod error;
mod fingerprint;
mod follow;
mod journal;
mod location;
mod lock;
mod lost;
mod memory;
mod migrations;
mod open;
mod postgres;
mod projections;
mod reader;
mod rebuild;
pub mod search;
mod snapshot;
mod sqlite;
mod tables;
mod transfer;
mod value;
mod writer;

pub use advice::{SQLITE_AGENTS_MAX, SQLITE_AGENTS_WARNED, advice};
pub use audit::{AuditError, Broken, Verified, Why, verify};
pub use blobs::{BLOB_BYTES_MAX, blob_hash};
pub use error::Error;
pub use fingerprint::Fingerprint;
pub use follow::Follower;
pub use journal::{Epoch, Hash, Head, Journal, ParseHashError};
pub use location::{Durability, Location, tables_path};
pub use lock::{Holder, Leadership, holder, holder_of};
pub use memory::Memory;
pub use postgres::Postgres;
pub use reader::{History, Moment, Reader};
pub use rebuild::{Rebuilt, Repaired, Search, Was, accept_loss, rebuild};
pub use sqlite::Sqlite;
pub use tables::reference;
pub use transfer::{Carried, ExportError, Extent, bring_up_to_date, carry_over, import};
pub use writer::Writer;
