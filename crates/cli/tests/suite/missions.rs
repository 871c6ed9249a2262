//! More than one mission in one repository.

use crate::fixture::Fixture;

const SCRIPT: &str = r#"
    case $(grep '"goal"' "$KAPELLE_BRIEFING") in
        *fail*) exit 1 ;;
        *roses*) echo roses > roses.txt ;;
        *violets*) echo violets > violets.txt ;;
    esac"#;

/// A repository is worked on for years: missions follow each other, each on what the last left.
#[test]
fn missions_follow_each_other() {
    let fixture = Fixture::with_agent(SCRIPT);
    let first = fixture.run(&["roses", "--yes", "--json"]).expect(0).json();
    let second = fixture.run(&["violets", "--yes", "--json"]).expect(0).json();
    assert_eq!((&first["mission"]["id"], &second["mission"]["id"]), (&"m1".into(), &"m2".into()));
    assert_eq!(fixture.file("roses.txt"), "roses\n");
    assert_eq!(fixture.file("violets.txt"), "violets\n");
    let status = fixture.json(&["status"]);
    let status: Vec<_> = status.as_array().unwrap().iter().map(|m| &m["status"]).collect();
    assert_eq!(status, ["delivered", "delivered"]);
    assert_eq!(fixture.json(&["why", "m1/1"])["status"], "completed");
    fixture.assert_tidy();
}

/// A mission that failed is over; it must not colour the result of the next one.
#[test]
fn a_failed_mission_does_not_stand_in_the_way() {
    let fixture = Fixture::with_agent(SCRIPT);
    fixture.run(&["fail"]).expect(1);
    fixture.run(&["roses", "--yes"]).expect(0);
    assert_eq!(fixture.file("roses.txt"), "roses\n");
    let last = fixture.run(&["--resume", "--json"]).expect(0).json();
    assert_eq!(last["mission"]["id"], "m2");
}

/// The answer to `kapelle approve m1` is about m1, whatever else waits.
#[test]
fn an_approval_reports_on_the_mission_that_was_approved() {
    let fixture = Fixture::with_agent(SCRIPT);
    fixture.run(&["roses"]).expect(4);
    fixture.run(&["violets"]).expect(4);
    let report = fixture.kapelle(&["approve", "m1", "--json"]).expect(0).json();
    assert_eq!(report["mission"]["id"], "m1");
    assert_eq!(report["mission"]["status"], "delivered");
    // The other one was built on what was there before, and says so instead of undoing it.
    fixture.kapelle(&["approve", "m2"]).expect(4).says("main has gone on");
    assert_eq!(fixture.file("roses.txt"), "roses\n");
}
