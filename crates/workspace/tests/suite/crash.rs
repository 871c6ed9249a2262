//! `kill -9` at every step of an attempt's life, and inside of every step. Nothing that an agent
//! wrote may be missing, and nothing that is left may stand in the way of the next attempt.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use kapelle_core::{MissionId, TaskId};
use kapelle_workspace::subtask::Subtask;
use kapelle_workspace::{Advance, Candidate, Repository, Worktree, candidate};

use crate::fixture::{Fixture, git_in, write};

/// Set for the process that is killed; it says where the repository is.
const PLACE: &str = "KAPELLE_TEST_CRASH";

/// Not among our own: the owner of a project chooses.
const BRANCH: &str = "feature/m1";
const STEPS: [&str; 6] = ["prepare", "work", "change", "keep", "merge", "remove"];

/// What the agent writes: a change, a new file, and one that git is told to overlook.
const WRITTEN: [&str; 3] = ["readme", "sub/new", "ignored"];

/// What it commits in its own git, and takes out of the tree again.
const COMMITTED: &str = "committed";

/// What it commits in a repository of its own making inside of the tree, and takes out again.
const NESTED: &str = "nested";

/// More than a block, however well it is packed.
fn precious() -> String {
    (1..1_000_u64).map(|n| format!("{:x}", n * n * 2_654_435_761 % 65_521)).collect()
}

/// A crash is rarely noticed at once.
const LATER: Duration = Duration::from_secs(7_200);

/// A life has more calls of git than this that write, and fewer than that, or it never ends.
const CALLS_MIN: u32 = 10;
const CALLS_MAX: u32 = 100;

/// How a call of git is cut short, together with whoever made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Before,
    /// The kernel kills git when it has written this many blocks of 512 bytes to one file: at its
    /// first word, with its locks made and empty, or in the middle of something longer.
    Writing {
        blocks: u32,
    },
}

/// Tells whoever waits for the process that is to be killed.
fn say(what: &str, step: &str) {
    if std::env::var_os(PLACE).is_none() {
        return;
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "@{what} {step}").unwrap();
    out.flush().unwrap();
}

/// The life of one attempt, step by step.
async fn live_through(place: &Path, fence: u64, text: &str) {
    let repo = Repository::open(&place.join("repo")).await.unwrap();
    let tip = repo.branch_tip(BRANCH).await.unwrap().unwrap();
    let dir = place.join(format!("work/{fence}/tree"));
    let mission = MissionId(1);
    let task = Subtask { mission, id: TaskId(1), name: "1", title: "Work" };
    say("begin", STEPS[0]);
    let tree = Worktree::prepare(&repo, &dir, &tip).await.unwrap();
    repo.put_subtask(&task, &tip).await.unwrap();
    say("begin", STEPS[1]);
    let private = dir.with_file_name("git");
    tree.walls(&private).await.unwrap();
    let own = [format!("--git-dir={}", private.display()), "--work-tree=.".into()];
    let agent = |args: &[&str]| {
        let args = own.iter().map(String::as_str).chain(args.iter().copied());
        git_in(&dir, &args.collect::<Vec<_>>())
    };
    write(&dir.join(COMMITTED), text);
    agent(&["add", COMMITTED]);
    agent(&["commit", "--quiet", "--message", "and then undone"]);
    agent(&["reset", "--quiet", "--hard", "HEAD^"]);
    let lib = dir.join("lib");
    write(&lib.join(NESTED), text);
    git_in(&lib, &["init", "--quiet"]);
    git_in(&lib, &["add", NESTED]);
    git_in(&lib, &["commit", "--quiet", "--message", "in a place of its own"]);
    std::fs::remove_file(lib.join(NESTED)).unwrap();
    for file in WRITTEN {
        write(&dir.join(file), text);
    }
    say("end", STEPS[1]);
    say("begin", STEPS[2]);
    let change = tree.change("work", &[("Task", "1")]).await.unwrap().unwrap();
    repo.hold(&format!("changes/m1/1/{fence}"), &change).await.unwrap();
    say("begin", STEPS[3]);
    let kept = tree.keep(&format!("m1/1/{fence}")).await.unwrap();
    tree.keep_commits(&private, &format!("m1/1/{fence}")).await.unwrap();
    say("begin", STEPS[4]);
    repo.follow_subtask(mission, task.id, &change).await.unwrap();
    let built = candidate::build(&repo, &tip, &change, "merge", &[]).await.unwrap();
    let Candidate::Built(built) = built else { panic!("{built:?}") };
    assert_eq!(repo.advance(BRANCH, &tip, &built).await.unwrap(), Advance::Advanced);
    repo.remove_landed_subtasks(mission, (&tip, &built)).await.unwrap();
    say("begin", STEPS[5]);
    tree.remove(kept).await.unwrap();
    say("end", STEPS[5]);
}

/// Runs in a process of its own.
#[tokio::test]
async fn live() {
    if let Some(place) = std::env::var_os(PLACE) {
        live_through(Path::new(&place), 7, &precious()).await;
    }
}

fn life(place: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "crash::live", "--nocapture", "--test-threads=1"]);
    command.env(PLACE, place).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// Runs a life until it says the marker, or to its end without one, and kills what is left of it.
/// Gives what it said.
fn said_until(mut life: Command, marker: Option<&str>) -> Vec<String> {
    let mut child = life.spawn().unwrap();
    let mut said = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        // The test runner begins the first line with words of its own.
        let Some((_, word)) = line.split_once('@') else { continue };
        said.push(word.to_owned());
        if marker == Some(word) {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    said
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

fn files_below(dir: PathBuf) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let below = |entry: std::fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => files_below(entry.path()),
        false => vec![entry.path()],
    };
    entries.flat_map(below).collect()
}

/// What the next start does, a while later.
async fn recover(fixture: &Fixture) {
    let then = SystemTime::now() - LATER;
    for file in files_below(fixture.path("repo/.git")) {
        // Objects are read-only, and none the wiser.
        if let Ok(file) = std::fs::File::options().append(true).open(file) {
            file.set_modified(then).unwrap();
        }
    }
    let repo = fixture.open().await;
    repo.free_stale_locks().await.unwrap();
    for left in Worktree::leftovers(&repo, &fixture.path("work")).await.unwrap() {
        let kept = left.keep("leftover/7").await.unwrap();
        left.keep_commits(&left.dir().with_file_name("git"), "leftover/7").await.unwrap();
        left.remove(kept).await.unwrap();
    }
    kapelle_workspace::worktree::prune_records(&repo).await.unwrap();
}

fn is_kept(fixture: &Fixture, file: &str) -> bool {
    let refs = fixture.git(&["for-each-ref", "--format=%(refname)", "refs/kapelle"]);
    refs.lines().any(|reference| {
        let files = fixture.git(&["ls-tree", "-r", "--name-only", reference]);
        files.lines().any(|known| known == file)
            && fixture.git(&["show", &format!("{reference}:{file}")]) == precious()
    })
}

fn prepared() -> Fixture {
    let fixture = Fixture::new();
    // As many files as it takes for git to write more than a block when it lists them.
    for number in 0..20 {
        write(&fixture.path("repo").join(format!("file-{number}")), "");
    }
    fixture.commit(".gitignore", "ignored\n");
    fixture.git(&["branch", BRANCH]);
    fixture
}

/// Nothing is lost, nothing lies about, and the next attempt lives.
async fn assert_recovers(fixture: &Fixture, said: &[String], killed: &str) {
    until_git_is_done(fixture);
    recover(fixture).await;
    let written = said.iter().any(|word| word == "end work");
    for file in WRITTEN.iter().chain([&COMMITTED, &NESTED]).filter(|_| written) {
        assert!(is_kept(fixture, file), "{file} is lost, killed {killed}");
    }
    assert!(!fixture.path("work/7/tree").exists(), "{killed}");
    live_through(&fixture.path(""), 8, "next").await;
    assert_eq!(git_in(&fixture.path("repo"), &["status", "--porcelain"]), "", "{killed}");
    assert_eq!(fixture.git(&["worktree", "list"]).lines().count(), 1, "{killed}");
    let scratch = files_below(fixture.path("repo/.git/kapelle"));
    assert_eq!(scratch, Vec::<PathBuf>::new(), "{killed}");
}

#[tokio::test]
async fn nothing_is_lost_wherever_it_is_killed() {
    let mut markers: Vec<String> = STEPS.iter().map(|step| format!("begin {step}")).collect();
    markers.extend(["end work".into(), "end remove".into()]);
    for marker in markers {
        let fixture = prepared();
        let said = said_until(life(&fixture.path("")), Some(&marker));
        assert_recovers(&fixture, &said, &format!("at {marker}")).await;
    }
}

/// Puts itself before git: counts those of our calls that write, and at the one that it was told does
/// as it was told. Between two of them, nothing changes that a crash could leave half done.
const SHIM: &str = r#"#!/bin/sh
case "$GIT_COMMITTER_NAME $* " in
    "Kapelle "*" worktree "* | "Kapelle "*" add "* | "Kapelle "*" read-tree "*) ;;
    "Kapelle "*" write-tree "* | "Kapelle "*" commit-tree "* | "Kapelle "*" merge-tree "*) ;;
    "Kapelle "*" update-ref "* | "Kapelle "*" fetch "*) ;;
    *) exec REAL "$@" ;;
esac
here=${0%/*}
until mkdir "$here/turn" 2>/dev/null; do :; done
call=$(($(cat "$here/calls") + 1))
echo $call > "$here/calls"
rmdir "$here/turn"
[ $call = "$(cat "$here/at")" ] || exec REAL "$@"
blocks=$(cat "$here/blocks")
[ -z "$blocks" ] || (ulimit -c 0; ulimit -f $blocks; exec REAL "$@")
kill -9 $PPID
"#;

/// Lives up to one call of git, and dies with it. None if there are fewer calls than that.
fn cut_at(fixture: &Fixture, call: u32, cut: Cut) -> Option<Vec<String>> {
    let path = std::env::var_os("PATH").unwrap();
    let git = std::env::split_paths(&path).map(|dir| dir.join("git")).find(|git| git.exists());
    let shim = fixture.path("shim/git");
    write(&shim, &SHIM.replace("REAL", git.unwrap().to_str().unwrap()));
    std::fs::set_permissions(&shim, std::fs::Permissions::from_mode(0o755)).unwrap();
    let blocks = match cut {
        Cut::Before => String::new(),
        Cut::Writing { blocks } => blocks.to_string(),
    };
    for (name, text) in [("calls", "0"), ("at", &call.to_string()), ("blocks", &blocks)] {
        write(&fixture.path("shim").join(name), text);
    }
    let places = std::iter::once(fixture.path("shim")).chain(std::env::split_paths(&path));
    let mut life = life(&fixture.path(""));
    life.env("PATH", std::env::join_paths(places).unwrap());
    let said = said_until(life, None);
    until_git_is_done(fixture);
    let calls: u32 =
        std::fs::read_to_string(fixture.path("shim/calls")).unwrap().trim().parse().unwrap();
    (calls >= call).then_some(said)
}

async fn nothing_is_lost(cut: Cut) {
    for call in 1..CALLS_MAX {
        let fixture = prepared();
        let Some(said) = cut_at(&fixture, call, cut) else {
            assert!(call > CALLS_MIN, "a life has more than {call} calls of git that write");
            return;
        };
        assert_ne!(said.last().map(String::as_str), Some("end remove"), "call {call} was survived");
        assert_recovers(&fixture, &said, &format!("at call {call}, {cut:?}")).await;
    }
    panic!("a life has no end");
}

#[tokio::test]
async fn nothing_is_lost_before_any_call_of_git() {
    nothing_is_lost(Cut::Before).await;
}

/// A power cut, a machine out of memory, a service manager: they do not spare git.
#[tokio::test]
async fn nothing_is_lost_when_git_dies_too_at_its_first_word() {
    nothing_is_lost(Cut::Writing { blocks: 0 }).await;
}

#[tokio::test]
async fn nothing_is_lost_when_git_dies_too_in_the_middle_of_a_file() {
    nothing_is_lost(Cut::Writing { blocks: 1 }).await;
}
