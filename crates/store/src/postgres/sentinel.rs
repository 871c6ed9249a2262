//! The sentinel: says that the leader is alive, whenever somebody asks (`lead`).
//!
//! It has a connection and a thread of its own, so that it answers while the leader is busy or has
//! nothing to do. A connection that it loses it makes anew by itself: nobody else would notice in
//! time, and a leader that is well would be taken for dead.
//!
//! Invariant: it speaks for one epoch. When that is over, it is silent for good.

use std::future::poll_fn;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{self, Receiver};
use tokio_postgres::{AsyncMessage, Client, NoTls};

use super::link::{ANSWER_PATIENCE, config, runtime, settings, unreachable, wait};
use crate::error::Error;
use crate::journal::Epoch;
use crate::location::Server;
use crate::value::clamped;

pub(super) const ALIVE_QUESTION: &str = "alive? ";
pub(super) const ALIVE_ANSWER: &str = "alive! ";

/// How long it waits before it tries to connect again; twice as long each time, up to the most.
const RETRY_MIN: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// More than anybody asks at a time; whoever is not answered asks again.
const QUESTIONS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Sentinel {
    /// None once it was shut down.
    runtime: Option<Runtime>,
}

/// Where it stands: a connection, and what is asked on it.
struct Post {
    client: Client,
    questions: Receiver<String>,
}

/// Why it left its post.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    Lost,
    Deposed,
}

impl Sentinel {
    /// Speaks for the leader of this epoch from now on, until it is dropped.
    pub(super) fn post(server: &Server, epoch: Epoch) -> Result<Sentinel, Error> {
        let runtime = runtime(Builder::new_multi_thread())?;
        let sentinel = |runtime| Sentinel { runtime: Some(runtime) };
        match wait(&runtime, ANSWER_PATIENCE, stand(server)) {
            Ok(post) => {
                runtime.spawn(watch(server.clone(), epoch, post));
                Ok(sentinel(runtime))
            }
            Err(error) => {
                drop(sentinel(runtime));
                Err(unreachable(server, error))
            }
        }
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A plain drop would wait, which threads of another runtime must not.
            runtime.shutdown_background();
        }
    }
}

/// The name by which people find it in the server's list of sessions.
pub(super) fn name(server: &Server) -> String {
    format!("sentinel of {}", server.schema)
}

async fn stand(server: &Server) -> Result<Post, tokio_postgres::Error> {
    let (client, mut connection) = config(server, &name(server)).connect(NoTls).await?;
    let (ask, questions) = mpsc::channel(QUESTIONS_MAX);
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            let AsyncMessage::Notification(told) = message else { continue };
            if let Some(question) = told.payload().strip_prefix(ALIVE_QUESTION) {
                // One that finds no room is asked again.
                let _ = ask.try_send(question.to_owned());
            }
        }
    });
    client.batch_execute(&format!("{} LISTEN {}", settings(server), server.schema)).await?;
    Ok(Post { client, questions })
}

/// Answers, and goes back to its post whenever it was driven away.
async fn watch(server: Server, epoch: Epoch, first: Post) {
    let mut post = Some(first);
    let mut pause = RETRY_MIN;
    loop {
        if let Some(post) = post.take() {
            if answer(post, &server, epoch).await == Left::Deposed {
                return;
            }
            pause = RETRY_MIN;
        }
        match tokio::time::timeout(ANSWER_PATIENCE, stand(&server)).await {
            Ok(Ok(again)) => post = Some(again),
            Ok(Err(_)) | Err(_) => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY_MAX);
            }
        }
    }
}

/// The database says nothing for somebody whose epoch is over.
async fn answer(mut post: Post, server: &Server, epoch: Epoch) -> Left {
    let sql = "SELECT pg_notify($1, $2) FROM meta WHERE epoch = $3";
    while let Some(question) = post.questions.recv().await {
        let answer = format!("{ALIVE_ANSWER}{question}");
        let told = post.client.query(sql, &[&server.schema, &answer, &clamped(epoch.0)]).await;
        match told {
            Ok(rows) if rows.is_empty() => return Left::Deposed,
            Ok(_) => {}
            Err(_) => return Left::Lost,
        }
    }
    Left::Lost
}
