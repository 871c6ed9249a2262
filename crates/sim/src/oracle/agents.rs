//! Invariants of the agents: who may take work, how many there are, who comes and who leaves.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_core::agents::PERMANENT_ROLES;
use kapelle_core::policy::Policy;
use kapelle_core::scaling::{ScaleRefusal, ScalingMode};
use kapelle_core::settings::Settings;
use kapelle_core::task::Stage;
use kapelle_core::time::SECOND_MS;
use kapelle_core::{
    Actor, AgentId, Command, Event, Fence, Record, Role, State, TaskId, Timestamp, Usd,
};

use super::leases::Leases;
use super::{Verdict, ensure};

/// A report that a rate limit is tight holds at least this long.
const TIGHT_MS: u64 = 60_000;
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

#[derive(Debug, Default)]
pub(super) struct Agents {
    /// Who takes new work.
    staying: BTreeSet<AgentId>,
    /// Of all that were ever there, who was last added to the configured team.
    extra: BTreeSet<AgentId>,
    workers_max: usize,
    /// Who had which lease: bills may come after its end.
    hands: BTreeMap<Fence, AgentId>,
    settings: Settings,
    changed_at: BTreeMap<Role, Timestamp>,
    /// Since when a queue has been above its threshold, or empty, after every batch.
    above_since: BTreeMap<Role, Timestamp>,
    empty_since: BTreeMap<Role, Timestamp>,
    /// When the gateway last said that a limit is tight, unless it said otherwise since.
    tight_at: Option<Timestamp>,
    extras_cost: (u64, Usd),
}

impl Agents {
    /// Who of this role could take work now.
    pub(super) fn free(&self, role: Role, leases: &Leases) -> impl Iterator<Item = AgentId> {
        let room = leases.count() < self.workers();
        let of_role = self.staying.iter().copied().filter(move |agent| agent.role == role);
        of_role.filter(move |agent| room && !leases.is_at_work(*agent))
    }

    /// Who of this role takes new work, now or later.
    pub(super) fn staying(&self, role: Role) -> impl Iterator<Item = AgentId> {
        self.staying.iter().copied().filter(move |agent| agent.role == role)
    }

    /// Whether one more could work, or nobody ever can, and nobody is added by themselves.
    pub(super) fn are_given(&self, leases: &Leases) -> bool {
        let room = leases.count() < self.workers() || self.workers_max == 0;
        self.settings.scaling.mode == ScalingMode::Off && room
    }

    fn workers(&self) -> usize {
        let cap = self.settings.team.workers_cap().map_or(usize::MAX, |cap| cap as usize);
        self.workers_max.min(cap)
    }

    pub(super) fn observe(&mut self, record: &Record, leases: &Leases) -> Verdict {
        match &record.event {
            Event::TeamChanged { seats, workers_max, .. } => {
                self.configure(seats, *workers_max as usize);
                Ok(())
            }
            Event::SettingsChanged { settings, .. } => {
                if self.settings.scaling != settings.scaling {
                    self.above_since.clear();
                    self.empty_since.clear();
                }
                self.settings = (**settings).clone();
                Ok(())
            }
            Event::RateUseReported { permille } => {
                let max = self.settings.scaling.by_role.rate_limit_permille_max;
                self.tight_at = (*permille >= max).then_some(record.at);
                Ok(())
            }
            Event::AgentAdded { agent, by, .. } => self.add(*agent, by, record.at, leases),
            Event::AgentRetired { agent, by, .. } => self.retire(*agent, by, record.at, leases),
            Event::ScaleRefused { refusal, .. } => self.judge_refusal(refusal, record.at),
            Event::LeaseGranted { agent, fence, .. } => {
                self.hands.insert(*fence, *agent);
                ensure(leases.count() < self.workers(), || {
                    format!("{agent} works besides {} others", leases.count())
                })?;
                ensure(self.staying.contains(agent), || format!("there is no seat {agent}"))
            }
            Event::CostCharged { fence, usd, .. }
            | Event::SubAgentClosed { fence, spent: usd, .. } => {
                if self.hands.get(fence).is_some_and(|agent| self.extra.contains(agent)) {
                    let spent = self.spent_on(record.at);
                    self.extras_cost = (record.at.0 / DAY_MS, spent + *usd);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn configure(&mut self, seats: &BTreeMap<Role, u32>, workers_max: usize) {
        let team = seats.iter().flat_map(|(&role, &n)| (1..=n).map(move |seat| (role, seat)));
        let system = PERMANENT_ROLES.map(|role| (role, 1));
        self.staying = team.chain(system).map(|(role, seat)| AgentId { role, seat }).collect();
        self.extra.retain(|agent| !self.staying.contains(agent));
        self.workers_max = workers_max;
    }

    fn spent_on(&self, at: Timestamp) -> Usd {
        let (day, usd) = self.extras_cost;
        if day == at.0 / DAY_MS { usd } else { Usd::ZERO }
    }

    fn of(&self, role: Role) -> usize {
        self.staying.iter().filter(|agent| agent.role == role).count()
    }

    fn add(&mut self, agent: AgentId, by: &Actor, at: Timestamp, leases: &Leases) -> Verdict {
        ensure(!leases.is_at_work(agent), || format!("{agent} is added while it works"))?;
        ensure(self.staying.insert(agent), || format!("{agent} is added twice"))?;
        self.extra.insert(agent);
        let (role, scaling) = (agent.role, &self.settings.scaling);
        let by_clock = *by == Actor::kapelle();
        let most = match (scaling.mode, by_clock) {
            (ScalingMode::BySteps, true) => scaling.by_steps.steps.last().map(|step| step.agents),
            _ => scaling.by_role.roles.get(&role).map(|rule| rule.max),
        };
        let count = self.of(role);
        ensure(most.is_some_and(|max| count <= max as usize), || {
            format!("{agent} makes {count} of its role, more than {most:?}")
        })?;
        let tight = self.tight_at.is_some_and(|said| at.ms_since(said) < TIGHT_MS);
        ensure(!tight, || format!("{agent} is added although a rate limit is tight"))?;
        let (spent, cap) = (self.spent_on(at), scaling.by_role.daily_usd_max);
        ensure(spent < cap, || format!("{agent} is added with {spent} of {cap} spent"))?;
        if by_clock && scaling.mode == ScalingMode::ByRole {
            let rule = &scaling.by_role.roles[&role];
            let long = lasted(&self.above_since, rule.scale_up_after_seconds, role, at);
            ensure(long, || format!("{agent} is added before its time"))?;
            self.judge_cooldown(agent, rule.cooldown_seconds, at)?;
        }
        self.changed_at.insert(role, at);
        self.above_since.entry(role).and_modify(|since| *since = at);
        Ok(())
    }

    fn retire(&mut self, agent: AgentId, by: &Actor, at: Timestamp, leases: &Leases) -> Verdict {
        let (role, scaling) = (agent.role, &self.settings.scaling);
        let leaves = self.extra.contains(&agent) && self.staying.remove(&agent);
        ensure(leaves, || format!("{agent} is of the team, or gone already, and is sent away"))?;
        if *by == Actor::kapelle() {
            ensure(!leases.is_at_work(agent), || format!("{agent} is sent away from its work"))?;
        }
        if *by == Actor::kapelle() && scaling.mode == ScalingMode::ByRole {
            let rule = &scaling.by_role.roles[&role];
            let long = lasted(&self.empty_since, rule.scale_down_after_seconds, role, at);
            ensure(long, || format!("{agent} is sent away before its time"))?;
            let (count, min) = (self.of(role), rule.min);
            ensure(count >= min as usize, || format!("{count} of {role} are left, not {min}"))?;
            self.judge_cooldown(agent, rule.cooldown_seconds, at)?;
        }
        self.changed_at.insert(role, at);
        self.empty_since.entry(role).and_modify(|since| *since = at);
        Ok(())
    }

    fn judge_cooldown(&self, agent: AgentId, seconds: u64, at: Timestamp) -> Verdict {
        let since = self.changed_at.get(&agent.role).map(|changed| at.ms_since(*changed));
        ensure(since.is_none_or(|ms| ms >= seconds * SECOND_MS), || {
            format!("{agent} comes or goes only {since:?} ms after another")
        })
    }

    fn judge_refusal(&self, refusal: &ScaleRefusal, at: Timestamp) -> Verdict {
        let policy = &self.settings.scaling.by_role;
        let holds = match refusal {
            ScaleRefusal::RateLimit { permille } => *permille >= policy.rate_limit_permille_max,
            ScaleRefusal::Budget { .. } => self.spent_on(at) >= policy.daily_usd_max,
            ScaleRefusal::AtMax { .. }
            | ScaleRefusal::AtMin { .. }
            | ScaleRefusal::OnlyPermanent { .. }
            | ScaleRefusal::NotScaled { .. } => false,
        };
        ensure(holds, || format!("an agent is refused because of nothing: {refusal}"))
    }

    /// After a batch: how long the queues are, and what the gateway said in it.
    pub(super) fn close(&mut self, shadow: &State, inputs: &[Command], now: Timestamp) {
        for command in inputs {
            if let Command::ReportRateUse { permille } = command {
                let max = self.settings.scaling.by_role.rate_limit_permille_max;
                self.tight_at = (*permille >= max).then_some(now);
            }
        }
        for (&role, rule) in &self.settings.scaling.by_role.roles {
            let depth = waiting(shadow, role);
            let above = depth > rule.scale_up_threshold as usize;
            let empty = depth <= rule.scale_down_threshold as usize;
            note(&mut self.above_since, role, above, now);
            note(&mut self.empty_since, role, empty, now);
        }
    }
}

fn note(since: &mut BTreeMap<Role, Timestamp>, role: Role, holds: bool, now: Timestamp) {
    if holds {
        since.entry(role).or_insert(now);
    } else {
        since.remove(&role);
    }
}

/// Whether it has been so for this long; no time at all is always over.
fn lasted(since: &BTreeMap<Role, Timestamp>, seconds: u64, role: Role, at: Timestamp) -> bool {
    let ms = since.get(&role).map(|since| at.ms_since(*since));
    seconds == 0 || ms.is_some_and(|ms| ms >= seconds * SECOND_MS)
}

/// Tasks that could start if somebody of the role came.
fn waiting(shadow: &State, role: Role) -> usize {
    let waits = |id: TaskId, policy: &Policy| {
        let task = shadow.task(id).filter(|task| task.stage == Stage::Ready);
        task.and_then(|task| task.phase(policy)).is_some_and(|phase| phase.role() == role)
    };
    let open = shadow.missions().filter(|m| m.paused.is_none() && !m.has_ended());
    open.map(|m| m.task_ids().filter(|id| waits(*id, &m.policy)).count()).sum()
}
