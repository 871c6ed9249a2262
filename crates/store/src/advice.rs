//! What a store is rated for.

use crate::location::{Location, Place};

/// One file has one writer; beyond this many agents people begin to wait for each other.
pub const SQLITE_AGENTS_WARNED: u32 = 20;

/// Beyond this many, a server is the better place.
pub const SQLITE_AGENTS_MAX: u32 = 50;

/// What to tell somebody who wants so many agents at work at the same time on this store.
#[must_use]
pub fn advice(location: &Location, agents: u32) -> Option<String> {
    match &location.place {
        Place::Postgres(_) => None,
        Place::Sqlite(_) if agents >= SQLITE_AGENTS_MAX => Some(format!(
            "{agents} agents at a time are more than a SQLite store is rated for \
             ({SQLITE_AGENTS_MAX}): move it to PostgreSQL with `kapelle store move`"
        )),
        Place::Sqlite(_) if agents >= SQLITE_AGENTS_WARNED => Some(format!(
            "{agents} agents at a time are many for a SQLite store; from {SQLITE_AGENTS_MAX} on, \
             PostgreSQL is recommended"
        )),
        Place::Sqlite(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn sqlite_warns_at_twenty_and_recommends_postgres_at_fifty() {
        let file = Location::sqlite(Path::new("db"));
        assert_eq!(advice(&file, 19), None);
        assert!(advice(&file, 20).unwrap().contains("many for a SQLite store"));
        assert!(advice(&file, 49).unwrap().contains("many for a SQLite store"));
        assert!(advice(&file, 50).unwrap().contains("kapelle store move"));
        let server = Location::postgres("postgres://ada@h/d", "x").unwrap();
        assert_eq!(advice(&server, 500), None);
    }
}
