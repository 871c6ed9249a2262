//! The files that the rules look at.

use std::fs;
use std::path::{Path, PathBuf};

use super::finding::Finding;
use super::source::Source;
use crate::error::{Error, Result};

/// What is not ours, not written by hand, or sample material for tests and the demo.
const SKIPPED: [&str; 6] = ["target", "node_modules", "dist", "fixtures", "assets", "sample"];

#[derive(Debug)]
pub struct Tree {
    pub sources: Vec<Source>,
    /// Path and text.
    pub web_tests: Vec<(String, String)>,
    /// Sources that could not be taken apart.
    pub unreadable: Vec<Finding>,
}

impl Tree {
    pub fn read(root: &Path) -> Result<Tree> {
        let mut tree = Tree { sources: Vec::new(), web_tests: Vec::new(), unreadable: Vec::new() };
        for folder in ["crates", "xtask", "web"] {
            for path in files(&root.join(folder))? {
                let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
                let is_rust = name.ends_with(".rs");
                if !is_rust && !is_web_test(&name) {
                    continue;
                }
                let text = fs::read_to_string(&path).map_err(|why| unreadable(&path, &why))?;
                if !is_rust {
                    tree.web_tests.push((name, text));
                    continue;
                }
                match Source::parse(&name, &text) {
                    Ok(source) => tree.sources.push(source),
                    Err(why) => tree.unreadable.push(Finding::failure(
                        &name,
                        1,
                        format!("does not parse: {why}"),
                        "does it compile?",
                    )),
                }
            }
        }
        Ok(tree)
    }
}

fn is_web_test(path: &str) -> bool {
    let is_script = [".ts", ".tsx", ".mjs", ".js"].iter().any(|end| path.ends_with(end));
    let is_test = path.starts_with("web/e2e/")
        || path.contains("/__tests__/")
        || [".test.", ".spec."].iter().any(|mark| path.contains(mark));
    path.starts_with("web/") && is_script && is_test
}

/// All files below `dir`, in order; none if it does not exist.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        if !folder.exists() {
            continue;
        }
        for entry in fs::read_dir(&folder).map_err(|why| unreadable(&folder, &why))? {
            let entry = entry.map_err(|why| unreadable(&folder, &why))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with('.') || SKIPPED.contains(&name.as_ref()) {
                continue;
            }
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

fn unreadable(path: &Path, why: &std::io::Error) -> Error {
    Error::environment(format!("cannot read {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_tests_are_told_from_web_sources() {
        assert!(is_web_test("web/e2e/demo.mjs"));
        assert!(is_web_test("web/src/board/Board.test.tsx"));
        assert!(!is_web_test("web/src/board/Board.tsx"));
        assert!(!is_web_test("web/src/board/Board.test.snap"));
    }
}
