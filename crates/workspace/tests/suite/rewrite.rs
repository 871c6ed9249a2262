//! Rebasing a change and taking landed ones back, with real git.

use kapelle_core::Commit;
use kapelle_workspace::rewrite::{Reversal, Rewrite, rebase, revert};

use crate::fixture::Fixture;

fn read(fixture: &Fixture, commit: &Commit, path: &str) -> String {
    fixture.git(&["show", &format!("{commit}:{path}")])
}

fn written(rewrite: Rewrite) -> (Commit, Vec<String>) {
    match rewrite {
        Rewrite::Written { commit, touched } => (commit, touched),
        Rewrite::Conflict { paths } => panic!("conflict in {paths:?}"),
    }
}

fn reversal(before: &Commit, after: &Commit) -> Reversal {
    let message = "Rollback task 1".to_owned();
    Reversal { before: before.clone(), after: after.clone(), message }
}

/// Each commit of the change stays a commit of its own, and doing it again gives the same.
#[tokio::test]
async fn a_rebased_change_keeps_its_commits() {
    let fixture = Fixture::new();
    let start = fixture.head();
    let onto = fixture.commit("main", "main\n");
    fixture.git(&["checkout", "--quiet", "--detach", start.as_str()]);
    fixture.commit("one", "1\n");
    let change = fixture.commit("two", "2\n");
    let repo = fixture.open().await;
    let first = written(rebase(&repo, &change, &onto).await.unwrap());
    let again = written(rebase(&repo, &change, &onto).await.unwrap());
    assert_eq!(first, again);
    assert_eq!(first.1, ["one", "two"]);
    let range = format!("{onto}..{}", first.0);
    assert_eq!(fixture.git(&["rev-list", "--count", &range]), "2");
    assert_eq!(read(&fixture, &first.0, "main"), "main");
}

/// A commit that the branch has already, word for word, is no reason for a conflict: this is what
/// a rebase can do and a merge cannot.
#[tokio::test]
async fn what_the_branch_has_already_is_left_out() {
    let fixture = Fixture::new();
    fixture.commit("file", "zero\n");
    let start = fixture.head();
    fixture.commit("file", "one\n");
    let onto = fixture.commit("file", "two\n");
    fixture.git(&["checkout", "--quiet", "--detach", start.as_str()]);
    // Of another time, or it would be the very commit that the branch has.
    fixture.commit_at("file", "one\n", "@1400000000 +0200");
    let change = fixture.commit("other", "x\n");
    let repo = fixture.open().await;
    let conflict = rebase(&repo, &change, &onto).await.unwrap();
    assert_eq!(conflict, Rewrite::Conflict { paths: vec!["file".into()] });
    let onto = {
        fixture.git(&["checkout", "--quiet", "--detach", start.as_str()]);
        fixture.commit_at("file", "one\n", "@1500000000 +0200")
    };
    let (commit, touched) = written(rebase(&repo, &change, &onto).await.unwrap());
    assert_eq!(touched, ["other"]);
    assert_eq!(read(&fixture, &commit, "file"), "one");
}

/// GIT-13, GIT-14: the work of one task goes, the work of the others stays.
#[tokio::test]
async fn a_reversal_takes_back_one_task_and_nothing_else() {
    let fixture = Fixture::new();
    let before = fixture.commit("kept", "kept\n");
    fixture.commit("a", "1\n");
    let after = fixture.commit("b", "2\n");
    let tip = fixture.commit("later", "later\n");
    let repo = fixture.open().await;
    let (commit, touched) =
        written(revert(&repo, &tip, &[reversal(&before, &after)]).await.unwrap());
    assert_eq!(touched, ["a", "b"]);
    assert_eq!(fixture.git(&["show", "-s", "--format=%s", commit.as_str()]), "Rollback task 1");
    assert_eq!(read(&fixture, &commit, "later"), "later");
    assert_eq!(repo.changed_paths(&before, &commit).await.unwrap(), ["later"]);
}

/// Dependents first: the later layer of a file goes before the one that it stands on.
#[tokio::test]
async fn a_cascade_is_taken_back_layer_by_layer() {
    let fixture = Fixture::new();
    let base = fixture.commit("file", "base\n");
    let lower = fixture.commit("file", "lower\n");
    let upper = fixture.commit("file", "upper\n");
    let repo = fixture.open().await;
    let both = [reversal(&lower, &upper), reversal(&base, &lower)];
    let (commit, touched) = written(revert(&repo, &upper, &both).await.unwrap());
    assert_eq!((read(&fixture, &commit, "file").as_str(), touched.len()), ("base", 1));
    let range = format!("{upper}..{commit}");
    assert_eq!(fixture.git(&["rev-list", "--count", &range]), "2");
    let wrong = revert(&repo, &upper, &[reversal(&base, &lower)]).await.unwrap();
    assert_eq!(wrong, Rewrite::Conflict { paths: vec!["file".into()] });
}
