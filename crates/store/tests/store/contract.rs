//! The contract of a journal, told once and kept by every implementation.

use std::slice;

use kapelle_core::{Record, Seq, Timestamp};
use kapelle_store::{Epoch, Error, Head, Journal, Memory, Postgres, Reader, Sqlite, Writer};

use crate::{cluster, fixture};

#[test]
fn memory_keeps_the_contract() {
    story(&mut Memory::default());
}

#[test]
fn sqlite_keeps_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    story(&mut Sqlite::open(&dir.path().join("db")).unwrap());
}

#[test]
fn postgres_keeps_the_contract() {
    story(&mut Postgres::open(&cluster::shared().project()).unwrap());
}

fn story(journal: &mut dyn Journal) {
    let records = fixture::history(1, 0);
    let [first, second, third, rest @ ..] = &records[..] else { panic!("a short history") };
    assert_eq!(journal.head(), Head::EMPTY);
    assert_eq!(journal.read(Seq(0), 10).unwrap(), []);

    let epoch = journal.claim_epoch().unwrap();
    let batch = [first.clone(), second.clone()];
    let head = journal.append(epoch, Seq(0), &batch).unwrap();
    assert_eq!(head.seq, Seq(2));
    assert_eq!(journal.head(), head);

    // Nothing of a refused append is kept.
    refused(
        journal,
        epoch,
        Seq(1),
        slice::from_ref(third),
        "the journal stands at record 2, not at 1",
    );
    refused(
        journal,
        epoch,
        Seq(3),
        slice::from_ref(third),
        "the journal stands at record 2, not at 3",
    );
    let gap = [third.clone(), rest[1].clone()];
    refused(journal, epoch, Seq(2), &gap, "record 5 does not follow record 3");
    refused(journal, epoch, Seq(2), &batch, "record 1 does not follow record 2");

    let mut late = third.clone();
    late.at = Timestamp(u64::MAX);
    refused(journal, epoch, Seq(2), &[late], "time 18446744073709551615 does not fit the store");

    // Whoever claims next is the only one who may append.
    let next = journal.claim_epoch().unwrap();
    let stale = "epoch 1 is not current: the store is at epoch 2";
    refused(journal, epoch, Seq(2), slice::from_ref(third), stale);
    let unclaimed = "epoch 9 is not current: the store is at epoch 2";
    refused(journal, Epoch(9), Seq(2), slice::from_ref(third), unclaimed);
    assert_eq!(journal.append(next, Seq(2), &[]).unwrap(), head);
    journal.append(next, Seq(2), slice::from_ref(third)).unwrap();
    journal.append(next, Seq(3), rest).unwrap();

    assert_eq!(journal.read(Seq(0), usize::MAX).unwrap(), records);
    assert_eq!(journal.read(Seq(1), 2).unwrap(), records[1..3]);
    assert_eq!(journal.read(journal.head().seq, 10).unwrap(), []);
    assert_eq!(journal.read(Seq(u64::MAX), 10).unwrap(), []);
}

fn refused(
    journal: &mut dyn Journal,
    epoch: Epoch,
    expected: Seq,
    records: &[Record],
    because: &str,
) {
    let before = (journal.head(), journal.read(Seq(0), usize::MAX).unwrap());
    let error = journal.append(epoch, expected, records).unwrap_err();
    assert_eq!(error.to_string(), because);
    assert_eq!((journal.head(), journal.read(Seq(0), usize::MAX).unwrap()), before);
}

/// The head's hash stands for the records: not for how they were batched, nor for where they are.
#[test]
fn the_head_does_not_depend_on_batches_or_engines() {
    let records = fixture::history(2, 1);
    let dir = tempfile::tempdir().unwrap();
    let mut memory = Memory::default();
    let epoch = memory.claim_epoch().unwrap();
    let head = memory.append(epoch, Seq(0), &records).unwrap();
    for batch in [1, 7, records.len()] {
        let path = dir.path().join(format!("db{batch}"));
        assert_eq!(fixture::filled(&path, &records, batch).0.head(), head, "batches of {batch}");
        let location = cluster::shared().project();
        fixture::write(&location, &records, batch);
        let reader = Reader::open(&location).unwrap();
        assert_eq!(reader.head().unwrap(), head, "batches of {batch} on PostgreSQL");
    }
}

/// The engine that a store hands back is the engine that wrote it.
#[test]
fn a_reopened_store_is_where_it_was() {
    let records = fixture::history(3, 0);
    for place in fixture::places() {
        place.fill(&records);
        let reader = || Reader::open(&place.location).unwrap();
        let before = (reader().head().unwrap(), reader().store_id().unwrap());
        let writer = Writer::open(&place.location).unwrap();
        assert_eq!((writer.opened_at(), reader().store_id().unwrap()), before, "{}", place.name);
        assert_eq!(reader().records(Seq(0), usize::MAX).unwrap(), records, "{}", place.name);
        assert!(writer.epoch() > Epoch(1), "{}", place.name);
    }
}

#[test]
fn a_stale_leader_is_fenced_off_by_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    fenced_off(Sqlite::open(&path).unwrap(), Sqlite::open(&path).unwrap());
}

#[test]
fn a_stale_leader_is_fenced_off_by_the_server() {
    let location = cluster::shared().project();
    fenced_off(Postgres::open(&location).unwrap(), Postgres::open(&location).unwrap());
}

/// Two leaders on one store: the database itself refuses the older one.
fn fenced_off(mut old: impl Journal, mut new: impl Journal) {
    let records = fixture::history(4, 0);
    let old_epoch = old.claim_epoch().unwrap();
    old.append(old_epoch, Seq(0), &records[..2]).unwrap();
    let new_epoch = new.claim_epoch().unwrap();
    assert_eq!(new.head(), old.head());
    let refused = old.append(old_epoch, Seq(2), &records[2..3]).unwrap_err();
    assert!(
        matches!(refused, Error::StaleEpoch { presented, current }
            if presented == old_epoch && current == new_epoch),
        "{refused}"
    );
    new.append(new_epoch, Seq(2), &records[2..]).unwrap();
}
