//! Looking: status, tasks, why and log tell the truth, during a run and after it.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::fixture::{Fixture, PATH};

const SCRIPT: &str = r#"
    case $KAPELLE_TASK in
        wait) echo half > half.txt; while [ ! -e go ]; do sleep 0.02; done; rm go half.txt ;;
    esac
    echo done > "$KAPELLE_TASK.txt""#;

fn statuses(fixture: &Fixture) -> Vec<(String, String, Value)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let tasks = fixture.json(&["tasks"]);
    let tasks = tasks.as_array().unwrap().iter();
    tasks.map(|task| (text(&task["name"]), text(&task["status"]), task["why"].clone())).collect()
}

fn row(name: &str, status: &str, why: impl Into<Value>) -> (String, String, Value) {
    (name.to_owned(), status.to_owned(), why.into())
}

/// A script that watches a mission reads the same facts as the person in front of it.
#[test]
fn a_mission_can_be_watched_from_another_terminal() {
    let fixture = Fixture::with_agent(SCRIPT);
    let plan = fixture.plan(
        r#"[{"id": "first", "title": "First"}, {"id": "wait", "title": "Wait"},
            {"id": "after", "title": "After", "dependencies": ["wait"]}]"#,
    );
    let mut run = fixture.start_run(&["watch me", "--plan", &plan, "--yes"]);
    let url = run.url();
    run.line_with("first: merged as");
    let tree = fixture.written("half.txt");

    let status = fixture.json(&["status"]);
    let mission = &status[0];
    assert_eq!(status.as_array().unwrap().len(), 1);
    for (field, expected) in [
        ("id", json!("m1")),
        ("goal", json!("watch me")),
        ("status", json!("running")),
        ("needs", Value::Null),
        ("branch", json!("kapelle/m1")),
        ("target", json!("main")),
        ("tasks_total", json!(3)),
        ("tasks_completed", json!(1)),
        ("tasks_running", json!(1)),
        ("tasks_failed", json!(0)),
        ("ended_at", Value::Null),
    ] {
        assert_eq!(mission[field], expected, "{field} in {mission:#}");
    }
    let expected = [
        row("first", "completed", Value::Null),
        row("wait", "in_progress", Value::Null),
        row("after", "pending", "waits for wait to be merged"),
    ];
    assert_eq!(statuses(&fixture), expected);
    let why = fixture.json(&["why", "after"]);
    let sentence = "waits for wait to be merged";
    assert_eq!(why, json!({ "task": "after", "status": "pending", "why": sentence }));
    assert_eq!(fixture.json(&["why", "m1/wait"])["why"], "an agent is at work on it");
    let shown = fixture.kapelle(&["status"]).expect(0).stdout;
    assert!(shown.contains(&format!("running: process {} ({url})", run.pid())), "{shown}");

    fs::write(tree.join("go"), "").unwrap();
    run.ended().expect(0);
    let status = fixture.json(&["status"]);
    assert_eq!(
        (&status[0]["status"], &status[0]["tasks_completed"]),
        (&json!("delivered"), &json!(3))
    );
    let done = ["first", "wait", "after"].map(|name| row(name, "completed", Value::Null));
    assert_eq!(statuses(&fixture), done);
    let shown = fixture.kapelle(&["status"]).expect(0).stdout;
    assert!(!shown.contains("running: process"), "{shown}");
}

/// The log is the journal: complete, in order, and the same for people and for programs.
#[test]
fn the_log_is_the_whole_journal_in_order() {
    let fixture = Fixture::with_agent("echo x > x.txt");
    fixture.run(&["do it", "--yes"]).expect(0);
    let journal = fixture.journal();
    let seqs: Vec<u64> = journal.iter().map(|record| record["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    assert_eq!(fixture.json(&["audit", "verify"])["records"], seqs.len());
    let last = fixture.kapelle(&["log", "--last", "2", "--json"]).expect(0).stdout;
    let last: Vec<Value> = last.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(last, journal[journal.len() - 2..]);
    let people = fixture.kapelle(&["log"]).expect(0).stdout;
    let mut rest = people.as_str();
    for text in ["opened m1 for main: do it", "1: Executing do it", "merged as", "delivered"] {
        let at =
            rest.find(text).unwrap_or_else(|| panic!("{text:?} is not in order in:\n{people}"));
        rest = &rest[at..];
    }
}

/// EVT-08: what happened and what agents printed is found by words, task, agent, type and time.
#[test]
fn what_happened_and_what_was_printed_is_found() {
    let fixture = Fixture::with_agent(
        r#"echo "look: the $KAPELLE_TASK gizmo"; echo noise; echo x > "$KAPELLE_TASK.txt""#,
    );
    let plan = fixture.plan(
        r#"[{"id": "one", "title": "First"},
            {"id": "two", "title": "Second", "dependencies": ["one"]}]"#,
    );
    fixture.run(&["build gizmos", "--plan", &plan, "--yes"]).expect(0);
    let found = |args: &[&str]| -> Vec<Value> {
        let all = fixture.kapelle(&[&["search", "--json"], args].concat()).expect(0).stdout;
        all.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let tasks = |found: &[Value]| found.iter().map(|it| it["task"].clone()).collect::<Vec<_>>();
    let printed = found(&["GIZMO", "--kind", "log"]);
    assert_eq!(tasks(&printed), [json!(1), json!(2)], "both, in order: {printed:?}");
    assert_eq!(printed[0]["body"], "look: the one gizmo\nnoise\n");
    assert_eq!(tasks(&found(&["gizmo", "--kind", "log", "--task", "two"])), [json!(2)]);
    assert_eq!(found(&["gizmo", "one", "two"]), [] as [Value; 0], "all words in one place");
    let merged = found(&["--type", "task_merged"]);
    assert_eq!(tasks(&merged), [json!(1), json!(2)]);
    assert_eq!(tasks(&found(&["--type", "task_merged", "--last", "1"])), [json!(2)]);
    let agent = printed[0]["agent"].as_str().unwrap();
    let own = found(&["--agent", agent, "--mission", "m1"]);
    assert!(!own.is_empty() && own.iter().all(|it| it["agent"] == agent), "{own:?}");
    assert_eq!(found(&["--until", "2020-01-01"]), [] as [Value; 0]);
    assert_eq!(found(&["--since", "2020-01-01", "--type", "task_merged"]), merged);

    let shown = fixture.kapelle(&["search", "gizmo", "--task", "m1/one", "--kind", "log"]);
    let shown = shown.expect(0).stdout;
    assert!(shown.contains(&format!("{agent}: m1/one:\n    look: the one gizmo\n")), "{shown}");
    assert!(!shown.contains("noise"), "only the lines that were looked for: {shown}");
    fixture.kapelle(&["search", "unheard"]).expect(0).says("nothing is found");
    fixture.kapelle(&["search", "--since", "soon"]).expect(2).says("2026-11-16T09:30:00Z");
    fixture.kapelle(&["search", "--task", "three"]).expect(3).says("kapelle tasks lists them");
}

/// Somebody who edits the journal's file is found out.
#[test]
fn a_changed_journal_is_found_out() {
    let fixture = Fixture::with_agent("echo x > x.txt");
    fixture.run(&["do it", "--yes"]).expect(0);
    let path = fixture.repo().join(".kapelle/store.db");
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(5).position(|window| window == b"do it").unwrap();
    bytes[at] = b'n';
    fs::write(&path, bytes).unwrap();
    fixture.kapelle(&["audit", "verify"]).expect(1).says("hint: ");
}

/// Whoever pipes the output into `head` is no error of ours.
#[test]
fn a_reader_that_goes_away_is_no_error() {
    let fixture = Fixture::with_agent("echo x > x.txt");
    fixture.run(&["do it", "--yes"]).expect(0);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut log = Command::new(env!("CARGO_BIN_EXE_kapelle"));
    log.arg("log").current_dir(fixture.repo());
    let log = fixture.hermetic(&mut log, PATH).stdout(writer).output().unwrap();
    assert_eq!((log.status.code(), String::from_utf8(log.stderr).unwrap()), (Some(0), "".into()));
}
