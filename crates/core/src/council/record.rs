//! What is kept of each council (CON-13), and what it was good for (CON-19).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::session::Question;
use crate::money::Usd;
use crate::routing::ModelName;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CouncilRecord {
    pub problem_id: String,
    pub problem_type: String,
    pub models_queried: Vec<ModelName>,
    pub winner: Option<ModelName>,
    pub winner_reason: String,
    /// Whether the winner was given back to the agent.
    pub applied: bool,
    pub outcome: Outcome,
    #[serde(flatten)]
    pub question: Question,
    pub cost: Usd,
    pub convened_at: Timestamp,
    pub decided_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Success,
    Failure,
    /// A person had to decide.
    Escalated,
    /// A review or drill: there was nothing to solve.
    Answered,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metrics {
    pub councils: u32,
    /// Problems whose end is known, and those of them that were solved.
    pub ended: u32,
    pub solved: u32,
    pub wins: BTreeMap<ModelName, u32>,
    pub cost: Usd,
    pub solved_cost: Usd,
    pub minutes_saved: u64,
}

impl Metrics {
    pub(super) fn of<'a>(
        records: impl Iterator<Item = &'a CouncilRecord>,
        minutes: u32,
    ) -> Metrics {
        let mut metrics = Metrics::default();
        for record in records {
            metrics.councils += 1;
            metrics.cost += record.cost;
            if let Some(winner) = &record.winner {
                *metrics.wins.entry(winner.clone()).or_default() += 1;
            }
            match record.outcome {
                Outcome::Success => {
                    metrics.ended += 1;
                    metrics.solved += 1;
                    metrics.solved_cost += record.cost;
                    metrics.minutes_saved += u64::from(minutes);
                }
                Outcome::Failure | Outcome::Escalated => metrics.ended += 1,
                Outcome::Answered => {}
            }
        }
        metrics
    }

    /// Rounded to whole percent; None before any problem has ended.
    #[must_use]
    pub fn success_percent(&self) -> Option<u32> {
        (self.ended > 0).then(|| (self.solved * 100 + self.ended / 2) / self.ended)
    }

    #[must_use]
    pub fn cost_per_solution(&self) -> Option<Usd> {
        let solved = u64::from(self.solved);
        (solved > 0).then(|| Usd::micros(self.solved_cost.as_micros() / solved))
    }

    /// Most wins first; equal ones by name.
    #[must_use]
    pub fn ranking(&self) -> Vec<(&ModelName, u32)> {
        let mut ranking: Vec<_> = self.wins.iter().map(|(model, wins)| (model, *wins)).collect();
        ranking.sort_by_key(|(model, wins)| (std::cmp::Reverse(*wins), *model));
        ranking
    }
}

/// As the dashboard shows it.
impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.success_percent() {
            Some(percent) => write!(f, "Success rate: {percent}% ({}/{})", self.solved, self.ended),
            None => f.write_str("Success rate: no problem has ended yet"),
        }
    }
}
