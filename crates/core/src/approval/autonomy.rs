//! Autonomy levels 0–5: which actions need a person's word (HUM-07).
//!
//! The protected branch, cascades of rollbacks and changes of Kapelle's own process are not in
//! the table: they need a person at every level (HUM-08, C-12, GIT-15, C-42).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::policy::ApprovalPolicy;
use super::risk::Assessment;
use crate::plan::{Priority, Risk};

/// Written as its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum Level {
    /// 0: a person drives every decision.
    Manual,
    /// 1: agents propose, a person approves.
    Assisted,
    /// 2: low risk goes by itself, and a person is told.
    Supervised,
    /// 3: a person is asked for high risk only.
    Guarded,
    /// 4: as 3, and improvements are suggested.
    SelfOptimising,
    /// 5: a person sets goals and limits.
    FullyAutonomous,
}

/// What is about to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    AcceptPlan,
    StartTask,
    /// Into the mission's own branch.
    Merge,
    /// Something outside of the repository: a deployment, a message, a write to a service.
    External,
    /// A task's own commits, after it failed.
    Rollback,
    RollbackCascade,
    /// A change of prompts or workflow data.
    ImproveProcess,
    /// Into the protected branch.
    Deliver,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "need", rename_all = "snake_case")]
pub enum Need {
    Nothing,
    /// It happens, and people are told.
    Notice,
    Approval {
        people: u32,
    },
}

impl Level {
    pub const ALL: [Level; 6] = [
        Level::Manual,
        Level::Assisted,
        Level::Supervised,
        Level::Guarded,
        Level::SelfOptimising,
        Level::FullyAutonomous,
    ];

    /// The table, one line a kind of action, one column a level.
    fn need(self, action: Action, risk: Risk) -> Need {
        use Need::{Nothing as No, Notice as Tell};
        const ASK: Need = Need::Approval { people: 1 };
        let by_level = match (action, risk) {
            (Action::AcceptPlan, _) => [ASK, ASK, Tell, No, No, No],
            (Action::StartTask, Risk::Low | Risk::Medium) => [ASK, No, No, No, No, No],
            (Action::StartTask, Risk::High) => [ASK, ASK, ASK, ASK, ASK, Tell],
            (Action::Merge, Risk::Low) => [ASK, ASK, Tell, No, No, No],
            (Action::Merge, Risk::Medium) => [ASK, ASK, ASK, Tell, Tell, No],
            (Action::Merge, Risk::High) => [ASK, ASK, ASK, ASK, ASK, Tell],
            (Action::External, Risk::Low | Risk::Medium) => [ASK, ASK, ASK, Tell, Tell, No],
            (Action::External, Risk::High) => [ASK, ASK, ASK, ASK, ASK, Tell],
            (Action::Rollback, _) => [ASK, ASK, Tell, No, No, No],
            (Action::RollbackCascade | Action::ImproveProcess | Action::Deliver, _) => [ASK; 6],
        };
        by_level[self as usize]
    }
}

impl ApprovalPolicy {
    /// What has to be there before `action` happens to a task assessed like this.
    #[must_use]
    pub fn need(&self, action: Action, assessed: &Assessment) -> Need {
        // CRITICAL counts like high risk where the question is whether to ask at all (C-33).
        let critical = assessed.priority == Priority::Critical;
        let asked_as = if critical { Risk::High } else { assessed.risk };
        match self.level.need(action, asked_as) {
            Need::Approval { .. } if assessed.risk == Risk::High => {
                Need::Approval { people: self.high_risk_people.max(1) }
            }
            need => need,
        }
    }
}

impl TryFrom<u8> for Level {
    type Error = String;

    fn try_from(number: u8) -> Result<Level, String> {
        let level = Level::ALL.get(usize::from(number)).copied();
        level.ok_or_else(|| format!("autonomy level {number} is not one of 0 to 5"))
    }
}

impl From<Level> for u8 {
    fn from(level: Level) -> u8 {
        level as u8
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Nothing => f.write_str("nothing"),
            Need::Notice => f.write_str("people are told"),
            Need::Approval { people: 1 } => f.write_str("the approval of a person"),
            Need::Approval { people } => write!(f, "the approval of {people} people"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::risk::RiskReason;
    use super::*;

    const RISKS: [Risk; 3] = [Risk::Low, Risk::Medium, Risk::High];
    const PRIORITIES: [Priority; 4] =
        [Priority::Low, Priority::Medium, Priority::High, Priority::Critical];

    fn need(level: Level, action: Action, risk: Risk, priority: Priority) -> Need {
        let policy = ApprovalPolicy { level, ..ApprovalPolicy::default() };
        policy.need(action, &Assessment { risk, reason: RiskReason::NothingKnown, priority })
    }

    /// The whole table, as a person would check it.
    #[test]
    fn each_level_asks_for_what_was_agreed() {
        let letter = |need| match need {
            Need::Nothing => '.',
            Need::Notice => 'n',
            Need::Approval { people: 1 } => 'a',
            Need::Approval { .. } => 'A',
        };
        let actions = [
            Action::AcceptPlan,
            Action::StartTask,
            Action::Merge,
            Action::External,
            Action::Rollback,
        ];
        let row = |action: Action, risk| -> String {
            let levels = Level::ALL.into_iter();
            levels.map(|level| letter(need(level, action, risk, Priority::Medium))).collect()
        };
        let table: Vec<[String; 3]> =
            actions.into_iter().map(|action| RISKS.map(|risk| row(action, risk))).collect();
        let expected = [
            ["aan...", "aan...", "AAn..."],
            ["a.....", "a.....", "AAAAAn"],
            ["aan...", "aaann.", "AAAAAn"],
            ["aaann.", "aaann.", "AAAAAn"],
            ["aan...", "aan...", "AAn..."],
        ];
        assert_eq!(table, expected.map(|row| row.map(str::to_owned)));
    }

    /// T-85 at the default level: low by itself, medium reviewed before merge, high approved.
    #[test]
    fn the_default_level_is_the_tiered_model() {
        let level = ApprovalPolicy::default().level;
        let merge = |risk| need(level, Action::Merge, risk, Priority::Medium);
        assert_eq!(merge(Risk::Low), Need::Notice);
        assert_eq!(merge(Risk::Medium), Need::Approval { people: 1 });
        assert_eq!(merge(Risk::High), Need::Approval { people: 2 });
    }

    /// HUM-08, C-12, NG-01: no level lifts it, whatever the risk.
    #[test]
    fn no_level_reaches_the_protected_branch_without_a_person() {
        for action in [Action::Deliver, Action::RollbackCascade, Action::ImproveProcess] {
            for level in Level::ALL {
                for (risk, priority) in RISKS.into_iter().zip(PRIORITIES) {
                    let need = need(level, action, risk, priority);
                    assert!(matches!(need, Need::Approval { .. }), "{action:?} at {level:?}");
                }
            }
        }
    }

    /// HUM-05, C-33: either condition asks for an approval before execution.
    #[test]
    fn critical_tasks_are_asked_about_like_risky_ones() {
        let start = |risk, priority| need(Level::Guarded, Action::StartTask, risk, priority);
        assert_eq!(start(Risk::Low, Priority::High), Need::Nothing);
        assert_eq!(start(Risk::Low, Priority::Critical), Need::Approval { people: 1 });
        assert_eq!(start(Risk::High, Priority::Low), Need::Approval { people: 2 });
    }

    /// A higher level may only ask for less, or the numbers would mislead.
    #[test]
    fn a_higher_level_never_asks_for_more() {
        for action in [Action::AcceptPlan, Action::StartTask, Action::Merge, Action::External] {
            for risk in RISKS {
                let needs = Level::ALL.map(|level| need(level, action, risk, Priority::Medium));
                assert!(needs.is_sorted_by(|a, b| a >= b), "{action:?} {risk:?} {needs:?}");
            }
        }
    }
}
