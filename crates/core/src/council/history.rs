//! What was learnt: who is right, who is lazy, who is good at what, and which problems are known.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::brief::ProblemKey;
use super::policy::LazyRule;
use super::record::{CouncilRecord, Metrics};
use crate::limits;
use crate::routing::ModelName;
use crate::time::Timestamp;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRecord {
    pub asked: u32,
    pub won: u32,
    /// Votes on questions whose end is known, and those of them that were right.
    pub judged: u32,
    pub right: u32,
    pub invalid: u32,
    pub late: u32,
    pub drills: u32,
    pub caught: u32,
}

/// An answer to a problem that was solved before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    pub solution: String,
    pub winner: ModelName,
    pub at: Timestamp,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Share {
    asked: u32,
    won: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    models: BTreeMap<ModelName, ModelRecord>,
    by_type: BTreeMap<String, BTreeMap<ModelName, Share>>,
    remembered: BTreeMap<ProblemKey, Remembered>,
    by_age: BTreeSet<(Timestamp, ProblemKey)>,
    records: VecDeque<CouncilRecord>,
}

/// The share of `hits`, in thousandths. With little history it stays near one half.
fn permille(hits: u32, of: u32) -> u32 {
    let share = (u64::from(hits) + 1) * 1_000 / (u64::from(of) + 2);
    u32::try_from(share).unwrap_or(1_000)
}

impl History {
    #[must_use]
    pub fn model(&self, model: &ModelName) -> ModelRecord {
        self.models.get(model).copied().unwrap_or_default()
    }

    /// How far its vote is trusted (CON-10, CON-14).
    #[must_use]
    pub fn trust_permille(&self, model: &ModelName) -> u32 {
        let record = self.model(model);
        permille(record.right, record.judged)
    }

    /// How often it wins on problems of this type.
    #[must_use]
    pub fn affinity_permille(&self, problem_type: &str, model: &ModelName) -> u32 {
        let of_type = self.by_type.get(problem_type).and_then(|models| models.get(model));
        let share = of_type.copied().unwrap_or_default();
        permille(share.won, share.asked)
    }

    /// Whether it votes without looking (CON-04).
    #[must_use]
    pub fn is_lazy(&self, model: &ModelName, rule: &LazyRule) -> bool {
        let record = self.model(model);
        let below = |hits: u32, of: u32, min: u32| {
            of >= rule.seen_min && u64::from(hits) * 1_000 < u64::from(of) * u64::from(min)
        };
        let valid = record.asked.saturating_sub(record.invalid);
        below(record.caught, record.drills, rule.caught_permille_min)
            || below(valid, record.asked, rule.valid_permille_min)
    }

    #[must_use]
    pub fn recall(
        &self,
        key: &ProblemKey,
        remember_ms: u64,
        now: Timestamp,
    ) -> Option<&Remembered> {
        self.remembered.get(key).filter(|known| now.ms_since(known.at) < remember_ms)
    }

    /// The latest, newest last; the journal has all.
    pub fn records(&self) -> impl DoubleEndedIterator<Item = &CouncilRecord> {
        self.records.iter()
    }

    /// Of the councils that were decided since then.
    #[must_use]
    pub fn metrics(&self, since: Timestamp, human_minutes_per_problem: u32) -> Metrics {
        let recent = self.records.iter().filter(|record| record.decided_at >= since);
        Metrics::of(recent, human_minutes_per_problem)
    }

    pub(super) fn asked(&mut self, problem_type: &str, model: &ModelName) {
        self.with(model, |record| record.asked += 1);
        if let Some(share) = self.share(problem_type, model) {
            share.asked = share.asked.saturating_add(1);
        }
    }

    pub(super) fn won(&mut self, problem_type: &str, model: &ModelName) {
        self.with(model, |record| record.won += 1);
        if let Some(share) = self.share(problem_type, model) {
            share.won = share.won.saturating_add(1);
        }
    }

    pub(super) fn with(&mut self, model: &ModelName, change: impl FnOnce(&mut ModelRecord)) {
        if self.models.len() < limits::COUNCIL_TYPES_MAX || self.models.contains_key(model) {
            change(self.models.entry(model.clone()).or_default());
        }
    }

    pub(super) fn record(&mut self, record: CouncilRecord) {
        self.records.push_back(record);
        if self.records.len() > limits::COUNCIL_RECORDS_MAX {
            self.records.pop_front();
        }
    }

    pub(super) fn remember(&mut self, key: ProblemKey, known: Remembered) {
        self.forget(&key);
        self.by_age.insert((known.at, key.clone()));
        self.remembered.insert(key, known);
        if self.remembered.len() > limits::COUNCIL_REMEMBERED_MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.remembered.remove(&oldest);
        }
    }

    pub(super) fn forget(&mut self, key: &ProblemKey) {
        if let Some(known) = self.remembered.remove(key) {
            self.by_age.remove(&(known.at, key.clone()));
        }
    }

    fn share(&mut self, problem_type: &str, model: &ModelName) -> Option<&mut Share> {
        let room = self.by_type.len() < limits::COUNCIL_TYPES_MAX;
        if !room && !self.by_type.contains_key(problem_type) {
            return None;
        }
        Some(
            self.by_type
                .entry(problem_type.to_owned())
                .or_default()
                .entry(model.clone())
                .or_default(),
        )
    }
}
