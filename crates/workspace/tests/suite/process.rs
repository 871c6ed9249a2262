//! Supervised processes, real ones.

use std::time::{Duration, Instant};

use kapelle_workspace::process::{Error, GRACE};
use kapelle_workspace::reaper::running;
use kapelle_workspace::spawn;

use crate::fixture::{Fixture, run, without_number};

/// Nothing in this file takes this long unless it hangs.
const LONG: Duration = Duration::from_secs(60);

/// Blocks until a process has written to a named pipe.
async fn ready(pipe: std::path::PathBuf) -> String {
    tokio::task::spawn_blocking(move || std::fs::read_to_string(pipe).unwrap()).await.unwrap()
}

#[tokio::test]
async fn output_and_code_are_reported_and_logged() {
    let fixture = Fixture::new();
    let exit = run(fixture.shell(&fixture.path("repo"), "echo out; echo err >&2; exit 3")).await;
    assert_eq!((exit.code, exit.signal), (Some(3), None));
    assert_eq!(exit.tail, "out\nerr\n");
    assert_eq!(std::fs::read_to_string(fixture.path("log")).unwrap(), "out\nerr\n");
}

/// Keys and tokens of whoever starts Kapelle must not reach an agent.
#[tokio::test]
async fn a_process_sees_only_the_environment_that_it_is_given() {
    let fixture = Fixture::new();
    let mut spec = fixture.shell(&fixture.path("repo"), "");
    (spec.program, spec.args) = ("/usr/bin/env".into(), Vec::new());
    let lease = fixture.lease();
    let exit = run(spec).await;
    let mut seen: Vec<String> = exit.tail.lines().map(without_number).collect();
    seen.sort_unstable();
    let expected = [
        format!("KAPELLE_LEASE={lease}"),
        "KAPELLE_RUN=*".into(),
        "PATH=/usr/local/bin:/usr/bin:/bin".into(),
    ];
    assert_eq!(seen, expected);
}

/// A server that an agent forgot in the background must neither hold up its result nor live on.
#[tokio::test]
async fn waiting_ends_with_the_process_and_takes_its_group_along() {
    let fixture = Fixture::new();
    let begun = Instant::now();
    let exit = run(fixture.shell(&fixture.path("repo"), "sleep 1000 & echo started")).await;
    assert_eq!((exit.code, exit.tail.as_str()), (Some(0), "started\n"));
    assert!(begun.elapsed() < LONG);
    assert_eq!(running(&fixture.lease().store).unwrap(), []);
}

/// A process gets the chance to save its work, and no more than the chance.
#[tokio::test]
async fn stopping_asks_first_and_then_insists() {
    let fixture = Fixture::new();
    let pipe = fixture.path("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let say = format!("echo ready > {}; while :; do sleep 1000; done", pipe.display());

    let polite = format!("trap 'echo saved; exit 5' TERM; {}", say.replace("1000", "1000 & wait"));
    let mut asked = spawn(fixture.shell(&fixture.path("repo"), &polite)).await.unwrap();
    ready(pipe.clone()).await;
    let exit = asked.stop(GRACE).await.unwrap();
    assert_eq!((exit.code, exit.tail.as_str()), (Some(5), "saved\n"));
    assert_eq!(asked.wait().await.unwrap(), exit, "there is one result, however often it is asked");

    let deaf = format!("trap '' TERM; {say}");
    let mut forced = spawn(fixture.shell(&fixture.path("repo"), &deaf)).await.unwrap();
    ready(pipe).await;
    let exit = forced.stop(Duration::from_millis(50)).await.unwrap();
    assert_eq!((exit.code, exit.signal), (None, Some(9)));
}

/// Level-triggered effects drop what is no longer due; that must end it.
#[tokio::test]
async fn dropping_kills_the_whole_group() {
    let fixture = Fixture::new();
    let pipe = fixture.path("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (say, alive) = (pipe.display(), fixture.path("alive"));
    nix::unistd::mkfifo(&alive, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // Both processes hold `alive` open for writing; reading it ends when both are dead.
    let command = format!("exec 3<>{}; sleep 1000 & echo ready > {say}; wait", alive.display());
    let dropped = spawn(fixture.shell(&fixture.path("repo"), &command)).await.unwrap();
    ready(pipe).await;
    let alive = std::fs::File::open(alive).unwrap();
    let watcher = tokio::task::spawn_blocking(move || std::io::read_to_string(alive));
    drop(dropped);
    assert_eq!(tokio::time::timeout(LONG, watcher).await.unwrap().unwrap().unwrap(), "");
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_an_error_of_its_own() {
    let fixture = Fixture::new();
    let mut spec = fixture.shell(&fixture.path("repo"), "");
    spec.program = "/no/such/program".into();
    assert!(matches!(spawn(spec).await, Err(Error::Start { .. })));
}

/// WRK-08: how long a process has been silent is known from when it last printed something.
#[tokio::test]
async fn it_is_known_when_a_process_last_printed_something() {
    let fixture = Fixture::new();
    let pipe = fixture.path("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let command = format!("cat {} > /dev/null; echo here; sleep 1000", pipe.display());
    let mut running = spawn(fixture.shell(&fixture.path("repo"), &command)).await.unwrap();
    let mut activity = running.activity();
    let started = *activity.borrow_and_update();
    assert_eq!(started.bytes, 0);
    std::fs::write(&pipe, "go").unwrap();
    tokio::time::timeout(LONG, activity.changed()).await.unwrap().unwrap();
    let heard = *activity.borrow_and_update();
    assert_eq!(heard.bytes, 5);
    assert!(heard.at > started.at);
    running.stop(Duration::ZERO).await.unwrap();
}
