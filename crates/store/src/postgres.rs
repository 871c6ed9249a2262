//! The store in a PostgreSQL database, for more than one machine: a schema for every project.

mod blobs;
mod journal;
mod lead;
mod link;
mod listen;
mod schema;
mod search;
mod sentinel;
mod tables;

pub use journal::Postgres;
pub(crate) use listen::Listener;
