//! Orphans of earlier runs.

use kapelle_workspace::process::LEASE_VARIABLE;
use kapelle_workspace::reaper::{reap, running};
use kapelle_workspace::{Reaped, spawn};

use crate::fixture::Fixture;

/// Starts a daemon that leaves its group and its parent. The parent ends only when it has.
const DAEMON: &str = "mkfifo pipe; setsid bash -c 'echo > pipe; exec sleep 1000' & read -r < pipe";

/// After a crash only the environment of a daemon still says whose it is.
#[tokio::test]
async fn an_orphan_that_made_itself_independent_is_found_and_killed() {
    let fixture = Fixture::new();
    let other = Fixture::new();
    let repo = fixture.path("repo");
    let mut orphan = std::process::Command::new("bash");
    orphan.args(["-c", DAEMON]).current_dir(&repo);
    orphan.env(LEASE_VARIABLE, fixture.lease().to_string());
    assert!(orphan.status().unwrap().success());
    let mut stranger = spawn(other.shell(&other.path("repo"), "exec sleep 1000")).await.unwrap();
    let store = fixture.lease().store;
    let orphans = running(&store).unwrap();
    let [Reaped { pid, fence }] = orphans[..] else { panic!("{orphans:?}") };
    assert_eq!(fence, fixture.lease().fence);

    assert_eq!(reap(&store).await.unwrap(), [Reaped { pid, fence }]);
    assert_eq!(running(&store).unwrap(), []);
    assert_eq!(running(&other.lease().store).unwrap().len(), 1, "strangers are left alone");
    stranger.stop(std::time::Duration::ZERO).await.unwrap();
}

/// A daemon of an attempt without walls would go on to change files that are being judged. Another
/// attempt of the same lease is none of its business.
#[tokio::test]
async fn what_left_its_group_ends_with_the_process_that_started_it() {
    let fixture = Fixture::new();
    let repo = fixture.path("repo");
    let mut beside = spawn(fixture.shell(&repo, "exec sleep 1000")).await.unwrap();
    let mut started = spawn(fixture.shell(&repo, DAEMON)).await.unwrap();
    assert_eq!(started.wait().await.unwrap().code, Some(0));
    let left: Vec<i32> =
        running(&fixture.lease().store).unwrap().iter().map(|found| found.pid).collect();
    assert_eq!(left, [beside.pid()]);
    beside.stop(std::time::Duration::ZERO).await.unwrap();
}
