//! People and a running Kapelle: questions, pauses, cancellations, Ctrl-C, and a second one.

use std::fs;

use nix::sys::signal::Signal;

use crate::fixture::{Fixture, Live};

/// Works until the test lets it go on, so that a run lasts exactly as long as a test needs it.
const WAITS: &str = r#"
    echo half > half.txt
    while [ ! -e go ]; do sleep 0.02; done
    rm go half.txt
    echo done > "$KAPELLE_MISSION.txt""#;

const ASKS: &str = r#"
    if answer=$(grep -o '"user_input": "[a-z]*"' "$KAPELLE_BRIEFING"); then
        echo "$answer" > answer.txt
    else
        echo '{"status": "checkpoint", "checkpoint":
            {"message": "Which colour?", "resume_id": "colour", "options": ["blue", "red"]}}' \
            > "$KAPELLE_REPORT"
    fi"#;

fn let_go(fixture: &Fixture) {
    let tree = fixture.written("half.txt");
    fs::write(tree.join("go"), "").unwrap();
}

/// Starts a mission of one task and waits until its agent is in the middle of it.
fn at_work(fixture: &Fixture, args: &[&str]) -> Live {
    let mut all = vec!["wait"];
    all.extend(args);
    let run = fixture.start_run(&all);
    fixture.written("half.txt");
    run
}

/// Nobody has to sit beside it: the question waits, with the command that answers it, and the
/// answer reaches the agent.
#[test]
fn a_question_waits_for_its_answer_while_nothing_runs() {
    let fixture = Fixture::with_agent(ASKS);
    let asked = fixture.run(&["paint it", "--yes", "--json"]).expect(4);
    let asked = asked.says("asks: Which colour?").says("kapelle answer m1/1 'blue'");
    assert_eq!(asked.json()["mission"]["status"], "awaiting_answer");
    let question = &fixture.task("1")["question"];
    assert_eq!(question["text"], "Which colour?");
    assert_eq!(question["options"], serde_json::json!(["blue", "red"]));
    let why = fixture.kapelle(&["why", "1"]).expect(0).stdout;
    assert!(why.contains("asks a person: Which colour?"), "{why}");

    fixture.kapelle(&["answer", "1", "green"]).expect(0).says("kapelle run --resume");
    fixture.kapelle(&["answer", "1", "green"]).expect(3).says("is not asking anything");
    fixture.run(&["--resume", "--yes"]).expect(0);
    assert_eq!(fixture.file("answer.txt"), "\"user_input\": \"green\"\n");
    assert_eq!(fixture.failures(1), []);
    fixture.assert_tidy();
}

/// A question stops the task that asks and nothing else; the answer is taken up at once.
#[test]
fn a_question_is_answered_while_others_work() {
    let script = format!("case $KAPELLE_TASK in ask) {ASKS} ;; wait) {WAITS} ;; esac");
    let fixture = Fixture::with_agent(&script);
    let plan = fixture.plan(r#"[{"id": "ask", "title": "ask"}, {"id": "wait", "title": "wait"}]"#);
    let mut run = fixture.start_run(&["paint it", "--plan", &plan, "--yes"]);
    run.line_with("ask: asks: Which colour?");
    let answered = fixture.kapelle(&["answer", "ask", "red"]).expect(0).says("answered");
    assert!(!answered.stderr.contains("nothing runs"), "{}", answered.stderr);
    run.line_with("ask: merged as");
    assert_eq!(fixture.task("wait")["status"], "in_progress");
    let_go(&fixture);
    run.ended().expect(0);
    assert_eq!(fixture.file("answer.txt"), "\"user_input\": \"red\"\n");
    fixture.assert_tidy();
}

/// A pause stops the agents at once and keeps what they have; the run stays, so that it can be
/// resumed from where it was paused, be that a terminal or the dashboard.
#[test]
fn a_pause_stops_the_agents_and_a_resume_lets_them_go_on() {
    let fixture = Fixture::with_agent(WAITS);
    let mut run = at_work(&fixture, &["--yes"]);
    fixture.kapelle(&["pause", "--reason", "lunch"]).expect(0).says("paused");
    run.line_with("paused m1: lunch");
    fixture.assert_nobody_works();
    let status = fixture.json(&["status"]);
    assert_eq!(
        (&status[0]["status"], &status[0]["status_reason"]),
        (&"paused".into(), &"lunch".into())
    );
    assert!(fixture.task("1")["why"].as_str().unwrap().contains("paused: lunch"));
    fixture.kapelle(&["pause"]).expect(3).says("m1 is already paused");

    let resumed = fixture.kapelle(&["resume"]).expect(0);
    assert!(!resumed.stderr.contains("nothing runs"), "{}", resumed.stderr);
    run.line_with("resumed m1");
    run.line_with("Executing wait");
    let_go(&fixture);
    run.ended().expect(0);
    assert_eq!(fixture.file("m1.txt"), "done\n");
    assert_eq!(fixture.events("attempt_interrupted")[0]["cause"], "mission_paused");
    assert_eq!(fixture.failures(1), []);
    assert!(
        fixture
            .refs("kept/m1/1")
            .iter()
            .any(|name| { fixture.git(&["ls-tree", "--name-only", name]).contains("half.txt") })
    );
    fixture.assert_tidy();
}

/// A mission that was paused before must not make `kapelle run --resume` wait for nobody.
#[test]
fn going_on_with_a_paused_mission_says_what_it_needs() {
    let fixture = Fixture::with_agent(WAITS);
    at_work(&fixture, &[]).kill();
    fixture.kapelle(&["pause", "--reason", "lunch"]).expect(0).says("kapelle resume");
    fixture.run(&["--resume", "--yes"]).expect(4).says("kapelle resume m1");
    fixture.assert_nothing_runs();
}

/// Cancelling is for good: agents end, nothing is delivered, and nothing brings it back.
#[test]
fn a_cancelled_mission_ends_at_once_and_for_good() {
    let fixture = Fixture::with_agent(WAITS);
    let before = fixture.main();
    let run = at_work(&fixture, &["--yes"]);
    fixture.kapelle(&["cancel"]).expect(2).says("--reason");
    fixture.kapelle(&["cancel", "--reason", "not needed"]).expect(0).says("cancelled");
    run.ended().expect(1).says("cancelled m1: not needed");
    fixture.assert_tidy();
    fixture.run(&["--resume", "--yes"]).expect(1);
    fixture.kapelle(&["resume"]).expect(3).says("m1 has ended: it is cancelled");
    assert_eq!(fixture.main(), before);
    let why = fixture.kapelle(&["why", "1"]).expect(0).stdout;
    assert!(why.contains("m1 was cancelled: not needed"), "{why}");
    assert_eq!(fixture.refs("kept/m1/1").len(), 1, "its work is kept all the same");
}

/// Two conductors on one repository would undo each other's work. The second one says who is
/// there, and leaves nothing behind for the first one to find.
#[test]
fn a_second_run_is_refused_and_says_who_is_there() {
    let fixture = Fixture::with_agent(WAITS);
    let mut run = fixture.start_run(&["first", "--yes"]);
    let url = run.url();
    fixture.written("half.txt");
    for second in [&["second"][..], &["--resume"]] {
        let refused = fixture.run(second).expect(3);
        refused.says(&format!("process {} already leads this project, at {url}", run.pid()));
    }
    let_go(&fixture);
    run.ended().expect(0);
    assert_eq!(fixture.events("mission_opened").len(), 1);
    fixture.run(&["--resume"]).expect(0);
    assert_eq!(fixture.events("mission_opened").len(), 1, "the refused one was carried out");

    let third = fixture.start_run(&["third", "--yes"]);
    let_go(&fixture);
    third.ended().expect(0);
    assert_eq!(fixture.events("mission_opened").len(), 2);
}

/// Ctrl-C is a pause of the whole thing: it has its own exit code, and nothing is lost.
#[test]
fn an_interrupted_run_keeps_its_work_and_goes_on_later() {
    let fixture = Fixture::with_agent(WAITS);
    let run = at_work(&fixture, &["--yes"]);
    run.interrupt();
    run.ended().expect(130).says("kapelle run --resume");
    fixture.assert_tidy();
    let kept = fixture.refs("kept/m1/1");
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(fixture.git(&["show", &format!("{}:half.txt", kept[0])]), "half");
    let interrupted = fixture.events("attempt_interrupted");
    let causes: Vec<_> = interrupted.iter().map(|event| &event["cause"]).collect();
    assert_eq!(causes, ["stopped"], "it is durable before Kapelle ends");

    let resumed = fixture.start_run(&["--resume", "--yes"]);
    let_go(&fixture);
    resumed.ended().expect(0);
    assert_eq!(fixture.file("m1.txt"), "done\n");
    assert_eq!(fixture.failures(1), []);
}

/// A person who presses Ctrl-C once must not have to press it again, whatever Kapelle was busy
/// with at that moment; `kill` without a number means the same.
#[test]
fn an_interruption_is_never_missed() {
    for (lines, signal) in [(2, Signal::SIGINT), (9, Signal::SIGTERM), (40, Signal::SIGINT)] {
        let fixture = Fixture::without_repository();
        let dir = fixture.repo();
        let args = ["demo", "--port", "0", "--pace", "5", "--dir", dir.to_str().unwrap()];
        let mut demo = fixture.start(&args);
        for _ in 0..lines {
            demo.line_where("any line", |_| true);
        }
        demo.signal(signal);
        demo.ended().expect(130);
        fixture.assert_tidy();
    }
}

/// Without a dashboard nobody can talk to a run, and whoever tries is told so.
#[test]
fn a_run_without_a_dashboard_cannot_be_asked() {
    let fixture = Fixture::with_agent(WAITS);
    let run = at_work(&fixture, &["--no-dashboard", "--yes"]);
    let pid = run.pid();
    let refused = fixture.kapelle(&["pause"]).expect(3);
    refused.says(&format!("process {pid} runs this project without a dashboard")).says("Ctrl-C");
    let_go(&fixture);
    run.ended().expect(0);
}

/// With `--keep-open` the run goes on living after its work: what a person then asks for is still
/// done, and told.
#[test]
fn a_run_that_is_kept_open_goes_on_with_what_people_ask_for() {
    let fixture = Fixture::with_agent("echo roses > poem.txt");
    let mut run = fixture.start_run(&["write a poem", "--keep-open"]);
    run.line_with("the dashboard stays open");
    let approved = fixture.kapelle(&["approve"]).expect(0);
    assert!(!approved.stderr.contains("nothing runs"), "{}", approved.stderr);
    run.line_with("delivered");
    run.interrupt();
    run.ended().expect(0);
    assert_eq!(fixture.file("poem.txt"), "roses\n");
}

/// Two goals at the same moment: one is carried out, the other is refused, and neither becomes
/// the other.
#[test]
fn two_goals_at_once_do_not_become_each_other() {
    let fixture = Fixture::with_agent("echo \"$KAPELLE_MISSION\" > goal.txt");
    let goals = ["first goal", "second goal"];
    let runs = goals.map(|goal| fixture.start_run(&[goal, "--yes"]));
    let ended = runs.map(crate::fixture::Live::ended);
    let done: Vec<&str> = std::iter::zip(goals, &ended)
        .filter(|(_, done)| done.code == 0)
        .map(|(goal, _)| goal)
        .collect();
    assert!(!done.is_empty(), "nobody was served");
    let opened = fixture.events("mission_opened");
    let told: Vec<&str> = opened.iter().filter_map(|event| event["goal"].as_str()).collect();
    let (mut told, mut done) = (told, done);
    told.sort_unstable();
    done.sort_unstable();
    assert_eq!(told, done);
    let left = fixture.repo().join(".kapelle").read_dir().unwrap();
    let left = left.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    assert_eq!(left.filter(|name| name.starts_with("request-")).count(), 0);
}

/// What was refused must not be carried out behind somebody's back when it becomes possible.
#[test]
fn a_goal_for_a_missing_branch_is_forgotten() {
    let fixture = Fixture::with_agent("echo x > x.txt");
    fixture.run(&["wrong idea", "--target", "nosuch"]).expect(3);
    fixture.git(&["branch", "nosuch"]);
    fixture.run(&["--resume", "--yes"]).expect(3).says("nothing to resume");
}
