//! Work that was kept under hidden references, and how a person gets it back.

use std::path::Path;

use kapelle_core::Commit;

use crate::git::args;
use crate::repository::{Error, Repository, Result};
use crate::scratch::Index;

/// A list beyond this is no list for people; the newest come first.
const KEPT_LISTED_MAX: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A whole tree, as it was before it was removed.
    Tree,
    /// Commits that an agent made in its own git directory.
    Commits,
    /// The change of an attempt that said it was done.
    Change,
}

impl Kind {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Tree => "tree",
            Kind::Commits => "commits",
            Kind::Change => "change",
        }
    }
}

/// How the message of a kept tree ends if ignored files were too much to keep.
pub(crate) const WITHOUT_IGNORED: &str = ", without ignored files";

const PLACES: [(&str, Kind); 3] = [
    ("refs/kapelle/kept/", Kind::Tree),
    ("refs/kapelle/kept-git/", Kind::Commits),
    ("refs/kapelle/changes/", Kind::Change),
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptWork {
    pub kind: Kind,
    /// Mission, task and fence; or where it was found.
    pub name: String,
    pub commit: Commit,
    /// When, as git says it.
    pub at: String,
    /// Ignored files were too much to keep.
    pub is_partial: bool,
}

impl KeptWork {
    /// Its full name, which nothing else has.
    #[must_use]
    pub fn reference(&self) -> String {
        let place = PLACES.iter().find(|(_, kind)| *kind == self.kind);
        format!("{}{}", place.map_or("", |(place, _)| place), self.name)
    }
}

/// Everything that was kept, the newest first.
pub async fn list(repo: &Repository) -> Result<Vec<KeptWork>> {
    let mut asked = args!["for-each-ref", "--sort=-committerdate"];
    asked.push(format!("--count={KEPT_LISTED_MAX}").into());
    let format = "%(refname)%00%(objectname)%00%(committerdate:iso)%00%(contents:subject)";
    asked.push(format!("--format={format}").into());
    asked.extend(PLACES.iter().map(|(place, _)| std::ffi::OsString::from(place)));
    let listed = repo.git().text(asked).await?;
    Ok(listed.lines().filter_map(parse).collect())
}

/// The name of what is kept under a reference.
#[must_use]
pub fn name_of(reference: &str) -> Option<&str> {
    parted(reference).map(|(name, _)| name)
}

fn parted(reference: &str) -> Option<(&str, Kind)> {
    PLACES.iter().find_map(|(place, kind)| Some((reference.strip_prefix(place)?, *kind)))
}

fn parse(line: &str) -> Option<KeptWork> {
    let mut fields = line.split('\0');
    let (reference, commit, at) = (fields.next()?, fields.next()?, fields.next()?);
    let (name, kind) = parted(reference)?;
    let is_partial = kind == Kind::Tree && fields.next()?.ends_with(WITHOUT_IGNORED);
    let commit = commit.parse().ok()?;
    Some(KeptWork { kind, name: name.into(), commit, at: at.into(), is_partial })
}

/// What differs from the commit that the work began from.
pub async fn changed(repo: &Repository, work: &KeptWork) -> Result<Vec<String>> {
    let parent = format!("{}^", work.commit);
    match repo.resolve(&parent).await {
        Ok(base) => repo.changed_paths(&base, &work.commit).await,
        Err(Error::UnknownRevision { .. }) => Ok(Vec::new()),
        Err(other) => Err(other),
    }
}

/// Writes all files of it into a new directory. Nothing that exists is overwritten.
pub async fn write_files(repo: &Repository, work: &KeptWork, dir: &Path) -> Result<()> {
    let file = |source| Error::File { path: dir.into(), source };
    std::fs::create_dir(dir).map_err(file)?;
    let dir = dir.canonicalize().map_err(file)?;
    let index = Index::new(repo)?;
    let git = index.git(repo, &dir);
    git.run(args!["read-tree", work.commit.as_str()]).await?;
    git.run(args!["checkout-index", "--all", "--quiet"]).await?;
    Ok(())
}
