//! How far a history from outside may count.
//!
//! The engine numbers missions and tasks one after the other, and the fold makes room for each of
//! them: a number that was never given would be room for all those before it.

use kapelle_core::Event;
use kapelle_core::limits::SEATS_PER_ROLE_MAX;

/// A lead a second for as long as there are computers.
const EPOCH_MAX: i64 = 1 << 40;

/// The end of the year 9999, in milliseconds.
const AT_MAX: i64 = 253_402_300_799_999;

/// As many as there are milliseconds in thirty years; the engine gives the next one after it.
const FENCE_MAX: u64 = 1 << 40;

pub(super) fn are_kept(at: i64, epoch: i64) -> bool {
    (0..=AT_MAX).contains(&at) && (0..EPOCH_MAX).contains(&epoch)
}

/// What was numbered so far.
#[derive(Debug, Default)]
pub(super) struct Counted {
    missions: u64,
    tasks: u64,
}

impl Counted {
    /// Why no engine wrote this event next, as far as numbers tell.
    pub(super) fn follow(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::MissionOpened { mission, .. } => {
                self.missions += 1;
                expect("mission", mission.0.into(), self.missions)
            }
            Event::PlanAccepted { mission, first_task, tasks, .. } => {
                if !(1..=self.missions).contains(&mission.0.into()) {
                    return Err(format!("{mission} was not opened"));
                }
                let next = self.tasks + 1;
                self.tasks += tasks.len() as u64;
                if self.tasks > u32::MAX.into() {
                    return Err("no number is left for its tasks".into());
                }
                expect("task", first_task.0.into(), next)
            }
            Event::TeamChanged { seats, .. } => {
                match seats.values().find(|seats| **seats > SEATS_PER_ROLE_MAX) {
                    Some(seats) => Err(format!("{seats} seats are too many for a role")),
                    None => Ok(()),
                }
            }
            Event::LeaseGranted { fence, .. } | Event::ChoreStarted { fence, .. }
                if fence.0 > FENCE_MAX =>
            {
                Err(format!("fence {fence} is out of bounds"))
            }
            _ => Ok(()),
        }
    }
}

fn expect(what: &str, found: u64, next: u64) -> Result<(), String> {
    if found == next { Ok(()) } else { Err(format!("{what} {found} is not the next one, {next}")) }
}
