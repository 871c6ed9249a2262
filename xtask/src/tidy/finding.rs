//! What a rule found, and where.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// Worth a look; does not fail.
    Warning,
    Failure,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub path: String,
    /// The first line is 1.
    pub line: usize,
    pub weight: Weight,
    pub what: String,
    /// Why it matters, or what to do instead.
    pub advice: &'static str,
}

impl Finding {
    pub fn failure(path: &str, line: usize, what: impl Into<String>, advice: &'static str) -> Self {
        Finding { path: path.to_owned(), line, weight: Weight::Failure, what: what.into(), advice }
    }

    pub fn warning(path: &str, line: usize, what: impl Into<String>, advice: &'static str) -> Self {
        Finding { weight: Weight::Warning, ..Finding::failure(path, line, what, advice) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { path, line, what, advice, .. } = self;
        let mark = if self.weight == Weight::Warning { "warning: " } else { "" };
        write!(f, "{path}:{line}: {mark}{what} — {advice}")
    }
}
