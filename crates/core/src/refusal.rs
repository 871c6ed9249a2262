//! Refusals: why a command was not carried out. Nothing has changed when one is returned.

use crate::approval::{ApprovalRefused, OverrideRefused, PeopleRefused};
use crate::breaker::BreakerRefusal;
use crate::checklist::{InvalidChecklist, StepRefusal};
use crate::council::{NotInSession, PanelRefused, ToHuman};
use crate::gates::ReviewsExhausted;
use crate::ids::{AgentId, Commit, Fence, MissionId, TaskId};
use crate::ledger::{self, Limit, ReservationId};
use crate::limits;
use crate::mission::MissionStatus;
use crate::money::Usd;
use crate::plan::InvalidPlan;
use crate::plan::estimate::UnknownPrice;
use crate::plan::gaps::GapsExhausted;
use crate::plan::operation::OperationRefusal;
use crate::policy::InvalidPolicy;
use crate::rate::Provider;
use crate::rollback::RollbackRefused;
use crate::scaling::ScaleRefusal;
use crate::settings::InvalidSettings;
use crate::status::Status;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("there is no mission {0}")]
    UnknownMission(MissionId),
    #[error("there is no task number {}", .0.0)]
    UnknownTask(TaskId),
    /// A repeated request: the mission is already there.
    #[error("the request was already carried out as {mission}")]
    MissionExists { mission: MissionId },
    #[error(transparent)]
    InvalidPlan(#[from] InvalidPlan),
    #[error(transparent)]
    InvalidPolicy(#[from] InvalidPolicy),
    #[error(transparent)]
    InvalidSettings(#[from] InvalidSettings),
    #[error(transparent)]
    UnknownPrice(#[from] UnknownPrice),
    #[error(transparent)]
    GapsExhausted(#[from] GapsExhausted),
    #[error("{mission} is approved and about to be delivered; nothing can be added to it")]
    Delivering { mission: MissionId },
    #[error(transparent)]
    Operation(#[from] OperationRefusal),
    #[error("the steps of task {task} cannot be made anew: they are the plan's, or begun")]
    ChecklistFixed { task: String },
    #[error(transparent)]
    InvalidChecklist(#[from] InvalidChecklist),
    #[error(transparent)]
    Step(#[from] StepRefusal),
    #[error("{what} is missing")]
    Missing { what: &'static str },
    #[error("{what} is longer than {max} characters")]
    TooLong { what: &'static str, max: usize },
    #[error("{mission} has ended: it is {status}")]
    MissionEnded { mission: MissionId, status: MissionStatus },
    #[error("{mission} is already paused")]
    AlreadyPaused { mission: MissionId },
    #[error("{mission} is paused; let it go on first")]
    MissionPaused { mission: MissionId },
    #[error("{mission} is not paused")]
    NotPaused { mission: MissionId },
    #[error("task {task} is not asking anything")]
    NotAsking { task: String },
    #[error("task {task} asks {asked:?}, not {answered:?}")]
    OtherQuestion { task: String, asked: String, answered: String },
    #[error("task {task} did not give up: there is nothing to put back to work")]
    NotDead { task: String },
    #[error("task {task} is in the merge queue; wait until it is merged or comes back")]
    BeingMerged { task: String },
    #[error("task {task} has not begun; there is nothing to go back from")]
    NotBegun { task: String },
    #[error("task {task} has no change to merge; complete it instead")]
    NothingToMerge { task: String },
    #[error("{task} is blocked by {on}, and cannot be merged before it")]
    Blocked { task: String, on: String },
    #[error("{agent} is busy, or there is no such seat")]
    NotFree { agent: AgentId },
    #[error("the files of task {task} lie outside of the territory of {agent}")]
    OutsideTerritory { agent: AgentId, task: String },
    #[error(transparent)]
    People(#[from] PeopleRefused),
    #[error(transparent)]
    Approval(#[from] ApprovalRefused),
    #[error(transparent)]
    Override(#[from] OverrideRefused),
    #[error("{by} is no person; this takes one")]
    NotAPerson { by: String },
    #[error("{mission} has nothing to approve: it is {status}")]
    NothingProposed { mission: MissionId, status: MissionStatus },
    #[error("{mission} proposes {proposed}, not {approved}")]
    OtherCommit { mission: MissionId, proposed: Box<Commit>, approved: Box<Commit> },
    #[error("task {task} has ended: it is {status}")]
    TaskEnded { task: String, status: Status },
    #[error("{because}. {}", because.advice())]
    Rollback { because: RollbackRefused },
    #[error("{count} seats for one role are more than {}", limits::SEATS_PER_ROLE_MAX)]
    TooManySeats { count: u32 },
    #[error("a team needs at least one worker")]
    NoWorkers,
    #[error(transparent)]
    Scale(#[from] ScaleRefusal),
    /// The message comes from something that is no longer wanted.
    #[error("fence {presented} is not current")]
    StaleFence { presented: Fence },
    /// The message does not belong to what its fence stands for.
    #[error("fence {presented} does not stand for {expected}")]
    OtherFence { presented: Fence, expected: &'static str },

    #[error("{limit} is no cap of one mission; change the rules of the project")]
    NotOfMission { limit: Limit },
    #[error("{limit} has no cap that could be raised")]
    NotCapped { limit: Limit },
    #[error("{limit} is {cap} already; {asked} would not raise it")]
    NotRaised { limit: Limit, cap: Usd, asked: Usd },
    #[error("the rules of the project cap a mission at {cap}; raise that first")]
    OverProjectRules { cap: Usd, asked: Usd },
    #[error("spending is not stopped")]
    NotHalted,
    #[error("attempt {fence} still runs; it reports its spending when it ends")]
    StillRunning { fence: Fence },
    #[error(transparent)]
    Money(#[from] ledger::Refusal),
    #[error("attempt {fence} has no sub-agent {sub_agent}")]
    NoSubAgent { fence: Fence, sub_agent: ReservationId },
    #[error(transparent)]
    Council(#[from] NotInSession),
    #[error(transparent)]
    Panel(#[from] PanelRefused),
    #[error("no council is asked: {why}")]
    NoCouncil { why: ToHuman },
    #[error(transparent)]
    Reviews(#[from] ReviewsExhausted),
    #[error("task {task} has no change {commit} that could be reviewed")]
    NoSuchChange { task: String, commit: Commit },
    #[error("{provider} is not parked")]
    NotParked { provider: Provider },
    #[error(transparent)]
    Breaker(#[from] BreakerRefusal),
}

impl From<RollbackRefused> for Refusal {
    fn from(because: RollbackRefused) -> Refusal {
        Refusal::Rollback { because }
    }
}
