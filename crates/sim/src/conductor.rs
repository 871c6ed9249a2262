//! The conductor's part: one turn of the engine, the append that may fail, the recovery.

use kapelle_core::engine::{Actions, Rules};
use kapelle_core::{Command, Engine, Refusal, State, Timestamp};

use crate::agenda::{Sender, Thing};
use crate::oracle::{Reply, Verdict, ensure};
use crate::world::World;

/// A turn that writes more than this for every task and input is running in circles.
const RECORDS_PER_SUBJECT_MAX: usize = 20;

impl<R: Rules + Clone> World<R> {
    /// Decide, append, act. The append may fail, and then nothing of it has happened.
    pub(crate) fn turn(&mut self, inputs: Vec<Command>) -> Verdict {
        self.stats.turns += 1;
        let before = self.oracle.before(&inputs);
        let mut tickets = Vec::new();
        for command in &inputs {
            self.tickets += 1;
            tickets.push((self.tickets, command.clone()));
        }
        let first = self.tickets + 1 - inputs.len() as u64;
        let now = self.engine.time(self.now);
        let batch = self.engine.handle(tickets, self.now);
        let records = batch.records.clone();
        self.story.turn(now, &inputs, &records, self.engine.state());
        self.judge_turn(inputs.len(), records.len(), now)?;
        if self.strikes(|f| f.crash_before) {
            self.story.tell(self.now, || "* crash: the batch is lost".into());
            return self.recover();
        }
        if self.strikes(|f| f.append_refused) {
            // For a while, as a full disk does: the next turns may meet the same.
            self.faults.append_refused = self.faults.append_refused * 3 / 2 % 600;
            self.story.tell(self.now, || "* the store refuses the batch".into());
            return self.recover();
        }
        self.durable.extend(records.iter().cloned());
        self.oracle.observe(&inputs, &records, now, &self.repo)?;
        if self.strikes(|f| f.crash_after) {
            self.story.tell(self.now, || "* crash: the batch is durable".into());
            self.compare_with_replay()?;
            return self.recover();
        }
        let actions = self.engine.committed(batch);
        let answered: Vec<u64> = actions.replies.iter().map(|(ticket, _)| *ticket).collect();
        ensure(answered == (first..=self.tickets).collect::<Vec<_>>(), || {
            format!("{} commands got the answers {answered:?}", inputs.len())
        })?;
        self.oracle.judge_replies(&before, &inputs, &actions.replies, &records)?;
        self.bill_late(&inputs, &actions.replies);
        self.act(actions)?;
        self.summon(&records);
        if self.rng.u8(0..24) == 0 { self.compare_with_replay() } else { Ok(()) }
    }

    /// The last turn before the end, and the next conductor after it. Whoever is killed while it
    /// stops has not stopped in order.
    pub(crate) fn stop_in_order(&mut self) -> Verdict {
        self.story.tell(self.now, || "* Kapelle is stopped in order".into());
        let (now, inputs) = (self.engine.time(self.now), [Command::StopHost]);
        let batch = self.engine.note(vec![((), Command::StopHost)], self.now);
        let records = batch.records;
        self.story.turn(now, &inputs, &records, self.engine.state());
        if !self.strikes(|f| f.crash_before) {
            self.durable.extend(records.iter().cloned());
            self.oracle.observe(&inputs, &records, now, &self.repo)?;
        }
        self.recover()
    }

    /// A host that hears that its attempt is no longer wanted still says what it cost.
    fn bill_late(&mut self, inputs: &[Command], replies: &[(u64, Reply)]) {
        for (command, (_, reply)) in inputs.iter().zip(replies) {
            if let (Command::FinishAttempt { fence, spent, .. }, Err(Refusal::StaleFence { .. })) =
                (command, reply)
            {
                self.send(Command::ReportSpending { fence: *fence, spent: spent.clone() });
            }
        }
    }

    fn judge_turn(&self, inputs: usize, records: usize, now: Timestamp) -> Verdict {
        let state = self.engine.state();
        let wake_at = state.wake_at();
        ensure(wake_at.is_none_or(|at| at > now), || {
            format!("after a turn at {} the engine wants to wake at {wake_at:?}", now.0)
        })?;
        let subjects = 4 + inputs + state.tasks().count();
        ensure(records <= RECORDS_PER_SUBJECT_MAX * subjects, || {
            format!("one turn wrote {records} records for {subjects} tasks and inputs")
        })
    }

    /// Starts and stops what it was told to: exactly the difference to what is due.
    fn act(&mut self, actions: Actions<u64>) -> Verdict {
        for fence in actions.stop {
            let stopped = self.running.remove(&fence);
            let Some(effect) = stopped else {
                return Err(format!("{fence} was to be stopped, but it does not run"));
            };
            self.alive.remove(&fence);
            if self.strikes(|f| f.zombie) {
                self.undead.insert(fence, effect);
            }
        }
        for (fence, effect) in actions.start {
            let again = self.running.insert(fence, effect.clone());
            ensure(again.is_none(), || format!("{fence} was started twice"))?;
            self.begin(fence, &effect);
        }
        let due = self.engine.state().due();
        ensure(due.iter().eq(self.running.iter().map(|(fence, effect)| (*fence, effect))), || {
            let due: Vec<_> = due.iter().map(|(fence, _)| fence.0).collect();
            let running: Vec<_> = self.running.keys().map(|fence| fence.0).collect();
            format!("due are {due:?}, but {running:?} run")
        })?;
        let mut live: Vec<_> = self.oracle.live_fences().collect();
        live.sort();
        ensure(live.iter().eq(self.running.keys()), || {
            format!("the journal has {live:?} in flight, but others run")
        })
    }

    /// The conductor is gone, and with it whatever ran. It starts again from the journal.
    fn recover(&mut self) -> Verdict {
        self.stats.crashes += 1;
        self.running.clear();
        self.lose_host();
        let down_ms = if self.rng.bool() { 10 } else { self.rng.u64(10..40_000) };
        self.now = self.now.plus_ms(down_ms);
        self.engine = Engine::with_rules(self.rules.clone(), self.durable.iter().cloned());
        self.greeting = true;
        ensure(self.engine.head().0 == self.oracle.events(), || {
            "the recovered engine does not stand at the end of the journal".into()
        })?;
        self.compare_with_replay()
    }

    /// The host's processes are gone; a message that was on its way may arrive after all.
    pub(crate) fn lose_host(&mut self) {
        self.life += 1;
        self.undead.clear();
        for fence in std::mem::take(&mut self.alive) {
            let reserved = self.engine.state().lease(fence).map(|lease| lease.reserved);
            if let (Some(reserved), 0) = (reserved, self.rng.u8(0..4)) {
                let spent = self.spend(reserved);
                self.left_bills.push(Command::ReportSpending { fence, spent });
            }
        }
        let (rng, ghost) = (&mut self.rng, self.faults.ghost);
        self.agenda.retain(|thing| match thing {
            Thing::Perform { .. } => false,
            Thing::Arrive { from: Sender::Host, .. } => crate::faults::strikes(rng, ghost),
            _ => true,
        });
    }

    /// Replay of the journal equals the live state, and the fold one by one equals both.
    pub(crate) fn compare_with_replay(&self) -> Verdict {
        let mut replayed = State::default();
        for record in &self.durable {
            replayed.apply(&record.event, record.at);
        }
        let live = self.engine.state();
        ensure(replayed == *live, || "the replayed journal differs from the live state".into())?;
        ensure(replayed.due() == live.due(), || {
            "replay and live state differ in what is due".into()
        })?;
        ensure(replayed == *self.oracle.shadow(), || "two replays of a journal differ".into())
    }
}
