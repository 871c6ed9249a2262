//! A history as Kapelle makes it: the real engine, driven by a host that has no repository.
//!
//! The host plays by a script of numbers, so that one seed gives one history with retries,
//! questions, pauses, conflicts and cancellations in it.

use std::collections::BTreeMap;
use std::path::Path;

use kapelle_core::command::{
    AdvanceOutcome, AttemptOutcome, CheckResult, DeliveryOutcome, LaneOutcome, RewriteOutcome,
    Spending,
};
use kapelle_core::effect::Merge;
use kapelle_core::failure::{Failure, FailureKind};
use kapelle_core::flow::Phase;
use kapelle_core::merge::Step;
use kapelle_core::mission::MissionStage;
use kapelle_core::plan::Plan;
use kapelle_core::policy::{Check, Policy, Reading};
use kapelle_core::report::{Question, Usage};
use kapelle_core::task::Stage;
use kapelle_core::{
    Actor, Command, Commit, Effect, Engine, Fence, MissionId, Record, RequestId, Role, Seq,
    Timestamp, Usd,
};
use kapelle_store::{Epoch, Journal, Location, Postgres, Sqlite, Writer, tables_path};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::{cluster, crowd};

/// A person who let a mission go on so often gives up: it has spent what it may.
const RESUMES_MAX: u32 = 40;

pub struct Host {
    pub engine: Engine,
    pub records: Vec<Record>,
    running: BTreeMap<Fence, Effect>,
    now: u64,
    luck: u64,
    commits: u64,
    /// How often somebody let the mission at hand go on.
    resumed: u32,
    /// People and councils have a say (`crowd`).
    pub crowded: bool,
}

fn check(passed: bool) -> CheckResult {
    let (name, output) = ("test".to_owned(), "1 test ran".to_owned());
    CheckResult { name, passed, output, duration_ms: 12, ..CheckResult::default() }
}

pub fn me() -> Actor {
    Actor("ada".into())
}

/// A first mission that ends well whatever happens on the way, and `more` that end anyhow.
pub fn history(seed: u64, more: u32) -> Vec<Record> {
    let mut host = Host::new(seed);
    host.open("first");
    host.run_until_settled(MissionId(1));
    for number in 0..more {
        host.open(&format!("more-{number}"));
        host.run_until_settled(MissionId(number + 2));
    }
    host.records
}

/// A store with that history, written in batches of `batch` records.
pub fn filled(path: &Path, records: &[Record], batch: usize) -> (Sqlite, Epoch) {
    let mut store = Sqlite::open(path).unwrap();
    let epoch = store.claim_epoch().unwrap();
    for batch in records.chunks(batch) {
        store.append(epoch, store.head().seq, batch).unwrap();
    }
    (store, epoch)
}

/// The tables for people, as their SQL client sees them.
pub fn tables(path: &Path) -> Connection {
    Connection::open(tables_path(path)).unwrap()
}

/// A store to be told a story, and what keeps it there.
pub struct Place {
    pub location: Location,
    pub name: &'static str,
    _dir: Option<TempDir>,
}

/// Held, and freed when it goes.
#[allow(dead_code, reason = "they are kept for what ends with them")]
pub enum TablesLock {
    File(Connection),
    Server(cluster::Session),
}

/// An empty store of every kind that lasts.
pub fn places() -> [Place; 2] {
    let dir = tempfile::tempdir().unwrap();
    let location = Location::sqlite(&dir.path().join("db"));
    let sqlite = Place { location, name: "SQLite", _dir: Some(dir) };
    let location = cluster::shared().project();
    [sqlite, Place { location, name: "PostgreSQL", _dir: None }]
}

impl Place {
    /// Does something to the tables, as a person could.
    pub fn change(&self, sql: &str) {
        match self.location.path() {
            Some(path) => tables(path).execute_batch(sql).unwrap(),
            None => drop(cluster::shared().psql(&schema(&self.location), sql).unwrap()),
        }
    }

    /// Does something to the journal, as somebody could who means it.
    pub fn harm_journal(&self, sql: &str) {
        let Some(path) = self.location.path() else {
            let sql = format!("DROP TRIGGER journal_is_not_edited ON journal; {sql}");
            return drop(cluster::shared().psql(&schema(&self.location), &sql).unwrap());
        };
        let triggers = "DROP TRIGGER journal_is_not_edited; DROP TRIGGER journal_is_not_cut";
        let raw = Connection::open(path).unwrap();
        raw.execute_batch(&format!("{triggers}; {sql}")).unwrap();
    }

    /// The search begins again.
    pub fn forget_search(&self) {
        let harm = "DELETE FROM search_watermark";
        match self.location.path() {
            Some(path) => drop(Connection::open(path).unwrap().execute(harm, []).unwrap()),
            None => self.change(harm),
        }
    }

    /// A person's SQL client that has locked tables, until it is dropped.
    pub fn lock_tables(&self) -> TablesLock {
        match self.location.path() {
            Some(path) => {
                let raw = tables(path);
                raw.execute_batch("BEGIN IMMEDIATE").unwrap();
                TablesLock::File(raw)
            }
            None => {
                let sql = "BEGIN; LOCK TABLE missions;";
                TablesLock::Server(cluster::shared().session(&schema(&self.location), sql))
            }
        }
    }

    /// Takes the project away from whoever leads it, without asking.
    pub fn take_over(&self) -> Epoch {
        journal(&self.location).claim_epoch().unwrap()
    }

    /// The records, without tables or a snapshot.
    pub fn fill(&self, records: &[Record]) {
        fill(&self.location, records);
    }

    /// What a person's SQL client says to a question with one column.
    pub fn ask(&self, sql: &str) -> Vec<String> {
        let Some(path) = self.location.path() else {
            let told = cluster::shared().psql(&schema(&self.location), sql).unwrap();
            return told.lines().map(str::to_owned).collect();
        };
        let raw = tables(path);
        let mut statement = raw.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get::<_, rusqlite::types::Value>(0)).unwrap();
        let text = |value| match value {
            rusqlite::types::Value::Integer(number) => number.to_string(),
            rusqlite::types::Value::Text(text) => text,
            other => panic!("{other:?}"),
        };
        rows.map(|value| text(value.unwrap())).collect()
    }
}

fn journal(location: &Location) -> Box<dyn Journal> {
    match location.path() {
        Some(path) => Box::new(Sqlite::open(path).unwrap()),
        None => Box::new(Postgres::open(location).unwrap()),
    }
}

/// Writes the records into an empty store, without tables or a snapshot.
pub fn fill(location: &Location, records: &[Record]) {
    let mut journal = journal(location);
    let epoch = journal.claim_epoch().unwrap();
    journal.append(epoch, Seq(0), records).unwrap();
}

/// The schema of a project in PostgreSQL.
pub fn schema(location: &Location) -> String {
    let shown = location.to_string();
    shown.split_whitespace().nth(1).unwrap().to_owned()
}

/// Ends the session that has the lock of the project, and tells how many there were. Others share
/// the server.
pub fn end_leading_session(location: &Location) -> String {
    use sha2::{Digest, Sha256};
    let schema = schema(location);
    // The number of the lock, as the store makes it.
    let digest = Sha256::digest(format!("kapelle leads {schema}"));
    let key = i64::from_be_bytes(digest[..8].try_into().unwrap());
    let sql = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory'
            AND ((classid::bigint << 32) | objid::bigint) = {key}"
    );
    cluster::shared().psql(&schema, &sql).unwrap()
}

/// Writes a history into a store, in batches of so many records, and folds its tables.
pub fn write(location: &Location, records: &[Record], batch: usize) {
    let writer = Writer::open(location).unwrap();
    let mut at = writer.opened_at().seq;
    for batch in records.chunks(batch) {
        at = writer.append_and_wait(writer.epoch(), at, batch.to_vec()).unwrap().seq;
    }
    writer.close().unwrap();
}

impl Host {
    pub fn new(seed: u64) -> Host {
        let mut host = Host {
            engine: Engine::recover([]),
            records: Vec::new(),
            running: BTreeMap::new(),
            now: 1_000_000,
            luck: seed.wrapping_mul(2) + 1,
            commits: 0,
            resumed: 0,
            crowded: false,
        };
        host.set_team(2);
        host
    }

    fn set_team(&mut self, developers: u32) {
        let seats = BTreeMap::from([(Role::Developer, developers), (Role::Tester, 1)]);
        self.give(Command::ConfigureTeam { seats, workers_max: 2, by: Actor("ada".into()) });
    }

    pub fn open(&mut self, request: &str) {
        let plan = r#"{"tasks": [
            {"id": "1-1", "title": "first", "priority": "HIGH"},
            {"id": "1-2", "title": "second", "dependencies": ["1-1"]},
            {"id": "1-3", "title": "third"},
            {"id": "1-4", "title": "last", "dependencies": ["1-2", "1-3"]}]}"#;
        let (name, command) = ("test".into(), "true".into());
        let check = Check { name, command, timeout_ms: 1_000, reading: Reading::default() };
        let policy = Policy {
            flow: vec![Phase::Red, Phase::Green],
            checks: vec![check],
            ..Policy::default()
        };
        let (plan, policy) = match self.crowded {
            true => (crowd::PLAN, crowd::rules(policy, self.commits)),
            false => (plan, policy),
        };
        let base = self.commit();
        self.give(Command::OpenMission {
            request: RequestId(request.into()),
            goal: format!("the goal of {request}"),
            target: "main".into(),
            base,
            plan: Plan::parse(plan).unwrap(),
            policy: Box::new(policy),
            by: me(),
        });
    }

    /// Lets things happen until nothing more will.
    pub fn run_until_settled(&mut self, mission: MissionId) {
        self.resumed = 0;
        if self.crowded {
            self.leave_locks_to_time(mission);
        }
        for _ in 0..10_000 {
            if !self.chore(mission) {
                return;
            }
            self.disturb(mission);
        }
        panic!("{mission} does not settle");
    }

    /// Somebody who is at work is stopped for longer than anybody's locks last.
    fn leave_locks_to_time(&mut self, mission: MissionId) {
        let works = |host: &Host| host.engine.state().leases().any(|(_, of)| of.mission == mission);
        while !works(self) && self.chore(mission) {}
        self.give(Command::PauseMission { mission, reason: "lunch".into(), by: me() });
        self.now += 3_600_000;
        self.give(Command::Tick);
        self.give(Command::ResumeMission { mission, by: me() });
    }

    /// Lets things happen until an agent is at work in the first mission.
    pub fn run_until_somebody_works(&mut self) {
        while self.engine.state().leases().next().is_none() {
            assert!(self.chore(MissionId(1)), "nobody works");
        }
    }

    /// Lets the next thing happen; false when there is none.
    pub fn chore(&mut self, mission: MissionId) -> bool {
        self.now += 500;
        if let Some((fence, effect)) = self.running.pop_first() {
            let command = self.finish(fence, &effect);
            self.give(command);
            return true;
        }
        if self.crowded && (self.councils_sit() || self.people_speak(mission)) {
            return true;
        }
        if self.ask_people(mission) {
            return true;
        }
        let Some(at) = self.engine.state().wake_at() else { return false };
        self.now = self.now.max(at.0);
        self.give(Command::Tick);
        true
    }

    fn disturb(&mut self, mission: MissionId) {
        if self.crowded {
            self.people_meddle(mission);
        }
        if self.chance(40) {
            self.give(Command::HostStarted);
        }
        if self.chance(60) {
            let reason = "lunch".to_owned();
            self.give(Command::PauseMission { mission, reason, by: me() });
        }
        if self.chance(30) {
            let fences = self.running.keys().copied().collect();
            self.now += 200_000;
            self.give(Command::Heartbeat { fences });
        }
        if self.chance(30) {
            self.set_team(self.now as u32 % 3 + 1);
        }
        if mission.0 > 1 && self.chance(50) {
            let reason = "no longer wanted".to_owned();
            self.give(Command::CancelMission { mission, reason, by: me() });
        }
    }

    /// What only a person can do; false when there is nothing of that kind.
    fn ask_people(&mut self, id: MissionId) -> bool {
        let state = self.engine.state();
        let mission = state.mission(id).unwrap();
        let asking = state.tasks_of(mission).find_map(|task| match &task.stage {
            Stage::Asking { question } => Some((task.id, question.resume_id.clone())),
            _ => None,
        });
        let command = match (&mission.stage, asking) {
            _ if mission.has_ended() => return false,
            _ if mission.paused.is_some() && self.resumed == RESUMES_MAX => {
                Command::CancelMission { mission: id, reason: "it never ends".into(), by: me() }
            }
            _ if mission.paused.is_some() => {
                self.resumed += 1;
                Command::ResumeMission { mission: id, by: me() }
            }
            (_, Some((task, resume_id))) => {
                Command::AnswerCheckpoint { task, resume_id, input: "yes".into(), by: me() }
            }
            (MissionStage::Proposed { commit }, None) => {
                Command::ApproveDelivery { mission: id, commit: commit.clone(), by: me() }
            }
            _ => return false,
        };
        self.give(command);
        true
    }

    /// One input, with its records and what it starts and stops.
    pub fn give(&mut self, command: Command) {
        let batch = self.engine.handle(vec![((), command)], Timestamp(self.now));
        self.records.extend(batch.records.iter().cloned());
        let actions = self.engine.committed(batch);
        self.running.extend(actions.start);
        for fence in actions.stop {
            self.running.remove(&fence);
        }
    }

    fn finish(&mut self, fence: Fence, effect: &Effect) -> Command {
        if self.chance(25) && !matches!(effect, Effect::RunAttempt { .. }) {
            let failure = Failure::new(FailureKind::DiskFull, "no space left on device");
            return Command::FailChore { fence, failure };
        }
        match effect {
            Effect::PrepareBranch { base, .. } => {
                Command::FinishBranch { fence, tip: base.clone() }
            }
            Effect::RunAttempt { .. } => {
                if self.crowded {
                    self.complete_operation(fence);
                }
                self.finish_attempt(fence)
            }
            Effect::RunChecks { task, .. } => {
                let state = self.engine.state();
                let task = state.task(*task).unwrap();
                let red = matches!(task.stage, Stage::Gating { .. })
                    && task.phase(&state.mission(task.mission).unwrap().policy) == Some(Phase::Red);
                let passed = red == self.chance(15);
                Command::FinishChecks { fence, results: vec![check(passed)] }
            }
            Effect::TestLane { .. } | Effect::MeasureBaseline { .. } => {
                let passed = !self.chance(15);
                Command::FinishChecks { fence, results: vec![check(passed)] }
            }
            Effect::BuildLane { changes, .. } => {
                let paths = vec!["src/lib.rs".to_owned()];
                let outcome = match self.chance(20) {
                    true => LaneOutcome::Conflict { task: changes[0].task, paths },
                    false => LaneOutcome::Built(self.steps(changes)),
                };
                Command::FinishLane { fence, outcome }
            }
            Effect::RebaseChange { .. } | Effect::BuildRevert { .. } => {
                let (change, touched) = (self.commit(), vec!["src/lib.rs".to_owned()]);
                let outcome = match self.chance(30) {
                    true => RewriteOutcome::Conflict { paths: touched },
                    false => RewriteOutcome::Written { change, touched: touched.into() },
                };
                Command::FinishRewrite { fence, outcome }
            }
            Effect::LandLane { .. } => {
                let actual = self.commit();
                let moved = self.chance(10);
                let outcome = match moved {
                    true => AdvanceOutcome::Moved { actual },
                    false => AdvanceOutcome::Advanced,
                };
                Command::FinishAdvance { fence, outcome }
            }
            Effect::Deliver { .. } => {
                let refused = DeliveryOutcome::Refused { reason: "main is protected".into() };
                let outcome = if self.chance(2) { refused } else { DeliveryOutcome::Delivered };
                Command::FinishDelivery { fence, outcome }
            }
        }
    }

    fn steps(&mut self, changes: &[Merge]) -> Vec<Step> {
        changes.iter().map(|merge| Step { task: merge.task, commit: self.commit() }).collect()
    }

    fn finish_attempt(&mut self, fence: Fence) -> Command {
        let change = Some(self.commit());
        let outcome = match self.luck() % 16 {
            0 => AttemptOutcome::Failed(Failure::new(FailureKind::Network, "connection reset")),
            1 => {
                let (message, resume_id) = ("may I?".to_owned(), format!("q{fence}"));
                let question = Question { message, resume_id, options: vec!["yes".into()] };
                AttemptOutcome::Asked { question, change }
            }
            3..8 if self.crowded => {
                AttemptOutcome::Failed(Failure::new(FailureKind::AgentError, "it gave up"))
            }
            8 if self.crowded => {
                AttemptOutcome::Failed(Failure::new(FailureKind::RateLimited, "slow down"))
            }
            2 if self.chance(4) => {
                AttemptOutcome::Failed(Failure::new(FailureKind::Auth, "the key was refused"))
            }
            // What others have touched since cannot be taken back.
            _ if self.crowded => {
                AttemptOutcome::Done { change, touched: vec![format!("src/{fence}.rs")].into() }
            }
            _ => AttemptOutcome::Done { change, touched: vec!["src/lib.rs".into()].into() },
        };
        let usd = if self.chance(50) { Usd::cents(300) } else { Usd::micros(12_345) };
        let model = "demo".to_owned();
        let usage = vec![Usage { model, input_tokens: 1_000, output_tokens: 100 }];
        Command::FinishAttempt { fence, outcome, spent: Spending { usd, usage, unpriced: None } }
    }

    fn commit(&mut self) -> Commit {
        self.commits += 1;
        format!("{:040x}", self.commits).parse().unwrap()
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.luck().is_multiple_of(one_in)
    }

    /// A fixed sequence of numbers without a pattern (splitmix64).
    pub fn luck(&mut self) -> u64 {
        self.luck = self.luck.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.luck ^ (self.luck >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
