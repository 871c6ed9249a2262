//! The sandbox as an agent meets it: its tree, and nothing else.

use std::fs;

use crate::fixture::{Fixture, developer};

/// Tries everything that an agent has no business doing, and reports what it could do. Whether a
/// write got out is seen from outside: inside, an empty place in memory may take it.
fn intruder(fixture: &Fixture) -> String {
    let (home, repo) = (fixture.path("home"), fixture.repo());
    let outside = fixture.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(home.join("id_rsa"), "sesame\n").unwrap();
    format!(
        r#"
        can() {{ echo "$1" >> could.txt; }}
        echo nothing > could.txt
        cat {home}/id_rsa && can read-home
        cat {repo}/.kapelle/store.db > /dev/null && can read-store
        cat {repo}/.kapelle/token > /dev/null && can read-token
        cat {repo}/kapelle.toml > /dev/null && can read-checkout
        echo x > {outside}/file
        echo x > {repo}/file
        echo x >> "$KAPELLE_BRIEFING" && can write-briefing
        git -C {repo} update-ref refs/heads/evil HEAD && can write-branch
        test -z "$SECRET_KEY" || can read-environment
        true"#,
        home = home.display(),
        repo = repo.display(),
        outside = outside.display(),
    )
}

fn could(fixture: &Fixture, args: &[&str]) -> Vec<String> {
    let mut all = vec!["run", "--port", "0", "break out", "--yes"];
    all.extend(args);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kapelle"));
    command.args(all).current_dir(fixture.repo());
    let command = fixture.hermetic(&mut command, crate::fixture::PATH);
    // In the person's environment, as keys often are.
    command.env("SECRET_KEY", "sesame");
    crate::fixture::Live::start(command).ended().expect(0);
    fixture.git(&["show", "main:could.txt"]).lines().map(str::to_owned).collect()
}

fn written_outside(fixture: &Fixture) -> [bool; 2] {
    [fixture.path("outside"), fixture.repo()].map(|folder| folder.join("file").exists())
}

/// An agent runs what a model says, and a model says what it read somewhere.
#[test]
fn an_agent_sees_and_changes_nothing_but_its_tree() {
    let fixture = Fixture::new();
    let script = intruder(&fixture);
    let agent = fixture.script("agent.sh", &script);
    fixture.commit("kapelle.toml", &developer(&agent, ""));
    assert_eq!(could(&fixture, &[]), ["nothing"]);
    assert_eq!(written_outside(&fixture), [false, false]);
    assert_eq!(fixture.git(&["branch", "--list", "evil"]), "");
    let opened = fixture.events("mission_opened");
    assert_eq!(opened[0]["policy"]["sandbox"], "required");
}

/// The same agent without walls: proof that the walls made the difference. Who took them down
/// stands in the journal.
#[test]
fn without_the_sandbox_it_could_and_the_journal_says_who_allowed_it() {
    let fixture = Fixture::new();
    let script = intruder(&fixture);
    let agent = fixture.script("agent.sh", &script);
    fixture.commit("kapelle.toml", &developer(&agent, ""));
    let could = could(&fixture, &["--unsandboxed"]);
    for what in ["read-home", "read-store", "read-token", "write-branch"] {
        assert!(could.iter().any(|one| one == what), "{what} not in {could:?}");
    }
    assert_eq!(written_outside(&fixture), [true, true]);
    // Even so, nothing of the person's environment comes along by accident.
    assert!(!could.iter().any(|one| one == "read-environment"), "{could:?}");
    let opened = fixture.events("mission_opened");
    assert_eq!(opened[0]["policy"]["sandbox"], "off");
    assert!(!opened[0]["by"].as_str().unwrap().is_empty());
}

/// Checks run what agents wrote, so they run behind the same walls.
#[test]
fn a_check_is_behind_the_same_walls() {
    let fixture = Fixture::new();
    let secret = fixture.path("home").join("id_rsa");
    fs::write(&secret, "sesame\n").unwrap();
    let agent = fixture.script("agent.sh", "echo x > x.txt");
    let check = format!("[checks.spy]\ncommand = '! cat {}'", secret.display());
    fixture.commit("kapelle.toml", &developer(&agent, &check));
    fixture.run(&["spy", "--yes"]).expect(0);
}

/// What a project opens on purpose is open: a toolchain in the home, a variable by name.
#[test]
fn openings_are_by_name() {
    let fixture = Fixture::new();
    let tool = fixture.path("home").join("tools");
    fs::create_dir(&tool).unwrap();
    fixture.script("home/tools/greet", "echo hello $GREETED");
    let agent = fixture.script("agent.sh", "greet > greeting.txt");
    let config = "[sandbox]\npath = ['~/tools']\nenv = ['GREETED']";
    fixture.commit("kapelle.toml", &developer(&agent, config));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kapelle"));
    command.args(["run", "--port", "0", "greet", "--yes"]).current_dir(fixture.repo());
    let command = fixture.hermetic(&mut command, crate::fixture::PATH);
    crate::fixture::Live::start(command.env("GREETED", "world")).ended().expect(0);
    assert_eq!(fixture.file("greeting.txt"), "hello world\n");
}
