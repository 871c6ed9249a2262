//! Seats: who of the team could take work now, and what taking and leaving it changes.
//!
//! The one place through which scheduling knows the team.

use super::State;
use crate::ids::{AgentId, Fence, Role};
use crate::money::Usd;

impl State {
    /// How many more attempts may run at the same time, whatever the number of seats.
    pub(super) fn workers_free(&self) -> u32 {
        self.team.workers_free()
    }

    /// Roles of which somebody could take work now; none while every worker is busy.
    pub(super) fn free_roles(&self) -> impl Iterator<Item = Role> {
        let any = self.workers_free() > 0;
        self.team.idle().filter(move |_| any).map(|(role, _)| role)
    }

    /// The seats of a role that could take work now, the lowest first.
    pub(super) fn free_seats(&self, role: Role) -> impl Iterator<Item = AgentId> {
        let any = self.workers_free() > 0;
        let idle = self.team.idle().filter(move |(of, _)| any && *of == role);
        idle.flat_map(|(role, seats)| seats.iter().map(move |&seat| AgentId { role, seat }))
    }

    pub(in crate::state) fn take_seat(&mut self, agent: AgentId, fence: Fence) {
        self.team.take(agent, fence);
    }

    pub(in crate::state) fn release_seat(&mut self, agent: AgentId) {
        self.team.release(agent);
    }

    pub(in crate::state) fn charge_seat(&mut self, agent: AgentId, usd: Usd) {
        self.team.charge(agent, usd);
    }
}
