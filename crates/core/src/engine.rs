//! The engine: inputs in; append, start, stop and reply out. Synchronous and deterministic.
//!
//! The conductor and the simulator drive this same type. One turn:
//!
//! 1. `handle` decides on the inputs that arrived together and folds the result. Nothing of it
//!    may be shown or acted upon yet.
//! 2. The driver makes the batch's records durable.
//! 3. `committed` hands out the replies and what to start and stop.
//!
//! If step 2 fails, the engine has run ahead of the journal: drop it and recover from the journal.

use crate::command::Command;
use crate::effect::Effect;
use crate::event::{Event, Record};
use crate::few::FewSet;
use crate::ids::{Fence, MissionId, Seq};
use crate::limits;
use crate::refusal::Refusal;
use crate::state::State;
use crate::time::Timestamp;

/// The rules that the engine plays by. There is one sound set; the simulator plants bugs here to
/// prove that it would find them.
pub trait Rules {
    fn decide(
        &self,
        state: &State,
        command: &Command,
        now: Timestamp,
    ) -> Result<Vec<Event>, Refusal> {
        state.decide(command, now)
    }

    /// What to set in motion next.
    fn next(&self, state: &State, now: Timestamp) -> Vec<Event> {
        state.next(now)
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct SoundRules;

impl Rules for SoundRules {}

#[derive(Debug)]
pub struct Engine<R = SoundRules> {
    rules: R,
    state: State,
    head: Seq,
    /// What the driver was told to start and not yet to stop.
    started: FewSet<Fence>,
    /// The room that the records of the last batch had, for those of the next.
    room: Vec<Record>,
}

/// What was decided in one turn. Nothing of it holds before its records are durable.
#[derive(Debug)]
#[must_use]
pub struct Batch<T> {
    pub records: Vec<Record>,
    replies: Vec<(T, Result<Accepted, Refusal>)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The head of the journal when the command was carried out.
    pub seq: Seq,
    /// The mission that the command opened.
    pub opened: Option<MissionId>,
}

/// What the driver has to do after a commit.
#[derive(Debug)]
#[must_use]
pub struct Actions<T> {
    pub replies: Vec<(T, Result<Accepted, Refusal>)>,
    pub start: Vec<(Fence, Effect)>,
    pub stop: Vec<Fence>,
}

/// How many of the inputs are the greeting of a host that has just started. It speaks before the
/// clock: what died with the earlier one did not run out of time, and neither did its bills.
fn hellos<T>(inputs: &[(T, Command)]) -> usize {
    let is_start = |command: &Command| matches!(command, Command::HostStarted);
    let is_bill =
        |command: &Command| matches!(command, Command::ReportSpending { .. } | Command::CloseBills);
    match inputs.first() {
        Some((_, first)) if is_start(first) => {
            inputs.iter().take_while(|(_, one)| is_start(one) || is_bill(one)).count()
        }
        Some(_) | None => 0,
    }
}

/// Whether time alone changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passed {
    Nothing,
    Something,
}

impl Engine {
    /// An engine that continues where the journal ends.
    #[must_use]
    pub fn recover(history: impl IntoIterator<Item = Record>) -> Engine {
        Engine::with_rules(SoundRules, history)
    }

    /// The same, from the state that the journal had at `head`, and what follows it.
    #[must_use]
    pub fn resume(state: State, head: Seq, rest: impl IntoIterator<Item = Record>) -> Engine {
        Engine::folded(SoundRules, state, head, rest)
    }
}

impl<R: Rules> Engine<R> {
    pub fn with_rules(rules: R, history: impl IntoIterator<Item = Record>) -> Engine<R> {
        Engine::folded(rules, State::default(), Seq::default(), history)
    }

    fn folded(
        rules: R,
        mut state: State,
        mut head: Seq,
        history: impl IntoIterator<Item = Record>,
    ) -> Engine<R> {
        for record in history {
            state.apply(&record.event, record.at);
            head = record.seq;
        }
        state.mark_all_effects_changed();
        Engine { rules, state, head, started: FewSet::default(), room: Vec::new() }
    }

    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    #[must_use]
    pub fn head(&self) -> Seq {
        self.head
    }

    /// The moment that a clock means to this engine: one that was set back, or is that of another
    /// machine, does not take back what has happened. Time stands still until it has caught up.
    #[must_use]
    pub fn time(&self, clock: Timestamp) -> Timestamp {
        clock.max(self.state.at())
    }

    /// Decides on everything that arrived together. `T` is the driver's ticket for the answer.
    pub fn handle<T>(&mut self, inputs: Vec<(T, Command)>, clock: Timestamp) -> Batch<T> {
        let now = self.time(clock);
        let mut batch = self.batch(inputs.len());
        let hellos = hellos(&inputs);
        let mut inputs = inputs.into_iter();
        for (ticket, hello) in inputs.by_ref().take(hellos) {
            self.answer(ticket, &hello, now, &mut batch);
        }
        let _ = self.pass_time(now, &mut batch.records);
        for (ticket, command) in inputs {
            self.answer(ticket, &command, now, &mut batch);
        }
        self.set_in_motion(now, &mut batch.records);
        // A wait of no time at all ends in this same turn, and what it frees starts in it.
        while self.pass_time(now, &mut batch.records) == Passed::Something {
            self.set_in_motion(now, &mut batch.records);
        }
        batch
    }

    /// Decides, but sets nothing in motion: for whoever records a decision without performing what
    /// follows from it. The next turn of a driver that performs takes it up.
    pub fn note<T>(&mut self, inputs: Vec<(T, Command)>, clock: Timestamp) -> Batch<T> {
        let now = self.time(clock);
        let mut batch = self.batch(inputs.len());
        for (ticket, command) in inputs {
            self.answer(ticket, &command, now, &mut batch);
        }
        batch
    }

    fn batch<T>(&mut self, inputs: usize) -> Batch<T> {
        let records = std::mem::take(&mut self.room);
        Batch { records, replies: Vec::with_capacity(inputs) }
    }

    /// The batch is durable: now it may be acted upon.
    pub fn committed<T>(&mut self, batch: Batch<T>) -> Actions<T> {
        let Batch { mut records, replies } = batch;
        // A flood must not keep its room for ever.
        if records.capacity() <= limits::BATCH_RECORDS_KEPT_MAX {
            records.clear();
            self.room = records;
        }
        let changed = self.state.changed_effects();
        let (start, stop) = (Vec::with_capacity(changed), Vec::with_capacity(changed));
        let mut actions = Actions { replies, start, stop };
        let started = &mut self.started;
        self.state.show_changed_effects(|fence, effect| match effect {
            Some(effect) if started.insert(fence) => actions.start.push((fence, effect.clone())),
            Some(_) => {}
            None if started.remove(&fence) => actions.stop.push(fence),
            None => {}
        });
        actions
    }

    fn answer<T>(&mut self, ticket: T, command: &Command, now: Timestamp, batch: &mut Batch<T>) {
        let reply = match self.rules.decide(&self.state, command, now) {
            Ok(events) => {
                let opened = events.iter().find_map(|event| match event {
                    Event::MissionOpened { mission, .. } => Some(*mission),
                    _ => None,
                });
                self.record(events, now, &mut batch.records);
                Ok(Accepted { seq: self.head, opened })
            }
            Err(refusal) => Err(refusal),
        };
        batch.replies.push((ticket, reply));
    }

    fn pass_time(&mut self, now: Timestamp, records: &mut Vec<Record>) -> Passed {
        let mut passed = Passed::Nothing;
        while self.state.wake_at().is_some_and(|at| at <= now) {
            match self.rules.decide(&self.state, &Command::Tick, now) {
                Ok(events) if !events.is_empty() => {
                    self.record(events, now, records);
                    passed = Passed::Something;
                }
                // A timer that changes nothing would be asked about for ever.
                Ok(_) | Err(_) => break,
            }
        }
        passed
    }

    fn set_in_motion(&mut self, now: Timestamp, records: &mut Vec<Record>) {
        loop {
            let events = self.rules.next(&self.state, now);
            if events.is_empty() {
                return;
            }
            self.record(events, now, records);
        }
    }

    fn record(&mut self, events: Vec<Event>, now: Timestamp, records: &mut Vec<Record>) {
        let new = records.len();
        let mut head = self.head.0;
        records.extend(events.into_iter().map(|event| {
            head += 1;
            Record { seq: Seq(head), at: now, event }
        }));
        for record in &records[new..] {
            self.state.apply(&record.event, now);
            self.head = record.seq;
        }
    }
}
