//! Events: what happened. The journal is a sequence of these, and state is their fold.
//!
//! This is the one serialised type of the engine. Fields are only ever added, with a default, so
//! that every journal ever written replays (`tests/journals/`).

mod reasons;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::approval::{Assessment, Gate, Order, PersonRole, Subject};
use crate::breaker::{Breaker, BreakerKey};
use crate::command::{CheckNews, CheckResult};
use crate::council::{
    self, Convocation, CouncilId, Dropped, Findings, ProblemKey, Remembered, Summons, Vote,
};
use crate::escalation::{Cause, DeadLetter, Next, Trouble};
use crate::failure::Failure;
use crate::flow::Phase;
use crate::gates::RedReason;
use crate::ids::{Actor, AgentId, Commit, Fence, MissionId, RequestId, Role, Seq, TaskId};
use crate::ledger::{self, Alarm, BurnAlert, Drawn, Limit, ReservationId};
use crate::locks::LockGrant;
use crate::merge::{AfterConflict, AfterTests, LaneId, Step};
use crate::money::Usd;
use crate::outcome::Percent;
use crate::plan::batch::Batch;
use crate::plan::estimate::Estimate;
use crate::plan::{PlannedTask, Priority, Warning};
use crate::policy::Policy;
use crate::queue::{Because, Pick};
use crate::rate::Provider;
use crate::report::{Question, Usage, Verification};
use crate::routing::{ModelName, Route};
use crate::scaling::{ScaleReason, ScaleRefusal};
use crate::settings::Settings;
use crate::time::Timestamp;

pub use reasons::{Interruption, PauseReason, Restart};

/// An event with its place and time in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub seq: Seq,
    pub at: Timestamp,
    pub event: Event,
}

/// Events are moved about with every command: what is large and rare is boxed.
const _: () = assert!(size_of::<Event>() <= 184);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    MissionOpened {
        mission: MissionId,
        request: RequestId,
        goal: String,
        target: String,
        base: Box<Commit>,
        branch: String,
        policy: Box<Policy>,
        by: Actor,
        at: Timestamp,
    },
    PlanAccepted {
        mission: MissionId,
        first_task: TaskId,
        /// Shared with the tasks that they become.
        tasks: Vec<Arc<PlannedTask>>,
        /// Which of the plans for what was missing this is; None for the first plan.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gap: Option<u32>,
    },
    /// Many of its tasks failed; some more, and the mission pauses (C-14).
    FailuresWarned {
        mission: MissionId,
        failed: u32,
        finished: u32,
    },
    /// What is not wrong with a plan, and yet worth knowing.
    PlanWarned {
        mission: MissionId,
        warnings: Vec<Warning>,
    },
    /// These tasks are done one after the other, by the same agent as far as that costs no time.
    PlanBatched {
        mission: MissionId,
        batches: Vec<Batch>,
    },
    /// What the mission will cost, as far as one can know.
    MissionEstimated {
        mission: MissionId,
        estimate: Box<Estimate>,
    },
    MissionPaused {
        mission: MissionId,
        reason: PauseReason,
        by: Actor,
    },
    MissionResumed {
        mission: MissionId,
        by: Actor,
    },
    MissionCancelled {
        mission: MissionId,
        reason: String,
        by: Actor,
        at: Timestamp,
    },
    TeamChanged {
        seats: BTreeMap<Role, u32>,
        workers_max: u32,
        /// None in journals from before it was asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Actor>,
    },
    /// One agent more than the configured team has.
    AgentAdded {
        agent: AgentId,
        reason: ScaleReason,
        by: Actor,
    },
    /// The agent leaves: at once if it is idle, else when its attempt ends.
    AgentRetired {
        agent: AgentId,
        reason: ScaleReason,
        by: Actor,
    },
    /// The queue asks for one more agent, and it must not be. Looked at again with every sample.
    ScaleRefused {
        role: Role,
        refusal: ScaleRefusal,
        repeated: bool,
    },
    /// The team is as large as its steps allow, and the queue still grows.
    QueueBackedUp {
        role: Role,
        depth: u32,
    },
    RateUseReported {
        permille: u32,
    },

    SettingsChanged {
        settings: Box<Settings>,
        by: Actor,
    },

    /// A person gave the task another priority.
    PrioritySet {
        task: TaskId,
        priority: Priority,
        by: Actor,
    },

    /// The task has these files to itself, at least until the lock expires.
    FilesLocked {
        lock: LockGrant,
    },
    /// Nobody renewed the locks of the task in time.
    LocksExpired {
        task: TaskId,
    },

    /// An agent may work on the task until `expires_at`, longer while its host reports.
    LeaseGranted {
        task: TaskId,
        fence: Fence,
        agent: AgentId,
        phase: Phase,
        base: Commit,
        reserved: Usd,
        granted_at: Timestamp,
        expires_at: Timestamp,
        deadline: Timestamp,
        /// Where the money comes from; not in journals from before there was a ledger.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reservation: Option<Drawn>,
        /// Why this task and not another.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pick: Option<Pick>,
        /// Why this agent and not another.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        because: Option<Because>,
        /// Which model does it, and why; nothing where no models are configured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        route: Option<Box<Route>>,
    },
    LeaseRenewed {
        fence: Fence,
        expires_at: Timestamp,
    },
    CostCharged {
        task: TaskId,
        fence: Fence,
        usd: Usd,
        usage: Vec<Usage>,
    },
    /// A part of what is reserved for the attempt is for an agent that its agent started.
    SubAgentOpened {
        task: TaskId,
        fence: Fence,
        sub_agent: ReservationId,
        /// The sub-agent that started it, if that was not the agent of the attempt itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<ReservationId>,
        usd: Usd,
    },
    /// The sub-agent has ended: its attempt pays what it spent, and has the rest back.
    SubAgentClosed {
        task: TaskId,
        fence: Fence,
        sub_agent: ReservationId,
        spent: Usd,
        usage: Vec<Usage>,
    },
    /// The agent is done and left this change; nobody has checked it yet.
    AttemptFinished {
        task: TaskId,
        fence: Fence,
        change: Commit,
        touched: Arc<Vec<String>>,
    },
    AttemptFailed {
        task: TaskId,
        fence: Fence,
        failure: Failure,
    },
    /// The attempt ended without its fault; nothing is counted against the task.
    AttemptInterrupted {
        task: TaskId,
        fence: Fence,
        cause: Interruption,
    },
    CheckpointRaised {
        task: TaskId,
        fence: Fence,
        question: Question,
        change: Option<Commit>,
    },
    CheckpointAnswered {
        task: TaskId,
        resume_id: String,
        input: String,
        by: Actor,
    },
    /// A prepared operation is done; the tree with it is kept as `change`.
    OperationCompleted {
        task: TaskId,
        fence: Fence,
        index: u32,
        change: Commit,
    },
    ChecklistMade {
        task: TaskId,
        fence: Fence,
        steps: Vec<String>,
    },
    StepCompleted {
        task: TaskId,
        fence: Fence,
        step: u32,
        /// Such as `4/7`, with this step counted.
        progress: String,
        by: Actor,
        notes: String,
        /// The tree with it and all that was done before, if that is kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        change: Option<Commit>,
    },
    /// It has printed nothing for a while (WRK-08). It goes on; people may want to look.
    AttemptIdle {
        task: TaskId,
        fence: Fence,
        agent: AgentId,
        silent_ms: u64,
    },
    /// It prints again.
    AttemptHeard {
        task: TaskId,
        fence: Fence,
        agent: AgentId,
    },
    /// A check that is under way is silent, or takes long. It goes on.
    CheckNoted {
        mission: MissionId,
        fence: Fence,
        check: String,
        #[serde(flatten)]
        news: CheckNews,
    },
    /// What the agent says about its work, in its words.
    TaskReported {
        task: TaskId,
        fence: Fence,
        message: String,
        verification_result: Option<Verification>,
        /// Why its new tests fail.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        red: Option<RedReason>,
        /// Whether git alone can take its work back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rollback_possible: Option<bool>,
    },
    /// The checks did not give what the phase or the queue needs.
    ChangeRejected {
        task: TaskId,
        failure: Failure,
    },
    RetryScheduled {
        task: TaskId,
        at: Timestamp,
        from: Restart,
    },
    BackoffEnded {
        task: TaskId,
    },
    /// What is done about a failure, by the tiers of escalation.
    TroubleMet {
        task: TaskId,
        trouble: Trouble,
        next: Next,
    },
    /// The host could not perform the attempt; nothing is counted against the task.
    AttemptAbandoned {
        task: TaskId,
        fence: Fence,
        failure: Failure,
        retry_at: Option<Timestamp>,
    },
    TaskDeadLettered {
        task: TaskId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        letter: Option<Box<DeadLetter>>,
    },
    TaskBlocked {
        task: TaskId,
        on: TaskId,
    },
    /// What blocked the task was put back to work.
    TaskUnblocked {
        task: TaskId,
    },
    /// A person put a task that had given up back to work.
    TaskRequeued {
        task: TaskId,
        reason: String,
        by: Actor,
    },
    /// Models of different families are asked, and paid out of this reservation.
    CouncilConvened {
        council: CouncilId,
        task: TaskId,
        because: Summons,
        convocation: Box<Convocation>,
        reservation: Drawn,
    },
    /// Sealed until the council closes: show it to nobody but through `council::visible`.
    VoteCast {
        council: CouncilId,
        task: TaskId,
        vote: Box<Vote>,
        spent: Usd,
    },
    /// A vote that does not count; its member has had its turn.
    VoteDropped {
        council: CouncilId,
        task: TaskId,
        model: ModelName,
        why: Dropped,
        spent: Usd,
    },
    /// The votes are open. What its judge and the checks say is waited for until `judged_by`.
    CouncilClosed {
        council: CouncilId,
        task: TaskId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        judged_by: Option<Timestamp>,
    },
    /// What votes and findings say together, and what it cost to ask.
    CouncilDecided {
        council: CouncilId,
        task: TaskId,
        verdict: council::Verdict,
        findings: Box<Findings>,
        cost: Usd,
    },
    /// The winner was tried, and this came of it.
    CouncilResolved {
        council: CouncilId,
        task: TaskId,
        outcome: council::Outcome,
    },
    /// Nobody needs its answer any more.
    CouncilAbandoned {
        council: CouncilId,
        task: TaskId,
        cost: Usd,
    },
    /// A council solved this before; its answer is tried again, and nobody is asked.
    SolutionRecalled {
        task: TaskId,
        key: ProblemKey,
        known: Remembered,
    },
    /// People are told of all that is new, at once.
    PersonNotified {
        causes: Vec<Cause>,
    },

    /// Kapelle started: what is spent from here on belongs to a new session.
    SessionStarted,
    /// A person gave a mission more money.
    CapRaised {
        mission: MissionId,
        limit: Limit,
        usd: Usd,
        reason: String,
        by: Actor,
    },
    /// More than the warned part of a cap is spent.
    SpendingWarned {
        mission: MissionId,
        warning: ledger::Warning,
    },
    /// The last hour was too dear for too long.
    BurnAlerted {
        alert: BurnAlert,
    },
    /// The watchdog: nothing new starts, and what runs has until `grace_ends_at`.
    SpendingPaused {
        alarm: Alarm,
        grace_ends_at: Timestamp,
    },
    /// The grace is over.
    SpendingStopped,
    SpendingResumed {
        by: Actor,
    },
    /// The bill of an ended attempt did not come in time; what was reserved for it is free.
    ReservationReleased {
        task: TaskId,
        fence: Fence,
        usd: Usd,
    },

    /// The provider asked to be left alone; its work waits or goes elsewhere.
    ProviderParked {
        provider: Provider,
        until: Timestamp,
    },
    /// Its time is over, or a person said so.
    ProviderBack {
        provider: Provider,
        by: Actor,
    },
    BreakerMoved {
        key: BreakerKey,
        to: Breaker,
        by: Actor,
    },
    /// It happened without asking, and people are told: they can take it back.
    WentAhead {
        subject: Subject,
        mission: MissionId,
        commit: Commit,
        assessed: Option<Box<Assessment>>,
    },
    PersonAssigned {
        person: Actor,
        role: Option<PersonRole>,
        by: Actor,
    },
    /// It waits until enough people have approved.
    ApprovalAsked {
        gate: Box<Gate>,
    },
    ApprovalGiven {
        subject: Subject,
        commit: Commit,
        by: Actor,
    },
    ApprovalRejected {
        subject: Subject,
        commit: Commit,
        reason: String,
        by: Actor,
    },
    /// It takes a second person, until then.
    OverrideProposed {
        order: Box<Order>,
        expires_at: Timestamp,
    },
    /// No second person came.
    OverrideLapsed {
        task: TaskId,
    },
    /// A person's order took effect.
    Overridden {
        order: Box<Order>,
        seconded_by: Option<Actor>,
    },

    /// The conductor was told to do this chore.
    ChoreStarted {
        mission: MissionId,
        fence: Fence,
        chore: Chore,
    },
    /// The chore could not be performed; it is due again at `retry_at`, or waits for a person.
    ChoreFailed {
        fence: Fence,
        failure: Failure,
        retry_at: Option<Timestamp>,
    },
    ChoreDue {
        mission: MissionId,
        chore: Chore,
    },
    /// The chore is not in flight any more (its mission was paused, its host started anew); it is
    /// wanted again as soon as the mission goes on.
    ChoreWithdrawn {
        fence: Fence,
    },
    BranchPrepared {
        mission: MissionId,
        fence: Fence,
        tip: Commit,
    },
    ChecksFinished {
        task: TaskId,
        fence: Fence,
        commit: Commit,
        results: Vec<CheckResult>,
    },
    /// The test did both on one commit too often: its failures are told, and blame nobody.
    TestQuarantined {
        /// With its check before it.
        test: String,
        contradictions: u32,
        rate: Percent,
    },
    /// It passed long enough to be believed again.
    TestReleased {
        test: String,
        passes: u32,
    },
    PhaseAccepted {
        task: TaskId,
        phase: Phase,
        change: Commit,
    },
    /// With `candidate_rejected`, `candidate_passed` and `branch_moved` the story of a change that
    /// was merged before there were lanes. Nothing decides them any more; old journals have them.
    CandidateBuilt {
        task: TaskId,
        fence: Fence,
        candidate: Commit,
    },
    CandidateRejected {
        task: TaskId,
        fence: Fence,
        failure: Failure,
    },
    /// All checks passed on exactly this commit.
    CandidatePassed {
        task: TaskId,
        candidate: Commit,
    },
    TaskMerged {
        task: TaskId,
        fence: Fence,
        commit: Commit,
        /// The branch just before this change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        onto: Option<Commit>,
        at: Timestamp,
    },
    /// The mission's branch was not where we left it; the candidate is built anew on its tip.
    BranchMoved {
        task: TaskId,
        fence: Fence,
        actual: Commit,
    },

    /// These changes are built, tested and landed as one.
    LaneFormed {
        mission: MissionId,
        lane: LaneId,
        members: Vec<TaskId>,
        /// The other half of a batch that failed; it waits for what becomes of this half.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        behind: Vec<TaskId>,
    },
    LaneBuilt {
        mission: MissionId,
        fence: Fence,
        lane: LaneId,
        onto: Commit,
        steps: Vec<Step>,
    },
    /// The checks ran on exactly this commit, and this is what follows.
    LaneTested {
        mission: MissionId,
        fence: Fence,
        lane: LaneId,
        candidate: Commit,
        results: Vec<CheckResult>,
        verdict: AfterTests,
    },
    /// There is nothing to test: the gate has seen this very commit, or there are no checks.
    LanePassed {
        mission: MissionId,
        lane: LaneId,
        candidate: Commit,
    },
    LaneLanded {
        mission: MissionId,
        fence: Fence,
        lane: LaneId,
        commit: Commit,
    },
    /// The change does not fit what is there already.
    ChangeConflicted {
        task: TaskId,
        fence: Fence,
        onto: Commit,
        paths: Vec<String>,
        next: AfterConflict,
        /// What a person is asked, when nothing else is left to try.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        question: Option<Question>,
    },
    ChangeRebased {
        task: TaskId,
        fence: Fence,
        change: Commit,
        touched: Arc<Vec<String>>,
    },
    /// Somebody else moved the branch on; whatever was built is built anew on its tip.
    TargetMoved {
        mission: MissionId,
        fence: Fence,
        actual: Commit,
    },
    /// The checks ran on the branch itself; what fails there is not the fault of who comes next.
    BaselineMeasured {
        mission: MissionId,
        fence: Fence,
        commit: Commit,
        results: Vec<CheckResult>,
    },

    /// What `tasks` landed is taken back together, newest first, through the merge queue.
    RollbackStarted {
        mission: MissionId,
        task: TaskId,
        tasks: Vec<TaskId>,
        reason: String,
        by: Actor,
    },
    RevertBuilt {
        task: TaskId,
        fence: Fence,
        change: Commit,
    },
    /// The rollback is off; everything stays landed.
    RollbackFailed {
        task: TaskId,
        reason: String,
    },
    TaskRolledBack {
        task: TaskId,
        commit: Commit,
        at: Timestamp,
    },

    /// Everything is merged; a person has to approve the delivery of this commit.
    DeliveryProposed {
        mission: MissionId,
        commit: Commit,
    },
    DeliveryApproved {
        mission: MissionId,
        commit: Commit,
        by: Actor,
    },
    DeliveryRefused {
        mission: MissionId,
        fence: Fence,
        reason: String,
    },
    MissionDelivered {
        mission: MissionId,
        fence: Fence,
        commit: Commit,
        at: Timestamp,
    },
}

/// Something for the conductor to do for a mission, other than running an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "chore", content = "of", rename_all = "snake_case")]
pub enum Chore {
    Branch(MissionId),
    Gate(TaskId),
    /// These three are of journals from before there were lanes.
    Candidate(TaskId),
    CandidateChecks(TaskId),
    Advance(TaskId),
    Delivery(MissionId),

    LaneBuild(LaneId),
    LaneTest(LaneId),
    LaneLand(LaneId),
    Rebase(TaskId),
    /// The checks on the mission's branch itself.
    Baseline(MissionId),
    /// For the task that was asked to be rolled back.
    Revert(TaskId),
}

impl Chore {
    /// Whether the merge queue wants it: then it comes and goes with what the queue says.
    #[must_use]
    pub fn is_of_queue(self) -> bool {
        match self {
            Chore::LaneBuild(_)
            | Chore::LaneTest(_)
            | Chore::LaneLand(_)
            | Chore::Rebase(_)
            | Chore::Baseline(_)
            | Chore::Revert(_) => true,
            Chore::Branch(_)
            | Chore::Gate(_)
            | Chore::Candidate(_)
            | Chore::CandidateChecks(_)
            | Chore::Advance(_)
            | Chore::Delivery(_) => false,
        }
    }
}
