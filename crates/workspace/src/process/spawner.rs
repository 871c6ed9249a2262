//! One thread that starts all processes and never ends.
//!
//! A sandbox dies with its parent, and to the kernel the parent is the *thread* that started it.
//! The threads of an async runtime come and go; an agent must not be killed because one of them
//! was idle.

use std::io;
use std::process::{Child, Command};
use std::sync::{Arc, OnceLock, mpsc};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::sync::oneshot;

use crate::sandbox::Cgroup;

type Request = (Command, Option<Arc<Cgroup>>, oneshot::Sender<io::Result<Child>>);

/// Starts a process from the lasting thread, as a member of a group that takes threads.
pub(super) async fn spawn(command: Command, group: Option<Arc<Cgroup>>) -> io::Result<Child> {
    static REQUESTS: OnceLock<mpsc::Sender<Request>> = OnceLock::new();
    let gone = || io::Error::other("the thread that starts processes is gone");
    let requests = match REQUESTS.get() {
        Some(requests) => requests,
        None => {
            // Should two callers come first at once, the thread of one of them ends again.
            let started = start_thread()?;
            REQUESTS.get_or_init(|| started)
        }
    };
    let (answer, answered) = oneshot::channel();
    requests.send((command, group, answer)).map_err(|_| gone())?;
    answered.await.map_err(|_| gone())?
}

fn start_thread() -> io::Result<mpsc::Sender<Request>> {
    let (requests, received) = mpsc::channel::<Request>();
    std::thread::Builder::new().name("spawner".into()).spawn(move || {
        for (mut command, group, answer) in received {
            let started = match group.filter(|group| group.takes_threads()) {
                Some(group) => group.with_member(|| command.spawn()),
                None => command.spawn(),
            };
            // The command holds our ends of its pipes; they must close before anybody reads.
            drop(command);
            if let Err(Ok(mut unwanted)) = answer.send(started) {
                let group = i32::try_from(unwanted.id()).map(Pid::from_raw);
                let _nobody_left = group.map(|group| killpg(group, Signal::SIGKILL));
                let _reaped = unwanted.wait();
            }
        }
    })?;
    Ok(requests)
}
