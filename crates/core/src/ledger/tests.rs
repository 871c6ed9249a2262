//! Rules of the ledger. What holds under any interleaving is in `properties`.

mod properties;
mod rules;

use super::*;
use crate::ids::{AgentId, Role, TaskId};
use crate::plan::Priority;

const MISSION: MissionId = MissionId(1);
/// A Wednesday, at noon.
const NOON: Timestamp = Timestamp(1_767_182_400_000);

fn developer(seat: u32) -> AgentId {
    AgentId { role: Role::Developer, seat }
}

fn account() -> Account {
    Account {
        mission: MISSION,
        task: Some(TaskId(1)),
        agent: Some(developer(1)),
        crew: Crew::Standing,
        purpose: Purpose::Work,
        priority: Priority::Medium,
    }
}

fn request(account: Account, cents: u64) -> Request {
    let usd = Usd::cents(cents);
    Request { account, unit: Unit::Attempt, usd, estimate: usd, tokens: 0 }
}

fn part(parent: ReservationId, unit: Unit, cents: u64) -> PartRequest {
    PartRequest { parent, agent: account().agent, unit, usd: Usd::cents(cents), tokens: 0 }
}

fn charge(reservation: Option<ReservationId>, cents: u64) -> Charge {
    Charge {
        reservation,
        account: account(),
        usd: Usd::cents(cents),
        tokens: 0,
        began_at: Timestamp(0),
        at: NOON,
    }
}

/// A ledger without limits but those that `caps` sets, and a huge one for the project.
fn capped(caps: impl FnOnce(&mut Caps)) -> Ledger {
    let mut policy = Policy { pools: None, ..Policy::default() };
    policy.caps = Caps { project_usd_max: Some(Usd::cents(1_000_000)), ..Caps::NONE };
    caps(&mut policy.caps);
    Ledger::new(policy)
}

/// Reserves as the engine will: asks, then records the answer.
fn take(ledger: &mut Ledger, request: &Request) -> Result<ReservationId, Refusal> {
    let reservation = ledger.reserve(request, NOON)?;
    ledger.reserved(&reservation);
    Ok(reservation.id)
}

fn take_part(ledger: &mut Ledger, request: &PartRequest) -> Result<ReservationId, Refusal> {
    let reservation = ledger.reserve_part(request)?;
    ledger.reserved(&reservation);
    Ok(reservation.id)
}

/// Reserves and spends, all of it.
fn spend(ledger: &mut Ledger, account: Account, cents: u64) -> Result<(), Refusal> {
    let id = take(ledger, &request(account, cents))?;
    ledger.charged(&charge(Some(id), cents));
    ledger.released(id);
    Ok(())
}
