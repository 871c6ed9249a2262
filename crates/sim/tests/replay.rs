//! What a seed writes can be read back, and one seed is always the same world.

use std::collections::BTreeSet;

use kapelle_core::{Event, Record, State};
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

/// What only journals of earlier versions have.
const OF_OLD: &[&str] =
    &["branch_moved", "candidate_built", "candidate_passed", "candidate_rejected"];

/// All kinds of events there are: whoever reads one of another kind is told them.
fn kinds() -> BTreeSet<String> {
    let unknown = serde_json::from_str::<Event>(r#"{"type": "?"}"#);
    let told = unknown.expect_err("there is no such kind").to_string();
    let (_, all) = told.split_once("expected one of ").expect("serde names what it knows");
    all.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// An event that no seed produces is an event that nothing here has judged.
#[test]
fn every_kind_of_event_happens() {
    let mut unseen = kinds();
    for record in (1..=500).flat_map(history) {
        let event = serde_json::to_value(&record.event).unwrap();
        unseen.remove(event["type"].as_str().unwrap());
    }
    assert_eq!(unseen.into_iter().collect::<Vec<_>>(), OF_OLD);
}

#[test]
fn one_seed_is_one_world() {
    for seed in [1, 2, 3, 500, u64::MAX] {
        assert_eq!(run(seed), run(seed));
        assert_eq!(history(seed), history(seed));
    }
}
