//! Agents that come and go, and when their number is looked at next.

use std::sync::Arc;

use crate::agents::Permanence;
use crate::event::Event;
use crate::ids::Role;
use crate::scaling::ScalingMode;
use crate::settings::Settings;
use crate::state::{State, Timer};
use crate::time::Timestamp;

impl State {
    /// The arms of `apply` about agents; it names each of them, so none is forgotten.
    pub(in crate::state) fn apply_to_agents(&mut self, event: &Event) {
        let at = self.at;
        match event {
            Event::TeamChanged { seats, workers_max, .. } => {
                self.agents.configured(seats, *workers_max, at);
            }
            Event::AgentAdded { agent, .. } => {
                self.agents.joined(*agent, Permanence::Extra, at);
                self.scaler.scaled(agent.role, at);
            }
            Event::AgentRetired { agent, .. } => {
                self.agents.retired(*agent, at);
                self.scaler.scaled(agent.role, at);
            }
            Event::ScaleRefused { role, refusal, .. } => {
                self.scaler.refused(*role, refusal.clone(), at);
            }
            Event::QueueBackedUp { role, .. } => self.scaler.backed_up(*role),
            Event::RateUseReported { permille } => self.scaler.rate_used(*permille, at),
            _ => {}
        }
        self.scaling_stale = true;
    }

    pub(in crate::state) fn change_rules(&mut self, settings: &Settings) {
        if self.settings.scaling != settings.scaling {
            self.scaler.ruled_anew();
            for role in self.scale_at.keys().copied().collect::<Vec<_>>() {
                self.look_at(role, None);
            }
            self.scaling_stale = true;
        }
        self.ledger.configured(settings.money.clone());
        self.permits.configured(settings.rate.clone());
        self.councils.chamber.configured(settings.council.as_ref());
        self.tests.configured(settings.flaky);
        self.settings = Arc::new(settings.clone());
        self.retime_notices();
        self.reconfigure_queue();
    }

    /// Tells the scaler how long the queues are, and sets the clock for what follows from it.
    pub(in crate::state) fn watch_queues(&mut self) {
        let stale = std::mem::take(&mut self.scaling_stale);
        if !stale || self.settings.scaling.mode == ScalingMode::Off {
            return;
        }
        let (settings, at) = (Arc::clone(&self.settings), self.at);
        let rules = &settings.scaling;
        match rules.mode {
            ScalingMode::Off => {}
            ScalingMode::ByRole => {
                for &role in rules.by_role.roles.keys() {
                    let depth = self.queue_depth(role);
                    self.scaler.depth_changed(&rules.by_role, role, depth, at);
                    let due = self.scaler.wake_at(&rules.by_role, &self.agents, role);
                    self.look_at(role, due);
                }
            }
            ScalingMode::BySteps => {
                let role = rules.by_steps.role;
                let depth = self.queue_depth(role);
                self.scaler.step_changed(&rules.by_steps, &self.agents, depth, at);
                let due = self.scaler.step_at(rules);
                self.look_at(role, due);
            }
        }
    }

    fn look_at(&mut self, role: Role, due: Option<Timestamp>) {
        let before = match due {
            Some(due) => self.scale_at.insert(role, due),
            None => self.scale_at.remove(&role),
        };
        if before == due {
            return;
        }
        if let Some(before) = before {
            self.timers.remove(&(before, Timer::Scale(role)));
        }
        if let Some(due) = due {
            self.timers.insert((due, Timer::Scale(role)));
        }
    }
}
