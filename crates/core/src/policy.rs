//! The rules of one mission, written into the journal when it opens.
//!
//! A mission keeps the rules that it was started with: editing `kapelle.toml` in mid-flight must
//! not change what an approval meant.

mod reading;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::agents::{HeartbeatPolicy, InvalidHeartbeat, WorkKind};
use crate::approval::{ApprovalPolicy, InvalidApprovalPolicy};
use crate::branch::{BranchTemplate, InvalidTemplate};
use crate::checklist::Source;
use crate::escalation::{EscalationPolicy, InvalidEscalation, InvalidRate, RatePolicy};
use crate::failure::RetryPolicy;
use crate::flow::{Expectation, Phase};
use crate::gates::ReviewPolicy;
use crate::ids::Role;
use crate::limits;
use crate::merge::{InvalidMergePolicy, MergePolicy};
use crate::money::Usd;
use crate::plan::estimate::{CostRules, InvalidCostProfile};
use crate::plan::{InvalidPlanPolicy, PlanPolicy, TaskKind};
use crate::time::{MINUTE_MS, SECOND_MS};
pub use reading::{Parser, Reading};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    pub flow: Vec<Phase>,
    /// Patterns of the files that count as tests.
    pub tests: Vec<String>,
    pub checks: Vec<Check>,
    /// After this long an attempt is ended, by role; roles not named use the default of RUN-02.
    pub attempt_timeout_ms: BTreeMap<Role, u64>,
    /// A host that is silent for this long has lost its leases, where `heartbeat` does not say it.
    pub lease_ttl_ms: u64,
    /// How long a host may be silent, by the kind of work (WRK-20).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<HeartbeatPolicy>,
    pub retry: RetryPolicy,
    pub budget: Budget,
    /// Answers that a person gave beforehand, by the question's `resume_id`.
    pub answers: BTreeMap<String, String>,
    #[serde(default)]
    pub sandbox: Sandbox,
    #[serde(default, skip_serializing_if = "PlanPolicy::is_default")]
    pub plan: PlanPolicy,
    /// By what the cost of a plan is estimated; None shows no estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostRules>,
    /// Where the steps of a task come from.
    #[serde(default, skip_serializing_if = "Source::is_default")]
    pub checklist: Source,
    #[serde(default, skip_serializing_if = "is_default")]
    pub escalation: EscalationPolicy,
    #[serde(default, skip_serializing_if = "is_default")]
    pub failure_rate: RatePolicy,
    #[serde(default, skip_serializing_if = "MergePolicy::is_default")]
    pub merge: MergePolicy,
    /// The branch on which a mission gathers its work; `kapelle/m1` where nobody says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchTemplate>,
    /// How often councils may look at one task before a person does.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reviews: ReviewPolicy,
    /// What needs a person's word beside the delivery, which always does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<ApprovalPolicy>,
}

/// Rules that nobody touched are not written: journals from before they were there stay as they
/// are.
pub(crate) fn is_default<T: Default + PartialEq>(rules: &T) -> bool {
    *rules == T::default()
}

/// Whether agents and checks run behind walls. Without is for a person to choose, and the choice
/// stands in the journal with who made it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sandbox {
    #[default]
    Required,
    Off,
}

/// A command that must pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    pub name: String,
    /// Run by `sh -c` at the root of a clean checkout.
    pub command: String,
    pub timeout_ms: u64,
    #[serde(default, skip_serializing_if = "Reading::is_plain")]
    pub reading: Reading,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    pub mission_usd_max: Usd,
    /// Reserved before an attempt starts; what was not spent goes back when it ends.
    pub attempt_usd_max: Usd,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { mission_usd_max: Usd::cents(7_500), attempt_usd_max: Usd::cents(200) }
    }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            flow: vec![Phase::Green],
            tests: Vec::new(),
            checks: Vec::new(),
            attempt_timeout_ms: BTreeMap::new(),
            lease_ttl_ms: 5 * MINUTE_MS,
            heartbeat: None,
            retry: RetryPolicy::default(),
            budget: Budget::default(),
            answers: BTreeMap::new(),
            sandbox: Sandbox::Required,
            plan: PlanPolicy::default(),
            cost: None,
            checklist: Source::default(),
            escalation: EscalationPolicy::default(),
            failure_rate: RatePolicy::default(),
            merge: MergePolicy::default(),
            branch: None,
            reviews: ReviewPolicy::default(),
            approvals: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum InvalidPolicy {
    #[error("the flow has no phases")]
    NoPhases,
    #[error("the phase {phase} appears twice in the flow")]
    PhaseTwice { phase: Phase },
    #[error("the phase {phase} is not an agent's work; the merge queue does it")]
    NotWork { phase: Phase },
    #[error("the phase {phase} must show a failing check, but there are no checks")]
    NothingToFail { phase: Phase },
    #[error("{count} checks are more than {max}")]
    TooManyChecks { count: usize, max: usize },
    #[error("{count} patterns of tests are more than {max}")]
    TooManyPatterns { count: usize, max: usize },
    #[error("the check {name} has no command")]
    EmptyCheck { name: String },
    #[error("the check {name} reads {path:?}; a report has a path below the top of the tree")]
    ReportOutside { name: String, path: String },
    #[error("the check {name} has the parser {parser}, which reads a file: say which as `report`")]
    NoReport { name: String, parser: Parser },
    #[error("{what} must be at least {min_ms} ms")]
    TooShort { what: &'static str, min_ms: u64 },
    #[error("an attempt may reserve {attempt}, more than the whole mission's {mission}")]
    AttemptOverMission { attempt: Usd, mission: Usd },
    #[error(transparent)]
    Heartbeat(#[from] InvalidHeartbeat),
    #[error(transparent)]
    Plan(#[from] InvalidPlanPolicy),
    #[error(transparent)]
    Cost(#[from] InvalidCostProfile),
    #[error(transparent)]
    Escalation { wrong: InvalidEscalation },
    #[error(transparent)]
    FailureRate { wrong: InvalidRate },
    #[error("the merge queue cannot work: {why}")]
    Merge { why: InvalidMergePolicy },
    #[error(transparent)]
    Branch { wrong: InvalidTemplate },
    #[error(transparent)]
    Approvals { wrong: InvalidApprovalPolicy },
}

impl Policy {
    pub fn validate(&self) -> Result<(), InvalidPolicy> {
        self.validate_flow()?;
        self.merge.validate().map_err(|why| InvalidPolicy::Merge { why })?;
        if self.checks.len() > limits::CHECKS_MAX {
            let (count, max) = (self.checks.len(), limits::CHECKS_MAX);
            return Err(InvalidPolicy::TooManyChecks { count, max });
        }
        if self.tests.len() > limits::PATTERNS_MAX {
            let (count, max) = (self.tests.len(), limits::PATTERNS_MAX);
            return Err(InvalidPolicy::TooManyPatterns { count, max });
        }
        if let Some(check) = self.checks.iter().find(|check| check.command.trim().is_empty()) {
            return Err(InvalidPolicy::EmptyCheck { name: check.name.clone() });
        }
        for check in &self.checks {
            check.reading.validate(&check.name)?;
        }
        // Shorter leases than this would expire between two heartbeats of a busy host.
        if self.lease_ttl_ms < SECOND_MS {
            return Err(InvalidPolicy::TooShort { what: "lease_ttl_ms", min_ms: SECOND_MS });
        }
        if let Some(heartbeat) = &self.heartbeat {
            heartbeat.validate()?;
        }
        self.plan.validate()?;
        if let Some(cost) = &self.cost {
            cost.profile.validate()?;
        }
        let (attempt, mission) = (self.budget.attempt_usd_max, self.budget.mission_usd_max);
        if attempt > mission {
            return Err(InvalidPolicy::AttemptOverMission { attempt, mission });
        }
        self.escalation.validate().map_err(|wrong| InvalidPolicy::Escalation { wrong })?;
        self.failure_rate.validate().map_err(|wrong| InvalidPolicy::FailureRate { wrong })?;
        let branch = self.branch.as_ref().map_or(Ok(()), BranchTemplate::validate);
        branch.map_err(|wrong| InvalidPolicy::Branch { wrong })?;
        let people = self.approvals.as_ref().map_or(Ok(()), ApprovalPolicy::validate);
        people.map_err(|wrong| InvalidPolicy::Approvals { wrong })?;
        Ok(())
    }

    fn validate_flow(&self) -> Result<(), InvalidPolicy> {
        if self.flow.is_empty() {
            return Err(InvalidPolicy::NoPhases);
        }
        for (index, &phase) in self.flow.iter().enumerate() {
            if self.flow[..index].contains(&phase) {
                return Err(InvalidPolicy::PhaseTwice { phase });
            }
            if phase == Phase::Complete {
                return Err(InvalidPolicy::NotWork { phase });
            }
            if phase.expects() == Expectation::SomeCheckFails && self.checks.is_empty() {
                return Err(InvalidPolicy::NothingToFail { phase });
            }
        }
        Ok(())
    }

    #[must_use]
    pub fn silence_ms(&self, kind: TaskKind, phase: Phase) -> u64 {
        match &self.heartbeat {
            Some(heartbeat) => heartbeat.window_ms(WorkKind::of(kind, phase)),
            None => self.lease_ttl_ms,
        }
    }

    /// How long an attempt at this kind of work may take. Work that may be silent for long is not
    /// ended before it would be: a slow task that goes on is not dead (WRK-20). What a person said
    /// about the role holds whatever the work.
    #[must_use]
    pub fn time_ms(&self, role: Role, kind: TaskKind, phase: Phase) -> u64 {
        let time_ms = self.attempt_timeout_ms(role);
        match &self.heartbeat {
            Some(_) if !self.attempt_timeout_ms.contains_key(&role) => {
                time_ms.max(self.silence_ms(kind, phase))
            }
            _ => time_ms,
        }
    }

    #[must_use]
    pub fn attempt_timeout_ms(&self, role: Role) -> u64 {
        let default = match role {
            Role::Planner | Role::Researcher => 300 * SECOND_MS,
            _ => 600 * SECOND_MS,
        };
        self.attempt_timeout_ms.get(&role).copied().unwrap_or(default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_cannot_work_are_refused() {
        let with = |change: fn(&mut Policy)| {
            let mut policy = Policy::default();
            change(&mut policy);
            policy.validate()
        };
        assert_eq!(with(|_| {}), Ok(()));
        assert_eq!(with(|p| p.flow.clear()), Err(InvalidPolicy::NoPhases));
        let red = Phase::Red;
        let nothing = Err(InvalidPolicy::NothingToFail { phase: red });
        assert_eq!(with(|p| p.flow = vec![Phase::Red, Phase::Green]), nothing);
        let twice = Err(InvalidPolicy::PhaseTwice { phase: Phase::Green });
        assert_eq!(with(|p| p.flow = vec![Phase::Green, Phase::Green]), twice);
        let not_work = Err(InvalidPolicy::NotWork { phase: Phase::Complete });
        assert_eq!(with(|p| p.flow = vec![Phase::Complete]), not_work);
        let many = Err(InvalidPolicy::TooManyPatterns { count: 101, max: 100 });
        assert_eq!(with(|p| p.tests = vec!["tests/**".into(); 101]), many);
        let short = InvalidPolicy::TooShort { what: "lease_ttl_ms", min_ms: 1_000 };
        assert_eq!(with(|p| p.lease_ttl_ms = 10), Err(short));
        let (attempt, mission) = (Usd::cents(1_000_000), Policy::default().budget.mission_usd_max);
        let over = InvalidPolicy::AttemptOverMission { attempt, mission };
        assert_eq!(with(|p| p.budget.attempt_usd_max = Usd::cents(1_000_000)), Err(over));
        let checks = InvalidPolicy::TooManyChecks { count: 21, max: 20 };
        assert_eq!(with(|p| p.checks = vec![check("t", "make"); 21]), Err(checks));
        let template = "feature".to_owned();
        let wrong = InvalidTemplate::NoMission { template };
        let branch = with(|p| p.branch = Some(BranchTemplate("feature".into())));
        assert_eq!(branch, Err(InvalidPolicy::Branch { wrong }));
        let empty = Err(InvalidPolicy::EmptyCheck { name: "t".into() });
        assert_eq!(with(|p| p.checks = vec![check("t", " ")]), empty);
    }

    fn check(name: &str, command: &str) -> Check {
        let (name, command) = (name.into(), command.into());
        Check { name, command, timeout_ms: 1, reading: Reading::default() }
    }

    #[test]
    fn planners_have_five_minutes_and_executors_ten() {
        let policy = Policy::default();
        assert_eq!(policy.attempt_timeout_ms(Role::Planner), 300_000);
        assert_eq!(policy.attempt_timeout_ms(Role::Developer), 600_000);
    }
}
