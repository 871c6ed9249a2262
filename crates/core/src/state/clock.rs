//! What time alone changes: leases expire, attempts run out of time, waits end.

use super::{State, Timer};
use crate::event::{Event, Interruption};
use crate::failure::{Failure, FailureKind};
use crate::ids::Actor;
use crate::time::Timestamp;

impl State {
    /// What the earliest moment that has come changes; nothing if none has.
    pub(super) fn tick(&self, now: Timestamp) -> Vec<Event> {
        let back = self.back_in_service(now);
        if !back.is_empty() {
            return back;
        }
        let overdue = self.council_overdue(now);
        if !overdue.is_empty() {
            return overdue;
        }
        let Some((_, timer)) = self.next_timer().filter(|(at, _)| *at <= now) else {
            let expired = self.schedule.locks.next_expired(now);
            return expired.map(|(_, task)| Event::LocksExpired { task }).into_iter().collect();
        };
        match timer {
            Timer::Backoff(task) => vec![Event::BackoffEnded { task }],
            Timer::Bill(fence) => self.release_bill(fence),
            Timer::Grace => self.stop_spending(now),
            Timer::Renewal(mission) => {
                vec![Event::MissionResumed { mission, by: Actor::kapelle() }]
            }
            Timer::Override(task) => vec![Event::OverrideLapsed { task }],
            Timer::Notices => self.notify(now),
            Timer::Chore(mission, chore) => vec![Event::ChoreDue { mission, chore }],
            Timer::Scale(role) => self.scale_by_clock(role, now),
            Timer::Lease(fence) => match self.lease(fence) {
                Some(lease) => vec![Event::AttemptInterrupted {
                    task: lease.task,
                    fence,
                    cause: Interruption::LeaseExpired,
                }],
                None => Vec::new(),
            },
            Timer::Deadline(fence) => match self.lease(fence) {
                Some(lease) => {
                    let seconds = lease.deadline.ms_since(lease.granted_at) / 1_000;
                    let message = format!("the attempt did not end within {seconds} s");
                    let failure = Failure::new(FailureKind::Timeout, &message);
                    self.fail_attempt(lease.task, fence, failure, now)
                }
                None => Vec::new(),
            },
        }
    }
}
