//! Money: reserved before it is spent, charged as it is spent, given back when it was not.
//!
//! Every decision is asked of `&self` and says no with the limit that stands in the way; every
//! change is a fact (`reserved`, `charged`, `released`, …) that is taken as it comes. The same
//! facts give the same ledger.
//!
//! Invariants, under any interleaving, while caps are not lowered:
//! * in every scope that has a cap, spent + reserved ≤ cap + excess, where excess is what was
//!   charged beyond its reservation and stays on record for ever;
//! * tasks add up to their mission, agents too, and missions, days and sessions to the project;
//! * what is reserved goes back exactly once.

mod account;
mod burn;
mod calibration;
mod forecast;
mod policy;
mod pools;
mod purses;
mod refusal;
mod report;
mod tokens;
mod watchdog;

use std::collections::{BTreeMap, BTreeSet};

pub use account::{
    Account, Charge, Crew, Drawn, PartRequest, Purpose, Request, Reservation, ReservationId,
    Settlement, Unit,
};
pub use burn::{Burn, BurnAlert};
pub use calibration::{Calibration, Comparison};
pub use forecast::{Forecast, Load, Spread, mission_cap, projected_day};
pub use policy::{
    BurnPolicy, Caps, InvalidPolicy, Policy, Preset, Profile, TokenPolicy, WeekTokens, WhenFull,
};
pub use pools::{Pool, Shares, Throttle};
pub use purses::{Purse, Scope};
pub use refusal::{Limit, Refusal, Remedy, TokenLimit, Warning};
pub use tokens::{Part, TokenUse, Tokens};
pub use watchdog::{Alarm, Policy as WatchdogPolicy, Watchdog, WatchdogState};

use crate::calendar::Span;
use crate::few::FewMap;
use crate::ids::MissionId;
use crate::limits;
use crate::money::Usd;
use crate::time::Timestamp;
use purses::{Purses, Scopes};
use tokens::MoreTokens;

#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Ledger {
    policy: Policy,
    purses: Purses,
    open: FewMap<ReservationId, Open>,
    next: ReservationId,
    mission_caps: BTreeMap<MissionId, Usd>,
    /// Of missions whose retries a person gave more.
    retry_caps: BTreeMap<MissionId, Usd>,
    session: Session,
    watchdog: Watchdog,
    burn: Burn,
    tokens: Tokens,
}

/// From one start of Kapelle to the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Session {
    number: u32,
    started_at: Timestamp,
    /// What was spent in it came in so many bills.
    bills: u64,
}

/// What is neither charged nor given back.
#[derive(Debug, Clone, Copy, Default)]
struct Left {
    usd: Usd,
    estimate: Usd,
    tokens: u64,
}

/// What happens before a reservation that is only thought about.
#[derive(Debug, Clone, Copy)]
enum Meanwhile<'a> {
    Nothing,
    GivenBack(ReservationId),
    Paid(&'a Charge),
}

#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
struct Open {
    reservation: Reservation,
    /// Neither charged nor given to a part.
    left: Usd,
    /// The same of the estimate.
    estimate_left: Usd,
    tokens_left: u64,
    depth: u32,
    parts: BTreeSet<ReservationId>,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger::new(Policy::default())
    }
}

impl Ledger {
    #[must_use]
    pub fn new(policy: Policy) -> Ledger {
        Ledger {
            policy,
            purses: Purses::default(),
            open: FewMap::default(),
            next: ReservationId(1),
            mission_caps: BTreeMap::new(),
            retry_caps: BTreeMap::new(),
            session: Session::default(),
            watchdog: Watchdog::default(),
            burn: Burn::default(),
            tokens: Tokens::default(),
        }
    }

    /// Whether this much can be spent at worst, and out of which pool. The strictest limit that
    /// stands in the way is the one that is named.
    pub fn reserve(&self, request: &Request, now: Timestamp) -> Result<Reservation, Refusal> {
        self.reserve_once(request, Meanwhile::Nothing, now)
    }

    /// Whether it could be reserved, and out of which pool, once a reservation has been given back.
    pub fn may_reserve_after(
        &self,
        request: &Request,
        ended: Option<ReservationId>,
        now: Timestamp,
    ) -> Result<Option<Pool>, Refusal> {
        let meanwhile = ended.map_or(Meanwhile::Nothing, Meanwhile::GivenBack);
        self.may_reserve(request, meanwhile, now)
    }

    /// What could be reserved once a bill has been paid: it may be more than what was set aside
    /// for it. What is left of its reservation stays reserved.
    pub fn reserve_behind(
        &self,
        request: &Request,
        bill: &Charge,
        now: Timestamp,
    ) -> Result<Reservation, Refusal> {
        self.reserve_once(request, Meanwhile::Paid(bill), now)
    }

    fn reserve_once(
        &self,
        request: &Request,
        meanwhile: Meanwhile<'_>,
        now: Timestamp,
    ) -> Result<Reservation, Refusal> {
        let pool = self.may_reserve(request, meanwhile, now)?;
        let Request { account, unit, usd, estimate, tokens } = request;
        Ok(Reservation {
            id: self.next,
            parent: None,
            account: account.clone(),
            unit: *unit,
            usd: *usd,
            estimate: *estimate,
            tokens: *tokens,
            pool,
            session: self.session.number,
            at: now,
        })
    }

    /// The pool that it would come from, if all scopes have room for it.
    fn may_reserve(
        &self,
        request: &Request,
        meanwhile: Meanwhile<'_>,
        now: Timestamp,
    ) -> Result<Option<Pool>, Refusal> {
        self.may_open(request.unit, request.usd)?;
        let Request { account, usd, estimate, tokens, .. } = request;
        if Span::Day.number(now) < self.purses.closed_days {
            return Err(Refusal::DayClosed);
        }
        let scopes = purses::scopes(account, now, self.session.number, None).list();
        let asked = |scope: Scope| scope.weighs(*usd, *estimate);
        let scopes = scopes.iter().flatten().copied();
        let all_have_room =
            scopes.clone().all(|scope| self.has_room(scope, asked(scope), meanwhile));
        if !all_have_room {
            let over = scopes.filter_map(|scope| self.over_once(scope, asked(scope), meanwhile));
            // Of equals the first: the narrower scope.
            if let Some((_, refusal)) = over.min_by_key(|(free, _)| *free) {
                return Err(refusal);
            }
        }
        let more = self.tokens_behind(meanwhile);
        self.tokens.check(&self.policy.tokens, account.mission, (*tokens, more), now)?;
        self.draw(account, *usd, meanwhile, now)
    }

    /// A part of what is reserved already. It moves money within its whole, so only the cap of a
    /// call, that of the agent and the remainder of the whole stand in its way.
    pub fn reserve_part(&self, request: &PartRequest) -> Result<Reservation, Refusal> {
        let &PartRequest { parent, agent, unit, usd, tokens } = request;
        self.may_open(unit, usd)?;
        let whole = self.open.get(&parent).ok_or(Refusal::NoParent { parent })?;
        if whole.reservation.unit == Unit::Call {
            return Err(Refusal::CallDivided { parent });
        }
        if unit == Unit::Attempt && whole.depth >= limits::RESERVATION_DEPTH_MAX {
            return Err(Refusal::TooDeep { max: limits::RESERVATION_DEPTH_MAX });
        }
        if usd > whole.left {
            return Err(Refusal::OverParent { parent, left: whole.left, asked: usd });
        }
        if tokens > whole.tokens_left {
            let left = whole.tokens_left;
            return Err(Refusal::TokensOverParent { parent, left, asked: tokens });
        }
        let estimate = usd.min(whole.estimate_left);
        let mut account = whole.reservation.account.clone();
        if agent != account.agent {
            account.agent = agent;
            let of_agent = Scope::Agent(account.mission, agent);
            if let Some((_, refusal)) = self.over(of_agent, usd) {
                return Err(refusal);
            }
        }
        let whole = &whole.reservation;
        Ok(Reservation {
            id: self.next,
            parent: Some(parent),
            account,
            unit,
            usd,
            estimate,
            tokens,
            ..whole.clone()
        })
    }

    /// What a charge will do to its reservation, and whether it is an overspend.
    #[must_use]
    pub fn settle(&self, charge: &Charge) -> Settlement {
        let left = charge.reservation.and_then(|id| self.open.get(&id));
        let covered = left.map_or(Usd::ZERO, |open| open.left.min(charge.usd));
        Settlement { covered, excess: charge.usd.saturating_sub(covered) }
    }

    fn may_open(&self, unit: Unit, usd: Usd) -> Result<(), Refusal> {
        if let Some(since) = self.watchdog.halted_since() {
            return Err(Refusal::Halted { since });
        }
        if self.open.len() >= limits::RESERVATIONS_OPEN_MAX {
            return Err(Refusal::TooManyOpen { open: self.open.len() });
        }
        if unit == Unit::Call { self.check_call(usd) } else { Ok(()) }
    }

    /// Whether one call of a model may cost this much.
    pub fn check_call(&self, usd: Usd) -> Result<(), Refusal> {
        match self.policy.caps.call_usd_max {
            Some(cap) if usd > cap => Err(Refusal::OverLimit {
                limit: Limit::Call,
                cap,
                spent: Usd::ZERO,
                reserved: Usd::ZERO,
                asked: usd,
                resets_at: None,
            }),
            _ => Ok(()),
        }
    }

    /// The refusal of a scope that has no room for this much, with the room that it has.
    fn over(&self, scope: Scope, asked: Usd) -> Option<(Usd, Refusal)> {
        self.over_once(scope, asked, Meanwhile::Nothing)
    }

    /// Asked for every attempt and of every scope, and the answer is nearly always yes.
    fn has_room(&self, scope: Scope, asked: Usd, meanwhile: Meanwhile<'_>) -> bool {
        self.cap(scope).is_none_or(|cap| {
            let committed = self.purse_once(scope, meanwhile).committed();
            committed <= cap && asked <= cap.saturating_sub(committed)
        })
    }

    fn over_once(
        &self,
        scope: Scope,
        asked: Usd,
        meanwhile: Meanwhile<'_>,
    ) -> Option<(Usd, Refusal)> {
        if self.has_room(scope, asked, meanwhile) {
            return None;
        }
        let cap = self.cap(scope)?;
        let purse = self.purse_once(scope, meanwhile);
        let free = cap.saturating_sub(purse.committed());
        let resets_at = scope.span().map(|(span, number)| span.starts_at(number + 1));
        let Purse { spent, reserved, .. } = purse;
        let limit = Limit::of(scope);
        Some((free, Refusal::OverLimit { limit, cap, spent, reserved, asked, resets_at }))
    }

    /// A purse as it is then.
    fn purse_once(&self, scope: Scope, meanwhile: Meanwhile<'_>) -> Purse {
        let mut purse = self.purses.get(scope);
        let counts = |scopes: Scopes| scopes.list().contains(&Some(scope));
        match meanwhile {
            Meanwhile::Nothing => {}
            Meanwhile::GivenBack(id) => {
                let open = self.open.get(&id).filter(|open| counts(open.reservation.scopes()));
                let left = open.map(|_| self.left_of(id)).unwrap_or_default();
                let held = scope.weighs(left.usd, left.estimate);
                purse.reserved = purse.reserved.saturating_sub(held);
            }
            Meanwhile::Paid(bill) => match bill.reservation.and_then(|id| self.open.get(&id)) {
                Some(open) if counts(open.reservation.scopes()) => {
                    let left = self.left_of(open.reservation.id);
                    let covered = scope.weighs(left.usd.min(bill.usd), left.estimate.min(bill.usd));
                    purse.reserved = purse.reserved.saturating_sub(covered);
                    purse.spent += bill.usd;
                }
                None if counts(self.scopes_of(bill)) => purse.spent += bill.usd,
                Some(_) | None => {}
            },
        }
        purse
    }

    /// What a reservation has once its parts, which are of the same agent, have ended.
    fn left_of(&self, id: ReservationId) -> Left {
        let Some(open) = self.open.get(&id) else { return Left::default() };
        let own = Left { usd: open.left, estimate: open.estimate_left, tokens: open.tokens_left };
        open.parts.iter().map(|part| self.left_of(*part)).fold(own, |sum, part| Left {
            usd: sum.usd + part.usd,
            estimate: sum.estimate + part.estimate,
            tokens: sum.tokens.saturating_add(part.tokens),
        })
    }

    /// What a bill counts for that nothing is reserved for.
    fn scopes_of(&self, bill: &Charge) -> Scopes {
        purses::scopes(&bill.account, bill.at, self.session.number, None)
    }

    /// Whose tokens a bill counts for, and how many of them were not set aside.
    fn tokens_behind(&self, meanwhile: Meanwhile<'_>) -> Option<MoreTokens> {
        let Meanwhile::Paid(bill) = meanwhile else { return None };
        let open = bill.reservation.and_then(|id| self.open.get(&id));
        Some(match open {
            Some(open) => MoreTokens {
                mission: open.reservation.account.mission,
                at: open.reservation.at,
                used: bill.tokens,
                returned: self.left_of(open.reservation.id).tokens.min(bill.tokens),
            },
            None => MoreTokens {
                mission: bill.account.mission,
                at: bill.at,
                used: bill.tokens,
                returned: 0,
            },
        })
    }

    fn draw(
        &self,
        account: &Account,
        usd: Usd,
        meanwhile: Meanwhile<'_>,
        now: Timestamp,
    ) -> Result<Option<Pool>, Refusal> {
        if self.policy.pools.is_none() {
            return Ok(None);
        }
        let day = Span::Day.number(now);
        let mut open = Pool::open_to(account.purpose, account.priority).iter().copied();
        match open.find(|pool| self.has_room(Scope::Pool(day, *pool), usd, meanwhile)) {
            Some(pool) => Ok(Some(pool)),
            None => Err(Refusal::PoolsEmpty {
                asked: usd,
                throttle: self.throttle_once(usd, meanwhile, now),
                resets_at: Span::Day.ends_at(now),
            }),
        }
    }
}

/// The facts.
impl Ledger {
    /// Money was reserved. An id that was used before is a repetition and changes nothing.
    pub fn reserved(&mut self, reservation: &Reservation) {
        if reservation.id < self.next {
            return;
        }
        self.next = ReservationId(reservation.id.0.saturating_add(1));
        let Reservation { usd, estimate, tokens, .. } = *reservation;
        let mut depth = 0;
        match reservation.parent.and_then(|parent| self.open.get_mut(&parent)) {
            Some(whole) => {
                whole.left = whole.left.saturating_sub(usd);
                whole.estimate_left = whole.estimate_left.saturating_sub(estimate);
                whole.tokens_left = whole.tokens_left.saturating_sub(tokens);
                whole.parts.insert(reservation.id);
                depth = whole.depth + 1;
                let (from, to) = (&whole.reservation.account, &reservation.account);
                self.purses.move_reserved(from, to, usd);
            }
            None => {
                let is_new_day = !self.purses.is_known_day(Span::Day.number(reservation.at));
                self.purses.each(&reservation.scopes(), |scope, purse| {
                    purse.reserved += scope.weighs(usd, estimate);
                });
                if is_new_day {
                    self.purses.forget_old_spans();
                }
                self.tokens.reserved(reservation.account.mission, reservation.at, tokens);
            }
        }
        let open = Open {
            reservation: reservation.clone(),
            left: usd,
            estimate_left: estimate,
            tokens_left: tokens,
            depth,
            parts: BTreeSet::new(),
        };
        self.open.insert(reservation.id, open);
    }

    /// An attempt got its money.
    pub fn attempt_reserved(
        &mut self,
        account: Account,
        usd: Usd,
        drawn: &Drawn,
        at: Timestamp,
    ) -> ReservationId {
        let id = self.next;
        self.reserved(&Reservation {
            id,
            parent: None,
            account,
            unit: Unit::Attempt,
            usd,
            estimate: drawn.estimate,
            tokens: limits::ATTEMPT_TOKENS_MIN,
            pool: drawn.pool,
            session: self.session.number,
            at,
        });
        id
    }

    /// A sub-agent got a part of what its attempt, or the sub-agent that started it, has left.
    pub fn part_reserved(&mut self, id: ReservationId, parent: ReservationId, usd: Usd) {
        let Some(whole) = self.open.get(&parent) else { return };
        let reservation = Reservation {
            id,
            parent: Some(parent),
            unit: Unit::Attempt,
            usd,
            estimate: usd.min(whole.estimate_left),
            tokens: 0,
            ..whole.reservation.clone()
        };
        self.reserved(&reservation);
    }

    /// All parts of a reservation have ended: it has what they did not spend.
    pub fn parts_released(&mut self, id: ReservationId) {
        while let Some(part) = self.open.get_mut(&id).and_then(|open| open.parts.pop_first()) {
            self.released(part);
        }
    }

    /// Money was spent, whether or not it was reserved. What was not is kept as excess.
    pub fn charged(&mut self, charge: &Charge) -> Settlement {
        let settlement = self.settle(charge);
        let covered = settlement.covered;
        let mut expected = Usd::ZERO;
        let open = charge.reservation.and_then(|id| self.open.get_mut(&id));
        let (scopes, account, counted_at) = match open {
            Some(open) => {
                open.left = open.left.saturating_sub(covered);
                expected = open.estimate_left.min(charge.usd);
                open.estimate_left = open.estimate_left.saturating_sub(expected);
                let tokens = open.tokens_left.min(charge.tokens);
                open.tokens_left -= tokens;
                let Reservation { account, at, .. } = &open.reservation;
                self.tokens.returned(account.mission, *at, tokens);
                (open.reservation.scopes(), account, *at)
            }
            None => (self.scopes_of(charge), &charge.account, charge.at),
        };
        self.purses.each(&scopes, |scope, purse| {
            let covered = scope.weighs(covered, expected);
            purse.reserved = purse.reserved.saturating_sub(covered);
            purse.spent += charge.usd;
            purse.excess += charge.usd.saturating_sub(covered);
        });
        self.session.bills += u64::from(charge.usd > Usd::ZERO);
        let part = Part::of(account.agent);
        self.tokens.used(account.mission, counted_at, part, charge.tokens);
        self.watchdog.spent(charge.usd, charge.began_at, charge.at);
        self.burn.spent(charge.usd, charge.at);
        settlement
    }

    /// The work ended: what was not spent goes back, for its parts as well. Answers how much;
    /// nothing if it went back before.
    pub fn released(&mut self, id: ReservationId) -> Usd {
        self.parts_released(id);
        let Some(open) = self.open.remove(&id) else { return Usd::ZERO };
        let Open { reservation, left, estimate_left, tokens_left, .. } = open;
        let whole = reservation.parent.and_then(|parent| self.open.get_mut(&parent));
        if let Some(whole) = whole {
            whole.left += left;
            whole.estimate_left += estimate_left;
            whole.tokens_left = whole.tokens_left.saturating_add(tokens_left);
            whole.parts.remove(&id);
            let (from, to) = (&reservation.account, &whole.reservation.account);
            self.purses.move_reserved(from, to, left);
            return left;
        }
        self.purses.each(&reservation.scopes(), |scope, purse| {
            purse.reserved = purse.reserved.saturating_sub(scope.weighs(left, estimate_left));
        });
        self.tokens.returned(reservation.account.mission, reservation.at, tokens_left);
        left
    }

    /// A person changed the rules. Money that is spent or reserved under the old ones stays so.
    pub fn configured(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// A mission got a cap of its own; the policy's holds beside it.
    pub fn mission_capped(&mut self, mission: MissionId, cap: Usd) {
        self.mission_caps.insert(mission, cap);
    }

    /// A person gave the retries of a mission more than the policy does.
    pub fn retries_capped(&mut self, mission: MissionId, cap: Usd) {
        self.retry_caps.insert(mission, cap);
    }

    pub fn session_started(&mut self, at: Timestamp) {
        let number = self.session.number.saturating_add(1);
        self.session = Session { number, started_at: at, bills: 0 };
    }

    /// The watchdog's alarm was answered: nothing is reserved until somebody resumes.
    pub fn paused(&mut self, at: Timestamp, grace_ends_at: Timestamp) {
        self.watchdog.paused(at, grace_ends_at);
    }

    /// The grace is over: nothing that could spend is left.
    pub fn stopped(&mut self, at: Timestamp) {
        self.watchdog.stopped(at);
    }

    /// People were told how dear the last hour was.
    pub fn alerted(&mut self, at: Timestamp) {
        self.burn.alerted(at);
    }

    pub fn resumed(&mut self) {
        self.watchdog.resumed();
    }
}

#[cfg(test)]
mod tests;
