//! How long after its leader's death a project has another one.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use kapelle_store::{Holder, Leadership, Location, Writer};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::cluster::Cluster;
use crate::report::{Goal, Report};

const ROUNDS: usize = 5;

/// What people are promised.
const PROMISED: f64 = 5.0;

const LEADS: &str = "leads";

/// What the leader does; None for whoever takes over.
pub fn child(asked: &[String]) -> Option<()> {
    let [flag, place @ ..] = asked else { return None };
    if flag != "--leads" {
        return None;
    }
    let _lead = lead(place);
    println!("{LEADS}");
    // Until whoever started it is gone.
    let _ = std::io::stdin().read(&mut [0]);
    Some(())
}

pub fn measure(report: &mut Report) {
    let dir = tempfile::tempdir().unwrap();
    let folder = [dir.path().to_str().unwrap().to_owned()];
    slowest(report, "takeover_s_sqlite", &folder, Signal::SIGKILL);
    let cluster = Cluster::start();
    let server = [cluster.url(), "kapelle_takeover".to_owned()];
    slowest(report, "takeover_s_postgres", &server, Signal::SIGKILL);
    // As one whose machine is gone: it has its lock, and does not answer.
    slowest(report, "takeover_s_postgres_silent", &server, Signal::SIGSTOP);
}

fn slowest(report: &mut Report, name: &'static str, place: &[String], end: Signal) {
    let times: Vec<f64> = (0..ROUNDS).map(|_| take_over(place, end)).collect();
    let slowest = times.into_iter().fold(0.0, f64::max);
    report.add(name, slowest, &Goal::AtMost(PROMISED), format!("the slowest of {ROUNDS}, {end}"));
}

fn take_over(place: &[String], end: Signal) -> f64 {
    let leader = Leader::start(place);
    let pid = Pid::from_raw(leader.0.id().try_into().unwrap());
    kill(pid, end).unwrap();
    if end == Signal::SIGSTOP {
        waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
    }
    let started = Instant::now();
    let (_lock, writer) = lead(place);
    let took = started.elapsed().as_secs_f64();
    drop(leader);
    writer.close().unwrap();
    took
}

/// A process that leads by now, and ends with this.
struct Leader(Child);

impl Leader {
    fn start(place: &[String]) -> Leader {
        let mut leader = Command::new(std::env::current_exe().unwrap())
            .arg("--leads")
            .args(place)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map(Leader)
            .unwrap();
        let mut said = String::new();
        BufReader::new(leader.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said.trim_end(), LEADS);
        leader
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

/// Takes the lead of a project: a folder, whose lock says who has it, or a server and a name there.
fn lead(place: &[String]) -> (Option<Leadership>, Writer) {
    match place {
        [folder] => {
            let lock = Leadership::take(folder.as_ref(), Holder::here()).unwrap();
            (Some(lock), Writer::open(&Path::new(folder).join("store.db")).unwrap())
        }
        [url, project] => (None, Writer::open(Location::postgres(url, project).unwrap()).unwrap()),
        _ => panic!("no place is {place:?}"),
    }
}
