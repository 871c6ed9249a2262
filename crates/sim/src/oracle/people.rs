//! Invariants of people's word: what needs it waits for it, an approval holds for its commit, and
//! an order has a reason, a person with the right to it and, where it matters, a second one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kapelle_core::approval::{
    Action, ApprovalPolicy, Assessment, Gate, Need, Order, PersonRole, Right, Subject,
};
use kapelle_core::escalation::{Cause, Matter};
use kapelle_core::event::Restart;
use kapelle_core::plan::{PlannedTask, Priority, Risk};
use kapelle_core::{Actor, AgentId, Commit, Event, MissionId, Record, TaskId};

use super::{Facts, Verdict, ensure};

#[derive(Debug, Default)]
pub(super) struct Voices {
    roles: BTreeMap<String, PersonRole>,
    plans: BTreeMap<TaskId, Arc<PlannedTask>>,
    touched: BTreeMap<TaskId, Vec<String>>,
    /// How urgent each change was when it was last looked at.
    weighed: BTreeMap<TaskId, Priority>,
    asked: BTreeMap<Subject, Asked>,
    /// What enough people agreed to, or an order passed.
    cleared: BTreeSet<Subject>,
    /// What people were told of, by its commit.
    announced: BTreeSet<(Subject, Commit)>,
    /// Kinds of things that went ahead and that nobody heard of yet.
    untold: BTreeSet<(MissionId, &'static str)>,
    begun: BTreeSet<TaskId>,
    riskiest: BTreeMap<MissionId, Assessment>,
}

#[derive(Debug)]
struct Asked {
    mission: MissionId,
    commit: Commit,
    people: u32,
    given: BTreeSet<String>,
}

impl Voices {
    pub(super) fn observe(&mut self, record: &Record, facts: &Facts) -> Verdict {
        match &record.event {
            Event::PlanAccepted { first_task, tasks, .. } => {
                let numbered = tasks.iter().zip(first_task.0..);
                self.plans.extend(numbered.map(|(task, n)| (TaskId(n), task.clone())));
                Ok(())
            }
            Event::PersonAssigned { person, role, by } => self.assign(person, *role, by),
            Event::AttemptFinished { task, touched, .. } => {
                self.touched.entry(*task).or_default().extend(touched.iter().cloned());
                self.cleared.remove(&Subject::Merge(*task));
                Ok(())
            }
            Event::ChangeRebased { task, touched, .. } => {
                self.touched.insert(*task, touched.to_vec());
                self.renew(*task, facts)
            }
            Event::PhaseAccepted { task, .. } => self.weigh(*task, facts),
            Event::RetryScheduled { task, from: Restart::Flow, .. }
            | Event::TaskRequeued { task, .. }
            | Event::ChangeConflicted { task, question: Some(_), .. } => {
                self.touched.remove(task);
                self.renew(*task, facts)
            }
            Event::ApprovalAsked { gate } => {
                self.ask(gate);
                Ok(())
            }
            Event::WentAhead { subject, mission, commit, .. } => {
                self.announced.insert((*subject, commit.clone()));
                self.untold.insert((*mission, subject.what()));
                Ok(())
            }
            Event::PersonNotified { causes } => {
                causes.iter().try_for_each(|cause| self.judge_notice(cause, facts))
            }
            Event::ApprovalGiven { subject, commit, by } => self.give(*subject, commit, by, facts),
            Event::ApprovalRejected { subject, by, .. } => {
                self.is_entitled(by, Right::Approve)?;
                // A start that was turned down is given up at its gate; a change goes back to work.
                if !matches!(subject, Subject::Start(_)) {
                    self.asked.remove(subject);
                }
                self.cleared.remove(subject);
                Ok(())
            }
            // What it waited for, it does not wait for any more.
            Event::TaskBlocked { task, .. } => {
                self.asked.remove(&Subject::Start(*task));
                self.asked.remove(&Subject::Merge(*task));
                Ok(())
            }
            Event::RollbackStarted { tasks, by, .. } if *by == Actor::kapelle() => {
                self.judge_fall(tasks, facts)
            }
            Event::LeaseGranted { task, .. } if self.begun.insert(*task) => {
                self.weigh(*task, facts)?;
                self.judge(*task, (Action::StartTask, Subject::Start(*task)), facts)?;
                let mission = facts.task(*task)?.mission;
                ensure(!self.asked.contains_key(&Subject::Plan(mission)), || {
                    format!("{task:?} starts before its plan is approved")
                })
            }
            Event::TaskMerged { task, .. } => {
                self.judge(*task, (Action::Merge, Subject::Merge(*task)), facts)?;
                self.note_risk(*task, facts)
            }
            Event::DeliveryApproved { mission, commit, by } => {
                self.judge_delivery(*mission, commit, by, facts)
            }
            Event::DeliveryProposed { mission, .. } | Event::DeliveryRefused { mission, .. } => {
                self.asked.remove(&Subject::Delivery(*mission));
                Ok(())
            }
            Event::Overridden { order, seconded_by } => {
                self.weigh(order.task, facts)?;
                self.judge_order(order, seconded_by.as_ref(), facts)
            }
            Event::MissionCancelled { mission, .. } | Event::MissionDelivered { mission, .. } => {
                self.asked.retain(|_, asked| asked.mission != *mission);
                self.untold.retain(|(of, _)| of != mission);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn assign(&mut self, person: &Actor, role: Option<PersonRole>, by: &Actor) -> Verdict {
        let first = self.roles.is_empty() && by == person;
        if !first {
            self.is_entitled(by, Right::ManagePeople)?;
        }
        match role {
            Some(role) => self.roles.insert(person.0.clone(), role),
            None => self.roles.remove(&person.0),
        };
        ensure(self.roles.values().any(|role| *role == PersonRole::Admin), || {
            "there are people, but no admin".into()
        })
    }

    /// Nothing that was said of a change holds for what it became.
    fn renew(&mut self, task: TaskId, facts: &Facts) -> Verdict {
        self.cleared.remove(&Subject::Merge(task));
        self.weigh(task, facts)
    }

    fn weigh(&mut self, task: TaskId, facts: &Facts) -> Verdict {
        self.weighed.insert(task, facts.task(task)?.priority);
        Ok(())
    }

    fn ask(&mut self, gate: &Gate) {
        let (mission, commit, people) = (gate.mission, gate.commit.clone(), gate.people);
        self.cleared.remove(&gate.subject);
        let given = BTreeSet::new();
        self.asked.insert(gate.subject, Asked { mission, commit, people, given });
    }

    fn give(&mut self, subject: Subject, commit: &Commit, by: &Actor, facts: &Facts) -> Verdict {
        self.is_entitled(by, Right::Approve)?;
        if let Subject::Delivery(mission) = subject {
            let commit = commit.clone();
            let fresh = || Asked { mission, commit, people: u32::MAX, given: BTreeSet::new() };
            self.asked.entry(subject).or_insert_with(fresh).given.insert(by.0.clone());
            return ensure(facts.mission(mission)?.proposed.is_some(), || {
                format!("{subject} was approved, but nothing was proposed")
            });
        }
        let Some(asked) = self.asked.get_mut(&subject) else {
            return Err(format!("{subject} was approved, but nobody asked"));
        };
        ensure(asked.commit == *commit, || {
            format!("{subject} was approved at {}, not {}", commit.short(), asked.commit.short())
        })?;
        ensure(asked.given.insert(by.0.clone()), || format!("{by} approved {subject} twice"))?;
        if asked.given.len() >= asked.people as usize {
            self.asked.remove(&subject);
            self.cleared.insert(subject);
        }
        Ok(())
    }

    /// Whether what happens to a task needed a person's word or ear, and had it.
    fn judge(&self, task: TaskId, (action, subject): (Action, Subject), facts: &Facts) -> Verdict {
        let Some(rules) = &facts.mission_of(task)?.policy.approvals else { return Ok(()) };
        let assessed = self.assess(rules, task);
        match rules.need(action, &assessed) {
            Need::Nothing => Ok(()),
            Need::Notice => {
                let told = self.announced.iter().any(|(of, _)| *of == subject);
                let known = told || self.cleared.contains(&subject);
                ensure(known, || format!("{subject} happens, and nobody is told ({assessed})"))
            }
            Need::Approval { .. } => ensure(self.cleared.contains(&subject), || {
                format!("{subject} happens without the approval that it needs ({assessed})")
            }),
        }
    }

    /// What falls with a wave needs the word that its riskiest task needs (HUM-09).
    fn judge_fall(&mut self, tasks: &[TaskId], facts: &Facts) -> Verdict {
        let Some(task) = tasks.first() else { return Ok(()) };
        let wave = &facts.task(*task)?.wave;
        let mission = facts.task(*task)?.mission;
        let in_wave = facts.tasks().filter(|(_, t)| t.mission == mission && t.wave == *wave);
        let Some((first, _)) = in_wave.into_iter().next() else { return Ok(()) };
        let subject = Subject::Rollback(first);
        self.asked.remove(&subject);
        for task in tasks {
            self.judge(*task, (Action::Rollback, subject), facts)?;
        }
        self.cleared.remove(&subject);
        Ok(())
    }

    /// People are told of what waits, and of what went ahead, and of nothing else.
    fn judge_notice(&mut self, cause: &Cause, facts: &Facts) -> Verdict {
        let kind = |what: &str| cause.pattern == what || cause.pattern == "…";
        let known = match cause.matter {
            Matter::Failure(_)
            | Matter::Pause
            | Matter::Breaker
            | Matter::Question
            | Matter::Silence
            | Matter::Spending => true,
            Matter::WentAhead => {
                let before = self.untold.len();
                self.untold
                    .retain(|(mission, what)| Some(*mission) != cause.mission || !kind(what));
                self.untold.len() < before
            }
            Matter::Approval if kind("a delivery") => {
                let mission = cause.mission.ok_or("a delivery of no mission")?;
                facts.mission(mission)?.proposed.is_some()
            }
            Matter::Approval => {
                let mut asked = self.asked.iter();
                let of = |asked: &Asked| Some(asked.mission) == cause.mission;
                asked.any(|(subject, asked)| of(asked) && kind(subject.what()))
            }
        };
        ensure(known, || format!("people are told of what is not so: {cause}"))
    }

    fn judge_delivery(
        &mut self,
        mission: MissionId,
        commit: &Commit,
        by: &Actor,
        facts: &Facts,
    ) -> Verdict {
        self.is_entitled(by, Right::Approve)?;
        let before = self.asked.remove(&Subject::Delivery(mission));
        let mut given = before.filter(|a| a.commit == *commit).map(|a| a.given).unwrap_or_default();
        given.insert(by.0.clone());
        let rules = facts.mission(mission)?.policy.approvals.as_ref();
        let need = rules.zip(self.riskiest.get(&mission));
        let people = match need.map(|(rules, risk)| rules.need(Action::Deliver, risk)) {
            Some(Need::Approval { people }) => people,
            _ => 1,
        };
        ensure(given.len() >= people as usize, || {
            format!("{mission} is delivered with the word of {} of {people}", given.len())
        })
    }

    fn judge_order(
        &mut self,
        order: &Order,
        seconded_by: Option<&Actor>,
        facts: &Facts,
    ) -> Verdict {
        ensure(!order.reason.trim().is_empty(), || "an override without a reason".into())?;
        let second = seconded_by.filter(|second| **second != order.by);
        let subjects = [Subject::Start(order.task), Subject::Merge(order.task)];
        let gated = subjects.iter().any(|subject| self.asked.contains_key(subject));
        let passes = gated && order.action.passes_gates();
        for who in [Some(&order.by), second].into_iter().flatten() {
            self.is_entitled(who, Right::Override)?;
            if passes {
                self.is_entitled(who, Right::BypassGate)?;
            }
        }
        if let Some(rules) = &facts.mission_of(order.task)?.policy.approvals {
            let high = self.assess(rules, order.task).risk == Risk::High || gated;
            let alone = rules.high_risk_people < 2 || !order.action.passes_gates() || !high;
            ensure(alone || second.is_some(), || {
                format!("{} overrode {:?} alone", order.by, order.task)
            })?;
        }
        for subject in subjects {
            let asked = self.asked.remove(&subject).is_some();
            if asked && order.action.passes_gates() {
                self.cleared.insert(subject);
            }
        }
        Ok(())
    }

    fn note_risk(&mut self, task: TaskId, facts: &Facts) -> Verdict {
        let Some(rules) = &facts.mission_of(task)?.policy.approvals else { return Ok(()) };
        let (mission, assessed) = (facts.task(task)?.mission, self.assess(rules, task));
        let worst = self.riskiest.entry(mission).or_insert_with(|| assessed.clone());
        if assessed.risk > worst.risk {
            *worst = assessed;
        }
        Ok(())
    }

    fn assess(&self, rules: &ApprovalPolicy, task: TaskId) -> Assessment {
        let unknown = PlannedTask::default();
        let plan = self.plans.get(&task).map_or(&unknown, Arc::as_ref);
        let assessed = rules.assess(plan, self.touched.get(&task).map_or(&[], Vec::as_slice));
        let priority = self.weighed.get(&task).copied().unwrap_or(assessed.priority);
        Assessment { priority, ..assessed }
    }

    /// A person, and where anybody is known, one who may do this.
    fn is_entitled(&self, by: &Actor, right: Right) -> Verdict {
        let machine = *by == Actor::kapelle() || by.0.parse::<AgentId>().is_ok();
        ensure(!machine, || format!("{by} decides what takes a person"))?;
        let role = self.roles.get(&by.0);
        ensure(self.roles.is_empty() || role.is_some_and(|role| role.may(right)), || {
            format!("{by} does what takes the right to {}", right.name())
        })
    }
}
