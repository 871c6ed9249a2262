//! The activity log: one sentence for every event that a person would want to hear of.

mod council;
mod merging;
mod people;

use serde::{Deserialize, Serialize};

use crate::breaker::Breaker;
use crate::calendar::utc;
use crate::escalation::{HumanBecause, Matter, Next, Verdict};
use crate::event::{Chore, Event, Interruption, Restart};
use crate::ids::{Actor, MissionId, TaskId};
use crate::limits;
use crate::policy::Sandbox;
use crate::state::State;
use crate::time::SECOND_MS;
use crate::why;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    pub actor: String,
    pub text: String,
    pub level: Level,
    pub mission: Option<MissionId>,
    pub task: Option<TaskId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Info,
    Warn,
    Error,
}

/// The sentence for an event, in the light of a state that has seen it.
#[must_use]
pub fn line(state: &State, event: &Event) -> Option<Line> {
    let told = match event {
        Event::MissionOpened { .. }
        | Event::PlanAccepted { .. }
        | Event::FailuresWarned { .. }
        | Event::PlanWarned { .. }
        | Event::PlanBatched { .. }
        | Event::MissionEstimated { .. }
        | Event::MissionPaused { .. }
        | Event::MissionResumed { .. }
        | Event::MissionCancelled { .. } => return mission_line(state, event),
        Event::BranchPrepared { .. }
        | Event::DeliveryProposed { .. }
        | Event::DeliveryApproved { .. }
        | Event::DeliveryRefused { .. }
        | Event::MissionDelivered { .. } => return delivery_line(state, event),
        Event::TeamChanged { .. }
        | Event::AgentAdded { .. }
        | Event::AgentRetired { .. }
        | Event::ScaleRefused { .. }
        | Event::QueueBackedUp { .. } => return team_line(state, event),
        Event::ChoreFailed { failure, retry_at, .. } => {
            let then = if retry_at.is_some() { "trying again" } else { "giving up" };
            Told::error(format!("a chore failed, {then}: {}", last_line(&failure.message)))
        }
        Event::CheckNoted { mission, check, news, .. } => {
            merging::check_noted(check, *news).of_mission(*mission)
        }
        Event::ChoreStarted { mission, chore, .. } => return chore_line(state, *mission, *chore),
        Event::SettingsChanged { by, .. } => {
            Told::info(format!("{by} changed the rules of the project"))
        }
        Event::RateUseReported { .. }
        | Event::SessionStarted
        | Event::LeaseRenewed { .. }
        | Event::ChoreDue { .. }
        | Event::ChoreWithdrawn { .. }
        | Event::BackoffEnded { .. } => return None,
        Event::CapRaised { .. }
        | Event::SpendingWarned { .. }
        | Event::BurnAlerted { .. }
        | Event::SpendingPaused { .. }
        | Event::SpendingStopped
        | Event::SpendingResumed { .. }
        | Event::ProviderParked { .. }
        | Event::ProviderBack { .. }
        | Event::BreakerMoved { .. } => return money_line(event),
        Event::OperationCompleted { .. }
        | Event::ChecklistMade { .. }
        | Event::StepCompleted { .. }
        | Event::TaskReported { .. }
        | Event::FilesLocked { .. }
        | Event::LocksExpired { .. }
        | Event::PrioritySet { .. }
        | Event::LeaseGranted { .. }
        | Event::AttemptIdle { .. }
        | Event::AttemptHeard { .. }
        | Event::ReservationReleased { .. }
        | Event::CostCharged { .. }
        | Event::SubAgentOpened { .. }
        | Event::SubAgentClosed { .. }
        | Event::AttemptFinished { .. }
        | Event::AttemptFailed { .. }
        | Event::AttemptInterrupted { .. }
        | Event::CheckpointRaised { .. }
        | Event::CheckpointAnswered { .. }
        | Event::ChangeRejected { .. }
        | Event::RetryScheduled { .. } => return work_line(state, event),
        Event::TroubleMet { .. }
        | Event::AttemptAbandoned { .. }
        | Event::TaskDeadLettered { .. }
        | Event::TaskBlocked { .. }
        | Event::TaskUnblocked { .. }
        | Event::TaskRequeued { .. } => return failure_line(state, event),
        Event::PersonAssigned { .. }
        | Event::WentAhead { .. }
        | Event::ApprovalAsked { .. }
        | Event::ApprovalGiven { .. }
        | Event::ApprovalRejected { .. }
        | Event::OverrideProposed { .. }
        | Event::OverrideLapsed { .. }
        | Event::Overridden { .. } => people::told(state, event)?,
        Event::CouncilConvened { .. }
        | Event::VoteCast { .. }
        | Event::VoteDropped { .. }
        | Event::CouncilClosed { .. }
        | Event::CouncilDecided { .. }
        | Event::CouncilResolved { .. }
        | Event::CouncilAbandoned { .. }
        | Event::SolutionRecalled { .. } => council::told(state, event)?,
        Event::PersonNotified { causes } => {
            let told: Vec<String> = causes.iter().map(ToString::to_string).collect();
            let to_know = causes.iter().all(|cause| cause.matter == Matter::WentAhead);
            let about = if to_know { "for people to know" } else { "needs a person" };
            Told::warn(format!("{about}: {}", told.join("; ")))
        }
        Event::TestQuarantined { test, contradictions, rate } => Told::warn(format!(
            "{test} passed and failed on one commit, {contradictions} times ({rate}): its failures blame nobody"
        )),
        Event::TestReleased { test, passes } => {
            Told::info(format!("{test} passed {passes} times in a row and counts again"))
        }
        Event::ChecksFinished { .. }
        | Event::PhaseAccepted { .. }
        | Event::CandidateBuilt { .. }
        | Event::CandidateRejected { .. }
        | Event::CandidatePassed { .. }
        | Event::TaskMerged { .. }
        | Event::BranchMoved { .. } => return merge_line(state, event),
        Event::LaneFormed { .. }
        | Event::LaneBuilt { .. }
        | Event::LaneTested { .. }
        | Event::LanePassed { .. }
        | Event::LaneLanded { .. }
        | Event::ChangeConflicted { .. }
        | Event::ChangeRebased { .. }
        | Event::TargetMoved { .. }
        | Event::BaselineMeasured { .. }
        | Event::RollbackStarted { .. }
        | Event::RevertBuilt { .. }
        | Event::RollbackFailed { .. }
        | Event::TaskRolledBack { .. } => merging::told(state, event)?,
    };
    Some(told.line())
}

/// The arms of `line` about missions and their plans; it names each of them, so none is forgotten.
fn mission_line(state: &State, event: &Event) -> Option<Line> {
    let told = match event {
        Event::MissionOpened { mission, goal, target, policy, by, .. } => {
            let walls = match policy.sandbox {
                Sandbox::Required => "",
                Sandbox::Off => ", WITHOUT A SANDBOX",
            };
            Told::info(format!("opened {mission} for {target}{walls}: {}", first_line(goal)))
                .of_mission(*mission)
                .by(by)
        }
        Event::PlanAccepted { mission, tasks, gap, .. } => {
            let most = state.mission(*mission).map_or(0, |m| m.policy.plan.gaps.max_gap_retries);
            let missing = gap.map(|n| format!(" for what is missing ({n} of {most})"));
            let tasks = count(tasks.len(), "task");
            Told::info(format!("accepted a plan of {tasks}{}", missing.unwrap_or_default()))
                .of_mission(*mission)
        }
        Event::FailuresWarned { mission, failed, finished } => {
            let verdict = Verdict::Warn { failed: *failed, finished: *finished };
            let text = format!("{verdict}; if many more do, the mission pauses");
            Told::warn(text).of_mission(*mission)
        }
        Event::PlanWarned { mission, warnings } => {
            let all: Vec<String> = warnings.iter().map(ToString::to_string).collect();
            Told::warn(limits::head(&all.join("; "), SENTENCE_CHARS_MAX).to_owned())
                .of_mission(*mission)
        }
        Event::PlanBatched { mission, batches } => {
            let all: Vec<String> = batches.iter().map(ToString::to_string).collect();
            Told::info(limits::head(&all.join("; "), SENTENCE_CHARS_MAX).to_owned())
                .of_mission(*mission)
        }
        Event::MissionEstimated { mission, estimate } => {
            let (mean, p95) = (estimate.mean, estimate.p95);
            Told::info(format!("will cost about {mean}; with 95 % certainty no more than {p95}"))
                .of_mission(*mission)
        }
        Event::MissionPaused { mission, reason, by } => {
            Told::warn(format!("paused {mission}: {reason}")).of_mission(*mission).by(by)
        }
        Event::MissionResumed { mission, by } => {
            Told::info(format!("resumed {mission}")).of_mission(*mission).by(by)
        }
        Event::MissionCancelled { mission, reason, by, .. } => {
            Told::warn(format!("cancelled {mission}: {reason}")).of_mission(*mission).by(by)
        }
        _ => return None,
    };
    Some(told.line())
}

/// The arms of `line` about deliveries; it names each of them, so none is forgotten.
fn delivery_line(state: &State, event: &Event) -> Option<Line> {
    let told = match event {
        Event::BranchPrepared { mission, tip, .. } => {
            Told::info(format!("prepared the branch at {}", tip.short())).of_mission(*mission)
        }
        Event::DeliveryProposed { mission, commit } => Told::warn(format!(
            "everything is merged: {} waits for approval (kapelle approve {mission})",
            commit.short()
        ))
        .of_mission(*mission),
        Event::DeliveryApproved { mission, commit, by } => {
            Told::info(format!("approved {}", commit.short())).of_mission(*mission).by(by)
        }
        Event::DeliveryRefused { mission, reason, .. } => {
            Told::error(format!("could not deliver: {reason}")).of_mission(*mission)
        }
        Event::MissionDelivered { mission, commit, .. } => {
            let target = state.mission(*mission).map_or("", |m| m.target.as_str());
            Told::info(format!("delivered {} to {target}", commit.short())).of_mission(*mission)
        }
        _ => return None,
    };
    Some(told.line())
}

/// The arms of `line` about the team; it names each of them, so none is forgotten.
fn team_line(state: &State, event: &Event) -> Option<Line> {
    let told = match event {
        Event::TeamChanged { seats, workers_max, by } => {
            let seats: Vec<String> = seats.iter().map(|(role, n)| format!("{n} {role}")).collect();
            let text = format!("team: {}; at most {workers_max} at work", seats.join(", "));
            by.iter().fold(Told::info(text), Told::by)
        }
        Event::AgentAdded { agent, reason, by } => {
            Told::info(format!("Scaling up - spawning {agent} (reason: {reason})")).by(by)
        }
        Event::AgentRetired { agent, reason, by } => {
            let busy = state.agents().get(*agent).is_some_and(|known| known.draining);
            let then = if busy { ", after its task" } else { "" };
            Told::info(format!("Scaling down - retiring {agent}{then} (reason: {reason})")).by(by)
        }
        Event::ScaleRefused { refusal, repeated: false, .. } => {
            Told::warn(format!("Scale-up blocked (reason: {refusal})"))
        }
        Event::QueueBackedUp { role, depth } => Told::warn(format!(
            "queue backup: {depth} tasks wait for a {role}, and no more may be added"
        )),
        _ => return None,
    };
    Some(told.line())
}

/// The arms of `line` about agents at work; it names each of them, so none is forgotten.
fn work_line(state: &State, event: &Event) -> Option<Line> {
    let (task, told) = match event {
        Event::FilesLocked { lock } => {
            let text =
                format!("locked {}", limits::head(&lock.paths.join(", "), SENTENCE_CHARS_MAX));
            return Some(Told::info(text).of_task(state, lock.task).line());
        }
        Event::LocksExpired { task } => (task, Told::warn("its file locks expired".to_owned())),
        Event::PrioritySet { task, priority, by } => {
            (task, Told::info(format!("gave it the priority {}", priority.name())).by(by))
        }
        Event::LeaseGranted { task, agent, phase, route, .. } => {
            let title = state.task(*task).map_or("", |t| t.plan.title.as_str());
            let text = match route {
                Some(route) => format!("Executing {title} ({phase}) with {route}"),
                None => format!("Executing {title} ({phase})"),
            };
            (task, Told::info(text).by(&Actor(agent.to_string())))
        }
        // The words are those of WRK-08.
        Event::AttemptIdle { task, agent, silent_ms, .. } => {
            let text = format!("WARNING: {agent} idle for {}s", silent_ms / SECOND_MS);
            (task, Told::warn(text))
        }
        Event::AttemptHeard { task, agent, .. } => {
            (task, Told::info(format!("{agent} prints again")))
        }
        Event::CostCharged { task, usd, .. } => (task, Told::info(format!("spent {usd}"))),
        Event::SubAgentOpened { task, sub_agent, usd, .. } => {
            (task, Told::info(format!("started the sub-agent {sub_agent} with up to {usd}")))
        }
        Event::SubAgentClosed { task, sub_agent, spent, .. } => {
            (task, Told::info(format!("the sub-agent {sub_agent} ended and spent {spent}")))
        }
        Event::ReservationReleased { task, usd, .. } => {
            (task, Told::warn(format!("no bill came: {usd} that were reserved are free again")))
        }
        Event::AttemptFinished { task, change, touched, .. } => {
            let files = count(touched.len(), "file");
            let text = format!("finished with {} ({files})", change.short());
            (task, Told::info(text))
        }
        Event::AttemptFailed { task, failure, .. } => {
            let text =
                format!("attempt failed ({}): {}", failure.kind, last_line(&failure.message));
            (task, Told::error(text))
        }
        Event::AttemptInterrupted { task, cause, .. } => {
            let why = match cause {
                Interruption::HostRestarted => "Kapelle was restarted",
                Interruption::Stopped => "Kapelle was stopped",
                Interruption::LeaseExpired => "its lease expired",
                Interruption::MissionPaused => "the mission was paused",
                Interruption::ProviderParked => "its provider has a rate limit",
                Interruption::GaveWay { .. } => "a more urgent task needed its seat",
                Interruption::Overridden => "a person ordered something else",
                Interruption::WaveFell { .. } => "a task of its wave gave up",
                Interruption::NeedTakenBack { .. } => "what it was built on is taken back",
            };
            (task, Told::warn(format!("attempt interrupted: {why}")))
        }
        Event::CheckpointRaised { task, question, .. } => {
            (task, Told::warn(format!("asks: {}", first_line(&question.message))))
        }
        Event::CheckpointAnswered { task, input, by, .. } => {
            (task, Told::info(format!("answered: {}", first_line(input))).by(by))
        }
        Event::OperationCompleted { task, index, .. } => {
            let total = state.task(*task).map_or(0, |t| t.plan.file_operation_count);
            (task, Told::info(format!("operation {} of {total} is done", index + 1)))
        }
        Event::ChecklistMade { task, steps, .. } => {
            (task, Told::info(format!("has {}", count(steps.len(), "step"))))
        }
        Event::StepCompleted { task, step, progress, by, .. } => {
            let list = state.task(*task).and_then(|t| t.checklist.as_ref());
            let text = list.and_then(|list| list.steps().get(*step as usize));
            let text = text.map_or("", |step| step.text.as_str());
            (task, Told::info(format!("{progress}: {}", first_line(text))).by(by))
        }
        Event::TaskReported { task, message, .. } => {
            (task, Told::info(format!("says: {}", first_line(message))))
        }
        Event::ChangeRejected { task, failure } => {
            (task, Told::error(format!("rejected: {}", gist(&failure.message))))
        }
        Event::RetryScheduled { task, from, .. } => {
            let from = match from {
                Restart::Phase => "this phase",
                Restart::Flow => "its first phase, on the branch as it is now",
            };
            (task, Told::warn(format!("will try again from {from}")))
        }
        _ => return None,
    };
    Some(told.of_task(state, *task).line())
}

/// The arms of `line` about failures; it names each of them, so none is forgotten.
fn failure_line(state: &State, event: &Event) -> Option<Line> {
    let (task, told) = match event {
        // A retry and a dead letter have a line of their own.
        Event::TroubleMet { next: Next::Retry { .. } | Next::AskHuman { .. }, .. } => return None,
        Event::TroubleMet { task, next, .. } => {
            (task, Told::warn(format!("escalates to {}", next.tier())))
        }
        Event::AttemptAbandoned { task, failure, .. } => {
            let text = format!("the host could not perform it: {}", last_line(&failure.message));
            (task, Told::error(text))
        }
        Event::TaskDeadLettered { task, letter } => {
            let told = match letter.as_ref().map(|letter| &letter.because) {
                Some(no @ HumanBecause::TurnedDown { .. }) => Told::warn(no.to_string()),
                Some(because) => Told::error(format!("gave up: {because}")),
                None => Told::error("gave up: no retries left".to_owned()),
            };
            (task, told)
        }
        Event::TaskBlocked { task, on } => (task, Told::error(why::blocked(state, *task, *on))),
        Event::TaskUnblocked { task } => {
            (task, Told::info("nothing blocks it any more".to_owned()))
        }
        Event::TaskRequeued { task, reason, by } => {
            (task, Told::info(format!("put back to work: {}", first_line(reason))).by(by))
        }
        _ => return None,
    };
    Some(told.of_task(state, *task).line())
}

/// The arms of `line` about money and providers; it names each of them, so none is forgotten.
fn money_line(event: &Event) -> Option<Line> {
    let told = match event {
        Event::CapRaised { mission, limit, usd, reason, by } => {
            Told::info(format!("raised {limit} to {usd}: {}", first_line(reason)))
                .of_mission(*mission)
                .by(by)
        }
        Event::SpendingWarned { mission, warning } => {
            Told::warn(warning.to_string()).of_mission(*mission)
        }
        Event::BurnAlerted { alert } => Told::warn(alert.to_string()),
        Event::SpendingPaused { alarm, .. } => {
            Told::error(format!("PAUSE_REQUESTED: {alarm}; nothing new starts"))
        }
        Event::SpendingStopped => {
            Told::error("stopped all spending until a person resumes it".to_owned())
        }
        Event::ProviderParked { provider, until } => {
            Told::warn(format!("{provider} has a rate limit until {}", utc(*until)))
        }
        Event::ProviderBack { provider, by } => {
            Told::info(format!("{provider} takes work again")).by(by)
        }
        Event::BreakerMoved { key, to: to @ Breaker::Open { .. }, by } => {
            Told::error(format!("{key} {to}")).by(by)
        }
        Event::BreakerMoved { key, to, by } => Told::info(format!("{key} {to}")).by(by),
        Event::SpendingResumed { by } => Told::info("resumed spending".to_owned()).by(by),
        _ => return None,
    };
    Some(told.line())
}

/// The arms of `line` about checks and merging; it names each of them, so none is forgotten.
fn merge_line(state: &State, event: &Event) -> Option<Line> {
    let (task, told) = match event {
        Event::ChecksFinished { task, commit, results, .. } => {
            let passed = results.iter().filter(|r| r.passed).count();
            let text = format!("{passed} of {} checks passed on {}", results.len(), commit.short());
            let flaky = merging::flaky(&state.flaky_in(*task, results));
            (task, Told::info(text + &merging::failed_before(results) + &flaky))
        }
        Event::PhaseAccepted { task, phase, .. } => {
            (task, Told::info(format!("accepted the phase {phase}")))
        }
        Event::CandidateBuilt { task, candidate, .. } => {
            (task, Told::info(format!("built the candidate {}", candidate.short())))
        }
        Event::CandidateRejected { task, failure, .. } => {
            (task, Told::error(format!("not merged: {}", last_line(&failure.message))))
        }
        Event::CandidatePassed { task, candidate } => {
            (task, Told::info(format!("the candidate {} passed", candidate.short())))
        }
        Event::TaskMerged { task, commit, .. } => {
            (task, Told::info(format!("merged as {}", commit.short())))
        }
        Event::BranchMoved { task, actual, .. } => {
            let text = format!("the branch moved to {}: building anew", actual.short());
            (task, Told::warn(text))
        }
        _ => return None,
    };
    Some(told.of_task(state, *task).line())
}

fn chore_line(state: &State, mission: MissionId, chore: Chore) -> Option<Line> {
    let (task, text) = match chore {
        Chore::Gate(task) => (task, "checking the change"),
        Chore::CandidateChecks(task) => (task, "checking the candidate"),
        Chore::Branch(_)
        | Chore::Candidate(_)
        | Chore::Advance(_)
        | Chore::LaneBuild(_)
        | Chore::LaneLand(_) => return None,
        Chore::Rebase(task) => (task, "rebasing the change"),
        Chore::Revert(task) => (task, "reversing what it landed"),
        Chore::LaneTest(lane) => {
            let text = format!("checking the candidate of lane {lane}");
            return Some(Told::info(text).of_mission(mission).line());
        }
        Chore::Baseline(_) => {
            let text = "checking the branch itself, before anybody is blamed";
            return Some(Told::info(text.to_owned()).of_mission(mission).line());
        }
        Chore::Delivery(_) => {
            return Some(Told::info("delivering".to_owned()).of_mission(mission).line());
        }
    };
    Some(Told::info(text.to_owned()).of_task(state, task).line())
}

struct Told {
    line: Line,
}

impl Told {
    fn new(level: Level, text: String) -> Told {
        let actor = Actor::kapelle().0;
        Told { line: Line { actor, text, level, mission: None, task: None } }
    }

    fn info(text: String) -> Told {
        Told::new(Level::Info, text)
    }

    fn warn(text: String) -> Told {
        Told::new(Level::Warn, text)
    }

    fn error(text: String) -> Told {
        Told::new(Level::Error, text)
    }

    fn by(mut self, actor: &Actor) -> Told {
        self.line.actor.clone_from(&actor.0);
        self
    }

    fn of_mission(mut self, mission: MissionId) -> Told {
        self.line.mission = Some(mission);
        self
    }

    fn of_task(mut self, state: &State, task: TaskId) -> Told {
        self.line.task = Some(task);
        self.line.mission = state.task(task).map(|t| t.mission);
        self
    }

    fn line(self) -> Line {
        self.line
    }
}

/// `1 task`, `2 tasks`.
#[must_use]
pub fn count(number: impl TryInto<u64>, what: &str) -> String {
    match number.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {what}"),
        many => format!("{many} {what}s"),
    }
}

const SENTENCE_CHARS_MAX: usize = 300;

pub(crate) fn first_line(text: &str) -> &str {
    limits::head(text.trim().lines().next().unwrap_or(""), SENTENCE_CHARS_MAX)
}

/// What it is about, and how it ended.
fn gist(text: &str) -> String {
    match (first_line(text), last_line(text)) {
        (first, last) if first == last => first.to_owned(),
        (first, last) => format!("{first} {last}"),
    }
}

/// The end of an output is where the error is.
fn last_line(text: &str) -> &str {
    limits::head(text.trim().lines().last().unwrap_or(""), SENTENCE_CHARS_MAX)
}
