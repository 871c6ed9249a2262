//! Branches of sub-tasks, for people to look at.

use kapelle_core::{MissionId, TaskId};
use kapelle_workspace::subtask::Subtask;

use crate::fixture::Fixture;

fn task(mission: u32, id: u32) -> Subtask<'static> {
    Subtask { mission: MissionId(mission), id: TaskId(id), name: "3-1", title: "Login form" }
}

fn tip(fixture: &Fixture, branch: &str) -> String {
    fixture.git(&["for-each-ref", "--format=%(objectname)", &format!("refs/heads/{branch}")])
}

/// GIT-02: made at the start, there while the task is worked on, gone when it has landed. Another task
/// that has only begun has landed nothing, though the mission's branch contains where it began.
#[tokio::test]
async fn a_branch_follows_its_task_and_goes_when_it_has_landed() {
    let fixture = Fixture::new();
    let (repo, base) = (fixture.open().await, fixture.head());
    let (first, second) = (task(1, 7), Subtask { name: "3-2", ..task(1, 8) });
    for task in [&first, &second] {
        repo.put_subtask(task, &base).await.unwrap();
    }
    assert_eq!(tip(&fixture, "subtask/3-1-login-form"), base.as_str());
    let change = fixture.commit("login", "form\n");
    repo.follow_subtask(first.mission, first.id, &change).await.unwrap();
    assert_eq!(tip(&fixture, "subtask/3-1-login-form"), change.as_str());
    repo.remove_landed_subtasks(first.mission, (&base, &base)).await.unwrap();
    assert_eq!(tip(&fixture, "subtask/3-1-login-form"), change.as_str(), "not landed yet");
    repo.remove_landed_subtasks(first.mission, (&base, &change)).await.unwrap();
    assert_eq!(tip(&fixture, "subtask/3-1-login-form"), "");
    assert_eq!(tip(&fixture, "subtask/3-2-login-form"), base.as_str());
    let hidden = fixture.git(&["for-each-ref", "--format=%(refname)", "refs/kapelle/subtasks"]);
    assert_eq!(hidden, "refs/kapelle/subtasks/m1/8/subtask/3-2-login-form");
}

/// A task that starts over starts its branch over.
#[tokio::test]
async fn a_task_that_starts_over_is_seen_where_it_starts() {
    let fixture = Fixture::new();
    let (repo, base) = (fixture.open().await, fixture.head());
    let failed = fixture.commit("failed", "\n");
    for commit in [&base, &failed, &base] {
        repo.put_subtask(&task(1, 7), commit).await.unwrap();
        assert_eq!(tip(&fixture, "subtask/3-1-login-form"), commit.as_str());
    }
}

#[tokio::test]
async fn of_two_missions_each_has_a_branch_of_its_own() {
    let fixture = Fixture::new();
    let (repo, base) = (fixture.open().await, fixture.head());
    for mission in [1, 2] {
        repo.put_subtask(&task(mission, mission), &base).await.unwrap();
        repo.put_subtask(&task(mission, mission), &base).await.unwrap();
    }
    let all = fixture.git(&["for-each-ref", "--format=%(refname:short)", "refs/heads/subtask"]);
    assert_eq!(all, "subtask/3-1-login-form\nsubtask/3-1-login-form-m2");
}

/// Whoever has a branch checked out would find their files changed under their feet, and whoever has
/// committed to it would lose that.
#[tokio::test]
async fn a_branch_that_a_person_uses_is_left_alone() {
    let fixture = Fixture::new();
    let (repo, base) = (fixture.open().await, fixture.head());
    let task = task(1, 7);
    repo.put_subtask(&task, &base).await.unwrap();
    fixture.git(&["checkout", "--quiet", "subtask/3-1-login-form"]);
    let change = fixture.git(&["commit-tree", "-m", "c", "-p", "HEAD", "HEAD^{tree}"]);
    let change = change.parse().unwrap();
    repo.follow_subtask(task.mission, task.id, &change).await.unwrap();
    assert_eq!(tip(&fixture, "subtask/3-1-login-form"), base.as_str(), "it is looked at");
    let theirs = fixture.commit("mine", "\n");
    fixture.git(&["checkout", "--quiet", "main"]);
    repo.follow_subtask(task.mission, task.id, &change).await.unwrap();
    repo.remove_landed_subtasks(task.mission, (&base, &change)).await.unwrap();
    assert_eq!(tip(&fixture, "subtask/3-1-login-form"), theirs.as_str(), "it is theirs now");
}
