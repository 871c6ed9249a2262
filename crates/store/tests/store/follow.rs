//! Reading along without polling.

use std::time::Duration;

use kapelle_core::Seq;
use kapelle_store::{Follower, Reader, Writer};

use crate::fixture;

/// Longer than any wake-up takes; whoever waits this long was forgotten.
const PATIENCE: Duration = Duration::from_secs(20);

/// Reads until the journal is `head` long, sleeping in between.
fn follow_to(mut follower: Follower, reader: &Reader, head: Seq) {
    while reader.head().unwrap().seq < head {
        assert!(follower.wait(PATIENCE).unwrap(), "nobody woke us");
    }
}

#[test]
fn followers_are_woken_in_the_writers_process_and_in_others() {
    let records = fixture::history(1, 0);
    let head = Seq(records.len() as u64);
    for place in fixture::places() {
        let location = &place.location;
        let writer = Writer::open(location).unwrap();
        let beside = writer.follow(Seq(0));
        let from_outside = Follower::open(location).unwrap();
        let followers = [beside, from_outside].map(|follower| {
            let reader = Reader::open(location).unwrap();
            std::thread::spawn(move || follow_to(follower, &reader, head))
        });
        for record in &records {
            writer.append(writer.epoch(), Seq(record.seq.0 - 1), vec![record.clone()], |done| {
                done.unwrap();
            });
        }
        for follower in followers {
            follower.join().unwrap();
        }
    }
}

/// Word comes with the rows of the tables. Where none can be written, it has to come by itself: the
/// log of SQLite is written before its commit can be seen, so that is no word.
#[test]
fn followers_are_woken_although_the_tables_do_not_go_on() {
    let records = fixture::history(1, 0);
    let head = Seq(records.len() as u64);
    for place in fixture::places() {
        let writer = Writer::open(&place.location).unwrap();
        let cascade = if place.location.path().is_some() { "" } else { " CASCADE" };
        place.change(&format!("DROP TABLE tasks{cascade}"));
        let follower = Follower::open(&place.location).unwrap();
        let reader = Reader::open(&place.location).unwrap();
        let following = std::thread::spawn(move || follow_to(follower, &reader, head));
        writer.append(writer.epoch(), Seq(0), records.clone(), |done| {
            done.unwrap();
        });
        following.join().unwrap();
    }
}

/// Nothing happened, and nobody is told otherwise.
#[test]
fn a_follower_of_a_silent_journal_gives_up_in_time() {
    for place in fixture::places() {
        let writer = Writer::open(&place.location).unwrap();
        let mut follower = writer.follow(Seq(0));
        assert!(!follower.wait(Duration::from_millis(1)).unwrap(), "{}", place.name);
    }
}
