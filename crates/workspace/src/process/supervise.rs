//! Watching one process from its start to its end.
//!
//! Invariant: the watch ends when the leader has ended, even if a descendant holds the output
//! open; what is left of the group is killed then.

use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::group::Group;
use super::log::Log;
use super::quota::{Watch, passed};
use super::{Exit, Heard, Hold};
use crate::reaper;

/// After the end of the leader, the output closes as soon as the killed rest of its group is
/// gone. Only a descendant that left the group can keep it open; it is not waited for.
const DRAIN_MAX: Duration = Duration::from_secs(1);

const CHUNK_BYTES: usize = 64 << 10;

/// What the supervisor knows about the process beside the process itself.
pub(super) struct Held {
    /// The name in its environment.
    pub run: String,
    pub hold: Hold,
    /// Where it is told what was printed.
    pub heard: watch::Sender<Heard>,
}

pub(super) struct Supervisor {
    child: Child,
    group: Group,
    output: Option<pipe::Receiver>,
    log: Log,
    deaths: Signal,
    started: Instant,
    kill_at: Option<Instant>,
    run: String,
    hold: Hold,
    quota: Option<Watch>,
    over_quota: Option<String>,
    heard: watch::Sender<Heard>,
}

impl Supervisor {
    pub fn new(
        child: Child,
        group: Group,
        output: pipe::Receiver,
        log: Log,
        deaths: Signal,
        held: Held,
    ) -> Supervisor {
        let started = Instant::now();
        let Held { run, hold, heard } = held;
        let quota = hold.quota.clone().map(Watch::start);
        Supervisor {
            child,
            group,
            output: Some(output),
            log,
            deaths,
            started,
            kill_at: None,
            run,
            hold,
            quota,
            over_quota: None,
            heard,
        }
    }

    pub async fn run(mut self, mut stops: mpsc::UnboundedReceiver<Duration>) -> Exit {
        let mut buffer = vec![0; CHUNK_BYTES];
        while !self.group.leader_ended() {
            tokio::select! {
                _ = self.deaths.recv() => {}
                Some(grace) = stops.recv() => self.stop(grace),
                () = reached(self.kill_at) => {
                    self.kill_at = None;
                    self.group.kill();
                }
                reason = passed(&mut self.quota) => {
                    self.quota = None;
                    self.over_quota = Some(reason);
                    self.end_now();
                }
                count = read(&mut self.output, &mut buffer) => match count {
                    0 => self.output = None,
                    count => self.take(&buffer[..count]).await,
                },
            }
        }
        self.end_now();
        let _given_up = timeout(DRAIN_MAX, self.drain(&mut buffer)).await;
        self.finish().await
    }

    fn stop(&mut self, grace: Duration) {
        self.group.terminate();
        let at = Instant::now() + grace;
        self.kill_at = Some(self.kill_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn end_now(&self) {
        self.group.kill();
        if let Some(cgroup) = &self.hold.cgroup {
            cgroup.kill();
        }
    }

    async fn drain(&mut self, buffer: &mut [u8]) {
        while self.output.is_some() {
            match read(&mut self.output, buffer).await {
                0 => self.output = None,
                count => self.take(&buffer[..count]).await,
            }
        }
    }

    async fn take(&mut self, bytes: &[u8]) {
        self.log.take(bytes).await;
        self.heard.send_modify(|heard| {
            heard.bytes += bytes.len() as u64;
            heard.at = Instant::now();
        });
    }

    async fn finish(mut self) -> Exit {
        let duration = self.started.elapsed();
        let status = self.group.reap(&mut self.child).ok();
        let out_of_memory = end_orphans(&self.hold, &self.run).await;
        let (tail, log_error) = self.log.finish().await;
        Exit {
            code: status.and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()),
            out_of_memory,
            over_quota: self.over_quota,
            tail,
            duration,
            log_error,
        }
    }
}

/// Ends what left the group: a process that runs on nobody's behalf spends and spoils. Says whether
/// the kernel ended one for want of memory.
pub(super) async fn end_orphans(hold: &Hold, run: &str) -> bool {
    let Some(cgroup) = &hold.cgroup else {
        if !hold.dies_with_owner {
            // If `/proc` cannot be read, the reaper of the next start will say so.
            let _unreadable = reaper::end_run(run).await;
        }
        return false;
    };
    let out_of_memory = cgroup.ran_out_of_memory();
    cgroup.clear().await;
    out_of_memory
}

/// Ends at the given time; without one, never.
async fn reached(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// How much was read; zero at the end of the output, and never again after it.
async fn read(output: &mut Option<pipe::Receiver>, buffer: &mut [u8]) -> usize {
    match output {
        Some(output) => output.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}
