//! Invariants of money: what is spent and reserved stays within the cap of the mission.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_core::policy::Budget;
use kapelle_core::{Event, Fence, MissionId, Usd};

use super::{Facts, Verdict, ensure};

#[derive(Debug, Default)]
pub(super) struct Purse {
    reserved: BTreeMap<Fence, (MissionId, Usd)>,
    spent: BTreeMap<MissionId, Usd>,
    /// Missions of which an attempt once spent more than was reserved for it.
    overspent: BTreeSet<MissionId>,
    /// Those of them that must be paused before the batch ends.
    to_stop: BTreeSet<MissionId>,
}

impl Purse {
    pub(super) fn observe(&mut self, event: &Event, facts: &Facts) -> Verdict {
        match event {
            Event::LeaseGranted { task, fence, reserved, .. } => {
                let mission = facts.task(*task)?.mission;
                let budget = facts.mission(mission)?.policy.budget;
                ensure(*reserved == budget.attempt_usd_max, || {
                    format!("lease {fence} reserves {reserved}, not {}", budget.attempt_usd_max)
                })?;
                self.reserved.insert(*fence, (mission, *reserved));
                let (bound, cap) = (self.bound(mission), budget.mission_usd_max);
                ensure(bound <= cap, || {
                    format!("lease {fence} was granted: {bound} of {cap} are spent or reserved")
                })
            }
            Event::CostCharged { task, fence, usd, .. } => {
                let mission = facts.task(*task)?.mission;
                *self.spent.entry(mission).or_default() += *usd;
                if self.reserved.get(fence).is_some_and(|(_, reserved)| usd > reserved) {
                    self.overspent.insert(mission);
                    self.to_stop.insert(mission);
                }
                Ok(())
            }
            Event::AttemptFinished { fence, .. }
            | Event::AttemptFailed { fence, .. }
            | Event::AttemptInterrupted { fence, .. }
            | Event::CheckpointRaised { fence, .. } => {
                self.reserved.remove(fence);
                Ok(())
            }
            // A person may have resumed it by the end of the same batch.
            Event::MissionPaused { mission, .. } => {
                self.to_stop.remove(mission);
                Ok(())
            }
            Event::MissionCancelled { mission, .. } => {
                self.reserved.retain(|_, (owner, _)| owner != mission);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn close(&mut self, facts: &Facts) -> Verdict {
        if let Some(mission) = self.to_stop.pop_first() {
            return Err(format!("an attempt of {mission} overspent, and the mission goes on"));
        }
        for (mission, spent) in &self.spent {
            let (bound, cap) =
                (self.bound(*mission), facts.mission(*mission)?.policy.budget.mission_usd_max);
            ensure(bound <= cap || self.overspent.contains(mission), || {
                format!("{mission} has {spent} spent, and with reservations {bound} of {cap}")
            })?;
        }
        Ok(())
    }

    /// Whether one more attempt fits the cap.
    pub(super) fn affords(&self, mission: MissionId, budget: Budget) -> bool {
        self.bound(mission) + budget.attempt_usd_max <= budget.mission_usd_max
    }

    fn bound(&self, id: MissionId) -> Usd {
        let spent = self.spent.get(&id).copied().unwrap_or_default();
        let reserved = self.reserved.values().filter(|(mission, _)| *mission == id);
        reserved.fold(spent, |sum, (_, usd)| sum + *usd)
    }
}
