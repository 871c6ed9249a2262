//! Scheduling: which of the things that could start does start next.

use super::State;
use crate::event::{Event, PauseReason};
use crate::ids::Actor;
use crate::mission::Mission;
use crate::time::Timestamp;

impl State {
    /// The next thing to set in motion, if there is one. The engine applies it and asks again, so
    /// that work which a commit makes possible starts with that same commit.
    #[must_use]
    pub fn next(&self, now: Timestamp) -> Vec<Event> {
        let wanting = self.with_chores.first().and_then(|id| self.mission(*id));
        if let Some((mission, &chore)) = wanting.and_then(|m| Some((m, m.chores.first()?))) {
            let fence = self.next_fence();
            return vec![Event::ChoreStarted { mission: mission.id, fence, chore }];
        }
        let seats = self.free_roles().filter_map(|role| self.free_seats(role).next());
        for agent in seats {
            let of_role = |mission: &Mission| {
                mission.ready.get(&agent.role).and_then(|queue| queue.first().copied())
            };
            let waiting = self.with_ready.iter().filter_map(|id| self.mission(*id));
            if let Some(broke) =
                waiting.clone().find(|m| m.reserved == crate::Usd::ZERO && !m.affords_attempt())
            {
                let (spent, cap) = (broke.spent, broke.policy.budget.mission_usd_max);
                let reason = PauseReason::Budget { spent, cap };
                return self.pause_for(broke, reason, Actor::kapelle(), None);
            }
            let best = waiting.filter(|m| m.affords_attempt()).filter_map(of_role).min();
            if let Some(event) = best.and_then(|(_, task)| self.grant_lease(task, agent, now).ok())
            {
                return vec![event];
            }
        }
        Vec::new()
    }
}
