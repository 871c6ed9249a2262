//! What comes from outside can be wrong in any way. The answer is an exit code, a reason, and
//! what to do next; never a panic, and never half a start.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::fixture::{Fixture, developer};

const AGENT: &str = "echo x > x.txt";

/// A person mends a configuration by its line.
#[test]
fn a_broken_configuration_names_its_line() {
    let cases = [
        ("[flow]\nphases = [\"green\"\n", "line 2"),
        ("[flow]\nphases = [\"purple\"]\n", "line 2"),
        ("[team]\n\nworkers = 3\n", "line 3"),
        ("[budget]\nmission_usd = -1.0\n", "line 2: -1 is not an amount of money"),
        ("[roles.developer]\nseats = 2\n", "[roles.developer] needs either"),
        ("[flow]\nphases = [\"red\"]\n", "there are no checks"),
    ];
    for (config, says) in cases {
        let fixture = Fixture::new();
        fixture.commit("kapelle.toml", config);
        for args in [&["run", "x"][..], &["run", "--resume"], &["status"]] {
            fixture.kapelle(args).expect(2).says("kapelle.toml").says(says).says("hint: ");
        }
        assert!(!fixture.repo().join(".kapelle").exists(), "half a start: {config}");
    }
}

/// The author of a plan should need one round to mend it.
#[test]
fn a_flawed_plan_is_refused_with_all_its_flaws() {
    let fixture = Fixture::with_agent(AGENT);
    let plan = fixture.plan(
        r#"[{"id": "a", "title": "A", "dependencies": ["b", "nowhere"]},
            {"id": "b", "title": "", "dependencies": ["a"]},
            {"id": "../c", "title": "C", "files": ["/etc/passwd"]}]"#,
    );
    let refused = fixture.run(&["do it", "--plan", &plan]).expect(2);
    for flaw in [
        "Task a depends on nowhere which does not exist",
        "Task b has no title",
        "\"../c\" is not a task id",
        "names the file \"/etc/passwd\"",
        "in a circle: a, b",
        "hint: ",
    ] {
        assert!(refused.stderr.contains(flaw), "{flaw:?} is not in:\n{}", refused.stderr);
    }
    fs::write(&plan, "{ not json").unwrap();
    fixture.run(&["do it", "--plan", &plan]).expect(2).says("line 1");
    fixture.run(&["do it", "--plan", "/nowhere/plan.json"]).expect(2).says("/nowhere/plan.json");
    fixture.run(&[]).expect(2).says("what is the goal?");
    fixture.run(&["  "]).expect(2).says("what is the goal?");
    assert!(!fixture.repo().join(".kapelle").exists(), "half a start");
}

/// Outside of a repository, and in one without a commit, there is nothing to build on.
#[test]
fn a_place_without_a_commit_is_refused() {
    let nowhere = Fixture::without_repository();
    // The fixture lives inside this project's own repository; git must not find that one.
    fs::write(nowhere.path("repo").join(".git"), "gitdir: /nowhere\n").unwrap();
    nowhere.run(&["do it"]).expect(6).says("hint: run kapelle inside a git repository");
    nowhere.kapelle(&["status"]).expect(6);

    let empty = Fixture::without_repository();
    empty.git(&["init", "--quiet", "--initial-branch=main"]);
    empty.run(&["do it"]).expect(6).says("hint: make a first commit");
}

/// Without an agent nothing could ever be done; better said now than after a start.
#[test]
fn a_project_without_an_agent_is_told_how_to_get_one() {
    let fixture = Fixture::new();
    let refused = fixture.run(&["do it"]).expect(2);
    refused.says("no agent is configured for the role developer").says("kapelle init");
    fixture.commit("kapelle.toml", "[roles.developer]\ncommand = ['no-such-agent']\n");
    fixture.run(&["do it"]).expect(6).says("no-such-agent was not found").says("hint: ");
    // What could not start was not begun.
    fixture.run(&["--resume"]).expect(3).says("nothing");
    fixture.kapelle(&["status"]).expect(3).says("nothing has been started");
}

/// Names that nobody knows.
#[test]
fn unknown_missions_and_tasks_are_named() {
    let fixture = Fixture::with_agent(AGENT);
    for args in [&["status"][..], &["tasks"], &["log"], &["why", "1"], &["approve"], &["pause"]] {
        fixture.kapelle(args).expect(3).says("hint: ");
    }
    fixture.kapelle(&["audit", "verify"]).expect(3);
    fixture.run(&["--resume"]).expect(3).says("nothing to resume");
    fixture.run(&["do it", "--yes"]).expect(0);
    fixture.kapelle(&["why", "7-7"]).expect(3).says("m1 has no task 7-7").says("kapelle tasks");
    fixture.kapelle(&["why", "m9/1"]).expect(3).says("m9");
    fixture.kapelle(&["why", "nonsense/1"]).expect(2).says("nonsense");
    fixture.kapelle(&["answer", "9", "x"]).expect(3).says("m1 has no task 9");
    fixture.kapelle(&["pause", "m9"]).expect(3).says("there is no mission m9");
    fixture.kapelle(&["cancel", "m9", "--reason", "x"]).expect(3).says("there is no mission m9");
    fixture.kapelle(&["approve", "m9"]).expect(3).says("m9");
    fixture.kapelle(&["resume", "x"]).expect(2).says("x");
    fixture.kapelle(&["frobnicate"]).expect(2);
}

/// No sandbox is no reason to run without one, nor to hold it against the work: neither a new
/// mission nor one that goes on starts an agent.
#[test]
fn a_missing_sandbox_stops_everything_before_it_starts() {
    let strict = "[sandbox]\nbackend = \"bubblewrap\"\n";
    let agent = "echo half > half.txt; while :; do sleep 1000; done";
    let fixture = Fixture::with_agent_and(agent, strict);
    let bin = fixture.path("bin");
    fs::create_dir(&bin).unwrap();
    symlink("/usr/bin/git", bin.join("git")).unwrap();
    let bin = bin.to_str().unwrap();
    let refused = fixture.start_with(bin, &["run", "--port", "0", "do it"]).ended().expect(6);
    refused.says("bwrap").says("install bubblewrap").says("--unsandboxed");
    assert!(!fixture.repo().join(".kapelle").exists(), "half a start");

    let run = fixture.start_run(&["do it"]);
    fixture.written("half.txt");
    run.kill();
    let refused = fixture.start_with(bin, &["run", "--port", "0", "--resume"]).ended().expect(6);
    refused.says("install bubblewrap");
    assert_eq!(fixture.failures(1), []);
    let doctor = fixture.start_with(bin, &["doctor"]).ended().expect(6);
    assert!(doctor.stdout.contains("MISSING  sandbox"), "{}", doctor.stdout);
    fixture.script("agent.sh", AGENT);
    fixture.run(&["--resume", "--yes"]).expect(0);
}

/// Through a link the journal and the token would be written where somebody else wants them.
#[test]
fn a_state_folder_that_is_a_link_is_refused() {
    let fixture = Fixture::with_agent(AGENT);
    let elsewhere = fixture.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, fixture.repo().join(".kapelle")).unwrap();
    fixture.run(&["do it", "--yes"]).expect(6).says("symbolic link");
    fixture.run(&["--resume"]).expect(6).says("symbolic link");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "something was written through it");
}

/// The same of the token alone: what can be sent to Kapelle would be for whoever made the link.
#[test]
fn a_token_that_is_a_link_is_refused() {
    let fixture = Fixture::with_agent(AGENT);
    fixture.run(&["do it", "--yes"]).expect(0);
    let (token, elsewhere) = (fixture.repo().join(".kapelle/token"), fixture.path("elsewhere"));
    fs::remove_file(&token).unwrap();
    symlink(&elsewhere, &token).unwrap();
    let said = fixture.run(&["do more", "--yes"]).expect(6);
    said.says("token is a symbolic link; it must be a plain file").says("hint: remove the link");
    assert!(!elsewhere.exists(), "it was written through the link");
}

/// The journal and the token are for their owner's eyes, and git never sees them.
#[test]
fn the_state_folder_is_private_and_unseen_by_git() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::with_agent(AGENT);
    fixture.run(&["do it", "--yes"]).expect(0);
    let mode = |name: &str| {
        let path = fixture.repo().join(".kapelle").join(name);
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode(""), mode("token")), (0o700, 0o600));
    assert_eq!((mode("logs"), mode("work")), (0o700, 0o700));
    assert_eq!(fixture.git(&["status", "--porcelain", "--untracked-files=all"]), "");
}

/// SEC-04: whoever could write there could put a journal of their own in our place.
#[test]
fn a_state_folder_that_is_open_to_others_is_closed() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::with_agent(AGENT);
    let state = fixture.repo().join(".kapelle");
    let open_to_all = |path: &Path| {
        fs::create_dir_all(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    };
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    open_to_all(&state);
    fixture.kapelle(&["import", "nowhere.jsonl"]).expect(2).says("nowhere.jsonl");
    assert_eq!(mode(&state), 0o700);
    let folders = [state.clone(), state.join("logs"), state.join("work")];
    folders.iter().for_each(|folder| open_to_all(folder));
    fixture.run(&["do it", "--yes"]).expect(0);
    assert_eq!(folders.map(|folder| mode(&folder)), [0o700; 3]);
}

/// A demo never takes over a folder that has something in it.
#[test]
fn a_demo_refuses_a_folder_that_is_not_empty() {
    let fixture = Fixture::without_repository();
    fs::write(fixture.repo().join("mine.txt"), "mine\n").unwrap();
    let dir = fixture.repo();
    fixture.kapelle(&["demo", "--dir", dir.to_str().unwrap()]).expect(3).says("is not empty");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
}

/// `kapelle init` writes something that works, once.
#[test]
fn a_configuration_to_start_from_is_written_once() {
    let fixture = Fixture::new();
    fixture.kapelle(&["init"]).expect(0).says("caps: ");
    fixture.kapelle(&["status"]).expect(3);
    let agent = fixture.script("agent.sh", AGENT);
    fixture.write("kapelle.toml", &developer(&agent, ""));
    fixture.kapelle(&["init"]).expect(3).says("--force");
    assert_eq!(fixture.file("kapelle.toml"), developer(&agent, ""));
    fixture.write("kapelle.toml", "broken = [\n");
    fixture.kapelle(&["init", "--force"]).expect(0);
    assert!(fixture.file("kapelle.toml").contains("[roles"));
}
