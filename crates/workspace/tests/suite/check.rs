//! Checks on exactly one commit.

use std::sync::Arc;
use std::time::Duration;

use kapelle_core::gates::{Mock, Tested, Thresholds};
use kapelle_core::outcome::{Counts, Percent};
use kapelle_core::policy::{Parser, Reading};
use kapelle_workspace::Confinement;
use kapelle_workspace::baseline::Baselines;
use kapelle_workspace::check::{Check, CheckRun, mocks, run};
use kapelle_workspace::commands::{CommandError, Commands, ThresholdRules, Told};
use kapelle_workspace::reaper::running;

use crate::fixture::{Fixture, path_only, sandbox};

async fn check(fixture: &Fixture, command: &str) -> Check {
    Check {
        command: command.into(),
        rules: ThresholdRules::default().of_check(command, Duration::from_secs(60)),
        commands: Commands::new().0,
        reading: Reading::default(),
        env: path_only(),
        readable: Vec::new(),
        confinement: Confinement::Sandboxed(sandbox().await),
        lease: fixture.lease(),
        log: fixture.path("log"),
    }
}

/// Only checked commits land, so a check must see that commit, and nothing of what is around.
#[tokio::test]
async fn a_check_sees_exactly_its_commit() {
    let fixture = Fixture::new();
    let commit = fixture.commit("a", "old\n");
    fixture.commit("a", "new\n");
    std::fs::write(fixture.path("repo/untracked"), "").unwrap();
    let repo = fixture.open().await;
    let command =
        "grep -q old a && test ! -e untracked && git status --porcelain && git rev-parse HEAD";
    let ran = run(&repo, &fixture.path("check"), &commit, &check(&fixture, command).await).await;
    let ran = ran.unwrap();
    assert!(ran.passed, "{ran:?}");
    assert_eq!(ran.result.output, format!("{commit}\n"));
}

/// What a failed check says is what the next attempt has to work with.
#[tokio::test]
async fn a_failure_is_reported_and_nothing_stays_behind() {
    let fixture = Fixture::new();
    let (repo, commit) = (fixture.open().await, fixture.head());
    let failing = check(&fixture, "touch made; echo because; exit 4").await;
    let ran = run(&repo, &fixture.path("check"), &commit, &failing).await.unwrap();
    let (code, said) = (ran.result.code, ran.result.output.as_str());
    assert_eq!((ran.passed, code, said), (false, Some(4), "because\n"));
    assert_eq!(std::fs::read_dir(fixture.path("check")).unwrap().count(), 0);
    assert_eq!(fixture.git(&["worktree", "list", "--porcelain"]).matches("worktree ").count(), 1);
}

/// It ignores being asked, and has put a process out of its own group. Nothing of it lives on.
#[tokio::test]
async fn a_check_that_hangs_has_failed_and_is_ended_with_all_that_it_started() {
    let fixture = Fixture::new();
    let (repo, commit) = (fixture.open().await, fixture.head());
    let stubborn = "trap '' TERM; (setsid sleep 1000 &); echo begun; sleep 1000";
    for confinement in [Confinement::Sandboxed(sandbox().await), Confinement::Unsandboxed] {
        let mut hanging = Check { confinement, ..check(&fixture, stubborn).await };
        hanging.rules.limit_ms = 200;
        let ran = run(&repo, &fixture.path("check"), &commit, &hanging).await.unwrap();
        assert_eq!((ran.passed, ran.result.error), (false, Some(CommandError::TimeLimit)));
        assert!(ran.story().contains("ended at its time limit"), "{}", ran.story());
        assert_eq!(running(&fixture.lease().store).unwrap(), [], "nothing lives on");
    }
}

/// CMD-02, CMD-03: what is never silent for long is ended when it is; and somebody hears of it first.
#[tokio::test]
async fn a_silent_check_is_spoken_of_and_ended_where_its_kind_is_never_silent() {
    let fixture = Fixture::new();
    let (repo, commit) = (fixture.open().await, fixture.head());
    let (commands, mut told) = Commands::new();
    let mut silent = Check { commands, ..check(&fixture, "echo begun; sleep 1000").await };
    (silent.rules.silence_ms, silent.rules.kill_ms) = (Some(300), Some(900));
    let ran = run(&repo, &fixture.path("check"), &commit, &silent).await.unwrap();
    assert_eq!((ran.passed, ran.result.error), (false, Some(CommandError::Hang)));
    drop(silent);
    let mut heard = Vec::new();
    while let Some(one) = told.recv().await {
        heard.push(one);
    }
    assert!(heard.iter().any(|one| matches!(one, Told::Warning { .. })), "{heard:?}");
    let id = fixture.lease().fence.0;
    let escalated = Told::Escalated { id, reason: CommandError::Hang, output: "begun\n".into() };
    assert!(heard.contains(&escalated), "{heard:?}");
}

/// CMD-18: behind walls it can do no harm; without them it is not run at all.
#[tokio::test]
async fn a_destructive_check_is_refused_without_walls() {
    let fixture = Fixture::new();
    let (repo, commit) = (fixture.open().await, fixture.head());
    let mut destructive = check(&fixture, "true || rm -rf /").await;
    let ran = run(&repo, &fixture.path("check"), &commit, &destructive).await.unwrap();
    assert!(ran.passed, "{ran:?}");
    destructive.confinement = Confinement::Unsandboxed;
    let refused = run(&repo, &fixture.path("check"), &commit, &destructive).await.unwrap_err();
    let said =
        "the check is not run: `rm -rf /` removes everything; it can run in the sandbox only";
    assert_eq!(refused.to_string(), said);
}

/// Runs a command whose result is read.
async fn read(fixture: &Fixture, command: &str, reading: Reading) -> CheckRun {
    let (repo, commit) = (fixture.open().await, fixture.head());
    let check = Check { reading, ..check(fixture, command).await };
    run(&repo, &fixture.path("check"), &commit, &check).await.unwrap()
}

fn junit(report: &str) -> Reading {
    Reading { parser: Parser::Junit, report: Some(report.into()), ..Reading::default() }
}

const PASSING: &str = "echo '<testsuite><testcase name=\"a\"/></testsuite>'";
const FAILING: &str =
    "echo '<testsuite><testcase name=\"b\"><failure message=\"no\"/></testcase></testsuite>'";

#[tokio::test]
async fn a_report_says_which_tests_ran() {
    let fixture = Fixture::new();
    let command =
        format!("mkdir -p x/out y/out && {PASSING} > x/out/1.xml && {PASSING} > y/out/2.xml");
    let ran = read(&fixture, &command, junit("**/out/*.xml")).await;
    assert!(ran.passed, "{ran:?}");
    assert_eq!(ran.outcome.unwrap().counts, Counts { passed: 2, ..Counts::default() });
}

/// A pass needs the word of both: the exit code and the report.
#[tokio::test]
async fn a_failure_in_the_report_counts_whatever_the_exit_code() {
    let fixture = Fixture::new();
    let ran = read(&fixture, &format!("{FAILING} > r.xml"), junit("r.xml")).await;
    assert!(!ran.passed, "{ran:?}");
    assert!(ran.story().ends_with("the test b fails: no"), "{}", ran.story());
    let ran = read(&fixture, &format!("{PASSING} > r.xml; echo why; exit 3"), junit("r.xml")).await;
    assert!(!ran.passed);
    let broken = &ran.outcome.as_ref().unwrap().broken[0].message;
    assert!(broken.contains("exit code 3") && broken.contains("why"), "{broken}");
}

#[tokio::test]
async fn a_report_that_is_missing_is_not_a_pass() {
    let fixture = Fixture::new();
    let ran = read(&fixture, "true", junit("r.xml")).await;
    assert_eq!((ran.passed, ran.reasons.as_str()), (false, "the check wrote no report r.xml"));
    let ran = read(&fixture, "echo 'undefined: subtract'; exit 2", junit("r.xml")).await;
    assert!(ran.outcome.unwrap().broken[0].message.contains("subtract"), "what did not build");
}

/// Whoever writes the code could write the report as well.
#[tokio::test]
async fn a_report_that_comes_with_the_commit_is_refused() {
    let fixture = Fixture::new();
    fixture.commit("r.xml", "<testsuite><testcase name=\"a\"/></testsuite>");
    let ran = read(&fixture, "true", junit("r.xml")).await;
    assert!(!ran.passed && ran.reasons.contains("r.xml is part of the commit"), "{ran:?}");
    let ran = read(&fixture, "true", junit("**/*.xml")).await;
    assert!(!ran.passed && ran.reasons.contains("r.xml is part of the commit"), "{ran:?}");
}

/// A link would make us read, and tell, what the check itself may not see.
#[tokio::test]
async fn a_report_is_never_read_through_a_link() {
    let fixture = Fixture::new();
    let secret = fixture.path("secret.xml");
    std::fs::write(&secret, "<testsuite><testcase name=\"secret\"/></testsuite>").unwrap();
    let secret = secret.to_str().unwrap();
    let dir = fixture.path("").to_str().unwrap().to_owned();
    for (command, report) in [
        (format!("ln -s {secret} r.xml"), "r.xml"),
        (format!("ln -s {secret} r.xml"), "*.xml"),
        (format!("ln -s {dir} out"), "out/secret.xml"),
        (format!("ln -s {dir} out"), "out/*.xml"),
        ("mkfifo r.xml".to_owned(), "r.xml"),
        ("mkdir r.xml".to_owned(), "r.xml"),
    ] {
        let ran = read(&fixture, &command, junit(report)).await;
        let says = ran.outcome.as_ref().is_some_and(|outcome| !outcome.tests.is_empty());
        assert!(!ran.passed && !says, "{command} {report}: {ran:?}");
    }
}

#[tokio::test]
async fn output_is_read_and_thresholds_are_asked_for() {
    let fixture = Fixture::new();
    let lines =
        "printf '1..1\\nok 1 - a\\n'; printf 'SF:a\\nLF:10\\nLH:7\\nend_of_record\\n' > c.lcov";
    let wanted = |min| Reading {
        parser: Parser::Tap,
        coverage: Some("c.lcov".into()),
        thresholds: Thresholds { coverage_min: Some(Percent(min)), ..Thresholds::default() },
        ..Reading::default()
    };
    let ran = read(&fixture, lines, wanted(7_000)).await;
    assert!(ran.passed, "{ran:?}");
    let ran = read(&fixture, lines, wanted(7_001)).await;
    assert_eq!(ran.reasons, "70.00 % of the lines are covered, less than 70.01 %");
    assert!(!ran.passed);
}

/// What was cut may be where the failure was.
#[tokio::test]
async fn output_that_was_cut_is_no_report() {
    let fixture = Fixture::new();
    let flood =
        "printf '1..1\\nok 1 - a\\n'; yes '# noise' | head -c 6000000; printf 'not ok 2\\n'";
    let tap = Reading { parser: Parser::Tap, ..Reading::default() };
    let ran = read(&fixture, flood, tap).await;
    assert!(!ran.passed && ran.reasons.contains("was cut in the middle"), "{}", ran.reasons);
}

/// SEC-09: tests that replace what they test are found in the files of the very commit.
#[tokio::test]
async fn tests_that_mock_their_unit_are_found_in_the_commit() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    let mocking = "import { add } from '../src/add';\njest.mock('../src/add');\n";
    let commit = fixture.commit("tests/add.test.ts", mocking);
    fixture.commit("tests/add.test.ts", "import { add } from '../src/add';\n");
    let gone = "tests/gone.test.ts".to_owned();
    let tests = vec![gone, "tests/add.test.ts".into()];
    let tested = Tested { tests, units: vec!["src/add.ts".into()] };
    let found = mocks(&repo, &commit, &tested).await.unwrap();
    let mock = Mock { path: "tests/add.test.ts".into(), line: 2, unit: "src/add.ts".into() };
    assert_eq!(found, [mock]);
    let of_others = Tested { units: vec!["src/mul.ts".into()], ..tested };
    assert_eq!(mocks(&repo, &commit, &of_others).await.unwrap(), []);
}

/// A suite of an hour is not run again to learn what is known.
#[tokio::test]
async fn a_baseline_is_run_once_for_the_same_files() {
    let fixture = Fixture::new();
    let (repo, first) = (fixture.open().await, fixture.head());
    fixture.git(&["commit", "--quiet", "--allow-empty", "-m", "same files"]);
    let second = fixture.head();
    let mut counting = check(&fixture, "echo ran >> runs; exit 3").await;
    let runs = fixture.path("runs");
    counting.command = format!("echo ran >> {}; exit 3", runs.display());
    counting.confinement = Confinement::Unsandboxed;
    let baselines = Baselines::default();
    for commit in [&first, &second, &first] {
        let found = baselines.of(&repo, &fixture.path("check"), commit, &counting).await.unwrap();
        assert!(!found.unwrap().passed);
    }
    assert_eq!(std::fs::read_to_string(runs).unwrap(), "ran\n");
    let changed = fixture.commit("readme", "two\n");
    baselines.of(&repo, &fixture.path("check"), &changed, &counting).await.unwrap();
    assert_eq!(std::fs::read_to_string(fixture.path("runs")).unwrap(), "ran\nran\n");
}

/// A check of this fixture that runs outside of the walls, so that it can be counted and held up.
async fn outside(fixture: &Fixture, command: &str) -> Check {
    Check { confinement: Confinement::Unsandboxed, ..check(fixture, command).await }
}

/// Many changes fail at once where they meet one broken base; it is asked once. Another base does
/// not wait for it: the first run here ends only when the other one has.
#[tokio::test]
async fn a_base_is_run_once_for_all_who_ask_and_holds_up_no_other() {
    let fixture = Fixture::new();
    let (repo, first) = (Arc::new(fixture.open().await), fixture.head());
    let second = fixture.commit("readme", "two\n");
    let (runs, gate) = (fixture.path("runs"), fixture.path("gate"));
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let command = format!(
        "if grep -q two readme; then echo > {1}; else echo ran >> {0}; cat {1}; fi",
        runs.display(),
        gate.display(),
    );
    let baselines = Arc::new(Baselines::default());
    let mut asking = Vec::new();
    for (number, commit) in [&first, &first, &first, &second].into_iter().enumerate() {
        let check = outside(&fixture, &command).await;
        let check = Check { log: fixture.path(&format!("log{number}")), ..check };
        let (baselines, repo, commit) = (baselines.clone(), repo.clone(), commit.clone());
        let dir = fixture.path(&format!("check{number}"));
        asking.push(tokio::spawn(async move {
            baselines.of(&repo, &dir, &commit, &check).await.unwrap().unwrap().passed
        }));
    }
    for asked in asking {
        let answered = tokio::time::timeout(Duration::from_secs(50), asked).await;
        assert!(answered.expect("one base waits for another").unwrap());
    }
    assert_eq!(std::fs::read_to_string(runs).unwrap(), "ran\n");
}

/// What was cut short said nothing about the base, so it is asked again.
#[tokio::test]
async fn a_baseline_that_was_cut_short_is_no_answer() {
    let fixture = Fixture::new();
    let (repo, commit) = (fixture.open().await, fixture.head());
    let baselines = Baselines::default();
    let once = fixture.path("once");
    let command = format!("test -e {0} || {{ touch {0}; sleep 1000; }}", once.display());
    let mut slow = outside(&fixture, &command).await;
    slow.rules.limit_ms = 300;
    let dir = fixture.path("check");
    assert!(baselines.of(&repo, &dir, &commit, &slow).await.unwrap().is_none());
    slow.rules.limit_ms = 60_000;
    let answered = baselines.of(&repo, &dir, &commit, &slow).await.unwrap();
    assert!(answered.is_some_and(|run| run.passed), "asked again");
}
