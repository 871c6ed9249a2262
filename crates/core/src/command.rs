//! Commands: what people, hosts and the clock ask of the engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::approval::{Order, PersonRole, Subject};
use crate::breaker::BreakerKey;
use crate::council::{self, CouncilId, Findings, Vote};
use crate::failure::{Failure, FailureKind};
use crate::gates::Mock;
use crate::ids::{Actor, Commit, Fence, MissionId, RequestId, Role, TaskId};
use crate::ledger::{Limit, ReservationId};
use crate::machine::MachineUse;
use crate::merge::Step;
use crate::money::Usd;
use crate::outcome::Outcome;
use crate::plan::{Plan, Priority};
use crate::policy::Policy;
use crate::rate::Provider;
use crate::report::{Question, Report, Usage};
use crate::routing::ModelName;
use crate::scaling::ManualScale;
use crate::settings::Settings;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// From a person: deliver this plan onto `target`, which stands at `base`.
    OpenMission {
        request: RequestId,
        goal: String,
        target: String,
        base: Commit,
        plan: Plan,
        policy: Box<Policy>,
        by: Actor,
    },
    /// From a planner or a person: what verification found missing (PLN-19).
    ProposeGaps {
        mission: MissionId,
        plan: Plan,
        by: Actor,
    },
    PauseMission {
        mission: MissionId,
        reason: String,
        by: Actor,
    },
    ResumeMission {
        mission: MissionId,
        by: Actor,
    },
    CancelMission {
        mission: MissionId,
        reason: String,
        by: Actor,
    },
    AnswerCheckpoint {
        task: TaskId,
        resume_id: String,
        input: String,
        by: Actor,
    },
    /// Pinned to the commit that the person saw.
    ApproveDelivery {
        mission: MissionId,
        commit: Commit,
        by: Actor,
    },
    /// From a person.
    ConfigureTeam {
        seats: BTreeMap<Role, u32>,
        workers_max: u32,
        by: Actor,
    },

    /// From a person: one agent more or less than there is.
    Scale {
        role: Role,
        change: ManualScale,
        by: Actor,
    },
    /// From the gateway: how much of the tightest rate limit is in use.
    ReportRateUse {
        permille: u32,
    },
    /// From the host: how full its machine is.
    ReportMachine {
        used: MachineUse,
    },
    /// From a person: take back what a task landed.
    RollbackTask {
        task: TaskId,
        reason: String,
        by: Actor,
    },
    /// From a person: take back a task and all of these, which is what they were shown.
    ConfirmRollback {
        task: TaskId,
        tasks: Vec<TaskId>,
        reason: String,
        by: Actor,
    },

    /// From a person or from the configuration: the rules of the project.
    ChangeSettings {
        settings: Box<Settings>,
        by: Actor,
    },

    /// From a person: this mission, or its retries, may cost this much in all.
    RaiseCap {
        mission: MissionId,
        limit: Limit,
        usd: Usd,
        reason: String,
        by: Actor,
    },
    /// From a person: the watchdog's alarm was looked into.
    ResumeSpending {
        by: Actor,
    },
    /// From a host: what an attempt cost that had ended before its bill was known.
    ReportSpending {
        fence: Fence,
        spent: Spending,
    },
    /// From a host that has just started: what it found of the cost of what it ran before, it has
    /// told. The rest died with those who knew.
    CloseBills,

    /// From a person: a task that gave up lives again, with all that was blocked by it alone.
    RequeueTask {
        task: TaskId,
        reason: String,
        by: Actor,
    },
    /// From a person or an orchestrator: ask a council about this task, perhaps these members.
    ConveneCouncil {
        task: TaskId,
        question: council::Question,
        panel: Vec<ModelName>,
        by: Actor,
    },
    /// From a member of a council, through whoever runs it: its vote, and what it cost.
    CastVote {
        council: CouncilId,
        vote: Box<Vote>,
        spent: Usd,
    },
    /// From the judge of a council, and from the checks of what was proposed.
    JudgeCouncil {
        council: CouncilId,
        findings: Box<Findings>,
        spent: Usd,
    },
    /// From a person, who knows that a provider takes work again.
    UnparkProvider {
        provider: Provider,
        by: Actor,
    },
    /// From a person, who has mended what failed.
    ResetBreaker {
        key: BreakerKey,
        by: Actor,
    },

    /// From a person: this first, or not so soon.
    SetPriority {
        task: TaskId,
        priority: Priority,
        by: Actor,
    },

    /// From a person: this person has this role from now on, or none.
    AssignRole {
        person: Actor,
        role: Option<PersonRole>,
        by: Actor,
    },
    /// Pinned to the commit that the person saw.
    Approve {
        subject: Subject,
        commit: Commit,
        by: Actor,
    },
    Reject {
        subject: Subject,
        commit: Commit,
        reason: String,
        by: Actor,
    },
    /// From a person: do this with a task, whatever the rules would do.
    Override {
        order: Box<Order>,
    },
    /// From another person: yes, do what was ordered.
    SecondOverride {
        task: TaskId,
        by: Actor,
    },

    /// From a host: it has just started, so nothing of what it ran before is alive.
    HostStarted,
    /// From a host: it stops in order, and with it all that it runs.
    StopHost,
    /// From a host: these attempts are alive.
    Heartbeat {
        fences: Vec<Fence>,
    },
    /// From a host: when these attempts last printed something.
    ReportOutput {
        heard: Vec<(Fence, Timestamp)>,
    },
    /// From a host: a check that is under way does something that people should hear of.
    ReportCheck {
        fence: Fence,
        check: String,
        news: CheckNews,
    },
    /// From an attempt: the prepared operation is done, and `change` is the tree with it.
    CompleteOperation {
        fence: Fence,
        index: u32,
        change: Commit,
    },
    /// From an attempt: the steps that its agent sees, one a line.
    MakeChecklist {
        fence: Fence,
        breakdown: String,
    },
    /// From an attempt: the step of this id is done. Where its host has kept the tree with it, it
    /// says so: then nothing of it can be lost.
    CompleteStep {
        fence: Fence,
        step: String,
        notes: String,
        change: Option<Commit>,
    },
    /// From an attempt: what its agent says about its work.
    ReportTask {
        fence: Fence,
        report: Report,
    },
    /// From an attempt: its agent, or one of its sub-agents, starts another, which may spend at
    /// most this; without a sum, all that is left.
    OpenSubAgent {
        fence: Fence,
        of: Option<ReservationId>,
        usd_max: Option<Usd>,
    },
    /// From an attempt: the sub-agent has ended, and this is what it cost.
    CloseSubAgent {
        fence: Fence,
        sub_agent: ReservationId,
        spent: Spending,
    },
    FinishAttempt {
        fence: Fence,
        outcome: AttemptOutcome,
        spent: Spending,
    },
    FinishBranch {
        fence: Fence,
        tip: Commit,
    },
    FinishChecks {
        fence: Fence,
        results: Vec<CheckResult>,
    },
    FinishLane {
        fence: Fence,
        outcome: LaneOutcome,
    },
    /// A change was rebased, or the reversal of landed changes was written.
    FinishRewrite {
        fence: Fence,
        outcome: RewriteOutcome,
    },
    FinishAdvance {
        fence: Fence,
        outcome: AdvanceOutcome,
    },
    FinishDelivery {
        fence: Fence,
        outcome: DeliveryOutcome,
    },
    /// From a host: it could not perform a chore (git failed, the disk is full, …). The work
    /// itself is not to blame.
    FailChore {
        fence: Fence,
        failure: Failure,
    },

    /// From the clock: the earliest moment that was waited for has come.
    Tick,
}

impl Command {
    /// The fence of the effect whose end a host reports with this.
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        match self {
            Command::FinishAttempt { fence, .. }
            | Command::FinishBranch { fence, .. }
            | Command::FinishChecks { fence, .. }
            | Command::FinishLane { fence, .. }
            | Command::FinishRewrite { fence, .. }
            | Command::FinishAdvance { fence, .. }
            | Command::FinishDelivery { fence, .. }
            | Command::FailChore { fence, .. } => Some(*fence),
            Command::OpenMission { .. }
            | Command::ProposeGaps { .. }
            | Command::CompleteOperation { .. }
            | Command::MakeChecklist { .. }
            | Command::CompleteStep { .. }
            | Command::ReportTask { .. }
            | Command::OpenSubAgent { .. }
            | Command::CloseSubAgent { .. }
            | Command::PauseMission { .. }
            | Command::ResumeMission { .. }
            | Command::CancelMission { .. }
            | Command::AnswerCheckpoint { .. }
            | Command::ApproveDelivery { .. }
            | Command::ConfigureTeam { .. }
            | Command::Scale { .. }
            | Command::ReportRateUse { .. }
            | Command::ReportMachine { .. }
            | Command::RollbackTask { .. }
            | Command::ConfirmRollback { .. }
            | Command::ChangeSettings { .. }
            | Command::RaiseCap { .. }
            | Command::ResumeSpending { .. }
            | Command::ReportSpending { .. }
            | Command::CloseBills
            | Command::RequeueTask { .. }
            | Command::ConveneCouncil { .. }
            | Command::CastVote { .. }
            | Command::JudgeCouncil { .. }
            | Command::SetPriority { .. }
            | Command::UnparkProvider { .. }
            | Command::ResetBreaker { .. }
            | Command::AssignRole { .. }
            | Command::Approve { .. }
            | Command::Reject { .. }
            | Command::Override { .. }
            | Command::SecondOverride { .. }
            | Command::HostStarted
            | Command::StopHost
            | Command::Heartbeat { .. }
            | Command::ReportOutput { .. }
            | Command::ReportCheck { .. }
            | Command::Tick => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The agent says that it is done. `change` is what was really in the tree.
    Done {
        change: Option<Commit>,
        touched: Arc<Vec<String>>,
    },
    Asked {
        question: Question,
        change: Option<Commit>,
    },
    Failed(Failure),
    /// The host could not perform it (no space, no sandbox, …): the task is not to blame.
    Abandoned(Failure),
}

/// What an attempt cost, as far as it did not pass the gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spending {
    pub usd: Usd,
    pub usage: Vec<Usage>,
    /// A model whose price nobody knows. Then the attempt has cost all that was reserved for it.
    pub unpriced: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CheckResult {
    pub name: String,
    pub passed: bool,
    /// The end of its output.
    pub output: String,
    pub duration_ms: u64,
    /// What its report says, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Box<Outcome>>,
    /// It was ended before it could say anything: by its limits, or by the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_short: Option<FailureKind>,
    /// The same check where the change began, run there because it failed with the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Box<Before>>,
    /// What it said first on the same commit, where it failed and was run again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Box<Before>>,
    /// Where tests of the change replace what they should test; found by who has the files, with
    /// `gates::mocked_units`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mocks: Vec<Mock>,
}

/// What a check does while it is under way (CMD-11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "news", rename_all = "snake_case")]
pub enum CheckNews {
    /// It prints nothing.
    Silent {
        silent_ms: u64,
    },
    LongRunning {
        running_ms: u64,
    },
}

/// What a check said at another time: before a change, or before it was run again.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Before {
    pub passed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaneOutcome {
    /// One step for each change of the lane, in its order.
    Built(Vec<Step>),
    /// This change could not be put on top of those before it.
    Conflict { task: TaskId, paths: Vec<String> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RewriteOutcome {
    Written { change: Commit, touched: Arc<Vec<String>> },
    Conflict { paths: Vec<String> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdvanceOutcome {
    Advanced,
    /// Somebody else moved the branch on: what we merged is still in it.
    Moved {
        actual: Commit,
    },
    /// Somebody else moved the branch to where what we merged is not.
    Lost {
        actual: Commit,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryOutcome {
    Delivered,
    /// The target cannot take it as it stands; a person has to look.
    Refused {
        reason: String,
    },
}
