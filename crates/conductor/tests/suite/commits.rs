//! Commits: decided together, durable before anybody is answered.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_conductor::project::store_path;
use kapelle_conductor::{Error, Opened};
use kapelle_core::{Command, MissionId, Refusal, Seq};
use kapelle_store::{Journal, Reader, Sqlite};

use crate::fixture::{Fixture, me, soon, team};

const COMMANDS: u32 = 200;

/// A disk syncs a few hundred times a second; people and agents together ask more often. What
/// arrives while one commit is on its way shares the next, and everybody gets their own answer.
#[tokio::test]
async fn commands_that_arrive_together_share_a_commit() {
    let fixture = Fixture::new("true");
    let opened = fixture.open().await.unwrap();
    let mut commits = opened.handle.follow();
    let sends = (1..=COMMANDS).map(|workers_max| {
        let command = Command::ConfigureTeam {
            seats: BTreeMap::new(),
            workers_max,
            by: kapelle_core::Actor("ada".into()),
        };
        let handle = opened.handle.clone();
        tokio::spawn(async move { handle.send(command).await })
    });
    let sends: Vec<_> = sends.collect();
    let mut seqs = BTreeSet::new();
    for send in sends {
        seqs.insert(soon("an answer", send).await.unwrap().unwrap().seq);
    }
    // The first record says that a session began.
    let expected: BTreeSet<Seq> = (2..=u64::from(COMMANDS) + 1).map(Seq).collect();
    assert_eq!(seqs, expected, "each command has its own answer and its own record");
    // Whoever is answered finds the record in the file.
    let durable = Reader::open(&store_path(&fixture.state_dir())).unwrap().head().unwrap().seq;
    assert!(durable >= *seqs.last().unwrap(), "{durable:?} is behind {:?}", seqs.last());

    opened.handle.shut_down();
    soon("the end", opened.conductor.ended()).await.unwrap();
    let mut count = 0;
    while commits.try_recv().is_ok() {
        count += 1;
    }
    assert!(count < COMMANDS / 2, "{count} commits for {COMMANDS} commands");
}

/// A repeated request, after a crash or a retry of a client, must not become a second mission.
#[tokio::test]
async fn a_repeated_request_is_answered_with_its_mission() {
    let fixture = Fixture::new("true");
    let opened = fixture.open().await.unwrap();
    opened.handle.send(fixture.mission("once")).await.unwrap();
    let again = opened.handle.send(fixture.mission("once")).await;
    let exists = Refusal::MissionExists { mission: MissionId(1) };
    assert!(matches!(&again, Err(Error::Refused(refusal)) if *refusal == exists), "{again:?}");
    opened.handle.shut_down();
    soon("the end", opened.conductor.ended()).await.unwrap();
}

/// Another machine took over: what this conductor decides from now on does not count, so nobody
/// may hear that it does. It ends, and its journal is what the other one wrote.
#[tokio::test]
async fn a_conductor_that_lost_its_store_acknowledges_nothing_and_ends() {
    let fixture = Fixture::new("true");
    let opened = fixture.open().await.unwrap();
    opened.handle.send(team()).await.unwrap();
    let path = store_path(&fixture.state_dir());
    let before = Reader::open(&path).unwrap().head().unwrap();
    Sqlite::open(&path).unwrap().claim_epoch().unwrap();

    let refused = soon("an answer", opened.handle.send(fixture.mission("late"))).await;
    assert!(matches!(refused, Err(Error::Stopped)), "{refused:?}");
    let ended = soon("the end", opened.conductor.ended()).await;
    let stale = matches!(ended, Err(Error::Store(kapelle_store::Error::StaleEpoch { .. })));
    assert!(stale, "{ended:?}");
    assert_eq!(Reader::open(&path).unwrap().head().unwrap(), before);
    let after = opened.handle.send(team()).await;
    assert!(matches!(after, Err(Error::Stopped)), "{after:?}");
    assert!(opened.handle.look(|_| ()).await.is_err(), "its state ran ahead of the journal");
}

/// A bug in the loop must not leave those waiting who wait for it, and the next conductor goes on.
#[tokio::test]
async fn a_conductor_that_panics_is_told_to_have_stopped() {
    let fixture = Fixture::new("true");
    let opened = fixture.open().await.unwrap();
    opened.handle.send(team()).await.unwrap();
    let look = opened.handle.look(|_| panic!("in the loop, on purpose"));
    assert!(matches!(soon("an answer", look).await, Err(Error::Stopped)));
    has_stopped_and_can_be_followed(&fixture, opened).await;
}

async fn has_stopped_and_can_be_followed(fixture: &Fixture, opened: Opened) {
    let ended = soon("the end", opened.conductor.ended()).await;
    assert!(matches!(ended, Err(Error::Stopped)), "{ended:?}");
    drop(opened.leadership);
    let again = fixture.open().await.unwrap();
    again.handle.shut_down();
    soon("the end", again.conductor.ended()).await.unwrap();
}

/// The loop has a thread of its own, and what it starts runs elsewhere: without that there is
/// nothing left to conduct, and the store is given up.
#[test]
fn a_conductor_ends_with_its_runtime() {
    let fixture = Fixture::new("true");
    let start = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (first, second) = (start(), start());
    let opened = first.block_on(async {
        let opened = fixture.open().await.unwrap();
        opened.handle.send(team()).await.unwrap();
        opened
    });
    drop(first);
    second.block_on(has_stopped_and_can_be_followed(&fixture, opened));
}

/// Followers see every record once and in order; that is what the dashboard is made of.
#[tokio::test]
async fn followers_see_every_record_once_and_in_order() {
    let fixture = Fixture::new("echo x > x.txt");
    let opened = fixture.open().await.unwrap();
    let mut commits = opened.handle.follow();
    opened.handle.send(team()).await.unwrap();
    opened.handle.send(fixture.mission("follow")).await.unwrap();
    let mut seen: Vec<Seq> = Vec::new();
    loop {
        let records = soon("a commit", commits.recv()).await.unwrap();
        seen.extend(records.iter().map(|record| record.seq));
        let mission = opened.handle.look(|state| state.mission(MissionId(1)).cloned()).await;
        let mission = mission.unwrap().unwrap();
        if let kapelle_core::mission::MissionStage::Proposed { commit } = mission.stage {
            let approve = Command::ApproveDelivery { mission: mission.id, commit, by: me() };
            // A second look may come before the delivery; it is refused, and that is fine.
            let _ = opened.handle.send(approve).await;
        } else if mission.has_ended() {
            break;
        }
    }
    opened.handle.shut_down();
    soon("the end", opened.conductor.ended()).await.unwrap();
    while let Ok(records) = commits.try_recv() {
        seen.extend(records.iter().map(|record| record.seq));
    }
    let first = seen[0].0;
    let expected: Vec<Seq> = (first..first + seen.len() as u64).map(Seq).collect();
    assert_eq!(seen, expected);
    let head = Reader::open(&store_path(&fixture.state_dir())).unwrap().head().unwrap();
    assert_eq!(seen.last(), Some(&head.seq));
}
