//! The council as configured (CON-16). What councils may spend is among the caps of the ledger.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::judge::JudgeWeights;
use super::member::Member;
use super::strategy::Strategy;
use crate::limits;
use crate::money::Usd;
use crate::plan::flaws::is_inside;
use crate::routing::{Catalogue, ModelName};
use crate::time::SECOND_MS;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CouncilPolicy {
    pub enabled: Switch,
    /// In the order of preference; the first is the one that a minimal council keeps.
    pub models: Vec<Member>,
    pub judge: Member,
    pub quorum: Quorum,
    pub size: Size,
    pub strategy: Strategy,
    pub trigger_after_retries: u32,
    pub timeout_ms: u64,
    pub weights: JudgeWeights,
    pub lazy: LazyRule,
    /// What is planted beside reviews, to see who looks (CON-04). Without any, only people call
    /// drills.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub defects: Vec<Defect>,
    /// Which models are good at which type of problem, before there is history (CON-20).
    pub strengths: BTreeMap<String, Vec<ModelName>>,
    /// An answer is not reused when it is older than this.
    pub remember_ms: u64,
    /// What a person would need for a problem that the council solves, for reports.
    pub human_minutes_per_problem: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Switch {
    On,
    /// Only when somebody asks for it.
    ByHand,
    Off,
}

/// So many must agree, of so many that are asked (CON-01).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quorum {
    pub agree: u32,
    pub of: u32,
}

/// How many models are asked, and what that costs about (CON-11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    Minimal,
    Standard,
    Full,
}

/// A defect that is planted in a change before its reviewers see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Defect {
    /// Whoever rejects the change and points at this file has caught it.
    pub file: String,
    /// What stands there, as the members read it.
    pub text: String,
}

/// When a model counts as lazy (CON-04).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LazyRule {
    /// Every so many reviews, a defect is planted.
    pub drill_every: u32,
    /// Fewer drills or votes say nothing yet.
    pub seen_min: u32,
    pub caught_permille_min: u32,
    pub valid_permille_min: u32,
}

impl Default for LazyRule {
    fn default() -> LazyRule {
        LazyRule { drill_every: 20, seen_min: 4, caught_permille_min: 500, valid_permille_min: 500 }
    }
}

impl Size {
    #[must_use]
    pub fn members(self) -> usize {
        match self {
            Size::Minimal => 2,
            Size::Standard => 3,
            Size::Full => 5,
        }
    }

    /// What is reserved before anybody is asked.
    #[must_use]
    pub fn reference_cost(self) -> Usd {
        match self {
            Size::Minimal => Usd::cents(5),
            Size::Standard => Usd::cents(15),
            Size::Full => Usd::cents(30),
        }
    }

    /// The smallest size that holds so many members.
    #[must_use]
    pub fn holding(members: usize) -> Size {
        let sizes = [Size::Minimal, Size::Standard, Size::Full];
        sizes.into_iter().find(|size| size.members() >= members).unwrap_or(Size::Full)
    }
}

impl Default for CouncilPolicy {
    fn default() -> CouncilPolicy {
        let strengths = [
            ("coding", &["deepseek"][..]),
            ("logic", &["deepseek"]),
            ("api", &["gemini"]),
            ("visual", &["gemini"]),
            ("architecture", &["gpt"]),
            ("edge_case", &["gpt"]),
            ("review", &["claude"]),
            ("security", &["claude"]),
            ("refactoring", &["claude"]),
            ("quick_fix", &["codestral", "qwen"]),
            ("syntax", &["codestral", "qwen"]),
        ];
        let named = |(kind, models): (&str, &[&str])| {
            (kind.to_owned(), models.iter().map(|model| ModelName((*model).into())).collect())
        };
        CouncilPolicy {
            enabled: Switch::On,
            models: vec![
                Member::new("deepseek", "deepseek"),
                Member::new("gemini", "gemini"),
                Member::new("gpt", "gpt"),
            ],
            judge: Member::new("claude", "claude"),
            quorum: Quorum { agree: 2, of: 3 },
            size: Size::Standard,
            strategy: Strategy::Majority,
            trigger_after_retries: 3,
            timeout_ms: 30 * SECOND_MS,
            weights: JudgeWeights::default(),
            lazy: LazyRule::default(),
            defects: Vec::new(),
            strengths: strengths.into_iter().map(named).collect(),
            remember_ms: 30 * 24 * 3_600 * SECOND_MS,
            human_minutes_per_problem: 30,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCouncil {
    #[error("the council's {model} is not in the catalogue of models, or of another family there")]
    NotInCatalogue { model: ModelName },
    #[error("{count} models are more than {max}")]
    TooManyModels { count: usize, max: usize },
    #[error("the model {model} is named twice")]
    ModelTwice { model: ModelName },
    #[error("{model} is no name of a model: it is empty or longer than {max} characters")]
    BadName { model: ModelName, max: usize },
    #[error(
        "a quorum of {agree} of {of} cannot be; at least 2 must agree, and no more than are asked"
    )]
    Quorum { agree: u32, of: u32 },
    #[error("a quorum of {of} needs {of} model families; {lineages} are configured")]
    TooFewLineages { of: u32, lineages: usize },
    #[error("the judge's weights add up to {sum}, not 100")]
    Weights { sum: u32 },
    #[error("the council needs at least one second, not {timeout_ms} ms")]
    TooShort { timeout_ms: u64 },
    #[error("{0} is a share of a thousand, at most 1000")]
    Permille(&'static str),
    #[error("drill_every must be at least 1")]
    NoDrills,
    #[error("{count} defects are more than {max}")]
    TooManyDefects { count: usize, max: usize },
    #[error(
        "the defect in {file:?} has no path inside the repository, or no text of at most {max} characters"
    )]
    BadDefect { file: String, max: usize },
}

impl CouncilPolicy {
    /// Whether those who sit in it are the models that work is routed to, where models are named.
    pub fn validate_within(&self, catalogue: &Catalogue) -> Result<(), InvalidCouncil> {
        let is_known = |member: &&Member| {
            catalogue.model(&member.model).is_some_and(|model| model.lineage == member.lineage)
        };
        match self.models.iter().chain([&self.judge]).find(|member| !is_known(member)) {
            Some(Member { model, .. }) => {
                Err(InvalidCouncil::NotInCatalogue { model: model.clone() })
            }
            None => Ok(()),
        }
    }

    pub fn validate(&self) -> Result<(), InvalidCouncil> {
        self.validate_models()?;
        let Quorum { agree, of } = self.quorum;
        if agree < 2 || agree > of {
            return Err(InvalidCouncil::Quorum { agree, of });
        }
        let lineages: BTreeSet<_> = self.models.iter().map(|member| &member.lineage).collect();
        if (lineages.len() as u64) < u64::from(of) {
            return Err(InvalidCouncil::TooFewLineages { of, lineages: lineages.len() });
        }
        let sum = self.weights.sum();
        if sum != 100 {
            return Err(InvalidCouncil::Weights { sum });
        }
        if self.timeout_ms < SECOND_MS {
            return Err(InvalidCouncil::TooShort { timeout_ms: self.timeout_ms });
        }
        let shares = [
            ("caught_permille_min", self.lazy.caught_permille_min),
            ("valid_permille_min", self.lazy.valid_permille_min),
        ];
        if let Some((what, _)) = shares.into_iter().find(|(_, share)| *share > 1_000) {
            return Err(InvalidCouncil::Permille(what));
        }
        if self.lazy.drill_every == 0 {
            return Err(InvalidCouncil::NoDrills);
        }
        self.validate_defects()
    }

    fn validate_defects(&self) -> Result<(), InvalidCouncil> {
        let (count, max) = (self.defects.len(), limits::COUNCIL_DEFECTS_MAX);
        if count > max {
            return Err(InvalidCouncil::TooManyDefects { count, max });
        }
        let max = limits::COUNCIL_VOTE_CHARS_MAX;
        let is_bad = |defect: &&Defect| {
            let long = limits::head(&defect.text, max).len() < defect.text.len();
            !is_inside(&defect.file) || defect.text.trim().is_empty() || long
        };
        match self.defects.iter().find(is_bad) {
            None => Ok(()),
            Some(Defect { file, .. }) => {
                let file = limits::head(file, limits::TITLE_CHARS_MAX).to_owned();
                Err(InvalidCouncil::BadDefect { file, max })
            }
        }
    }

    fn validate_models(&self) -> Result<(), InvalidCouncil> {
        let (count, max) = (self.models.len(), limits::COUNCIL_MODELS_MAX);
        if count > max {
            return Err(InvalidCouncil::TooManyModels { count, max });
        }
        let max = limits::COUNCIL_NAME_CHARS_MAX;
        let mut seen = BTreeSet::new();
        for member in self.models.iter().chain([&self.judge]) {
            let name = &*member.model;
            if name.trim().is_empty() || limits::head(name, max).len() < name.len() {
                let model = limits::head(name, max).into();
                return Err(InvalidCouncil::BadName { model, max });
            }
        }
        for member in &self.models {
            if !seen.insert(&member.model) {
                return Err(InvalidCouncil::ModelTwice { model: member.model.clone() });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut CouncilPolicy)) -> Result<(), InvalidCouncil> {
        let mut policy = CouncilPolicy::default();
        change(&mut policy);
        policy.validate()
    }

    /// CON-16, T-13: the numbers that everybody agreed on.
    #[test]
    fn what_is_not_configured_is_the_agreed_default() {
        let policy: CouncilPolicy = serde_json::from_str("{}").unwrap();
        assert_eq!(policy, CouncilPolicy::default());
        let names: Vec<_> = policy.models.iter().map(|member| &*member.model.0).collect();
        assert_eq!(names, ["deepseek", "gemini", "gpt"]);
        assert_eq!(&*policy.judge.model, "claude");
        assert_eq!((policy.trigger_after_retries, policy.timeout_ms), (3, 30_000));
        assert_eq!(policy.quorum, Quorum { agree: 2, of: 3 });
        assert_eq!(policy.validate(), Ok(()));
    }

    /// CON-11, T-14.
    #[test]
    fn sizes_cost_what_was_agreed() {
        let sizes = [Size::Minimal, Size::Standard, Size::Full];
        let costs = sizes.map(|size| (size.members(), size.reference_cost().to_string()));
        let agreed = [(2, "$0.05"), (3, "$0.15"), (5, "$0.30")];
        assert_eq!(costs, agreed.map(|(members, cost)| (members, cost.to_owned())));
        let held = [2, 3, 4, 5].map(Size::holding);
        assert_eq!(held, [Size::Minimal, Size::Standard, Size::Full, Size::Full]);
    }

    #[test]
    fn councils_that_cannot_work_are_refused() {
        let quorum = |agree, of| Err(InvalidCouncil::Quorum { agree, of });
        assert_eq!(with(|p| p.quorum = Quorum { agree: 1, of: 3 }), quorum(1, 3));
        assert_eq!(with(|p| p.quorum = Quorum { agree: 4, of: 3 }), quorum(4, 3));
        let family = |p: &mut CouncilPolicy| p.models[2] = Member::new("gpt", "gemini");
        assert_eq!(with(family), Err(InvalidCouncil::TooFewLineages { of: 3, lineages: 2 }));
        let twice = Err(InvalidCouncil::ModelTwice { model: ModelName("gemini".into()) });
        assert_eq!(with(|p| p.models.push(Member::new("gemini", "x"))), twice);
        assert_eq!(with(|p| p.weights.tests = 21), Err(InvalidCouncil::Weights { sum: 101 }));
        let short = Err(InvalidCouncil::TooShort { timeout_ms: 10 });
        assert_eq!(with(|p| p.timeout_ms = 10), short);
        let share = Err(InvalidCouncil::Permille("caught_permille_min"));
        assert_eq!(with(|p| p.lazy.caught_permille_min = 1_001), share);
        assert_eq!(with(|p| p.lazy.drill_every = 0), Err(InvalidCouncil::NoDrills));
        let defect = |file: &str, text: &str| Defect { file: file.into(), text: text.into() };
        assert_eq!(with(|p| p.defects = vec![defect("src/a.rs", "i <= n"); 50]), Ok(()));
        let many = Err(InvalidCouncil::TooManyDefects { count: 51, max: 50 });
        assert_eq!(with(|p| p.defects = vec![defect("src/a.rs", "i <= n"); 51]), many);
        let bad = |file: &str| Err(InvalidCouncil::BadDefect { file: file.into(), max: 10_000 });
        assert_eq!(with(|p| p.defects = vec![defect("../a", "i <= n")]), bad("../a"));
        assert_eq!(with(|p| p.defects = vec![defect("a", " ")]), bad("a"));
        let many = Err(InvalidCouncil::TooManyModels { count: 21, max: 20 });
        assert_eq!(with(|p| p.models = vec![Member::new("a", "a"); 21]), many);
        let bad =
            |model: &str| Err(InvalidCouncil::BadName { model: ModelName(model.into()), max: 60 });
        assert_eq!(with(|p| p.judge.model = ModelName(" ".into())), bad(" "));
    }
}
