//! Leadership of a project on PostgreSQL: an advisory lock, which goes with its connection, and
//! behind it the epoch, which the database checks with every append.
//!
//! A holder whose machine is gone, or that is stopped, keeps its lock for a while. So whoever
//! wants the lead asks the holder; one that does not answer loses its connection. If it wakes up
//! later, its epoch is over.

use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::journal::look;
use super::link::{Link, Param};
use super::listen::{ASKED_AGAIN, Listener};
use super::sentinel;
use crate::error::Error;
use crate::journal::Epoch;
use crate::location::Server;
use crate::lock::Holder;
use crate::value::clamped;

/// The server needs a moment to notice that a process is gone.
const NOTICING: Duration = Duration::from_millis(500);

/// A holder that is alive answers at once; with the rest, a take-over stays below five seconds.
const ANSWERING: Duration = Duration::from_secs(3);

const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// What people are promised: so long after the death of a leader, somebody else leads.
const TAKE_OVER_MAX: Duration = Duration::from_secs(5);

// `take` waits for these three at most, one after the other, and for nothing else. The rest of the
// promise is for the server and the network.
const _: () = assert!(
    2 * NOTICING.as_millis() + ANSWERING.as_millis() + 500 <= TAKE_OVER_MAX.as_millis(),
    "a take-over may last longer than is promised"
);

/// Takes the lock of the project, or says who has it.
pub(super) fn take(link: &Link, server: &Server) -> Result<(), Error> {
    if try_for(link, server, NOTICING)? {
        if !somebody_answers(link, server)? {
            return Ok(());
        }
        // It will take it again with its next append.
        release(link, server)?;
        return Err(Error::Held { holder: holder(link)? });
    }
    // Asked for before the question: whoever has it after the answer is somebody else.
    let silent = locking(link, server)?;
    if Listener::start(server)?.ask(&server.schema, ANSWERING)? {
        return Err(Error::Held { holder: holder(link)? });
    }
    end(link, server, silent)?;
    if try_for(link, server, NOTICING)? {
        return Ok(());
    }
    // Somebody else was faster.
    Err(Error::Held { holder: holder(link)? })
}

/// Whether a lock that was free has a holder all the same: one that lost only the connection that
/// had it, and does not know yet. Where no sentinel is connected, nobody has to be waited for.
fn somebody_answers(link: &Link, server: &Server) -> Result<bool, Error> {
    let until = Instant::now() + ANSWERING;
    let mut listener = None;
    while Instant::now() < until {
        if !has_sentinel(link, server)? {
            return Ok(false);
        }
        let listener = match &listener {
            Some(listener) => listener,
            None => listener.insert(Listener::start(server)?),
        };
        if listener.ask(&server.schema, ASKED_AGAIN)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_sentinel(link: &Link, server: &Server) -> Result<bool, Error> {
    let sql = "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE application_name = $1
        AND datname = current_database())";
    let connected = link.query(sql, vec![Box::new(sentinel::name(server))])?;
    Ok(connected.first().is_some_and(|row| row.get(0)))
}

/// Who leads the project, without a question to it: somebody who hangs leads until another takes
/// over.
pub(super) fn leader(link: &Link, server: &Server) -> Result<Option<Holder>, Error> {
    let leads = locking(link, server)?.is_some() || has_sentinel(link, server)?;
    if leads { holder(link) } else { Ok(None) }
}

fn release(link: &Link, server: &Server) -> Result<(), Error> {
    link.query("SELECT pg_advisory_unlock($1)", vec![Box::new(key(server))]).map(drop)
}

fn try_for(link: &Link, server: &Server, patience: Duration) -> Result<bool, Error> {
    let until = Instant::now() + patience;
    loop {
        if try_once(link, server)? {
            return Ok(true);
        }
        if Instant::now() >= until {
            return Ok(false);
        }
        thread::sleep(BETWEEN_TRIES);
    }
}

/// Takes the lock for a leader whose connection was lost. The session of that connection may still
/// have it: one that nobody waits for any more goes on with what it was asked for.
pub(super) fn take_back(link: &Link, server: &Server, lost: i32) -> Result<bool, Error> {
    if try_once(link, server)? {
        return Ok(true);
    }
    end(link, server, Some(lost))?;
    try_for(link, server, NOTICING)
}

fn try_once(link: &Link, server: &Server) -> Result<bool, Error> {
    let key = key(server);
    let rows = link.query("SELECT pg_try_advisory_lock($1)", vec![Box::new(key)])?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}

/// Who has the lock of the project, as the server counts its processes.
const LOCKING: &str = "FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND ((classid::bigint << 32) | objid::bigint) = $1 AND pid <> pg_backend_pid()";

fn locking(link: &Link, server: &Server) -> Result<Option<i32>, Error> {
    let rows = link.query(&format!("SELECT pid {LOCKING}"), vec![Box::new(key(server))])?;
    Ok(rows.first().map(|row| row.get(0)))
}

/// Ends the connection that had the lock, if it still has it.
fn end(link: &Link, server: &Server, silent: Option<i32>) -> Result<(), Error> {
    let Some(silent) = silent else { return Ok(()) };
    let sql = format!("SELECT pg_terminate_backend(pid) {LOCKING} AND pid = $2");
    link.query(&sql, vec![Box::new(key(server)), Box::new(silent)]).map(drop)
}

/// Who claimed the current epoch, as it told.
pub(super) fn holder(link: &Link) -> Result<Option<Holder>, Error> {
    let rows = link.query("SELECT holder FROM meta", Vec::new())?;
    let told: Option<String> = rows.first().and_then(|row| row.get(0));
    Ok(told.and_then(|told| serde_json::from_str(&told).ok()))
}

/// A holder as others are told of it.
pub(super) fn told(holder: &Holder) -> String {
    serde_json::to_string(holder).unwrap_or_default()
}

pub(super) fn tell_holder(link: &Link, epoch: Epoch, holder: &Holder) -> Result<(), Error> {
    let sql = "UPDATE meta SET holder = $1 WHERE epoch = $2";
    link.execute(sql, vec![Box::new(told(holder)), Box::new(clamped(epoch.0))]).map(drop)
}

/// A division by nobody, if the epoch is over: the server refuses it, and all that went before.
const FENCE: &str = "WITH fence AS MATERIALIZED (
        SELECT epoch FROM meta WHERE epoch = $1 FOR KEY SHARE)
    SELECT 1 / count(*) FROM fence";

/// One transaction of whoever claimed this epoch; nothing, if that is over.
///
/// The fence comes last, and so is held for a moment only: whoever takes over waits for it, however
/// long the rest had to wait for somebody's question.
pub(super) fn fenced(
    link: &Link,
    epoch: Epoch,
    begin: &str,
    mut statements: Vec<(&str, Vec<Param<'_>>)>,
) -> Result<(), Error> {
    statements.push((FENCE, vec![Box::new(clamped(epoch.0))]));
    let done = link.transaction(begin, statements);
    done.map_err(|error| match refuse_stale(link, epoch) {
        Err(stale @ Error::StaleEpoch { .. }) => stale,
        _ => error,
    })
}

pub(super) fn refuse_stale(link: &Link, presented: Epoch) -> Result<(), Error> {
    let (_, current) = look(link)?;
    if current == presented { Ok(()) } else { Err(Error::StaleEpoch { presented, current }) }
}

/// The number of the project's lock.
fn key(server: &Server) -> i64 {
    let digest = Sha256::digest(format!("kapelle leads {}", server.schema));
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest[..8]);
    i64::from_be_bytes(bytes)
}
