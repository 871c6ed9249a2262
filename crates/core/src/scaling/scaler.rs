//! Who comes and who leaves, and when that is looked at again.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{
    ManualScale, Pressure, RoleScaling, ScaleReason, ScaleRefusal, ScalingPolicy, ScalingRules,
    StepAction, StepPolicy,
};
use crate::agents::{Agent, Permanence, Registry};
use crate::calendar::DAY_MS;
use crate::ids::{AgentId, Role};
use crate::limits;
use crate::money::Usd;
use crate::time::{MINUTE_MS, SECOND_MS, Timestamp};

/// A report of the rate limits older than this says nothing about now.
const RATE_USE_HOLDS_MS: u64 = 2 * MINUTE_MS;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scale {
    Up {
        agent: AgentId,
        reason: ScaleReason,
    },
    /// The agent leaves, after its task if it has one.
    Down {
        agent: AgentId,
        reason: ScaleReason,
    },
}

#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Scaler {
    roles: BTreeMap<Role, Watch>,
    /// How much of the tightest rate limit was in use, and when that was said.
    rate_use: Option<(u32, Timestamp)>,
    /// What extra agents have cost, and on which day (UTC).
    extras: (u64, Usd),
}

#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
struct Watch {
    above_since: Option<Timestamp>,
    empty_since: Option<Timestamp>,
    changed_at: Option<Timestamp>,
    refused: Option<(ScaleRefusal, Timestamp)>,
    /// Since when the step policy asks for what it asks for now.
    step: Option<(StepAction, Timestamp)>,
    /// It was said that the queue backs up.
    backed_up: bool,
}

impl Watch {
    fn up_at(&self, rule: &RoleScaling) -> Option<Timestamp> {
        self.above_since.map(|at| at.plus_ms(rule.scale_up_after_seconds * SECOND_MS))
    }

    fn cool_at(&self, rule: &RoleScaling) -> Option<Timestamp> {
        self.changed_at.map(|at| at.plus_ms(rule.cooldown_seconds * SECOND_MS))
    }
}

/// What the step policy does now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stepped {
    Changes(Vec<Scale>),
    Refused(ScaleRefusal),
    BackedUp { depth: u32 },
}

impl Scaler {
    /// What should be done for a role now: nothing (None), a change, or one more agent that the
    /// queue asks for and that must not be.
    #[must_use]
    pub fn decide(
        &self,
        policy: &ScalingPolicy,
        registry: &Registry,
        role: Role,
        pressure: Pressure,
        now: Timestamp,
    ) -> Option<Result<Scale, ScaleRefusal>> {
        let (rule, watch) = (policy.roles.get(&role)?, self.roles.get(&role)?);
        if watch.cool_at(rule).is_some_and(|cool| now < cool) {
            return None;
        }
        if watch.up_at(rule).is_some_and(|due| due <= now) {
            let for_ms = rule.scale_up_after_seconds * SECOND_MS;
            let reason = ScaleReason::QueueLong { threshold: rule.scale_up_threshold, for_ms };
            return Some(match pressure.refuses(policy) {
                Some(refusal) => Err(refusal),
                None => spare_seat(registry, role, rule).map(|agent| Scale::Up { agent, reason }),
            });
        }
        let (due, agent) = self.next_leaver(rule, registry, role)?;
        let reason = ScaleReason::QueueEmpty { for_ms: rule.scale_down_after_seconds * SECOND_MS };
        (due <= now).then_some(Ok(Scale::Down { agent, reason }))
    }

    /// When to ask next; None while nothing about the role would change by waiting alone.
    #[must_use]
    pub fn wake_at(
        &self,
        policy: &ScalingPolicy,
        registry: &Registry,
        role: Role,
    ) -> Option<Timestamp> {
        let (rule, watch) = (policy.roles.get(&role)?, self.roles.get(&role)?);
        let due = match watch.up_at(rule) {
            Some(_) if spare_seat(registry, role, rule).is_err() => return None,
            Some(due) => watch.refused.as_ref().map_or(due, |(_, at)| at.plus_ms(policy.sample_ms)),
            None => self.next_leaver(rule, registry, role)?.0,
        };
        Some(watch.cool_at(rule).map_or(due, |cool| due.max(cool)))
    }

    /// The extra agent that would leave next, and when: the queue and the agent must both have
    /// had nothing to do for the whole window. An empty queue before a team at work only shows
    /// that the team has the right size.
    fn next_leaver(
        &self,
        rule: &RoleScaling,
        registry: &Registry,
        role: Role,
    ) -> Option<(Timestamp, AgentId)> {
        let empty_since = self.roles.get(&role)?.empty_since?;
        let agent = leaver(registry, role, rule).ok()?;
        let idle = registry.get(agent).filter(|known| known.takes_work())?;
        let since = empty_since.max(idle.since);
        Some((since.plus_ms(rule.scale_down_after_seconds * SECOND_MS), agent))
    }

    /// A person asks for one more or one less (WRK-28): no window, no cooldown, but the limits of
    /// the role and of the budget hold.
    pub fn manual(
        &self,
        policy: &ScalingPolicy,
        registry: &Registry,
        role: Role,
        by: ManualScale,
        pressure: Pressure,
    ) -> Result<Scale, ScaleRefusal> {
        let rule = policy.roles.get(&role).ok_or(ScaleRefusal::NotScaled { role })?;
        match by {
            ManualScale::Up { reason } => match pressure.refuses(policy) {
                Some(refusal) => Err(refusal),
                None => spare_seat(registry, role, rule)
                    .map(|agent| Scale::Up { agent, reason: ScaleReason::Person { text: reason } }),
            },
            ManualScale::Down { reason } => leaver(registry, role, rule)
                .map(|agent| Scale::Down { agent, reason: ScaleReason::Person { text: reason } }),
        }
    }

    /// Whether a refusal is news: the first of its kind since the queue last asked.
    #[must_use]
    pub fn is_news(&self, role: Role, refusal: &ScaleRefusal) -> bool {
        let last = self.roles.get(&role).and_then(|watch| watch.refused.as_ref());
        last.is_none_or(|(last, _)| std::mem::discriminant(last) != std::mem::discriminant(refusal))
    }

    /// What the step policy does about its role now; None while it waits or holds.
    #[must_use]
    pub fn step(
        &self,
        rules: &ScalingRules,
        registry: &Registry,
        pressure: Pressure,
        now: Timestamp,
    ) -> Option<Stepped> {
        let steps = &rules.by_steps;
        self.step_at(rules).filter(|due| *due <= now)?;
        let (action, _) = self.roles.get(&steps.role)?.step?;
        let changes = match action {
            StepAction::ScaleTo { agents, depth } => match pressure.refuses(&rules.by_role) {
                Some(refusal) => return Some(Stepped::Refused(refusal)),
                None => additions(registry, steps.role, agents, depth),
            },
            StepAction::ScaleDownOne => {
                let agent = idle_extra(registry, steps.role)?;
                let reason = ScaleReason::QueueEmpty { for_ms: rules.by_role.sample_ms };
                vec![Scale::Down { agent, reason }]
            }
            StepAction::QueueBackup { depth } => return Some(Stepped::BackedUp { depth }),
            StepAction::Hold => return None,
        };
        Some(Stepped::Changes(changes))
    }

    /// When the step policy acts next, if nothing else happens.
    #[must_use]
    pub fn step_at(&self, rules: &ScalingRules) -> Option<Timestamp> {
        let steps = &rules.by_steps;
        let watch = self.roles.get(&steps.role)?;
        let (action, since) = watch.step?;
        let from = watch.refused.as_ref().map_or(since, |(_, at)| *at);
        let due = from.plus_ms(rules.by_role.sample_ms);
        let cool = watch.changed_at.map_or(due, |at| due.max(at.plus_ms(steps.cooldown_ms)));
        match action {
            StepAction::Hold => None,
            StepAction::QueueBackup { .. } => (!watch.backed_up).then_some(due),
            StepAction::ScaleTo { .. } | StepAction::ScaleDownOne => Some(cool),
        }
    }

    /// Why no agent of the role is added although its queue asks for one.
    #[must_use]
    pub fn refusal(&self, role: Role) -> Option<&ScaleRefusal> {
        self.roles.get(&role)?.refused.as_ref().map(|(refusal, _)| refusal)
    }

    #[must_use]
    pub fn pressure(&self, now: Timestamp) -> Pressure {
        let fresh = self.rate_use.filter(|(_, at)| now.ms_since(*at) < RATE_USE_HOLDS_MS);
        let (day, usd) = self.extras;
        Pressure {
            rate_limit_permille: fresh.map_or(0, |(permille, _)| permille),
            spent_today: if day == day_of(now) { usd } else { Usd::ZERO },
        }
    }

    /// Whether a report of the rate limits is worth a record: it changes a decision, or the last
    /// one that did is about to be forgotten.
    #[must_use]
    pub fn hears_of(&self, policy: &ScalingPolicy, permille: u32, now: Timestamp) -> bool {
        let tight = |permille: u32| permille >= policy.rate_limit_permille_max;
        let known = self.pressure(now).rate_limit_permille;
        let old = self.rate_use.is_none_or(|(_, at)| now.ms_since(at) * 2 >= RATE_USE_HOLDS_MS);
        tight(permille) != tight(known) || (tight(permille) && old)
    }

    /// Fact: this much of the tightest rate limit is in use.
    pub fn rate_used(&mut self, permille: u32, at: Timestamp) {
        self.rate_use = Some((permille, at));
    }

    /// Fact: an extra agent has cost this much.
    pub fn charged(&mut self, usd: Usd, at: Timestamp) {
        let (day, today) = (day_of(at), self.pressure(at).spent_today);
        self.extras = (day, today + usd);
    }

    /// Fact: other rules hold from now on. What the queues have shown, they showed under the old
    /// ones; when the team last changed is still true.
    pub fn ruled_anew(&mut self) {
        for watch in self.roles.values_mut() {
            *watch = Watch { changed_at: watch.changed_at, ..Watch::default() };
        }
    }

    /// Fact: the queue of the step policy's role has this depth now, or its agents changed.
    pub fn step_changed(
        &mut self,
        policy: &StepPolicy,
        registry: &Registry,
        depth: u32,
        at: Timestamp,
    ) {
        let agents = registry.of(policy.role).filter(|(_, agent)| agent.stays()).count() as u32;
        let idle = registry.idle_of(policy.role).map_or(0, |seats| seats.len() as u32);
        let wanted = match policy.decide(depth, agents, idle) {
            StepAction::ScaleDownOne if idle_extra(registry, policy.role).is_none() => {
                StepAction::Hold
            }
            StepAction::ScaleTo { agents, .. }
                if additions(registry, policy.role, agents, depth).is_empty() =>
            {
                StepAction::Hold
            }
            wanted => wanted,
        };
        let watch = self.roles.entry(policy.role).or_default();
        let same = |(was, _): &(StepAction, Timestamp)| {
            std::mem::discriminant(was) == std::mem::discriminant(&wanted)
        };
        let since = watch.step.filter(same).map(|(_, since)| since);
        if since.is_none() {
            watch.refused = None;
            watch.backed_up = false;
        }
        watch.step = Some((wanted, since.unwrap_or(at)));
    }

    /// Fact: it was said that the queue of the role backs up.
    pub fn backed_up(&mut self, role: Role) {
        self.roles.entry(role).or_default().backed_up = true;
    }

    /// Fact: the role's queue has this depth now. Follows from what enters and leaves the queue;
    /// it needs no event of its own.
    pub fn depth_changed(&mut self, policy: &ScalingPolicy, role: Role, depth: u32, at: Timestamp) {
        let Some(rule) = policy.roles.get(&role) else { return };
        let watch = self.roles.entry(role).or_default();
        let above = depth > rule.scale_up_threshold;
        let empty = depth <= rule.scale_down_threshold;
        if above != watch.above_since.is_some() || empty != watch.empty_since.is_some() {
            watch.refused = None;
        }
        watch.above_since = above.then(|| watch.above_since.unwrap_or(at));
        watch.empty_since = empty.then(|| watch.empty_since.unwrap_or(at));
    }

    /// Fact: an agent of the role was added or sent away. The queue has to show anew that it needs
    /// another change.
    pub fn scaled(&mut self, role: Role, at: Timestamp) {
        let watch = self.roles.entry(role).or_default();
        watch.changed_at = Some(at);
        watch.refused = None;
        watch.above_since = watch.above_since.map(|_| at);
        watch.empty_since = watch.empty_since.map(|_| at);
        watch.step = watch.step.map(|(action, _)| (action, at));
    }

    /// Fact: a change was considered and refused.
    pub fn refused(&mut self, role: Role, refusal: ScaleRefusal, at: Timestamp) {
        self.roles.entry(role).or_default().refused = Some((refusal, at));
    }
}

/// The lowest seat that nobody has. One that still drains is not free.
fn spare_seat(
    registry: &Registry,
    role: Role,
    rule: &RoleScaling,
) -> Result<AgentId, ScaleRefusal> {
    let online: Vec<u32> =
        registry.of(role).filter(|(_, agent)| agent.online).map(|(id, _)| id.seat).collect();
    if online.len() as u64 >= u64::from(rule.max) {
        return Err(ScaleRefusal::AtMax { role, max: rule.max });
    }
    let free = (1..=limits::SEATS_PER_ROLE_MAX).find(|seat| !online.contains(seat));
    free.map(|seat| AgentId { role, seat }).ok_or(ScaleRefusal::AtMax { role, max: rule.max })
}

/// Who leaves: the one who has been idle for longest, else the last of the busy ones, who finishes
/// first.
fn leaver(registry: &Registry, role: Role, rule: &RoleScaling) -> Result<AgentId, ScaleRefusal> {
    let staying = registry.of(role).filter(|(_, agent)| agent.stays());
    if staying.count() as u64 <= u64::from(rule.min) {
        return Err(ScaleRefusal::AtMin { role, min: rule.min });
    }
    let busy = || registry.of(role).filter(|(_, agent)| is_extra(agent)).last().map(|(id, _)| id);
    idle_extra(registry, role).or_else(busy).ok_or(ScaleRefusal::OnlyPermanent { role })
}

fn is_extra(agent: &Agent) -> bool {
    agent.stays() && agent.permanence == Permanence::Extra
}

/// The extra agent that has been idle for longest.
fn idle_extra(registry: &Registry, role: Role) -> Option<AgentId> {
    let idle = registry.of(role).filter(|(_, agent)| is_extra(agent) && agent.takes_work());
    idle.min_by_key(|(id, agent)| (agent.since, Reverse(id.seat))).map(|(id, _)| id)
}

/// Who comes so that a role has this many agents.
fn additions(registry: &Registry, role: Role, agents: u32, depth: u32) -> Vec<Scale> {
    let staying = registry.of(role).filter(|(_, agent)| agent.stays()).count();
    let online = |seat: u32| registry.get(AgentId { role, seat }).is_some_and(|a| a.online);
    let spare = (1..=limits::SEATS_PER_ROLE_MAX).filter(|seat| !online(*seat));
    let reason = ScaleReason::Step { depth, agents };
    let up = |seat| Scale::Up { agent: AgentId { role, seat }, reason: reason.clone() };
    spare.take((agents as usize).saturating_sub(staying)).map(up).collect()
}

fn day_of(at: Timestamp) -> u64 {
    at.0 / DAY_MS
}
