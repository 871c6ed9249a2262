//! The store in a PostgreSQL database, for more than one machine: a schema for every project.

mod blobs;
mod identity;
mod journal;
mod lead;
mod link;
mod listen;
mod schema;
mod search;
mod sentinel;
mod tables;

pub(crate) use identity::is_same_schema;
pub use journal::Postgres;
pub(crate) use listen::Listener;
