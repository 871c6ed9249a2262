//! The rules about people, as configured.

use serde::{Deserialize, Serialize};

use super::autonomy::Level;
use super::risk::RiskPattern;
use crate::limits;
use crate::money::Usd;
use crate::time::MINUTE_MS;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApprovalPolicy {
    pub level: Level,
    pub risks: Vec<RiskPattern>,
    /// How many different people approve what is of high risk.
    pub high_risk_people: u32,
    /// How long a first person's override waits for the second.
    pub second_person_ms_max: u64,
    /// What an hour of a person costs, for reports.
    pub usd_per_hour: Usd,
    /// A decision that took longer than this was interrupted by lunch.
    pub attention_ms_max: u64,
    /// Counted for a decision of which nobody knows when it was begun.
    pub attention_ms_assumed: u64,
}

impl Default for ApprovalPolicy {
    fn default() -> ApprovalPolicy {
        ApprovalPolicy {
            level: Level::Supervised,
            risks: RiskPattern::defaults(),
            high_risk_people: 2,
            second_person_ms_max: 24 * 60 * MINUTE_MS,
            usd_per_hour: Usd::cents(10_000),
            attention_ms_max: 15 * MINUTE_MS,
            attention_ms_assumed: 2 * MINUTE_MS,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum InvalidApprovalPolicy {
    #[error("high_risk_people is {count}; it must be between 1 and {max}")]
    People { count: u32, max: u32 },
    #[error("{count} risk patterns are more than {max}")]
    TooManyPatterns { count: usize, max: usize },
    #[error("a risk pattern is empty or longer than {max} characters")]
    BadPattern { max: usize },
}

impl ApprovalPolicy {
    pub fn validate(&self) -> Result<(), InvalidApprovalPolicy> {
        let (count, max) = (self.high_risk_people, limits::APPROVERS_MAX);
        if count == 0 || count > max {
            return Err(InvalidApprovalPolicy::People { count, max });
        }
        let (count, max) = (self.risks.len(), limits::PATTERNS_MAX);
        if count > max {
            return Err(InvalidApprovalPolicy::TooManyPatterns { count, max });
        }
        let max = limits::PATH_CHARS_MAX;
        let bad = |risk: &RiskPattern| {
            let pattern = risk.pattern.trim();
            pattern.is_empty() || limits::head(pattern, max).len() < pattern.len()
        };
        if self.risks.iter().any(bad) {
            return Err(InvalidApprovalPolicy::BadPattern { max });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Risk;

    #[test]
    fn rules_that_nobody_could_fulfil_are_refused() {
        let with = |change: fn(&mut ApprovalPolicy)| {
            let mut policy = ApprovalPolicy::default();
            change(&mut policy);
            policy.validate()
        };
        let people = |count| Err(InvalidApprovalPolicy::People { count, max: 5 });
        assert_eq!(with(|_| {}), Ok(()));
        assert_eq!(with(|p| p.high_risk_people = 0), people(0));
        assert_eq!(with(|p| p.high_risk_people = 6), people(6));
        let pattern = || RiskPattern { pattern: " ".into(), risk: Risk::High, what: "x".into() };
        let bad = InvalidApprovalPolicy::BadPattern { max: 1_000 };
        let mut policy = ApprovalPolicy { risks: vec![pattern()], ..ApprovalPolicy::default() };
        assert_eq!(policy.validate(), Err(bad));
        policy.risks = vec![pattern(); 101];
        let many = InvalidApprovalPolicy::TooManyPatterns { count: 101, max: 100 };
        assert_eq!(policy.validate(), Err(many));
    }

    #[test]
    fn what_is_not_configured_is_the_agreed_default() {
        let policy: ApprovalPolicy = serde_json::from_str(r#"{"level": 3}"#).unwrap();
        assert_eq!(policy.level, Level::Guarded);
        assert_eq!(policy, ApprovalPolicy { level: Level::Guarded, ..ApprovalPolicy::default() });
        assert!(serde_json::from_str::<ApprovalPolicy>(r#"{"level": 6}"#).is_err());
    }
}
