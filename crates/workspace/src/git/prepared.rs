//! A reference that is about to move.
//!
//! Git takes its lock while we look whether it may, so that the looking takes no time of its own. That
//! it still is where we saw it is what git compares when it moves. Whoever dies in between closes the
//! pipe, and git lets go.

use std::ffi::OsString;
use std::process::Stdio;

use kapelle_core::Commit;
use tokio::io::AsyncWriteExt;
use tokio::process::Child;

use super::{Error, Git, args, ended};

/// From where to where a reference is to move, and what its log says of it. The name has been
/// checked: a line break in it would be another instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Move<'a> {
    pub name: &'a str,
    pub from: &'a Commit,
    pub to: &'a Commit,
    pub note: &'a str,
}

#[derive(Debug)]
pub(crate) struct Prepared {
    child: Child,
    args: Vec<OsString>,
}

impl Git {
    /// Begins to move a reference. Whether git got its lock shows at the end.
    pub(crate) async fn prepare(&self, wanted: Move<'_>) -> Result<Prepared, Error> {
        let args = args!["update-ref", "-m", wanted.note, "--stdin"];
        let mut command = self.command(&args);
        command.stdin(Stdio::piped());
        let mut prepared = Prepared { child: self.spawn(command)?, args };
        let Move { name, from, to, .. } = wanted;
        prepared.tell(&format!("start\nupdate {name} {to} {from}\nprepare\n")).await;
        Ok(prepared)
    }
}

impl Prepared {
    /// Moves the reference, if it still is where it was believed to be.
    pub(crate) async fn commit(mut self) -> Result<(), Error> {
        self.tell("commit\n").await;
        self.end().await
    }

    /// Leaves the reference where it is, and waits until its lock is gone.
    pub(crate) async fn abandon(self) {
        // Either git lets go now, or it had nothing to let go of.
        let _ = self.end().await;
    }

    /// A git that has given up hears nothing any more; it says why at its end.
    async fn tell(&mut self, instructions: &str) {
        if let Some(stdin) = &mut self.child.stdin {
            let _ = stdin.write_all(instructions.as_bytes()).await;
        }
    }

    async fn end(mut self) -> Result<(), Error> {
        drop(self.child.stdin.take());
        ended(self.child, &[0], &self.args).await.map(|_| ())
    }
}
