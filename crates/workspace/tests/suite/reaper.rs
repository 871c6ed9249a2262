//! Orphans of earlier runs.

use kapelle_workspace::reaper::{reap, running};
use kapelle_workspace::{Reaped, spawn};

use crate::fixture::Fixture;

/// A daemon leaves its group and its parent; only its environment still says whose it is.
#[tokio::test]
async fn an_orphan_that_made_itself_independent_is_found_and_killed() {
    let fixture = Fixture::new();
    let other = Fixture::new();
    // The parent ends only when the daemon has left its group.
    let command = "mkfifo pipe; setsid bash -c 'echo > pipe; exec sleep 1000' & read -r < pipe";
    let mut started = spawn(fixture.shell(&fixture.path("repo"), command)).await.unwrap();
    let mut stranger = spawn(other.shell(&other.path("repo"), "exec sleep 1000")).await.unwrap();
    started.wait().await.unwrap();
    let store = fixture.lease().store;
    let orphans = running(&store).unwrap();
    let [Reaped { pid, fence }] = orphans[..] else { panic!("{orphans:?}") };
    assert_eq!(fence, fixture.lease().fence);

    assert_eq!(reap(&store).await.unwrap(), [Reaped { pid, fence }]);
    assert_eq!(running(&store).unwrap(), []);
    assert_eq!(running(&other.lease().store).unwrap().len(), 1, "strangers are left alone");
    stranger.stop(std::time::Duration::ZERO).await.unwrap();
}
