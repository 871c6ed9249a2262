//! Gates: what waits for people, and what they said.
//!
//! Invariant: an approval counts for the commit that its giver saw, and for no other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::people::{People, PeopleRefused, Right};
use super::risk::Assessment;
use crate::ids::{Actor, Commit, MissionId, TaskId};
use crate::limits;
use crate::time::Timestamp;

/// What an approval is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "subject", content = "of", rename_all = "snake_case")]
pub enum Subject {
    Plan(MissionId),
    Start(TaskId),
    Merge(TaskId),
    External(TaskId),
    Rollback(TaskId),
    /// The protected branch; nothing passes this gate but approvals.
    Delivery(MissionId),
}

/// A question to people, as it is opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    pub subject: Subject,
    pub mission: MissionId,
    /// The change, or the base of work that has not begun.
    pub commit: Commit,
    /// Who made it; they do not approve it.
    pub author: Actor,
    pub people: u32,
    pub assessed: Option<Assessment>,
    pub opened_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    pub by: Actor,
    pub commit: Commit,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Open {
    gate: Gate,
    approvals: Vec<Approval>,
    settled: Option<Settled>,
}

/// What ended the question before enough people had approved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Settled {
    Rejected {
        by: Actor,
        reason: String,
    },
    /// Somebody with the right to do so ordered to go on.
    Passed,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Approvals {
    gates: BTreeMap<Subject, Open>,
    /// Those that wait for people, oldest first.
    waiting: BTreeSet<(Timestamp, Subject)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateStanding {
    /// Nobody asked yet, or for another commit.
    NotAsked,
    Waiting {
        have: u32,
        need: u32,
    },
    Granted,
    Rejected {
        by: Actor,
        reason: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalRefused {
    #[error(transparent)]
    People(#[from] PeopleRefused),
    #[error("{0} does not wait for an approval")]
    NotAsked(Subject),
    #[error("{subject} is about {}, not {}", current.short(), approved.short())]
    OtherCommit { subject: Subject, current: Box<Commit>, approved: Box<Commit> },
    #[error("{person} made it; somebody else has to approve it")]
    OwnWork { person: Actor },
    #[error("{person} has approved it already; it takes somebody else")]
    Twice { person: Actor },
    #[error("{subject} was rejected by {by}: {reason}")]
    Rejected { subject: Subject, by: Actor, reason: String },
    #[error("a reason is missing")]
    NoReason,
}

impl Approvals {
    /// How the gate stands for exactly this commit. Only `Granted` opens it.
    #[must_use]
    pub fn standing(&self, subject: Subject, commit: &Commit) -> GateStanding {
        match self.gates.get(&subject) {
            Some(open) if open.gate.commit == *commit => open.standing(),
            Some(_) | None => GateStanding::NotAsked,
        }
    }

    /// Whether this person may approve this commit now; if so, how many are still missing then.
    pub fn approve(
        &self,
        people: &People,
        subject: Subject,
        commit: &Commit,
        by: &Actor,
    ) -> Result<u32, ApprovalRefused> {
        let open = self.open(people, subject, commit, by)?;
        if open.approvals.iter().any(|approval| approval.by == *by) {
            return Err(ApprovalRefused::Twice { person: by.clone() });
        }
        let have = u32::try_from(open.approvals.len()).unwrap_or(u32::MAX);
        Ok(open.gate.people.saturating_sub(have.saturating_add(1)))
    }

    pub fn reject(
        &self,
        people: &People,
        subject: Subject,
        commit: &Commit,
        by: &Actor,
        reason: &str,
    ) -> Result<(), ApprovalRefused> {
        self.open(people, subject, commit, by)?;
        if reason.trim().is_empty() {
            return Err(ApprovalRefused::NoReason);
        }
        Ok(())
    }

    fn open(
        &self,
        people: &People,
        subject: Subject,
        commit: &Commit,
        by: &Actor,
    ) -> Result<&Open, ApprovalRefused> {
        people.require(by, Right::Approve)?;
        let open = self.gates.get(&subject).ok_or(ApprovalRefused::NotAsked(subject))?;
        if open.gate.commit != *commit {
            let (current, approved) = (open.gate.commit.clone(), commit.clone());
            let (current, approved) = (Box::new(current), Box::new(approved));
            return Err(ApprovalRefused::OtherCommit { subject, current, approved });
        }
        if let Some(Settled::Rejected { by, reason }) = &open.settled {
            let (by, reason) = (by.clone(), reason.clone());
            return Err(ApprovalRefused::Rejected { subject, by, reason });
        }
        if open.gate.author == *by {
            return Err(ApprovalRefused::OwnWork { person: by.clone() });
        }
        Ok(open)
    }

    /// What waits for people, oldest first (HUM-10).
    pub fn waiting(&self) -> impl Iterator<Item = (&Gate, u32)> {
        let gates = self.waiting.iter().filter_map(|(_, subject)| self.gates.get(subject));
        gates.map(|open| (&open.gate, open.missing()))
    }

    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Whether this subject still lacks a person's word.
    #[must_use]
    pub fn is_waiting(&self, subject: Subject) -> bool {
        self.gates.get(&subject).is_some_and(|open| open.standing() != GateStanding::Granted)
    }

    #[must_use]
    pub fn gate(&self, subject: Subject) -> Option<&Gate> {
        self.gates.get(&subject).map(|open| &open.gate)
    }

    /// Whether people can still say something about it.
    #[must_use]
    pub fn is_open(&self, subject: Subject) -> bool {
        let open = self.gates.get(&subject);
        open.is_some_and(|open| matches!(open.standing(), GateStanding::Waiting { .. }))
    }

    /// Whether somebody said no, and it was not asked again since.
    #[must_use]
    pub fn is_rejected(&self, subject: Subject) -> bool {
        let open = self.gates.get(&subject);
        open.is_some_and(|open| matches!(open.settled, Some(Settled::Rejected { .. })))
    }

    #[must_use]
    pub fn is_granted(&self, subject: Subject) -> bool {
        self.gates.get(&subject).is_some_and(|open| open.standing() == GateStanding::Granted)
    }

    /// Fact: nothing of this mission is asked any more.
    pub fn mission_ended(&mut self, mission: MissionId) {
        let of_mission = |open: &Open| open.gate.mission == mission;
        let gone: Vec<Subject> = self
            .gates
            .iter()
            .filter(|(_, open)| of_mission(open))
            .map(|(subject, _)| *subject)
            .collect();
        gone.into_iter().for_each(|subject| self.closed(subject));
    }

    /// A question to people. One about a new commit replaces the old one with all approvals.
    pub fn opened(&mut self, gate: Gate) {
        let (subject, at) = (gate.subject, gate.opened_at);
        self.closed(subject);
        self.waiting.insert((at, subject));
        self.gates.insert(subject, Open { gate, approvals: Vec::new(), settled: None });
    }

    pub fn approved(&mut self, subject: Subject, approval: Approval) {
        let Some(open) = self.gates.get_mut(&subject) else { return };
        let fits = approval.commit == open.gate.commit
            && !open.approvals.iter().any(|earlier| earlier.by == approval.by);
        if fits {
            open.approvals.push(approval);
        }
        if open.missing() == 0 {
            let key = (open.gate.opened_at, subject);
            self.waiting.remove(&key);
        }
    }

    pub fn rejected(&mut self, subject: Subject, by: Actor, reason: &str) {
        let Some(open) = self.gates.get_mut(&subject) else { return };
        let reason = limits::head(reason, limits::REASON_CHARS_MAX).to_owned();
        open.settled = Some(Settled::Rejected { by, reason });
        let key = (open.gate.opened_at, subject);
        self.waiting.remove(&key);
    }

    /// An order went through the gate: nobody is asked any more.
    pub fn passed(&mut self, subject: Subject) {
        let Some(open) = self.gates.get_mut(&subject) else { return };
        open.settled = Some(Settled::Passed);
        let key = (open.gate.opened_at, subject);
        self.waiting.remove(&key);
    }

    /// The question is settled or no longer asked.
    pub fn closed(&mut self, subject: Subject) {
        if let Some(open) = self.gates.remove(&subject) {
            self.waiting.remove(&(open.gate.opened_at, subject));
        }
    }
}

impl Open {
    fn missing(&self) -> u32 {
        let have = u32::try_from(self.approvals.len()).unwrap_or(u32::MAX);
        // A gate is never open by itself, whatever was configured.
        self.gate.people.max(1).saturating_sub(have)
    }

    fn standing(&self) -> GateStanding {
        match (&self.settled, self.missing()) {
            (Some(Settled::Rejected { by, reason }), _) => {
                GateStanding::Rejected { by: by.clone(), reason: reason.clone() }
            }
            (Some(Settled::Passed), _) | (None, 0) => GateStanding::Granted,
            (None, missing) => {
                let need = self.gate.people.max(1);
                GateStanding::Waiting { have: need - missing, need }
            }
        }
    }
}

impl Subject {
    /// The kind of thing, without which one.
    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Subject::Plan(_) => "a plan",
            Subject::Start(_) => "a start",
            Subject::Merge(_) => "a merge",
            Subject::External(_) => "an outside action",
            Subject::Rollback(_) => "a rollback",
            Subject::Delivery(_) => "a delivery",
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Plan(mission) => write!(f, "the plan of {mission}"),
            Subject::Start(task) => write!(f, "the start of task number {}", task.0),
            Subject::Merge(task) => write!(f, "the merge of task number {}", task.0),
            Subject::External(task) => write!(f, "the outside action of task number {}", task.0),
            Subject::Rollback(task) => write!(f, "the rollback of task number {}", task.0),
            Subject::Delivery(mission) => write!(f, "the delivery of {mission}"),
        }
    }
}

impl fmt::Display for GateStanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GateStanding::NotAsked => f.write_str("nobody was asked about this commit"),
            GateStanding::Waiting { have, need } => {
                write!(f, "waits for approval: {have} of {need} people")
            }
            GateStanding::Granted => f.write_str("approved"),
            GateStanding::Rejected { by, reason } => write!(f, "rejected by {by}: {reason}"),
        }
    }
}
