//! How things stand: missions, their tasks, and what waits for what.

use kapelle_core::Role;
use kapelle_core::failure::FailureKind;
use kapelle_core::flow::Phase;
use kapelle_core::mission::MissionStatus;
use kapelle_core::plan::Priority;
use kapelle_core::status::Status;

use super::{Table, int, one_of, table, text};

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
pub(crate) fn priority(priority: Priority) -> &'static str {
    match priority {
        Priority::Low => "LOW",
        Priority::Medium => "MEDIUM",
        Priority::High => "HIGH",
        Priority::Critical => "CRITICAL",
    }
}

pub(super) fn phases() -> Vec<&'static str> {
    PHASES.iter().map(|phase| phase.name()).collect()
}

pub(super) fn failures() -> Vec<&'static str> {
    FAILURES.iter().map(|kind| kind.name()).collect()
}

pub(super) fn missions() -> Table {
    let statuses = MISSION_STATUSES.iter().map(|status| status.name());
    table(
        "missions",
        "A goal on this repository, from request to delivery.",
        1,
        vec![
            text("id", "as people type it: m1"),
            text("goal", "what was asked for"),
            one_of("status", statuses, "where it stands"),
            text("target", "the branch that it is delivered to"),
            text("branch", "the branch that its tasks are merged to"),
            text("base_commit", "where the target was when it was opened"),
            text("tip_commit", "the branch's last commit").or_null(),
            int("tasks_total", ""),
            int("tasks_completed", ""),
            int("tasks_blocked", ""),
            int("tasks_asking", "wait for a person's answer"),
            int("tasks_dead", "have no retries left"),
            int("cost_usd_micros", "what it has cost"),
            int("reserved_usd_micros", "set aside for attempts that run"),
            int("budget_usd_micros", "what it may cost"),
            text("paused_because", "").or_null(),
            text("refused_because", "why the target did not take the last delivery").or_null(),
            text("cancelled_because", "").or_null(),
            text("opened_by", ""),
            int("opened_at", ""),
            int("ended_at", "").or_null(),
        ],
    )
}

pub(super) fn tasks() -> Table {
    let columns = vec![
        int("id", ""),
        text("mission_id", "").refers_to("missions").fixed(),
        text("name", "as the plan has it: 3-1").fixed(),
        text("title", ""),
        one_of("status", Status::ALL.map(Status::name), "see task-states.md"),
        one_of("priority", PRIORITIES.iter().copied().map(priority), ""),
        int("score", "who is first when several are ready: the highest, if nobody has its files"),
        one_of("phase", phases(), "the phase that it is in or comes to").or_null(),
        one_of("role", Role::ALL.map(Role::name), "who does that phase").or_null(),
        int("ready_at", "since when it waits for an agent, if it does").or_null(),
        int("waits_for", "dependencies that are not merged yet"),
        int("blocked_on", "the task that will never come").or_null().refers_to("tasks"),
        int("attempts", ""),
        int("retries", "failures that counted"),
        int("retry_at", "").or_null(),
        one_of("failure_kind", failures(), "of the last failure").or_null(),
        text("failure_message", "").or_null(),
        text("accepted_commit", "what the last accepted phase left").or_null(),
        text("merged_commit", "").or_null(),
        int("cost_usd_micros", ""),
        int("started_at", "").or_null(),
        int("ended_at", "").or_null(),
    ];
    table("tasks", "One piece of a mission, from plan to merge.", 1, columns)
        .unique(&["mission_id", "name"])
        .indexed(&[("status", "")])
}

pub(super) fn task_dependencies() -> Table {
    table(
        "task_dependencies",
        "Which task has to be merged before which.",
        2,
        vec![int("task_id", "").refers_to("tasks"), int("depends_on", "").refers_to("tasks")],
    )
    .indexed(&[("depends_on", "")])
}
