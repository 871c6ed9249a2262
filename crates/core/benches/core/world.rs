//! A quick and healthy world: every effect succeeds as soon as it is started.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use kapelle_core::command::{AdvanceOutcome, AttemptOutcome, LaneOutcome, Spending};
use kapelle_core::effect::Merge;
use kapelle_core::merge::Step;
use kapelle_core::plan::{Plan, PlannedTask, Priority};
use kapelle_core::policy::{Budget, Policy};
use kapelle_core::{
    Actor, Command, Commit, Effect, Engine, Fence, Record, RequestId, Role, Timestamp, Usd,
};

const FOREVER_MS: u64 = 1 << 50;

/// A command takes a few microseconds, and whoever is interrupted waits for some milliseconds.
const INTERRUPTED: Duration = Duration::from_micros(250);

pub struct World {
    engine: Engine,
    journal: Vec<Record>,
    running: VecDeque<(Fence, Effect)>,
    /// Made beforehand: what the world answers is not what is measured.
    commits: Vec<Commit>,
    merged: u32,
    missions: u32,
    took: Took,
    /// Of these, the commands in whose time somebody else had the processor.
    interrupted: Took,
    /// What the records of a command are written to; None if whoever takes them writes them.
    pub written: Option<Vec<u8>>,
}

/// How long commands took, without what the world does about them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Took {
    pub commands: u32,
    /// To decide and to apply.
    pub deciding: Duration,
    /// To write their events as JSON, right after, as the conductor does.
    pub writing: Duration,
}

impl Took {
    fn add(&mut self, deciding: Duration, writing: Duration) {
        self.commands += 1;
        self.deciding += deciding;
        self.writing += writing;
    }
}

pub fn commit(number: u64) -> Commit {
    format!("{number:040x}").parse().unwrap()
}

pub fn write(records: &[Record], buffer: &mut Vec<u8>) {
    for record in records {
        serde_json::to_writer(&mut *buffer, record).unwrap();
        buffer.push(b'\n');
    }
}

pub fn task(id: String, dependencies: Vec<String>) -> PlannedTask {
    PlannedTask {
        title: format!("task {id}"),
        id,
        description: String::new(),
        priority: Priority::Medium,
        dependencies,
        files: Vec::new(),
        estimated_duration_minutes: Some(5),
        ..PlannedTask::default()
    }
}

pub fn policy() -> Policy {
    let mission_usd_max = Usd::cents(1_000_000_000);
    let budget = Budget { mission_usd_max, attempt_usd_max: Usd::cents(1) };
    // Nobody dies in this world, so no lease and no attempt has to end by itself.
    let (lease_ttl_ms, attempt_timeout_ms) = (FOREVER_MS, [(Role::Developer, FOREVER_MS)].into());
    Policy { budget, lease_ttl_ms, attempt_timeout_ms, ..Policy::default() }
}

pub fn open(number: u32, tasks: Vec<PlannedTask>) -> Command {
    Command::OpenMission {
        request: RequestId(number.to_string()),
        goal: "be quick".into(),
        target: "main".into(),
        base: commit(1),
        plan: Plan { goal: None, tasks },
        policy: Box::new(policy()),
        by: Actor("bench".into()),
    }
}

impl World {
    /// Tasks without dependencies, in missions of the largest size that a plan may have.
    pub fn with_tasks(tasks: u32) -> World {
        let mut world = World {
            engine: Engine::recover([]),
            journal: Vec::new(),
            running: VecDeque::new(),
            commits: Vec::new(),
            merged: 0,
            missions: 0,
            took: Took::default(),
            interrupted: Took::default(),
            written: Some(Vec::new()),
        };
        let seats = BTreeMap::from([(Role::Developer, 8)]);
        world.send(Command::ConfigureTeam { seats, workers_max: 8, by: Actor("ada".into()) });
        world.add_tasks(tasks);
        world
    }

    /// More of them.
    pub fn add_tasks(&mut self, tasks: u32) {
        // Room for all that follows, so that growing is not measured either.
        self.journal.reserve(tasks as usize * 12 + 100);
        self.commits.extend((0..u64::from(tasks)).map(|number| commit(number + 2)));
        let mut left = tasks;
        while left > 0 {
            let size = left.min(10_000);
            let plans = (0..size).map(|n| task(format!("t{n}"), Vec::new())).collect();
            self.missions += 1;
            self.send(open(self.missions, plans));
            left -= size;
        }
    }

    /// Makes the branches of the missions, and lets their first tasks start.
    pub fn begin(&mut self) {
        while matches!(self.running.front(), Some((_, Effect::PrepareBranch { .. }))) {
            self.step();
        }
    }

    /// Goes on until this many more tasks are merged.
    pub fn finish(&mut self, tasks: u32) -> Took {
        (self.took, self.interrupted) = Default::default();
        let wanted = self.merged + tasks;
        while self.merged < wanted && self.step() {}
        self.took
    }

    /// The same, without the commands that were interrupted: for few and short ones, of which none
    /// takes long by itself.
    pub fn finish_undisturbed(&mut self, tasks: u32) -> Took {
        let (all, interrupted) = (self.finish(tasks), self.interrupted);
        Took {
            commands: all.commands - interrupted.commands,
            deciding: all.deciding - interrupted.deciding,
            writing: all.writing - interrupted.writing,
        }
    }

    /// One command, if anything is under way.
    pub fn step(&mut self) -> bool {
        let Some((fence, effect)) = self.running.pop_front() else { return false };
        let answer = self.answer(fence, &effect);
        self.send(answer);
        true
    }

    pub fn take_journal(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.journal)
    }

    fn send(&mut self, command: Command) {
        let inputs = vec![((), command)];
        let started = Instant::now();
        let mut batch = self.engine.handle(inputs, Timestamp(1_000));
        let decided = Instant::now();
        if let Some(written) = &mut self.written {
            written.clear();
            write(&batch.records, written);
        }
        let (deciding, writing) = (decided - started, decided.elapsed());
        self.took.add(deciding, writing);
        if deciding.max(writing) > INTERRUPTED {
            self.interrupted.add(deciding, writing);
        }
        self.journal.append(&mut batch.records);
        let actions = self.engine.committed(batch);
        assert!(actions.replies.iter().all(|(_, reply)| reply.is_ok()), "{:?}", actions.replies);
        self.running.extend(actions.start);
    }

    fn answer(&mut self, fence: Fence, effect: &Effect) -> Command {
        match effect {
            Effect::PrepareBranch { base, .. } => {
                Command::FinishBranch { fence, tip: base.clone() }
            }
            Effect::RunAttempt { .. } => {
                let change = self.commits.pop();
                let outcome =
                    AttemptOutcome::Done { change, touched: vec!["src/lib.rs".into()].into() };
                Command::FinishAttempt { fence, outcome, spent: Spending::default() }
            }
            Effect::BuildLane { changes, .. } => {
                self.merged += changes.len() as u32;
                let step = |merge: &Merge| Step { task: merge.task, commit: merge.change.clone() };
                let steps = changes.iter().map(step).collect();
                Command::FinishLane { fence, outcome: LaneOutcome::Built(steps) }
            }
            Effect::LandLane { .. } => {
                Command::FinishAdvance { fence, outcome: AdvanceOutcome::Advanced }
            }
            Effect::RunChecks { .. }
            | Effect::TestLane { .. }
            | Effect::MeasureBaseline { .. }
            | Effect::RebaseChange { .. }
            | Effect::BuildRevert { .. }
            | Effect::Deliver { .. } => {
                panic!("this world has no checks, no conflicts, and approves nothing")
            }
        }
    }
}
