//! All rules over the real tree.

use std::process::ExitCode;

use super::finding::{Finding, Weight};
use super::tree::Tree;
use super::{pins, purity, reach, shape, walls, words};
use crate::args::Args;
use crate::error::{Error, Result};
use crate::{cargo, run};

pub const HELP: &str = "\
Check the walls between crates and the taste of the code.

Usage: cargo xtask tidy

Each finding is one line: where, what, and what to do about it. Warnings do not fail. The rules
are listed in CONTRIBUTING.md and live in xtask/src/tidy/, one file per kind.

Examples:
  cargo xtask tidy";

pub fn command(args: Args) -> Result<ExitCode> {
    args.finish()?;
    check()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what was found, and fails if any of it is more than a warning.
pub fn check() -> Result {
    let found = findings()?;
    for finding in &found {
        println!("{finding}");
    }
    let failures = found.iter().filter(|finding| finding.weight == Weight::Failure).count();
    if failures > 0 {
        return Err(Error::failed(format!("{failures} place(s) are not tidy"))
            .hint("each line above says what to do; the rules are in CONTRIBUTING.md"));
    }
    println!("tidy: {} warning(s), no failure", found.len());
    Ok(())
}

fn findings() -> Result<Vec<Finding>> {
    let metadata = cargo::metadata(&["--no-deps", "--offline"])?;
    let tree = Tree::read(run::root())?;
    let mut found = walls::check(&metadata);
    found.extend(pins::check(&metadata));
    found.extend(reach::check(&tree.sources));
    found.extend(tree.unreadable);
    for source in &tree.sources {
        found.extend(purity::check(source));
        found.extend(shape::check(source));
        found.extend(words::check(source));
    }
    for (path, text) in &tree.web_tests {
        found.extend(words::check_web_test(path, text));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So that a plain `cargo test` holds the walls too.
    #[test]
    fn the_tree_is_tidy() {
        let mut found = findings().unwrap();
        found.retain(|finding| finding.weight == Weight::Failure);
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "not tidy:\n{}", lines.join("\n"));
    }
}
