//! Bugs about agents and their number.

use kapelle_core::scaling::{ScaleReason, ScaleRefusal};
use kapelle_core::{Actor, AgentId, Command, Event, Refusal, Role};

use super::{Decision, Mutant};

/// The decision as a bug about agents falsifies it.
pub(super) fn falsify(mutant: Mutant, decision: Decision, given: &Command) -> Decision {
    match (mutant, decision) {
        (Mutant::Overstaffed, Err(Refusal::Scale(ScaleRefusal::AtMax { role, .. }))) => {
            Ok(vec![added(role)])
        }
        (Mutant::WrongLeaver, Ok(events)) => Ok(events.into_iter().map(of_the_team).collect()),
        (Mutant::Reckless, Ok(events)) => Ok(events.into_iter().map(all_the_same).collect()),
        (Mutant::DeafToLimits, Ok(_)) if matches!(given, Command::ReportRateUse { .. }) => {
            Ok(Vec::new())
        }
        (_, decision) => decision,
    }
}

fn of_the_team(mut event: Event) -> Event {
    if let Event::AgentRetired { agent, .. } = &mut event {
        agent.seat = 1;
    }
    event
}

fn all_the_same(event: Event) -> Event {
    match event {
        Event::ScaleRefused { role, .. } => added(role),
        event => event,
    }
}

/// One more agent, on a seat that nobody has.
fn added(role: Role) -> Event {
    let reason = ScaleReason::Person { text: "more is more".into() };
    Event::AgentAdded { agent: AgentId { role, seat: 60 }, reason, by: Actor("ada".into()) }
}
