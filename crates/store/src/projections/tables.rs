//! The form of the tables, with their constraints.
//!
//! Times are milliseconds since the Unix epoch, money is whole millionths of a US dollar. Foreign
//! keys are checked at the end of a transaction, so that a batch may write in any order.

use kapelle_core::Role;
use kapelle_core::failure::FailureKind;
use kapelle_core::flow::Phase;
use kapelle_core::mission::MissionStatus;
use kapelle_core::plan::Priority;
use kapelle_core::status::Status;
use rusqlite::{Connection, OptionalExtension};

use crate::error::Error;

/// Raised with every change to what the tables are or hold; they are then made anew.
const VERSION: i64 = 1;

/// What is dropped before it is made anew: views first, then tables before those they refer to.
const VIEWS: [&str; 2] = ["costs_by_mission", "usage_by_model"];
const TABLES: [&str; 11] = [
    "checks",
    "approvals",
    "checkpoints",
    "model_usage",
    "costs",
    "attempts",
    "agents",
    "task_dependencies",
    "tasks",
    "missions",
    "projection_watermark",
];

/// All variants of an enum of ours; it does not compile when one is missing.
macro_rules! variants {
    ($name:ident: $of:ident = $($variant:ident),+) => {
        const $name: &[$of] = &[$($of::$variant),+];
        const _: fn($of) = |value| match value { $($of::$variant)|+ => {} };
    };
}

variants!(MISSION_STATUSES: MissionStatus = Running, Paused, AwaitingAnswer, AwaitingApproval,
    Delivering, Delivered, Failed, Cancelled);
variants!(PHASES: Phase = Red, Green, Refactor, IntegrationRed, IntegrationGreen, Verify, Complete);
variants!(PRIORITIES: Priority = Low, Medium, High, Critical);
variants!(FAILURES: FailureKind = Network, RateLimited, FileLocked, ValidationFailed, AgentError,
    GitConflict, Timeout, Hang, OutOfMemory, DiskFull, Budget, Auth, DependencyFailed);

/// As plans spell it.
pub(super) fn priority(priority: Priority) -> &'static str {
    match priority {
        Priority::Low => "LOW",
        Priority::Medium => "MEDIUM",
        Priority::High => "HIGH",
        Priority::Critical => "CRITICAL",
    }
}

pub(super) fn are_current(conn: &Connection) -> Result<bool, Error> {
    let exists = "SELECT 1 FROM sqlite_schema WHERE name = ?1";
    let mut exists = conn.prepare(exists)?;
    for name in TABLES.iter().chain(&VIEWS) {
        if !exists.exists([name])? {
            return Ok(false);
        }
    }
    let version = "SELECT version FROM projection_watermark";
    let found: Option<i64> = conn.query_row(version, [], |row| row.get(0)).optional()?;
    Ok(found == Some(VERSION))
}

/// Empty tables, whatever was there before.
pub(super) fn create_anew(conn: &Connection) -> Result<(), Error> {
    for view in VIEWS {
        conn.execute_batch(&format!("DROP VIEW IF EXISTS {view}"))?;
    }
    for table in TABLES {
        conn.execute_batch(&format!("DROP TABLE IF EXISTS {table}"))?;
    }
    conn.execute_batch(&missions_and_tasks())?;
    conn.execute_batch(&work())?;
    conn.execute_batch(PEOPLE)?;
    conn.execute_batch(&format!(
        "CREATE TABLE projection_watermark (
            id       INTEGER PRIMARY KEY CHECK (id = 1),
            seq      INTEGER NOT NULL,
            version  INTEGER NOT NULL
        ) STRICT;
        INSERT INTO projection_watermark (id, seq, version) VALUES (1, 0, {VERSION});"
    ))?;
    Ok(())
}

/// The values that a column may have, for a CHECK.
fn one_of(names: impl IntoIterator<Item = &'static str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("'{name}'")).collect();
    quoted.join(", ")
}

fn missions_and_tasks() -> String {
    let mission_statuses = one_of(MISSION_STATUSES.iter().map(|status| status.name()));
    let statuses = one_of(Status::ALL.map(Status::name));
    let priorities = one_of(PRIORITIES.iter().copied().map(priority));
    let phases = one_of(PHASES.iter().map(|phase| phase.name()));
    let failures = one_of(FAILURES.iter().map(|kind| kind.name()));
    format!(
        "CREATE TABLE missions (
            id                   TEXT PRIMARY KEY,
            goal                 TEXT NOT NULL,
            status               TEXT NOT NULL CHECK (status IN ({mission_statuses})),
            target               TEXT NOT NULL,
            branch               TEXT NOT NULL,
            base_commit          TEXT NOT NULL,
            tip_commit           TEXT,
            tasks_total          INTEGER NOT NULL,
            tasks_completed      INTEGER NOT NULL,
            tasks_blocked        INTEGER NOT NULL,
            tasks_asking         INTEGER NOT NULL,
            tasks_dead           INTEGER NOT NULL,
            cost_usd_micros      INTEGER NOT NULL,
            reserved_usd_micros  INTEGER NOT NULL,
            budget_usd_micros    INTEGER NOT NULL,
            paused_because       TEXT,
            refused_because      TEXT,
            cancelled_because    TEXT,
            opened_by            TEXT NOT NULL,
            opened_at            INTEGER NOT NULL,
            ended_at             INTEGER
        ) STRICT;

        CREATE TABLE tasks (
            id                 INTEGER PRIMARY KEY,
            mission_id         TEXT NOT NULL REFERENCES missions DEFERRABLE INITIALLY DEFERRED,
            name               TEXT NOT NULL,
            title              TEXT NOT NULL,
            status             TEXT NOT NULL CHECK (status IN ({statuses})),
            priority           TEXT NOT NULL CHECK (priority IN ({priorities})),
            score              INTEGER NOT NULL,
            phase              TEXT CHECK (phase IN ({phases})),
            waits_for          INTEGER NOT NULL,
            blocked_on         INTEGER REFERENCES tasks DEFERRABLE INITIALLY DEFERRED,
            attempts           INTEGER NOT NULL,
            retries            INTEGER NOT NULL,
            retry_at           INTEGER,
            failure_kind       TEXT CHECK (failure_kind IN ({failures})),
            failure_message    TEXT,
            accepted_commit    TEXT,
            merged_commit      TEXT,
            cost_usd_micros    INTEGER NOT NULL,
            started_at         INTEGER,
            ended_at           INTEGER,
            UNIQUE (mission_id, name)
        ) STRICT;
        CREATE INDEX tasks_by_status ON tasks (status);

        CREATE TABLE task_dependencies (
            task_id     INTEGER NOT NULL REFERENCES tasks DEFERRABLE INITIALLY DEFERRED,
            depends_on  INTEGER NOT NULL REFERENCES tasks DEFERRABLE INITIALLY DEFERRED,
            PRIMARY KEY (task_id, depends_on)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX task_dependents ON task_dependencies (depends_on);"
    )
}

fn work() -> String {
    let roles = one_of(Role::ALL.map(Role::name));
    let phases = one_of(PHASES.iter().map(|phase| phase.name()));
    let failures = one_of(FAILURES.iter().map(|kind| kind.name()));
    format!(
        "CREATE TABLE agents (
            name             TEXT PRIMARY KEY,
            role             TEXT NOT NULL CHECK (role IN ({roles})),
            seat             INTEGER NOT NULL,
            status           TEXT NOT NULL CHECK (status IN ('idle', 'busy', 'retired')),
            fence            INTEGER REFERENCES attempts DEFERRABLE INITIALLY DEFERRED,
            task_id          INTEGER REFERENCES tasks DEFERRABLE INITIALLY DEFERRED,
            cost_usd_micros  INTEGER NOT NULL DEFAULT 0
        ) STRICT;

        CREATE TABLE attempts (
            fence                INTEGER PRIMARY KEY,
            mission_id           TEXT NOT NULL REFERENCES missions DEFERRABLE INITIALLY DEFERRED,
            task_id              INTEGER NOT NULL REFERENCES tasks DEFERRABLE INITIALLY DEFERRED,
            agent                TEXT NOT NULL REFERENCES agents DEFERRABLE INITIALLY DEFERRED,
            phase                TEXT NOT NULL CHECK (phase IN ({phases})),
            status               TEXT NOT NULL CHECK (status IN
                ('running', 'finished', 'asked', 'failed', 'interrupted', 'cancelled')),
            base_commit          TEXT NOT NULL,
            change_commit        TEXT,
            failure_kind         TEXT CHECK (failure_kind IN ({failures})),
            failure_message      TEXT,
            interrupted_because  TEXT CHECK (interrupted_because IN
                ('host_restarted', 'lease_expired', 'mission_paused')),
            reserved_usd_micros  INTEGER NOT NULL,
            cost_usd_micros      INTEGER NOT NULL DEFAULT 0,
            started_at           INTEGER NOT NULL,
            expires_at           INTEGER NOT NULL,
            deadline             INTEGER NOT NULL,
            ended_at             INTEGER
        ) STRICT;
        CREATE INDEX attempts_by_task ON attempts (task_id);
        CREATE INDEX attempts_running ON attempts (mission_id) WHERE status = 'running';

        CREATE TABLE checks (
            seq          INTEGER NOT NULL,
            position     INTEGER NOT NULL,
            mission_id   TEXT NOT NULL REFERENCES missions DEFERRABLE INITIALLY DEFERRED,
            task_id      INTEGER NOT NULL REFERENCES tasks DEFERRABLE INITIALLY DEFERRED,
            kind         TEXT NOT NULL CHECK (kind IN ('gate', 'candidate')),
            commit_hash  TEXT NOT NULL,
            name         TEXT NOT NULL,
            passed       INTEGER NOT NULL CHECK (passed IN (0, 1)),
            output       TEXT NOT NULL,
            duration_ms  INTEGER NOT NULL,
            finished_at  INTEGER NOT NULL,
            PRIMARY KEY (seq, position)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX checks_by_task ON checks (task_id);"
    )
}

const PEOPLE: &str = "
    CREATE TABLE costs (
        seq              INTEGER PRIMARY KEY,
        mission_id       TEXT NOT NULL REFERENCES missions DEFERRABLE INITIALLY DEFERRED,
        task_id          INTEGER NOT NULL REFERENCES tasks DEFERRABLE INITIALLY DEFERRED,
        fence            INTEGER NOT NULL REFERENCES attempts DEFERRABLE INITIALLY DEFERRED,
        agent            TEXT NOT NULL REFERENCES agents DEFERRABLE INITIALLY DEFERRED,
        cost_usd_micros  INTEGER NOT NULL,
        charged_at       INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX costs_of_mission ON costs (mission_id);

    CREATE TABLE model_usage (
        seq            INTEGER NOT NULL REFERENCES costs DEFERRABLE INITIALLY DEFERRED,
        position       INTEGER NOT NULL,
        model          TEXT NOT NULL,
        input_tokens   INTEGER NOT NULL,
        output_tokens  INTEGER NOT NULL,
        PRIMARY KEY (seq, position)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE checkpoints (
        seq          INTEGER PRIMARY KEY,
        mission_id   TEXT NOT NULL REFERENCES missions DEFERRABLE INITIALLY DEFERRED,
        task_id      INTEGER NOT NULL REFERENCES tasks DEFERRABLE INITIALLY DEFERRED,
        fence        INTEGER NOT NULL REFERENCES attempts DEFERRABLE INITIALLY DEFERRED,
        resume_id    TEXT NOT NULL,
        question     TEXT NOT NULL,
        options      TEXT NOT NULL CHECK (json_valid(options)),
        status       TEXT NOT NULL CHECK (status IN ('open', 'answered', 'cancelled')),
        answer       TEXT,
        answered_by  TEXT,
        asked_at     INTEGER NOT NULL,
        ended_at     INTEGER
    ) STRICT;
    CREATE INDEX checkpoints_open ON checkpoints (task_id) WHERE status = 'open';

    CREATE TABLE approvals (
        seq          INTEGER PRIMARY KEY,
        mission_id   TEXT NOT NULL REFERENCES missions DEFERRABLE INITIALLY DEFERRED,
        commit_hash  TEXT NOT NULL,
        status       TEXT NOT NULL CHECK (status IN
            ('pending', 'approved', 'delivered', 'refused', 'cancelled')),
        approved_by  TEXT,
        refused_because TEXT,
        proposed_at  INTEGER NOT NULL,
        approved_at  INTEGER,
        ended_at     INTEGER
    ) STRICT;
    CREATE INDEX approvals_of_mission ON approvals (mission_id);

    CREATE VIEW costs_by_mission AS
        SELECT id AS mission_id, goal, status, cost_usd_micros / 1e6 AS cost_usd,
               reserved_usd_micros / 1e6 AS reserved_usd, budget_usd_micros / 1e6 AS budget_usd
        FROM missions;

    CREATE VIEW usage_by_model AS
        SELECT costs.mission_id, model, sum(input_tokens) AS input_tokens,
               sum(output_tokens) AS output_tokens
        FROM model_usage JOIN costs USING (seq) GROUP BY costs.mission_id, model;
";
