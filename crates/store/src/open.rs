//! From a location to the engine of storage that is there.

use crate::backend::Backend;
use crate::error::Error;
use crate::location::{Location, Place};
use crate::postgres::Postgres;
use crate::sqlite::Sqlite;

/// For writing; creates what is missing and migrates what is old.
pub(crate) fn open(location: &Location) -> Result<Box<dyn Backend>, Error> {
    Ok(match &location.place {
        Place::Sqlite(path) => Box::new(Sqlite::open_with(path, location.durability)?),
        Place::Postgres(_) => Box::new(Postgres::open(location)?),
    })
}

pub(crate) fn open_read_only(location: &Location) -> Result<Box<dyn Backend>, Error> {
    Ok(match &location.place {
        Place::Sqlite(path) => Box::new(Sqlite::open_read_only(path)?),
        Place::Postgres(_) => Box::new(Postgres::open_read_only(location)?),
    })
}
