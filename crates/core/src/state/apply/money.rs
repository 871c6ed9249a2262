//! Money: reservations, charges and bills that come late.

use crate::escalation::Cause;
use crate::event::{Event, PauseReason};
use crate::ids::{Fence, MissionId, TaskId};
use crate::ledger::{Charge, Comparison, Limit, Remedy, ReservationId};
use crate::limits;
use crate::mission::MissionStage;
use crate::money::Usd;
use crate::report::Usage;
use crate::state::{Bill, Billed, Lease, Live, State, Timer};
use crate::time::{MINUTE_MS, Timestamp};

impl State {
    /// The arms of `apply` about money; it names each of them, so none is forgotten.
    pub(in crate::state) fn apply_to_money(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::CostCharged { task, fence, usd, usage } => {
                self.charge(*task, *fence, *usd, usage, at);
            }
            Event::SubAgentOpened { fence, sub_agent, of, usd, .. } => {
                self.sub_agent_opened(*fence, *sub_agent, *of, *usd);
            }
            Event::SubAgentClosed { task, fence, sub_agent, spent, usage } => {
                let parent = self.parent_of(*sub_agent);
                self.ledger.released(*sub_agent);
                let charge = self.charge_of(*fence, *spent, tokens_of(usage), at);
                let charge = charge.map(|charge| Charge { reservation: parent, ..charge });
                self.pay((*task, *fence), charge, (*spent, usage), at);
            }
            Event::SessionStarted => self.ledger.session_started(at),
            Event::CapRaised { mission, limit: Limit::Retries, usd, .. } => {
                self.ledger.retries_capped(*mission, *usd);
            }
            Event::CapRaised { mission, usd, .. } => self.ledger.mission_capped(*mission, *usd),
            Event::BurnAlerted { .. } => self.ledger.alerted(at),
            Event::SpendingPaused { alarm, grace_ends_at } => {
                self.raise_notice(Some(Cause::of_alarm(alarm)), None);
                self.ledger.paused(at, *grace_ends_at);
                self.timers.insert((*grace_ends_at, Timer::Grace));
            }
            Event::SpendingStopped => {
                self.end_grace();
                self.ledger.stopped(at);
            }
            Event::SpendingResumed { .. } => {
                self.end_grace();
                self.settle_alarms();
                self.ledger.resumed();
            }
            Event::ReservationReleased { fence, .. } => self.stop_awaiting(*fence),
            _ => {}
        }
    }

    /// What an attempt cost, once it has ended. Its sub-agents have ended with it.
    fn charge(&mut self, id: TaskId, fence: Fence, usd: Usd, usage: &[Usage], at: Timestamp) {
        if let Some(reservation) = self.lease(fence).and_then(|lease| lease.reservation) {
            self.ledger.parts_released(reservation);
        }
        let charge = self.charge_of(fence, usd, tokens_of(usage), at);
        self.pay((id, fence), charge, (usd, usage), at);
        if let Some(bill) = self.bills.remove(&fence) {
            self.timers.remove(&(bill.until, Timer::Bill(fence)));
            self.free(&bill);
            self.forget_bill(&bill);
        }
    }

    fn sub_agent_opened(
        &mut self,
        fence: Fence,
        sub_agent: ReservationId,
        of: Option<ReservationId>,
        usd: Usd,
    ) {
        let Some(reservation) = self.lease(fence).and_then(|lease| lease.reservation) else {
            return;
        };
        let parent = of.unwrap_or(reservation);
        self.ledger.part_reserved(sub_agent, parent, usd);
    }

    fn pay(
        &mut self,
        (id, fence): (TaskId, Fence),
        charge: Option<Charge>,
        (usd, usage): (Usd, &[Usage]),
        at: Timestamp,
    ) {
        if let Some(charge) = &charge {
            self.ledger.charged(charge);
        }
        let lease = self.lease(fence);
        let routed = lease.and_then(|lease| Some((lease.route.clone()?, lease.granted_at)));
        if let Some((route, began_at)) = routed {
            // What a long attempt used counts by its last minute.
            let took_ms = at.ms_since(began_at).max(MINUTE_MS);
            for used in usage {
                let tokens = u128::from(used.tokens()) * u128::from(MINUTE_MS);
                let tokens = u64::try_from(tokens / u128::from(took_ms)).unwrap_or(u64::MAX);
                self.permits.granted(&route.provider, tokens, at);
            }
        }
        self.with_task(id, |task| task.spent += usd);
        self.restand(id);
        if let Some(agent) = charge.and_then(|charge| charge.account.agent) {
            self.charge_seat(agent, usd);
        }
        if let Some(mission) = self.task(id).map(|task| task.mission) {
            self.calibrate(mission);
        }
    }

    /// What was estimated meets what was spent, once all is done (BUD-10); again if a bill comes
    /// late. A mission that was broken off says nothing.
    pub(in crate::state) fn calibrate(&mut self, id: MissionId) {
        let Some(mission) = self.mission(id) else { return };
        let delivered = matches!(mission.stage, MissionStage::Delivered { .. });
        if let Some(estimate) = mission.estimate.as_ref().filter(|_| delivered) {
            let (estimated, actual) = (estimate.uncalibrated_mean(), self.purse_of(id).spent);
            self.calibration.ended(Comparison { mission: id, estimated, actual });
        }
    }

    /// The attempt has ended. What it did not spend goes back, unless its bill is still to come.
    pub(in crate::state) fn end_attempt(&mut self, fence: Fence, billed: Billed, at: Timestamp) {
        let Some(Live::Attempt(lease)) = self.end_live(fence) else { return };
        if let Some(id) = lease.reservation {
            self.ledger.parts_released(id);
        }
        match (billed, lease.billed) {
            (Billed::Later, Billed::Later) => self.await_bill(fence, lease, at),
            _ => {
                if let Some(id) = lease.reservation {
                    self.ledger.released(id);
                }
            }
        }
    }

    fn await_bill(&mut self, fence: Fence, lease: Lease, at: Timestamp) {
        let until = at.plus_ms(self.settings.money.bill_ms);
        self.timers.insert((until, Timer::Bill(fence)));
        // What its sub-agents have cost is paid already.
        let reserved = self.uncharged(&lease);
        let Lease { task, account, reservation, granted_at: began_at, .. } = lease;
        let bill = Bill { task, account, reserved, reservation, began_at, until };
        self.with_task(task, |task| task.unbilled += reserved);
        self.bills.insert(fence, bill);
        while self.bills.len() > limits::BILLS_AWAITED_MAX {
            let Some((oldest, bill)) = self.bills.pop_first() else { return };
            self.timers.remove(&(bill.until, Timer::Bill(oldest)));
            self.free(&bill);
            self.forget_bill(&bill);
        }
    }

    /// It is paid, or no longer awaited.
    fn forget_bill(&mut self, bill: &Bill) {
        let reserved = bill.reservation.map_or(Usd::ZERO, |_| bill.reserved);
        self.with_task(bill.task, |task| task.unbilled = task.unbilled.saturating_sub(reserved));
    }

    /// Its money is free again; a bill that comes after all is an overspend, but it is paid.
    fn stop_awaiting(&mut self, fence: Fence) {
        let Some(mut bill) = self.bills.remove(&fence) else { return };
        self.timers.remove(&(bill.until, Timer::Bill(fence)));
        self.free(&bill);
        self.forget_bill(&bill);
        bill.reservation = None;
        self.bills.insert(fence, bill);
    }

    fn free(&mut self, bill: &Bill) {
        if let Some(id) = bill.reservation {
            self.ledger.released(id);
        }
        self.restand(bill.task);
    }

    fn end_grace(&mut self) {
        if let Some(at) = self.ledger.grace_ends_at() {
            self.timers.remove(&(at, Timer::Grace));
        }
    }

    /// A mission that was paused for a limit goes on when the limit begins anew.
    pub(in crate::state) fn await_renewal(&mut self, mission: MissionId, reason: &PauseReason) {
        let PauseReason::Limit { refusal } = reason else { return };
        if let Remedy::WaitUntil(at) = refusal.remedy() {
            self.timers.insert((at, Timer::Renewal(mission)));
        }
    }

    pub(in crate::state) fn stop_renewal(&mut self, mission: MissionId) {
        let paused = self.mission(mission).and_then(|mission| mission.paused.clone());
        let Some(PauseReason::Limit { refusal }) = paused else { return };
        if let Remedy::WaitUntil(at) = refusal.remedy() {
            self.timers.remove(&(at, Timer::Renewal(mission)));
        }
    }
}

pub(in crate::state) fn tokens_of(usage: &[Usage]) -> u64 {
    usage.iter().map(Usage::tokens).fold(0, u64::saturating_add)
}
