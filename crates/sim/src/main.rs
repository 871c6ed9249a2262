//! `kapelle-sim`: sweeps seeds, tells the story of one, or writes its journal.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the command line")]

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: kapelle-sim [--seeds N] [--from SEED] | --story SEED | --journal SEED";
const USAGE_EXIT: u8 = 2;

struct Arguments {
    seeds: u64,
    from: u64,
    story: Option<u64>,
    journal: Option<u64>,
}

fn main() -> ExitCode {
    let Some(arguments) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(USAGE_EXIT);
    };
    match (arguments.story, arguments.journal) {
        (Some(seed), _) => tell(seed),
        (None, Some(seed)) => write(seed),
        (None, None) => sweep(arguments.from, arguments.seeds),
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut arguments = Arguments { seeds: 1_000, from: 1, story: None, journal: None };
    while let Some(word) = words.next() {
        let number = words.next()?.parse().ok()?;
        match word.as_str() {
            "--seeds" => arguments.seeds = number,
            "--from" => arguments.from = number,
            "--story" => arguments.story = Some(number),
            "--journal" => arguments.journal = Some(number),
            _ => return None,
        }
    }
    (arguments.seeds > 0).then_some(arguments)
}

fn tell(seed: u64) -> ExitCode {
    let (lines, verdict) = kapelle_sim::story(seed);
    for line in lines {
        println!("{line}");
    }
    match verdict {
        Ok(stats) => {
            println!("sim: seed {seed} passed, {} events, {} turns", stats.events, stats.turns);
            ExitCode::SUCCESS
        }
        Err(rule) => {
            println!("sim: seed {seed} failed: {rule}");
            ExitCode::FAILURE
        }
    }
}

/// The journal of a seed as a store would have it, one record a line.
fn write(seed: u64) -> ExitCode {
    for record in kapelle_sim::history(seed) {
        match serde_json::to_string(&record) {
            Ok(line) => println!("{line}"),
            Err(error) => {
                eprintln!("record {} cannot be written: {error}", record.seq);
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn sweep(from: u64, seeds: u64) -> ExitCode {
    let begun = Instant::now();
    let last = from.saturating_add(seeds - 1);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let said = Mutex::new(begun);
    let result = kapelle_sim::sweep(from..=last, threads, |done, failures| {
        if let Ok(mut said) = said.try_lock()
            && said.elapsed() >= Duration::from_secs(1)
        {
            *said = Instant::now();
            eprintln!("{done} of {seeds} seeds, {failures} failures");
        }
    });
    if let Some(first) = result.broken.first() {
        println!("{first}\n");
    }
    for broken in &result.broken {
        println!("seed {}: {}", broken.seed, broken.rule);
    }
    let stats = result.stats;
    println!(
        "sim: {seeds} seeds ({from}..={last}), {} failures, {:.1}M events, {} crashes, \
         {} delivered, {} failed, {} cancelled, {:.1} s",
        result.failures,
        stats.events as f64 / 1e6,
        stats.crashes,
        stats.delivered,
        stats.failed,
        stats.cancelled,
        begun.elapsed().as_secs_f64()
    );
    if result.failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
