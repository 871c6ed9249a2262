//! Elastic scaling: one agent more when a queue stays long, one less when it stays empty.
//!
//! Only what lasts counts: a queue must be above its threshold for two minutes, or empty for five,
//! and two minutes pass between two actions, so that a burst does not spawn and retire agents in
//! turn. What lasts is known from the moments at which a queue crossed its threshold; nobody has
//! to look at it in between.
//!
//! Invariant: the agents of a role stay between its minimum and its maximum, and the permanent
//! ones stay at all.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::agents::{Agent, Registry};
use crate::ids::{AgentId, Role};
use crate::limits;
use crate::money::Usd;
use crate::time::{MINUTE_MS, SECOND_MS, Timestamp};

mod steps;

pub use steps::{InvalidSteps, Step, StepAction, StepPolicy};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RoleScaling {
    pub min: u32,
    pub max: u32,
    /// More waiting tasks than this are too many.
    pub scale_up_threshold: u32,
    /// No more waiting tasks than this are too few.
    #[serde(default)]
    pub scale_down_threshold: u32,
    #[serde(default = "up_after")]
    pub scale_up_after_seconds: u64,
    #[serde(default = "down_after")]
    pub scale_down_after_seconds: u64,
    #[serde(default = "cooldown")]
    pub cooldown_seconds: u64,
}

fn up_after() -> u64 {
    120
}

fn down_after() -> u64 {
    300
}

fn cooldown() -> u64 {
    120
}

impl RoleScaling {
    fn above(scale_up_threshold: u32) -> RoleScaling {
        RoleScaling {
            min: 1,
            max: 3,
            scale_up_threshold,
            scale_down_threshold: 0,
            scale_up_after_seconds: up_after(),
            scale_down_after_seconds: down_after(),
            cooldown_seconds: cooldown(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScalingPolicy {
    /// Roles that are not named keep the seats they have.
    pub roles: BTreeMap<Role, RoleScaling>,
    /// How soon a refused scale-up is considered again.
    pub sample_ms: u64,
    /// No more agents at or above this part of a provider's rate limit.
    pub rate_limit_permille_max: u32,
    /// What extra agents may cost in a day.
    pub daily_usd_max: Usd,
    /// A warning at this part of it; extra agents stop at all of it (C-38).
    pub warn_permille: u32,
}

impl Default for ScalingPolicy {
    fn default() -> ScalingPolicy {
        ScalingPolicy {
            roles: BTreeMap::from([
                (Role::Tester, RoleScaling::above(5)),
                (Role::Developer, RoleScaling::above(3)),
            ]),
            sample_ms: 30 * SECOND_MS,
            rate_limit_permille_max: 800,
            daily_usd_max: Usd::cents(500),
            warn_permille: 800,
        }
    }
}

/// A day; a window longer than that never ends.
const WINDOW_SECONDS_MAX: u64 = 24 * 60 * 60;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub enum InvalidScaling {
    #[error("{role}: min {min} is more than max {max}")]
    MinOverMax { role: Role, min: u32, max: u32 },
    #[error("{role}: a role needs at least one agent")]
    NoAgents { role: Role },
    #[error("{role}: {max} agents are more than {}", limits::SEATS_PER_ROLE_MAX)]
    TooMany { role: Role, max: u32 },
    /// Else one and the same depth would ask for more and for fewer agents.
    #[error("{role}: the threshold for fewer agents must be below the one for more")]
    Thresholds { role: Role },
    #[error("scaling: {field} must be between {min} and {max}")]
    Range { field: &'static str, min: u64, max: u64 },
}

impl ScalingPolicy {
    pub fn validate(&self) -> Result<(), InvalidScaling> {
        for (&role, rule) in &self.roles {
            let RoleScaling { min, max, .. } = *rule;
            if min == 0 {
                return Err(InvalidScaling::NoAgents { role });
            }
            if min > max {
                return Err(InvalidScaling::MinOverMax { role, min, max });
            }
            if max > limits::SEATS_PER_ROLE_MAX {
                return Err(InvalidScaling::TooMany { role, max });
            }
            if rule.scale_down_threshold >= rule.scale_up_threshold {
                return Err(InvalidScaling::Thresholds { role });
            }
        }
        for rule in self.roles.values() {
            let windows = [
                ("scaleUpAfterSeconds", rule.scale_up_after_seconds),
                ("scaleDownAfterSeconds", rule.scale_down_after_seconds),
                ("cooldownSeconds", rule.cooldown_seconds),
            ];
            for (field, found) in windows {
                if found > WINDOW_SECONDS_MAX {
                    return Err(InvalidScaling::Range { field, min: 0, max: WINDOW_SECONDS_MAX });
                }
            }
        }
        let ranges = [
            ("sample_ms", self.sample_ms, SECOND_MS, 60 * MINUTE_MS),
            ("rate_limit_permille_max", u64::from(self.rate_limit_permille_max), 1, 1_000),
            ("warn_permille", u64::from(self.warn_permille), 1, 1_000),
        ];
        for (field, found, min, max) in ranges {
            if !(min..=max).contains(&found) {
                return Err(InvalidScaling::Range { field, min, max });
            }
        }
        Ok(())
    }
}

/// What the outside adds to a decision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// How much of the tightest rate limit is in use.
    pub rate_limit_permille: u32,
    /// What extra agents have cost today.
    pub spent_today: Usd,
}

/// Why the number of agents changes; it goes into the journal and the activity log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ScaleReason {
    QueueLong { threshold: u32, for_ms: u64 },
    QueueEmpty { for_ms: u64 },
    Person { text: String },
}

impl fmt::Display for ScaleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScaleReason::QueueLong { threshold, for_ms } => {
                write!(f, "queue > {threshold} for {}", minutes(*for_ms))
            }
            ScaleReason::QueueEmpty { for_ms } => write!(f, "queue empty for {}", minutes(*for_ms)),
            ScaleReason::Person { text } => f.write_str(text),
        }
    }
}

fn minutes(ms: u64) -> String {
    match ms {
        MINUTE_MS => "1 minute".to_owned(),
        ms if ms.is_multiple_of(MINUTE_MS) => format!("{} minutes", ms / MINUTE_MS),
        ms => format!("{} seconds", ms / SECOND_MS),
    }
}

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

/// Why nothing is done although the queue or a person asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ScaleRefusal {
    #[error("API rate limit at {}%", permille / 10)]
    RateLimit { permille: u32 },
    #[error("Daily budget: {spent} / {cap} (scaling paused until budget resets or increased)")]
    Budget { spent: Usd, cap: Usd },
    #[error("{role} has all of its {max} agents")]
    AtMax { role: Role, max: u32 },
    #[error("{role} keeps at least {min}")]
    AtMin { role: Role, min: u32 },
    #[error("only permanent agents are left of {role}")]
    OnlyPermanent { role: Role },
    #[error("{role} is not scaled")]
    NotScaled { role: Role },
}

impl ScaleRefusal {
    /// Worth a line in the activity log; the others are the normal state of things.
    #[must_use]
    pub fn is_reported(&self) -> bool {
        matches!(self, ScaleRefusal::RateLimit { .. } | ScaleRefusal::Budget { .. })
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scaler {
    roles: BTreeMap<Role, Watch>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Watch {
    above_since: Option<Timestamp>,
    empty_since: Option<Timestamp>,
    changed_at: Option<Timestamp>,
    refused: Option<(ScaleRefusal, Timestamp)>,
}

impl Watch {
    fn up_at(&self, rule: &RoleScaling) -> Option<Timestamp> {
        self.above_since.map(|at| at.plus_ms(rule.scale_up_after_seconds * SECOND_MS))
    }

    fn cool_at(&self, rule: &RoleScaling) -> Option<Timestamp> {
        self.changed_at.map(|at| at.plus_ms(rule.cooldown_seconds * SECOND_MS))
    }
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
    }

    /// Fact: a change was considered and refused.
    pub fn refused(&mut self, role: Role, refusal: ScaleRefusal, at: Timestamp) {
        self.roles.entry(role).or_default().refused = Some((refusal, at));
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManualScale {
    Up { reason: String },
    Down { reason: String },
}

impl Pressure {
    fn refuses(self, policy: &ScalingPolicy) -> Option<ScaleRefusal> {
        if self.rate_limit_permille >= policy.rate_limit_permille_max {
            return Some(ScaleRefusal::RateLimit { permille: self.rate_limit_permille });
        }
        let (spent, cap) = (self.spent_today, policy.daily_usd_max);
        (spent >= cap).then_some(ScaleRefusal::Budget { spent, cap })
    }

    /// Whether the day's scaling money is nearly gone.
    #[must_use]
    pub fn warns(self, policy: &ScalingPolicy) -> bool {
        let spent = u128::from(self.spent_today.as_micros()) * 1_000;
        spent >= u128::from(policy.daily_usd_max.as_micros()) * u128::from(policy.warn_permille)
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
    let staying = registry.of(role).filter(|(_, agent)| agent.online && !agent.draining);
    if staying.count() as u64 <= u64::from(rule.min) {
        return Err(ScaleRefusal::AtMin { role, min: rule.min });
    }
    let leaves = |id: AgentId, agent: &Agent| !agent.draining && registry.check_retire(id).is_ok();
    let extra = registry.of(role).filter(|(id, agent)| leaves(*id, agent));
    let idle = extra.clone().filter(|(_, agent)| agent.takes_work());
    let longest = idle.min_by_key(|(id, agent)| (agent.since, Reverse(id.seat)));
    let chosen = longest.or_else(|| extra.last());
    chosen.map(|(id, _)| id).ok_or(ScaleRefusal::OnlyPermanent { role })
}
