//! Branches, and what may move them.

use std::fs;
use std::process::Command;

use kapelle_workspace::repository::Error;
use kapelle_workspace::{Advance, Repository};

use crate::fixture::{Fixture, git_in};

/// The first thing a person sees of Kapelle may be one of these; each must say what is wrong.
#[tokio::test]
async fn what_cannot_be_worked_on_is_told_apart() {
    let fixture = Fixture::new();
    let outside = tempfile::tempdir().unwrap();
    let opened = Repository::open(outside.path()).await;
    assert!(matches!(opened, Err(Error::NotARepository { .. })), "{opened:?}");

    let bare = fixture.path("bare");
    fs::create_dir(&bare).unwrap();
    git_in(&bare, &["init", "--quiet", "--bare"]);
    let opened = Repository::open(&bare).await;
    assert!(matches!(opened, Err(Error::Bare { .. })), "{opened:?}");

    let empty = fixture.path("empty");
    fs::create_dir(&empty).unwrap();
    git_in(&empty, &["init", "--quiet"]);
    let opened = Repository::open(&empty).await;
    assert!(matches!(opened, Err(Error::NoCommit { .. })), "{opened:?}");
}

#[tokio::test]
async fn a_repository_is_found_from_below_and_described() {
    let fixture = Fixture::new();
    let head = fixture.commit("src/lib.rs", "");
    let repo = Repository::open(&fixture.path("repo/src")).await.unwrap();
    assert_eq!(repo.root(), fixture.path("repo").canonicalize().unwrap());
    assert_eq!(repo.git_dir(), fixture.path("repo/.git").canonicalize().unwrap());
    assert_eq!(repo.head_branch().await.unwrap().as_deref(), Some("main"));
    assert_eq!(repo.resolve("HEAD").await.unwrap(), head);
    assert_eq!(repo.branch_tip("none").await.unwrap(), None);
    let unknown = repo.resolve("--all").await;
    assert!(matches!(unknown, Err(Error::UnknownRevision { .. })), "{unknown:?}");
    let wrong = repo.branch_tip("a..b").await;
    assert!(matches!(wrong, Err(Error::BranchName { .. })), "{wrong:?}");
}

/// Names are judged without a process; git itself says whether that judgement is right.
#[tokio::test]
async fn a_branch_name_is_judged_as_git_judges_it() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    let names = [
        "a", "a/b", "a.b", "@", "ä", "a-", "a@b", "x.locked", "", "/", "a/", "/a", "a//b", ".a",
        "a/.b", "a.", "a..b", "a.lock", "a.lock/b", "a b", "a~1", "a^", "a:b", "a?", "a*", "a[",
        "a\\b", "a@{1}", "a\u{7f}", "a\tb",
    ];
    for name in names {
        let told = repo.branch_tip(name).await;
        let asked = ["check-ref-format", &format!("refs/heads/{name}")];
        let is_fine = Command::new("git").args(asked).status().unwrap().success();
        assert_eq!(!matches!(told, Err(Error::BranchName { .. })), is_fine, "{name:?}: {told:?}");
    }
    let option = repo.branch_tip("-d").await;
    assert!(matches!(option, Err(Error::BranchName { .. })), "{option:?}");
}

/// People have worktrees of their own; HEAD is theirs, the git directory is shared.
#[tokio::test]
async fn a_linked_worktree_is_opened_with_its_own_head() {
    let fixture = Fixture::new();
    let linked = fixture.path("linked");
    fixture.git(&["worktree", "add", "--quiet", "-b", "side", linked.to_str().unwrap()]);
    let main = fixture.commit("later", "");
    let repo = Repository::open(&linked).await.unwrap();
    assert_eq!(repo.head_branch().await.unwrap().as_deref(), Some("side"));
    assert_ne!(repo.resolve("HEAD").await.unwrap(), main);
    assert_eq!(repo.git_dir(), fixture.path("repo/.git").canonicalize().unwrap());
    assert_eq!(repo.checked_out("side").await.unwrap(), Some(linked.canonicalize().unwrap()));
}

/// Landing is compare-and-swap: whoever comes second must hear of it, and change nothing.
#[tokio::test]
async fn a_branch_only_moves_from_where_it_is_believed_to_be() {
    let fixture = Fixture::new();
    let one = fixture.head();
    let two = fixture.commit("two", "");
    let three = fixture.commit("three", "");
    let repo = fixture.open().await;
    repo.create_branch("work", &one).await.unwrap();

    assert_eq!(repo.advance("work", &one, &two).await.unwrap(), Advance::Advanced);
    let moved = repo.advance("work", &one, &three).await.unwrap();
    assert_eq!(moved, Advance::Moved { actual: Some(two.clone()) });
    let absent = repo.advance("absent", &one, &three).await.unwrap();
    assert_eq!(absent, Advance::Moved { actual: None });
    assert_eq!(repo.branch_tip("work").await.unwrap(), Some(two));
}

/// After a crash the same step is taken again; it must not fail because it was done.
#[tokio::test]
async fn creating_and_advancing_again_is_no_error() {
    let fixture = Fixture::new();
    let one = fixture.head();
    let two = fixture.commit("two", "");
    let repo = fixture.open().await;
    for _ in 0..2 {
        repo.create_branch("work", &one).await.unwrap();
    }
    for _ in 0..2 {
        assert_eq!(repo.advance("work", &one, &two).await.unwrap(), Advance::Advanced);
    }
    let other = repo.create_branch("work", &one).await;
    assert!(matches!(other, Err(Error::BranchExists { actual, .. }) if *actual == two));
    let below = repo.create_branch("work/m1", &one).await.unwrap_err();
    let said =
        "the branch work is in the way of work/m1: rename it with `git branch -m work OTHER`";
    assert_eq!(below.to_string(), said);
}

/// Moving sideways would drop commits that somebody has landed.
#[tokio::test]
async fn a_branch_never_moves_sideways() {
    let fixture = Fixture::new();
    let one = fixture.head();
    let two = fixture.commit("two", "");
    fixture.git(&["checkout", "--quiet", "--detach", one.as_str()]);
    let other = fixture.commit("other", "");
    let repo = fixture.open().await;
    repo.create_branch("work", &two).await.unwrap();
    let refused = repo.advance("work", &two, &other).await;
    assert!(matches!(refused, Err(Error::NotForward { .. })), "{refused:?}");
    assert_eq!(repo.branch_tip("work").await.unwrap(), Some(two));
}

/// A person who has the branch checked out would undo what was landed with the next commit.
#[tokio::test]
async fn a_branch_that_is_checked_out_is_not_moved() {
    let fixture = Fixture::new();
    let one = fixture.head();
    let two = fixture.commit("two", "");
    fixture.git(&["reset", "--quiet", "--hard", one.as_str()]);
    let repo = fixture.open().await;
    let refused = repo.advance("main", &one, &two).await;
    assert!(matches!(refused, Err(Error::CheckedOut { .. })), "{refused:?}");
    assert_eq!(repo.branch_tip("main").await.unwrap(), Some(one));
    let lock = fixture.path("repo/.git/refs/heads/main.lock");
    assert!(!lock.exists(), "the lock under which it was looked at is gone");
}

#[tokio::test]
async fn changed_paths_are_whole_and_unquoted() {
    let fixture = Fixture::new();
    let one = fixture.head();
    fixture.commit("mit blank/ä.txt", "");
    fixture.git(&["mv", "readme", "moved"]);
    let two = fixture.commit("b", "");
    let repo = fixture.open().await;
    let paths = repo.changed_paths(&one, &two).await.unwrap();
    assert_eq!(paths, ["b", "mit blank/ä.txt", "moved", "readme"]);
    // A mode is part of a test, too: a script that cannot be run tests nothing.
    fixture.git(&["config", "core.fileMode", "false"]);
    fixture.git(&["update-index", "--chmod=+x", "moved"]);
    let three = fixture.commit("b", "more");
    assert_eq!(repo.changed_paths(&two, &three).await.unwrap(), ["b", "moved"]);
    assert_eq!(repo.tree_of(&three).await.unwrap(), fixture.git(&["rev-parse", "HEAD^{tree}"]));
}

/// Kapelle's own folder must not show up in the user's `git status`, nor in a tracked file.
#[tokio::test]
async fn excluding_a_path_is_local_and_done_once() {
    let fixture = Fixture::new();
    let exclude = fixture.path("repo/.git/info/exclude");
    fs::write(&exclude, "last line without an end").unwrap();
    let repo = fixture.open().await;
    for _ in 0..2 {
        repo.exclude_locally("/.kapelle/").await.unwrap();
    }
    let text = fs::read_to_string(&exclude).unwrap();
    assert_eq!(text, "last line without an end\n/.kapelle/\n");
}
