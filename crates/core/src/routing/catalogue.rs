//! Which models there are: editable data.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::work::WorkKind;
use crate::limits;
use crate::rate::Provider;

/// How capable and how dear a model is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    Eco,
    Standard,
    Premium,
}

impl Tier {
    pub const ALL: [Tier; 3] = [Tier::Eco, Tier::Standard, Tier::Premium];

    /// What work costs on it, against Eco (T-57).
    #[must_use]
    pub fn cost_factor(self) -> u64 {
        match self {
            Tier::Eco => 1,
            Tier::Standard => 5,
            Tier::Premium => 20,
        }
    }

    #[must_use]
    pub fn next(self) -> Option<Tier> {
        match self {
            Tier::Eco => Some(Tier::Standard),
            Tier::Standard => Some(Tier::Premium),
            Tier::Premium => None,
        }
    }

    /// How many attempts may run on it at a time: the dearest models work one after the other.
    #[must_use]
    pub fn attempts_max(self) -> Option<u32> {
        match self {
            Tier::Eco | Tier::Standard => None,
            Tier::Premium => Some(1),
        }
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Tier::Eco => "eco",
            Tier::Standard => "standard",
            Tier::Premium => "premium",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A model as the configuration names it, such as `gemini`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ModelName(pub Box<str>);

impl std::ops::Deref for ModelName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<T: Into<Box<str>>> From<T> for ModelName {
    fn from(name: T) -> ModelName {
        ModelName(name.into())
    }
}

/// A family of models, which err alike: two votes of one family are one vote.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lineage(pub Box<str>);

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub name: ModelName,
    pub provider: Provider,
    pub lineage: Lineage,
    pub tier: Tier,
    #[serde(default)]
    pub strengths: BTreeSet<WorkKind>,
    #[serde(default = "yes")]
    pub enabled: bool,
}

fn yes() -> bool {
    true
}

/// The models in the order in which they are preferred, other things being equal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Catalogue(pub Vec<Model>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCatalogue {
    #[error("there is no enabled model")]
    Empty,
    #[error("{count} models are more than {max}")]
    TooMany { count: usize, max: usize },
    #[error("the model {name:?} appears twice")]
    Twice { name: ModelName },
    #[error("the model {name:?} lacks a name, a provider or a lineage, or one is too long")]
    BadName { name: ModelName },
}

impl Catalogue {
    pub fn validate(&self) -> Result<(), InvalidCatalogue> {
        let (count, max) = (self.0.len(), limits::MODELS_MAX);
        if count > max {
            return Err(InvalidCatalogue::TooMany { count, max });
        }
        if !self.0.iter().any(|model| model.enabled) {
            return Err(InvalidCatalogue::Empty);
        }
        let mut names = BTreeSet::new();
        for model in &self.0 {
            let name = model.name.clone();
            let texts = [&model.name.0, &model.provider.0, &model.lineage.0];
            let is_good = |text: &str| {
                !text.trim().is_empty() && text.chars().count() <= limits::MODEL_CHARS_MAX
            };
            if !texts.into_iter().all(|text| is_good(text)) {
                return Err(InvalidCatalogue::BadName { name });
            }
            if !names.insert(&model.name) {
                return Err(InvalidCatalogue::Twice { name });
            }
        }
        Ok(())
    }

    #[must_use]
    pub fn model(&self, name: &str) -> Option<&Model> {
        self.0.iter().find(|model| &*model.name == name)
    }

    pub(super) fn enabled(&self) -> impl Iterator<Item = &Model> {
        self.0.iter().filter(|model| model.enabled)
    }
}

/// The models of the sources with their first strengths (CON-20).
impl Default for Catalogue {
    fn default() -> Catalogue {
        use WorkKind::{
            Analysis, Architecture, BugFix, Chore, Feature, Refactoring, Review, Security, Test,
        };
        let model =
            |name: &str, provider: &str, lineage: &str, tier, strengths: &[WorkKind]| Model {
                name: name.into(),
                provider: Provider::new(provider),
                lineage: Lineage(lineage.into()),
                tier,
                strengths: strengths.iter().copied().collect(),
                enabled: true,
            };
        Catalogue(vec![
            model("claude-haiku", "claude", "claude", Tier::Eco, &[Test, Review]),
            model("gemini-flash", "gemini", "gemini", Tier::Eco, &[Analysis]),
            model("deepseek-chat", "deepseek", "deepseek", Tier::Eco, &[Feature, BugFix]),
            model("codestral", "mistral", "mistral", Tier::Eco, &[Chore, BugFix]),
            model("qwen-coder", "qwen", "qwen", Tier::Eco, &[Chore, BugFix]),
            model("claude-sonnet", "claude", "claude", Tier::Standard, &[Review, Security]),
            model("gpt-codex", "codex", "gpt", Tier::Standard, &[Feature, BugFix]),
            model("gemini-pro", "gemini", "gemini", Tier::Standard, &[Analysis]),
            model("claude-opus", "claude", "claude", Tier::Premium, &[Review, Security]),
            model("gpt-5", "codex", "gpt", Tier::Premium, &[Architecture, Refactoring]),
        ])
    }
}
