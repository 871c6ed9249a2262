//! Councils and their votes. What was voted is in no row before the council has closed.

use kapelle_core::council::{Choice, Outcome, Question, Strategy, Summons, Verdict};

use super::{Kind, Table, column, int, one_of, table, text};

names!(question, QUESTIONS: Question =
    Question::Problem => "problem",
    Question::Review { .. } => "review",
    Question::Drill { .. } => "drill");
names!(summons, SUMMONS: Summons =
    Summons::Retries(_) => "retries",
    Summons::Review => "review",
    Summons::ByHand { .. } => "by_hand");
names!(strategy, STRATEGIES: Strategy =
    Strategy::Majority => "majority",
    Strategy::Weighted => "weighted",
    Strategy::BestReasoning => "best_reasoning",
    Strategy::TestWinner => "test_winner",
    Strategy::ConsensusBuild => "consensus_build");
names!(verdict, VERDICTS: Verdict =
    Verdict::Accepted { .. } => "accepted",
    Verdict::Proposed { .. } => "proposed",
    Verdict::Combine { .. } => "combine",
    Verdict::Rejected { .. } => "rejected",
    Verdict::Undecided { .. } => "undecided",
    Verdict::Drill { .. } => "drill");
names!(outcome, OUTCOMES: Outcome =
    Outcome::Success => "success",
    Outcome::Failure => "failure",
    Outcome::Escalated => "escalated",
    Outcome::Answered => "answered");
names!(choice, CHOICES: Choice =
    Choice::Approve => "approve",
    Choice::Reject => "reject",
    Choice::Solution(_) => "solution");

pub(super) fn councils() -> Table {
    let statuses = ["voting", "closed", "decided", "resolved", "abandoned"];
    let columns = vec![
        int("id", ""),
        text("mission_id", "").refers_to("missions").fixed(),
        int("task_id", "").refers_to("tasks").fixed(),
        one_of("question", QUESTIONS.iter().copied(), "a drill shows as a review until it closes"),
        one_of("because", SUMMONS.iter().copied(), "why it was called").fixed(),
        text("called_by", "the person, if one called it").or_null().fixed(),
        one_of("strategy", STRATEGIES.iter().copied(), "how its votes are weighed").fixed(),
        column("panel", Kind::Json, "a list of the models that were asked").fixed(),
        text("judge", "").or_null().fixed(),
        one_of("status", statuses, "resolved: what came of its verdict is known"),
        int("members", "how many were asked").fixed(),
        int("heard", "how many of them have had their turn"),
        int("reserved_usd_micros", "").fixed(),
        int("cost_usd_micros", "once it is paid").or_null(),
        one_of("verdict", VERDICTS.iter().copied(), "").or_null(),
        text("verdict_text", "").or_null(),
        text("winner", "the model whose answer won").or_null(),
        text("solution", "what it proposed").or_null(),
        one_of("outcome", OUTCOMES.iter().copied(), "once the verdict was tried").or_null(),
        int("convened_at", "").fixed(),
        int("deadline", "when votes are no longer waited for").fixed(),
        int("closed_at", "when the votes were opened").or_null(),
        int("decided_at", "").or_null(),
        int("ended_at", "").or_null(),
    ];
    table("councils", "Models of different families that were asked about a task.", 1, columns)
        .indexed(&[("task_id", ""), ("mission_id", "ended_at IS NULL")])
}

pub(super) fn council_votes() -> Table {
    let statuses = ["sealed", "counted", "dropped", "silent"];
    let columns = vec![
        int("council_id", "").refers_to("councils"),
        text("model", "who votes"),
        one_of(
            "status",
            statuses,
            "sealed: nobody can read it before the council closes, and nobody ever if it was called \
             off; dropped: it does not count; silent: it never came",
        ),
        one_of("choice", CHOICES.iter().copied(), "").or_null(),
        text("solution", "what it proposes").or_null(),
        text("reasoning", "").or_null(),
        column("evidence", Kind::Json, "a list; empty while the vote is sealed"),
        int("confidence_permille", "as the model itself states it").or_null(),
        text("dropped_because", "").or_null(),
        int("cost_usd_micros", "as the member says"),
        int("heard_at", "").or_null(),
    ];
    table("council_votes", "What the members of councils said, once it may be read.", 2, columns)
}
