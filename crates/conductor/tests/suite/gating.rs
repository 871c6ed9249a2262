//! What the host reports is what the gates judge by: names of tests, the branch before, the agent's
//! word; and a machine without room.

use std::collections::BTreeMap;

use kapelle_conductor::Opened;
use kapelle_core::event::PauseReason;
use kapelle_core::failure::RetryPolicy;
use kapelle_core::flow::Phase;
use kapelle_core::machine::{MachineUse, Pressure};
use kapelle_core::policy::{Parser, Sandbox};
use kapelle_core::{Command, Event, Role, Seq, State, TaskId, activity};
use kapelle_store::Reader;
use kapelle_workspace::commands::{CommandKind, ThresholdRule, ThresholdRules};

use crate::fixture::{Fixture, git, soon, team};
use crate::merging::{M1, end, is_proposed, mission, until};

/// Writes its test in red and its work in green.
const IN_PHASES: &str = "if test $KAPELLE_PHASE = red; then mkdir -p tests; echo x > tests/new
    else echo x > work; fi";

/// What the check of a repository with a broken test prints, as TAP.
const OLD_AND_NEW: &str = "n=1; echo 'not ok - old'; if test -e tests/new; then n=$((n+1))
    if test -e work; then echo 'ok - new'; else echo 'not ok - new'; fi; fi";

/// A mission with one task, tests first, whose check prints TAP and fails.
async fn begin(fixture: &Fixture, check: &str) -> Opened {
    let opened = fixture.open().await.unwrap();
    let seats = BTreeMap::from([(Role::Developer, 1), (Role::Tester, 1)]);
    opened
        .handle
        .send(Command::ConfigureTeam {
            seats,
            workers_max: 2,
            by: kapelle_core::Actor("ada".into()),
        })
        .await
        .unwrap();
    let mut command = mission(fixture, &["1"], &format!("{check}; echo 1..$n; exit 1"));
    if let Command::OpenMission { policy, .. } = &mut command {
        policy.checks[0].reading.parser = Parser::Tap;
        policy.flow = vec![Phase::Red, Phase::Green];
        policy.tests = vec!["tests/**".into()];
    }
    opened.handle.send(command).await.unwrap();
    opened
}

/// Somebody else's broken test must not keep work from landing.
#[tokio::test]
async fn a_test_that_failed_before_blames_nobody() {
    let fixture = Fixture::new(IN_PHASES);
    let opened = begin(&fixture, OLD_AND_NEW).await;
    until(&opened, is_proposed).await;
    end(opened).await;
    let files = git(&fixture.repo(), &["ls-tree", "-r", "--name-only", "kapelle/m1"]);
    assert_eq!(files, "tests/new\nwork");
}

/// Nor does it excuse what is broken since.
#[tokio::test]
async fn a_test_that_the_change_breaks_is_named_to_the_next_attempt() {
    let fixture = Fixture::new(IN_PHASES);
    let fine = "n=$((n+1)); if test -e work; then echo 'not ok - fine'; else echo 'ok - fine'; fi";
    let check = format!("{OLD_AND_NEW}; {fine}");
    let opened = begin(&fixture, &check).await;
    let failed = |state: &State| state.task(TaskId(1)).is_some_and(|t| t.last_failure.is_some());
    until(&opened, failed).await;
    let told = opened
        .handle
        .look(|state| state.task(TaskId(1)).unwrap().last_failure.clone().unwrap().message);
    let told = told.await.unwrap();
    assert!(told.starts_with("check c failed in fine:"), "{told}");
    end(opened).await;
}

/// GIT-05: a commit says who made it, and with which model; what the agent says is in the journal.
#[tokio::test]
async fn the_word_of_an_agent_and_its_model_are_kept() {
    let script = r#"echo x > x.txt
        echo '{"message": "it is done", "usage": [{"model": "scripted-eco"}]}' > "$KAPELLE_REPORT""#;
    let fixture = Fixture::new(script);
    let opened = fixture.open().await.unwrap();
    opened.handle.send(team()).await.unwrap();
    opened.handle.send(fixture.mission("word")).await.unwrap();
    until(&opened, is_proposed).await;
    let said = opened.handle.look(|state| state.task(TaskId(1)).unwrap().said.clone());
    assert_eq!(said.await.unwrap().unwrap().message, "it is done");
    end(opened).await;
    let format = "--format=%(trailers:key=Kapelle-Model,valueonly)";
    assert_eq!(git(&fixture.repo(), &["log", "-1", format, "kapelle/m1"]).trim(), "scripted-eco");
}

/// WRK-32: a machine that is nearly full pauses its missions and says why.
#[tokio::test]
async fn a_full_machine_pauses_its_missions_with_a_reason() {
    let fixture = Fixture::new("while :; do sleep 1000; done");
    let full = |_: &std::path::Path| Ok(MachineUse { memory_percent: 96, ..MachineUse::default() });
    let opened = fixture.open_on(full).await.unwrap();
    opened.handle.send(team()).await.unwrap();
    opened.handle.send(fixture.mission("full")).await.unwrap();
    until(&opened, |state| state.mission(M1).is_some_and(|m| m.paused.is_some())).await;
    let paused = opened.handle.look(|state| state.mission(M1).unwrap().paused.clone());
    let pressures = vec![Pressure::Memory { percent: 96 }];
    let paused = soon("a look", paused).await.unwrap();
    assert_eq!(paused, Some(PauseReason::Machine { pressures }));
    end(opened).await;
}

/// A mission whose check runs without walls, so that it can remember how often it ran.
fn remembering(fixture: &Fixture, tasks: &[&str], check: &str, timeout_ms: u64) -> Command {
    let mut command = mission(fixture, tasks, check);
    if let Command::OpenMission { policy, .. } = &mut command {
        policy.sandbox = Sandbox::Off;
        policy.retry = RetryPolicy { backoff_base_ms: 1, backoff_max_ms: 1 };
        policy.checks[0].timeout_ms = timeout_ms;
    }
    command
}

/// TDD-12: a check that fails once and passes then is not held against the change, and is recorded.
#[tokio::test]
async fn a_flaky_check_is_run_again_before_the_change_is_blamed() {
    let fixture = Fixture::new("echo x > x.txt");
    let opened = fixture.open().await.unwrap();
    opened.handle.send(team()).await.unwrap();
    let ran = fixture.state_dir().with_file_name("ran");
    let check = format!("test -e {0} || {{ echo ran > {0}; exit 1; }}", ran.display());
    opened.handle.send(remembering(&fixture, &["1"], &check, 20_000)).await.unwrap();
    until(&opened, is_proposed).await;
    let failed = opened.handle.look(|state| state.task(TaskId(1)).unwrap().failed_times()).await;
    assert_eq!(failed.unwrap(), 0);
    end(opened).await;
    let reader = Reader::open(fixture.store()).unwrap();
    let flaky = reader.history(Seq(0)).filter_map(Result::ok).any(|record| match record.event {
        Event::ChecksFinished { results, .. } => {
            results[0].passed && results[0].earlier.as_ref().is_some_and(|first| !first.passed)
        }
        _ => false,
    });
    assert!(flaky, "it is in the journal that it failed at first");
}

/// A check that hangs on the branch itself says nothing about it: it must not excuse a change that
/// fails. A person has to look.
#[tokio::test]
async fn a_baseline_that_is_cut_short_excuses_nobody() {
    let fixture = Fixture::new("echo x > x.txt; while ! test -e go; do sleep 0.05; done; rm go");
    let opened = fixture.open().await.unwrap();
    opened.handle.send(team()).await.unwrap();
    // Fails with what somebody else has put on the branch; on the branch alone, it hangs.
    let check = "test ! -e theirs || { test -e x.txt || sleep 1000; exit 1; }";
    opened.handle.send(remembering(&fixture, &["1"], check, 1_000)).await.unwrap();
    let tree = fixture.tree_with("x.txt").await;
    let repo = fixture.repo();
    std::fs::write(repo.join("theirs"), "").unwrap();
    git(&repo, &["add", "theirs"]);
    let theirs = git(&repo, &["write-tree"]);
    let moved = git(&repo, &["commit-tree", "-m", "theirs", "-p", "kapelle/m1", &theirs]);
    git(&repo, &["update-ref", "refs/heads/kapelle/m1", &moved]);
    std::fs::write(tree.join("go"), "").unwrap();
    until(&opened, |state| state.mission(M1).is_some_and(|m| m.paused.is_some())).await;
    let reason = opened.handle.look(|state| state.mission(M1).unwrap().paused.clone().unwrap());
    let reason = reason.await.unwrap().to_string();
    assert!(reason.contains("the check c has no answer on the branch itself"), "{reason}");
    let landed = opened.handle.look(|state| state.mission(M1).unwrap().counts.completed);
    assert_eq!(landed.await.unwrap(), 0, "nobody was excused");
    end(opened).await;
}

/// CMD-02, CMD-11: whoever watches hears why nothing happens.
#[tokio::test]
async fn a_check_that_says_nothing_is_spoken_of_while_it_runs() {
    let fixture = Fixture::new("echo x > x.txt");
    let go = fixture.state_dir().with_file_name("go");
    let rule = ThresholdRule { silence_ms: Some(50), ..ThresholdRule::default() };
    let by_kind = BTreeMap::from([(CommandKind::Other, rule)]);
    let rules = ThresholdRules { by_kind, ..ThresholdRules::default() };
    let opened = fixture.open_with(rules).await.unwrap();
    opened.handle.send(team()).await.unwrap();
    let mut commits = opened.handle.follow();
    let check = format!("while ! test -e {}; do sleep 0.05; done", go.display());
    opened.handle.send(remembering(&fixture, &["1"], &check, 60_000)).await.unwrap();
    let spoken = async {
        loop {
            let records = commits.recv().await.unwrap();
            let noted = records.iter().find(|r| matches!(r.event, Event::CheckNoted { .. }));
            if let Some(noted) = noted {
                return noted.event.clone();
            }
        }
    };
    let noted = soon("a word about the check", spoken).await;
    let line = opened.handle.look(move |state| activity::line(state, &noted).unwrap().text);
    let line = line.await.unwrap();
    assert!(line.starts_with("the check c has printed nothing for "), "{line}");
    std::fs::write(go, "").unwrap();
    until(&opened, is_proposed).await;
    end(opened).await;
}
