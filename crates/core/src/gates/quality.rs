//! Quality beyond tests: coverage, mutation score, complexity, scanners (TDD-08, 09, 10).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::objection::Objection;
use super::phases::failing;
use crate::outcome::{Outcome, Percent, Severity};

/// What is asked of a check's outcome. What is not there is not asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thresholds {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage_min: Option<Percent>,
    /// How much less than before the change is still accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage_drop_max: Option<Percent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutation_min: Option<Percent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complexity_max: Option<u32>,
    /// Findings of this severity and worse are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refuse_from: Option<Severity>,
}

impl Thresholds {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Thresholds::default()
    }
}

/// Everything that is wrong with the outcome of a check that has to pass. `base` is the same
/// check before the change, if it was run there.
///
/// A number that is asked for and was not measured is an objection: else deleting the report
/// would be the easiest way through.
#[must_use]
pub fn quality(
    wanted: &Thresholds,
    base: Option<&Outcome>,
    now: &Outcome,
    excused: &BTreeSet<String>,
) -> Vec<Objection> {
    let mut objections = failing(now, excused);
    objections.extend(coverage(wanted, base, now));
    objections.extend(mutation(wanted, now));
    objections.extend(complexity(wanted, now));
    objections.extend(findings(wanted, now));
    objections
}

fn coverage(wanted: &Thresholds, base: Option<&Outcome>, now: &Outcome) -> Vec<Objection> {
    // Of nothing, all would be covered.
    let measured = now.coverage.filter(|coverage| coverage.lines > 0);
    let Some(found) = measured.map(crate::outcome::Coverage::of_lines) else {
        let asked = wanted.coverage_min.or(wanted.coverage_drop_max.map(|_| Percent(0)));
        return asked.map(|min| Objection::NoCoverage { min }).into_iter().collect();
    };
    let below = wanted.coverage_min.filter(|min| found < *min);
    let before = base.and_then(|base| base.coverage).map(crate::outcome::Coverage::of_lines);
    let fell = wanted.coverage_drop_max.zip(before);
    let fell = fell.filter(|(drop_max, before)| found.0 + drop_max.0 < before.0);
    let below = below.map(|min| Objection::CoverageBelow { found, min });
    let fell = fell.map(|(drop_max, before)| Objection::CoverageFell { before, found, drop_max });
    below.into_iter().chain(fell).collect()
}

fn mutation(wanted: &Thresholds, now: &Outcome) -> Option<Objection> {
    let min = wanted.mutation_min?;
    let Some(mutants) = now.mutants.filter(|mutants| mutants.caught + mutants.missed > 0) else {
        return Some(Objection::NoMutants { min });
    };
    let found = mutants.score();
    (found < min).then_some(Objection::MutationBelow { found, min })
}

fn complexity(wanted: &Thresholds, now: &Outcome) -> Vec<Objection> {
    let Some(max) = wanted.complexity_max else { return Vec::new() };
    let Some(measured) = &now.complexity else { return vec![Objection::NoComplexity { max }] };
    let over = measured.worst.iter().filter(|function| function.cyclomatic > max);
    over.map(|function| Objection::TooComplex {
        function: function.name.clone(),
        file: function.file.clone(),
        line: function.line,
        found: function.cyclomatic,
        max,
    })
    .collect()
}

fn findings(wanted: &Thresholds, now: &Outcome) -> Vec<Objection> {
    let Some(severity) = wanted.refuse_from else { return Vec::new() };
    let Some(scanned) = &now.findings else { return vec![Objection::NoScan { severity }] };
    let mut objections: Vec<Objection> = scanned
        .worst
        .iter()
        .filter(|finding| finding.severity >= severity)
        .map(|finding| Objection::Insecure {
            severity: finding.severity,
            rule: finding.rule.clone(),
            file: finding.file.clone(),
            line: finding.line,
            message: finding.message.clone(),
        })
        .collect();
    let named = u32::try_from(objections.len()).unwrap_or(u32::MAX);
    let count = scanned.from(severity).saturating_sub(named);
    if count > 0 {
        objections.push(Objection::InsecureUnnamed { severity, count });
    }
    objections
}
