//! The step policy: a team size for a range of depths, instead of one agent at a time.

use serde::{Deserialize, Serialize};

use crate::ids::Role;
use crate::limits;
use crate::time::SECOND_MS;

/// Depths up to `depth_max` ask for `agents`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub depth_max: u32,
    pub agents: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StepPolicy {
    /// Whose queue is looked at, and who comes and goes.
    pub role: Role,
    /// By rising depth; the first one is the minimum, the last one the maximum.
    pub steps: Vec<Step>,
    pub cooldown_ms: u64,
}

impl Default for StepPolicy {
    fn default() -> StepPolicy {
        let steps = [(5, 4), (15, 8), (30, 12)];
        let steps = steps.map(|(depth_max, agents)| Step { depth_max, agents }).to_vec();
        StepPolicy { role: Role::Developer, steps, cooldown_ms: 120 * SECOND_MS }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum StepAction {
    Hold,
    ScaleTo {
        agents: u32,
        depth: u32,
    },
    /// One idle agent leaves.
    ScaleDownOne,
    /// The team is as large as it gets and the queue still grows.
    QueueBackup {
        depth: u32,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub enum InvalidSteps {
    #[error("the step policy has no steps")]
    Empty,
    #[error("steps must rise in depth and in agents; step {at} does not")]
    NotRising { at: usize },
    #[error("{agents} agents are more than {}", limits::SEATS_PER_ROLE_MAX)]
    TooMany { agents: u32 },
}

impl StepPolicy {
    pub fn validate(&self) -> Result<(), InvalidSteps> {
        if self.steps.is_empty() {
            return Err(InvalidSteps::Empty);
        }
        let rises = |pair: &[Step]| {
            pair[0].depth_max < pair[1].depth_max && pair[0].agents < pair[1].agents
        };
        match self.steps.windows(2).position(|pair| !rises(pair)) {
            Some(at) => Err(InvalidSteps::NotRising { at: at + 1 }),
            None if self.steps[0].agents == 0 => Err(InvalidSteps::NotRising { at: 0 }),
            None if self.most() > limits::SEATS_PER_ROLE_MAX => {
                Err(InvalidSteps::TooMany { agents: self.most() })
            }
            None => Ok(()),
        }
    }

    fn most(&self) -> u32 {
        self.steps.last().map_or(0, |step| step.agents)
    }

    /// What a queue of `depth` asks for with `agents` there, `idle` of them idle.
    #[must_use]
    pub fn decide(&self, depth: u32, agents: u32, idle: u32) -> StepAction {
        let min = self.steps.first().map_or(1, |step| step.agents);
        let max = self.steps.last().map_or(min, |step| step.agents);
        match self.steps.iter().find(|step| depth <= step.depth_max) {
            Some(step) if agents < step.agents => {
                StepAction::ScaleTo { agents: step.agents, depth }
            }
            None if agents < max => StepAction::ScaleTo { agents: max, depth },
            None => StepAction::QueueBackup { depth },
            Some(_) if depth == 0 && idle > min && agents > min => StepAction::ScaleDownOne,
            Some(_) => StepAction::Hold,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(depth: u32, agents: u32, idle: u32) -> StepAction {
        StepPolicy::default().decide(depth, agents, idle)
    }

    /// T-72, WRK-29: the table, where it and the code of the sources disagree (C-17).
    #[test]
    fn depths_ask_for_the_team_of_the_table() {
        use StepAction::{Hold, QueueBackup, ScaleDownOne, ScaleTo};
        let table = [
            (0, 1, 0, ScaleTo { agents: 4, depth: 0 }),
            (5, 4, 0, Hold),
            (6, 4, 0, ScaleTo { agents: 8, depth: 6 }),
            (15, 8, 0, Hold),
            (16, 8, 0, ScaleTo { agents: 12, depth: 16 }),
            (30, 12, 0, Hold),
            (31, 8, 0, ScaleTo { agents: 12, depth: 31 }),
            (31, 12, 0, QueueBackup { depth: 31 }),
            (1, 12, 12, Hold),
            (0, 12, 5, ScaleDownOne),
            (0, 12, 4, Hold),
            (0, 4, 4, Hold),
        ];
        for (depth, agents, idle, action) in table {
            assert_eq!(decide(depth, agents, idle), action, "{depth} {agents} {idle}");
        }
    }

    #[test]
    fn steps_that_fall_are_refused() {
        let with = |steps: &[(u32, u32)]| {
            let steps = steps.iter().map(|&(depth_max, agents)| Step { depth_max, agents });
            StepPolicy { steps: steps.collect(), ..StepPolicy::default() }.validate()
        };
        assert_eq!(StepPolicy::default().validate(), Ok(()));
        assert_eq!(with(&[]), Err(InvalidSteps::Empty));
        assert_eq!(with(&[(5, 4), (5, 8)]), Err(InvalidSteps::NotRising { at: 1 }));
        assert_eq!(with(&[(5, 4), (9, 4)]), Err(InvalidSteps::NotRising { at: 1 }));
        assert_eq!(with(&[(5, 0)]), Err(InvalidSteps::NotRising { at: 0 }));
        assert_eq!(with(&[(5, 65)]), Err(InvalidSteps::TooMany { agents: 65 }));
    }
}
