//! Contents by their hash, each with those who need it.

use super::lead::{fenced, refuse_stale};
use super::link::{Link, Param};
use crate::error::Error;
use crate::journal::Epoch;
use crate::value::clamped;

pub(super) fn put(
    link: &Link,
    epoch: Epoch,
    hash: &str,
    body: &[u8],
    owners: &[String],
) -> Result<(), Error> {
    let keep = "INSERT INTO blobs (hash, body) VALUES ($1, $2) ON CONFLICT (hash) DO NOTHING";
    let own =
        "INSERT INTO blob_owners (hash, owner) SELECT $1, owner FROM unnest($2::text[]) AS owner
        ON CONFLICT (hash, owner) DO NOTHING";
    let kept: Vec<Param<'_>> = vec![Box::new(hash), Box::new(body)];
    let owned: Vec<Param<'_>> = vec![Box::new(hash), Box::new(owners)];
    fenced(link, epoch, "BEGIN", vec![(keep, kept), (own, owned)])
}

pub(super) fn get(link: &Link, hash: &str) -> Result<Option<Vec<u8>>, Error> {
    let sql = "SELECT body FROM blobs WHERE hash = $1";
    let rows = link.query(sql, vec![Box::new(hash)])?;
    Ok(rows.first().map(|row| row.get(0)))
}

pub(super) fn release(link: &Link, epoch: Epoch, owner: &str) -> Result<(), Error> {
    let sql = "DELETE FROM blob_owners WHERE owner = $1";
    fenced(link, epoch, "BEGIN", vec![(sql, vec![Box::new(owner)])])
}

pub(super) fn ownerless(link: &Link) -> Result<Vec<String>, Error> {
    let sql = "SELECT hash FROM blobs
        WHERE NOT EXISTS (SELECT 1 FROM blob_owners o WHERE o.hash = blobs.hash)
        ORDER BY hash";
    Ok(link.query(sql, Vec::new())?.iter().map(|row| row.get(0)).collect())
}

/// One that got an owner meanwhile stays; the foreign key would not let it go either.
pub(super) fn remove(link: &Link, epoch: Epoch, hashes: &[String]) -> Result<u64, Error> {
    // One statement says how many; the fence is a part of it.
    let sql = "WITH fence AS MATERIALIZED (SELECT epoch FROM meta WHERE epoch = $2 FOR KEY SHARE)
        DELETE FROM blobs USING fence WHERE hash = ANY($1)
        AND NOT EXISTS (SELECT 1 FROM blob_owners o WHERE o.hash = blobs.hash)";
    let removed = link.execute(sql, vec![Box::new(hashes), Box::new(clamped(epoch.0))])?;
    if removed == 0 {
        refuse_stale(link, epoch)?;
    }
    Ok(removed)
}

pub(super) fn all(link: &Link) -> Result<Vec<(String, Vec<String>)>, Error> {
    let sql = "SELECT hash, coalesce((SELECT array_agg(owner) FROM blob_owners o
        WHERE o.hash = blobs.hash), '{}') FROM blobs ORDER BY hash COLLATE \"C\"";
    let rows = link.query(sql, Vec::new())?;
    let with_owners = |row: &tokio_postgres::Row| {
        let mut owners: Vec<String> = row.get(1);
        owners.sort();
        (row.get(0), owners)
    };
    Ok(rows.iter().map(with_owners).collect())
}
