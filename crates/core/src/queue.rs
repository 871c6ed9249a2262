//! Ready queues: who is next, for each role.
//!
//! A task enters when nothing stands before it and leaves when an agent takes it. Its place is its
//! score (QUE-11) plus a point for every while it has waited. Everyone ages equally fast, so two
//! waiting tasks never change places by waiting alone: the order is fixed at entry, ageing costs
//! nothing, and a newcomer overtakes an old task only if its score makes up for the whole wait.
//!
//! Invariant: a task is in exactly one lane, at the rank that its score and its entry give it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::by_task::ByTask;
use crate::ids::{AgentId, MissionId, Role, TaskId};
use crate::locks::LockTable;
use crate::plan::Priority;
use crate::time::Timestamp;

mod assign;
mod capacity;
mod chains;
mod domains;
mod lane;
mod launch;
mod policy;
mod preempt;
mod score;
mod territory;
mod walk;

pub use assign::{Assigned, Assignments, Because, Rules, Work};
pub use capacity::{Bound, Capacity, Concurrency, Demand, permits};
pub use chains::{Chains, Outlook};
pub use domains::{Domains, InvalidDomains, domains_of};
pub use launch::{Launches, NoLaunch};
pub use policy::{Contention, InvalidQueuePolicy, Preemption, QueuePolicy, Strategy};
pub use preempt::{NoPreemption, Runners, Running, Urgency};
pub use score::{Points, Standing};
pub use territory::{InvalidTerritory, Territories, Trespass};
pub use walk::{Class, HeldBack, Walk};

use lane::{ByChain, ByRank, Lane};
use territory::Reach;

/// What the queue has to know of a task that waits for an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    pub task: TaskId,
    pub mission: MissionId,
    pub role: Role,
    pub standing: Standing,
    /// From its start to the end of the longest chain behind it.
    pub chain_minutes: u32,
    pub files: Arc<[Arc<str>]>,
    pub class: Class,
    /// An attempt gave way to it: it goes before all others.
    pub promised: bool,
    pub entered_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Entry {
    ticket: Ticket,
    locked_files: u32,
    reach: Reach,
    rank: i64,
    lane: LaneKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum LaneKey {
    Pool(Role, MissionId, Reach, Class),
    /// Its files are locked, and the policy says not to start it.
    Held,
}

/// Where a pulled task came from (QUE-17).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    OwnQueue,
    Pool,
}

/// Why a task goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    BestRank,
    /// Its chain is longer than all other work takes; waiting longer would delay the end.
    LongestChain {
        chain_minutes: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pull {
    pub task: TaskId,
    pub source: Source,
    pub pick: Pick,
}

/// Why an agent that asked for work gets none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoWork {
    #[error("waiting_for_background: no {0} task is ready")]
    WaitingForBackground(Role),
    #[error("waiting_for_background: the ready {0} tasks lie outside of its territory")]
    OutsideTerritory(Role),
    #[error("waiting_for_background: the files of the ready {0} tasks are locked")]
    FilesLocked(Role),
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadyQueue {
    policy: QueuePolicy,
    territories: Territories,
    entries: ByTask<Box<Entry>>,
    lanes: BTreeMap<LaneKey, Lane>,
    held: BTreeMap<Role, BTreeSet<TaskId>>,
    by_file: BTreeMap<Arc<str>, BTreeSet<TaskId>>,
    depths: BTreeMap<(Role, MissionId), u32>,
    by_role: BTreeMap<Role, u32>,
}

impl ReadyQueue {
    #[must_use]
    pub fn new(policy: QueuePolicy, territories: Territories) -> ReadyQueue {
        ReadyQueue { policy, territories, ..ReadyQueue::default() }
    }

    #[must_use]
    pub fn policy(&self) -> &QueuePolicy {
        &self.policy
    }

    #[must_use]
    pub fn territories(&self) -> &Territories {
        &self.territories
    }

    #[must_use]
    pub fn contains(&self, task: TaskId) -> bool {
        self.entries.get(task).is_some()
    }

    #[must_use]
    pub fn ticket(&self, task: TaskId) -> Option<&Ticket> {
        self.entries.get(task).map(|entry| &entry.ticket)
    }

    /// How many tasks wait for the role.
    #[must_use]
    pub fn depth(&self, role: Role) -> u32 {
        self.by_role.get(&role).copied().unwrap_or(0)
    }

    #[must_use]
    pub fn has_any(&self, role: Role) -> bool {
        self.depth(role) > 0
    }

    /// How many tasks of a mission wait for the role.
    #[must_use]
    pub fn depth_of(&self, role: Role, mission: MissionId) -> u32 {
        self.depths.get(&(role, mission)).copied().unwrap_or(0)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.len() == 0
    }

    /// The score of QUE-11, as things stand.
    #[must_use]
    pub fn score(&self, task: TaskId) -> Option<Points> {
        let entry = self.entries.get(task)?;
        Some(entry.ticket.standing.score(&self.policy, entry.locked_files > 0))
    }

    /// The score with what waiting has added.
    #[must_use]
    pub fn effective(&self, task: TaskId, now: Timestamp) -> Option<Points> {
        let waited_ms = now.ms_since(self.ticket(task)?.entered_at);
        let aged = i64::try_from(waited_ms / self.policy.ageing_ms_per_tenth()).unwrap_or(i64::MAX);
        Some(Points::tenths(self.score(task)?.as_tenths().saturating_add(aged)))
    }

    /// Everybody who waits for an agent.
    pub fn waiting(&self) -> impl Iterator<Item = TaskId> {
        self.entries.iter().map(|(task, _)| task)
    }

    /// All tasks of a role, best first, for people; the held ones come last.
    #[must_use]
    pub fn list(&self, role: Role) -> Vec<TaskId> {
        let mut waiting: Vec<(bool, i64, TaskId)> = Vec::new();
        for (_, entry) in self.entries.iter().filter(|(_, entry)| entry.ticket.role == role) {
            waiting.push((entry.lane == LaneKey::Held, -entry.rank, entry.ticket.task));
        }
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, _, task)| task).collect()
    }

    /// Those of the agents that could take different things; of several that could take the same,
    /// the first.
    pub fn unlike(&self, agents: &[AgentId]) -> impl Iterator<Item = AgentId> {
        let kind = |agent: &AgentId| (agent.role, self.territories.bit_of(*agent));
        agents.iter().enumerate().filter_map(move |(place, agent)| {
            let kind_of = kind(agent);
            let is_new = !agents[..place].iter().any(|earlier| kind(earlier) == kind_of);
            is_new.then_some(*agent)
        })
    }

    /// What the agent could take besides, by rank, if it may not take the first: at most so many
    /// of each lane, since a mission that has nothing to start must not hide the next one.
    #[must_use]
    pub fn others(
        &self,
        agent: AgentId,
        max: usize,
        may_start: impl Fn(MissionId) -> bool,
    ) -> Vec<Pull> {
        self.walk(agent, max, may_start).collect()
    }

    /// The same, one after the other: whoever walks can leave out what cannot start.
    pub fn walk(
        &self,
        agent: AgentId,
        max: usize,
        may_start: impl Fn(MissionId) -> bool,
    ) -> Walk<'_> {
        let bit = self.territories.bit_of(agent);
        let pool = self.pool(agent.role).filter(|(_, reach, _, _)| reach.includes(bit));
        let pool = pool.filter(|(mission, ..)| may_start(*mission));
        Walk::over(pool.map(|(mission, _, key, lane)| (key, mission, lane)), max)
    }

    /// The first of those of a mission that wait for a role and for nothing else.
    pub fn first_of(
        &self,
        role: Role,
        mission: MissionId,
        max: usize,
    ) -> impl Iterator<Item = TaskId> {
        let of_mission = LaneKey::Pool(role, mission, Reach::NONE, Class::FIRST)
            ..=LaneKey::Pool(role, mission, Reach::ALL, Class::LAST);
        let lanes = self.lanes.range(of_mission);
        lanes.flat_map(move |(_, lane)| lane.by_rank().take(max)).map(ByRank::task)
    }

    /// What the agent should take now.
    pub fn pull(
        &self,
        agent: AgentId,
        outlook: Outlook,
        now: Timestamp,
        may_start: impl Fn(MissionId) -> bool,
    ) -> Result<Pull, NoWork> {
        let bit = self.territories.bit_of(agent);
        let mut foreign = false;
        let (mut best, mut longest) = (None, None);
        for (mission, reach, _, lane) in self.pool(agent.role) {
            if !may_start(mission) {
                continue;
            }
            if reach.includes(bit) {
                best = best.max(lane.best());
                longest = longest.max(lane.longest());
            } else {
                foreign = true;
            }
        }
        match best.zip(longest).and_then(|(best, chain)| self.pick(best, chain, outlook, now)) {
            Some((task, pick)) => Ok(Pull { task, source: Source::Pool, pick }),
            None if foreign => Err(NoWork::OutsideTerritory(agent.role)),
            None if self.held.get(&agent.role).is_some_and(|held| !held.is_empty()) => {
                Err(NoWork::FilesLocked(agent.role))
            }
            None => Err(NoWork::WaitingForBackground(agent.role)),
        }
    }

    fn pool(&self, role: Role) -> impl Iterator<Item = (MissionId, Reach, LaneKey, &Lane)> {
        let first = LaneKey::Pool(role, MissionId(0), Reach::NONE, Class::FIRST);
        let last = LaneKey::Pool(role, MissionId(u32::MAX), Reach::ALL, Class::LAST);
        self.lanes.range(first..=last).filter_map(|(key, lane)| match key {
            LaneKey::Pool(_, mission, reach, _) => Some((*mission, *reach, *key, lane)),
            LaneKey::Held => None,
        })
    }

    /// The best, unless the longest chain must not wait for it.
    fn pick(
        &self,
        best: ByRank,
        longest: ByChain,
        outlook: Outlook,
        now: Timestamp,
    ) -> Option<(TaskId, Pick)> {
        let best = best.task();
        if self.policy.strategy != Strategy::CriticalPath || outlook.agents <= 1 {
            return Some((best, Pick::BestRank));
        }
        let Ticket { promised, standing, entered_at, .. } = self.entries.get(best)?.ticket;
        let may_be_overtaken = !promised
            && standing.priority != Priority::Critical
            && now.ms_since(entered_at) < self.policy.overtaken_ms_max;
        if may_be_overtaken && outlook.is_urgent(longest.chain_minutes, &self.policy) {
            let pick = Pick::LongestChain { chain_minutes: longest.chain_minutes };
            return Some((longest.task(), pick));
        }
        Some((best, Pick::BestRank))
    }

    /// Fact: the task waits for an agent from now on.
    pub fn entered(&mut self, ticket: Ticket, locks: &LockTable) {
        let task = ticket.task;
        self.left(task);
        let locked = ticket.files.iter().filter(|path| locks.is_locked_for(task, path)).count();
        for path in ticket.files.iter() {
            self.by_file.entry(Arc::clone(path)).or_default().insert(task);
        }
        *self.depths.entry((ticket.role, ticket.mission)).or_default() += 1;
        *self.by_role.entry(ticket.role).or_default() += 1;
        let entry = Box::new(Entry {
            reach: self.territories.reach(ticket.role, &ticket.files),
            locked_files: u32::try_from(locked).unwrap_or(u32::MAX),
            rank: 0,
            lane: LaneKey::Held,
            ticket,
        });
        self.place(entry);
    }

    /// Fact: the task no longer waits: an agent has it, or it was blocked, paused or cancelled.
    pub fn left(&mut self, task: TaskId) -> Option<Ticket> {
        let entry = self.lift(task)?;
        for path in entry.ticket.files.iter() {
            if let Some(tasks) = self.by_file.get_mut(path) {
                tasks.remove(&task);
                if tasks.is_empty() {
                    self.by_file.remove(path);
                }
            }
        }
        let Ticket { role, mission, .. } = entry.ticket;
        one_less(&mut self.depths, (role, mission));
        one_less(&mut self.by_role, role);
        Some(entry.ticket)
    }

    /// Fact: a person gave the task another priority (QUE-13), or a later plan needs it too, or
    /// something else decides whether it may start. Its wait counts on.
    pub fn restood(&mut self, task: TaskId, standing: Standing, class: Class) {
        if let Some(mut entry) = self.lift(task) {
            (entry.ticket.standing, entry.ticket.class) = (standing, class);
            self.place(entry);
        }
    }

    /// Fact: an attempt gave way to the task.
    pub fn promised(&mut self, task: TaskId) {
        if let Some(mut entry) = self.lift(task) {
            entry.ticket.promised = true;
            self.place(entry);
        }
    }

    /// Fact: these files were locked or freed. Only tasks that want them are scored anew.
    pub fn locks_changed(&mut self, paths: &[Arc<str>], locks: &LockTable) {
        let mut affected = BTreeSet::new();
        for path in paths {
            affected.extend(self.by_file.get(path).into_iter().flatten().copied());
        }
        for task in affected {
            let Some(mut entry) = self.lift(task) else { continue };
            let files = entry.ticket.files.iter();
            let locked = files.filter(|path| locks.is_locked_for(task, path)).count();
            entry.locked_files = u32::try_from(locked).unwrap_or(u32::MAX);
            self.place(entry);
        }
    }

    /// Fact: the rules or the territories are others now. The one operation that costs a pass over
    /// all that waits; a person does it, not the traffic.
    pub fn reconfigured(&mut self, policy: QueuePolicy, territories: Territories) {
        self.policy = policy;
        self.territories = territories;
        let waiting: Vec<TaskId> = self.waiting().collect();
        for task in waiting {
            if let Some(mut entry) = self.lift(task) {
                entry.reach = self.territories.reach(entry.ticket.role, &entry.ticket.files);
                self.place(entry);
            }
        }
    }

    fn place(&mut self, mut entry: Box<Entry>) {
        let Ticket { task, mission, role, class, promised, .. } = entry.ticket;
        let locked = entry.locked_files > 0;
        let score = entry.ticket.standing.score(&self.policy, locked);
        entry.rank = match promised {
            true => i64::MAX,
            false => self.policy.rank(score, entry.ticket.entered_at, task),
        };
        entry.lane = match locked && self.policy.contention == Contention::Hold {
            true => LaneKey::Held,
            false => LaneKey::Pool(role, mission, entry.reach, class),
        };
        if entry.lane == LaneKey::Held {
            self.held.entry(role).or_default().insert(task);
        } else {
            let lane = self.lanes.entry(entry.lane).or_default();
            lane.insert(entry.rank, entry.ticket.chain_minutes, task);
        }
        self.entries.insert(task, entry);
    }

    fn lift(&mut self, task: TaskId) -> Option<Box<Entry>> {
        let entry = self.entries.remove(task)?;
        if entry.lane == LaneKey::Held {
            if let Some(held) = self.held.get_mut(&entry.ticket.role) {
                held.remove(&task);
            }
        } else if let Some(lane) = self.lanes.get_mut(&entry.lane) {
            lane.remove(entry.rank, entry.ticket.chain_minutes, task);
            if lane.is_empty() {
                self.lanes.remove(&entry.lane);
            }
        }
        Some(entry)
    }
}

fn one_less<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(&key);
        }
    }
}
