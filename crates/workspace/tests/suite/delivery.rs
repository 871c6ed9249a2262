//! Delivery into a person's own branch, checked out or not.

use std::fs;

use kapelle_core::Commit;
use kapelle_workspace::Delivery;

use crate::fixture::{Fixture, write};

/// A commit on top of `main` that changes the readme, on a branch of its own.
fn change(fixture: &Fixture) -> Commit {
    fixture.git(&["checkout", "--quiet", "-b", "work"]);
    let change = fixture.commit("readme", "two\n");
    fixture.git(&["checkout", "--quiet", "main"]);
    change
}

#[tokio::test]
async fn a_checked_out_branch_moves_with_its_files() {
    let fixture = Fixture::new();
    let (repo, change) = (fixture.open().await, change(&fixture));
    assert_eq!(repo.deliver("main", &change).await.unwrap(), Delivery::Delivered);
    assert_eq!(fs::read_to_string(fixture.path("repo/readme")).unwrap(), "two\n");
    assert_eq!(fixture.git(&["status", "--porcelain"]), "");
    assert_eq!(repo.deliver("main", &change).await.unwrap(), Delivery::Delivered);
}

#[tokio::test]
async fn a_branch_that_nobody_has_checked_out_just_moves() {
    let fixture = Fixture::new();
    let (repo, change) = (fixture.open().await, change(&fixture));
    fixture.git(&["checkout", "--quiet", "--detach"]);
    assert_eq!(repo.deliver("main", &change).await.unwrap(), Delivery::Delivered);
    assert_eq!(repo.branch_tip("main").await.unwrap(), Some(change));
    assert_eq!(fs::read_to_string(fixture.path("repo/readme")).unwrap(), "one\n");
}

/// Somebody's unsaved work is worth more than our delivery.
#[tokio::test]
async fn local_changes_in_the_way_are_kept_and_named() {
    let fixture = Fixture::new();
    let (repo, change) = (fixture.open().await, change(&fixture));
    write(&fixture.path("repo/readme"), "mine\n");
    let before = repo.branch_tip("main").await.unwrap();
    let Delivery::Refused { reason } = repo.deliver("main", &change).await.unwrap() else {
        panic!("delivered over local changes")
    };
    assert!(reason.contains("readme") && reason.contains("approve again"), "{reason}");
    assert_eq!(fs::read_to_string(fixture.path("repo/readme")).unwrap(), "mine\n");
    assert_eq!(repo.branch_tip("main").await.unwrap(), before);
}

/// Ignored files are local settings and notes: they have no copy in git, and git alone would
/// overwrite them without a word.
#[tokio::test]
async fn ignored_files_in_the_way_are_kept_and_named() {
    let fixture = Fixture::new();
    fixture.commit(".gitignore", "notes\nlocal/\n");
    fixture.git(&["checkout", "--quiet", "-b", "work"]);
    fixture.commit(".gitignore", "");
    fixture.commit("notes", "theirs\n");
    let change = fixture.commit("local", "a file in the place of a directory\n");
    fixture.git(&["checkout", "--quiet", "main"]);
    let repo = fixture.open().await;
    let before = repo.branch_tip("main").await.unwrap();
    for mine in ["repo/notes", "repo/local/settings"] {
        write(&fixture.path(mine), "mine\n");
        let Delivery::Refused { reason } = repo.deliver("main", &change).await.unwrap() else {
            panic!("delivered over {mine}")
        };
        let name = if mine == "repo/notes" { "notes" } else { "local" };
        assert!(reason.contains(name), "{reason}");
        assert_eq!(fs::read_to_string(fixture.path(mine)).unwrap(), "mine\n");
        assert_eq!(repo.branch_tip("main").await.unwrap(), before);
        fs::remove_file(fixture.path(mine)).unwrap();
    }
}

#[tokio::test]
async fn a_branch_that_has_gone_on_is_left_alone() {
    let fixture = Fixture::new();
    let (repo, change) = (fixture.open().await, change(&fixture));
    let gone_on = fixture.commit("other", "else\n");
    let refused = repo.deliver("main", &change).await.unwrap();
    assert!(matches!(refused, Delivery::Refused { reason } if reason.contains("gone on")));
    assert_eq!(repo.branch_tip("main").await.unwrap(), Some(gone_on));
    let nowhere = repo.deliver("nowhere", &change).await.unwrap();
    assert!(matches!(nowhere, Delivery::Refused { .. }));
}

#[tokio::test]
async fn filters_are_for_the_persons_own_git() {
    let fixture = Fixture::new();
    let (repo, change) = (fixture.open().await, change(&fixture));
    fixture.git(&["config", "filter.upper.smudge", "tr a-z A-Z"]);
    let refused = repo.deliver("main", &change).await.unwrap();
    assert!(matches!(refused, Delivery::Refused { reason } if reason.contains("filters")));
}

#[tokio::test]
async fn what_is_held_survives_gc() {
    let fixture = Fixture::new();
    let (repo, change) = (fixture.open().await, change(&fixture));
    repo.hold("changes/m1/1/7", &change).await.unwrap();
    fixture.git(&["branch", "--quiet", "-D", "work"]);
    fixture.git(&["reflog", "expire", "--expire=now", "--all"]);
    fixture.git(&["gc", "--quiet", "--prune=now"]);
    assert_eq!(fixture.git(&["cat-file", "-t", change.as_str()]), "commit");
}

/// Whoever moves the state folder away begins again at mission 1; what the missions before left is
/// still somebody's work.
#[tokio::test]
async fn what_is_held_is_never_overwritten() {
    let fixture = Fixture::new();
    let (repo, change) = (fixture.open().await, change(&fixture));
    let earlier = fixture.head();
    repo.hold("changes/m1/1/7", &earlier).await.unwrap();
    for _again in 0..2 {
        repo.hold("changes/m1/1/7", &change).await.unwrap();
    }
    let held = fixture.git(&["for-each-ref", "--format=%(objectname) %(refname)", "refs/kapelle"]);
    let expected =
        format!("{earlier} refs/kapelle/changes/m1/1/7\n{change} refs/kapelle/changes/m1/1/7-2");
    assert_eq!(held, expected);
}
