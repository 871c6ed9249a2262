//! Locks that a crash left: our own are freed, a person's never.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::fixture::{Fixture, write};

/// Long enough ago that no git can still be at it.
fn left_long_ago(lock: &Path) -> File {
    write(lock, "");
    let file = File::options().write(true).open(lock).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3_600)).unwrap();
    file
}

/// A crash in the middle of moving a branch would block the mission until somebody knows git well.
#[tokio::test]
async fn locks_of_our_own_references_are_freed() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    let ours = ["refs/heads/kapelle/m1.lock", "refs/kapelle/changes/m1/1/7.lock"];
    let ours = ours.map(|name| repo.git_dir().join(name));
    let theirs = ["index.lock", "refs/heads/work.lock", "packed-refs.lock"];
    let theirs = theirs.map(|name| repo.git_dir().join(name));
    ours.iter().chain(&theirs).for_each(|lock| drop(left_long_ago(lock)));
    assert!(repo.create_branch("kapelle/m1", &fixture.head()).await.is_err());

    let mut freed = repo.free_stale_locks().await.unwrap();
    freed.sort();
    assert_eq!(freed, ours);
    assert!(theirs.iter().all(|lock| lock.exists()), "a person may be at work");
    repo.create_branch("kapelle/m1", &fixture.head()).await.unwrap();
}

/// A lock that somebody has open is not stale, whatever its age.
#[tokio::test]
async fn a_lock_that_is_held_stays() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    let held = left_long_ago(&repo.git_dir().join("refs/heads/kapelle/m1.lock"));
    assert_eq!(repo.free_stale_locks().await.unwrap(), Vec::<std::path::PathBuf>::new());
    drop(held);
    assert_eq!(repo.free_stale_locks().await.unwrap().len(), 1);
}

/// A delivery is cut short in the person's own checkout; the lock it left is known to be ours.
#[tokio::test]
async fn the_index_of_an_unfinished_delivery_is_freed() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    let lock = repo.git_dir().join("index.lock");
    drop(left_long_ago(&lock));
    assert!(repo.free_stale_locks().await.unwrap().is_empty(), "nobody knows whose it is");
    fs::write(repo.git_dir().join("kapelle-delivery"), lock.to_str().unwrap()).unwrap();
    assert_eq!(repo.free_stale_locks().await.unwrap(), std::slice::from_ref(&lock));
    drop(left_long_ago(&lock));
    assert!(repo.free_stale_locks().await.unwrap().is_empty(), "the note counts once");

    let note = repo.git_dir().join("kapelle-delivery");
    drop(left_long_ago(&note));
    fs::write(&note, lock.to_str().unwrap()).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(7_200);
    File::options().write(true).open(&note).unwrap().set_modified(long_ago).unwrap();
    assert!(repo.free_stale_locks().await.unwrap().is_empty(), "it was made an hour later");
}
