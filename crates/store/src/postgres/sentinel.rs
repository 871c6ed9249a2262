//! The sentinel: says that the leader is alive, whenever somebody asks (`lead`).
//!
//! It has a connection and a thread of its own, so that it answers while the leader is busy or has
//! nothing to do. A connection that it loses it makes anew by itself: nobody else would notice in
//! time, and a leader that is well would be taken for dead.
//!
//! It is also the first to hear that another has taken over, and says so to its own side: a leader
//! that has nothing to append would not notice.
//!
//! Invariant: it speaks for one epoch. When that is over, it is silent for good.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{self, Receiver};
use tokio_postgres::{AsyncMessage, Client, NoTls};

use super::link::{ANSWER_PATIENCE, config, runtime, settings, unreachable, wait};
use crate::backend::Tell;
use crate::error::Error;
use crate::journal::Epoch;
use crate::location::Server;
use crate::value::clamped;

pub(super) const ALIVE_QUESTION: &str = "alive? ";
pub(super) const ALIVE_ANSWER: &str = "alive! ";

/// What whoever takes over says, in the transaction that claims the epoch.
pub(super) const CLAIMED: &str = "claimed";

/// How long it waits before it tries to connect again; twice as long each time, up to the most.
const RETRY_MIN: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// More than anybody says at a time; whoever is not answered asks again.
const WORDS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Sentinel {
    /// None once it was shut down.
    runtime: Option<Runtime>,
    end: Arc<End>,
}

/// The end of its leader's time, and who wants to hear of it.
#[derive(Default)]
struct End(Mutex<(Option<Error>, Vec<Tell>)>);

/// Where it stands: a connection, and what is heard on it.
struct Post {
    client: Client,
    words: Receiver<Word>,
}

enum Word {
    /// Is the leader alive?
    Question(String),
    /// Somebody has claimed an epoch.
    Claim,
}

/// Why it left its post.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    /// The connection, after something was answered.
    Lost,
    /// The database answered nothing.
    Unheard,
    Deposed {
        current: Epoch,
    },
}

impl Left {
    /// How long it stays away, after it stayed away for so long before.
    fn pause_after(&self, before: Duration) -> Duration {
        match self {
            Left::Lost => RETRY_MIN,
            Left::Unheard | Left::Deposed { .. } => (before * 2).min(RETRY_MAX),
        }
    }
}

impl Sentinel {
    /// Speaks for the leader of this epoch from now on, until it is dropped.
    pub(super) fn post(server: &Server, epoch: Epoch) -> Result<Sentinel, Error> {
        let runtime = runtime(Builder::new_multi_thread())?;
        let end = Arc::new(End::default());
        let sentinel = |runtime, end| Sentinel { runtime: Some(runtime), end };
        match wait(&runtime, ANSWER_PATIENCE, stand(server)) {
            Ok(post) => {
                runtime.spawn(watch(server.clone(), epoch, post, Arc::clone(&end)));
                Ok(sentinel(runtime, end))
            }
            Err(error) => {
                drop(sentinel(runtime, end));
                Err(unreachable(server, error))
            }
        }
    }

    /// Tells when the time of its leader is over; at once, if it is already.
    pub(super) fn when_deposed(&self, tell: Tell) {
        let mut end = self.end.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &end.0 {
            Some(why) => tell(why.clone()),
            None => end.1.push(tell),
        }
    }
}

impl End {
    fn tell(&self, why: &Error) {
        let mut end = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        end.0 = Some(why.clone());
        end.1.drain(..).for_each(|tell| tell(why.clone()));
    }
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End").finish_non_exhaustive()
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
    let (say, words) = mpsc::channel(WORDS_MAX);
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            let AsyncMessage::Notification(told) = message else { continue };
            let word = match told.payload().strip_prefix(ALIVE_QUESTION) {
                Some(question) => Word::Question(question.to_owned()),
                None if told.payload() == CLAIMED => Word::Claim,
                None => continue,
            };
            // What finds no room is asked again, or said by what is there.
            let _ = say.try_send(word);
        }
    });
    client.batch_execute(&format!("{} LISTEN {}", settings(server), server.schema)).await?;
    Ok(Post { client, words })
}

/// Answers, and goes back to its post whenever it was driven away.
async fn watch(server: Server, epoch: Epoch, first: Post, end: Arc<End>) {
    let mut post = Some(first);
    let mut pause = RETRY_MIN;
    loop {
        let left = match post.take() {
            Some(post) => answer(post, &server, epoch).await,
            None => Left::Unheard,
        };
        if let Left::Deposed { current } = left {
            return end.tell(&Error::StaleEpoch { presented: epoch, current });
        }
        pause = left.pause_after(pause);
        // A server that lets it in and answers nothing is not asked without a pause either.
        tokio::time::sleep(pause).await;
        let stood = tokio::time::timeout(ANSWER_PATIENCE, stand(&server)).await;
        post = stood.ok().and_then(Result::ok);
    }
}

/// The database says nothing for somebody whose epoch is over.
async fn answer(mut post: Post, server: &Server, epoch: Epoch) -> Left {
    // Whoever took over while nobody stood here has said so already.
    let mut heard = Some(Word::Claim);
    let mut left = Left::Unheard;
    while let Some(word) = heard {
        let told = match word {
            Word::Question(question) => reply(&post.client, server, epoch, &question).await,
            Word::Claim => current(&post.client).await,
        };
        match told {
            Ok(current) if current == epoch => {
                left = Left::Lost;
                heard = post.words.recv().await;
            }
            Ok(current) => return Left::Deposed { current },
            Err(_) => return left,
        }
    }
    left
}

/// Says that the leader is alive, if its epoch is the current one, which is told.
async fn reply(
    client: &Client,
    server: &Server,
    epoch: Epoch,
    question: &str,
) -> Result<Epoch, tokio_postgres::Error> {
    let sql = "SELECT pg_notify($1, $2) FROM meta WHERE epoch = $3";
    let answer = format!("{ALIVE_ANSWER}{question}");
    let told = client.query(sql, &[&server.schema, &answer, &clamped(epoch.0)]).await?;
    if told.is_empty() { current(client).await } else { Ok(epoch) }
}

async fn current(client: &Client) -> Result<Epoch, tokio_postgres::Error> {
    let row = client.query_one("SELECT epoch FROM meta", &[]).await?;
    Ok(Epoch(row.get::<_, i64>(0).cast_unsigned()))
}

#[cfg(test)]
mod tests {
    use super::super::link::{Link, Use, cluster};
    use super::super::schema;
    use super::*;
    use crate::location::{Durability, Place};

    /// Only after an answer is the next try made at once; a schema that somebody dropped would be
    /// asked for without an end.
    #[test]
    fn a_server_that_tells_nothing_is_not_one_that_was_lost() {
        let cluster = cluster::Cluster::start();
        let Place::Postgres(server) = cluster.project().place else { panic!("it is a server") };
        let link = Link::connect(&server, Use::Writing(Durability::Full)).unwrap();
        schema::create(&link, &server).unwrap();
        let runtime = runtime(Builder::new_multi_thread()).unwrap();
        let left = |epoch| {
            runtime.block_on(async {
                let post = stand(&server).await.unwrap();
                answer(post, &server, epoch).await
            })
        };
        assert_eq!(left(Epoch(1)), Left::Deposed { current: Epoch(0) });
        cluster.psql(&server.schema, "ALTER TABLE meta RENAME TO away").unwrap();
        assert_eq!(left(Epoch(0)), Left::Unheard);
    }

    /// Nobody is asked without an end at full speed, and whoever is back is found at once.
    #[test]
    fn it_stays_away_longer_each_time_until_it_is_answered() {
        let longer = |pause: &Duration| Some(Left::Unheard.pause_after(*pause));
        let pauses = std::iter::successors(Some(RETRY_MIN), longer).take(8);
        let pauses: Vec<u128> = pauses.map(|pause| pause.as_millis()).collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1_000, 1_000]);
        assert_eq!(Left::Lost.pause_after(RETRY_MAX), RETRY_MIN);
    }
}
