//! Invariants of the queue: who goes next, and that nobody waits without a reason.
//!
//! Scores, chains and waits are computed anew from the plans and the times in the journal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kapelle_core::approval::OverrideAction;
use kapelle_core::event::Interruption;
use kapelle_core::locks::LockGrant;
use kapelle_core::plan::{PlannedTask, Priority};
use kapelle_core::queue::{Because, Contention, Pick, Preemption, Strategy};
use kapelle_core::settings::Settings;
use kapelle_core::task::{Stage, Task};
use kapelle_core::{AgentId, Event, Fence, MissionId, Record, Role, State, TaskId, Timestamp};

use super::agents::Agents;
use super::failure::Failures;
use super::leases::Leases;
use super::money::Books;
use super::providers::Providers;
use super::{Facts, Verdict, ensure};

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub settings: Settings,
    tasks: BTreeMap<TaskId, Waiting>,
    /// Who has which file, and until when.
    locks: BTreeMap<Arc<str>, (TaskId, Timestamp)>,
    /// Whose locks no time ends: nobody works on them, and something of them would be lost.
    keeping: BTreeSet<TaskId>,
    /// The attempt that was the last to begin, and the one after which locks are kept strictly.
    begun: Fence,
    strict_after: Option<Fence>,
    /// What is locked by the grant that is being judged.
    taken: Option<LockGrant>,
    /// Attempts of whose agents nobody has heard.
    starting: BTreeSet<Fence>,
    /// Whose operation was finished and kept by the last record.
    kept: Option<Fence>,
    /// To whom people gave tasks.
    bound: BTreeMap<TaskId, AgentId>,
    /// Where agents may work, as the settings write it.
    territories: BTreeMap<AgentId, Vec<String>>,
}

/// A task that waits for the same agents as another.
#[derive(Debug)]
struct Rival {
    task: TaskId,
    paid: bool,
    /// Whoever of its role is free may take it.
    anywhere: bool,
}

/// What it takes to start something, and who keeps the books of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Means<'a> {
    pub books: &'a Books,
    pub providers: &'a Providers,
    pub agents: &'a Agents,
    pub leases: &'a Leases,
    pub failures: &'a Failures,
}

#[derive(Debug)]
struct Waiting {
    mission: MissionId,
    plan: Arc<PlannedTask>,
    priority: Priority,
    dependents: i64,
    chain_minutes: u32,
    /// Since when it waits for an agent, if it does.
    since: Option<Timestamp>,
    /// An attempt made room for it.
    promised: bool,
    /// How often an attempt at it made room for others.
    gave_way: u32,
}

impl Queue {
    /// Judges an event before it is folded.
    pub(super) fn observe(
        &mut self,
        record: &Record,
        facts: &Facts,
        means: Means<'_>,
        shadow: &State,
    ) -> Verdict {
        let kept = self.kept.take();
        match &record.event {
            Event::OperationCompleted { fence, .. }
            | Event::StepCompleted { fence, change: Some(_), .. } => self.kept = Some(*fence),
            Event::AttemptInterrupted { task, fence, cause: Interruption::GaveWay { to } } => {
                let at_a_boundary = kept == Some(*fence);
                ensure(at_a_boundary, || format!("{task:?} makes room in the midst of its work"))?;
                let began_at = shadow.lease(*fence).map_or(record.at, |lease| lease.granted_at);
                self.judge_room(*task, *to, record.at.ms_since(began_at))?;
                self.make_room(*task, *to);
            }
            Event::AttemptFinished { fence, touched, .. } => {
                let agent = shadow.lease(*fence).map(|lease| lease.agent);
                let strayed = agent.and_then(|agent| self.outside(agent, touched));
                ensure(strayed.is_none(), || {
                    format!("{fence} was accepted, although {agent:?} may not change {strayed:?}")
                })?;
            }
            Event::SettingsChanged { settings, .. } => {
                self.settings = (**settings).clone();
                self.territories = territories(settings);
                self.strict_after = match settings.queue.contention {
                    Contention::Hold => self.strict_after.or(Some(self.begun)),
                    Contention::Deprioritise => None,
                };
            }
            Event::PlanAccepted { mission, first_task, tasks, .. } => {
                self.plan(*mission, *first_task, tasks);
            }
            Event::PrioritySet { task, priority, .. } => {
                if let Some(waiting) = self.tasks.get_mut(task) {
                    waiting.priority = *priority;
                }
            }
            Event::FilesLocked { lock } => {
                for path in &lock.paths {
                    self.judge_lock(lock.task, path, record.at)?;
                }
                // The order was decided before the locks were taken.
                self.taken = Some(lock.clone());
            }
            Event::LocksExpired { task } => {
                let early =
                    |(holder, until): &(TaskId, Timestamp)| holder == task && *until > record.at;
                let early = self.locks.values().any(early);
                ensure(!early, || format!("the locks of {task:?} expire before their time"))?;
                let kept = self.keeping.contains(task);
                ensure(!kept, || format!("{task:?} is in hand, and loses its files to the clock"))?;
                self.locks.retain(|_, (holder, _)| holder != task);
            }
            Event::LeaseRenewed { fence, expires_at } => {
                self.starting.remove(fence);
                let task = shadow.lease(*fence).map(|lease| lease.task);
                for (holder, until) in self.locks.values_mut() {
                    if Some(*holder) == task {
                        *until = (*until).max(*expires_at);
                    }
                }
            }
            Event::Overridden { order, .. } => {
                if let OverrideAction::Reassign { to, .. } = order.action {
                    self.bound.insert(order.task, to);
                }
            }
            Event::LeaseGranted { task, fence, agent, pick, because, .. } => {
                self.judge_serial(*task, facts, shadow)?;
                self.judge_launch(*fence, shadow)?;
                let bound = self.bound.remove(task);
                if means.failures.is_suspect(*task) {
                    // It goes when it can be alone.
                } else if *because == Some(Because::OwnQueue) {
                    ensure(bound == Some(*agent), || format!("nobody gave {task:?} to {agent}"))?;
                } else {
                    let rivals = self.rivals(*task, facts, means, (shadow, record.at))?;
                    self.judge_order(*task, *pick, &rivals, record.at)?;
                }
                if let Some(lock) = self.taken.take() {
                    let held = (lock.task, lock.expires_at);
                    self.locks.extend(lock.paths.into_iter().map(|path| (path, held)));
                }
                self.judge_files(*task, shadow)?;
                let files = &self.waiting(*task)?.plan.files;
                let outside = self.outside(*agent, files);
                ensure(outside.is_none(), || {
                    format!("{task:?} is given to {agent}, whose territory has no {outside:?}")
                })?;
                self.begun = *fence;
            }
            _ => {}
        }
        Ok(())
    }

    fn judge_lock(&self, task: TaskId, path: &str, now: Timestamp) -> Verdict {
        let named = self.waiting(task)?.plan.files.iter().any(|file| file == path);
        ensure(named, || format!("{task:?} locks {path}, which it does not name"))?;
        let holds = |(holder, until): &(TaskId, Timestamp)| {
            *holder != task && (*until > now || self.keeping.contains(holder))
        };
        let other = self.locks.get(path).filter(|lock| holds(lock));
        ensure(other.is_none(), || format!("{task:?} locks {path}, which {other:?} has"))
    }

    /// Who starts has all of its files locked that nobody else has; where locks are kept strictly,
    /// all of them, so no two attempts have the same file in hand.
    fn judge_files(&self, granted: TaskId, shadow: &State) -> Verdict {
        let files = &self.waiting(granted)?.plan.files;
        for path in files {
            let held = self.locks.get(path.as_str());
            ensure(held.is_some(), || format!("{granted:?} starts with {path} unlocked"))?;
        }
        if self.settings.queue.contention != Contention::Hold {
            return Ok(());
        }
        for (fence, lease) in shadow.leases() {
            let other = &self.waiting(lease.task)?.plan.files;
            let shared = files.iter().find(|path| other.contains(path));
            let since_hold = self.strict_after.is_some_and(|last| fence > last);
            ensure(shared.is_none() || !since_hold, || {
                format!("{granted:?} and {:?} have {shared:?} in hand", lease.task)
            })?;
        }
        Ok(())
    }

    fn is_locked(&self, id: TaskId) -> bool {
        let Ok(waiting) = self.waiting(id) else { return false };
        let mut held = waiting.plan.files.iter().filter_map(|path| self.locks.get(path.as_str()));
        held.any(|(holder, _)| *holder != id)
    }

    /// The first of these files that the agent has no business with.
    fn outside<'a>(&self, agent: AgentId, files: &'a [String]) -> Option<&'a String> {
        let own = self.territories.get(&agent)?;
        let within = |file: &String| own.iter().any(|pattern| is_below(pattern, file));
        files.iter().find(|file| !within(file))
    }

    /// Whether no territory of a role keeps anybody from this task.
    pub(super) fn is_anywhere(&self, id: TaskId, role: Role) -> bool {
        let Ok(waiting) = self.waiting(id) else { return true };
        let mut of_role = self.territories.keys().filter(|agent| agent.role == role);
        of_role.all(|agent| self.outside(*agent, &waiting.plan.files).is_none())
    }

    /// Whether a lock, and not the lack of a seat, keeps the task waiting.
    pub(super) fn holds(&self, id: TaskId) -> bool {
        self.settings.queue.contention == Contention::Hold && self.is_locked(id)
    }

    fn plan(&mut self, mission: MissionId, first: TaskId, plans: &[Arc<PlannedTask>]) {
        let default = self.settings.queue.default_minutes;
        let mut behind: BTreeMap<&str, (u32, i64)> = BTreeMap::new();
        for (place, plan) in plans.iter().enumerate().rev() {
            let behind_it = behind.get(plan.id.as_str());
            let (longest, dependents) = behind_it.copied().unwrap_or_default();
            let chain_minutes = plan.estimated_duration_minutes.unwrap_or(default) + longest;
            for need in plan.dependencies.iter().collect::<BTreeSet<_>>() {
                let (longest, dependents) = behind.entry(need).or_default();
                *longest = chain_minutes.max(*longest);
                *dependents += 1;
            }
            let (plan, priority) = (plan.clone(), plan.priority);
            let since = None;
            let (promised, gave_way) = (false, 0);
            let waiting = Waiting {
                mission,
                plan,
                priority,
                dependents,
                chain_minutes,
                since,
                promised,
                gave_way,
            };
            self.tasks.insert(TaskId(first.0 + place as u32), waiting);
        }
        // A later plan may need tasks of an earlier one.
        let earlier = self.tasks.range_mut(..first).map(|(_, waiting)| waiting);
        for waiting in earlier.filter(|waiting| waiting.mission == mission) {
            let (_, dependents) = behind.get(waiting.plan.id.as_str()).copied().unwrap_or_default();
            waiting.dependents += dependents;
        }
    }

    /// After an event was folded: who waits for an agent now.
    pub(super) fn note_waiting(&mut self, shadow: &State, at: Timestamp) {
        for task in shadow.tasks() {
            let Some(waiting) = self.tasks.get_mut(&task.id) else { continue };
            waiting.since = match (task.stage == Stage::Ready, waiting.since) {
                (true, since) => since.or(Some(at)),
                (false, _) => None,
            };
            waiting.promised &= waiting.since.is_some();
            let ended =
                matches!(task.stage, Stage::Done | Stage::DeadLetter | Stage::Blocked { .. });
            if ended || shadow.mission(task.mission).is_some_and(|m| m.has_ended()) {
                self.locks.retain(|_, (holder, _)| *holder != task.id);
            }
            if self.keeps(task) {
                self.keeping.insert(task.id);
            } else {
                self.keeping.remove(&task.id);
            }
        }
    }

    /// Between its attempts a task keeps its files, if it has them all and anything to lose.
    fn keeps(&self, task: &Task) -> bool {
        let Some(waiting) = self.tasks.get(&task.id) else { return false };
        let own = |path: &String| self.locks.get(path.as_str()).is_some_and(|(t, _)| *t == task.id);
        let has_all = !waiting.plan.files.is_empty() && waiting.plan.files.iter().all(own);
        let has_work = task.accepted.is_some() || task.unfinished.is_some();
        has_all
            && match task.stage {
                Stage::Gating { .. } | Stage::Queued | Stage::Merging { .. } => true,
                Stage::Asking { .. } | Stage::Deliberating { .. } | Stage::Review { .. } => true,
                Stage::Waiting | Stage::Ready | Stage::Failed { .. } => has_work,
                Stage::Backoff { .. } | Stage::Approval { .. } => has_work,
                Stage::Working { .. } | Stage::Blocked { .. } | Stage::DeadLetter => false,
                Stage::Done | Stage::RolledBack => false,
            }
    }

    /// After a batch: no lock outlives its time, but those of what is in hand.
    pub(super) fn close(&self, now: Timestamp) -> Verdict {
        let dead = |(_, (holder, until)): &(&Arc<str>, &(TaskId, Timestamp))| {
            *until <= now && !self.keeping.contains(holder)
        };
        let dead = self.locks.iter().find(dead);
        ensure(dead.is_none(), || format!("a lock outlives its holder: {dead:?}"))
    }

    /// Whether the agent may work on all files of a task.
    pub(super) fn may_do(&self, agent: AgentId, id: TaskId) -> bool {
        let Ok(waiting) = self.waiting(id) else { return true };
        self.outside(agent, &waiting.plan.files).is_none()
    }

    /// All who wait for the same role in missions that may start something, and whether somebody
    /// is free to take them and can pay.
    fn rivals(
        &self,
        granted: TaskId,
        facts: &Facts,
        Means { books, providers, agents, leases, failures }: Means<'_>,
        (shadow, now): (&State, Timestamp),
    ) -> Result<Vec<Rival>, String> {
        let role = |id: TaskId| -> Option<Role> {
            let task = shadow.task(id)?;
            Some(task.phase(&facts.mission(task.mission).ok()?.policy)?.role())
        };
        let wanted = role(granted);
        let mut rivals = Vec::new();
        for (id, _) in self.tasks.iter().filter(|(_, waiting)| waiting.since.is_some()) {
            let (Some(task), Some(role)) = (shadow.task(*id), role(*id)) else { continue };
            let mission = facts.mission(task.mission)?;
            let attempt = mission.policy.budget.attempt_usd_max;
            let stopped = mission.paused || mission.ended;
            let held = self.holds(*id) || !providers.are_free(task.mission);
            let held = held || failures.is_suspect(*id);
            if Some(role) == wanted && !held && !stopped {
                let paid = books.affords(task, agents.free(role, leases), attempt, now);
                let anywhere = self.is_anywhere(*id, role);
                rivals.push(Rival { task: *id, paid, anywhere });
            }
        }
        Ok(rivals)
    }

    fn judge_order(
        &self,
        granted: TaskId,
        pick: Option<Pick>,
        rivals: &[Rival],
        now: Timestamp,
    ) -> Verdict {
        let own = self.waiting(granted)?;
        if own.since.is_none() {
            // Others judge what starts without having waited.
            return Ok(());
        }
        for id in rivals.iter().filter(|r| r.paid && r.anywhere).map(|rival| rival.task) {
            let rival = self.waiting(id)?;
            match pick {
                None => return Err(format!("nobody says why {granted:?} goes first")),
                Some(Pick::BestRank) => ensure(self.rank(id)? <= self.rank(granted)?, || {
                    format!("{granted:?} goes before {id:?}, which stands higher")
                })?,
                Some(Pick::LongestChain { .. }) => {
                    ensure(rival.chain_minutes <= own.chain_minutes, || {
                        format!("{granted:?} goes first for its chain, but {id:?} has a longer one")
                    })?;
                    let best = self.is_best(id, rivals)?;
                    let waited = now.ms_since(rival.since.unwrap_or(now));
                    let sacred = rival.priority == Priority::Critical
                        || rival.promised
                        || waited >= self.settings.queue.overtaken_ms_max;
                    ensure(!best || !sacred || id == granted, || {
                        format!("{granted:?} overtakes {id:?}, which nothing may overtake")
                    })?;
                }
            }
        }
        Ok(())
    }

    /// A limit that holds one agent back may leave another free, so who cannot be paid counts here.
    fn is_best(&self, id: TaskId, rivals: &[Rival]) -> Result<bool, String> {
        for other in rivals.iter().map(|rival| rival.task) {
            if other != id && self.rank(other)? >= self.rank(id)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// An attempt makes room only for a task that waits and is more urgent, not as soon as it has
    /// begun, and not for ever (QUE-14).
    fn judge_room(&self, task: TaskId, to: TaskId, ran_ms: u64) -> Verdict {
        let (own, other, rules) = (self.waiting(task)?, self.waiting(to)?, &self.settings.queue);
        let critical = other.priority == Priority::Critical && own.priority < Priority::Critical;
        let margin = i64::from(rules.preempt_margin_points) * 10;
        let better =
            other.priority >= own.priority && self.score(to)? - self.score(task)? >= margin;
        let urgent = match rules.preemption {
            Preemption::Off => false,
            Preemption::Critical => critical,
            Preemption::All => critical || better,
        };
        let ripe = ran_ms >= rules.preempt_after_ms && own.gave_way < rules.preempted_max;
        ensure(urgent && ripe && other.since.is_some(), || {
            format!("{task:?} makes room for {to:?} without need")
        })
    }

    fn make_room(&mut self, task: TaskId, to: TaskId) {
        if let Some(own) = self.tasks.get_mut(&task) {
            own.gave_way += 1;
        }
        if let Some(other) = self.tasks.get_mut(&to) {
            other.promised = true;
        }
    }

    /// The score of QUE-11 in tenths of a point, each worth as long a wait as the rules say.
    fn rank(&self, id: TaskId) -> Result<i64, String> {
        let Waiting { since, promised, .. } = self.waiting(id)?;
        let rules = &self.settings.queue;
        if *promised {
            return Ok(i64::MAX);
        }
        if rules.strategy == Strategy::Serial {
            return Ok(-i64::from(id.0));
        }
        let locked = if self.is_locked(id) { 400 } else { 0 };
        let score = self.score(id)? - locked;
        let since = since.map_or(0, |at| at.0 as i64);
        Ok(score * (rules.ageing_ms_per_point / 10) as i64 - since)
    }

    /// The score of QUE-11 in tenths of a point, locked files aside.
    fn score(&self, id: TaskId) -> Result<i64, String> {
        let Waiting { plan, priority, dependents, .. } = self.waiting(id)?;
        let rules = &self.settings.queue;
        let explicit = match priority {
            Priority::Critical => 1_000,
            Priority::High => 700,
            Priority::Medium => 400,
            Priority::Low => 100,
        };
        let free = if plan.dependencies.is_empty() { 500 } else { 0 };
        let minutes = i64::from(plan.estimated_duration_minutes.unwrap_or(rules.default_minutes));
        let long = (minutes * 10 / i64::from(rules.duration_divisor)).min(300);
        Ok(explicit + free + 100 * dependents - long)
    }

    /// In the serial mode nothing starts before the last task is through.
    fn judge_serial(&self, granted: TaskId, facts: &Facts, shadow: &State) -> Verdict {
        if self.settings.queue.strategy != Strategy::Serial {
            return Ok(());
        }
        for task in shadow.tasks() {
            let busy = matches!(
                task.stage,
                Stage::Working { .. }
                    | Stage::Gating { .. }
                    | Stage::Queued
                    | Stage::Merging { .. }
            );
            ensure(!busy || facts.mission(task.mission)?.ended, || {
                format!("{granted:?} starts beside {:?} in the serial mode", task.id)
            })?;
        }
        Ok(())
    }

    /// Agents are started a few at a time (QUE-19).
    fn judge_launch(&mut self, fence: Fence, shadow: &State) -> Verdict {
        self.starting.retain(|fence| shadow.lease(*fence).is_some());
        let (starting, max) = (self.starting.len(), self.settings.queue.launch_batch);
        self.starting.insert(fence);
        ensure(starting < max as usize, || format!("{fence} starts beside {starting} others"))
    }

    /// Whether agents that are starting, and not the lack of a seat, keep the others waiting.
    pub(super) fn launches(&self, shadow: &State) -> bool {
        let starting = self.starting.iter().filter(|fence| shadow.lease(**fence).is_some());
        starting.count() >= self.settings.queue.launch_batch as usize
    }

    fn waiting(&self, id: TaskId) -> Result<&Waiting, String> {
        self.tasks.get(&id).ok_or_else(|| format!("{id:?} was never planned"))
    }

    /// Whether the serial mode, and not the lack of a seat, keeps the others waiting.
    pub(super) fn holds_back(&self, facts: &Facts, shadow: &State) -> bool {
        self.judge_serial(TaskId(0), facts, shadow).is_err()
    }
}

/// The territories as they are written down, to read them without the engine's help.
fn territories(settings: &Settings) -> BTreeMap<AgentId, Vec<String>> {
    settings.territories.iter().map(|(agent, patterns)| (agent, patterns.to_vec())).collect()
}

fn is_below(pattern: &str, file: &str) -> bool {
    if pattern.ends_with('/') { file.starts_with(pattern) } else { file == pattern }
}
