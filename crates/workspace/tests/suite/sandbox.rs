//! Attacks. Each is first shown to succeed without walls, or it would prove nothing.

use std::path::Path;

use kapelle_workspace::process::Hold;
use kapelle_workspace::reaper::{reap, running};
use kapelle_workspace::sandbox::{Error, HOME};
use kapelle_workspace::{Walls, Worktree, spawn};

use crate::fixture::{
    Fixture, assert_stopped, both, prepared, run, run_boxed, sandbox, without_number, write,
};
use crate::userns::is_without_namespaces;

/// The point of it all: an agent can work as if it had the repository to itself.
#[tokio::test]
async fn an_agent_can_edit_and_commit_in_its_tree() {
    for format in ["--object-format=sha1", "--object-format=sha256"] {
        work(Fixture::with(format)).await;
    }
}

async fn work(fixture: Fixture) {
    let base = fixture.head();
    let (worktree, walls) = prepared(&fixture).await;
    let command = "set -e; test -z \"$(git status --porcelain)\"; git log --format=%H main; \
                   echo new > new; git add new; git commit -qm one; git branch mine; \
                   git checkout -q mine; echo more >> readme; git commit -qam two; git stash list; \
                   git diff --stat main; echo left > untracked";
    let exit = run_boxed(fixture.shell(worktree.dir(), command), &walls).await;
    assert_eq!(exit.code, Some(0), "{exit:?}");
    assert!(exit.tail.starts_with(base.as_str()), "{exit:?}");
    let repo = fixture.open().await;
    let change = worktree.change("work", &[]).await.unwrap().unwrap();
    let changed = repo.changed_paths(&base, &change).await.unwrap();
    assert_eq!(changed, ["new", "readme", "untracked"]);
}

/// Commits of an agent are in its private directory. Git must not stumble over them when the
/// user tidies up meanwhile.
#[tokio::test]
async fn the_users_repository_stays_whole_while_an_agent_works() {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    let command = "echo new > new && git add new && git commit -qm one";
    let exit = run_boxed(fixture.shell(worktree.dir(), command), &walls).await;
    assert_eq!(exit.code, Some(0), "{exit:?}");
    fixture.git(&["gc", "--quiet", "--prune=now"]);
    assert_eq!(fixture.git(&["fsck", "--strict"]), "");
}

#[tokio::test]
async fn a_file_in_the_users_home_cannot_be_read() {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    let secret = fixture.path("home/.ssh/id");
    write(&secret, "secret");
    let command = format!("cat {}", secret.display());
    assert_stopped(&both(&fixture, worktree.dir(), &walls, &command).await);
    if !is_without_namespaces() {
        let inside = run_boxed(fixture.shell(worktree.dir(), "ls -A $HOME /home/*"), &walls).await;
        let nobody = "/home/agent:\n\n/home/agent:\n";
        assert_eq!((inside.code, inside.tail.as_str()), (Some(0), nobody));
    }
}

#[tokio::test]
async fn nothing_outside_of_the_tree_can_be_written() {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    for place in ["repo/other", "attempt/new", "attempt/tree/../../new"] {
        let path = fixture.path(place);
        let command = format!("echo owned > {}", path.display());
        assert_nothing_written(&fixture, (&worktree, &walls), &command, &path).await;
    }
    let inside = run_boxed(fixture.shell(worktree.dir(), "echo x > /usr/x || echo x > /x"), &walls);
    assert_ne!(inside.await.code, Some(0));
    // The link is made in the tree, where it is allowed; it leads nowhere.
    let target = fixture.path("repo/linked");
    let command = format!("ln -sfn {} link && echo owned > link", target.display());
    assert_nothing_written(&fixture, (&worktree, &walls), &command, &target).await;
}

/// Seen from outside: a box that stands below `/tmp` has an empty `/tmp` of its own in memory,
/// which may take what is written there.
async fn assert_nothing_written(
    fixture: &Fixture,
    (worktree, walls): (&Worktree, &Walls),
    command: &str,
    path: &Path,
) {
    run(fixture.shell(worktree.dir(), command)).await;
    assert!(path.exists(), "the attack itself must work: {command}");
    std::fs::remove_file(path).unwrap();
    run_boxed(fixture.shell(worktree.dir(), command), walls).await;
    assert!(!path.exists(), "the walls did not hold: {command}");
}

/// Only the orchestrator has authority over branches.
#[tokio::test]
async fn a_reference_of_the_repository_cannot_be_moved() {
    let fixture = Fixture::new();
    let first = fixture.head();
    fixture.commit("second", "");
    let (worktree, walls) = prepared(&fixture).await;
    let git_dir = fixture.path("repo/.git");
    let mut attacks = vec![
        format!("git --git-dir={} update-ref refs/heads/main {first}", git_dir.display()),
        format!("echo {first} > {}/refs/heads/main", git_dir.display()),
        format!("git --git-dir={} config core.fsmonitor /tmp/x", git_dir.display()),
        format!("touch {}/hooks/post-checkout", git_dir.display()),
        format!("touch {}/objects/owned", git_dir.display()),
    ];
    // Without namespaces it is a file of the tree like any other. Nobody believes it.
    if !is_without_namespaces() {
        attacks.push("rm .git && echo gitdir: /tmp > .git".into());
    }
    for attack in attacks {
        let before = fixture.head();
        let inside = run_boxed(fixture.shell(worktree.dir(), &attack), &walls).await;
        assert_eq!(fixture.head(), before, "{attack}");
        let outside = run(fixture.shell(worktree.dir(), &attack)).await;
        assert_stopped(&(outside, inside));
    }
}

/// Settings hold remotes, and remotes hold credentials.
#[tokio::test]
async fn settings_of_the_repository_cannot_be_read() {
    let fixture = Fixture::new();
    fixture.git(&["config", "remote.origin.url", "https://me:secret@example.org/"]);
    let (worktree, walls) = prepared(&fixture).await;
    let command = format!("cat {}", fixture.path("repo/.git/config").display());
    assert_stopped(&both(&fixture, worktree.dir(), &walls, &command).await);
    let command = "git config remote.origin.url";
    assert_stopped(&both(&fixture, worktree.dir(), &walls, command).await);
}

#[tokio::test]
async fn no_variable_is_seen_that_was_not_given() {
    let fixture = Fixture::new();
    let (worktree, mut walls) = prepared(&fixture).await;
    walls.env.insert("TOKEN".into(), "from the walls".into());
    let mut spec = fixture.shell(worktree.dir(), "");
    (spec.program, spec.args) = ("/usr/bin/env".into(), Vec::new());
    spec.env.insert("LD_LIBRARY_PATH".into(), worktree.dir().into());
    let wrapped = sandbox().await.wrap(spec, &walls).unwrap();
    assert!(!wrapped.env.contains_key("LD_LIBRARY_PATH"), "bubblewrap itself would load from it");
    assert!(!wrapped.args.iter().any(|arg| arg == "TOKEN"), "everybody can read command lines");
    let exit = run(wrapped).await;
    let mut seen: Vec<String> = exit.tail.lines().map(without_number).collect();
    seen.sort_unstable();
    let tree = worktree.dir().display();
    assert_eq!(
        seen,
        [
            format!("HOME={HOME}"),
            format!("KAPELLE_LEASE={}", fixture.lease()),
            "KAPELLE_RUN=*".into(),
            format!("LD_LIBRARY_PATH={tree}"),
            "PATH=/usr/local/bin:/usr/bin:/bin".into(),
            format!("PWD={tree}"),
            "TOKEN=from the walls".into(),
        ]
    );
}

#[tokio::test]
async fn there_is_no_network_but_an_own_loopback() {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let attack = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
    let (outside, inside) = both(&fixture, worktree.dir(), &walls, &attack).await;
    // Refused, not unreachable: the loopback is up, and nobody is on it.
    assert!(inside.tail.contains("Connection refused"), "{inside:?}");
    assert_stopped(&(outside, inside));
    let command = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '";
    let exit = run_boxed(fixture.shell(worktree.dir(), command), &walls).await;
    assert_eq!(exit.tail, "lo\n");
}

/// The processes of the user, and those of other agents, are nobody's business.
#[tokio::test]
async fn processes_outside_are_neither_seen_nor_signalled() {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    let mut victim = spawn(fixture.shell(worktree.dir(), "exec sleep 1000")).await.unwrap();
    let attack = format!("kill -0 {0} && test -e /proc/{0}/environ", victim.pid());
    assert_stopped(&both(&fixture, worktree.dir(), &walls, &attack).await);
    victim.stop(std::time::Duration::ZERO).await.unwrap();
}

/// `kill -9` on the outermost process must not set free what is inside.
#[tokio::test]
async fn killing_the_sandbox_leaves_no_process_behind() {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    let pipe = worktree.dir().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let command = "setsid sleep 1000 & (sleep 1000 &) ; echo ready > pipe; sleep 1000";
    let spec = fixture.shell(worktree.dir(), command);
    let mut boxed = spawn(sandbox().await.wrap(spec, &walls).unwrap()).await.unwrap();
    tokio::task::spawn_blocking(move || std::fs::read_to_string(pipe)).await.unwrap().unwrap();
    let store = fixture.lease().store;
    assert!(running(&store).unwrap().len() >= 4);
    let pid = nix::unistd::Pid::from_raw(boxed.pid());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    let exit = boxed.wait().await.unwrap();
    assert_eq!(exit.signal, Some(9));
    assert_eq!(running(&store).unwrap(), []);
}

/// Whenever the kill comes: nothing of a half-made box may be out of its reach. Here without control
/// groups, which would end what the kill left.
#[tokio::test]
async fn a_box_that_is_killed_while_it_is_made_leaves_no_process_behind() {
    /// A box is made within a few milliseconds; the kills come at moments all over them.
    const ROUNDS: u32 = 150;
    const STEP: std::time::Duration = std::time::Duration::from_micros(80);
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    let (sandbox, store) = (sandbox().await, fixture.lease().store);
    for round in 0..ROUNDS {
        let mut spec =
            sandbox.wrap(fixture.shell(worktree.dir(), "exec sleep 1000"), &walls).unwrap();
        spec.hold = Hold { cgroup: None, joining: Vec::new(), ..spec.hold };
        let mut boxed = spawn(spec).await.unwrap();
        let ended = tokio::time::timeout(STEP * round, boxed.wait()).await;
        assert!(ended.is_err(), "it sleeps for longer: {ended:?}");
        boxed.kill();
        boxed.wait().await.unwrap();
        let left = running(&store).unwrap();
        assert_eq!(left, [], "in round {round}; ended now: {:?}", reap(&store).await);
    }
}

/// Threads of a runtime come and go. To the kernel one of them is the parent of the sandbox,
/// and the sandbox dies with its parent.
#[test]
fn a_sandbox_outlives_the_thread_that_asked_for_it() {
    let fixture = Fixture::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (boxed, dir) = runtime.block_on(async {
        let (worktree, walls) = prepared(&fixture).await;
        for pipe in ["up", "down"] {
            let path = worktree.dir().join(pipe);
            nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        }
        let command = "echo ready > up; read -r line < down; echo got $line";
        let spec = fixture.shell(worktree.dir(), command);
        (sandbox().await.wrap(spec, &walls).unwrap(), worktree.dir().to_owned())
    });
    let handle = runtime.handle().clone();
    let (up, down) = (dir.join("up"), dir.join("down"));
    let started = std::thread::spawn(move || {
        let running = handle.block_on(spawn(boxed)).unwrap();
        std::fs::read_to_string(up).unwrap();
        running
    });
    let mut running = started.join().unwrap();
    // Blocks until the process reads; if it is dead, only this thread waits for ever.
    std::thread::spawn(move || std::fs::write(down, "through\n"));
    let exit = runtime.block_on(running.wait()).unwrap();
    assert_eq!((exit.code, exit.tail.as_str()), (Some(0), "got through\n"), "{exit:?}");
}

/// Devices and shared memory are there; beside them nothing can be put where nobody counts it.
#[tokio::test]
async fn nothing_can_be_put_among_the_devices() {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    let command = "set -e; echo > /dev/null; echo shared > /dev/shm/x; \
                   df -k /dev/shm | tail -1 | awk '{ print $2 }'; echo new > /dev/x";
    let exit = run_boxed(fixture.shell(worktree.dir(), command), &walls).await;
    assert_ne!(exit.code, Some(0), "{exit:?}");
    assert!(exit.tail.starts_with("1048576\n"), "{exit:?}");
    assert!(exit.tail.contains("/dev/x: Read-only file system"), "{exit:?}");
}

/// Toolchains live in homes; opening one must not open the home.
#[tokio::test]
async fn the_more_specific_opening_wins() {
    let fixture = Fixture::new();
    let (worktree, mut walls) = prepared(&fixture).await;
    for file in ["home/tools/bin/tool", "home/tools/token", "home/other", "open/closed/file"] {
        write(&fixture.path(file), "text");
    }
    walls.readable.push(fixture.path("home/tools"));
    walls.hidden.push(fixture.path("home/tools/token"));
    walls.writable.push(fixture.path("open"));
    walls.readable.push(fixture.path("open/closed"));
    let (home, open) = (fixture.path("home"), fixture.path("open"));
    let (home, open) = (home.display(), open.display());
    let command = format!(
        "grep -q text {home}/tools/bin/tool && ! grep -q text {home}/tools/token && \
         ! test -e {home}/other && echo x > {open}/new && ! (echo x > {open}/closed/file)"
    );
    let exit = run_boxed(fixture.shell(worktree.dir(), &command), &walls).await;
    assert_eq!(exit.code, Some(0), "{exit:?}");
}

/// A link in a place where an agent wrote may lead to the user's home.
#[tokio::test]
async fn a_link_is_never_opened_for_writing() {
    let fixture = Fixture::new();
    let (worktree, mut walls) = prepared(&fixture).await;
    let link = fixture.path("link");
    std::os::unix::fs::symlink(fixture.path("repo"), &link).unwrap();
    walls.writable.push(link.clone());
    let refused = sandbox().await.wrap(fixture.shell(worktree.dir(), "true"), &walls);
    assert!(matches!(refused, Err(Error::Path { path, .. }) if path == link));
}

/// What starts before it is counted, or outside of the group, is limited by nothing. And whoever starts
/// a box must not stay in its group, or it would be ended with it.
#[tokio::test]
async fn a_box_is_in_its_control_group_from_the_start() {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    if sandbox().await.cgroups().is_none() {
        eprintln!("SKIPPED: no control groups can be made here");
        return;
    }
    let command = "echo begun; exec sleep 1000";
    let spec = sandbox().await.wrap(fixture.shell(worktree.dir(), command), &walls).unwrap();
    let group = spec.hold.cgroup.clone().unwrap();
    let mut boxed = spawn(spec).await.unwrap();
    let mut activity = boxed.activity();
    activity.changed().await.unwrap();
    for place in group.places() {
        let members = std::fs::read_to_string(place.join("cgroup.procs")).unwrap();
        let members: Vec<i32> = members.lines().map(|pid| pid.parse().unwrap()).collect();
        assert!(members.contains(&boxed.pid()), "{members:?} without {}", boxed.pid());
        // Bubblewrap, its first process inside, and the command.
        assert!(members.len() >= 3, "{members:?}");
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(!members.contains(&own), "we are in the box ourselves");
    }
    boxed.stop(std::time::Duration::ZERO).await.unwrap();
    for place in group.places() {
        assert_eq!(
            std::fs::read_to_string(place.join("cgroup.procs")).unwrap(),
            "",
            "all are gone"
        );
    }
}
