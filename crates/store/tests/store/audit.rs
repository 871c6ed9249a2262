//! Tampering, as somebody with the file in their hands would do it.

use kapelle_core::Seq;
use kapelle_store::{AuditError, Broken, Journal, Reader, Verified, Why, rebuild, verify};
use rusqlite::Connection;

use crate::fixture;

/// The first broken record after `sql` was run on the file.
fn after(sql: &str) -> Broken {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    fixture::filled(&path, &fixture::history(1, 0), 10);
    rebuild(&path).unwrap();
    let raw = Connection::open(&path).unwrap();
    raw.execute_batch("DROP TRIGGER journal_is_not_edited; DROP TRIGGER journal_is_not_cut")
        .unwrap();
    raw.execute_batch(sql).unwrap();
    assert!(raw.changes() > 0, "{sql} changed nothing");
    match verify(&path) {
        Err(AuditError::Broken(broken)) => broken,
        other => panic!("{sql} went unnoticed: {other:?}"),
    }
}

#[test]
fn an_untouched_history_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let records = fixture::history(1, 0);
    let (store, _) = fixture::filled(&path, &records, 3);
    let verified = verify(&path).unwrap();
    assert_eq!(verified, Verified { records: records.len() as u64, head: store.head() });
}

#[test]
fn a_changed_record_is_named() {
    for change in [
        "UPDATE journal SET body = replace(body, 'ada', 'eve') WHERE seq = 2",
        "UPDATE journal SET body = body || ' ' WHERE seq = 2",
        "UPDATE journal SET at = at + 1 WHERE seq = 2",
        // No text any more: a bit of the disk has changed.
        "UPDATE journal SET body = CAST(substr(body, 1, 40) || x'ff' || substr(body, 42) AS TEXT)
            WHERE seq = 2",
        "UPDATE journal SET at = -1 WHERE seq = 2",
        "UPDATE journal SET epoch = 0 WHERE seq = 2",
        "UPDATE journal SET hash = zeroblob(32) WHERE seq = 2",
    ] {
        let broken = after(change);
        assert_eq!(broken.seq, Seq(2), "{change}: {broken}");
        assert!(matches!(broken.why, Why::Changed { .. }), "{change}: {broken}");
    }
}

#[test]
fn a_missing_record_is_named() {
    for (cut, seq) in [
        ("DELETE FROM journal WHERE seq = 1", 1),
        ("DELETE FROM journal WHERE seq = 5", 5),
        ("DELETE FROM journal WHERE seq BETWEEN 5 AND 9", 5),
        // Nothing follows that would not fit; but the tables had seen more.
        ("DELETE FROM journal WHERE seq >= 12", 12),
        ("DELETE FROM journal", 1),
    ] {
        assert_eq!(after(cut), Broken { seq: Seq(seq), why: Why::Missing }, "{cut}");
    }
}

#[test]
fn records_cannot_change_places() {
    let swap = "UPDATE journal SET seq = -seq WHERE seq IN (4, 5);
        UPDATE journal SET seq = 9 + seq WHERE seq < 0";
    // The schema does not even take it on the way, so the check is told to look away.
    let broken = after(&format!("PRAGMA ignore_check_constraints = ON; {swap}"));
    assert_eq!(broken.seq, Seq(4), "{broken}");
    assert!(matches!(broken.why, Why::Changed { .. }), "{broken}");
}

/// A leader whose time was over could have written this, if the fence had failed.
#[test]
fn a_record_of_a_later_epoch_than_the_stores_is_named() {
    let broken = after("UPDATE meta SET epoch = 0");
    assert_eq!(broken.seq, Seq(1));
    assert!(matches!(broken.why, Why::EpochOver { .. }), "{broken}");
}

/// Whoever reads a record that is no text any more names it, and not only the audit.
#[test]
fn a_record_that_is_no_text_is_named_by_whoever_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    fixture::filled(&path, &fixture::history(1, 0), 10);
    let raw = Connection::open(&path).unwrap();
    raw.execute_batch(
        "DROP TRIGGER journal_is_not_edited;
        UPDATE journal SET body = CAST(substr(body, 1, 40) || x'ff' || substr(body, 42) AS TEXT)
            WHERE seq = 2",
    )
    .unwrap();
    let refused = Reader::open(&path).unwrap().recover().unwrap_err().to_string();
    assert!(refused.starts_with("record 2 cannot be read: "), "{refused}");
    let mut lines = Vec::new();
    let refused = Reader::open(&path).unwrap().export(&mut lines).unwrap_err().to_string();
    assert!(refused.starts_with("record 2 was changed: "), "{refused}");
    assert_eq!(lines.iter().filter(|byte| **byte == b'\n').count(), 1);
}
