//! Rows that show how things stand: missions and tasks, as the state has them.

use kapelle_core::mission::{Mission, MissionStage};
use kapelle_core::task::{Stage, Task};
use kapelle_core::{Commit, MissionId, State};

use super::Changes;
use crate::tables::{Of, priority};
use crate::value::Value;

pub(super) fn mission(state: &State, mission: &Mission, changes: &mut Changes) {
    let purse = state.purse_of(mission.id);
    let cancelled = match &mission.stage {
        MissionStage::Cancelled { reason } => Some(reason),
        _ => None,
    };
    let row = [
        mission.id.to_string().into(),
        Value::from(&mission.goal),
        Value::name(mission.status().name()),
        Value::from(&mission.target),
        Value::from(&mission.branch),
        mission.base.as_str().into(),
        mission.tip.as_ref().map(Commit::as_str).into(),
        mission.total().into(),
        mission.counts.completed.into(),
        mission.counts.blocked.into(),
        mission.counts.asking.into(),
        mission.counts.dead.into(),
        purse.spent.as_micros().into(),
        purse.reserved.as_micros().into(),
        mission.policy.budget.mission_usd_max.as_micros().into(),
        mission.paused.as_ref().map(ToString::to_string).into(),
        mission.refused.as_ref().into(),
        cancelled.into(),
        Value::from(&mission.opened_by.0),
        mission.opened_at.into(),
        mission.ended_at.into(),
    ];
    changes.put(Of::Missions, row);
}

pub(super) fn task(state: &State, task: &Task, mission: &Mission, changes: &mut Changes) {
    let (blocked_on, retry_at) = match &task.stage {
        Stage::Blocked { on } => (Some(on.0), None),
        Stage::Backoff { until } => (None, Some(*until)),
        _ => (None, None),
    };
    let failure = task.last_failure.as_ref();
    let phase = task.phase(&mission.policy);
    let row = [
        task.id.0.into(),
        task.mission.to_string().into(),
        task.name().into(),
        Value::from(&task.plan.title),
        Value::name(task.status(mission).name()),
        Value::name(priority(task.priority)),
        // Without what others have locked: they change that, and this row would not follow.
        (state.urgency(task).score.as_tenths() / 10).into(),
        phase.map(|phase| Value::name(phase.name())).into(),
        phase.map(|phase| Value::name(phase.role().name())).into(),
        state.waits_since(task.id).into(),
        task.waits_for.into(),
        blocked_on.into(),
        task.attempts.into(),
        task.retries.into(),
        retry_at.into(),
        failure.map(|failure| Value::name(failure.kind.name())).into(),
        failure.map(|failure| &failure.message).into(),
        task.accepted.as_ref().map(Commit::as_str).into(),
        task.merged.as_ref().map(Commit::as_str).into(),
        task.spent.as_micros().into(),
        task.started_at.into(),
        task.ended_at.into(),
    ];
    changes.put(Of::Tasks, row);
}

/// Once, when the plan is there: which task a name of the plan means is the fold's to say.
pub(super) fn dependencies(state: &State, mission: MissionId, changes: &mut Changes) {
    for task in state.mission(mission).into_iter().flat_map(|mission| state.tasks_of(mission)) {
        for needed in &task.dependencies {
            changes.put(Of::TaskDependencies, [task.id.0.into(), needed.0.into()]);
        }
    }
}
