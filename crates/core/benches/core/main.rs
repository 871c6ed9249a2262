//! Benchmarks of the engine, as ratios against a floor measured in the same run.
//!
//! Machines differ and are shared; ratios hold. Each pair is measured in turns, and the median of
//! the ratios counts. `cargo xtask bench core [--json]` runs this in the release profile.
//!
//! Names (`decide`, `growth`, `replay`, `makespan`) ask for some of it only, and `--once` for a
//! single round: for whoever counts instructions instead of time.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark is a program of its own")]

mod dags;
mod world;

use std::hint::black_box;
use std::time::{Duration, Instant};

use kapelle_core::{Engine, Record};
use world::{Took, World, write};

const ROUNDS: usize = 7;
/// A round of deciding takes a hundredth of a second, so there are so many of them for each.
const SHORT_ROUNDS: usize = 10;
/// A million events take their time, and their ratio hardly differs from round to round.
const REPLAYS: usize = 3;

/// A ratio and what it may be at most.
struct Ratio {
    name: &'static str,
    value: f64,
    goal: f64,
    detail: String,
}

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let only = |name: &str| {
        let names: Vec<&String> = asked.iter().filter(|word| !word.starts_with("--")).collect();
        names.is_empty() || names.iter().any(|asked| *asked == name)
    };
    let rounds = if asked.iter().any(|arg| arg == "--once") { 1 } else { ROUNDS };
    let mut ratios = Vec::new();
    if only("decide") {
        ratios.push(decide_ratio(rounds));
    }
    if only("growth") {
        ratios.push(growth_ratio(rounds));
    }
    if only("replay") {
        ratios.push(replay_ratio(rounds.min(REPLAYS)));
    }
    if only("makespan") {
        ratios.extend(dags::makespan());
    }
    for ratio in &ratios {
        let verdict = if ratio.value <= ratio.goal { "ok" } else { "MISSED" };
        let Ratio { name, value, goal, detail } = ratio;
        println!("{name:<22} {value:>7.3}  (goal ≤ {goal})  {verdict:<6}  {detail}");
    }
    if asked.iter().any(|arg| arg == "--json") {
        let field = |ratio: &Ratio| format!("\"{}\": {:.4}", ratio.name, ratio.value);
        let fields: Vec<String> = ratios.iter().map(field).collect();
        println!("{{{}}}", fields.join(", "));
    }
}

/// Deciding and applying a command, against writing its events as JSON.
fn decide_ratio(rounds: usize) -> Ratio {
    const TASKS: u32 = 2_000;
    let watch_seconds = watch_seconds();
    let round = |_| {
        let Took { commands, deciding, writing } = begun(TASKS).finish_undisturbed(TASKS);
        let of_command = |took: Duration| took.as_secs_f64() / f64::from(commands) - watch_seconds;
        (of_command(deciding), of_command(writing))
    };
    let all: Vec<(f64, f64)> = (0..rounds * SHORT_ROUNDS).map(round).collect();
    let ratio = median(all.iter().map(|(deciding, writing)| deciding / writing).collect());
    let (deciding, writing) = all.into_iter().unzip();
    let (deciding, writing) = (median(deciding) * 1e6, median(writing) * 1e6);
    let detail = format!("{deciding:.2} µs a command, {writing:.2} µs to write its events");
    Ratio { name: "decide_ratio", value: ratio, goal: 2.0, detail }
}

/// Missions that are under way: one of any size is opened once.
fn begun(tasks: u32) -> World {
    let mut world = World::with_tasks(tasks);
    world.begin();
    world
}

/// A command with 100,000 tasks in the state, against one with 100.
fn growth_ratio(rounds: usize) -> Ratio {
    const FEW: u32 = 100;
    const MANY: u32 = 100_000;
    let mut ratios = Vec::new();
    let mut large = begun(MANY);
    for _ in 0..rounds {
        let small_cost = {
            let mut worlds: Vec<World> = (0..20).map(|_| begun(FEW)).collect();
            let took: Vec<Took> = worlds.iter_mut().map(|world| world.finish(FEW)).collect();
            let commands: u32 = took.iter().map(|took| took.commands).sum();
            let deciding: Duration = took.iter().map(|took| took.deciding).sum();
            deciding.as_secs_f64() / f64::from(commands)
        };
        let Took { commands, deciding, .. } = large.finish(2_000);
        let large_cost = deciding.as_secs_f64() / f64::from(commands);
        ratios.push(large_cost / small_cost);
    }
    let detail = format!("{MANY} tasks against {FEW}");
    Ratio { name: "growth_ratio", value: median(ratios), goal: 1.5, detail }
}

/// Replaying a journal from JSON, against only reading the JSON.
fn replay_ratio(rounds: usize) -> Ratio {
    // A little more than a million events.
    const TASKS: u32 = 193_000;
    let mut world = World::with_tasks(TASKS);
    world.finish(TASKS);
    let records = world.take_journal();
    let (events, mut lines) = (records.len(), Vec::new());
    write(&records, &mut lines);
    drop(records);
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let started = Instant::now();
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            black_box(serde_json::from_slice::<Record>(line).unwrap());
        }
        let reading = started.elapsed().as_secs_f64();
        let started = Instant::now();
        let history = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let history = history.map(|line| serde_json::from_slice::<Record>(line).unwrap());
        let engine = black_box(Engine::recover(history));
        ratios.push(started.elapsed().as_secs_f64() / reading);
        // Nobody who starts takes everything apart again.
        drop(engine);
    }
    let detail = format!("{events} events, {} MB", lines.len() / 1_000_000);
    Ratio { name: "replay_ratio", value: median(ratios), goal: 2.0, detail }
}

/// What it takes to look at a watch twice: it is no part of what is measured.
fn watch_seconds() -> f64 {
    const LOOKS: u32 = 10_000;
    let spans = (0..LOOKS).map(|_| Instant::now().elapsed());
    spans.sum::<Duration>().as_secs_f64() / f64::from(LOOKS)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
