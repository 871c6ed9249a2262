//! SARIF 2.1: findings of scanners such as semgrep, bandit, trivy, gosec and CodeQL.

use std::collections::BTreeMap;

use kapelle_core::limits;
use kapelle_core::outcome::{Finding, Findings, Outcome, Severity};
use serde::Deserialize;

use super::{Unreadable, text};

#[derive(Deserialize)]
struct Log {
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    #[serde(default)]
    tool: Tool,
    #[serde(default)]
    results: Option<Vec<Found>>,
}

#[derive(Default, Deserialize)]
struct Tool {
    #[serde(default)]
    driver: Driver,
}

#[derive(Default, Deserialize)]
struct Driver {
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    #[serde(default)]
    id: String,
    #[serde(default)]
    properties: Properties,
}

#[derive(Default, Deserialize)]
struct Properties {
    /// A score from 0 to 10, as a text.
    #[serde(default, rename = "security-severity")]
    security_severity: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    #[serde(default)]
    rule_id: String,
    #[serde(default)]
    level: Option<String>,
    #[serde(default)]
    message: Message,
    #[serde(default)]
    locations: Vec<Location>,
    #[serde(default)]
    suppressions: Option<Vec<Suppression>>,
}

#[derive(Default, Deserialize)]
struct Message {
    #[serde(default)]
    text: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    #[serde(default)]
    physical_location: Place,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Place {
    #[serde(default)]
    artifact_location: Artifact,
    #[serde(default)]
    region: Region,
}

#[derive(Default, Deserialize)]
struct Artifact {
    #[serde(default)]
    uri: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    #[serde(default)]
    start_line: u32,
}

#[derive(Deserialize)]
struct Suppression {
    #[serde(default)]
    kind: String,
}

pub fn parse(bytes: &[u8]) -> Result<Outcome, Unreadable> {
    let log: Log = text::document(bytes, "a SARIF log")?;
    let mut findings = Findings::default();
    for run in &log.runs {
        let score = |rule: &Rule| rule.properties.security_severity.as_deref()?.parse().ok();
        let scores: BTreeMap<&str, f64> = run
            .tool
            .driver
            .rules
            .iter()
            .filter_map(|rule| Some((rule.id.as_str(), score(rule)?)))
            .collect();
        for found in run.results.iter().flatten().filter(|found| !found.is_accepted()) {
            findings.add(found.finding(scores.get(found.rule_id.as_str()).copied()));
        }
    }
    Ok(Outcome { findings: Some(findings), ..Outcome::default() })
}

impl Found {
    /// Accepted outside of the code, by a person. A comment in the code is the agent's own word.
    fn is_accepted(&self) -> bool {
        self.suppressions.iter().flatten().any(|suppression| suppression.kind == "external")
    }

    fn finding(&self, score: Option<f64>) -> Finding {
        let cut = |text: &str, max| limits::head(text.trim(), max).to_owned();
        let place = self.locations.first().map(|location| &location.physical_location);
        Finding {
            severity: severity(score, self.level.as_deref()),
            rule: cut(&self.rule_id, limits::TEST_NAME_CHARS_MAX),
            file: cut(
                place.map_or("", |place| &place.artifact_location.uri),
                limits::PATH_CHARS_MAX,
            ),
            line: place.map_or(0, |place| place.region.start_line),
            message: cut(&self.message.text, limits::TEST_MESSAGE_CHARS_MAX),
        }
    }
}

fn severity(score: Option<f64>, level: Option<&str>) -> Severity {
    match (score, level) {
        (Some(score), _) if score >= 9.0 => Severity::Critical,
        (Some(score), _) if score >= 7.0 => Severity::High,
        (Some(score), _) if score >= 4.0 => Severity::Medium,
        (Some(_), _) => Severity::Low,
        (None, Some("error")) => Severity::High,
        (None, Some("note" | "none")) => Severity::Low,
        // What the format means where nothing is said.
        (None, _) => Severity::Medium,
    }
}
