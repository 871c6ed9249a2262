//! Seats: who of the team could take work now, and what taking and leaving it changes.
//!
//! The one place through which scheduling knows the agents.

use super::State;
use crate::agents::Permanence;
use crate::ids::{AgentId, Fence, Role, TaskId};
use crate::money::Usd;

impl State {
    /// How many more attempts may run at the same time, whatever the number of seats. What the
    /// machine carries is a hard cap (WRK-02).
    pub(super) fn workers_free(&self) -> u32 {
        let cap = self.settings.team.workers_cap().unwrap_or(u32::MAX);
        self.agents.workers_max().min(cap).saturating_sub(self.agents.busy())
    }

    /// Roles of which somebody could take work now; none while every worker is busy.
    pub(super) fn free_roles(&self) -> impl Iterator<Item = Role> {
        let any = self.workers_free() > 0;
        self.agents.idle().filter(move |_| any).map(|(role, _)| role)
    }

    /// The seats of a role that could take work now, the lowest first.
    pub(super) fn free_seats(&self, role: Role) -> impl Iterator<Item = AgentId> {
        let any = self.workers_free() > 0;
        let idle = self.agents.idle_of(role).filter(|_| any);
        idle.into_iter().flatten().map(move |&seat| AgentId { role, seat })
    }

    /// Who of a role takes new work, now or when it is free.
    pub(super) fn staying(&self, role: Role) -> impl Iterator<Item = AgentId> {
        self.agents.of(role).filter(|(_, agent)| agent.stays()).map(|(id, _)| id)
    }

    /// How many of a role the team has, busy or not.
    pub(super) fn seats_of(&self, role: Role) -> u32 {
        self.agents.team().filter(|(id, agent)| id.role == role && agent.stays()).count() as u32
    }

    /// Whether the seat has nothing to do, whatever the number of workers.
    pub(super) fn is_idle(&self, agent: AgentId) -> bool {
        self.agents.idle_of(agent.role).is_some_and(|seats| seats.contains(&agent.seat))
    }

    pub(in crate::state) fn take_seat(&mut self, agent: AgentId, task: TaskId, fence: Fence) {
        self.agents.took(agent, task, fence, self.at);
        self.scaling_stale = true;
    }

    pub(in crate::state) fn release_seat(&mut self, agent: AgentId) {
        self.agents.finished(agent, self.at);
        self.scaling_stale = true;
    }

    pub(in crate::state) fn charge_seat(&mut self, agent: AgentId, usd: Usd) {
        self.agents.charged(agent, usd);
        if self.agents.get(agent).is_some_and(|a| a.permanence == Permanence::Extra) {
            self.scaler.charged(usd, self.at);
        }
    }
}
