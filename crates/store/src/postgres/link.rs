//! One connection, for callers that wait.
//!
//! The rest of the store is synchronous and may be called from anywhere, also from a thread of
//! somebody's asynchronous runtime. So every connection has a small runtime of its own. Whoever
//! asks something serves the connection while it waits: a thread beside would have to be woken
//! twice for every append. Only a connection that has to hear by itself has such a thread.

use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::yield_now;
use tokio_postgres::types::ToSql;
use tokio_postgres::{
    AsyncMessage, Client, Config, NoTls, Row, SimpleQueryMessage, SimpleQueryRow, Statement,
};

use crate::error::Error;
use crate::location::{Durability, Server};

/// A server that does not answer a connection in this time is not there.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// Longer than any statement of ours takes; who waits this long waits for a network that is gone.
pub(super) const ANSWER_PATIENCE: Duration = Duration::from_secs(60);

/// A whole journal is copied with one statement before it is migrated. A network that is gone is
/// noticed all the same, by the keepalives.
const COPY_PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// A peer that is gone without a word is noticed after about idle + retries × interval.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(2);
const KEEPALIVE_RETRIES: u32 = 2;

/// A leader that is stopped in the middle of a transaction holds what its successor needs. Less
/// than a successor waits for an answer (`lead`), so that a take-over does not wait for this too.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(2);

pub(super) type Param<'a> = Box<dyn ToSql + Sync + Send + 'a>;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Reading,
    /// Hearing what is said by others.
    Listening,
    Writing(Durability),
}

pub(super) struct Link {
    /// None once it was shut down.
    runtime: Option<Runtime>,
    client: Client,
    prepared: Mutex<HashMap<String, Statement>>,
    /// What the server says by itself, as text.
    notices: Receiver<String>,
    pub(super) patience: Duration,
    /// The server's number for it.
    pub(super) session: i32,
    /// Somebody stopped waiting for an answer. What they asked for may still be under way, in a
    /// transaction that is open: nothing more may be asked here.
    given_up: AtomicBool,
    /// Somebody opened a transaction, and will end it.
    in_transaction: AtomicBool,
}

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Commit,
    RollBack,
}

/// Begins a transaction that does not wait for the disk.
pub(super) const LIGHTLY: &str = "BEGIN; SET LOCAL synchronous_commit = off";

impl Link {
    pub(super) fn connect(server: &Server, purpose: Use) -> Result<Link, Error> {
        let builder = match purpose {
            Use::Reading | Use::Writing(_) => Builder::new_current_thread(),
            Use::Listening => Builder::new_multi_thread(),
        };
        let runtime = runtime(builder)?;
        let config = config(server, "kapelle");
        let (notify, notices) = mpsc::channel();
        let connected = wait(&runtime, ANSWER_PATIENCE, async {
            let (client, mut connection) = config.connect(NoTls).await?;
            tokio::spawn(async move {
                // It ends with the connection; whoever asks the client then is told so.
                while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                    let AsyncMessage::Notification(told) = message else { continue };
                    // Nobody has to listen.
                    let _ = notify.send(told.payload().to_owned());
                }
            });
            Ok(client)
        });
        let client = match connected {
            Ok(client) => client,
            Err(error) => {
                runtime.shutdown_background();
                return Err(unreachable(server, error));
            }
        };
        let mut link = Link {
            runtime: Some(runtime),
            client,
            prepared: Mutex::default(),
            notices,
            patience: ANSWER_PATIENCE,
            session: 0,
            given_up: AtomicBool::new(false),
            in_transaction: AtomicBool::new(false),
        };
        link.set_up(server, purpose)?;
        Ok(link)
    }

    fn set_up(&mut self, server: &Server, purpose: Use) -> Result<(), Error> {
        let only = match purpose {
            Use::Reading | Use::Listening => "SET default_transaction_read_only = on;".to_owned(),
            Use::Writing(Durability::Full) => "SET synchronous_commit = on;".to_owned(),
            Use::Writing(Durability::Normal) => "SET synchronous_commit = off;".to_owned(),
        };
        let told = TOLD.map(|setting| format!("current_setting('{setting}')")).join(", ");
        let set = format!("{} {only} SELECT {told}, pg_backend_pid()", settings(server));
        let said = self.wait(self.client.simple_query(&set))?;
        self.session = row(&said).and_then(|row| row.get(TOLD.len())?.parse().ok()).unwrap_or(0);
        assert_encoding(&said, server)?;
        match purpose {
            Use::Writing(Durability::Full) => assert_durable(&said),
            Use::Reading | Use::Listening | Use::Writing(Durability::Normal) => Ok(()),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        // Nobody serves the connection while nobody waits, so its end may not have been heard yet:
        // with the first turn the runtime looks, with the second the connection hears it.
        let heard = self.wait(async {
            yield_now().await;
            yield_now().await;
            Ok(())
        });
        heard.is_err() || self.is_known_to_be_closed()
    }

    /// As far as anybody has heard.
    pub(super) fn is_known_to_be_closed(&self) -> bool {
        self.client.is_closed() || self.given_up.load(Ordering::Relaxed)
    }

    pub(super) fn query(&self, sql: &str, params: Vec<Param<'_>>) -> Result<Vec<Row>, Error> {
        let (client, prepared) = (&self.client, &self.prepared);
        self.wait(async move {
            let statement = statement(client, prepared, sql).await?;
            client.query(&statement, &borrowed(&params)).await
        })
    }

    pub(super) fn execute(&self, sql: &str, params: Vec<Param<'_>>) -> Result<u64, Error> {
        let (client, prepared) = (&self.client, &self.prepared);
        self.wait(async move {
            let statement = statement(client, prepared, sql).await?;
            client.execute(&statement, &borrowed(&params)).await
        })
    }

    pub(super) fn batch(&self, sql: &str) -> Result<(), Error> {
        self.wait(self.client.batch_execute(sql))
    }

    /// What may take as long as there is something to copy.
    pub(super) fn batch_patiently(&self, sql: &str) -> Result<(), Error> {
        self.wait_for(COPY_PATIENCE, self.client.batch_execute(sql))
    }

    /// All of it in one transaction, with all statements on their way before the first is answered;
    /// as a part of the one that is open, if there is one.
    pub(super) fn transaction(
        &self,
        begin: &str,
        statements: Vec<(&str, Vec<Param<'_>>)>,
    ) -> Result<(), Error> {
        let (client, prepared) = (&self.client, &self.prepared);
        let is_part = self.is_in_transaction();
        self.wait(async move {
            let ready = async || {
                let mut ready = Vec::with_capacity(statements.len());
                for (sql, params) in statements {
                    ready.push((statement(client, prepared, sql).await?, params));
                }
                Ok(ready)
            };
            if is_part {
                return as_part(client, &ready().await?).await;
            }
            client.batch_execute(begin).await?;
            // Whoever makes a statement ready needs its tables: how long is for `begin` to say.
            let done = match ready().await {
                Ok(ready) => in_order(client, &ready).await,
                Err(error) => Err(error),
            };
            let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
            let ended = client.batch_execute(end).await;
            done.and(ended)
        })
    }

    /// Opens a transaction for all that comes. It may wait for its next statement as long as that
    /// takes: whoever fills a store may be fed by somebody slow.
    pub(super) fn begin(&self) -> Result<(), Error> {
        self.batch("BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0")?;
        self.in_transaction.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn end(&self, how: End) -> Result<(), Error> {
        self.in_transaction.store(false, Ordering::Relaxed);
        self.batch_patiently(match how {
            End::Commit => "COMMIT",
            End::RollBack => "ROLLBACK",
        })
    }

    pub(super) fn is_in_transaction(&self) -> bool {
        self.in_transaction.load(Ordering::Relaxed)
    }

    /// What the server has to say next, if it says something in time.
    pub(super) fn notice(&self, patience: Duration) -> Result<Option<String>, Error> {
        match self.notices.recv_timeout(patience) {
            Ok(notice) => Ok(Some(notice)),
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                Err(Error::Lost { what: "the server ended it".into() })
            }
        }
    }

    fn wait<T: Send>(
        &self,
        work: impl Future<Output = Result<T, tokio_postgres::Error>> + Send,
    ) -> Result<T, Error> {
        self.wait_for(self.patience, work)
    }

    fn wait_for<T: Send>(
        &self,
        patience: Duration,
        work: impl Future<Output = Result<T, tokio_postgres::Error>> + Send,
    ) -> Result<T, Error> {
        let Some(runtime) = &self.runtime else {
            return Err(Error::Lost { what: "it was closed".into() });
        };
        let answered = wait(runtime, patience, work);
        if matches!(answered, Err(Error::Lost { .. })) {
            self.given_up.store(true, Ordering::Relaxed);
        }
        answered
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A plain drop would wait, which threads of another runtime must not.
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

/// What has to be on, or the server loses what it acknowledged, and says nothing.
const DURABLE: [&str; 3] = ["fsync", "full_page_writes", "synchronous_commit"];

/// What the server says about itself when a connection is set up.
const TOLD: [&str; 4] = ["server_encoding", DURABLE[0], DURABLE[1], DURABLE[2]];

fn row(said: &[SimpleQueryMessage]) -> Option<&SimpleQueryRow> {
    said.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    })
}

fn told<'a>(said: &'a [SimpleQueryMessage], setting: &str) -> &'a str {
    let at = TOLD.iter().position(|known| *known == setting);
    at.and_then(|at| row(said)?.get(at)).unwrap_or("unknown")
}

/// In another encoding some texts cannot be kept, and the journal would end at the first of them.
fn assert_encoding(said: &[SimpleQueryMessage], server: &Server) -> Result<(), Error> {
    match told(said, "server_encoding") {
        "UTF8" => Ok(()),
        found => Err(Error::Encoding { store: server.to_string(), found: found.to_owned() }),
    }
}

fn assert_durable(said: &[SimpleQueryMessage]) -> Result<(), Error> {
    for setting in DURABLE {
        let found = told(said, setting);
        if found != "on" {
            return Err(Error::Setting { setting, wanted: "on", found: found.to_owned() });
        }
    }
    Ok(())
}

/// A runtime for one connection, with at most one thread of its own.
pub(super) fn runtime(mut builder: Builder) -> Result<Runtime, Error> {
    let builder = builder.worker_threads(1).thread_name("kapelle-postgres").enable_all();
    builder.build().map_err(|why| Error::Database { what: why.to_string() })
}

/// How to reach the server, and what it shows of us in its list of sessions.
pub(super) fn config(server: &Server, name: &str) -> Config {
    let mut config = server.config.clone();
    config.connect_timeout(CONNECT_PATIENCE).application_name(name);
    config.keepalives(true).keepalives_idle(KEEPALIVE_IDLE);
    config.keepalives_interval(Duration::from_secs(1)).keepalives_retries(KEEPALIVE_RETRIES);
    config
}

/// What every session of ours has set.
///
/// The server, too, has to notice that we are gone, for it holds our lock; and it must not end a
/// session that has nothing to do, for the same reason. How long a statement may take is for us to
/// say, and what it sees is what was committed when it began.
pub(super) fn settings(server: &Server) -> String {
    format!(
        "SET search_path TO {}, pg_catalog; SET client_min_messages = warning;
        SET tcp_keepalives_idle = {}; SET tcp_keepalives_interval = 1;
        SET tcp_keepalives_count = {KEEPALIVE_RETRIES};
        SET idle_in_transaction_session_timeout = {};
        SET idle_session_timeout = 0; SET statement_timeout = 0; SET lock_timeout = 0;
        SET default_transaction_isolation = 'read committed';",
        server.schema,
        KEEPALIVE_IDLE.as_secs(),
        IDLE_IN_TRANSACTION.as_millis(),
    )
}

pub(super) fn wait<T: Send>(
    runtime: &Runtime,
    patience: Duration,
    work: impl Future<Output = Result<T, tokio_postgres::Error>> + Send,
) -> Result<T, Error> {
    let patiently = async { tokio::time::timeout(patience, work).await };
    let answer = match Handle::try_current() {
        Err(_) => runtime.block_on(patiently),
        // A thread of a runtime must not serve another one; one beside it may.
        Ok(_) => thread::scope(|scope| scope.spawn(|| runtime.block_on(patiently)).join())
            .map_err(|_| Error::Lost { what: "it was closed".into() })?,
    };
    match answer {
        Ok(outcome) => Ok(outcome?),
        Err(_) => Err(Error::Lost { what: format!("no answer in {patience:?}") }),
    }
}

pub(super) fn unreachable(server: &Server, error: Error) -> Error {
    match error {
        Error::Lost { what } | Error::Database { what } => {
            Error::Lost { what: format!("{server} cannot be reached: {what}") }
        }
        Error::Forbidden { what } => Error::Forbidden { what: format!("{server}: {what}") },
        other => other,
    }
}

async fn statement(
    client: &Client,
    prepared: &Mutex<HashMap<String, Statement>>,
    sql: &str,
) -> Result<Statement, tokio_postgres::Error> {
    let prepared = || prepared.lock().unwrap_or_else(PoisonError::into_inner);
    let known = prepared().get(sql).cloned();
    if let Some(statement) = known {
        return Ok(statement);
    }
    let statement = client.prepare(sql).await?;
    prepared().insert(sql.to_owned(), statement.clone());
    Ok(statement)
}

fn borrowed<'a>(params: &'a [Param<'_>]) -> Vec<&'a (dyn ToSql + Sync)> {
    params.iter().map(|param| &**param as &(dyn ToSql + Sync)).collect()
}

type Pending<'a> = Pin<Box<dyn Future<Output = Result<u64, tokio_postgres::Error>> + Send + 'a>>;

/// Sends all statements before it waits for the first answer. A statement is sent when its future
/// is polled for the first time, and answers come in the order of questions.
async fn in_order(
    client: &Client,
    statements: &[(Statement, Vec<Param<'_>>)],
) -> Result<(), tokio_postgres::Error> {
    let mut pending: Vec<(Pending<'_>, Option<Result<u64, tokio_postgres::Error>>)> = statements
        .iter()
        .map(|(statement, params)| {
            let work: Pending<'_> =
                Box::pin(async move { client.execute(statement, &borrowed(params)).await });
            (work, None)
        })
        .collect();
    poll_fn(|cx| {
        for (work, answer) in &mut pending {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                *answer = Some(done);
            }
        }
        Poll::Ready(())
    })
    .await;
    let mut outcome = Ok(());
    for (work, answer) in pending {
        let answer = match answer {
            Some(answer) => answer,
            None => work.await,
        };
        outcome = outcome.and(answer.map(drop));
    }
    outcome
}

/// Looked through as if it were committed, and if it fails, the rest is as it was.
async fn as_part(
    client: &Client,
    statements: &[(Statement, Vec<Param<'_>>)],
) -> Result<(), tokio_postgres::Error> {
    client.batch_execute("SAVEPOINT part").await?;
    let done = match in_order(client, statements).await {
        Ok(()) => {
            let check = "SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED";
            client.batch_execute(check).await
        }
        failed => failed,
    };
    let end = if done.is_ok() { "RELEASE part" } else { "ROLLBACK TO part; RELEASE part" };
    let ended = client.batch_execute(end).await;
    done.and(ended)
}

#[cfg(test)]
#[path = "../../tests/store/cluster.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
pub(super) mod cluster;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::{Location, Place};

    #[test]
    fn a_table_that_stays_locked_is_an_error_with_a_name() {
        let cluster = cluster::Cluster::start();
        let Place::Postgres(server) = cluster.project().place else { panic!("it is a server") };
        cluster.psql("public", "CREATE TABLE public.kept (number BIGINT)").unwrap();
        let link = Link::connect(&server, Use::Writing(Durability::Full)).unwrap();
        link.batch("SET lock_timeout = '1ms'").unwrap();
        let _holder = cluster.session("public", "BEGIN; LOCK TABLE public.kept;");
        let refused = link.execute("INSERT INTO public.kept VALUES (1)", Vec::new()).unwrap_err();
        assert!(matches!(refused, Error::Locked { .. }), "{refused:?}");
        assert!(!link.is_closed());
    }

    /// What a take-over is promised to last rests on these; the server may have others by itself.
    #[test]
    fn the_server_keeps_to_our_patience() {
        let cluster = cluster::Cluster::start();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        // Over a socket of files there are no keepalives to look at.
        for setting in [
            "listen_addresses = '127.0.0.1'",
            &format!("port = {port}"),
            "tcp_keepalives_idle = 7200",
            "idle_in_transaction_session_timeout = '1h'",
            "idle_session_timeout = '1h'",
            "statement_timeout = '1h'",
            "lock_timeout = '1h'",
            "default_transaction_isolation = 'serializable'",
        ] {
            cluster.psql("public", &format!("ALTER SYSTEM SET {setting}")).unwrap();
        }
        cluster.crash();
        cluster.start_again();
        let url = format!("postgres://app@127.0.0.1:{port}/postgres");
        let Place::Postgres(server) = Location::postgres(&url, "p").unwrap().place else {
            panic!("it is a server")
        };
        let link = Link::connect(&server, Use::Writing(Durability::Full)).unwrap();
        let names = [
            ("idle_in_transaction_session_timeout", "2s"),
            ("idle_session_timeout", "0"),
            ("statement_timeout", "0"),
            ("lock_timeout", "0"),
            ("transaction_isolation", "read committed"),
            ("tcp_keepalives_idle", "2"),
            ("tcp_keepalives_interval", "1"),
            ("tcp_keepalives_count", "2"),
        ];
        for (name, expected) in names {
            let rows = link.query("SELECT current_setting($1)", vec![Box::new(name)]).unwrap();
            assert_eq!(rows[0].get::<_, String>(0), expected, "{name}");
        }
    }

    /// A transaction that nobody waited for is still open: the next append would be in it, be
    /// answered, and go with it.
    #[test]
    fn a_connection_on_which_somebody_gave_up_is_not_asked_again() {
        let cluster = cluster::Cluster::start();
        let Place::Postgres(server) = cluster.project().place else { panic!("it is a server") };
        let table = "CREATE TABLE public.kept (number BIGINT)";
        cluster.psql("public", table).unwrap();
        let mut link = Link::connect(&server, Use::Writing(Durability::Full)).unwrap();
        link.patience = Duration::from_millis(200);
        let _holder = cluster.session("public", "BEGIN; LOCK TABLE public.kept;");
        let insert = "INSERT INTO public.kept VALUES (1)";
        let answered = link.transaction("BEGIN", vec![(insert, Vec::new())]);
        assert!(matches!(answered, Err(Error::Lost { .. })), "{answered:?}");
        assert!(link.is_closed());
    }
}
