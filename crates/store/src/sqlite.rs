//! The store in SQLite files, one for the truth and one for the tables: no server, one writer for
//! each, readers on their own.

mod blobs;
mod complaint;
mod connection;
mod journal;
mod schema;
mod search;
mod snapshot;
mod tables;

pub(crate) use connection::is_same_file;
pub use journal::Sqlite;
