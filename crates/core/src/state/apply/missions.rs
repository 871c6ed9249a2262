//! Missions: opened, planned, ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::breaker::BreakerKey;
use crate::checklist::Checklist;
use crate::escalation::FailureRate;
use crate::event::{Chore, Event, PauseReason};
use crate::few::FewSet;
use crate::gates::{Done, Reviews};
use crate::ids::{MissionId, TaskId};
use crate::mission::{Counts, Merging, Mission, MissionStage, Wants};
use crate::money::Usd;
use crate::plan::PlannedTask;
use crate::plan::convoy::Convoys;
use crate::plan::gaps::Gaps;
use crate::plan::operation::Operations;
use crate::state::{Billed, State, Timer};
use crate::task::{Stage, Task};
use crate::time::Timestamp;

impl State {
    /// The arms of `apply` about missions as wholes; it names each of them, so none is forgotten.
    pub(in crate::state) fn apply_to_missions(&mut self, event: &Event) {
        match event {
            Event::MissionOpened { .. } => self.open_mission(event),
            Event::PlanAccepted { mission, first_task, tasks, gap } => {
                self.accept_plan(*mission, *first_task, tasks);
                if gap.is_some() {
                    self.add_gap(*mission, *first_task, tasks.len() as u32);
                }
            }
            Event::MissionPaused { mission, reason, .. } => {
                self.await_renewal(*mission, reason);
                self.with_mission(*mission, |m| m.paused = Some(reason.clone()));
                self.note_pause(*mission, reason);
                if let PauseReason::Wave { wave, .. } = reason {
                    self.note_wave_told(*mission, wave);
                }
            }
            Event::MissionResumed { mission, .. } => {
                self.stop_renewal(*mission);
                self.note_resume(*mission);
                self.with_mission(*mission, |m| {
                    m.paused = None;
                    m.chore_failures = 0;
                    m.gaps.forgiven();
                    m.abandoned = 0;
                    m.failure_rate.resumed();
                });
            }
            Event::MissionCancelled { mission, reason, at, .. } => {
                self.stop_renewal(*mission);
                self.end_mission(*mission, *at, MissionStage::Cancelled { reason: reason.clone() });
            }
            Event::DeliveryProposed { mission, commit } => {
                let stage = MissionStage::Proposed { commit: commit.clone() };
                self.with_mission(*mission, |m| m.stage = stage);
                self.open_delivery(*mission, commit);
            }
            Event::DeliveryApproved { mission, commit, by } => {
                let stage = MissionStage::Approved { commit: commit.clone(), by: by.clone() };
                self.with_mission(*mission, |m| m.stage = stage);
                self.delivery_approved(*mission);
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
                if let Some(commit) = self.mission(*mission).and_then(|m| m.proposed().cloned()) {
                    self.open_delivery(*mission, &commit);
                }
            }
            Event::MissionDelivered { mission, fence, commit, at } => {
                self.end_live(*fence);
                let stage = MissionStage::Delivered { commit: commit.clone() };
                self.end_mission(*mission, *at, stage);
                self.calibrate(*mission);
            }
            _ => {}
        }
    }

    pub(in crate::state) fn open_mission(&mut self, event: &Event) {
        let Event::MissionOpened { mission, request, goal, target, base, branch, policy, by, at } =
            event
        else {
            return;
        };
        self.requests.insert(request.clone(), *mission);
        self.missions.push(Mission {
            id: *mission,
            goal: goal.clone(),
            target: target.clone(),
            base: (**base).clone(),
            branch: branch.clone(),
            policy: Arc::new((**policy).clone()),
            opened_by: by.clone(),
            opened_at: *at,
            ended_at: None,
            tip: None,
            tasks: Vec::new(),
            names: BTreeMap::new(),
            gaps: Gaps::new(policy.plan.gaps),
            convoys: Convoys::default(),
            estimate: None,
            stage: MissionStage::Open,
            paused: None,
            refused: None,
            counts: Counts::default(),
            chores: FewSet::default(),
            live: 0,
            merging: Merging::default(),
            chore_failures: 0,
            abandoned: 0,
            failure_rate: FailureRate::default(),
            riskiest: None,
            to_ask: BTreeSet::new(),
            listed: Wants::default(),
            waves: BTreeMap::new(),
        });
        self.ledger.mission_capped(*mission, policy.budget.mission_usd_max);
        self.want(*mission, Chore::Branch(*mission));
    }

    pub(in crate::state) fn accept_plan(
        &mut self,
        mission: MissionId,
        first: TaskId,
        plans: &[Arc<PlannedTask>],
    ) {
        let names = plans.iter().zip(first.0..).map(|(plan, n)| (plan.id.clone(), TaskId(n)));
        self.with_mission(mission, |m| {
            m.names.extend(names);
            m.convoys.planned(plans.iter().map(Arc::as_ref));
        });
        let mut dependents: BTreeMap<TaskId, Vec<TaskId>> = BTreeMap::new();
        for (plan, number) in plans.iter().zip(first.0..) {
            let dependencies = self.needs_of(mission, plan);
            for dep in &dependencies {
                dependents.entry(*dep).or_default().push(TaskId(number));
            }
            let merged = |id: &TaskId| self.task(*id).is_some_and(|t| t.stage == Stage::Done);
            let done = dependencies.iter().filter(|id| merged(id)).count() as u32;
            let mut task = new_task(TaskId(number), mission, Arc::clone(plan), dependencies);
            // A later plan may need what is merged already.
            task.waits_for = task.waits_for.saturating_sub(done);
            self.tasks.push(task);
        }
        for (id, list) in dependents {
            self.with_task(id, |task| task.dependents.extend(list));
            self.restand(id);
        }
        let end = first.0.saturating_add(plans.len() as u32);
        self.plan_chains((first.0..end).map(TaskId));
        self.with_mission(mission, |m| m.tasks.extend((first.0..end).map(TaskId)));
        self.plan_waves(mission, first, plans);
    }

    fn needs_of(&self, mission: MissionId, plan: &PlannedTask) -> Vec<TaskId> {
        let needs = plan.dependencies.iter().collect::<BTreeSet<_>>();
        let names = self.mission(mission).map(|m| &m.names);
        needs.into_iter().filter_map(|dep| names?.get(dep).copied()).collect()
    }

    pub(in crate::state) fn end_mission(
        &mut self,
        id: MissionId,
        at: Timestamp,
        stage: MissionStage,
    ) {
        let live = self.live_of(id).map(|(fence, _)| fence);
        for fence in live.collect::<Vec<_>>() {
            match self.lease(fence) {
                Some(_) => self.end_attempt(fence, Billed::Later, at),
                None => drop(self.end_live(fence)),
            }
        }
        let of_mission = |timer: &Timer, state: &State| match timer {
            Timer::Chore(mission, _) => *mission == id,
            Timer::Backoff(task) | Timer::Override(task) => {
                state.task(*task).is_some_and(|t| t.mission == id)
            }
            Timer::Renewal(mission) => *mission == id,
            Timer::Lease(_)
            | Timer::Deadline(_)
            | Timer::Scale(_)
            | Timer::Bill(_)
            | Timer::Grace
            | Timer::Notices => false,
        };
        let timers = std::mem::take(&mut self.timers);
        self.timers = timers.into_iter().filter(|(_, t)| !of_mission(t, self)).collect();
        self.clear_queue_of(id);
        self.broken_waves.retain(|(mission, _)| *mission != id);
        self.end_councils_of(id);
        self.breakers.forget(&BreakerKey::Mission(id));
        self.with_mission(id, |m| {
            m.stage = stage;
            m.paused = None;
            m.ended_at = Some(at);
            m.chores.clear();
            m.to_ask.clear();
            m.counts.ready = 0;
            let landings = std::mem::take(&mut m.merging.landings);
            m.merging = Merging { landings, ..Merging::default() };
            m.counts.parked = 0;
            m.counts.asking = 0;
            m.counts.gated = 0;
        });
        self.forget_people_of(id);
        self.notices.mission_ended(id);
        self.retime_notices();
    }
}

/// Those who name none share the list of none.
fn shared(files: &[String]) -> Arc<[Arc<str>]> {
    if files.is_empty() {
        return Arc::default();
    }
    files.iter().map(|path| Arc::from(path.as_str())).collect()
}

fn new_task(id: TaskId, mission: MissionId, plan: Arc<PlannedTask>, needs: Vec<TaskId>) -> Task {
    let checklist = Checklist::new(plan.required_actions.clone()).ok().map(Box::new);
    let operations = plan.file_operation_count;
    Task {
        id,
        mission,
        priority: plan.priority,
        files: shared(&plan.files),
        plan,
        waits_for: needs.len() as u32,
        dependencies: needs,
        dependents: Vec::new(),
        stage: Stage::Waiting,
        phase: 0,
        started: false,
        retrying: false,
        failed_up_to: None,
        attempts: 0,
        retries: 0,
        gave_way: 0,
        told: 0,
        was_queued: false,
        lost: 0,
        failures: BTreeMap::new(),
        last_failure: None,
        host_failure: None,
        hardship: None,
        asked_at: None,
        skipped: BTreeSet::new(),
        accepted_by_phase: Vec::new(),
        accepted: None,
        unfinished: None,
        phase_base: None,
        resume: None,
        checked: None,
        evidence: BTreeMap::new(),
        operations: Operations::new(operations),
        checklist,
        said: None,
        irreversible: false,
        agents: Vec::new(),
        before_in_batch: None,
        next_in_batch: None,
        touched: Arc::default(),
        frozen: Arc::default(),
        merged: None,
        taken_back: None,
        disputed: None,
        flaky: BTreeSet::new(),
        done: Done::default(),
        reviews: Reviews::default(),
        spent: Usd::ZERO,
        unbilled: Usd::ZERO,
        tier: None,
        outgrown: None,
        lineage: None,
        started_at: None,
        ended_at: None,
    }
}
