//! The team: which seats there are, and which of them are free.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, Fence, Role};
use crate::money::Usd;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Team {
    pub seats: BTreeMap<AgentId, Seat>,
    /// How many attempts may run at the same time, whatever the number of seats.
    pub workers_max: u32,
    idle: BTreeMap<Role, BTreeSet<u32>>,
    busy: u32,
    size: BTreeMap<Role, u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Seat {
    pub fence: Option<Fence>,
    pub spent: Usd,
}

impl Team {
    #[must_use]
    pub fn has_size(&self, size: &BTreeMap<Role, u32>, workers_max: u32) -> bool {
        self.size == *size && self.workers_max == workers_max
    }

    /// Roles that could take work now, with the seat that would.
    pub(crate) fn free(&self) -> impl Iterator<Item = AgentId> {
        let full = self.busy >= self.workers_max;
        let seats = self.idle.iter().filter(move |_| !full);
        seats.filter_map(|(&role, free)| free.first().map(|&seat| AgentId { role, seat }))
    }

    pub(crate) fn resize(&mut self, size: &BTreeMap<Role, u32>, workers_max: u32) {
        self.size.clone_from(size);
        self.workers_max = workers_max;
        let wanted = |agent: &AgentId| size.get(&agent.role).is_some_and(|n| agent.seat <= *n);
        for (&role, &seats) in size {
            for seat in 1..=seats {
                self.seats.entry(AgentId { role, seat }).or_default();
            }
        }
        // A seat that is busy goes when its attempt ends.
        self.seats.retain(|agent, seat| wanted(agent) || seat.fence.is_some());
        self.idle.clear();
        for (agent, seat) in &self.seats {
            if seat.fence.is_none() {
                self.idle.entry(agent.role).or_default().insert(agent.seat);
            }
        }
    }

    pub(crate) fn take(&mut self, agent: AgentId, fence: Fence) {
        self.seats.entry(agent).or_default().fence = Some(fence);
        self.busy += 1;
        if let Some(idle) = self.idle.get_mut(&agent.role) {
            idle.remove(&agent.seat);
        }
    }

    pub(crate) fn release(&mut self, agent: AgentId) {
        let Some(seat) = self.seats.get_mut(&agent) else { return };
        seat.fence = None;
        self.busy = self.busy.saturating_sub(1);
        if self.size.get(&agent.role).is_some_and(|n| agent.seat <= *n) {
            self.idle.entry(agent.role).or_default().insert(agent.seat);
        } else {
            self.seats.remove(&agent);
        }
    }

    pub(crate) fn charge(&mut self, agent: AgentId, usd: Usd) {
        if let Some(seat) = self.seats.get_mut(&agent) {
            seat.spent += usd;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn developers(seats: u32) -> BTreeMap<Role, u32> {
        BTreeMap::from([(Role::Developer, seats)])
    }

    fn seat(seat: u32) -> AgentId {
        AgentId { role: Role::Developer, seat }
    }

    #[test]
    fn no_more_attempts_than_workers_whatever_the_seats() {
        let mut team = Team::default();
        team.resize(&developers(5), 2);
        team.take(seat(1), Fence(1));
        assert_eq!(team.free().collect::<Vec<_>>(), [seat(2)]);
        team.take(seat(2), Fence(2));
        assert_eq!(team.free().count(), 0);
        team.release(seat(1));
        assert_eq!(team.free().collect::<Vec<_>>(), [seat(1)]);
    }

    /// Scaling down must not pull the chair from under a working agent.
    #[test]
    fn a_busy_seat_leaves_when_its_work_ends() {
        let mut team = Team::default();
        team.resize(&developers(2), 2);
        team.take(seat(2), Fence(1));
        team.resize(&developers(1), 2);
        assert!(team.seats.contains_key(&seat(2)));
        team.release(seat(2));
        assert!(!team.seats.contains_key(&seat(2)));
    }
}
