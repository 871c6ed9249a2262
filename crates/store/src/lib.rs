//! The store: the journal of a project, and the tables that people may query.
//!
//! The journal is the truth (`journal`, kept by `sqlite` or `memory`). One thread writes it
//! (`writer`), under leadership that one process holds at a time (`lock`); others look on
//! (`reader`) and check it (`audit`). What SQL clients see (`projections`) is folded behind it and
//! can always be made anew.
//!
//! Nothing here decides anything about missions, and nothing here is asynchronous.

mod audit;
mod connection;
mod error;
mod journal;
mod lock;
mod memory;
mod projections;
mod reader;
mod schema;
mod sqlite;
mod writer;

pub use audit::{AuditError, Broken, Verified, Why, verify};
pub use error::Error;
pub use journal::{Epoch, Hash, Head, Journal, ParseHashError};
pub use lock::{Holder, Leadership, holder};
pub use memory::Memory;
pub use reader::{History, Reader};
pub use sqlite::Sqlite;
pub use writer::Writer;
