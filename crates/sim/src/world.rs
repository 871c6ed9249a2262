//! The world: everything around the engine, moved on by one seeded random generator.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use kapelle_core::approval::PersonRole;
use kapelle_core::engine::Rules;
use kapelle_core::rate::Provider;
use kapelle_core::{
    Actor, Command, Effect, Engine, Fence, MissionId, Record, RequestId, TaskId, Timestamp,
};

use crate::agenda::{Agenda, Sender, Thing};
use crate::draw;
use crate::faults::{Faults, strikes};
use crate::oracle::{Oracle, Verdict};
use crate::repository::{Passed, Repository};
use crate::run::Stats;
use crate::story::Story;

/// Of one world in eight.
const SLOW_PACE: u64 = 100;
/// How often agents of a slow world are silent, in a thousand.
const SILENT_MIN: u32 = 300;

pub(crate) struct World<R> {
    pub rng: Rng,
    pub now: Timestamp,
    pub faults: Faults,
    pub mood: Mood,
    pub rules: R,
    pub engine: Engine<R>,
    pub durable: Vec<Record>,
    pub agenda: Agenda,
    /// What the conductor was told to start and not yet to stop.
    pub running: BTreeMap<Fence, Effect>,
    /// What was stopped but does not know it yet.
    pub undead: BTreeMap<Fence, Effect>,
    /// Attempts whose process is alive, for heartbeats.
    pub alive: BTreeSet<Fence>,
    pub beating: bool,
    /// Attempts on a machine that is gone: nobody ever hears of them.
    pub gone: BTreeSet<Fence>,
    /// Tasks that take down the host that they run on.
    pub killers: BTreeSet<TaskId>,
    /// How many times slower than elsewhere agents work and hosts report, by whose leave: long
    /// enough for agents to be silent.
    pub pace: u64,
    /// Counts the lives of the host: what an earlier life began is never performed.
    pub life: u32,
    /// What attempts that died with their host had written down of their cost.
    pub left_bills: Vec<Command>,
    /// The conductor has just started and its host has not said so yet.
    pub greeting: bool,
    /// Somebody has asked Kapelle to stop; it does so after this turn.
    pub stopping: bool,
    pub storm_until: Timestamp,
    pub repo: Repository,
    pub oracle: Oracle,
    pub story: Story,
    pub stats: Stats,
    pub tickets: u64,
    /// The missions that people want, as they asked for them.
    pub wishes: Vec<Command>,
    /// Providers that do not answer, until when.
    pub down: BTreeMap<Provider, Timestamp>,
    /// When a person last let spending go on.
    pub paid_at: Timestamp,
    pub mended_at: Timestamp,
    /// Per mission: when a person last did something, and how often one approved.
    pub attended: BTreeMap<MissionId, (Timestamp, u32)>,
    /// How often a diligent person put something of a mission back to work.
    pub requeued: BTreeMap<MissionId, u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Hostile,
    /// No faults, honest agents, diligent people.
    Calm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Moved,
    /// Nothing will ever happen again by itself.
    Idle,
}

impl<R: Rules + Clone> World<R> {
    pub(crate) fn new(seed: u64, rules: R, story: Story) -> World<R> {
        let mut rng = Rng::with_seed(seed);
        let mut faults = Faults::draw(&mut rng);
        let now = draw::beginning(&mut rng);
        let pace = if rng.u8(0..8) == 0 { SLOW_PACE } else { 1 };
        if pace == SLOW_PACE {
            // This is what slow worlds are for.
            faults.agent_silent = faults.agent_silent.max(SILENT_MIN);
        }
        let mut world = World {
            rng,
            now,
            faults,
            mood: Mood::Hostile,
            engine: Engine::with_rules(rules.clone(), Vec::new()),
            rules,
            durable: Vec::new(),
            agenda: Agenda::default(),
            running: BTreeMap::new(),
            undead: BTreeMap::new(),
            alive: BTreeSet::new(),
            beating: false,
            gone: BTreeSet::new(),
            killers: BTreeSet::new(),
            pace,
            life: 1,
            left_bills: Vec::new(),
            greeting: true,
            stopping: false,
            storm_until: Timestamp(0),
            repo: Repository::default(),
            oracle: Oracle::default(),
            story,
            stats: Stats::default(),
            tickets: 0,
            wishes: Vec::new(),
            down: BTreeMap::new(),
            paid_at: Timestamp(0),
            mended_at: Timestamp(0),
            attended: BTreeMap::new(),
            requeued: BTreeMap::new(),
        };
        world.populate();
        world
    }

    fn populate(&mut self) {
        let (seats, workers_max) = draw::team(&mut self.rng);
        self.arrive(
            Sender::Person,
            0,
            Command::ConfigureTeam { seats, workers_max, by: Actor("ada".into()) },
        );
        self.rule();
        if self.rng.u8(0..4) == 0 {
            let admin = PersonRole::Admin;
            for (person, role) in [("ada", admin), ("bob", admin), ("eve", PersonRole::Reader)] {
                let (person, by) = (Actor(person.into()), Actor("ada".into()));
                let role = Some(role);
                self.arrive(Sender::Person, 0, Command::AssignRole { person, role, by });
            }
        }
        let root = self.repo.commit(&[], Passed::Yes);
        for number in 1..=self.rng.u32(1..=3) {
            let target = if self.rng.bool() { "main".into() } else { format!("release-{number}") };
            self.repo.set_branch(&target, &root);
            let wish = Command::OpenMission {
                request: RequestId(format!("wish-{number}")),
                goal: format!("goal {number}"),
                target,
                base: root.clone(),
                plan: draw::plan(&mut self.rng),
                policy: Box::new(draw::policy(&mut self.rng, self.pace)),
                by: Actor("ada".into()),
            };
            let delay = if number == 1 { 0 } else { self.rng.u64(0..20_000) };
            self.arrive(Sender::Person, delay, wish.clone());
            self.wishes.push(wish);
        }
        for thing in [Thing::Person, Thing::Stranger, Thing::HostRestart] {
            let at = self.now.plus_ms(self.rng.u64(500..5_000));
            self.agenda.add(at, thing);
        }
        let faults = format!("{:?}", self.faults);
        self.story.tell(self.now, || faults);
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.mood == Mood::Calm
    }

    pub(crate) fn strikes(&mut self, rate: impl Fn(&Faults) -> u32) -> bool {
        let rate = rate(&self.faults);
        strikes(&mut self.rng, rate)
    }

    pub(crate) fn arrive(&mut self, from: Sender, delay_ms: u64, command: Command) {
        let at = self.now.plus_ms(delay_ms);
        self.agenda.add(at, Thing::Arrive { command: Box::new(command), from });
    }

    /// What a host says that has just started: what lay on its disk is read and gone with it.
    pub(crate) fn greet(&mut self) -> Vec<Command> {
        let found = std::mem::take(&mut self.left_bills);
        [Command::HostStarted].into_iter().chain(found).chain([Command::CloseBills]).collect()
    }

    /// Lets the next thing happen.
    pub(crate) fn chore(&mut self) -> Result<Progress, String> {
        if std::mem::take(&mut self.greeting) {
            let greeting = self.greet();
            self.turn(greeting)?;
            return Ok(Progress::Moved);
        }
        let wake_at = self.engine.state().wake_at();
        let Some(next) = [self.agenda.next_at(), wake_at].into_iter().flatten().min() else {
            return Ok(Progress::Idle);
        };
        self.now = self.now.max(next);
        if self.strikes(|f| f.clock_jump) {
            self.now = self.now.plus_ms(self.rng.u64(1_000..120_000));
        } else if self.rng.u8(0..4) == 0 {
            // What arrives together is decided together.
            self.now = self.now.plus_ms(self.rng.u64(0..300));
        }
        if self.strikes(|f| f.clock_back) {
            let ms = self.rng.u64(1_000..120_000);
            self.set_back(ms);
        }
        let mut inputs = Vec::new();
        while let Some(thing) = self.agenda.pop_due(self.now) {
            self.happen(thing, &mut inputs)?;
        }
        let now = self.engine.time(self.now);
        if wake_at.is_some_and(|at| at <= now) && self.rng.bool() {
            inputs.push(Command::Tick);
        }
        if !inputs.is_empty() || wake_at.is_some_and(|at| at <= now) {
            self.turn(inputs)?;
        }
        if std::mem::take(&mut self.stopping) && !self.greeting {
            self.stop_in_order()?;
        }
        Ok(Progress::Moved)
    }

    fn happen(&mut self, thing: Thing, inputs: &mut Vec<Command>) -> Verdict {
        match thing {
            Thing::Perform { fence, life } => self.perform(fence, life)?,
            Thing::Arrive { command, .. } => inputs.push(*command),
            Thing::Beat => inputs.extend(self.beat()),
            Thing::Person => self.person(),
            Thing::Stranger => self.stranger(),
            Thing::HostRestart => {
                if self.strikes(|f| f.host_restart) {
                    self.story.tell(self.now, || "* the host starts anew".into());
                    self.lose_host();
                    inputs.extend(self.greet());
                }
                self.stopping = self.strikes(|f| f.orderly_stop);
                if self.strikes(|f| f.host_gone) {
                    self.lose_machine();
                }
                let at = self.now.plus_ms(self.rng.u64(2_000..20_000));
                self.agenda.add(at, Thing::HostRestart);
            }
        }
        Ok(())
    }

    /// The clock is wrong from now on. What will happen does so after as long as before.
    fn set_back(&mut self, ms: u64) {
        let ms = ms.min(self.now.0);
        self.now = Timestamp(self.now.0 - ms);
        self.agenda.set_back(ms);
        self.story.tell(self.now, || format!("* the clock is set back by {ms} ms"));
    }

    /// Some of the attempts were on a machine that is gone for good.
    fn lose_machine(&mut self) {
        let rng = &mut self.rng;
        let gone: Vec<Fence> = self.alive.iter().copied().filter(|_| rng.bool()).collect();
        self.story.tell(self.now, || format!("* a machine is gone with {gone:?}"));
        self.alive.retain(|fence| !gone.contains(fence));
        self.gone.extend(gone);
    }

    /// Somebody who does not know of Kapelle pushes.
    fn stranger(&mut self) {
        let at = self.now.plus_ms(self.rng.u64(1_000..15_000));
        self.agenda.add(at, Thing::Stranger);
        let (push, rewind, target) = (
            self.strikes(|f| f.foreign_push),
            self.strikes(|f| f.foreign_rewind),
            self.strikes(|f| f.target_push),
        );
        let missions: Vec<_> = self.engine.state().missions().collect();
        if missions.is_empty() {
            return;
        }
        let mission = missions[self.rng.usize(0..missions.len())];
        let branch = if target { mission.target.clone() } else { mission.branch.clone() };
        let Some(tip) = self.repo.branch(&branch).cloned() else { return };
        if rewind && !target {
            let base = mission.base.clone();
            self.repo.set_branch(&branch, &base);
            self.story.tell(self.now, || format!("* a stranger rewinds {branch}"));
        } else if push || target {
            let passes = Passed::from(self.rng.u8(0..4) > 0);
            let commit = self.repo.commit(&[&tip], passes);
            self.repo.set_branch(&branch, &commit);
            let short = commit.short().to_owned();
            self.story.tell(self.now, || format!("* a stranger pushes {short} to {branch}"));
        }
    }
}
