//! The condition of a person's repository: what stands in the way, and what is merely good to know.

use std::fmt;

use crate::git::{Git, args};
use crate::repository::{Repository, Result};

/// Something about the repository that a person should know before agents work on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// Changed files in the person's own checkout. Agents do not see them.
    Dirty { files: usize },
    /// Part of the history is missing.
    Shallow,
    /// Part of the objects is missing, to be fetched when they are needed.
    Partial,
    /// Directories that are repositories of their own.
    Submodules { paths: Vec<String> },
    /// A merge, rebase or the like was begun and not ended.
    Unfinished { operation: &'static str },
    /// Files whose content is stored elsewhere.
    LargeFiles,
}

impl Note {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Note::Dirty { .. } => {
                "commit them first if agents should see them; they are not touched"
            }
            Note::Shallow => {
                "fetch the rest with `git fetch --unshallow`; without it, changes that began before the cut cannot be merged"
            }
            Note::Partial => {
                "clone again without a filter; our git fetches nothing while agents work"
            }
            Note::Submodules { .. } => {
                "agents see them empty, and a change inside one is refused; work on each in its own repository"
            }
            Note::Unfinished { .. } => {
                "finish or abort it; until then your branch cannot take a delivery"
            }
            Note::LargeFiles => {
                "agents see pointers instead of the files; delivery into your checkout is left to your own git"
            }
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Dirty { files: 1 } => f.write_str("1 file is changed and not committed"),
            Note::Dirty { files } => write!(f, "{files} files are changed and not committed"),
            Note::Shallow => f.write_str("this is a shallow clone"),
            Note::Partial => f.write_str("this is a partial clone"),
            Note::Submodules { paths } => write!(f, "there are submodules: {}", paths.join(", ")),
            Note::Unfinished { operation } => write!(f, "a {operation} is not finished"),
            Note::LargeFiles => f.write_str("files are kept by git-lfs"),
        }
    }
}

/// Marks of operations that were begun, in the git directory of the checkout.
const OPERATIONS: [(&str, &str); 5] = [
    ("MERGE_HEAD", "merge"),
    ("rebase-merge", "rebase"),
    ("rebase-apply", "rebase"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
];

/// Submodules that are named one by one.
const SUBMODULES_NAMED_MAX: usize = 20;

impl Repository {
    /// Looks without touching anything: not even the index is refreshed.
    pub async fn condition(&self) -> Result<Vec<Note>> {
        // Without the repository's filters: a file that only they make equal counts as changed.
        let here = self.git_here().set("GIT_OPTIONAL_LOCKS", "0");
        let mut notes = Vec::new();
        let status =
            args!["status", "--porcelain", "-z", "--no-renames", "--ignore-submodules=all"];
        let status = here.run(status).await?;
        match status.stdout.iter().filter(|byte| **byte == 0).count() {
            0 => {}
            files => notes.push(Note::Dirty { files }),
        }
        if here.text(args!["rev-parse", "--is-shallow-repository"]).await? == "true" {
            notes.push(Note::Shallow);
        }
        let config =
            args!["config", "--get-regexp", r"^(extensions\.partialclone|remote\..*\.promisor)$"];
        if here.run_accepting(&[0, 1], config).await?.code == 0 {
            notes.push(Note::Partial);
        }
        let paths = submodules(&here).await?;
        if !paths.is_empty() {
            notes.push(Note::Submodules { paths });
        }
        let own = here.text(args!["rev-parse", "--absolute-git-dir"]).await?;
        let own = std::path::PathBuf::from(own);
        let begun = OPERATIONS.iter().find(|(mark, _)| own.join(mark).exists());
        notes.extend(begun.map(|(_, operation)| Note::Unfinished { operation }));
        let filters = args!["config", "--get-regexp", r"^filter\.lfs\."];
        let attributes =
            std::fs::read_to_string(self.root().join(".gitattributes")).unwrap_or_default();
        let lfs = here.run_accepting(&[0, 1], filters).await?.code == 0;
        if lfs || attributes.contains("filter=lfs") {
            notes.push(Note::LargeFiles);
        }
        Ok(notes)
    }
}

async fn submodules(git: &Git) -> Result<Vec<String>> {
    let listed = git.run(args!["ls-tree", "-r", "-z", "HEAD"]).await?;
    let entries = listed.stdout.split(|byte| *byte == 0);
    let links = entries.filter(|entry| entry.starts_with(b"160000 "));
    let paths = links.filter_map(|entry| {
        let tab = entry.iter().position(|byte| *byte == b'\t')?;
        Some(String::from_utf8_lossy(&entry[tab + 1..]).into_owned())
    });
    Ok(paths.take(SUBMODULES_NAMED_MAX).collect())
}
