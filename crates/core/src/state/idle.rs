//! Idle attempts: an agent that prints nothing is spoken of once, and goes on (WRK-08).
//!
//! Hosts tell when the attempts of theirs last printed something; what is news of it is decided
//! here.

use std::collections::BTreeMap;

use super::State;
use crate::event::Event;
use crate::ids::Fence;
use crate::time::{SECOND_MS, Timestamp};

/// An agent that thinks is silent; one that is silent for longer is worth a look.
pub const IDLE_WARNING_MS: u64 = 300 * SECOND_MS;

/// How soon after a warning it is noticed that an agent prints again.
const BACK_AFTER_MS: u64 = 30 * SECOND_MS;

impl State {
    pub(super) fn report_output(&self, heard: &[(Fence, Timestamp)], now: Timestamp) -> Vec<Event> {
        let distinct: BTreeMap<Fence, Timestamp> = heard.iter().copied().collect();
        distinct.into_iter().filter_map(|(fence, at)| self.idle_news(fence, at, now)).collect()
    }

    fn idle_news(&self, fence: Fence, heard: Timestamp, now: Timestamp) -> Option<Event> {
        let lease = self.lease(fence)?;
        let (task, agent) = (lease.task, lease.agent);
        let silent_ms = now.ms_since(heard.max(lease.granted_at));
        match lease.idle_since {
            None if silent_ms > IDLE_WARNING_MS => {
                Some(Event::AttemptIdle { task, fence, agent, silent_ms })
            }
            Some(since) if heard > since => Some(Event::AttemptHeard { task, fence, agent }),
            None | Some(_) => None,
        }
    }

    /// When it is worth telling when an attempt last printed something, by what was `heard` of it
    /// and when that was last `told`.
    #[must_use]
    pub fn output_due_at(
        &self,
        fence: Fence,
        heard: Timestamp,
        told: Timestamp,
    ) -> Option<Timestamp> {
        let lease = self.lease(fence)?;
        Some(match lease.idle_since {
            None => heard.max(lease.granted_at).plus_ms(IDLE_WARNING_MS + 1),
            Some(_) => told.plus_ms(BACK_AFTER_MS),
        })
    }
}
