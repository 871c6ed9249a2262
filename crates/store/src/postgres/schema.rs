//! Which version a project's schema is of, and how it becomes the current one.

use super::link::Link;
use crate::error::Error;
use crate::location::Server;
use crate::migrations::{VERSION, after};

/// Any number that only we use: two servers may meet an empty database.
const MIGRATING: i64 = 0x4b41_5045_0001;

/// Brings the schema up to date, all of it or nothing. What was there is copied first.
pub(super) fn migrate(link: &Link, server: &Server) -> Result<(), Error> {
    if found(link, server)? == Some(VERSION) {
        return Ok(());
    }
    link.batch(&format!("BEGIN; SELECT pg_advisory_xact_lock({MIGRATING})"))?;
    let done = migrate_alone(link, server);
    link.batch(if done.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    done
}

fn migrate_alone(link: &Link, server: &Server) -> Result<(), Error> {
    let schema = &server.schema;
    let version = found(link, server)?;
    match version {
        Some(VERSION) => return Ok(()),
        Some(older) => back_up(link, schema, older)?,
        None => link.batch(&format!("CREATE SCHEMA IF NOT EXISTS {schema}"))?,
    }
    for migration in after(version.unwrap_or(0)) {
        link.batch(migration.postgres)?;
    }
    link.batch(&format!("UPDATE meta SET version = {VERSION}"))
}

/// A copy of the truth as it was, in a schema of its own. One that is there already is of an
/// earlier store of that name, and is kept.
fn back_up(link: &Link, schema: &str, version: i64) -> Result<(), Error> {
    let backup = format!("{schema}_v{version}_backup");
    link.batch(&format!(
        "CREATE SCHEMA {backup};
        CREATE TABLE {backup}.meta AS TABLE {schema}.meta;
        CREATE TABLE {backup}.journal AS TABLE {schema}.journal;"
    ))
}

/// The version of the schema, if there is one; an error if it is newer than we know.
pub(super) fn found(link: &Link, server: &Server) -> Result<Option<i64>, Error> {
    let name = format!("{}.meta", server.schema);
    let exists = link.query("SELECT to_regclass($1) IS NOT NULL", vec![Box::new(name)])?;
    if !exists.first().is_some_and(|row| row.get(0)) {
        return Ok(None);
    }
    let rows = link.query("SELECT version FROM meta", Vec::new())?;
    let found = rows.first().map(|row| row.get::<_, i64>(0));
    match found {
        Some(found) if found > VERSION => {
            Err(Error::TooNew { store: server.to_string(), found, known: VERSION })
        }
        found => Ok(found),
    }
}
