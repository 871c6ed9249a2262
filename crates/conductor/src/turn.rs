//! The loop, one turn after the other.
//!
//! Messages that arrive together are decided together and committed together: while one commit is
//! on its way to the disk, the next turn's messages gather. Nobody is answered and nothing is
//! started before the commit is durable. If the store fails, the engine has run ahead of the
//! journal, so the conductor ends and the next one starts from the journal.
//!
//! The loop has a thread of its own. It has to wait for the disk before it does anything else, so
//! it commits there, and wakes nobody for that; a thread of the runtime must not wait so. Only
//! while it waits for messages is it a part of the runtime, which performs the effects.

use std::convert::Infallible;
use std::time::Duration;
use std::{io, thread};

use kapelle_core::command::Spending;
use kapelle_core::engine::{Actions, Batch};
use kapelle_core::{Command, Engine, Refusal, Timestamp};
use kapelle_store::Writer;
use kapelle_store::search::Document;
use tokio::runtime;
use tokio::sync::oneshot;

use crate::clock::SteadyClock;
use crate::handle::{Error, Handle, Inbox, Message, Ticket};
use crate::host::{Host, Running};
use crate::room::Room;
use crate::silence::Silence;

/// How many messages are decided on in one turn. More would only make the first ones wait.
const MESSAGES_PER_TURN_MAX: usize = 4_096;

/// The running loop. Wait for it to learn how it ended.
#[derive(Debug)]
pub struct Conductor {
    outcome: oneshot::Receiver<Result<(), Error>>,
}

impl Conductor {
    /// Waits until the conductor has ended, its work is kept and its store is closed.
    pub async fn ended(self) -> Result<(), Error> {
        // Whoever panics says nothing.
        self.outcome.await.unwrap_or(Err(Error::Stopped))
    }
}

/// Takes up a project where its journal ends. Its effects are performed by the runtime that this is
/// called in.
pub(crate) fn start(
    engine: Engine,
    writer: Writer,
    (host, found): (Host, Vec<Command>),
    room: Room,
    (handle, inbox): (Handle, Inbox),
) -> io::Result<Conductor> {
    let told = handle.clone();
    writer.when_deposed(move |why| {
        // If nobody listens, it has ended already.
        let _ = told.post(Message::Deposed(why));
    });
    let running = Running::new(host, handle);
    let (silence, clock) = (Silence::default(), SteadyClock::default());
    let runtime = runtime::Handle::current();
    let gone = end_of(&runtime);
    let turns =
        Turns { engine, writer, running, found, inbox, room, silence, clock, runtime, gone };
    let (told, outcome) = oneshot::channel();
    let run = move || {
        // Nobody has to wait for it.
        let _ = told.send(turns.run());
    };
    thread::Builder::new().name("kapelle-conductor".into()).spawn(run)?;
    Ok(Conductor { outcome })
}

/// Answers when the runtime is shut down: with all that it runs, it drops what holds the other end.
fn end_of(runtime: &runtime::Handle) -> oneshot::Receiver<Infallible> {
    let (mut alive, gone) = oneshot::channel();
    runtime.spawn(async move { alive.closed().await });
    gone
}

struct Turns {
    engine: Engine,
    writer: Writer,
    running: Running,
    /// What is known of the cost of what an earlier host ran.
    found: Vec<Command>,
    inbox: Inbox,
    room: Room,
    silence: Silence,
    clock: SteadyClock,
    /// Where effects are performed.
    runtime: runtime::Handle,
    gone: oneshot::Receiver<Infallible>,
}

/// What the loop woke up for.
#[derive(Default)]
struct Gathered {
    commands: Vec<(Ticket, Command)>,
    /// How many messages were taken, whether a command came of them or not.
    messages: usize,
    end: bool,
    /// Whoever was replaced, or cannot perform anything any more, has nothing left to decide.
    over: Option<Error>,
}

impl Gathered {
    fn is_nothing(&self) -> bool {
        self.commands.is_empty() && self.messages == 0
    }
}

impl Turns {
    fn run(mut self) -> Result<(), Error> {
        let runtime = self.runtime.clone();
        let mut outcome = self.first_turn();
        while outcome.is_ok() {
            let gathered = runtime.block_on(self.gather());
            if let Some(why) = gathered.over {
                outcome = Err(why);
                break;
            }
            if gathered.end {
                outcome = self.last_turn(gathered.commands);
                break;
            }
            outcome = self.turn(gathered.commands);
        }
        runtime.block_on(self.running.stop_all());
        let owed = self.last_words();
        if outcome.is_ok() && !owed.is_empty() {
            outcome = self.note(owed);
        }
        let closed = close(self.writer);
        outcome.and(closed)
    }

    /// The greeting of a host that has just started: all that ran before is dead, this is what it is
    /// known to have cost, and nobody is left to tell more.
    fn first_turn(&mut self) -> Result<(), Error> {
        let found = std::mem::take(&mut self.found);
        let greeting = [Command::HostStarted].into_iter().chain(found);
        self.turn(greeting.map(|command| (None, command)).collect())
    }

    /// What the last ones printed is kept for the search, and what they cost is owed. Whatever else
    /// they have to say is for the next conductor.
    fn last_words(&mut self) -> Vec<(Ticket, Command)> {
        let mut owed = Vec::new();
        while let Ok(message) = self.inbox.messages.try_recv() {
            match message {
                Message::Index(found) => self.index(*found),
                Message::Command(command, None) => {
                    let bill = match *command {
                        bill @ Command::ReportSpending { .. } => Some(bill),
                        other => late_bill(&other),
                    };
                    owed.extend(bill.map(|bill| (None, bill)));
                }
                Message::Command(_, Some(_))
                | Message::Look(_)
                | Message::Publish(..)
                | Message::Deposed(_)
                | Message::ShutDown => {}
            }
        }
        owed
    }

    fn turn(&mut self, commands: Vec<(Ticket, Command)>) -> Result<(), Error> {
        let bills = late_bills(&commands);
        let expected = self.engine.head();
        let batch = self.engine.handle(commands, self.clock.now());
        self.carry_out(expected, batch, bills)
    }

    /// What came before the end is still decided, but nothing is set in motion any more. That all
    /// that runs was stopped in order is durable before it is: the next conductor need not take
    /// it for lost, and no task is blamed for a Ctrl-C.
    fn last_turn(&mut self, mut commands: Vec<(Ticket, Command)>) -> Result<(), Error> {
        commands.push((None, Command::StopHost));
        self.note(commands)
    }

    /// Decides and records, and sets nothing in motion.
    fn note(&mut self, commands: Vec<(Ticket, Command)>) -> Result<(), Error> {
        let bills = late_bills(&commands);
        let expected = self.engine.head();
        let batch = self.engine.note(commands, self.clock.now());
        self.carry_out(expected, batch, bills)
    }

    fn carry_out(
        &mut self,
        expected: kapelle_core::Seq,
        batch: Batch<Ticket>,
        bills: Vec<Option<Command>>,
    ) -> Result<(), Error> {
        self.commit(expected, &batch)?;
        let records = batch.records.clone();
        let Actions { replies, start, stop } = self.engine.committed(batch);
        for fence in stop {
            self.running.stop(fence);
        }
        let in_runtime = self.runtime.enter();
        for (fence, effect) in start {
            self.running.start(fence, effect, self.engine.state());
        }
        drop(in_runtime);
        for ((ticket, reply), bill) in replies.into_iter().zip(bills) {
            if let (Err(Refusal::StaleFence { .. }), Some(bill)) = (&reply, bill) {
                self.running.report(bill);
            }
            if let Some(ticket) = ticket {
                // Whoever asked may have gone away meanwhile.
                let _ = ticket.send(reply);
            }
        }
        if !records.is_empty() {
            // Without followers there is nobody to tell.
            let _ = self.inbox.commits.send(records.into());
        }
        Ok(())
    }

    fn commit<T>(&self, expected: kapelle_core::Seq, batch: &Batch<T>) -> Result<(), Error> {
        if !batch.records.is_empty() {
            let records = batch.records.clone();
            self.writer.append_and_wait(self.writer.epoch(), expected, records)?;
        }
        Ok(())
    }

    /// What is due and what is waiting; if that is nothing, waits for a message or for a moment that
    /// somebody waits for.
    async fn gather(&mut self) -> Gathered {
        let mut gathered = Gathered::default();
        // What is due goes first: however many messages there are, nobody's lease runs out meanwhile.
        self.add_due(&mut gathered);
        self.add_waiting(&mut gathered);
        if !gathered.is_nothing() {
            return gathered;
        }
        let (next, now) = (self.wake_at(), self.clock.now());
        tokio::select! {
            // First: on a runtime that is shut down, a look at a moment to come is a panic.
            biased;
            _ = &mut self.gone => gathered.over = Some(Error::Stopped),
            message = self.inbox.messages.recv() => match message {
                Some(message) => {
                    self.take(message, &mut gathered);
                    self.add_waiting(&mut gathered);
                }
                None => gathered.end = true,
            },
            () = sleep_until(next, now) => self.add_due(&mut gathered),
        }
        gathered
    }

    fn wake_at(&mut self) -> Option<Timestamp> {
        let heartbeat = self.heartbeat_at();
        let state = self.engine.state();
        let silence = self.silence.wake_at(state, &self.running.heard());
        [state.wake_at(), heartbeat, self.room.wake_at(state), silence].into_iter().flatten().min()
    }

    /// What it is time to tell the engine.
    fn add_due(&mut self, gathered: &mut Gathered) {
        let now = self.clock.now();
        let heartbeat = self.heartbeat_at().filter(|at| *at <= now);
        let heartbeat = heartbeat.map(|_| Command::Heartbeat { fences: self.running.alive() });
        let state = self.engine.state();
        let room = self.room.look(state, now);
        let silence = self.silence.look(state, self.running.heard(), now);
        let due = [heartbeat, room, silence].into_iter().flatten();
        gathered.commands.extend(due.map(|command| (None, command)));
    }

    /// The messages that are there, up to what one turn takes.
    fn add_waiting(&mut self, gathered: &mut Gathered) {
        while gathered.messages < MESSAGES_PER_TURN_MAX && !gathered.end {
            match self.inbox.messages.try_recv() {
                Ok(message) => self.take(message, gathered),
                Err(_) => break,
            }
        }
    }

    fn take(&mut self, message: Message, gathered: &mut Gathered) {
        gathered.messages += 1;
        match message {
            Message::Command(command, ticket) => {
                if let Some(fence) = command.fence() {
                    self.running.forget(fence);
                }
                gathered.commands.push((ticket, *command));
            }
            Message::Look(look) => look(self.engine.state()),
            Message::Publish(url, done) => self.writer.publish(&url, move |told| {
                // Whoever asked may have gone away meanwhile.
                let _ = done.send(told);
            }),
            Message::Index(found) => self.index(*found),
            Message::Deposed(why) => gathered.over = Some(why.into()),
            Message::ShutDown => gathered.end = true,
        }
    }

    fn index(&self, found: Document) {
        // If it cannot be kept for the search, it is still in its log.
        self.writer.index(found, |_kept| {});
    }

    /// When the first lease is half over, or at once if others wait for an agent to be online:
    /// only then does a heartbeat say something new.
    fn heartbeat_at(&mut self) -> Option<Timestamp> {
        let now = self.clock.now();
        let (state, alive) = (self.engine.state(), self.running.alive());
        if alive.iter().any(|fence| state.awaits_heartbeat(*fence)) {
            return Some(now);
        }
        let leases = alive.iter().filter_map(|fence| state.lease(*fence));
        leases.filter_map(|lease| state.renewal_at(lease)).min()
    }
}

fn late_bills(commands: &[(Ticket, Command)]) -> Vec<Option<Command>> {
    commands.iter().map(|(_, command)| late_bill(command)).collect()
}

/// What is owed if the end of an attempt comes too late to count.
fn late_bill(command: &Command) -> Option<Command> {
    match command {
        Command::FinishAttempt { fence, spent, .. } if *spent != Spending::default() => {
            Some(Command::ReportSpending { fence: *fence, spent: spent.clone() })
        }
        _ => None,
    }
}

async fn sleep_until(at: Option<Timestamp>, now: Timestamp) {
    match at {
        Some(at) => tokio::time::sleep(Duration::from_millis(at.ms_since(now))).await,
        None => std::future::pending().await,
    }
}

/// Closing waits for the projections.
pub(crate) fn close(writer: Writer) -> Result<(), Error> {
    match writer.close() {
        Err(gone @ kapelle_store::Error::WriterGone) => Err(Error::Store(gone)),
        // Only the tables for people are behind: they say so, and the next start catches up. What
        // was answered is in the journal.
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kapelle_core::machine::MachineUse;
    use kapelle_core::price::Prices;
    use kapelle_store::Location;
    use kapelle_workspace::Repository;
    use kapelle_workspace::sandbox::Sandboxing;

    use super::*;
    use crate::handle::channel;

    async fn host(dir: &std::path::Path) -> Host {
        let git = |args: &[&str]| {
            let identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
            let mut git = std::process::Command::new("git");
            assert!(git.args(identity).args(args).current_dir(dir).status().unwrap().success());
        };
        git(&["init", "--quiet"]);
        git(&["commit", "--quiet", "--allow-empty", "--message", "start"]);
        Host {
            repo: Repository::open(dir).await.unwrap(),
            dir: dir.into(),
            store_id: "flood".into(),
            drivers: BTreeMap::new(),
            sandboxing: Sandboxing::Unusable { reason: String::new(), hint: String::new() },
            prices: Prices::default(),
            env: BTreeMap::new(),
            readable: Vec::new(),
            sessions: None,
            rules: kapelle_workspace::commands::ThresholdRules::default(),
            baselines: kapelle_workspace::baseline::Baselines::default(),
        }
    }

    async fn turns(dir: &std::path::Path) -> (Turns, Handle) {
        let host = host(dir).await;
        let writer = Writer::open(Location::sqlite(&dir.join("store.db"))).unwrap();
        let (handle, inbox) = channel();
        let turns = Turns {
            engine: Engine::recover([]),
            writer,
            running: Running::new(host, handle.clone()),
            found: Vec::new(),
            inbox,
            room: Room::new(dir.into(), |_| Ok(MachineUse::default())),
            silence: Silence::default(),
            clock: SteadyClock::default(),
            gone: end_of(&runtime::Handle::current()),
            runtime: runtime::Handle::current(),
        };
        (turns, handle)
    }

    /// Each of these looks asks for the next: there is always one more message. A turn has to end
    /// all the same, or nobody's lease would ever be renewed.
    #[tokio::test]
    async fn a_flood_of_messages_does_not_hold_up_a_turn() {
        fn flood(handle: &Handle, seen: &Arc<AtomicUsize>) {
            let (again, counted) = (handle.clone(), seen.clone());
            let look = move |_: &kapelle_core::State| {
                // Without a bound this would go on for ever, and the test with it.
                if counted.fetch_add(1, Ordering::Relaxed) < 10 * MESSAGES_PER_TURN_MAX {
                    flood(&again, &counted);
                }
            };
            handle.post(Message::Look(Box::new(look))).unwrap();
        }
        let dir = tempfile::tempdir().unwrap();
        let (mut turns, handle) = turns(dir.path()).await;
        let seen = Arc::new(AtomicUsize::new(0));
        flood(&handle, &seen);
        let gathered = turns.gather().await;
        assert!(gathered.commands.is_empty() && !gathered.end);
        assert_eq!(seen.load(Ordering::Relaxed), MESSAGES_PER_TURN_MAX);
        handle.report(Command::HostStarted);
        assert_eq!(turns.gather().await.commands.len(), 1, "a command gets through");
    }

    /// What dead agents wrote down is all that will ever be known of their cost.
    #[tokio::test]
    async fn a_start_finds_the_reports_of_attempts_that_died() {
        let dir = tempfile::tempdir().unwrap();
        let leave = |place: &str, text: &str| {
            let out = dir.path().join("work").join(place).join("out");
            std::fs::create_dir_all(&out).unwrap();
            std::fs::write(out.join("summary.json"), text).unwrap();
        };
        let used = r#"[{"model": "m", "input_tokens": 5, "output_tokens": 7}]"#;
        let report = |usage: &str| format!(r#"{{"status": "success", "usage": {usage}}}"#);
        leave("12", &report(used));
        leave("3", &report(used));
        leave("4", &report("[]"));
        leave("5", &report(used)[..20]);
        leave("rest", &report(used));
        std::fs::create_dir_all(dir.path().join("work/6")).unwrap();
        let found: Vec<(u64, u64)> = host(dir.path())
            .await
            .bills_left()
            .into_iter()
            .map(|command| match command {
                Command::ReportSpending { fence, spent } => {
                    (fence.0, spent.usage.iter().map(|used| used.tokens()).sum())
                }
                other => panic!("{other:?} is no bill"),
            })
            .collect();
        assert_eq!(found, [(3, 12), (12, 12)]);
    }

    /// Agents that are stopped in order still say what they cost, and somebody has to listen.
    #[tokio::test]
    async fn what_the_last_ones_cost_is_owed() {
        let dir = tempfile::tempdir().unwrap();
        let (mut turns, handle) = turns(dir.path()).await;
        let spent = Spending { usd: kapelle_core::Usd::cents(7), ..Spending::default() };
        let (late, early) = (kapelle_core::Fence(2), kapelle_core::Fence(1));
        handle.report(Command::ReportSpending { fence: early, spent: spent.clone() });
        handle.report(Command::HostStarted);
        let outcome = kapelle_core::command::AttemptOutcome::Done {
            change: None,
            touched: Vec::new().into(),
        };
        handle.report(Command::FinishAttempt { fence: late, outcome, spent: spent.clone() });
        let owed: Vec<Command> = turns.last_words().into_iter().map(|(_, bill)| bill).collect();
        let bill = |fence| Command::ReportSpending { fence, spent: spent.clone() };
        assert_eq!(owed, [bill(early), bill(late)]);
    }

    /// Messages that wait do not come before what is due: here, a look at the machine.
    #[tokio::test]
    async fn what_is_due_is_told_however_many_messages_wait() {
        let dir = tempfile::tempdir().unwrap();
        let (mut turns, handle) = turns(dir.path()).await;
        let opened = Command::OpenMission {
            request: kapelle_core::RequestId("r".into()),
            goal: "flood".into(),
            target: "main".into(),
            base: "1".repeat(40).parse().unwrap(),
            plan: kapelle_core::plan::Plan::parse(r#"{"tasks": [{"id": "1", "title": "one"}]}"#)
                .unwrap(),
            policy: Box::default(),
            by: kapelle_core::Actor("ada".into()),
        };
        let now = turns.clock.now();
        let batch = turns.engine.handle(vec![((), opened)], now);
        let _not_started = turns.engine.committed(batch);
        assert!(!turns.engine.state().due().is_empty(), "its branch is to be made");
        (0..3).for_each(|_| handle.report(Command::HostStarted));
        let gathered = turns.gather().await;
        let first = gathered.commands.first().map(|(_, command)| command);
        assert!(matches!(first, Some(Command::ReportMachine { .. })), "{first:?}");
        assert_eq!(gathered.commands.len(), 4);
    }
}
