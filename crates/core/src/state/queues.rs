//! All queues at a glance, for people who look after everything (OVR-05).

use std::collections::BTreeMap;

use super::State;
use crate::approval::Subject;
use crate::ids::{AgentId, MissionId, Role, TaskId};
use crate::task::Stage;

/// Where every task that is neither blocked nor ended waits or is worked on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queues {
    /// For an agent of the role, best first.
    pub waiting: BTreeMap<Role, Vec<TaskId>>,
    pub at_work: BTreeMap<AgentId, TaskId>,
    /// On their way to the branch.
    pub merging: BTreeMap<MissionId, Vec<TaskId>>,
    /// For people's word, oldest first.
    pub for_approval: Vec<Subject>,
    /// For people's answers.
    pub for_answers: Vec<TaskId>,
    /// Orders that wait for a second person.
    pub for_seconds: Vec<TaskId>,
}

impl State {
    /// A look at everything costs a pass over everything: people ask for it, not the traffic.
    #[must_use]
    pub fn queues(&self) -> Queues {
        let mut queues = Queues {
            at_work: self.leases().map(|(_, lease)| (lease.agent, lease.task)).collect(),
            for_approval: self.approvals.waiting().map(|(gate, _)| gate.subject).collect(),
            for_seconds: self.overrides.tasks().collect(),
            ..Queues::default()
        };
        for role in Role::ALL {
            let waiting = self.waiting_for(role);
            if !waiting.is_empty() {
                queues.waiting.insert(role, waiting);
            }
        }
        for mission in self.missions().filter(|mission| !mission.has_ended()) {
            for task in self.tasks_of(mission) {
                match task.stage {
                    Stage::Asking { .. } => queues.for_answers.push(task.id),
                    Stage::Queued | Stage::Merging { .. } => {
                        queues.merging.entry(mission.id).or_default().push(task.id);
                    }
                    _ => {}
                }
            }
        }
        queues
    }
}
