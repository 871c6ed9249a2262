//! Repositories that an agent made inside of its tree, and submodules in them or in its own.
//!
//! Their files are part of the tree. Their histories are kept as that of the agent's own git
//! directory is; they are believed no more than that.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::{Error, Result, Worktree, aside, inventory, plain_name};

/// An agent makes a repository or two; whoever makes more is not keeping work in them.
const HISTORIES_KEPT_MAX: usize = 64;

/// Submodules of submodules are as deep as this at most.
const DEPTH_MAX: usize = 32;

/// Settings of a repository are a page.
const SETTINGS_BYTES_MAX: u64 = 64 << 10;

impl Worktree {
    /// Keeps the histories of the repositories in the tree, and gives the names under which they are.
    pub(super) async fn keep_nested(&self, reference: &str) -> Result<Vec<String>> {
        let nested = inventory::take(self.dir.clone()).await?.nested;
        let places = nested.into_iter().map(|place| place.join(".git")).collect();
        self.keep_below(&self.dir, places, reference).await
    }

    /// The same for the git directories at these places and the submodules in them.
    pub(super) async fn keep_below(
        &self,
        top: &Path,
        places: Vec<PathBuf>,
        reference: &str,
    ) -> Result<Vec<String>> {
        let above = top.to_owned();
        let git_dirs = aside(move || git_dirs(&above, places)).await?;
        let mut names = Vec::new();
        for place in git_dirs {
            let git_dir = top.join(&place);
            let place = place.to_string_lossy();
            let place = plain_name(place.strip_suffix("/.git").unwrap_or(&place));
            names.extend(self.keep_git_dir(&git_dir, &format!("{reference}/in/{place}")).await?);
        }
        Ok(names)
    }

    /// Our settings take the place of its own; with other names of commits, or references elsewhere,
    /// it would look as if there were nothing in it.
    pub(super) fn refuse_other_history(&self, git_dir: &Path) -> Result<()> {
        let refused = |reason| Err(Error::OtherHistory { dir: git_dir.into(), reason });
        if git_dir.join("reftable").exists() {
            return refused("its references are in tables");
        }
        let mut text = String::new();
        let settings = std::fs::File::open(git_dir.join("config"));
        // One that cannot be read says nothing of other names.
        let _as_far_as_it_goes =
            settings.and_then(|file| file.take(SETTINGS_BYTES_MAX).read_to_string(&mut text));
        let format =
            text.lines().filter_map(|line| line.split_once('=')).find_map(|(name, value)| {
                name.trim().eq_ignore_ascii_case("objectFormat").then(|| value.trim())
            });
        let ours = if self.base.as_str().len() == 64 { "sha256" } else { "sha1" };
        match format.unwrap_or("sha1").eq_ignore_ascii_case(ours) {
            true => Ok(()),
            false => refused("its commits have names of another kind"),
        }
    }
}

/// The git directories at these places, and those of submodules below them, relative to the top.
/// Links are not followed.
fn git_dirs(top: &Path, places: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open: Vec<_> = places.into_iter().rev().map(|place| (place, 0)).collect();
    while let Some((place, depth)) = open.pop() {
        let dir = top.join(&place);
        let Ok(known) = dir.symlink_metadata() else { continue };
        if !known.is_dir() || depth > DEPTH_MAX {
            continue;
        }
        inventory::allow(&dir, &known, inventory::OWNER_ALL)?;
        if inventory::is_git_dir(&dir) {
            open.push((place.join("modules"), depth + 1));
            found.push(place);
        } else {
            let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
            open.extend(entries.map(|entry| (place.join(entry.file_name()), depth + 1)));
        }
        if found.len() > HISTORIES_KEPT_MAX {
            return Err(Error::TooManyHistories { dir: top.into(), limit: HISTORIES_KEPT_MAX });
        }
    }
    Ok(found)
}
