//! Life cycles a second by effectum: enqueued one by one, run by as many workers, and done.
//!
//! Arguments: how many, by how many clients. Prints one number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use effectum::{Error, Job, JobRunner, Queue, RunningJob, Worker};
use tokio::sync::Notify;

#[derive(Debug)]
struct Tally {
    left: AtomicU32,
    done: Notify,
}

async fn work(_job: RunningJob, tally: Arc<Tally>) -> Result<(), Error> {
    if tally.left.fetch_sub(1, Ordering::Relaxed) == 1 {
        tally.done.notify_one();
    }
    Ok(())
}

#[tokio::main]
async fn main() {
    let numbers: Vec<u32> = std::env::args().skip(1).map(|word| word.parse().unwrap()).collect();
    let [cycles, clients] = numbers[..] else { panic!("how many, by how many?") };
    let dir = tempfile::tempdir().unwrap();
    let queue = Arc::new(Queue::new(&dir.path().join("effectum.db")).await.unwrap());
    let tally = Arc::new(Tally { left: AtomicU32::new(cycles), done: Notify::new() });
    let runner = JobRunner::builder("work", work).build();
    let worker = Worker::builder(&queue, Arc::clone(&tally))
        .max_concurrency(u16::try_from(clients).unwrap())
        .jobs([runner])
        .build()
        .await
        .unwrap();
    let started = Instant::now();
    let mut adding = Vec::new();
    for client in 0..clients {
        let queue = Arc::clone(&queue);
        let share = cycles / clients + u32::from(client < cycles % clients);
        adding.push(tokio::spawn(async move {
            for _ in 0..share {
                Job::builder("work").add_to(&queue).await.unwrap();
            }
        }));
    }
    for client in adding {
        client.await.unwrap();
    }
    tally.done.notified().await;
    println!("{:.0}", f64::from(cycles) / started.elapsed().as_secs_f64());
    drop(worker);
}
