//! `kapelle-sim`: sweeps seeds, tells the story of one, writes its journal, or shows which seeds
//! planted bugs break.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the command line")]

use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: kapelle-sim [--seeds N] [--from SEED] | --story SEED | --journal SEED \
                     | --mutants SEEDS";
const USAGE_EXIT: u8 = 2;

struct Arguments {
    seeds: u64,
    from: u64,
    story: Option<u64>,
    journal: Option<u64>,
    mutants: Option<u64>,
}

fn main() -> ExitCode {
    let Some(arguments) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(USAGE_EXIT);
    };
    match (arguments.story, arguments.journal, arguments.mutants) {
        (Some(seed), _, _) => tell(seed),
        (None, Some(seed), _) => write(seed),
        (None, None, Some(seeds)) => hunt(seeds),
        (None, None, None) => sweep(arguments.from, arguments.seeds),
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut arguments =
        Arguments { seeds: 1_000, from: 1, story: None, journal: None, mutants: None };
    while let Some(word) = words.next() {
        let number = words.next()?.parse().ok()?;
        match word.as_str() {
            "--seeds" => arguments.seeds = number,
            "--from" => arguments.from = number,
            "--story" => arguments.story = Some(number),
            "--journal" => arguments.journal = Some(number),
            "--mutants" => arguments.mutants = Some(number),
            _ => return None,
        }
    }
    (arguments.seeds > 0).then_some(arguments)
}

fn tell(seed: u64) -> ExitCode {
    let (mut lines, verdict) = kapelle_sim::story(seed);
    lines.push(match &verdict {
        Ok(stats) => {
            format!("sim: seed {seed} passed, {} events, {} turns", stats.events, stats.turns)
        }
        Err(rule) => format!("sim: seed {seed} failed: {rule}"),
    });
    printed(lines, if verdict.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints lines for as long as somebody reads them: `head` may have seen enough.
fn printed(lines: Vec<String>, then: ExitCode) -> ExitCode {
    let mut out = std::io::stdout().lock();
    for line in lines {
        match writeln!(out, "{line}") {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return then,
            Err(error) => {
                eprintln!("nothing can be printed: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    then
}

/// The journal of a seed as a store would have it, one record a line.
fn write(seed: u64) -> ExitCode {
    let records = kapelle_sim::history(seed);
    let lines: Result<Vec<String>, _> = records.iter().map(serde_json::to_string).collect();
    match lines {
        Ok(lines) => printed(lines, ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("the journal of seed {seed} cannot be written: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Which seed each planted bug breaks first, and what it says, as the table of the docs.
fn hunt(seeds_max: u64) -> ExitCode {
    let found = kapelle_sim::hunt(seeds_max, threads());
    println!("| planted bug | first seed | what is said of it |\n|---|---|---|");
    for (mutant, broken) in &found {
        match broken {
            Some(broken) => println!("| `{mutant:?}` | {} | {} |", broken.seed, cell(&broken.rule)),
            None => println!("| `{mutant:?}` | none | |"),
        }
    }
    let hidden = found.iter().filter(|(_, broken)| broken.is_none()).count();
    eprintln!("{} planted bugs, {hidden} not found within {seeds_max} seeds", found.len());
    if hidden == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// As much of a sentence as a table has room for.
fn cell(rule: &str) -> String {
    const CELL_CHARS_MAX: usize = 110;
    let line = rule.replace('|', "/");
    match line.char_indices().nth(CELL_CHARS_MAX) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line,
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn sweep(from: u64, seeds: u64) -> ExitCode {
    let begun = Instant::now();
    let last = from.saturating_add(seeds - 1);
    let said = Mutex::new(begun);
    let result = kapelle_sim::sweep(from..=last, threads(), |done, failures| {
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
