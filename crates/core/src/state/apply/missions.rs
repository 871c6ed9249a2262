//! Missions: opened, planned, ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::event::{Chore, Event};
use crate::ids::{MissionId, TaskId};
use crate::mission::{Counts, Mission, MissionStage};
use crate::money::Usd;
use crate::plan::PlannedTask;
use crate::state::{State, Timer};
use crate::task::{Stage, Task, score};
use crate::time::Timestamp;

impl State {
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
            base: base.clone(),
            branch: branch.clone(),
            policy: Arc::new((**policy).clone()),
            opened_by: by.clone(),
            opened_at: *at,
            ended_at: None,
            tip: None,
            tasks: Vec::new(),
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

    pub(in crate::state) fn accept_plan(
        &mut self,
        mission: MissionId,
        first: TaskId,
        plans: &[PlannedTask],
    ) {
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
        self.with_mission(mission, |m| m.tasks.extend((first.0..end).map(TaskId)));
    }

    pub(in crate::state) fn end_mission(
        &mut self,
        id: MissionId,
        at: Timestamp,
        stage: MissionStage,
    ) {
        let live = self.mission(id).map(|m| m.live.clone()).unwrap_or_default();
        for fence in live {
            self.end_live(fence);
        }
        let of_mission = |timer: &Timer, state: &State| match timer {
            Timer::Chore(mission, _) => *mission == id,
            Timer::Backoff(task) => state.task(*task).is_some_and(|t| t.mission == id),
            Timer::Lease(_) | Timer::Deadline(_) | Timer::Scale(_) => false,
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
