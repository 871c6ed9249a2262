//! `kapelle sandbox` and `kapelle recover`, as a person uses them.

use std::fs;
use std::process::Command;

use crate::fixture::{Done, Fixture, Live, PATH};

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

/// A relative entry of `PATH` leads into the repository, where anybody may have put a `git`.
#[test]
fn no_program_of_kapelles_own_is_taken_from_the_repository() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::with_agent("true");
    let taken = fixture.path("taken");
    for name in ["git", "bwrap", "tmux", "script"] {
        let program = fixture.repo().join(name);
        fs::write(&program, format!("#!/bin/sh\necho {name} >> {}\n", taken.display())).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let shadowed = format!(".:{PATH}");
    for args in [["doctor"].as_slice(), &["recover"], &["sandbox", "run", "--", "true"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kapelle"));
        command.args(args).current_dir(fixture.repo());
        let ended = Live::start(fixture.hermetic(&mut command, &shadowed)).ended();
        let ran = fs::read_to_string(&taken).unwrap_or_default();
        assert_eq!(ran, "", "{args:?}");
        ended.expect(0);
    }
}

/// A repository of another owner, in a container say, is taken if the user has told git to trust it,
/// as git's own words recommend.
#[test]
fn a_repository_of_another_owner_is_taken_once_the_user_trusts_it() {
    let fixture = Fixture::with_agent("echo x > x.txt");
    let shim = fixture.path("shim");
    fs::create_dir(&shim).unwrap();
    // Git's own way to have every owner taken for another.
    let elsewhere = "GIT_TEST_ASSUME_DIFFERENT_OWNER=1 exec git";
    let git = format!("#!/bin/sh\nPATH={PATH} {elsewhere} \"$@\"\n");
    let script = fixture.script("shim/git", "");
    fs::write(&script, git).unwrap();
    let path = format!("{}:{PATH}", shim.display());
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kapelle"));
        command.args(["run", "--port", "0", "work", "--yes"]).current_dir(fixture.repo());
        Live::start(fixture.hermetic(&mut command, &path)).ended()
    };
    run().expect(6).says("dubious ownership").says("safe.directory");
    let trusted = format!("[safe]\n\tdirectory = {}\n", fixture.repo().display());
    fs::write(fixture.path("home/.gitconfig"), trusted).unwrap();
    run().expect(0);
    assert_eq!(fixture.file("x.txt"), "x\n", "delivered to the checkout, too");
}

/// What only one agent may read is read in that agent's box, and in no other.
#[test]
fn the_box_of_a_role_has_what_its_agent_may_read() {
    let fixture = Fixture::new();
    let (agent, notes) = (fixture.script("agent.sh", "true"), fixture.path("notes"));
    fs::write(&notes, "for testers\n").unwrap();
    let config = format!(
        "[roles.developer]\ncommand = [{agent:?}]\n[roles.tester]\ncommand = [{agent:?}]\nreadable = [{notes:?}]\n"
    );
    fixture.commit("kapelle.toml", &config);
    let read = |role: &str| {
        let notes = notes.to_str().unwrap();
        fixture.kapelle(&["sandbox", "run", "--role", role, "--", "cat", notes])
    };
    assert_eq!(read("tester").expect(0).stdout, "for testers\n");
    read("developer").expect(1);
    read("judge").expect(2).says("no agent has the role judge").says("developer, tester");
}

/// As with an agent: what was committed and is no longer in the tree is somebody's work, too.
#[test]
fn commits_that_were_made_in_a_box_are_kept() {
    let fixture = Fixture::new();
    let work = "echo mine > new; git add new; git commit -qm mine; git checkout -q HEAD^";
    let worked = fixture.kapelle(&["sandbox", "run", "--", "sh", "-c", work]).expect(0);
    let kept = fixture.json(&["recover"]);
    let name = kept[0]["name"].as_str().unwrap();
    assert_eq!((kept.as_array().unwrap().len(), &kept[0]["kind"]), (1, &"commits".into()));
    worked.says(&format!("kapelle recover {name}"));
    fixture.kapelle(&["recover", name, "--branch", "salvage"]).expect(0);
    assert_eq!(fixture.git(&["show", "salvage:new"]), "mine");
}

/// Exactly the box of an agent has a bound on what it leaves on the disk, and lies in a folder
/// for its owner alone.
#[test]
fn a_box_that_is_tried_has_the_same_limits_and_the_same_privacy() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::new();
    fixture.commit("kapelle.toml", "[sandbox]\ndisk_mib = 4\n");
    let fill = "head -c 20000000 /dev/urandom > big; exec sleep 1000";
    let ended = fixture.kapelle(&["sandbox", "run", "--", "sh", "-c", fill]).expect(1);
    ended.says("more than 4194304 bytes were written");
    let mode = fs::metadata(fixture.repo().join(".kapelle")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

/// Whoever presses Ctrl-C, or is killed, has lost nothing.
#[test]
fn what_an_interrupted_box_left_is_kept() {
    let fixture = Fixture::new();
    let work = "echo mine > new; echo written >&2; exec sleep 1000";
    let boxed = ["sandbox", "run", "--", "sh", "-c", work];
    let mut asked = fixture.start(&boxed);
    asked.line_with("written");
    asked.interrupt();
    asked.ended().expect(130).says("kapelle recover");
    let names = |fixture: &Fixture| -> Vec<String> {
        let kept = fixture.json(&["recover"]);
        kept.as_array().unwrap().iter().map(|one| one["name"].to_string()).collect()
    };
    assert_eq!(names(&fixture).len(), 1);

    let mut killed = fixture.start(&boxed);
    killed.line_with("written");
    let number = killed.pid();
    killed.kill();
    let kept = names(&fixture);
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert!(kept.iter().any(|name| name.contains(&format!("-{number}"))), "{kept:?}");
    assert_eq!(fixture.git(&["worktree", "list"]).lines().count(), 1);
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

/// The same binary as an ordinary user on a machine without user namespaces. Bubblewrap makes such a
/// machine: in it, the kernel refuses every further user namespace.
fn without_namespaces(fixture: &Fixture, args: &[&str]) -> Done {
    let mut command = std::process::Command::new("bwrap");
    command.args(["--dev-bind", "/", "/", "--unshare-user", "--disable-userns"]);
    command.args([
        "--uid",
        "1000",
        "--gid",
        "1000",
        "--cap-drop",
        "ALL",
        "--die-with-parent",
        "--",
    ]);
    command.arg(env!("CARGO_BIN_EXE_kapelle")).args(args).current_dir(fixture.repo());
    Live::start(fixture.hermetic(&mut command, PATH)).ended()
}

/// Bubblewrap ties a box to its owner when the box is made. Whoever dies before leaves nobody who
/// reads what the command would print, and the command is not started.
#[test]
fn a_command_whose_owner_died_while_its_box_was_made_is_not_started() {
    let fixture = Fixture::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_kapelle"));
    command.args(["sandbox", "run", "--", "touch", "made"]).current_dir(fixture.repo());
    let ended = fixture.hermetic(&mut command, PATH).stdout(writer).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(said.contains("whoever started this is gone"), "{said}");
    assert_eq!(fixture.json(&["recover"]), serde_json::json!([]), "nothing was made");
}

/// DESIGN 5: where user namespaces are closed, Landlock and the filter on system calls remain, and
/// what is missing is said, with what to do about it.
#[test]
fn without_user_namespaces_the_rest_of_the_layers_is_used_and_explained() {
    let fixture = Fixture::new();
    fs::write(fixture.path("home/key"), "sesame\n").unwrap();
    let told = without_namespaces(&fixture, &["sandbox", "explain"]).expect(0);
    let line = |name: &str| {
        let mut lines = told.stdout.lines();
        lines.find(|line| line.split_whitespace().nth(1) == Some(name)).unwrap().to_owned()
    };
    assert!(line("namespaces").starts_with("MISSING"), "{}", told.stdout);
    assert!(line("namespaces").contains("user.max_user_namespaces"), "{}", told.stdout);
    for layer in ["landlock", "seccomp", "limits"] {
        assert!(line(layer).starts_with("active"), "{}", told.stdout);
    }
    assert!(line("network").contains("only local sockets"), "{}", told.stdout);
    let key = format!("cat README.md; cat {}", fixture.path("home/key").display());
    let boxed = ["sandbox", "run", "--", "sh", "-c", key.as_str()];
    let stopped = without_namespaces(&fixture, &boxed).expect(1);
    assert_eq!(stopped.stdout, "a sample\n", "the tree can be read, the home cannot");
}

/// Whoever asks for namespaces gets them or a refusal; to go without walls is for a person to say.
#[test]
fn without_user_namespaces_a_strict_project_is_refused_unless_a_person_goes_without_walls() {
    let fixture = Fixture::with_agent("echo x > x.txt");
    let config = fixture.file("kapelle.toml");
    fixture.commit("kapelle.toml", &format!("{config}\n[sandbox]\nbackend = \"bubblewrap\"\n"));
    let refused = without_namespaces(&fixture, &["sandbox", "explain"]).expect(6);
    refused.says("there is no sandbox here").says("allow unprivileged user namespaces");
    let run = ["run", "--port", "0", "work", "--yes"];
    let refused = without_namespaces(&fixture, &run).expect(6);
    refused.says("allow unprivileged user namespaces").says("--unsandboxed");
    without_namespaces(&fixture, &[&run[..], &["--unsandboxed"]].concat()).expect(0);
    assert_eq!(fixture.git(&["show", "main:x.txt"]), "x");
    assert_eq!(fixture.events("mission_opened")[0]["policy"]["sandbox"], "off");
}

/// Containers are asked for by name, so there is no fall-back from them.
#[test]
fn a_container_engine_that_is_missing_is_named_with_what_to_do() {
    let fixture = Fixture::new();
    let tools = fixture.path("tools");
    fs::create_dir(&tools).unwrap();
    for tool in ["git", "sh"] {
        std::os::unix::fs::symlink(format!("/usr/bin/{tool}"), tools.join(tool)).unwrap();
    }
    let explain = |config: &str, path: &str| {
        fixture.commit("kapelle.toml", config);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kapelle"));
        command.args(["sandbox", "explain"]).current_dir(fixture.repo());
        Live::start(fixture.hermetic(&mut command, path)).ended().expect(6)
    };
    let podman = "[sandbox]\nbackend = \"podman\"\nimage = \"tools:1\"\n";
    let missing = explain(podman, tools.to_str().unwrap());
    missing.says("podman is not installed").says("apt-get install podman");
    fixture.script("tools/docker", "echo 'Cannot connect to the daemon' >&2; exit 1");
    let docker = "[sandbox]\nbackend = \"docker\"\nimage = \"tools:1\"\n";
    let broken = explain(docker, tools.to_str().unwrap());
    broken
        .says("docker cannot run tools:1: Cannot connect to the daemon")
        .says("try the same by hand");
    let nameless = explain("[sandbox]\nbackend = \"docker\"\n", tools.to_str().unwrap());
    nameless.says("docker needs an image").says("[sandbox] image");
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

/// The path of a socket has 107 bytes at most, and a project lies where its owner wants it.
#[test]
fn a_project_may_lie_deep_below_other_folders() {
    let fixture = Fixture::with_agent("test -t 0 && echo $https_proxy > proxy");
    let config = fixture.file("kapelle.toml");
    let config = config.replace("[team]\n", "[team]\nrunner = \"tmux\"\n");
    fixture.commit("kapelle.toml", &format!("{config}\n[sandbox]\negress = [\"crates.io\"]\n"));
    let deep = fixture.path(&"folder/".repeat(20));
    fs::create_dir_all(&deep).unwrap();
    let repo = deep.join("repo");
    fs::rename(fixture.repo(), &repo).unwrap();
    let kapelle = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kapelle"));
        command.args(args).current_dir(&repo);
        Live::start(fixture.hermetic(&mut command, PATH)).ended().expect(0)
    };
    kapelle(&["doctor"]);
    kapelle(&["run", "--port", "0", "look", "--yes"]);
    assert_eq!(fs::read_to_string(repo.join("proxy")).unwrap(), "http://127.0.0.1:3128\n");
    kapelle(&["attach"]);
}

#[test]
fn attaching_says_how_agents_get_sessions() {
    let fixture = Fixture::with_agent("true");
    let refused = fixture.kapelle(&["attach", "developer-1"]).expect(3);
    refused.says("[team] runner = \"tmux\"");
}
