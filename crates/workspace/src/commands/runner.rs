//! Running commands, for agents and as checks, and telling about them.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::kind::Thresholds;
use super::watch::{Action, Input, KillReason, Watch};
use super::{CommandError, CommandResult, ESCALATION_CHARS_MAX, RESULT_CHARS_MAX, last_chars};
use crate::process::{self, Exit, Running, Spec};

/// That there is output is told once in this time. All else is told a few times in the life of a
/// command, so what waits to be heard needs no bound, and a slow listener cannot hold up a kill.
const OUTPUT_TOLD_EVERY: Duration = Duration::from_secs(1);

/// A command that is to be run.
#[derive(Debug)]
pub struct Order {
    pub id: u64,
    pub subtask: String,
    /// Confined already, with no time limit of its own.
    pub spec: Spec,
    pub rules: Thresholds,
}

/// What an agent hears when it gives an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Done(CommandResult),
    /// The result comes later, by itself; nobody needs to ask for it.
    Backgrounded {
        id: u64,
    },
}

/// What everybody may hear (CMD-11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// Something was printed; how many bytes so far.
    Output {
        id: u64,
        bytes: u64,
    },
    Warning {
        id: u64,
        silent_ms: u64,
    },
    Backgrounded {
        id: u64,
    },
    LongRunning {
        id: u64,
        running_ms: u64,
    },
    /// It was ended; somebody has to rule what comes next.
    Escalated {
        id: u64,
        reason: CommandError,
        output: String,
    },
    /// It ended while its agent waited.
    Complete {
        id: u64,
        success: bool,
    },
    /// The one result of a command in the background.
    BackgroundComplete(CommandResult),
}

/// Runs commands and tells about them. Any number of them run side by side.
#[derive(Debug, Clone)]
pub struct Commands {
    told: mpsc::UnboundedSender<Told>,
}

/// The end of a command: its one result, and what its process left, if its end was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub result: CommandResult,
    pub exit: Option<Exit>,
}

impl Commands {
    #[must_use]
    pub fn new() -> (Commands, mpsc::UnboundedReceiver<Told>) {
        let (told, heard) = mpsc::unbounded_channel();
        (Commands { told }, heard)
    }

    /// Starts a command and waits for it, but not longer than its agent should wait.
    pub async fn run(&self, order: Order) -> Result<Answer, process::Error> {
        let id = order.id;
        let (answer, mut answered) = mpsc::channel(1);
        let mut task = self.start(order, Some(answer)).await?;
        tokio::spawn(async move {
            let ended = task.run().await;
            task.deliver(ended.result);
        });
        // The task answers before it ends, whatever happens to the process.
        Ok(answered.recv().await.unwrap_or(Answer::Backgrounded { id }))
    }

    /// Starts a command and waits for its end. Giving up the wait ends the command.
    pub async fn run_to_end(&self, order: Order) -> Result<Ended, process::Error> {
        Ok(self.start(order, None).await?.run().await)
    }

    async fn start(
        &self,
        order: Order,
        answer: Option<mpsc::Sender<Answer>>,
    ) -> Result<Task, process::Error> {
        let Order { id, subtask, spec, rules } = order;
        let running = process::spawn(spec).await?;
        let (watch, begun) = (Watch::new(rules, 0), Instant::now());
        Ok(Task { id, subtask, running, watch, begun, told: self.told.clone(), answer })
    }
}

struct Task {
    id: u64,
    subtask: String,
    running: Running,
    watch: Watch,
    begun: Instant,
    told: mpsc::UnboundedSender<Told>,
    /// Of an agent that may go on before the end.
    answer: Option<mpsc::Sender<Answer>>,
}

impl Task {
    async fn run(&mut self) -> Ended {
        let mut activity = self.running.activity();
        let (mut exit, mut told_at) = (None, None::<Instant>);
        loop {
            let wake = self.watch.wake_ms(self.now()).unwrap_or_default();
            let input = tokio::select! {
                ended = self.running.wait() => match ended {
                    Ok(ended) => {
                        let code = ended.code;
                        exit = Some(ended);
                        Input::Exited { code }
                    }
                    Err(_) => Input::Lost,
                },
                Ok(()) = activity.changed() => {
                    let bytes = activity.borrow_and_update().bytes;
                    if told_at.is_none_or(|at| at.elapsed() >= OUTPUT_TOLD_EVERY) {
                        told_at = Some(Instant::now());
                        self.tell(Told::Output { id: self.id, bytes });
                    }
                    Input::Output
                }
                () = sleep_until(self.begun + Duration::from_millis(wake)) => Input::Tick,
            };
            for action in self.watch.on(input, self.now()) {
                if let Some(result) = self.perform(action, exit.as_ref()) {
                    return Ended { result, exit };
                }
            }
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Gives the result if this was the end.
    fn perform(&self, action: Action, exit: Option<&Exit>) -> Option<CommandResult> {
        let id = self.id;
        match action {
            Action::Warn { silent_ms } => self.tell(Told::Warning { id, silent_ms }),
            Action::LongRunning { running_ms } => {
                self.tell(Told::LongRunning { id, running_ms });
            }
            Action::Background => {
                self.tell(Told::Backgrounded { id });
                self.answer(Answer::Backgrounded { id });
            }
            Action::Kill { reason } => {
                self.running.kill();
                let reason = match reason {
                    KillReason::Silent { .. } => CommandError::Hang,
                    KillReason::TimeLimit => CommandError::TimeLimit,
                };
                self.escalate(reason);
            }
            Action::Complete { success, code, error, .. } => {
                let error = error.or_else(|| exit.and_then(of_exit));
                if let Some(given_up @ CommandError::SafetyNetTriggered) = error {
                    self.escalate(given_up);
                }
                let output = exit.map_or_else(|| self.running.tail(), |exit| exit.tail.clone());
                return Some(CommandResult {
                    id,
                    subtask: self.subtask.clone(),
                    success: success && error.is_none(),
                    code,
                    output: last_chars(&output, RESULT_CHARS_MAX).to_owned(),
                    duration: self.begun.elapsed(),
                    error,
                });
            }
        }
        None
    }

    /// To the agent that waits, or by the queue to the one that went on; never both.
    fn deliver(&self, result: CommandResult) {
        if self.watch.is_background() {
            self.tell(Told::BackgroundComplete(result));
        } else {
            self.tell(Told::Complete { id: self.id, success: result.success });
            self.answer(Answer::Done(result));
        }
    }

    fn answer(&self, answer: Answer) {
        if let Some(agent) = &self.answer {
            let _no_longer_waiting = agent.try_send(answer);
        }
    }

    fn escalate(&self, reason: CommandError) {
        let output = last_chars(&self.running.tail(), ESCALATION_CHARS_MAX).to_owned();
        self.tell(Told::Escalated { id: self.id, reason, output });
    }

    fn tell(&self, told: Told) {
        // If nobody listens any more, the agent is gone, and with it whoever wanted to know.
        let _gone = self.told.send(told);
    }
}

fn of_exit(exit: &Exit) -> Option<CommandError> {
    if exit.over_quota.is_some() {
        return Some(CommandError::DiskFull);
    }
    // Whoever lost a child to the kernel and went on has ended well.
    (exit.out_of_memory && exit.code != Some(0)).then_some(CommandError::OutOfMemory)
}
