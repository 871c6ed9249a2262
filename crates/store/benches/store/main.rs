//! Benchmarks of the store, as ratios against a floor measured in the same run.
//!
//! Machines differ and are shared; ratios hold. Every ratio of times is measured in the order
//! floor, store, floor; a round in which the two floors disagree was disturbed, and is thrown away
//! (`rounds`).
//! `cargo xtask bench store [--json]` runs this in the release profile.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark is a program of its own")]

mod alone;
mod claim;
#[path = "../../tests/store/cluster.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod cluster;
mod load;
mod peers;
mod probe;
mod profile;
mod report;
mod rounds;
mod start;
mod syncs;
mod takeover;
#[path = "../../../core/benches/core/world.rs"]
#[allow(dead_code, reason = "the engine's own benchmark uses the rest")]
mod world;

use report::Report;

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    if let Some(done) = syncs::child(&asked).or_else(|| takeover::child(&asked)) {
        return done;
    }
    let only = |name: &str| {
        let names: Vec<&String> = asked.iter().filter(|word| !word.starts_with("--")).collect();
        names.is_empty() || names.iter().any(|asked| *asked == name)
    };
    let mut report = Report::default();
    if only("load") {
        load::measure(&mut report);
    }
    if only("syncs") {
        syncs::measure(&mut report);
    }
    if only("alone") {
        alone::measure(&mut report);
    }
    if only("claim") {
        claim::measure(&mut report);
    }
    if only("start") {
        start::measure(&mut report);
    }
    if only("takeover") {
        takeover::measure(&mut report);
    }
    if asked.iter().any(|word| word == "profile") {
        profile::measure(&mut report);
    }
    if asked.iter().any(|word| word == "lasting") {
        load::measure_lasting(&mut report);
    }
    // Only when asked for: it installs other people's programs.
    if asked.iter().any(|word| word == "peers") {
        peers::measure(&mut report);
    }
    report.print(asked.iter().any(|word| word == "--json"));
}
