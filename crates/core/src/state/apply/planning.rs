//! Plans while they are carried out: batches, gaps, operations, steps and reports.

use crate::checklist::Checklist;
use crate::event::Event;
use crate::ids::{AgentId, MissionId, Role, TaskId};
use crate::plan::batch::Batch;
use crate::state::State;
use crate::task::{Said, Stage};

impl State {
    /// The arms of `apply` about plans under way; it names each of them, so none is forgotten.
    pub(in crate::state) fn apply_to_plans(&mut self, event: &Event) {
        let at = self.at;
        match event {
            Event::PlanBatched { mission, batches } => self.batch(*mission, batches),
            Event::MissionEstimated { mission, estimate } => {
                self.with_mission(*mission, |m| m.estimate = Some(estimate.clone()));
            }
            Event::OperationCompleted { task, index, change, .. } => {
                self.forget_losses(*task);
                self.with_task(*task, |t| {
                    t.operations.completed(*index);
                    t.unfinished = Some(Box::new(change.clone()));
                });
            }
            Event::ChecklistMade { task, steps, .. } => {
                self.with_task(*task, |t| {
                    t.checklist = Checklist::new(steps.clone()).ok().map(Box::new);
                    if let (Some(list), Stage::Working { .. }) = (&mut t.checklist, &t.stage) {
                        list.begun(at);
                    }
                });
            }
            Event::StepCompleted { task, step, by, change, .. } => {
                self.with_task(*task, |t| {
                    t.leave_off_at(change.as_ref());
                    if let Some(list) = &mut t.checklist {
                        list.completed(*step, by.clone(), at);
                    }
                });
            }
            Event::TaskReported {
                task,
                message,
                verification_result,
                red,
                rollback_possible,
                ..
            } => {
                let said = Said {
                    message: message.clone(),
                    verification_result: verification_result.clone(),
                    red: red.clone(),
                };
                self.with_task(*task, |t| {
                    t.said = Some(Box::new(said));
                    t.irreversible |= *rollback_possible == Some(false);
                });
            }
            // Advice is for people.
            _ => {}
        }
    }

    /// A plan for what was missing: there is work again.
    pub(in crate::state) fn add_gap(&mut self, mission: MissionId, first: TaskId, count: u32) {
        self.with_mission(mission, |m| {
            m.gaps.planned();
        });
        self.withdraw_proposal(mission);
        if self.mission(mission).is_some_and(|m| m.tip.is_some()) {
            for number in first.0..first.0.saturating_add(count) {
                self.release_if_free(TaskId(number));
            }
        }
    }

    /// Tasks of a batch are done one after the other: each waits for the one before it to end,
    /// well or not.
    fn batch(&mut self, mission: MissionId, batches: &[Batch]) {
        let Some(owner) = self.mission(mission) else { return };
        let ids = |batch: &Batch| -> Vec<TaskId> {
            batch.tasks.iter().filter_map(|name| owner.names.get(name).copied()).collect()
        };
        for batch in batches.iter().map(ids).collect::<Vec<_>>() {
            for pair in batch.windows(2) {
                if self.task(pair[1]).is_some_and(|t| t.stage == Stage::Ready) {
                    self.move_to(pair[1], Stage::Waiting);
                }
                let waits = self.task(pair[1]).is_some_and(|t| t.stage == Stage::Waiting);
                let comes = self.task(pair[0]).is_some_and(|t| !t.stage.is_final());
                if waits && comes {
                    self.with_task(pair[0], |t| t.next_in_batch = Some(pair[1]));
                    self.with_task(pair[1], |t| {
                        t.waits_for += 1;
                        t.before_in_batch = Some(pair[0]);
                    });
                }
            }
        }
    }

    /// The task has come to its end: whoever comes next in its batch has its turn.
    pub(in crate::state) fn pass_turn(&mut self, id: TaskId) {
        let mut next = None;
        self.with_task(id, |task| next = task.next_in_batch.take());
        let Some(next) = next else { return };
        self.with_task(next, |task| task.waits_for = task.waits_for.saturating_sub(1));
        self.release_if_free(next);
    }

    /// An agent works on the task: it has the story, if that was nobody's.
    pub(in crate::state) fn note_hand(&mut self, id: TaskId, agent: AgentId) {
        self.with_task(id, |task| {
            task.agents.retain(|known| known.role != agent.role);
            task.agents.push(agent);
        });
        if let (Some(name), Role::Developer) = (self.named_in_story(id), agent.role) {
            self.with_mission_of(id, |m| m.convoys.taken(&name, agent));
        }
    }

    /// The task has come to its end, and with it perhaps its story.
    pub(in crate::state) fn close_story(&mut self, id: TaskId) {
        if let Some(name) = self.named_in_story(id) {
            self.with_mission_of(id, |m| m.convoys.finished(&name));
        }
    }

    /// What a task of a user story is called. Most missions have no stories, and that is known
    /// without a look at the plan.
    fn named_in_story(&self, id: TaskId) -> Option<String> {
        let (task, mission) = self.task_and_mission(id)?;
        let told = !mission.convoys.list().is_empty() && task.plan.user_story.is_some();
        told.then(|| task.plan.id.clone())
    }
}
