//! What the ledger tells people and the scheduler.

use super::account::{Charge, Reservation, ReservationId};
use super::burn::BurnAlert;
use super::forecast::{self, Forecast, Spread};
use super::policy::Policy;
use super::pools::{Pool, Throttle, permille_of};
use super::purses::{self, Purse, Scope};
use super::refusal::{Limit, Warning};
use super::tokens::Tokens;
use super::watchdog::{Alarm, WatchdogState};
use super::{Ledger, Meanwhile};
use crate::calendar::{DAY_MS, Span};
use crate::ids::{AgentId, MissionId, TaskId};
use crate::money::Usd;
use crate::time::Timestamp;

impl Ledger {
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    #[must_use]
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    #[must_use]
    pub fn purse(&self, scope: Scope) -> Purse {
        self.purses.get(scope)
    }

    /// The cap of a scope, the lower one where there are two.
    #[must_use]
    pub fn cap(&self, scope: Scope) -> Option<Usd> {
        let caps = &self.policy.caps;
        match scope {
            Scope::Project => caps.project_usd_max,
            Scope::Session(_) => caps.session_usd_max,
            Scope::Mission(mission) => {
                let own = self.mission_caps.get(&mission).copied();
                own.into_iter().chain(caps.mission_usd_max).min()
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
            Scope::Pool(_, pool) => Some(self.policy.pools?.of(pool, caps.day_usd_max?)),
            Scope::CouncilDay(_) => caps.council_day_usd_max,
            Scope::CouncilWeek(_) => caps.council_week_usd_max,
            Scope::ScalingDay(_) => caps.scaling_day_usd_max,
        }
    }

    /// What can still be reserved. None without a cap.
    #[must_use]
    pub fn left(&self, scope: Scope) -> Option<Usd> {
        Some(self.cap(scope)?.saturating_sub(self.purse(scope).committed()))
    }

    /// What the day has left for a new mission, by the day's own cap and those above it.
    #[must_use]
    pub fn day_left(&self, now: Timestamp) -> Option<Usd> {
        let scopes = [
            Scope::Day(Span::Day.number(now)),
            Scope::Week(Span::Week.number(now)),
            Scope::Month(Span::Month.number(now)),
            Scope::Project,
        ];
        scopes.into_iter().filter_map(|scope| self.left(scope)).min()
    }

    /// The cap that a mission gets: twice its P95, and never more than the day has left.
    #[must_use]
    pub fn mission_cap(&self, p95: Usd, now: Timestamp) -> Usd {
        forecast::mission_cap(p95, self.day_left(now))
    }

    #[must_use]
    pub fn reservation(&self, id: ReservationId) -> Option<&Reservation> {
        self.open.get(&id).map(|open| &open.reservation)
    }

    /// What of a reservation is neither charged nor given to a part.
    #[must_use]
    pub fn remainder(&self, id: ReservationId) -> Usd {
        self.open.get(&id).map_or(Usd::ZERO, |open| open.left)
    }

    /// Whether money was reserved before the session that runs now.
    #[must_use]
    pub fn is_of_before(&self, id: ReservationId) -> bool {
        self.open.get(&id).is_some_and(|open| open.reservation.session < self.session.number)
    }

    /// What of a reservation is not charged yet, its parts included.
    #[must_use]
    pub fn uncharged(&self, id: ReservationId) -> Usd {
        let Some(open) = self.open.get(&id) else { return Usd::ZERO };
        open.parts.iter().fold(open.left, |sum, part| sum + self.uncharged(*part))
    }

    /// The parts of a reservation, and theirs, with what each of them has left.
    #[must_use]
    pub fn parts(&self, id: ReservationId) -> Vec<(ReservationId, Usd)> {
        let parts = self.open.get(&id).map(|open| &open.parts).into_iter().flatten();
        parts
            .flat_map(|part| [(*part, self.remainder(*part))].into_iter().chain(self.parts(*part)))
            .collect()
    }

    /// The number of the next reservation.
    #[must_use]
    pub fn next_reservation(&self) -> ReservationId {
        self.next
    }

    #[must_use]
    pub fn open_count(&self) -> usize {
        self.open.len()
    }

    pub fn by_task(&self, mission: MissionId) -> impl Iterator<Item = (Option<TaskId>, Purse)> {
        self.purses.tasks(mission)
    }

    pub fn by_agent(&self, mission: MissionId) -> impl Iterator<Item = (Option<AgentId>, Purse)> {
        self.purses.agents(mission)
    }

    /// The days that are kept, oldest first.
    pub fn by_day(&self) -> impl Iterator<Item = (u64, Purse)> {
        self.purses.days()
    }

    #[must_use]
    pub fn session_spent(&self) -> Usd {
        self.purse(Scope::Session(self.session.number)).spent
    }

    /// What the day costs if it goes on like this session.
    #[must_use]
    pub fn projected_day(&self, now: Timestamp) -> Option<Usd> {
        let elapsed_ms = now.ms_since(self.session.started_at);
        forecast::projected_day(self.session_spent(), elapsed_ms)
    }

    /// The same as a budget has to see it (BUD-07): the mean, and what nineteen of twenty such days
    /// stay below when a fifth of the work comes in bursts of twice its tokens.
    #[must_use]
    pub fn forecast_day(&self, now: Timestamp) -> Option<Forecast> {
        let mean = self.projected_day(now)?;
        let bills = self.session.bills;
        let elapsed_ms = now.ms_since(self.session.started_at);
        let a_day = u128::from(bills) * u128::from(DAY_MS) / u128::from(elapsed_ms.max(1));
        let a_day = u64::try_from(a_day).unwrap_or(u64::MAX);
        let each = self.session_spent().as_micros().checked_div(bills).unwrap_or(0);
        let bursty = Forecast::bursty_day(a_day, Usd::micros(each), Spread::Exponential);
        Some(Forecast { mean, p95: bursty.p95.max(mean) })
    }

    /// How far the day's pools are down for first attempts of this size.
    #[must_use]
    pub fn throttle(&self, usd: Usd, now: Timestamp) -> Throttle {
        self.throttle_once(usd, Meanwhile::Nothing, now)
    }

    pub(super) fn throttle_once(
        &self,
        usd: Usd,
        meanwhile: Meanwhile<'_>,
        now: Timestamp,
    ) -> Throttle {
        let day = Span::Day.number(now);
        let is_over = |scope| !self.has_room(scope, usd, meanwhile);
        let has_room = |pool| !is_over(Scope::Pool(day, pool));
        if is_over(Scope::Day(day)) {
            Throttle::Closed
        } else if has_room(Pool::Baseline) {
            Throttle::Open
        } else if has_room(Pool::Spike) {
            Throttle::Busy
        } else if has_room(Pool::Emergency) {
            Throttle::CriticalOnly
        } else {
            Throttle::Closed
        }
    }

    /// The warnings that this charge gives rise to: each cap warns once, when it is crossed.
    #[must_use]
    pub fn warnings(&self, charge: &Charge) -> Vec<Warning> {
        let session = self.session.number;
        let open = charge.reservation.and_then(|id| self.reservation(id));
        let scopes = match open {
            Some(reservation) => reservation.scopes(),
            None => purses::scopes(&charge.account, charge.at, session, None),
        };
        let mut warnings = Vec::new();
        for scope in scopes.list().into_iter().flatten() {
            let before = self.purse(scope).spent;
            let spent = before + charge.usd;
            let limit = Limit::of(scope);
            let crosses = |cap: &Usd| !self.is_short(before, *cap) && self.is_short(spent, *cap);
            if let Some(cap) = self.cap(scope).filter(crosses) {
                warnings.push(Warning { limit, spent, cap });
            }
            let warned = self.policy.session_warning_usd.filter(|_| limit == Limit::Session);
            if let Some(cap) = warned.filter(|warn| before < *warn && spent >= *warn) {
                warnings.push(Warning { limit, spent, cap });
            }
        }
        warnings
    }

    fn is_short(&self, spent: Usd, cap: Usd) -> bool {
        spent > permille_of(cap, self.policy.warning_permille)
    }

    #[must_use]
    pub fn watchdog(&self) -> WatchdogState {
        self.watchdog.state()
    }

    /// What the watchdog demands now.
    #[must_use]
    pub fn alarm(&self, now: Timestamp) -> Option<Alarm> {
        self.watchdog.alarm(&self.policy.watchdog, now)
    }

    #[must_use]
    pub fn grace_ends_at(&self) -> Option<Timestamp> {
        self.watchdog.grace_ends_at()
    }

    #[must_use]
    pub fn minute_usd(&self, now: Timestamp) -> Usd {
        self.watchdog.minute_usd(now)
    }

    #[must_use]
    pub fn hour_usd(&self, now: Timestamp) -> Usd {
        self.burn.hour_usd(now)
    }

    #[must_use]
    pub fn burn_alert(&self, now: Timestamp) -> Option<BurnAlert> {
        self.burn.alert(&self.policy.burn, now)
    }
}
