//! How risky a task is.
//!
//! The kind of a task is what somebody says about it; its files are facts. So the kind can make a
//! task riskier than its files look, but never safer.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::policy::ApprovalPolicy;
use crate::glob;
use crate::limits;
use crate::plan::{PlannedTask, Priority, Risk, TaskKind};

/// Files that say something about risk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RiskPattern {
    /// As in `.gitignore`.
    pub pattern: String,
    pub risk: Risk,
    /// What such files are, for the sentence that a person reads.
    pub what: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assessment {
    pub risk: Risk,
    pub reason: RiskReason,
    /// CRITICAL tasks need an approval like risky ones do (C-33).
    pub priority: Priority,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum RiskReason {
    Kind {
        kind: TaskKind,
    },
    File {
        path: String,
        what: String,
    },
    /// A file that no pattern speaks of.
    OrdinaryFile {
        path: String,
    },
    NothingKnown,
}

impl ApprovalPolicy {
    /// The risk of a task by its plan and by the files that it touched. Without either, medium.
    #[must_use]
    pub fn assess(&self, plan: &PlannedTask, touched: &[String]) -> Assessment {
        let kind = plan.kind;
        // A plan that says nothing about its risk says nothing against low risk either.
        let silent = kind == TaskKind::default() && plan.risk.is_none();
        let mut worst = (!silent).then(|| (plan.risk(), RiskReason::Kind { kind }));
        for path in plan.files.iter().chain(touched) {
            let (risk, reason) = self.of_file(path);
            if worst.as_ref().is_none_or(|(so_far, _)| risk > *so_far) {
                worst = Some((risk, reason));
            }
        }
        let (risk, reason) = worst.unwrap_or((Risk::Medium, RiskReason::NothingKnown));
        Assessment { risk, reason, priority: plan.priority }
    }

    #[must_use]
    pub fn risk_of_file(&self, path: &str) -> Risk {
        self.of_file(path).0
    }

    /// The riskiest pattern that matches: a test among the migrations is a migration.
    fn of_file(&self, path: &str) -> (Risk, RiskReason) {
        let matching = self.risks.iter().filter(|risk| glob::matches(&risk.pattern, path));
        let path = limits::head(path, limits::TITLE_CHARS_MAX).to_owned();
        match matching.max_by_key(|risk| risk.risk) {
            Some(found) => (found.risk, RiskReason::File { path, what: found.what.clone() }),
            None => (Risk::Medium, RiskReason::OrdinaryFile { path }),
        }
    }
}

impl RiskPattern {
    pub(super) fn defaults() -> Vec<RiskPattern> {
        let schema = ["**/migrations/**", "**/*.sql", "**/schema.*", "**/*.proto"];
        let security = ["**/auth/**", "**/security/**", "**/crypto/**", "**/*secret*"];
        let infra = [
            "**/Dockerfile",
            "**/*.tf",
            "**/deploy/**",
            "**/k8s/**",
            ".github/**",
            ".ci/**",
            "**/*.service",
        ];
        let words = ["**/*.md", "docs/**"];
        let tests = ["tests/**", "**/tests/**", "**/*.test.*", "**/*.spec.*", "**/*_test.*"];
        let of = |patterns: &[&str], risk: Risk, what: &str| -> Vec<RiskPattern> {
            let one = |pattern: &&str| (*pattern).to_owned();
            let patterns = patterns.iter().map(one);
            patterns.map(|pattern| RiskPattern { pattern, risk, what: what.to_owned() }).collect()
        };
        [
            of(&schema, Risk::High, "a schema"),
            of(&security, Risk::High, "security"),
            of(&infra, Risk::High, "infrastructure"),
            of(&words, Risk::Low, "documentation"),
            of(&tests, Risk::Low, "a test"),
        ]
        .concat()
    }
}

impl fmt::Display for Assessment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} risk: ", self.risk)?;
        match &self.reason {
            RiskReason::Kind { kind } => write!(f, "it is a task of kind {}", kind.name())?,
            RiskReason::File { path, what } => write!(f, "{path} is {what}")?,
            RiskReason::OrdinaryFile { path } => write!(f, "{path} is neither test nor text")?,
            RiskReason::NothingKnown => f.write_str("neither its kind nor its files are known")?,
        }
        if self.priority == Priority::Critical {
            f.write_str("; and its priority is critical")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(kind: TaskKind, files: &[&str]) -> PlannedTask {
        let files = files.iter().map(ToString::to_string).collect();
        PlannedTask { kind, files, ..PlannedTask::default() }
    }

    fn risk(kind: TaskKind, files: &[&str]) -> Risk {
        ApprovalPolicy::default().assess(&plan(kind, files), &[]).risk
    }

    const PLAIN: TaskKind = TaskKind::Implementation;

    /// HUM-04, T-85: the examples of the table.
    #[test]
    fn risk_follows_the_agreed_examples() {
        assert_eq!(risk(PLAIN, &["README.md"]), Risk::Low);
        assert_eq!(risk(TaskKind::Docs, &["docs/guide/start.html"]), Risk::Low);
        assert_eq!(risk(TaskKind::Test, &["web/a.test.ts", "tests/b.rs"]), Risk::Low);
        assert_eq!(risk(PLAIN, &["src/api.rs"]), Risk::Medium);
        assert_eq!(risk(PLAIN, &["web/App.tsx"]), Risk::Medium);
        assert_eq!(risk(PLAIN, &["db/migrations/0007_users.sql"]), Risk::High);
        assert_eq!(risk(PLAIN, &["src/auth/token.rs"]), Risk::High);
        assert_eq!(risk(PLAIN, &["Dockerfile"]), Risk::High);
        assert_eq!(risk(PLAIN, &[".github/workflows/ci.yml"]), Risk::High);
        assert_eq!(risk(TaskKind::Security, &[]), Risk::High);
    }

    /// A planner that calls a change of the login a typo must not get it past review.
    #[test]
    fn a_harmless_name_does_not_make_risky_files_harmless() {
        assert_eq!(risk(TaskKind::Docs, &["src/lib.rs"]), Risk::Medium);
        assert_eq!(risk(TaskKind::Docs, &["docs/a.md", "src/auth/login.rs"]), Risk::High);
        assert_eq!(risk(TaskKind::Test, &["migrations/tests/a.sql"]), Risk::High);
        assert_eq!(risk(TaskKind::Migration, &["docs/a.md"]), Risk::High);
    }

    #[test]
    fn nothing_known_is_not_low() {
        assert_eq!(risk(PLAIN, &[]), Risk::Medium);
    }

    #[test]
    fn the_reason_is_a_sentence() {
        let policy = ApprovalPolicy::default();
        let mut critical = plan(PLAIN, &["src/a.rs", "db/schema.rb"]);
        critical.priority = Priority::Critical;
        let told = policy.assess(&critical, &[]).to_string();
        assert_eq!(told, "high risk: db/schema.rb is a schema; and its priority is critical");
        let touched = ["src/a.rs".to_owned()];
        let told = policy.assess(&plan(TaskKind::Docs, &[]), &touched).to_string();
        assert_eq!(told, "medium risk: src/a.rs is neither test nor text");
    }
}
