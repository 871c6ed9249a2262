//! Sub-agents: agents that an agent starts, paid out of what is reserved for its attempt.
//!
//! Invariant: what sub-agents may spend is never more than their attempt, or the sub-agent that
//! started them, has left; and all of them end with the attempt.

use super::decide::Decision;
use super::{Lease, State};
use crate::command::Spending;
use crate::event::{Event, PauseReason};
use crate::ids::{Actor, Fence};
use crate::ledger::{self, PartRequest, ReservationId, Unit};
use crate::money::Usd;
use crate::refusal::Refusal;
use crate::time::Timestamp;

impl State {
    /// The sub-agents of an attempt, with what each of them has left.
    #[must_use]
    pub fn sub_agents(&self, fence: Fence) -> Vec<(ReservationId, Usd)> {
        let whole = self.lease(fence).and_then(|lease| lease.reservation);
        whole.map(|id| self.ledger.parts(id)).unwrap_or_default()
    }

    /// What is reserved for an attempt and not charged yet.
    pub(super) fn uncharged(&self, lease: &Lease) -> Usd {
        lease.reservation.map_or(lease.reserved, |id| self.ledger.uncharged(id))
    }

    pub(super) fn open_sub_agent(
        &self,
        fence: Fence,
        of: Option<ReservationId>,
        usd_max: Option<Usd>,
    ) -> Decision {
        let lease = self.lease_or_refuse(fence)?;
        let stale = Refusal::StaleFence { presented: fence };
        let whole = lease.reservation.ok_or(stale)?;
        if let Some(sub_agent) = of {
            self.sub_agent_or_refuse(fence, sub_agent)?;
        }
        let parent = of.unwrap_or(whole);
        let left = self.ledger.remainder(parent);
        let usd = usd_max.unwrap_or(left);
        if usd == Usd::ZERO {
            let asked = Usd::micros(1);
            return Err(ledger::Refusal::OverParent { parent, left: usd, asked }.into());
        }
        let (agent, unit) = (Some(lease.agent), Unit::Attempt);
        let request = PartRequest { parent, agent, unit, usd, tokens: 0 };
        let sub_agent = self.ledger.reserve_part(&request)?.id;
        Ok(vec![Event::SubAgentOpened { task: lease.task, fence, sub_agent, of, usd }])
    }

    pub(super) fn close_sub_agent(
        &self,
        fence: Fence,
        sub_agent: ReservationId,
        spent: &Spending,
        now: Timestamp,
    ) -> Decision {
        let lease = self.lease_or_refuse(fence)?;
        let (task, mission) = self.task_or_refuse(lease.task)?;
        self.sub_agent_or_refuse(fence, sub_agent)?;
        let (parent, own) = (self.parent_of(sub_agent), self.ledger.uncharged(sub_agent));
        // What is not known is never taken for less than it can be.
        let worst = spent.unpriced.as_ref().map_or(Usd::ZERO, |_| own);
        let (usd, usage) = (spent.usd.max(worst), spent.usage.clone());
        let warned = self.warned(fence, usd, &usage, now);
        let task = task.id;
        let closed = Event::SubAgentClosed { task, fence, sub_agent, spent: usd, usage };
        let mut events: Vec<Event> = [closed].into_iter().chain(warned).collect();
        // Whoever started it may have something left for it; what others hold is not for it.
        let left = parent.map_or(Usd::ZERO, |id| self.ledger.remainder(id));
        if usd > left + own {
            let before = lease.reserved.saturating_sub(self.uncharged(lease));
            let (reserved, spent) = (lease.reserved, before + usd);
            let reason = PauseReason::Overspent { reserved, spent };
            events.extend(self.pause_for(mission, reason, Actor::kapelle(), None));
        }
        Ok(events)
    }

    /// Who pays what a sub-agent spent.
    pub(super) fn parent_of(&self, sub_agent: ReservationId) -> Option<ReservationId> {
        self.ledger.reservation(sub_agent).and_then(|part| part.parent)
    }

    fn sub_agent_or_refuse(&self, fence: Fence, sub_agent: ReservationId) -> Result<(), Refusal> {
        match self.sub_agents(fence).iter().any(|(id, _)| *id == sub_agent) {
            true => Ok(()),
            false => Err(Refusal::NoSubAgent { fence, sub_agent }),
        }
    }
}
