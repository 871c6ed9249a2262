//! Chores and merging: what the conductor does beside running agents.

use crate::effect::Effect;
use crate::event::{Chore, Event};
use crate::ids::{Commit, Fence, MissionId, TaskId};
use crate::mission::MissionStage;
use crate::state::{Live, State, Timer};
use crate::task::Stage;
use crate::time::Timestamp;

impl State {
    /// The arms of `apply` about chores and merging; it names each of them, so none is forgotten.
    pub(in crate::state) fn apply_to_chores(&mut self, event: &Event) {
        match event {
            Event::ChoreStarted { mission, fence, chore } => {
                self.start_chore(*mission, *fence, *chore);
            }
            Event::ChoreFailed { fence, retry_at, .. } => {
                if let Some(Live::Chore { mission, chore }) = self.end_live(*fence) {
                    self.with_mission(mission, |m| m.chore_failures += 1);
                    match retry_at {
                        Some(at) => self.park(mission, chore, *at),
                        None => self.want(mission, chore),
                    }
                }
            }
            Event::ChoreDue { mission, chore } => {
                let due = self.timers.iter().find(|(_, t)| *t == Timer::Chore(*mission, *chore));
                if let Some(due) = due.copied() {
                    self.timers.remove(&due);
                }
                self.with_mission(*mission, |m| m.counts.parked -= 1);
                self.want(*mission, *chore);
            }
            Event::ChoreWithdrawn { fence } => {
                if let Some(Live::Chore { mission, chore }) = self.end_live(*fence) {
                    self.want(mission, chore);
                }
            }
            Event::BranchPrepared { mission, fence, tip } => {
                self.chore_done(*fence);
                self.with_mission(*mission, |m| m.tip = Some(tip.clone()));
                self.release_unblocked(*mission);
            }
            Event::ChecksFinished { task, fence, commit, results } => {
                self.chore_done(*fence);
                let passed = results.iter().all(|result| result.passed);
                self.with_task(*task, |t| t.checked = passed.then(|| commit.clone()));
            }
            Event::PhaseAccepted { task, change, .. } => self.accept_phase(*task, change),
            Event::CandidateBuilt { task, fence, candidate } => {
                self.chore_done(*fence);
                let candidate = Some(candidate.clone());
                self.move_to(*task, Stage::Merging { candidate, checked: false });
                self.want_for(*task, Chore::CandidateChecks(*task));
            }
            Event::CandidateRejected { task, fence, failure } => {
                self.chore_done(*fence);
                self.fail(*task, failure);
            }
            Event::CandidatePassed { task, candidate } => {
                self.unwant(*task, Chore::CandidateChecks(*task));
                let candidate = Some(candidate.clone());
                self.move_to(*task, Stage::Merging { candidate, checked: true });
                self.want_for(*task, Chore::Advance(*task));
            }
            Event::TaskMerged { task, fence, commit, at } => {
                self.merge(*task, *fence, commit, *at);
            }
            Event::BranchMoved { task, fence, actual } => {
                self.chore_done(*fence);
                self.with_mission_of(*task, |m| m.tip = Some(actual.clone()));
                self.move_to(*task, Stage::Merging { candidate: None, checked: false });
                self.want_for(*task, Chore::Candidate(*task));
            }
            _ => {}
        }
    }

    pub(in crate::state) fn start_chore(&mut self, mission: MissionId, fence: Fence, chore: Chore) {
        self.with_mission(mission, |m| {
            m.chores.remove(&chore);
        });
        let Some(effect) = self.effect_of(mission, chore) else { return };
        self.begin_live(fence, mission, Live::Chore { mission, chore }, effect);
    }

    pub(in crate::state) fn effect_of(&self, mission: MissionId, chore: Chore) -> Option<Effect> {
        let mission = self.mission(mission)?;
        Some(match chore {
            Chore::Branch(id) => Effect::PrepareBranch {
                mission: id,
                branch: mission.branch.clone(),
                base: mission.base.clone(),
            },
            Chore::Gate(task) | Chore::CandidateChecks(task) => {
                let commit = match &self.task(task)?.stage {
                    Stage::Gating { change } => change.clone(),
                    Stage::Merging { candidate, .. } => candidate.clone()?,
                    _ => return None,
                };
                Effect::RunChecks { task, commit, policy: mission.policy.clone() }
            }
            Chore::Candidate(task) => Effect::BuildCandidate {
                task,
                onto: mission.tip.clone()?,
                change: self.task(task)?.accepted.clone()?,
            },
            Chore::Advance(task) => {
                let Stage::Merging { candidate, .. } = &self.task(task)?.stage else { return None };
                Effect::AdvanceBranch {
                    task,
                    branch: mission.branch.clone(),
                    from: mission.tip.clone()?,
                    to: candidate.clone()?,
                }
            }
            Chore::Delivery(id) => {
                let MissionStage::Approved { commit, .. } = &mission.stage else { return None };
                let target = mission.target.clone();
                Effect::Deliver { mission: id, target, commit: commit.clone() }
            }
        })
    }

    pub(in crate::state) fn accept_phase(&mut self, id: TaskId, change: &Commit) {
        self.unwant(id, Chore::Gate(id));
        let Some(task) = self.task(id) else { return };
        let phases = self.mission(task.mission).map_or(0, |m| m.policy.flow.len());
        let more = task.phase + 1 < phases;
        self.with_task(id, |t| {
            t.accepted = Some(change.clone());
            t.unfinished = None;
            t.resume = None;
            t.phase = if more { t.phase + 1 } else { t.phase };
            t.retrying = t.retrying && more;
        });
        if more {
            self.move_to(id, Stage::Ready);
        } else {
            self.enter_merge_queue(id);
        }
    }

    /// The one door of the merge queue: everything that a change has to show is shown.
    pub(in crate::state) fn enter_merge_queue(&mut self, id: TaskId) {
        self.move_to(id, Stage::Queued);
        self.with_mission_of(id, |m| m.merge_queue.push_back(id));
        self.next_merge(id);
    }

    pub(in crate::state) fn merge(
        &mut self,
        id: TaskId,
        fence: Fence,
        commit: &Commit,
        at: Timestamp,
    ) {
        self.chore_done(fence);
        self.with_task(id, |task| {
            task.merged = Some(commit.clone());
            task.ended_at = Some(at);
        });
        self.with_mission_of(id, |mission| {
            mission.tip = Some(commit.clone());
            mission.failure_rate.succeeded();
        });
        self.move_to(id, Stage::Done);
        self.release_dependents(id);
    }

    /// The head of the merge queue gets its candidate, if nobody has one.
    pub(in crate::state) fn next_merge(&mut self, of_mission_of: TaskId) {
        let Some(id) = self.task(of_mission_of).map(|t| t.mission) else { return };
        let Some(mission) = self.mission(id) else { return };
        let (None, Some(&head)) = (mission.merging, mission.merge_queue.front()) else { return };
        self.with_mission(id, |m| m.merging = Some(head));
        self.move_to(head, Stage::Merging { candidate: None, checked: false });
        self.want(id, Chore::Candidate(head));
    }

    pub(in crate::state) fn chore_done(&mut self, fence: Fence) {
        if let Some(Live::Chore { mission, .. }) = self.end_live(fence) {
            self.with_mission(mission, |m| m.chore_failures = 0);
        }
    }

    pub(in crate::state) fn park(&mut self, mission: MissionId, chore: Chore, until: Timestamp) {
        self.timers.insert((until, Timer::Chore(mission, chore)));
        self.with_mission(mission, |m| m.counts.parked += 1);
    }
}
