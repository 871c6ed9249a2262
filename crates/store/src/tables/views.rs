//! Questions that are asked so often that they have a name.

/// A view: its name, what it is for, and its query.
pub(crate) const VIEWS: [(&str, &str, &str); 3] = [
    (
        "costs_by_mission",
        "What each mission has cost, in dollars.",
        "SELECT id AS mission_id, goal, status, cost_usd_micros / 1e6 AS cost_usd,
            reserved_usd_micros / 1e6 AS reserved_usd, budget_usd_micros / 1e6 AS budget_usd
        FROM missions",
    ),
    (
        "usage_by_model",
        "Tokens of each model, by mission.",
        "SELECT costs.mission_id, model, sum(input_tokens) AS input_tokens,
            sum(output_tokens) AS output_tokens
        FROM model_usage JOIN costs ON costs.seq = model_usage.seq
        GROUP BY costs.mission_id, model",
    ),
    (
        "queue",
        "What waits for an agent, the best first for every role. Missions that are paused are left out. A \
         task that has waited long enough, or whose files are locked, changes places without a record: the \
         engine knows who is really next.",
        "SELECT role, row_number() OVER (PARTITION BY role ORDER BY score DESC, ready_at, id) AS place,
            id AS task_id, mission_id, name, title, priority, score, phase, ready_at
        FROM tasks WHERE ready_at IS NOT NULL AND status <> 'paused'
        ORDER BY role, place",
    ),
];
