//! A tree of files as a tree of git.
//!
//! Works with the shared git directory and an index of its own, outside of the tree, so that
//! nothing an agent may have prepared in the tree, or in git's record of it, has an effect.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use kapelle_core::Commit;

use super::inventory::Inventory;
use super::{Result, Worktree};
use crate::git::{Git, args};
use crate::repository::zero_separated;
use crate::scratch::Index;

/// What becomes of the files that the project's ignore rules name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ignored {
    Taken,
    LeftOut,
}

/// What becomes of the files' attributes, by which git may write other bytes than there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attributes {
    Obeyed,
    /// As far as git can: versions before 2.41 obey them all the same.
    Overlooked,
}

impl Attributes {
    fn for_git(self, git: Git, base: &Commit) -> Git {
        /// The tree without files, under both kinds of names.
        const EMPTY: [&str; 2] = [
            "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
            "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
        ];
        match self {
            Attributes::Obeyed => git,
            Attributes::Overlooked => {
                git.set("GIT_ATTR_SOURCE", EMPTY[usize::from(base.as_str().len() == 64)])
            }
        }
    }
}

/// Writes everything in the tree to git and gives the name of the git tree.
pub(super) async fn tree(
    worktree: &Worktree,
    found: &Inventory,
    ignored: Ignored,
    attributes: Attributes,
) -> Result<String> {
    let index = Index::new(&worktree.repo)?;
    let git = attributes.for_git(index.git(&worktree.repo, &worktree.dir), &worktree.base);
    git.run(args!["read-tree", worktree.base.as_str()]).await?;
    let mut foreign = found.nested.clone();
    foreign.extend(touched_submodules(worktree, found).await?.into_iter().map(PathBuf::from));
    foreign.sort();
    foreign.dedup();
    add(&git, Path::new(""), &foreign, ignored).await?;
    // Each foreign directory is added as a top of its own, where git does not mind its `.git`,
    // and then put in its place. Parents come first.
    for place in &foreign {
        let own = Index::new(&worktree.repo)?;
        let inner = own.git(&worktree.repo, &worktree.dir.join(place));
        let inner = attributes.for_git(inner, &worktree.base);
        add(&inner, place, &foreign, ignored).await?;
        let subtree = inner.text(args!["write-tree"]).await?;
        git.run(args![
            "rm",
            "-r",
            "-f",
            "-q",
            "--cached",
            "--ignore-unmatch",
            "--",
            literal("", place)
        ])
        .await?;
        let mut prefix = OsString::from("--prefix=");
        prefix.push(place);
        prefix.push("/");
        git.run(args!["read-tree", prefix, subtree]).await?;
    }
    Ok(git.text(args!["write-tree"]).await?)
}

/// Adds everything below `top` but the foreign directories in it.
async fn add(git: &Git, top: &Path, foreign: &[PathBuf], ignored: Ignored) -> Result<()> {
    let mut asked = args!["add", "--all"];
    if ignored == Ignored::Taken {
        asked.push("--force".into());
    }
    asked.extend(args!["--", "."]);
    for place in foreign {
        if let Ok(inner) = place.strip_prefix(top)
            && !inner.as_os_str().is_empty()
        {
            asked.push(literal("exclude,", inner));
        }
    }
    git.run(asked).await?;
    Ok(())
}

/// A path that means itself, whatever wildcards are in it.
fn literal(magic: &str, path: &Path) -> OsString {
    let mut pattern = OsString::from(format!(":({magic}literal)"));
    pattern.push(path);
    pattern
}

/// Submodules of the base whose directory is no longer empty. Git would look away from them.
pub(super) async fn touched_submodules(
    worktree: &Worktree,
    found: &Inventory,
) -> Result<Vec<String>> {
    let asked = args!["ls-tree", "-r", "-z", worktree.base.as_str()];
    let listed = worktree.repo.git().run(asked).await?;
    let mut touched = Vec::new();
    for entry in zero_separated(&listed.stdout) {
        let Some(("160000", rest)) = entry.split_once(' ') else { continue };
        let Some((_, path)) = rest.split_once('\t') else { continue };
        let dir = worktree.dir.join(path);
        let filled = std::fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some());
        if filled || found.nested.iter().any(|nested| nested == Path::new(path)) {
            touched.push(path.to_owned());
        }
    }
    Ok(touched)
}

/// How much a tree has beyond its base, ignored files aside.
#[derive(Debug, Default)]
pub(super) struct Weight {
    pub bytes: u64,
    /// The largest file, relative to the top.
    pub largest: Option<(PathBuf, u64)>,
}

impl Weight {
    fn add(&mut self, path: PathBuf, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.largest.as_ref().is_none_or(|(_, largest)| bytes > *largest) {
            self.largest = Some((path, bytes));
        }
    }
}

/// Weighs the files that are new or have another size than in the base. No file is read: that is
/// what the weight is asked for. A changed file of the same size weighs nothing; what can be
/// overlooked so is no more than what the base holds.
pub(super) async fn weight_without_ignored(
    worktree: &Worktree,
    found: &Inventory,
) -> Result<Weight> {
    let mut weight = Weight::default();
    let size = |path: &Path| {
        worktree.dir.join(path).symlink_metadata().ok().filter(|known| !known.is_dir())
    };
    for top in std::iter::once(Path::new("")).chain(found.nested.iter().map(PathBuf::as_path)) {
        let index = Index::new(&worktree.repo)?;
        let git = index.git(&worktree.repo, &worktree.dir.join(top));
        if top.as_os_str().is_empty() {
            git.run(args!["read-tree", worktree.base.as_str()]).await?;
        }
        let listed = git.run(args!["ls-files", "-z", "--others", "--exclude-standard"]).await?;
        for path in listed.stdout.split(|byte| *byte == 0).filter(|path| !path.is_empty()) {
            let path = top.join(OsStr::from_bytes(path));
            if let Some(known) = size(&path) {
                weight.add(path, known.len());
            }
        }
    }
    let asked = args!["ls-tree", "-r", "-l", "-z", worktree.base.as_str()];
    let listed = worktree.repo.git().run(asked).await?;
    for entry in listed.stdout.split(|byte| *byte == 0) {
        // Mode, type, name of the object and size, a tab, and the path.
        let Some(tab) = entry.iter().position(|byte| *byte == b'\t') else { continue };
        let fields = String::from_utf8_lossy(&entry[..tab]);
        let before = fields.split_whitespace().last().and_then(|size| size.parse::<u64>().ok());
        let path = Path::new(OsStr::from_bytes(&entry[tab + 1..]));
        if let Some(known) = size(path)
            && before != Some(known.len())
        {
            weight.add(path.into(), known.len());
        }
    }
    Ok(weight)
}
