//! The door: who gets in, and what is said to the others.

use kapelle_server::wire::Problem;

use crate::fixture::{Answer, Fixture, TOKEN};

fn problem(answer: &Answer) -> String {
    let problem: Problem = serde_json::from_str(&answer.body)
        .unwrap_or_else(|e| panic!("{e} in {:?} ({})", answer.body, answer.status));
    problem.error
}

/// A page from anywhere can point its own name at 127.0.0.1 and then read what is served there;
/// its requests carry that name.
#[tokio::test]
async fn other_names_are_refused_for_everything() {
    let fixture = Fixture::new("true").await;
    for host in ["evil.example", "127.0.0.1.evil.example:80", "192.168.0.1", ""] {
        for line in ["GET /api/v1/overview", "GET /api/v1/stream", "GET /", "POST /api/v1/commands"]
        {
            let answer = fixture.send(line, &format!("Host: {host}\r\n"), "").await;
            assert_eq!(answer.status, 403, "{line} with {host:?}");
            assert_eq!(problem(&answer), "only loopback names are served here");
        }
    }
    let answer = fixture.send("GET /api/v1/overview", "Host: localhost\r\n", "").await;
    assert_eq!(answer.status, 200);
    fixture.end().await;
}

/// Other pages and other users of the machine can reach the port, but not read the token.
#[tokio::test]
async fn nothing_is_changed_without_the_token() {
    let fixture = Fixture::new("true").await;
    fixture.mission("one").await;
    let pause = r#"{"do": "pause", "mission": "m1", "reason": "x", "by": "mallory"}"#;
    let short = &TOKEN[1..];
    let tries = [
        String::new(),
        "Authorization: Bearer \r\n".to_owned(),
        format!("Authorization: Bearer {short}\r\n"),
        format!("Authorization: Bearer {TOKEN}0\r\n"),
        format!("Authorization: Basic {TOKEN}\r\n"),
        format!("Cookie: token={TOKEN}\r\n"),
    ];
    for headers in &tries {
        for line in ["POST /api/v1/commands", "DELETE /api/v1/overview", "PUT /"] {
            let headers = format!("{headers}Content-Type: application/json\r\n");
            let answer = fixture.send(line, &headers, pause).await;
            assert_eq!(answer.status, 401, "{line} with {headers:?}");
            assert!(problem(&answer).contains("token"), "{}", answer.body);
        }
    }
    let mission = &fixture.overview().await.missions[0];
    assert_eq!(mission.status_reason, None, "it was paused all the same");
    let answer = fixture.post(pause).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(fixture.overview().await.missions[0].status_reason.as_deref(), Some("x"));
    fixture.end().await;
}

/// Everything that is served may end up in a browser: nobody frames it, sniffs it, or lets it
/// load something from elsewhere.
#[tokio::test]
async fn every_answer_carries_the_headers_that_protect_a_browser() {
    let fixture = Fixture::new("true").await;
    for path in ["/", "/nothing/here", "/api/v1/overview"] {
        let answer = fixture.get(path).await;
        let header = |name: &str| answer.headers.get(name).map(String::as_str).unwrap_or_default();
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(header("referrer-policy"), "no-referrer", "{path}");
        let policy = header("content-security-policy");
        assert!(policy.contains("default-src 'self'"), "{path}: {policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
    }
    // What is live must not be shown from a cache.
    let overview = fixture.get("/api/v1/overview").await;
    let cache = overview.headers.get("cache-control").map(String::as_str);
    assert!(matches!(cache, Some("no-store" | "no-cache")), "{cache:?}");
    fixture.end().await;
}

/// A typing error in a script must not look like an empty answer.
#[tokio::test]
async fn unknown_paths_are_not_found() {
    let fixture = Fixture::new("true").await;
    for path in ["/api/v1/nothing", "/api/v2/overview", "/nothing.html", "/../../etc/passwd"] {
        assert_eq!(fixture.get(path).await.status, 404, "{path}");
    }
    assert_eq!(fixture.get("/").await.status, 200);
    let authorized = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(fixture.send("POST /api/v1/overview", &authorized, "").await.status, 405);
    fixture.end().await;
}
