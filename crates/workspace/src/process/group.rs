//! A process group that can be signalled without ever hitting a stranger.
//!
//! The number of a process is free for reuse once the process has been reaped. The supervisor
//! closes the group before it reaps the leader; from then on signals go nowhere.

use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

#[derive(Debug, Clone)]
pub(super) struct Group {
    leader: Pid,
    /// Nobody is in it any more, as far as we are concerned.
    closed: Arc<Mutex<bool>>,
}

impl Group {
    pub fn of(child: &Child) -> std::io::Result<Group> {
        let pid = i32::try_from(child.id()).map_err(std::io::Error::other)?;
        Ok(Group { leader: Pid::from_raw(pid), closed: Arc::default() })
    }

    pub fn pid(&self) -> i32 {
        self.leader.as_raw()
    }

    /// Whether the leader has ended. It stays a zombie, so that its number stays taken.
    pub fn leader_ended(&self) -> bool {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        !matches!(
            waitid(Id::Pid(self.leader), look),
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR)
        )
    }

    /// Waits until the leader has ended. It stays a zombie.
    pub fn wait_for_leader(&self) {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        while waitid(Id::Pid(self.leader), look) == Err(Errno::EINTR) {}
    }

    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    pub fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    fn signal(&self, signal: Signal) {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if !*closed {
            let _nobody_left = killpg(self.leader, signal);
        }
    }

    /// Kills the leader alone: it may be in a group that is not its own.
    pub fn kill_leader(&self) {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if !*closed {
            let _gone_by_itself = kill(self.leader, Signal::SIGKILL);
        }
    }

    /// Reaps the leader, which has ended, and signals nobody any more.
    pub fn reap_leader(&self, child: &mut Child) -> std::io::Result<ExitStatus> {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        *closed = true;
        child.wait()
    }

    /// Kills what is left of the group and reaps its leader, which has ended.
    pub fn reap(&self, child: &mut Child) -> std::io::Result<ExitStatus> {
        self.kill();
        self.reap_leader(child)
    }
}
