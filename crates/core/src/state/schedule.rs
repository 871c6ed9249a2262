//! Scheduling: which of the things that could start does start next.

use super::State;
use super::money::Terms;
use crate::event::Event;
use crate::ids::{AgentId, TaskId};
use crate::limits;
use crate::time::Timestamp;

impl State {
    /// The next thing to set in motion, if there is one. The engine applies it and asks again, so
    /// that work which a commit makes possible starts with that same commit.
    #[must_use]
    pub fn next(&self, now: Timestamp) -> Vec<Event> {
        if let Some(alarm) = self.alarm(now) {
            return vec![alarm];
        }
        let wanting = self.with_chores.first().and_then(|id| self.mission(*id));
        if let Some((mission, &chore)) = wanting.and_then(|m| Some((m, m.chores.first()?))) {
            let fence = self.next_fence();
            return vec![Event::ChoreStarted { mission: mission.id, fence, chore }];
        }
        let mut is_somebody_free = false;
        let seats = self.free_roles().filter_map(|role| self.free_seats(role).next());
        for agent in seats {
            is_somebody_free = true;
            let best = self.startable(agent, now);
            if let Some(event) =
                best.and_then(|(task, terms)| self.grant_lease(task, agent, terms, now))
            {
                return vec![event];
            }
        }
        if is_somebody_free { self.pause_stuck(now) } else { Vec::new() }
    }

    /// The best task for this agent that may start.
    fn startable(&self, agent: AgentId, now: Timestamp) -> Option<(TaskId, Terms)> {
        let waiting = self.with_ready.iter().filter_map(|id| self.mission(*id));
        let queues = waiting.filter_map(|mission| mission.ready.get(&agent.role));
        let (_, best) = queues.clone().filter_map(|queue| queue.first()).min()?;
        if let Ok(terms) = self.terms(*best, agent, now) {
            return Some((*best, terms));
        }
        // Limits differ by mission, task and urgency: what the first may not, another may.
        let lookahead = limits::SCHEDULE_LOOKAHEAD_MAX;
        let mut others: Vec<_> = queues.flat_map(|queue| queue.iter().take(lookahead)).collect();
        others.sort_unstable();
        let mut others = others.into_iter().take(lookahead).map(|(_, task)| *task);
        others.find_map(|task| Some((task, self.terms(task, agent, now).ok()?)))
    }
}
