//! Golden journals: history that was written once must be readable, and mean the same, for ever.
//!
//! Each `journals/*.jsonl` has a `.txt` beside it that says where it must end. When events gain a
//! field or a kind, add a new journal (`kapelle-sim --journal SEED` writes one); never edit an old
//! one.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use kapelle_core::{Event, Record, State};

fn journals() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/journals");
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|ext| ext == "jsonl")).collect();
    found.sort();
    found
}

fn read(path: &Path) -> Vec<Record> {
    let text = std::fs::read_to_string(path).unwrap();
    let line = |(number, line): (usize, &str)| {
        serde_json::from_str(line).unwrap_or_else(|e| panic!("{path:?} line {}: {e}", number + 1))
    };
    text.lines().enumerate().map(line).collect()
}

/// Where a history ends, in words that a person can check.
fn ending(records: &[Record]) -> String {
    let mut state = State::default();
    for record in records {
        state.apply(&record.event, record.at);
    }
    let mut text = format!("{} records\n", records.len());
    for mission in state.missions() {
        let tip = mission.tip.as_ref().map_or("nowhere", |tip| tip.short());
        let (id, status, spent) = (mission.id, mission.status(), state.purse_of(mission.id).spent);
        writeln!(text, "{id} {status}, {spent} spent, branch at {tip}").unwrap();
        for task in state.tasks_of(mission) {
            let (name, status) = (task.name(), task.status(mission));
            let (attempts, retries) = (task.attempts, task.retries);
            writeln!(text, "  {name} {status}, {attempts} attempts, {retries} retries").unwrap();
        }
    }
    writeln!(text, "{} effects due, wake at {:?}", state.due().len(), state.wake_at()).unwrap();
    for test in state.test_history().quarantine() {
        writeln!(text, "{test} is in quarantine").unwrap();
    }
    text
}

/// All kinds of events there are: whoever reads one of another kind is told them.
fn kinds() -> BTreeSet<String> {
    let unknown = serde_json::from_str::<Event>(r#"{"type": "?"}"#).unwrap_err().to_string();
    let (_, all) = unknown.split_once("expected one of ").unwrap();
    all.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn old_journals_end_where_they_ended() {
    let journals = journals();
    assert!(journals.len() >= 2, "{journals:?}");
    for path in journals {
        let expected = std::fs::read_to_string(path.with_extension("txt")).unwrap_or_default();
        assert_eq!(ending(&read(&path)), expected, "{path:?}");
    }
}

/// Nothing that was recorded may be dropped on the way through our types.
#[test]
fn old_journals_are_written_as_they_were_read() {
    for path in journals() {
        let text = std::fs::read_to_string(&path).unwrap();
        for (record, line) in read(&path).iter().zip(text.lines()) {
            let before: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(serde_json::to_value(record).unwrap(), before, "{path:?}");
        }
    }
}

/// A kind of event that no golden journal has could change its meaning unseen.
#[test]
fn every_kind_of_event_is_in_a_golden_journal() {
    let records = journals().into_iter().flat_map(|path| read(&path));
    let kind = |record: Record| {
        serde_json::to_value(&record.event).unwrap()["type"].as_str().unwrap().to_owned()
    };
    let recorded: BTreeSet<String> = records.map(kind).collect();
    let missing: Vec<String> = kinds().difference(&recorded).cloned().collect();
    assert_eq!(missing, Vec::<String>::new(), "add a journal that has them");
    assert_eq!(recorded, kinds());
}
