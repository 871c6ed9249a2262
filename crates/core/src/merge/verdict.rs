//! What follows from a test run or a conflict.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::change::Company;
use super::lane::{Lane, LaneId, LaneStage};
use super::queue::MergeQueue;
use crate::ids::{Commit, TaskId};
use crate::limits;

/// The names of the tests or checks that failed on a candidate; none means that all passed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestReport {
    pub failed: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum AfterTests {
    /// It may land when its turn comes.
    Passed { flaky: Vec<String>, excused: Vec<String> },
    /// It stands on candidates that are still being tested; their verdict comes first.
    Held { failed: Vec<String> },
    /// The same commit is tested once more before anybody is blamed.
    TestAgain { failed: Vec<String> },
    /// It failed again, but nobody has tested the target itself since it was moved.
    Doubted { failed: Vec<String> },
    /// One of several is at fault: the suspects are halved, the others go back to the queue.
    Halved { suspects: Vec<TaskId>, released: Vec<TaskId>, failed: Vec<String> },
    /// It failed alone, twice, on the tip that everybody else passed on.
    Blamed { culprit: TaskId, released: Vec<TaskId>, failed: Vec<String> },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterConflict {
    /// It may have conflicted with its company only: it is tried alone.
    TryAlone,
    /// The one automatic rebase.
    Rebase,
    AskPerson,
}

/// The answer is for work that is no longer wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StaleWork {
    #[error("there is no lane {0}")]
    NoLane(LaneId),
    #[error("lane {lane} is not testing {candidate}")]
    NotTesting { lane: LaneId, candidate: Commit },
    #[error("lane {lane} is not being built on {onto}")]
    NotBuilding { lane: LaneId, onto: Commit },
    #[error("task number {} is not in lane {lane}", task.0)]
    NotAboard { lane: LaneId, task: TaskId },
    #[error("lane {lane} is not the first with a passed candidate")]
    NotLanding { lane: LaneId },
}

impl MergeQueue {
    /// What a test run of `candidate` means. Failures that the target already had are nobody's.
    pub fn after_tests(
        &self,
        lane: LaneId,
        candidate: &Commit,
        report: &TestReport,
    ) -> Result<AfterTests, StaleWork> {
        let index = self.lane_index(lane).ok_or(StaleWork::NoLane(lane))?;
        let found = &self.lanes[index];
        let LaneStage::Testing { candidate: testing, failed: earlier, .. } = &found.stage else {
            return Err(StaleWork::NotTesting { lane, candidate: candidate.clone() });
        };
        if testing != candidate {
            return Err(StaleWork::NotTesting { lane, candidate: candidate.clone() });
        }
        let named = |names: Vec<&String>| -> Vec<String> {
            names.into_iter().take(limits::MERGE_TESTS_NAMED_MAX).cloned().collect()
        };
        let (excused, blamed): (Vec<&String>, Vec<&String>) =
            report.failed.iter().partition(|name| self.baseline.contains(*name));
        if blamed.is_empty() {
            let flaky: BTreeSet<&String> =
                earlier.iter().flatten().filter(|name| !report.failed.contains(*name)).collect();
            let flaky = flaky.into_iter().filter(|name| !self.baseline.contains(*name)).collect();
            return Ok(AfterTests::Passed { flaky: named(flaky), excused: named(excused) });
        }
        let failed = named(blamed);
        let judged = |lane: &Lane| matches!(lane.stage, LaneStage::Passed { .. });
        if !self.lanes[..index].iter().all(judged) {
            return Ok(AfterTests::Held { failed });
        }
        if (earlier.len() as u64) < u64::from(self.policy.flake_retries_max) {
            return Ok(AfterTests::TestAgain { failed });
        }
        if self.measured.as_ref() != Some(&self.tip) {
            return Ok(AfterTests::Doubted { failed });
        }
        let released = found.behind.clone();
        Ok(match found.members.as_slice() {
            [culprit] => AfterTests::Blamed { culprit: *culprit, released, failed },
            suspects => AfterTests::Halved { suspects: suspects.to_vec(), released, failed },
        })
    }

    /// What follows when `task` could not be applied while `lane` was built on `onto`.
    pub fn after_conflict(
        &self,
        lane: LaneId,
        onto: &Commit,
        task: TaskId,
    ) -> Result<AfterConflict, StaleWork> {
        let index = self.lane_index(lane).ok_or(StaleWork::NoLane(lane))?;
        let found = &self.lanes[index];
        if found.stage != LaneStage::Building || self.onto(index) != Some(onto) {
            return Err(StaleWork::NotBuilding { lane, onto: onto.clone() });
        }
        if !found.members.contains(&task) {
            return Err(StaleWork::NotAboard { lane, task });
        }
        let entry = self.entries.get(task);
        let alone = found.members.len() == 1 && index == 0;
        Ok(match entry {
            Some(entry) if !alone && entry.company == Company::Any => AfterConflict::TryAlone,
            Some(entry) if entry.rebases < self.policy.rebases_max => AfterConflict::Rebase,
            Some(_) | None => AfterConflict::AskPerson,
        })
    }
}

impl fmt::Display for AfterTests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AfterTests::Passed { flaky, excused } => {
                f.write_str("all checks passed")?;
                if !flaky.is_empty() {
                    write!(f, "; flaky: {}", flaky.join(", "))?;
                }
                if !excused.is_empty() {
                    write!(f, "; failed before already: {}", excused.join(", "))?;
                }
                Ok(())
            }
            AfterTests::Held { failed } => write!(
                f,
                "{} failed on top of candidates that are still being tested",
                failed.join(", ")
            ),
            AfterTests::TestAgain { failed } => {
                write!(f, "{} failed; tested once more before anybody is blamed", failed.join(", "))
            }
            AfterTests::Doubted { failed } => {
                write!(f, "{} failed; the target itself is tested next", failed.join(", "))
            }
            AfterTests::Halved { suspects, failed, .. } => write!(
                f,
                "{} failed on a batch of {}; the batch is halved to find the culprit",
                failed.join(", "),
                suspects.len()
            ),
            AfterTests::Blamed { failed, .. } => {
                write!(f, "{} failed with this change alone on the target", failed.join(", "))
            }
        }
    }
}

impl fmt::Display for AfterConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AfterConflict::TryAlone => "it conflicts with its batch and is tried alone",
            AfterConflict::Rebase => "it conflicts with the target and is rebased, once",
            AfterConflict::AskPerson => "it still conflicts after its rebase; a person has to look",
        })
    }
}
