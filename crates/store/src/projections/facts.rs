//! Rows that tell what happened: attempts, costs, checks, questions and approvals, as the events
//! have it.

use std::collections::BTreeMap;

use kapelle_core::command::CheckResult;
use kapelle_core::event::{Chore, Interruption};
use kapelle_core::failure::Failure;
use kapelle_core::mission::MissionStage;
use kapelle_core::report::{Question, Usage};
use kapelle_core::state::Live;
use kapelle_core::{
    Actor, AgentId, Commit, Event, Fence, MissionId, Record, Role, Seq, State, TaskId, Timestamp,
};
use rusqlite::{Connection, Params, named_params, params};

use super::rows::{add_agent, time};
use crate::error::Error;
use crate::sqlite::clamped;

/// Writes what the record adds to the past. `state` is the one before it.
pub(super) fn write(conn: &Connection, state: &State, record: &Record) -> Result<(), Error> {
    let told = Telling { conn, state, seq: record.seq, at: record.at };
    match &record.event {
        Event::TeamChanged { seats, .. } => told.seats(seats),
        Event::AgentAdded { agent, .. } => add_agent(conn, *agent),
        Event::LeaseGranted { .. } => told.attempt(&record.event),
        Event::LeaseRenewed { fence, expires_at } => told.run(
            "UPDATE attempts SET expires_at = ?2 WHERE fence = ?1",
            params![clamped(fence.0), time(*expires_at)],
        ),
        Event::CostCharged { task, fence, usd, usage } => {
            told.cost(*task, *fence, clamped(usd.as_micros()), usage)
        }
        Event::AttemptFinished { fence, change, .. } => {
            told.end_attempt(*fence, "finished", Some(change), Ending::default())
        }
        Event::AttemptFailed { fence, failure, .. } => {
            let ending = Ending { failure: Some(failure), ..Ending::default() };
            told.end_attempt(*fence, "failed", None, ending)
        }
        Event::AttemptInterrupted { fence, cause, .. } => {
            let ending = Ending { interruption: Some(*cause), ..Ending::default() };
            told.end_attempt(*fence, "interrupted", None, ending)
        }
        Event::AttemptAbandoned { fence, failure, .. } => {
            let ending = Ending { failure: Some(failure), ..Ending::default() };
            told.end_attempt(*fence, "interrupted", None, ending)
        }
        Event::CheckpointRaised { task, fence, question, change } => {
            told.end_attempt(*fence, "asked", change.as_ref(), Ending::default())?;
            told.question(*task, *fence, question)
        }
        Event::CheckpointAnswered { task, input, by, .. } => told.answer(*task, input, by),
        Event::ChecksFinished { task, fence, commit, results } => {
            // Of journals from before there were lanes.
            let candidate = match state.live(*fence) {
                Some(Live::Chore { chore: Chore::LaneTest(_), .. }) => "candidate",
                _ => "gate",
            };
            told.checks(*task, candidate, commit, results)
        }
        Event::LaneTested { lane, mission, candidate, results, .. } => {
            let queue = state.mission(*mission).and_then(|mission| mission.merge_queue());
            let first = queue.and_then(|queue| queue.members(*lane).first().copied());
            first.map_or(Ok(()), |task| told.checks(task, "candidate", candidate, results))
        }
        Event::ChangeConflicted { task, question, .. } => match question {
            Some(question) => told.question_of_queue(*task, question),
            None => Ok(()),
        },
        // What was proposed is not what will be.
        Event::RollbackStarted { mission, .. } => told.run(
            "UPDATE approvals SET status = 'cancelled', ended_at = ?2
            WHERE mission_id = ?1 AND status = 'pending'",
            params![mission.to_string(), time(told.at)],
        ),
        Event::DeliveryProposed { mission, commit } => told.propose(*mission, commit),
        Event::DeliveryApproved { mission, by, .. } => told.run(
            "UPDATE approvals SET status = 'approved', approved_by = ?2, approved_at = ?3
            WHERE mission_id = ?1 AND status = 'pending'",
            params![mission.to_string(), by.0, time(told.at)],
        ),
        Event::DeliveryRefused { mission, reason, .. } => told.refuse(*mission, reason),
        Event::MissionDelivered { mission, .. } => told.run(
            "UPDATE approvals SET status = 'delivered', ended_at = ?2
            WHERE mission_id = ?1 AND status = 'approved'",
            params![mission.to_string(), time(told.at)],
        ),
        Event::MissionCancelled { mission, .. } => told.cancel(*mission),
        Event::AgentRetired { .. }
        | Event::ScaleRefused { .. }
        | Event::QueueBackedUp { .. }
        | Event::RateUseReported { .. }
        | Event::SettingsChanged { .. }
        | Event::SessionStarted
        | Event::CapRaised { .. }
        | Event::SpendingWarned { .. }
        | Event::BurnAlerted { .. }
        | Event::SpendingPaused { .. }
        | Event::SpendingStopped
        | Event::SpendingResumed { .. }
        | Event::ReservationReleased { .. }
        | Event::FilesLocked { .. }
        | Event::LocksExpired { .. }
        | Event::PrioritySet { .. }
        | Event::ProviderParked { .. }
        | Event::ProviderBack { .. }
        | Event::BreakerMoved { .. }
        | Event::MissionOpened { .. }
        | Event::PlanAccepted { .. }
        | Event::PlanWarned { .. }
        | Event::PlanBatched { .. }
        | Event::MissionEstimated { .. }
        | Event::OperationCompleted { .. }
        | Event::ChecklistMade { .. }
        | Event::StepCompleted { .. }
        | Event::TaskReported { .. }
        | Event::MissionPaused { .. }
        | Event::MissionResumed { .. }
        | Event::ChangeRejected { .. }
        | Event::RetryScheduled { .. }
        | Event::BackoffEnded { .. }
        | Event::TroubleMet { .. }
        | Event::TaskDeadLettered { .. }
        | Event::TaskBlocked { .. }
        | Event::TaskUnblocked { .. }
        | Event::TaskRequeued { .. }
        | Event::PersonNotified { .. }
        | Event::ChoreStarted { .. }
        | Event::ChoreFailed { .. }
        | Event::ChoreDue { .. }
        | Event::ChoreWithdrawn { .. }
        | Event::BranchPrepared { .. }
        | Event::PhaseAccepted { .. }
        | Event::CandidateBuilt { .. }
        | Event::CandidateRejected { .. }
        | Event::CandidatePassed { .. }
        | Event::TaskMerged { .. }
        | Event::BranchMoved { .. }
        | Event::LaneFormed { .. }
        | Event::LaneBuilt { .. }
        | Event::LanePassed { .. }
        | Event::LaneLanded { .. }
        | Event::ChangeRebased { .. }
        | Event::TargetMoved { .. }
        | Event::BaselineMeasured { .. }
        | Event::RollbackFailed { .. }
        | Event::RevertBuilt { .. }
        | Event::TaskRolledBack { .. } => Ok(()),
    }
}

struct Telling<'a> {
    conn: &'a Connection,
    state: &'a State,
    seq: Seq,
    at: Timestamp,
}

/// Why an attempt ended, if not by being done.
#[derive(Default)]
struct Ending<'a> {
    failure: Option<&'a Failure>,
    interruption: Option<Interruption>,
}

impl Telling<'_> {
    fn run(&self, sql: &str, params: impl Params) -> Result<(), Error> {
        self.conn.prepare_cached(sql)?.execute(params)?;
        Ok(())
    }

    fn mission_of(&self, task: TaskId) -> Option<String> {
        self.state.task(task).map(|task| task.mission.to_string())
    }

    /// A seat that comes and goes within one batch has been there all the same.
    fn seats(&self, seats: &BTreeMap<Role, u32>) -> Result<(), Error> {
        for (&role, &count) in seats {
            (1..=count).try_for_each(|seat| add_agent(self.conn, AgentId { role, seat }))?;
        }
        Ok(())
    }

    fn attempt(&self, event: &Event) -> Result<(), Error> {
        let Event::LeaseGranted {
            task,
            fence,
            agent,
            phase,
            base,
            reserved,
            granted_at,
            expires_at,
            deadline,
            ..
        } = event
        else {
            return Ok(());
        };
        add_agent(self.conn, *agent)?;
        self.run(
            "INSERT INTO attempts (fence, mission_id, task_id, agent, phase, status, base_commit,
                reserved_usd_micros, started_at, expires_at, deadline)
            VALUES (:fence, :mission, :task, :agent, :phase, 'running', :base, :reserved,
                :started_at, :expires_at, :deadline)",
            named_params! {
                ":fence": clamped(fence.0),
                ":mission": self.mission_of(*task),
                ":task": task.0,
                ":agent": agent.to_string(),
                ":phase": phase.name(),
                ":base": base.as_str(),
                ":reserved": clamped(reserved.as_micros()),
                ":started_at": time(*granted_at),
                ":expires_at": time(*expires_at),
                ":deadline": time(*deadline),
            },
        )
    }

    fn end_attempt(
        &self,
        fence: Fence,
        status: &str,
        change: Option<&Commit>,
        Ending { failure, interruption }: Ending<'_>,
    ) -> Result<(), Error> {
        let interruption = interruption.and_then(|cause| match cause {
            Interruption::HostRestarted => Some("host_restarted"),
            Interruption::LeaseExpired => Some("lease_expired"),
            Interruption::MissionPaused => Some("mission_paused"),
            // The table has no word for it yet.
            Interruption::ProviderParked => None,
        });
        self.run(
            "UPDATE attempts SET status = :status, change_commit = :change, failure_kind = :kind,
                failure_message = :message, interrupted_because = :cause, ended_at = :ended_at
            WHERE fence = :fence",
            named_params! {
                ":fence": clamped(fence.0),
                ":status": status,
                ":change": change.map(Commit::as_str),
                ":kind": failure.map(|failure| failure.kind.name()),
                ":message": failure.map(|failure| failure.message.as_str()),
                ":cause": interruption,
                ":ended_at": time(self.at),
            },
        )
    }

    fn cost(&self, task: TaskId, fence: Fence, usd: i64, usage: &[Usage]) -> Result<(), Error> {
        let seq = clamped(self.seq.0);
        let agent = self.state.lease(fence).map(|lease| lease.agent.to_string());
        let fence = clamped(fence.0);
        self.run(
            "INSERT INTO costs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![seq, self.mission_of(task), task.0, fence, agent, usd, time(self.at)],
        )?;
        let more = "UPDATE attempts SET cost_usd_micros = cost_usd_micros + ?2 WHERE fence = ?1";
        self.run(more, params![fence, usd])?;
        let more = "UPDATE agents SET cost_usd_micros = cost_usd_micros + ?2 WHERE name = ?1";
        self.run(more, params![agent, usd])?;
        for (position, used) in (0_i64..).zip(usage) {
            let (input, output) = (clamped(used.input_tokens), clamped(used.output_tokens));
            self.run(
                "INSERT INTO model_usage VALUES (?1, ?2, ?3, ?4, ?5)",
                params![seq, position, used.model, input, output],
            )?;
        }
        Ok(())
    }

    fn question(&self, task: TaskId, fence: Fence, question: &Question) -> Result<(), Error> {
        let (seq, fence) = (clamped(self.seq.0), clamped(fence.0));
        let options = serde_json::json!(question.options).to_string();
        self.run(
            "INSERT INTO checkpoints (seq, mission_id, task_id, fence, resume_id, question,
                options, status, asked_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'open', ?8)",
            params![
                seq,
                self.mission_of(task),
                task.0,
                fence,
                question.resume_id,
                question.message,
                options,
                time(self.at)
            ],
        )
    }

    /// The merge queue asks about what the last attempt left.
    fn question_of_queue(&self, task: TaskId, question: &Question) -> Result<(), Error> {
        let mut last =
            self.conn.prepare_cached("SELECT max(fence) FROM attempts WHERE task_id = ?1")?;
        let fence: i64 = last.query_row(params![task.0], |row| row.get(0))?;
        self.question(task, Fence(fence.unsigned_abs()), question)
    }

    fn answer(&self, task: TaskId, input: &str, by: &Actor) -> Result<(), Error> {
        self.run(
            "UPDATE checkpoints SET status = 'answered', answer = ?2, answered_by = ?3,
                ended_at = ?4
            WHERE task_id = ?1 AND status = 'open'",
            params![task.0, input, by.0, time(self.at)],
        )
    }

    fn checks(
        &self,
        task: TaskId,
        kind: &str,
        commit: &Commit,
        results: &[CheckResult],
    ) -> Result<(), Error> {
        for (position, result) in (0_i64..).zip(results) {
            self.run(
                "INSERT INTO checks VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                params![
                    clamped(self.seq.0),
                    position,
                    self.mission_of(task),
                    task.0,
                    kind,
                    commit.as_str(),
                    result.name,
                    result.passed,
                    result.output,
                    clamped(result.duration_ms),
                    time(self.at)
                ],
            )?;
        }
        Ok(())
    }

    fn propose(&self, mission: MissionId, commit: &Commit) -> Result<(), Error> {
        self.run(
            "INSERT INTO approvals (seq, mission_id, commit_hash, status, proposed_at)
            VALUES (?1, ?2, ?3, 'pending', ?4)",
            params![clamped(self.seq.0), mission.to_string(), commit.as_str(), time(self.at)],
        )
    }

    /// The target did not take what was approved; the same commit waits for a new approval.
    fn refuse(&self, mission: MissionId, reason: &str) -> Result<(), Error> {
        self.run(
            "UPDATE approvals SET status = 'refused', refused_because = ?2, ended_at = ?3
            WHERE mission_id = ?1 AND status = 'approved'",
            params![mission.to_string(), reason, time(self.at)],
        )?;
        match self.state.mission(mission).map(|mission| &mission.stage) {
            Some(MissionStage::Approved { commit, .. }) => self.propose(mission, commit),
            _ => Ok(()),
        }
    }

    /// A cancelled mission ends everything that was open for it, without an event for each.
    fn cancel(&self, mission: MissionId) -> Result<(), Error> {
        for (table, open) in [
            ("attempts", "status = 'running'"),
            ("checkpoints", "status = 'open'"),
            ("approvals", "status IN ('pending', 'approved')"),
        ] {
            let sql = format!(
                "UPDATE {table} SET status = 'cancelled', ended_at = ?2
                WHERE mission_id = ?1 AND {open}"
            );
            self.run(&sql, params![mission.to_string(), time(self.at)])?;
        }
        Ok(())
    }
}
