//! What a failed check blames: its tests, where the report names all that is wrong, else the check as
//! a whole.
//!
//! With names a failure that was there before is told from a new one, and a test that fails now
//! and then from a change that breaks it.

use std::collections::BTreeSet;

use super::quality::{Thresholds, quality};
use crate::outcome::Outcome;

/// Between the name of a check and that of a test.
const SEPARATOR: &str = ": ";

/// Everything that fails in a check, by name: `check: test` for each test, and `check` alone for
/// whatever is no test.
#[must_use]
pub fn failures(
    check: &str,
    wanted: &Thresholds,
    passed: bool,
    outcome: Option<&Outcome>,
) -> BTreeSet<String> {
    let whole = || BTreeSet::from([check.to_owned()]);
    match outcome {
        _ if passed => BTreeSet::new(),
        None => whole(),
        Some(outcome) => {
            let tests: BTreeSet<String> =
                outcome.failures().map(|(test, _)| test.to_owned()).collect();
            let is_more = !quality(wanted, None, outcome, &tests).is_empty();
            let named = tests.iter().map(|test| format!("{check}{SEPARATOR}{test}"));
            match is_more || tests.is_empty() {
                true => named.chain(whole()).collect(),
                false => named.collect(),
            }
        }
    }
}

/// Whether a list of failures covers this one: by its name, or by that of its whole check.
#[must_use]
pub fn blames(failing: &BTreeSet<String>, name: &str) -> bool {
    let check = name.split_once(SEPARATOR).map(|(check, _)| check);
    failing.contains(name) || check.is_some_and(|check| failing.contains(check))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Ended, Percent};

    fn named(wanted: &Thresholds, passed: bool, outcome: Option<&Outcome>) -> Vec<String> {
        failures("unit", wanted, passed, outcome).into_iter().collect()
    }

    #[test]
    fn a_report_that_says_it_all_blames_its_tests() {
        let plain = Thresholds::default();
        let mut outcome = Outcome::default();
        outcome.record("adds", Ended::Passed, None, "");
        outcome.record("divides", Ended::Failed, None, "by zero");
        assert_eq!(named(&plain, false, Some(&outcome)), ["unit: divides"]);
        assert_eq!(named(&plain, true, Some(&outcome)), Vec::<String>::new());
        assert_eq!(named(&plain, false, None), ["unit"]);
        assert_eq!(named(&plain, false, Some(&Outcome::default())), ["unit"], "it says nothing");
        let covered = Thresholds { coverage_min: Some(Percent::ALL), ..plain };
        assert_eq!(named(&covered, false, Some(&outcome)), ["unit", "unit: divides"]);
        outcome.break_off("src", "does not compile");
        assert_eq!(named(&plain, false, Some(&outcome)), ["unit", "unit: divides"]);
    }

    #[test]
    fn a_check_that_failed_as_a_whole_covers_its_tests() {
        let whole = BTreeSet::from(["unit".to_owned()]);
        assert!(blames(&whole, "unit") && blames(&whole, "unit: a"));
        assert!(!blames(&whole, "units: a") && !blames(&whole, "lint"));
        let one = BTreeSet::from(["unit: a".to_owned()]);
        assert!(blames(&one, "unit: a") && !blames(&one, "unit: b") && !blames(&one, "unit"));
    }
}
