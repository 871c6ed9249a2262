//! Leading: one conductor a project, and what may happen without one.

use std::fs;

use kapelle_conductor::Error;
use kapelle_conductor::project::{OpenError, record, store_path};
use kapelle_core::failure::RetryPolicy;
use kapelle_core::mission::MissionStatus;
use kapelle_core::{Command, MissionId, Refusal, State};
use kapelle_store::{Error as StoreError, Reader};
use kapelle_workspace::worktree::KEPT_BYTES_MAX;
use kapelle_workspace::{Repository, Worktree};

use crate::fixture::{Fixture, git, me, soon, team};

fn pause() -> Command {
    Command::PauseMission { mission: MissionId(1), reason: "lunch".into(), by: me() }
}

/// While a conductor leads, everything goes through it: a second writer would make its state a
/// lie.
#[tokio::test]
async fn nothing_is_recorded_beside_a_conductor() {
    let fixture = Fixture::new("true");
    let opened = fixture.open().await.unwrap();
    opened.handle.send(fixture.mission("one")).await.unwrap();
    let head = || Reader::open(&store_path(&fixture.state_dir())).unwrap().head().unwrap();
    // The branch is prepared beside us; that is its last step, for nobody is there to work.
    let mut commits = opened.handle.follow();
    let is_prepared =
        |state: &kapelle_core::State| state.mission(MissionId(1)).unwrap().tip.is_some();
    while !opened.handle.look(is_prepared).await.unwrap() {
        soon("a commit", commits.recv()).await.unwrap();
    }
    let before = head();

    let us = std::process::id();
    let beside = record(&fixture.state_dir(), &fixture.store(), pause());
    let held = |error: &StoreError| matches!(error, StoreError::Held { holder: Some(holder) } if holder.pid == us);
    assert!(matches!(&beside, Err(Error::Store(error)) if held(error)), "{beside:?}");
    let second = fixture.open().await;
    assert!(matches!(&second, Err(OpenError::Store(error)) if held(error)), "{second:?}");
    assert_eq!(head(), before);

    opened.handle.shut_down();
    soon("the end", opened.conductor.ended()).await.unwrap();
    drop(opened.leadership);
    record(&fixture.state_dir(), &fixture.store(), pause()).unwrap();
    assert!(head().seq > before.seq);
}

/// A decision that is recorded while nobody leads is there for the next one, and a refusal says
/// what it would say otherwise.
#[tokio::test]
async fn what_is_recorded_alone_is_taken_up_by_the_next_conductor() {
    let fixture = Fixture::new("true");
    let opened = fixture.open().await.unwrap();
    opened.handle.send(fixture.mission("one")).await.unwrap();
    opened.handle.shut_down();
    soon("the end", opened.conductor.ended()).await.unwrap();
    drop(opened.leadership);

    record(&fixture.state_dir(), &fixture.store(), pause()).unwrap();
    let again = record(&fixture.state_dir(), &fixture.store(), pause());
    let already = Refusal::AlreadyPaused { mission: MissionId(1) };
    assert!(matches!(&again, Err(Error::Refused(refusal)) if *refusal == already), "{again:?}");

    let opened = fixture.open().await.unwrap();
    let status = |state: &kapelle_core::State| state.mission(MissionId(1)).unwrap().status();
    assert_eq!(opened.handle.look(status).await.unwrap(), MissionStatus::Paused);
    assert!(!opened.recent.is_empty(), "what was before is shown");
    opened.handle.shut_down();
    soon("the end", opened.conductor.ended()).await.unwrap();
}

/// Shutting down ends the agents and keeps what they wrote; nothing is left but the journal and
/// what it names.
#[tokio::test]
async fn a_shut_down_conductor_leaves_no_process_and_no_tree() {
    let fixture = Fixture::new("echo half > half.txt; while :; do sleep 1000; done");
    let opened = fixture.open().await.unwrap();
    opened.handle.send(team()).await.unwrap();
    opened.handle.send(fixture.mission("one")).await.unwrap();
    let store = Reader::open(&store_path(&fixture.state_dir())).unwrap().store_id().unwrap();
    let work = fixture.state_dir().join("work");
    let written = async {
        loop {
            let places = std::fs::read_dir(&work).into_iter().flatten().filter_map(Result::ok);
            let mut files = places.map(|place| place.path().join("tree/half.txt"));
            if files.any(|file| std::fs::read_to_string(file).is_ok_and(|text| text == "half\n")) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    soon("the agent's first file", written).await;
    opened.handle.shut_down();
    soon("the end", opened.conductor.ended()).await.unwrap();
    let gone = async {
        while !kapelle_workspace::reaper::running(&store).unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    // A sandbox goes a moment after the process that held it.
    soon("the end of the agent's processes", gone).await;
    assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0);
    let kept = crate::fixture::git(&fixture.repo(), &["for-each-ref", "refs/kapelle/kept"]);
    assert_eq!(kept.lines().count(), 1, "{kept}");
}

/// WRK-07: an agent in a session does the same work, and is listed under the name of its seat while
/// it does.
#[tokio::test]
async fn an_agent_works_in_a_session_that_a_person_can_find() {
    let fixture = Fixture::new("echo x > x.txt; while ! test -e go; do sleep 0.05; done; rm go");
    let fixture = fixture.in_sessions();
    let opened = fixture.open().await.unwrap();
    opened.handle.send(team()).await.unwrap();
    opened.handle.send(fixture.mission("one")).await.unwrap();
    let tree = fixture.tree_with("x.txt").await;
    assert_eq!(fixture.tmux().sessions().await.unwrap(), ["developer-1"]);
    std::fs::write(tree.join("go"), "").unwrap();
    crate::merging::until(&opened, crate::merging::is_proposed).await;
    opened.handle.shut_down();
    soon("the end", opened.conductor.ended()).await.unwrap();
    assert_eq!(git(&fixture.repo(), &["ls-tree", "--name-only", "kapelle/m1"]), "x.txt");
    assert_eq!(fixture.tmux().sessions().await.unwrap(), Vec::<String>::new());
}

/// After a crash the work of the agents is the most valuable thing on the disk. It outlives that
/// git forgot the tree, and a tree that cannot be kept does not lock the project.
#[tokio::test]
async fn what_a_crash_left_is_kept_or_put_aside_but_never_deleted() {
    let fixture = Fixture::new("true");
    let repo = Repository::open(&fixture.repo()).await.unwrap();
    let base = git(&fixture.repo(), &["rev-parse", "main"]).parse().unwrap();
    let work = fixture.state_dir().join("work");
    for fence in ["7", "8"] {
        let place = work.join(fence);
        let tree = Worktree::prepare(&repo, &place.join("tree"), &base).await.unwrap();
        tree.walls(&place.join("git")).await.unwrap();
    }
    git(
        &work.join("7/git"),
        &[
            "--git-dir=.",
            "--work-tree=../tree",
            "commit",
            "--quiet",
            "--allow-empty",
            "--message",
            "by the agent",
        ],
    );
    fs::write(work.join("7/tree/half"), "done").unwrap();
    let large = fs::File::create(work.join("8/tree/large")).unwrap();
    large.set_len(KEPT_BYTES_MAX + 1).unwrap();
    fs::remove_dir_all(fixture.repo().join(".git/worktrees")).unwrap();

    let opened = fixture.open().await.unwrap();
    let kept = git(&fixture.repo(), &["show", "refs/kapelle/kept/leftover/7:half"]);
    assert_eq!(kept, "done");
    let commits = "refs/kapelle/kept-git/leftover/7/HEAD";
    assert_eq!(git(&fixture.repo(), &["show", "-s", "--format=%s", commits]), "by the agent");
    let aside = fixture.state_dir().join("stuck/8");
    let [(path, reason)] = <[_; 1]>::try_from(opened.stuck).unwrap();
    assert_eq!(path, aside);
    assert!(reason.contains(&KEPT_BYTES_MAX.to_string()), "{reason}");
    assert_eq!(fs::metadata(aside.join("tree/large")).unwrap().len(), KEPT_BYTES_MAX + 1);
    assert!(!work.join("7").exists() && !work.join("8").exists());
    opened.handle.shut_down();
    soon("the end", opened.conductor.ended()).await.unwrap();
}

/// A host that cannot start agents is nobody's failure: the task keeps all its tries, and a person
/// is asked to look.
#[tokio::test]
async fn trouble_of_the_host_pauses_the_mission_and_blames_no_task() {
    let fixture = Fixture::new("true");
    fixture.lose_the_agent();
    let opened = fixture.open().await.unwrap();
    opened.handle.send(team()).await.unwrap();
    let Command::OpenMission { request, goal, target, base, plan, mut policy, by } =
        fixture.mission("trouble")
    else {
        unreachable!("a mission is opened")
    };
    policy.retry = RetryPolicy { backoff_base_ms: 1, backoff_max_ms: 1 };
    let mission = Command::OpenMission { request, goal, target, base, plan, policy, by };
    let mut commits = opened.handle.follow();
    opened.handle.send(mission).await.unwrap();
    let paused = |state: &State| state.missions().next().is_some_and(|m| m.paused.is_some());
    while !opened.handle.look(paused).await.unwrap() {
        soon("a commit", commits.recv()).await.unwrap();
    }
    let (failed, reason) = opened
        .handle
        .look(|state| {
            let task = state.tasks().next().unwrap();
            let mission = state.missions().next().unwrap();
            (task.failed_times(), mission.paused.clone().unwrap().to_string())
        })
        .await
        .unwrap();
    assert_eq!(failed, 0);
    assert!(reason.contains("agent.sh"), "{reason}");
    opened.handle.shut_down();
    soon("the end", opened.conductor.ended()).await.unwrap();
}
