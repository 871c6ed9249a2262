//! What holds of the engine whatever is asked of it, in whatever order: money and files.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_core::calendar::Span;
use kapelle_core::command::{AttemptOutcome, Spending};
use kapelle_core::ledger::{self, Caps, Limit, Purse, Scope, WatchdogPolicy};
use kapelle_core::locks::LockPolicy;
use kapelle_core::plan::PlannedTask;
use kapelle_core::policy::{Budget, Policy};
use kapelle_core::queue::{Contention, QueuePolicy, Territories};
use kapelle_core::settings::Settings;
use kapelle_core::{
    AgentId, Command, Effect, Engine, Event, Fence, Record, Role, State, TaskId, Timestamp, Usd,
};
use proptest::prelude::*;

use crate::fixture::{M1, World, ann, commit, done, failed, open, task};
use kapelle_core::failure::FailureKind;

/// Something that somebody asks; `of` picks one of those that are there.
#[derive(Debug, Clone)]
enum Move {
    Finish { of: usize, permille: u64, fails: bool },
    Start { of: usize, within: bool, cents: Option<u64> },
    End { of: usize, permille: u64 },
    LateBill { of: usize, cents: u64 },
    Caps { day: Option<u64>, task: Option<u64>, agent: Option<u64> },
    Raise { cents: u64 },
    Pause,
    Resume,
    LetSpend,
    Wait { seconds: u64 },
    Beat,
    Crash,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let caps = || prop::option::of(50u64..600);
    let one = prop_oneof![
        5 => (0usize..9, 0u64..1_200, prop::bool::weighted(0.2))
            .prop_map(|(of, permille, fails)| Move::Finish { of, permille, fails }),
        5 => (0usize..9, any::<bool>(), prop::option::of(0u64..120))
            .prop_map(|(of, within, cents)| Move::Start { of, within, cents }),
        4 => (0usize..9, 0u64..1_200).prop_map(|(of, permille)| Move::End { of, permille }),
        1 => (0usize..20, 0u64..150).prop_map(|(of, cents)| Move::LateBill { of, cents }),
        2 => (caps(), caps(), caps()).prop_map(|(day, task, agent)| Move::Caps { day, task, agent }),
        1 => (0u64..2_000).prop_map(|cents| Move::Raise { cents }),
        1 => Just(Move::Pause),
        3 => Just(Move::Resume),
        1 => Just(Move::LetSpend),
        2 => (1u64..7_200).prop_map(|seconds| Move::Wait { seconds }),
        2 => Just(Move::Beat),
        1 => Just(Move::Crash),
    ];
    prop::collection::vec(one, 1..60)
}

fn settings(day: Option<u64>, task: Option<u64>, agent: Option<u64>) -> Settings {
    let cents = |cents: Option<u64>| cents.map(Usd::cents);
    let caps = Caps {
        day_usd_max: cents(day),
        task_usd_max: cents(task),
        agent_usd_max: cents(agent),
        project_usd_max: Some(Usd::cents(1_500)),
        ..Caps::NONE
    };
    // Half an hour's worth of alarms is another test's.
    let watchdog = WatchdogPolicy { minute_usd_max: Usd::cents(100), ..WatchdogPolicy::default() };
    let money = ledger::Policy { caps, pools: None, watchdog, ..ledger::Policy::default() };
    Settings { money, ..Settings::default() }
}

/// The engine with a second fold of its journal beside it, which looks at every record.
struct Run {
    world: World,
    shadow: State,
    seen: usize,
    fences: BTreeSet<Fence>,
    /// What may be held: for attempts that run, and for those whose bill may still come.
    claims: BTreeMap<Fence, Usd>,
}

impl Run {
    fn new() -> Run {
        let mut world = World::empty();
        let seats = BTreeMap::from([(Role::Developer, 4)]);
        world.must(Command::ConfigureTeam { seats, workers_max: 4, by: ann() });
        let settings = Box::new(settings(Some(500), Some(300), Some(400)));
        world.must(Command::ChangeSettings { settings, by: ann() });
        let budget = Budget { mission_usd_max: Usd::cents(900), attempt_usd_max: Usd::cents(100) };
        let tasks = ["1", "2", "3", "4", "5", "6"].map(|name| task(name, &[])).to_vec();
        world.must(open(tasks, Policy { budget, ..Policy::default() }));
        world.chores();
        let (fences, claims) = (BTreeSet::new(), BTreeMap::new());
        Run { world, shadow: State::default(), seen: 0, fences, claims }
    }

    fn attempts(&self) -> Vec<Fence> {
        let attempt = |effect: &Effect| matches!(effect, Effect::RunAttempt { .. });
        self.world.running.iter().filter(|(_, e)| attempt(e)).map(|(fence, _)| *fence).collect()
    }

    /// One of the attempts, if there is one.
    fn nth(&self, of: usize) -> Option<Fence> {
        let all = self.attempts();
        all.get(of.checked_rem(all.len())?).copied()
    }

    fn command(&mut self, step: &Move) -> Option<Command> {
        let share = |usd: Usd, permille: u64| Usd::micros(usd.as_micros() * permille / 1_000);
        let spending = |usd| Spending { usd, ..Spending::default() };
        Some(match step {
            Move::Finish { of, permille, fails } => {
                let fence = self.nth(*of)?;
                let outcome = match fails {
                    true => failed(FailureKind::AgentError),
                    false => done(1_000 + fence.0, &[]),
                };
                let spent = spending(share(Usd::cents(100), *permille));
                Command::FinishAttempt { fence, outcome, spent }
            }
            Move::Start { of, within, cents } => {
                let fence = self.nth(*of)?;
                let open = self.world.state().sub_agents(fence);
                let of = open.first().filter(|_| *within).map(|(id, _)| *id);
                Command::OpenSubAgent { fence, of, usd_max: cents.map(Usd::cents) }
            }
            Move::End { of, permille } => {
                let fence = self.nth(*of)?;
                let open = self.world.state().sub_agents(fence);
                let (sub_agent, left) = *open.get(of.checked_rem(open.len())?)?;
                Command::CloseSubAgent { fence, sub_agent, spent: spending(share(left, *permille)) }
            }
            Move::LateBill { of, cents } => {
                let fence = *self.fences.iter().nth(of.checked_rem(self.fences.len())?)?;
                Command::ReportSpending { fence, spent: spending(Usd::cents(*cents)) }
            }
            Move::Caps { day, task, agent } => {
                let settings = Box::new(settings(*day, *task, *agent));
                Command::ChangeSettings { settings, by: ann() }
            }
            Move::Raise { cents } => {
                let (limit, usd) = (Limit::Mission, Usd::cents(*cents));
                Command::RaiseCap { mission: M1, limit, usd, reason: "more".into(), by: ann() }
            }
            Move::Pause => Command::PauseMission { mission: M1, reason: "lunch".into(), by: ann() },
            Move::Resume => Command::ResumeMission { mission: M1, by: ann() },
            Move::LetSpend => Command::ResumeSpending { by: ann() },
            Move::Beat => Command::Heartbeat { fences: self.attempts() },
            Move::Wait { .. } | Move::Crash => return None,
        })
    }

    fn step(&mut self, step: &Move) {
        match step {
            Move::Wait { seconds } => drop(self.world.wait(seconds * 1_000)),
            Move::Crash => self.world.restart(),
            _ => {
                if let Some(command) = self.command(step) {
                    let _refused = self.world.send(command);
                }
            }
        }
        self.world.chores();
        self.fences.extend(self.attempts());
    }

    /// Folds what is new. Whatever takes money finds room for it below every cap that binds.
    fn follow(&mut self) -> Result<(), TestCaseError> {
        for record in &self.world.journal[self.seen..] {
            claim(&mut self.claims, &self.shadow, record);
            self.shadow.apply(&record.event, record.at);
            if let Event::LeaseGranted { task, agent, fence, .. } = &record.event {
                for scope in scopes(*task, *agent, record.at) {
                    let (purse, cap) = (self.purse(scope), self.shadow.ledger().cap(scope));
                    prop_assert!(
                        cap.is_none_or(|cap| purse.committed() <= cap),
                        "{fence} was granted: {purse:?} in {scope:?} of {cap:?}"
                    );
                }
            }
            if let Event::SubAgentOpened { fence, .. } = &record.event {
                self.parts_fit(*fence)?;
            }
        }
        self.seen = self.world.journal.len();
        Ok(())
    }

    /// What sub-agents have is part of what their attempt has not spent.
    fn parts_fit(&self, fence: Fence) -> Result<(), TestCaseError> {
        let reserved = self.shadow.lease(fence).map_or(Usd::ZERO, |lease| lease.reserved);
        let parts = self.shadow.sub_agents(fence).into_iter();
        let parts = parts.fold(Usd::ZERO, |sum, (_, left)| sum + left);
        prop_assert!(parts <= reserved, "sub-agents of {fence} have {parts} of {reserved}");
        Ok(())
    }

    fn purse(&self, scope: Scope) -> Purse {
        self.shadow.ledger().purse(scope)
    }

    /// Tasks add up to the mission, agents too, the mission to the project; nothing is lost, and
    /// nothing is held for what does not run.
    fn conserves(&self) -> Result<(), TestCaseError> {
        let ledger = self.shadow.ledger();
        let mission = self.purse(Scope::Mission(M1));
        let sum = |all: Vec<Purse>| {
            all.iter().fold((Usd::ZERO, Usd::ZERO), |(spent, reserved), purse| {
                (spent + purse.spent, reserved + purse.reserved)
            })
        };
        let expected = (mission.spent, mission.reserved);
        prop_assert_eq!(sum(ledger.by_task(M1).map(|(_, p)| p).collect()), expected);
        prop_assert_eq!(sum(ledger.by_agent(M1).map(|(_, p)| p).collect()), expected);
        prop_assert_eq!(sum(vec![self.purse(Scope::Project)]), expected);
        let of_tasks = self.shadow.tasks().fold(Usd::ZERO, |sum, task| sum + task.spent);
        prop_assert_eq!(of_tasks, mission.spent);
        let most = self.claims.values().fold(Usd::ZERO, |sum, usd| sum + *usd);
        prop_assert!(mission.reserved <= most, "{} of {most} are held", mission.reserved);
        if self.shadow.leases().next().is_none() && self.shadow.wake_at().is_none() {
            prop_assert_eq!(mission.reserved, Usd::ZERO);
        }
        Ok(())
    }
}

/// What a record changes about what may be held. A bill ends a claim; so does an end that brings
/// its bill, or the word that nobody waits for it any more.
fn claim(claims: &mut BTreeMap<Fence, Usd>, before: &State, record: &Record) {
    match &record.event {
        Event::LeaseGranted { fence, reserved, .. } => drop(claims.insert(*fence, *reserved)),
        Event::AttemptFailed { fence, .. }
            if before.lease(*fence).is_some_and(|lease| record.at >= lease.deadline) => {}
        Event::AttemptFinished { fence, .. }
        | Event::AttemptFailed { fence, .. }
        | Event::CostCharged { fence, .. }
        | Event::ReservationReleased { fence, .. } => drop(claims.remove(fence)),
        _ => {}
    }
}

fn scopes(task: TaskId, agent: AgentId, at: Timestamp) -> [Scope; 7] {
    [
        Scope::Task(M1, Some(task)),
        Scope::Agent(M1, Some(agent)),
        Scope::Mission(M1),
        Scope::Day(Span::Day.number(at)),
        Scope::Week(Span::Week.number(at)),
        Scope::Month(Span::Month.number(at)),
        Scope::Project,
    ]
}

/// A plan of files that meet, and who may write where.
#[derive(Debug, Clone)]
struct Site {
    files: Vec<BTreeSet<u8>>,
    territories: BTreeMap<u32, BTreeSet<u8>>,
}

#[derive(Debug, Clone)]
enum Deed {
    Finish { of: usize, file: u8 },
    Silence { seconds: u64 },
    Beat,
    Crash,
}

fn sites() -> impl Strategy<Value = Site> {
    let files = || prop::collection::btree_set(0u8..5, 0..3);
    let territories =
        prop::collection::btree_map(1u32..4, prop::collection::btree_set(0u8..5, 1..5), 0..4);
    (prop::collection::vec(files(), 1..8), territories)
        .prop_map(|(files, territories)| Site { files, territories })
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let one = prop_oneof![
        6 => (0usize..9, 0u8..5).prop_map(|(of, file)| Deed::Finish { of, file }),
        2 => (1u64..400).prop_map(|seconds| Deed::Silence { seconds }),
        3 => Just(Deed::Beat),
        1 => Just(Deed::Crash),
    ];
    prop::collection::vec(one, 1..40)
}

fn path(file: u8) -> String {
    format!("src/{file}")
}

fn build(site: &Site) -> World {
    let mut world = World::empty();
    let seats = BTreeMap::from([(Role::Developer, 4)]);
    world.must(Command::ConfigureTeam { seats, workers_max: 4, by: ann() });
    let of = site.territories.iter().map(|(seat, files)| {
        let agent = AgentId { role: Role::Developer, seat: *seat };
        (agent, files.iter().copied().map(path).collect())
    });
    let settings = Settings {
        territories: Territories::new(of.collect()).unwrap(),
        queue: QueuePolicy { contention: Contention::Hold, ..QueuePolicy::default() },
        locks: LockPolicy { ttl_ms: 60_000 },
        ..Settings::default()
    };
    world.must(Command::ChangeSettings { settings: Box::new(settings), by: ann() });
    let planned = site.files.iter().enumerate().map(|(n, files)| PlannedTask {
        files: files.iter().copied().map(path).collect(),
        ..task(&format!("t{n}"), &[])
    });
    world.must(open(planned.collect(), Policy::default()));
    world.chores();
    world
}

/// No two attempts have one file in hand, nobody works outside of their territory, and no lock
/// outlives its time.
fn in_order(world: &World) -> Result<(), TestCaseError> {
    let state = world.state();
    let mut in_hand: BTreeMap<&str, TaskId> = BTreeMap::new();
    for (_, lease) in state.leases() {
        let files = &state.task(lease.task).unwrap().files;
        prop_assert!(
            state.settings().territories.admits(lease.agent, files),
            "{} works outside of its territory: {files:?}",
            lease.agent
        );
        for file in files.iter() {
            let other = in_hand.insert(file, lease.task);
            prop_assert_eq!(other, None, "{} is in the hands of two", file);
            let holder = state.locks().lock(file).map(|lock| lock.holder);
            prop_assert_eq!(holder, Some(lease.task), "{} is not locked by who writes it", file);
        }
    }
    for (file, lock) in state.locks().iter() {
        prop_assert!(lock.expires_at > world.now, "{} is locked past its time", file);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// BUD-13, C-37: spend + reservations stay below every cap that binds when money is taken,
    /// sub-agents stay within their attempts, and the sums add up, whoever crashes in between.
    #[test]
    fn money_is_never_taken_past_a_cap_and_never_lost(moves in moves()) {
        let mut run = Run::new();
        for step in &moves {
            run.step(step);
            run.follow()?;
            run.conserves()?;
        }
        let replayed = Engine::recover(run.world.journal.clone());
        prop_assert_eq!(replayed.state(), run.world.state());
        prop_assert_eq!(&run.shadow, run.world.state());
    }

    /// GIT-07, WRK-13, WRK-14, QUE-26.
    #[test]
    fn a_file_is_in_one_hand_and_in_its_territory(site in sites(), deeds in deeds()) {
        let mut world = build(&site);
        in_order(&world)?;
        for deed in &deeds {
            let attempts: Vec<Fence> = world.state().leases().map(|(fence, _)| fence).collect();
            match deed {
                Deed::Finish { of, file } => {
                    let Some(fence) = attempts.get(of % attempts.len().max(1)).copied() else {
                        continue;
                    };
                    let agent = world.state().lease(fence).unwrap().agent;
                    let (touched, change) = (vec![path(*file)], Some(commit(1_000 + fence.0)));
                    let outcome = AttemptOutcome::Done { change, touched: touched.into() };
                    let spent = Spending::default();
                    let events = world.must(Command::FinishAttempt { fence, outcome, spent });
                    let own = site.territories.get(&agent.seat);
                    let strays = own.is_some_and(|own| !own.contains(file));
                    let accepted =
                        events.iter().any(|e| matches!(e, Event::AttemptFinished { .. }));
                    prop_assert_eq!(accepted, !strays, "{} wrote {}", agent, path(*file));
                    world.chores();
                }
                Deed::Silence { seconds } => drop(world.wait(seconds * 1_000)),
                Deed::Beat => drop(world.must(Command::Heartbeat { fences: attempts })),
                Deed::Crash => world.restart(),
            }
            in_order(&world)?;
        }
    }
}
