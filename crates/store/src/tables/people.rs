//! What it cost, what was asked, and what people said and ordered.

use kapelle_core::approval::{OverrideAction, Subject};
use kapelle_core::plan::Risk;

use super::missions::phases;
use super::{Kind, Table, column, int, one_of, table, text};

names!(subject, SUBJECTS: Subject =
    Subject::Plan(_) => "plan",
    Subject::Start(_) => "start",
    Subject::Merge(_) => "merge",
    Subject::External(_) => "external",
    Subject::Rollback(_) => "rollback",
    Subject::Delivery(_) => "delivery");
names!(risk, RISKS: Risk = Risk::Low => "low", Risk::Medium => "medium", Risk::High => "high");
names!(action, ACTIONS: OverrideAction =
    OverrideAction::SkipStep { .. } => "skip_step",
    OverrideAction::ForceComplete => "force_complete",
    OverrideAction::Reset { .. } => "reset",
    OverrideAction::Reassign { .. } => "reassign");

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
    let statuses = ["waiting", "approved", "rejected", "passed", "gone", "delivered", "refused"];
    let columns = vec![
        int("seq", "the record that asks"),
        text("mission_id", "").refers_to("missions").fixed(),
        int("task_id", "unless it is about the whole mission").or_null().refers_to("tasks").fixed(),
        one_of("subject", SUBJECTS.iter().copied(), "what it is about").fixed(),
        text("commit_hash", "what was proposed, and nothing else; before work, its base").fixed(),
        one_of("risk", RISKS.iter().copied(), "if it was assessed").or_null().fixed(),
        int("people_needed", "how many different people have to approve").fixed(),
        int("people_given", "how many have"),
        one_of(
            "status",
            statuses,
            "passed: by an order; gone: nobody asks any more; a delivery that was approved is then \
             delivered, or refused by the target",
        ),
        text("said_by", "who spoke last").or_null(),
        text("reason", "why it was rejected, passed or refused").or_null(),
        int("asked_at", "").fixed(),
        int("approved_at", "").or_null(),
        int("ended_at", "when nothing more could come of it").or_null(),
    ];
    table(
        "approvals",
        "Questions to people that something waits for, and what became of them.",
        1,
        columns,
    )
    .indexed(&[("mission_id", ""), ("task_id", "status = 'waiting'")])
}

pub(super) fn overrides() -> Table {
    let columns = vec![
        int("seq", "the record that tells it"),
        text("mission_id", "").refers_to("missions").fixed(),
        int("task_id", "").refers_to("tasks").fixed(),
        one_of("action", ACTIONS.iter().copied(), "what was ordered").fixed(),
        one_of("step", phases(), "that is skipped or gone back to").or_null().fixed(),
        text("from_agent", "who gives the task away").or_null().fixed(),
        text("to_agent", "who gets it").or_null().fixed(),
        text("reason", "").fixed(),
        text("ordered_by", "").fixed(),
        text("seconded_by", "the second person, if it took one").or_null(),
        one_of(
            "status",
            ["waiting", "done", "lapsed"],
            "waiting: for a second person; lapsed: nobody came, or something else was ordered",
        ),
        int("ordered_at", "").fixed(),
        int("expires_at", "until when a second person was waited for").or_null().fixed(),
        int("ended_at", "").or_null(),
    ];
    table("overrides", "What people ordered, whatever the rules would have done.", 1, columns)
        .indexed(&[("task_id", "")])
}
