//! What happened to the queue. Each method is one fact of the journal, and total: a fact about
//! something that is no longer there changes nothing.

use super::change::{Change, Company, Entry, Paths, Place};
use super::lane::{Lane, LaneId, LaneStage, Step};
use super::plan::LanePlan;
use super::queue::{MergeQueue, News};
use crate::ids::{Commit, TaskId};
use crate::limits;

impl MergeQueue {
    pub fn enqueued(&mut self, change: Change) {
        let (task, arrival) = (change.task, self.next_arrival);
        let held_up = self.is_held_up(&change.paths);
        if self.entries.get(task).is_some() {
            return;
        }
        for need in &change.needs {
            self.needed_by.entry(*need).or_default().insert(task);
        }
        self.next_arrival += 1;
        let (company, waiting) = (Company::Any, Place::Waiting);
        let entry = Entry { change, arrival, rebases: 0, company, place: waiting };
        if entry.change.needs.is_empty() {
            self.ready.insert(entry.key());
        }
        self.entries.insert(task, Box::new(entry));
        self.hear(if held_up { News::HeldUp } else { News::Order });
    }

    /// The change is no longer wanted, or a person takes it over, or it was found guilty.
    pub fn withdrawn(&mut self, task: TaskId) {
        self.leave(task);
        self.rebasing.remove(&task);
        let Some(entry) = self.entries.remove(task) else { return };
        self.hear(News::Order);
        // Whoever is in a lane, under suspicion or rewritten is not among those that wait.
        if entry.place == Place::Waiting {
            self.ready.remove(&entry.key());
        }
        debug_assert!(!self.ready.contains(&entry.key()), "it waits, and is nowhere");
        for need in &entry.change.needs {
            self.release(*need, task);
        }
    }

    /// A planned lane is formed. Its id follows from the order of the facts.
    pub fn formed(&mut self, plan: &LanePlan) -> LaneId {
        self.hear(News::Formed);
        let id = LaneId(self.next_lane);
        self.next_lane += 1;
        let formed = |task: &TaskId| plan.members.contains(task) || plan.behind.contains(task);
        self.suspects.retain(|suspects| !suspects.iter().any(formed));
        let places = [(&plan.members, Place::Lane(id)), (&plan.behind, Place::Behind(id))];
        for (tasks, place) in places {
            for task in tasks {
                let Some(entry) = self.entries.get_mut(*task) else { continue };
                entry.place = place;
                let was_ready = self.ready.remove(&entry.key());
                self.sight = self.sight.saturating_sub(usize::from(was_ready));
            }
        }
        let (members, behind) = (plan.members.clone(), plan.behind.clone());
        let (stage, steps) = (LaneStage::Building, Vec::new());
        self.lanes.push(Lane { id, members, behind, stage, steps });
        id
    }

    /// The last of the steps is the candidate.
    pub fn built(&mut self, lane: LaneId, onto: &Commit, steps: &[Step]) {
        let (Some(index), Some(last)) = (self.lane_index(lane), steps.last()) else { return };
        if self.onto(index) == Some(onto) && self.lanes[index].stage == LaneStage::Building {
            self.hear(News::Lanes);
            let (onto, candidate) = (onto.clone(), last.commit.clone());
            self.lanes[index].steps = steps.to_vec();
            self.lanes[index].stage = LaneStage::Testing { onto, candidate, failed: Vec::new() };
        }
    }

    pub fn failed_once(&mut self, lane: LaneId, candidate: &Commit, failed: &[String]) {
        if let Some(LaneStage::Testing { failed: runs, .. }) = self.testing(lane, candidate) {
            runs.push(failed.to_vec());
        }
    }

    /// It failed, but stands on candidates that nobody has judged yet.
    pub fn held(&mut self, lane: LaneId, candidate: &Commit, failed: &[String]) {
        let Some(stage) = self.testing(lane, candidate) else { return };
        if let LaneStage::Testing { onto, candidate, .. } = stage.clone() {
            *stage = LaneStage::Held { onto, candidate, failed: failed.to_vec() };
            self.resume_held();
        }
    }

    /// It failed, and nobody knows whether the target itself does: that is measured first.
    pub fn doubted(&mut self, lane: LaneId, candidate: &Commit, failed: &[String]) {
        self.measuring = self.measured.as_ref() != Some(&self.tip);
        self.held(lane, candidate, failed);
    }

    pub fn passed(
        &mut self,
        lane: LaneId,
        candidate: &Commit,
        flaky: &[String],
        excused: &[String],
    ) {
        let Some(stage) = self.testing(lane, candidate) else { return };
        let LaneStage::Testing { onto, candidate, .. } = stage.clone() else { return };
        *stage = LaneStage::Passed { onto, candidate, excused: excused.to_vec() };
        for name in flaky {
            if self.flaky.len() < limits::MERGE_TESTS_NAMED_MAX || self.flaky.contains_key(name) {
                let times = self.flaky.entry(name.clone()).or_default();
                *times = times.saturating_add(1);
            }
        }
        self.resume_held();
    }

    /// The batch failed: its members are suspects, the half behind it is not any more.
    pub fn halved(&mut self, lane: LaneId) {
        let Some(lane) = self.dissolve(lane) else { return };
        for task in &lane.members {
            if let Some(entry) = self.entries.get_mut(*task) {
                entry.place = Place::Suspect;
            }
        }
        self.suspects.push_back(lane.members);
        lane.behind.into_iter().for_each(|task| self.wait(task));
    }

    /// The one member of the lane is the culprit and leaves the queue.
    pub fn blamed(&mut self, lane: LaneId) {
        let Some(lane) = self.dissolve(lane) else { return };
        lane.behind.into_iter().for_each(|task| self.wait(task));
        lane.members.into_iter().for_each(|task| self.withdrawn(task));
    }

    /// The target was advanced to the candidate of the first lane.
    pub fn landed(&mut self, lane: LaneId) {
        let Some(first) = self.lanes.first().filter(|first| first.id == lane) else { return };
        let LaneStage::Passed { onto, candidate, excused } = first.stage.clone() else { return };
        if onto != self.tip {
            return;
        }
        self.hear(News::Order);
        let lane = self.lanes.remove(0);
        self.measured = Some(candidate.clone());
        self.measuring = false;
        self.tip = candidate;
        // What failed before and did not fail here is mended: the next to break it is to blame.
        self.baseline = excused.into_iter().collect();
        self.test_again_without_excuse();
        self.resume_held();
        for task in lane.members {
            let dependents = self.needed_by.remove(&task).unwrap_or_default();
            self.withdrawn(task);
            for dependent in dependents {
                let Some(entry) = self.entries.get_mut(dependent) else { continue };
                entry.change.needs.remove(&task);
                if entry.place == Place::Waiting && entry.change.needs.is_empty() {
                    self.ready.insert(entry.key());
                }
            }
        }
        if !lane.behind.is_empty() {
            for task in &lane.behind {
                if let Some(entry) = self.entries.get_mut(*task) {
                    entry.place = Place::Suspect;
                }
            }
            self.suspects.push_front(lane.behind);
        }
    }

    /// The target is not where it was left. Whatever was tested was tested on something else.
    pub fn moved(&mut self, actual: Commit) {
        if self.tip != actual {
            self.hear(News::Lanes);
            self.tip = actual;
            (self.measured, self.measuring) = (None, false);
            self.baseline.clear();
            self.rebuild_from(0);
        }
    }

    /// It conflicted in company and is tried alone.
    pub fn set_aside(&mut self, task: TaskId) {
        self.leave(task);
        if let Some(entry) = self.entries.get_mut(task) {
            entry.company = Company::Alone;
            self.wait(task);
        }
    }

    pub fn rebase_started(&mut self, task: TaskId) {
        self.leave(task);
        if let Some(entry) = self.entries.get_mut(task) {
            let key = entry.key();
            (entry.place, entry.company) = (Place::Rebasing, Company::Any);
            entry.rebases = entry.rebases.saturating_add(1);
            self.ready.remove(&key);
            self.rebasing.insert(task);
        }
    }

    pub fn rebased(&mut self, task: TaskId, commit: Commit, paths: Paths) {
        let Some(entry) = self.entries.get_mut(task) else { return };
        if entry.place == Place::Rebasing {
            (entry.change.commit, entry.change.paths) = (commit, paths);
            self.hear(News::Order);
            self.rebasing.remove(&task);
            self.wait(task);
        }
    }

    /// These tests fail on the target itself, and are not blamed on who comes next.
    pub fn baseline_measured(&mut self, tip: &Commit, failing: &[String]) {
        if *tip != self.tip {
            return;
        }
        self.hear(News::Lanes);
        let bounded = failing.iter().take(limits::MERGE_TESTS_NAMED_MAX);
        self.baseline = bounded.cloned().collect();
        (self.measured, self.measuring) = (Some(tip.clone()), false);
        self.resume_held();
    }

    fn testing(&mut self, lane: LaneId, candidate: &Commit) -> Option<&mut LaneStage> {
        self.hear(News::Lanes);
        let index = self.lane_index(lane)?;
        let stage = &mut self.lanes[index].stage;
        let is_it = matches!(stage, LaneStage::Testing { candidate: it, .. } if it == candidate);
        is_it.then_some(stage)
    }

    fn wait(&mut self, task: TaskId) {
        let Some(entry) = self.entries.get_mut(task) else { return };
        entry.place = Place::Waiting;
        if entry.change.needs.is_empty() {
            self.ready.insert(entry.key());
        }
    }

    /// Takes a change out of its lane or its group, with those there that need it and would land
    /// without it; the rest goes on.
    fn leave(&mut self, task: TaskId) {
        self.take_out(task);
        let dependents = self.needed_by.get(&task).into_iter().flatten().copied();
        for dependent in dependents.collect::<Vec<_>>() {
            let place = self.entries.get(dependent).map(|entry| entry.place);
            if let Some(Place::Lane(_) | Place::Behind(_) | Place::Suspect) = place {
                self.leave(dependent);
                self.wait(dependent);
            }
        }
    }

    fn take_out(&mut self, task: TaskId) {
        let Some(place) = self.entries.get(task).map(|entry| entry.place) else { return };
        self.hear(News::Order);
        match place {
            Place::Waiting | Place::Rebasing => {}
            Place::Suspect => {
                self.suspects.iter_mut().for_each(|group| group.retain(|member| *member != task));
                self.suspects.retain(|group| !group.is_empty());
            }
            Place::Behind(id) => {
                if let Some(index) = self.lane_index(id) {
                    self.lanes[index].behind.retain(|member| *member != task);
                }
            }
            Place::Lane(id) => {
                let Some(index) = self.lane_index(id) else { return };
                self.lanes[index].members.retain(|member| *member != task);
                self.rebuild_from(index);
                if self.lanes[index].members.is_empty() {
                    let behind = std::mem::take(&mut self.lanes[index].behind);
                    self.lanes.remove(index);
                    behind.into_iter().for_each(|task| self.wait(task));
                }
            }
        }
    }

    /// Takes a lane out of the chain; those behind it were built on it and are built anew.
    fn dissolve(&mut self, lane: LaneId) -> Option<Lane> {
        let index = self.lane_index(lane)?;
        self.hear(News::Order);
        self.rebuild_from(index);
        Some(self.lanes.remove(index))
    }

    fn rebuild_from(&mut self, index: usize) {
        for lane in self.lanes.iter_mut().skip(index) {
            (lane.stage, lane.steps) = (LaneStage::Building, Vec::new());
        }
    }

    /// A candidate that passed only because of an excuse that no longer holds has to show again.
    fn test_again_without_excuse(&mut self) {
        for lane in &mut self.lanes {
            if let LaneStage::Passed { onto, candidate, excused } = &lane.stage
                && !excused.iter().all(|name| self.baseline.contains(name))
            {
                let (onto, candidate) = (onto.clone(), candidate.clone());
                lane.stage = LaneStage::Testing { onto, candidate, failed: Vec::new() };
            }
        }
    }

    /// When all before it have passed, a held failure is its own; the run that confirms it begins.
    fn resume_held(&mut self) {
        if self.measuring {
            return;
        }
        let open = |lane: &&mut Lane| !matches!(lane.stage, LaneStage::Passed { .. });
        let Some(lane) = self.lanes.iter_mut().find(open) else { return };
        if let LaneStage::Held { onto, candidate, failed } = lane.stage.clone() {
            lane.stage = LaneStage::Testing { onto, candidate, failed: vec![failed] };
        }
    }

    fn hear(&mut self, news: News) {
        if news == News::Order {
            self.sight = limits::MERGE_LOOKAHEAD_MAX;
        }
        self.news = self.news.max(news);
    }

    fn release(&mut self, need: TaskId, task: TaskId) {
        if let Some(waiting) = self.needed_by.get_mut(&need) {
            waiting.remove(&task);
            if waiting.is_empty() {
                self.needed_by.remove(&need);
            }
        }
    }
}
