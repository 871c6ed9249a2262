//! The loop, one turn after the other.
//!
//! Messages that arrive together are decided together and committed together: while one commit is
//! on its way to the disk, the next turn's messages gather. Nobody is answered and nothing is
//! started before the commit is durable. If the store fails, the engine has run ahead of the
//! journal, so the conductor ends and the next one starts from the journal.

use std::time::Duration;

use kapelle_core::command::Spending;
use kapelle_core::engine::{Actions, Batch};
use kapelle_core::{Command, Engine, Fence, Refusal, Timestamp};
use kapelle_store::{Head, Writer};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::clock::SteadyClock;
use crate::handle::{Error, Handle, Inbox, Message, Ticket};
use crate::host::{Host, Running};
use crate::room::Room;

/// How many messages are decided on in one turn. More would only make the first ones wait.
const MESSAGES_PER_TURN_MAX: usize = 4_096;

/// The running loop. Wait for it to learn how it ended.
#[derive(Debug)]
pub struct Conductor {
    task: JoinHandle<Result<(), Error>>,
}

impl Conductor {
    /// Waits until the conductor has ended, its work is kept and its store is closed.
    pub async fn ended(self) -> Result<(), Error> {
        self.task.await.unwrap_or(Err(Error::Stopped))
    }
}

/// Takes up a project where its journal ends.
pub(crate) fn start(
    engine: Engine,
    writer: Writer,
    host: Host,
    room: Room,
    (handle, inbox): (Handle, Inbox),
) -> Conductor {
    let running = Running::new(host, handle);
    let turns = Turns { engine, writer, running, inbox, room, clock: SteadyClock::default() };
    Conductor { task: tokio::spawn(turns.run()) }
}

struct Turns {
    engine: Engine,
    writer: Writer,
    running: Running,
    inbox: Inbox,
    room: Room,
    clock: SteadyClock,
}

/// What the loop woke up for.
#[derive(Default)]
struct Gathered {
    commands: Vec<(Ticket, Command)>,
    end: bool,
}

impl Turns {
    async fn run(mut self) -> Result<(), Error> {
        let first = Gathered { commands: vec![(None, Command::HostStarted)], end: false };
        let mut outcome = self.turn(first.commands).await;
        while outcome.is_ok() {
            let gathered = self.gather().await;
            if gathered.end {
                break;
            }
            outcome = self.turn(gathered.commands).await;
        }
        self.running.stop_all().await;
        let closed = close(self.writer).await;
        outcome.and(closed)
    }

    async fn turn(&mut self, commands: Vec<(Ticket, Command)>) -> Result<(), Error> {
        let bills: Vec<_> = commands.iter().map(|(_, command)| late_bill(command)).collect();
        let expected = self.engine.head();
        let batch = self.engine.handle(commands, self.clock.now());
        self.commit(expected, &batch).await?;
        let records = batch.records.clone();
        let Actions { replies, start, stop } = self.engine.committed(batch);
        for fence in stop {
            self.running.stop(fence);
        }
        for (fence, effect) in start {
            self.running.start(fence, effect, self.engine.state());
        }
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

    async fn commit<T>(
        &mut self,
        expected: kapelle_core::Seq,
        batch: &Batch<T>,
    ) -> Result<(), Error> {
        if batch.records.is_empty() {
            return Ok(());
        }
        let (done, durable) = oneshot::channel::<Result<Head, kapelle_store::Error>>();
        self.writer.append(self.writer.epoch(), expected, batch.records.clone(), move |result| {
            // The loop waits for this; if it is gone, so is the reason to tell.
            let _ = done.send(result);
        });
        durable.await.map_err(|_| Error::Stopped)??;
        Ok(())
    }

    /// Waits for something to do: a message, or a moment that the engine waits for.
    async fn gather(&mut self) -> Gathered {
        let mut gathered = Gathered::default();
        let wake = self.engine.state().wake_at();
        let heartbeat = self.heartbeat_at();
        let look = self.room.wake_at(self.engine.state());
        let next = [wake, heartbeat, look].into_iter().flatten().min();
        let now = self.clock.now();
        let first = tokio::select! {
            message = self.inbox.messages.recv() => message,
            () = sleep_until(next, now) => {
                let fences: Vec<Fence> = self.running.alive();
                if heartbeat.is_some_and(|at| at <= self.clock.now()) {
                    gathered.commands.push((None, Command::Heartbeat { fences }));
                }
                let asked = self.room.look(self.engine.state(), self.clock.now());
                gathered.commands.extend(asked.into_iter().map(|command| (None, command)));
                return gathered;
            }
        };
        let Some(first) = first else {
            gathered.end = true;
            return gathered;
        };
        self.take(first, &mut gathered);
        while gathered.commands.len() < MESSAGES_PER_TURN_MAX && !gathered.end {
            match self.inbox.messages.try_recv() {
                Ok(message) => self.take(message, &mut gathered),
                Err(_) => break,
            }
        }
        gathered
    }

    fn take(&mut self, message: Message, gathered: &mut Gathered) {
        match message {
            Message::Command(command, ticket) => {
                if let Some(fence) = command.fence() {
                    self.running.forget(fence);
                }
                gathered.commands.push((ticket, command));
            }
            Message::Look(look) => look(self.engine.state()),
            Message::Publish(url, done) => self.writer.publish(&url, move |told| {
                // Whoever asked may have gone away meanwhile.
                let _ = done.send(told);
            }),
            Message::ShutDown => gathered.end = true,
        }
    }

    /// When the first lease is half over, or at once if others wait for an agent to be online:
    /// only then does a heartbeat say something new.
    fn heartbeat_at(&mut self) -> Option<Timestamp> {
        let now = self.clock.now();
        let state = self.engine.state();
        if self.running.alive().into_iter().any(|fence| state.awaits_heartbeat(fence)) {
            return Some(now);
        }
        state.leases().filter_map(|(_, lease)| state.renewal_at(lease)).min()
    }
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

/// Closing waits for the projections; off the loop's thread, because it blocks.
async fn close(writer: Writer) -> Result<(), Error> {
    let closed = tokio::task::spawn_blocking(move || writer.close()).await;
    closed.map_err(|_| Error::Stopped)?.map_err(Error::Store)
}
