//! From the engine's state to what people see.

use std::collections::BTreeSet;

use kapelle_core::activity;
use kapelle_core::mission::{self, MissionStage, MissionStatus};
use kapelle_core::status::Status;
use kapelle_core::task::{self, Stage};
use kapelle_core::{Event, MissionId, Record, State, TaskId, Usd, why};

use crate::wire::{Activity, Agent, AgentStatus, Cost, Mission, Question, Task, Update};

/// Past this many tasks only those that an event names are sent again; in smaller missions all
/// are, because an event can change the sentence that explains another task.
const SMALL_MISSION_TASKS_MAX: u32 = 100;

#[must_use]
pub fn mission(state: &State, mission: &mission::Mission) -> Mission {
    let status = mission.status();
    let running =
        state.tasks_of(mission).filter(|task| matches!(task.stage, Stage::Working { .. }));
    Mission {
        id: mission.id.to_string(),
        goal: mission.goal.clone(),
        status,
        status_reason: status_reason(mission),
        needs: needs(state, mission),
        flow: mission.policy.flow.iter().map(ToString::to_string).collect(),
        branch: mission.branch.clone(),
        target: mission.target.clone(),
        tip: mission.tip.as_ref().map(ToString::to_string),
        opened_at: mission.opened_at.0,
        ended_at: mission.ended_at.map(|at| at.0),
        tasks_total: mission.total(),
        tasks_completed: mission.counts.completed,
        tasks_failed: mission.counts.dead,
        tasks_running: u32::try_from(running.count()).unwrap_or(u32::MAX),
        cost_usd: state.purse_of(mission.id).spent.as_f64(),
        budget_usd: mission.policy.budget.mission_usd_max.as_f64(),
    }
}

fn status_reason(mission: &mission::Mission) -> Option<String> {
    match (&mission.stage, &mission.paused) {
        (MissionStage::Cancelled { reason }, _) => Some(reason.clone()),
        (_, Some(reason)) => Some(reason.to_string()),
        (MissionStage::Proposed { .. }, None) => mission.refused.clone(),
        _ => None,
    }
}

/// What a person has to do for the mission to go on, as a command line.
#[must_use]
pub fn needs(state: &State, mission: &mission::Mission) -> Option<String> {
    match mission.status() {
        MissionStatus::AwaitingApproval => Some(format!("kapelle approve {}", mission.id)),
        MissionStatus::Paused => Some(format!("kapelle resume {}", mission.id)),
        MissionStatus::AwaitingAnswer => {
            let asking = state.tasks_of(mission).find_map(question);
            asking.map(|question| question.command)
        }
        MissionStatus::Running
        | MissionStatus::Delivering
        | MissionStatus::Delivered
        | MissionStatus::Failed
        | MissionStatus::Cancelled => None,
    }
}

#[must_use]
pub fn task(state: &State, mission: &mission::Mission, task: &task::Task) -> Task {
    let lease = match task.stage {
        Stage::Working { fence } => state.lease(fence),
        _ => None,
    };
    let status = task.status(mission);
    let depends_on = task.dependencies.iter().filter_map(|id| state.task(*id));
    Task {
        id: task.id.0,
        mission: mission.id.to_string(),
        name: task.name().to_owned(),
        title: task.plan.title.clone(),
        status,
        phase: phase(mission, task, status),
        agent: lease.map(|lease| lease.agent.to_string()),
        attempts: task.attempts,
        retries: task.retries,
        depends_on: depends_on.map(|dep| dep.name().to_owned()).collect(),
        why: why(state, task),
        question: question(task),
        started_at: task.started_at.map(|at| at.0),
        ended_at: task.ended_at.map(|at| at.0),
        cost_usd: task.spent.as_f64(),
        commit: task.merged.as_ref().map(ToString::to_string),
    }
}

fn phase(mission: &mission::Mission, task: &task::Task, status: Status) -> Option<String> {
    match status {
        Status::Completed => Some("complete".to_owned()),
        Status::Pending | Status::Blocked if !task.started => None,
        _ => task.phase(&mission.policy).map(|phase| phase.to_string()),
    }
}

fn question(task: &task::Task) -> Option<Question> {
    let Stage::Asking { question } = &task.stage else { return None };
    let example = question.options.first().map_or("ANSWER", String::as_str);
    Some(Question {
        text: question.message.clone(),
        options: question.options.clone(),
        command: format!("kapelle answer {}/{} {}", task.mission, task.name(), quoted(example)),
    })
}

/// As one word of a shell, whatever an agent put into it: a person will paste it.
fn quoted(text: &str) -> String {
    let plain = text.replace(char::is_control, " ");
    format!("'{}'", plain.replace('\'', "'\\''"))
}

#[must_use]
pub fn agents(state: &State) -> Vec<Agent> {
    let team = state.agents().team();
    team.map(|(id, agent)| {
        let lease = agent.fence().and_then(|fence| state.lease(fence));
        let task = lease.and_then(|lease| state.task(lease.task));
        Agent {
            id: id.to_string(),
            role: id.role.to_string(),
            status: if lease.is_some() { AgentStatus::Busy } else { AgentStatus::Idle },
            task: task.map(|task| task.name().to_owned()),
            mission: task.map(|task| task.mission.to_string()),
            since: lease.map(|lease| lease.granted_at.0),
            cost_usd: agent.spent.as_f64(),
        }
    })
    .collect()
}

/// Of the missions that have not ended; of the last one if all have.
#[must_use]
pub fn cost(state: &State) -> Cost {
    let open = state.missions().any(|mission| !mission.has_ended());
    let last = state.missions().next_back().map(|mission| mission.id);
    let counts = |m: &&mission::Mission| if open { !m.has_ended() } else { Some(m.id) == last };
    let sum = |of: &dyn Fn(&mission::Mission) -> Usd| {
        state.missions().filter(counts).map(of).fold(Usd::ZERO, |sum, usd| sum + usd).as_f64()
    };
    Cost {
        spent_usd: sum(&|m| state.purse_of(m.id).spent),
        reserved_usd: sum(&|m| state.purse_of(m.id).reserved),
        cap_usd: sum(&|m| m.policy.budget.mission_usd_max),
    }
}

#[must_use]
pub fn activity(state: &State, record: &Record) -> Option<Activity> {
    let line = activity::line(state, &record.event)?;
    Some(Activity {
        seq: record.seq.0,
        at: record.at.0,
        actor: line.actor,
        text: line.text,
        level: line.level,
        mission: line.mission.map(|id| id.to_string()),
        task: line.task.and_then(|id| state.task(id)).map(|task| task.name().to_owned()),
    })
}

/// What these records changed.
#[must_use]
pub fn update(state: &State, records: &[Record], now: u64) -> Update {
    let mut missions: BTreeSet<MissionId> = BTreeSet::new();
    let mut tasks: BTreeSet<TaskId> = BTreeSet::new();
    for record in records {
        let line = activity::line(state, &record.event);
        let (of_mission, of_task) = line.map_or((None, None), |line| (line.mission, line.task));
        let fence = fence_of(&record.event).and_then(|fence| state.lease(fence));
        missions.extend(of_mission.or(fence.map(|lease| lease.mission)));
        missions.extend(mission_of(&record.event));
        tasks.extend(of_task);
    }
    missions.extend(tasks.iter().filter_map(|id| state.task(*id)).map(|task| task.mission));
    for id in &missions {
        let small = state.mission(*id).filter(|m| m.total() <= SMALL_MISSION_TASKS_MAX);
        tasks.extend(small.into_iter().flat_map(mission::Mission::task_ids));
    }
    let seen_mission = |id: &MissionId| state.mission(*id).map(|m| mission(state, m));
    let seen_task = |id: &TaskId| {
        let found = state.task(*id)?;
        Some(task(state, state.mission(found.mission)?, found))
    };
    Update {
        seq: records.last().map_or(0, |record| record.seq.0),
        now,
        missions: missions.iter().filter_map(seen_mission).collect(),
        tasks: tasks.iter().filter_map(seen_task).collect(),
        agents: agents(state),
        activity: records.iter().filter_map(|record| activity(state, record)).collect(),
        cost: cost(state),
    }
}

fn fence_of(event: &Event) -> Option<kapelle_core::Fence> {
    match event {
        Event::LeaseRenewed { fence, .. } => Some(*fence),
        _ => None,
    }
}

/// The mission of an event that has no line of its own.
fn mission_of(event: &Event) -> Option<MissionId> {
    match event {
        Event::ChoreStarted { mission, .. } | Event::ChoreDue { mission, .. } => Some(*mission),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    /// The option comes from an agent, and the command from us: only one of them may be obeyed.
    #[test]
    fn an_option_is_one_word_of_the_shell() {
        assert_eq!(quoted("csv"), "'csv'");
        assert_eq!(quoted("$(touch x)"), "'$(touch x)'");
        assert_eq!(quoted("it's\n'; rm"), r"'it'\''s '\''; rm'");
    }
}
