//! Escalation: what happens after a failure, from the agent's own correction up to a person.
//!
//! Tier 0, the agent corrects itself within its attempt; nobody here hears of it. Tier 1, the task
//! is tried again with the story of its failure. Tier 2, where the team has an orchestrator: it
//! begins anew, in other hands. Tier 3, a council of other model families. Tier 4, a person.
//! Trouble that no opinion can mend, such as a refused key, goes from its last retry straight to
//! the person.
//!
//! Invariant: every counter has its own limit, no counter is spent by another kind of trouble, and
//! none is given back while the task lives: what fails only when it is merged would begin anew for
//! ever otherwise.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::council::{NoVerdict, ToHuman};
use crate::failure::FailureKind;
use crate::ids::Actor;
use crate::limits;

mod letter;
mod notices;
mod rate;

pub use letter::{DeadLetter, FailedAttempt, FailureStory, Hardship};
pub use notices::{Cause, Group, InvalidNotices, Matter, NoticePolicy, Notices, Notify};
pub use rate::{FailureRate, InvalidRate, RatePolicy, Resume, Verdict};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EscalationPolicy {
    /// Rounds of repairing what the tests refuse.
    pub test_fixes_max: u32,
    /// Retries by failure, where they differ from the table in `failure`.
    pub retries_max: BTreeMap<FailureKind, u32>,
    /// Retries of a task before a council may be asked.
    pub council_after_retries: u32,
    /// With fewer members a council is one opinion (CON-15).
    pub council_members_min: u32,
    /// Hosts that may be lost in a row while they work on a task. A task that takes its host down
    /// is nobody's failure and costs no retry, but it must not do so for ever.
    #[serde(skip_serializing_if = "is_agreed")]
    pub lost_max: u32,
}

const LOST_MAX: u32 = 5;

/// Journals from before there was such a bound say nothing of it.
fn is_agreed(lost_max: &u32) -> bool {
    *lost_max == LOST_MAX
}

impl Default for EscalationPolicy {
    fn default() -> EscalationPolicy {
        EscalationPolicy {
            test_fixes_max: 3,
            retries_max: BTreeMap::new(),
            council_after_retries: 3,
            council_members_min: 2,
            lost_max: LOST_MAX,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub enum InvalidEscalation {
    #[error("{what} of {found} would never end; at most {max}")]
    TooMany { what: &'static str, found: u32, max: u32 },
    #[error("a council needs two members at least")]
    LonelyCouncil,
    /// The last loss must be one that the task had to itself.
    #[error("lost_max of {found} blames a task before it has worked alone; at least {min}")]
    BlamedTooSoon { found: u32, min: u32 },
}

impl EscalationPolicy {
    pub fn validate(&self) -> Result<(), InvalidEscalation> {
        const COUNTER_MAX: u32 = 100;
        let counters = [
            ("test_fixes_max", self.test_fixes_max),
            ("council_after_retries", self.council_after_retries),
            ("lost_max", self.lost_max),
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
        let min = limits::LOST_ALONE_AFTER + 1;
        if self.lost_max < min {
            return Err(InvalidEscalation::BlamedTooSoon { found: self.lost_max, min });
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
    /// The tests refuse the change.
    TestsFail,
    Failure(FailureKind),
    /// Its hosts are lost, one after the other.
    HostLost,
}

impl Trouble {
    /// Whether another opinion could help. The rest is weather, money or keys.
    pub(crate) fn is_debatable(self) -> bool {
        match self {
            Trouble::TestsFail => true,
            Trouble::HostLost => false,
            Trouble::Failure(kind) => matches!(
                kind,
                FailureKind::ValidationFailed
                    | FailureKind::AgentError
                    | FailureKind::Timeout
                    | FailureKind::Hang
            ),
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
            Tier::Orchestrator => "the orchestrator lets it begin anew, in other hands",
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hands {
    Same,
    /// Whoever failed at it is the last to ask again.
    Other,
    #[default]
    Anyone,
}

/// What follows from a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "next", rename_all = "snake_case")]
pub enum Next {
    Retry { retry: u32, of: u32, by: Hands },
    AskOrchestrator,
    ConveneCouncil,
    AskHuman { because: HumanBecause },
}

impl Next {
    #[must_use]
    pub fn tier(&self) -> Tier {
        match self {
            Next::Retry { .. } => Tier::Retry,
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
    CouncilTooSmall {
        members: u32,
    },
    /// A council should have been asked, and could not be.
    NoCouncil {
        council: ToHuman,
    },
    CouncilUndecided {
        council: NoVerdict,
    },
    /// It was lost with its host, again and again.
    HostLost {
        times: u32,
    },
    /// Nothing failed: a person did not want it to start.
    TurnedDown {
        by: Actor,
        reason: String,
    },
}

impl fmt::Display for HumanBecause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HumanBecause::RetriesExhausted { retries: 1 } => {
                f.write_str("one retry did not solve it")
            }
            HumanBecause::RetriesExhausted { retries } => {
                write!(f, "{retries} retries did not solve it")
            }
            HumanBecause::OutOfOurHands { kind } => {
                write!(f, "{kind} needs someone who can change the surroundings")
            }
            HumanBecause::CouncilTooSmall { members } => {
                write!(f, "a council of {members} would be one opinion")
            }
            HumanBecause::NoCouncil { council } => write!(f, "no council was asked: {council}"),
            HumanBecause::CouncilUndecided { council } => {
                write!(f, "the council did not agree: {council}")
            }
            HumanBecause::HostLost { times } => {
                write!(f, "its host was lost {times} times in a row while it worked")
            }
            HumanBecause::TurnedDown { by, reason } => {
                write!(f, "{by} turned its start down: {reason}")
            }
        }
    }
}

/// What the mission can still do for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Means {
    pub orchestrators: u32,
    /// Members of different families that could be asked; 0 if the council is off.
    pub council_members: u32,
}

/// The counters of one task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ladder {
    pub test_fixes: u32,
    pub by_kind: BTreeMap<FailureKind, u32>,
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
        let exhausted =
            Next::AskHuman { because: HumanBecause::RetriesExhausted { retries: self.retries } };
        match self.retry(policy, trouble) {
            Some(retry) => retry,
            None if !trouble.is_debatable() => self.out_of_our_hands(trouble),
            None if !self.ruled && means.orchestrators > 0 => Next::AskOrchestrator,
            None if self.councils > 0 || self.retries < policy.council_after_retries => exhausted,
            None if means.council_members == 0 => exhausted,
            None if means.council_members < policy.council_members_min => {
                let members = means.council_members;
                Next::AskHuman { because: HumanBecause::CouncilTooSmall { members } }
            }
            None => Next::ConveneCouncil,
        }
    }

    fn retry(&self, policy: &EscalationPolicy, trouble: Trouble) -> Option<Next> {
        match trouble {
            Trouble::TestsFail => retry_within(self.test_fixes, policy.test_fixes_max, Hands::Same),
            Trouble::Failure(kind) => self.retry_of(policy, kind),
            Trouble::HostLost => None,
        }
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
        retry_within(spent, policy.retries_max(kind), by)
    }

    fn out_of_our_hands(&self, trouble: Trouble) -> Next {
        let because = match trouble {
            Trouble::Failure(kind) => HumanBecause::OutOfOurHands { kind },
            Trouble::TestsFail | Trouble::HostLost => {
                HumanBecause::RetriesExhausted { retries: self.retries }
            }
        };
        Next::AskHuman { because }
    }

    /// Fact: this was done about the trouble.
    pub fn taken(&mut self, trouble: Trouble, next: &Next) {
        self.tier = self.tier.max(next.tier());
        match next {
            Next::Retry { .. } => match trouble {
                Trouble::TestsFail => self.test_fixes += 1,
                Trouble::Failure(kind) => *self.by_kind.entry(kind).or_default() += 1,
                Trouble::HostLost => {}
            },
            Next::AskOrchestrator => self.ruled = true,
            Next::ConveneCouncil => self.councils += 1,
            Next::AskHuman { .. } => return,
        }
        self.retries += 1;
    }
}

fn retry_within(spent: u32, max: u32, by: Hands) -> Option<Next> {
    (spent < max).then_some(Next::Retry { retry: spent + 1, of: max, by })
}
