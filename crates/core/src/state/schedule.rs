//! Scheduling: which of the things that could start does start next.
//!
//! An attempt starts when there is room, somebody is free, a task waits that
//! this agent may take and its mission can pay for, and all that the task needs is really merged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::decide::Decision;
use super::failure::asked_first;
use super::money::Terms;
use super::{Lease, State};
use crate::event::{Event, PauseReason};
use crate::flaky::Suggestion;
use crate::ids::{Actor, AgentId, Role, TaskId};
use crate::ledger::{Purpose, Scope};
use crate::limits;
use crate::locks::{LockGrant, LockTable};
use crate::mission::Mission;
use crate::money::Usd;
use crate::plan::Priority;
use crate::queue::{
    Assigned, Assignments, Because, Capacity, Chains, Class, Concurrency, Contention, HeldBack,
    Launches, NoLaunch, Pick, Points, Preemption, Pull, ReadyQueue, Rules, Runners, Running,
    Source, Strategy, Urgency, Work, domains_of,
};
use crate::refusal::Refusal;
use crate::task::{Stage, Task};
use crate::time::Timestamp;

/// Who waits, who works, and what both are to be judged by.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct Schedule {
    pub queue: ReadyQueue,
    pub locks: LockTable,
    pub chains: Chains,
    pub hands: Assignments,
    pub runners: Runners,
    pub launches: Launches,
    /// Tasks between their first agent and their end.
    pub in_hand: u32,
    /// To whom people gave tasks that wait.
    pub bound: BTreeMap<TaskId, AgentId>,
    /// Tasks that may be what takes their hosts down.
    #[serde(default)]
    pub suspects: BTreeSet<TaskId>,
}

/// Who is to do a task, why it and why they.
#[derive(Debug, Clone)]
pub(super) struct Chosen {
    pub agent: AgentId,
    pub pick: Pick,
    pub because: Because,
}

/// What keeps a ready task from being taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    Locked {
        path: Arc<str>,
        holder: TaskId,
        /// None if its holder keeps it until it ends.
        ms_max: Option<u64>,
    },
    Territory {
        role: Role,
    },
    Starting(NoLaunch),
    Capacity(Concurrency),
    /// It works alone, once those at work have ended.
    Alone {
        lost: u32,
    },
    /// Another one works alone.
    Beside {
        suspect: TaskId,
    },
    /// So many of its kind before it cannot start, and no more of them are looked at.
    Behind {
        ahead: usize,
    },
}

impl State {
    /// The next thing to set in motion, if there is one. The engine applies it and asks again, so
    /// that work which a commit makes possible starts with that same commit.
    #[must_use]
    pub fn next(&self, now: Timestamp) -> Vec<Event> {
        if let Some(alarm) = self.alarm(now) {
            return vec![alarm];
        }
        if let Some(council) = self.next_council(now) {
            return council;
        }
        if let Some(suggestion) = self.tests.suggestions().next() {
            return vec![match suggestion {
                Suggestion::Quarantine { test, contradictions, rate } => {
                    Event::TestQuarantined { test, contradictions, rate }
                }
                Suggestion::Release { test, passes } => Event::TestReleased { test, passes },
            }];
        }
        if let Some(fallen) = self.next_wave(now) {
            return fallen;
        }
        if let Some(event) = self.next_merge() {
            return vec![event];
        }
        if let Some(asked) = self.next_question(now) {
            return vec![asked];
        }
        if let Some(lost) = self.next_lost(now) {
            return lost;
        }
        let wanting = self.with_chores.first().and_then(|id| self.mission(*id));
        if let Some((mission, &chore)) = wanting.and_then(|m| Some((m, m.chores.first()?))) {
            let fence = self.next_fence();
            return vec![Event::ChoreStarted { mission: mission.id, fence, chore }];
        }
        self.next_attempt(now)
    }

    fn next_attempt(&self, now: Timestamp) -> Vec<Event> {
        let launch = self.schedule.launches.check(&self.settings.queue);
        if self.with_ready.is_empty() || launch.is_err() {
            return Vec::new();
        }
        if self.room() == 0 {
            // Without a team nobody ever makes room.
            return if self.limit() == 0 { self.pause_stuck(now) } else { Vec::new() };
        }
        if let Some(events) = self.next_suspect(now).or_else(|| self.next_bound(now)) {
            return events;
        }
        let mut is_somebody_free = false;
        for role in self.free_roles() {
            is_somebody_free = true;
            if let Some(events) = self.attempt_by(role, now) {
                return events;
            }
        }
        if is_somebody_free { self.pause_stuck(now) } else { Vec::new() }
    }

    /// What a person gave to somebody goes first to them, if they can take it now.
    fn next_bound(&self, now: Timestamp) -> Option<Vec<Event>> {
        self.schedule.bound.iter().find_map(|(&task, &agent)| {
            let ticket = self.schedule.queue.ticket(task).filter(|t| t.role == agent.role)?;
            let goes_on = self.with_ready.contains(&ticket.mission)
                && self.held_by_files(self.task(task)?, agent.role).is_none();
            let free = goes_on && self.free_seats(agent.role).any(|seat| seat == agent);
            let pull = Pull { task, source: Source::OwnQueue, pick: Pick::BestRank };
            free.then(|| self.start(agent, &[agent], pull, now)).flatten()
        })
    }

    /// What took its hosts down, or may have, works alone: so it takes nobody along, and a loss
    /// that nobody shares is its own. Nothing else starts while it works, nor before it once it
    /// could start.
    fn next_suspect(&self, now: Timestamp) -> Option<Vec<Event>> {
        if self.suspect_at_work().is_some() {
            return Some(Vec::new());
        }
        let suspects = self.schedule.suspects.iter();
        let waiting = suspects.filter_map(|id| self.schedule.queue.ticket(*id));
        let mut waiting = waiting.filter(|ticket| self.with_ready.contains(&ticket.mission));
        waiting.find_map(|ticket| {
            let (task, role) = (self.task(ticket.task)?, ticket.role);
            if self.held_by_files(task, role).is_some() {
                return None;
            }
            if !self.schedule.runners.is_empty() {
                return self.could_be_done(task, role, now).then(Vec::new);
            }
            let free: Vec<AgentId> = self.free_seats(role).collect();
            let pull = Pull { task: task.id, source: Source::Pool, pick: Pick::BestRank };
            self.start(*free.first()?, &free, pull, now)
        })
    }

    fn suspect_at_work(&self) -> Option<TaskId> {
        let at_work = |id: &&TaskId| {
            self.task(**id).is_some_and(|task| matches!(task.stage, Stage::Working { .. }))
        };
        self.schedule.suspects.iter().find(at_work).copied()
    }

    fn attempt_by(&self, role: Role, now: Timestamp) -> Option<Vec<Event>> {
        let queue = &self.schedule.queue;
        if !queue.has_any(role) {
            return None;
        }
        let free: Vec<AgentId> = self.free_seats(role).collect();
        let seats = self.schedule.runners.of(role) + free.len() as u32;
        let outlook = self.schedule.chains.outlook(self.limit().min(seats));
        let goes_on = |mission| self.with_ready.contains(&mission);
        let grant = |agent, pull| self.start(agent, &free, pull, now);
        for agent in queue.unlike(&free) {
            let Ok(first) = queue.pull(agent, outlook, now, goes_on) else { continue };
            // A long chain goes before the best only. Where the best cannot start, it would go
            // before whoever comes next, and that may be one that nothing may overtake.
            let best = || queue.walk(agent, 1, goes_on).next();
            let fair = first.pick == Pick::BestRank
                || best().is_some_and(|best| grant(agent, best).is_some());
            let granted = if fair { grant(agent, first) } else { None };
            let granted = granted.or_else(|| self.start_another(agent, &free, now));
            if granted.is_some() {
                return granted;
            }
        }
        None
    }

    /// Limits differ by mission, task and urgency: what the first may not, another may. What holds
    /// back a whole mission, or all that is alike, is asked of one of its tasks, not of each.
    fn start_another(
        &self,
        agent: AgentId,
        free: &[AgentId],
        now: Timestamp,
    ) -> Option<Vec<Event>> {
        let goes_on = |mission| self.with_ready.contains(&mission);
        let max = limits::SCHEDULE_LOOKAHEAD_MAX;
        let mut walk = self.schedule.queue.walk(agent, max, goes_on);
        while let Some(pull) = walk.next() {
            let started = self.start(agent, free, pull, now);
            if started.is_some() {
                return started;
            }
            let hindrance = self.terms(pull.task, agent, now).err();
            walk.hold_back(hindrance.map_or(HeldBack::Task, |hindrance| hindrance.holds_back()));
        }
        None
    }

    /// All that `terms` asks of a task itself, as one number: tasks of one class may all start, or
    /// none may.
    pub(super) fn class_of(&self, task: &Task, role: Role) -> Class {
        // The pools that are open to it differ by these.
        let priority = match task.priority {
            Priority::Critical => 2,
            Priority::High | Priority::Medium => 1,
            Priority::Low => 0,
        };
        let priority = if self.settings.money.pools.is_some() { priority } else { 0 };
        let is_retry = u16::from(task.purpose() == Purpose::Retry);
        let is_spent = u16::from(self.has_spent_its_cap(task));
        Class(self.route_class(task, role) << 4 | is_spent << 3 | is_retry << 2 | priority)
    }

    /// Whether what one task may cost has no room for another attempt at this one.
    fn has_spent_its_cap(&self, task: &Task) -> bool {
        let scope = Scope::Task(task.mission, Some(task.id));
        let Some((cap, mission)) = self.ledger.cap(scope).zip(self.mission(task.mission)) else {
            return false;
        };
        self.ledger.purse(scope).committed() + mission.policy.budget.attempt_usd_max > cap
    }

    /// The events that give a task to an agent, if nothing stands in the way.
    fn start(
        &self,
        agent: AgentId,
        free: &[AgentId],
        pull: Pull,
        now: Timestamp,
    ) -> Option<Vec<Event>> {
        let (task, mission) = self.task_and_mission(pull.task)?;
        // Not even if it could not start when its turn was, and can now.
        if self.schedule.suspects.contains(&task.id) && !self.schedule.runners.is_empty() {
            return None;
        }
        let needs = task.dependencies.iter().filter_map(|id| self.task(*id));
        if let Some(open) = needs.into_iter().find(|need| need.stage != Stage::Done) {
            return Some(self.halt(task, open, mission));
        }
        let first = asked_first(task, free);
        let first = first.and_then(|first| self.hands_for(agent, &first, pull, now));
        let (chosen, terms) = first.or_else(|| self.hands_for(agent, free, pull, now))?;
        let lease = self.grant_lease(pull.task, terms, chosen, now)?;
        let lock = self.lock_for(task, &lease, now).map(|lock| Event::FilesLocked { lock });
        let told =
            mission.tip.as_ref().and_then(|tip| self.ask_to_start((task, mission), tip, now));
        if let Some(asked @ Event::ApprovalAsked { .. }) = told {
            return Some(vec![asked]);
        }
        let mut events = Vec::with_capacity(3);
        events.extend(lock);
        events.extend(told);
        events.push(lease);
        Some(events)
    }

    /// Who of the free agents does the task, and on which terms: the best of those that can pay.
    fn hands_for(
        &self,
        puller: AgentId,
        free: &[AgentId],
        pull: Pull,
        now: Timestamp,
    ) -> Option<(Chosen, Terms)> {
        let preferred = self.prefer(free, pull, now);
        let chosen = preferred.or_else(|| self.choose(puller, free, pull))?;
        match self.terms(pull.task, chosen.agent, now) {
            Ok(terms) => Some((chosen, terms)),
            // What this one has used up another may still have.
            Err(hindrance) if hindrance.is_of_agent() => {
                let others = free.iter().copied().filter(|agent| *agent != chosen.agent);
                self.hands_for(puller, &others.collect::<Vec<_>>(), pull, now)
            }
            Err(_) => None,
        }
    }

    /// For whom an attempt makes room, now that something it did is finished and kept (QUE-14):
    /// the best of those that are more urgent, cannot start, and could with what it has: its seat,
    /// its provider, its place in a tier, its money.
    pub(super) fn gives_way_to(&self, lease: &Lease, now: Timestamp) -> Option<TaskId> {
        let policy = &self.settings.queue;
        let task = self.task(lease.task)?;
        if policy.preemption == Preemption::Off || !self.schedule.suspects.is_empty() {
            return None;
        }
        let running = Running {
            urgency: self.urgency(task),
            ran_ms: now.ms_since(lease.granted_at),
            gave_way: task.gave_way,
        };
        let goes_first = |waiting: &Task| policy.preempt(self.urgency(waiting), running).is_ok();
        let own = lease.agent.role;
        let others = Role::ALL.into_iter().filter(|role| *role != own);
        [own].into_iter().chain(others).find_map(|role| {
            let queue = &self.schedule.queue;
            if !queue.has_any(role) {
                return None;
            }
            let free = self.seats_after(role, lease);
            let goes_on = |mission| self.with_ready.contains(&mission);
            let agents = queue.unlike(&free);
            let pulls = agents.flat_map(|a| queue.walk(a, limits::SCHEDULE_LOOKAHEAD_MAX, goes_on));
            let mut waiting = pulls.filter_map(|pull| self.task(pull.task));
            let found = waiting.find(|waiting| {
                goes_first(waiting)
                    && !self.could_start(waiting, role, now)
                    && self.can_any(waiting, &free, Some(lease), now)
            });
            found.map(|task| task.id)
        })
    }

    /// The seats of a role that could take work, once that lease has ended.
    fn seats_after(&self, role: Role, lease: &Lease) -> Vec<AgentId> {
        let idle = self.agents.idle_of(role).into_iter().flatten();
        let idle = idle.map(|&seat| AgentId { role, seat });
        let own = lease.agent;
        let stays = self.agents.get(own).is_some_and(|agent| agent.stays());
        idle.chain((own.role == role && stays).then_some(own)).collect()
    }

    /// Whether somebody is free to do the task, and may.
    fn could_start(&self, task: &Task, role: Role, now: Timestamp) -> bool {
        let free: Vec<AgentId> = self.free_seats(role).collect();
        self.room() > 0 && self.can_any(task, &free, None, now)
    }

    fn can_any(
        &self,
        task: &Task,
        agents: &[AgentId],
        ended: Option<&Lease>,
        now: Timestamp,
    ) -> bool {
        let territories = &self.settings.territories;
        let mut may = agents.iter().filter(|agent| territories.admits(**agent, &task.files));
        may.any(|agent| self.terms_after(task.id, *agent, ended, now).is_ok())
    }

    /// How much the task wants to be next, whatever files others have locked.
    #[must_use]
    pub fn urgency(&self, task: &Task) -> Urgency {
        let policy = &self.settings.queue;
        let score = task.standing(policy.default_minutes).score(policy, false);
        Urgency { priority: task.priority, score }
    }

    /// The counters and the tasks disagree: a bug of ours, and the mission must not go on with it
    /// (QUE-08).
    fn halt(&self, task: &Task, open: &Task, mission: &Mission) -> Vec<Event> {
        let message = format!(
            "CRITICAL ERROR: task {} must not start: its dependency {} is {}, not completed",
            task.name(),
            open.name(),
            open.status(mission),
        );
        self.pause_for(mission, PauseReason::Environment { message }, Actor::kapelle(), None)
    }

    /// The files that the task gets to itself: those it names and nobody else has. A lock lasts at
    /// least as long as the lease, so a dead holder keeps nothing and a live one loses nothing;
    /// what happens between two leases is `keep_files`.
    fn lock_for(&self, task: &Task, lease: &Event, now: Timestamp) -> Option<LockGrant> {
        let Event::LeaseGranted { expires_at, .. } = lease else { return None };
        let locks = &self.schedule.locks;
        let free = task.files.iter().filter(|path| !locks.is_locked_for(task.id, path));
        let free: Vec<Arc<str>> = free.cloned().collect();
        if free.is_empty() {
            return None;
        }
        let grant = locks.acquire(&self.settings.locks, task.id, &free, now).ok()?;
        Some(LockGrant { expires_at: grant.expires_at.max(*expires_at), ..grant })
    }

    /// What keeps a ready task from being taken, other than money and a seat.
    #[must_use]
    pub fn held_by(&self, task: &Task, role: Role) -> Option<Held> {
        let held = self.held_by_files(task, role);
        if held.is_some() {
            return held;
        }
        if self.schedule.suspects.contains(&task.id) && !self.schedule.runners.is_empty() {
            return Some(Held::Alone { lost: task.lost });
        }
        if let Some(suspect) = self.suspect_at_work() {
            return Some(Held::Beside { suspect });
        }
        if self.room() == 0 {
            return Some(Held::Capacity(self.concurrency()));
        }
        let starting = self.schedule.launches.check(&self.settings.queue).err();
        starting.map(Held::Starting).or_else(|| self.held_by_others(task, role))
    }

    /// Somebody is free and may do it, and still it waits: it stands too far behind.
    fn held_by_others(&self, task: &Task, role: Role) -> Option<Held> {
        if !self.could_start(task, role, self.at) {
            return None;
        }
        let (ahead, queue) = (limits::SCHEDULE_LOOKAHEAD_MAX, &self.schedule.queue);
        let free: Vec<AgentId> = self.free_seats(role).collect();
        let seen = queue.unlike(&free).flat_map(|agent| {
            queue.others(agent, ahead, |mission| self.with_ready.contains(&mission))
        });
        let is_seen = seen.into_iter().any(|pull| pull.task == task.id);
        (!is_seen).then_some(Held::Behind { ahead })
    }

    fn held_by_files(&self, task: &Task, role: Role) -> Option<Held> {
        let locks = task.files.iter().filter_map(|path| {
            let lock = self.schedule.locks.lock(path)?;
            (lock.holder != task.id).then_some((path, lock))
        });
        let other = locks.into_iter().next();
        if let (Contention::Hold, Some((path, lock))) = (self.settings.queue.contention, other) {
            let (path, holder) = (Arc::clone(path), lock.holder);
            let timed = !self.schedule.locks.is_kept(holder);
            let ms_max = timed.then(|| lock.expires_at.ms_since(self.at));
            return Some(Held::Locked { path, holder, ms_max });
        }
        let territories = &self.settings.territories;
        let mut team = self.staying(role).peekable();
        if team.peek().is_some() && !team.any(|agent| territories.admits(agent, &task.files)) {
            return Some(Held::Territory { role });
        }
        None
    }

    /// Who has the task's batch or story and may take it: before files, domains and load.
    fn prefer(&self, free: &[AgentId], pull: Pull, now: Timestamp) -> Option<Chosen> {
        let task = self.task(pull.task).filter(|_| pull.source == Source::Pool)?;
        let (agent, because) = self.preferred(task, free)?;
        let admitted = self.settings.territories.admits(agent, &task.files);
        let paid = admitted && self.terms(task.id, agent, now).is_ok();
        paid.then_some(Chosen { agent, pick: pull.pick, because })
    }

    /// Who of the free agents does the task; `puller` is the one that found it.
    fn choose(&self, puller: AgentId, free: &[AgentId], pull: Pull) -> Option<Chosen> {
        let Assigned { agent, because } = match pull.source {
            Source::OwnQueue if free.contains(&puller) => {
                Assigned { agent: puller, because: Because::OwnQueue }
            }
            Source::OwnQueue => return None,
            Source::Pool => {
                let task = self.task(pull.task)?;
                let settings = &self.settings;
                let known = match settings.domains.is_empty() {
                    true => Vec::new(),
                    false => domains_of(task),
                };
                let rules = Rules {
                    policy: &settings.queue,
                    territories: &settings.territories,
                    domains: &settings.domains,
                };
                let work = Work { files: &task.files, domains: &known };
                self.schedule.hands.choose(&rules, free, &work)?
            }
        };
        Some(Chosen { agent, pick: pull.pick, because })
    }

    /// What bounds all attempts alike. Providers and budgets differ from task to task, so they are
    /// asked for each attempt (`terms`).
    fn bounds(&self) -> Capacity {
        Capacity {
            workers: self.agents.workers_max(),
            permits: u32::MAX,
            resources: self.settings.team.workers_cap().unwrap_or(u32::MAX),
            budget: u32::MAX,
        }
    }

    /// How many attempts may run at the same time, and what says so (C-02).
    #[must_use]
    pub fn concurrency(&self) -> Concurrency {
        let running = self.schedule.runners.len();
        let providers = self.settings.routing.iter().flat_map(|policy| policy.providers());
        let more =
            providers.map(|provider| self.permits_room(provider)).reduce(u32::saturating_add);
        let permits = more.map_or(u32::MAX, |more| more.saturating_add(running));
        let budget = self.affordable().saturating_add(running);
        Capacity { permits, budget, ..self.bounds() }.effective(self.settings.queue.strategy)
    }

    /// How many more attempts the missions that have work, and the project, can pay for.
    fn affordable(&self) -> u32 {
        let each = |mission: &Mission| mission.policy.budget.attempt_usd_max;
        let waiting = || self.with_ready.iter().filter_map(|id| self.mission(*id));
        let of_mission = |mission: &Mission| {
            let left = self.ledger.left(Scope::Mission(mission.id));
            left.map_or(u32::MAX, |left| Capacity::affordable(left, each(mission)))
        };
        let by_missions = waiting().map(of_mission).reduce(u32::saturating_add);
        let least = waiting().map(each).min().unwrap_or(Usd::ZERO);
        let by_project =
            self.ledger.day_left(self.at).map(|left| Capacity::affordable(left, least));
        by_missions.into_iter().chain(by_project).min().unwrap_or(u32::MAX)
    }

    /// How many more attempts may start now.
    fn room(&self) -> u32 {
        let busy = match self.settings.queue.strategy {
            Strategy::Serial => self.schedule.in_hand,
            Strategy::CriticalPath | Strategy::Scored | Strategy::PriorityFifo => {
                self.schedule.runners.len()
            }
        };
        self.limit().saturating_sub(busy)
    }

    fn limit(&self) -> u32 {
        self.bounds().effective(self.settings.queue.strategy).limit
    }

    /// The score of QUE-11, as things stand.
    #[must_use]
    pub fn score(&self, task: &Task) -> Points {
        let locked = |path| self.schedule.locks.is_locked_for(task.id, path);
        let locked = task.files.iter().any(|path| locked(path));
        task.standing(self.settings.queue.default_minutes).score(&self.settings.queue, locked)
    }

    /// The tasks that wait for a role, best first.
    #[must_use]
    pub fn waiting_for(&self, role: Role) -> Vec<TaskId> {
        self.schedule.queue.list(role)
    }

    /// Since when the task waits for an agent, if it does.
    #[must_use]
    pub fn waits_since(&self, task: TaskId) -> Option<Timestamp> {
        self.schedule.queue.ticket(task).map(|ticket| ticket.entered_at)
    }

    pub(super) fn prioritise(&self, id: TaskId, priority: Priority, by: &Actor) -> Decision {
        let (task, mission) = self.task_or_refuse(id)?;
        self.open_mission_or_refuse(mission.id)?;
        self.directs(by)?;
        if matches!(task.stage, Stage::Done | Stage::DeadLetter) {
            let (task, status) = (task.name().to_owned(), task.status(mission));
            return Err(Refusal::TaskEnded { task, status });
        }
        if task.priority == priority {
            return Ok(Vec::new());
        }
        Ok(vec![Event::PrioritySet { task: id, priority, by: by.clone() }])
    }
}
