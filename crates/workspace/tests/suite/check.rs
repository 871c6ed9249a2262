//! Checks on exactly one commit.

use std::time::Duration;

use kapelle_core::gates::{Objection, Thresholds, frozen};
use kapelle_core::outcome::{Counts, Percent};
use kapelle_core::policy::{Parser, Reading};
use kapelle_workspace::Confinement;
use kapelle_workspace::check::{Check, CheckRun, run, test_files};

use crate::fixture::{Fixture, path_only, sandbox};

async fn check(fixture: &Fixture, command: &str) -> Check {
    Check {
        command: command.into(),
        timeout: Duration::from_secs(60),
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
    assert_eq!(ran.tail, format!("{commit}\n"));
}

/// What a failed check says is what the next attempt has to work with.
#[tokio::test]
async fn a_failure_is_reported_and_nothing_stays_behind() {
    let fixture = Fixture::new();
    let (repo, commit) = (fixture.open().await, fixture.head());
    let failing = check(&fixture, "touch made; echo because; exit 4").await;
    let ran = run(&repo, &fixture.path("check"), &commit, &failing).await.unwrap();
    assert_eq!((ran.passed, ran.exit.code, ran.tail.as_str()), (false, Some(4), "because\n"));
    assert_eq!(std::fs::read_dir(fixture.path("check")).unwrap().count(), 0);
    assert_eq!(fixture.git(&["worktree", "list", "--porcelain"]).matches("worktree ").count(), 1);
}

#[tokio::test]
async fn a_check_that_hangs_has_failed() {
    let fixture = Fixture::new();
    let (repo, commit) = (fixture.open().await, fixture.head());
    let mut hanging = check(&fixture, "sleep 1000").await;
    hanging.timeout = Duration::from_millis(200);
    let ran = run(&repo, &fixture.path("check"), &commit, &hanging).await.unwrap();
    assert!(!ran.passed && ran.exit.timed_out, "{ran:?}");
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
        assert!(!ran.passed && ran.outcome.is_none(), "{command} {report}: {ran:?}");
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

/// A mode is part of a test, too: a script that cannot be run tests nothing.
#[tokio::test]
async fn test_files_are_compared_by_content_and_mode() {
    let fixture = Fixture::new();
    let patterns = ["tests/**".to_owned()];
    let repo = fixture.open().await;
    fixture.commit("tests/a.sh", "exit 1\n");
    let red = fixture.commit("tests/b.sh", "exit 1\n");
    let red = test_files(&repo, &red, &patterns).await.unwrap();
    let same = fixture.commit("src/a", "code\n");
    assert_eq!(frozen(&red, &test_files(&repo, &same, &patterns).await.unwrap()), []);
    fixture.git(&["config", "core.fileMode", "false"]);
    fixture.git(&["update-index", "--chmod=+x", "tests/a.sh"]);
    let changed = fixture.commit("tests/b.sh", "exit 0\n");
    let changed = test_files(&repo, &changed, &patterns).await.unwrap();
    let touched = |path: &str| Objection::TestsTouched { path: path.into(), how: "changed" };
    assert_eq!(frozen(&red, &changed), [touched("tests/a.sh"), touched("tests/b.sh")]);
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
    let mut baselines = kapelle_workspace::baseline::Baselines::default();
    for commit in [&first, &second, &first] {
        let found = baselines.of(&repo, &fixture.path("check"), commit, &counting).await.unwrap();
        assert!(!found.unwrap().passed);
    }
    assert_eq!(std::fs::read_to_string(runs).unwrap(), "ran\n");
    let changed = fixture.commit("readme", "two\n");
    baselines.of(&repo, &fixture.path("check"), &changed, &counting).await.unwrap();
    assert_eq!(std::fs::read_to_string(fixture.path("runs")).unwrap(), "ran\nran\n");
}
