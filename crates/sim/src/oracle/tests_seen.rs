//! Invariants of quarantine: only a test that passed and failed on one commit, often enough, is put
//! away; none that did so stays in, and it comes back after enough passes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kapelle_core::command::CheckResult;
use kapelle_core::flaky::FlakyPolicy;
use kapelle_core::limits::HISTORY_RUNS_MAX;
use kapelle_core::outcome::Ended;
use kapelle_core::{Commit, Event};

use super::{Verdict, ensure};

#[derive(Debug, Default)]
pub(super) struct TestsSeen {
    rules: FlakyPolicy,
    /// By name, with its check before it: the latest runs, the last one last.
    runs: BTreeMap<String, VecDeque<(Commit, Ended)>>,
    put_away: BTreeSet<String>,
}

impl TestsSeen {
    pub(super) fn observe(&mut self, event: &Event) -> Verdict {
        match event {
            Event::SettingsChanged { settings, .. } => self.rules = settings.flaky,
            Event::ChecksFinished { commit, results, .. }
            | Event::BaselineMeasured { commit, results, .. }
            | Event::LaneTested { candidate: commit, results, .. } => self.ran(commit, results),
            Event::TestQuarantined { test, .. } => {
                let often = self.contradictions(test) >= self.rules.contradictions_min;
                ensure(often && self.put_away.insert(test.clone()), || {
                    format!("{test} is put away without need")
                })?;
            }
            Event::TestReleased { test, .. } => {
                let enough = self.passes(test) >= self.rules.passes_to_release;
                ensure(enough && self.put_away.remove(test), || {
                    format!("{test} is believed too early")
                })?;
                self.runs.remove(test);
            }
            _ => {}
        }
        Ok(())
    }

    fn ran(&mut self, commit: &Commit, results: &[CheckResult]) {
        for result in results {
            let first = result.earlier.as_ref().and_then(|run| run.outcome.as_ref());
            let runs = first.into_iter().chain(result.outcome.as_deref());
            for (test, case) in runs.flat_map(|outcome| &outcome.tests) {
                let runs = self.runs.entry(format!("{}: {test}", result.name)).or_default();
                runs.push_back((commit.clone(), case.ended));
                while runs.len() > HISTORY_RUNS_MAX {
                    runs.pop_front();
                }
            }
        }
    }

    fn contradictions(&self, test: &str) -> u32 {
        let mut ends: BTreeMap<&Commit, BTreeSet<Ended>> = BTreeMap::new();
        for (commit, ended) in self.runs.get(test).into_iter().flatten() {
            ends.entry(commit).or_default().insert(*ended);
        }
        let both = |ends: &&BTreeSet<Ended>| {
            ends.contains(&Ended::Flaky)
                || (ends.contains(&Ended::Passed) && ends.contains(&Ended::Failed))
        };
        ends.values().filter(both).count() as u32
    }

    fn passes(&self, test: &str) -> u32 {
        let runs = self.runs.get(test).into_iter().flatten().rev();
        runs.take_while(|(_, ended)| *ended == Ended::Passed).count() as u32
    }

    /// After a batch: whatever is known of a test has been acted upon.
    pub(super) fn close(&self) -> Verdict {
        for test in self.runs.keys() {
            let away = self.put_away.contains(test);
            let late = match away {
                true => self.passes(test) >= self.rules.passes_to_release,
                false => self.contradictions(test) >= self.rules.contradictions_min,
            };
            ensure(!late, || format!("{test} is put away: {away}, and should not be"))?;
        }
        Ok(())
    }
}
