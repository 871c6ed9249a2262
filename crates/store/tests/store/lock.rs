//! Leadership between real processes.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use kapelle_core::Timestamp;
use kapelle_store::{Error, Holder, Leadership, holder};

/// Set for the process that this test binary starts from itself.
const CHILD_DIR: &str = "KAPELLE_TEST_LEADER_DIR";

fn me(url: Option<&str>) -> Holder {
    let url = url.map(str::to_owned);
    Holder { pid: std::process::id(), url, started_at: Timestamp(7), host: None }
}

/// Not a test by itself: leads until it is killed.
#[test]
fn child_leads() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let mut lead = Leadership::take(Path::new(&dir), me(None)).unwrap();
    lead.publish("http://127.0.0.1:4711").unwrap();
    println!("\nleading");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn start_leader(dir: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lock::child_leads", "--nocapture"])
        .env(CHILD_DIR, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = std::io::BufReader::new(child.stdout.as_mut().unwrap());
    let lines = std::io::BufRead::lines(stdout);
    assert!(lines.map(Result::unwrap).any(|line| line == "leading"));
    child
}

/// Peers leave a pid file behind and then refuse to start; a lock dies with its process.
#[test]
fn the_second_is_refused_by_name_and_the_dead_hold_nothing() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(holder(dir.path()).unwrap(), None);
    let mut child = start_leader(dir.path());
    let url = Some("http://127.0.0.1:4711".to_owned());
    let leader = Holder { pid: child.id(), url, started_at: Timestamp(7), host: None };
    assert_eq!(holder(dir.path()).unwrap(), Some(leader.clone()));
    let refused = Leadership::take(dir.path(), me(None)).unwrap_err();
    let expected =
        format!("process {} already leads this project, at http://127.0.0.1:4711", leader.pid);
    assert_eq!(refused.to_string(), expected);
    assert!(matches!(refused, Error::Held { holder } if holder == Some(leader)));

    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(holder(dir.path()).unwrap(), None);
    let lead = Leadership::take(dir.path(), me(None)).unwrap();
    assert_eq!(holder(dir.path()).unwrap(), Some(me(None)));
    drop(lead);
    assert_eq!(holder(dir.path()).unwrap(), None);
}

/// A shorter holder must not be read together with the rest of a longer one.
#[test]
fn the_holder_is_told_as_it_is_now() {
    let dir = tempfile::tempdir().unwrap();
    let long = format!("http://{}", "x".repeat(500));
    let mut lead = Leadership::take(dir.path(), me(Some(&long))).unwrap();
    lead.publish("http://b").unwrap();
    assert_eq!(holder(dir.path()).unwrap(), Some(me(Some("http://b"))));
    assert_eq!(lead.holder(), &me(Some("http://b")));
}

/// A link in the folder could make us truncate somebody's file.
#[test]
fn a_symbolic_link_is_not_a_lock() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("precious");
    fs::write(&target, "precious").unwrap();
    symlink(&target, dir.path().join("lock")).unwrap();
    let refused = Leadership::take(dir.path(), me(None)).unwrap_err();
    assert!(matches!(refused, Error::NotPlainFile { .. }), "{refused}");
    assert!(matches!(holder(dir.path()), Err(Error::NotPlainFile { .. })));
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
}
