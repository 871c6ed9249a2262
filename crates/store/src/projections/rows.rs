//! Rows that show how things stand: missions, tasks and the team, as the state has them.

use kapelle_core::mission::{Mission, MissionStage};
use kapelle_core::task::{Stage, Task};
use kapelle_core::{AgentId, MissionId, State, Timestamp};
use rusqlite::{Connection, named_params, params};

use super::tables;
use crate::error::Error;
use crate::sqlite::clamped;

pub(super) fn write_mission(conn: &Connection, mission: &Mission) -> Result<(), Error> {
    let mut statement = conn.prepare_cached(
        "INSERT INTO missions VALUES (:id, :goal, :status, :target, :branch, :base, :tip, :total,
            :completed, :blocked, :asking, :dead, :cost, :reserved, :budget, :paused, :refused,
            :cancelled, :opened_by, :opened_at, :ended_at)
        ON CONFLICT (id) DO UPDATE SET status = :status, tip_commit = :tip, tasks_total = :total,
            tasks_completed = :completed, tasks_blocked = :blocked, tasks_asking = :asking,
            tasks_dead = :dead, cost_usd_micros = :cost, reserved_usd_micros = :reserved,
            paused_because = :paused, refused_because = :refused, cancelled_because = :cancelled,
            ended_at = :ended_at",
    )?;
    let cancelled = match &mission.stage {
        MissionStage::Cancelled { reason } => Some(reason),
        _ => None,
    };
    statement.execute(named_params! {
        ":id": mission.id.to_string(),
        ":goal": mission.goal,
        ":status": mission.status().name(),
        ":target": mission.target,
        ":branch": mission.branch,
        ":base": mission.base.as_str(),
        ":tip": mission.tip.as_ref().map(|commit| commit.as_str()),
        ":total": mission.total(),
        ":completed": mission.counts.completed,
        ":blocked": mission.counts.blocked,
        ":asking": mission.counts.asking,
        ":dead": mission.counts.dead,
        ":cost": clamped(mission.spent.as_micros()),
        ":reserved": clamped(mission.reserved.as_micros()),
        ":budget": clamped(mission.policy.budget.mission_usd_max.as_micros()),
        ":paused": mission.paused.as_ref().map(ToString::to_string),
        ":refused": mission.refused,
        ":cancelled": cancelled,
        ":opened_by": mission.opened_by.0,
        ":opened_at": clamped(mission.opened_at.0),
        ":ended_at": mission.ended_at.map(time),
    })?;
    Ok(())
}

pub(super) fn write_task(
    conn: &Connection,
    state: &State,
    task: &Task,
    mission: &Mission,
) -> Result<(), Error> {
    let mut statement = conn.prepare_cached(
        "INSERT INTO tasks VALUES (:id, :mission, :name, :title, :status, :priority, :score,
            :phase, :waits_for, :blocked_on, :attempts, :retries, :retry_at, :failure_kind,
            :failure_message, :accepted, :merged, :cost, :started_at, :ended_at)
        ON CONFLICT (id) DO UPDATE SET status = :status, priority = :priority, score = :score, phase = :phase,
            waits_for = :waits_for, blocked_on = :blocked_on, attempts = :attempts,
            retries = :retries, retry_at = :retry_at, failure_kind = :failure_kind,
            failure_message = :failure_message, accepted_commit = :accepted,
            merged_commit = :merged, cost_usd_micros = :cost, started_at = :started_at,
            ended_at = :ended_at",
    )?;
    let (blocked_on, retry_at) = match &task.stage {
        Stage::Blocked { on } => (Some(on.0), None),
        Stage::Backoff { until } => (None, Some(time(*until))),
        _ => (None, None),
    };
    let failure = task.last_failure.as_ref();
    statement.execute(named_params! {
        ":id": task.id.0,
        ":mission": task.mission.to_string(),
        ":name": task.name(),
        ":title": task.plan.title,
        ":status": task.status(mission).name(),
        ":priority": tables::priority(task.priority),
        ":score": state.score(task).as_tenths() / 10,
        ":phase": task.phase(&mission.policy).map(|phase| phase.name()),
        ":waits_for": task.waits_for,
        ":blocked_on": blocked_on,
        ":attempts": task.attempts,
        ":retries": task.retries,
        ":retry_at": retry_at,
        ":failure_kind": failure.map(|failure| failure.kind.name()),
        ":failure_message": failure.map(|failure| failure.message.as_str()),
        ":accepted": task.accepted.as_ref().map(|commit| commit.as_str()),
        ":merged": task.merged.as_ref().map(|commit| commit.as_str()),
        ":cost": clamped(task.spent.as_micros()),
        ":started_at": task.started_at.map(time),
        ":ended_at": task.ended_at.map(time),
    })?;
    Ok(())
}

/// Once, when the plan is there: which task a name of the plan means is the fold's to say.
pub(super) fn write_dependencies(
    conn: &Connection,
    state: &State,
    mission: MissionId,
) -> Result<(), Error> {
    let mut statement = conn
        .prepare_cached("INSERT INTO task_dependencies VALUES (?1, ?2) ON CONFLICT DO NOTHING")?;
    for task in state.mission(mission).into_iter().flat_map(|mission| state.tasks_of(mission)) {
        for needed in &task.dependencies {
            statement.execute(params![task.id.0, needed.0])?;
        }
    }
    Ok(())
}

/// Everybody at once: a team is small, and a seat that is gone has no row in the state.
pub(super) fn write_team(conn: &Connection, state: &State) -> Result<(), Error> {
    conn.prepare_cached(
        "UPDATE agents SET status = 'retired', fence = NULL, task_id = NULL
        WHERE status <> 'retired'",
    )?
    .execute([])?;
    let mut statement = conn.prepare_cached(
        "UPDATE agents SET status = ?2, fence = ?3, task_id = ?4 WHERE name = ?1",
    )?;
    for (agent, known) in state.agents().team() {
        add_agent(conn, agent)?;
        let status = if known.fence().is_some() { "busy" } else { "idle" };
        let task = known.current_task().map(|task| task.0);
        let fence = known.fence().map(|fence| clamped(fence.0));
        statement.execute(params![agent.to_string(), status, fence, task])?;
    }
    Ok(())
}

/// An agent that has a row already keeps it, with what it has cost.
pub(super) fn add_agent(conn: &Connection, agent: AgentId) -> Result<(), Error> {
    conn.prepare_cached(
        "INSERT INTO agents (name, role, seat, status) VALUES (?1, ?2, ?3, 'idle')
        ON CONFLICT (name) DO NOTHING",
    )?
    .execute(params![agent.to_string(), agent.role.name(), agent.seat])?;
    Ok(())
}

pub(super) fn time(at: Timestamp) -> i64 {
    clamped(at.0)
}
