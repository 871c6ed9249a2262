//! Which changes go into the next lanes.
//!
//! Groups under suspicion go first. Then the ready changes in their order: one that touches files
//! of a lane that is being formed joins it, one that touches no common file gets a lane of its
//! own, one that touches files of a lane under way waits. A change that has to wait keeps its
//! files, so that nobody behind it takes them and keeps it waiting.

use serde::{Deserialize, Serialize};

use super::change::{Company, Paths};
use super::queue::MergeQueue;
use crate::ids::TaskId;
use crate::limits;

/// A lane to be formed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanePlan {
    pub members: Vec<TaskId>,
    /// The other half of a suspect group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<TaskId>,
}

/// A set of files, one of which may be "any".
#[derive(Debug, Default)]
struct Files<'a> {
    /// In order.
    known: Vec<&'a str>,
    any: bool,
}

impl<'a> Files<'a> {
    fn overlaps(&self, paths: &Paths) -> bool {
        match paths {
            Paths::Unknown => self.any || !self.known.is_empty(),
            Paths::Known(paths) => self.any || paths.iter().any(|path| self.has(path)),
        }
    }

    fn add(&mut self, paths: &'a Paths) {
        match paths {
            Paths::Unknown => self.any = true,
            // The most frequent case by far, and cheaper to look up than to insert.
            Paths::Known(_) if self.covers(paths) => {}
            // Two lists in order: sorting them is merging them.
            Paths::Known(paths) => {
                self.known.extend(paths.iter().map(String::as_str));
                self.known.sort();
                self.known.dedup();
            }
        }
    }

    /// Whether it has all of these, and some there are.
    fn covers(&self, paths: &Paths) -> bool {
        match paths {
            Paths::Unknown => false,
            Paths::Known(paths) => !paths.is_empty() && paths.iter().all(|path| self.has(path)),
        }
    }

    fn has(&self, path: &str) -> bool {
        self.known.binary_search(&path).is_ok()
    }
}

struct Forming<'a> {
    plan: LanePlan,
    files: Files<'a>,
}

/// The lanes being formed, and the files that are spoken for.
struct Draft<'a> {
    lanes: Vec<Forming<'a>>,
    taken: Files<'a>,
    room: usize,
}

impl MergeQueue {
    /// The lanes that should be formed now; each becomes one `formed` fact, in this order.
    #[must_use]
    pub fn plan(&self) -> Vec<LanePlan> {
        let lanes_max = self.policy.lanes_max as usize;
        let room = lanes_max.saturating_sub(self.lanes.len());
        if room == 0 || (self.ready.is_empty() && self.suspects.is_empty()) {
            return Vec::new();
        }
        let mut draft = Draft { lanes: Vec::new(), taken: Files::default(), room };
        for lane in &self.lanes {
            self.take(&mut draft.taken, &lane.members);
            self.take(&mut draft.taken, &lane.behind);
        }
        let probes = self.plan_probes(&mut draft);
        self.plan_ready(&mut draft, probes);
        draft.lanes.into_iter().map(|lane| lane.plan).collect()
    }

    /// A lane was formed. If it is the first of the plan, what is left of the plan is the plan,
    /// unless it had to be alone, which held up the others until now.
    pub(crate) fn plan_on(&self, planned: &mut Vec<LanePlan>) {
        let is_first = planned.first().is_some_and(|first| {
            let alone = |task: &TaskId| {
                self.entries.get(*task).is_some_and(|entry| entry.company == Company::Alone)
            };
            let formed = self.lanes.last().map(|lane| (&lane.members, &lane.behind));
            formed == Some((&first.members, &first.behind))
                && self.suspects.len() < limits::MERGE_LOOKAHEAD_MAX
                && !first.members.iter().any(alone)
        });
        match is_first {
            true => drop(planned.remove(0)),
            false => *planned = self.plan(),
        }
    }

    /// Whether lanes that are under way keep a change with these files waiting: it has a file of
    /// theirs, or there is no room beside them.
    pub(super) fn is_held_up(&self, paths: &Paths) -> bool {
        let meets = |other: &TaskId| {
            let other = self.entries.get(*other);
            other.is_some_and(|other| other.change.paths.overlaps(paths))
        };
        self.lanes.len() >= self.policy.lanes_max as usize
            || self.lanes.iter().any(|lane| lane.members.iter().chain(&lane.behind).any(meets))
    }

    fn take<'a>(&'a self, files: &mut Files<'a>, tasks: &[TaskId]) {
        for entry in tasks.iter().filter_map(|task| self.entries.get(*task)) {
            files.add(&entry.change.paths);
        }
    }

    /// The first half of each suspect group, as far as there is room. Returns how many.
    fn plan_probes<'a>(&'a self, draft: &mut Draft<'a>) -> usize {
        for group in self.suspects.iter().take(limits::MERGE_LOOKAHEAD_MAX) {
            let free = group
                .iter()
                .filter_map(|task| self.entries.get(*task))
                .all(|entry| !draft.taken.overlaps(&entry.change.paths));
            self.take(&mut draft.taken, group);
            if free && draft.lanes.len() < draft.room {
                let (members, behind) = group.split_at(group.len().div_ceil(2));
                let plan = LanePlan { members: members.to_vec(), behind: behind.to_vec() };
                draft.lanes.push(Forming { plan, files: Files::default() });
            }
        }
        draft.lanes.len()
    }

    fn plan_ready<'a>(&'a self, draft: &mut Draft<'a>, probes: usize) {
        let batch_max = self.policy.batch_changes_max as usize;
        for (_, _, task) in self.ready.iter().take(self.sight) {
            let Some(waiting) = self.entries.get(*task) else { continue };
            if waiting.company == Company::Alone {
                // It needs the queue for itself: nobody behind it starts before it had its turn.
                if draft.lanes.is_empty() && self.lanes.is_empty() {
                    let plan = LanePlan { members: vec![*task], behind: Vec::new() };
                    draft.lanes.push(Forming { plan, files: Files::default() });
                }
                return;
            }
            let paths = &waiting.change.paths;
            // It waits, and takes nothing that is not taken.
            if draft.taken.covers(paths) {
                continue;
            }
            match draft.place(paths, probes, batch_max) {
                Some(index) => {
                    let lane = &mut draft.lanes[index];
                    lane.plan.members.push(*task);
                    lane.files.add(paths);
                    self.plan_dependents(*task, draft, index, batch_max);
                }
                None => draft.taken.add(paths),
            }
        }
    }

    /// Changes that need only what is in this lane may follow in it.
    fn plan_dependents<'a>(
        &'a self,
        task: TaskId,
        draft: &mut Draft<'a>,
        index: usize,
        batch_max: usize,
    ) {
        if !self.needed_by.contains_key(&task) {
            return;
        }
        let mut open = vec![task];
        while let Some(done) = open.pop() {
            let dependents = self.needed_by.get(&done).into_iter().flatten();
            for next in dependents.take(limits::MERGE_LOOKAHEAD_MAX) {
                let Some(entry) = self.entries.get(*next) else { continue };
                let (members, paths) = (&draft.lanes[index].plan.members, &entry.change.paths);
                let others = draft.lanes.iter().enumerate().filter(|(other, _)| *other != index);
                let fits = members.len() < batch_max
                    && entry.is_free_to_follow(members)
                    && !draft.taken.overlaps(paths)
                    && !others.into_iter().any(|(_, other)| other.files.overlaps(paths));
                if fits {
                    let lane = &mut draft.lanes[index];
                    lane.plan.members.push(*next);
                    lane.files.add(paths);
                    open.push(*next);
                }
            }
        }
    }
}

impl Draft<'_> {
    /// The lane that a change with these files goes into; None if it has to wait.
    fn place(&mut self, paths: &Paths, probes: usize, batch_max: usize) -> Option<usize> {
        if self.taken.overlaps(paths) {
            return None;
        }
        let has_room = |lane: &Forming<'_>| lane.plan.members.len() < batch_max;
        let fresh = || self.lanes.iter().enumerate().skip(probes);
        let mut met = fresh().filter(|(_, lane)| lane.files.overlaps(paths));
        match (met.next(), met.next()) {
            (Some((index, lane)), None) => has_room(lane).then_some(index),
            (Some(_), Some(_)) => None,
            (None, _) if self.lanes.len() < self.room => {
                let members = Vec::with_capacity(batch_max.min(limits::MERGE_LOOKAHEAD_MAX));
                let plan = LanePlan { members, behind: Vec::new() };
                self.lanes.push(Forming { plan, files: Files::default() });
                Some(self.lanes.len() - 1)
            }
            (None, _) => {
                let emptiest = fresh().filter(|(_, lane)| has_room(lane));
                emptiest.min_by_key(|(_, lane)| lane.plan.members.len()).map(|(index, _)| index)
            }
        }
    }
}
