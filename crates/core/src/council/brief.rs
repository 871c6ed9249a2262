//! What the members are told (CON-07), and how similar problems are recognised (CON-18).

use serde::{Deserialize, Serialize};

use crate::limits;

/// The same for everybody, and bounded: it is sent to several models at once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Brief {
    pub code: String,
    pub error: String,
    pub prior_attempts: Vec<String>,
    pub constraints: Vec<String>,
}

impl Brief {
    /// Cut to what is worth its price: the beginning of the code, the end of the error, the last
    /// attempts, the first constraints.
    #[must_use]
    pub fn new(
        code: &str,
        error: &str,
        prior_attempts: &[String],
        constraints: &[String],
    ) -> Brief {
        let skipped = prior_attempts.len().saturating_sub(limits::COUNCIL_ATTEMPTS_MAX);
        let attempts = prior_attempts.iter().skip(skipped);
        let constraints = constraints.iter().take(limits::COUNCIL_CONSTRAINTS_MAX);
        Brief {
            code: limits::head(code, limits::COUNCIL_CODE_CHARS_MAX).to_owned(),
            error: limits::tail(error, limits::FAILURE_CHARS_MAX).to_owned(),
            prior_attempts: attempts
                .map(|text| limits::tail(text, limits::FAILURE_CHARS_MAX).to_owned())
                .collect(),
            constraints: constraints
                .map(|text| limits::head(text, limits::REASON_CHARS_MAX).to_owned())
                .collect(),
        }
    }

    #[must_use]
    pub fn key(&self, problem_type: &str) -> ProblemKey {
        ProblemKey::new(problem_type, &self.error)
    }
}

/// Problems with the same key are taken for the same problem: type and error, without what
/// differs from one occurrence to the next.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProblemKey(String);

impl ProblemKey {
    #[must_use]
    pub fn new(problem_type: &str, error: &str) -> ProblemKey {
        let words = error.split_whitespace().map(plain);
        let words: Vec<String> = words.filter(|word| !word.is_empty()).collect();
        let error = words.join(" ");
        let kind = limits::head(problem_type, limits::COUNCIL_NAME_CHARS_MAX).to_lowercase();
        ProblemKey(format!("{kind}|{}", limits::head(&error, limits::COUNCIL_KEY_CHARS_MAX)))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A word without the numbers, addresses and hashes that make every error unique.
fn plain(word: &str) -> String {
    let lower = word.to_lowercase();
    let is_hash = |part: &str| {
        part.len() >= 7
            && part.bytes().all(|b| b.is_ascii_hexdigit())
            && part.bytes().any(|b| b.is_ascii_digit())
    };
    let mut plain = String::new();
    for part in lower.split_inclusive(|c: char| !c.is_alphanumeric()) {
        let name = part.trim_end_matches(|c: char| !c.is_alphanumeric());
        let rest = &part[name.len()..];
        if is_hash(name) || name.starts_with("0x") {
            plain.push('#');
        } else {
            let mut in_number = false;
            for c in name.chars() {
                if !c.is_ascii_digit() {
                    plain.push(c);
                } else if !in_number {
                    plain.push('#');
                }
                in_number = c.is_ascii_digit();
            }
        }
        plain.push_str(rest);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CON-07: the four fields, under the names of the sources.
    #[test]
    fn the_brief_has_the_agreed_fields() {
        let brief = Brief::new("fn", "boom", &["a".into()], &["no deps".into()]);
        let json = serde_json::to_value(&brief).unwrap();
        let expected = serde_json::json!({
            "code": "fn", "error": "boom", "priorAttempts": ["a"], "constraints": ["no deps"],
        });
        assert_eq!(json, expected);
    }

    /// A log of a gigabyte must not be sent to five models.
    #[test]
    fn the_brief_is_bounded_in_every_direction() {
        let long = "ä".repeat(1_000_000);
        let many = vec![long.clone(); 1_000];
        let brief = Brief::new(&long, &long, &many, &many);
        assert_eq!(brief.code.chars().count(), limits::COUNCIL_CODE_CHARS_MAX);
        assert_eq!(brief.error.chars().count(), limits::FAILURE_CHARS_MAX);
        assert_eq!(brief.prior_attempts.len(), limits::COUNCIL_ATTEMPTS_MAX);
        assert_eq!(brief.constraints.len(), limits::COUNCIL_CONSTRAINTS_MAX);
        let attempts: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let brief = Brief::new("", "", &attempts, &[]);
        assert_eq!(brief.prior_attempts.last().map(String::as_str), Some("19"), "the last count");
    }

    /// CON-18: the same error on another line, at another address, is the same problem.
    #[test]
    fn similar_problems_have_one_key() {
        let key = |error| ProblemKey::new("api", error);
        let first = key("Error: 429 Too Many Requests\n  at fetch.ts:42:7 (req 9f2c1ab77d0e)");
        let again = key("error: 503 too many   requests at fetch.ts:108:13 (req 77d0e3b9f2c1)");
        assert_eq!(first, again);
        assert_eq!(first.as_str(), "api|error: # too many requests at fetch.ts:#:# (req #)");
        assert_ne!(first, key("error: 429 too few requests"));
        assert_ne!(first, ProblemKey::new("ui", "Error: 429 Too Many Requests"));
        assert_eq!(key("at 0xdeadbeef facade"), key("at 0x1 facade"), "a word stays a word");
    }
}
