//! The failure rate of a mission: past a part of failed tasks more of the same is waste.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RatePolicy {
    /// Above this part of failed tasks there is a warning.
    pub warn_permille: u32,
    /// Above this part the mission pauses.
    pub pause_permille: u32,
    /// Below this part of successes only a person may resume it.
    pub success_permille_min: u32,
    /// Before so many tasks have ended, a rate says nothing.
    pub finished_min: u32,
}

impl Default for RatePolicy {
    fn default() -> RatePolicy {
        RatePolicy {
            warn_permille: 100,
            pause_permille: 150,
            success_permille_min: 700,
            finished_min: 10,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("failure rate: {field} makes no sense beside the others")]
pub struct InvalidRate {
    pub field: &'static str,
}

impl RatePolicy {
    pub fn validate(&self) -> Result<(), InvalidRate> {
        let checks = [
            ("warn_permille", self.warn_permille <= self.pause_permille),
            ("pause_permille", self.pause_permille <= 1_000),
            ("success_permille_min", self.success_permille_min <= 1_000),
            ("finished_min", self.finished_min > 0),
        ];
        match checks.into_iter().find(|(_, holds)| !holds) {
            Some((field, _)) => Err(InvalidRate { field }),
            None => Ok(()),
        }
    }
}

/// Who may let a paused mission go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resume {
    Orchestrator,
    Human,
}

impl fmt::Display for Resume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resume::Orchestrator => "the orchestrator",
            Resume::Human => "a person",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    Fine,
    Warn { failed: u32, finished: u32 },
    Pause { failed: u32, finished: u32, resume: Resume },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Fine => f.write_str("the failure rate is fine"),
            Verdict::Warn { failed, finished } => write!(f, "{failed} of {finished} tasks failed"),
            Verdict::Pause { failed, finished, resume } => {
                write!(f, "{failed} of {finished} tasks failed; {resume} has to resume")
            }
        }
    }
}

/// Tasks that ended since the mission began or was last resumed: whoever resumed it knew of the
/// failures before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureRate {
    pub finished: u32,
    pub failed: u32,
}

impl FailureRate {
    #[must_use]
    pub fn verdict(&self, policy: &RatePolicy) -> Verdict {
        let FailureRate { finished, failed } = *self;
        let above =
            |permille: u32| u64::from(failed) * 1_000 > u64::from(finished) * u64::from(permille);
        if finished < policy.finished_min {
            Verdict::Fine
        } else if above(policy.pause_permille) {
            let human = above(1_000u32.saturating_sub(policy.success_permille_min));
            let resume = if human { Resume::Human } else { Resume::Orchestrator };
            Verdict::Pause { failed, finished, resume }
        } else if above(policy.warn_permille) {
            Verdict::Warn { failed, finished }
        } else {
            Verdict::Fine
        }
    }

    /// Fact: a task was completed.
    pub fn succeeded(&mut self) {
        self.finished = self.finished.saturating_add(1);
    }

    /// Fact: a task failed for good.
    pub fn failed(&mut self) {
        self.finished = self.finished.saturating_add(1);
        self.failed = self.failed.saturating_add(1);
    }

    /// Fact: the mission was resumed.
    pub fn resumed(&mut self) {
        *self = FailureRate::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(failed: u32, finished: u32) -> Verdict {
        FailureRate { finished, failed }.verdict(&RatePolicy::default())
    }

    /// RET-09, T-20, C-14: above 10 and 15 percent, and not before ten tasks have ended.
    #[test]
    fn the_mission_is_warned_and_paused_by_its_failure_rate() {
        let pause = |failed, finished, resume| Verdict::Pause { failed, finished, resume };
        let table = [
            (9, 9, Verdict::Fine),
            (1, 10, Verdict::Fine),
            (2, 18, Verdict::Warn { failed: 2, finished: 18 }),
            (3, 20, Verdict::Warn { failed: 3, finished: 20 }),
            (2, 10, pause(2, 10, Resume::Orchestrator)),
            (4, 20, pause(4, 20, Resume::Orchestrator)),
            (3, 10, pause(3, 10, Resume::Orchestrator)),
            (4, 10, pause(4, 10, Resume::Human)),
        ];
        for (failed, finished, expected) in table {
            assert_eq!(verdict(failed, finished), expected, "{failed} of {finished}");
        }
        let said = "4 of 10 tasks failed; a person has to resume";
        assert_eq!(verdict(4, 10).to_string(), said);
    }

    /// The pause comes with the task that crosses the line, not with a later look.
    #[test]
    fn the_task_that_crosses_the_line_pauses_the_mission() {
        let policy = RatePolicy::default();
        let mut rate = FailureRate::default();
        (0..17).for_each(|_| rate.succeeded());
        (0..3).for_each(|_| rate.failed());
        assert!(matches!(rate.verdict(&policy), Verdict::Warn { .. }));
        rate.failed();
        assert!(matches!(rate.verdict(&policy), Verdict::Pause { failed: 4, finished: 21, .. }));
        rate.resumed();
        rate.failed();
        assert_eq!(rate.verdict(&policy), Verdict::Fine, "a resumed mission is counted anew");
    }

    #[test]
    fn rates_that_contradict_each_other_are_refused() {
        assert_eq!(RatePolicy::default().validate(), Ok(()));
        let wrong = RatePolicy { warn_permille: 200, ..RatePolicy::default() };
        assert_eq!(wrong.validate(), Err(InvalidRate { field: "warn_permille" }));
        let wrong = RatePolicy { finished_min: 0, ..RatePolicy::default() };
        assert_eq!(wrong.validate(), Err(InvalidRate { field: "finished_min" }));
    }
}
