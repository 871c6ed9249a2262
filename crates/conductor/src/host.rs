//! The embedded host: performs effects on this machine and reports what became of them.
//!
//! Invariant: an effect that is stopped leaves nothing behind but kept work and a log; an effect
//! that is performed twice gives the same result as once.

mod attempt;
mod checks;
mod chores;
mod ear;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kapelle_agents::Briefing;
use kapelle_core::command::{AttemptOutcome, Spending};
use kapelle_core::failure::{Failure, FailureKind};
use kapelle_core::policy::Sandbox as Choice;
use kapelle_core::price::Prices;
use kapelle_core::task::Task;
use kapelle_core::{Command, Effect, Fence, MissionId, Role, State};
use kapelle_workspace::baseline::{self, Baselines};
use kapelle_workspace::commands::ThresholdRules;
use kapelle_workspace::process::Lease;
use kapelle_workspace::sandbox::{Confinement, Sandboxing};
use kapelle_workspace::tmux::{self, Tmux};
use kapelle_workspace::{Repository, candidate, check, process, repository, sandbox, worktree};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::handle::Handle;
use crate::silence::Heard;
use ear::Ear;

/// What a host has to work with.
#[derive(Debug)]
pub struct Host {
    pub repo: Repository,
    /// Worktrees, logs and briefings live below this.
    pub dir: PathBuf,
    /// Marks every process that belongs to this project.
    pub store_id: String,
    pub drivers: BTreeMap<Role, Driver>,
    pub sandboxing: Sandboxing,
    pub prices: Prices,
    /// All of the environment of agents and checks, but for what the contract adds.
    pub env: BTreeMap<String, OsString>,
    /// Places outside of the system's own that agents and checks may read.
    pub readable: Vec<PathBuf>,
    /// Where agents run that a person can attach to; without it nobody can look over their shoulder.
    pub sessions: Option<Tmux>,
    /// How long commands may be silent and may run, where that is not as usual.
    pub rules: ThresholdRules,
    /// What checks say where changes begin.
    pub baselines: Baselines,
}

/// How an agent of a role is started: the command-agent contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Driver {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    pub readable: Vec<PathBuf>,
}

/// Why an effect could not be performed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error("no driver is configured for the role {0}")]
    NoDriver(Role),
    #[error("the sandbox cannot be used: {reason}; {hint}")]
    NoSandbox { reason: String, hint: String },
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("the branch {0} is gone")]
    BranchGone(String),
    #[error(transparent)]
    Repository(#[from] repository::Error),
    #[error(transparent)]
    Worktree(#[from] worktree::Error),
    #[error("{0}")]
    Change(worktree::Error),
    #[error(transparent)]
    Candidate(#[from] candidate::Error),
    #[error(transparent)]
    Check(#[from] check::Error),
    #[error("before the change: {0}")]
    Baseline(#[from] baseline::Error),
    #[error("the check {name} has no answer on the branch itself: {}", failure.message)]
    CutShort { name: String, failure: Failure },
    #[error(transparent)]
    Process(#[from] process::Error),
    #[error(transparent)]
    Session(#[from] tmux::Error),
    #[error(transparent)]
    Sandbox(#[from] sandbox::Error),
}

impl Trouble {
    fn failure(&self) -> Failure {
        let kind = match self {
            Trouble::File { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                FailureKind::DiskFull
            }
            Trouble::CutShort { failure, .. } => failure.kind,
            _ if self.is_of_the_change() => FailureKind::ValidationFailed,
            _ => FailureKind::AgentError,
        };
        Failure::new(kind, &self.to_string())
    }

    /// What it means for an attempt: the task is not to blame for its host.
    fn outcome(&self) -> AttemptOutcome {
        match self.is_of_the_change() {
            true => AttemptOutcome::Failed(self.failure()),
            false => AttemptOutcome::Abandoned(self.failure()),
        }
    }

    /// The change is wrong, not the machine: the next attempt is told what to take out.
    fn is_of_the_change(&self) -> bool {
        use worktree::Error::{
            FileTooLarge, NotTaken, RefusedName, Secrets, Submodule, TooLarge, TooMany,
        };
        let Trouble::Change(error) = self else { return false };
        matches!(
            error,
            Secrets { .. }
                | RefusedName { .. }
                | NotTaken { .. }
                | Submodule { .. }
                | FileTooLarge { .. }
                | TooLarge { .. }
                | TooMany { .. }
        )
    }
}

/// What of the state an effect needs, taken when it is started.
struct Order {
    fence: Fence,
    effect: Effect,
    briefing: Option<Briefing>,
    /// Of the task that it is for, if it is for one.
    mission: Option<MissionId>,
    sandbox: Choice,
    /// Where the attempt's process is listened to.
    ear: Ear,
    /// For what is told before the end.
    handle: Handle,
}

/// The effects in flight.
pub(crate) struct Running {
    host: Arc<Host>,
    handle: Handle,
    effects: BTreeMap<Fence, InFlight>,
    /// Effects that were told to stop and are putting their things away.
    stopping: Vec<JoinHandle<()>>,
}

struct InFlight {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    is_attempt: bool,
    ear: Ear,
}

impl Running {
    pub(crate) fn new(host: Host, handle: Handle) -> Running {
        let effects = BTreeMap::new();
        Running { host: Arc::new(host), handle, effects, stopping: Vec::new() }
    }

    pub(crate) fn start(&mut self, fence: Fence, effect: Effect, state: &State) {
        let is_attempt = matches!(effect, Effect::RunAttempt { .. });
        let order = Order {
            fence,
            briefing: Briefing::of(state, fence),
            mission: task_of(state, &effect).map(|task| task.mission),
            sandbox: sandbox_of(state, &effect),
            effect,
            ear: Ear::default(),
            handle: self.handle.clone(),
        };
        let ear = order.ear.clone();
        let (host, handle) = (self.host.clone(), self.handle.clone());
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            let performed = tokio::spawn(async move { host.perform(order, stopped).await }).await;
            let reports = performed.unwrap_or_else(|_| vec![crashed(fence, is_attempt)]);
            reports.into_iter().for_each(|report| handle.report(report));
        });
        self.effects.insert(fence, InFlight { stop, task, is_attempt, ear });
    }

    pub(crate) fn stop(&mut self, fence: Fence) {
        if let Some(effect) = self.effects.remove(&fence) {
            // If nobody listens, it has just ended by itself.
            let _ = effect.stop.send(true);
            self.stopping.retain(|task| !task.is_finished());
            self.stopping.push(effect.task);
        }
    }

    /// Something to tell the engine that no effect tells by itself.
    pub(crate) fn report(&self, command: Command) {
        self.handle.report(command);
    }

    /// The effect has reported its end; there is nothing left to stop.
    pub(crate) fn forget(&mut self, fence: Fence) {
        self.effects.remove(&fence);
    }

    pub(crate) fn alive(&self) -> Vec<Fence> {
        let attempts = self.effects.iter().filter(|(_, effect)| effect.is_attempt);
        attempts.map(|(fence, _)| *fence).collect()
    }

    /// When each attempt last printed something, as far as it has a process.
    pub(crate) fn heard(&self) -> Heard {
        let attempts = self.effects.iter().filter(|(_, effect)| effect.is_attempt);
        attempts.filter_map(|(fence, effect)| Some((*fence, effect.ear.heard_at()?))).collect()
    }

    /// Stops everything and waits until its work is kept.
    pub(crate) async fn stop_all(&mut self) {
        let fences: Vec<Fence> = self.effects.keys().copied().collect();
        for fence in fences {
            self.stop(fence);
        }
        for task in self.stopping.drain(..) {
            // A panic in an effect is reported by the runtime; here it has ended either way.
            let _ = task.await;
        }
    }
}

/// A bug in performing an effect must not leave it in flight for ever.
fn crashed(fence: Fence, is_attempt: bool) -> Command {
    let failure = Failure::new(FailureKind::AgentError, "the host crashed while performing this");
    if is_attempt {
        let outcome = AttemptOutcome::Abandoned(failure);
        Command::FinishAttempt { fence, outcome, spent: Spending::default() }
    } else {
        Command::FailChore { fence, failure }
    }
}

fn task_of<'a>(state: &'a State, effect: &Effect) -> Option<&'a Task> {
    match effect {
        Effect::RunAttempt { task, .. }
        | Effect::RunChecks { task, .. }
        | Effect::RebaseChange { task, .. }
        | Effect::BuildRevert { task, .. } => state.task(*task),
        Effect::PrepareBranch { .. }
        | Effect::BuildLane { .. }
        | Effect::TestLane { .. }
        | Effect::LandLane { .. }
        | Effect::MeasureBaseline { .. }
        | Effect::Deliver { .. } => None,
    }
}

fn sandbox_of(state: &State, effect: &Effect) -> Choice {
    if let Effect::TestLane { policy, .. } | Effect::MeasureBaseline { policy, .. } = effect {
        return policy.sandbox;
    }
    let mission = task_of(state, effect).and_then(|task| state.mission(task.mission));
    mission.map_or(Choice::Required, |mission| mission.policy.sandbox)
}

impl Host {
    /// Performs an effect, and gives what is to be told about it. Nothing if it was stopped: then
    /// nobody waits for an answer.
    async fn perform(&self, order: Order, stopped: watch::Receiver<bool>) -> Vec<Command> {
        let fence = order.fence;
        let chore = |done: Result<Command, Trouble>| {
            done.unwrap_or_else(|trouble| Command::FailChore { fence, failure: trouble.failure() })
        };
        vec![match &order.effect {
            Effect::RunAttempt { .. } => return self.attempt(&order, stopped).await,
            Effect::RunChecks { commit, .. }
            | Effect::TestLane { candidate: commit, .. }
            | Effect::MeasureBaseline { commit, .. } => {
                let checks = self.checks(&order, commit);
                let Some(done) = until_stopped(stopped, checks).await else {
                    self.put_checks_away(fence, commit).await;
                    return Vec::new();
                };
                chore(done.map(|results| Command::FinishChecks { fence, results }))
            }
            Effect::PrepareBranch { branch, base, .. } => {
                chore(self.prepare_branch(fence, branch, base).await)
            }
            Effect::BuildLane { mission, onto, changes, .. } => {
                chore(self.build_lane(fence, *mission, onto, changes).await)
            }
            Effect::RebaseChange { change, onto, .. } => {
                chore(self.rebase(fence, change, onto).await)
            }
            Effect::BuildRevert { onto, reverts, .. } => {
                chore(self.revert(fence, onto, reverts).await)
            }
            Effect::LandLane { mission, branch, from, to, .. } => {
                chore(self.advance_branch(fence, (*mission, branch), from, to).await)
            }
            Effect::Deliver { target, commit, .. } => {
                chore(self.deliver(fence, target, commit).await)
            }
        }]
    }

    fn confinement(&self, choice: Choice) -> Result<Confinement, Trouble> {
        match (choice, &self.sandboxing) {
            (Choice::Off, _) => Ok(Confinement::Unsandboxed),
            (Choice::Required, Sandboxing::Usable(sandbox)) => {
                Ok(Confinement::Sandboxed(sandbox.clone()))
            }
            (Choice::Required, Sandboxing::Unusable { reason, hint }) => {
                Err(Trouble::NoSandbox { reason: reason.clone(), hint: hint.clone() })
            }
        }
    }

    fn lease(&self, fence: Fence) -> Lease {
        Lease { store: self.store_id.clone(), fence }
    }

    fn log(&self, name: &str) -> PathBuf {
        self.dir.join("logs").join(name)
    }

    fn workplace(&self, fence: Fence) -> PathBuf {
        self.dir.join("work").join(fence.to_string())
    }
}

fn make_dir(path: &Path) -> Result<(), Trouble> {
    std::fs::create_dir_all(path).map_err(|source| Trouble::File { path: path.to_owned(), source })
}

/// Gives up on `work` when it is stopped; dropping it ends its processes.
async fn until_stopped<T>(
    mut stopped: watch::Receiver<bool>,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        _ = stopped.wait_for(|stopped| *stopped) => None,
    }
}
