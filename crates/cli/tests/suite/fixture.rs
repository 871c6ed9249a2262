//! A repository of its own, a home of its own, and the real binary.
//!
//! Everything lives in one temporary folder. The binary gets an emptied environment and a free
//! port, so that tests can run side by side and see nothing of the machine.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use kapelle_store::Reader;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// Far more than anything here takes, even on a busy machine; past it, something hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at something that cannot be waited for, such as the absence of a process.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

pub const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

pub struct Fixture {
    dir: TempDir,
}

/// What a command left behind when it ended.
#[derive(Debug, Clone)]
pub struct Done {
    /// As a shell counts: 128 and the signal for a process that a signal ended.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Fixture {
    /// A repository with one commit on `main`.
    pub fn new() -> Fixture {
        let fixture = Fixture::without_repository();
        fixture.git(&["init", "--quiet", "--initial-branch=main"]);
        fixture.commit("README.md", "a sample\n");
        fixture
    }

    /// Not in `/tmp`, which a sandbox hides anyway.
    pub fn without_repository() -> Fixture {
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let fixture = Fixture { dir };
        for folder in ["repo", "home"] {
            fs::create_dir(fixture.path(folder)).unwrap();
        }
        fixture
    }

    /// A repository whose developer is this shell script, which lies outside of the tree.
    pub fn with_agent(script: &str) -> Fixture {
        Fixture::with_agent_and(script, "")
    }

    pub fn with_agent_and(script: &str, config: &str) -> Fixture {
        let fixture = Fixture::new();
        let agent = fixture.script("agent.sh", script);
        fixture.commit("kapelle.toml", &developer(&agent, config));
        fixture
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn repo(&self) -> PathBuf {
        self.path("repo")
    }

    pub fn file(&self, name: &str) -> String {
        let path = self.repo().join(name);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// An executable outside of the repository.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    pub fn git(&self, args: &[&str]) -> String {
        git_in(&self.repo(), args)
    }

    pub fn write(&self, file: &str, text: &str) {
        let path = self.repo().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn commit(&self, file: &str, text: &str) {
        self.write(file, text);
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", file]);
    }

    /// A plan outside of the repository, from the JSON of its tasks.
    pub fn plan(&self, tasks: &str) -> String {
        let path = self.path("plan.json");
        fs::write(&path, format!("{{\"tasks\": {tasks}}}")).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Runs `kapelle` in the repository to its end.
    pub fn kapelle(&self, args: &[&str]) -> Done {
        self.start(args).ended()
    }

    /// The same, for a command that only looks or asks, with JSON as its answer.
    pub fn json(&self, args: &[&str]) -> Value {
        let mut args = args.to_vec();
        args.push("--json");
        self.kapelle(&args).expect(0).json()
    }

    /// `kapelle run` with these arguments, on a free port.
    pub fn run(&self, args: &[&str]) -> Done {
        self.start_run(args).ended()
    }

    pub fn start_run(&self, args: &[&str]) -> Live {
        let mut all = vec!["run", "--port", "0"];
        all.extend(args);
        self.start(&all)
    }

    pub fn start(&self, args: &[&str]) -> Live {
        self.start_with(PATH, args)
    }

    pub fn start_with(&self, path: &str, args: &[&str]) -> Live {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kapelle"));
        command.args(args).current_dir(self.repo());
        Live::start(self.hermetic(&mut command, path))
    }

    /// The same environment for everything.
    pub fn hermetic<'a>(&self, command: &'a mut Command, path: &str) -> &'a mut Command {
        command.env_clear().env("PATH", path).env("HOME", self.path("home"));
        command.env("TMPDIR", self.path("home"))
    }

    /// The journal's records, oldest first.
    pub fn journal(&self) -> Vec<Value> {
        let log = self.kapelle(&["log", "--json"]).expect(0);
        log.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The events of one type, oldest first.
    pub fn events(&self, kind: &str) -> Vec<Value> {
        let events = self.journal().into_iter().map(|mut record| record["event"].take());
        events.filter(|event| event["type"] == kind).collect()
    }

    /// The kinds and texts of all failures of one task, oldest first.
    pub fn failures(&self, task: u64) -> Vec<(String, String)> {
        let events = self.journal().into_iter().map(|mut record| record["event"].take());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        events
            .filter(|event| event["task"] == task && event["failure"].is_object())
            .map(|event| (text(&event["failure"]["kind"]), text(&event["failure"]["message"])))
            .collect()
    }

    /// The task with this name in the last mission, as `kapelle tasks` shows it.
    pub fn task(&self, name: &str) -> Value {
        let tasks = self.json(&["tasks"]);
        let found = tasks.as_array().unwrap().iter().rfind(|task| task["name"] == name);
        found.unwrap_or_else(|| panic!("no task {name} in {tasks:#}")).clone()
    }

    pub fn main(&self) -> String {
        self.git(&["rev-parse", "main"])
    }

    /// Names of hidden references below `refs/kapelle/`.
    pub fn refs(&self, below: &str) -> Vec<String> {
        let pattern = format!("refs/kapelle/{below}");
        let names = self.git(&["for-each-ref", "--format=%(refname)", &pattern]);
        names.lines().map(str::to_owned).collect()
    }

    /// Waits until an agent at work has written this file into its tree; the tree's path.
    pub fn written(&self, file: &str) -> PathBuf {
        let work = self.repo().join(".kapelle/work");
        eventually(&format!("an agent wrote {file}"), || {
            let places = fs::read_dir(&work).map_err(|e| e.to_string())?;
            let mut trees = places.filter_map(Result::ok).map(|place| place.path().join("tree"));
            // Nothing is half written: the file has its line end, or it is not there yet.
            let whole = |tree: &PathBuf| {
                fs::read_to_string(tree.join(file)).is_ok_and(|text| text.ends_with('\n'))
            };
            trees.find(whole).ok_or_else(|| "no tree has it".to_owned())
        })
    }

    /// Processes that work on behalf of this repository's store.
    pub fn processes(&self) -> BTreeSet<i32> {
        processes_of(&self.repo())
    }

    /// What every run must leave behind, however it went: no worktree, no process, an intact
    /// journal, and an owner who can still write to the project.
    pub fn assert_tidy(&self) {
        assert_tidy(self, &self.repo());
    }

    pub fn assert_nothing_runs(&self) {
        nothing_runs(&self.repo());
    }

    /// The same while Kapelle runs: what was stopped ends and is put away.
    pub fn assert_nobody_works(&self) {
        self.assert_nothing_runs();
        eventually("the places of work are put away", || {
            let left = workplaces(&self.repo());
            if left.is_empty() { Ok(()) } else { Err(left) }
        });
    }
}

impl Drop for Fixture {
    /// A test that fails must not leave an agent behind, not even one without a sandbox.
    fn drop(&mut self) {
        // What the test has made of the store may be nothing that can be read.
        if thread::panicking()
            && let Ok(store) = store_id(&self.repo())
        {
            for pid in with_lease_of(&store) {
                // It may be gone already.
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }
}

/// The configuration of a developer who is this program, and no patience between retries.
pub fn developer(agent: &Path, more: &str) -> String {
    let agent = agent.to_str().unwrap();
    format!(
        "[roles.developer]\ncommand = [\"{agent}\"]\n{}\n[retry]\nbackoff_base_ms = 1\n{more}\n",
        "seats = 4\n[team]\nworkers_max = 4"
    )
}

pub fn assert_tidy(fixture: &Fixture, repo: &Path) {
    nothing_runs(repo);
    let worktrees = git_in(repo, &["worktree", "list", "--porcelain"]);
    // A crash between the removal of a tree and that of git's record of it leaves the record.
    let left = worktrees.split("\n\n").filter(|one| !one.contains("\nprunable ")).count();
    assert_eq!(left, 1, "worktrees are left:\n{worktrees}");
    assert_eq!(workplaces(repo), Vec::<PathBuf>::new(), "places of work are left");
    let mut audit = Command::new(env!("CARGO_BIN_EXE_kapelle"));
    audit.args(["audit", "verify"]).current_dir(repo);
    Live::start(fixture.hermetic(&mut audit, PATH)).ended().expect(0);
}

fn workplaces(repo: &Path) -> Vec<PathBuf> {
    let places = fs::read_dir(repo.join(".kapelle/work")).into_iter().flatten();
    places.map(|place| place.unwrap().path()).collect()
}

/// A sandbox goes a moment after the process that held it, so this waits for it.
fn nothing_runs(repo: &Path) {
    eventually("no process of the project is left", || {
        let left = processes_of(repo);
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}

/// Known by the lease in their environment, which whatever they start inherits.
pub fn processes_of(repo: &Path) -> BTreeSet<i32> {
    with_lease_of(&store_id(repo).unwrap())
}

fn store_id(repo: &Path) -> Result<String, kapelle_store::Error> {
    Reader::open(&repo.join(".kapelle/store.db"))?.store_id()
}

fn with_lease_of(store: &str) -> BTreeSet<i32> {
    let lease = format!("KAPELLE_LEASE={store}:");
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|one| one.starts_with(lease.as_bytes()))
        })
        .collect()
}

/// Looks until it is so. For what nobody can be asked to announce.
pub fn eventually<T, E: std::fmt::Debug>(what: &str, mut look: impl FnMut() -> Result<T, E>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) if Instant::now() > end => panic!("not so: {what}; seen last: {seen:?}"),
            Err(_) => thread::park_timeout(LOOK_AGAIN),
        }
    }
}

pub fn git_in(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", "/dev/null/home")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_NAME"), "Person")))
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_EMAIL"), "p@example.org")))
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

impl Done {
    /// The exit code that this should have ended with.
    #[track_caller]
    pub fn expect(self, code: i32) -> Done {
        assert_eq!(self.code, code, "\nstdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Something that a person must be able to read on stderr.
    #[track_caller]
    pub fn says(self, text: &str) -> Done {
        assert!(self.stderr.contains(text), "{text:?} is not in:\n{}", self.stderr);
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|e| panic!("{e} in:\n{}\nstderr:\n{}", self.stdout, self.stderr))
    }
}

/// A running command. Its lines on stderr tell how far it is.
pub struct Live {
    pid: Pid,
    lines: Receiver<String>,
    seen: Vec<String>,
    stdout: Receiver<String>,
    ended: Receiver<ExitStatus>,
    has_ended: bool,
}

impl Live {
    pub fn start(command: &mut Command) -> Live {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own, as a shell would give it: signals to it do not reach the tests.
        let mut child = command.process_group(0).spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let (stderr, mut stdout) = (child.stderr.take().unwrap(), child.stdout.take().unwrap());
        let (say, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                // The test may have seen enough.
                let _ = say.send(line);
            }
        });
        let (print, printed) = channel();
        thread::spawn(move || {
            let mut text = String::new();
            let _ = stdout.read_to_string(&mut text);
            let _ = print.send(text);
        });
        let (tell, ended) = channel();
        thread::spawn(move || tell.send(child.wait().unwrap()));
        Live { pid, lines, seen: Vec::new(), stdout: printed, ended, has_ended: false }
    }

    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Waits for a line that contains this text.
    #[track_caller]
    pub fn line_with(&mut self, text: &str) -> String {
        self.line_where(&format!("a line with {text:?}"), |line| line.contains(text))
    }

    #[track_caller]
    pub fn line_where(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if wanted(&line) {
                        return line;
                    }
                }
                Err(why) => {
                    let seen = self.seen.join("\n");
                    panic!("waited for {what}, but {why}; seen:\n{seen}")
                }
            }
        }
    }

    /// The address of its dashboard, which it tells first.
    #[track_caller]
    pub fn url(&mut self) -> String {
        let line = self.line_with("dashboard: ");
        line.strip_prefix("dashboard: ").unwrap().to_owned()
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid, signal).unwrap();
    }

    /// Ctrl-C, as a terminal sends it: to the whole group.
    pub fn interrupt(&self) {
        nix::sys::signal::killpg(self.pid, Signal::SIGINT).unwrap();
    }

    /// Ends it in mid-flight, after this many lines, if it gets that far; whether it did.
    pub fn killed_after(mut self, lines: usize) -> bool {
        for _ in 0..lines {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("silent:\n{}", self.seen.join("\n")),
            }
        }
        // It may have ended by itself; then there was nothing to interrupt.
        let _ = kill(self.pid, Signal::SIGKILL);
        let status = self.ended.recv_timeout(PATIENCE).unwrap();
        self.has_ended = true;
        status.signal() == Some(Signal::SIGKILL as i32)
    }

    /// Ends it now, while it is at work.
    pub fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        self.ended.recv_timeout(PATIENCE).unwrap();
        self.has_ended = true;
    }

    /// Waits for its end.
    #[track_caller]
    pub fn ended(mut self) -> Done {
        let status = match self.ended.recv_timeout(PATIENCE) {
            Ok(status) => status,
            Err(_) => {
                self.seen.extend(self.lines.try_iter());
                panic!("it does not end; seen:\n{}", self.seen.join("\n"));
            }
        };
        self.has_ended = true;
        self.seen.extend(self.lines.iter());
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap());
        let stdout = self.stdout.recv_timeout(PATIENCE).unwrap();
        Done { code, stdout, stderr: self.seen.join("\n") }
    }
}

impl Drop for Live {
    /// A test that fails must not leave its process behind.
    fn drop(&mut self) {
        if !self.has_ended {
            // It may be gone already.
            let _ = kill(self.pid, Signal::SIGKILL);
            let _ = self.ended.recv_timeout(PATIENCE);
        }
    }
}
