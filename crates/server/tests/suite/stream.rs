//! The stream: a snapshot, then what changes, so that a page that folds it is never wrong.

use std::collections::BTreeMap;

use kapelle_core::mission::MissionStatus;
use kapelle_server::wire::{Agent, Mission, Overview, Task, Update};
use kapelle_server::{Client, wire};

use crate::fixture::{Fixture, Stream, TOKEN, soon};

/// What a page knows: a snapshot, with every update put over it.
#[derive(Debug, PartialEq)]
struct Page {
    seq: u64,
    missions: BTreeMap<String, Mission>,
    tasks: BTreeMap<u32, Task>,
    agents: Vec<Agent>,
    cost: wire::Cost,
    lines: Vec<u64>,
}

impl Page {
    fn of(overview: Overview) -> Page {
        Page {
            seq: overview.seq,
            missions: overview.missions.into_iter().map(|one| (one.id.clone(), one)).collect(),
            tasks: overview.tasks.into_iter().map(|one| (one.id, one)).collect(),
            agents: overview.agents,
            cost: overview.cost,
            lines: overview.activity.iter().map(|line| line.seq).collect(),
        }
    }

    async fn begin(stream: &mut Stream) -> Page {
        let event = stream.next().await;
        assert_eq!(event.kind, "snapshot");
        let overview: Overview = serde_json::from_str(&event.data).unwrap();
        assert_eq!(event.id, overview.seq);
        Page::of(overview)
    }

    /// Takes the next update.
    async fn follow(&mut self, stream: &mut Stream) {
        let event = stream.next().await;
        assert_eq!(event.kind, "update");
        let update: Update = serde_json::from_str(&event.data).unwrap();
        assert_eq!(event.id, update.seq);
        assert!(update.seq > self.seq, "{} after {}", update.seq, self.seq);
        self.seq = update.seq;
        self.missions.extend(update.missions.into_iter().map(|one| (one.id.clone(), one)));
        self.tasks.extend(update.tasks.into_iter().map(|one| (one.id, one)));
        self.agents = update.agents;
        self.cost = update.cost;
        self.lines.extend(update.activity.iter().map(|line| line.seq));
    }

    fn status(&self) -> Option<MissionStatus> {
        self.missions.get("m1").map(|mission| mission.status)
    }
}

async fn approve(fixture: &Fixture) {
    let commit = crate::fixture::git(&fixture.repo(), &["rev-parse", "kapelle/m1"]);
    let approve = wire::Ask::Approve { mission: "m1".into(), commit, by: "ada".into() };
    let client = Client::new(&fixture.url(), TOKEN);
    soon("the approval", client.ask(&approve)).await.unwrap();
}

/// A page that was open from the start shows in the end what a page that is opened then shows.
#[tokio::test]
async fn a_page_that_follows_the_updates_ends_with_the_truth() {
    let fixture = Fixture::new(r#"echo "$KAPELLE_TASK" > "$KAPELLE_TASK.txt""#).await;
    let mut stream = fixture.stream().await;
    let mut page = Page::begin(&mut stream).await;
    assert_eq!(page.status(), None);
    fixture.mission("one").await;
    while page.status() != Some(MissionStatus::AwaitingApproval) {
        page.follow(&mut stream).await;
    }
    approve(&fixture).await;
    while page.status() != Some(MissionStatus::Delivered) {
        page.follow(&mut stream).await;
    }
    let fresh = Page::of(fixture.overview().await);
    assert_eq!(page, fresh);
    assert!(page.tasks.values().all(|task| task.commit.is_some()), "{page:?}");
    assert!(page.lines.is_sorted(), "{:?}", page.lines);
    fixture.end().await;
}

/// A browser that was away for a while starts anew, and misses nothing that still matters.
#[tokio::test]
async fn whoever_comes_back_gets_a_new_snapshot() {
    let fixture = Fixture::new(r#"echo "$KAPELLE_TASK" > "$KAPELLE_TASK.txt""#).await;
    let mut early = fixture.stream().await;
    let mut page = Page::begin(&mut early).await;
    fixture.mission("one").await;
    page.follow(&mut early).await;
    drop(early);
    let mut late = fixture.stream().await;
    let mut again = Page::begin(&mut late).await;
    assert!(again.seq >= page.seq, "{} is older than {}", again.seq, page.seq);
    assert_eq!(again.tasks.len(), 2);
    while again.status() != Some(MissionStatus::AwaitingApproval) {
        again.follow(&mut late).await;
    }
    assert_eq!(again, Page::of(fixture.overview().await));
    fixture.end().await;
}

/// Two pages side by side show the same, whenever they were opened.
#[tokio::test]
async fn all_watchers_see_the_same() {
    let fixture = Fixture::new(r#"echo "$KAPELLE_TASK" > "$KAPELLE_TASK.txt""#).await;
    let mut streams = [fixture.stream().await, fixture.stream().await];
    let [first, second] = &mut streams;
    let mut pages = (Page::begin(first).await, Page::begin(second).await);
    fixture.mission("one").await;
    while pages.0.status() != Some(MissionStatus::AwaitingApproval) {
        pages.0.follow(first).await;
    }
    while pages.1.status() != Some(MissionStatus::AwaitingApproval) {
        pages.1.follow(second).await;
    }
    assert_eq!(pages.0, pages.1);
    fixture.end().await;
}
