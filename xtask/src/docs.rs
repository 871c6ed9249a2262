//! `cargo xtask docs`: the reference is written by the program that it describes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use crate::args::Args;
use crate::error::{Error, Result};
use crate::{cargo, run};

pub const HELP: &str = "\
Write docs/reference from the code, or check that it is current.

Usage: cargo xtask docs [--check]

  --check  change nothing; fail if a generated file differs from what the code says

Examples:
  cargo xtask docs
  cargo xtask docs --check";

pub fn command(mut args: Args) -> Result<ExitCode> {
    let only_check = args.flag("--check");
    args.finish()?;
    let kapelle = cargo::build_kapelle()?;
    if only_check {
        check(&kapelle)?;
        println!("docs/reference is current");
    } else {
        generate(&kapelle, &reference())?;
        println!("docs/reference is written");
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails if docs/reference is not what `kapelle` would write.
pub fn check(kapelle: &Path) -> Result {
    let fresh = run::scratch()?.join("docs-check");
    if fresh.exists() {
        fs::remove_dir_all(&fresh).map_err(|why| unreadable(&fresh, &why))?;
    }
    generate(kapelle, &fresh)?;
    let stale = differing(&fresh, &reference())?;
    if stale.is_empty() {
        return Ok(());
    }
    for path in &stale {
        println!("docs/reference/{}: not what the code says", path.display());
    }
    Err(Error::failed(format!("{} generated file(s) are out of date", stale.len()))
        .hint("run `cargo xtask docs` and commit what it writes"))
}

fn reference() -> PathBuf {
    run::root().join("docs/reference")
}

fn generate(kapelle: &Path, out: &Path) -> Result {
    fs::create_dir_all(out).map_err(|why| unreadable(out, &why))?;
    run::succeed_aside(run::command(kapelle).args(["docs", "--out"]).arg(out))?;
    if files(out)?.is_empty() {
        // Nothing to compare would pass every check.
        return Err(Error::failed("`kapelle docs` wrote no file"));
    }
    Ok(())
}

/// Files below `fresh` that are absent or different below `committed`. The committed folder may
/// hold more: pages that people write.
fn differing(fresh: &Path, committed: &Path) -> Result<Vec<PathBuf>> {
    let mut stale = Vec::new();
    for path in files(fresh)? {
        let wanted = fs::read(fresh.join(&path)).map_err(|why| unreadable(&path, &why))?;
        match fs::read(committed.join(&path)) {
            Ok(found) if found == wanted => {}
            Ok(_) => stale.push(path),
            Err(why) if why.kind() == io::ErrorKind::NotFound => stale.push(path),
            Err(why) => return Err(unreadable(&committed.join(&path), &why)),
        }
    }
    Ok(stale)
}

/// Paths of all files below `dir`, relative to it, in order.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(|why| unreadable(&folder, &why))? {
            let path = entry.map_err(|why| unreadable(&folder, &why))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(relative) = path.strip_prefix(dir) {
                found.push(relative.to_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

fn unreadable(path: &Path, why: &io::Error) -> Error {
    Error::environment(format!("cannot read or write {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_is_named_and_handwritten_pages_are_not_drift() {
        let dir = run::scratch().unwrap().join(format!("docs-test-{}", std::process::id()));
        let put = |name: &str, text: &str| {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("fresh/cli.md", "new");
        put("fresh/api/same.md", "same");
        put("fresh/added.md", "added");
        put("committed/cli.md", "old");
        put("committed/api/same.md", "same");
        put("committed/by-hand.md", "mine");
        let stale = differing(&dir.join("fresh"), &dir.join("committed")).unwrap();
        assert_eq!(stale, [Path::new("added.md"), Path::new("cli.md")]);
        fs::remove_dir_all(dir).unwrap();
    }
}
