//! Mutation testing: the report of Stryker and its relatives, and that of cargo-mutants.

use std::collections::BTreeMap;

use kapelle_core::outcome::{Mutants, Outcome};
use serde::Deserialize;

use super::{Unreadable, text};

#[derive(Deserialize)]
struct Report {
    /// Stryker: mutants by file.
    #[serde(default)]
    files: Option<BTreeMap<String, File>>,
    /// cargo-mutants: sums.
    #[serde(default)]
    caught: Option<u64>,
    #[serde(default)]
    missed: Option<u64>,
    #[serde(default)]
    timeout: Option<u64>,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    mutants: Vec<Mutant>,
}

#[derive(Deserialize)]
struct Mutant {
    #[serde(default)]
    status: Status,
}

/// Those that could not be compiled or were left out on purpose say nothing about the tests.
#[derive(Default, Deserialize)]
enum Status {
    Killed,
    Timeout,
    Survived,
    NoCoverage,
    #[default]
    #[serde(other)]
    Invalid,
}

pub fn parse(bytes: &[u8]) -> Result<Outcome, Unreadable> {
    let report: Report = text::document(bytes, "a report of mutants")?;
    let mut mutants = Mutants::default();
    match (&report.files, report.caught.zip(report.missed)) {
        (Some(files), _) => {
            for mutant in files.values().flat_map(|file| &file.mutants) {
                match mutant.status {
                    Status::Killed | Status::Timeout => mutants.caught += 1,
                    Status::Survived | Status::NoCoverage => mutants.missed += 1,
                    Status::Invalid => {}
                }
            }
        }
        (None, Some((caught, missed))) => {
            let caught = caught.saturating_add(report.timeout.unwrap_or_default());
            mutants = Mutants { caught, missed };
        }
        (None, None) => return Err(Unreadable::Empty { expected: "mutant" }),
    }
    Ok(Outcome { mutants: Some(mutants), ..Outcome::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the published schema of mutation-testing-elements and the manual of cargo-mutants.
    #[test]
    fn both_formats_give_a_score() {
        let stryker = br#"{"schemaVersion": "1", "files": {"a.js": {"mutants": [
            {"id": "1", "status": "Killed"}, {"id": "2", "status": "Timeout"},
            {"id": "3", "status": "Survived"}, {"id": "4", "status": "NoCoverage"},
            {"id": "5", "status": "CompileError"}, {"id": "6", "status": "Ignored"}]}}}"#;
        let read = |bytes: &[u8]| parse(bytes).unwrap().mutants.unwrap();
        assert_eq!(read(stryker), Mutants { caught: 2, missed: 2 });
        let mutants = br#"{"outcomes": [], "total_mutants": 9, "missed": 2, "caught": 5,
            "timeout": 1, "unviable": 1, "success": 0}"#;
        assert_eq!(read(mutants), Mutants { caught: 6, missed: 2 });
        assert!(parse(b"{}").is_err() && parse(b"[]").is_err());
    }
}
