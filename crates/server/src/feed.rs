//! The feed: what changed, worked out once and sent to everybody who watches.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use kapelle_conductor::{Handle, clock};
use kapelle_core::{Record, State};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::view;
use crate::wire::{Activity, Overview, Update};

/// What a page shows of the past; the rest is for `kapelle log`.
const ACTIVITY_LINES_MAX: usize = 200;
/// How far a slow browser may fall behind before it gets a new snapshot.
const UPDATES_LAG_MAX: usize = 256;

#[derive(Debug, Clone)]
pub(crate) struct Feed {
    project: Arc<str>,
    handle: Handle,
    updates: broadcast::Sender<Arc<Update>>,
    past: Arc<Mutex<Past>>,
}

/// The newest lines, and the head of the journal that they were told at.
#[derive(Debug, Default)]
struct Past {
    seq: u64,
    lines: VecDeque<Activity>,
}

impl Feed {
    /// `recent` are the last records from before the conductor started, `commits` what came since.
    pub(crate) async fn start(
        project: &str,
        handle: Handle,
        recent: Vec<Record>,
        commits: broadcast::Receiver<kapelle_conductor::Committed>,
    ) -> Result<Feed, kapelle_conductor::Error> {
        let (updates, _) = broadcast::channel(UPDATES_LAG_MAX);
        let past = Arc::new(Mutex::new(Past::default()));
        let feed = Feed { project: project.into(), handle, updates, past };
        let told = feed.handle.look(move |state| view::update(state, &recent, 0)).await?;
        feed.remember(&told);
        tokio::spawn(feed.clone().publish(commits));
        Ok(feed)
    }

    /// Ends with the conductor.
    async fn publish(self, mut commits: broadcast::Receiver<kapelle_conductor::Committed>) {
        loop {
            let mut records: Vec<Record> = match commits.recv().await {
                Ok(commit) => commit.to_vec(),
                Err(RecvError::Lagged(_)) => Vec::new(),
                Err(RecvError::Closed) => return,
            };
            while let Ok(more) = commits.try_recv() {
                records.extend_from_slice(&more);
            }
            let now = clock::now().0;
            let looked = self.handle.look(move |state| view::update(state, &records, now)).await;
            let Ok(update) = looked else { return };
            self.remember(&update);
            // Without watchers there is nobody to tell.
            let _ = self.updates.send(Arc::new(update));
        }
    }

    pub(crate) fn watch(&self) -> broadcast::Receiver<Arc<Update>> {
        self.updates.subscribe()
    }

    pub(crate) async fn overview(&self) -> Result<Overview, kapelle_conductor::Error> {
        let (seq, activity) = {
            let past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
            (past.seq, past.lines.iter().cloned().collect())
        };
        let project = self.project.to_string();
        let look = move |state: &State| Overview {
            project,
            seq,
            now: clock::now().0,
            missions: state.missions().map(|mission| view::mission(state, mission)).collect(),
            tasks: state
                .missions()
                .flat_map(|mission| {
                    state.tasks_of(mission).map(|task| view::task(state, mission, task))
                })
                .collect(),
            agents: view::agents(state),
            activity,
            cost: view::cost(state),
        };
        self.handle.look(look).await
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    fn remember(&self, update: &Update) {
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        past.seq = past.seq.max(update.seq);
        past.lines.extend(update.activity.iter().cloned());
        while past.lines.len() > ACTIVITY_LINES_MAX {
            past.lines.pop_front();
        }
    }
}
