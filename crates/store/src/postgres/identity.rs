//! Which schema an address leads to.

use super::link::{Link, Use};
use crate::error::Error;
use crate::location::Server;

/// What no two databases have in common: that of the cluster, with the moment in which its server
/// was started, because a copy of a cluster keeps its number; and that of the database in it. Every
/// role may ask for it.
const IDENTITY: &str = "SELECT concat_ws(' ', cluster.system_identifier,
        extract(epoch FROM pg_postmaster_start_time()), pg_database.oid)
    FROM pg_control_system() AS cluster, pg_database WHERE datname = current_database()";

/// Whether two addresses lead to the same schema: by host or by socket, as one role or another.
pub(crate) fn is_same_schema(one: &Server, other: &Server) -> Result<bool, Error> {
    Ok(one.schema == other.schema && identity(one)? == identity(other)?)
}

fn identity(server: &Server) -> Result<String, Error> {
    let told = Link::connect(server, Use::Reading)?.query(IDENTITY, Vec::new())?;
    let nothing = || Error::Database { what: "it does not say which one it is".into() };
    told.first().map(|row| row.get(0)).ok_or_else(nothing)
}
