//! Locks that a crash left: our own are freed, a person's never.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use kapelle_workspace::Repository;

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

/// What an earlier run noted before it took these locks.
fn note(repo: &Repository, locks: &[&Path]) -> PathBuf {
    let note = repo.git_dir().join("kapelle/lock-1-0");
    let lines = locks.iter().map(|lock| format!("{}\n", lock.display()));
    write(&note, &lines.collect::<String>());
    note
}

fn made(path: &Path, seconds_ago: u64) {
    let at = SystemTime::now() - Duration::from_secs(seconds_ago);
    File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
}

/// A delivery is cut short in the person's own checkout; the lock it left is known to be ours. So
/// are those of a branch that has any other name, and of all references together.
#[tokio::test]
async fn locks_that_were_noted_before_they_were_taken_are_freed() {
    for name in ["index.lock", "refs/heads/feature/m1.lock", "packed-refs.lock"] {
        let fixture = Fixture::new();
        let repo = fixture.open().await;
        let lock = repo.git_dir().join(name);
        drop(left_long_ago(&lock));
        assert!(repo.free_stale_locks().await.unwrap().is_empty(), "nobody knows whose it is");
        made(&note(&repo, &[&lock]), 3_601);
        assert_eq!(repo.free_stale_locks().await.unwrap(), std::slice::from_ref(&lock));
        drop(left_long_ago(&lock));
        assert!(repo.free_stale_locks().await.unwrap().is_empty(), "the note counts once");
        made(&note(&repo, &[&lock]), 7_200);
        assert!(repo.free_stale_locks().await.unwrap().is_empty(), "it was made an hour later");
        made(&note(&repo, &[&lock]), 3_000);
        assert!(repo.free_stale_locks().await.unwrap().is_empty(), "it was there before");
    }
}

/// A note is a file that anybody can write: it frees locks of references, and nothing else.
#[tokio::test]
async fn a_note_frees_nothing_but_locks_of_this_repository() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    for name in
        ["config.lock", "refs/heads/main", "refs/heads/../../config.lock", "MERGE_HEAD.lock"]
    {
        let file = repo.git_dir().join(name);
        let before = fs::read(&file).ok();
        drop(left_long_ago(&file));
        if let Some(text) = &before {
            fs::write(&file, text).unwrap();
        }
        made(&file, 3_600);
        made(&note(&repo, &[&file]), 3_601);
        assert!(repo.free_stale_locks().await.unwrap().is_empty(), "{name}");
        assert!(file.exists());
    }
}

/// Only index files of ours are cleared away: a person may keep anything beside them.
#[tokio::test]
async fn nothing_but_our_own_index_files_is_cleared_away() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    let place = repo.git_dir().join("kapelle");
    let ours = ["index-1-0", "index-1-0.lock"].map(|name| place.join(name));
    let theirs = ["notes", "index", "index-of-books.txt", "index-1-x"].map(|name| place.join(name));
    ours.iter().chain(&theirs).for_each(|file| drop(left_long_ago(file)));
    repo.free_stale_locks().await.unwrap();
    assert!(ours.iter().all(|file| !file.exists()));
    assert!(theirs.iter().all(|file| file.exists()));
}
