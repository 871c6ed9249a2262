//! The number of agents: what a person, the queues and the clock change about it.

use super::State;
use super::decide::Decision;
use super::people::said;
use crate::event::Event;
use crate::ids::{Actor, Role};
use crate::limits;
use crate::scaling::{ManualScale, Scale, ScaleRefusal, ScalingMode, Stepped};
use crate::time::Timestamp;

impl State {
    /// A person wants one more or one less (WRK-28).
    pub(super) fn scale(
        &self,
        role: Role,
        change: &ManualScale,
        by: &Actor,
        now: Timestamp,
    ) -> Decision {
        said("the reason", change.reason(), limits::REASON_CHARS_MAX)?;
        self.directs(by)?;
        let (policy, pressure) = (&self.settings.scaling.by_role, self.scaler.pressure(now));
        let scale = self.scaler.manual(policy, &self.agents, role, change.clone(), pressure)?;
        Ok(vec![scaled(scale, by)])
    }

    /// The gateway says how much of the tightest rate limit is in use.
    pub(super) fn report_rate_use(&self, permille: u32, now: Timestamp) -> Vec<Event> {
        let worth = self.scaler.hears_of(&self.settings.scaling.by_role, permille, now);
        if worth { vec![Event::RateUseReported { permille }] } else { Vec::new() }
    }

    /// The moment has come to look at the number of agents of a role.
    pub(super) fn scale_by_clock(&self, role: Role, now: Timestamp) -> Vec<Event> {
        let (rules, by) = (&self.settings.scaling, Actor::kapelle());
        let pressure = self.scaler.pressure(now);
        let refused = |refusal: ScaleRefusal| {
            let repeated = !self.scaler.is_news(role, &refusal);
            vec![Event::ScaleRefused { role, refusal, repeated }]
        };
        match rules.mode {
            ScalingMode::Off => Vec::new(),
            ScalingMode::ByRole => {
                match self.scaler.decide(&rules.by_role, &self.agents, role, pressure, now) {
                    None => Vec::new(),
                    Some(Ok(scale)) => vec![scaled(scale, &by)],
                    Some(Err(refusal)) => refused(refusal),
                }
            }
            ScalingMode::BySteps => match self.scaler.step(rules, &self.agents, pressure, now) {
                None => Vec::new(),
                Some(Stepped::Changes(all)) => {
                    all.into_iter().map(|scale| scaled(scale, &by)).collect()
                }
                Some(Stepped::Refused(refusal)) => refused(refusal),
                Some(Stepped::BackedUp { depth }) => vec![Event::QueueBackedUp { role, depth }],
            },
        }
    }

    /// How many tasks wait for an agent of a role, in missions that go on.
    pub(super) fn queue_depth(&self, role: Role) -> u32 {
        self.with_ready.iter().map(|id| self.schedule.queue.depth_of(role, *id)).sum()
    }
}

fn scaled(scale: Scale, by: &Actor) -> Event {
    match scale {
        Scale::Up { agent, reason } => Event::AgentAdded { agent, reason, by: by.clone() },
        Scale::Down { agent, reason } => Event::AgentRetired { agent, reason, by: by.clone() },
    }
}
