//! Every bound on what comes from outside, by name.

/// A plan larger than this is a mistake, and a graph that no person could approve.
pub const PLAN_BYTES_MAX: usize = 4 * 1024 * 1024;
pub const PLAN_TASKS_MAX: usize = 10_000;
/// Past this many files a task does not fit the context of one agent (PLN-09); a warning.
pub const TASK_FILES_ADVISED_MAX: usize = 3;
pub const TASK_FILES_MAX: usize = 200;
pub const TASK_DEPENDENCIES_MAX: usize = 200;
/// Long enough for `convoy-us12.task-104`, short enough for a column.
pub const TASK_NAME_CHARS_MAX: usize = 40;
pub const TITLE_CHARS_MAX: usize = 200;
pub const TEXT_CHARS_MAX: usize = 20_000;
pub const PATH_CHARS_MAX: usize = 1_000;
pub const GOAL_CHARS_MAX: usize = 10_000;
/// The first hundred flaws of a plan tell its author enough.
pub const PLAN_FLAWS_MAX: usize = 100;
pub const CRITERIA_MAX: usize = 50;
pub const CRITERION_CHARS_MAX: usize = 1_000;
/// For a command among the criteria of a task: as long as a check gets that says nothing else.
pub const CRITERION_TIMEOUT_MS: u64 = 600_000;
/// A task with more steps than this is a plan.
pub const CHECKLIST_STEPS_MAX: usize = 100;
pub const STEP_CHARS_MAX: usize = 500;
/// What a planner may write as its specification, prepared edits included.
pub const SIS_BYTES_MAX: usize = 4 * 1024 * 1024;
pub const SIS_TASKS_MAX: usize = 1_000;
pub const SIS_OPERATIONS_MAX: usize = 200;
/// How far around its stated place a hunk is looked for: a search beyond it could be made slow.
pub const HUNK_SEARCH_LINES_MAX: usize = 2_000;
pub const RESEARCH_BYTES_MAX: usize = 1024 * 1024;
pub const SESSION_BYTES_MAX: usize = 64 * 1024;
/// The places in a document that are named as wrong; the rest is counted.
pub const VIOLATIONS_MAX: usize = 50;
pub const GAP_PLANS_MAX: u32 = 20;
/// One agent that does more than this in one go has forgotten the first when it does the last.
pub const BATCH_TASKS_MAX: u32 = 20;

/// What an agent may write as its report.
pub const REPORT_BYTES_MAX: usize = 256 * 1024;
pub const QUESTION_OPTIONS_MAX: usize = 20;
pub const QUESTION_CHARS_MAX: usize = 2_000;
/// By what an agent knows where it stood when it asked.
pub const QUESTION_ID_CHARS_MAX: usize = 200;
/// An option is something to choose, not something to read.
pub const OPTION_CHARS_MAX: usize = 200;
pub const ANSWER_CHARS_MAX: usize = 10_000;
pub const REASON_CHARS_MAX: usize = 1_000;
/// What is repeated of a word that is no state of a task.
pub const STATUS_CHARS_MAX: usize = 40;

/// What is kept of a failure's text in the journal: the end of an output is where the error is.
pub const FAILURE_CHARS_MAX: usize = 2_000;
/// Paths named one by one in an event; the rest is in git.
pub const TOUCHED_PATHS_MAX: usize = 1_000;

pub const CHECKS_MAX: usize = 20;
pub const PATTERNS_MAX: usize = 100;
pub const SEATS_PER_ROLE_MAX: u32 = 64;

pub const DOMAINS_PER_AGENT_MAX: usize = 50;
/// Each is one bit of a task's reach.
pub const TERRITORIES_PER_ROLE_MAX: usize = 31;
/// A task whose hosts were lost so often in a row works alone from then on: it takes nobody along,
/// and whoever was lost beside it is not blamed for it.
pub const LOST_ALONE_AFTER: u32 = 2;
/// Providers, missions and deployments with a breaker of their own.
pub const BREAKERS_MAX: usize = 10_000;
pub const PROVIDER_NAME_CHARS_MAX: usize = 100;
/// Causes of escalation that are kept apart; more than a person can hold in mind.
pub const ESCALATION_CAUSES_MAX: usize = 200;
/// Tasks that an escalation names one by one; the rest is a number.
pub const ESCALATION_TASKS_MAX: usize = 50;
/// The failures of a task that its dead letter tells in full.
pub const DEAD_LETTER_ATTEMPTS_MAX: usize = 20;
/// Models and providers that one project names in its configuration.
pub const MODELS_MAX: usize = 500;
pub const MODEL_CHARS_MAX: usize = 100;
pub const PROVIDERS_MAX: usize = 50;

/// Reservations that can be open at a time: far more than attempts and calls that any team has in
/// flight, few enough that a leak shows.
pub const RESERVATIONS_OPEN_MAX: usize = 20_000;
/// Waiting tasks of a kind that are looked at one by one when the first may not start. Of most kinds
/// one look is enough, since what holds back one holds back all; only what differs from
/// task to task or from agent to agent is asked of each, and a look at all would grow with the plan.
pub const SCHEDULE_LOOKAHEAD_MAX: usize = 64;
/// A turn has a dozen records; the room of one that had thousands is given back.
pub const BATCH_RECORDS_KEPT_MAX: usize = 256;
/// What an attempt uses at least, so that none starts once a token budget is used up.
pub const ATTEMPT_TOKENS_MIN: u64 = 1;
/// Attempts that ended without a bill and may still get one; of older ones no bill is believed.
pub const BILLS_AWAITED_MAX: usize = 10_000;
/// An attempt may have sub-agents and those may have theirs, no deeper (RUN-16).
pub const RESERVATION_DEPTH_MAX: u32 = 2;
/// Finished days, weeks and months whose sums are kept beside the running ones.
pub const SPANS_KEPT_MAX: usize = 62;
/// Finished missions from which estimates learn.
pub const CALIBRATION_MISSIONS_MAX: usize = 20;
/// A provider that asks for a longer pause than this is not believed.
pub const PARKED_MS_MAX: u64 = 7 * 24 * 60 * 60 * 1_000;
/// Past this, a rate limit is no limit, and its window would hold too many entries.
pub const REQUESTS_PER_MIN_MAX: u64 = 60_000;
/// More changes in one candidate would make a failure say nothing.
pub const MERGE_BATCH_MAX: u32 = 64;
/// Each lane is a checkout with its checks running.
pub const MERGE_LANES_MAX: u32 = 32;
pub const MERGE_RETRIES_MAX: u32 = 10;
/// Waiting changes that are looked at when lanes are formed; the others come later.
pub const MERGE_LOOKAHEAD_MAX: usize = 32;
/// Tests named one by one: as flaky, as failing before.
pub const MERGE_TESTS_NAMED_MAX: usize = 1_000;
/// A rollback of more tasks than this is a restore from a backup.
pub const ROLLBACK_TASKS_MAX: usize = 1_000;
/// More approvers than this would be nobody's responsibility.
pub const APPROVERS_MAX: u32 = 5;
pub const PEOPLE_MAX: usize = 1_000;
pub const COUNCIL_MODELS_MAX: usize = 20;
pub const COUNCIL_NAME_CHARS_MAX: usize = 60;
/// What of the code is worth sending to several models at once.
pub const COUNCIL_CODE_CHARS_MAX: usize = 40_000;
pub const COUNCIL_ATTEMPTS_MAX: usize = 5;
pub const COUNCIL_CONSTRAINTS_MAX: usize = 20;
pub const COUNCIL_KEY_CHARS_MAX: usize = 300;
pub const COUNCIL_DEFECTS_MAX: usize = 50;
pub const COUNCIL_EVIDENCE_MAX: usize = 20;
pub const COUNCIL_VOTE_CHARS_MAX: usize = 10_000;
/// Councils that vote or whose outcome is not known yet.
pub const COUNCIL_OPEN_MAX: usize = 1_000;
/// What is kept in state; the journal keeps all.
pub const COUNCIL_RECORDS_MAX: usize = 1_000;
pub const COUNCIL_REMEMBERED_MAX: usize = 1_000;
pub const COUNCIL_TYPES_MAX: usize = 1_000;

/// Tests that an outcome names one by one. What is past it is counted.
pub const TESTS_NAMED_MAX: usize = 10_000;
/// Failures that are named even when passed tests have used up their places.
pub const FAILURES_NAMED_MAX: usize = 1_000;
pub const TEST_NAME_CHARS_MAX: usize = 300;
/// Enough for an assertion with both of its sides.
pub const TEST_MESSAGE_CHARS_MAX: usize = 1_000;
/// Packages or files that could not be built or loaded, named one by one.
pub const BREAKAGES_MAX: usize = 50;
pub const FUNCTIONS_NAMED_MAX: usize = 50;
pub const FINDINGS_NAMED_MAX: usize = 200;
/// Tests whose history is kept; those that were not seen for the longest time go first.
pub const HISTORY_TESTS_MAX: usize = 20_000;
/// Runs of one test that are remembered. A contradiction on one commit is seen within minutes.
pub const HISTORY_RUNS_MAX: usize = 20;
/// Of an outcome the journal keeps so many failures and other tests by name, with so much of what each
/// said; the rest is counted. A thousand phases of large projects must not make a giant of it.
pub const OUTCOME_FAILURES_KEPT_MAX: usize = 100;
pub const OUTCOME_TESTS_KEPT_MAX: usize = 300;
pub const OUTCOME_MESSAGE_CHARS_MAX: usize = 300;
pub const OUTCOME_PLACES_KEPT_MAX: usize = 20;
/// Questions in a row that the configuration answers for one task. Whoever asks on is not helped by
/// the same answer, and would ask for ever.
pub const ANSWERS_BY_RULE_MAX: u32 = 3;
/// Tests that an agent names as those that have to fail.
pub const RED_TESTS_MAX: usize = 50;
/// Objections that a failure tells one by one.
pub const OBJECTIONS_MAX: usize = 20;

/// The first `max` characters.
#[must_use]
pub fn head(text: &str, max: usize) -> &str {
    match text.char_indices().nth(max) {
        Some((cut, _)) => &text[..cut],
        None => text,
    }
}

/// The last `max` characters.
#[must_use]
pub fn tail(text: &str, max: usize) -> &str {
    match text.char_indices().rev().nth(max.saturating_sub(1)) {
        Some((cut, _)) if max > 0 => &text[cut..],
        Some(_) => "",
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_fall_between_characters() {
        let text = "aäö€";
        let cuts: Vec<_> = (0..6).map(|max| (head(text, max), tail(text, max))).collect();
        let expected = [
            ("", ""),
            ("a", "€"),
            ("aä", "ö€"),
            ("aäö", "äö€"),
            ("aäö€", "aäö€"),
            ("aäö€", "aäö€"),
        ];
        assert_eq!(cuts, expected);
    }
}
