//! Secrets in changes, with real git.

use kapelle_workspace::secrets::{self, Finding, Rules};
use kapelle_workspace::worktree::{Error, Worktree};

use crate::fixture::{Fixture, write};

/// Put together here, so that this file does not hold what it looks for.
fn key() -> String {
    format!("AKIA{}", "Q3EGRIH2NWTLZPSV")
}

async fn worktree(fixture: &Fixture, rules: Rules) -> Worktree {
    let repo = fixture.open().await.allowing_secrets(rules);
    Worktree::prepare(&repo, &fixture.path("work/tree"), &fixture.head()).await.unwrap()
}

/// What is found in a tree after `change` was made to it.
async fn found(fixture: &Fixture, rules: Rules, change: impl Fn(&Worktree)) -> Vec<Finding> {
    let tree = worktree(fixture, rules).await;
    change(&tree);
    let made = tree.change("a change", &[]).await;
    let kept = tree.keep("m1/1").await.unwrap();
    tree.remove(kept).await.unwrap();
    match made {
        Ok(_) => Vec::new(),
        Err(Error::Secrets { found }) => found.0,
        Err(other) => panic!("{other}"),
    }
}

fn at(path: &str, line: u64, looks_like: &'static str) -> Finding {
    Finding { path: path.into(), line, looks_like }
}

#[tokio::test]
async fn a_change_with_a_secret_names_the_place_and_never_the_secret() {
    let fixture = Fixture::new();
    let tree = worktree(&fixture, Rules::default()).await;
    write(&tree.dir().join("src/.env"), &format!("A=1\nKEY={}\n", key()));
    write(&tree.dir().join("id"), "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n");
    let refused = tree.change("a change", &[]).await.unwrap_err();
    let text = format!("{refused} {refused:?}");
    assert!(text.contains("id line 1 looks like a private key"), "{text}");
    assert!(text.contains("src/.env line 2 looks like an AWS access key"), "{text}");
    assert!(!text.contains(&key()), "{text}");
}

/// Nothing is lost with the refusal: the work is kept, on this machine only.
#[tokio::test]
async fn refused_work_is_kept_and_no_commit_of_the_change_is_made() {
    let fixture = Fixture::new();
    let tree = worktree(&fixture, Rules::default()).await;
    write(&tree.dir().join("a"), &key());
    assert!(tree.change("a change", &[]).await.is_err());
    let kept = tree.keep("m1/1").await.unwrap();
    let commit = kept.commit().unwrap().clone();
    tree.remove(kept).await.unwrap();
    assert_eq!(fixture.git(&["show", &format!("{commit}:a")]), key());
    assert_eq!(
        fixture.git(&["for-each-ref", "--format=%(refname)", "refs/kapelle"]),
        "refs/kapelle/kept/m1/1"
    );
}

#[tokio::test]
async fn only_what_is_added_counts() {
    let fixture = Fixture::new();
    fixture.commit("old", &format!("one\n{}\nthree\n", key()));
    let harmless = found(&fixture, Rules::default(), |tree| {
        write(&tree.dir().join("old"), &format!("ONE\n{}\nthree\nfour\n", key()));
    });
    assert_eq!(harmless.await, [], "it was there before");
    let removed = found(&fixture, Rules::default(), |tree| write(&tree.dir().join("old"), "one\n"));
    assert_eq!(removed.await, []);
    let moved = found(&fixture, Rules::default(), |tree| {
        std::fs::rename(tree.dir().join("old"), tree.dir().join("new")).unwrap();
    });
    assert_eq!(moved.await, [at("new", 2, "an AWS access key")]);
}

/// An agent can write attributes; they must not blind the scan.
#[tokio::test]
async fn attributes_and_binary_bytes_hide_nothing() {
    let fixture = Fixture::new();
    let hidden = found(&fixture, Rules::default(), |tree| {
        write(&tree.dir().join(".gitattributes"), "* binary -diff -text\n");
        std::fs::write(tree.dir().join("b"), [b"\0\0\xff\n".as_slice(), key().as_bytes()].concat())
            .unwrap();
    });
    assert_eq!(hidden.await, [at("b", 2, "an AWS access key")]);
}

#[tokio::test]
async fn a_person_allows_paths_and_texts() {
    let fixture = Fixture::new();
    let change = |tree: &Worktree| {
        write(&tree.dir().join("tests/keys/one"), &key());
        write(&tree.dir().join("doc"), &format!("see {}\n", key()));
    };
    let paths = Rules { allow_paths: vec!["tests/keys/**".into()], ..Rules::default() };
    assert_eq!(found(&fixture, paths, change).await, [at("doc", 1, "an AWS access key")]);
    let texts = Rules { allow: vec![key()], ..Rules::default() };
    assert_eq!(found(&fixture, texts, change).await, []);
}

#[tokio::test]
async fn a_thousand_files_are_looked_at_and_a_flood_is_bounded() {
    let fixture = Fixture::new();
    let many = found(&fixture, Rules::default(), |tree| {
        for number in 0..1_000 {
            let text = if number >= 950 { key() } else { format!("file {number}\n") };
            write(&tree.dir().join(format!("f/{number:04}")), &text);
        }
    });
    let many = many.await;
    assert_eq!(many.len(), secrets::FINDINGS_MAX);
    assert!(many.iter().all(|finding| finding.path.starts_with("f/09")), "{many:?}");
}

/// Git answers with at most 64 MiB; a change beyond that is taken apart, not waved through.
#[tokio::test]
async fn a_change_too_large_for_one_look_is_taken_apart() {
    let fixture = Fixture::new();
    let large = found(&fixture, Rules::default(), |tree| {
        // In one line: what is long is cheap to look at, and it is the size that matters.
        let noise = format!("{}\n", "all work and no play ".repeat((7 << 20) / 21));
        for number in 0..10 {
            write(&tree.dir().join(format!("noise-{number}")), &noise);
        }
        write(&tree.dir().join("noise-7"), &format!("{noise}{}\n", key()));
        write(&tree.dir().join("schlüssel"), &format!("{}\n", key()));
    });
    let large = large.await;
    let key = "an AWS access key";
    assert_eq!(large, [at("noise-7", 2, key), at("schlüssel", 1, key)]);
}
