//! Questions in SQL that the state can answer, too.

use kapelle_core::approval::Subject;
use kapelle_core::breaker::Breaker;
use kapelle_core::council::CouncilId;
use kapelle_core::mission::{Counts, MissionStage};
use kapelle_core::state::Lease;
use kapelle_core::task::{Stage, Task};
use kapelle_core::{Fence, Role, State};

/// How missions and tasks stand, who works, and what is asked.
pub fn sayings(state: &State) -> [(&'static str, Vec<String>); 6] {
    let missions = state.missions().map(|m| {
        let (Counts { completed, dead, .. }, purse) = (m.counts, state.purse_of(m.id));
        let (spent, reserved) = (purse.spent.as_micros(), purse.reserved.as_micros());
        format!("{} {} {completed} {dead} {spent} {reserved}", m.id, m.status())
    });
    let tasks = state.tasks().map(|t| {
        let (status, spent) = (t.status(state.mission(t.mission).unwrap()), t.spent.as_micros());
        format!("{} {} {status} {} {} {spent}", t.id.0, t.name(), t.attempts, t.waits_for)
    });
    let busy = |(fence, lease): (Fence, &Lease)| format!("{} {fence}", lease.agent);
    let open = |task: &&Task| {
        let ended = state.mission(task.mission).unwrap().has_ended();
        !ended && matches!(task.stage, Stage::Asking { .. })
    };
    let asked = |id| state.approvals().is_open(Subject::Delivery(id));
    let proposed = state.missions().filter_map(|mission| match &mission.stage {
        // Whoever rejects it cancels the mission with the next record.
        MissionStage::Proposed { commit } if asked(mission.id) => {
            Some(format!("{} {commit}", mission.id))
        }
        _ => None,
    });
    [
        (
            "SELECT id, status, tasks_completed, tasks_dead, cost_usd_micros, reserved_usd_micros
            FROM missions ORDER BY opened_at",
            missions.collect(),
        ),
        (
            "SELECT id, name, status, attempts, waits_for, cost_usd_micros FROM tasks",
            tasks.collect(),
        ),
        (
            "SELECT agent, fence FROM attempts WHERE status = 'running' ORDER BY fence",
            state.leases().map(busy).collect(),
        ),
        (
            "SELECT name, fence FROM agents WHERE status = 'busy' ORDER BY fence",
            state.leases().map(busy).collect(),
        ),
        (
            "SELECT task_id FROM checkpoints WHERE status = 'open' ORDER BY task_id",
            state.tasks().filter(open).map(|task| task.id.0.to_string()).collect(),
        ),
        (
            "SELECT mission_id, commit_hash FROM approvals
            WHERE status = 'waiting' AND subject = 'delivery'",
            proposed.collect(),
        ),
    ]
}

/// The same for what waits and what stands in the way.
pub fn standings(state: &State) -> [(&'static str, Vec<String>); 7] {
    let waiting = state.approvals().waiting().map(|(gate, missing)| {
        let need = gate.people.max(1);
        format!("{} {} {need} {}", gate.mission, gate.commit, need - missing)
    });
    let councils = state.council();
    let sitting = (1..councils.next_id().0).filter_map(|id| councils.session(CouncilId(id)));
    let sitting = sitting.map(|session| {
        let sealed = session.votes().is_err();
        format!("{} {} {}", session.id.0, session.heard().count(), u8::from(sealed))
    });
    let locks = state.tasks().flat_map(|task| {
        let expires = |path: &str| state.locks().lock(path).unwrap().expires_at.0;
        let held = state.locks().held_by(task.id);
        held.map(move |path| format!("{} {path} {}", task.id.0, expires(path)))
    });
    let open = state.breakers().all().filter_map(|(key, breaker)| match breaker {
        Breaker::Closed { .. } => None,
        Breaker::Open { .. } => Some(format!("{key} open")),
        Breaker::HalfOpen { .. } => Some(format!("{key} half_open")),
    });
    let parked = state.permits().parked_providers();
    let parked = parked.map(|(provider, until)| format!("{} {}", provider.0, until.0));
    let mut queue = Vec::new();
    for role in Role::ALL {
        for id in state.waiting_for(role) {
            let task = state.task(id).unwrap();
            let mission = state.mission(task.mission).unwrap();
            if mission.paused.is_none() {
                queue.push(format!("{} {role} {}", id.0, state.waits_since(id).unwrap().0));
            }
        }
    }
    [
        (
            "SELECT mission_id, commit_hash, people_needed, people_given FROM approvals
            WHERE status = 'waiting' ORDER BY 1, 2, 3, 4",
            sorted(waiting),
        ),
        (
            "SELECT task_id FROM overrides WHERE status = 'waiting' ORDER BY task_id",
            state.overrides().tasks().map(|task| task.0.to_string()).collect(),
        ),
        (
            "SELECT id, (SELECT count(*) FROM council_votes v WHERE v.council_id = c.id),
                status = 'voting' FROM councils c WHERE ended_at IS NULL ORDER BY id",
            sitting.collect(),
        ),
        (
            "SELECT task_id, path, expires_at FROM file_locks WHERE status = 'held'
            ORDER BY task_id, path",
            locks.collect(),
        ),
        ("SELECT name, state FROM breakers WHERE state <> 'closed' ORDER BY name", open.collect()),
        (
            "SELECT provider, until FROM rate_limits WHERE status = 'parked' ORDER BY provider",
            parked.collect(),
        ),
        (
            "SELECT task_id || ' ' || role || ' ' || ready_at AS line FROM queue ORDER BY line",
            sorted(queue.into_iter()),
        ),
    ]
}

fn sorted(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines
}
