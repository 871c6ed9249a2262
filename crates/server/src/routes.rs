//! Routes: the API's paths and what answers them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use axum::{Router, middleware};
use kapelle_conductor::{Committed, Error, Handle};
use kapelle_core::{Actor, Command, Record, TaskId};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::{Stream, StreamExt};

use crate::feed::Feed;
use crate::guard::guard;
use crate::wire::{Ask, Done, Problem, Update};
use crate::{assets, wire};

/// Questions and reasons are short; nothing larger is read.
const BODY_BYTES_MAX: usize = 64 * 1024;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What a client must know to change something.
#[derive(Debug, Clone)]
pub struct Access {
    pub token: Arc<str>,
}

/// What has happened so far.
#[derive(Debug)]
pub struct Past {
    /// The last records from before the conductor started.
    pub recent: Vec<Record>,
    /// Everything since then.
    pub commits: broadcast::Receiver<Committed>,
}

/// Serves until the conductor ends or the future is dropped.
pub async fn serve(
    listener: TcpListener,
    project: &str,
    handle: Handle,
    past: Past,
    access: Access,
) -> Result<(), ServeError> {
    let feed = Feed::start(project, handle, past.recent, past.commits).await?;
    let api = Router::new()
        .route("/api/v1/overview", get(overview))
        .route("/api/v1/stream", get(stream))
        .route("/api/v1/commands", post(command))
        .fallback(assets::file)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(access, guard))
        .with_state(feed);
    axum::serve(listener, api).await.map_err(ServeError::Io)
}

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Conductor(#[from] Error),
    #[error("the server failed: {0}")]
    Io(std::io::Error),
}

async fn overview(State(feed): State<Feed>) -> Response {
    match feed.overview().await {
        Ok(overview) => Json(overview).into_response(),
        Err(error) => problem(&error),
    }
}

/// A snapshot, then what changes. Whoever falls behind or reconnects starts with a new snapshot.
async fn stream(State(feed): State<Feed>) -> Response {
    let updates = feed.watch();
    let snapshot = match feed.overview().await {
        Ok(snapshot) => snapshot,
        Err(error) => return problem(&error),
    };
    let seen = snapshot.seq;
    let first = tokio_stream::once(Ok(told("snapshot", snapshot.seq, &snapshot)));
    let rest = updates_after(BroadcastStream::new(updates), seen);
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Sse::new(first.chain(rest)).keep_alive(keep_alive).into_response()
}

fn updates_after(
    updates: BroadcastStream<Arc<Update>>,
    seen: u64,
) -> impl Stream<Item = Result<Event, Infallible>> {
    // An error means that the browser fell behind: ending the stream makes it come back for a
    // new snapshot.
    let intact = updates.take_while(Result::is_ok).filter_map(Result::ok);
    let new = intact.filter(move |update| update.seq > seen);
    new.map(|update| Ok(told("update", update.seq, &*update)))
}

fn told<T: serde::Serialize>(kind: &str, seq: u64, data: &T) -> Event {
    let event = Event::default().event(kind).id(seq.to_string());
    event.json_data(data).unwrap_or_else(|_| Event::default().event("error"))
}

async fn command(State(feed): State<Feed>, ask: Result<Json<Ask>, JsonRejection>) -> Response {
    let refused = |status, error| (status, Json(Problem { error })).into_response();
    let ask = match ask {
        Ok(Json(ask)) => ask,
        Err(rejection) => return refused(rejection.status(), rejection.body_text()),
    };
    let command = match to_command(ask) {
        Ok(command) => command,
        Err(error) => return refused(StatusCode::BAD_REQUEST, error),
    };
    match feed.handle().send(command).await {
        Ok(accepted) => Json(Done { seq: accepted.seq.0 }).into_response(),
        Err(error) => problem(&error),
    }
}

/// The command that a person's request stands for.
pub(crate) fn to_command(ask: wire::Ask) -> Result<Command, String> {
    let wrong = |e: kapelle_core::ids::ParseIdError| e.to_string();
    Ok(match ask {
        Ask::Pause { mission, reason, by } => Command::PauseMission {
            mission: mission.parse().map_err(wrong)?,
            reason,
            by: Actor(by),
        },
        Ask::Resume { mission, by } => {
            Command::ResumeMission { mission: mission.parse().map_err(wrong)?, by: Actor(by) }
        }
        Ask::Cancel { mission, reason, by } => Command::CancelMission {
            mission: mission.parse().map_err(wrong)?,
            reason,
            by: Actor(by),
        },
        Ask::Answer { task, resume_id, input, by } => {
            Command::AnswerCheckpoint { task: TaskId(task), resume_id, input, by: Actor(by) }
        }
        Ask::Approve { mission, commit, by } => Command::ApproveDelivery {
            mission: mission.parse().map_err(wrong)?,
            commit: commit.parse().map_err(wrong)?,
            by: Actor(by),
        },
    })
}

fn problem(error: &Error) -> Response {
    let status = match error {
        Error::Refused(_) => StatusCode::CONFLICT,
        Error::Stopped | Error::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(Problem { error: error.to_string() })).into_response()
}
