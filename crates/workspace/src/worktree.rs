//! Worktrees: the tree of files that one attempt works in.
//!
//! A worktree is a real one of git, at a detached commit. What an agent leaves in it becomes one
//! commit on the base. After an agent ran there, nothing in the tree is believed: its `.git` is
//! not asked for anything, and neither is the index that git keeps for the worktree.
//!
//! Invariant: a tree is removed only after everything in it was kept under a hidden reference.

mod inventory;
mod nested;
mod private;
mod removal;
mod snapshot;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use kapelle_core::Commit;

use crate::commit;
use crate::git::{self, args};
use crate::kept::WITHOUT_IGNORED;
use crate::repository::{self, Repository};
use crate::secrets;
use inventory::Inventory;
pub use private::remove_private;
pub use removal::remove_scrap;
use snapshot::{Attributes, Ignored};

/// What is kept of a tree at most. Beyond it, ignored files (build output, nearly always) are
/// left out; if the rest alone is more than this, the tree stays where it is.
pub const KEPT_BYTES_MAX: u64 = 256 << 20;

/// The largest file that a change may bring; common hosts of git take no larger ones either.
pub const FILE_BYTES_MAX: u64 = 100 << 20;

/// Hidden from `git branch` and `git log`, and never pushed by default.
const KEPT_PREFIX: &str = "refs/kapelle/kept/";

/// Our note in git's record of the worktree, the commit that it was made from. It marks the
/// record as ours.
const BASE_NOTE: &str = "kapelle-base";

/// The same note beside the tree, with this after the tree's name: git's record is lost when
/// somebody prunes worktrees, and does not fit any more when the repository is moved.
const BASE_NOTE_SUFFIX: &str = ".base";

/// The name of an attempt's tree in the directory of the attempt.
const TREE_NAME: &str = "tree";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{dir} has no parent directory")]
    Place { dir: PathBuf },
    #[error("{reference:?} is not a valid name for kept work")]
    Reference { reference: String },
    #[error("the submodule at {path} was changed; changes of submodules cannot be taken")]
    Submodule { path: String },
    #[error("{dir} holds {bytes} bytes of work; at most {limit} are kept")]
    TooLarge { dir: PathBuf, bytes: u64, limit: u64 },
    #[error("{path} has {bytes} bytes; a file of a change has at most {limit}")]
    FileTooLarge { path: PathBuf, bytes: u64, limit: u64 },
    #[error("{dir} holds more than {limit} files")]
    TooMany { dir: PathBuf, limit: usize },
    #[error("{dir} holds more than {limit} branches with new commits")]
    TooManyBranches { dir: PathBuf, limit: usize },
    #[error("git takes no file of the name {}; give it another", path.display())]
    RefusedName { path: PathBuf },
    #[error("git does not take what is in the tree: {said}")]
    NotTaken { said: String },
    #[error("the history in {dir} cannot be kept here: {reason}")]
    OtherHistory { dir: PathBuf, reason: &'static str },
    #[error("{name} could not be fetched from {dir}")]
    NotFetched { dir: PathBuf, name: String },
    #[error("{dir} holds more than {limit} repositories")]
    TooManyHistories { dir: PathBuf, limit: usize },
    #[error("{found}; take it out of the change, and never write secrets into files")]
    Secrets { found: secrets::Findings },
    #[error("what was kept is {kept}, not {dir}")]
    OtherTree { kept: PathBuf, dir: PathBuf },
    #[error(transparent)]
    Repository(#[from] repository::Error),
    #[error(transparent)]
    Git(#[from] git::Error),
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Proof that everything in a tree was kept. Only [`Worktree::keep`] makes one.
#[derive(Debug)]
pub struct Kept {
    dir: PathBuf,
    commit: Option<Commit>,
    ignored: Ignored,
}

impl Kept {
    /// The commit that holds the tree; nothing if the tree was as its base.
    #[must_use]
    pub fn commit(&self) -> Option<&Commit> {
        self.commit.as_ref()
    }

    /// Whether ignored files were too much to keep and were left out.
    #[must_use]
    pub fn left_ignored_out(&self) -> bool {
        self.ignored == Ignored::LeftOut
    }
}

#[derive(Debug)]
pub struct Worktree {
    repo: Repository,
    dir: PathBuf,
    /// Git's record of the worktree, in the shared git directory.
    record: Option<PathBuf>,
    base: Commit,
    recovered: Option<Commit>,
}

impl Worktree {
    /// A clean tree of files at `base`. What a crashed run left at `dir` is kept first, under
    /// `leftover/<name of dir>-<time>`.
    ///
    /// If the caller gives up waiting, the tree is still completed, while others wait for their
    /// turn: a git that works on a tree which nobody waits for would surprise the next caller.
    pub async fn prepare(repo: &Repository, dir: &Path, base: &Commit) -> Result<Worktree> {
        let (repo, dir, base) = (repo.clone(), settled(dir)?, base.clone());
        match tokio::spawn(async move { Worktree::make(&repo, dir, &base).await }).await {
            Ok(made) => made,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    async fn make(repo: &Repository, dir: PathBuf, base: &Commit) -> Result<Worktree> {
        let _one_at_a_time = repo.worktree_lock().lock().await;
        let mut recovered = None;
        if dir.symlink_metadata().is_ok() {
            let left = Worktree::adopt(repo, &dir, base).await?;
            let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let reference = format!("leftover/{}", reference_part(&name));
            let kept = left.keep(&reference).await?;
            left.keep_nested(&reference).await?;
            recovered = kept.commit.clone();
            left.delete().await?;
        } else if let Some(record) = find_record(repo, &dir)? {
            removal::remove(record).await?;
        }
        write(&note_beside(&dir), base.as_str().as_bytes())?;
        repo.git().run(args!["worktree", "add", "--detach", dir, base.as_str()]).await?;
        let record = find_record(repo, &dir)?;
        if let Some(record) = &record {
            write(&record.join(BASE_NOTE), base.as_str().as_bytes())?;
        }
        Ok(Worktree { repo: repo.clone(), dir, record, base: base.clone(), recovered })
    }

    /// The trees that earlier runs left behind under a directory: those that git knows of, and
    /// every `<under>/*/tree` that it has forgotten. Keep each, then remove it.
    pub async fn leftovers(repo: &Repository, under: &Path) -> Result<Vec<Worktree>> {
        let under = match under.canonicalize() {
            Ok(under) => under,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(Error::File { path: under.into(), source }),
        };
        let file = |source| Error::File { path: under.clone(), source };
        let mut places = BTreeSet::new();
        for entry in std::fs::read_dir(&under).map_err(file)? {
            let entry = entry.map_err(file)?;
            let known = entry.metadata().map_err(file)?;
            if known.is_dir() {
                // A tree that cannot be seen would pass for none.
                inventory::allow(&entry.path(), &known, inventory::OWNER_ALL)?;
                places.insert(entry.path().join(TREE_NAME));
            }
        }
        places.extend(records(repo)?.into_iter().map(|(dir, _)| dir));
        places.retain(|dir| {
            let is_dir = dir.symlink_metadata().is_ok_and(|found| found.is_dir());
            dir.starts_with(&under) && is_dir
        });
        let head = repo.resolve("HEAD").await?;
        let mut left = Vec::new();
        for dir in places {
            left.push(Worktree::adopt(repo, &dir, &head).await?);
        }
        Ok(left)
    }

    async fn adopt(repo: &Repository, dir: &Path, otherwise: &Commit) -> Result<Worktree> {
        let record = find_record(repo, dir)?;
        let notes = record.iter().map(|record| record.join(BASE_NOTE)).chain([note_beside(dir)]);
        let mut base = otherwise.clone();
        for note in notes {
            let Ok(text) = std::fs::read_to_string(note) else { continue };
            if let Ok(noted) = text.trim().parse::<Commit>()
                && repo.is_ancestor(&noted, &noted).await.is_ok()
            {
                base = noted;
                break;
            }
        }
        Ok(Worktree { repo: repo.clone(), dir: dir.into(), record, base, recovered: None })
    }

    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    #[must_use]
    pub fn base(&self) -> &Commit {
        &self.base
    }

    /// What was found at this place when it was prepared, and is now kept.
    #[must_use]
    pub fn recovered(&self) -> Option<&Commit> {
        self.recovered.as_ref()
    }

    /// What the agent left in the tree, committed by it or not, as one commit on the base.
    /// Nothing if the tree is as its base. Ignored files are not part of a change.
    ///
    /// A change with a secret in it is refused before there is a commit. What is kept may hold
    /// it: that never leaves this machine, and losing the work would not take the secret back.
    pub async fn change(&self, message: &str, trailers: &[(&str, &str)]) -> Result<Option<Commit>> {
        let found = inventory::take(self.dir.clone()).await?;
        if let Some(path) = snapshot::touched_submodules(self, &found).await?.into_iter().next() {
            return Err(Error::Submodule { path });
        }
        self.refuse_too_much(&found).await?;
        let tree = snapshot::tree(self, &found, Ignored::LeftOut, Attributes::Obeyed).await;
        let tree = tree.map_err(|error| match (found.refused.first(), error) {
            (Some(path), _) => Error::RefusedName { path: path.clone() },
            (None, Error::Git(git::Error::Failed { stderr, .. })) if !tells_of_disk(&stderr) => {
                Error::NotTaken { said: stderr }
            }
            (None, error) => error,
        })?;
        if tree == self.repo.tree_of(&self.base).await? {
            return Ok(None);
        }
        let git = self.repo.git();
        let found = secrets::scan(git, &self.base, &tree, self.repo.secret_rules()).await?;
        if !found.0.is_empty() {
            return Err(Error::Secrets { found });
        }
        Ok(Some(commit::write(git, &tree, &[&self.base], message, trailers).await?))
    }

    /// Before git reads it all: a runaway program may have filled the disk.
    async fn refuse_too_much(&self, found: &Inventory) -> Result<()> {
        if found.bytes <= KEPT_BYTES_MAX && found.largest <= FILE_BYTES_MAX {
            return Ok(());
        }
        let weight = snapshot::weight_without_ignored(self, found).await?;
        if let Some((path, bytes)) = weight.largest
            && bytes > FILE_BYTES_MAX
        {
            return Err(Error::FileTooLarge { path, bytes, limit: FILE_BYTES_MAX });
        }
        self.refuse_too_heavy(weight.bytes)
    }

    fn refuse_too_heavy(&self, bytes: u64) -> Result<()> {
        if bytes <= KEPT_BYTES_MAX {
            return Ok(());
        }
        Err(Error::TooLarge { dir: self.dir.clone(), bytes, limit: KEPT_BYTES_MAX })
    }

    /// Keeps the whole tree, untracked and ignored files too, under a hidden reference. What has a
    /// name that git does not take gets another one before.
    ///
    /// Keeping again under the same name loses nothing: the new commit has the old one as a
    /// second parent.
    pub async fn keep(&self, reference: &str) -> Result<Kept> {
        let name = format!("{KEPT_PREFIX}{reference}");
        let valid = self.repo.git().run_accepting(&[0, 1], args!["check-ref-format", name]).await?;
        if valid.code != 0 {
            return Err(Error::Reference { reference: reference.into() });
        }
        let mut found = inventory::take(self.dir.clone()).await?;
        if !found.refused.is_empty() {
            inventory::rename(self.dir.clone(), found.refused).await?;
            found = inventory::take(self.dir.clone()).await?;
        }
        let ignored = if found.bytes <= KEPT_BYTES_MAX { Ignored::Taken } else { Ignored::LeftOut };
        if ignored == Ignored::LeftOut {
            let weight = snapshot::weight_without_ignored(self, &found).await?;
            self.refuse_too_heavy(weight.bytes)?;
        }
        let tree = match snapshot::tree(self, &found, ignored, Attributes::Obeyed).await {
            Ok(tree) => tree,
            // Attributes may ask of git what cannot be done with the files that there are.
            Err(_) => snapshot::tree(self, &found, ignored, Attributes::Overlooked).await?,
        };
        let commit = if tree == self.repo.tree_of(&self.base).await? {
            None
        } else {
            Some(self.point(&name, &tree, ignored).await?)
        };
        Ok(Kept { dir: self.dir.clone(), commit, ignored })
    }

    async fn point(&self, name: &str, tree: &str, ignored: Ignored) -> Result<Commit> {
        let earlier = self.repo.reference(name).await?;
        if let Some(earlier) = &earlier
            && self.repo.tree_of(earlier).await? == tree
        {
            return Ok(earlier.clone());
        }
        let parents: Vec<&Commit> =
            [Some(&self.base), earlier.as_ref()].into_iter().flatten().collect();
        let mut message = format!("Kept from {}", self.dir.display());
        if ignored == Ignored::LeftOut {
            message.push_str(WITHOUT_IGNORED);
        }
        let commit = commit::write(self.repo.git(), tree, &parents, &message, &[]).await?;
        let none = "0".repeat(commit.as_str().len());
        let expected = earlier.as_ref().map_or(none.as_str(), Commit::as_str);
        self.repo.git().run(args!["update-ref", name, commit.as_str(), expected]).await?;
        Ok(commit)
    }

    /// Removes the tree. The proof shows that nothing is lost with it.
    pub async fn remove(self, kept: Kept) -> Result<()> {
        if kept.dir != self.dir {
            return Err(Error::OtherTree { kept: kept.dir, dir: self.dir });
        }
        self.discard().await
    }

    /// Removes a tree that nobody worked in, such as that of a check.
    pub(crate) async fn discard(self) -> Result<()> {
        let _one_at_a_time = self.repo.worktree_lock().lock().await;
        self.delete().await
    }

    /// Git is not asked to do it: `git worktree remove` believes what it finds in the tree.
    async fn delete(&self) -> Result<()> {
        removal::remove(self.dir.clone()).await?;
        removal::remove(note_beside(&self.dir)).await?;
        match &self.record {
            Some(record) => removal::remove(record.clone()).await,
            None => Ok(()),
        }
    }
}

/// All worktrees that git knows of, each with its record.
fn records(repo: &Repository) -> Result<Vec<(PathBuf, PathBuf)>> {
    let all = repo.git_dir().join("worktrees");
    let entries = match std::fs::read_dir(&all) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(Error::File { path: all, source }),
    };
    let mut found = Vec::new();
    for entry in entries {
        let record = entry.map_err(|source| Error::File { path: all.clone(), source })?.path();
        if let Ok(text) = std::fs::read_to_string(record.join("gitdir"))
            && let Some(dir) = text.trim_end_matches('\n').strip_suffix("/.git")
        {
            found.push((PathBuf::from(dir), record));
        }
    }
    found.sort();
    Ok(found)
}

fn find_record(repo: &Repository, dir: &Path) -> Result<Option<PathBuf>> {
    let known = records(repo)?;
    Ok(known.into_iter().find(|(path, _)| path == dir).map(|(_, record)| record))
}

/// Removes git's records of trees of ours that are no longer where they were.
pub async fn prune_records(repo: &Repository) -> Result<()> {
    let _one_at_a_time = repo.worktree_lock().lock().await;
    for (dir, record) in records(repo)? {
        let is_gone =
            dir.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        if is_gone && record.join(BASE_NOTE).exists() {
            removal::remove(record).await?;
        }
    }
    Ok(())
}

fn note_beside(dir: &Path) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(BASE_NOTE_SUFFIX);
    dir.with_file_name(name)
}

/// Whether git failed for want of room, which is not the fault of what it was given.
fn tells_of_disk(said: &str) -> bool {
    ["No space left", "Disk quota exceeded", "Input/output error"]
        .iter()
        .any(|why| said.contains(why))
}

/// The directory with a parent that exists and has no symbolic links in it.
fn settled(dir: &Path) -> Result<PathBuf> {
    let place = || Error::Place { dir: dir.into() };
    let (parent, name) = (dir.parent().ok_or_else(place)?, dir.file_name().ok_or_else(place)?);
    let file = |source| Error::File { path: parent.into(), source };
    std::fs::create_dir_all(parent).map_err(file)?;
    Ok(parent.canonicalize().map_err(file)?.join(name))
}

/// A directory name as a part of a reference, and different for every leftover.
fn reference_part(name: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    format!("{}-{now}", plain_name(name))
}

/// A name with nothing in it that a reference could not have, and not too long for a file.
fn plain_name(name: &str) -> String {
    const CHARS_MAX: usize = 100;
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' };
    name.chars().take(CHARS_MAX).map(plain).collect()
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).map_err(|source| Error::File { path: path.into(), source })
}

/// Runs a walk over many files where it does not hold up anything else.
pub(crate) async fn aside<T: Send + 'static>(walk: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(walk).await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
