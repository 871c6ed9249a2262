//! Candidates: built without a checkout, the same every time.

use kapelle_workspace::Candidate;
use kapelle_workspace::candidate::build;

use crate::fixture::Fixture;

/// On `main` a file was changed, on the side another; returns (main, side).
fn diverged(fixture: &Fixture, main: &str, side: &str) -> [kapelle_core::Commit; 2] {
    let start = fixture.head();
    let main = fixture.commit(main, "main\n");
    fixture.git(&["checkout", "--quiet", "--detach", start.as_str()]);
    let side = fixture.commit_at(side, "side\n", "@1500000000 +0200");
    fixture.git(&["checkout", "--quiet", "main"]);
    [main, side]
}

/// When the target has not moved, what was checked in the worktree is what lands.
#[tokio::test]
async fn a_change_on_the_tip_is_its_own_candidate() {
    let fixture = Fixture::new();
    let onto = fixture.head();
    let change = fixture.commit("new", "");
    let repo = fixture.open().await;
    let built = build(&repo, &onto, &change, "merge", &[]).await.unwrap();
    assert_eq!(built, Candidate::Built(change.clone()));
    let again = build(&repo, &change, &onto, "merge", &[]).await.unwrap();
    assert_eq!(again, Candidate::AlreadyThere);
}

/// After a crash the candidate is built again; the checks that passed on it must still count.
#[tokio::test]
async fn a_candidate_is_reproducible_and_holds_both_sides() {
    let fixture = Fixture::new();
    let [main, side] = diverged(&fixture, "a", "b");
    let repo = fixture.open().await;
    let built = build(&repo, &main, &side, "merge", &[("Task", "3-1")]).await.unwrap();
    let again = build(&repo, &main, &side, "merge", &[("Task", "3-1")]).await.unwrap();
    assert_eq!(built, again);
    let Candidate::Built(commit) = built else { panic!("{built:?}") };
    // No clock in it: its dates are those of the change.
    let dates = |of: &str| fixture.git(&["show", "-s", "--format=%ct", of]);
    let authored = fixture.git(&["show", "-s", "--format=%at", commit.as_str()]);
    assert_eq!([dates(commit.as_str()), authored], [dates(side.as_str()), dates(side.as_str())]);
    let parents = fixture.git(&["show", "-s", "--format=%P|%B", commit.as_str()]);
    assert_eq!(parents, format!("{main} {side}|merge\n\nTask: 3-1"));
    assert_eq!(repo.changed_paths(&main, &commit).await.unwrap(), ["b"]);
    assert_eq!(repo.changed_paths(&side, &commit).await.unwrap(), ["a"]);
    assert_eq!(fixture.git(&["status", "--porcelain"]), "");
}

/// The paths tell the next attempt what to look at.
#[tokio::test]
async fn a_conflict_names_its_paths() {
    let fixture = Fixture::new();
    let [main, side] = diverged(&fixture, "mit blank", "mit blank");
    let repo = fixture.open().await;
    let built = build(&repo, &main, &side, "merge", &[]).await.unwrap();
    assert_eq!(built, Candidate::Conflict { paths: vec!["mit blank".into()] });
}

/// A driver of the user is not run; to guess in its place could land a wrong merge.
#[tokio::test]
async fn a_path_with_a_merge_driver_conflicts() {
    let fixture = Fixture::new();
    fixture.commit(".gitattributes", "lock merge=ours\n");
    fixture.commit("lock", "zero\n");
    fixture.git(&["config", "merge.ours.driver", "true"]);
    let [main, side] = diverged(&fixture, "lock", "lock");
    let repo = fixture.open().await;
    let built = build(&repo, &main, &side, "merge", &[]).await.unwrap();
    assert_eq!(built, Candidate::Conflict { paths: vec!["lock".into()] });
}
