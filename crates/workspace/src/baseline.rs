//! Baselines: what was broken before a change came, so that nobody is blamed for it.
//!
//! Invariant: for one base and one check there is at most one run at a time, and others wait for
//! its answer; runs on other bases go on beside it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use kapelle_core::Commit;
use tokio::sync::OnceCell;

use crate::check::{self, Check, CheckRun};
use crate::repository::Repository;

/// Runs that are remembered; the oldest goes first. A mission has one base and a few checks.
const RUNS_MAX: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Check(#[from] check::Error),
    #[error(transparent)]
    Repository(#[from] crate::repository::Error),
}

/// Why a run left no answer behind.
enum Unanswered {
    CutShort,
    Trouble(Error),
}

/// A tree, a command, and how its answer is read.
type Key = (String, String, String);

type Run = Arc<OnceCell<Arc<CheckRun>>>;

/// What checks said about trees of files. The same files give the same answer, whatever the commit.
#[derive(Debug, Default)]
pub struct Baselines {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    runs: BTreeMap<Key, (u64, Run)>,
    next: u64,
}

impl Baselines {
    /// What a check says about a base; run once for each tree and command. None if it was cut short:
    /// then nobody knows, and it is asked again.
    pub async fn of(
        &self,
        repo: &Repository,
        dir: &Path,
        base: &Commit,
        check: &Check,
    ) -> Result<Option<Arc<CheckRun>>, Error> {
        let reading = format!("{:?}", check.reading);
        let run = self.run((repo.tree_of(base).await?, check.command.clone(), reading));
        // Whoever comes first runs it. If they give up, the next of those who wait takes over.
        let answer = run.get_or_try_init(|| async {
            let ran = check::run(repo, dir, base, check).await;
            match ran.map_err(|error| Unanswered::Trouble(error.into()))? {
                ran if ran.result.cut_short().is_some() => Err(Unanswered::CutShort),
                ran => Ok(Arc::new(ran)),
            }
        });
        match answer.await {
            Ok(ran) => Ok(Some(ran.clone())),
            Err(Unanswered::CutShort) => Ok(None),
            Err(Unanswered::Trouble(error)) => Err(error),
        }
    }

    /// The run of this key, whether it has an answer or not yet.
    fn run(&self, key: Key) -> Run {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, run)) = known.runs.get(&key) {
            return run.clone();
        }
        known.make_room();
        known.next += 1;
        let (age, run) = (known.next, Run::default());
        known.runs.insert(key, (age, run.clone()));
        run
    }
}

impl Known {
    fn make_room(&mut self) {
        if self.runs.len() < RUNS_MAX {
            return;
        }
        let oldest = self.runs.iter().min_by_key(|(_, (age, _))| *age);
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.runs.remove(&key);
        }
    }
}
