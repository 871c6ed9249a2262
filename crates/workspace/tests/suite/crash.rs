//! `kill -9` at every step of an attempt's life. Nothing that an agent wrote may be missing.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use kapelle_workspace::{Advance, Candidate, Repository, Worktree, candidate};

use crate::fixture::{Fixture, git_in, write};

/// Set for the process that is killed; it says where the repository is.
const PLACE: &str = "KAPELLE_TEST_CRASH";

const STEPS: [&str; 6] = ["prepare", "work", "change", "keep", "merge", "remove"];

/// What the agent writes: a change, a new file, and one that git is told to overlook.
const WRITTEN: [&str; 3] = ["readme", "sub/new", "ignored"];

fn say(step: &str, what: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "@{what} {step}").unwrap();
    out.flush().unwrap();
}

/// The life of one attempt, step by step. Runs in a process of its own.
#[tokio::test]
async fn live() {
    let Some(place) = std::env::var_os(PLACE) else { return };
    let place = Path::new(&place);
    let repo = Repository::open(&place.join("repo")).await.unwrap();
    let head = repo.resolve("HEAD").await.unwrap();
    let dir = place.join("work/7/tree");
    say(STEPS[0], "begin");
    let tree = Worktree::prepare(&repo, &dir, &head).await.unwrap();
    say(STEPS[1], "begin");
    for file in WRITTEN {
        write(&dir.join(file), "precious\n");
    }
    say(STEPS[1], "end");
    say(STEPS[2], "begin");
    let change = tree.change("work", &[("Task", "1")]).await.unwrap().unwrap();
    repo.hold("changes/m1/1/7", &change).await.unwrap();
    say(STEPS[3], "begin");
    let kept = tree.keep("m1/1/7").await.unwrap();
    say(STEPS[4], "begin");
    let built = candidate::build(&repo, &head, &change, "merge", &[]).await.unwrap();
    let Candidate::Built(built) = built else { panic!("{built:?}") };
    let advanced = repo.advance("kapelle/m1", &head, &built).await.unwrap();
    assert_eq!(advanced, Advance::Advanced);
    say(STEPS[5], "begin");
    tree.remove(kept).await.unwrap();
    say(STEPS[5], "end");
}

/// Runs a life up to a marker, kills it there, and says whether the agent had written.
fn killed_at(fixture: &Fixture, marker: &str) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "crash::live", "--nocapture", "--test-threads=1"]);
    let place = fixture.path("");
    let mut child = command.env(PLACE, place).stdout(Stdio::piped()).spawn().unwrap();
    let mut written = false;
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in lines {
        let line = line.unwrap();
        // The test runner begins the first line with words of its own.
        let Some((_, said)) = line.split_once('@') else { continue };
        written |= said == "end work";
        if said == marker {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    written
}

/// Git that was under way when its parent died goes on to its end.
fn until_git_is_done(fixture: &Fixture) {
    let place = fixture.path("");
    let works_here = |process: std::fs::DirEntry| {
        let dir = std::fs::read_link(process.path().join("cwd"));
        dir.is_ok_and(|dir| dir.starts_with(&place))
    };
    while std::fs::read_dir("/proc").unwrap().flatten().any(works_here) {
        std::thread::yield_now();
    }
}

/// What the next start does.
async fn recover(fixture: &Fixture) {
    let repo = fixture.open().await;
    for left in Worktree::leftovers(&repo, &fixture.path("work")).await.unwrap() {
        let kept = left.keep("leftover/7").await.unwrap();
        left.remove(kept).await.unwrap();
    }
    kapelle_workspace::worktree::prune_records(&repo).await.unwrap();
}

fn is_kept(fixture: &Fixture, file: &str) -> bool {
    let refs = fixture.git(&["for-each-ref", "--format=%(refname)", "refs/kapelle"]);
    refs.lines().any(|reference| {
        let files = fixture.git(&["ls-tree", "-r", "--name-only", reference]);
        files.lines().any(|known| known == file)
            && fixture.git(&["show", &format!("{reference}:{file}")]) == "precious"
    })
}

#[tokio::test]
async fn nothing_is_lost_wherever_it_is_killed() {
    let mut markers: Vec<String> = STEPS.iter().map(|step| format!("begin {step}")).collect();
    markers.extend(["end work".into(), "end remove".into()]);
    for marker in markers {
        let fixture = Fixture::new();
        fixture.commit(".gitignore", "ignored\n");
        fixture.git(&["branch", "kapelle/m1"]);
        let written = killed_at(&fixture, &marker);
        until_git_is_done(&fixture);
        recover(&fixture).await;
        for file in WRITTEN.iter().filter(|_| written) {
            assert!(is_kept(&fixture, file), "{file} is lost, killed at {marker}");
        }
        assert_eq!(git_in(&fixture.path("repo"), &["status", "--porcelain"]), "", "{marker}");
        assert_eq!(fixture.git(&["worktree", "list"]).lines().count(), 1, "{marker}");
        assert!(!fixture.path("work/7/tree").exists(), "{marker}");
    }
}
