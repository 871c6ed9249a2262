//! The number of agents: what a person, the queues and the clock change about it.

use super::State;
use super::decide::Decision;
use super::people::said;
use crate::event::Event;
use crate::ids::{Actor, Role};
use crate::ledger::{Charge, Crew, Limit, Warning};
use crate::limits;
use crate::scaling::{ManualScale, Pressure, Scale, ScaleRefusal, ScalingMode, Stepped};
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
        let (policy, pressure) = (&self.settings.scaling.by_role, self.pressure(now));
        let scale = self.scaler.manual(policy, &self.agents, role, change.clone(), pressure)?;
        Ok(vec![scaled(scale, by)])
    }

    /// The gateway says how much of the tightest rate limit is in use.
    pub(super) fn report_rate_use(&self, permille: u32, now: Timestamp) -> Vec<Event> {
        let worth = self.scaler.hears_of(&self.settings.scaling.by_role, permille, now);
        if worth { vec![Event::RateUseReported { permille }] } else { Vec::new() }
    }

    /// What the gateway says of the rate limits, or our own count where that is more.
    fn pressure(&self, now: Timestamp) -> Pressure {
        let told = self.scaler.pressure(now);
        let counted = self.permits.busiest_permille(now).unwrap_or(0);
        Pressure { rate_limit_permille: told.rate_limit_permille.max(counted), ..told }
    }

    /// C-38: the warning that what extra agents may cost today is nearly spent, with the bill that
    /// brings it there.
    pub(super) fn warned_of_scaling(&self, charge: &Charge) -> Option<Warning> {
        let policy = &self.settings.scaling.by_role;
        let before = self.scaler.pressure(charge.at);
        let spent = before.spent_today + charge.usd;
        let after = Pressure { spent_today: spent, ..before };
        let crosses = !before.warns(policy) && after.warns(policy);
        let warning = Warning { limit: Limit::ScalingDay, spent, cap: policy.daily_usd_max };
        (charge.account.crew == Crew::Extra && crosses).then_some(warning)
    }

    /// The moment has come to look at the number of agents of a role.
    pub(super) fn scale_by_clock(&self, role: Role, now: Timestamp) -> Vec<Event> {
        let (rules, by) = (&self.settings.scaling, Actor::kapelle());
        let pressure = self.pressure(now);
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
