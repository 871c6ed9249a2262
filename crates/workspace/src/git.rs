//! The one way in which Kapelle calls git.
//!
//! Every call has an emptied environment, a closed stdin, bounded output, a time limit and a
//! checked exit status, and waits for a lock that another git process holds.
//!
//! Invariant: no call runs code that a repository names. Hooks, pagers, editors, file-system
//! monitors, signing and every transport are switched off on the command line, and the drivers
//! that the repository's own configuration defines are overridden (see [`drivers`]). What
//! remains is the user's own: `include.path` is followed, and a driver that is added to the
//! configuration while Kapelle runs is only seen when the repository is opened again.

pub mod drivers;
mod output;
mod prepared;

use drivers::Setting;
pub(crate) use prepared::Move;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use crate::programs;

/// The identity of every commit that Kapelle itself makes.
pub const IDENTITY_NAME: &str = "Kapelle";
pub const IDENTITY_EMAIL: &str = "kapelle@localhost";

/// Lists of paths are the largest answers; at 64 MiB a list is of no use to anybody.
const STDOUT_BYTES_MAX: usize = 64 << 20;

/// What of git's complaints is kept for the error.
const STDERR_BYTES_MAX: usize = 4 << 10;

/// The slowest call is a checkout of a giant repository on a slow disk. Past this, git hangs.
const CALL_TIME_MAX: Duration = Duration::from_secs(600);

/// Another git process holds a lock for milliseconds. Seven tries wait about three seconds in
/// all; a lock that is still there was left by a crash, and a person has to look at it.
const LOCK_TRIES_MAX: u32 = 7;
const LOCK_WAIT_FIRST: Duration = Duration::from_millis(50);

/// Settings that keep git from running anything but itself, from reaching the network, and from
/// depending on how a user likes git to behave.
const SETTINGS: [&str; 23] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.splitIndex=false",
    "core.sparseCheckout=false",
    "core.pager=cat",
    "core.editor=false",
    "core.sshCommand=false",
    "core.askPass=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "gc.auto=0",
    "maintenance.auto=false",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "diff.external=",
    "submodule.recurse=false",
    "protocol.allow=never",
    "protocol.ext.allow=never",
    "i18n.commitEncoding=UTF-8",
    "merge.renames=true",
    "merge.directoryRenames=conflict",
    "worktree.useRelativePaths=false",
];

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("git could not be started in {dir}: {source}")]
    Start { dir: PathBuf, source: std::io::Error },
    #[error("git {arguments} failed with {status}: {stderr}")]
    Failed { arguments: String, status: String, stderr: String },
    #[error("git {arguments} wrote more than {limit} bytes")]
    OutputTooLarge { arguments: String, limit: usize },
    #[error("git {arguments} did not end within {limit:?}")]
    TimedOut { arguments: String, limit: Duration },
    #[error("reading from git {arguments}: {source}")]
    Read { arguments: String, source: std::io::Error },
    #[error("git {arguments} answered {answer:?}, which is not {expected}")]
    Answer { arguments: String, answer: String, expected: &'static str },
}

/// Arguments of one git call, from anything that is text or a path.
macro_rules! args {
    ($($arg:expr),* $(,)?) => {
        vec![$(std::ffi::OsStr::new(&$arg).to_os_string()),*]
    };
}
pub(crate) use args;

/// Where and how git is called.
#[derive(Debug, Clone)]
pub struct Git {
    dir: PathBuf,
    location: Vec<OsString>,
    overrides: Arc<[Setting]>,
    env: BTreeMap<OsString, OsString>,
    /// What git reads, if it reads anything. A few lines: a pipe takes them at once.
    input: Option<Arc<str>>,
}

/// The answer of a call whose exit status was one of the accepted ones.
#[derive(Debug)]
pub struct Output {
    pub code: i32,
    pub stdout: Vec<u8>,
}

impl Git {
    /// Git as it finds itself in `dir`.
    #[must_use]
    pub fn in_dir(dir: &Path) -> Git {
        let (location, overrides, env) = (Vec::new(), Arc::new([]), environment());
        Git { dir: dir.into(), location, overrides, env, input: None }
    }

    /// The same git as it finds itself in another directory.
    #[must_use]
    pub fn within(&self, dir: &Path) -> Git {
        Git { dir: dir.into(), location: Vec::new(), ..self.clone() }
    }

    /// Git on exactly this git directory, whatever lies in the current one.
    #[must_use]
    pub fn on(&self, git_dir: &Path) -> Git {
        let mut option = OsString::from("--git-dir=");
        option.push(git_dir);
        Git { dir: git_dir.into(), location: vec![option], ..self.clone() }
    }

    /// The same git directory with another tree of files and an index of its own. Nothing that
    /// lies in the tree, such as its `.git`, is asked where the repository is.
    #[must_use]
    pub fn with_tree(&self, tree: &Path, index: &Path) -> Git {
        let mut option = OsString::from("--work-tree=");
        option.push(tree);
        let mut git = self.clone();
        git.location.push(option);
        git.dir = tree.into();
        git.set("GIT_INDEX_FILE", index)
    }

    /// The same with one more environment variable.
    #[must_use]
    pub fn set(mut self, name: &str, value: impl AsRef<OsStr>) -> Git {
        self.env.insert(name.into(), value.as_ref().into());
        self
    }

    /// The same with something to read.
    #[must_use]
    pub fn reading(mut self, input: &str) -> Git {
        self.input = Some(input.into());
        self
    }

    /// The same with further settings.
    #[must_use]
    pub fn overriding(mut self, settings: Vec<Setting>) -> Git {
        self.overrides = self.overrides.iter().cloned().chain(settings).collect();
        self
    }

    /// The same, but repositories of other owners are taken as well, if they are among those that
    /// the user has told git to trust. It is the one setting of theirs that is asked for.
    pub async fn trusting_as_the_user_does(self) -> Result<Git, Error> {
        let mut users = self.clone();
        users.env.remove(OsStr::new("GIT_CONFIG_GLOBAL"));
        for name in ["HOME", "XDG_CONFIG_HOME"] {
            users.env.remove(OsStr::new(name));
            users.env.extend(std::env::var_os(name).map(|value| (name.into(), value)));
        }
        let asked = args!["config", "--global", "--get-all", "-z", "safe.directory"];
        let listed = users.run_accepting(&[0, 1], asked).await?;
        let trusted = listed.stdout.split(|byte| *byte == 0).filter(|place| !place.is_empty());
        let trusted = trusted.map(|place| Setting {
            name: "safe.directory".into(),
            value: OsStr::from_bytes(place).to_owned(),
        });
        Ok(self.clone().overriding(trusted.collect()))
    }

    /// Runs git; only success is success.
    pub async fn run(&self, args: Vec<OsString>) -> Result<Output, Error> {
        self.run_accepting(&[0], args).await
    }

    /// Runs git and gives its answer as text, without the line end.
    pub async fn text(&self, args: Vec<OsString>) -> Result<String, Error> {
        let output = self.run(args).await?;
        Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches(['\n', '\0']).to_owned())
    }

    /// Runs git where some exit codes are answers, not failures.
    pub async fn run_accepting(
        &self,
        accepted: &[i32],
        args: Vec<OsString>,
    ) -> Result<Output, Error> {
        let mut patience = Patience::default();
        loop {
            let ended = self.once(accepted, &args).await;
            match patience.wait_after(&ended) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return ended,
            }
        }
    }

    /// Whether there is an object of this name.
    pub(crate) async fn knows(&self, object: &str) -> Result<bool, Error> {
        let asked = args!["cat-file", "-e", object];
        Ok(self.run_accepting(&[0, 1, 128], asked).await?.code == 0)
    }

    /// Whether a reference leads to this commit. Objects alone are cleared away some day.
    pub(crate) async fn holds(&self, commit: &str) -> Result<bool, Error> {
        let asked = args!["rev-list", "--max-count=1", commit, "--not", "--all"];
        let found = self.run_accepting(&[0, 128], asked).await?;
        Ok(found.code == 0 && found.stdout.is_empty())
    }

    async fn once(&self, accepted: &[i32], args: &[OsString]) -> Result<Output, Error> {
        let mut child = self.spawn(self.command(args))?;
        if let (Some(mut stdin), Some(input)) = (child.stdin.take(), &self.input) {
            // If git has ended before it read all of it, it says why.
            let _not_read = stdin.write_all(input.as_bytes()).await;
        }
        ended(child, accepted, args).await
    }

    fn spawn(&self, mut command: Command) -> Result<Child, Error> {
        command.spawn().map_err(|source| Error::Start { dir: self.dir.clone(), source })
    }

    /// Not killed when the caller loses interest: a git that is cut short leaves its locks in
    /// the user's repository, and a git that goes on ends by itself.
    fn command(&self, args: &[OsString]) -> Command {
        let mut command = Command::new(programs::named("git"));
        command.current_dir(&self.dir).env_clear().envs(&self.env).process_group(0);
        let stdin = if self.input.is_some() { Stdio::piped() } else { Stdio::null() };
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        for setting in SETTINGS {
            command.arg("-c").arg(setting);
        }
        // On a command line a name could not have a `=` in it.
        if !self.overrides.is_empty() {
            command.env("GIT_CONFIG_COUNT", self.overrides.len().to_string());
        }
        for (number, setting) in self.overrides.iter().enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{number}"), &setting.name);
            command.env(format!("GIT_CONFIG_VALUE_{number}"), &setting.value);
        }
        command.args(&self.location).args(args);
        command
    }
}

/// Waits for git's end, and reads its answer.
async fn ended(mut child: Child, accepted: &[i32], args: &[OsString]) -> Result<Output, Error> {
    let arguments = || shown(args);
    let pid = child.id();
    let ended = tokio::time::timeout(CALL_TIME_MAX, output::collect(&mut child)).await;
    let collected = match ended {
        Ok(collected) => {
            collected.map_err(|source| Error::Read { arguments: arguments(), source })?
        }
        Err(_elapsed) => {
            // Terminated, not killed: git then removes the locks that it holds.
            if let Some(pid) = pid.and_then(|pid| i32::try_from(pid).ok()) {
                let _already_gone = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
            return Err(Error::TimedOut { arguments: arguments(), limit: CALL_TIME_MAX });
        }
    };
    match collected.status.code() {
        Some(code) if accepted.contains(&code) => match collected.stdout {
            Some(stdout) => Ok(Output { code, stdout }),
            None => Err(Error::OutputTooLarge { arguments: arguments(), limit: STDOUT_BYTES_MAX }),
        },
        _ => Err(Error::Failed {
            arguments: arguments(),
            status: collected.status.to_string(),
            stderr: collected.stderr,
        }),
    }
}

fn environment() -> BTreeMap<OsString, OsString> {
    let mut env = BTreeMap::from([(OsString::from("PATH"), programs::search_path())]);
    for (name, value) in [
        ("LC_ALL", "C"),
        // A directory that cannot exist: git would read ignore rules and attributes there.
        ("HOME", "/dev/null/home"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_ATTR_NOSYSTEM", "1"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_NO_LAZY_FETCH", "1"),
        ("GIT_NO_REPLACE_OBJECTS", "1"),
        ("GIT_AUTHOR_NAME", IDENTITY_NAME),
        ("GIT_AUTHOR_EMAIL", IDENTITY_EMAIL),
        ("GIT_COMMITTER_NAME", IDENTITY_NAME),
        ("GIT_COMMITTER_EMAIL", IDENTITY_EMAIL),
    ] {
        env.insert(name.into(), value.into());
    }
    env
}

/// How long to wait for another git that is in the way before calling again.
#[derive(Debug, Default)]
struct Patience {
    waits: u32,
}

impl Patience {
    /// None if the call need not or should not be repeated.
    fn wait_after(&mut self, ended: &Result<Output, Error>) -> Option<Duration> {
        let busy =
            matches!(ended, Err(Error::Failed { stderr, .. }) if another_git_is_at_work(stderr));
        if !busy || self.waits + 1 >= LOCK_TRIES_MAX {
            return None;
        }
        self.waits += 1;
        Some(LOCK_WAIT_FIRST * (1 << (self.waits - 1)))
    }
}

/// Git says `Unable to create '….lock': File exists.` A reference that is not where it was
/// expected is refused with other words: that is an answer, and never tried again.
///
/// Git also reads the records of all other worktrees, and gives up over one whose `commondir`
/// another git has made and not yet written.
fn another_git_is_at_work(stderr: &str) -> bool {
    let half_made = stderr.lines().any(|line| {
        line.contains("failed to read ")
            && line.contains("/worktrees/")
            && line.contains("/commondir: ")
    });
    half_made || stderr.contains(".lock': File exists")
}

fn shown(args: &[OsString]) -> String {
    /// Enough to recognise the call; a commit message may be long.
    const CHARS_MAX: usize = 300;
    let all: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
    all.join(" ").chars().take(CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits_ms(stderr: &str) -> Vec<u128> {
        let (arguments, status) = ("update-ref".into(), "exit status: 128".into());
        let ended = Err(Error::Failed { arguments, status, stderr: stderr.into() });
        let mut patience = Patience::default();
        std::iter::from_fn(|| patience.wait_after(&ended)).map(|wait| wait.as_millis()).collect()
    }

    /// A person's own git holds locks for moments; that must delay us, not fail us.
    #[test]
    fn a_lock_of_another_git_is_waited_for_but_not_for_ever() {
        let locked = "fatal: Unable to create 'refs/heads/work.lock': File exists.";
        assert_eq!(waits_ms(locked), [50, 100, 200, 400, 800, 1_600]);
        assert_eq!(waits_ms("fatal: bad object"), Vec::<u128>::new());
    }

    #[test]
    fn a_worktree_that_another_git_is_making_is_waited_for() {
        let half_made = "Preparing worktree (detached HEAD ee8f8f4)\n\
                         fatal: failed to read /r/.git/worktrees/tree6/commondir: Success";
        assert_eq!(waits_ms(half_made).len(), 6);
        let missing = "fatal: failed to read /r/.git/HEAD: No such file or directory";
        assert_eq!(waits_ms(missing), Vec::<u128>::new());
    }
}
