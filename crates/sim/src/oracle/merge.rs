//! Invariants of merging: what is built on what, who is blamed, what lands, what is taken back.
//!
//! A second, plain model of the lanes, kept from the journal alone.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_core::approval::{OverrideAction, Subject};
use kapelle_core::command::CheckResult;
use kapelle_core::council::Question;
use kapelle_core::event::{Chore, Event, Restart};
use kapelle_core::merge::{AfterConflict, AfterTests, LaneId, Step};
use kapelle_core::{Commit, Fence, MissionId, TaskId};

use super::leases::Leases;
use super::work::Work;
use super::{Facts, Verdict, ensure};
use crate::repository::{Repository, failed};

#[derive(Debug, Default)]
pub(super) struct Merges {
    missions: BTreeMap<MissionId, Lanes>,
    /// Candidates that may land: tested, or proved before.
    passed: BTreeSet<Commit>,
    files: BTreeMap<TaskId, BTreeSet<String>>,
    accepted: BTreeMap<TaskId, Commit>,
    rebases: BTreeMap<TaskId, u32>,
    /// Chores that rebase or reverse: a conflict in one of them is the last word.
    rewrites: BTreeSet<Fence>,
    /// What was blamed and must be rejected before the batch ends, and nothing else may be.
    blamed: BTreeSet<TaskId>,
    /// What landed and must be told before the batch ends.
    untold: BTreeSet<TaskId>,
    rollbacks: BTreeMap<TaskId, Vec<TaskId>>,
}

/// The lanes of a mission in the order in which they land.
#[derive(Debug, Default)]
struct Lanes {
    tip: Option<Commit>,
    /// What fails on the tip itself, if anybody knows.
    baseline: Option<BTreeSet<String>>,
    lanes: Vec<Lane>,
}

#[derive(Debug)]
struct Lane {
    id: LaneId,
    members: Vec<TaskId>,
    built: Option<Built>,
}

#[derive(Debug)]
struct Built {
    onto: Commit,
    steps: Vec<Step>,
    candidate: Commit,
    runs_failed: u32,
    passed: bool,
    excused: BTreeSet<String>,
}

impl Merges {
    pub(super) fn may_land(&self, commit: &Commit) -> bool {
        self.passed.contains(commit)
    }

    pub(super) fn observe(
        &mut self,
        event: &Event,
        facts: &Facts,
        work: &Work,
        repo: &Repository,
    ) -> Verdict {
        match event {
            Event::BranchPrepared { mission, tip, .. } => {
                self.missions.entry(*mission).or_default().tip = Some(tip.clone());
                Ok(())
            }
            Event::AttemptFinished { task, touched, .. } => {
                self.files.entry(*task).or_default().extend(touched.iter().cloned());
                Ok(())
            }
            Event::ChoreStarted { fence, chore: Chore::Rebase(_) | Chore::Revert(_), .. } => {
                self.rewrites.insert(*fence);
                Ok(())
            }
            Event::LaneFormed { mission, lane, members, .. } => {
                self.form(*mission, *lane, members, facts)
            }
            Event::LaneBuilt { mission, lane, onto, steps, .. } => {
                self.lanes(*mission)?.build(*lane, onto, steps)
            }
            Event::LanePassed { mission, lane, candidate } => {
                let proved = work.is_proved(candidate) || !facts.has_checks(*mission);
                ensure(proved, || format!("{} passed without checks", candidate.short()))?;
                self.passed.insert(candidate.clone());
                let built = self.lanes(*mission)?.built(*lane, candidate)?;
                built.passed = true;
                Ok(())
            }
            Event::LaneTested { .. } => self.test(event, facts, repo),
            Event::LaneLanded { mission, lane, commit, .. } => {
                let brought = self.lanes(*mission)?.land(*lane, commit)?;
                self.untold.extend(brought);
                Ok(())
            }
            Event::BaselineMeasured { mission, commit, results, .. } => {
                ensure(repo.ran(commit, results), || {
                    format!("the branch at {} was never checked so", commit.short())
                })?;
                let lanes = self.lanes(*mission)?;
                if lanes.tip.as_ref() == Some(commit) {
                    lanes.baseline = Some(failed(results));
                }
                Ok(())
            }
            Event::TargetMoved { mission, actual, .. } => {
                let lanes = self.lanes(*mission)?;
                let forward = lanes.tip.as_ref().is_some_and(|tip| repo.is_ancestor(tip, actual));
                ensure(forward, || format!("{mission} follows its branch backwards"))?;
                (lanes.tip, lanes.baseline) = (Some(actual.clone()), None);
                lanes.rebuild_from(0);
                Ok(())
            }
            _ => self.observe_tasks(event, facts),
        }
    }

    fn observe_tasks(&mut self, event: &Event, facts: &Facts) -> Verdict {
        match event {
            Event::ChangeConflicted { task, fence, next, .. } => {
                self.conflict(*task, *fence, next, facts)
            }
            Event::PhaseAccepted { task, change, .. } => {
                self.accepted.insert(*task, change.clone());
                Ok(())
            }
            // It is out of the queue until its reviewers have spoken.
            Event::CouncilConvened { task, convocation, .. } => {
                let reviewed = match &convocation.question {
                    Question::Review { commit } => self.accepted.get(task) == Some(commit),
                    Question::Problem | Question::Drill { .. } => false,
                };
                // What goes back on its way out is its reversal, and nobody reviews that.
                let reverts = self.rollbacks.contains_key(task);
                if reviewed
                    && !reverts
                    && let Ok(lanes) = self.lanes_of(*task, facts)
                {
                    lanes.leave(*task);
                    self.rebases.remove(task);
                }
                Ok(())
            }
            Event::ChangeRebased { task, touched, change, .. } => {
                self.accepted.insert(*task, change.clone());
                self.files.insert(*task, touched.iter().cloned().collect());
                Ok(())
            }
            // A change that is in a lane is rejected only when it was found guilty.
            Event::ChangeRejected { task, .. } => {
                let blamed = self.blamed.remove(task);
                let aboard = self.lanes_of(*task, facts)?.has(*task);
                ensure(blamed || !aboard, || format!("{task:?} was rejected without a verdict"))
            }
            Event::TaskMerged { task, .. } => {
                ensure(self.untold.remove(task), || format!("{task:?} is merged, but never landed"))
            }
            // It stood or fell with a task that gave up.
            Event::TaskBlocked { task, .. } => {
                self.rebases.remove(task);
                if let Ok(lanes) = self.lanes_of(*task, facts) {
                    lanes.leave(*task);
                }
                Ok(())
            }
            Event::RetryScheduled { task, from: Restart::Flow, .. }
            | Event::TaskRequeued { task, .. } => {
                self.rebases.remove(task);
                self.files.remove(task);
                Ok(())
            }
            // It is out of the queue until people have seen it.
            Event::ApprovalAsked { gate } => match gate.subject {
                Subject::Merge(task) => {
                    self.rebases.remove(&task);
                    self.lanes_of(task, facts)?.leave(task);
                    Ok(())
                }
                _ => Ok(()),
            },
            Event::Overridden { order, .. } => match order.action {
                OverrideAction::Reset { .. } | OverrideAction::ForceComplete => {
                    self.rebases.remove(&order.task);
                    self.lanes_of(order.task, facts)?.leave(order.task);
                    Ok(())
                }
                OverrideAction::SkipStep { .. } | OverrideAction::Reassign { .. } => Ok(()),
            },
            Event::LeaseGranted { task, .. } => {
                let needs = &facts.task(*task)?.needs;
                let sand = self.rollbacks.values().flatten().find(|gone| needs.contains(gone));
                ensure(sand.is_none(), || {
                    format!("{task:?} starts on {sand:?}, which is being taken back")
                })
            }
            Event::RollbackStarted { task, tasks, .. } => self.start_rollback(*task, tasks, facts),
            Event::RollbackFailed { task, .. } => {
                self.blamed.remove(task);
                self.rollbacks.remove(task);
                self.lanes_of(*task, facts)?.leave(*task);
                Ok(())
            }
            Event::TaskRolledBack { task, .. } => {
                for (needing, _) in facts.needing(*task).filter(|(_, t)| t.merged.is_none()) {
                    self.files.remove(&needing);
                }
                self.take_back(*task)
            }
            Event::MissionCancelled { mission, .. } | Event::MissionDelivered { mission, .. } => {
                self.missions.insert(*mission, Lanes::default());
                let of = |task: &TaskId| facts.task(*task).is_ok_and(|t| t.mission == *mission);
                self.rollbacks.retain(|root, _| !of(root));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn form(
        &mut self,
        mission: MissionId,
        id: LaneId,
        members: &[TaskId],
        facts: &Facts,
    ) -> Verdict {
        let merge = &facts.mission(mission)?.policy.merge;
        let (batch, lanes_max) = (merge.batch_changes_max as usize, merge.lanes_max as usize);
        ensure((1..=batch).contains(&members.len()), || {
            format!("lane {id} has {} members", members.len())
        })?;
        let files = |task: &TaskId| self.files.get(task).cloned().unwrap_or_default();
        let ours: BTreeSet<String> = members.iter().flat_map(files).collect();
        let reverts = |task: &TaskId| self.rollbacks.contains_key(task);
        let lanes = self.missions.get(&mission).ok_or("a lane of no mission")?;
        for lane in &lanes.lanes {
            let twice = lane.members.iter().find(|task| members.contains(task));
            ensure(twice.is_none(), || format!("{twice:?} is in the lanes {} and {id}", lane.id))?;
            let theirs: BTreeSet<String> = lane.members.iter().flat_map(files).collect();
            let apart = ours.is_disjoint(&theirs) || lane.members.iter().any(reverts);
            ensure(apart || members.iter().any(reverts), || {
                format!("the lanes {} and {id} touch the same file", lane.id)
            })?;
        }
        let lanes = self.lanes(mission)?;
        ensure(lanes.lanes.len() < lanes_max, || format!("lane {id} is one too many"))?;
        lanes.lanes.push(Lane { id, members: members.to_vec(), built: None });
        Ok(())
    }

    fn test(&mut self, event: &Event, facts: &Facts, repo: &Repository) -> Verdict {
        let Event::LaneTested { mission, lane, candidate, results, verdict, .. } = event else {
            return Ok(());
        };
        complete(results, *mission, facts)?;
        ensure(repo.ran(candidate, results), || {
            format!("the journal has checks on {} that never ran so", candidate.short())
        })?;
        let retries = facts.mission(*mission)?.policy.merge.flake_retries_max;
        let lanes = self.lanes(*mission)?;
        let index = lanes.index(*lane)?;
        let judged = lanes.lanes[..index]
            .iter()
            .all(|lane| lane.built.as_ref().is_some_and(|built| built.passed));
        let known = lanes.baseline.clone();
        let excuse = known.clone().unwrap_or_default();
        let broken: BTreeSet<String> = failed(results).difference(&excuse).cloned().collect();
        let built = lanes.built(*lane, candidate)?;
        built.runs_failed += u32::from(!broken.is_empty());
        let runs_failed = built.runs_failed;
        let final_word = || {
            ensure(judged, || format!("lane {lane} was judged on top of unjudged candidates"))?;
            ensure(runs_failed > retries, || {
                format!("lane {lane} was judged after {runs_failed} failed runs")
            })?;
            ensure(known.is_some() && !broken.is_empty(), || {
                format!("lane {lane} was judged for what may be the branch's own fault")
            })
        };
        match verdict {
            AfterTests::Passed { .. } => {
                ensure(broken.is_empty(), || {
                    format!("{} passed although {broken:?} failed", candidate.short())
                })?;
                built.passed = true;
                built.excused = failed(results);
                self.passed.insert(candidate.clone());
                Ok(())
            }
            AfterTests::Held { .. } | AfterTests::TestAgain { .. } | AfterTests::Doubted { .. } => {
                Ok(())
            }
            AfterTests::Halved { .. } => {
                final_word()?;
                let members = lanes.dissolve(index);
                ensure(members.len() > 1, || format!("lane {lane} of one was halved"))
            }
            AfterTests::Blamed { culprit, .. } => {
                final_word()?;
                let members = lanes.dissolve(index);
                ensure(members == [*culprit], || {
                    format!("{culprit:?} is blamed for the lane of {members:?}")
                })?;
                self.blamed.insert(*culprit);
                Ok(())
            }
        }
    }

    fn conflict(
        &mut self,
        task: TaskId,
        fence: Fence,
        next: &AfterConflict,
        facts: &Facts,
    ) -> Verdict {
        self.lanes_of(task, facts)?.leave(task);
        let max = facts.mission_of(task)?.policy.merge.rebases_max;
        let rebases = self.rebases.entry(task).or_default();
        match next {
            AfterConflict::TryAlone => Ok(()),
            AfterConflict::Rebase => {
                *rebases += 1;
                let rebases = *rebases;
                ensure(rebases <= max, || format!("{task:?} is rebased {rebases} times"))
            }
            AfterConflict::AskPerson => {
                let tried = *rebases >= max || self.rewrites.contains(&fence);
                self.rebases.remove(&task);
                self.files.remove(&task);
                ensure(tried, || format!("{task:?} asks a person before a rebase was tried"))
            }
        }
    }

    fn start_rollback(&mut self, root: TaskId, tasks: &[TaskId], facts: &Facts) -> Verdict {
        ensure(tasks.contains(&root), || format!("a rollback of {root:?} without it"))?;
        for task in tasks {
            ensure(facts.task(*task)?.merged.is_some(), || {
                format!("{task:?} is taken back, but it is not merged")
            })?;
            let mut needing = facts.needing(*task);
            let left =
                needing.find(|(id, t)| t.merged.is_some() && !t.by_hand && !tasks.contains(id));
            ensure(left.is_none(), || format!("{left:?} would lose {task:?}"))?;
        }
        self.rebases.remove(&root);
        self.rollbacks.insert(root, tasks.to_vec());
        Ok(())
    }

    fn take_back(&mut self, task: TaskId) -> Verdict {
        let root = self.rollbacks.iter().find(|(_, tasks)| tasks.contains(&task));
        let Some(root) = root.map(|(root, _)| *root) else {
            return Err(format!("{task:?} was taken back, but nobody asked for it"));
        };
        ensure(self.untold.contains(&root), || format!("{task:?} is taken back, unlanded"))?;
        if let Some(tasks) = self.rollbacks.get_mut(&root) {
            tasks.retain(|one| *one != task);
            if tasks.is_empty() {
                self.rollbacks.remove(&root);
                self.untold.remove(&root);
            }
        }
        Ok(())
    }

    /// After a batch: whoever landed is told so, whoever was blamed has heard of it, and nobody
    /// works on a task without what it needs.
    pub(super) fn close(&mut self, leases: &Leases, facts: &Facts) -> Verdict {
        for task in leases.attempts().filter_map(|fence| leases.task(fence)) {
            let going = |need: &TaskId| self.rollbacks.values().flatten().any(|one| one == need);
            let gone = |need: &&TaskId| {
                going(need) || facts.task(**need).is_ok_and(|need| need.merged.is_none())
            };
            let sand = facts.task(task)?.needs.iter().find(gone);
            ensure(sand.is_none(), || format!("{task:?} is at work without {sand:?}"))?;
        }
        let untold = self.untold.first();
        ensure(untold.is_none(), || format!("{untold:?} landed, and nobody was told"))?;
        let unheard = self.blamed.first();
        ensure(unheard.is_none(), || format!("{unheard:?} was blamed, and nothing follows"))
    }

    fn lanes(&mut self, mission: MissionId) -> Result<&mut Lanes, String> {
        self.missions.get_mut(&mission).ok_or_else(|| format!("{mission} has no lanes yet"))
    }

    fn lanes_of(&mut self, task: TaskId, facts: &Facts) -> Result<&mut Lanes, String> {
        self.lanes(facts.task(task)?.mission)
    }
}

impl Lanes {
    fn index(&self, lane: LaneId) -> Result<usize, String> {
        let found = self.lanes.iter().position(|one| one.id == lane);
        found.ok_or_else(|| format!("there is no lane {lane}"))
    }

    fn built(&mut self, lane: LaneId, candidate: &Commit) -> Result<&mut Built, String> {
        let index = self.index(lane)?;
        let built = self.lanes[index].built.as_mut();
        let built = built.filter(|built| built.candidate == *candidate);
        built.ok_or_else(|| format!("{} is not the candidate of lane {lane}", candidate.short()))
    }

    fn build(&mut self, lane: LaneId, onto: &Commit, steps: &[Step]) -> Verdict {
        let index = self.index(lane)?;
        let before = match index.checked_sub(1) {
            Some(before) => self.lanes[before].built.as_ref().map(|built| &built.candidate),
            None => self.tip.as_ref(),
        };
        ensure(before == Some(onto), || {
            format!("lane {lane} is built on {}, not on {before:?}", onto.short())
        })?;
        let lane = &mut self.lanes[index];
        ensure(steps.iter().map(|step| &step.task).eq(&lane.members), || {
            format!("lane {} was built of {steps:?}", lane.id)
        })?;
        let candidate = steps.last().ok_or("a lane of nothing")?.commit.clone();
        let (onto, steps) = (onto.clone(), steps.to_vec());
        let (runs_failed, passed, excused) = (0, false, BTreeSet::new());
        lane.built = Some(Built { onto, steps, candidate, runs_failed, passed, excused });
        Ok(())
    }

    /// The first lane, and only if it passed on the very tip that it replaces.
    fn land(&mut self, lane: LaneId, commit: &Commit) -> Result<Vec<TaskId>, String> {
        let index = self.index(lane)?;
        ensure(index == 0, || format!("lane {lane} lands before its turn"))?;
        let Some(built) = self.lanes.remove(0).built else {
            return Err(format!("lane {lane} lands without a candidate"));
        };
        ensure(built.passed && built.candidate == *commit, || {
            format!("lane {lane} lands {}, which did not pass", commit.short())
        })?;
        ensure(self.tip.as_ref() == Some(&built.onto), || {
            format!("lane {lane} lands on a branch that is elsewhere")
        })?;
        self.tip = Some(built.candidate);
        self.baseline = Some(built.excused);
        Ok(built.steps.into_iter().map(|step| step.task).collect())
    }

    fn has(&self, task: TaskId) -> bool {
        self.lanes.iter().any(|lane| lane.members.contains(&task))
    }

    fn leave(&mut self, task: TaskId) {
        let found = self.lanes.iter().position(|lane| lane.members.contains(&task));
        let Some(index) = found else { return };
        self.lanes[index].members.retain(|member| *member != task);
        self.rebuild_from(index);
        self.lanes.retain(|lane| !lane.members.is_empty());
    }

    fn dissolve(&mut self, index: usize) -> Vec<TaskId> {
        self.rebuild_from(index);
        self.lanes.remove(index).members
    }

    fn rebuild_from(&mut self, index: usize) {
        self.lanes.iter_mut().skip(index).for_each(|lane| lane.built = None);
    }
}

fn complete(results: &[CheckResult], mission: MissionId, facts: &Facts) -> Verdict {
    let ran = |name: &str| results.iter().any(|result| result.name == name);
    let checks = &facts.mission(mission)?.policy.checks;
    let missing = checks.iter().find(|check| !ran(&check.name));
    ensure(missing.is_none(), || format!("a candidate was judged, but {missing:?} did not run"))
}
