//! `kapelle sandbox` and `kapelle recover`, as a person uses them.

use std::fs;

use crate::fixture::Fixture;

/// Whoever doubts the box can try it; and what was made in it is not lost.
#[test]
fn a_command_runs_in_the_box_of_an_agent() {
    let fixture = Fixture::new();
    fs::write(fixture.path("home/key"), "sesame\n").unwrap();
    let key = format!("cat {}", fixture.path("home/key").display());
    let stopped = fixture.kapelle(&["sandbox", "run", "--", "sh", "-c", &key]).expect(1);
    assert!(!stopped.stdout.contains("sesame"), "{stopped:?}");
    let status =
        "grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status; cat README.md; echo mine > new";
    let worked = fixture.kapelle(&["sandbox", "run", "--", "sh", "-c", status]).expect(0);
    assert_eq!(worked.stdout, "NoNewPrivs:\t1\nSeccomp:\t2\na sample\n");
    assert!(!fixture.repo().join("new").exists(), "the person's own tree is not touched");

    let kept = fixture.json(&["recover"]);
    let name = kept[0]["name"].as_str().unwrap();
    assert_eq!((&kept[0]["kind"], &kept[0]["files_changed"]), (&"tree".into(), &1.into()));
    let place = fixture.path("salvage");
    let to = place.to_str().unwrap();
    fixture.kapelle(&["recover", name, "--to", to]).expect(0);
    assert_eq!(fs::read_to_string(place.join("new")).unwrap(), "mine\n");
    assert_eq!(fs::read_to_string(place.join("README.md")).unwrap(), "a sample\n");
    let again = fixture.kapelle(&["recover", name, "--to", to]).expect(6);
    assert!(again.stderr.contains("File exists"), "nothing is overwritten: {again:?}");
    fixture.kapelle(&["recover", name, "--branch", "salvage"]).expect(0);
    assert_eq!(fixture.git(&["show", "salvage:new"]), "mine");
}

#[test]
fn what_was_not_kept_is_said_to_be_missing() {
    let fixture = Fixture::new();
    let refused = fixture.kapelle(&["recover", "m9/a/1"]).expect(3);
    assert!(refused.stderr.contains("kapelle recover"), "{refused:?}");
}

#[test]
fn every_layer_is_explained() {
    let fixture = Fixture::new();
    let layers = fixture.json(&["sandbox", "explain"]);
    let active = |name: &str| {
        let mut all = layers.as_array().unwrap().iter();
        all.find(|layer| layer["layer"] == name).unwrap()["active"].as_bool().unwrap()
    };
    assert!(["namespaces", "landlock", "seccomp", "limits", "network"].into_iter().all(active));
    let text = fixture.kapelle(&["sandbox", "explain"]).expect(0);
    assert!(text.stdout.contains("stops: mounting"), "{}", text.stdout);
}

/// Less than what was asked for is never given silently.
#[test]
fn a_box_without_a_way_out_is_refused_where_one_is_configured() {
    let fixture = Fixture::new();
    fixture.commit("kapelle.toml", "[sandbox]\negress = [\"*.com\"]\n");
    let refused = fixture.kapelle(&["sandbox", "run", "--", "true"]).expect(2);
    assert!(refused.stderr.contains("egress"), "{refused:?}");
    fixture.commit("kapelle.toml", "[sandbox]\negress = [\"crates.io\"]\n");
    let env = fixture.kapelle(&["sandbox", "run", "--", "sh", "-c", "echo $https_proxy"]).expect(0);
    assert_eq!(env.stdout, "http://127.0.0.1:3128\n");
}

/// WRK-07: who likes to look over an agent's shoulder has it run in a session.
#[test]
fn an_agent_in_a_session_is_at_a_terminal_and_delivers() {
    let script = "if test -t 0; then echo terminal > place; else echo pipe > place; fi";
    let fixture = Fixture::with_agent(script);
    let config = fixture.file("kapelle.toml");
    fixture.commit("kapelle.toml", &config.replace("[team]\n", "[team]\nrunner = \"tmux\"\n"));
    fixture.run(&["look", "--yes"]).expect(0);
    assert_eq!(fixture.file("place"), "terminal\n");
    fixture.kapelle(&["attach"]).expect(0);
    let nobody = fixture.kapelle(&["attach", "developer-1"]).expect(3);
    nobody.says("there is no session of developer-1").says("nobody is at work now");
}

#[test]
fn attaching_says_how_agents_get_sessions() {
    let fixture = Fixture::with_agent("true");
    let refused = fixture.kapelle(&["attach", "developer-1"]).expect(3);
    refused.says("[team] runner = \"tmux\"");
}
