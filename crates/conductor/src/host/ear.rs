//! When an attempt last printed something: heard from its process, or seen on the log of its
//! session.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use kapelle_core::Timestamp;
use kapelle_workspace::process::Heard;
use kapelle_workspace::tmux::Session;
use tokio::sync::watch;

use crate::clock;

/// Empty until there is a process to listen to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ear(Arc<OnceLock<Source>>);

#[derive(Debug)]
enum Source {
    Process(watch::Receiver<Heard>),
    Log(PathBuf),
}

impl Ear {
    pub(super) fn listen(&self, activity: watch::Receiver<Heard>) {
        // An attempt has one process.
        let _only_once = self.0.set(Source::Process(activity));
    }

    pub(super) fn follow(&self, log: PathBuf) {
        let _only_once = self.0.set(Source::Log(log));
    }

    pub(crate) fn heard_at(&self) -> Option<Timestamp> {
        match self.0.get()? {
            Source::Process(activity) => {
                let silent = activity.borrow().at.elapsed().as_millis();
                let silent = u64::try_from(silent).unwrap_or(u64::MAX);
                Some(Timestamp(clock::now().0.saturating_sub(silent)))
            }
            Source::Log(log) => {
                let since = Session::heard_at(log)?.duration_since(UNIX_EPOCH).ok()?;
                Some(Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)))
            }
        }
    }
}
