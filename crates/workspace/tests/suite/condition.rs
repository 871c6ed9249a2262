//! Repositories in every condition that people have them in.

use kapelle_workspace::Repository;
use kapelle_workspace::condition::Note;
use kapelle_workspace::repository::Error;

use crate::fixture::{Fixture, git_in, write};

#[tokio::test]
async fn a_clean_repository_needs_no_note() {
    let fixture = Fixture::new();
    assert_eq!(fixture.open().await.condition().await.unwrap(), []);
}

#[tokio::test]
async fn changes_and_unfinished_merges_are_seen_and_not_touched() {
    let fixture = Fixture::new();
    write(&fixture.path("repo/readme"), "changed\n");
    write(&fixture.path("repo/new"), "");
    write(&fixture.path("repo/.git/MERGE_HEAD"), fixture.head().as_str());
    let index = std::fs::read(fixture.path("repo/.git/index")).unwrap();
    let notes = fixture.open().await.condition().await.unwrap();
    assert_eq!(notes, [Note::Dirty { files: 2 }, Note::Unfinished { operation: "merge" }]);
    assert_eq!(std::fs::read(fixture.path("repo/.git/index")).unwrap(), index);
    assert_eq!(notes[0].to_string(), "2 files are changed and not committed");
    assert!(notes[0].hint().contains("not touched"));
}

#[tokio::test]
async fn a_shallow_clone_with_submodules_says_so_and_can_be_worked_in() {
    let fixture = Fixture::new();
    let module = fixture.head();
    std::fs::create_dir_all(fixture.path("repo/vendor/lib")).unwrap();
    fixture.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{module},vendor/lib")]);
    fixture.git(&["commit", "--quiet", "-m", "module"]);
    fixture.commit("second", "");
    let from = format!("file://{}", fixture.path("repo").display());
    let to = fixture.path("clone");
    git_in(&fixture.path(""), &["clone", "--quiet", "--depth=1", &from, to.to_str().unwrap()]);
    let repo = Repository::open(&to).await.unwrap();
    let notes = repo.condition().await.unwrap();
    let paths = vec!["vendor/lib".to_owned()];
    assert_eq!(notes, [Note::Shallow, Note::Submodules { paths }]);
    let head = repo.resolve("HEAD").await.unwrap();
    let dir = fixture.path("attempt/tree");
    let tree = kapelle_workspace::Worktree::prepare(&repo, &dir, &head).await.unwrap();
    write(&dir.join("work"), "done");
    assert!(tree.change("work", &[]).await.unwrap().is_some());
}

/// Several servers and a person's own git at the same moment.
#[tokio::test]
async fn many_trees_are_made_at_the_same_time() {
    let fixture = Fixture::new();
    let head = fixture.head();
    let mut making = tokio::task::JoinSet::new();
    for number in 0..4 {
        // A repository that is opened twice shares no lock of ours.
        let repo = fixture.open().await;
        for inner in 0..3 {
            let (repo, head) = (repo.clone(), head.clone());
            let dir = fixture.path(&format!("attempt-{number}-{inner}/tree"));
            making.spawn(async move {
                kapelle_workspace::Worktree::prepare(&repo, &dir, &head).await.map(|_| dir)
            });
        }
    }
    let mut made = 0;
    while let Some(tree) = making.join_next().await {
        assert!(tree.unwrap().unwrap().join("readme").exists());
        made += 1;
    }
    assert_eq!(made, 12);
    assert_eq!(fixture.git(&["worktree", "list"]).lines().count(), 13);
}

#[tokio::test]
async fn a_branch_goes_only_when_its_work_has_landed() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    repo.create_branch("done", &fixture.head()).await.unwrap();
    fixture.git(&["checkout", "--quiet", "-b", "open"]);
    fixture.commit("work", "");
    fixture.git(&["checkout", "--quiet", "main"]);
    repo.remove_branch("done", "main").await.unwrap();
    repo.remove_branch("done", "main").await.unwrap();
    assert_eq!(repo.branch_tip("done").await.unwrap(), None);
    let refused = repo.remove_branch("open", "main").await;
    assert!(matches!(refused, Err(Error::NotLanded { .. })), "{refused:?}");
    assert!(repo.branch_tip("open").await.unwrap().is_some());
}
