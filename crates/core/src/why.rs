//! Why a task is not running or not merged: one sentence, computed from state.

use crate::activity::{count, first_line};
use crate::approval::Subject;
use crate::calendar::utc;
use crate::council::CouncilId;
use crate::escalation::HumanBecause;
use crate::event::Chore;
use crate::ids::TaskId;
use crate::mission::{Mission, MissionStage};
use crate::state::{Held, State};
use crate::task::{Stage, TakenBack, Task};
use crate::time::{SECOND_MS, Timestamp};

/// None for a task that is at work or done, unless its agent has fallen silent.
#[must_use]
pub fn why(state: &State, task: &Task) -> Option<String> {
    let standing = stands(state, task)?;
    let pending = state.overrides().pending(task.id).map(|pending| &pending.order);
    Some(match pending {
        Some(order) => {
            let (by, action) = (&order.by, &order.action);
            format!("{standing}; {by}'s order to {action} waits for a second person")
        }
        None => standing,
    })
}

fn stands(state: &State, task: &Task) -> Option<String> {
    let mission = state.mission(task.mission)?;
    if let (MissionStage::Cancelled { reason }, false) = (&mission.stage, task.stage == Stage::Done)
    {
        return Some(format!("{} was cancelled: {reason}", mission.id));
    }
    let standing = match &task.stage {
        Stage::Done => return None,
        Stage::Working { fence } => {
            let lease = state.lease(*fence)?;
            let since = utc(lease.idle_since?);
            return Some(format!("{} has printed nothing since {since}", lease.agent));
        }
        Stage::Asking { question } => return Some(format!("asks a person: {}", question.message)),
        Stage::Approval { subject } => return gate(state, *subject),
        Stage::Blocked { on } => return Some(blocked(state, task.id, *on)),
        Stage::DeadLetter | Stage::Failed { .. } => return Some(dead_letter(task)),
        Stage::Waiting if state.approvals().is_waiting(Subject::Plan(mission.id)) => {
            gate(state, Subject::Plan(mission.id))?
        }
        Stage::Waiting if mission.tip.is_none() => "waits for the mission's branch".to_owned(),
        Stage::Waiting if waits_for_turn(state, task) => {
            let before = task.before_in_batch.and_then(|id| state.task(id)).map_or("?", Task::name);
            format!("waits for its turn after {before}: they are done in one go")
        }
        Stage::Waiting => {
            let open = task.dependencies.iter().filter_map(|id| state.task(*id));
            let open = open.filter(|dep| dep.stage != Stage::Done);
            let names: Vec<&str> = open.map(Task::name).collect();
            format!("waits for {} to be merged", names.join(", "))
        }
        Stage::Ready => {
            let role = task.phase(&mission.policy).map_or("?", |phase| phase.role().name());
            let refusal =
                task.phase(&mission.policy).and_then(|p| state.scaler().refusal(p.role()));
            let more = refusal.map_or(String::new(), |why| format!("; no more are added: {why}"));
            let held = task.phase(&mission.policy).map(|phase| phase.role());
            let held = held.and_then(|role| state.held_by(task, role));
            let held = held.map(|held| told(state, &held));
            match state.hindrance(task) {
                Some(hindrance) => format!("waits: {hindrance}"),
                None => held.unwrap_or_else(|| format!("waits for a free {role}{more}")),
            }
        }
        Stage::Deliberating { council } | Stage::Review { council } => {
            deliberating(state, *council)
        }
        Stage::Backoff { until } => tried_again(task, *until),
        Stage::Gating { .. } => match state.parked_until(mission, Chore::Gate(task.id)) {
            Some((until, said)) => {
                put_off("its checks could not be run, and are tried again", until, said)
            }
            None => "its checks are running".to_owned(),
        },
        Stage::Queued | Stage::Merging { .. } => merging(state, task, mission),
        Stage::RolledBack => return Some(rolled_back(task)),
    };
    Some(match &mission.paused {
        Some(reason) => format!("{} is paused: {reason}", mission.id),
        None => standing,
    })
}

fn tried_again(task: &Task, until: Timestamp) -> String {
    if let Some(host) = &task.host_failure {
        let because = format!("its host could not run it: {}", first_line(host));
        return put_off("is tried again", until, Some(&because));
    }
    put_off("is tried again", until, task.last_failure.as_ref().map(|f| f.message.as_str()))
}

/// Where it stands on its way to the branch, or that the way is not free for the moment.
fn merging(state: &State, task: &Task, mission: &Mission) -> String {
    let queue = mission.merge_queue();
    let lane = queue.and_then(|queue| queue.lane_of(task.id));
    let of_lane = lane
        .into_iter()
        .flat_map(|lane| [Chore::LaneBuild(lane), Chore::LaneTest(lane), Chore::LaneLand(lane)]);
    let chores = of_lane.chain([Chore::Rebase(task.id), Chore::Baseline(mission.id)]);
    let parked = chores.into_iter().find_map(|chore| state.parked_until(mission, chore));
    if let Some((until, said)) = parked {
        return put_off("could not be merged, and is tried again", until, said);
    }
    let standing = queue.and_then(|queue| queue.standing(task.id));
    standing.map_or("is being merged".to_owned(), |standing| standing.to_string())
}

/// What happens at a moment to come, and why not now, if that is known.
fn put_off(what: &str, until: Timestamp, because: Option<&str>) -> String {
    let at = utc(until);
    match because.map(|because| first_line(because).trim_end_matches(':')) {
        None | Some("") => format!("{what} at {at}"),
        Some(because) => format!("{what} at {at}: {because}"),
    }
}

/// What the end of `on` has to do with a task.
pub(crate) fn blocked(state: &State, task: TaskId, on: TaskId) -> String {
    let Some(need) = state.task(on) else { return "Dependency ? failed".to_owned() };
    let name = need.name();
    let wave = |id: TaskId| state.task(id).and_then(|t| t.plan.wave.as_deref());
    let wave = wave(task).filter(|own| wave(on) == Some(*own));
    match (wave, unwanted(need)) {
        (Some(wave), None) => {
            format!("stands or falls with the wave {wave}, of which {name} gave up")
        }
        (Some(wave), Some(no)) => {
            format!("stands or falls with the wave {wave}, of which {name} {no}")
        }
        (None, Some(no)) if matches!(need.stage, Stage::RolledBack | Stage::DeadLetter) => {
            format!("Dependency {name} {no}; it comes back when a person requeues {name}")
        }
        (None, Some(no)) => format!("Dependency {name} {no}"),
        (None, None) => format!("Dependency {name} failed"),
    }
}

fn rolled_back(task: &Task) -> String {
    let told = task.taken_back.as_ref().map_or(String::new(), |told| {
        let TakenBack { by, reason } = &**told;
        format!(" by {by}: {}", first_line(reason))
    });
    format!("was merged, and taken back again{told}; a person can requeue it")
}

/// What people did with a task that did not fail.
fn unwanted(task: &Task) -> Option<String> {
    if let Some(TakenBack { by, reason }) = task.taken_back.as_deref() {
        let how = match task.stage {
            Stage::RolledBack => "was taken back",
            _ => "is being taken back",
        };
        return Some(format!("{how} by {by}: {}", first_line(reason)));
    }
    match task.hardship.as_ref().and_then(|hardship| hardship.because.as_ref()) {
        Some(HumanBecause::TurnedDown { by, reason }) => {
            Some(format!("was turned down by {by}: {}", first_line(reason)))
        }
        Some(
            HumanBecause::RetriesExhausted { .. }
            | HumanBecause::OutOfOurHands { .. }
            | HumanBecause::CouncilTooSmall { .. }
            | HumanBecause::NoCouncil { .. }
            | HumanBecause::CouncilUndecided { .. }
            | HumanBecause::HostLost { .. },
        )
        | None => None,
    }
}

/// All that it needs is merged; only the batch says that another one is first.
fn waits_for_turn(state: &State, task: &Task) -> bool {
    let merged = |id: &TaskId| state.task(*id).is_some_and(|need| need.stage == Stage::Done);
    let before = task.before_in_batch.and_then(|id| state.task(id));
    before.is_some_and(|t| !t.stage.is_final()) && task.dependencies.iter().all(merged)
}

/// How far its council is: who has been heard, never what they said.
fn deliberating(state: &State, council: CouncilId) -> String {
    let Some(session) = state.council().session(council) else {
        return "waits for its council".to_owned();
    };
    let (until, asked) = (utc(session.convocation.deadline), session.convocation.panel.len());
    match session.judged_by() {
        Some(at) => format!("council: its votes are in, its judge has until {}", utc(at)),
        None => format!("council until {until}: {} of {asked} votes in", session.heard().count()),
    }
}

fn dead_letter(task: &Task) -> String {
    let last = task.last_failure.as_ref().map_or("", |f| first_line(&f.message));
    let times = count(task.failed_times(), "failure");
    let because = task.hardship.as_ref().and_then(|hardship| hardship.because.as_ref());
    match because {
        Some(because @ HumanBecause::HostLost { .. }) => {
            format!("gave up: {because}; a person can requeue it: {last}")
        }
        Some(because @ HumanBecause::TurnedDown { .. }) => {
            format!("{because}; a person can requeue it")
        }
        Some(because) => {
            format!("gave up after {times} ({because}); a person can requeue it: {last}")
        }
        None => format!("gave up after {times}: {last}"),
    }
}

fn told(state: &State, held: &Held) -> String {
    match held {
        Held::Locked { path, holder, ms_max } => {
            let holder = state.task(*holder).map_or("?", |t| t.name());
            let how_long = match ms_max.map(|ms| ms.div_ceil(SECOND_MS)) {
                Some(seconds) => format!("has locked (for another {seconds} s at most)"),
                None => "keeps until it is merged or gives up".to_owned(),
            };
            format!("waits for {path}, which {holder} {how_long}")
        }
        Held::Territory { role } => {
            format!("waits: its files lie outside of the territory of every {role}")
        }
        Held::Starting(launch) => format!("waits: {launch}"),
        Held::Capacity(bound) => format!("waits for its turn: {bound}"),
        Held::Alone { lost } => {
            let times = count(*lost, "time");
            format!("waits until it can work alone: its host was lost {times} in a row")
        }
        Held::Behind { ahead } => {
            format!("waits for its turn: {ahead} tasks before it cannot start")
        }
        Held::Beside { suspect } => {
            let name = state.task(*suspect).map_or("?", |t| t.name());
            format!("waits while {name} works alone: hosts were lost while it worked")
        }
    }
}

fn gate(state: &State, subject: Subject) -> Option<String> {
    let (gate, standing) = state.gate_standing(subject)?;
    let about = gate.assessed.as_ref().map_or(String::new(), |risk| format!(" ({risk})"));
    let commit = gate.commit.short();
    Some(format!("{} at {commit} {standing}{about}", subject.what()))
}
