//! The fold: what each event does to the state. Total: history is never refused.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::{Lease, Live, State, Timer};
use crate::effect::Effect;
use crate::event::{Chore, Event, Restart};
use crate::failure::Failure;
use crate::ids::{Commit, Fence, MissionId, TaskId};
use crate::mission::{Counts, Mission, MissionStage};
use crate::money::Usd;
use crate::plan::PlannedTask;
use crate::report::ResumeData;
use crate::task::{Stage, Task, score};

impl State {
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::MissionOpened { .. } => self.open_mission(event),
            Event::PlanAccepted { mission, first_task, tasks } => {
                self.accept_plan(*mission, *first_task, tasks);
            }
            Event::MissionPaused { mission, reason, .. } => {
                self.with_mission(*mission, |m| m.paused = Some(reason.clone()));
            }
            Event::MissionResumed { mission, .. } => {
                self.with_mission(*mission, |m| {
                    m.paused = None;
                    m.chore_failures = 0;
                });
            }
            Event::MissionCancelled { mission, reason, at, .. } => {
                self.end_mission(*mission, *at, MissionStage::Cancelled { reason: reason.clone() });
            }
            Event::TeamChanged { seats, workers_max } => self.team.resize(seats, *workers_max),
            Event::LeaseGranted { .. }
            | Event::LeaseRenewed { .. }
            | Event::CostCharged { .. }
            | Event::AttemptFinished { .. }
            | Event::AttemptFailed { .. }
            | Event::AttemptInterrupted { .. }
            | Event::CheckpointRaised { .. }
            | Event::CheckpointAnswered { .. }
            | Event::ChangeRejected { .. }
            | Event::RetryScheduled { .. }
            | Event::BackoffEnded { .. }
            | Event::TaskDeadLettered { .. }
            | Event::TaskBlocked { .. } => self.apply_to_work(event),
            Event::ChoreStarted { .. }
            | Event::ChoreFailed { .. }
            | Event::ChoreDue { .. }
            | Event::ChoreWithdrawn { .. }
            | Event::BranchPrepared { .. }
            | Event::ChecksFinished { .. }
            | Event::PhaseAccepted { .. }
            | Event::CandidateBuilt { .. }
            | Event::CandidateRejected { .. }
            | Event::CandidatePassed { .. }
            | Event::TaskMerged { .. }
            | Event::BranchMoved { .. } => self.apply_to_chores(event),
            Event::DeliveryProposed { mission, commit } => {
                let stage = MissionStage::Proposed { commit: commit.clone() };
                self.with_mission(*mission, |m| m.stage = stage);
            }
            Event::DeliveryApproved { mission, commit, by } => {
                let stage = MissionStage::Approved { commit: commit.clone(), by: by.clone() };
                self.with_mission(*mission, |m| m.stage = stage);
                self.want(*mission, Chore::Delivery(*mission));
            }
            Event::DeliveryRefused { mission, fence, reason } => {
                self.end_live(*fence);
                self.with_mission(*mission, |m| {
                    m.refused = Some(reason.clone());
                    if let MissionStage::Approved { commit, .. } = &m.stage {
                        m.stage = MissionStage::Proposed { commit: commit.clone() };
                    }
                });
            }
            Event::MissionDelivered { mission, fence, commit, at } => {
                self.end_live(*fence);
                let stage = MissionStage::Delivered { commit: commit.clone() };
                self.end_mission(*mission, *at, stage);
            }
        }
    }

    /// The arms of `apply` about agents at work; it names each of them, so none is forgotten.
    fn apply_to_work(&mut self, event: &Event) {
        match event {
            Event::LeaseGranted { .. } => self.grant(event),
            Event::LeaseRenewed { fence, expires_at } => {
                if let Some(Live::Attempt(lease)) = self.live.get_mut(fence) {
                    self.timers.remove(&(lease.expires_at, Timer::Lease(*fence)));
                    lease.expires_at = *expires_at;
                    self.timers.insert((*expires_at, Timer::Lease(*fence)));
                }
            }
            Event::CostCharged { task, fence, usd, .. } => self.charge(*task, *fence, *usd),
            Event::AttemptFinished { task, fence, change, .. } => {
                self.end_live(*fence);
                let gating = Stage::Gating { change: change.clone() };
                self.move_to(*task, gating);
                self.want_for(*task, Chore::Gate(*task));
            }
            Event::AttemptFailed { task, fence, failure } => {
                self.end_live(*fence);
                self.fail(*task, failure);
            }
            Event::AttemptInterrupted { task, fence, .. } => {
                self.end_live(*fence);
                self.move_to(*task, Stage::Ready);
            }
            Event::CheckpointRaised { task, fence, question, change } => {
                self.end_live(*fence);
                self.with_task(*task, |t| {
                    t.unfinished = change.clone().or(t.unfinished.take());
                });
                self.move_to(*task, Stage::Asking { question: question.clone() });
            }
            Event::CheckpointAnswered { task, resume_id, input, .. } => {
                self.with_task(*task, |t| {
                    t.resume = Some(ResumeData {
                        checkpoint_id: resume_id.clone(),
                        user_input: input.clone(),
                    });
                    t.started = false;
                    t.retrying = false;
                });
                self.move_to(*task, Stage::Ready);
            }
            Event::ChangeRejected { task, failure } => self.fail(*task, failure),
            Event::RetryScheduled { task, at, from } => {
                self.with_task(*task, |t| {
                    t.retrying = true;
                    t.retries += 1;
                    if *from == Restart::Flow {
                        t.phase = 0;
                        t.accepted = None;
                        t.unfinished = None;
                    }
                });
                self.move_to(*task, Stage::Backoff { until: *at });
            }
            Event::BackoffEnded { task } => self.move_to(*task, Stage::Ready),
            Event::TaskDeadLettered { task } => self.move_to(*task, Stage::DeadLetter),
            Event::TaskBlocked { task, on } => self.move_to(*task, Stage::Blocked { on: *on }),
            _ => {}
        }
    }

    /// The arms of `apply` about chores and merging; it names each of them, so none is forgotten.
    fn apply_to_chores(&mut self, event: &Event) {
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

    fn open_mission(&mut self, event: &Event) {
        let Event::MissionOpened { mission, request, goal, target, base, branch, policy, by, at } =
            event
        else {
            return;
        };
        self.requests.insert(request.clone(), *mission);
        let next_task = self.tasks.len() as u32 + 1;
        self.missions.push(Mission {
            id: *mission,
            goal: goal.clone(),
            target: target.clone(),
            base: base.clone(),
            branch: branch.clone(),
            policy: Arc::new((**policy).clone()),
            opened_by: by.clone(),
            opened_at: *at,
            ended_at: None,
            tip: None,
            tasks: next_task..next_task,
            stage: MissionStage::Open,
            paused: None,
            refused: None,
            counts: Counts::default(),
            spent: Usd::ZERO,
            reserved: Usd::ZERO,
            ready: BTreeMap::new(),
            chores: BTreeSet::new(),
            live: BTreeSet::new(),
            merge_queue: VecDeque::new(),
            merging: None,
            chore_failures: 0,
        });
        self.want(*mission, Chore::Branch(*mission));
    }

    fn accept_plan(&mut self, mission: MissionId, first: TaskId, plans: &[PlannedTask]) {
        let numbered = plans.iter().zip(first.0..);
        let ids: BTreeMap<&str, TaskId> =
            numbered.map(|(plan, number)| (plan.id.as_str(), TaskId(number))).collect();
        let mut dependents: BTreeMap<TaskId, Vec<TaskId>> = BTreeMap::new();
        for (plan, number) in plans.iter().zip(first.0..) {
            let needs = plan.dependencies.iter().collect::<BTreeSet<_>>();
            let dependencies: Vec<TaskId> =
                needs.into_iter().filter_map(|dep| ids.get(dep.as_str()).copied()).collect();
            for dep in &dependencies {
                dependents.entry(*dep).or_default().push(TaskId(number));
            }
            self.tasks.push(new_task(TaskId(number), mission, plan.clone(), dependencies));
        }
        for (id, list) in dependents {
            self.with_task(id, |task| task.dependents = list);
        }
        let end = first.0 + plans.len() as u32;
        for number in first.0..end {
            self.with_task(TaskId(number), |task| {
                task.score = score(&task.plan, task.dependents.len());
            });
        }
        self.with_mission(mission, |m| m.tasks = first.0..end);
    }

    fn end_mission(&mut self, id: MissionId, at: crate::Timestamp, stage: MissionStage) {
        let live = self.mission(id).map(|m| m.live.clone()).unwrap_or_default();
        for fence in live {
            self.end_live(fence);
        }
        let of_mission = |timer: &Timer, state: &State| match timer {
            Timer::Chore(mission, _) => *mission == id,
            Timer::Backoff(task) => state.task(*task).is_some_and(|t| t.mission == id),
            Timer::Lease(_) | Timer::Deadline(_) => false,
        };
        let timers = std::mem::take(&mut self.timers);
        self.timers = timers.into_iter().filter(|(_, t)| !of_mission(t, self)).collect();
        self.with_mission(id, |m| {
            m.stage = stage;
            m.paused = None;
            m.ended_at = Some(at);
            m.chores.clear();
            m.ready.clear();
            m.merge_queue.clear();
            m.merging = None;
            m.counts.parked = 0;
            m.counts.asking = 0;
        });
    }

    fn grant(&mut self, event: &Event) {
        let Event::LeaseGranted {
            task,
            fence,
            agent,
            phase,
            base,
            reserved,
            granted_at,
            expires_at,
            deadline,
        } = event
        else {
            return;
        };
        let Some(owner) = self.task(*task) else { return };
        let mission = owner.mission;
        // Work that was interrupted by a question goes on; its phase began where it began.
        let began = owner.phase_base.clone().filter(|_| owner.unfinished.is_some());
        let since = began.unwrap_or_else(|| base.clone());
        self.move_to(*task, Stage::Working { fence: *fence });
        self.with_task(*task, |t| {
            t.started = true;
            t.attempts += 1;
            t.started_at.get_or_insert(*granted_at);
            t.phase_base = Some(since.clone());
        });
        self.with_mission(mission, |m| m.reserved += *reserved);
        self.team.take(*agent, *fence);
        self.timers.insert((*expires_at, Timer::Lease(*fence)));
        self.timers.insert((*deadline, Timer::Deadline(*fence)));
        let lease = Lease {
            task: *task,
            mission,
            agent: *agent,
            base: base.clone(),
            reserved: *reserved,
            granted_at: *granted_at,
            expires_at: *expires_at,
            deadline: *deadline,
        };
        let effect = Effect::RunAttempt {
            task: *task,
            agent: *agent,
            phase: *phase,
            base: base.clone(),
            since,
        };
        self.begin_live(*fence, mission, Live::Attempt(lease), effect);
    }

    fn start_chore(&mut self, mission: MissionId, fence: Fence, chore: Chore) {
        self.with_mission(mission, |m| {
            m.chores.remove(&chore);
        });
        let Some(effect) = self.effect_of(mission, chore) else { return };
        self.begin_live(fence, mission, Live::Chore { mission, chore }, effect);
    }

    fn effect_of(&self, mission: MissionId, chore: Chore) -> Option<Effect> {
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

    fn accept_phase(&mut self, id: TaskId, change: &Commit) {
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
        self.move_to(id, if more { Stage::Ready } else { Stage::Queued });
        if !more {
            self.with_mission_of(id, |m| m.merge_queue.push_back(id));
            self.next_merge(id);
        }
    }

    fn merge(&mut self, id: TaskId, fence: Fence, commit: &Commit, at: crate::Timestamp) {
        self.chore_done(fence);
        self.with_task(id, |task| {
            task.merged = Some(commit.clone());
            task.ended_at = Some(at);
        });
        self.with_mission_of(id, |mission| mission.tip = Some(commit.clone()));
        self.move_to(id, Stage::Done);
        self.release_dependents(id);
    }

    fn fail(&mut self, id: TaskId, failure: &Failure) {
        self.move_to(id, Stage::Failed { kind: failure.kind });
        self.with_task(id, |task| {
            *task.failures.entry(failure.kind).or_default() += 1;
            task.last_failure = Some(failure.clone());
        });
        self.unwant(id, Chore::CandidateChecks(id));
    }

    fn charge(&mut self, id: TaskId, fence: Fence, usd: Usd) {
        self.with_task(id, |task| task.spent += usd);
        self.with_mission_of(id, |mission| mission.spent += usd);
        if let Some(agent) = self.lease(fence).map(|lease| lease.agent) {
            self.team.charge(agent, usd);
        }
    }

    /// Tasks without open dependencies become ready once the branch is there to start from.
    fn release_unblocked(&mut self, mission: MissionId) {
        let ids: Vec<TaskId> = self.mission(mission).map_or(Vec::new(), |m| m.task_ids().collect());
        for id in ids {
            let free = self.task(id).is_some_and(|t| t.waits_for == 0 && t.stage == Stage::Waiting);
            if free {
                self.move_to(id, Stage::Ready);
            }
        }
    }

    fn release_dependents(&mut self, done: TaskId) {
        let dependents = self.task(done).map(|t| t.dependents.clone()).unwrap_or_default();
        for id in dependents {
            self.with_task(id, |task| task.waits_for = task.waits_for.saturating_sub(1));
            let free = self.task(id).is_some_and(|t| t.waits_for == 0 && t.stage == Stage::Waiting);
            if free {
                self.move_to(id, Stage::Ready);
            }
        }
    }

    /// Leaves the indexes of the old stage, enters those of the new one.
    fn move_to(&mut self, id: TaskId, stage: Stage) {
        let Some(task) = self.task(id) else { return };
        let (mission, old) = (task.mission, task.stage.clone());
        let key = (Reverse(task.score), id);
        let role = self.mission(mission).and_then(|m| task.phase(&m.policy)).map(|p| p.role());
        let merge_ends = matches!(stage, Stage::Done | Stage::Failed { .. });
        self.with_mission(mission, |m| {
            match &old {
                Stage::Ready => {
                    for queue in m.ready.values_mut() {
                        queue.remove(&key);
                    }
                }
                Stage::Backoff { .. } => m.counts.parked -= 1,
                Stage::Asking { .. } => m.counts.asking -= 1,
                _ => {}
            }
            match (&stage, role) {
                (Stage::Ready, Some(role)) => {
                    m.ready.entry(role).or_default().insert(key);
                }
                (Stage::Backoff { .. }, _) => m.counts.parked += 1,
                (Stage::Asking { .. }, _) => m.counts.asking += 1,
                (Stage::Done, _) => m.counts.completed += 1,
                (Stage::DeadLetter, _) => m.counts.dead += 1,
                (Stage::Blocked { .. }, _) => m.counts.blocked += 1,
                _ => {}
            }
            if merge_ends && m.merging == Some(id) {
                m.merging = None;
                m.merge_queue.pop_front();
            }
        });
        if let Stage::Backoff { until } = old {
            self.timers.remove(&(until, Timer::Backoff(id)));
        }
        if let Stage::Backoff { until } = stage {
            self.timers.insert((until, Timer::Backoff(id)));
        }
        self.with_task(id, |task| task.stage = stage);
        if merge_ends {
            self.next_merge(id);
        }
    }

    /// The head of the merge queue gets its candidate, if nobody has one.
    fn next_merge(&mut self, of_mission_of: TaskId) {
        let Some(id) = self.task(of_mission_of).map(|t| t.mission) else { return };
        let Some(mission) = self.mission(id) else { return };
        let (None, Some(&head)) = (mission.merging, mission.merge_queue.front()) else { return };
        self.with_mission(id, |m| m.merging = Some(head));
        self.move_to(head, Stage::Merging { candidate: None, checked: false });
        self.want(id, Chore::Candidate(head));
    }

    fn begin_live(&mut self, fence: Fence, mission: MissionId, live: Live, effect: Effect) {
        self.fences_given = self.fences_given.max(fence.0);
        self.live.insert(fence, live);
        self.with_mission(mission, |m| {
            m.live.insert(fence);
        });
        self.due.insert(fence, effect);
    }

    fn end_live(&mut self, fence: Fence) -> Option<Live> {
        let live = self.live.remove(&fence)?;
        self.due.remove(fence);
        let mission = match &live {
            Live::Chore { mission, .. } => *mission,
            Live::Attempt(lease) => {
                self.timers.remove(&(lease.expires_at, Timer::Lease(fence)));
                self.timers.remove(&(lease.deadline, Timer::Deadline(fence)));
                self.team.release(lease.agent);
                let reserved = lease.reserved;
                self.with_mission(lease.mission, |m| {
                    m.reserved = m.reserved.saturating_sub(reserved);
                });
                lease.mission
            }
        };
        self.with_mission(mission, |m| {
            m.live.remove(&fence);
        });
        Some(live)
    }

    fn chore_done(&mut self, fence: Fence) {
        if let Some(Live::Chore { mission, .. }) = self.end_live(fence) {
            self.with_mission(mission, |m| m.chore_failures = 0);
        }
    }

    fn want(&mut self, mission: MissionId, chore: Chore) {
        self.with_mission(mission, |m| {
            m.chores.insert(chore);
        });
    }

    fn want_for(&mut self, task: TaskId, chore: Chore) {
        self.with_mission_of(task, |m| {
            m.chores.insert(chore);
        });
    }

    fn unwant(&mut self, task: TaskId, chore: Chore) {
        self.with_mission_of(task, |m| {
            m.chores.remove(&chore);
        });
    }

    fn park(&mut self, mission: MissionId, chore: Chore, until: crate::Timestamp) {
        self.timers.insert((until, Timer::Chore(mission, chore)));
        self.with_mission(mission, |m| m.counts.parked += 1);
    }

    fn with_task(&mut self, id: TaskId, change: impl FnOnce(&mut Task)) {
        let index = (id.0 as usize).wrapping_sub(1);
        if let Some(task) = self.tasks.get_mut(index) {
            change(task);
        }
    }

    fn with_mission_of(&mut self, task: TaskId, change: impl FnOnce(&mut Mission)) {
        if let Some(id) = self.task(task).map(|t| t.mission) {
            self.with_mission(id, change);
        }
    }

    /// Every change of a mission passes here, so the sets of missions that want something are
    /// right afterwards.
    fn with_mission(&mut self, id: MissionId, change: impl FnOnce(&mut Mission)) {
        let index = (id.0 as usize).wrapping_sub(1);
        let Some(mission) = self.missions.get_mut(index) else { return };
        change(mission);
        let open = mission.paused.is_none() && !mission.has_ended();
        let chores = open && !mission.chores.is_empty();
        let ready = open && mission.ready.values().any(|queue| !queue.is_empty());
        for (set, wanted) in [(&mut self.with_chores, chores), (&mut self.with_ready, ready)] {
            if wanted {
                set.insert(id);
            } else {
                set.remove(&id);
            }
        }
    }
}

fn new_task(id: TaskId, mission: MissionId, plan: PlannedTask, needs: Vec<TaskId>) -> Task {
    Task {
        id,
        mission,
        plan,
        waits_for: needs.len() as u32,
        dependencies: needs,
        dependents: Vec::new(),
        score: 0,
        stage: Stage::Waiting,
        phase: 0,
        started: false,
        retrying: false,
        attempts: 0,
        retries: 0,
        failures: BTreeMap::new(),
        last_failure: None,
        accepted: None,
        unfinished: None,
        phase_base: None,
        resume: None,
        checked: None,
        merged: None,
        spent: Usd::ZERO,
        started_at: None,
        ended_at: None,
    }
}
