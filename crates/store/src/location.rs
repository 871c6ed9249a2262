//! Where a store is, and how durable it has to be.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tokio_postgres::config::Host;

use crate::error::Error;

/// PostgreSQL cuts names at 63 bytes, and a backup's name is longer than its schema's.
const PROJECT_CHARS_MAX: usize = 40;

/// What the schema of every project begins with.
const SCHEMA_START: &str = "kapelle_";

const NO_TLS: &str = "it asks for TLS (sslmode), which Kapelle does not speak yet: use a socket, a private \
                      network or a tunnel, and leave sslmode out";

#[derive(Clone, PartialEq, Eq)]
pub struct Location {
    pub(crate) place: Place,
    pub(crate) durability: Durability,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Sqlite(PathBuf),
    Postgres(Box<Server>),
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Server {
    pub config: tokio_postgres::Config,
    /// The schema of the project in that database.
    pub schema: String,
}

/// What an answer to an append means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// It survives `kill -9` and power loss.
    #[default]
    Full,
    /// It survives `kill -9`. After power loss the last moments may be missing, and nothing else.
    Normal,
}

impl Location {
    #[must_use]
    pub fn sqlite(path: &Path) -> Location {
        Location { place: Place::Sqlite(path.to_owned()), durability: Durability::Full }
    }

    /// A project in a PostgreSQL database, by `postgres://user@host/database`.
    pub fn postgres(url: &str, project: &str) -> Result<Location, Error> {
        let wrong = |why: String| Error::Address { why };
        // Refused rather than ignored: whoever asks for it relies on it.
        if ["sslmode=require", "sslmode=verify"].iter().any(|mode| url.contains(mode)) {
            return Err(wrong(NO_TLS.into()));
        }
        // What the parser says may quote the password.
        let config = tokio_postgres::Config::from_str(url)
            .map_err(|_| wrong("it does not read as postgres://user@host/database".into()))?;
        if config.get_hosts().is_empty() {
            return Err(wrong("it names no host".into()));
        }
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if project.is_empty() || project.len() > PROJECT_CHARS_MAX || !project.chars().all(legal) {
            return Err(wrong(format!(
                "the project {project:?} is not 1 to {PROJECT_CHARS_MAX} of a-z, 0-9 and _"
            )));
        }
        let server = Server { config, schema: format!("{SCHEMA_START}{project}") };
        Ok(Location { place: Place::Postgres(Box::new(server)), durability: Durability::Full })
    }

    #[must_use]
    pub fn with(mut self, durability: Durability) -> Location {
        self.durability = durability;
        self
    }

    /// The name of the project, if the store is a server's.
    #[must_use]
    pub fn project(&self) -> Option<&str> {
        match &self.place {
            Place::Sqlite(_) => None,
            Place::Postgres(server) => server.schema.strip_prefix(SCHEMA_START),
        }
    }

    /// The file, if the store is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::Sqlite(path) => Some(path),
            Place::Postgres(_) => None,
        }
    }
}

/// Where the tables for people are, beside the journal in `path`: `store.tables.db` for `store.db`,
/// `store-tables.db` for `store`. No two journals have the same.
#[must_use]
pub fn tables_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let tables = match name.strip_suffix(b".db") {
        Some(stem) => [stem, b".tables.db"].concat(),
        None => [name, b"-tables.db"].concat(),
    };
    path.with_file_name(OsString::from_vec(tables))
}

impl From<&Path> for Location {
    fn from(path: &Path) -> Location {
        Location::sqlite(path)
    }
}

impl From<&PathBuf> for Location {
    fn from(path: &PathBuf) -> Location {
        Location::sqlite(path)
    }
}

impl From<&Location> for Location {
    fn from(location: &Location) -> Location {
        location.clone()
    }
}

/// Never the user or the password.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Sqlite(path) => path.display().fmt(f),
            Place::Postgres(server) => server.fmt(f),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            Some(Host::Unix(path)) => path.display().to_string(),
            None => String::new(),
        };
        let database = self.config.get_dbname().unwrap_or("its user's database");
        write!(f, "schema {} in {database} on {host}", self.schema)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({self})")
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Location({self}, {:?})", self.durability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two journals in one folder that shared their tables would take them from each other.
    #[test]
    fn every_journal_has_tables_of_its_own() {
        let named = |name: &str| tables_path(Path::new(name)).to_str().unwrap().to_owned();
        assert_eq!(named("/a/store.db"), "/a/store.tables.db");
        assert_eq!(named("/a/store"), "/a/store-tables.db");
        assert_eq!(named("/a/store.x"), "/a/store.x-tables.db");
        let names = ["store", "store.db", "store.x", "store.tables", "store.tables.db", ".db"];
        let all: std::collections::BTreeSet<String> = names.map(named).into();
        assert_eq!(all.len(), names.len(), "{all:?}");
    }

    #[test]
    fn a_password_is_never_shown() {
        let url = "postgres://ada:geheim@db.example:5433/team";
        let location = Location::postgres(url, "web_shop").unwrap();
        let shown = format!("{location} {location:?}");
        assert!(shown.starts_with("schema kapelle_web_shop in team on db.example"), "{shown}");
        assert!(!shown.contains("geheim"), "{shown}");
        let wrong = "postgres://ada:geheim@db.example:port/team";
        let refused = Location::postgres(wrong, "x").unwrap_err().to_string();
        assert!(!refused.contains("geheim"), "{refused}");
    }

    /// Nobody who asks for an encrypted connection gets another one.
    #[test]
    fn a_connection_that_must_be_encrypted_is_refused() {
        for mode in ["require", "verify-ca", "verify-full"] {
            let url = format!("postgres://ada@db.example/team?sslmode={mode}");
            let refused = Location::postgres(&url, "x").unwrap_err().to_string();
            assert!(refused.contains("asks for TLS"), "{mode}: {refused}");
        }
        let url = "host=db.example user=ada sslmode=require";
        assert!(Location::postgres(url, "x").unwrap_err().to_string().contains("asks for TLS"));
        assert!(Location::postgres("postgres://ada@db.example/team?sslmode=prefer", "x").is_ok());
    }

    #[test]
    fn a_project_is_a_plain_name() {
        for wrong in ["", "Shop", "a-b", "a\"; DROP SCHEMA public; --", &"a".repeat(41)] {
            let refused = Location::postgres("postgres://ada@h/d", wrong).unwrap_err();
            assert!(matches!(refused, Error::Address { .. }), "{wrong:?}: {refused}");
        }
    }
}
