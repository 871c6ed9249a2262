//! Notices: what people are told because something needs them (HUM-06).
//!
//! A notice is a value. How it travels, and how many are put into one, is decided elsewhere.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::gate::Subject;
use crate::ids::{MissionId, TaskId};
use crate::money::Usd;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    pub mission: MissionId,
    pub kind: NoticeKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum NoticeKind {
    RetriesExhausted {
        task: TaskId,
        retries: u32,
    },
    BreakerOpen {
        what: String,
    },
    ResourcePause {
        what: String,
        percent: u32,
    },
    Hang {
        task: TaskId,
        silent_ms: u64,
    },
    Budget {
        spent: Usd,
        cap: Usd,
    },
    ApprovalNeeded {
        subject: Subject,
        people: u32,
    },
    SecondPersonNeeded {
        task: TaskId,
    },
    Question {
        task: TaskId,
    },
    CouncilUndecided {
        task: TaskId,
    },
    Conflict {
        task: TaskId,
    },
    RollbackRefused {
        task: TaskId,
    },
    /// It happened without asking, and can be taken back.
    Done {
        subject: Subject,
    },
    RolledBack {
        task: TaskId,
    },
}

/// Whether work stands still until somebody comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Urgency {
    ToKnow,
    TaskWaits,
    MissionWaits,
}

impl NoticeKind {
    #[must_use]
    pub fn urgency(&self) -> Urgency {
        match self {
            NoticeKind::Done { .. } | NoticeKind::RolledBack { .. } => Urgency::ToKnow,
            NoticeKind::RetriesExhausted { .. }
            | NoticeKind::Hang { .. }
            | NoticeKind::SecondPersonNeeded { .. }
            | NoticeKind::Question { .. }
            | NoticeKind::CouncilUndecided { .. }
            | NoticeKind::Conflict { .. }
            | NoticeKind::RollbackRefused { .. } => Urgency::TaskWaits,
            NoticeKind::ApprovalNeeded { subject, .. } => match subject {
                Subject::Plan(_) | Subject::Delivery(_) => Urgency::MissionWaits,
                Subject::Start(_)
                | Subject::Merge(_)
                | Subject::External(_)
                | Subject::Rollback(_) => Urgency::TaskWaits,
            },
            NoticeKind::BreakerOpen { .. }
            | NoticeKind::ResourcePause { .. }
            | NoticeKind::Budget { .. } => Urgency::MissionWaits,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.mission)?;
        match &self.kind {
            NoticeKind::RetriesExhausted { task, retries } => {
                write!(f, "task number {} gave up after {retries} retries", task.0)
            }
            NoticeKind::BreakerOpen { what } => write!(f, "the breaker of {what} is open"),
            NoticeKind::ResourcePause { what, percent } => {
                write!(f, "paused, {what} is at {percent} %")
            }
            NoticeKind::Hang { task, silent_ms } => {
                write!(f, "task number {} has been silent for {} s", task.0, silent_ms / 1_000)
            }
            NoticeKind::Budget { spent, cap } => write!(f, "{spent} of {cap} are spent"),
            NoticeKind::ApprovalNeeded { subject, people: 1 } => {
                write!(f, "{subject} waits for an approval")
            }
            NoticeKind::ApprovalNeeded { subject, people } => {
                write!(f, "{subject} waits for the approval of {people} people")
            }
            NoticeKind::SecondPersonNeeded { task } => {
                write!(f, "an override of task number {} waits for a second person", task.0)
            }
            NoticeKind::Question { task } => write!(f, "task number {} asks something", task.0),
            NoticeKind::CouncilUndecided { task } => {
                write!(f, "the council could not decide about task number {}", task.0)
            }
            NoticeKind::Conflict { task } => {
                write!(f, "task number {} still conflicts after its rebase", task.0)
            }
            NoticeKind::RollbackRefused { task } => {
                write!(f, "task number {} cannot be taken back by itself", task.0)
            }
            NoticeKind::Done { subject } => write!(f, "{subject} went ahead without asking"),
            NoticeKind::RolledBack { task } => write!(f, "task number {} was rolled back", task.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HUM-06: each of the five occasions is a sentence that says what happened to whom.
    #[test]
    fn every_occasion_is_told_in_a_sentence() {
        let (task, mission) = (TaskId(4), MissionId(1));
        let told = |kind| Notice { mission, kind }.to_string();
        let occasions = [
            (
                NoticeKind::RetriesExhausted { task, retries: 3 },
                "task number 4 gave up after 3 retries",
            ),
            (NoticeKind::BreakerOpen { what: "deploy".into() }, "the breaker of deploy is open"),
            (
                NoticeKind::ResourcePause { what: "memory".into(), percent: 91 },
                "paused, memory is at 91 %",
            ),
            (
                NoticeKind::Hang { task, silent_ms: 60_000 },
                "task number 4 has been silent for 60 s",
            ),
            (
                NoticeKind::Budget { spent: Usd::cents(7_500), cap: Usd::cents(7_500) },
                "$75.00 of $75.00 are spent",
            ),
        ];
        for (kind, sentence) in occasions {
            assert!(kind.urgency() > Urgency::ToKnow, "{kind:?}");
            assert_eq!(told(kind), format!("m1: {sentence}"));
        }
    }

    #[test]
    fn a_delivery_holds_the_mission_and_a_merge_only_its_task() {
        let needed = |subject| NoticeKind::ApprovalNeeded { subject, people: 1 }.urgency();
        assert_eq!(needed(Subject::Delivery(MissionId(1))), Urgency::MissionWaits);
        assert_eq!(needed(Subject::Merge(TaskId(1))), Urgency::TaskWaits);
        let done = NoticeKind::Done { subject: Subject::Merge(TaskId(1)) };
        assert_eq!(done.urgency(), Urgency::ToKnow);
    }
}
