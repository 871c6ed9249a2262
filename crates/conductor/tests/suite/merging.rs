//! The merge queue and rollback on a real repository: lanes, conflicts, and work taken back.

use kapelle_conductor::Opened;
use kapelle_core::branch::BranchTemplate;
use kapelle_core::mission::MissionStage;
use kapelle_core::plan::Plan;
use kapelle_core::policy::{Check, Reading};
use kapelle_core::status::Status;
use kapelle_core::task::Stage;
use kapelle_core::{Command, MissionId, State, TaskId};

use crate::fixture::{Fixture, git, me, soon, team};

pub const M1: MissionId = MissionId(1);

/// A mission of tasks that need nothing, with one check.
pub fn mission(fixture: &Fixture, tasks: &[&str], check: &str) -> Command {
    let Command::OpenMission { request, goal, target, base, mut policy, by, .. } =
        fixture.mission("merging")
    else {
        unreachable!("a mission is opened")
    };
    let task = |id: &&str| format!(r#"{{"id": "{id}", "title": "task {id}"}}"#);
    let tasks = tasks.iter().map(task).collect::<Vec<_>>().join(", ");
    let plan = Plan::parse(&format!(r#"{{"tasks": [{tasks}]}}"#)).unwrap();
    policy.checks = vec![Check {
        name: "c".into(),
        command: check.into(),
        timeout_ms: 20_000,
        reading: Reading::default(),
    }];
    Command::OpenMission { request, goal, target, base, plan, policy, by }
}

/// Opens the mission and lets its conductor work.
async fn begin(fixture: &Fixture, tasks: &[&str], check: &str) -> Opened {
    let opened = fixture.open().await.unwrap();
    opened.handle.send(team()).await.unwrap();
    opened.handle.send(mission(fixture, tasks, check)).await.unwrap();
    opened
}

pub async fn until(opened: &Opened, wanted: fn(&State) -> bool) {
    let mut commits = opened.handle.follow();
    while !opened.handle.look(wanted).await.unwrap() {
        soon("a commit", commits.recv()).await.unwrap();
    }
}

pub async fn end(opened: Opened) {
    opened.handle.shut_down();
    soon("the end", opened.conductor.ended()).await.unwrap();
}

fn status_of(state: &State, task: u32) -> Status {
    state.task(TaskId(task)).unwrap().status(state.mission(M1).unwrap())
}

pub fn is_proposed(state: &State) -> bool {
    state.mission(M1).is_some_and(|m| matches!(m.stage, MissionStage::Proposed { .. }))
}

/// The files on the mission's branch.
fn files(fixture: &Fixture) -> String {
    git(&fixture.repo(), &["ls-tree", "--name-only", "kapelle/m1"]).replace('\n', " ")
}

/// GIT-13, GIT-14: what one task brought goes by a commit of its own, and nothing else does.
#[tokio::test]
async fn a_landed_task_is_taken_back_alone() {
    let fixture = Fixture::new("echo $KAPELLE_TASK > file-$KAPELLE_TASK");
    let opened = begin(&fixture, &["1", "2", "3"], "true").await;
    until(&opened, is_proposed).await;
    assert_eq!(files(&fixture), "file-1 file-2 file-3");
    let (task, reason) = (TaskId(2), "not wanted".to_owned());
    opened.handle.send(Command::RollbackTask { task, reason, by: me() }).await.unwrap();
    until(&opened, |state| is_proposed(state) && status_of(state, 2) == Status::RolledBack).await;
    assert_eq!(files(&fixture), "file-1 file-3");
    let last = git(&fixture.repo(), &["log", "-1", "--format=%s", "kapelle/m1"]);
    assert_eq!(last, "Rollback task 2");
    end(opened).await;
}

/// Two changes that pass alone and fail together: one lands, the other is told why it did not.
#[tokio::test]
async fn what_fails_on_the_branch_does_not_land() {
    let fixture = Fixture::new("echo $KAPELLE_TASK > file-$KAPELLE_TASK");
    let opened = begin(&fixture, &["1", "2"], "test ! -e file-1 || test ! -e file-2").await;
    until(&opened, |state| state.mission(M1).is_some_and(|m| m.counts.dead == 1)).await;
    let landed = files(&fixture);
    assert!(landed == "file-1" || landed == "file-2", "{landed}");
    let told = opened.handle.look(|state| {
        let dead = state.tasks().find(|task| task.stage == Stage::DeadLetter);
        dead.and_then(|task| task.last_failure.clone()).unwrap().message
    });
    assert!(told.await.unwrap().starts_with("check c failed"));
    end(opened).await;
}

/// GIT-19: a conflict that a rebase does not mend is a question to a person, who sees both sides by
/// what it says, wherever in the repository and also after a restart; with the answer the task
/// starts over on the branch as it is.
#[tokio::test]
async fn a_conflict_becomes_a_question_and_its_answer_a_new_start() {
    let fixture = Fixture::new(r#"mkdir -p "it's"; echo $KAPELLE_TASK > "it's/a [shared] file""#);
    let opened = begin(&fixture, &["1", "2"], "true").await;
    until(&opened, |state| state.mission(M1).is_some_and(|m| m.counts.asking == 1)).await;
    end(opened).await;
    let opened = fixture.open().await.unwrap();
    let (task, question) = opened
        .handle
        .look(|state| {
            let asking = state.tasks().find_map(|task| match &task.stage {
                Stage::Asking { question } => Some((task.id, question.clone())),
                _ => None,
            });
            asking.unwrap()
        })
        .await
        .unwrap();
    let sides = format!("of task {} conflicts with kapelle/m1 at", task.0);
    assert!(question.message.contains(&sides), "{}", question.message);
    assert!(question.message.contains("in it's/a [shared] file,"), "{}", question.message);
    let (_, command) = question.message.split_once("+ the change): ").unwrap();
    let inside = fixture.repo().join("inside");
    std::fs::create_dir(&inside).unwrap();
    let shown = std::process::Command::new("sh").args(["-c", command]).current_dir(inside).output();
    let both = String::from_utf8(shown.unwrap().stdout).unwrap();
    let on_branch = 3 - task.0;
    let lines = format!("-{on_branch}\n+{}\n", task.0);
    assert!(both.ends_with(&lines), "{command}: {both}");
    let (resume_id, input) = (question.resume_id, "the second".to_owned());
    let answer = Command::AnswerCheckpoint { task, resume_id, input, by: me() };
    opened.handle.send(answer).await.unwrap();
    until(&opened, is_proposed).await;
    let content = git(&fixture.repo(), &["show", "kapelle/m1:it's/a [shared] file"]);
    assert_eq!(content, task.0.to_string());
    end(opened).await;
}

/// GIT-02: a task has a branch of its own from its start, which people can look at, and which goes
/// away when its work has landed. A branch that a person has moved stays.
#[tokio::test]
async fn a_task_has_a_branch_until_it_has_landed() {
    let script = "echo $KAPELLE_TASK > file-$KAPELLE_TASK
        while ! test -e go; do sleep 0.05; done; rm go";
    let fixture = Fixture::new(script);
    let branches = || {
        let format = "--format=%(refname:short)";
        git(&fixture.repo(), &["for-each-ref", format, "refs/heads/subtask"]).replace('\n', " ")
    };
    let opened = begin(&fixture, &["1", "2"], "true").await;
    let both = async {
        while branches() != "subtask/1-task-1 subtask/2-task-2" {
            tokio::task::yield_now().await;
        }
    };
    soon("the branches", both).await;
    let main = git(&fixture.repo(), &["rev-parse", "main"]);
    assert_eq!(git(&fixture.repo(), &["rev-parse", "subtask/1-task-1"]), main);
    let mine = git(&fixture.repo(), &["commit-tree", "-m", "mine", "-p", "main", "main^{tree}"]);
    git(&fixture.repo(), &["branch", "--force", "subtask/2-task-2", &mine]);
    let work = fixture.state_dir().join("work");
    let trees = || {
        let places = std::fs::read_dir(&work).into_iter().flatten().filter_map(Result::ok);
        let trees = places.map(|place| place.path().join("tree"));
        trees.filter(|tree| tree.exists()).collect::<Vec<_>>()
    };
    for tree in trees() {
        std::fs::write(tree.join("go"), "").unwrap();
    }
    until(&opened, is_proposed).await;
    assert_eq!(branches(), "subtask/2-task-2", "a person's own stays");
    assert_eq!(git(&fixture.repo(), &["rev-parse", "subtask/2-task-2"]), mine);
    end(opened).await;
}

/// GIT-03: who works with feature branches has missions on them.
#[tokio::test]
async fn a_mission_gathers_its_work_on_the_branch_that_is_configured() {
    let fixture = Fixture::new("echo x > x.txt");
    let opened = fixture.open().await.unwrap();
    opened.handle.send(team()).await.unwrap();
    let mut command = mission(&fixture, &["1"], "true");
    if let Command::OpenMission { policy, goal, .. } = &mut command {
        policy.branch = Some(BranchTemplate("feature/{mission}-{goal}".into()));
        *goal = "Add a Login!".into();
    }
    opened.handle.send(command).await.unwrap();
    until(&opened, is_proposed).await;
    end(opened).await;
    let files = git(&fixture.repo(), &["ls-tree", "--name-only", "feature/m1-add-a-login"]);
    assert_eq!(files, "x.txt");
    let others = git(&fixture.repo(), &["for-each-ref", "--format=%(refname)", "refs/heads"]);
    assert_eq!(others, "refs/heads/feature/m1-add-a-login\nrefs/heads/main");
}
