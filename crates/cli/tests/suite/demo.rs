//! `kapelle demo`: the first thing that anybody runs.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::fixture::{Fixture, assert_tidy, git_in};

/// Without `--dir` there is no folder to look at, so the fixture's home is the place to look.
fn entries(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// The report is what programs rely on: every number in it must be the truth about the repository
/// and the journal that it leaves.
#[test]
fn the_report_tells_the_truth_about_what_was_delivered() {
    let fixture = Fixture::without_repository();
    let dir = fixture.path("repo");
    let args = ["demo", "--dir", dir.to_str().unwrap(), "--port", "0", "--yes", "--json"];
    let report = fixture.kapelle(&args).expect(0).json();

    let mission = json!({
        "id": "m1", "status": "delivered", "goal": "Build a to-do list for the shell",
        "needs": null });
    assert_eq!(report["mission"], mission);
    assert_eq!(report["tasks"], json!({ "total": 8, "completed": 8, "failed": 0 }));
    // One lie, one crash.
    assert_eq!(report["retries"], 2, "{report:#}");
    // Two phases a task, the retries, and the question that was answered.
    assert_eq!(report["attempts"], 8 * 2 + 2 + 1, "{report:#}");
    assert!(report["cost_usd"].as_f64().unwrap() > 0.0, "{report:#}");
    assert!(report["duration_ms"].as_u64().unwrap() > 0, "{report:#}");
    let url = report["dashboard_url"].as_str().unwrap();
    assert!(url.starts_with("http://127.0.0.1:") && !url.contains(":0/"), "{url}");

    let head = fixture.main();
    assert_eq!(report["target"], json!({ "branch": "main", "commit": head }));
    let audit = fixture.json(&["audit", "verify"]);
    assert_eq!(audit["intact"], true);
    assert_eq!(audit["head_hash"], report["journal"]["head_hash"]);
    assert_eq!(audit["records"], report["journal"]["events"]);

    // What is checked out is what was delivered, and it works.
    assert_eq!(fixture.git(&["status", "--porcelain"]), "");
    assert_eq!(fixture.git(&["symbolic-ref", "HEAD"]), "refs/heads/main");
    assert!(fixture.file("lib/export.sh").contains("as csv"), "the answer is in the tree");
    fixture.assert_tidy();
}

/// Nobody asked for a sample in their temporary folder to stay.
#[test]
fn a_demo_without_a_folder_leaves_nothing() {
    let fixture = Fixture::without_repository();
    let args = ["demo", "--port", "0", "--json"];
    let report: Value = fixture.kapelle(&args).expect(0).json();
    assert_eq!(report["mission"]["status"], "delivered");
    assert_eq!(entries(&fixture.path("home")), Vec::<String>::new());
}

/// A demo that cannot run must say so before it makes a folder that is then in the way.
#[test]
fn a_demo_that_cannot_run_leaves_nothing() {
    let fixture = Fixture::without_repository();
    let bin = fixture.path("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink("/usr/bin/git", bin.join("git")).unwrap();
    let without_bwrap = bin.to_str().unwrap();
    let dir = fixture.path("sample");
    let named = ["demo", "--port", "0", "--dir", dir.to_str().unwrap()];
    for args in [&["demo", "--port", "0"][..], &named] {
        let refused = fixture.start_with(without_bwrap, args).ended().expect(6);
        refused.says("bubblewrap").says("hint: ");
        assert_eq!(entries(&fixture.path("home")), Vec::<String>::new());
        assert!(!dir.exists());
    }
    // A file is where the folder should be: nothing is left beside it either.
    let taken = fixture.path("taken");
    fs::write(&taken, "mine\n").unwrap();
    let before = entries(&fixture.path("")).len();
    fixture.kapelle(&["demo", "--port", "0", "--dir", taken.to_str().unwrap()]).expect(6);
    assert_eq!(entries(&fixture.path("")).len(), before);
    // Nor may a port that is taken leave the sample behind.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    fixture.kapelle(&["demo", "--port", &port]).expect(6).says(&port);
    assert_eq!(entries(&fixture.path("home")), Vec::<String>::new());
}

/// Where there is no sandbox a person may choose to go without, and the journal says who did.
#[test]
fn an_unsandboxed_demo_delivers_the_same() {
    let fixture = Fixture::without_repository();
    let dir = fixture.path("sample");
    let args = ["demo", "--port", "0", "--unsandboxed", "--dir", dir.to_str().unwrap()];
    fixture.kapelle(&args).expect(0).says("WARNING: agents and checks run without a sandbox");
    assert!(git_in(&dir, &["show", "main:lib/export.sh"]).contains("as csv"));
    assert_tidy(&fixture, &dir);
}
