//! Merging and rollback: what the queue is told, and what should be in flight for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::approval::Subject;
use crate::effect::{Effect, Merge};
use crate::event::{Chore, Event};
use crate::ids::{Commit, Fence, MissionId, TaskId};
use crate::merge::{
    AfterConflict, AfterTests, Change, Duty, LaneId, LanePlan, MergeQueue, News, Paths, Work,
};
use crate::mission::{Merging, Mission};
use crate::plan::TaskKind;
use crate::rollback::{Landing, Migration, Revert, Word};
use crate::state::{State, gate};
use crate::task::{Stage, TakenBack, Task};
use crate::time::Timestamp;

/// Broken work on the branch hurts everybody who starts from it: its reversal goes first.
const ROLLBACK_PRIORITY: i64 = i64::MAX;

impl State {
    /// The arms of `apply` about lanes and rollbacks; it names each of them, so none is forgotten.
    pub(in crate::state) fn apply_to_merge(&mut self, event: &Event) {
        match event {
            Event::LaneFormed { mission, members, behind, .. } => {
                let plan = LanePlan { members: members.clone(), behind: behind.clone() };
                self.with_queue(*mission, |queue| {
                    queue.formed(&plan);
                });
            }
            Event::LaneBuilt { mission, fence, lane, onto, steps } => {
                self.chore_done(*fence);
                self.with_queue(*mission, |queue| queue.built(*lane, onto, steps));
            }
            Event::LaneTested { mission, fence, lane, candidate, verdict, results } => {
                self.chore_done(*fence);
                let queue = self.mission(*mission).and_then(|m| m.merging.queue.as_ref());
                let aboard = queue.map(|queue| queue.members(*lane).to_vec()).unwrap_or_default();
                self.note_tests(&aboard, candidate, results);
                if let AfterTests::Passed { flaky, .. } = verdict {
                    self.note_flaky(&aboard, flaky);
                }
                self.with_queue(*mission, |queue| judge(queue, *lane, candidate, verdict));
            }
            Event::LanePassed { mission, lane, candidate } => {
                self.with_queue(*mission, |queue| queue.passed(*lane, candidate, &[], &[]));
            }
            Event::LaneLanded { mission, fence, lane, commit } => {
                self.chore_done(*fence);
                self.with_mission(*mission, |m| m.tip = Some(commit.clone()));
                self.with_queue(*mission, |queue| queue.landed(*lane));
            }
            Event::TargetMoved { mission, fence, actual } => {
                self.chore_done(*fence);
                self.with_mission(*mission, |m| m.tip = Some(actual.clone()));
                self.with_queue(*mission, |queue| queue.moved(actual.clone()));
            }
            Event::BaselineMeasured { mission, fence, commit, results } => {
                self.chore_done(*fence);
                self.note_tests(&[], commit, results);
                let policy = self.mission(*mission).map(|mission| mission.policy.clone());
                let policy = policy.unwrap_or_default();
                let failing = gate::failing(&policy, self.tests.quarantine(), results);
                let failing: Vec<String> = failing.into_iter().collect();
                self.with_queue(*mission, |queue| queue.baseline_measured(commit, &failing));
            }
            Event::ChangeConflicted { .. } => self.conflict(event),
            Event::ChangeRebased { task, fence, change, touched } => {
                self.chore_done(*fence);
                self.with_task(*task, |t| {
                    t.accepted = Some(change.clone());
                    t.touched = Arc::default();
                    t.touch(touched);
                });
                let paths = self.task(*task).map_or(Paths::Unknown, paths_of);
                self.with_queue_of(*task, |queue| queue.rebased(*task, change.clone(), paths));
            }
            Event::RollbackStarted { mission, task, tasks, reason, by } => {
                for &one in tasks {
                    let told = TakenBack { by: by.clone(), reason: reason.clone() };
                    self.with_task(one, |t| t.taken_back = Some(Box::new(told)));
                }
                self.with_mission(*mission, |m| {
                    m.merging.rollbacks.insert(*task, tasks.clone());
                });
                self.close_wave_gate(*task);
                self.withdraw_proposal(*mission);
                self.sync_merge(*mission);
            }
            Event::RevertBuilt { task, fence, change } => {
                self.chore_done(*fence);
                self.enqueue_revert(*task, change);
            }
            Event::RollbackFailed { task, reason } => {
                self.call_off_wave(*task, reason);
                self.call_off_rollback(*task);
            }
            Event::TaskRolledBack { task, at, .. } => self.take_back(*task, *at),
            _ => {}
        }
    }

    /// The one door of the merge queue: everything that a change has to show is shown.
    pub(in crate::state) fn enter_merge_queue(&mut self, id: TaskId) {
        self.move_to(id, Stage::Queued);
        let Some(task) = self.task(id) else { return };
        let Some(commit) = task.accepted.clone() else { return };
        let is_open = |need: &&TaskId| self.task(**need).is_none_or(|t| t.stage != Stage::Done);
        let change = Change {
            task: id,
            commit,
            priority: self.score(task).as_tenths(),
            needs: task.dependencies.iter().filter(is_open).copied().collect(),
            paths: paths_of(task),
        };
        self.with_change(id, |queue| queue.enqueued(change));
    }

    fn conflict(&mut self, event: &Event) {
        let Event::ChangeConflicted { task, fence, next, question, .. } = event else { return };
        self.chore_done(*fence);
        match (next, question) {
            (AfterConflict::TryAlone, _) => {
                self.with_queue_of(*task, |queue| queue.set_aside(*task));
            }
            (AfterConflict::Rebase, _) => {
                self.with_queue_of(*task, |queue| queue.rebase_started(*task));
            }
            // A reversal that does not fit: its rollback is called off next.
            (AfterConflict::AskPerson, None) => {
                self.with_queue_of(*task, |queue| queue.withdrawn(*task));
            }
            (AfterConflict::AskPerson, Some(question)) => {
                self.with_task(*task, Task::begin_anew);
                self.discard(*task);
                self.move_to(*task, Stage::Asking { question: question.clone() });
            }
        }
    }

    fn enqueue_revert(&mut self, root: TaskId, change: &Commit) {
        let Some(mission) = self.task(root).and_then(|task| self.mission(task.mission)) else {
            return;
        };
        let tasks = mission.merging.rollbacks.get(&root).into_iter().flatten();
        let landings = tasks.filter_map(|task| mission.merging.landings.landing(*task));
        let all = landings.map(|landing| match &landing.paths {
            Paths::Known(files) => Some(files.iter().cloned()),
            Paths::Unknown => None,
        });
        let all: Option<Vec<_>> = all.collect();
        let paths = all.map_or(Paths::Unknown, |sets| {
            let mut files: Vec<String> = sets.into_iter().flatten().collect();
            files.sort_unstable();
            files.dedup();
            Paths::Known(Arc::new(files))
        });
        let (commit, priority, needs) = (change.clone(), ROLLBACK_PRIORITY, BTreeSet::new());
        let again = mission.merging.queue.as_ref().is_some_and(|q| q.standing(root).is_some());
        self.with_queue_of(root, |queue| match again {
            true => queue.rebased(root, commit, paths),
            false => queue.enqueued(Change { task: root, commit, priority, needs, paths }),
        });
    }

    fn call_off_rollback(&mut self, root: TaskId) {
        let Some(id) = self.task(root).map(|task| task.mission) else { return };
        let mut stays = Vec::new();
        self.with_mission(id, |m| stays = m.merging.rollbacks.remove(&root).unwrap_or_default());
        for one in stays {
            self.with_task(one, |task| task.taken_back = None);
        }
        self.with_queue(id, |queue| queue.withdrawn(root));
    }

    fn take_back(&mut self, id: TaskId, at: Timestamp) {
        self.with_task(id, |task| {
            task.merged = None;
            task.ended_at = Some(at);
        });
        self.move_to(id, Stage::RolledBack);
        let dependents = self.task(id).map(|t| t.dependents.clone()).unwrap_or_default();
        for dependent in dependents {
            self.with_task(dependent, |task| task.waits_for += 1);
            self.set_aside(dependent);
        }
        self.with_mission_of(id, |m| {
            m.merging.landings.rolled_back(id);
            m.merging.rollbacks.retain(|_, tasks| {
                tasks.retain(|task| *task != id);
                !tasks.is_empty()
            });
        });
        if let Some(mission) = self.task(id).map(|task| task.mission) {
            self.sync_merge(mission);
        }
    }

    /// What a task needs is gone, and with it the ground of all that its phases left. It stays under
    /// hidden refs; whoever does the task again begins anew.
    fn set_aside(&mut self, id: TaskId) {
        if self.task(id).is_none_or(|task| !matches!(task.stage, Stage::Blocked { .. })) {
            return;
        }
        self.with_task(id, |task| {
            task.begin_anew();
            (task.was_queued, task.resume, task.checked) = (false, None, None);
        });
        self.discard(id);
        self.close_gate(Subject::Merge(id));
    }

    /// What is known of a merged task for the day that somebody wants to take it back.
    pub(in crate::state) fn note_landing(&mut self, id: TaskId, onto: &Commit, commit: &Commit) {
        let Some(task) = self.task(id) else { return };
        let wave = self.mission(task.mission).and_then(|mission| mission.wave_of(task)?.id());
        let landing = Landing {
            task: id,
            name: task.name().to_owned(),
            commits: vec![commit.clone()],
            paths: paths_of(task),
            needs: task.dependencies.iter().copied().collect(),
            wave,
            migration: migration_of(task),
            word: if task.irreversible { Word::Irreversible } else { Word::Nothing },
            last_good: onto.clone(),
        };
        self.with_mission_of(id, |m| m.merging.landings.landed(landing));
    }

    pub(in crate::state) fn with_queue_of(
        &mut self,
        task: TaskId,
        change: impl FnOnce(&mut MergeQueue),
    ) {
        if let Some(id) = self.task(task).map(|t| t.mission) {
            self.with_queue(id, change);
        }
    }

    /// Something happened to what is under way for a queue: what should be, is looked at again.
    pub(in crate::state) fn with_queue(
        &mut self,
        id: MissionId,
        change: impl FnOnce(&mut MergeQueue),
    ) {
        let _ = self.tell_queue(id, change);
        self.sync_merge(id);
    }

    /// A change comes or goes. Most come while lanes that hold them up are under way, and most go
    /// with a lane that has landed: nothing else follows from these.
    pub(in crate::state) fn with_change(
        &mut self,
        id: TaskId,
        change: impl FnOnce(&mut MergeQueue),
    ) {
        let Some(mission) = self.task(id).map(|task| task.mission) else { return };
        if self.tell_queue(mission, change) > News::HeldUp {
            self.sync_merge(mission);
        }
    }

    /// Every fact of a merge queue passes here, so that what it plans is right afterwards.
    fn tell_queue(&mut self, id: MissionId, change: impl FnOnce(&mut MergeQueue)) -> News {
        let index = (id.0 as usize).wrapping_sub(1);
        let Some(mission) = self.missions.get_mut(index) else { return News::Nothing };
        let Some(queue) = &mut mission.merging.queue else { return News::Nothing };
        change(queue);
        let planned = &mut mission.merging.planned;
        let news = match queue.take_news() {
            // It may come before whoever was to be next.
            News::HeldUp if !planned.is_empty() => News::Order,
            news => news,
        };
        match news {
            News::Order => *planned = queue.plan(),
            News::Formed => queue.plan_on(planned),
            News::Nothing | News::HeldUp | News::Lanes => {}
        }
        debug_assert_eq!(mission.merging.planned, queue.plan(), "no news, but another plan");
        news
    }

    /// Compares what the queue wants with what is in flight for it.
    pub(in crate::state) fn sync_merge(&mut self, id: MissionId) {
        let Some(mission) = self.mission(id) else { return };
        let running = mission.merging.running.iter();
        let unwanted = running.filter(|(fence, chore)| !self.is_wanted(mission, **fence, **chore));
        let stale: BTreeSet<Fence> = unwanted.map(|(fence, _)| *fence).collect();
        self.with_mission(id, |m| {
            m.chores.retain(|chore| !chore.is_of_queue());
            m.merging.stale = stale;
            let Merging { running, stale, parked, .. } = &m.merging;
            let runs = |chore: Chore| {
                running.iter().any(|(fence, of)| *of == chore && !stale.contains(fence))
            };
            let waits = |chore: &Chore| !runs(*chore) && !parked.contains(chore);
            m.chores.extend(due_chores(id, &m.merging).filter(waits));
        });
        self.sync_stages(id);
    }

    /// Whether what is in flight is still what the queue wants, to the letter. A reversal may be on
    /// top of an older branch: if it does not fit, it is written anew.
    fn is_wanted(&self, mission: &Mission, fence: Fence, chore: Chore) -> bool {
        let merging = &mission.merging;
        let work = || merging.queue.as_ref()?.work(duty_of(chore)?);
        due_chores(mission.id, merging).any(|due| due == chore)
            && self.due.get(fence).is_some_and(|effect| match effect {
                Effect::BuildRevert { .. } => true,
                _ => work().is_some_and(|work| effect.performs(&work)),
            })
    }

    /// Puts tasks into the stage that the queue has them in: those in a lane, and those that were
    /// in one when somebody last looked. From one place in the queue to another, so nothing but
    /// the task itself knows of it.
    fn sync_stages(&mut self, id: MissionId) {
        let State { missions, tasks, .. } = self;
        let Some(mission) = missions.get_mut((id.0 as usize).wrapping_sub(1)) else { return };
        let Merging { queue: Some(queue), aboard, .. } = &mut mission.merging else { return };
        for (id, candidate, checked) in queue.aboard() {
            let Some(stage) = merging_stage(tasks, id) else { continue };
            let is_there = matches!(&*stage, Stage::Merging { candidate: c, checked: k }
                if c.as_ref() == candidate && *k == checked);
            if !is_there {
                *stage = Stage::Merging { candidate: candidate.cloned(), checked };
            }
        }
        for &id in aboard.iter().filter(|id| queue.lane_of(**id).is_none()) {
            if let Some(stage) = queue.standing(id).and_then(|_| merging_stage(tasks, id)) {
                *stage = Stage::Queued;
            }
        }
        aboard.clear();
        aboard.extend(queue.aboard().map(|(task, ..)| task));
        aboard.sort_unstable();
    }

    pub(in crate::state) fn queue_effect(&self, mission: &Mission, chore: Chore) -> Option<Effect> {
        let queue = mission.merging.queue.as_ref()?;
        let (id, policy) = (mission.id, || mission.policy.clone());
        if let Chore::Revert(task) = chore {
            let tasks = mission.merging.rollbacks.get(&task)?;
            let reverts: Vec<Revert> =
                tasks.iter().filter_map(|task| mission.merging.landings.revert(*task)).collect();
            return Some(Effect::BuildRevert { task, onto: queue.tip().clone(), reverts });
        }
        let is_due = |duty: &Duty| chore_of(id, &mission.merging, *duty) == chore;
        let work = duty_of(chore).filter(is_due).and_then(|duty| queue.work(duty));
        Some(match work? {
            Work::Build { lane, onto, changes } => {
                let merges = changes.into_iter().filter_map(|(task, change)| {
                    let plan = Arc::clone(&self.task(task)?.plan);
                    Some(Merge { task, change, plan })
                });
                Effect::BuildLane { mission: id, lane, onto, changes: merges.collect() }
            }
            Work::Test { lane, candidate, .. } => {
                Effect::TestLane { mission: id, lane, candidate, policy: policy() }
            }
            Work::Land { lane, from, to } => {
                let branch = mission.branch.clone();
                Effect::LandLane { mission: id, lane, branch, from, to }
            }
            Work::Rebase { task, change, onto } => Effect::RebaseChange { task, change, onto },
            Work::Measure { tip } => {
                Effect::MeasureBaseline { mission: id, commit: tip, policy: policy() }
            }
        })
    }

    /// The chore that stands for one of a journal from before there were lanes: a lane of one.
    pub(in crate::state) fn chore_today(&mut self, mission: MissionId, chore: Chore) -> Chore {
        let (task, today): (TaskId, fn(LaneId) -> Chore) = match chore {
            Chore::Candidate(task) => (task, Chore::LaneBuild),
            Chore::CandidateChecks(task) => (task, Chore::LaneTest),
            Chore::Advance(task) => (task, Chore::LaneLand),
            _ => return chore,
        };
        let lane_of = |state: &State| state.mission(mission)?.merging.queue.as_ref()?.lane_of(task);
        if lane_of(self).is_none() {
            let plan = LanePlan { members: vec![task], behind: Vec::new() };
            self.with_queue(mission, |queue| {
                queue.formed(&plan);
            });
        }
        lane_of(self).map_or(chore, today)
    }

    /// What an old journal says of the one change that was being merged.
    pub(in crate::state) fn with_lane_of(
        &mut self,
        task: TaskId,
        change: impl FnOnce(&mut MergeQueue, LaneId),
    ) {
        let mission = self.task(task).and_then(|t| self.mission(t.mission));
        let queue = mission.and_then(|m| m.merging.queue.as_ref());
        let lane = queue.and_then(|queue| queue.lane_of(task));
        if let Some(lane) = lane {
            self.with_queue_of(task, |queue| change(queue, lane));
        }
    }

    pub(in crate::state) fn open_queue(&mut self, id: MissionId, tip: &Commit) {
        self.with_mission(id, |m| {
            let policy = m.policy.merge.clone();
            m.merging.queue.get_or_insert_with(|| MergeQueue::new(policy, tip.clone()));
        });
    }
}

/// Everything that should be in flight for a queue and its rollbacks.
fn due_chores(mission: MissionId, merging: &Merging) -> impl Iterator<Item = Chore> {
    merging.queue.iter().flat_map(move |queue| {
        let unwritten = merging.rollbacks.keys().filter(|task| queue.standing(**task).is_none());
        let duties = queue.duties().map(move |duty| chore_of(mission, merging, duty));
        duties.chain(unwritten.map(|task| Chore::Revert(*task)))
    })
}

/// The chore that does a piece of the queue's work.
fn chore_of(mission: MissionId, merging: &Merging, duty: Duty) -> Chore {
    match duty {
        Duty::Build(lane) => Chore::LaneBuild(lane),
        Duty::Test(lane) => Chore::LaneTest(lane),
        Duty::Land(lane) => Chore::LaneLand(lane),
        // A reversal that does not fit is written anew, on the branch as it is.
        Duty::Rebase(task) if merging.rollbacks.contains_key(&task) => Chore::Revert(task),
        Duty::Rebase(task) => Chore::Rebase(task),
        Duty::Measure => Chore::Baseline(mission),
    }
}

/// What a chore does of the queue's work. Reversals are written for a rollback, not for the queue.
fn duty_of(chore: Chore) -> Option<Duty> {
    match chore {
        Chore::LaneBuild(lane) => Some(Duty::Build(lane)),
        Chore::LaneTest(lane) => Some(Duty::Test(lane)),
        Chore::LaneLand(lane) => Some(Duty::Land(lane)),
        Chore::Rebase(task) => Some(Duty::Rebase(task)),
        Chore::Baseline(_) => Some(Duty::Measure),
        Chore::Revert(_)
        | Chore::Branch(_)
        | Chore::Gate(_)
        | Chore::Candidate(_)
        | Chore::CandidateChecks(_)
        | Chore::Advance(_)
        | Chore::Delivery(_) => None,
    }
}

/// The stage of a task, if that is one of those that a change in the queue goes through.
fn merging_stage(tasks: &mut [Task], id: TaskId) -> Option<&mut Stage> {
    let task = tasks.get_mut((id.0 as usize).checked_sub(1)?)?;
    State::is_merging(&task.stage).then_some(&mut task.stage)
}

fn judge(queue: &mut MergeQueue, lane: LaneId, candidate: &Commit, verdict: &AfterTests) {
    match verdict {
        AfterTests::Passed { flaky, excused } => queue.passed(lane, candidate, flaky, excused),
        AfterTests::Held { failed } => queue.held(lane, candidate, failed),
        AfterTests::TestAgain { failed } => queue.failed_once(lane, candidate, failed),
        AfterTests::Doubted { failed } => queue.doubted(lane, candidate, failed),
        AfterTests::Halved { .. } => queue.halved(lane),
        AfterTests::Blamed { .. } => queue.blamed(lane),
    }
}

fn paths_of(task: &Task) -> Paths {
    Paths::of(&task.touched)
}

/// A migration is taken back only if it left the way back beside it (GIT-20).
fn migration_of(task: &Task) -> Migration {
    let is_way_back = |path: &String| {
        let name = path.rsplit('/').next().unwrap_or_default();
        name.starts_with("down.") || name.contains(".down.") || name.contains("_down.")
    };
    // Where every framework that we know of puts them; what is in a file git cannot tell us.
    let is_migration = |path: &String| {
        let mut folders = path.as_bytes().rsplit(|byte| *byte == b'/').skip(1).peekable();
        while let Some(folder) = folders.next() {
            match folder {
                b"migrations" | b"migrate" | b"migration" => return true,
                b"versions" if folders.peek().is_some_and(|of| of.ends_with(b"alembic")) => {
                    return true;
                }
                _ => {}
            }
        }
        false
    };
    let folder = |path: &String| path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
    let is_planned = task.plan.kind == TaskKind::Migration;
    // A `drop_down.tsx` elsewhere is no way back.
    let is_beside = |path: &String| {
        let others = task.touched.iter().filter(|other| *other != path);
        let mut others = others.filter(|other| folder(other) == folder(path));
        others.any(|other| is_planned || is_migration(other))
    };
    let migrates = is_planned || task.touched.iter().any(is_migration);
    match migrates {
        false => Migration::None,
        true if task.touched.iter().any(|path| is_way_back(path) && is_beside(path)) => {
            Migration::WithWayBack
        }
        true => Migration::OneWay,
    }
}
