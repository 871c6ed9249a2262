//! Gates and rights: what waits for people's word, and who may give it.
//!
//! Invariant: where people are configured, each does only what their role has the right to; where
//! nobody is, everybody who is a person may. An approval holds for the commit that was seen.

use std::cmp::Reverse;
use std::sync::Arc;

use super::State;
use super::council::ask_about;
use super::decide::Decision;
use super::people::{person, said, signed};
use crate::approval::{
    Action, ApprovalPolicy, ApprovalRefused, Assessment, Gate, Need, PersonRole, Right, Subject,
};
use crate::escalation::HumanBecause;
use crate::event::Event;
use crate::ids::{Actor, AgentId, Commit, MissionId, Role};
use crate::limits;
use crate::mission::Mission;
use crate::plan::PlannedTask;
use crate::refusal::Refusal;
use crate::task::{Stage, Task};
use crate::time::Timestamp;

impl State {
    /// Whether this person may do this. Whoever decides is named, configured or not.
    pub(super) fn may(&self, by: &Actor, right: Right) -> Result<(), Refusal> {
        signed(by)?;
        Ok(self.people.require(by, right)?)
    }

    /// For what only people decide, whoever is known: an agent could help itself otherwise.
    pub(super) fn directs(&self, by: &Actor) -> Result<(), Refusal> {
        person(by)?;
        self.may(by, Right::Direct)
    }

    /// For what the orchestrator decides beside people: its agent, or Kapelle where nobody has the
    /// seat. No other agent does, or it could steer what is made of its own work.
    pub(super) fn orchestrates(&self, by: &Actor) -> Result<(), Refusal> {
        let agent = by.0.parse::<AgentId>();
        let is_orchestrator = agent.is_ok_and(|agent| agent.role == Role::Orchestrator);
        if is_orchestrator || *by == Actor::kapelle() { Ok(()) } else { self.directs(by) }
    }

    pub(super) fn assign(&self, who: &Actor, role: Option<PersonRole>, by: &Actor) -> Decision {
        person(by)?;
        person(who)?;
        self.people.assign(by, who, role)?;
        if self.people.role(who) == role {
            return Ok(Vec::new());
        }
        Ok(vec![Event::PersonAssigned { person: who.clone(), role, by: by.clone() }])
    }

    /// What people are asked or told about a plan, if the mission's rules want it.
    pub(super) fn ask_for_plan(
        &self,
        (mission, base): (MissionId, &Commit),
        rules: &ApprovalPolicy,
        tasks: &[PlannedTask],
        now: Timestamp,
    ) -> Option<Event> {
        let riskiest = tasks.iter().map(|task| rules.assess(task, &[])).max_by_key(|a| a.risk)?;
        let need = rules.need(Action::AcceptPlan, &riskiest);
        let gate = Gate {
            subject: Subject::Plan(mission),
            mission,
            commit: base.clone(),
            author: Actor::kapelle(),
            people: 0,
            assessed: Some(riskiest),
            opened_at: now,
        };
        needed(need, gate)
    }

    pub(super) fn asks_about_plans(&self, mission: &Mission, tasks: &[PlannedTask]) -> bool {
        let Some(rules) = &mission.policy.approvals else { return false };
        let asks = |task| rules.need(Action::AcceptPlan, &rules.assess(task, &[]));
        tasks.iter().map(asks).any(|need| matches!(need, Need::Approval { .. }))
    }

    /// The next task that may start once people agree.
    pub(super) fn next_question(&self, now: Timestamp) -> Option<Event> {
        let mission = self.mission(*self.with_asks.first()?)?;
        let task = self.task(*mission.to_ask.first()?)?;
        self.ask_to_start((task, mission), mission.tip.as_ref()?, now)
    }

    /// Whether somebody has to agree before the task starts.
    pub(super) fn needs_word(&self, (task, mission): (&Task, &Mission)) -> bool {
        let Some(rules) = &mission.policy.approvals else { return false };
        let fresh = task.attempts == 0 && task.stage == Stage::Ready;
        fresh
            && !self.approvals.is_granted(Subject::Start(task.id))
            && matches!(
                rules.need(Action::StartTask, &assess(rules, task, &[])),
                Need::Approval { .. }
            )
    }

    /// What people are asked or told before the first attempt of a task.
    pub(super) fn ask_to_start(
        &self,
        (task, mission): (&Task, &Mission),
        base: &Commit,
        now: Timestamp,
    ) -> Option<Event> {
        let subject = Subject::Start(task.id);
        if task.attempts > 0 || self.approvals.is_granted(subject) {
            return None;
        }
        ask((task, mission), (Action::StartTask, subject), (base, &[]), now)
    }

    /// What people are asked or told about a change after its last phase: by the rules, or because
    /// reviewers did not agree to this very change.
    pub(super) fn ask_to_merge(
        &self,
        (task, mission): (&Task, &Mission),
        (change, touched): (&Commit, &[String]),
        now: Timestamp,
    ) -> Option<Event> {
        if task.next_phase(&mission.policy).is_some() {
            return None;
        }
        let subject = Subject::Merge(task.id);
        let asked = ask((task, mission), (Action::Merge, subject), (change, touched), now);
        match asked {
            None | Some(Event::WentAhead { .. }) if task.is_disputed(Some(change)) => {
                Some(ask_about((task, mission), change, now))
            }
            asked => asked,
        }
    }

    pub(super) fn approve_gate(&self, subject: Subject, commit: &Commit, by: &Actor) -> Decision {
        if let Subject::Delivery(mission) = subject {
            return self.approve(mission, commit, by);
        }
        person(by)?;
        // What was granted is not asked any more, and one yes too many must not count twice.
        if self.approvals.is_granted(subject) {
            return Err(ApprovalRefused::NotAsked(subject).into());
        }
        self.approvals.approve(&self.people, subject, commit, by)?;
        Ok(vec![Event::ApprovalGiven { subject, commit: commit.clone(), by: by.clone() }])
    }

    pub(super) fn reject_gate(
        &self,
        subject: Subject,
        commit: &Commit,
        (reason, by): (&str, &Actor),
        now: Timestamp,
    ) -> Decision {
        person(by)?;
        said("the reason", reason, limits::REASON_CHARS_MAX)?;
        if self.approvals.is_granted(subject) {
            return Err(ApprovalRefused::NotAsked(subject).into());
        }
        self.approvals.reject(&self.people, subject, commit, by, reason)?;
        let (reason, by, commit) = (reason.to_owned(), by.clone(), commit.clone());
        let rejected =
            Event::ApprovalRejected { subject, commit, reason: reason.clone(), by: by.clone() };
        Ok(match subject {
            // A mission without a plan is none, and one that nobody wants has nowhere to go.
            Subject::Plan(mission) | Subject::Delivery(mission) => {
                vec![rejected, Event::MissionCancelled { mission, reason, by, at: now }]
            }
            // Nobody waits for an answer that was given.
            Subject::Start(task) => {
                let mut events = vec![rejected];
                events.extend(self.turn_down(task, HumanBecause::TurnedDown { by, reason }, now));
                events
            }
            Subject::Merge(_) | Subject::External(_) | Subject::Rollback(_) => vec![rejected],
        })
    }

    /// Whether people said that the task must not start, and it still waits before its gate: so it
    /// is with journals from before a no gave it up.
    pub(super) fn is_turned_down(&self, task: &Task) -> bool {
        let subject = Subject::Start(task.id);
        task.stage == Stage::Approval { subject } && self.approvals.is_rejected(subject)
    }

    /// How risky a task is by the rules of its mission, if it has some.
    pub(super) fn risk_of(&self, task: &Task) -> Option<Box<Assessment>> {
        let rules = self.mission(task.mission)?.policy.approvals.as_ref()?;
        Some(Box::new(assess(rules, task, &[])))
    }
}

fn ask(
    (task, mission): (&Task, &Mission),
    (action, subject): (Action, Subject),
    (commit, touched): (&Commit, &[String]),
    now: Timestamp,
) -> Option<Event> {
    let rules = mission.policy.approvals.as_ref()?;
    let assessed = assess(rules, task, touched);
    let author = task.last_agent().map_or_else(Actor::kapelle, |agent| Actor(agent.to_string()));
    let gate = Gate {
        subject,
        mission: mission.id,
        commit: commit.clone(),
        author,
        people: 0,
        assessed: Some(assessed.clone()),
        opened_at: now,
    };
    needed(rules.need(action, &assessed), gate)
}

pub(super) fn needed(need: Need, gate: Gate) -> Option<Event> {
    match need {
        Need::Nothing => None,
        Need::Notice => {
            let Gate { subject, mission, commit, assessed, .. } = gate;
            Some(Event::WentAhead { subject, mission, commit, assessed: assessed.map(Box::new) })
        }
        Need::Approval { people } => {
            Some(Event::ApprovalAsked { gate: Box::new(Gate { people, ..gate }) })
        }
    }
}

/// How risky the task is by its plan, by all that it has touched, and by what a person says.
pub(super) fn assess(rules: &ApprovalPolicy, task: &Task, touched: &[String]) -> Assessment {
    let files: Vec<String> = task.touched.iter().chain(touched).cloned().collect();
    Assessment { priority: task.priority, ..rules.assess(&task.plan, &files) }
}

/// As many of the touched files as are named one by one; those that risk most are among them.
pub(super) fn told_of(mission: &Mission, touched: &Arc<Vec<String>>) -> Arc<Vec<String>> {
    if touched.len() <= limits::TOUCHED_PATHS_MAX {
        return Arc::clone(touched);
    }
    let mut named = touched.to_vec();
    if let Some(rules) = &mission.policy.approvals {
        named.sort_by_cached_key(|path| Reverse(rules.risk_of_file(path)));
    }
    named.truncate(limits::TOUCHED_PATHS_MAX);
    Arc::new(named)
}
