//! The same suite on a machine that has no user namespaces for ordinary users.
//!
//! Bubblewrap makes such a machine: an ordinary user, for whom the kernel refuses every further
//! user namespace. The tests in it are those of this very binary.

use std::process::Command;

use kapelle_workspace::sandbox::{Layer, Sandboxing};
use kapelle_workspace::{Sandbox, sandbox::Backend};

use crate::fixture::{sandbox, wanted};

/// Set for the tests that run in there.
const INSIDE: &str = "KAPELLE_TEST_WITHOUT_NAMESPACES";

pub fn is_without_namespaces() -> bool {
    std::env::var_os(INSIDE).is_some()
}

fn without_namespaces(tests: &[&str]) -> std::process::Output {
    let mut command = Command::new("bwrap");
    command.args(["--dev-bind", "/", "/", "--unshare-user", "--disable-userns"]);
    command.args(["--uid", "1000", "--gid", "1000", "--cap-drop", "ALL", "--die-with-parent"]);
    command.args(["--setenv", INSIDE, "1", "--"]).arg(std::env::current_exe().unwrap());
    command.args(tests).output().unwrap()
}

fn assert_passed(output: &std::process::Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!said.contains(" 0 passed"), "{said}");
}

/// Chooses Landlock and the filter on system calls, and says what is missing.
#[tokio::test]
async fn the_probe_falls_back_and_says_so() {
    if !is_without_namespaces() {
        assert!(sandbox().await.has_namespaces());
        return assert_passed(&without_namespaces(&[
            "--exact",
            "userns::the_probe_falls_back_and_says_so",
        ]));
    }
    let fallback = sandbox().await;
    assert!(!fallback.has_namespaces());
    let state = |layer| fallback.layers().iter().find(|state| state.layer == layer).unwrap();
    assert!(!state(Layer::Namespaces).active && state(Layer::Landlock).active);
    assert!(state(Layer::Namespaces).detail.contains("user.max_user_namespaces"));
    let mut strict = wanted();
    strict.backend = Backend::Bubblewrap;
    let refused = Sandbox::look_for(&strict).await;
    assert!(matches!(refused, Sandboxing::Unusable { .. }), "never less than what was asked for");
}

/// Every attack is stopped there too.
#[test]
fn the_walls_hold_without_user_namespaces() {
    if !is_without_namespaces() {
        assert_passed(&without_namespaces(&["attacks::"]));
        for attack in [
            "a_file_in_the_users_home_cannot_be_read",
            "nothing_outside_of_the_tree_can_be_written",
            "a_reference_of_the_repository_cannot_be_moved",
            "settings_of_the_repository_cannot_be_read",
            "a_link_is_never_opened_for_writing",
            "processes_outside_are_neither_seen_nor_signalled",
            "the_users_repository_stays_whole_while_an_agent_works",
            "killing_the_sandbox_leaves_no_process_behind",
            "a_box_that_is_killed_while_it_is_made_leaves_no_process_behind",
        ] {
            assert_passed(&without_namespaces(&["--exact", &format!("sandbox::{attack}")]));
        }
    }
}

/// Agents can work there.
#[test]
fn an_agent_can_work_without_user_namespaces() {
    if !is_without_namespaces() {
        assert_passed(&without_namespaces(&["sandbox::an_agent_can_edit_and_commit_in_its_tree"]));
    }
}
