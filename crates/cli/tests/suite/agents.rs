//! Agents: any program that follows the contract is one, and none of them is believed.

use std::fs;

use serde_json::json;

use crate::fixture::{Fixture, developer};

/// A person who can write a shell script can add an agent: a briefing in, a changed tree out.
#[test]
fn a_shell_script_that_edits_the_tree_is_an_agent() {
    let script = r#"
        test "$KAPELLE_MISSION/$KAPELLE_TASK/$KAPELLE_PHASE" = m1/1/green || exit 3
        grep -q '"goal": "greet the world"' "$KAPELLE_BRIEFING" || exit 4
        echo "hello from $KAPELLE_AGENT" > greeting.txt"#;
    let fixture = Fixture::with_agent_and(script, "[checks.greets]\ncommand = 'grep hello *.txt'");
    let report = fixture.run(&["greet the world", "--yes", "--json"]).expect(0).json();
    assert_eq!(report["attempts"], 1);
    assert_eq!(fixture.file("greeting.txt"), "hello from developer-1\n");
    let body = fixture.git(&["log", "-1", "--format=%B", "main"]);
    assert!(body.contains("Kapelle-Task: 1"), "{body}");
    fixture.assert_tidy();
}

/// Agents may live in the repository, too; they are found from its root.
#[test]
fn a_program_of_the_repository_is_an_agent() {
    let fixture = Fixture::new();
    fixture.script("repo/agent.sh", "echo done > done.txt");
    fixture.commit("kapelle.toml", "[roles.developer]\ncommand = ['./agent.sh']\n");
    fixture.run(&["do it", "--yes"]).expect(0);
    assert_eq!(fixture.file("done.txt"), "done\n");
}

/// Every way to go wrong has its kind, its number of retries, and its end in the dead letters;
/// what depends on it waits in vain and says so; what does not is merged all the same.
#[test]
fn every_misbehaviour_ends_in_its_own_kind_of_failure() {
    let script = r#"
        case $KAPELLE_TASK in
            good) echo good > good.txt ;;
            lies) echo '{"status": "success", "message": "all done"}' > "$KAPELLE_REPORT" ;;
            fails) echo '{"status": "error", "message": "no idea how"}' > "$KAPELLE_REPORT" ;;
            garbage) echo x > x.txt; echo '{"status": "suc' > "$KAPELLE_REPORT" ;;
            huge) echo x > x.txt; head -c 300000 /dev/zero | tr '\0' x > "$KAPELLE_REPORT" ;;
            exits) echo x > x.txt; echo last words; exit 137 ;;
            signal) echo x > x.txt; kill -SEGV $$ ;;
            late) echo '{"status": "timeout", "message": "too much"}' > "$KAPELLE_REPORT" ;;
        esac"#;
    let fixture = Fixture::with_agent(script);
    let names = ["good", "lies", "fails", "garbage", "huge", "exits", "signal", "late"];
    let mut tasks: Vec<_> = names.iter().map(|name| json!({ "id": name, "title": name })).collect();
    tasks.push(json!({ "id": "next", "title": "next", "dependencies": ["good", "lies"] }));
    tasks.push(json!({ "id": "last", "title": "last", "dependencies": ["next"] }));
    let plan = fixture.plan(&serde_json::Value::from(tasks).to_string());
    let report = fixture.run(&["bad", "--plan", &plan, "--yes", "--json"]).expect(1).json();
    assert_eq!(report["mission"]["status"], "failed");
    assert_eq!(report["tasks"], json!({ "total": 10, "completed": 1, "failed": 7 }));

    let expected = [
        ("lies", "validation_failed", 3, "the agent reported success but changed nothing"),
        ("fails", "agent_error", 4, "no idea how"),
        ("garbage", "agent_error", 4, "the report is not valid"),
        ("huge", "agent_error", 4, "more than 262144"),
        ("exits", "agent_error", 4, "exit code 137\nlast words"),
        ("signal", "agent_error", 4, "139"),
        ("late", "timeout", 3, "too much"),
    ];
    for (name, kind, times, says) in expected {
        let task = fixture.task(name);
        assert_eq!(task["status"], "dead_letter", "{task:#}");
        let failures = fixture.failures(task["id"].as_u64().unwrap());
        assert_eq!(failures.len(), times, "{name}: {failures:?}");
        for (found, message) in failures {
            assert_eq!(found, kind, "{name}: {message}");
            assert!(message.contains(says), "{name}: {message}");
        }
    }
    assert_eq!(fixture.task("good")["status"], "completed");
    for name in ["next", "last"] {
        let task = fixture.task(name);
        assert_eq!(task["status"], "blocked", "{task:#}");
        assert_eq!(task["why"], "Dependency lies failed", "{task:#}");
    }
    assert_eq!(fixture.git(&["log", "--format=%s", "main"]), "kapelle.toml\nREADME.md");
    fixture.assert_tidy();
}

/// What nobody has a price for may have cost all that was set aside for it.
#[test]
fn a_model_without_a_price_costs_all_that_was_reserved() {
    let fixture = Fixture::with_agent_and(
        r#"echo x > x.txt
        echo '{"usage": [{"model": "nobody-knows", "input_tokens": 1}]}' > "$KAPELLE_REPORT""#,
        "[budget]\nattempt_usd = 0.5",
    );
    let report = fixture.run(&["bad", "--yes", "--json"]).expect(1).json();
    assert_eq!(report["cost_usd"], 0.5);
    let failures = fixture.failures(1);
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0].0, "budget");
    assert!(failures[0].1.contains("nobody-knows"), "{failures:?}");
}

/// The report is read outside of the sandbox. As a link it would make Kapelle read for the agent
/// what the agent may not read itself.
#[test]
fn a_report_that_is_a_link_is_not_followed() {
    let fixture = Fixture::new();
    let secret = fixture.path("home").join("secret");
    fs::write(&secret, r#"{"status": "error", "message": "sesame"}"#).unwrap();
    let agent = fixture.script(
        "agent.sh",
        &format!("echo x > x.txt; ln -s {} \"$KAPELLE_REPORT\"", secret.display()),
    );
    fixture.commit("kapelle.toml", &developer(&agent, ""));
    let done = fixture.run(&["steal it"]);
    let journal = fixture.journal();
    let told = journal.iter().any(|record| record.to_string().contains("sesame"));
    assert!(!told && !done.stderr.contains("sesame"), "the secret is in the journal: {journal:?}");
}

/// An agent that says too much must not fill the disk, nor be stopped by a full pipe.
#[test]
fn a_flood_of_output_is_bounded_and_its_end_is_kept() {
    let line = "x".repeat(100);
    let script = format!("yes {line} | head -n 100000; echo the end; echo x > x.txt");
    let fixture = Fixture::with_agent(&script);
    fixture.run(&["talk", "--yes"]).expect(0);
    let logs = fs::read_dir(fixture.repo().join(".kapelle/logs")).unwrap();
    let logs: Vec<_> = logs.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(logs.len(), 1, "{logs:?}");
    let log = fs::read_to_string(&logs[0]).unwrap();
    assert!(log.len() < 5 << 20, "{} bytes", log.len());
    assert!(log.contains("bytes dropped]") && log.ends_with("the end\n"));
}

/// An agent that hangs costs its time limit and no more, and the next try gets its chance.
#[test]
fn an_agent_that_hangs_is_ended_and_tried_again() {
    let script = r#"
        grep -q '"try": 1' "$KAPELLE_BRIEFING" || { echo done > done.txt; exit; }
        echo half > half.txt
        while :; do sleep 1000; done"#;
    let fixture = Fixture::new();
    let agent = fixture.script("agent.sh", script);
    let config = developer(&agent, "").replace("seats = 4", "seats = 4\ntimeout_seconds = 1");
    fixture.commit("kapelle.toml", &config);
    let mut run = fixture.start_run(&["hang", "--yes", "--json", "--keep-open"]);
    run.line_with("the dashboard stays open");
    // It is not the end of the run that ends it.
    fixture.assert_nobody_works();
    run.interrupt();
    let report = run.ended().expect(0).json();
    assert_eq!((&report["attempts"], &report["retries"]), (&json!(2), &json!(1)));
    let failures = fixture.failures(1);
    assert_eq!(failures, [("timeout".to_owned(), "the attempt did not end within 1 s".to_owned())]);
    // Its half of the work is kept, but not delivered.
    assert_eq!(
        fixture.git(&["ls-tree", "--name-only", "main"]),
        "README.md\ndone.txt\nkapelle.toml"
    );
    let kept = fixture.refs("kept/m1/1");
    assert!(
        kept.iter()
            .any(|name| { fixture.git(&["ls-tree", "--name-only", name]).contains("half.txt") })
    );
    fixture.assert_tidy();
}

/// A tool that leaves something running in the background must not slow down or spy on the rest.
#[test]
fn what_an_agent_leaves_running_ends_with_it() {
    let script = "setsid sleep 1000 & (sleep 1000 &); echo x > x.txt";
    let fixture = Fixture::with_agent(script);
    fixture.run(&["leave something", "--yes"]).expect(0);
    fixture.assert_nothing_runs();
}

fn test_first(tester: &str, coder: &str) -> Fixture {
    let fixture = Fixture::new();
    let tester = fixture.script("tester.sh", tester);
    let coder = fixture.script("coder.sh", coder);
    let config = developer(&coder, "").replace(
        "[retry]",
        &format!(
            "[flow]\nphases = ['red', 'green']\ntests = ['tests/**']\n\
             [checks.test]\ncommand = 'for t in tests/*.sh; do sh $t || exit 1; done'\n\
             [roles.tester]\ncommand = ['{}']\n[retry]",
            tester.display()
        ),
    );
    fixture.commit("tests/old.sh", "true\n");
    fixture.commit("kapelle.toml", &config);
    fixture
}

/// Whoever writes the code must not touch the tests that judge it. The next try is told so, and
/// can do better.
#[test]
fn tests_are_frozen_in_green_and_the_next_try_is_told() {
    let coder = r#"
        if grep -q 'may not change these files: tests/new.sh' "$KAPELLE_BRIEFING"; then
            echo code > code.txt
        else
            echo true > tests/new.sh
        fi"#;
    let fixture = test_first("echo 'test -e code.txt' > tests/new.sh", coder);
    let report = fixture.run(&["add code", "--yes", "--json"]).expect(0).json();
    assert_eq!(report["retries"], 1);
    let failures = fixture.failures(1);
    let says = "the phase green may not change these files: tests/new.sh";
    assert_eq!(failures, [("validation_failed".to_owned(), says.to_owned())]);
    assert_eq!(fixture.file("tests/new.sh"), "test -e code.txt\n");
    fixture.assert_tidy();
}

/// A test that passes before the work is done tests nothing.
#[test]
fn new_tests_that_pass_are_rejected() {
    let fixture = test_first("echo true > tests/new.sh", "echo code > code.txt");
    fixture.run(&["add code", "--yes"]).expect(1);
    let failures = fixture.failures(1);
    assert_eq!(failures.len(), 3, "{failures:?}");
    for (kind, message) in failures {
        assert_eq!(kind, "validation_failed");
        assert!(message.contains("new tests have to fail"), "{message}");
    }
    let phases: Vec<_> = fixture.events("lease_granted");
    assert!(phases.iter().all(|lease| lease["phase"] == "red"), "green began: {phases:?}");
    let why = fixture.kapelle(&["why", "1"]).expect(0).stdout;
    assert!(why.contains("gave up after 3 failures"), "{why}");
}

/// SEC-09: a test that replaces what it should test passes whatever the code does.
#[test]
fn new_tests_that_mock_their_unit_are_rejected() {
    let mocking = r#"
        mkdir -p src
        if grep -q 'by a mock' "$KAPELLE_BRIEFING"; then
            echo 'test -e src/code.js' > tests/new.sh
        else
            printf '%s\n' '# jest.mock("../src/code")' 'false' > tests/new.sh
        fi"#;
    let fixture = test_first(mocking, "mkdir -p src && echo code > src/code.js");
    let plan = fixture.plan(r#"[{"id": "1", "title": "add code", "files": ["src/code.js"]}]"#);
    fixture.run(&["add code", "--plan", &plan, "--yes"]).expect(0);
    let says =
        "tests/new.sh line 1 replaces src/code.js, the very thing that it should test, by a mock";
    assert_eq!(fixture.failures(1), [("validation_failed".to_owned(), says.to_owned())]);
    assert_eq!(fixture.file("tests/new.sh"), "test -e src/code.js\n");
}

/// TDD-13: a criterion of a task that is a command is run, in the same box as a check.
#[test]
fn a_criterion_that_is_a_command_has_to_be_met() {
    let script = r#"
        echo code > code.txt
        if grep -q 'check test -e CHANGELOG failed' "$KAPELLE_BRIEFING"; then
            echo news > CHANGELOG
        fi"#;
    let fixture = Fixture::with_agent(script);
    let plan = r#"[{"id": "1", "title": "add code",
        "validation_criteria": {"criteria": ["$ test -e CHANGELOG", "It reads well"]}}]"#;
    let plan = fixture.plan(plan);
    fixture.run(&["add code", "--plan", &plan, "--yes"]).expect(0);
    let says = "check test -e CHANGELOG failed:\n";
    let failures = fixture.failures(1);
    assert_eq!(failures, [("validation_failed".to_owned(), says.to_owned())]);
    assert_eq!(fixture.file("CHANGELOG"), "news\n");
}

/// An agent's word is no proof: the checks run on what it really left.
#[test]
fn a_change_that_fails_its_check_is_rejected_with_the_output() {
    let fixture = Fixture::with_agent_and(
        "echo broken > code.txt",
        "[checks.works]\ncommand = 'echo looking; grep works code.txt || { echo it does not; exit 1; }'",
    );
    fixture.run(&["add code", "--yes"]).expect(1);
    let failures = fixture.failures(1);
    let says = "check works failed:\nlooking\nit does not";
    assert_eq!(failures[0], ("validation_failed".to_owned(), says.to_owned()));
    assert_eq!(failures.len(), 4, "failing checks have three rounds of their own");
    assert_eq!(fixture.git(&["ls-tree", "--name-only", "kapelle/m1"]), "README.md\nkapelle.toml");
}
