//! Agents in sessions that a person can look into.

use kapelle_workspace::Spec;
use kapelle_workspace::reaper::running;
use kapelle_workspace::tmux::{Error, Tmux};

use crate::fixture::{Fixture, prepared, sandbox};

fn spec(fixture: &Fixture, command: &str) -> Spec {
    fixture.shell(&fixture.path("repo"), command)
}

/// Sockets have short paths; a temporary directory of the build has not.
fn short() -> tempfile::TempDir {
    tempfile::tempdir_in("/tmp").unwrap()
}

#[tokio::test]
async fn a_session_runs_its_command_and_its_output_is_collected() {
    let (fixture, dir) = (Fixture::new(), short());
    let tmux = Tmux::at(&dir.path().join("s"));
    let command =
        "test \"$KAPELLE_LEASE\" && test -t 0 && echo \"it's at a terminal\" in $PWD; exit 5";
    let session = tmux.start("developer-1", &spec(&fixture, command)).await.unwrap();
    assert_eq!(session.wait().await.unwrap(), Some(5));
    let log = std::fs::read_to_string(fixture.path("log")).unwrap();
    assert!(log.contains("it's at a terminal in "), "{log:?}");
}

#[tokio::test]
async fn a_session_that_is_ended_has_no_exit_code() {
    let (fixture, dir) = (Fixture::new(), short());
    let tmux = Tmux::at(&dir.path().join("s"));
    let session = tmux.start("tester-1", &spec(&fixture, "exec sleep 1000")).await.unwrap();
    assert_eq!(tmux.sessions().await.unwrap(), ["tester-1"]);
    session.stop().await.unwrap();
    assert_eq!(kapelle_workspace::reaper::running(&fixture.lease().store).unwrap(), []);
    session.stop().await.unwrap();
    assert_eq!(session.wait().await.unwrap(), None);
    assert_eq!(tmux.sessions().await.unwrap(), Vec::<String>::new());
}

/// As outside of sessions: `kill -9` of whoever started it ends it. The kernel lets go of a lock the
/// same way then.
#[tokio::test]
async fn a_session_does_not_outlive_its_owner() {
    let (fixture, dir) = (Fixture::new(), short());
    let tmux = Tmux::at(&dir.path().join("s"));
    let (worktree, walls) = prepared(&fixture).await;
    let command = "trap '' HUP TERM; echo begun; setsid sleep 1000 & sleep 1000";
    let boxed = sandbox().await.wrap(fixture.shell(worktree.dir(), command), &walls).unwrap();
    let store = fixture.lease().store;
    let session = tmux.start("developer-1", &boxed).await.unwrap();
    until(|| std::fs::read_to_string(&boxed.log).is_ok_and(|log| log.contains("begun"))).await;
    assert!(running(&store).unwrap().len() >= 4);
    drop(session);
    until(|| running(&store).unwrap().is_empty()).await;
    assert_eq!(tmux.sessions().await.unwrap(), Vec::<String>::new());
}

/// Waits for something that others do.
async fn until(happened: impl Fn() -> bool) {
    let waiting = async {
        while !happened() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), waiting).await.unwrap();
}

/// The tenth developer is not the first, even when the first is gone.
#[tokio::test]
async fn ending_a_session_leaves_its_namesakes_alone() {
    let (fixture, dir) = (Fixture::new(), short());
    let tmux = Tmux::at(&dir.path().join("s"));
    let ended = tmux.start("developer-1", &spec(&fixture, "exit 3")).await.unwrap();
    let exit = ended.exit(&spec(&fixture, "exit 3")).await.unwrap();
    assert_eq!((exit.code, exit.signal), (Some(3), None));
    let other = Spec { log: fixture.path("other.log"), ..spec(&fixture, "exec sleep 1000") };
    let mut lease = other.lease.clone();
    lease.fence = kapelle_core::Fence(8);
    let tenth = tmux.start("developer-10", &Spec { lease, ..other }).await.unwrap();
    ended.stop().await.unwrap();
    assert_eq!(tmux.sessions().await.unwrap(), ["developer-10"]);
    tenth.stop().await.unwrap();
}

/// Whoever is late with ending an attempt must not end the next one in its seat.
#[tokio::test]
async fn ending_a_session_late_leaves_the_next_in_its_seat_alone() {
    let (fixture, dir) = (Fixture::new(), short());
    let tmux = Tmux::at(&dir.path().join("s"));
    let first = tmux.start("developer-1", &spec(&fixture, "exit 0")).await.unwrap();
    first.exit(&spec(&fixture, "exit 0")).await.unwrap();
    let next = Spec { log: fixture.path("next.log"), ..spec(&fixture, "exec sleep 1000") };
    let mut lease = next.lease.clone();
    lease.fence = kapelle_core::Fence(8);
    let next = tmux.start("developer-1", &Spec { lease, ..next }).await.unwrap();
    first.stop().await.unwrap();
    assert_eq!(tmux.sessions().await.unwrap(), ["developer-1"]);
    next.stop().await.unwrap();
    assert_eq!(tmux.sessions().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_name_cannot_be_more_than_a_name() {
    let (fixture, dir) = (Fixture::new(), short());
    let tmux = Tmux::at(&dir.path().join("s"));
    for name in ["", "a;b", "a:1", "$(x)"] {
        let refused = tmux.start(name, &spec(&fixture, "true")).await;
        assert!(matches!(refused, Err(Error::Name { .. })), "{name:?}");
    }
}
