//! Invariants of money, from a set of books that only knows the journal.
//!
//! Every cap has a purse of its own here. Money that is reserved is charged, given back or still
//! held, to the millionth; an attempt is billed once; nothing starts while spending is stopped.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_core::agents::PERMANENT_ROLES;
use kapelle_core::calendar::Span;
use kapelle_core::council::{Convocation, CouncilId, Size};
use kapelle_core::event::Interruption;
use kapelle_core::ledger::{Drawn, Limit, Policy, Pool, Purpose, Purse, ReservationId, Scope};
use kapelle_core::report::Usage;
use kapelle_core::task::Task;
use kapelle_core::time::MINUTE_MS;
use kapelle_core::{
    AgentId, Command, Event, Fence, MissionId, Record, State, TaskId, Timestamp, Usd,
};

use super::trials::Trials;
use super::{Facts, Verdict, ensure};

#[derive(Debug, Default)]
pub(super) struct Books {
    rules: Policy,
    caps: BTreeMap<MissionId, Usd>,
    retry_caps: BTreeMap<MissionId, Usd>,
    tokens: BTreeMap<MissionId, u64>,
    session: u32,
    purses: BTreeMap<Scope, Purse>,
    claims: BTreeMap<Fence, Claim>,
    /// What sub-agents have of what is reserved for their attempts.
    parts: BTreeMap<ReservationId, Part>,
    /// What is reserved for councils that sit.
    councils: BTreeMap<CouncilId, Claim>,
    /// Attempts that ended without a bill, and whose money was given back.
    unbilled: BTreeMap<Fence, Claim>,
    billed: BTreeSet<Fence>,
    /// A host that has just started has no more bills of those that died with the earlier one.
    closing: bool,
    /// Who was added to the team because of the load.
    extra: BTreeSet<AgentId>,
    trials: Trials,
    flow: Flow,
    minute: Vec<(Timestamp, Usd)>,
    halted: Option<Timestamp>,
    /// Missions of which an attempt spent more than was reserved for it, and which must be paused
    /// before the batch ends.
    to_stop: BTreeSet<MissionId>,
}

/// What was reserved for an attempt, and what of it is left.
#[derive(Debug, Clone)]
struct Claim {
    mission: MissionId,
    /// None of a council.
    task: Option<TaskId>,
    scopes: Vec<Scope>,
    /// All that is not charged yet.
    usd: Usd,
    /// The same without what sub-agents have.
    left: Usd,
    tokens: u64,
    estimate_left: Usd,
    began_at: Timestamp,
    deadline: Timestamp,
    /// Until when the bill is awaited, once the attempt has ended without one.
    awaited: Option<Timestamp>,
}

/// What a sub-agent has, out of its attempt's money or another sub-agent's.
#[derive(Debug, Clone)]
struct Part {
    fence: Fence,
    of: Option<ReservationId>,
    left: Usd,
    estimate_left: Usd,
}

/// All that was ever reserved, and what became of it.
#[derive(Debug, Default)]
struct Flow {
    reserved: u64,
    charged: u64,
    released: u64,
}

impl Books {
    /// What arrives with the next batch.
    pub(super) fn hear(&mut self, inputs: &[Command]) {
        self.closing = inputs.contains(&Command::CloseBills);
    }

    /// `before` is the state without this record.
    pub(super) fn observe(&mut self, record: &Record, facts: &Facts, before: &State) -> Verdict {
        self.judge_purpose(&record.event, before)?;
        self.trials.observe(&record.event, before);
        let at = record.at;
        match &record.event {
            Event::SettingsChanged { settings, .. } => self.rules = settings.money.clone(),
            Event::SessionStarted => self.session += 1,
            Event::AgentAdded { agent, .. } => drop(self.extra.insert(*agent)),
            Event::TeamChanged { seats, .. } => {
                let configured = |agent: &AgentId| {
                    let seats = seats.get(&agent.role).copied().unwrap_or(0);
                    agent.seat <= seats
                        || (agent.seat == 1 && PERMANENT_ROLES.contains(&agent.role))
                };
                self.extra.retain(|agent| !configured(agent));
            }
            Event::MissionOpened { mission, policy, .. } => {
                self.caps.insert(*mission, policy.budget.mission_usd_max);
            }
            Event::CapRaised { mission, limit, usd, .. } => {
                let caps = match limit {
                    Limit::Retries => &mut self.retry_caps,
                    _ => &mut self.caps,
                };
                let before = caps.insert(*mission, *usd);
                ensure(before.is_none_or(|before| before < *usd), || {
                    format!("a cap of {mission} was raised from {before:?} to {usd}")
                })?;
            }
            Event::CouncilConvened { .. } => return self.convene(record, facts),
            Event::CouncilDecided { council, cost, .. } => {
                let overspent = self.pay(*council, *cost, at)?;
                let goes_on =
                    |id: &MissionId| facts.mission(*id).is_ok_and(|m| !m.paused && !m.ended);
                self.to_stop.extend(overspent.filter(goes_on));
            }
            Event::CouncilAbandoned { council, cost, .. }
                if self.councils.contains_key(council) =>
            {
                self.pay(*council, *cost, at)?;
            }
            Event::LeaseGranted { .. } => return self.grant(record, facts),
            Event::CostCharged { task, fence, usd, usage } => {
                let tokens = usage.iter().map(Usage::tokens).sum::<u64>();
                *self.tokens.entry(facts.task(*task)?.mission).or_default() += tokens;
                return self.charge(*task, *fence, *usd, at, facts);
            }
            Event::SubAgentOpened { fence, sub_agent, of, usd, .. } => {
                return self.open_part(*fence, *sub_agent, *of, *usd);
            }
            Event::SubAgentClosed { task, fence, sub_agent, spent, usage } => {
                let tokens = usage.iter().map(Usage::tokens).sum::<u64>();
                *self.tokens.entry(facts.task(*task)?.mission).or_default() += tokens;
                return self.close_part((*fence, *sub_agent), (*spent, tokens), at, facts);
            }
            Event::AttemptFinished { fence, .. }
            | Event::AttemptAbandoned { fence, .. }
            | Event::CheckpointRaised { fence, .. } => {
                return self.release(*fence);
            }
            Event::AttemptFailed { fence, .. } => {
                let timed_out = self.claims.get(fence).is_some_and(|claim| at >= claim.deadline);
                return if timed_out { self.wait(*fence, at) } else { self.release(*fence) };
            }
            Event::AttemptInterrupted { fence, cause, .. } => {
                return match cause {
                    Interruption::HostRestarted
                    | Interruption::Stopped
                    | Interruption::LeaseExpired
                    | Interruption::Overridden
                    | Interruption::MissionPaused
                    | Interruption::WaveFell { .. }
                    | Interruption::NeedTakenBack { .. }
                    | Interruption::GaveWay { .. } => self.wait(*fence, at),
                    Interruption::ProviderParked => self.release(*fence),
                };
            }
            Event::ReservationReleased { fence, usd, .. } => return self.give_up(*fence, *usd, at),
            Event::MissionCancelled { mission, .. } => {
                let of_mission =
                    |claim: &Claim| claim.mission == *mission && claim.awaited.is_none();
                let open = self.claims.iter().filter(|(_, claim)| of_mission(claim));
                let fences: Vec<Fence> = open.map(|(fence, _)| *fence).collect();
                return fences.into_iter().try_for_each(|fence| self.wait(fence, at));
            }
            // A person may have resumed it by the end of the same batch.
            Event::MissionPaused { mission, .. } | Event::MissionDelivered { mission, .. } => {
                self.to_stop.remove(mission);
            }
            Event::SpendingPaused { grace_ends_at, .. } => self.halted = Some(*grace_ends_at),
            Event::SpendingResumed { by } => {
                ensure(by.0 != "kapelle", || "Kapelle resumed spending by itself".into())?;
                self.halted = None;
                self.minute.clear();
            }
            _ => {}
        }
        Ok(())
    }

    fn grant(&mut self, record: &Record, facts: &Facts) -> Verdict {
        let Event::LeaseGranted { task, fence, agent, reserved, reservation, deadline, .. } =
            &record.event
        else {
            return Ok(());
        };
        ensure(self.halted.is_none(), || format!("lease {fence} was granted while halted"))?;
        let of_task = facts.task(*task)?;
        let mission = of_task.mission;
        let attempt = facts.mission(mission)?.policy.budget.attempt_usd_max;
        ensure(*reserved == attempt, || {
            format!("lease {fence} reserves {reserved}, not {attempt}")
        })?;
        let Some(drawn) = reservation else {
            return Err(format!("lease {fence} does not say where its money comes from"));
        };
        let open_to = Pool::open_to(drawn.purpose, of_task.priority);
        ensure(drawn.pool.is_none_or(|pool| open_to.contains(&pool)), || {
            format!("lease {fence} draws on {:?}, which is not for it", drawn.pool)
        })?;
        ensure(drawn.pool.is_some() == self.rules.pools.is_some(), || {
            format!("lease {fence} draws on {:?}", drawn.pool)
        })?;
        ensure(self.has_tokens(mission), || format!("lease {fence} was granted without tokens"))?;
        let scopes = self.scopes(mission, Some(*task), Some(*agent), drawn, record.at);
        for scope in &scopes {
            self.purses.entry(*scope).or_default().reserved +=
                weight(*scope, *reserved, drawn.estimate);
        }
        for scope in &scopes {
            let (purse, cap) = (self.purse(*scope), self.cap(*scope));
            ensure(cap.is_none_or(|cap| purse.committed() <= cap), || {
                let bound = purse.committed();
                format!("lease {fence} was granted: {bound} of {cap:?} are bound in {scope:?}")
            })?;
        }
        self.flow.reserved += reserved.as_micros();
        let claim = Claim {
            mission,
            task: Some(*task),
            scopes,
            usd: *reserved,
            left: *reserved,
            tokens: 1,
            estimate_left: drawn.estimate,
            began_at: record.at,
            deadline: *deadline,
            awaited: None,
        };
        self.claims.insert(*fence, claim);
        Ok(())
    }

    /// Whether a lease is paid as what it is, and a retry weighed by what it may cost.
    fn judge_purpose(&self, event: &Event, before: &State) -> Verdict {
        let Event::LeaseGranted { task, fence, reserved, reservation: Some(drawn), .. } = event
        else {
            return Ok(());
        };
        let Some(of_task) = before.task(*task) else {
            return Err(format!("lease {fence} is for no task"));
        };
        let due = self.trials.next(of_task, *reserved, self.unseen(*task));
        ensure((drawn.purpose, drawn.estimate) == due, || {
            format!(
                "lease {fence} is paid as {:?}, {}; it is {due:?}",
                drawn.purpose, drawn.estimate
            )
        })
    }

    /// What the attempts at a task may have cost whose bills are awaited.
    fn unseen(&self, task: TaskId) -> Usd {
        let awaited = self.claims.values().filter(|claim| claim.awaited.is_some());
        let of_task = awaited.filter(|claim| claim.task == Some(task));
        of_task.fold(Usd::ZERO, |sum, claim| sum + claim.usd)
    }

    /// What a sub-agent gets, its attempt or the sub-agent before it must have.
    fn open_part(
        &mut self,
        fence: Fence,
        id: ReservationId,
        of: Option<ReservationId>,
        usd: Usd,
    ) -> Verdict {
        ensure(self.halted.is_none(), || format!("sub-agent {id} starts while halted"))?;
        let (left, estimate_left) = self.purse_of(fence, of)?;
        ensure(usd > Usd::ZERO && usd <= *left, || {
            format!("sub-agent {id} of {fence} gets {usd} out of {left}")
        })?;
        let estimate = usd.min(*estimate_left);
        *left = minus(*left, usd)?;
        *estimate_left = minus(*estimate_left, estimate)?;
        self.parts.insert(id, Part { fence, of, left: usd, estimate_left: estimate });
        Ok(())
    }

    /// The sum out of which a sub-agent is paid, and the same of the estimate.
    fn purse_of(
        &mut self,
        fence: Fence,
        of: Option<ReservationId>,
    ) -> Result<(&mut Usd, &mut Usd), String> {
        if let Some(id) = of {
            let part = self.parts.get_mut(&id).filter(|part| part.fence == fence);
            let part = part.ok_or_else(|| format!("{fence} has no sub-agent {id}"))?;
            return Ok((&mut part.left, &mut part.estimate_left));
        }
        let claim = self.claims.get_mut(&fence).filter(|claim| claim.awaited.is_none());
        let claim = claim.ok_or_else(|| format!("{fence} has sub-agents, but does not run"))?;
        Ok((&mut claim.left, &mut claim.estimate_left))
    }

    /// Gives back what a sub-agent and all below it have left.
    fn return_part(&mut self, id: ReservationId) -> Verdict {
        let below: Vec<ReservationId> =
            self.parts.iter().filter(|(_, part)| part.of == Some(id)).map(|(id, _)| *id).collect();
        below.into_iter().try_for_each(|id| self.return_part(id))?;
        let part = self.parts.remove(&id).ok_or_else(|| format!("no sub-agent {id} is there"))?;
        let (left, estimate_left) = self.purse_of(part.fence, part.of)?;
        *left += part.left;
        *estimate_left += part.estimate_left;
        Ok(())
    }

    fn return_parts(&mut self, fence: Fence) -> Verdict {
        let direct = |part: &Part| part.fence == fence && part.of.is_none();
        let direct: Vec<ReservationId> =
            self.parts.iter().filter(|(_, part)| direct(part)).map(|(id, _)| *id).collect();
        direct.into_iter().try_for_each(|id| self.return_part(id))
    }

    /// What a sub-agent spent is paid by whoever started it.
    fn close_part(
        &mut self,
        (fence, id): (Fence, ReservationId),
        (usd, tokens): (Usd, u64),
        at: Timestamp,
        facts: &Facts,
    ) -> Verdict {
        let of = self.parts.get(&id).and_then(|part| part.of);
        self.return_part(id)?;
        let (left, estimate_left) = self.purse_of(fence, of)?;
        let (covered, expected) = ((*left).min(usd), (*estimate_left).min(usd));
        *left = minus(*left, covered)?;
        *estimate_left = minus(*estimate_left, expected)?;
        let claim = self.claims.get_mut(&fence).ok_or("a sub-agent of no attempt")?;
        claim.usd = minus(claim.usd, covered)?;
        claim.tokens =
            if of.is_none() { claim.tokens.saturating_sub(tokens) } else { claim.tokens };
        let claim = claim.clone();
        self.spend(&claim.scopes, usd, (covered, expected))?;
        self.note_spent(&claim, usd, at);
        let goes_on = facts.mission(claim.mission).is_ok_and(|m| !m.paused && !m.ended);
        if usd > covered && goes_on {
            self.to_stop.insert(claim.mission);
        }
        Ok(())
    }

    /// Reserved becomes spent, and what nobody reserved is excess.
    fn spend(&mut self, scopes: &[Scope], usd: Usd, (covered, expected): (Usd, Usd)) -> Verdict {
        for scope in scopes {
            let covered = weight(*scope, covered, expected);
            let purse = self.purses.entry(*scope).or_default();
            purse.reserved = minus(purse.reserved, covered)?;
            purse.spent += usd;
            purse.excess += usd.saturating_sub(covered);
        }
        self.flow.charged += covered.as_micros();
        Ok(())
    }

    fn note_spent(&mut self, claim: &Claim, usd: Usd, at: Timestamp) {
        self.minute.push((at, last_minute(usd, claim.began_at, at)));
    }

    fn convene(&mut self, record: &Record, facts: &Facts) -> Verdict {
        let Event::CouncilConvened { council, task, convocation, reservation, .. } = &record.event
        else {
            return Ok(());
        };
        let (number, reserved) = (council.0, convocation.reserved);
        ensure(self.halted.is_none(), || format!("council {number} convenes while halted"))?;
        let agreed = Size::holding(convocation.panel.len()).reference_cost();
        ensure(reserved == agreed, || format!("council {number} has {reserved}, not {agreed}"))?;
        let of_task = facts.task(*task)?;
        let open_to = Pool::open_to(Purpose::Council, of_task.priority);
        let pool = reservation.pool;
        ensure(pool.is_none_or(|pool| open_to.contains(&pool)), || {
            format!("council {number} draws on {pool:?}, which is not for it")
        })?;
        ensure(reservation.purpose == Purpose::Council, || {
            format!("council {number} is paid as {:?}", reservation.purpose)
        })?;
        ensure(self.has_tokens(of_task.mission), || {
            format!("council {number} convenes without tokens")
        })?;
        let scopes = self.scopes(of_task.mission, None, None, reservation, record.at);
        for scope in &scopes {
            self.purses.entry(*scope).or_default().reserved += reserved;
        }
        for scope in &scopes {
            let (bound, cap) = (self.purse(*scope).committed(), self.cap(*scope));
            ensure(cap.is_none_or(|cap| bound <= cap), || {
                format!("council {number} convenes: {bound} of {cap:?} are bound in {scope:?}")
            })?;
        }
        self.flow.reserved += reserved.as_micros();
        let claim = Claim {
            mission: of_task.mission,
            task: None,
            scopes,
            usd: reserved,
            left: reserved,
            tokens: 1,
            estimate_left: reserved,
            began_at: record.at,
            deadline: convocation.deadline,
            awaited: None,
        };
        self.councils.insert(*council, claim);
        Ok(())
    }

    /// The council is paid, and what is left goes back. Its mission, if it cost too much.
    fn pay(
        &mut self,
        council: CouncilId,
        cost: Usd,
        at: Timestamp,
    ) -> Result<Option<MissionId>, String> {
        let claim = self.councils.remove(&council);
        let claim = claim.ok_or_else(|| format!("council {} is paid twice", council.0))?;
        let covered = claim.left.min(cost);
        for scope in claim.scopes {
            let purse = self.purses.entry(scope).or_default();
            purse.reserved = minus(purse.reserved, claim.left)?;
            purse.spent += cost;
            purse.excess += cost.saturating_sub(covered);
        }
        self.flow.charged += covered.as_micros();
        self.flow.released += claim.left.saturating_sub(covered).as_micros();
        self.minute.push((at, last_minute(cost, claim.began_at, at)));
        Ok((cost > claim.usd).then_some(claim.mission))
    }

    fn charge(
        &mut self,
        task: TaskId,
        fence: Fence,
        usd: Usd,
        at: Timestamp,
        facts: &Facts,
    ) -> Verdict {
        ensure(self.billed.insert(fence), || format!("attempt {fence} was charged twice"))?;
        if self.claims.get(&fence).is_some_and(|claim| claim.awaited.is_none()) {
            self.return_parts(fence)?;
        }
        let late = self.unbilled.remove(&fence);
        let Some(claim) = late.clone().or_else(|| self.claims.get(&fence).cloned()) else {
            return Err(format!("{task:?} was charged {usd} for {fence}, which was no attempt"));
        };
        let (covered, expected) = (claim.left.min(usd), claim.estimate_left.min(usd));
        // What nobody held money for counts for the day on which it was told.
        let scopes = match late {
            Some(_) => self.without_claim(&claim, at),
            None => claim.scopes.clone(),
        };
        self.spend(&scopes, usd, (covered, expected))?;
        let goes_on = facts.mission(claim.mission).is_ok_and(|m| !m.paused && !m.ended);
        if usd > claim.usd && goes_on {
            self.to_stop.insert(claim.mission);
        }
        self.note_spent(&claim, usd, at);
        if let Some(open) = self.claims.get_mut(&fence) {
            open.left = minus(open.left, covered)?;
            open.estimate_left = minus(open.estimate_left, expected)?;
            if open.awaited.is_some() {
                self.release(fence)?;
            }
        }
        Ok(())
    }

    /// Whether the attempt began before the host started that runs now.
    fn is_dead(&self, claim: &Claim) -> bool {
        claim.scopes.iter().any(|scope| matches!(scope, Scope::Session(of) if *of < self.session))
    }

    /// The scopes of a bill that comes after its money was given back.
    fn without_claim(&self, claim: &Claim, at: Timestamp) -> Vec<Scope> {
        let moved = claim.scopes.iter().filter_map(|scope| match scope {
            Scope::Pool(..) => None,
            Scope::Session(_) => Some(Scope::Session(self.session)),
            Scope::Day(_) => Some(Scope::Day(Span::Day.number(at))),
            Scope::ScalingDay(_) => Some(Scope::ScalingDay(Span::Day.number(at))),
            Scope::Week(_) => Some(Scope::Week(Span::Week.number(at))),
            Scope::Month(_) => Some(Scope::Month(Span::Month.number(at))),
            other => Some(*other),
        });
        moved.collect()
    }

    /// The attempt has ended without a bill: its money is held for a while.
    fn wait(&mut self, fence: Fence, at: Timestamp) -> Verdict {
        let until = at.plus_ms(self.rules.bill_ms);
        self.return_parts(fence)?;
        let claim = self.claims.get_mut(&fence);
        let claim = claim.ok_or_else(|| format!("attempt {fence} ended without a reservation"))?;
        claim.awaited = Some(until);
        Ok(())
    }

    fn give_up(&mut self, fence: Fence, usd: Usd, at: Timestamp) -> Verdict {
        let claim = self.claims.get(&fence).cloned();
        let claim = claim.ok_or_else(|| format!("nothing was held for {fence}"))?;
        let is_over = self.closing && self.is_dead(&claim);
        ensure(claim.awaited.is_some_and(|until| until <= at || is_over), || {
            format!("the money of {fence} was given back before its time")
        })?;
        ensure(claim.left == usd, || format!("{usd} went back of {} for {fence}", claim.left))?;
        self.release(fence)?;
        let spent = Claim { left: Usd::ZERO, estimate_left: Usd::ZERO, ..claim };
        self.unbilled.insert(fence, spent);
        Ok(())
    }

    fn release(&mut self, fence: Fence) -> Verdict {
        if self.claims.get(&fence).is_some_and(|claim| claim.awaited.is_none()) {
            self.return_parts(fence)?;
        }
        let claim = self.claims.remove(&fence);
        let claim = claim.ok_or_else(|| format!("attempt {fence} ended without a reservation"))?;
        for scope in claim.scopes {
            let left = weight(scope, claim.left, claim.estimate_left);
            let purse = self.purses.entry(scope).or_default();
            purse.reserved = minus(purse.reserved, left)?;
        }
        self.flow.released += claim.left.as_micros();
        Ok(())
    }

    /// After a batch: the sums are right, and the engine's books say the same.
    pub(super) fn close(&mut self, state: &State, now: Timestamp) -> Verdict {
        if let Some(mission) = self.to_stop.pop_first() {
            return Err(format!("an attempt of {mission} overspent, and the mission goes on"));
        }
        let held = self.claims.values().chain(self.councils.values());
        let held: u64 = held.map(|claim| claim.left.as_micros()).sum();
        let held = held + self.parts.values().map(|part| part.left.as_micros()).sum::<u64>();
        let Flow { reserved, charged, released } = self.flow;
        ensure(reserved == charged + released + held, || {
            format!("{reserved} were reserved, but {charged} + {released} + {held} are known")
        })?;
        for (scope, purse) in &self.purses {
            let theirs = state.ledger().purse(*scope);
            ensure(theirs == *purse, || format!("{scope:?} is {purse:?}, not {theirs:?}"))?;
        }
        for (fence, claim) in &self.claims {
            ensure(claim.awaited.is_none_or(|until| now < until), || {
                format!("the bill of {fence} is awaited for ever")
            })?;
            ensure(claim.awaited.is_none() || !self.closing || !self.is_dead(claim), || {
                format!("the bill of {fence} is awaited, and nobody is left to send it")
            })?;
        }
        self.judge_watchdog(now)
    }

    fn judge_watchdog(&mut self, now: Timestamp) -> Verdict {
        self.minute.retain(|(at, _)| now.ms_since(*at) < MINUTE_MS);
        let spent = self.minute.iter().fold(Usd::ZERO, |sum, (_, usd)| sum + *usd);
        let max = self.rules.watchdog.minute_usd_max;
        ensure(self.halted.is_some() || spent < max, || {
            format!("{spent} were spent within a minute, and nobody stopped it")
        })?;
        let is_over = self.halted.is_some_and(|grace_ends_at| grace_ends_at <= now);
        let running = self.claims.iter().find(|(_, claim)| claim.awaited.is_none());
        ensure(!is_over || running.is_none(), || {
            format!("attempt {running:?} still runs after the watchdog's grace")
        })?;
        let sits = self.councils.first_key_value();
        ensure(!is_over || sits.is_none(), || {
            format!("council {sits:?} still sits after the watchdog's grace")
        })
    }

    /// Whether an attempt at this task by one of these fits every cap.
    pub(super) fn affords(
        &self,
        task: &Task,
        mut by: impl Iterator<Item = AgentId>,
        attempt: Usd,
        now: Timestamp,
    ) -> bool {
        let (purpose, estimate) = self.trials.next(task, attempt, self.unseen(task.id));
        let fits = |scope: Scope| {
            let asked = weight(scope, attempt, estimate);
            self.cap(scope).is_none_or(|cap| self.purse(scope).committed() + asked <= cap)
        };
        let day = Span::Day.number(now);
        let pools = Pool::open_to(purpose, task.priority);
        let has_pool = pools.iter().any(|pool| fits(Scope::Pool(day, *pool)));
        let drawn = Drawn { pool: None, purpose, estimate };
        let fits_for = |agent| {
            self.scopes(task.mission, Some(task.id), Some(agent), &drawn, now).into_iter().all(fits)
        };
        self.halted.is_none()
            && self.has_tokens(task.mission)
            && (has_pool || self.rules.pools.is_none())
            && by.any(fits_for)
    }

    /// Whether one more council like this fits every cap.
    pub(super) fn affords_council(
        &self,
        task: TaskId,
        like: &Convocation,
        facts: &Facts,
        now: Timestamp,
    ) -> Result<bool, String> {
        let of_task = facts.task(task)?;
        let (usd, purpose) = (like.reserved, Purpose::Council);
        let fits = |scope: Scope| {
            self.cap(scope).is_none_or(|cap| self.purse(scope).committed() + usd <= cap)
        };
        let day = Span::Day.number(now);
        let mut pools = Pool::open_to(purpose, of_task.priority).iter();
        let has_pool = pools.any(|pool| fits(Scope::Pool(day, *pool)));
        let drawn = Drawn { pool: None, purpose, estimate: usd };
        let scopes = self.scopes(of_task.mission, None, None, &drawn, now);
        let vote = usd.as_micros().div_ceil(like.panel.len().max(1) as u64);
        let is_dear = self.rules.caps.call_usd_max.is_some_and(|max| Usd::micros(vote) > max);
        Ok(self.halted.is_none()
            && !is_dear
            && self.has_tokens(of_task.mission)
            && (has_pool || self.rules.pools.is_none())
            && scopes.into_iter().all(fits))
    }

    /// Whether one more attempt, of a token at least, fits the mission's tokens.
    fn has_tokens(&self, mission: MissionId) -> bool {
        let used = self.tokens.get(&mission).copied().unwrap_or_default();
        let all = self.claims.values().chain(self.councils.values());
        let open = all.filter(|claim| claim.mission == mission).map(|claim| claim.tokens);
        let open = open.sum::<u64>();
        self.rules.tokens.mission_max.is_none_or(|max| used + open < max)
    }

    fn scopes(
        &self,
        mission: MissionId,
        task: Option<TaskId>,
        agent: Option<AgentId>,
        drawn: &Drawn,
        at: Timestamp,
    ) -> Vec<Scope> {
        let day = Span::Day.number(at);
        let mut scopes = vec![
            Scope::Project,
            Scope::Session(self.session),
            Scope::Mission(mission),
            Scope::Task(mission, task),
            Scope::Agent(mission, agent),
            Scope::Day(day),
            Scope::Week(Span::Week.number(at)),
            Scope::Month(Span::Month.number(at)),
        ];
        scopes.extend(drawn.pool.map(|pool| Scope::Pool(day, pool)));
        if agent.is_some_and(|agent| self.extra.contains(&agent)) {
            scopes.push(Scope::ScalingDay(day));
        }
        if drawn.purpose == Purpose::Retry {
            scopes.push(Scope::Retries(mission));
        }
        if drawn.purpose == Purpose::Council {
            scopes.push(Scope::CouncilDay(day));
            scopes.push(Scope::CouncilWeek(Span::Week.number(at)));
        }
        scopes
    }

    fn purse(&self, scope: Scope) -> Purse {
        self.purses.get(&scope).copied().unwrap_or_default()
    }

    fn cap(&self, scope: Scope) -> Option<Usd> {
        let caps = &self.rules.caps;
        match scope {
            Scope::Project => caps.project_usd_max,
            Scope::Session(_) => caps.session_usd_max,
            Scope::Mission(mission) => {
                self.caps.get(&mission).copied().into_iter().chain(caps.mission_usd_max).min()
            }
            Scope::Retries(mission) => {
                let raised = self.retry_caps.get(&mission).copied().unwrap_or_default();
                caps.retries_usd_max.map(|cap| cap.max(raised))
            }
            Scope::Task(..) => caps.task_usd_max,
            Scope::Agent(..) => caps.agent_usd_max,
            Scope::Day(_) => caps.day_usd_max,
            Scope::Week(_) => caps.week_usd_max,
            Scope::Month(_) => caps.month_usd_max,
            Scope::Pool(_, pool) => Some(self.rules.pools?.of(pool, caps.day_usd_max?)),
            Scope::CouncilDay(_) => caps.council_day_usd_max,
            Scope::CouncilWeek(_) => caps.council_week_usd_max,
            Scope::ScalingDay(_) => caps.scaling_day_usd_max,
        }
    }
}

/// Retries are admitted by what they will probably cost.
fn weight(scope: Scope, worst: Usd, estimate: Usd) -> Usd {
    if matches!(scope, Scope::Retries(_)) { estimate } else { worst }
}

fn minus(from: Usd, usd: Usd) -> Result<Usd, String> {
    ensure(usd <= from, || format!("{usd} were taken from {from}"))?;
    Ok(from.saturating_sub(usd))
}

/// What of an even spending falls into its last minute, rounded up.
fn last_minute(usd: Usd, began_at: Timestamp, at: Timestamp) -> Usd {
    let took_ms = at.ms_since(began_at).max(MINUTE_MS);
    Usd::micros((usd.as_micros() * MINUTE_MS).div_ceil(took_ms))
}
