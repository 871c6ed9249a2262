//! Life cycles a second by River: inserted one by one, run by as many workers, and completed.
//!
//! Arguments: how many, by how many clients, and the address of a PostgreSQL database if it is not
//! to be SQLite. Prints one number.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use riverqueue::migrate::{PostgresMigrator, SqliteMigrator};
use riverqueue::sqlx::PgPool;
use riverqueue::sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
};
use riverqueue::{BoxError, Client, Job, JobArgs, QueueConfig, WorkContext, WorkOutcome, Workers};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

#[derive(Clone, Debug, Deserialize, JobArgs, Serialize)]
#[river(kind = "work")]
struct Work {
    number: u32,
}

static DONE: AtomicU32 = AtomicU32::new(0);
static WANTED: AtomicU32 = AtomicU32::new(u32::MAX);
static ALL: Notify = Notify::const_new();

async fn work(_context: WorkContext, _job: Job<Work>) -> Result<WorkOutcome, BoxError> {
    if DONE.fetch_add(1, Ordering::Relaxed) + 1 == WANTED.load(Ordering::Relaxed) {
        ALL.notify_one();
    }
    Ok(WorkOutcome::Complete)
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (cycles, clients): (u32, u32) = (words[0].parse().unwrap(), words[1].parse().unwrap());
    WANTED.store(cycles, Ordering::Relaxed);
    let mut workers = Workers::new();
    workers.add_fn(work).unwrap();
    let queue = QueueConfig::new(clients as usize);
    let dir = tempfile::tempdir().unwrap();
    let client = match words.get(2) {
        Some(url) => {
            let pool = PgPool::connect(url).await.unwrap();
            PostgresMigrator::new(pool.clone()).migrate_up().await.unwrap();
            Client::builder(pool).workers(workers).queue("default", queue).build().unwrap()
        }
        None => {
            let options = SqliteConnectOptions::new()
                .filename(dir.path().join("river.db"))
                .create_if_missing(true)
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Full)
                .busy_timeout(Duration::from_secs(30));
            let pool = SqlitePoolOptions::new().connect_with(options).await.unwrap();
            SqliteMigrator::new(pool.clone()).migrate_up().await.unwrap();
            Client::builder(pool).workers(workers).queue("default", queue).build().unwrap()
        }
    };
    let mut run = client.start().unwrap();
    let started = Instant::now();
    let mut adding = Vec::new();
    for number in 0..clients {
        let client = client.clone();
        let share = cycles / clients + u32::from(number < cycles % clients);
        adding.push(tokio::spawn(async move {
            for _ in 0..share {
                client.insert(Work { number }).await.unwrap();
            }
        }));
    }
    for client in adding {
        client.await.unwrap();
    }
    ALL.notified().await;
    println!("{:.0}", f64::from(cycles) / started.elapsed().as_secs_f64());
    run.stop().await.unwrap();
}
