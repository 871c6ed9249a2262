//! What people ask for: missions, pauses, answers, approvals, the size of the team.

use std::collections::BTreeMap;

use super::decide::Decision;
use super::planning::{around_plan, estimated};
use super::{Live, State};
use crate::approval::{Right, Subject};
use crate::escalation::Resume;
use crate::event::{Event, Interruption, PauseReason};
use crate::ids::{Actor, AgentId, Commit, Fence, MissionId, RequestId, Role, TaskId};
use crate::limits;
use crate::mission::{Mission, MissionStage};
use crate::plan::Plan;
use crate::policy::Policy;
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::task::Stage;
use crate::time::Timestamp;

impl State {
    pub(super) fn open(
        &self,
        request: &RequestId,
        goal: &str,
        (target, base): (&str, &Commit),
        (plan, policy): (&Plan, &Policy),
        by: &Actor,
        now: Timestamp,
    ) -> Decision {
        if let Some(&mission) = self.requests.get(request) {
            return Err(Refusal::MissionExists { mission });
        }
        said("the goal", goal, limits::GOAL_CHARS_MAX)?;
        said("the target branch", target, limits::PATH_CHARS_MAX)?;
        self.may(by, Right::Direct)?;
        policy.validate()?;
        plan.validate_under(&policy.plan)?;
        let mission = MissionId(self.missions.len() as u32 + 1);
        let named = policy.branch.as_ref().map(|template| template.name(mission, goal));
        let branch = named.unwrap_or_else(|| mission.branch());
        let (policy, estimate) = estimated(plan, policy, &self.calibration)?;
        let advice = around_plan(mission, plan, &policy);
        let rules = policy.approvals.as_ref();
        let asked =
            rules.and_then(|rules| self.ask_for_plan((mission, base), rules, &plan.tasks, now));
        let mut events = vec![
            Event::MissionOpened {
                mission,
                request: request.clone(),
                goal: goal.to_owned(),
                target: target.to_owned(),
                base: Box::new(base.clone()),
                branch,
                policy: Box::new(policy),
                by: by.clone(),
                at: now,
            },
            Event::PlanAccepted {
                mission,
                first_task: TaskId(self.tasks.len() as u32 + 1),
                tasks: plan.shared(),
                gap: None,
            },
        ];
        events.extend(asked);
        events.extend(advice);
        let estimate = estimate.map(Box::new);
        events.extend(estimate.map(|estimate| Event::MissionEstimated { mission, estimate }));
        Ok(events)
    }

    pub(super) fn pause(&self, id: MissionId, reason: &str, by: &Actor) -> Decision {
        let mission = self.open_mission_or_refuse(id)?;
        if let Some(PauseReason::Person { .. }) = mission.paused {
            return Err(Refusal::AlreadyPaused { mission: id });
        }
        said("the reason", reason, limits::REASON_CHARS_MAX)?;
        self.directs(by)?;
        let reason = PauseReason::Person { text: reason.to_owned() };
        let paused = self.pause_for(mission, reason, by.clone(), None);
        // What Kapelle paused may go on by itself; from now on it waits for a person.
        let resumed = Event::MissionResumed { mission: id, by: by.clone() };
        let taken_over = mission.paused.is_some().then_some(resumed);
        Ok(taken_over.into_iter().chain(paused).collect())
    }

    /// Pauses a mission and withdraws what is in flight for it, but for `ended`, which has just
    /// ended by itself.
    pub(super) fn pause_for(
        &self,
        mission: &Mission,
        reason: PauseReason,
        by: Actor,
        ended: Option<Fence>,
    ) -> Vec<Event> {
        let live = self.live_of(mission.id).filter(|(fence, _)| Some(*fence) != ended);
        let withdrawn = live.map(|(fence, live)| match live {
            Live::Attempt(lease) => {
                let (task, cause) = (lease.task, Interruption::MissionPaused);
                Event::AttemptInterrupted { task, fence, cause }
            }
            Live::Chore { .. } => Event::ChoreWithdrawn { fence },
        });
        withdrawn.chain([Event::MissionPaused { mission: mission.id, reason, by }]).collect()
    }

    pub(super) fn resume(&self, id: MissionId, by: &Actor) -> Decision {
        let mission = self.open_mission_or_refuse(id)?;
        if mission.paused.is_none() {
            return Err(Refusal::NotPaused { mission: id });
        }
        match mission.paused {
            Some(PauseReason::FailureRate { resume: Resume::Orchestrator, .. }) => {
                self.orchestrates(by)?;
            }
            _ => self.directs(by)?,
        }
        Ok(vec![Event::MissionResumed { mission: id, by: by.clone() }])
    }

    pub(super) fn cancel(
        &self,
        id: MissionId,
        reason: &str,
        by: &Actor,
        now: Timestamp,
    ) -> Decision {
        self.open_mission_or_refuse(id)?;
        said("the reason", reason, limits::REASON_CHARS_MAX)?;
        self.directs(by)?;
        let (reason, by) = (reason.to_owned(), by.clone());
        Ok(vec![Event::MissionCancelled { mission: id, reason, by, at: now }])
    }

    pub(super) fn answer(&self, id: TaskId, resume_id: &str, input: &str, by: &Actor) -> Decision {
        let (task, mission) = self.task_or_refuse(id)?;
        self.open_mission_or_refuse(mission.id)?;
        let Stage::Asking { question } = &task.stage else {
            return Err(Refusal::NotAsking { task: task.name().to_owned() });
        };
        if question.resume_id != resume_id {
            return Err(Refusal::OtherQuestion {
                task: task.name().to_owned(),
                asked: question.resume_id.clone(),
                answered: resume_id.to_owned(),
            });
        }
        said("the answer", input, limits::ANSWER_CHARS_MAX)?;
        self.directs(by)?;
        Ok(vec![Event::CheckpointAnswered {
            task: id,
            resume_id: resume_id.to_owned(),
            input: input.to_owned(),
            by: by.clone(),
        }])
    }

    /// An approval holds for the commit that the person saw, and for no other.
    pub(super) fn approve(&self, id: MissionId, commit: &Commit, by: &Actor) -> Decision {
        let mission = self.open_mission_or_refuse(id)?;
        let MissionStage::Proposed { commit: proposed } = &mission.stage else {
            return Err(Refusal::NothingProposed { mission: id, status: mission.status() });
        };
        if proposed != commit {
            return Err(Refusal::OtherCommit {
                mission: id,
                proposed: Box::new(proposed.clone()),
                approved: Box::new(commit.clone()),
            });
        }
        person(by)?;
        let subject = Subject::Delivery(id);
        let missing = self.approvals.approve(&self.people, subject, commit, by)?;
        let (commit, by) = (commit.clone(), by.clone());
        Ok(vec![match missing {
            0 => Event::DeliveryApproved { mission: id, commit, by },
            _ => Event::ApprovalGiven { subject, commit, by },
        }])
    }

    /// Who works is for people to say: an agent could give itself colleagues otherwise.
    pub(super) fn configure_team(
        &self,
        seats: &BTreeMap<Role, u32>,
        workers_max: u32,
        by: &Actor,
    ) -> Decision {
        person(by)?;
        if let Some(&count) = seats.values().find(|count| **count > limits::SEATS_PER_ROLE_MAX) {
            return Err(Refusal::TooManySeats { count });
        }
        if workers_max == 0 {
            return Err(Refusal::NoWorkers);
        }
        if self.agents.is_configured(seats, workers_max) {
            return Ok(Vec::new());
        }
        self.may(by, Right::Direct)?;
        let (seats, by) = (seats.clone(), Some(by.clone()));
        Ok(vec![Event::TeamChanged { seats, workers_max, by }])
    }

    pub(super) fn change_settings(&self, settings: &Settings, by: &Actor) -> Decision {
        person(by)?;
        self.may(by, Right::Direct)?;
        settings.validate()?;
        if *settings == *self.settings {
            return Ok(Vec::new());
        }
        Ok(vec![Event::SettingsChanged { settings: Box::new(settings.clone()), by: by.clone() }])
    }
}

/// A text that a person must have given, within its limit.
pub(super) fn said(what: &'static str, text: &str, max: usize) -> Result<(), Refusal> {
    if text.trim().is_empty() {
        return Err(Refusal::Missing { what });
    }
    if limits::head(text, max).len() < text.len() {
        return Err(Refusal::TooLong { what, max });
    }
    Ok(())
}

/// Whoever decides must be named, in one line that cannot pass for two.
pub(super) fn signed(by: &Actor) -> Result<(), Refusal> {
    let what = "the name of who decides";
    if by.0.contains(char::is_control) {
        return Err(Refusal::Missing { what });
    }
    said(what, &by.0, limits::TITLE_CHARS_MAX)
}

/// Whoever decides must be a person: neither Kapelle itself nor one of its agents, nor the rules
/// that answer in a person's place.
pub(super) fn person(by: &Actor) -> Result<(), Refusal> {
    signed(by)?;
    if [Actor::kapelle(), Actor::configuration()].contains(by) || by.0.parse::<AgentId>().is_ok() {
        return Err(Refusal::NotAPerson { by: by.0.clone() });
    }
    Ok(())
}
