//! The store in one SQLite file: no server, one writer, readers on their own.

mod blobs;
mod connection;
mod journal;
mod schema;
mod search;
mod snapshot;
mod tables;

pub use journal::Sqlite;
