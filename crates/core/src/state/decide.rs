//! Decisions: one arm a command. Each returns what happened, or why nothing did.

use super::{Lease, Live, State};
use crate::command::Command;
use crate::event::{Chore, Event};
use crate::ids::{Fence, MissionId, TaskId};
use crate::mission::Mission;
use crate::refusal::Refusal;
use crate::task::Task;
use crate::time::Timestamp;

pub(super) type Decision = Result<Vec<Event>, Refusal>;

impl State {
    /// Decides on a command at the moment `now`, without changing anything.
    pub fn decide(&self, command: &Command, now: Timestamp) -> Result<Vec<Event>, Refusal> {
        match command {
            Command::OpenMission { request, goal, target, base, plan, policy, by } => {
                self.open(request, goal, (target, base), (plan, policy), by, now)
            }
            Command::ProposeGaps { mission, plan, by } => self.propose_gaps(*mission, plan, by),
            Command::CompleteOperation { fence, index, change } => {
                self.complete_operation(*fence, *index, change, now)
            }
            Command::MakeChecklist { fence, breakdown } => self.make_checklist(*fence, breakdown),
            Command::CompleteStep { fence, step, notes, change } => {
                self.complete_step(*fence, (step, notes), change.as_ref(), now)
            }
            Command::ReportTask { fence, report } => self.report_task(*fence, report),
            Command::PauseMission { mission, reason, by } => self.pause(*mission, reason, by),
            Command::ResumeMission { mission, by } => self.resume(*mission, by),
            Command::CancelMission { mission, reason, by } => {
                self.cancel(*mission, reason, by, now)
            }
            Command::AnswerCheckpoint { task, resume_id, input, by } => {
                self.answer(*task, resume_id, input, by)
            }
            Command::ApproveDelivery { mission, commit, by } => self.approve(*mission, commit, by),
            Command::ConfigureTeam { seats, workers_max, by } => {
                self.configure_team(seats, *workers_max, by)
            }
            Command::Scale { role, change, by } => self.scale(*role, change, by, now),
            Command::ReportMachine { used } => Ok(self.report_machine(*used)),
            Command::ReportRateUse { permille } => Ok(self.report_rate_use(*permille, now)),
            Command::RollbackTask { task, reason, by } => self.rollback(*task, reason, by),
            Command::ConfirmRollback { task, tasks, reason, by } => {
                self.confirm_rollback(*task, tasks, reason, by)
            }
            Command::ChangeSettings { settings, by } => self.change_settings(settings, by),
            Command::RaiseCap { mission, limit, usd, reason, by } => {
                self.raise_cap(*mission, *limit, *usd, reason, by)
            }
            Command::ResumeSpending { by } => self.resume_spending(by),
            Command::ReportSpending { fence, spent } => self.report_spending(*fence, spent, now),
            Command::CloseBills => Ok(self.close_bills()),
            Command::AssignRole { person, role, by } => self.assign(person, *role, by),
            Command::Approve { subject, commit, by } => self.approve_gate(*subject, commit, by),
            Command::Reject { subject, commit, reason, by } => {
                self.reject_gate(*subject, commit, (reason, by), now)
            }
            Command::Override { order } => self.order(order, now),
            Command::SecondOverride { task, by } => self.second(*task, by, now),
            Command::RequeueTask { task, reason, by } => self.requeue(*task, reason, by, now),
            Command::ConveneCouncil { task, question, panel, by } => {
                self.convene_by_hand(*task, question, panel, by, now)
            }
            Command::CastVote { council, vote, spent } => {
                self.cast_vote(*council, vote, *spent, now)
            }
            Command::JudgeCouncil { council, findings, spent } => {
                self.judge_council(*council, findings, *spent, now)
            }
            Command::SetPriority { task, priority, by } => self.prioritise(*task, *priority, by),
            Command::UnparkProvider { provider, by } => self.unpark(provider, by),
            Command::ResetBreaker { key, by } => self.reset_breaker(key, by),
            Command::HostStarted => Ok(self.interrupt_all()),
            Command::StopHost => Ok(self.stop_host()),
            Command::Heartbeat { fences } => Ok(self.renew(fences, now)),
            Command::ReportCheck { fence, check, news } => self.note_check(*fence, check, *news),
            Command::ReportOutput { heard } => Ok(self.report_output(heard, now)),
            Command::FinishAttempt { fence, outcome, spent } => {
                self.finish_attempt(*fence, outcome, spent, now)
            }
            Command::OpenSubAgent { fence, of, usd_max } => {
                self.open_sub_agent(*fence, *of, *usd_max)
            }
            Command::CloseSubAgent { fence, sub_agent, spent } => {
                self.close_sub_agent(*fence, *sub_agent, spent, now)
            }
            Command::FinishBranch { fence, tip } => self.finish_branch(*fence, tip),
            Command::FinishChecks { fence, results } => self.finish_checks(*fence, results, now),
            Command::FinishLane { fence, outcome } => self.finish_lane(*fence, outcome, now),
            Command::FinishRewrite { fence, outcome } => self.finish_rewrite(*fence, outcome, now),
            Command::FinishAdvance { fence, outcome } => self.finish_advance(*fence, outcome, now),
            Command::FinishDelivery { fence, outcome } => {
                self.finish_delivery(*fence, outcome, now)
            }
            Command::FailChore { fence, failure } => self.fail_chore(*fence, failure, now),
            Command::Tick => Ok(self.tick(now)),
        }
    }

    pub(super) fn mission_or_refuse(&self, id: MissionId) -> Result<&Mission, Refusal> {
        self.mission(id).ok_or(Refusal::UnknownMission(id))
    }

    pub(super) fn task_or_refuse(&self, id: TaskId) -> Result<(&Task, &Mission), Refusal> {
        let task = self.task(id).ok_or(Refusal::UnknownTask(id))?;
        Ok((task, self.mission_or_refuse(task.mission)?))
    }

    pub(super) fn task_and_mission(&self, id: TaskId) -> Option<(&Task, &Mission)> {
        let task = self.task(id)?;
        Some((task, self.mission(task.mission)?))
    }

    /// The mission, if it can still change.
    pub(super) fn open_mission_or_refuse(&self, id: MissionId) -> Result<&Mission, Refusal> {
        let mission = self.mission_or_refuse(id)?;
        if mission.has_ended() {
            return Err(Refusal::MissionEnded { mission: id, status: mission.status() });
        }
        Ok(mission)
    }

    pub(super) fn lease_or_refuse(&self, fence: Fence) -> Result<&Lease, Refusal> {
        match self.live(fence) {
            Some(Live::Attempt(lease)) => Ok(lease),
            Some(Live::Chore { .. }) => {
                Err(Refusal::OtherFence { presented: fence, expected: "an attempt" })
            }
            None => Err(Refusal::StaleFence { presented: fence }),
        }
    }

    pub(super) fn chore_or_refuse(&self, fence: Fence) -> Result<(MissionId, Chore), Refusal> {
        match self.live(fence) {
            Some(Live::Chore { mission, chore }) => Ok((*mission, *chore)),
            Some(Live::Attempt(_)) => {
                Err(Refusal::OtherFence { presented: fence, expected: "a chore" })
            }
            None => Err(Refusal::StaleFence { presented: fence }),
        }
    }
}
