//! Contents by their hash, each with those who need it.

use rusqlite::{Connection, OptionalExtension, params};

use crate::error::Error;

pub(super) fn put(
    conn: &Connection,
    hash: &str,
    body: &[u8],
    owners: &[String],
) -> Result<(), Error> {
    let keep = "INSERT INTO blobs (hash, body) VALUES (?1, ?2) ON CONFLICT (hash) DO NOTHING";
    conn.prepare_cached(keep)?.execute(params![hash, body])?;
    let own = "INSERT INTO blob_owners (hash, owner) VALUES (?1, ?2)
        ON CONFLICT (hash, owner) DO NOTHING";
    for owner in owners {
        conn.prepare_cached(own)?.execute([hash, owner])?;
    }
    Ok(())
}

pub(super) fn get(conn: &Connection, hash: &str) -> Result<Option<Vec<u8>>, Error> {
    let mut body = conn.prepare_cached("SELECT body FROM blobs WHERE hash = ?1")?;
    Ok(body.query_row([hash], |row| row.get(0)).optional()?)
}

pub(super) fn ownerless(conn: &Connection) -> Result<Vec<String>, Error> {
    let mut statement = conn.prepare(
        "SELECT hash FROM blobs
        WHERE NOT EXISTS (SELECT 1 FROM blob_owners o WHERE o.hash = blobs.hash) ORDER BY hash",
    )?;
    let hashes = statement.query_map([], |row| row.get(0))?;
    Ok(hashes.collect::<Result<_, _>>()?)
}

/// One that got an owner meanwhile stays; the foreign key would not let it go either.
pub(super) fn remove(conn: &Connection, hashes: &[String]) -> Result<u64, Error> {
    let mut statement = conn.prepare(
        "DELETE FROM blobs WHERE hash = ?1
        AND NOT EXISTS (SELECT 1 FROM blob_owners o WHERE o.hash = blobs.hash)",
    )?;
    let mut removed = 0;
    for hash in hashes {
        removed += statement.execute([hash])? as u64;
    }
    Ok(removed)
}

pub(super) fn all(conn: &Connection) -> Result<Vec<(String, Vec<String>)>, Error> {
    let mut statement = conn.prepare("SELECT hash FROM blobs ORDER BY hash")?;
    let hashes: Vec<String> =
        statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut owners =
        conn.prepare("SELECT owner FROM blob_owners WHERE hash = ?1 ORDER BY owner")?;
    let with_owners = |hash: String| {
        let owners = owners.query_map([&hash], |row| row.get(0))?.collect::<Result<_, _>>()?;
        Ok((hash, owners))
    };
    hashes.into_iter().map(with_owners).collect()
}
