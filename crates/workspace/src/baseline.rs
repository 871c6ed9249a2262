//! Baselines: what was broken before a change came, so that nobody is blamed for it.

use std::collections::BTreeMap;
use std::path::Path;

use kapelle_core::Commit;

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

/// A tree, a command, and how its answer is read.
type Key = (String, String, String);

/// What checks said about trees of files. The same files give the same answer, whatever the commit.
#[derive(Debug, Default)]
pub struct Baselines {
    runs: BTreeMap<Key, (u64, CheckRun)>,
    next: u64,
}

impl Baselines {
    /// What a check says about a base; run once for each tree and command. None if the machine kept
    /// it from an answer: it is asked again then.
    pub async fn of(
        &mut self,
        repo: &Repository,
        dir: &Path,
        base: &Commit,
        check: &Check,
    ) -> Result<Option<&CheckRun>, Error> {
        let reading = format!("{:?}", check.reading);
        let key = (repo.tree_of(base).await?, check.command.clone(), reading);
        if !self.runs.contains_key(&key) {
            let run = check::run(repo, dir, base, check).await?;
            if run.exit.failure().is_some() {
                return Ok(None);
            }
            self.make_room();
            self.next += 1;
            self.runs.insert(key.clone(), (self.next, run));
        }
        Ok(self.runs.get(&key).map(|(_, run)| run))
    }

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
