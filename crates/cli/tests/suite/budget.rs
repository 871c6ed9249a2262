//! Money: nothing is spent that was not reserved, and running out is not a failure of the work.

use serde_json::json;

use crate::fixture::Fixture;

const SPENDS: &str = r#"
    echo x > "$KAPELLE_TASK.txt"
    echo '{"usage": [{"model": "scripted-standard", "input_tokens": 10000,
        "output_tokens": 1000}]}' > "$KAPELLE_REPORT""#;

fn two_tasks(fixture: &Fixture) -> String {
    fixture.plan(r#"[{"id": "a", "title": "A"}, {"id": "b", "title": "B", "dependencies": ["a"]}]"#)
}

/// The second attempt does not fit the cap: the mission stops before it, says why, and has its
/// own exit code, so that a script can tell it from a failure.
#[test]
fn a_mission_that_runs_out_of_money_pauses_before_it_overspends() {
    let caps = "[budget]\nmission_usd = 0.06\nattempt_usd = 0.05\n\
                [prices.scripted-standard]\ninput = 3.0\noutput = 15.0";
    let fixture = Fixture::with_agent_and(SPENDS, caps);
    let plan = two_tasks(&fixture);
    let stopped = fixture.run(&["spend", "--plan", &plan, "--yes", "--json"]).expect(5);
    let report = stopped.json();
    assert_eq!(report["mission"]["status"], "paused");
    assert_eq!(report["tasks"], json!({ "total": 2, "completed": 1, "failed": 0 }));
    let spent = report["cost_usd"].as_f64().unwrap();
    assert!((spent - 0.045).abs() < 1e-9, "{spent}");
    let paused = fixture.events("mission_paused");
    assert_eq!(paused[0]["reason"]["kind"], "budget");
    let status = fixture.kapelle(&["status"]).expect(0).stdout;
    assert!(status.contains("paused") && status.contains("would not fit the budget"), "{status}");
    assert_eq!(fixture.failures(2), []);
    fixture.assert_tidy();
}

/// An attempt that spent more than was reserved for it has broken the promise; a person looks
/// before anything else is spent.
#[test]
fn an_attempt_that_overspends_stops_the_mission() {
    let caps = "[budget]\nattempt_usd = 0.01\n\
                [prices.scripted-standard]\ninput = 3.0\noutput = 15.0";
    let fixture = Fixture::with_agent_and(SPENDS, caps);
    let plan = two_tasks(&fixture);
    fixture.run(&["spend", "--plan", &plan, "--yes"]).expect(5).says("were reserved");
    let paused = fixture.events("mission_paused");
    assert_eq!(paused[0]["reason"]["kind"], "overspent");
    // A person who accepts it lets the mission go on.
    fixture.kapelle(&["resume"]).expect(0);
    fixture.run(&["--resume", "--yes"]).expect(5);
    assert_eq!(fixture.task("a")["status"], "completed");
}
