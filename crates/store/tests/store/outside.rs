//! Histories that somebody else wrote: chained correctly, and impossible all the same.

use kapelle_core::{Record, Seq};
use kapelle_store::{Error, Extent, Location, Reader, Writer, import};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::RngSeed;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{crowd, fixture};

/// A record before it is chained.
#[derive(Debug, Clone)]
struct Entry {
    at: u64,
    epoch: u64,
    event: Value,
}

fn entries(records: &[Record]) -> Vec<Entry> {
    let entry = |record: &Record| {
        let event = serde_json::to_value(&record.event).unwrap();
        Entry { at: record.at.0, epoch: 1, event }
    };
    records.iter().map(entry).collect()
}

/// An export of these, with a chain that is right.
fn export(entries: &[Entry]) -> String {
    let mut previous = vec![0; 32];
    let mut lines = String::new();
    for (Entry { at, epoch, event }, seq) in entries.iter().zip(1u64..) {
        let body = event.to_string();
        let mut hasher = Sha256::new();
        hasher.update(&previous);
        for number in [seq, *at, *epoch, body.len() as u64] {
            hasher.update(number.to_be_bytes());
        }
        hasher.update(&body);
        previous = hasher.finalize().to_vec();
        let hash: String = previous.iter().map(|byte| format!("{byte:02x}")).collect();
        lines += &format!(
            "{{\"seq\":{seq},\"at\":{at},\"epoch\":{epoch},\"hash\":\"{hash}\",\"event\":{body}}}\n"
        );
    }
    lines
}

/// Nothing arrived, and the store is as good as a new one.
fn is_untouched(to: &Location) {
    let reader = Reader::open(to).unwrap();
    assert_eq!(reader.head().unwrap().seq, Seq(0), "{to}");
    assert_eq!(reader.watermark().unwrap(), Seq(0), "{to}");
    drop(reader);
    Writer::open(to).unwrap().close().unwrap();
}

/// Where the event of this kind is first.
fn first(entries: &[Entry], kind: &str) -> usize {
    entries.iter().position(|entry| entry.event["type"] == kind).unwrap()
}

/// Each is chained correctly, and no engine has written it.
#[test]
fn an_impossible_history_is_named_and_leaves_nothing() {
    let whole = entries(&fixture::history(3, 0));
    let (opened, planned) = (first(&whole, "mission_opened"), first(&whole, "plan_accepted"));
    let (team, leased) = (first(&whole, "team_changed"), first(&whole, "lease_granted"));
    let blocked = first(&whole, "task_blocked");
    let with = |at: usize, field: &str, value: Value| {
        let mut wrong = whole.clone();
        wrong[at].event[field] = value;
        wrong
    };
    let mut unopened = whole.clone();
    unopened.remove(opened);
    for (wrong, record) in [
        (with(planned, "first_task", json!(4_294_967_290u32)), planned + 1),
        (with(planned, "first_task", json!(0)), planned + 1),
        (with(opened, "mission", json!("m7")), opened + 1),
        (with(leased, "fence", json!(u64::MAX)), leased + 1),
        (with(team, "seats", json!({"developer": u32::MAX})), team + 1),
        (unopened, opened + 1),
        // The numbers are right; what the tables refer to is not there.
        (with(blocked, "on", json!(77)), blocked + 1),
    ] {
        for to in fixture::places() {
            let refused =
                import(&mut export(&wrong).as_bytes(), Extent::AsFarAsItGoes, &to.location)
                    .unwrap_err();
            let Error::Impossible { record: named, .. } = &refused else { panic!("{refused}") };
            assert_eq!(named.0, record as u64, "{}: {refused}", to.name);
            assert!(refused.to_string().ends_with("; nothing was written"), "{refused}");
            is_untouched(&to.location);
            import(&mut export(&whole).as_bytes(), Extent::AsFarAsItGoes, &to.location).unwrap();
        }
    }
}

/// Numbers that the store keeps, and the first that it does not.
#[test]
fn times_and_epochs_have_bounds() {
    const EPOCH_MAX: u64 = 1 << 40;
    const AT_MAX: u64 = 253_402_300_799_999;
    let whole = entries(&fixture::history(1, 0));
    let last = whole.len() - 1;
    for (at, epoch, is_kept) in [
        (AT_MAX, EPOCH_MAX - 1, true),
        (AT_MAX + 1, 1, false),
        (AT_MAX, EPOCH_MAX, false),
        (i64::MAX as u64, 1, false),
        (AT_MAX, i64::MAX as u64, false),
    ] {
        let mut edited = whole.clone();
        (edited[last].at, edited[last].epoch) = (at, epoch);
        for to in fixture::places() {
            let imported =
                import(&mut export(&edited).as_bytes(), Extent::AsFarAsItGoes, &to.location);
            if is_kept {
                imported.unwrap();
                let writer = Writer::open(&to.location).unwrap();
                assert_eq!(writer.epoch().0, epoch + 1, "{}", to.name);
                continue;
            }
            let refused = imported.unwrap_err();
            let Error::Import { line, why } = &refused else { panic!("{refused}") };
            assert_eq!(*line, whole.len() as u64, "{}: {refused}", to.name);
            assert_eq!(why, "its time or its epoch is out of bounds");
            is_untouched(&to.location);
        }
    }
}

/// PostgreSQL keeps no NUL in a text. Whoever wrote one must not end what follows from it.
#[test]
fn a_text_that_a_database_cannot_keep_is_kept_all_the_same() {
    let mut whole = entries(&fixture::history(1, 0));
    let opened = first(&whole, "mission_opened");
    whole[opened].event["goal"] = json!("a goal\0with a hole");
    for to in fixture::places() {
        import(&mut export(&whole).as_bytes(), Extent::AsFarAsItGoes, &to.location).unwrap();
        Writer::open(&to.location).unwrap().close().unwrap();
        let reader = Reader::open(&to.location).unwrap();
        assert_eq!(reader.watermark().unwrap().0, whole.len() as u64, "{}", to.name);
        let shown = to.ask("SELECT goal FROM missions");
        assert_eq!(shown, ["a goal\u{fffd}with a hole"], "{}", to.name);
        assert_eq!(reader.trouble_with_tables(), None, "{}", to.name);
    }
}

/// What may happen to a history on its way through somebody's hands.
#[derive(Debug, Clone)]
enum Mischief {
    Drop(Index),
    Repeat(Index),
    Swap(Index, Index),
    /// A number of the event, and what it becomes.
    Number(Index, Index, u64),
    At(Index, u64),
}

fn mischief() -> impl Strategy<Value = Mischief> {
    let number = prop_oneof![
        0..9u64,
        Just(u64::from(u32::MAX)),
        Just(u64::from(u32::MAX) - 5),
        Just(i64::MAX as u64),
        Just(u64::MAX),
    ];
    let at = any::<Index>;
    prop_oneof![
        at().prop_map(Mischief::Drop),
        at().prop_map(Mischief::Repeat),
        (at(), at()).prop_map(|(one, other)| Mischief::Swap(one, other)),
        (at(), at(), number.clone()).prop_map(|(of, which, to)| Mischief::Number(of, which, to)),
        (at(), number).prop_map(|(of, to)| Mischief::At(of, to)),
    ]
}

/// Every number in it, however deep.
fn numbers(value: &mut Value) -> Vec<&mut Value> {
    match value {
        Value::Number(_) => vec![value],
        Value::Array(items) => items.iter_mut().flat_map(numbers).collect(),
        Value::Object(fields) => fields.values_mut().flat_map(numbers).collect(),
        Value::Null | Value::Bool(_) | Value::String(_) => Vec::new(),
    }
}

fn harmed(mut entries: Vec<Entry>, all: &[Mischief]) -> Vec<Entry> {
    for mischief in all {
        let length = entries.len();
        match mischief {
            Mischief::Drop(at) => drop(entries.remove(at.index(length))),
            Mischief::Repeat(at) => {
                let again = entries[at.index(length)].clone();
                entries.insert(at.index(length), again);
            }
            Mischief::Swap(one, other) => entries.swap(one.index(length), other.index(length)),
            Mischief::Number(of, which, to) => {
                let mut found = numbers(&mut entries[of.index(length)].event);
                let count = found.len();
                if count > 0 {
                    *found[which.index(count)] = json!(to);
                }
            }
            Mischief::At(of, to) => entries[of.index(length)].at = *to,
        }
    }
    entries
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(7),
        ..ProptestConfig::default()
    })]

    /// Whatever it is, it arrives and can be worked with, or nothing has arrived.
    #[test]
    fn a_harmed_history_arrives_or_leaves_nothing(
        seed in 0..4u64,
        all in prop::collection::vec(mischief(), 1..4),
    ) {
        let whole = entries(&match seed % 2 {
            0 => fixture::history(seed, 1),
            _ => crowd::history(seed, 1),
        });
        let dir = tempfile::tempdir().unwrap();
        let to = Location::sqlite(&dir.path().join("db"));
        let lines = export(&harmed(whole, &all));
        match import(&mut lines.as_bytes(), Extent::AsFarAsItGoes, &to) {
            Ok(_) => {
                Writer::open(&to).unwrap().close().unwrap();
                Reader::open(&to).unwrap().recover().unwrap();
            }
            Err(why) => {
                // What the fold does not survive is caught, and is a defect of the fold.
                prop_assert!(!why.to_string().contains("does not fit"), "{why}");
                is_untouched(&to);
            }
        }
    }
}
