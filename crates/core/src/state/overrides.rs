//! Overrides: what people may order about a task, whatever the rules would do.
//!
//! Invariant: an order has a person, a reason and the right to it, and where it passes what had to
//! be shown for high risk, a second person. None of them moves the protected branch.

use super::State;
use super::approvals::assess;
use super::decide::Decision;
use super::people::person;
use crate::approval::{
    ApprovalPolicy, Order, OverrideAction, OverrideDecision, Situation, Subject,
};
use crate::event::{Chore, Event, Interruption};
use crate::ids::{Actor, TaskId};
use crate::mission::Mission;
use crate::refusal::Refusal;
use crate::state::Live;
use crate::task::{Stage, Task};
use crate::time::Timestamp;

impl State {
    pub(super) fn order(&self, order: &Order, now: Timestamp) -> Decision {
        let (task, mission) = self.overridable(order.task)?;
        person(&order.by)?;
        let rules = rules_of(mission);
        let situation = self.situation(task, mission, &rules);
        match self.overrides.order(&rules, &self.people, order, &situation, now)? {
            OverrideDecision::Effective { order, .. } => {
                self.carry_out((task, mission), order, None, now)
            }
            OverrideDecision::NeedsSecond { order, expires_at } => {
                self.leads_somewhere((task, mission), &order.action)?;
                Ok(vec![Event::OverrideProposed { order: Box::new(order), expires_at }])
            }
        }
    }

    pub(super) fn second(&self, id: TaskId, by: &Actor, now: Timestamp) -> Decision {
        let (task, mission) = self.overridable(id)?;
        person(by)?;
        let situation = self.situation(task, mission, &rules_of(mission));
        match self.overrides.second(&self.people, id, by, &situation, now)? {
            OverrideDecision::Effective { order, seconded_by } => {
                self.carry_out((task, mission), order, seconded_by, now)
            }
            OverrideDecision::NeedsSecond { .. } => Ok(Vec::new()),
        }
    }

    fn overridable(&self, id: TaskId) -> Result<(&Task, &Mission), Refusal> {
        let (task, mission) = self.task_or_refuse(id)?;
        self.open_mission_or_refuse(mission.id)?;
        Ok((task, mission))
    }

    fn situation<'a>(
        &self,
        task: &Task,
        mission: &'a Mission,
        rules: &ApprovalPolicy,
    ) -> Situation<'a> {
        let agent = match task.stage {
            Stage::Working { fence } => self.lease(fence).map(|lease| lease.agent),
            _ => None,
        };
        let gate = match task.stage {
            Stage::Approval { subject } => Some(subject),
            // It was given up at its gate: whoever calls it done passes that.
            Stage::DeadLetter => {
                Some(Subject::Start(task.id)).filter(|start| self.approvals.is_rejected(*start))
            }
            _ => None,
        };
        Situation {
            status: task.status(mission),
            risk: assess(rules, task, &[]).risk,
            flow: &mission.policy.flow,
            phase: task.phase,
            agent,
            gate,
        }
    }

    fn carry_out(
        &self,
        (task, mission): (&Task, &Mission),
        order: Order,
        seconded_by: Option<Actor>,
        now: Timestamp,
    ) -> Decision {
        self.leads_somewhere((task, mission), &order.action)?;
        // What is skipped later disturbs nobody who works now.
        let later = matches!(order.action, OverrideAction::SkipStep { step }
            if task.phase(&mission.policy) != Some(step));
        let mut events = match later {
            true => Vec::new(),
            false => self.withdraw(task, Interruption::Overridden),
        };
        let follows = match (&order.action, &task.accepted) {
            (OverrideAction::ForceComplete, _) => self.completed_by_order(task, mission, now),
            // Past the last phase others are asked, unless it is their gate that the order passes.
            (OverrideAction::SkipStep { step }, Some(change))
                if task.phase(&mission.policy) == Some(*step)
                    && !matches!(task.stage, Stage::Approval { .. }) =>
            {
                let asked = self.ask_to_merge((task, mission), (change, &[]), now);
                asked.into_iter().collect()
            }
            _ => Vec::new(),
        };
        events.push(Event::Overridden { order: Box::new(order), seconded_by });
        events.extend(follows);
        Ok(events)
    }

    /// What follows from a task that a person calls done.
    fn completed_by_order(&self, task: &Task, mission: &Mission, now: Timestamp) -> Vec<Event> {
        let mut events = match task.stage {
            Stage::Blocked { .. } | Stage::DeadLetter => {
                self.unblock([(task.id, None)].into(), now)
            }
            _ => Vec::new(),
        };
        let mut counts = mission.counts;
        counts.completed += 1;
        let rolling = !mission.merging.rollbacks.is_empty();
        if let (true, false, Some(tip)) = (mission.is_complete(&counts), rolling, &mission.tip) {
            events.push(Event::DeliveryProposed { mission: mission.id, commit: tip.clone() });
        }
        events
    }

    /// What is in flight for the task ends.
    pub(super) fn withdraw(&self, task: &Task, cause: Interruption) -> Vec<Event> {
        if let Stage::Working { fence } = task.stage {
            return vec![Event::AttemptInterrupted { task: task.id, fence, cause }];
        }
        let gate = Chore::Gate(task.id);
        let is_gate = |live: &Live| matches!(live, Live::Chore { chore, .. } if *chore == gate);
        let gates = self.live_of(task.mission).filter(|(_, live)| is_gate(live));
        gates.map(|(fence, _)| Event::ChoreWithdrawn { fence }).collect()
    }

    /// Whether the order leads somewhere from where the task is.
    fn leads_somewhere(
        &self,
        (task, mission): (&Task, &Mission),
        action: &OverrideAction,
    ) -> Result<(), Refusal> {
        let name = || task.name().to_owned();
        let begun = !matches!(task.stage, Stage::Waiting | Stage::Blocked { .. });
        match (action, &task.stage) {
            // Its candidate may be on the branch before anybody can say stop; and who skips a
            // phase of a change that is past all of them means something else.
            (_, Stage::Merging { checked: true, .. })
            | (
                OverrideAction::SkipStep { .. },
                Stage::Queued | Stage::Merging { .. } | Stage::Review { .. },
            ) => Err(Refusal::BeingMerged { task: name() }),
            // Skipping the last one passes this gate; any other is past.
            (OverrideAction::SkipStep { step }, Stage::Approval { subject: Subject::Merge(_) })
                if task.phase(&mission.policy) != Some(*step) =>
            {
                Err(Refusal::BeingMerged { task: name() })
            }
            (OverrideAction::Reset { .. }, _) if !begun => Err(Refusal::NotBegun { task: name() }),
            (OverrideAction::ForceComplete, _) if mission.tip.is_none() => {
                Err(Refusal::NotBegun { task: name() })
            }
            (OverrideAction::SkipStep { step }, _) => {
                let last = task.phase(&mission.policy) == Some(*step)
                    && task.next_phase(&mission.policy).is_none();
                match (&task.accepted, &task.stage) {
                    (None, _) if last => Err(Refusal::NothingToMerge { task: name() }),
                    // After the last step comes the merge, and what it needs is not there.
                    (Some(_), Stage::Blocked { on }) if last => {
                        let on = self.task(*on).map_or_else(String::new, |on| on.name().to_owned());
                        Err(Refusal::Blocked { task: name(), on })
                    }
                    _ => Ok(()),
                }
            }
            (OverrideAction::Reassign { to, .. }, _) => {
                let (agent, territories) = (*to, &self.settings.territories);
                if !self.is_idle(agent) {
                    return Err(Refusal::NotFree { agent });
                }
                match territories.admits(agent, &task.files) {
                    true => Ok(()),
                    false => Err(Refusal::OutsideTerritory { agent, task: name() }),
                }
            }
            (OverrideAction::Reset { .. } | OverrideAction::ForceComplete, _) => Ok(()),
        }
    }
}

/// Where a mission has no rules about people, one of them is enough for everything.
fn rules_of(mission: &Mission) -> ApprovalPolicy {
    let alone = || ApprovalPolicy { high_risk_people: 1, ..ApprovalPolicy::default() };
    mission.policy.approvals.clone().unwrap_or_else(alone)
}
