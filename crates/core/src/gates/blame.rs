//! What a failed check blames: its tests, where the report names all that is wrong, else the check as
//! a whole.
//!
//! With names a failure that was there before is told from a new one, and a test that fails now
//! and then from a change that breaks it.

use std::collections::BTreeSet;

use super::quality::{Thresholds, quality};
use crate::limits;
use crate::outcome::Outcome;

/// Between the name of a check and that of a test.
const SEPARATOR: &str = ": ";

/// Everything that fails in a check, by name: `check: test` for each test, `check: what is wrong`
/// for whatever is no test, and `check` alone if nothing of it is known. Names are compared as they
/// are: coverage that is missing does not excuse a test that fails.
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
            let more = quality(wanted, None, outcome, &tests);
            let more = more.iter().take(limits::OBJECTIONS_MAX).map(ToString::to_string);
            let all = tests.iter().cloned().chain(more);
            let named: BTreeSet<String> = all.map(|what| name(check, &what)).collect();
            if named.is_empty() { whole() } else { named }
        }
    }
}

/// How something that fails in a check is called.
#[must_use]
pub fn name(check: &str, what: &str) -> String {
    format!("{check}{SEPARATOR}{what}")
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
        let bare = "unit: no coverage was measured; at least 100.00 % is asked for";
        assert_eq!(named(&covered, false, Some(&outcome)), ["unit: divides", bare]);
        outcome.break_off("src", "does not compile");
        let broken = "unit: src cannot be built or loaded: does not compile";
        assert_eq!(named(&plain, false, Some(&outcome)), ["unit: divides", broken]);
    }
}
