//! Checks on exactly one commit.

use std::time::Duration;

use kapelle_workspace::Confinement;
use kapelle_workspace::check::{Check, run};

use crate::fixture::{Fixture, path_only, sandbox};

async fn check(fixture: &Fixture, command: &str) -> Check {
    Check {
        command: command.into(),
        timeout: Duration::from_secs(60),
        env: path_only(),
        readable: Vec::new(),
        confinement: Confinement::Sandboxed(sandbox().await),
        lease: fixture.lease(),
        log: fixture.path("log"),
    }
}

/// Only checked commits land, so a check must see that commit, and nothing of what is around.
#[tokio::test]
async fn a_check_sees_exactly_its_commit() {
    let fixture = Fixture::new();
    let commit = fixture.commit("a", "old\n");
    fixture.commit("a", "new\n");
    std::fs::write(fixture.path("repo/untracked"), "").unwrap();
    let repo = fixture.open().await;
    let command =
        "grep -q old a && test ! -e untracked && git status --porcelain && git rev-parse HEAD";
    let ran = run(&repo, &fixture.path("check"), &commit, &check(&fixture, command).await).await;
    let ran = ran.unwrap();
    assert!(ran.passed, "{ran:?}");
    assert_eq!(ran.tail, format!("{commit}\n"));
}

/// What a failed check says is what the next attempt has to work with.
#[tokio::test]
async fn a_failure_is_reported_and_nothing_stays_behind() {
    let fixture = Fixture::new();
    let (repo, commit) = (fixture.open().await, fixture.head());
    let failing = check(&fixture, "touch made; echo because; exit 4").await;
    let ran = run(&repo, &fixture.path("check"), &commit, &failing).await.unwrap();
    assert_eq!((ran.passed, ran.exit.code, ran.tail.as_str()), (false, Some(4), "because\n"));
    assert_eq!(std::fs::read_dir(fixture.path("check")).unwrap().count(), 0);
    assert_eq!(fixture.git(&["worktree", "list", "--porcelain"]).matches("worktree ").count(), 1);
}

#[tokio::test]
async fn a_check_that_hangs_has_failed() {
    let fixture = Fixture::new();
    let (repo, commit) = (fixture.open().await, fixture.head());
    let mut hanging = check(&fixture, "sleep 1000").await;
    hanging.timeout = Duration::from_millis(200);
    let ran = run(&repo, &fixture.path("check"), &commit, &hanging).await.unwrap();
    assert!(!ran.passed && ran.exit.timed_out, "{ran:?}");
}
