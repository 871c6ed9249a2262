//! What it cost, what was asked, and what was approved.

use super::{Kind, Table, column, int, one_of, table, text};

pub(super) fn costs() -> Table {
    let columns = vec![
        int("seq", "the record that tells it"),
        text("mission_id", "").refers_to("missions").fixed(),
        int("task_id", "").refers_to("tasks").fixed(),
        int("fence", "").refers_to("attempts").fixed(),
        text("agent", "").refers_to("agents").fixed(),
        int("cost_usd_micros", ""),
        int("charged_at", ""),
    ];
    table("costs", "What attempts were charged for.", 1, columns).indexed(&[("mission_id", "")])
}

pub(super) fn model_usage() -> Table {
    let columns = vec![
        int("seq", "").refers_to("costs"),
        int("position", "in that record"),
        text("model", ""),
        int("input_tokens", ""),
        int("output_tokens", ""),
    ];
    table("model_usage", "Tokens behind a charge.", 2, columns)
}

pub(super) fn checkpoints() -> Table {
    let columns = vec![
        int("seq", "the record that raised it"),
        text("mission_id", "").refers_to("missions").fixed(),
        int("task_id", "").refers_to("tasks").fixed(),
        int("fence", "").refers_to("attempts").fixed(),
        text("resume_id", ""),
        text("question", ""),
        column("options", Kind::Json, "a list of answers to choose from"),
        one_of("status", ["open", "answered", "cancelled"], ""),
        text("answer", "").or_null(),
        text("answered_by", "").or_null(),
        int("asked_at", ""),
        int("ended_at", "").or_null(),
    ];
    table("checkpoints", "Questions of agents to people.", 1, columns)
        .indexed(&[("task_id", "status = 'open'")])
}

pub(super) fn approvals() -> Table {
    let statuses = ["pending", "approved", "delivered", "refused", "cancelled"];
    let columns = vec![
        int("seq", "the record that proposed it"),
        text("mission_id", "").refers_to("missions").fixed(),
        text("commit_hash", "what was proposed, and nothing else"),
        one_of("status", statuses, ""),
        text("approved_by", "").or_null(),
        text("refused_because", "").or_null(),
        int("proposed_at", ""),
        int("approved_at", "").or_null(),
        int("ended_at", "").or_null(),
    ];
    table("approvals", "Deliveries that wait for a person, and what became of them.", 1, columns)
        .indexed(&[("mission_id", "")])
}
