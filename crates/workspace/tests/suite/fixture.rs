//! A repository in a temporary directory, and the means to work on it as a person would.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kapelle_core::{Commit, Fence};
use kapelle_workspace::sandbox::{BoxProgram, Wanted};
use kapelle_workspace::{
    Exit, Hold, Lease, Repository, Sandbox, Sandboxing, Spec, Walls, Worktree, spawn,
};
use tempfile::TempDir;

pub struct Fixture {
    dir: TempDir,
}

impl Fixture {
    /// A repository with one commit on `main`. Not in `/tmp`, which a sandbox hides anyway.
    pub fn new() -> Fixture {
        Fixture::with("--object-format=sha1")
    }

    pub fn with(option: &str) -> Fixture {
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let fixture = Fixture { dir };
        fs::create_dir(fixture.path("repo")).unwrap();
        fixture.git(&["init", "--quiet", "--initial-branch=main", option]);
        fixture.commit("readme", "one\n");
        fixture
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn git(&self, args: &[&str]) -> String {
        git_in(&self.path("repo"), args)
    }

    /// Writes a file of the repository and commits it.
    pub fn commit(&self, file: &str, text: &str) -> Commit {
        self.commit_at(file, text, "@1600000000 +0000")
    }

    pub fn commit_at(&self, file: &str, text: &str, date: &str) -> Commit {
        write(&self.path("repo").join(file), text);
        self.git(&["add", "--all"]);
        let dated = [("GIT_AUTHOR_DATE", date), ("GIT_COMMITTER_DATE", date)];
        let args = ["commit", "--quiet", "--message", file];
        git_with(&self.path("repo"), &dated, &args);
        self.head()
    }

    pub fn head(&self) -> Commit {
        self.git(&["rev-parse", "HEAD"]).parse().unwrap()
    }

    pub async fn open(&self) -> Repository {
        Repository::open(&self.path("repo")).await.unwrap()
    }

    /// A shell command, to be run in a directory of the fixture.
    pub fn shell(&self, dir: &Path, command: &str) -> Spec {
        Spec {
            program: "/bin/bash".into(),
            args: vec!["-c".into(), command.into()],
            dir: dir.into(),
            env: path_only(),
            lease: self.lease(),
            log: self.path("log"),
            hold: Hold::default(),
        }
    }

    /// A lease that no other test has.
    pub fn lease(&self) -> Lease {
        let store = self.dir.path().file_name().unwrap().to_string_lossy().into_owned();
        Lease { store, fence: Fence(7) }
    }
}

pub fn path_only() -> BTreeMap<String, OsString> {
    BTreeMap::from([("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())])
}

pub fn git_in(dir: &Path, args: &[&str]) -> String {
    git_with(dir, &[], args)
}

fn git_with(dir: &Path, env: &[(&str, &str)], args: &[&str]) -> String {
    let output = Command::new("git")
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", "/dev/null/home")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_NAME"), "Person")))
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_EMAIL"), "p@example.org")))
        .envs(env.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

pub fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Fails, never skips: a sandbox that was not tested is not known to hold.
pub async fn sandbox() -> Sandbox {
    match Sandbox::look_for(&wanted()).await {
        Sandboxing::Usable(sandbox) => sandbox,
        Sandboxing::Unusable { reason, hint } => panic!("no sandbox: {reason}; {hint}"),
    }
}

pub fn wanted() -> Wanted {
    let path = PathBuf::from(env!("CARGO_BIN_EXE_kapelle-box"));
    let stage = Some(BoxProgram { path, args: Vec::new() });
    Wanted { stage, ..Wanted::default() }
}

pub async fn run(spec: Spec) -> Exit {
    spawn(spec).await.unwrap().wait().await.unwrap()
}

pub async fn run_boxed(spec: Spec, walls: &Walls) -> Exit {
    run(sandbox().await.wrap(spec, walls).unwrap()).await
}

/// A tree to attack from, and the walls around it.
pub async fn prepared(fixture: &Fixture) -> (Worktree, Walls) {
    let repo = fixture.open().await;
    let dir = fixture.path("attempt/tree");
    let worktree = Worktree::prepare(&repo, &dir, &fixture.head()).await.unwrap();
    let walls = worktree.walls(&fixture.path("attempt/git")).await.unwrap();
    (worktree, walls)
}

/// The same command outside and inside.
pub async fn both(fixture: &Fixture, dir: &Path, walls: &Walls, command: &str) -> (Exit, Exit) {
    let outside = run(fixture.shell(dir, command)).await;
    let inside = run_boxed(fixture.shell(dir, command), walls).await;
    (outside, inside)
}

pub fn assert_stopped((outside, inside): &(Exit, Exit)) {
    assert_eq!(outside.code, Some(0), "the attack itself must work: {outside:?}");
    assert_ne!(inside.code, Some(0), "the walls did not hold: {inside:?}");
}

/// Names of runs differ from one to the next.
pub fn without_number(line: &str) -> String {
    match line.strip_prefix("KAPELLE_RUN=") {
        Some(_) => "KAPELLE_RUN=*".into(),
        None => line.into(),
    }
}
