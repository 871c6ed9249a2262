//! Makespan: how close the queue's order comes to the shortest possible mission.
//!
//! A list scheduler with identical agents runs generated graphs through the real queue and
//! the real chains, on a virtual clock. Whatever the order, no mission can be shorter than
//! its longest chain, nor than all its work shared equally.

use std::collections::BTreeMap;
use std::fmt;

use kapelle_core::locks::LockTable;
use kapelle_core::plan::Priority;
use kapelle_core::queue::{
    Chains, Class, QueuePolicy, ReadyQueue, Standing, Strategy, Territories, Ticket,
};
use kapelle_core::{AgentId, MissionId, Role, TaskId, Timestamp};

const MINUTE_MS: u64 = 60_000;

/// A small generator of our own, so that the same seeds give the same graphs for ever.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }
}

#[derive(Debug, Clone)]
struct Job {
    minutes: u32,
    needs: Vec<usize>,
    priority: Priority,
    /// The first attempt is lost, and the task is done again.
    fails_once: bool,
}

type Graph = Vec<Job>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shape {
    Chains,
    Fan,
    Diamonds,
    Random,
}

const SHAPES: [Shape; 4] = [Shape::Chains, Shape::Fan, Shape::Diamonds, Shape::Random];

fn job(dice: &mut Dice, needs: Vec<usize>, retries: bool) -> Job {
    let minutes = 5 + dice.roll(41) as u32;
    let priority = match dice.roll(10) {
        0 => Priority::High,
        1 => Priority::Low,
        _ => Priority::Medium,
    };
    Job { minutes, needs, priority, fails_once: retries && dice.roll(10) == 0 }
}

fn graph(shape: Shape, seed: u64, retries: bool) -> Graph {
    let dice = &mut Dice(seed);
    let mut graph: Graph = Vec::new();
    match shape {
        Shape::Chains => {
            for _ in 0..4 + dice.roll(20) {
                let mut last = None;
                for _ in 0..2 + dice.roll(7) {
                    let next = job(dice, last.into_iter().collect(), retries);
                    graph.push(next);
                    last = Some(graph.len() - 1);
                }
            }
        }
        Shape::Fan => {
            for _ in 0..stories(dice) {
                let root = job(dice, vec![], retries);
                graph.push(root);
                let root = graph.len() - 1;
                for _ in 0..8 + dice.roll(25) {
                    let leaf = job(dice, vec![root], retries);
                    graph.push(leaf);
                }
            }
        }
        Shape::Diamonds => {
            for _ in 0..stories(dice) {
                let mut top = vec![];
                for _ in 0..1 + dice.roll(3) {
                    top = vec![diamond(dice, &mut graph, top, retries)];
                }
            }
        }
        Shape::Random => {
            for n in 0..40 + dice.roll(80) as usize {
                let needs = if n == 0 { 0 } else { dice.roll(4).min(n as u64) };
                let mut of: Vec<usize> = (0..needs)
                    .map(|_| n.saturating_sub(1 + dice.roll(12.min(n as u64)) as usize))
                    .collect();
                of.sort_unstable();
                of.dedup();
                let next = job(dice, of, retries);
                graph.push(next);
            }
        }
    }
    graph
}

/// A plan has several user stories. One alone would leave all but one agent idle at its root, in
/// whichever order, and the lower bound knows nothing of that.
fn stories(dice: &mut Dice) -> u64 {
    5 + dice.roll(6)
}

fn diamond(dice: &mut Dice, graph: &mut Graph, top: Vec<usize>, retries: bool) -> usize {
    let head = job(dice, top, retries);
    graph.push(head);
    let head = graph.len() - 1;
    let mut sides = Vec::new();
    for _ in 0..3 + dice.roll(8) {
        let side = job(dice, vec![head], retries);
        graph.push(side);
        sides.push(graph.len() - 1);
    }
    let foot = job(dice, sides, retries);
    graph.push(foot);
    graph.len() - 1
}

/// The longest chain and all the work, lost attempts included.
fn bound(graph: &Graph, agents: u64) -> f64 {
    let mut ends = vec![0u64; graph.len()];
    let mut work = 0;
    for (n, job) in graph.iter().enumerate() {
        let cost = u64::from(job.minutes) * if job.fails_once { 2 } else { 1 };
        work += cost;
        ends[n] = cost + job.needs.iter().map(|need| ends[*need]).max().unwrap_or(0);
    }
    let chain = ends.into_iter().max().unwrap_or(0);
    (chain as f64).max(work as f64 / agents as f64)
}

fn ticket(graph: &Graph, chains: &Chains, dependents: &[Vec<usize>], n: usize, now: u64) -> Ticket {
    let job = &graph[n];
    Ticket {
        task: TaskId(n as u32),
        mission: MissionId(1),
        role: Role::Developer,
        standing: Standing {
            priority: job.priority,
            dependencies: job.needs.len() as u32,
            dependents: dependents[n].len() as u32,
            minutes: job.minutes,
        },
        chain_minutes: chains.chain_minutes(TaskId(n as u32)),
        files: [].into(),
        class: Class::default(),
        promised: false,
        entered_at: Timestamp(now * MINUTE_MS),
    }
}

/// Minutes until everything is done.
fn makespan(graph: &Graph, agents: u32, policy: &QueuePolicy) -> u64 {
    let id = |n: &usize| TaskId(*n as u32);
    let mut open: Vec<usize> = graph.iter().map(|job| job.needs.len()).collect();
    let mut chains = Chains::default();
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); graph.len()];
    for (n, job) in graph.iter().enumerate() {
        job.needs.iter().for_each(|need| dependents[*need].push(n));
    }
    let planned = graph.iter().enumerate();
    let planned = planned.map(|(n, job)| (id(&n), job.minutes, job.needs.iter().map(id).collect()));
    chains.planned(&planned.collect::<Vec<_>>());
    let mut queue = ReadyQueue::new(policy.clone(), Territories::default());
    let locks = LockTable::default();
    for n in (0..graph.len()).filter(|n| graph[*n].needs.is_empty()) {
        queue.entered(ticket(graph, &chains, &dependents, n, 0), &locks);
    }
    let mut failed = vec![false; graph.len()];
    let mut ends: BTreeMap<(u64, TaskId), ()> = BTreeMap::new();
    let mut now = 0;
    let agent = AgentId { role: Role::Developer, seat: 1 };
    loop {
        while ends.len() < agents as usize
            && let Ok(pull) =
                queue.pull(agent, chains.outlook(agents), Timestamp(now * MINUTE_MS), |_| true)
        {
            queue.left(pull.task);
            chains.closed(pull.task);
            ends.insert((now + u64::from(graph[pull.task.0 as usize].minutes), pull.task), ());
        }
        let Some(((at, task), ())) = ends.pop_first() else { return now };
        now = at;
        let n = task.0 as usize;
        let freed = if graph[n].fails_once && !std::mem::replace(&mut failed[n], true) {
            chains.reopened(task);
            vec![n]
        } else {
            dependents[n].iter().for_each(|next| open[*next] -= 1);
            dependents[n].iter().copied().filter(|next| open[*next] == 0).collect()
        };
        for n in freed {
            queue.entered(ticket(graph, &chains, &dependents, n, now), &locks);
        }
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Ratios {
    sum: f64,
    worst: f64,
    count: f64,
}

impl Ratios {
    fn add(&mut self, ratio: f64) {
        self.sum += ratio;
        self.worst = self.worst.max(ratio);
        self.count += 1.0;
    }

    fn mean(self) -> f64 {
        self.sum / self.count
    }
}

impl fmt::Display for Ratios {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mean {:.3} worst {:.3}", self.mean(), self.worst)
    }
}

/// 200 graphs, 50 of each shape, on 3, 8 and 12 agents.
fn measure(policy: &QueuePolicy, retries: bool) -> (Ratios, BTreeMap<(Shape, u32), Ratios>) {
    let mut all = Ratios::default();
    let mut by = BTreeMap::<(Shape, u32), Ratios>::new();
    for seed in 0..50 {
        for shape in SHAPES {
            let graph = graph(shape, seed * 1_000 + shape as u64, retries);
            for agents in [3, 8, 12] {
                let ratio = makespan(&graph, agents, policy) as f64 / bound(&graph, agents.into());
                assert!(ratio >= 0.999, "shorter than possible: {ratio}");
                all.add(ratio);
                by.entry((shape, agents)).or_default().add(ratio);
            }
        }
    }
    (all, by)
}

fn policy(strategy: Strategy, urgent_permille: u32) -> QueuePolicy {
    QueuePolicy { strategy, urgent_permille, ..QueuePolicy::default() }
}

/// The goal of the project for the default rules: 1.10 on average, 1.30 at worst.
#[test]
fn the_default_order_is_near_the_shortest_possible() {
    for retries in [false, true] {
        let (all, by) = measure(&QueuePolicy::default(), retries);
        println!("default, retries {retries}: {all}");
        for ((shape, agents), ratios) in &by {
            println!("  {shape:?} on {agents}: {ratios}");
        }
        assert!(all.mean() <= 1.10, "{all}");
        assert!(all.worst <= 1.30, "{all}");
    }
}

/// The reason why the default is not the plain score: chains and long tasks that start late
/// are what a mission ends up waiting for.
#[test]
fn chains_first_is_shorter_than_score_alone() {
    for permille in [0, 250, 500, 750, 1_000, 1_500] {
        let (all, _) = measure(&policy(Strategy::CriticalPath, permille), false);
        println!("critical_path at {permille}: {all}");
    }
    let (scored, _) = measure(&policy(Strategy::Scored, 0), false);
    let (fifo, _) = measure(&policy(Strategy::PriorityFifo, 0), false);
    println!("scored: {scored}; priority_fifo: {fifo}");
    let (chains, _) = measure(&QueuePolicy::default(), false);
    assert!(chains.mean() < scored.mean());
}
