//! What attempts are paid as: work that is done for the first time, or once more because it
//! failed; and what doing it once more will probably cost.

use std::collections::BTreeMap;

use kapelle_core::council::Summons;
use kapelle_core::ledger::Purpose;
use kapelle_core::task::Task;
use kapelle_core::{Event, State, TaskId, Usd};

#[derive(Debug, Default)]
pub(super) struct Trials(BTreeMap<TaskId, Trial>);

#[derive(Debug, Default)]
struct Trial {
    attempts: u64,
    spent: Usd,
    /// The last phase whose work failed and has not been accepted since.
    failed_up_to: Option<usize>,
}

impl Trials {
    /// Takes in an event, with the state as it was before it.
    pub(super) fn observe(&mut self, event: &Event, before: &State) {
        let phase = |task: &TaskId| before.task(*task).map(|task| task.phase);
        match event {
            Event::LeaseGranted { task, .. } => self.of(*task).attempts += 1,
            Event::CostCharged { task, usd: spent, .. }
            | Event::SubAgentClosed { task, spent, .. } => self.of(*task).spent += *spent,
            Event::RetryScheduled { task, .. }
            | Event::CouncilConvened { task, because: Summons::Retries(_), .. } => {
                let failed = phase(task);
                let trial = self.of(*task);
                trial.failed_up_to = trial.failed_up_to.max(failed);
            }
            Event::PhaseAccepted { task, .. } => {
                let accepted = phase(task);
                let trial = self.of(*task);
                trial.failed_up_to = trial.failed_up_to.filter(|last| Some(*last) > accepted);
            }
            Event::TaskRequeued { task, .. } => self.of(*task).failed_up_to = None,
            _ => {}
        }
    }

    /// As what the next attempt at this task is paid, and what it will probably cost, if the
    /// attempts whose bills are awaited may have cost so much.
    pub(super) fn next(&self, task: &Task, attempt: Usd, unbilled: Usd) -> (Purpose, Usd) {
        let Some(trial) = self.0.get(&task.id) else { return (Purpose::Work, attempt) };
        if trial.failed_up_to < Some(task.phase) {
            return (Purpose::Work, attempt);
        }
        let known = (trial.spent + unbilled).as_micros();
        (Purpose::Retry, Usd::micros(known.div_ceil(trial.attempts.max(1))))
    }

    fn of(&mut self, task: TaskId) -> &mut Trial {
        self.0.entry(task).or_default()
    }
}
