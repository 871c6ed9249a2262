//! Flaky tests: those that pass and fail on one and the same commit (TDD-12).
//!
//! A test that fails after a change may be right. A test that does both without a change says
//! nothing, and whoever waits for it pays for that. So the only evidence is a contradiction on one
//! commit; a test that fails on many commits is broken, not flaky.
//!
//! A plain value: questions by `&self`, facts by `&mut self`. It suggests; the engine puts a test
//! into quarantine, where its failures are told but not held against a change, and lets it out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::gates;
use crate::ids::Commit;
use crate::limits;
use crate::outcome::{Ended, Outcome, Percent};

/// When to suggest something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlakyPolicy {
    /// A single contradiction may be the machine's fault.
    pub contradictions_min: u32,
    /// As many passes in a row as make a return of the flake unlikely.
    pub passes_to_release: u32,
}

impl Default for FlakyPolicy {
    fn default() -> FlakyPolicy {
        FlakyPolicy { contradictions_min: 2, passes_to_release: 15 }
    }
}

/// A rule that would put every test away, or let none out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("flaky tests: {field} must be between 1 and {max}")]
pub struct InvalidFlaky {
    pub field: &'static str,
    pub max: usize,
}

impl FlakyPolicy {
    pub fn validate(&self) -> Result<(), InvalidFlaky> {
        let max = limits::HISTORY_RUNS_MAX;
        let bounds = [
            ("contradictions_min", self.contradictions_min),
            ("passes_to_release", self.passes_to_release),
        ];
        let wrong = bounds.into_iter().find(|(_, found)| !(1..=max).contains(&(*found as usize)));
        wrong.map_or(Ok(()), |(field, _)| Err(InvalidFlaky { field, max }))
    }
}

/// What is remembered of all tests, by check and name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    tests: BTreeMap<String, Runs>,
    quarantined: BTreeSet<String>,
    /// Those about which something should be done.
    suggested: BTreeSet<String>,
    policy: FlakyPolicy,
    /// Counts runs, to know which tests are no longer seen.
    clock: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Runs {
    /// The latest last.
    recent: VecDeque<Run>,
    seen: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    commit: CommitTag,
    ended: Ended,
}

/// A commit in 64 bits: twenty runs of many tests are kept, and of twenty commits no two agree by
/// accident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct CommitTag(u64);

/// What the remembered runs of a test say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flakiness {
    pub runs: u32,
    pub failures: u32,
    /// Commits on which it did both.
    pub contradictions: u32,
    /// Commits on which it could have: it ran more than once there, or was tried again.
    pub chances: u32,
    passes_since: u32,
}

impl Flakiness {
    #[must_use]
    pub fn is_flaky(&self) -> bool {
        self.contradictions > 0
    }

    /// How often it contradicted itself where it could.
    #[must_use]
    pub fn rate(&self) -> Percent {
        match self.chances {
            0 => Percent(0),
            chances => Percent::of(self.contradictions.into(), chances.into()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "suggestion", rename_all = "snake_case")]
pub enum Suggestion {
    Quarantine { test: String, contradictions: u32, rate: Percent },
    Release { test: String, passes: u32 },
}

impl History {
    /// Fact: the tests of a check ran on a commit.
    pub fn ran(&mut self, commit: &Commit, check: &str, outcome: &Outcome) {
        self.clock += 1;
        let commit = CommitTag::of(commit);
        for (test, case) in &outcome.tests {
            if case.ended == Ended::Skipped {
                continue;
            }
            let name = gates::name(check, test);
            let runs = self.tests.entry(name.clone()).or_default();
            runs.seen = self.clock;
            runs.recent.push_back(Run { commit, ended: case.ended });
            if runs.recent.len() > limits::HISTORY_RUNS_MAX {
                runs.recent.pop_front();
            }
            self.consider(&name);
        }
        self.forget_surplus();
    }

    /// Fact: other rules hold from now on.
    pub fn configured(&mut self, policy: FlakyPolicy) {
        if self.policy != policy {
            self.policy = policy;
            let all: Vec<String> = self.tests.keys().cloned().collect();
            all.iter().for_each(|name| self.consider(name));
        }
    }

    /// Keeps the tests about which something should be done.
    fn consider(&mut self, name: &str) {
        match self.suggestion(name) {
            Some(_) => drop(self.suggested.insert(name.to_owned())),
            None => drop(self.suggested.remove(name)),
        }
    }

    fn suggestion(&self, name: &str) -> Option<Suggestion> {
        let found = self.tests.get(name)?.flakiness();
        let (test, is_out) = (name.to_owned(), self.quarantined.contains(name));
        if is_out && found.passes_since >= self.policy.passes_to_release {
            return Some(Suggestion::Release { test, passes: found.passes_since });
        }
        let is_bad = found.contradictions >= self.policy.contradictions_min;
        let (contradictions, rate) = (found.contradictions, found.rate());
        (!is_out && is_bad).then_some(Suggestion::Quarantine { test, contradictions, rate })
    }

    /// Whether the test passed and failed on this very commit.
    #[must_use]
    pub fn contradicts(&self, commit: &Commit, test: &str) -> bool {
        let tag = CommitTag::of(commit);
        let runs = self.tests.get(test).map(|runs| &runs.recent).into_iter().flatten();
        let ends: BTreeSet<Ended> =
            runs.filter(|run| run.commit == tag).map(|run| run.ended).collect();
        ends.contains(&Ended::Flaky)
            || (ends.contains(&Ended::Passed) && ends.contains(&Ended::Failed))
    }

    /// Fact: failures of this test are no longer held against a change.
    pub fn quarantined(&mut self, test: &str) {
        if self.tests.contains_key(test) {
            self.quarantined.insert(test.to_owned());
        }
        self.consider(test);
    }

    /// Fact: its failures count again. What it did before is forgotten.
    pub fn released(&mut self, test: &str) {
        if self.quarantined.remove(test)
            && let Some(runs) = self.tests.get_mut(test)
        {
            runs.recent.clear();
        }
        self.consider(test);
    }

    /// Tests whose failures are excused.
    #[must_use]
    pub fn quarantine(&self) -> &BTreeSet<String> {
        &self.quarantined
    }

    #[must_use]
    pub fn flakiness(&self, test: &str) -> Option<Flakiness> {
        self.tests.get(test).map(Runs::flakiness)
    }

    /// Every test that contradicted itself, by name.
    pub fn flaky(&self) -> impl Iterator<Item = (&str, Flakiness)> {
        let all = self.tests.iter().map(|(name, runs)| (name.as_str(), runs.flakiness()));
        all.filter(|(_, flakiness)| flakiness.is_flaky())
    }

    /// What should be done, by the name of the test.
    pub fn suggestions(&self) -> impl Iterator<Item = Suggestion> {
        self.suggested.iter().filter_map(|name| self.suggestion(name))
    }

    /// Tests are renamed and removed; their history must not pile up.
    fn forget_surplus(&mut self) {
        let surplus = self.tests.len().saturating_sub(limits::HISTORY_TESTS_MAX);
        if surplus == 0 {
            return;
        }
        let mut by_age: Vec<(u64, String)> =
            self.tests.iter().map(|(name, runs)| (runs.seen, name.clone())).collect();
        by_age.sort();
        for (_, name) in by_age.into_iter().take(surplus) {
            self.tests.remove(&name);
            self.quarantined.remove(&name);
            self.suggested.remove(&name);
        }
    }
}

impl Runs {
    fn flakiness(&self) -> Flakiness {
        let mut by_commit: BTreeMap<CommitTag, (u32, u32, bool)> = BTreeMap::new();
        for run in &self.recent {
            let (passed, failed, tried_again) = by_commit.entry(run.commit).or_default();
            match run.ended {
                Ended::Failed => *failed += 1,
                Ended::Flaky => *tried_again = true,
                Ended::Passed | Ended::Skipped => *passed += 1,
            }
        }
        let did_both = |(passed, failed, tried_again): &(u32, u32, bool)| {
            *tried_again || (*passed > 0 && *failed > 0)
        };
        let could = |counts: &(u32, u32, bool)| counts.2 || counts.0 + counts.1 > 1;
        let passes = self.recent.iter().rev().take_while(|run| run.ended == Ended::Passed);
        Flakiness {
            runs: small(self.recent.len()),
            failures: small(self.recent.iter().filter(|run| run.ended == Ended::Failed).count()),
            contradictions: small(by_commit.values().filter(|counts| did_both(counts)).count()),
            chances: small(by_commit.values().filter(|counts| could(counts)).count()),
            passes_since: small(passes.count()),
        }
    }
}

impl CommitTag {
    fn of(commit: &Commit) -> CommitTag {
        // FNV-1a.
        let mix = |tag: u64, byte: u8| (tag ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        CommitTag(commit.as_str().bytes().fold(0xcbf2_9ce4_8422_2325, mix))
    }
}

fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(number: u8) -> Commit {
        format!("{number:02x}").repeat(20).parse().unwrap()
    }

    const T: &str = "unit: t";

    /// A history of one test: on which commit it ended how.
    fn history(runs: &[(u8, Ended)]) -> History {
        let mut history = History::default();
        history.configured(FlakyPolicy { contradictions_min: 2, passes_to_release: 3 });
        for (number, ended) in runs {
            let mut outcome = Outcome::default();
            outcome.record("t", *ended, None, "");
            history.ran(&commit(*number), "unit", &outcome);
        }
        history
    }

    use Ended::{Failed, Flaky, Passed, Skipped};

    #[test]
    fn only_a_contradiction_on_one_commit_is_flaky() {
        let found = |runs: &[(u8, Ended)]| history(runs).flakiness(T).unwrap();
        assert!(!found(&[(1, Passed), (2, Failed), (3, Passed)]).is_flaky());
        assert!(!found(&[(1, Failed), (1, Failed)]).is_flaky());
        assert!(found(&[(1, Passed), (2, Passed), (1, Failed)]).is_flaky());
        assert!(found(&[(1, Flaky)]).is_flaky());
        assert_eq!(history(&[(1, Skipped)]).flakiness(T), None);
    }

    #[test]
    fn the_rate_is_over_the_commits_where_it_could_show() {
        let runs = [(1, Passed), (1, Failed), (2, Passed), (2, Passed), (3, Failed)];
        let found = history(&runs).flakiness(T).unwrap();
        assert_eq!((found.contradictions, found.chances, found.rate()), (1, 2, Percent(5_000)));
        assert_eq!((found.runs, found.failures), (5, 2));
        assert_eq!(history(&[(3, Failed)]).flakiness(T).unwrap().rate(), Percent(0));
    }

    /// Quarantine comes after the second contradiction and goes after a long row of passes.
    #[test]
    fn quarantine_is_suggested_and_so_is_its_end() {
        let all = |history: &History| history.suggestions().collect::<Vec<_>>();
        let once = [(1, Passed), (1, Failed)];
        assert_eq!(all(&history(&once)), []);
        let mut history = history(&[(1, Passed), (1, Failed), (2, Failed), (2, Passed)]);
        let quarantine =
            Suggestion::Quarantine { test: T.into(), contradictions: 2, rate: Percent::ALL };
        assert_eq!(all(&history), [quarantine]);
        history.quarantined(T);
        assert!(history.quarantine().contains(T));
        assert_eq!(all(&history), []);
        let mut passed = Outcome::default();
        passed.record("t", Passed, None, "");
        history.ran(&commit(3), "unit", &passed);
        history.ran(&commit(4), "unit", &passed);
        assert_eq!(all(&history), [Suggestion::Release { test: T.into(), passes: 3 }]);
        history.released(T);
        assert_eq!(all(&history), [], "the past is forgotten with the release");
    }

    #[test]
    fn a_contradiction_is_told_of_its_commit() {
        let found = history(&[(1, Passed), (1, Failed), (2, Passed), (3, Flaky)]);
        let both = [1, 2, 3].map(|number| found.contradicts(&commit(number), T));
        assert_eq!(both, [true, false, true]);
    }

    #[test]
    fn rules_that_put_everything_away_are_refused() {
        assert_eq!(FlakyPolicy::default().validate(), Ok(()));
        let all = FlakyPolicy { contradictions_min: 0, ..FlakyPolicy::default() };
        assert_eq!(all.validate().map_err(|e| e.field), Err("contradictions_min"));
        let never = FlakyPolicy { passes_to_release: 21, ..FlakyPolicy::default() };
        assert_eq!(never.validate().map_err(|e| e.field), Err("passes_to_release"));
    }

    #[test]
    fn a_test_that_is_not_known_cannot_be_put_away() {
        let mut history = history(&[(1, Passed)]);
        history.quarantined("other");
        assert!(history.quarantine().is_empty());
    }

    #[test]
    fn history_forgets_old_runs_and_old_tests() {
        let mut runs = vec![(1, Passed), (1, Failed)];
        runs.extend(vec![(2, Passed); limits::HISTORY_RUNS_MAX]);
        assert!(!history(&runs).flakiness(T).unwrap().is_flaky());
        let mut history = history(&[(1, Passed)]);
        for half in 0..2 {
            let mut outcome = Outcome::default();
            for number in 0..limits::TESTS_NAMED_MAX {
                outcome.record(&format!("{half} {number}"), Passed, None, "");
            }
            history.ran(&commit(2), "unit", &outcome);
        }
        assert_eq!(history.tests.len(), limits::HISTORY_TESTS_MAX);
        assert_eq!(history.flakiness(T), None, "it was not seen for the longest time");
    }
}
