//! Carrying changes from one place to another, with real git.

use kapelle_core::Commit;
use kapelle_workspace::Candidate;
use kapelle_workspace::apply::{Change, Sides, batch, rebase, revert, sides};

use crate::fixture::Fixture;

/// A commit beside `main`, on its current tip or an older commit.
fn beside(fixture: &Fixture, start: &Commit, file: &str, text: &str) -> Commit {
    fixture.git(&["checkout", "--quiet", "--detach", start.as_str()]);
    let commit = fixture.commit(file, text);
    fixture.git(&["checkout", "--quiet", "main"]);
    commit
}

fn built(candidate: Candidate) -> Commit {
    match candidate {
        Candidate::Built(commit) => commit,
        other => panic!("{other:?}"),
    }
}

fn shown(fixture: &Fixture, commit: &Commit, file: &str) -> String {
    fixture.git(&["show", &format!("{commit}:{file}")])
}

/// Two phases of a task, and a target that has gone on meanwhile.
#[tokio::test]
async fn a_rebased_change_keeps_its_commits_and_their_messages() {
    let fixture = Fixture::new();
    let start = fixture.head();
    let first = beside(&fixture, &start, "tests", "red\n");
    let second = beside(&fixture, &first, "source", "green\n");
    let onto = fixture.commit("other", "meanwhile\n");
    let repo = fixture.open().await;
    let moved = built(rebase(&repo, &second, &onto).await.unwrap());
    assert_eq!(built(rebase(&repo, &second, &onto).await.unwrap()), moved, "reproducible");
    let range = format!("{onto}..{moved}");
    assert_eq!(fixture.git(&["log", "--reverse", "--format=%s", &range]), "tests\nsource");
    assert_eq!(shown(&fixture, &moved, "other"), "meanwhile");
    assert_eq!(rebase(&repo, &second, &moved).await.unwrap(), Candidate::AlreadyThere);
}

/// GIT-19: a person decides, and needs to see what there is to decide.
#[tokio::test]
async fn a_conflict_is_shown_with_both_sides() {
    let fixture = Fixture::new();
    let start = fixture.head();
    let change = beside(&fixture, &start, "readme", "theirs\n");
    let onto = fixture.commit("readme", "ours\n");
    let repo = fixture.open().await;
    let conflict = Candidate::Conflict { paths: vec!["readme".into()] };
    assert_eq!(rebase(&repo, &change, &onto).await.unwrap(), conflict);
    let expected = Sides { ours: Some("ours\n".into()), theirs: Some("theirs\n".into()) };
    assert_eq!(sides(&repo, &onto, &change, "readme").await.unwrap(), expected);
}

/// GIT-13, 18: what others did since stays, also in the same file.
#[tokio::test]
async fn taking_a_task_back_leaves_what_others_did() {
    let fixture = Fixture::new();
    let lines: String = (0..20).map(|line| format!("{line}\n")).collect();
    fixture.commit("shared", &lines);
    let first = fixture.commit("shared", &lines.replace("\n2\n", "\ntwo\n"));
    let second = fixture.commit("own", "mine\n");
    let onto =
        fixture.commit("shared", &lines.replace("\n2\n", "\ntwo\n").replace("18", "eighteen"));
    let repo = fixture.open().await;
    let commits = [second, first];
    let trailers = [("Kapelle-Task", "3-1")];
    let taken_back = revert(&repo, &onto, &commits, "Rollback task 3-1", &trailers).await.unwrap();
    let commit = built(taken_back);
    assert_eq!(shown(&fixture, &commit, "shared").trim(), lines.replace("18", "eighteen").trim());
    assert_eq!(fixture.git(&["ls-tree", "--name-only", commit.as_str(), "own"]), "");
    let message = fixture.git(&["show", "-s", "--format=%B", commit.as_str()]);
    assert_eq!(message.trim(), "Rollback task 3-1\n\nKapelle-Task: 3-1");
    assert_eq!(fixture.git(&["rev-parse", &format!("{commit}^")]), onto.as_str(), "one commit");
    let again = revert(&repo, &commit, &commits, "Rollback task 3-1", &trailers).await.unwrap();
    assert_eq!(again, Candidate::AlreadyThere, "it is gone already");
}

#[tokio::test]
async fn what_others_built_on_cannot_be_taken_back() {
    let fixture = Fixture::new();
    let first = fixture.commit("readme", "two\n");
    let onto = fixture.commit("readme", "three\n");
    let repo = fixture.open().await;
    let refused = revert(&repo, &onto, &[first], "Rollback task 1", &[]).await.unwrap();
    assert_eq!(refused, Candidate::Conflict { paths: vec!["readme".into()] });
}

/// Up to five changes are checked together; one that does not fit must not spoil the others.
#[tokio::test]
async fn a_batch_takes_what_fits_and_names_the_rest() {
    let fixture = Fixture::new();
    let start = fixture.head();
    let one = beside(&fixture, &start, "a", "1\n");
    let two = beside(&fixture, &start, "b", "2\n");
    let clash = beside(&fixture, &start, "a", "other\n");
    let repo = fixture.open().await;
    let change = |commit| Change { commit, message: "merge", trailers: &[] };
    let changes = [change(&one), change(&clash), change(&two)];
    let found = batch(&repo, &start, &changes).await.unwrap();
    assert_eq!(found.taken, [one.clone(), two.clone()]);
    assert_eq!(found.left_out.get(&clash), Some(&vec!["a".to_owned()]));
    let commit = found.built.unwrap();
    assert_eq!(
        (shown(&fixture, &commit, "a"), shown(&fixture, &commit, "b")),
        ("1".into(), "2".into())
    );
    for landed in [one, two] {
        assert!(repo.is_ancestor(&landed, &commit).await.unwrap(), "each keeps its own commit");
    }
}

/// GIT-05, 06: the queue shares the waiting, never the history.
#[tokio::test]
async fn commits_that_are_held_together_stay_apart() {
    let fixture = Fixture::new();
    let start = fixture.head();
    let one = beside(&fixture, &start, "a", "1\n");
    let two = beside(&fixture, &start, "b", "2\n");
    let repo = fixture.open().await;
    let held =
        [("changes/m1/1/7".to_owned(), one.clone()), ("changes/m1/2/8".to_owned(), two.clone())];
    repo.hold_all(&held).await.unwrap();
    repo.hold_all(&held).await.unwrap();
    let refs = fixture.git(&["for-each-ref", "--format=%(objectname)", "refs/kapelle/changes"]);
    assert_eq!(refs, format!("{one}\n{two}"));
}
