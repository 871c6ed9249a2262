//! A repository that a person gave us: commits, branches, and what lies between two commits.
//!
//! Invariant: a branch only ever moves forward, by compare-and-swap, and never under the feet of
//! somebody who has it checked out.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kapelle_core::Commit;
use tokio::sync::Mutex;

use crate::git::{self, Git, Move, args, drivers};
use crate::secrets;

/// A change that touches more files than this is a mistake, or needs a person.
const CHANGED_PATHS_MAX: usize = 100_000;

/// The part of git's lock waits that we can avoid: our own worktree calls go one by one.
type WorktreeLock = Arc<Mutex<()>>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path} is not in a git repository: {reason}")]
    NotARepository { path: PathBuf, reason: String },
    #[error("{path} is a bare repository; a repository with a working tree is needed")]
    Bare { path: PathBuf },
    #[error("{path} has no commit yet")]
    NoCommit { path: PathBuf },
    #[error("{revision:?} names no commit")]
    UnknownRevision { revision: String },
    #[error("{name:?} is not a valid branch name")]
    BranchName { name: String },
    #[error(
        "the branch {in_the_way} is in the way of {branch}: rename it with `git branch -m {in_the_way} OTHER`"
    )]
    BranchInTheWay { branch: String, in_the_way: String },
    #[error("branch {branch} exists already, at {actual}")]
    BranchExists { branch: String, actual: Box<Commit> },
    #[error("branch {branch} cannot go from {from} to {to}: that is not forward")]
    NotForward { branch: String, from: Box<Commit>, to: Box<Commit> },
    #[error("branch {branch} is checked out in {dir}: check out another one there")]
    CheckedOut { branch: String, dir: PathBuf },
    #[error("{count} paths differ between {from} and {to}; the limit is {limit}")]
    TooManyPaths { from: Box<Commit>, to: Box<Commit>, count: usize, limit: usize },
    #[error("branch {branch} is at {tip}, which {target} does not contain; it stays")]
    NotLanded { branch: String, tip: Box<Commit>, target: String },
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Git(#[from] git::Error),
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What became of an attempt to move a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advance {
    /// The branch is where it was asked to be.
    Advanced,
    /// Somebody else moved it first; nothing was changed.
    Moved { actual: Option<Commit> },
}

/// Where a branch is.
struct Standing {
    tip: Commit,
    /// The working tree in which it is checked out.
    dir: Option<PathBuf>,
}

#[derive(Debug, Clone)]
pub struct Repository {
    root: PathBuf,
    git_dir: PathBuf,
    git: Git,
    worktree_lock: WorktreeLock,
    secret_rules: Arc<secrets::Rules>,
}

impl Repository {
    /// Opens the repository that `path` lies in.
    pub async fn open(path: &Path) -> Result<Repository> {
        let path =
            path.canonicalize().map_err(|source| Error::File { path: path.to_owned(), source })?;
        let mut here = Git::in_dir(&path);
        let asked = args!["rev-parse", "--path-format=absolute", "--git-common-dir"];
        let mut found = here.text(asked.clone()).await;
        if matches!(&found, Err(git::Error::Failed { stderr, .. }) if stderr.contains("dubious")) {
            here = here.trusting_as_the_user_does().await?;
            found = here.text(asked).await;
        }
        let found = found.map_err(|error| not_a_repository(&path, error))?;
        if here.text(args!["rev-parse", "--is-inside-work-tree"]).await? != "true" {
            return Err(Error::Bare { path });
        }
        let root = PathBuf::from(here.text(args!["rev-parse", "--show-toplevel"]).await?);
        if here.run(args!["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]).await.is_err() {
            return Err(Error::NoCommit { path: root });
        }
        let git_dir = PathBuf::from(found);
        let git = here.on(&git_dir);
        let git = git.clone().overriding(drivers::overrides(&git).await?);
        let (worktree_lock, secret_rules) = (WorktreeLock::default(), Arc::default());
        Ok(Repository { root, git_dir, git, worktree_lock, secret_rules })
    }

    /// The same repository, with what its owner allows in changes although it looks like a secret.
    #[must_use]
    pub fn allowing_secrets(self, rules: secrets::Rules) -> Repository {
        Repository { secret_rules: Arc::new(rules), ..self }
    }

    pub(crate) fn secret_rules(&self) -> &secrets::Rules {
        &self.secret_rules
    }

    /// The top of the working tree.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The git directory that all worktrees of the repository share.
    #[must_use]
    pub fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    pub(crate) fn git(&self) -> &Git {
        &self.git
    }

    /// Git in the working tree that was opened: the shared directory has another HEAD.
    pub(crate) fn git_here(&self) -> Git {
        self.git.within(&self.root)
    }

    pub(crate) fn worktree_lock(&self) -> &Mutex<()> {
        &self.worktree_lock
    }

    /// The branch that is checked out, unless HEAD is detached.
    pub async fn head_branch(&self) -> Result<Option<String>> {
        let git = self.git_here();
        let asked = args!["symbolic-ref", "--quiet", "--short", "HEAD"];
        let output = git.run_accepting(&[0, 1], asked).await?;
        let name = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        Ok((output.code == 0).then_some(name))
    }

    /// The commit that a revision such as `HEAD` or `v1.0` names.
    pub async fn resolve(&self, revision: &str) -> Result<Commit> {
        let git = self.git_here();
        let wanted = format!("{revision}^{{commit}}");
        let asked = args!["rev-parse", "--verify", "--quiet", "--end-of-options", wanted];
        let output = git.run_accepting(&[0, 1, 128], asked).await?;
        let name = String::from_utf8_lossy(&output.stdout);
        name.trim_end().parse().map_err(|_| Error::UnknownRevision { revision: revision.into() })
    }

    /// The commit that a branch points at, or nothing if there is no such branch.
    pub async fn branch_tip(&self, branch: &str) -> Result<Option<Commit>> {
        check_branch_name(branch)?;
        self.reference(&format!("refs/heads/{branch}")).await
    }

    pub(crate) async fn reference(&self, name: &str) -> Result<Option<Commit>> {
        let wanted = format!("{name}^{{commit}}");
        let asked = args!["rev-parse", "--verify", "--quiet", "--end-of-options", wanted];
        let output = self.git.run_accepting(&[0, 1], asked).await?;
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().parse().ok())
    }

    /// Whether `older` is `newer` or one of the commits that it is built on.
    pub async fn is_ancestor(&self, older: &Commit, newer: &Commit) -> Result<bool> {
        let asked = args!["merge-base", "--is-ancestor", older.as_str(), newer.as_str()];
        Ok(self.git.run_accepting(&[0, 1], asked).await?.code == 0)
    }

    /// The commit from which both have grown; nothing if they have none in common.
    pub async fn merge_base(&self, one: &Commit, other: &Commit) -> Result<Option<Commit>> {
        let asked = args!["merge-base", one.as_str(), other.as_str()];
        let output = self.git.run_accepting(&[0, 1], asked).await?;
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().parse().ok())
    }

    /// The beginning of a file; nothing if the commit has no such file.
    pub(crate) async fn file_at(
        &self,
        commit: &Commit,
        path: &str,
        bytes_max: usize,
    ) -> Result<Option<String>> {
        let wanted = format!("{commit}:{path}");
        let output = self.git.run_accepting(&[0, 128], args!["cat-file", "blob", wanted]).await?;
        let shown = &output.stdout[..output.stdout.len().min(bytes_max)];
        Ok((output.code == 0).then(|| String::from_utf8_lossy(shown).into_owned()))
    }

    /// Makes a branch. Doing it again is no error as long as the branch has not moved.
    pub async fn create_branch(&self, branch: &str, commit: &Commit) -> Result<()> {
        match self.branch_tip(branch).await? {
            Some(actual) if actual == *commit => return Ok(()),
            Some(actual) => return Err(exists(branch, actual)),
            None => {}
        }
        let none = "0".repeat(commit.as_str().len());
        let name = format!("refs/heads/{branch}");
        let _noted = self.note_locks(&[self.lock_of(&name)])?;
        match self.git.run(args!["update-ref", name, commit.as_str(), none]).await {
            Ok(_) => Ok(()),
            Err(error) => match self.branch_tip(branch).await? {
                Some(actual) if actual == *commit => Ok(()),
                Some(actual) => Err(exists(branch, actual)),
                None => Err(self.branch_in_the_way(branch).await?.unwrap_or(error.into())),
            },
        }
    }

    /// Git has no reference below another one.
    async fn branch_in_the_way(&self, branch: &str) -> Result<Option<Error>> {
        for (end, _) in branch.match_indices('/') {
            let in_the_way = branch[..end].to_owned();
            if self.branch_tip(&in_the_way).await?.is_some() {
                return Ok(Some(Error::BranchInTheWay { branch: branch.into(), in_the_way }));
            }
        }
        Ok(None)
    }

    /// Moves a branch from one commit to a later one, if it still is where it is believed to be.
    ///
    /// Refused while the branch is checked out somewhere: the files there would stay behind, and
    /// the next commit made there would undo everything that was landed.
    pub async fn advance(&self, branch: &str, from: &Commit, to: &Commit) -> Result<Advance> {
        check_branch_name(branch)?;
        let name = format!("refs/heads/{branch}");
        let note = "kapelle: advance";
        let _noted = self.note_locks(&[self.lock_of(&name)])?;
        let wanted = Move { name: &name, from, to, note };
        // The looking takes longer than the lock, and begins first.
        let (hindrance, prepared) =
            tokio::join!(self.hindrance(branch, from, to), self.git.prepare(wanted));
        let prepared = prepared?;
        match hindrance {
            Ok(None) => {}
            Ok(Some(answer)) => {
                prepared.abandon().await;
                return Ok(answer);
            }
            Err(error) => {
                prepared.abandon().await;
                return Err(error);
            }
        }
        if prepared.commit().await.is_ok() {
            return Ok(Advance::Advanced);
        }
        // The branch has moved since, or another git has its lock: that one is waited for here.
        let asked = args!["update-ref", "-m", note, name, to.as_str(), from.as_str()];
        match self.git.run(asked).await {
            Ok(_) => Ok(Advance::Advanced),
            Err(error) => match self.branch_tip(branch).await? {
                Some(actual) if actual == *to => Ok(Advance::Advanced),
                Some(actual) if actual == *from => Err(error.into()),
                actual => Ok(Advance::Moved { actual }),
            },
        }
    }

    /// What keeps a branch from moving forward, if anything does.
    async fn hindrance(&self, branch: &str, from: &Commit, to: &Commit) -> Result<Option<Advance>> {
        match self.standing(branch, Some(to)).await? {
            Some(Standing { tip, .. }) if tip == *to => Ok(Some(Advance::Advanced)),
            Some(Standing { tip, dir: Some(dir) }) if tip == *from => {
                Err(Error::CheckedOut { branch: branch.into(), dir })
            }
            Some(Standing { tip, dir: None }) if tip == *from => Ok(None),
            Some(Standing { tip, .. }) => Ok(Some(Advance::Moved { actual: Some(tip) })),
            None => match self.branch_tip(branch).await? {
                Some(actual) if actual == *from => {
                    let (from, to) = (Box::new(from.clone()), Box::new(to.clone()));
                    Err(Error::NotForward { branch: branch.into(), from, to })
                }
                actual => Ok(Some(Advance::Moved { actual })),
            },
        }
    }

    /// Removes a branch whose commits are all in the target. Any other stays: somebody's work may
    /// be on it and nowhere else. Doing it again is no error.
    pub async fn remove_branch(&self, branch: &str, target: &str) -> Result<()> {
        let Some(tip) = self.branch_tip(branch).await? else { return Ok(()) };
        let landed = match self.branch_tip(target).await? {
            Some(target) => self.is_ancestor(&tip, &target).await?,
            None => false,
        };
        if !landed || branch == target {
            let (branch, tip, target) = (branch.into(), Box::new(tip), target.into());
            return Err(Error::NotLanded { branch, tip, target });
        }
        if let Some(dir) = self.checked_out(branch).await? {
            return Err(Error::CheckedOut { branch: branch.into(), dir });
        }
        let name = format!("refs/heads/{branch}");
        let _noted = self.note_locks(&[self.lock_of(&name), self.lock_of_all()])?;
        self.git.run(args!["update-ref", "-d", name, tip.as_str()]).await?;
        Ok(())
    }

    /// The working tree in which a branch is checked out, if any.
    pub async fn checked_out(&self, branch: &str) -> Result<Option<PathBuf>> {
        Ok(self.standing(branch, None).await?.and_then(|standing| standing.dir))
    }

    /// Where a branch points and where it is checked out, in one call; nothing if there is no such
    /// branch, or if `within` does not contain it.
    async fn standing(&self, branch: &str, within: Option<&Commit>) -> Result<Option<Standing>> {
        check_branch_name(branch)?;
        let mut asked = args!["for-each-ref", "--format=%(objectname)%00%(worktreepath)"];
        asked.extend(within.map(|commit| format!("--merged={commit}").into()));
        asked.push(format!("refs/heads/{branch}").into());
        let output = self.git.run(asked).await?;
        let answer = output.stdout.strip_suffix(b"\n").unwrap_or(&output.stdout);
        let Some(end) = answer.iter().position(|byte| *byte == 0) else { return Ok(None) };
        let tip = String::from_utf8_lossy(&answer[..end]).parse();
        let dir = PathBuf::from(OsStr::from_bytes(&answer[end + 1..]));
        let dir = Some(dir).filter(|dir| !dir.as_os_str().is_empty());
        Ok(tip.ok().map(|tip| Standing { tip, dir }))
    }

    /// The paths that differ between two commits.
    pub async fn changed_paths(&self, from: &Commit, to: &Commit) -> Result<Vec<String>> {
        let asked = args![
            "diff-tree",
            "-r",
            "-z",
            "--name-only",
            "--no-renames",
            "--no-ext-diff",
            from.as_str(),
            to.as_str()
        ];
        let output = self.git.run(asked).await?;
        let paths = zero_separated(&output.stdout);
        if paths.len() > CHANGED_PATHS_MAX {
            let (from, to) = (Box::new(from.clone()), Box::new(to.clone()));
            let limit = CHANGED_PATHS_MAX;
            return Err(Error::TooManyPaths { from, to, count: paths.len(), limit });
        }
        Ok(paths)
    }

    /// The name of the tree of files that a commit holds.
    pub async fn tree_of(&self, commit: &Commit) -> Result<String> {
        let wanted = format!("{commit}^{{tree}}");
        Ok(self.git.text(args!["rev-parse", "--verify", wanted]).await?)
    }

    /// Has git overlook a path in this clone only, without touching a file of the project.
    pub async fn exclude_locally(&self, pattern: &str) -> Result<()> {
        let _one_writer = self.worktree_lock.lock().await;
        let path = self.git_dir.join("info/exclude");
        let file = |source| Error::File { path: path.clone(), source };
        let mut text = match tokio::fs::read_to_string(&path).await {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(file(error)),
        };
        if text.lines().any(|line| line == pattern) {
            return Ok(());
        }
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(pattern);
        text.push('\n');
        tokio::fs::create_dir_all(self.git_dir.join("info")).await.map_err(file)?;
        tokio::fs::write(&path, text).await.map_err(file)
    }
}

/// As `git check-ref-format` has it, without a process; and no option of git's by its look.
fn check_branch_name(name: &str) -> Result<()> {
    let part_is_fine =
        |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    let is_wrong = |c: char| c.is_ascii_control() || " ~^:?*[\\".contains(c);
    let is_fine = name.split('/').all(part_is_fine)
        && !name.contains(is_wrong)
        && !["..", "@{"].iter().any(|wrong| name.contains(wrong))
        && !name.ends_with('.')
        && !name.starts_with('-');
    if is_fine { Ok(()) } else { Err(Error::BranchName { name: name.into() }) }
}

fn not_a_repository(path: &Path, error: git::Error) -> Error {
    match error {
        git::Error::Failed { stderr, .. } => {
            Error::NotARepository { path: path.into(), reason: stderr }
        }
        other => other.into(),
    }
}

pub(crate) fn zero_separated(bytes: &[u8]) -> Vec<String> {
    let parts = bytes.split(|byte| *byte == 0).filter(|part| !part.is_empty());
    parts.map(|part| String::from_utf8_lossy(part).into_owned()).collect()
}

fn exists(branch: &str, actual: Commit) -> Error {
    Error::BranchExists { branch: branch.into(), actual: Box::new(actual) }
}
