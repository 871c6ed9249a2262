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
const ROUNDS: usize = 3;

/// What is asked of us: so many times the fastest of the same kind.
const AHEAD: f64 = 5.0;

pub fn measure(report: &mut Report) {
    let cluster = Cluster::start();
    let dir = tempfile::tempdir().unwrap();
    let ours = work(CLIENTS, 4 * CYCLES);
    let on_file = rounds(|round| {
        let path = dir.path().join(format!("db{round}"));
        Some(through_store(&Location::sqlite(&path), &ours))
    });
    let on_server = rounds(|_| Some(through_store(&cluster.project(), &ours)));
    let none = Goal::None;
    report.add("kapelle_sqlite", on_file, &none, "life cycles a second, tables folded");
    report.add("kapelle_postgres", on_server, &none, "life cycles a second, tables folded");

    let effectum = rounds(|_| run(&mut cargo("effectum")));
    report.add("effectum_sqlite", effectum, &none, "as it comes; it does not sync");
    let river_file = rounds(|_| run(&mut cargo("river")));
    report.add("river_sqlite", river_file, &none, "synchronous = FULL");
    let river_server = rounds(|round| {
        let url = database(&cluster, &format!("river{round}"));
        run(cargo("river").arg(url))
    });
    report.add("river_postgres", river_server, &none, "as it comes");
    let graphile = rounds(|round| {
        let url = database(&cluster, &format!("graphile{round}"));
        run(node().arg(url))
    });
    report.add("graphile_worker_postgres", graphile, &none, "as it comes");

    let ahead = Goal::AtLeast(AHEAD);
    let fastest = |some: [f64; 2]| some.into_iter().fold(f64::NAN, f64::max);
    let file = on_file / fastest([effectum, river_file]);
    report.add("ahead_on_sqlite", file, &ahead, "times the fastest peer on SQLite");
    let server = on_server / fastest([river_server, graphile]);
    report.add("ahead_on_postgres", server, &ahead, "times the fastest peer on PostgreSQL");
}

fn rounds(run: impl Fn(usize) -> Option<f64>) -> f64 {
    median((0..ROUNDS).filter_map(run).collect())
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
