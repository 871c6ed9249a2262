//! What a seed writes can be read back, and one seed is always the same world.

use kapelle_core::{Record, State};
use kapelle_sim::{history, run};

fn fold(records: &[Record]) -> State {
    let mut state = State::default();
    for record in records {
        state.apply(&record.event, record.at);
    }
    state
}

/// The journal is JSON: a value that changes on the way there and back would change history.
#[test]
fn a_journal_read_back_gives_the_same_state() {
    for seed in 1..=60 {
        let written = history(seed);
        let read: Vec<Record> = written
            .iter()
            .map(|record| serde_json::from_str(&serde_json::to_string(record).unwrap()).unwrap())
            .collect();
        assert_eq!(read, written, "seed {seed}");
        assert!(fold(&read) == fold(&written), "seed {seed}");
    }
}

/// All that a journal of today can have.
const KINDS: &[&str] = &[
    "agent_added",
    "agent_retired",
    "approval_asked",
    "approval_given",
    "approval_rejected",
    "attempt_abandoned",
    "attempt_failed",
    "attempt_finished",
    "attempt_interrupted",
    "backoff_ended",
    "baseline_measured",
    "branch_prepared",
    "breaker_moved",
    "burn_alerted",
    "cap_raised",
    "change_conflicted",
    "change_rebased",
    "change_rejected",
    "checklist_made",
    "checkpoint_answered",
    "checkpoint_raised",
    "checks_finished",
    "chore_due",
    "chore_failed",
    "chore_started",
    "chore_withdrawn",
    "cost_charged",
    "council_abandoned",
    "council_closed",
    "council_convened",
    "council_decided",
    "council_resolved",
    "delivery_approved",
    "delivery_proposed",
    "delivery_refused",
    "files_locked",
    "lane_built",
    "lane_formed",
    "lane_landed",
    "lane_passed",
    "lane_tested",
    "lease_granted",
    "lease_renewed",
    "locks_expired",
    "mission_cancelled",
    "mission_delivered",
    "mission_estimated",
    "mission_opened",
    "mission_paused",
    "mission_resumed",
    "operation_completed",
    "overridden",
    "override_lapsed",
    "override_proposed",
    "person_assigned",
    "person_notified",
    "phase_accepted",
    "plan_accepted",
    "plan_batched",
    "plan_warned",
    "priority_set",
    "provider_back",
    "provider_parked",
    "queue_backed_up",
    "rate_use_reported",
    "reservation_released",
    "retry_scheduled",
    "revert_built",
    "rollback_failed",
    "rollback_started",
    "scale_refused",
    "session_started",
    "settings_changed",
    "solution_recalled",
    "spending_paused",
    "spending_resumed",
    "spending_stopped",
    "spending_warned",
    "step_completed",
    "sub_agent_closed",
    "sub_agent_opened",
    "target_moved",
    "task_blocked",
    "task_dead_lettered",
    "task_merged",
    "task_reported",
    "task_requeued",
    "task_rolled_back",
    "task_unblocked",
    "team_changed",
    "test_quarantined",
    "test_released",
    "trouble_met",
    "vote_cast",
    "vote_dropped",
    "went_ahead",
];

/// An event that no seed produces is an event that nothing here has judged.
#[test]
fn every_kind_of_event_happens() {
    let mut seen = std::collections::BTreeSet::new();
    for record in (1..=500).flat_map(history) {
        let event = serde_json::to_value(&record.event).unwrap();
        seen.insert(event["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), KINDS);
}

#[test]
fn one_seed_is_one_world() {
    for seed in [1, 2, 3, 500, u64::MAX] {
        assert_eq!(run(seed), run(seed));
        assert_eq!(history(seed), history(seed));
    }
}
