//! The queues that people would use instead, with the same number of clients on the same machine.
//!
//! Each is a program in a workspace of its own below `xtask/peers`, installed for this alone. It
//! enqueues one by one and runs what it enqueued; it prints life cycles a second.

use std::path::{Path, PathBuf};
use std::process::Command;

use kapelle_store::Location;

use crate::cluster::Cluster;
use crate::load::{through_store, work};
use crate::report::{Goal, Report, median};

const CLIENTS: u32 = 64;
const CYCLES: u32 = 5_000;

/// More, because a run of ours would be over before it can be measured.
const OUR_CYCLES: u32 = 20_000;
const ROUNDS: usize = 3;

/// What is asked of us: so many times the fastest of the same kind.
const AHEAD: f64 = 5.0;

/// A queue: its figure, what to know about it, and a run of it.
type Contestant<'a> = (&'static str, &'static str, Box<dyn Fn(usize) -> Option<f64> + 'a>);

pub fn measure(report: &mut Report) {
    let cluster = Cluster::start();
    let dir = tempfile::tempdir().unwrap();
    let ours = work(CLIENTS, OUR_CYCLES);
    let answered = "life cycles a second, answered, with the tables folded beside";
    let contestants: [Contestant<'_>; 6] = [
        (
            "kapelle_sqlite",
            answered,
            Box::new(|round| {
                let path = dir.path().join(format!("db{round}"));
                Some(through_store(&Location::sqlite(&path), &ours).answered)
            }),
        ),
        (
            "kapelle_postgres",
            answered,
            Box::new(|_| Some(through_store(&cluster.project(), &ours).answered)),
        ),
        ("effectum_sqlite", "as it comes", Box::new(|_| run(&mut cargo("effectum")))),
        ("river_sqlite", "synchronous = FULL", Box::new(|_| run(&mut cargo("river")))),
        (
            "river_postgres",
            "as it comes",
            Box::new(|round| run(cargo("river").arg(database(&cluster, &format!("river{round}"))))),
        ),
        (
            "graphile_worker_postgres",
            "as it comes",
            Box::new(|round| run(node().arg(database(&cluster, &format!("graphile{round}"))))),
        ),
    ];
    // In turns, so that what the machine does in the meantime happens to all.
    let mut rates = contestants.each_ref().map(|_| Vec::new());
    for round in 0..ROUNDS {
        for ((_, _, run), rates) in contestants.iter().zip(&mut rates) {
            rates.extend(run(round));
        }
    }
    let rates = rates.map(median);
    for ((name, detail, _), rate) in contestants.iter().zip(rates) {
        report.add(name, rate, &Goal::None, detail);
    }
    let [on_file, on_server, effectum, river_file, river_server, graphile] = rates;
    let ahead = Goal::AtLeast(AHEAD);
    let fastest = |some: [f64; 2]| some.into_iter().fold(f64::NAN, f64::max);
    let file = on_file / fastest([effectum, river_file]);
    report.add("ahead_on_sqlite", file, &ahead, "times the fastest peer on SQLite");
    let server = on_server / fastest([river_server, graphile]);
    report.add("ahead_on_postgres", server, &ahead, "times the fastest peer on PostgreSQL");
}

fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/peers")
}

fn database(cluster: &Cluster, name: &str) -> String {
    cluster.psql("public", &format!("CREATE DATABASE {name}")).unwrap();
    cluster.url().replacen("/postgres?", &format!("/{name}?"), 1)
}

fn cargo(peer: &str) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    let manifest = peers().join(peer).join("Cargo.toml");
    command.args(["run", "--quiet", "--release", "--manifest-path"]).arg(manifest).arg("--");
    command.args([CYCLES, CLIENTS].map(|number| number.to_string()));
    command
}

fn node() -> Command {
    let dir = peers().join("graphile");
    if !dir.join("node_modules").exists() {
        let mut install = Command::new("npm");
        install.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]);
        assert!(install.current_dir(&dir).status().unwrap().success(), "npm install failed");
    }
    let mut command = Command::new("node");
    command.current_dir(dir).arg("bench.mjs");
    command.args([CYCLES, CLIENTS].map(|number| number.to_string()));
    command
}

/// The number that a peer prints last; None, said aloud, if it does not run here.
fn run(command: &mut Command) -> Option<f64> {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let number = said.lines().last().and_then(|line| line.trim().parse().ok());
    if number.is_none() {
        println!("{command:?} did not run: {}", String::from_utf8_lossy(&output.stderr));
    }
    number
}
