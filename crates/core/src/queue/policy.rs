//! The rules of the queues.

use serde::{Deserialize, Serialize};

use super::score::Points;
use crate::ids::TaskId;
use crate::time::{MINUTE_MS, SECOND_MS, Timestamp};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// By score, but a chain that is longer than all other work goes first. With one agent, or
    /// while chains are short, the order is that of `scored`.
    #[default]
    CriticalPath,
    /// By score; agents get what they know best.
    Scored,
    /// By score; any idle agent takes the next task.
    PriorityFifo,
    /// One task at a time, in the order of the plan.
    Serial,
}

/// What becomes of a ready task while another has one of its files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contention {
    /// Forty points less. Worktrees keep the writers apart; the merge queue settles the rest.
    #[default]
    Deprioritise,
    /// Not started until the files are free. For writers that share one tree (C-10).
    Hold,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preemption {
    Off,
    #[default]
    Critical,
    All,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueuePolicy {
    pub strategy: Strategy,
    pub contention: Contention,
    /// Minutes of estimated duration that cost one point: 1 gives the worked examples, 10 the
    /// formula beside them (C-31).
    pub duration_divisor: u32,
    /// A waiting task gains one point every so often.
    pub ageing_ms_per_point: u64,
    /// A chain is urgent when it is longer than this part of what all open work takes.
    pub urgent_permille: u32,
    /// A task that has waited for so long is not overtaken by urgent chains any more.
    pub overtaken_ms_max: u64,
    /// For a task whose plan does not say.
    pub default_minutes: u32,
    /// How many agents are started at the same time.
    pub launch_batch: u32,
    pub preemption: Preemption,
    /// An attempt younger than this is not asked to yield, so that two tasks do not chase each
    /// other out of one seat.
    pub preempt_after_ms: u64,
    /// With `all`: by how many points the waiting task must be better.
    pub preempt_margin_points: u32,
    /// How often one task may be asked to yield.
    pub preempted_max: u32,
    /// Tasks of which an agent remembers the files.
    pub recent_tasks: u32,
}

impl Default for QueuePolicy {
    fn default() -> QueuePolicy {
        QueuePolicy {
            strategy: Strategy::default(),
            contention: Contention::default(),
            duration_divisor: 1,
            ageing_ms_per_point: MINUTE_MS,
            urgent_permille: 250,
            overtaken_ms_max: 240 * MINUTE_MS,
            default_minutes: 15,
            launch_batch: 6,
            preemption: Preemption::default(),
            preempt_after_ms: 120 * SECOND_MS,
            preempt_margin_points: 60,
            preempted_max: 2,
            recent_tasks: 5,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("queue: {field} must be between {min} and {max}, not {found}")]
pub struct InvalidQueuePolicy {
    pub field: &'static str,
    pub min: u64,
    pub max: u64,
    pub found: u64,
}

impl QueuePolicy {
    pub fn validate(&self) -> Result<(), InvalidQueuePolicy> {
        const DAY_MS: u64 = 24 * 60 * MINUTE_MS;
        let bounds = [
            ("duration_divisor", u64::from(self.duration_divisor), 1, 1_000),
            // Without ageing a stream of better tasks would starve the others (QUE-24).
            ("ageing_ms_per_point", self.ageing_ms_per_point, SECOND_MS, DAY_MS),
            ("urgent_permille", u64::from(self.urgent_permille), 0, 10_000),
            ("overtaken_ms_max", self.overtaken_ms_max, 0, 30 * DAY_MS),
            ("default_minutes", u64::from(self.default_minutes), 1, 10_000),
            ("launch_batch", u64::from(self.launch_batch), 1, 64),
            ("preempt_after_ms", self.preempt_after_ms, SECOND_MS, DAY_MS),
            ("preempt_margin_points", u64::from(self.preempt_margin_points), 1, 1_000),
            ("preempted_max", u64::from(self.preempted_max), 0, 100),
            ("recent_tasks", u64::from(self.recent_tasks), 0, 50),
        ];
        for (field, found, min, max) in bounds {
            if !(min..=max).contains(&found) {
                return Err(InvalidQueuePolicy { field, min, max, found });
            }
        }
        Ok(())
    }

    pub(super) fn ageing_ms_per_tenth(&self) -> u64 {
        (self.ageing_ms_per_point / 10).max(1)
    }

    /// Where a task stands among those that wait with it; greater goes first. A tenth of a point
    /// is worth as much as having come that much earlier.
    pub(super) fn rank(&self, score: Points, entered_at: Timestamp, task: TaskId) -> i64 {
        if self.strategy == Strategy::Serial {
            return -i64::from(task.0);
        }
        let per_tenth = i64::try_from(self.ageing_ms_per_tenth()).unwrap_or(i64::MAX);
        let entered = i64::try_from(entered_at.0).unwrap_or(i64::MAX);
        score.as_tenths().saturating_mul(per_tenth).saturating_sub(entered)
    }
}
