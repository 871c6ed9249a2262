//! How well the schedule uses the team, on generated graphs of tasks.
//!
//! No schedule can end before its critical path, nor before the work divided by the agents. The
//! ratio to the larger of the two is what scheduling can be blamed for.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_core::command::{AdvanceOutcome, AttemptOutcome, LaneOutcome, Spending};
use kapelle_core::effect::Merge;
use kapelle_core::failure::{Failure, FailureKind};
use kapelle_core::ledger::Caps;
use kapelle_core::merge::Step;
use kapelle_core::plan::PlannedTask;
use kapelle_core::settings::Settings;
use kapelle_core::{Command, Effect, Engine, Fence, Role, TaskId, Timestamp};

use crate::Ratio;
use crate::world::{commit, open, task};

const GRAPHS: u64 = 200;
const MINUTE_MS: u64 = 60_000;

/// One attempt in so many fails at its end, in the runs with retries.
const FAILS_OF: u64 = 5;

pub fn makespan() -> Vec<Ratio> {
    let detail = format!("{GRAPHS} graphs, 3, 8 and 12 agents");
    let (mean, worst) = over_all(|_| false);
    let retried = format!("{detail}, one first attempt in {FAILS_OF} fails");
    let (retries_mean, retries_worst) = over_all(|n| n % FAILS_OF == 0);
    vec![
        Ratio { name: "makespan_mean", value: mean, goal: 1.10, detail: detail.clone() },
        Ratio { name: "makespan_worst", value: worst, goal: 1.30, detail },
        Ratio {
            name: "makespan_retries_mean",
            value: retries_mean,
            goal: 1.10,
            detail: retried.clone(),
        },
        Ratio { name: "makespan_retries_worst", value: retries_worst, goal: 1.30, detail: retried },
    ]
}

/// The mean and the worst of all graphs, where the tasks with these numbers fail once.
fn over_all(fails: fn(u64) -> bool) -> (f64, f64) {
    let mut ratios = Vec::new();
    for seed in 0..GRAPHS {
        let agents = [3, 8, 12][seed as usize % 3];
        let tasks = graph(&mut Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1), seed % 4);
        // Which tasks fail differs from graph to graph.
        let failing = (0..tasks.len() as u64).filter(|n| fails(n + seed));
        let failing: BTreeSet<String> = failing.map(|n| format!("t{n}")).collect();
        let bound = bound_minutes(&tasks, agents, &failing);
        ratios.push(took_minutes(&tasks, agents, failing) / bound);
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    (mean, ratios.iter().copied().fold(0.0, f64::max))
}

/// A small generator of numbers: the same graphs every time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn graph(draw: &mut Draw, shape: u64) -> Vec<PlannedTask> {
    let size = 20 + draw.below(80);
    let name = |n: u64| format!("t{n}");
    let needs = |n: u64, draw: &mut Draw| -> Vec<String> {
        match shape {
            // A few chains side by side.
            0 => n.checked_sub(5).map(name).into_iter().collect(),
            // Fans: every tenth opens the next nine.
            1 => {
                if n < 10 {
                    Vec::new()
                } else {
                    vec![name(n / 10 * 10 - 10)]
                }
            }
            // Diamonds: five wide, joined, and again.
            2 => match n % 6 {
                0 if n >= 6 => (n - 5..n).map(name).collect(),
                0 => Vec::new(),
                _ => vec![name(n / 6 * 6)],
            },
            _ => {
                let count = draw.below(3).min(n);
                let needs: BTreeSet<u64> = (0..count).map(|_| draw.below(n)).collect();
                needs.into_iter().map(name).collect()
            }
        }
    };
    let planned = (0..size).map(|n| {
        let mut planned = task(name(n), needs(n, draw));
        planned.estimated_duration_minutes = Some(1 + draw.below(30) as u32);
        planned
    });
    planned.collect()
}

fn minutes(task: &PlannedTask) -> f64 {
    f64::from(task.estimated_duration_minutes.unwrap_or(1))
}

/// What fails is done twice, whoever does it.
fn bound_minutes(tasks: &[PlannedTask], agents: u32, failing: &BTreeSet<String>) -> f64 {
    let minutes = |task: &PlannedTask| match failing.contains(&task.id) {
        true => 2.0 * minutes(task),
        false => minutes(task),
    };
    let mut ends: BTreeMap<&str, f64> = BTreeMap::new();
    for task in tasks {
        let starts = task.dependencies.iter().map(|dep| ends[dep.as_str()]).fold(0.0, f64::max);
        ends.insert(&task.id, starts + minutes(task));
    }
    let critical = ends.values().copied().fold(0.0, f64::max);
    let work: f64 = tasks.iter().map(minutes).sum();
    critical.max(work / f64::from(agents))
}

/// Plays the mission in virtual time: an attempt takes what its task was estimated at, everything
/// else takes none.
fn took_minutes(tasks: &[PlannedTask], agents: u32, mut failing: BTreeSet<String>) -> f64 {
    let start = Timestamp(1_000_000);
    let mut play = Play { engine: Engine::recover([]), now: start, ends: BTreeSet::new() };
    // Money is no object here: a day's pool for retries would be measured instead of the schedule.
    let mut settings = Box::<Settings>::default();
    settings.money.caps =
        Caps { project_usd_max: Some(kapelle_core::Usd::cents(100_000_000)), ..Caps::NONE };
    settings.money.pools = None;
    play.send(Command::ChangeSettings { settings, by: kapelle_core::Actor("ada".into()) });
    let seats = BTreeMap::from([(Role::Developer, agents)]);
    play.send(Command::ConfigureTeam {
        seats,
        workers_max: agents,
        by: kapelle_core::Actor("ada".into()),
    });
    play.send(open(1, tasks.to_vec()));
    let is_merged = |play: &Play| play.engine.state().tasks().all(|task| task.merged.is_some());
    let mut ended = start;
    while !is_merged(&play) {
        let wake_at = play.engine.state().wake_at();
        let next = play.ends.first().map(|(at, ..)| *at);
        // A wait before a retry ends between two attempts.
        if let Some(wake_at) = wake_at.filter(|wake_at| next.is_none_or(|next| *wake_at < next)) {
            play.now = wake_at;
            play.send(Command::Tick);
            continue;
        }
        let (at, fence, task) = play.ends.pop_first().expect("something runs until all is merged");
        (play.now, ended) = (at, at);
        let name = play.engine.state().task(task).unwrap().name().to_owned();
        let outcome = match failing.remove(&name) {
            true => AttemptOutcome::Failed(Failure::new(FailureKind::AgentError, "it broke")),
            false => {
                let change = Some(commit(u64::from(task.0) + 2));
                AttemptOutcome::Done { change, touched: vec!["a".into()].into() }
            }
        };
        play.send(Command::FinishAttempt { fence, outcome, spent: Spending::default() });
    }
    assert!(failing.is_empty(), "{failing:?} never failed");
    ended.ms_since(start) as f64 / MINUTE_MS as f64
}

struct Play {
    engine: Engine,
    now: Timestamp,
    ends: BTreeSet<(Timestamp, Fence, TaskId)>,
}

impl Play {
    fn send(&mut self, command: Command) {
        let mut commands = vec![command];
        while let Some(command) = commands.pop() {
            let batch = self.engine.handle(vec![((), command)], self.now);
            let actions = self.engine.committed(batch);
            for (fence, effect) in actions.start {
                commands.extend(self.start(fence, effect));
            }
        }
    }

    fn start(&mut self, fence: Fence, effect: Effect) -> Option<Command> {
        match effect {
            Effect::RunAttempt { task, .. } => {
                let planned = &self.engine.state().task(task).unwrap().plan;
                let ms = u64::from(planned.estimated_duration_minutes.unwrap_or(1)) * MINUTE_MS;
                self.ends.insert((self.now.plus_ms(ms), fence, task));
                // Its agent is online at once.
                Some(Command::Heartbeat { fences: vec![fence] })
            }
            Effect::PrepareBranch { base, .. } => Some(Command::FinishBranch { fence, tip: base }),
            Effect::BuildLane { changes, .. } => {
                let step = |merge: &Merge| Step { task: merge.task, commit: merge.change.clone() };
                let steps = changes.iter().map(step).collect();
                Some(Command::FinishLane { fence, outcome: LaneOutcome::Built(steps) })
            }
            Effect::LandLane { .. } => {
                Some(Command::FinishAdvance { fence, outcome: AdvanceOutcome::Advanced })
            }
            Effect::RunChecks { .. }
            | Effect::TestLane { .. }
            | Effect::MeasureBaseline { .. }
            | Effect::RebaseChange { .. }
            | Effect::BuildRevert { .. }
            | Effect::Deliver { .. } => None,
        }
    }
}
