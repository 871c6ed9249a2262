//! The journal in a PostgreSQL schema.
//!
//! Invariant: an append is one statement, and so one transaction. It writes nothing unless the
//! store's epoch is the appender's and the journal ends where it was expected to, and it holds the
//! epoch's row while it writes, so that nobody can take over in between.
//!
//! Who holds that row, and how: an append for itself alone (NO KEY UPDATE), a fold of the tables
//! beside it (KEY SHARE), so that neither waits for the other; whoever takes over, against both
//! (UPDATE).

use std::cell::RefCell;
use std::thread;
use std::time::{Duration, Instant};

use kapelle_core::{Record, Seq, Timestamp};
use tokio_postgres::Row;

use super::link::{End, LIGHTLY, Link, Param, Use};
use super::sentinel::{CLAIMED, Sentinel};
use super::{blobs, lead, schema, search, tables};
use crate::backend::{self, Admitted, Backend, Kept, Request, Tell, Told, admit_group};
use crate::error::Error;
use crate::journal::{Epoch, Hash, Head, Journal, Link as Entry, event, refuse_hole};
use crate::location::{Location, Place, Server};
use crate::lock::Holder;
use crate::projections::Changes;
use crate::search::{Document, Query};
use crate::tables::Table;
use crate::value::{Value, clamped};

/// How long an append waits for a server that restarts, before it gives up.
const RESTART_PATIENCE: Duration = Duration::from_secs(30);
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

const APPEND: &str =
    "WITH fence AS MATERIALIZED (SELECT epoch FROM meta WHERE epoch = $1 FOR NO KEY UPDATE)
    INSERT INTO journal (seq, at, epoch, body, hash)
    SELECT r.seq, r.at, fence.epoch, r.body, r.hash
    FROM fence, unnest($2::bigint[], $3::bigint[], $4::text[], $5::bytea[])
        AS r(seq, at, body, hash)
    WHERE (SELECT coalesce(max(seq), 0) FROM journal) = $6";

#[derive(Debug)]
pub struct Postgres {
    server: Server,
    purpose: Use,
    /// Goes before the connection that has the lock: whoever gets that must not be told that we are
    /// alive.
    lead: Option<Lead>,
    /// Replaced when it was lost.
    link: RefCell<Link>,
    /// The last look: what an append is tried with first.
    head: Head,
    epoch: Epoch,
}

#[derive(Debug)]
struct Lead {
    epoch: Epoch,
    holder: Holder,
    /// Tells others that we are alive, for as long as we have the lead, and us when that is over.
    sentinel: Sentinel,
}

impl Postgres {
    /// Opens the project's schema, and creates it if there is none. One that is there is left as
    /// it is: somebody else may lead it, with another version. Whoever claims its epoch brings it
    /// up to date.
    pub fn open(location: &Location) -> Result<Postgres, Error> {
        let server = server(location)?;
        let purpose = Use::Writing(location.durability);
        let link = Link::connect(&server, purpose)?;
        schema::create(&link, &server)?;
        Postgres::at(server, purpose, link)
    }

    pub(crate) fn open_read_only(location: &Location) -> Result<Postgres, Error> {
        let server = server(location)?;
        let link = Link::connect(&server, Use::Reading)?;
        match schema::found(&link, &server)? {
            Some(crate::migrations::VERSION) => Postgres::at(server, Use::Reading, link),
            Some(found) => Err(Error::TooOld { store: server.to_string(), found }),
            None => Err(Error::NoStore { store: server.to_string() }),
        }
    }

    fn at(server: Server, purpose: Use, link: Link) -> Result<Postgres, Error> {
        let (head, epoch) = look(&link)?;
        Ok(Postgres { server, purpose, link: RefCell::new(link), head, epoch, lead: None })
    }

    /// Works on the connection, or on a new one if it was lost.
    fn on<T>(&self, work: impl FnOnce(&Link) -> Result<T, Error>) -> Result<T, Error> {
        let is_closed = self.link.borrow().is_closed();
        self.on_this_or_new(is_closed, work)
    }

    /// The same without a look before, for whoever finds out by itself what became of it.
    fn trying<T>(&self, work: impl FnOnce(&Link) -> Result<T, Error>) -> Result<T, Error> {
        let is_closed = self.link.borrow().is_known_to_be_closed();
        self.on_this_or_new(is_closed, work)
    }

    fn on_this_or_new<T>(
        &self,
        is_closed: bool,
        work: impl FnOnce(&Link) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if is_closed {
            // What was written in it is gone; it must not go on without.
            if self.link.borrow().is_in_transaction() {
                return Err(Error::Lost { what: "in the middle of a transaction".into() });
            }
            self.reconnect()?;
        }
        work(&self.link.borrow())
    }

    /// With a new connection comes a new lock, if nobody has taken over meanwhile.
    fn reconnect(&self) -> Result<(), Error> {
        let link = Link::connect(&self.server, self.purpose)?;
        if let Some(lead) = &self.lead {
            let (_, current) = look(&link)?;
            if current != lead.epoch {
                return Err(Error::StaleEpoch { presented: lead.epoch, current });
            }
            if !lead::take_back(&link, &self.server, self.link.borrow().session)? {
                let what = "somebody else holds the lock of the project".into();
                return Err(Error::Lost { what });
            }
        }
        self.link.replace(link);
        Ok(())
    }

    fn claim(&mut self, holder: Option<&Holder>) -> Result<Epoch, Error> {
        let hold = ("SELECT epoch FROM meta FOR UPDATE", Vec::new());
        // Together: whoever is refused from now on is told the right name.
        let told: Vec<Param<'_>> = vec![Box::new(holder.map(lead::told))];
        let claim = ("UPDATE meta SET epoch = epoch + 1, holder = coalesce($1, holder)", told);
        let word: Vec<Param<'_>> = vec![Box::new(&self.server.schema), Box::new(CLAIMED)];
        let word = (tables::NOTIFY, word);
        self.on(|link| link.transaction("BEGIN", vec![hold, claim, word]))?;
        // Looked at after the claim: nobody but us can have written since.
        self.look_again()?;
        Ok(self.epoch)
    }

    /// For whoever has claimed the epoch: nobody else can write any more.
    fn bring_up_to_date(&self) -> Result<(), Error> {
        self.on(|link| schema::migrate(link, &self.server))?;
        self.on(|link| tables::prepare(link, &self.server.schema))
    }

    fn look_again(&mut self) -> Result<(), Error> {
        (self.head, self.epoch) = self.on(look)?;
        Ok(())
    }

    /// Tries with what was seen last; if the database does not agree, looks and tries once more.
    fn write_group(&mut self, group: &[Request<'_>]) -> Result<Admitted, Error> {
        let admitted = admit_group((self.head, self.epoch), group);
        if !admitted.links.is_empty() && self.insert(&admitted)? {
            return Ok(admitted);
        }
        let (known, led) = (self.head, self.epoch);
        self.look_again()?;
        if self.epoch == led && self.head.seq < known.seq {
            // The server lost what it acknowledged, and nobody else was there to write.
            let seq = Seq(self.head.seq.0 + 1);
            self.head = known;
            return Err(Error::Missing { seq });
        }
        let admitted = admit_group((self.head, self.epoch), group);
        if admitted.links.is_empty() || self.insert(&admitted)? {
            return Ok(admitted);
        }
        // Somebody wrote between the look and the append: whoever that is, it is not us.
        let (expected, epoch) = (self.head.seq, self.epoch);
        self.look_again()?;
        if self.epoch != epoch {
            return Err(Error::StaleEpoch { presented: epoch, current: self.epoch });
        }
        Err(Error::Conflict { expected, actual: self.head.seq })
    }

    /// Whether the database took it. A connection that is lost on the way leaves that open; the
    /// journal itself tells, as soon as it can be reached again.
    fn insert(&self, admitted: &Admitted) -> Result<bool, Error> {
        let mut lost_at = None;
        loop {
            let lost = match self.trying(|link| insert(link, self.epoch, self.head.seq, admitted)) {
                // The server may still carry out what a lost connection asked for. Whoever asks
                // again waits for that, without seeing it, and then writes the same once more.
                Err(lost @ (Error::Lost { .. } | Error::Duplicate { .. })) => lost,
                outcome => return outcome,
            };
            let until = *lost_at.get_or_insert_with(Instant::now) + RESTART_PATIENCE;
            loop {
                match self.on(|link| look_for(link, admitted.head)) {
                    Ok((head, epoch)) if head == admitted.head && epoch == self.epoch => {
                        return Ok(true);
                    }
                    Ok((head, _)) if head == self.head => break,
                    Ok(_) => return Ok(false),
                    Err(Error::Lost { .. }) if Instant::now() < until => {
                        thread::sleep(BETWEEN_TRIES);
                    }
                    Err(Error::Lost { .. }) => return Err(lost),
                    Err(error) => return Err(error),
                }
            }
            if Instant::now() >= until {
                return Err(lost);
            }
            thread::sleep(BETWEEN_TRIES);
        }
    }
}

fn server(location: &Location) -> Result<Server, Error> {
    match &location.place {
        Place::Postgres(server) => Ok((**server).clone()),
        Place::Sqlite(_) => Err(Error::Address { why: "it is a file, not a server".into() }),
    }
}

impl Journal for Postgres {
    fn claim_epoch(&mut self) -> Result<Epoch, Error> {
        let epoch = self.claim(None)?;
        self.bring_up_to_date()?;
        Ok(epoch)
    }

    fn head(&self) -> Head {
        self.head
    }

    fn append(&mut self, epoch: Epoch, expected: Seq, records: &[Record]) -> Result<Head, Error> {
        let request = Request { epoch, expected, records: records.into() };
        self.append_group(&[request]).pop().unwrap_or(Ok(self.head))
    }

    fn read(&self, after: Seq, limit: usize) -> Result<Vec<Record>, Error> {
        let sql = "SELECT seq, at, body FROM journal WHERE seq > $1 ORDER BY seq LIMIT $2";
        let rows = self.on(|link| link.query(sql, page(after, limit)))?;
        let mut last = after;
        let record = |row: &Row| {
            let (seq, at) = (Seq(unsigned(row, 0)), Timestamp(unsigned(row, 1)));
            refuse_hole(last, seq)?;
            last = seq;
            Ok(Record { seq, at, event: event(seq, row.get::<_, &str>(2).as_bytes())? })
        };
        rows.iter().map(record).collect()
    }
}

impl Backend for Postgres {
    fn lead(&mut self, holder: &Holder) -> Result<Epoch, Error> {
        let server = self.server.clone();
        self.on(|link| lead::take(link, &server))?;
        let epoch = self.claim(Some(holder))?;
        // Before the rest, which takes long where there is much to copy.
        let sentinel = Sentinel::post(&server, epoch)?;
        self.lead = Some(Lead { epoch, holder: holder.clone(), sentinel });
        self.bring_up_to_date()?;
        Ok(epoch)
    }

    fn when_deposed(&self, tell: Tell) {
        if let Some(lead) = &self.lead {
            lead.sentinel.when_deposed(tell);
        }
    }

    fn publish(&mut self, epoch: Epoch, url: &str) -> Result<(), Error> {
        let Some(lead) = &mut self.lead else { return Ok(()) };
        lead.holder.url = Some(url.to_owned());
        let holder = lead.holder.clone();
        self.on(|link| lead::tell_holder(link, epoch, &holder))
    }

    fn leader(&self) -> Result<Option<Holder>, Error> {
        self.on(|link| lead::leader(link, &self.server))
    }

    fn append_group(&mut self, group: &[Request<'_>]) -> Vec<Result<Head, Error>> {
        match self.write_group(group) {
            Ok(Admitted { head, outcomes, .. }) => {
                self.head = head;
                outcomes
            }
            Err(error) => group.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn all_or_nothing(&mut self, work: &mut backend::Writes<'_>) -> Result<(), Error> {
        self.on(Link::begin)?;
        let done = work(self);
        let end = if done.is_ok() { End::Commit } else { End::RollBack };
        let ended = self.link.borrow().end(end);
        done.and(ended)?;
        self.look_again()
    }

    fn adopt(&mut self, after: Seq, rows: &[backend::Row]) -> Result<(), Error> {
        self.look_again()?;
        if self.head.seq != after {
            return Err(Error::Conflict { expected: after, actual: self.head.seq });
        }
        let Some(last) = rows.last() else { return Ok(()) };
        let insert = "INSERT INTO journal (seq, at, epoch, body, hash)
            SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bytea[])";
        let numbers = |of: fn(&backend::Row) -> i64| rows.iter().map(of).collect::<Vec<i64>>();
        let params: Vec<Param<'_>> = vec![
            Box::new(numbers(|row| row.seq)),
            Box::new(numbers(|row| row.at)),
            Box::new(numbers(|row| row.epoch)),
            Box::new(rows.iter().map(|row| String::from_utf8_lossy(&row.body)).collect::<Vec<_>>()),
            Box::new(rows.iter().map(|row| row.hash.as_slice()).collect::<Vec<_>>()),
        ];
        let epoch = "UPDATE meta SET epoch = greatest(epoch, $1)";
        let epoch_param: Vec<Param<'_>> = vec![Box::new(last.epoch)];
        let statements = vec![(insert, params), (epoch, epoch_param)];
        self.on(|link| link.transaction("BEGIN", statements))?;
        self.look_again()
    }

    fn store_id(&self) -> Result<String, Error> {
        let rows = self.on(|link| link.query("SELECT store_id FROM meta", Vec::new()))?;
        rows.first().map(|row| row.get(0)).ok_or_else(|| nothing("meta"))
    }

    fn look(&self) -> Result<(Head, Epoch), Error> {
        self.on(look)
    }

    fn rows(&self, after: Seq, limit: usize) -> Result<Vec<backend::Row>, Error> {
        let sql = "SELECT seq, at, epoch, body, hash FROM journal WHERE seq > $1
            ORDER BY seq LIMIT $2";
        let rows = self.on(|link| link.query(sql, page(after, limit)))?;
        let row = |row: &Row| backend::Row {
            seq: row.get(0),
            at: row.get(1),
            epoch: row.get(2),
            body: row.get::<_, &str>(3).as_bytes().to_vec(),
            hash: row.get(4),
        };
        Ok(rows.iter().map(row).collect())
    }

    fn has_record(&self, hash: Hash) -> Result<bool, Error> {
        let sql = "SELECT EXISTS (SELECT 1 FROM journal WHERE hash = $1)";
        let rows = self.on(|link| link.query(sql, vec![Box::new(hash.0.to_vec())]))?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    fn told(&self) -> Result<Option<Told>, Error> {
        self.on(tables::told)
    }

    fn missing_tables(&self) -> Result<Vec<&'static str>, Error> {
        self.on(|link| tables::missing(link, &self.server.schema))
    }

    fn watermark(&self) -> Result<Seq, Error> {
        self.on(tables::watermark)
    }

    fn write_rows(
        &mut self,
        epoch: Epoch,
        changes: &Changes,
        span: (Seq, Seq),
    ) -> Result<(), Error> {
        self.on(|link| tables::write(link, epoch, changes, span, &self.server.schema))
    }

    fn announce(&self, head: Seq) -> Result<(), Error> {
        let word: Vec<Param<'_>> =
            vec![Box::new(&self.server.schema), Box::new(tables::word(head))];
        self.on(move |link| link.execute(tables::NOTIFY, word).map(drop))
    }

    fn complain(&mut self, epoch: Epoch, why: &str) -> Result<(), Error> {
        self.on(|link| tables::complain(link, epoch, why))
    }

    fn complaint(&self) -> Result<Option<String>, Error> {
        self.on(tables::complaint)
    }

    fn create_tables_anew(&mut self) -> Result<(), Error> {
        self.on(|link| tables::create_anew(link, &self.server.schema))
    }

    fn table(&self, table: &Table) -> Result<Vec<Vec<Value>>, Error> {
        self.on(|link| tables::rows(link, table))
    }

    fn searchable(&self) -> Result<Seq, Error> {
        let sql = "SELECT seq FROM search_watermark";
        let rows = self.on(|link| link.query(sql, Vec::new()))?;
        Ok(Seq(rows.first().map_or(0, |row| unsigned(row, 0))))
    }

    fn index(
        &mut self,
        epoch: Epoch,
        documents: &[Document],
        mark: Option<Seq>,
    ) -> Result<(), Error> {
        self.on(|link| search::index(link, epoch, documents, mark))
    }

    fn search(&self, query: &Query) -> Result<Vec<Document>, Error> {
        self.on(|link| search::search(link, query))
    }

    fn kept_documents(&self) -> Result<Kept, Error> {
        self.on(search::kept)
    }

    fn complain_of_search(&mut self, epoch: Epoch, why: &str) -> Result<(), Error> {
        self.on(|link| tables::complain_of_search(link, epoch, why))
    }

    fn end_search_complaint(&mut self, epoch: Epoch) -> Result<(), Error> {
        self.on(|link| tables::end_search_complaint(link, epoch))
    }

    fn search_complaint(&self) -> Result<Option<String>, Error> {
        self.on(tables::search_complaint)
    }

    fn create_search_anew(&mut self, epoch: Epoch, kept: &[Document]) -> Result<(), Error> {
        self.on(|link| search::create_anew(link, epoch, kept))
    }

    fn put_blob(
        &mut self,
        epoch: Epoch,
        hash: &str,
        body: &[u8],
        owners: &[String],
    ) -> Result<(), Error> {
        self.on(|link| blobs::put(link, epoch, hash, body, owners))
    }

    fn blob(&self, hash: &str) -> Result<Option<Vec<u8>>, Error> {
        self.on(|link| blobs::get(link, hash))
    }

    fn release_blobs(&mut self, epoch: Epoch, owner: &str) -> Result<(), Error> {
        self.on(|link| blobs::release(link, epoch, owner))
    }

    fn ownerless_blobs(&self) -> Result<Vec<String>, Error> {
        self.on(blobs::ownerless)
    }

    fn remove_blobs(&mut self, epoch: Epoch, hashes: &[String]) -> Result<u64, Error> {
        self.on(|link| blobs::remove(link, epoch, hashes))
    }

    fn blobs(&self) -> Result<Vec<(String, Vec<String>)>, Error> {
        self.on(blobs::all)
    }

    fn snapshot(&self) -> Result<Option<Vec<u8>>, Error> {
        let rows = self.on(|link| link.query("SELECT body FROM snapshots", Vec::new()))?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    fn snapshot_start(&self, bytes: usize) -> Result<Option<Vec<u8>>, Error> {
        let sql = "SELECT substring(body FROM 1 FOR $1) FROM snapshots";
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        let rows = self.on(|link| link.query(sql, vec![Box::new(bytes)]))?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    fn keep_snapshot(&mut self, body: &[u8]) -> Result<(), Error> {
        let sql = "INSERT INTO snapshots (id, body) VALUES (1, $1)
            ON CONFLICT (id) DO UPDATE SET body = excluded.body";
        self.on(|link| link.transaction(LIGHTLY, vec![(sql, vec![Box::new(body)])]))
    }
}

fn insert(link: &Link, epoch: Epoch, after: Seq, admitted: &Admitted) -> Result<bool, Error> {
    let entries = &admitted.links;
    let numbers = |of: fn(&Entry) -> u64| entries.iter().map(of).map(clamped).collect::<Vec<_>>();
    let params: Vec<Param<'_>> = vec![
        Box::new(clamped(epoch.0)),
        Box::new(numbers(|entry| entry.seq.0)),
        Box::new(numbers(|entry| entry.at.0)),
        Box::new(entries.iter().map(|entry| entry.body.as_str()).collect::<Vec<_>>()),
        Box::new(entries.iter().map(|entry| entry.hash.0.as_slice()).collect::<Vec<_>>()),
        Box::new(clamped(after.0)),
    ];
    Ok(link.execute(APPEND, params)? as usize == entries.len())
}

/// Looks for an append whose answer was lost. One that is there may be seen before it is as durable
/// as the server was told to make it: on a stand-by, say. A commit of ours is answered after that.
fn look_for(link: &Link, head: Head) -> Result<(Head, Epoch), Error> {
    let found = look(link)?;
    if found.0 == head {
        link.execute("UPDATE meta SET epoch = epoch", Vec::new())?;
    }
    Ok(found)
}

pub(super) fn look(link: &Link) -> Result<(Head, Epoch), Error> {
    let sql = "SELECT meta.epoch, last.seq, last.hash FROM meta
        LEFT JOIN LATERAL (SELECT seq, hash FROM journal ORDER BY seq DESC LIMIT 1) AS last ON true";
    let rows = link.query(sql, Vec::new())?;
    let row = rows.first().ok_or_else(|| nothing("meta"))?;
    let hash: Option<Vec<u8>> = row.get(2);
    let head = match hash.and_then(|hash| hash.try_into().ok()) {
        Some(hash) => Head { seq: Seq(unsigned(row, 1)), hash: Hash(hash) },
        None => Head::EMPTY,
    };
    Ok((head, Epoch(unsigned(row, 0))))
}

fn nothing(table: &str) -> Error {
    Error::Damaged { what: format!("the table {table} is empty") }
}

fn page(after: Seq, limit: usize) -> Vec<Param<'static>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    vec![Box::new(clamped(after.0)), Box::new(limit)]
}

/// Numbers are kept as they are; one below zero is no number of ours.
fn unsigned(row: &Row, column: usize) -> u64 {
    u64::try_from(row.get::<_, i64>(column)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use kapelle_core::Event;

    use super::super::link::cluster::Cluster;
    use super::*;

    fn record(seq: u64) -> Record {
        Record { seq: Seq(seq), at: Timestamp(1), event: Event::SessionStarted }
    }

    /// Appends wait on the server until this is dropped.
    fn hinder_appends(cluster: &Cluster, schema: &str) -> impl Drop {
        let slow = "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NEW; END$$;
            CREATE TRIGGER slow BEFORE INSERT ON journal FOR EACH ROW EXECUTE FUNCTION wait()";
        cluster.psql(schema, slow).unwrap();
        cluster.session(schema, "SELECT pg_advisory_lock(42);")
    }

    /// A server goes on with what a client asked for that is gone. The same append on another
    /// connection waits for it, and meets what it wrote itself.
    #[test]
    fn an_append_that_meets_its_twin_was_successful() {
        let cluster = Cluster::start();
        let mut store = Postgres::open(&cluster.project()).unwrap();
        let schema = store.server.schema.clone();
        let epoch = store.claim_epoch().unwrap();
        let hindrance = hinder_appends(&cluster, &schema);
        store.link.get_mut().patience = Duration::from_millis(200);
        let records: Vec<Record> = (1..=3).map(record).collect();
        let head = thread::scope(|scope| {
            scope.spawn(|| {
                // The first append waits for the hindrance, the second for the first.
                let waiting = "SELECT count(*) FROM pg_stat_activity
                    WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT INTO journal%'";
                let until = Instant::now() + Duration::from_secs(20);
                while cluster.psql(&schema, waiting).unwrap() != "2" && Instant::now() < until {}
                drop(hindrance);
            });
            store.append(epoch, Seq(0), &records).unwrap()
        });
        assert_eq!(head.seq, Seq(3));
        assert_eq!(store.look().unwrap().0, head);
    }

    /// Whoever ends a session that waits for a stand-by makes its record visible, and not durable.
    #[test]
    fn an_append_that_is_found_is_answered_when_the_stand_by_has_it() {
        let cluster = Cluster::start();
        let mut store = Postgres::open(&cluster.project()).unwrap();
        let schema = store.server.schema.clone();
        let epoch = store.lead(&Holder::here()).unwrap();
        let system = |change: &str| {
            cluster.psql(&schema, &format!("ALTER SYSTEM {change}")).unwrap();
            cluster.psql(&schema, "SELECT pg_reload_conf()").unwrap();
        };
        let waits = |query: &str| {
            let waiting = format!(
                "SELECT count(*) FROM pg_stat_activity
                WHERE wait_event = 'SyncRep' AND query LIKE '{query}%'"
            );
            cluster.psql(&schema, &waiting).unwrap() == "1"
        };
        cluster.psql(&schema, "CREATE TABLE canary (number BIGINT)").unwrap();
        system("SET synchronous_standby_names = 'away'");
        store.link.get_mut().patience = Duration::from_millis(500);
        let until = Instant::now() + Duration::from_secs(20);
        let (is_over, in_force) = (AtomicBool::new(false), AtomicBool::new(false));
        let (head, waited) = thread::scope(|scope| {
            // The server takes its time to heed a setting: when a commit waits, it does.
            scope.spawn(|| {
                while !in_force.load(Ordering::Relaxed) && Instant::now() < until {
                    cluster.psql(&schema, "INSERT INTO canary VALUES (1)").unwrap();
                }
            });
            while !waits("INSERT INTO canary") && Instant::now() < until {}
            in_force.store(true, Ordering::Relaxed);
            let waited = scope.spawn(|| {
                let mut waited = false;
                while !waited && !is_over.load(Ordering::Relaxed) && Instant::now() < until {
                    waited = waits("UPDATE meta");
                }
                system("RESET synchronous_standby_names");
                waited
            });
            let head = store.append(epoch, Seq(0), &[record(1)]).unwrap();
            is_over.store(true, Ordering::Relaxed);
            (head, waited.join().unwrap())
        });
        assert_eq!(head.seq, Seq(1));
        assert!(waited, "it was answered before the stand-by had it");
    }

    /// The session of a leader that nobody waits for any more still has the lock. It is the leader's
    /// own, and goes, with whatever it was asked for.
    #[test]
    fn a_leader_that_gave_up_on_an_answer_takes_its_lock_back() {
        let cluster = Cluster::start();
        let mut store = Postgres::open(&cluster.project()).unwrap();
        let schema = store.server.schema.clone();
        let epoch = store.lead(&Holder::here()).unwrap();
        let hindrance = hinder_appends(&cluster, &schema);
        store.link.get_mut().patience = Duration::from_millis(200);
        let first = store.link.get_mut().session;
        let head = thread::scope(|scope| {
            scope.spawn(|| {
                let waiting = format!(
                    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
                    AND query LIKE '%INSERT INTO journal%' AND pid <> {first}"
                );
                let until = Instant::now() + Duration::from_secs(20);
                while cluster.psql(&schema, &waiting).unwrap() != "1" && Instant::now() < until {}
                drop(hindrance);
            });
            store.append(epoch, Seq(0), &[record(1)]).unwrap()
        });
        assert_eq!(head.seq, Seq(1));
        assert_ne!(store.link.get_mut().session, first);
        assert!(lead::leader(&store.link.borrow(), &store.server).unwrap().is_some());
    }
}
