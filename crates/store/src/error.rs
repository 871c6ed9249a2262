//! What can go wrong in a store, with the values that a person or a caller needs to act on it.
//!
//! Sources are shared, so that one failed commit can be told to everybody who waited for it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kapelle_core::Seq;

use crate::journal::Epoch;
use crate::lock::Holder;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("the journal stands at record {actual}, not at {expected}")]
    Conflict { expected: Seq, actual: Seq },
    /// Somebody else has taken over; whoever gets this must stop writing for good.
    #[error("epoch {presented} is not current: the store is at epoch {current}")]
    StaleEpoch { presented: Epoch, current: Epoch },
    #[error("record {found} does not follow record {after}")]
    Gap { after: Seq, found: Seq },
    #[error("record {seq} cannot be written: {source}")]
    Unwritable { seq: Seq, source: Arc<serde_json::Error> },
    #[error("record {seq} cannot be read: {source}")]
    Unreadable { seq: Seq, source: Arc<serde_json::Error> },
    #[error("{what} {value} does not fit the store")]
    OutOfRange { what: &'static str, value: String },

    #[error(
        "{} was written by a newer version: its schema is {found}, this version knows {known}",
        path.display()
    )]
    TooNew { path: PathBuf, found: i64, known: i64 },
    #[error("{} is not a store of Kapelle", path.display())]
    NotAStore { path: PathBuf },
    #[error("{} is a symbolic link or another special file", path.display())]
    NotPlainFile { path: PathBuf },
    #[error("the database did not take {setting} = {wanted}: it is {found}")]
    Setting { setting: &'static str, wanted: &'static str, found: String },
    #[error("SQLite {found} is too old, {needed} is needed")]
    SqliteTooOld { found: &'static str, needed: &'static str },

    /// None: it holds the lock but has not said yet who it is.
    #[error("{}", held(holder.as_ref()))]
    Held { holder: Option<Holder> },

    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: Arc<io::Error> },
    #[error("the database failed: {0}")]
    Sqlite(#[source] Arc<rusqlite::Error>),
    #[error("the writer of the store has ended")]
    WriterGone,
}

impl Error {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::Io { path, source: Arc::new(source) }
    }
}

impl From<rusqlite::Error> for Error {
    fn from(source: rusqlite::Error) -> Error {
        Error::Sqlite(Arc::new(source))
    }
}

fn held(holder: Option<&Holder>) -> String {
    match holder {
        Some(Holder { pid, url: Some(url), .. }) => {
            format!("process {pid} already leads this project, at {url}")
        }
        Some(Holder { pid, url: None, .. }) => format!("process {pid} already leads this project"),
        None => "another process already leads this project".into(),
    }
}
