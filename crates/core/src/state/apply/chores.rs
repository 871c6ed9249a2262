//! Chores and merging: what the conductor does beside running agents.

use std::sync::Arc;

use crate::command::CheckResult;
use crate::effect::Effect;
use crate::event::{Chore, Event};
use crate::gates;
use crate::ids::{Commit, Fence, MissionId, TaskId};
use crate::limits;
use crate::merge::Step;
use crate::mission::{Mission, MissionStage};
use crate::state::{Live, State, Timer, gate};
use crate::task::Stage;
use crate::time::Timestamp;

impl State {
    /// The arms of `apply` about chores and merging; it names each of them, so none is forgotten.
    pub(in crate::state) fn apply_to_chores(&mut self, event: &Event) {
        match event {
            Event::ChoreStarted { mission, fence, chore } => {
                self.start_chore(*mission, *fence, *chore);
            }
            Event::ChoreFailed { fence, failure, retry_at, .. } => {
                if let Some(Live::Chore { mission, chore }) = self.end_live(*fence) {
                    self.with_mission(mission, |m| {
                        m.chore_failures += 1;
                        m.merging.trouble = Some((chore, failure.message.clone()));
                    });
                    match retry_at {
                        Some(at) => self.park(mission, chore, *at),
                        None => self.want_again(mission, chore),
                    }
                }
            }
            Event::ChoreDue { mission, chore } => {
                let chore = self.chore_today(*mission, *chore);
                let due = self.timers.iter().find(|(_, t)| *t == Timer::Chore(*mission, chore));
                if let Some(due) = due.copied() {
                    self.timers.remove(&due);
                }
                self.with_mission(*mission, |m| {
                    m.counts.parked = m.counts.parked.saturating_sub(1);
                    m.merging.parked.remove(&chore);
                });
                self.want_again(*mission, chore);
            }
            Event::ChoreWithdrawn { fence } => {
                if let Some(Live::Chore { mission, chore }) = self.end_live(*fence) {
                    self.want_again(mission, chore);
                }
            }
            Event::BranchPrepared { mission, fence, tip } => {
                self.chore_done(*fence);
                self.with_mission(*mission, |m| m.tip = Some(tip.clone()));
                self.open_queue(*mission, tip);
                self.release_unblocked(*mission);
            }
            Event::ChecksFinished { task, fence, commit, results } => {
                self.chore_done(*fence);
                self.note_tests(&[*task], commit, results);
                self.note_checks(*task, commit, results);
            }
            Event::PhaseAccepted { task, change, .. } => self.accept_phase(*task, change),
            Event::CandidateBuilt { task, fence, candidate } => {
                self.chore_done(*fence);
                let steps = [Step { task: *task, commit: candidate.clone() }];
                self.with_lane_of(*task, |queue, lane| {
                    let onto = queue.tip().clone();
                    queue.built(lane, &onto, &steps);
                });
            }
            Event::CandidateRejected { task, fence, failure } => {
                self.chore_done(*fence);
                self.fail(*task, failure);
            }
            Event::CandidatePassed { task, candidate } => {
                self.with_lane_of(*task, |queue, lane| queue.passed(lane, candidate, &[], &[]));
            }
            Event::TaskMerged { task, fence, commit, onto, at } => {
                self.merge(*task, *fence, (onto.as_ref(), commit), *at);
            }
            Event::BranchMoved { task, fence, actual } => {
                self.chore_done(*fence);
                self.with_mission_of(*task, |m| m.tip = Some(actual.clone()));
                self.with_queue_of(*task, |queue| queue.moved(actual.clone()));
            }
            _ => {}
        }
    }

    pub(in crate::state) fn start_chore(&mut self, mission: MissionId, fence: Fence, chore: Chore) {
        let chore = self.chore_today(mission, chore);
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
            Chore::Gate(task) => {
                let Stage::Gating { change } = &self.task(task)?.stage else { return None };
                let (commit, policy, of) = (change.clone(), &mission.policy, self.task(task)?);
                let named = policy.checks.iter().any(|check| !check.reading.is_plain());
                let tip = mission.tip.clone().filter(|_| named && gate::shows_first(policy));
                let (checks, tested) = (gate::checks(of, policy), gate::tested(of, policy));
                let retries = gate::retries(of, policy);
                Effect::RunChecks { task, commit, tip, retries, checks, tested }
            }
            Chore::Delivery(id) => {
                let MissionStage::Approved { commit, .. } = &mission.stage else { return None };
                let target = mission.target.clone();
                Effect::Deliver { mission: id, target, commit: commit.clone() }
            }
            Chore::LaneBuild(_)
            | Chore::LaneTest(_)
            | Chore::LaneLand(_)
            | Chore::Rebase(_)
            | Chore::Baseline(_)
            | Chore::Revert(_) => return self.queue_effect(mission, chore),
            Chore::Candidate(_) | Chore::CandidateChecks(_) | Chore::Advance(_) => return None,
        })
    }

    pub(in crate::state) fn accept_phase(&mut self, id: TaskId, change: &Commit) {
        self.unwant(id, Chore::Gate(id));
        let Some(task) = self.task(id) else { return };
        let mission = self.mission(task.mission);
        let next = mission.and_then(|m| task.next_phase(&m.policy));
        let shown = mission.map(|m| gate::shown(task, &m.policy)).unwrap_or_default();
        let phase = task.phase;
        self.with_checklist(id, |list| list.accepted(phase));
        self.with_task(id, |t| {
            t.operations.accepted(phase);
            if !shown.is_empty() {
                Arc::make_mut(&mut t.frozen).extend(shown);
            }
            t.accepted = Some(change.clone());
            t.accepted_by_phase.retain(|(phase, _)| *phase < t.phase);
            // One is all that most have, and they have it for good.
            t.accepted_by_phase.reserve_exact(1);
            t.accepted_by_phase.push((t.phase, change.clone()));
            t.unfinished = None;
            t.resume = None;
            t.failed_up_to = t.failed_up_to.filter(|last| *last > t.phase);
            t.phase = next.unwrap_or(t.phase);
            t.retrying = t.retrying && next.is_some();
        });
        match next {
            Some(_) => self.move_to(id, Stage::Ready),
            None => self.queue_or_wait(id),
        }
    }

    /// What the checks of a gate said, for the queue and for the phases that follow.
    fn note_checks(&mut self, id: TaskId, commit: &Commit, results: &[CheckResult]) {
        let passed = results.iter().all(|result| result.passed);
        let mission = self.task(id).and_then(|task| self.mission(task.mission));
        let phase = self.task(id).zip(mission).and_then(|(task, m)| task.phase(&m.policy));
        let shown = results.iter().filter_map(|result| gate::evidence(phase, result));
        let shown: Vec<_> = shown.collect();
        let done = self.task(id).zip(mission).map(|(t, m)| gate::done(t, &m.policy, results));
        self.with_task(id, |task| {
            task.done = done.unwrap_or_default();
            task.checked = passed.then(|| Box::new(commit.clone()));
            task.evidence.extend(shown);
        });
    }

    /// How tests ended on a commit of these tasks; some of them may have done both.
    pub(in crate::state) fn note_tests(
        &mut self,
        tasks: &[TaskId],
        commit: &Commit,
        results: &[CheckResult],
    ) {
        for result in results {
            if let Some(first) = result.earlier.as_ref().and_then(|run| run.outcome.as_ref()) {
                self.tests.ran(commit, &result.name, first);
            }
            let Some(outcome) = &result.outcome else { continue };
            self.tests.ran(commit, &result.name, outcome);
            let names = outcome.tests.keys().map(|test| gates::name(&result.name, test));
            let both: Vec<String> =
                names.filter(|name| self.tests.contradicts(commit, name)).collect();
            self.note_flaky(tasks, &both);
        }
    }

    pub(in crate::state) fn note_flaky(&mut self, tasks: &[TaskId], names: &[String]) {
        for id in tasks {
            self.with_task(*id, |task| {
                let room = limits::MERGE_TESTS_NAMED_MAX.saturating_sub(task.flaky.len());
                task.flaky.extend(names.iter().take(room).cloned());
            });
        }
    }

    pub(in crate::state) fn merge(
        &mut self,
        id: TaskId,
        fence: Fence,
        (onto, commit): (Option<&Commit>, &Commit),
        at: Timestamp,
    ) {
        self.chore_done(fence);
        // Before there were lanes, this was all that was said of a change that landed.
        let tip = || self.mission(self.task(id)?.mission)?.tip.clone();
        let before = if onto.is_none() { tip() } else { None };
        self.with_lane_of(id, |queue, lane| queue.landed(lane));
        if onto.is_none() {
            self.with_mission_of(id, |mission| mission.tip = Some(commit.clone()));
        }
        if let Some(onto) = onto.or(before.as_ref()) {
            self.note_landing(id, onto, commit);
        }
        self.with_task(id, |task| {
            task.merged = Some(commit.clone());
            task.evidence.clear();
            task.ended_at = Some(at);
        });
        let risk = self.task(id).and_then(|task| self.risk_of(task));
        self.with_mission_of(id, |mission| {
            mission.failure_rate.succeeded();
            mission.note_risk(risk);
        });
        self.move_to(id, Stage::Done);
        self.release_dependents(id);
    }

    /// What was in flight is not any more, and is wanted as before; of the merge queue's only if
    /// the queue still says so.
    fn want_again(&mut self, mission: MissionId, chore: Chore) {
        if chore.is_of_queue() {
            self.sync_merge(mission);
        } else {
            self.want(mission, chore);
        }
    }

    pub(in crate::state) fn chore_done(&mut self, fence: Fence) {
        if let Some(Live::Chore { mission, .. }) = self.end_live(fence) {
            self.with_mission(mission, |m| m.chore_failures = 0);
        }
    }

    /// Until when a chore that failed waits, and what it said if nothing else failed since.
    pub(crate) fn parked_until<'a>(
        &self,
        mission: &'a Mission,
        chore: Chore,
    ) -> Option<(Timestamp, Option<&'a str>)> {
        let timer = Timer::Chore(mission.id, chore);
        let (until, _) = self.timers.iter().find(|(_, of)| *of == timer)?;
        let said = mission.merging.trouble.as_ref().filter(|(of, _)| *of == chore);
        Some((*until, said.map(|(_, message)| message.as_str())))
    }

    pub(in crate::state) fn park(&mut self, mission: MissionId, chore: Chore, until: Timestamp) {
        self.timers.insert((until, Timer::Chore(mission, chore)));
        self.with_mission(mission, |m| {
            m.counts.parked += 1;
            if chore.is_of_queue() {
                m.merging.parked.insert(chore);
            }
        });
    }
}
