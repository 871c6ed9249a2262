//! The queue itself: what waits, what is under way, and the questions that can be asked of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use super::change::{Entry, Key, Place};
use super::lane::{Duty, Lane, LaneId, LaneStage, Step, Work};
use super::policy::MergePolicy;
use super::verdict::StaleWork;
use crate::by_task::ByTask;
use crate::few::FewSet;
use crate::ids::{Commit, TaskId};
use crate::{activity, limits};

#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct MergeQueue {
    pub(super) policy: MergePolicy,
    pub(super) tip: Commit,
    pub(super) entries: ByTask<Box<Entry>>,
    /// Those that wait and need nothing that has not landed. They come in the order of arrival and go
    /// from the front; one that is more urgent moves those behind it, of which a plan has not many.
    pub(super) ready: FewSet<Key>,
    pub(super) needed_by: BTreeMap<TaskId, BTreeSet<TaskId>>,
    /// In the order in which they will land; each is built on the one before.
    pub(super) lanes: Vec<Lane>,
    /// Groups that failed together and have to be halved.
    pub(super) suspects: VecDeque<Vec<TaskId>>,
    pub(super) next_lane: u64,
    pub(super) next_arrival: u64,
    /// How many of those that are ready a plan looks at. A formed lane takes its own with it, and
    /// whoever comes into sight behind them is looked at with the next news.
    pub(super) sight: usize,
    /// Tests that fail on the target itself.
    pub(super) baseline: BTreeSet<String>,
    /// The commit of which `baseline` speaks.
    pub(super) measured: Option<Commit>,
    /// A failure waits to know whether the target has it too.
    pub(super) measuring: bool,
    pub(super) rebasing: BTreeSet<TaskId>,
    /// How often each test failed and then passed on the same commit.
    pub(super) flaky: BTreeMap<String, u32>,
    /// Nobody has taken notice of it yet.
    #[serde(skip)]
    pub(super) news: News,
}

/// What may have to be looked at anew after facts: whatever is not named here is as it was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum News {
    #[default]
    Nothing,
    /// A change came that has to wait, whoever else waits.
    HeldUp,
    /// What is under way for the lanes.
    Lanes,
    /// That, and the first lane that was planned is formed.
    Formed,
    /// That, and who comes next.
    Order,
}

/// Why a change has not landed yet.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Standing {
    Needs {
        first: TaskId,
        count: usize,
    },
    Waiting,
    Building {
        with: usize,
    },
    Testing {
        with: usize,
        run: u32,
    },
    /// Its candidate failed on top of others; theirs may be the fault.
    Held {
        lanes_before: usize,
    },
    /// Its candidate passed; the lanes before it land first.
    Passed {
        lanes_before: usize,
    },
    /// Its batch failed, and the other half is tested first.
    Suspect,
    Rebasing,
}

impl MergeQueue {
    #[must_use]
    pub fn new(policy: MergePolicy, tip: Commit) -> MergeQueue {
        MergeQueue {
            policy,
            tip,
            entries: ByTask::default(),
            ready: FewSet::default(),
            needed_by: BTreeMap::new(),
            lanes: Vec::new(),
            suspects: VecDeque::new(),
            next_lane: 1,
            next_arrival: 1,
            sight: limits::MERGE_LOOKAHEAD_MAX,
            baseline: BTreeSet::new(),
            measured: None,
            measuring: false,
            rebasing: BTreeSet::new(),
            flaky: BTreeMap::new(),
            news: News::Nothing,
        }
    }

    /// What the facts since this was last asked may have changed.
    pub fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    /// Where the target stands, as far as the queue knows.
    #[must_use]
    pub fn tip(&self) -> &Commit {
        &self.tip
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.len() == 0
    }

    /// The changes of a lane, in the order in which they are applied.
    #[must_use]
    pub fn members(&self, lane: LaneId) -> &[TaskId] {
        self.lane_index(lane).map_or(&[], |index| &self.lanes[index].members)
    }

    #[must_use]
    pub fn flaky(&self) -> &BTreeMap<String, u32> {
        &self.flaky
    }

    /// Everything that should be in flight: at most one piece of work a lane.
    #[must_use]
    pub fn due(&self) -> Vec<Work> {
        self.duties().filter_map(|duty| self.work(duty)).collect()
    }

    /// The same by name: what it takes is asked for when somebody starts with it.
    pub(crate) fn duties(&self) -> impl Iterator<Item = Duty> {
        let lanes = (0..self.lanes.len()).filter_map(|index| self.duty(index));
        let rebases = self.rebasing.iter().map(|task| Duty::Rebase(*task));
        lanes.chain(rebases).chain(self.measuring.then_some(Duty::Measure))
    }

    fn duty(&self, index: usize) -> Option<Duty> {
        let lane = &self.lanes[index];
        match &lane.stage {
            LaneStage::Building => self.onto(index).map(|_| Duty::Build(lane.id)),
            LaneStage::Testing { .. } => Some(Duty::Test(lane.id)),
            LaneStage::Held { .. } => None,
            LaneStage::Passed { .. } => {
                self.landing(lane.id).is_ok().then_some(Duty::Land(lane.id))
            }
        }
    }

    /// What it takes; None if that should not be in flight.
    pub(crate) fn work(&self, duty: Duty) -> Option<Work> {
        match duty {
            Duty::Build(lane) => self.build(lane),
            Duty::Test(lane) => match &self.lanes[self.lane_index(lane)?].stage {
                LaneStage::Testing { candidate, failed, .. } => {
                    let run = u32::try_from(failed.len()).unwrap_or(u32::MAX).saturating_add(1);
                    Some(Work::Test { lane, candidate: candidate.clone(), run })
                }
                LaneStage::Building | LaneStage::Held { .. } | LaneStage::Passed { .. } => None,
            },
            Duty::Land(lane) => self.landing(lane).ok(),
            Duty::Rebase(task) => {
                let entry = self.entries.get(task).filter(|_| self.rebasing.contains(&task))?;
                let (change, onto) = (entry.change.commit.clone(), self.tip.clone());
                Some(Work::Rebase { task, change, onto })
            }
            Duty::Measure => self.measuring.then(|| Work::Measure { tip: self.tip.clone() }),
        }
    }

    fn build(&self, lane: LaneId) -> Option<Work> {
        let index = self.lane_index(lane)?;
        let Lane { stage: LaneStage::Building, members, .. } = &self.lanes[index] else {
            return None;
        };
        let commit = |task: &TaskId| Some((*task, self.entries.get(*task)?.change.commit.clone()));
        let mut changes = Vec::with_capacity(members.len());
        changes.extend(members.iter().filter_map(commit));
        Some(Work::Build { lane, onto: self.onto(index)?.clone(), changes })
    }

    /// The number that the next lane gets.
    #[must_use]
    pub fn next_lane(&self) -> LaneId {
        LaneId(self.next_lane)
    }

    #[must_use]
    pub fn lane_of(&self, task: TaskId) -> Option<LaneId> {
        match self.entries.get(task)?.place {
            Place::Lane(lane) => Some(lane),
            Place::Waiting | Place::Behind(_) | Place::Suspect | Place::Rebasing => None,
        }
    }

    /// The members of all lanes with the candidate that each is in, if it is built, and whether
    /// that has passed.
    pub fn aboard(&self) -> impl Iterator<Item = (TaskId, Option<&Commit>, bool)> {
        self.lanes.iter().flat_map(|lane| {
            let passed = matches!(lane.stage, LaneStage::Passed { .. });
            lane.members.iter().map(move |task| (*task, lane.stage.candidate(), passed))
        })
    }

    /// What a lane that lands brings, in order: the change, the commit before it, the one with it.
    #[must_use]
    pub fn brings(&self, lane: LaneId) -> Vec<(TaskId, Commit, Commit)> {
        let Some(index) = self.lane_index(lane) else { return Vec::new() };
        let mut before = self.tip.clone();
        let step = |step: &Step| {
            let before = std::mem::replace(&mut before, step.commit.clone());
            (step.task, before, step.commit.clone())
        };
        self.lanes[index].steps.iter().map(step).collect()
    }

    /// Whether this lane may advance the target now, and from where to where.
    pub fn landing(&self, lane: LaneId) -> Result<Work, StaleWork> {
        let first = self.lanes.first().filter(|first| first.id == lane);
        match first.map(|first| &first.stage) {
            Some(LaneStage::Passed { onto, candidate, .. }) if *onto == self.tip => {
                Ok(Work::Land { lane, from: onto.clone(), to: candidate.clone() })
            }
            Some(_) | None => Err(StaleWork::NotLanding { lane }),
        }
    }

    /// Why a change has not landed; None if it is not here.
    #[must_use]
    pub fn standing(&self, task: TaskId) -> Option<Standing> {
        let entry = self.entries.get(task)?;
        Some(match entry.place {
            Place::Waiting => match entry.change.needs.first() {
                Some(first) => Standing::Needs { first: *first, count: entry.change.needs.len() },
                None => Standing::Waiting,
            },
            Place::Behind(_) | Place::Suspect => Standing::Suspect,
            Place::Rebasing => Standing::Rebasing,
            Place::Lane(id) => {
                let index = self.lane_index(id)?;
                let lane = &self.lanes[index];
                let with = lane.members.len().saturating_sub(1);
                match &lane.stage {
                    LaneStage::Building => Standing::Building { with },
                    LaneStage::Testing { failed, .. } => Standing::Testing {
                        with,
                        run: u32::try_from(failed.len()).unwrap_or(u32::MAX).saturating_add(1),
                    },
                    LaneStage::Held { .. } => Standing::Held { lanes_before: index },
                    LaneStage::Passed { .. } => Standing::Passed { lanes_before: index },
                }
            }
        })
    }

    pub(super) fn lane_index(&self, id: LaneId) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.id == id)
    }

    /// What the lane at `index` is built on: the candidate before it, or the tip.
    pub(super) fn onto(&self, index: usize) -> Option<&Commit> {
        match index.checked_sub(1) {
            Some(before) => self.lanes[before].stage.candidate(),
            None => Some(&self.tip),
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Standing::Needs { count, .. } => {
                let changes = activity::count(*count, "change");
                write!(f, "waits in the merge queue for {changes} that it needs")
            }
            Standing::Waiting => f.write_str("waits for its turn in the merge queue"),
            Standing::Building { with: 0 } => f.write_str("is being merged"),
            Standing::Building { with } => {
                write!(f, "is being merged with {}", activity::count(*with, "other"))
            }
            Standing::Testing { with: 0, run: 1 } => f.write_str("its candidate is being tested"),
            Standing::Testing { with, run: 1 } => {
                write!(f, "its candidate is being tested, with {}", activity::count(*with, "other"))
            }
            Standing::Testing { run, .. } => {
                write!(f, "its candidate failed and is being tested again (run {run})")
            }
            Standing::Held { lanes_before } => {
                let before = activity::count(*lanes_before, "candidate");
                write!(f, "failed on top of {before} judged first")
            }
            Standing::Passed { lanes_before: 0 } => f.write_str("passed, and lands"),
            Standing::Passed { lanes_before } => {
                let before = activity::count(*lanes_before, "other candidate");
                write!(f, "passed, and lands after {before}")
            }
            Standing::Suspect => f.write_str("its batch failed; the culprit is being looked for"),
            Standing::Rebasing => f.write_str("conflicts with the target and is being rebased"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `why` says these to people, word for word.
    #[test]
    fn each_standing_is_a_sentence() {
        let said = [
            (
                Standing::Needs { first: TaskId(1), count: 1 },
                "waits in the merge queue for 1 change that it needs",
            ),
            (Standing::Waiting, "waits for its turn in the merge queue"),
            (Standing::Building { with: 0 }, "is being merged"),
            (Standing::Building { with: 2 }, "is being merged with 2 others"),
            (Standing::Testing { with: 0, run: 1 }, "its candidate is being tested"),
            (Standing::Testing { with: 1, run: 1 }, "its candidate is being tested, with 1 other"),
            (
                Standing::Testing { with: 0, run: 2 },
                "its candidate failed and is being tested again (run 2)",
            ),
            (Standing::Held { lanes_before: 1 }, "failed on top of 1 candidate judged first"),
            (Standing::Passed { lanes_before: 0 }, "passed, and lands"),
            (Standing::Passed { lanes_before: 2 }, "passed, and lands after 2 other candidates"),
            (Standing::Suspect, "its batch failed; the culprit is being looked for"),
            (Standing::Rebasing, "conflicts with the target and is being rebased"),
        ];
        for (standing, sentence) in said {
            assert_eq!(standing.to_string(), sentence);
        }
    }
}
