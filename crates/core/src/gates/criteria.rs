//! The definition of done: criteria of a task, as far as a machine can judge them (TDD-07, 13).
//!
//! A plan writes criteria as sentences. Three forms can be judged without a person: `$ command`,
//! `check: name` and `test: name`. The rest is for a judge or a person, and stays open until then.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::objection::Objection;
use crate::outcome::{Ended, Outcome};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Criterion {
    /// Run as a check; it has to exit with 0.
    Command { command: String },
    /// The check of this name passes.
    Check { name: String },
    /// The test of this name passes.
    Test { name: String },
    /// For a judge or a person.
    Sentence { text: String },
}

/// How a criterion was judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judged {
    Met,
    NotMet,
    /// Nobody has said yet.
    Open,
}

/// All criteria of a task with what became of them, in the plan's order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    pub criteria: Vec<(String, Judged)>,
}

impl Criterion {
    #[must_use]
    pub fn parse(text: &str) -> Criterion {
        let text = text.trim();
        let after =
            |prefix: &str| text.strip_prefix(prefix).map(str::trim).filter(|rest| !rest.is_empty());
        if let Some(command) = after("$ ") {
            return Criterion::Command { command: command.to_owned() };
        }
        if let Some(name) = after("check:") {
            return Criterion::Check { name: name.to_owned() };
        }
        match after("test:") {
            Some(name) => Criterion::Test { name: name.to_owned() },
            None => Criterion::Sentence { text: text.to_owned() },
        }
    }
}

impl Done {
    /// Judges criteria. `checks` is whether each check passed, commands of criteria by their own
    /// text; `said` is what a judge or a person said about a sentence.
    #[must_use]
    pub fn judge(
        criteria: &[String],
        checks: &BTreeMap<String, bool>,
        outcomes: &[&Outcome],
        said: &BTreeMap<String, bool>,
    ) -> Done {
        let by = |word: Option<&bool>| match word {
            Some(true) => Judged::Met,
            Some(false) => Judged::NotMet,
            None => Judged::Open,
        };
        let judge = |text: &String| match Criterion::parse(text) {
            Criterion::Command { command } => by(checks.get(&command)),
            Criterion::Check { name } => by(checks.get(&name)),
            Criterion::Test { name } => judge_test(&name, outcomes),
            Criterion::Sentence { text } => by(said.get(&text)),
        };
        Done { criteria: criteria.iter().map(|text| (text.clone(), judge(text))).collect() }
    }

    #[must_use]
    pub fn is_met(&self) -> bool {
        self.criteria.iter().all(|(_, judged)| *judged == Judged::Met)
    }

    #[must_use]
    pub fn objections(&self) -> Vec<Objection> {
        let unmet = self.criteria.iter().filter(|(_, judged)| *judged == Judged::NotMet);
        unmet.map(|(text, _)| Objection::NotMet { criterion: text.clone() }).collect()
    }
}

/// A named test that did not run anywhere does not meet anything.
fn judge_test(name: &str, outcomes: &[&Outcome]) -> Judged {
    let worst = outcomes.iter().filter_map(|outcome| outcome.ended(name)).max();
    match worst {
        Some(Ended::Passed | Ended::Flaky) => Judged::Met,
        Some(Ended::Failed | Ended::Skipped) => Judged::NotMet,
        None if outcomes.is_empty() => Judged::Open,
        None => Judged::NotMet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_can_judge_is_judged_and_the_rest_stays_open() {
        let criteria = [
            "$ make lint",
            "check: test",
            "test: adds",
            "test: gone",
            "It reads well",
            "check: other",
            "$ ",
        ];
        let criteria: Vec<String> = criteria.iter().map(ToString::to_string).collect();
        let checks = BTreeMap::from([("make lint".into(), true), ("test".into(), false)]);
        let mut outcome = Outcome::default();
        outcome.record("adds", Ended::Passed, None, "");
        let said = BTreeMap::from([("It reads well".into(), true)]);
        let done = Done::judge(&criteria, &checks, &[&outcome], &said);
        let judged: Vec<Judged> = done.criteria.iter().map(|(_, judged)| *judged).collect();
        use Judged::{Met, NotMet, Open};
        assert_eq!(judged, [Met, NotMet, Met, NotMet, Met, Open, Open]);
        let unmet = |text: &str| Objection::NotMet { criterion: text.into() };
        assert_eq!(done.objections(), [unmet("check: test"), unmet("test: gone")]);
        assert!(!done.is_met());
        assert!(Done::judge(&criteria[..1], &checks, &[], &said).is_met());
    }
}
