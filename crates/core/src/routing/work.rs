//! What has to be done, as far as routing needs to know.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::catalogue::{Lineage, Tier};
use crate::failure::FailureKind;
use crate::ids::Role;
use crate::plan::Priority;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// A simple question.
    Query,
    /// A label, a constant, a line of configuration.
    Chore,
    Lint,
    Docs,
    Test,
    Feature,
    BugFix,
    Review,
    Analysis,
    Security,
    /// Across many files, where the shape changes and the behaviour must not.
    Refactoring,
    Architecture,
}

impl WorkKind {
    /// The tier of the work itself (RTE-01, RTE-02). None where the role decides.
    #[must_use]
    pub fn tier(self) -> Option<Tier> {
        match self {
            WorkKind::Query
            | WorkKind::Chore
            | WorkKind::Lint
            | WorkKind::Docs
            | WorkKind::Test => Some(Tier::Eco),
            WorkKind::Feature | WorkKind::BugFix => Some(Tier::Standard),
            WorkKind::Refactoring | WorkKind::Architecture => Some(Tier::Premium),
            WorkKind::Review | WorkKind::Analysis | WorkKind::Security => None,
        }
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            WorkKind::Query => "query",
            WorkKind::Chore => "chore",
            WorkKind::Lint => "lint",
            WorkKind::Docs => "docs",
            WorkKind::Test => "test",
            WorkKind::Feature => "feature",
            WorkKind::BugFix => "bug_fix",
            WorkKind::Review => "review",
            WorkKind::Analysis => "analysis",
            WorkKind::Security => "security",
            WorkKind::Refactoring => "refactoring",
            WorkKind::Architecture => "architecture",
        }
    }
}

impl fmt::Display for WorkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    pub role: Role,
    /// Where it is not known, the role decides.
    pub kind: Option<WorkKind>,
    pub priority: Priority,
    pub estimated_minutes: Option<u32>,
    pub security: SecurityChecks,
    /// The attempt before this one, if it failed.
    pub failed: Option<Failed>,
    /// Families that must not do it: a judge does not judge its own family.
    pub not: BTreeSet<Lineage>,
    /// A person or a plan chose the model.
    pub pinned: Option<Box<str>>,
}

impl Work {
    #[must_use]
    pub fn of(role: Role) -> Work {
        Work {
            role,
            kind: None,
            priority: Priority::Medium,
            estimated_minutes: None,
            security: SecurityChecks::None,
            failed: None,
            not: BTreeSet::new(),
            pinned: None,
        }
    }
}

/// Whether the validation criteria of the task check for security.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecurityChecks {
    #[default]
    None,
    Required,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    pub tier: Tier,
    pub kind: FailureKind,
}

impl Failed {
    /// Whether a better model could have done it (RTE-05). A lost connection fails on any model.
    #[must_use]
    pub fn was_the_model(self) -> bool {
        match self.kind {
            FailureKind::ValidationFailed
            | FailureKind::AgentError
            | FailureKind::Hang
            | FailureKind::Timeout => true,
            FailureKind::Network
            | FailureKind::RateLimited
            | FailureKind::FileLocked
            | FailureKind::GitConflict
            | FailureKind::OutOfMemory
            | FailureKind::DiskFull
            | FailureKind::Budget
            | FailureKind::Auth
            | FailureKind::DependencyFailed => false,
        }
    }
}
