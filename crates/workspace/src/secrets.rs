//! Secrets in a change: looked for before a commit is made (SEC-13).
//!
//! This is against accidents: a key that was printed into a file, an `.env` that was added. An
//! agent that wants to hide a secret can, by any encoding; what keeps secrets from agents is that
//! they never get them.
//!
//! Invariant: what is found is never told, only where it is and what it looks like.

mod diff;
mod guess;
mod shapes;

use std::fmt;

use kapelle_core::{Commit, glob};

use crate::git::{self, Git};
use crate::worktree::aside;

/// Excuses a line that only looks like a secret. Keys of known shape and private keys are not
/// excused by it: an agent could write the mark as easily as the key.
pub const INLINE_MARK: &str = "kapelle:allow-secret";

/// Findings that are told; whoever leaks more has to look at all of it anyway.
pub const FINDINGS_MAX: usize = 20;

/// Past this a line is machine-made, and looked at piece by piece. The pieces overlap by more than
/// what is looked for has.
const PIECE_BYTES_MAX: usize = 64 << 10;
const OVERLAP_BYTES: usize = 1 << 10;

/// Nothing that is looked for is shorter without a gap: `-----BEGIN`.
const RUN_BYTES_MIN: usize = 10;

/// What a person allows, in `kapelle.toml`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Patterns of paths that are not looked into.
    pub allow_paths: Vec<String>,
    /// Texts; what contains one of them is not a secret.
    pub allow: Vec<String>,
}

/// Where something was found, and what it looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub path: String,
    pub line: u64,
    pub looks_like: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} line {} looks like {}", self.path, self.line, self.looks_like)
    }
}

/// All findings in one sentence, as an error tells them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings(pub Vec<Finding>);

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&all.join("; "))?;
        if self.0.len() == FINDINGS_MAX {
            f.write_str("; and perhaps more")?;
        }
        Ok(())
    }
}

/// Looks through what a tree adds to its base.
pub(crate) async fn scan(
    git: &Git,
    base: &Commit,
    tree: &str,
    rules: &Rules,
) -> Result<Findings, git::Error> {
    let mut found = Vec::new();
    // Nearly every change is looked at in one go; one too large for that is taken apart.
    let mut waiting = match diff::text(git, base, tree, &[]).await {
        Ok(text) => {
            found.extend(look_aside(text, rules).await);
            Vec::new()
        }
        Err(git::Error::OutputTooLarge { .. }) => diff::parts(git, base, tree).await?,
        Err(error) => return Err(error),
    };
    while let Some(mut part) = waiting.pop() {
        match diff::text(git, base, tree, &part).await {
            Ok(text) => found.extend(look_aside(text, rules).await),
            // What was removed counts too. A single file whose difference is that large is one
            // that a program made, like those that are left out because of their size.
            Err(git::Error::OutputTooLarge { .. }) => {
                let half = part.split_off(part.len().div_ceil(2));
                if !half.is_empty() {
                    waiting.extend([part, half]);
                }
            }
            Err(error) => return Err(error),
        }
    }
    found.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    found.dedup();
    found.truncate(FINDINGS_MAX);
    Ok(Findings(found))
}

async fn look_aside(diff: Vec<u8>, rules: &Rules) -> Vec<Finding> {
    let rules = rules.clone();
    aside(move || look_through(&diff, &rules)).await
}

fn look_through(diff: &[u8], rules: &Rules) -> Vec<Finding> {
    let mut found = Vec::new();
    diff::each_added(diff, |path, line, text| {
        if found.len() < FINDINGS_MAX
            && let Some(looks_like) = look(text, rules)
            && !rules.skips(path)
        {
            found.push(Finding { path: path.to_owned(), line, looks_like });
        }
    });
    found
}

/// What a line looks like, if it holds a secret.
fn look(line: &str, rules: &Rules) -> Option<&'static str> {
    if !has_run(line) {
        return None;
    }
    let is_allowed = |text: &str| {
        rules.allow.iter().any(|allowed| !allowed.is_empty() && text.contains(allowed))
    };
    if let Some(known) = shapes::known(line, is_allowed) {
        return Some(known);
    }
    if line.contains(INLINE_MARK) {
        return None;
    }
    guess::likely(line, is_allowed)
}

/// Whether anything in the line is long enough. Most lines of most files are not, and cost one pass.
fn has_run(line: &str) -> bool {
    let mut run = 0;
    line.bytes().any(|byte| {
        run = if byte.is_ascii_graphic() { run + 1 } else { 0 };
        run >= RUN_BYTES_MIN
    })
}

impl Rules {
    fn skips(&self, path: &str) -> bool {
        self.allow_paths.iter().any(|pattern| glob::matches(pattern, path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(line: &str) -> Option<&'static str> {
        look(line, &Rules::default())
    }

    /// Put together here, so that this file does not hold what it looks for.
    fn key() -> String {
        format!("AKIA{}", "Q3EGRIH2NWTLZPSV")
    }

    #[test]
    fn a_mark_excuses_a_guess_but_not_a_key() {
        let guess = "password = \"hT7kQz9vLmW2xR4p\"";
        assert!(looks(guess).is_some());
        assert_eq!(looks(&format!("{guess} # {INLINE_MARK}")), None);
        assert!(looks(&format!("{} # {INLINE_MARK}", key())).is_some());
    }

    #[test]
    fn a_person_can_allow_a_text() {
        let rules = Rules { allow: vec![key()], ..Rules::default() };
        assert_eq!(look(&format!("key: {}", key()), &rules), None);
        let other = format!("AKIA{}", "R3EGRIH2NWTLZPSV");
        assert!(look(&format!("{} {other}", key()), &rules).is_some(), "but not its neighbour");
        let empty = Rules { allow: vec![String::new()], ..Rules::default() };
        assert!(look(&key(), &empty).is_some(), "nothing allows nothing");
    }
}
