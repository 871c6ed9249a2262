//! `research.json`: what a researcher found out before the planners begin (PLN-10).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits;
use crate::schema::{self, InvalidDocument};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Research {
    #[schemars(length(min = 1, max = limits::TEXT_CHARS_MAX))]
    pub findings: String,
    /// What a plan must respect.
    #[schemars(length(max = limits::CRITERIA_MAX), inner(length(max = limits::CRITERION_CHARS_MAX)))]
    pub constraints: Vec<String>,
    /// What could go wrong.
    #[schemars(length(max = limits::CRITERIA_MAX), inner(length(max = limits::CRITERION_CHARS_MAX)))]
    pub risks: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("Invalid research: {0}")]
pub struct InvalidResearch(pub InvalidDocument);

impl Research {
    pub fn parse(text: &str) -> Result<Research, InvalidResearch> {
        schema::parse(text, limits::RESEARCH_BYTES_MAX).map_err(InvalidResearch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn research_is_read() {
        let text = r#"{"findings": "f", "constraints": ["c"], "risks": []}"#;
        let expected =
            Research { findings: "f".into(), constraints: vec!["c".into()], risks: Vec::new() };
        assert_eq!(Research::parse(text), Ok(expected));
    }

    #[test]
    fn what_is_not_research_says_where() {
        let refused = |text: &str| Research::parse(text).unwrap_err().to_string();
        let text = r#"{"findings": "f", "constraints": "none", "risks": [1]}"#;
        let expected = "Invalid research: constraints: must be array\nrisks[0]: must be string";
        assert_eq!(refused(text), expected);
        let long = "x".repeat(1_001);
        let text = format!(r#"{{"findings": "f", "constraints": ["{long}"], "risks": []}}"#);
        let expected = "Invalid research: constraints[0]: is longer than 1000 characters";
        assert_eq!(refused(&text), expected);
        assert!(refused(&" ".repeat(1 << 21)).contains("bytes are more than"));
    }

    #[test]
    fn every_keyword_of_the_published_schema_is_enforced() {
        let schema = schemars::schema_for!(Research);
        assert_eq!(schema::unknown_keywords(schema.as_value()), Vec::<String>::new());
    }
}
