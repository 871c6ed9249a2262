//! Escalation: what happens after a failure, from the agent's own correction up to a person.
//!
//! Tier 0, the agent corrects itself within its attempt. Tier 1, the task is tried again with the
//! story of its failure. Tier 2, the orchestrator looks at it and rules. Tier 3, a council of other
//! model families. Tier 4, a person. Trouble that no opinion can mend, such as a full disk or a
//! refused key, goes from its last retry straight to the person.
//!
//! Invariant: every counter has its own limit, and no counter is spent by another kind of trouble.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::failure::FailureKind;
use crate::money::Usd;

mod letter;
mod notices;
mod rate;

pub use letter::{DeadLetter, FailedAttempt, FailureStory};
pub use notices::{Cause, Group, InvalidNotices, NoticePolicy, Notices, Notify};
pub use rate::{FailureRate, InvalidRate, RatePolicy, Resume, Verdict};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EscalationPolicy {
    /// Corrections of an agent within one attempt.
    pub self_corrections_max: u32,
    /// Rounds of repairing what the tests refuse.
    pub test_fixes_max: u32,
    /// Retries by failure, where they differ from the table in `failure`.
    pub retries_max: BTreeMap<FailureKind, u32>,
    /// Plans to fill the gaps that verification found.
    pub gap_plans_max: u32,
    /// Retries of a task before a council may be asked.
    pub council_after_retries: u32,
    /// With fewer members a council is one opinion (CON-15).
    pub council_members_min: u32,
    /// What the retries of a mission may cost.
    pub retry_usd_max: Usd,
    pub retry_warn_permille: u32,
}

impl Default for EscalationPolicy {
    fn default() -> EscalationPolicy {
        EscalationPolicy {
            self_corrections_max: 2,
            test_fixes_max: 3,
            retries_max: BTreeMap::new(),
            gap_plans_max: 2,
            council_after_retries: 3,
            council_members_min: 2,
            retry_usd_max: Usd::cents(200),
            retry_warn_permille: 800,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub enum InvalidEscalation {
    #[error("{what} of {found} would never end; at most {max}")]
    TooMany { what: &'static str, found: u32, max: u32 },
    #[error("a council needs two members at least")]
    LonelyCouncil,
    #[error("a warning at {permille} permille would come too late")]
    LateWarning { permille: u32 },
}

impl EscalationPolicy {
    pub fn validate(&self) -> Result<(), InvalidEscalation> {
        const COUNTER_MAX: u32 = 100;
        let counters = [
            ("self_corrections_max", self.self_corrections_max),
            ("test_fixes_max", self.test_fixes_max),
            ("gap_plans_max", self.gap_plans_max),
            ("council_after_retries", self.council_after_retries),
        ];
        let by_kind = self.retries_max.values().map(|max| ("retries_max", *max));
        for (what, found) in counters.into_iter().chain(by_kind) {
            if found > COUNTER_MAX {
                return Err(InvalidEscalation::TooMany { what, found, max: COUNTER_MAX });
            }
        }
        if self.council_members_min < 2 {
            return Err(InvalidEscalation::LonelyCouncil);
        }
        if self.retry_warn_permille > 1_000 {
            let permille = self.retry_warn_permille;
            return Err(InvalidEscalation::LateWarning { permille });
        }
        Ok(())
    }

    #[must_use]
    pub fn retries_max(&self, kind: FailureKind) -> u32 {
        self.retries_max.get(&kind).copied().unwrap_or_else(|| kind.retries_max())
    }
}

/// What went wrong, by the counter that it spends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "trouble", content = "kind", rename_all = "snake_case")]
pub enum Trouble {
    /// The agent found its own mistake.
    OwnMistake,
    /// The tests refuse the change.
    TestsFail,
    Failure(FailureKind),
    /// Verification found something missing.
    Gap,
}

impl Trouble {
    /// Whether another opinion could help. The rest is weather, money or keys.
    fn is_debatable(self) -> bool {
        match self {
            Trouble::OwnMistake | Trouble::TestsFail => true,
            Trouble::Failure(kind) => matches!(
                kind,
                FailureKind::ValidationFailed
                    | FailureKind::AgentError
                    | FailureKind::Timeout
                    | FailureKind::Hang
            ),
            Trouble::Gap => false,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    #[default]
    Agent,
    Retry,
    Orchestrator,
    Council,
    Human,
}

impl Tier {
    pub const ALL: [Tier; 5] =
        [Tier::Agent, Tier::Retry, Tier::Orchestrator, Tier::Council, Tier::Human];

    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// What is done at this tier.
    #[must_use]
    pub fn action(self) -> &'static str {
        match self {
            Tier::Agent => "the agent corrects itself",
            Tier::Retry => "the task is tried again with the failure's context",
            Tier::Orchestrator => "the orchestrator reviews the failures and rules",
            Tier::Council => "a council of other model families is asked",
            Tier::Human => "a person decides",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tier {}: {}", self.number(), self.action())
    }
}

/// Who should do a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hands {
    Same,
    /// Whoever failed at it is the last to ask again.
    Other,
    Anyone,
}

/// What follows from a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "next", rename_all = "snake_case")]
pub enum Next {
    SelfCorrect {
        round: u32,
        of: u32,
    },
    Retry {
        retry: u32,
        of: u32,
        by: Hands,
    },
    /// Another plan for what is missing.
    GapPlan {
        plan: u32,
        of: u32,
    },
    AskOrchestrator,
    ConveneCouncil,
    AskHuman {
        because: HumanBecause,
    },
}

impl Next {
    #[must_use]
    pub fn tier(&self) -> Tier {
        match self {
            Next::SelfCorrect { .. } => Tier::Agent,
            Next::Retry { .. } | Next::GapPlan { .. } => Tier::Retry,
            Next::AskOrchestrator => Tier::Orchestrator,
            Next::ConveneCouncil => Tier::Council,
            Next::AskHuman { .. } => Tier::Human,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum HumanBecause {
    RetriesExhausted {
        retries: u32,
    },
    /// No agent and no council can change it.
    OutOfOurHands {
        kind: FailureKind,
    },
    GapsRemain {
        plans: u32,
    },
    RetryBudget {
        spent: Usd,
        estimate: Usd,
        cap: Usd,
    },
    CouncilTooSmall {
        members: u32,
    },
}

impl fmt::Display for HumanBecause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HumanBecause::RetriesExhausted { retries } => {
                write!(f, "agent, orchestrator and council did not solve it in {retries} retries")
            }
            HumanBecause::OutOfOurHands { kind } => {
                write!(f, "{kind} needs someone who can change the surroundings")
            }
            HumanBecause::GapsRemain { plans } => {
                write!(
                    f,
                    "Max Retries Exceeded (Human Intervention Needed): gaps remain after {plans} gap plans"
                )
            }
            HumanBecause::RetryBudget { spent, estimate, cap } => {
                write!(
                    f,
                    "a retry of about {estimate} does not fit the retry budget: {spent} of {cap} spent"
                )
            }
            HumanBecause::CouncilTooSmall { members } => {
                write!(f, "a council of {members} would be one opinion")
            }
        }
    }
}

/// What the mission can still do for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Means {
    /// Members of different families that could be asked; 0 if the council is off.
    pub council_members: u32,
    pub retries_spent: Usd,
    pub retry_estimate: Usd,
}

impl Means {
    /// More than the warning threshold of the retry budget is spent (T-37).
    #[must_use]
    pub fn warns(&self, policy: &EscalationPolicy) -> bool {
        let spent = u128::from(self.retries_spent.as_micros()) * 1_000;
        let cap = u128::from(policy.retry_usd_max.as_micros());
        spent > cap * u128::from(policy.retry_warn_permille)
    }

    fn over_budget(&self, policy: &EscalationPolicy) -> Option<HumanBecause> {
        let (spent, estimate, cap) =
            (self.retries_spent, self.retry_estimate, policy.retry_usd_max);
        let over = spent + estimate > cap;
        over.then_some(HumanBecause::RetryBudget { spent, estimate, cap })
    }
}

/// The counters of one task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ladder {
    /// Within the attempt that runs.
    pub self_corrections: u32,
    pub test_fixes: u32,
    pub by_kind: BTreeMap<FailureKind, u32>,
    pub gap_plans: u32,
    pub retries: u32,
    pub ruled: bool,
    pub councils: u32,
    /// The highest tier so far.
    pub tier: Tier,
}

impl Ladder {
    /// What follows from this trouble. Nothing is counted until it is recorded by `taken`.
    #[must_use]
    pub fn next(&self, policy: &EscalationPolicy, trouble: Trouble, means: Means) -> Next {
        let attempt = match trouble {
            Trouble::OwnMistake if self.self_corrections < policy.self_corrections_max => {
                let round = self.self_corrections + 1;
                return Next::SelfCorrect { round, of: policy.self_corrections_max };
            }
            Trouble::Gap => return self.next_for_gap(policy),
            // An agent that cannot mend its own mistake has failed as an agent.
            Trouble::OwnMistake => self.retry_of(policy, FailureKind::AgentError),
            Trouble::TestsFail => {
                self.retry_within(self.test_fixes, policy.test_fixes_max, Hands::Same)
            }
            Trouble::Failure(kind) => self.retry_of(policy, kind),
        };
        let next = match attempt {
            Some(retry) => retry,
            None if !trouble.is_debatable() => return self.out_of_our_hands(trouble),
            None if !self.ruled => Next::AskOrchestrator,
            None if self.councils == 0 && self.retries >= policy.council_after_retries => {
                if means.council_members < policy.council_members_min {
                    let members = means.council_members;
                    return Next::AskHuman { because: HumanBecause::CouncilTooSmall { members } };
                }
                Next::ConveneCouncil
            }
            None => {
                let because = HumanBecause::RetriesExhausted { retries: self.retries };
                return Next::AskHuman { because };
            }
        };
        match means.over_budget(policy) {
            // A parked provider costs nothing, and what follows a ruling is a retry as well.
            Some(because) if trouble != Trouble::Failure(FailureKind::RateLimited) => {
                Next::AskHuman { because }
            }
            _ => next,
        }
    }

    fn next_for_gap(&self, policy: &EscalationPolicy) -> Next {
        if self.gap_plans < policy.gap_plans_max {
            return Next::GapPlan { plan: self.gap_plans + 1, of: policy.gap_plans_max };
        }
        Next::AskHuman { because: HumanBecause::GapsRemain { plans: self.gap_plans } }
    }

    fn retry_of(&self, policy: &EscalationPolicy, kind: FailureKind) -> Option<Next> {
        let by = match kind {
            FailureKind::AgentError | FailureKind::Timeout | FailureKind::Hang => Hands::Other,
            FailureKind::Network | FailureKind::ValidationFailed | FailureKind::GitConflict => {
                Hands::Same
            }
            FailureKind::RateLimited
            | FailureKind::FileLocked
            | FailureKind::OutOfMemory
            | FailureKind::DiskFull
            | FailureKind::Budget
            | FailureKind::Auth
            | FailureKind::DependencyFailed => Hands::Anyone,
        };
        let spent = self.by_kind.get(&kind).copied().unwrap_or(0);
        self.retry_within(spent, policy.retries_max(kind), by)
    }

    fn retry_within(&self, spent: u32, max: u32, by: Hands) -> Option<Next> {
        (spent < max).then_some(Next::Retry { retry: spent + 1, of: max, by })
    }

    fn out_of_our_hands(&self, trouble: Trouble) -> Next {
        let because = match trouble {
            Trouble::Failure(kind) => HumanBecause::OutOfOurHands { kind },
            Trouble::Gap => HumanBecause::GapsRemain { plans: self.gap_plans },
            Trouble::OwnMistake | Trouble::TestsFail => {
                HumanBecause::RetriesExhausted { retries: self.retries }
            }
        };
        Next::AskHuman { because }
    }

    /// Fact: this was done about the trouble.
    pub fn taken(&mut self, trouble: Trouble, next: &Next) {
        self.tier = self.tier.max(next.tier());
        match next {
            Next::SelfCorrect { .. } => self.self_corrections += 1,
            Next::Retry { .. } => {
                self.retries += 1;
                self.self_corrections = 0;
                match trouble {
                    Trouble::TestsFail => self.test_fixes += 1,
                    Trouble::Failure(kind) => *self.by_kind.entry(kind).or_default() += 1,
                    Trouble::OwnMistake => {
                        *self.by_kind.entry(FailureKind::AgentError).or_default() += 1;
                    }
                    Trouble::Gap => {}
                }
            }
            Next::GapPlan { .. } => self.gap_plans += 1,
            Next::AskOrchestrator => {
                self.ruled = true;
                self.retries += 1;
                self.self_corrections = 0;
            }
            Next::ConveneCouncil => {
                self.councils += 1;
                self.retries += 1;
                self.self_corrections = 0;
            }
            Next::AskHuman { .. } => {}
        }
    }

    /// Fact: an attempt succeeded at its phase; what comes next starts with fresh counters, but
    /// for the gaps, which belong to the whole task.
    pub fn phase_accepted(&mut self) {
        *self = Ladder { gap_plans: self.gap_plans, ..Ladder::default() };
    }

    /// Fact: a person put the task back to work.
    pub fn requeued(&mut self) {
        *self = Ladder::default();
    }
}
