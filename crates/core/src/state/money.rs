//! Money: what an attempt may cost, what it did cost, and what stops all spending.

use super::apply::tokens_of;
use super::decide::Decision;
use super::people::{person, said};
use super::providers::is_hopeless;
use super::{Bill, Lease, Live, State};
use crate::agents::Permanence;
use crate::approval::Right;
use crate::breaker::BreakerRefusal;
use crate::calendar::utc;
use crate::command::Spending;
use crate::event::{Event, PauseReason};
use crate::ids::{Actor, AgentId, Fence, MissionId, Role, TaskId};
use crate::ledger::{
    Account, Charge, Crew, Drawn, Limit, Purpose, Remedy, Request, Scope, Unit, WatchdogState,
};
use crate::mission::Mission;
use crate::money::Usd;
use crate::queue::HeldBack;
use crate::refusal::Refusal;
use crate::report::Usage;
use crate::routing::{NoRoute, Route, Tier};
use crate::task::Task;
use crate::time::Timestamp;
use crate::{ledger, limits};

/// On what terms an attempt may start.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Terms {
    pub reserved: Usd,
    pub drawn: Drawn,
    pub route: Option<Box<Route>>,
}

/// Why no attempt at a task may start now, although somebody is free to make it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Hindrance {
    #[error(transparent)]
    Money(#[from] ledger::Refusal),
    #[error(transparent)]
    Route(#[from] NoRoute),
    #[error("rate limit until {}", utc(*until))]
    RateLimit { until: Timestamp },
    #[error("a {tier} model is at work already, and those work one after the other")]
    TierFull { tier: Tier },
    #[error(transparent)]
    Breaker(#[from] BreakerRefusal),
    #[error("the team has no {role}")]
    NoSeat { role: Role },
    #[error("its files lie outside of the territory of every {role}")]
    NoTerritory { role: Role },
}

/// Who or what ends a hindrance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cure {
    /// The end of something that is under way.
    Soon,
    /// A person, or a moment that is far away: nobody should wait at the door for it.
    Later,
}

impl State {
    /// Why this task cannot start, if something other than a free agent is missing.
    #[must_use]
    pub fn hindrance(&self, task: &Task) -> Option<Hindrance> {
        let role = task.phase(&self.mission(task.mission)?.policy)?.role();
        self.terms_of_any(task, role, self.at).err()
    }

    /// Whether the team has somebody who could do the task, were they free.
    pub(super) fn could_be_done(&self, task: &Task, role: Role, now: Timestamp) -> bool {
        self.terms_of_any(task, role, now).is_ok()
    }

    /// The terms on which somebody of the role could do the task, were they free; or what stands
    /// in the way of all who may, the soonest to go if they differ.
    fn terms_of_any(&self, task: &Task, role: Role, now: Timestamp) -> Result<Terms, Hindrance> {
        let territories = &self.settings.territories;
        let mut may = self.staying(role).filter(|agent| territories.admits(*agent, &task.files));
        let Some(first) = may.next() else {
            return Err(match self.staying(role).next() {
                None => Hindrance::NoSeat { role },
                Some(_) => Hindrance::NoTerritory { role },
            });
        };
        let mut terms = self.terms(task.id, first, now);
        for other in may {
            let Err(hindrance) = &terms else { break };
            if !hindrance.is_of_agent() {
                break;
            }
            let others = self.terms(task.id, other, now);
            if others.is_ok() || self.cure(hindrance) == Cure::Later {
                terms = others;
            }
        }
        terms
    }

    /// The terms of an attempt at this task, or what stands in its way.
    pub(super) fn terms(
        &self,
        id: TaskId,
        agent: AgentId,
        now: Timestamp,
    ) -> Result<Terms, Hindrance> {
        self.terms_after(id, agent, None, now)
    }

    /// The same, once what that lease holds is free.
    pub(super) fn terms_after(
        &self,
        id: TaskId,
        agent: AgentId,
        ended: Option<&Lease>,
        now: Timestamp,
    ) -> Result<Terms, Hindrance> {
        let Ok((task, mission)) = self.task_or_refuse(id) else {
            return Err(ledger::Refusal::DayClosed.into());
        };
        let route = self.route(task, mission, agent.role, ended)?;
        let reserved = mission.policy.budget.attempt_usd_max;
        let purpose = task.purpose();
        let estimate = match purpose {
            Purpose::Retry => task.mean_cost(),
            Purpose::Work | Purpose::Council => reserved,
        };
        let request = Request {
            account: self.account(task, agent, purpose),
            unit: Unit::Attempt,
            usd: reserved,
            estimate,
            tokens: limits::ATTEMPT_TOKENS_MIN,
        };
        let held = ended.and_then(|lease| lease.reservation);
        let pool = self.ledger.may_reserve_after(&request, held, now)?;
        let drawn = Drawn { pool, purpose, estimate };
        Ok(Terms { reserved, drawn, route })
    }

    /// Pauses a mission that has nothing in flight and cannot start anything by itself.
    pub(super) fn pause_stuck(&self, now: Timestamp) -> Vec<Event> {
        let idle = self.with_ready.iter().filter_map(|id| self.mission(*id));
        let mut idle = idle.filter(|mission| mission.in_flight() == 0 && mission.chores.is_empty());
        let stuck = idle.find_map(|mission| Some((mission, self.stuck(mission, now)?.pauses()?)));
        let Some((mission, reason)) = stuck else { return Vec::new() };
        self.pause_for(mission, reason, Actor::kapelle(), None)
    }

    /// What stands in the way of all work of a mission, if nothing under way will clear it.
    fn stuck(&self, mission: &Mission, now: Timestamp) -> Option<Hindrance> {
        let mut first = None;
        for role in Role::ALL {
            let max = limits::SCHEDULE_LOOKAHEAD_MAX;
            let first_of = self.schedule.queue.first_of(role, mission.id, max);
            for task in first_of.filter_map(|id| self.task(id)) {
                let hindrance = self.terms_of_any(task, role, now).err()?;
                if self.cure(&hindrance) == Cure::Soon {
                    return None;
                }
                first.get_or_insert(hindrance);
            }
        }
        first
    }

    fn cure(&self, hindrance: &Hindrance) -> Cure {
        match hindrance {
            Hindrance::Money(ledger::Refusal::Halted { .. }) => match self.ledger.watchdog() {
                WatchdogState::Stopped { .. } => Cure::Later,
                WatchdogState::Paused { .. } | WatchdogState::Watching => Cure::Soon,
            },
            Hindrance::Money(refusal) => match refusal.remedy() {
                Remedy::WaitForRelease => Cure::Soon,
                Remedy::WaitUntil(_) | Remedy::Escalate | Remedy::Person => Cure::Later,
            },
            Hindrance::Route(refusal) if is_hopeless(refusal) => Cure::Later,
            // Whoever is back in service, or ends, is seen at once.
            Hindrance::Route(_) | Hindrance::RateLimit { .. } | Hindrance::TierFull { .. } => {
                Cure::Soon
            }
            Hindrance::Breaker(_) => Cure::Later,
            Hindrance::NoSeat { role } | Hindrance::NoTerritory { role } => {
                self.cure_by_scaling(*role)
            }
        }
    }

    /// A queue that is long enough brings somebody in time; nobody else comes by themselves.
    fn cure_by_scaling(&self, role: Role) -> Cure {
        let is_looked_at = self.scale_at.contains_key(&role) && self.scaler.refusal(role).is_none();
        if is_looked_at { Cure::Soon } else { Cure::Later }
    }

    /// What the clock and the charges so far demand before anything else starts.
    pub(super) fn alarm(&self, now: Timestamp) -> Option<Event> {
        if let Some(alarm) = self.ledger.alarm(now) {
            let grace_ends_at = now.plus_ms(self.ledger.policy().watchdog.grace_ms);
            return Some(Event::SpendingPaused { alarm, grace_ends_at });
        }
        self.ledger.burn_alert(now).map(|alert| Event::BurnAlerted { alert })
    }

    /// The grace is over: whatever could still spend is ended, and its mission waits for a person.
    pub(super) fn stop_spending(&self, now: Timestamp) -> Vec<Event> {
        let (ended, mut missions) = self.stop_councils(now);
        missions.extend(self.leases().map(|(_, lease)| lease.mission));
        let mut events = vec![Event::SpendingStopped];
        events.extend(ended);
        let open = missions.into_iter().filter_map(|id| self.mission(id));
        for mission in open.filter(|mission| mission.paused.is_none() && !mission.has_ended()) {
            events.extend(self.pause_for(mission, PauseReason::Watchdog, Actor::kapelle(), None));
        }
        events
    }

    pub(super) fn resume_spending(&self, by: &Actor) -> Decision {
        person(by)?;
        self.may(by, Right::Direct)?;
        if self.ledger.watchdog() == WatchdogState::Watching {
            return Err(Refusal::NotHalted);
        }
        let stopped = |mission: &&Mission| mission.paused == Some(PauseReason::Watchdog);
        let resumed = self.missions.iter().filter(stopped);
        let resumed = resumed.map(|m| Event::MissionResumed { mission: m.id, by: by.clone() });
        Ok([Event::SpendingResumed { by: by.clone() }].into_iter().chain(resumed).collect())
    }

    pub(super) fn raise_cap(
        &self,
        id: MissionId,
        limit: Limit,
        asked: Usd,
        reason: &str,
        by: &Actor,
    ) -> Decision {
        self.open_mission_or_refuse(id)?;
        said("the reason", reason, limits::REASON_CHARS_MAX)?;
        person(by)?;
        self.may(by, Right::Direct)?;
        let scope = match limit {
            Limit::Mission => Scope::Mission(id),
            Limit::Retries => Scope::Retries(id),
            _ => return Err(Refusal::NotOfMission { limit }),
        };
        let cap = self.ledger.cap(scope).ok_or(Refusal::NotCapped { limit })?;
        if asked <= cap {
            return Err(Refusal::NotRaised { limit, cap, asked });
        }
        let rule = self.settings.money.caps.mission_usd_max;
        if let Some(cap) = rule.filter(|cap| limit == Limit::Mission && asked > *cap) {
            return Err(Refusal::OverProjectRules { cap, asked });
        }
        let (reason, by) = (reason.to_owned(), by.clone());
        Ok(vec![Event::CapRaised { mission: id, limit, usd: asked, reason, by }])
    }

    /// The bill of an attempt that had ended before it came. It is paid once.
    pub(super) fn report_spending(
        &self,
        fence: Fence,
        spent: &Spending,
        now: Timestamp,
    ) -> Decision {
        match self.live(fence) {
            Some(Live::Attempt(_)) => return Err(Refusal::StillRunning { fence }),
            Some(Live::Chore { .. }) => {
                return Err(Refusal::OtherFence { presented: fence, expected: "an attempt" });
            }
            None => {}
        }
        let bill = self.bills.get(&fence).ok_or(Refusal::StaleFence { presented: fence })?;
        let mut events = self.charge_for(fence, bill.task, bill.reserved, spent, now);
        let mission = self.mission_or_refuse(bill.account.mission)?;
        if spent.usd > bill.reserved && mission.paused.is_none() && !mission.has_ended() {
            let reason = PauseReason::Overspent { reserved: bill.reserved, spent: spent.usd };
            events.extend(self.pause_for(mission, reason, Actor::kapelle(), None));
        }
        Ok(events)
    }

    /// Nobody is left who could send the bills that are awaited: waiting for them would only keep
    /// their money from work. Those that come all the same are paid like every other late bill.
    pub(super) fn close_bills(&self) -> Vec<Event> {
        let died = |bill: &Bill| bill.reservation.is_some_and(|id| self.ledger.is_of_before(id));
        let dead = self.bills.iter().filter(|(_, bill)| died(bill));
        dead.flat_map(|(fence, _)| self.release_bill(*fence)).collect()
    }

    pub(super) fn release_bill(&self, fence: Fence) -> Vec<Event> {
        let Some(bill) = self.bills.get(&fence) else { return Vec::new() };
        let usd = bill.reservation.map_or(Usd::ZERO, |id| self.ledger.remainder(id));
        vec![Event::ReservationReleased { task: bill.task, fence, usd }]
    }

    /// The charge for what an attempt spent, with the warnings that it gives rise to.
    pub(super) fn charge_for(
        &self,
        fence: Fence,
        task: TaskId,
        reserved: Usd,
        spent: &Spending,
        now: Timestamp,
    ) -> Vec<Event> {
        // What is not known is never taken for less than it can be.
        let worst = spent.unpriced.as_ref().map_or(Usd::ZERO, |_| reserved);
        let (usd, usage) = (spent.usd.max(worst), spent.usage.clone());
        let warned = self.warned(fence, usd, &usage, now);
        [Event::CostCharged { task, fence, usd, usage }].into_iter().chain(warned).collect()
    }

    /// The warnings that a charge gives rise to.
    pub(super) fn warned(
        &self,
        fence: Fence,
        usd: Usd,
        usage: &[Usage],
        now: Timestamp,
    ) -> Vec<Event> {
        let charge = self.charge_of(fence, usd, tokens_of(usage), now);
        let warnings = charge.iter().flat_map(|charge| {
            let mission = charge.account.mission;
            let warned = move |warning| Event::SpendingWarned { mission, warning };
            let mut warnings = self.ledger.warnings(charge);
            // The ledger may have a cap of its own for the same money.
            if !warnings.iter().any(|warning| warning.limit == Limit::ScalingDay) {
                warnings.extend(self.warned_of_scaling(charge));
            }
            warnings.into_iter().map(warned)
        });
        warnings.collect()
    }

    /// A charge as the ledger takes it, against a live attempt or one whose bill is awaited.
    pub(super) fn charge_of(
        &self,
        fence: Fence,
        usd: Usd,
        tokens: u64,
        at: Timestamp,
    ) -> Option<Charge> {
        if let Some(bill) = self.bills.get(&fence) {
            let (reservation, account) = (bill.reservation, bill.account.clone());
            return Some(Charge { reservation, account, usd, tokens, began_at: bill.began_at, at });
        }
        let lease = self.lease(fence)?;
        Some(Charge {
            reservation: lease.reservation,
            account: lease.account.clone(),
            usd,
            tokens,
            began_at: lease.granted_at,
            at,
        })
    }

    /// Whose money an attempt at this task by this agent is. An agent that was added because of
    /// the load has its own cap for the day (WRK-27).
    pub(super) fn account(&self, task: &Task, agent: AgentId, purpose: Purpose) -> Account {
        let crew = match self.agents.get(agent).map(|agent| agent.permanence) {
            Some(Permanence::Extra) => Crew::Extra,
            Some(Permanence::Permanent) | None => Crew::Standing,
        };
        Account {
            mission: task.mission,
            task: Some(task.id),
            agent: Some(agent),
            crew,
            purpose,
            priority: task.priority,
        }
    }
}

impl Hindrance {
    /// Whether another agent might be free of it.
    pub(super) fn is_of_agent(&self) -> bool {
        let Hindrance::Money(ledger::Refusal::OverLimit { limit, .. }) = self else { return false };
        matches!(limit, Limit::Agent | Limit::ScalingDay)
    }

    /// What cannot start for the same reason.
    pub(super) fn holds_back(&self) -> HeldBack {
        match self {
            Hindrance::Money(refusal) => holds_back(refusal),
            Hindrance::RateLimit { .. } | Hindrance::Breaker(_) => HeldBack::Mission,
            Hindrance::Route(_)
            | Hindrance::TierFull { .. }
            | Hindrance::NoSeat { .. }
            | Hindrance::NoTerritory { .. } => HeldBack::Class,
        }
    }

    /// None for what nobody pauses for.
    fn pauses(self) -> Option<PauseReason> {
        Some(match self {
            Hindrance::Money(ledger::Refusal::OverLimit {
                limit: Limit::Mission,
                cap,
                spent,
                ..
            }) => PauseReason::Budget { spent, cap },
            Hindrance::Money(ledger::Refusal::Halted { .. }) => PauseReason::Watchdog,
            Hindrance::Money(refusal) => PauseReason::Limit { refusal },
            Hindrance::Route(refusal) => PauseReason::Route { refusal },
            Hindrance::Breaker(refusal) => PauseReason::Breaker { refusal },
            Hindrance::NoSeat { role } => PauseReason::NoSeat { role },
            Hindrance::NoTerritory { role } => PauseReason::NoTerritory { role },
            Hindrance::RateLimit { .. } | Hindrance::TierFull { .. } => return None,
        })
    }
}

/// All attempts of a mission reserve the same; only what they are for, and by whom, differs.
fn holds_back(refusal: &ledger::Refusal) -> HeldBack {
    match refusal {
        ledger::Refusal::OverLimit { limit, .. } => match limit {
            Limit::Mission
            | Limit::Session
            | Limit::Day
            | Limit::Week
            | Limit::Month
            | Limit::Project => HeldBack::Mission,
            // Each is weighed by what it has cost so far, and what one agent may not another may: it
            // is known of nobody but the one who asks.
            Limit::Retries | Limit::Agent | Limit::ScalingDay => HeldBack::Task,
            Limit::Call | Limit::Task | Limit::CouncilDay | Limit::CouncilWeek | Limit::Pool => {
                HeldBack::Class
            }
        },
        ledger::Refusal::TokenBudget { .. }
        | ledger::Refusal::Halted { .. }
        | ledger::Refusal::TooManyOpen { .. }
        | ledger::Refusal::DayClosed => HeldBack::Mission,
        ledger::Refusal::PoolsEmpty { .. }
        | ledger::Refusal::UnknownPrice(_)
        | ledger::Refusal::NoParent { .. }
        | ledger::Refusal::CallDivided { .. }
        | ledger::Refusal::TooDeep { .. }
        | ledger::Refusal::OverParent { .. }
        | ledger::Refusal::TokensOverParent { .. } => HeldBack::Class,
    }
}
