//! Licence expressions (SPDX): `MIT OR (Apache-2.0 AND ISC)`.
//!
//! The verdicts are ordered, so OR is the better of two and AND the worse.

/// Licences that ask for nothing but to be named.
const ALLOWED: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Licences with strings: changes to files under MPL-2.0 must be published under it. Using such a
/// crate as it comes is fine; patching or vendoring one is a decision for people.
const WITH_CARE: [&str; 1] = ["MPL-2.0"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Refused,
    WithCare,
    Allowed,
}

/// Whether an expression can be satisfied. An expression that makes no sense is an error.
pub fn judge(expression: &str) -> Result<Verdict, String> {
    // Old manifests write `MIT/Apache-2.0` and mean OR.
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = Words { words: spaced.split_whitespace().collect(), at: 0 };
    let verdict = words.any_of()?;
    match words.peek() {
        None => Ok(verdict),
        Some(word) => Err(format!("`{word}` is not expected in `{expression}`")),
    }
}

struct Words<'a> {
    words: Vec<&'a str>,
    at: usize,
}

impl<'a> Words<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    fn take(&mut self, wanted: &str) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn any_of(&mut self) -> Result<Verdict, String> {
        let mut verdict = self.all_of()?;
        while self.take("OR") {
            verdict = verdict.max(self.all_of()?);
        }
        Ok(verdict)
    }

    fn all_of(&mut self) -> Result<Verdict, String> {
        let mut verdict = self.one()?;
        while self.take("AND") {
            verdict = verdict.min(self.one()?);
        }
        Ok(verdict)
    }

    fn one(&mut self) -> Result<Verdict, String> {
        if self.take("(") {
            let verdict = self.any_of()?;
            return if self.take(")") { Ok(verdict) } else { Err("a `)` is missing".to_owned()) };
        }
        let mut licence = self.name()?;
        if self.take("WITH") {
            licence = format!("{licence} WITH {}", self.name()?);
        }
        Ok(if ALLOWED.contains(&licence.as_str()) {
            Verdict::Allowed
        } else if WITH_CARE.contains(&licence.as_str()) {
            Verdict::WithCare
        } else {
            Verdict::Refused
        })
    }

    fn name(&mut self) -> Result<String, String> {
        match self.peek() {
            Some(word) if !matches!(word, "(" | ")" | "AND" | "OR" | "WITH") => {
                self.at += 1;
                Ok(word.to_owned())
            }
            found => Err(format!("a licence is expected, not `{}`", found.unwrap_or("the end"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str, verdict: Verdict) {
        assert_eq!(judge(expression), Ok(verdict), "{expression}");
    }

    #[test]
    fn one_good_choice_is_enough() {
        check("MIT", Verdict::Allowed);
        check("MIT OR GPL-3.0-only", Verdict::Allowed);
        check("GPL-3.0-only OR LGPL-2.1-or-later OR Zlib", Verdict::Allowed);
        check("MIT/Apache-2.0", Verdict::Allowed);
        check("GPL-3.0-only", Verdict::Refused);
    }

    #[test]
    fn every_obligation_counts() {
        check("MIT AND Unicode-3.0", Verdict::Allowed);
        check("MIT AND GPL-3.0-only", Verdict::Refused);
        check("MIT AND MPL-2.0", Verdict::WithCare);
        check("MPL-2.0 OR MIT", Verdict::Allowed);
    }

    #[test]
    fn and_binds_closer_than_or_and_parentheses_closer_still() {
        check("MIT OR GPL-2.0-only AND ISC", Verdict::Allowed);
        check("(MIT OR GPL-2.0-only) AND SSPL-1.0", Verdict::Refused);
        check("(MIT OR Apache-2.0) AND (GPL-2.0-only OR ISC)", Verdict::Allowed);
    }

    /// An exception changes the licence: only the pairs that we know are allowed.
    #[test]
    fn exceptions_belong_to_their_licence() {
        check("Apache-2.0 WITH LLVM-exception OR GPL-2.0-only", Verdict::Allowed);
        check("GPL-2.0-only WITH Classpath-exception-2.0", Verdict::Refused);
    }

    #[test]
    fn nonsense_is_not_a_licence() {
        for expression in ["", "MIT OR", "(MIT", "MIT)", "AND MIT", "MIT Apache-2.0", "MIT WITH"] {
            assert!(judge(expression).is_err(), "{expression}");
        }
    }
}
