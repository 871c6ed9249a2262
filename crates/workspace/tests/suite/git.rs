//! How git is called: nothing of the user may run, and locks are waited for.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use kapelle_workspace::Worktree;
use kapelle_workspace::condition::Note;

use crate::fixture::{Fixture, write};

/// A repository may bring its own programs: hooks, filters, monitors. None of them may run on
/// Kapelle's behalf, because an agent can cause them to be selected.
#[tokio::test]
async fn no_program_of_the_repository_is_run() {
    let fixture = Fixture::new();
    let marker = fixture.path("ran");
    let program = fixture.path("program");
    write(&program, &format!("#!/bin/sh\ntouch {}\ncat\n", marker.display()));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let program = program.to_str().unwrap();
    for hook in ["post-checkout", "reference-transaction", "post-index-change"] {
        let path = fixture.path("repo/.git/hooks").join(hook);
        write(&path, &format!("#!/bin/sh\nexec {program} </dev/null\n"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fixture.git(&["config", "core.fsmonitor", program]);
    fixture.git(&["config", "filter.evil.clean", program]);
    fixture.git(&["config", "filter.evil.smudge", program]);
    fixture.git(&["config", "filter.evil.required", "true"]);
    fixture.git(&["config", "filter.e=v.il.clean", program]);
    fixture.commit(".gitattributes", "* filter=evil\n");
    fixture.commit(".gitattributes", "* filter=evil\n*.odd filter=e=v.il\n");
    assert!(marker.exists(), "these programs do run for a person");
    fs::remove_file(&marker).unwrap();

    let repo = fixture.open().await;
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &fixture.head()).await.unwrap();
    write(&worktree.dir().join("new"), "text\n");
    write(&worktree.dir().join("new.odd"), "text\n");
    let change = worktree.change("add", &[]).await.unwrap().unwrap();
    repo.create_branch("work", &change).await.unwrap();
    assert!(!marker.exists());

    // As long as before, so that only reading the file, through its filter, tells whether it differs.
    write(&fixture.path("repo/readme"), "two\n");
    assert_eq!(repo.condition().await.unwrap(), [Note::Dirty { files: 1 }]);
    assert!(!marker.exists(), "looking at the person's own checkout runs nothing either");
}

/// What git really says about a lock is what the waiting looks for.
#[tokio::test]
async fn a_lock_that_stays_is_an_error_that_names_it() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    write(&fixture.path("repo/.git/refs/heads/work.lock"), "");
    let refused = repo.create_branch("work", &fixture.head()).await.unwrap_err();
    assert!(refused.to_string().contains("work.lock': File exists"), "{refused}");
}
