//! Commands over HTTP: what people ask for from the dashboard or the command line.

use kapelle_core::mission::MissionStatus;
use kapelle_server::Client;
use kapelle_server::client::Error;
use kapelle_server::wire::{Ask, Problem};

use crate::fixture::{Fixture, TOKEN, soon};

/// A body that is not understood is answered with why, in the form that all errors have.
#[tokio::test]
async fn bad_bodies_are_refused_readably() {
    let fixture = Fixture::new("true").await;
    fixture.mission("one").await;
    let cases = [
        ("{ not json", 400),
        ("", 400),
        (r#"{"do": "explode", "mission": "m1"}"#, 422),
        (r#"{"do": "pause", "mission": "m1"}"#, 422),
        (r#"{"do": "pause", "mission": "m1", "reason": "x", "by": "a", "more": 1}"#, 422),
        (r#"{"do": "pause", "mission": "one", "reason": "x", "by": "a"}"#, 400),
        (r#"{"do": "approve", "mission": "m1", "commit": "HEAD", "by": "a"}"#, 400),
        (r#"{"do": "pause", "mission": "m9", "reason": "x", "by": "a"}"#, 409),
        (r#"{"do": "pause", "mission": "m1", "reason": " ", "by": "a"}"#, 409),
        (r#"{"do": "answer", "task": 1, "resume_id": "q", "input": "x", "by": "a"}"#, 409),
    ];
    for (body, status) in cases {
        let answer = fixture.post(body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
        let problem: Problem = serde_json::from_str(&answer.body)
            .unwrap_or_else(|e| panic!("{e} in the answer to {body}: {:?}", answer.body));
        assert!(!problem.error.is_empty(), "{body}");
    }
    assert_eq!(fixture.overview().await.missions[0].status_reason, None);
    fixture.end().await;
}

/// Nobody needs a large body here, so nobody may make us hold one.
#[tokio::test]
async fn large_bodies_are_refused() {
    let fixture = Fixture::new("true").await;
    fixture.mission("one").await;
    let reason = "x".repeat(100 * 1024);
    let body = format!(r#"{{"do": "pause", "mission": "m1", "reason": "{reason}", "by": "a"}}"#);
    let answer = fixture.post(&body).await;
    assert_eq!(answer.status, 413, "{}", answer.body);
    let problem: Problem = serde_json::from_str(&answer.body).unwrap();
    assert!(!problem.error.is_empty());
    // Small enough to be read, and still too much to be recorded.
    let reason = "x".repeat(10 * 1024);
    let body = format!(r#"{{"do": "pause", "mission": "m1", "reason": "{reason}", "by": "a"}}"#);
    assert_eq!(fixture.post(&body).await.status, 409);
    fixture.end().await;
}

/// What the client of the command line asks for is done when it is answered.
#[tokio::test]
async fn the_client_is_answered_when_it_is_done() {
    let fixture = Fixture::new("sleep 1000").await;
    fixture.mission("one").await;
    let client = Client::new(&fixture.url(), TOKEN);
    let (mission, by) = (|| "m1".to_owned(), || "ada".to_owned());
    let asked = Ask::Pause { mission: mission(), reason: "lunch".into(), by: by() };
    let done = soon("an answer", client.ask(&asked)).await.unwrap();
    let overview = soon("an overview", client.overview()).await.unwrap();
    assert_eq!(overview.missions[0].status, MissionStatus::Paused);
    assert!(done.seq > 0);
    let again = soon("an answer", client.ask(&asked)).await;
    assert!(
        matches!(&again, Err(Error::Refused(said)) if said == "m1 is already paused"),
        "{again:?}"
    );
    client.ask(&Ask::Resume { mission: mission(), by: by() }).await.unwrap();
    let cancel = Ask::Cancel { mission: mission(), reason: "enough".into(), by: by() };
    client.ask(&cancel).await.unwrap();
    let overview = client.overview().await.unwrap();
    assert_eq!(overview.missions[0].status, MissionStatus::Cancelled);
    assert_eq!(overview.missions[0].status_reason.as_deref(), Some("enough"));

    let stranger = Client::new(&fixture.url(), "wrong");
    let refused = stranger.ask(&cancel).await;
    assert!(matches!(&refused, Err(Error::Unauthorised { .. })), "{refused:?}");
    fixture.end().await;
}

/// After the conductor has ended there is nothing to answer from, and the server says so.
#[tokio::test]
async fn without_a_conductor_the_server_says_so() {
    let fixture = Fixture::new("true").await;
    fixture.mission("one").await;
    let handle = fixture.handle().clone();
    handle.shut_down();
    soon("the end", async { while handle.look(|_| ()).await.is_ok() {} }).await;
    let answer = fixture.get("/api/v1/overview").await;
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert!(answer.body.contains("the conductor has stopped"), "{}", answer.body);
    fixture.end().await;
}
