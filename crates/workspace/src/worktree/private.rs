//! The repository that an agent sees: its own, next to the user's.
//!
//! Inside the sandbox the worktree's `.git` leads to a private git directory that reads the
//! objects of the user's repository and writes its own. An agent may commit, branch, stash and
//! configure as it likes; references, settings (with their remotes and credentials), hooks and
//! git's record of the worktree are not even visible. New objects stay in the private directory,
//! so the user's `git gc` never meets a commit that it cannot find.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{Error, KEPT_BYTES_MAX, Result, Worktree, inventory, removal, write};
use crate::commit;
use crate::git::{Git, IDENTITY_EMAIL, IDENTITY_NAME, args};
use crate::sandbox::{Limits, Network, Overlay, StandIn, Walls};
use crate::scratch::Index;

/// Apart from kept trees: git has no reference below another one.
const KEPT_COMMITS_PREFIX: &str = "refs/kapelle/kept-git/";

/// An agent has a handful of branches; a program that makes more is not keeping work.
const BRANCHES_KEPT_MAX: usize = 64;

/// Of the commits that an agent turned its back on, the last ones are kept. One that amends without
/// end keeps its machine busy enough.
const LOST_KEPT_MAX: usize = 16;
const LOST_LOOKED_MAX: usize = 200;

impl Worktree {
    /// The walls around an agent in this tree. `private` becomes its git directory; it must lie
    /// outside of the tree, and whatever is there is replaced.
    pub async fn walls(&self, private: &Path) -> Result<Walls> {
        let private = super::settled(private)?;
        removal::remove(private.clone()).await?;
        let objects = self.repo.git_dir().join("objects");
        self.write_private(&private).await?;
        let gitfile = private.join("gitfile");
        let mut line = OsString::from("gitdir: ");
        line.push(&private);
        line.push("\n");
        write(&gitfile, line.as_encoded_bytes())?;
        let mut readable = alternates(&objects);
        readable.push(objects);
        let stand_in = StandIn {
            scratch: private.join("scratch"),
            env: BTreeMap::from([
                ("GIT_DIR".into(), private.clone().into()),
                ("GIT_WORK_TREE".into(), self.dir.clone().into()),
            ]),
        };
        Ok(Walls {
            writable: vec![self.dir.clone(), private],
            readable,
            hidden: Vec::new(),
            overlays: vec![Overlay { source: gitfile, over: self.dir.join(".git") }],
            env: BTreeMap::new(),
            network: Network::None,
            limits: Limits::default(),
            stand_in,
        })
    }

    /// Keeps the commits that an agent made in its private git directory and in repositories of its
    /// own inside of the tree, on branches, on none, in the stash, and those that it turned its back
    /// on, under hidden references of their own, and gives their names. To be called when the agent
    /// has ended, before the directory and the tree are removed.
    pub async fn keep_commits(&self, private: &Path, reference: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        // First: what is in the tree may be a clone of it.
        if inventory::is_git_dir(private) {
            names.extend(self.keep_git_dir(private, reference).await?);
            names.extend(self.keep_below(private, vec!["modules".into()], reference).await?);
        }
        names.extend(self.keep_nested(reference).await?);
        Ok(names)
    }

    /// The same for one git directory. If its history cannot be fetched, for whatever reason, the
    /// directory itself is kept, as files: what our git cannot read must not pass for nothing.
    pub(super) async fn keep_git_dir(
        &self,
        git_dir: &Path,
        reference: &str,
    ) -> Result<Vec<String>> {
        let bytes = inventory::leave_files_only(git_dir.into()).await?;
        if bytes > KEPT_BYTES_MAX {
            return Err(Error::TooLarge { dir: git_dir.into(), bytes, limit: KEPT_BYTES_MAX });
        }
        match self.keep_history(git_dir, reference).await {
            Ok(names) => Ok(names),
            Err(_unreadable) => Ok(vec![self.keep_files(git_dir, reference).await?]),
        }
    }

    async fn keep_files(&self, git_dir: &Path, reference: &str) -> Result<String> {
        let index = Index::new(&self.repo)?;
        let git = index.git(&self.repo, git_dir);
        git.run(args!["add", "--all", "--force", "--", "."]).await?;
        let tree = git.text(args!["write-tree"]).await?;
        let message = format!("Kept from {}", git_dir.display());
        let git = commit::dated(self.repo.git(), &self.base).await?;
        let commit = commit::write(&git, &tree, &[], &message, &[]).await?;
        let name = format!("{KEPT_COMMITS_PREFIX}{reference}/files");
        let name = self.repo.name_for(name, commit.as_str()).await?;
        self.repo.git().run(args!["update-ref", name, commit.as_str()]).await?;
        Ok(name)
    }

    async fn keep_history(&self, git_dir: &Path, reference: &str) -> Result<Vec<String>> {
        self.disarm(git_dir).await?;
        let theirs = self.repo.git().on(git_dir);
        let prefix = format!("{KEPT_COMMITS_PREFIX}{reference}/");
        let mut names = Vec::new();
        let mut refspecs = Vec::new();
        for (commit, name) in tips(&theirs, self.repo.git()).await? {
            // Something that is not there would keep git from fetching the rest.
            if self.repo.git().holds(&commit).await? || !theirs.knows(&commit).await? {
                continue;
            }
            if names.len() == BRANCHES_KEPT_MAX {
                return Err(Error::TooManyBranches {
                    dir: git_dir.into(),
                    limit: BRANCHES_KEPT_MAX,
                });
            }
            let to = format!("{prefix}{}", name.trim_start_matches("refs/"));
            let to = self.repo.name_for(to, &commit).await?;
            refspecs.push(format!("{commit}:{to}").into());
            names.push(to);
        }
        self.fetch(git_dir, refspecs).await?;
        names.extend(self.keep_lost(git_dir, &theirs, &prefix).await?);
        // Git leaves out what is built on the end of a shallow clone, and says nothing of it.
        for name in &names {
            if self.repo.reference(name).await?.is_none() {
                return Err(Error::NotFetched { dir: git_dir.into(), name: name.clone() });
            }
        }
        Ok(names)
    }

    /// Keeps the commits that no branch names: those before an amendment or a reset, and those in
    /// worktrees that the agent made itself.
    async fn keep_lost(&self, private: &Path, theirs: &Git, prefix: &str) -> Result<Vec<String>> {
        let asked = args!["rev-list", "--ignore-missing", "--date-order", "--reflog", "--all"];
        let looked = args!["-n", LOST_LOOKED_MAX.to_string(), "--not", "--branches"];
        let asked = [asked, looked].concat();
        let walked = theirs.run_accepting(&[0, 128], asked).await?;
        let mut names = Vec::new();
        // The newest first: those that it is built on come along with it.
        for commit in String::from_utf8_lossy(&walked.stdout).lines() {
            if names.len() == LOST_KEPT_MAX {
                break;
            }
            if !self.repo.git().holds(commit).await? && theirs.knows(commit).await? {
                let to = format!("{prefix}lost/{}", names.len() + 1);
                let to = self.repo.name_for(to, commit).await?;
                self.fetch(private, vec![format!("{commit}:{to}").into()]).await?;
                names.push(to);
            }
        }
        Ok(names)
    }

    async fn fetch(&self, private: &Path, refspecs: Vec<OsString>) -> Result<()> {
        if !refspecs.is_empty() {
            let allowed = args!["-c", "protocol.file.allow=always", "-c", "fetch.fsckObjects=true"];
            let fetch = args!["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", private];
            self.repo.git().run([allowed, fetch, refspecs].concat()).await?;
        }
        Ok(())
    }

    /// Makes a git directory that an agent had one that can be asked. Its settings may name programs,
    /// `commondir` would lead to other settings, and `alternates` to any repository of the person.
    async fn disarm(&self, private: &Path) -> Result<()> {
        self.refuse_other_history(private)?;
        for name in ["config", "commondir", "objects/info/alternates"] {
            set_aside(&private.join(name)).await?;
        }
        let head = private.join("HEAD");
        if head.symlink_metadata().is_err() {
            write(&head, format!("{}\n", self.base).as_bytes())?;
        }
        self.write_settings(private)
    }

    /// What decides how git reads the private directory.
    fn write_settings(&self, private: &Path) -> Result<()> {
        let info = private.join("objects/info");
        std::fs::create_dir_all(&info).map_err(|source| Error::File { path: info, source })?;
        write(&private.join("config"), config(self.base.as_str().len()).as_bytes())?;
        let mut line = self.repo.git_dir().join("objects").into_os_string();
        line.push("\n");
        write(&private.join("objects/info/alternates"), line.as_encoded_bytes())?;
        // Where the history of a shallow clone ends.
        match std::fs::read(self.repo.git_dir().join("shallow")) {
            Ok(ends) => write(&private.join("shallow"), &ends),
            Err(_not_shallow) => Ok(()),
        }
    }

    async fn write_private(&self, private: &Path) -> Result<()> {
        for part in ["refs/heads", "info"] {
            let path = private.join(part);
            std::fs::create_dir_all(&path).map_err(|source| Error::File { path, source })?;
        }
        write(&private.join("HEAD"), format!("{}\n", self.base).as_bytes())?;
        self.write_settings(private)?;
        let refs =
            args!["for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/tags"];
        write(&private.join("packed-refs"), &self.repo.git().run(refs).await?.stdout)?;
        // Without an index, everything would look deleted to the agent's first `git status`.
        if let Some(record) = &self.record {
            let (from, to) = (record.join("index"), private.join("index"));
            std::fs::copy(&from, to).map_err(|source| Error::File { path: from, source })?;
        }
        Ok(())
    }
}

/// Puts a file out of the way of git. If the directory is kept as files, it is part of it.
async fn set_aside(path: &Path) -> Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".theirs");
    let aside = PathBuf::from(aside);
    if path.symlink_metadata().is_ok() && aside.symlink_metadata().is_err() {
        return std::fs::rename(path, &aside)
            .map_err(|source| Error::File { path: path.into(), source });
    }
    removal::remove(path.into()).await
}

/// The commits that have a name in an agent's git directory and not the same in the person's
/// repository, each with it.
async fn tips(theirs: &Git, ours: &Git) -> Result<Vec<(String, String)>> {
    let asked = args!["for-each-ref", "--format=%(objectname) %(refname)"];
    let asked = [asked, args!["refs/heads", "refs/tags", "refs/stash"]].concat();
    let (named, known) = (theirs.text(asked.clone()).await?, ours.text(asked).await?);
    let known: BTreeSet<&str> = known.lines().collect();
    let named: Vec<&str> = named.lines().filter(|line| !known.contains(line)).collect();
    let named = named.join("\n");
    let head = args!["rev-parse", "--verify", "--quiet", "HEAD^{commit}"];
    let head = theirs.run_accepting(&[0, 1], head).await?;
    let all = format!("{named}\n{} HEAD", String::from_utf8_lossy(&head.stdout).trim());
    let parted = all.lines().filter_map(|line| line.split_once(' '));
    let found = parted.filter(|(commit, _)| !commit.is_empty());
    Ok(found.map(|(commit, name)| (commit.to_owned(), name.to_owned())).collect())
}

fn config(hash_digits: usize) -> String {
    let (version, extension) = match hash_digits {
        64 => (1, "[extensions]\n\tobjectFormat = sha256\n"),
        _ => (0, ""),
    };
    format!(
        "[core]\n\trepositoryFormatVersion = {version}\n\tbare = false\n\tlogAllRefUpdates = true\n\
         {extension}[user]\n\tname = {IDENTITY_NAME}\n\temail = {IDENTITY_EMAIL}\n\
         [uploadpack]\n\tallowAnySHA1InWant = true\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[commit]\n\tgpgSign = false\n"
    )
}

/// The further places where the user's repository has objects (clones made with `--reference`).
/// Places that these refer to in turn are not followed.
fn alternates(objects: &Path) -> Vec<PathBuf> {
    let listed = std::fs::read_to_string(objects.join("info/alternates")).unwrap_or_default();
    let places = listed.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    places.filter_map(|place| objects.join(place).canonicalize().ok()).collect()
}

/// Removes a private git directory that is no longer needed.
pub async fn remove_private(private: &Path) -> Result<()> {
    removal::remove(private.into()).await
}
