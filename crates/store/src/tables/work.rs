//! Who works: agents, their attempts, what they got done, and the checks on what they left.

use kapelle_core::Role;

use super::missions::{failures, phases};
use super::{Kind, Table, column, int, one_of, table, text};

pub(super) fn agents() -> Table {
    let columns = vec![
        text("name", "role and seat: developer-2"),
        one_of("role", Role::ALL.map(Role::name), ""),
        int("seat", ""),
        one_of("status", ["idle", "busy", "retired"], "retired: the seat is gone"),
        int("fence", "of the attempt that it runs").or_null().refers_to("attempts"),
        int("task_id", "that it works on").or_null().refers_to("tasks"),
        int("cost_usd_micros", "all that it has ever cost"),
    ];
    table("agents", "The seats of the team, present and past.", 1, columns)
}

pub(super) fn attempts() -> Table {
    let statuses = ["running", "finished", "asked", "failed", "interrupted", "cancelled"];
    let causes = [
        "host_restarted",
        "lease_expired",
        "mission_paused",
        "provider_parked",
        "overridden",
        "gave_way",
        "wave_fell",
        "stopped",
        "need_taken_back",
    ];
    let columns = vec![
        int("fence", "a number that is never given twice"),
        text("mission_id", "").refers_to("missions").fixed(),
        int("task_id", "").refers_to("tasks").fixed(),
        text("agent", "").refers_to("agents").fixed(),
        one_of("phase", phases(), ""),
        one_of("status", statuses, ""),
        text("base_commit", "what it started from"),
        text("change_commit", "what it left").or_null(),
        one_of("failure_kind", failures(), "").or_null(),
        text("failure_message", "").or_null(),
        one_of("interrupted_because", causes, "").or_null(),
        int("reserved_usd_micros", "its worst case, set aside"),
        int("cost_usd_micros", ""),
        int("started_at", ""),
        int("expires_at", "when its lease ends, unless it is renewed"),
        int("deadline", "when it is ended in any case"),
        int("ended_at", "").or_null(),
    ];
    table("attempts", "One run of one agent on one phase of one task.", 1, columns)
        .indexed(&[("task_id", ""), ("mission_id", "status = 'running'")])
}

pub(super) fn checks() -> Table {
    let columns = vec![
        int("seq", "the record that tells it"),
        int("position", "in that record"),
        text("mission_id", "").refers_to("missions").fixed(),
        int("task_id", "").refers_to("tasks").fixed(),
        one_of("kind", ["gate", "candidate"], ""),
        text("commit_hash", "the exact commit"),
        text("name", ""),
        column("passed", Kind::Flag, ""),
        text("output", "its end, as far as it is kept"),
        int("duration_ms", ""),
        int("finished_at", ""),
    ];
    table("checks", "What a check said about a commit.", 2, columns).indexed(&[("task_id", "")])
}

pub(super) fn file_operations() -> Table {
    let columns = vec![
        int("fence", "of the attempt that did it").refers_to("attempts").fixed(),
        int("position", "in the plan of its task, from 0"),
        text("mission_id", "").refers_to("missions").fixed(),
        int("task_id", "").refers_to("tasks").fixed(),
        text("commit_hash", "where it is kept"),
        int("finished_at", ""),
    ];
    let about = "Operations that are done and kept: whoever goes on begins after the last of them.";
    table("file_operations", about, 2, columns).indexed(&[("task_id", "")])
}
